"""The operations beside torch, CuPy and CUDA's own copy: bytes, time, part of what a plain copy reaches; and the aims.

Needs a GPU. Medians, all ways in alternation; ``cupytma bench`` measures the same and more:

    python tests/benchmarks/bench_operations.py
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from cupytma.ops.benchmark import Measurement, Skipped, chosen, fitting_scale, free_memory, run
from cupytma.ops.benchmark_cases import CASES

WORDS = {True: "reached", False: "missed", None: "cannot be told"}


def lines(found: Iterable[Measurement | Skipped]) -> Iterator[str]:
    """A table of what was measured, a line at a time, then one of what was aimed at."""
    measured = []
    yield f"{'operation':46s} {'MB':>7s} {'ms':>8s} {'GB/s':>7s} {'of copy':>8s}   beside"
    for one in found:
        if isinstance(one, Skipped):
            yield f"{one.case.name}: left out, {one.reason}"
            continue
        measured.append(one)
        beside = ", ".join(
            f"{name} {one.bytes / seconds / 1e9:.0f} GB/s ({seconds / one.seconds:.2f} ×)"
            for name, seconds in one.others.items()
        )
        numbers = f"{one.bytes / 1e6:7.0f} {1e3 * one.seconds:8.3f} {one.rate / 1e9:7.0f} {one.of_copy:8.3f}"
        yield f"{one.title:46s} {numbers}   {beside}"
    yield ""
    yield f"{'aim (on one H100)':46s} {'at least':>18s}   here"
    for one in measured:
        for aim in one.case.aims:
            yield f"{one.title:46s} {aim!s:>18s}   {one.reached(aim)}, {WORDS[one.is_reached(aim)]}"
    if measured:
        yield f"a plain copy: {measured[0].copy_rate / 1e9:.0f} GB/s read plus written"


def main() -> None:
    cases = chosen(CASES, ["large"])
    for line in lines(run(cases, fitting_scale(cases, free_memory()))):
        print(line, flush=True)


if __name__ == "__main__":
    main()
