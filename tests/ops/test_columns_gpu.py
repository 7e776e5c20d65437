"""`im2col` and `col2im` on a GPU: exact, and nothing outside the destination."""

from __future__ import annotations

import numpy as np
import pytest
from convolution_reference import columns_of, folded

import cupytma as tma
from cupytma.errors import ArrayError
from cupytma.ops.column_plan import ColumnTilePlan, plan_im2col
from cupytma.ops.convolution import convolution
from cupytma.tensormap.arrays import view_of

pytestmark = pytest.mark.gpu
GUARD = 256
MOVED = ["u1", "u2", "f4", "f8", "c16"]
ADDED = ["f2", "f4", "f8", "i4", "u4", "i8", "u8", "c8", "c16", "i1", "u2"]


def placed(host: np.ndarray, pads=(), offset: int = 0, seed: int = 0):
    """An array's values within a larger random GPU buffer, its dimensions padded, the last first; and the buffer."""
    import cupy

    strides, step = [], host.itemsize
    for i, extent in enumerate(reversed(host.shape)):
        strides.insert(0, step)
        step = step * extent + (pads[i] if i < len(pads) else 0)
    state = cupy.random.RandomState(seed)
    buffer = state.randint(0, 256, step + 2 * GUARD + offset, dtype=cupy.int32).astype(cupy.uint8)
    memory = cupy.cuda.MemoryPointer(buffer.data.mem, buffer.data.ptr - buffer.data.mem.ptr + GUARD + offset)
    array = cupy.ndarray(host.shape, host.dtype, memory, strides=tuple(strides))
    array[...] = cupy.asarray(host)
    return array, buffer


def check_written(out, buffer, expected: np.ndarray, before: np.ndarray) -> None:
    """The array holds what is expected, and the rest of its buffer what it held."""
    after = buffer.get()
    for memory in (after, before):
        place = np.ndarray(out.shape, out.dtype, memory, out.data.ptr - buffer.data.ptr, out.strides)
        if memory is after:
            np.testing.assert_array_equal(place, expected)
        place[...] = 0
    np.testing.assert_array_equal(after, before)


def check(shape, operands, dtype: str, pads=((), ()), offsets=(0, 0), seed: int = 0) -> None:
    """Columns of an array against numpy's."""
    host = np.random.default_rng(seed).integers(0, 100, shape).astype(dtype)
    expected = columns_of(host, *operands)
    x, _ = placed(host, pads[0], offsets[0], seed)
    out, buffer = placed(np.full_like(expected, 77), pads[1], offsets[1], seed + 1)
    before = buffer.get()
    assert tma.im2col(x, *operands, out=out) is out
    check_written(out, buffer, expected, before)


def check_adjoint(shape, operands, dtype: str, pads=((), ()), offsets=(0, 0), seed: int = 0) -> None:
    """Sums of columns against numpy's, of small whole numbers, which are exact in every order."""
    found = convolution(shape, *operands)
    host = np.random.default_rng(seed).integers(0, 4, found.columns).astype(dtype)
    columns, _ = placed(host, pads[0], offsets[0], seed)
    out, buffer = placed(np.full(shape, 77, dtype), pads[1], offsets[1], seed + 1)
    before = buffer.get()
    assert tma.col2im(columns, shape, *operands, out=out) is out
    check_written(out, buffer, folded(host, shape, *operands), before)


def random_geometry(generator: np.random.Generator):
    """A shape up to its channels, and operands whose windows fit."""
    spatial = int(generator.integers(1, 4))

    def draw(low: int, high: int):
        return tuple(int(n) for n in generator.integers(low, high + 1, spatial))

    while True:
        extents, kernel = draw(1, {1: 300, 2: 40, 3: 12}[spatial]), draw(1, 4)
        stride, dilation = draw(1, 4), draw(1, 3)
        padding = tuple(zip(draw(0, 4), draw(0, 4), strict=True))
        if all(n + sum(p) > d * (k - 1) for n, p, d, k in zip(extents, padding, dilation, kernel, strict=True)):
            return (int(generator.integers(1, 4)), *extents), (kernel, stride, padding, dilation)


