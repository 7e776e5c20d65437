"""Every kernel of the operations once, on small arrays: short enough to run under compute-sanitizer's tools.

    compute-sanitizer --tool racecheck pytest -m gpu tests/ops/test_every_kernel_gpu.py
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from test_copy_plan import rows_in_tiles

import cupytma as tma
from cupytma.ops.matmul_configuration import Configuration
from cupytma.runtime.compiler import current_target
from cupytma.runtime.history import recent

pytestmark = pytest.mark.gpu


def bits(shape: tuple[int, ...], dtype: str = "f4", seed: int = 0) -> np.ndarray:
    """Small whole numbers, whose sums are exact in any order."""
    return np.random.default_rng(seed).integers(0, 4, shape).astype(dtype)


def run(kernels: str, operation: Callable[..., Any], expected: np.ndarray, *arrays: Any, **options: Any) -> None:
    """The operation gives what is expected, through the kernels that were named."""
    import cupy

    found = operation(*(cupy.asarray(a) if isinstance(a, np.ndarray) else a for a in arrays), **options)
    np.testing.assert_array_equal(found.get(), expected)
    names = kernels.split()
    assert [record.name for record in recent()[: len(names)]][::-1] == names


def inner(array: np.ndarray, aligned: bool = True) -> Any:
    """A window of a GPU array, so that no two of its dimensions merge; rows begin at multiples of 64 bytes or not."""
    import cupy

    step = 64 // array.itemsize
    room = [(0, 0), *((0, 1) for _ in array.shape[1:])]
    room[-1] = 0, step + (-array.shape[-1] % step if aligned else 0)
    return cupy.asarray(np.pad(array, room))[tuple(map(slice, array.shape))]


SHAPES = {rank: (5, 2, 3, 2, 80)[5 - rank :] for rank in range(1, 6)}


@pytest.mark.parametrize("rank", range(2, 6))
def test_copies_through_tensor_maps(rank: int) -> None:
    for columns in (80, 133):  # the second leaves row ends
        x = bits((*SHAPES[rank][:-1], columns))
        run(f"tile_copy_{rank}d", lambda x=x: tma.copy(inner(x), inner(np.zeros_like(x))), x)


@pytest.mark.parametrize("size", [1, 16, 511, 512, 513, 5000])
def test_copies_of_one_run(size: int) -> None:
    x = bits((size,), "u1")
    run("copy_granules_1d" if size > 512 and size % 16 else "copy_words_1d", tma.copy, x, x)
    with rows_in_tiles():
        x = bits((size, 1), "u1")  # another shape: of this one it is known how it is copied
        run("bulk_copy" if size >= 16 else "copy_words_1d", tma.copy, x, x)


@pytest.mark.parametrize("dtype", ["u1", "u2", "u4", "u8", "c16"])
@pytest.mark.parametrize("rank", range(1, 7))
def test_copies_word_by_word(rank: int, dtype: str) -> None:
    x = bits((2,) * (rank - 1) + (7,), dtype)
    kernel = f"copy_words_{rank}d" if rank < 6 else "word_copy"
    if rank == 1:
        run(kernel, lambda a: tma.copy(a[1:]), x[1:], x)
    else:
        run(kernel, lambda a: tma.copy(inner(x), a), x, np.zeros_like(x))


@pytest.mark.parametrize("rank", range(1, 6))
def test_copies_in_granules(rank: int) -> None:
    x = bits((*(2,) * (rank - 1), 3001), "u1")
    if rank == 1:
        run("copy_granules_1d", lambda a: tma.copy(a[1:]), x[1:], x)
    else:
        run(f"copy_granules_{rank}d", lambda a: tma.copy(inner(x, aligned=False), a), x, np.zeros_like(x))


@pytest.mark.parametrize("dtype", ["u1", "u2", "u4", "u8", "c16"])
def test_transpositions(dtype: str) -> None:
    x = bits((2, 96, 80), dtype)
    run("transpose", tma.transpose, x.swapaxes(1, 2), x)
    odd = bits((33, 35), dtype)
    if dtype != "c16":
        run(f"turn_{odd.itemsize}", tma.transpose, odd.T, odd)


@pytest.mark.parametrize(("shape", "spatial"), [((2, 9, 16), 1), ((2, 6, 7, 16), 2), ((1, 4, 5, 3, 16), 3)])
def test_columns(shape: tuple[int, ...], spatial: int) -> None:
    """col2im is the adjoint of im2col: with a window of 1 they are each other's inverse."""
    x = bits(shape, "f4")
    columns = x.reshape(-1, shape[-1])
    run(f"im2col_{spatial}d", lambda a: tma.im2col(a, 1).reshape(columns.shape), columns, x)
    run(f"fill col2im_{spatial}d", lambda c: tma.col2im(c, shape, 1), x, columns)
    narrow = bits((*shape[:-1], 3), "f4")
    taken = narrow.reshape(-1, 3)
    run("im2col_words", lambda a: tma.im2col(a, 1).reshape(taken.shape), taken, narrow)
    run("col2im_float32", lambda c: tma.col2im(c, narrow.shape, 1), narrow, taken)


