"""Pipeline kernels with what numpy makes of the same arrays, and random arrays for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cupytma.pipeline import PipelineKernel, pipeline_kernel

SOFTMAX = """
float top = lowest<float>(), total = 0;
for (int i = thread; i < length; i += threads) top = max(top, float(x[i]));
top = group.max(top);
for (int i = thread; i < length; i += threads) total += exp(x[i] - top);
total = group.sum(total);
for (int i = thread; i < length; i += threads) out[i] = exp(x[i] - top) / total;
"""
# Adds the first coordinate of the tile that an element is in.
STAMP = """
int rows = 1;
for (int d = 0; d + 1 < rank; ++d) rows *= box[d];
const int inner = box[rank - 1];
for (int k = thread; k < rows * inner; k += threads) out[k] = x[k] + at[0];
"""


@dataclass(frozen=True)
class Case:
    """One kernel.

    Attributes
    ----------
    make : callable
        Makes it, with the options of `pipeline_kernel`.
    expected : callable
        The results for whole numpy arrays, which numbers of float types hold exactly but for `tolerance`.
    types : tuple of str
        Of the inputs.
    results : tuple of str
        Types of the results.
    tile : callable
        As `PipelineKernel.program` takes it.
    ranks : tuple of int
    scalars : dict
    tolerance : float
    """

    make: Callable[..., PipelineKernel]
    expected: Callable[..., Any]
    types: tuple[str, ...]
    results: tuple[str, ...]
    tile: Callable[..., Any]
    ranks: tuple[int, ...] = (1, 2, 3, 4, 5)
    scalars: tuple[tuple[str, Any], ...] = ()
    tolerance: float = 0


def _case(
    code: str, types: str, outputs: str, expected: Any, tile: Any = None, *, scalars: str = "", values: Any = (),
    ranks: tuple[int, ...] = (1, 2, 3, 4, 5), tolerance: float = 0, reduce: Any = None, **options: Any,
) -> Case:  # fmt: skip
    results = [entry.split()[0] for entry in (*filter(None, outputs.split(", ")), *(reduce or ()))]
    return Case(
        lambda **more: pipeline_kernel(code, types, outputs, scalars=scalars, reduce=reduce, **{**options, **more}),
        expected, tuple(entry.split()[0] for entry in types.split(", ")), tuple(results), tile or expected, ranks,
        tuple(values), tolerance,
    )  # fmt: skip


def _softmax(x: Any) -> Any:
    powers = np.exp(x.astype("f4") - x.max(axis=-1, keepdims=True).astype("f4"))
    return (powers / powers.sum(axis=-1, keepdims=True)).astype(x.dtype)


CASES: dict[str, Case] = {
    "scale_add": _case(
        "out = scale * a + b", "float32 a, float32 b", "float32 out", lambda a, b, scale: np.float32(scale) * a + b,
        scalars="float32 scale", values=[("scale", 3.0)],
    ),
    "bytes": _case("out = a + b", "uint8 a, uint8 b", "uint8 out", lambda a, b: a + b),
    "widened": _case("out = 2 * a + b", "uint8 a, int32 b", "int64 out", lambda a, b: 2 * a.astype("i8") + b),
    "doubles": _case(
        "out = a - n", "float64 a", "float64 out", lambda a, n: a - n, scalars="int64 n", values=[("n", -(2**40))],
    ),
    "two_outputs": _case(
        "sum = a + b; larger = a > b;", "int16 a, int16 b", "int32 sum, bool larger",
        lambda a, b: (a.astype("i4") + b, a > b),
    ),
    "coordinates": _case(
        "out = a + 1000 * at[0] + at[1] + shape[1]", "int32 a", "int32 out",
        lambda a: a + 1000 * np.arange(len(a), dtype="i4")[:, None] + np.arange(a.shape[1], dtype="i4") + a.shape[1],
        ranks=(2,),
    ),
    "row_sum": _case(
        "total += x", "float32 x", "", lambda x: x.sum(axis=-1, dtype="f4"), lambda x: x,
        reduce={"float32 total": "add"},
    ),
    "row_both": _case(
        "double_x = 2 * x; low = min(low, x); high = max(high, x);", "int16 x", "int16 double_x",
        lambda x: (2 * x, x.min(axis=-1), x.max(axis=-1)), lambda x: (2 * x, x, x),
        reduce={"int16 low": "min", "int16 high": "max"},
    ),
    "dot": _case(
        "total += x * y; count_all += 1;", "float32 x, float32 y", "",
        lambda x, y: ((x * y).sum(dtype="f4"), np.int64(x.size)), lambda x, y: (x * y, np.ones(x.shape, "i8")),
        reduce={"float32 total": "add", "int64 count_all": "add"}, over="all",
    ),
    "softmax": _case(SOFTMAX, "float32 x", "float32 out", _softmax, each="row", tolerance=2e-6),
    "tiles": _case(STAMP, "int32 x", "int32 out", lambda x: x, each="tile"),
}
"""By name. What "tiles" adds, the first coordinate of an element's tile, `expected` leaves out."""


def random_values(generator: np.random.Generator, shape: Sequence[int], dtype: str) -> Any:
    """Small whole numbers, of which sums and products are exact."""
    signed = np.dtype(dtype).kind in "if"
    return generator.integers(-3 if signed else 0, 7, tuple(shape)).astype(dtype)


def random_shape(generator: np.random.Generator, rank: int, most: int) -> tuple[int, ...]:
    """A shape of so many elements at most."""
    choices = [1, 2, 3, 5, 8, 17, 32, 64, 100, 257, 300, 1000, 2051]
    while True:
        shape = tuple(int(extent) for extent in generator.choice(choices[: 13 if rank < 3 else 8], rank))
        if np.prod(shape) <= most:
            return shape


def random_layout(
    generator: np.random.Generator, shape: Sequence[int], itemsize: int
) -> tuple[tuple[int, ...], int, int]:
    """Strides in bytes, an offset, and the bytes that an array with them takes, behind the offset."""
    strides, step = [], itemsize
    for extent in reversed(shape):
        strides.insert(0, step)
        step *= extent + int(generator.choice([0, 0, 0, 1, 16 // itemsize, 4]))
    return tuple(strides), int(generator.choice([0, 0, 0, 16, itemsize])), step
