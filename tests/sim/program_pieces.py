"""Small programs that the tests of programs share."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cupytma.sim import Program
from cupytma.sim.program import Report

TILE = 256
"""Bytes of the tile that these programs move."""


def load_program(
    *, announce: int | None = TILE, count: int = 1, parity: int = 0, loads: int = 1, arrivals: int = 1
) -> Program:
    """One thread loads tiles of 256 bytes on one barrier, waits once, and reads them."""
    program = Program("load")
    data = program.global_array("data", np.arange(64 * loads, dtype=np.int32).reshape(loads, 64))
    result = program.global_array("result", np.zeros((loads, 64), np.int32))
    tiles = program.shared_array("tiles", (loads, 64), np.int32)
    full = program.mbarrier("full")

    @program.role
    def loader(t):
        yield t.mbarrier_init(full, count)
        yield t.fence_mbarrier_init()
        for _ in range(arrivals):
            if announce is None:
                yield t.mbarrier_arrive(full)
            else:
                yield t.mbarrier_arrive_expect_tx(full, announce)
        for i in range(loads):
            yield t.bulk_copy(tiles[i], data[i], full)
        yield t.mbarrier_wait_parity(full, parity)
        values = yield t.read_shared(tiles)
        yield t.write_global(result, values)

    return program


def in_every_schedule(program: Program, rule: str, seeds: Sequence[int] = range(12)) -> None:
    """A rule is broken under every schedule, whatever it is."""
    for seed in seeds:
        report = program.run(schedules=1, seed=seed)
        assert rule in report.rules, report


def finding(report: Report, rule: str):
    """The one finding of a rule."""
    (found,) = [f for f in report.findings if f.rule == rule]
    return found