def test_fills_and_borders() -> None:
    x = bits((40, 80))
    run("fill", tma.fill, np.full_like(x, 3), x, 3)
    import cupy

    for padded, widths in ((np.pad(x, ((2, 1), (4, 8))), ((2, 1), (4, 8))), (np.pad(x, 1, constant_values=2), 1)):
        value = int(padded[0, 0])
        np.testing.assert_array_equal(tma.pad(cupy.asarray(x), widths, value).get(), padded)
    np.testing.assert_array_equal(tma.flip(cupy.asarray(x), (0,)).get(), x[::-1])
    np.testing.assert_array_equal(tma.flip(cupy.asarray(x), (0, 1)).get(), x[::-1, ::-1])
    np.testing.assert_array_equal(tma.roll(cupy.asarray(x), (3, 5), (0, 1)).get(), np.roll(x, (3, 5), (0, 1)))


@pytest.mark.parametrize("dtype", ["f4", "f2", "i8"])
@pytest.mark.parametrize("rank", range(1, 6))
def test_reductions(rank: int, dtype: str) -> None:
    x, y = bits((2,) * (rank - 1) + (800,), dtype), bits((2,) * (rank - 1) + (800,), dtype, 1)

    def alone(a: Any, b: Any, **options: bool) -> Any:
        return tma.reduce_add(a, b if rank == 1 else inner(b.get()), **options)

    def atomic(a: Any, b: Any) -> Any:
        return alone(a, b, atomic=True)

    run("tile_reduce_2d" if rank == 1 else f"tile_reduce_{rank}d", atomic, x + y, x, y)
    run(f"vector_reduce_{rank}d", alone, x + y, x, y)
    if rank > 1:
        x, y = x[..., :79].copy(), y[..., :79].copy()
        run(f"scalar_reduce_{rank}d", alone, x + y, x, y)
        run("element_reduce", lambda a, b: alone(a[..., ::2], b[..., ::2], atomic=True), (x + y)[..., ::2], x, y)
    parts = bits((100, 64), dtype, 2)
    run("tile_reduce_2d", tma.reduce_add, bits((64,), dtype) + parts.sum(0, dtype=dtype), bits((64,), dtype), parts)


@pytest.mark.parametrize(
    ("columns", "dtype"), [(512, "u1"), (5008, "u1"), *((7, dtype) for dtype in ("u1", "u2", "u4", "u8", "c16"))]
)
def test_rows(columns: int, dtype: str) -> None:
    x, index = bits((50, columns), dtype), np.random.default_rng(1).permutation(50)[:40]
    moved = "rows" if x.shape[1] >= 256 else f"words_{x.itemsize}"
    run(f"gather_{moved}", tma.gather_rows, x[index], x, index)
    expected = np.zeros_like(x)
    expected[index] = x[:40]
    run(f"scatter_{moved}", tma.scatter_rows, expected, np.zeros_like(x), index, x[:40])


@pytest.mark.parametrize("dtype", ["f4", "f2", "i8"])
@pytest.mark.parametrize("columns", [7, 64, 2048])
def test_rows_are_added(columns: int, dtype: str) -> None:
    x, index = bits((200, columns), dtype), np.random.default_rng(1).integers(0, 20, 200)
    expected = np.zeros((20, columns), dtype)
    np.add.at(expected, index, x)
    kernel = f"scatter_add_{'words' if columns == 7 else 'rows'}"
    run(kernel, tma.scatter_add_rows, expected, np.zeros_like(expected), index, x)


@pytest.mark.parametrize("copies", [2, 3, 8])
@pytest.mark.parametrize("rank", range(1, 4))
def test_copies_to_many_places(rank: int, copies: int) -> None:
    for columns in (80, 133):
        x = bits((*SHAPES[rank][:-1], columns))
        expected = np.broadcast_to(x, (copies, *x.shape))
        import cupy

        source = cupy.asarray(x) if rank == 1 else inner(x)
        out = inner(np.zeros((copies, *x.shape), x.dtype))
        np.testing.assert_array_equal(tma.multicast_copy(source, out).get(), expected)
        assert recent()[0].name.startswith("multicast_copy_")


