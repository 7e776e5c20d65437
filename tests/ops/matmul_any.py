"""Any product in any way of tiling that is called possible, by a number."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from matmul_arrays import TYPES, matrix, operands

from cupytma.ops.matmul_configuration import _LEGAL, Configuration, problem_with
from cupytma.ops.matmul_operands import check_operands
from cupytma.targets import target
from cupytma.tensormap.arrays import view_of

EXTENTS = 1, 2, 7, 9, 63, 65, 130, 133, 136, 192, 200, 300
BLOCKS = 0, 1, 2, 5, 8, 9, 17, 40, 65, 130  # of 16 bytes along K
ODD_WAYS = (
    # Tiles whose last columns are written twice, with half lines, in halves while promoted, or with neither.
    *(Configuration(1, columns) for columns in (40, 56, 88, 136, 152, 160, 184, 200, 248)),
    *(Configuration(2, columns) for columns in (72, 120)),
    *(Configuration(rows, columns, consumers=1) for rows, columns in ((1, 56), (1, 96), (2, 40), (2, 136), (2, 192))),
    *(Configuration(1, 32, consumers=consumers, resident=2) for consumers in (1, 2)),
    Configuration(1, 104, 1, 2),
    Configuration(1, 80, 2),
    Configuration(1, 48, is_ping_pong=True),
    # Of as many columns as a may have rows, and K among any number of blocks.
    *(
        Configuration(1, columns, split=split, is_swapped=True, consumers=1)
        for columns, split in ((24, 1), (24, 3), (40, 5), (48, 6), (56, 7), (64, 3), (128, 3))
    ),
    Configuration(1, 24, split=3, is_swapped=True, resident=2),
    Configuration(1, 176, is_swapped=True),
    # Of fewer rows than the warpgroups multiply.
    *(Configuration(1, columns, is_swapped=True, spare_rows=spare) for columns, spare in ((8, 16), (16, 56), (64, 32))),
    Configuration(1, 16, 2, is_swapped=True, spare_rows=24),
    Configuration(1, 72, 1, 2, is_swapped=True, spare_rows=32),
    Configuration(2, 32, is_swapped=True, spare_rows=120),
    Configuration(2, 16, is_swapped=True, consumers=1, spare_rows=72),
    *(
        Configuration(1, columns, is_swapped=True, consumers=1, spare_rows=spare)
        for columns, spare in ((8, 56), (16, 48), (40, 56), (64, 56))
    ),
    Configuration(1, 16, 1, 2, is_swapped=True, consumers=1, spare_rows=48),
    Configuration(1, 8, is_swapped=True, consumers=1, resident=3, spare_rows=56),
)


def any_way(chosen: random.Random) -> Configuration:
    """Legal by its fields, one by one; mostly none that a product can be made in."""
    way = Configuration(**{name: chosen.choice(legal) for name, legal in _LEGAL.items()})
    return way if chosen.random() < 0.4 else replace(way, spare_rows=0)


@dataclass(frozen=True)
class AnyProduct:
    """Operands, what the result is, and how it is made."""

    a: np.ndarray
    b: np.ndarray
    result: str
    configuration: Configuration
    how: dict[str, Any]

    def __str__(self) -> str:
        a, b = self.a, self.b
        return f"{a.shape} {a.dtype} × {b.shape} to {self.result} in {self.configuration}, {self.how}"


def any_product(seed: int, most_threads: int) -> AnyProduct:
    """The product of a number, in clusters of so many threads at most."""
    chosen = random.Random(seed)
    dtype, result = chosen.choice(list(TYPES)), chosen.choice(("bfloat16", "float16", "float32"))
    m, n, units = chosen.choice(EXTENTS), chosen.choice(EXTENTS), chosen.choice(BLOCKS)
    is_row_major = dtype.endswith("float16") and chosen.random() < 0.5
    a, b = operands(m, n, units * 16 // np.dtype(TYPES[dtype]).itemsize, dtype, is_row_major, seed)
    how = {"fast_accumulation": chosen.random() < 0.4, "static_b": chosen.random() < 0.5}
    judged = check_operands(view_of(a), view_of(b), view_of(matrix(m, n, result)), tf32=True)
    is_promoted, most_bytes = judged.a.type.is_narrow and not how["fast_accumulation"], target("sm_90a").shared_bytes
    while True:
        c = any_way(chosen)
        if c.cluster * c.threads <= most_threads and not problem_with(c, judged, is_promoted, most_bytes):
            return AnyProduct(a, b, result, c, how)