def random_layout(generator: np.random.Generator, size: int):
    channels = int(generator.choice([1, 3, max(1, 16 // size), 64 // size, 128 // size, 144 // size, 560 // size]))
    pads = [tuple(int(p) for p in generator.choice([0, 0, 0, 16, size], 2)) for _ in range(2)]
    return channels, pads, tuple(int(o) for o in generator.choice([0, 0, 0, 0, 16, size], 2))


@pytest.mark.parametrize("seed", range(500))
def test_random_columns_are_exact_and_touch_nothing_else(seed: int) -> None:
    generator = np.random.default_rng(seed)
    shape, operands = random_geometry(generator)
    dtype = MOVED[seed % len(MOVED)]
    channels, pads, offsets = random_layout(generator, np.dtype(dtype).itemsize)
    check((*shape, channels), operands, dtype, pads, offsets, seed)


@pytest.mark.parametrize("seed", range(500))
def test_random_columns_are_added_up_exactly_and_touch_nothing_else(seed: int) -> None:
    generator = np.random.default_rng(1000 + seed)
    shape, operands = random_geometry(generator)
    dtype = ADDED[seed % len(ADDED)]
    channels, pads, offsets = random_layout(generator, np.dtype(dtype).itemsize)
    check_adjoint((*shape, channels), operands, dtype, pads, offsets, seed)


EDGES = [
    ((3, 30, 29, 64), (3, 1, 1, 1), "u2"),
    ((8, 56, 56, 64), (3, 1, 1, 1), "u2"),
    ((2, 33, 31, 280), ((3, 2), (2, 3), ((2, 1), (0, 3)), (2, 1)), "u2"),
    ((2, 40, 40, 16), (3, 8, 0, 1), "f4"),
    ((2, 40, 40, 16), (3, 9, 0, 1), "f4"),
    ((1, 4, 1900, 16), ((1, 3), (40, 8), (0, 9), (1, 9)), "f4"),
    ((2, 20, 20, 20, 16), (3, 2, 16, 15), "f4"),
    ((2, 20, 20, 20, 16), (17, 3, 0, 1), "f4"),
    ((1, 300, 300, 16), (3, 7, 128, 127), "f4"),
    ((1, 70000, 4), (3, 5, 32768, 32767), "f4"),
    ((4, 224, 224, 3), (7, 2, 3, 1), "u2"),
    ((2, 7, 7, 2048), (1, 1, 0, 1), "u2"),
    ((1, 10, 10, 3000), (2, 1, 0, 1), "f8"),
]


@pytest.mark.parametrize(("shape", "operands", "dtype"), EDGES)
def test_columns_at_the_edges_of_what_maps_hold(shape, operands, dtype: str) -> None:
    found = convolution(shape, *operands)
    operands = found.kernel, found.stride, found.padding, found.dilation
    check(shape, operands, dtype)
    check_adjoint(shape, operands, "f2" if dtype == "u2" else dtype)


def test_columns_are_torchs_unfold() -> None:
    torch = pytest.importorskip("torch")
    functional = torch.nn.functional
    for size, stride, padding, dilation in ((3, 1, 1, 1), (5, 2, 2, 1), ((3, 2), (1, 3), (0, 1), (2, 1))):
        for layout, kind in (("NCHW", torch.contiguous_format), ("NCHW", torch.channels_last), ("NHWC", None)):
            x = torch.randn(3, 40, 28, 30, device="cuda").to(torch.float16)
            unfolded = functional.unfold(x, size, dilation, padding, stride)  # (N, C * taps, windows)
            expected = unfolded.reshape(3, 40, -1, unfolded.shape[-1]).permute(0, 3, 2, 1)
            expected = expected.reshape(-1, unfolded.shape[1])
            given = x.permute(0, 2, 3, 1).contiguous() if kind is None else x.contiguous(memory_format=kind)
            columns = tma.im2col(given, size, stride, padding, dilation, layout=layout)
            assert torch.equal(columns, expected)
            single = columns.float()
            back = tma.col2im(single, given.shape, size, stride, padding, dilation, layout=layout)
            wanted = functional.fold(unfolded.float(), x.shape[2:], size, dilation, padding, stride)
            back = back.permute(0, 3, 1, 2) if layout == "NHWC" else back
            torch.testing.assert_close(back, wanted, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("channels", [5, 64])
def test_bfloat16_is_added_up(channels: int) -> None:
    torch = pytest.importorskip("torch")
    columns = torch.randint(0, 4, (2 * 12 * 12, 9 * channels), device="cuda").to(torch.bfloat16)
    host = columns.float().cpu().numpy()
    expected = folded(host, (2, 12, 12, channels), (3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1))
    found = tma.col2im(columns, (2, 12, 12, channels), 3, padding=1)
    assert found.dtype == torch.bfloat16
    np.testing.assert_array_equal(found.float().cpu().numpy(), expected)


def test_a_convolution_is_a_product_with_columns() -> None:
    torch = pytest.importorskip("torch")
    x = torch.randint(-3, 4, (4, 20, 20, 32), device="cuda").float()
    weights = torch.randint(-3, 4, (48, 32, 3, 3), device="cuda").float()
    columns = tma.im2col(x, 3, stride=2, padding=1)
    found = columns @ weights.permute(2, 3, 1, 0).reshape(-1, 48)
    expected = torch.nn.functional.conv2d(x.permute(0, 3, 1, 2), weights, stride=2, padding=1)
    torch.testing.assert_close(found.reshape(4, 10, 10, 48).permute(0, 3, 1, 2), expected, rtol=1e-2, atol=0.5)


def test_the_large_case_goes_through_tensor_maps_and_is_exact() -> None:
    import cupy

    x = cupy.random.default_rng(0).integers(0, 2**16, (32, 56, 56, 64), dtype=cupy.uint16)
    out = tma.im2col(x, 3, padding=1)
    found = convolution(x.shape, 3, 1, 1, 1)
    assert isinstance(plan_im2col(view_of(x), view_of(out), found), ColumnTilePlan)
    padded = cupy.pad(x, [(0, 0), (1, 1), (1, 1), (0, 0)])
    taps = out.reshape(32, 56, 56, 9, 64)
    for tap in range(9):
        high, wide = divmod(tap, 3)
        assert bool((taps[:, :, :, tap] == padded[:, high : high + 56, wide : wide + 56]).all())


def test_empty_arrays() -> None:
    import cupy

    for shape in ((0, 4, 4, 8), (2, 4, 4, 0), (2, 0, 4, 8)):
        columns = tma.im2col(cupy.zeros(shape, cupy.float32), 3, padding=2)
        assert not columns.any()
        assert columns.shape == convolution(shape, 3, 1, 2, 1).columns
        assert not tma.col2im(cupy.ones(columns.shape, cupy.float32), shape, 3, padding=2).any()


def test_what_does_not_fit_is_refused() -> None:
    import cupy

    x = cupy.zeros((2, 6, 6, 8), cupy.float32)
    with pytest.raises(ArrayError, match="no window fits"):
        tma.im2col(x, 7)
    with pytest.raises(ArrayError, match="the columns have shape"):
        tma.im2col(x, 3, out=cupy.zeros((3, 3), cupy.float32))
    with pytest.raises(ArrayError, match="host memory"):
        tma.im2col(np.zeros((2, 6, 6, 8), np.float32), 3)
    with pytest.raises(ArrayError, match="overlaps"):
        tma.im2col(x, 1, out=x.reshape(-1, 8))
    with pytest.raises(ArrayError, match="layout"):
        tma.im2col(x, 3, layout="HWC")
    with pytest.raises(ArrayError, match="the columns have shape"):
        tma.col2im(cupy.zeros((3, 3), cupy.float32), x.shape, 3)
    with pytest.raises(ArrayError, match="out has shape"):
        tma.col2im(cupy.zeros((32, 72), cupy.float32), x.shape, 3, out=x[:1])
    with pytest.raises(ArrayError, match="not added up"):
        tma.col2im(cupy.zeros((32, 72), bool), x.shape, 3)


def test_columns_are_captured_in_graphs() -> None:
    import cupy

    x = cupy.random.default_rng(0).integers(0, 4, (2, 20, 20, 32)).astype(cupy.float32)
    expected = tma.im2col(x, 3, padding=1)
    back = tma.col2im(expected, x.shape, 3, padding=1)
    out, added = cupy.zeros_like(expected), cupy.zeros_like(back)
    tma.im2col(x, 3, padding=1, out=out)
    tma.col2im(out, x.shape, 3, padding=1, out=added)
    out[:], added[:] = 0, 5
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    with stream:
        stream.begin_capture()
        tma.im2col(x, 3, padding=1, out=out, stream=stream)
        tma.col2im(out, x.shape, 3, padding=1, out=added, stream=stream)
        graph = stream.end_capture()
        for _ in range(2):
            graph.launch(stream)
        stream.synchronize()
    assert bool((out == expected).all())
    assert bool((added == back).all())
