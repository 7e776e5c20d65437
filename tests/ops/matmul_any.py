"""Any product in any way of tiling that is called possible, by a number."""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from matmul_arrays import TYPES, matrix, operands

from cupytma.ops.matmul_configuration import _LEGAL, Configuration, problem_with
from cupytma.ops.matmul_operands import check_operands
from cupytma.targets import target
from cupytma.tensormap.arrays import view_of

EXTENTS = 1, 2, 7, 9, 63, 65, 130, 133, 136, 200, 300
BLOCKS = 0, 1, 2, 5, 8, 9, 17, 40, 65, 130  # of 16 bytes along K
_WAYS = [Configuration(*values) for values in product(*_LEGAL.values())]


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
        c = chosen.choice(_WAYS)
        if c.cluster * c.threads <= most_threads and not problem_with(c, judged, is_promoted, most_bytes):
            return AnyProduct(a, b, result, c, how)
