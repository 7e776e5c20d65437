"""What remembering a launch costs, and a check that is off: ``python tests/benchmarks/bench_history.py``; no GPU."""

from __future__ import annotations

import statistics
import timeit

from cupytma.runtime import checks
from cupytma.runtime.history import LaunchRecord, remember

NUMBER, REPEATS = 100_000, 9
KERNEL, GRID, BLOCK, DATA = object(), (8, 1, 1), (128, 1, 1), bytearray(400)
VIEW = memoryview(DATA)

WAYS = {
    "remember a plain tuple": "remember((KERNEL, GRID, BLOCK, None, 0, 0, bytes(VIEW)))",
    "remember a LaunchRecord": "remember(LaunchRecord(KERNEL, GRID, BLOCK, None, 0, 0, bytes(VIEW)))",
    "copy the parameter block alone": "bytes(VIEW)",
    "a check that is off": "checks.enabled and 1",
}


def main() -> None:
    names = dict(globals(), checks=checks, LaunchRecord=LaunchRecord, remember=remember)
    for name, statement in WAYS.items():
        rounds = timeit.repeat(statement, number=NUMBER, repeat=REPEATS, globals=names)
        print(f"{name:35s} {1e9 * statistics.median(rounds) / NUMBER:6.0f} ns")


if __name__ == "__main__":
    main()
