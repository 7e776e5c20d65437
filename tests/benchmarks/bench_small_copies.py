"""Small copies and transpositions from end to end: microseconds of one call until the GPU has done it, beside torch.

Needs a GPU. All ways in alternation, medians:

    python tests/benchmarks/bench_small_copies.py
"""

from __future__ import annotations

from cupytma.ops.benchmark import Measurement, chosen, run
from cupytma.ops.benchmark_cases import CASES


def main() -> None:
    for one in run(chosen(CASES, ["small"])):
        if isinstance(one, Measurement):
            ways = {"here": one.seconds, **one.others}
            times = ", ".join(f"{name} {1e6 * seconds:6.2f} µs" for name, seconds in ways.items())
            print(f"{one.title:32s} {one.case.timing:7s} {times}", flush=True)
        else:
            print(f"{one.case.name}: left out, {one.reason}", flush=True)


if __name__ == "__main__":
    main()