@pytest.mark.parametrize("dtype", ["f4", "f2", "i8", "u1"])
@pytest.mark.parametrize(
    ("shape", "axis"), [((300, 256), 1), ((256, 320), 0), ((100, 20), 1), ((7, 9, 128), 1), ((40, 133), 1)]
)
def test_vectors_are_added(shape: tuple[int, ...], axis: int, dtype: str) -> None:
    x, vector = bits(shape, dtype), bits((shape[axis],), dtype, 1)
    expected = x + vector.reshape([-1 if i == axis else 1 for i in range(len(shape))])
    import cupy

    np.testing.assert_array_equal(tma.broadcast_add(cupy.asarray(x), cupy.asarray(vector), axis=axis).get(), expected)
    assert recent()[0].name.startswith("broadcast_")


@pytest.mark.parametrize("n", [64, 61])
@pytest.mark.parametrize("m", [3, 150])
@pytest.mark.parametrize("dtype", ["float16", "float8_e4m3fn"])
def test_matrices_are_multiplied(dtype: str, m: int, n: int) -> None:
    import cupy
    import ml_dtypes

    if str(current_target()) != "sm_90a":
        pytest.skip("needs a Hopper GPU")
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    a, b = bits((m, 320), "f4").astype(kind), bits((n, 320), "f4", 1).astype(kind)
    held = [cupy.asarray(x.view(f"u{x.itemsize}")) for x in (a, b)]
    found = tma.matmul(held[0], held[1].T, a_dtype=dtype, b_dtype=dtype, out_dtype="float32")
    np.testing.assert_array_equal(found.get(), a.astype("f4") @ b.astype("f4").T)
    assert recent()[0].name == "matmul"


@pytest.mark.parametrize(
    "configuration",
    [
        Configuration(1, 64),
        Configuration(1, 64, 2),
        Configuration(1, 64, 1, 2),
        Configuration(1, 128, 2, 2, is_ping_pong=True),
        Configuration(1, 16, split=4, is_swapped=True),
        Configuration(1, 8, split=2, is_swapped=True, consumers=1, resident=3),
        Configuration(1, 128, split=2, is_swapped=True),
        Configuration(2, 72, split=2, is_swapped=True, consumers=1),
        Configuration(1, 16, is_swapped=True, spare_rows=24),
    ],
    ids=str,
)
@pytest.mark.parametrize("static_b", [False, True])
def test_matrices_are_multiplied_in_every_way_of_sharing(configuration: Configuration, static_b: bool) -> None:
    if str(current_target()) != "sm_90a":
        pytest.skip("needs a Hopper GPU")
    # With more rows no load begins before.
    a, b = bits((60 if static_b else 150, 1040), "f2"), bits((133, 1040), "f2", 1)
    options = {"configuration": configuration, "static_b": static_b, "out_dtype": "float32"}
    run("matmul", lambda x, y: tma.matmul(x, y.T, **options), a.astype("f4") @ b.astype("f4").T, a, b)


@pytest.mark.parametrize(
    "configuration",
    [
        Configuration(1, 32, consumers=1),  # half lines of the result
        Configuration(1, 72),  # columns that are written twice
        Configuration(1, 176),  # whose halves are promoted in turn
        Configuration(1, 64, split=3, is_swapped=True, consumers=1),
        Configuration(1, 64, is_swapped=True, spare_rows=56),  # rows that are not all a tile's
        Configuration(1, 8, is_swapped=True, consumers=1, spare_rows=56),  # of one warpgroup
    ],
    ids=str,
)
def test_matrices_are_multiplied_in_tiles_of_any_width(configuration: Configuration) -> None:
    import ml_dtypes

    if str(current_target()) != "sm_90a":
        pytest.skip("needs a Hopper GPU")
    a, b = bits((150, 2064), "f4"), bits((136, 2064), "f4", 1)
    held = [x.astype(ml_dtypes.float8_e4m3fn).view(np.uint8) for x in (a, b)]
    options = dict.fromkeys(("a_dtype", "b_dtype"), "float8_e4m3fn")
    run(
        "matmul",
        lambda x, y: tma.matmul(x, y.T, configuration=configuration, out_dtype="float16", **options),
        (a @ b.T).astype("f2"), *held,
    )  # fmt: skip
