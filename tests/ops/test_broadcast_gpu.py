"""Vectors combined with arrays on a GPU: bit for bit what numpy has, and nothing outside the result."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import cupytma as tma
from cupytma.errors import ArrayError
from cupytma.ops.broadcast_plan import ELEMENTS, OPERATIONS

pytestmark = pytest.mark.gpu
GUARD = 256
TRUTH = {"add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}
CASES = [(operation, name) for operation in OPERATIONS for name in ELEMENTS]


def dtype_of(name: str) -> np.dtype:
    return np.dtype(getattr(ml_dtypes, name, name))


def numbers(generator, shape, name: str) -> np.ndarray:
    """Integers of any bits; floats of many sizes, denormal ones and infinities among their sums and products."""
    dtype = dtype_of(name)
    if "float" not in name:
        return generator.integers(0, 256, (*shape, dtype.itemsize), np.uint8).view(dtype)[..., 0]
    scale = 2.0 ** generator.integers(-12, 13, shape)
    with np.errstate(all="ignore"):
        found = np.asarray(generator.standard_normal(shape) * scale).astype(dtype)
    if generator.integers(2) and found.size:
        special = np.array([0.0, -0.0, np.inf, 1e-7, -65504.0, 6e-8], np.float64).astype(dtype)
        found.reshape(-1)[generator.integers(0, found.size, 6)] = special
    return found


class Placed:
    """Numbers in a larger random buffer, the same on the host and on the device."""

    def __init__(self, generator, shape, name: str, pad: int = 0, offset: int = 0) -> None:
        import cupy

        self.name, self.shape, size = name, shape, dtype_of(name).itemsize
        strides, step = [], size
        for extent in reversed(shape):
            strides.insert(0, step)
            step = step * extent + (pad * size if len(strides) == 1 else 0)
        self.strides, self.start = tuple(strides), GUARD + offset * size
        self.buffer = generator.integers(0, 256, step + 2 * GUARD + offset * size, dtype=np.uint8)
        self.host[...] = numbers(generator, shape, name)
        self.memory = cupy.asarray(self.buffer)

    @property
    def host(self) -> np.ndarray:
        return np.ndarray(self.shape, dtype_of(self.name), self.buffer, self.start, self.strides)

    @property
    def device(self):
        import cupy

        place = cupy.cuda.MemoryPointer(
            self.memory.data.mem, self.memory.data.ptr - self.memory.data.mem.ptr + self.start
        )
        if self.name != "bfloat16":
            return cupy.ndarray(self.shape, self.name, place, strides=self.strides)
        torch = pytest.importorskip("torch")
        return torch.as_tensor(cupy.ndarray(self.shape, "i2", place, strides=self.strides)).view(torch.bfloat16)


def expected_of(operation: str, x: np.ndarray, vector: np.ndarray, axis: int) -> np.ndarray:
    shape = [1] * x.ndim
    shape[axis] = -1
    with np.errstate(all="ignore"):
        return TRUTH[operation](x, vector.reshape(shape))


def assert_same(found: np.ndarray, placed: Placed) -> None:
    """The same bytes, but that one NaN is as good as another, and one zero of a minimum as the other."""
    differ = found != placed.buffer
    if not differ.any():
        return
    one = np.ndarray(placed.shape, dtype_of(placed.name), found, placed.start, placed.strides)
    wide = np.float64 if "float" in placed.name else one.dtype
    np.testing.assert_array_equal(one.astype(wide), placed.host.astype(wide))
    placed.host[...] = one
    np.testing.assert_array_equal(found, placed.buffer, "bytes outside the result have changed")


def check(
    operation: str, name: str, shape, axis: int, pads=(0, 0), offsets=(0, 0, 0), seed: int = 0, in_place: bool = False
) -> None:
    import cupy

    generator = np.random.default_rng(seed)
    x = Placed(generator, shape, name, pads[0], offsets[0])
    out = x if in_place else Placed(generator, shape, name, pads[1], offsets[1])
    vector = Placed(generator, (shape[axis],), name, 0, offsets[2])
    out.host[...] = expected_of(operation, x.host.copy(), vector.host, axis)
    cupy.cuda.Device().synchronize()
    array = x.device
    result = array if in_place else out.device
    assert getattr(tma, f"broadcast_{operation}")(array, vector.device, result, axis=axis) is result
    cupy.cuda.Device().synchronize()
    assert_same(out.memory.get(), out)
    np.testing.assert_array_equal(vector.memory.get(), vector.buffer)
    if not in_place:
        np.testing.assert_array_equal(x.memory.get(), x.buffer)


def aligned(name: str, extents) -> tuple[int, ...]:
    """Extents whose last one is a whole number of 16-byte units."""
    unit = 16 // dtype_of(name).itemsize
    return *extents[:-1], max(1, extents[-1] // unit) * unit


@pytest.mark.parametrize("seed", range(700))
def test_random_arrays_are_exact_and_nothing_else_is_touched(seed: int) -> None:
    generator = np.random.default_rng(seed)
    operation, name = CASES[seed % len(CASES)]
    size, rank = dtype_of(name).itemsize, int(generator.integers(1, 6))
    extents = [1, 2, 3, 8, 16, 17, 40] if rank > 2 else [1, 5, 16, 31, 64, 100, 129, 257, 700, 2500]
    shape = tuple(int(extent) for extent in generator.choice(extents, rank))
    if np.prod(shape, dtype=int) > 2**21:
        shape = shape[1:]
    axis = int(generator.integers(-len(shape), len(shape)))
    unit = 16 // size
    pads, offsets = [0, 0, unit, 4 * unit], [0, 0, unit]
    if generator.integers(3):  # what tensor maps take, but for the ends of rows
        width = shape[-1] if generator.integers(3) else aligned(name, shape)[-1]
        shape = (*shape[:-1], width)
        pads = [pad + -width % unit for pad in pads]
    else:
        pads, offsets = [*pads, 1], [*offsets, 0, 1]
    pads = tuple(int(pad) for pad in generator.choice(pads, 2))
    offsets = tuple(int(offset) for offset in generator.choice(offsets, 3))
    check(operation, name, shape, axis, pads, offsets, seed, in_place=bool(generator.integers(3) == 0))


@pytest.mark.parametrize("name", ELEMENTS)
@pytest.mark.parametrize(
    ("shape", "axis"),
    [
        ((5000, 512), 1), ((5000, 513), 1), ((700, 3000), 1), ((700, 3001), 1), ((90_000, 16), 0), ((90_000, 17), 0),
        ((3000, 700), 0), ((100_003, 3), 1), ((17, 64, 1000), 1), ((1_000_003, 1), 1), ((3, 333_333), 0),
    ],
)  # fmt: skip
def test_large_arrays_of_every_type(name: str, shape, axis: int) -> None:
    """Many tiles for each block, in rows, in columns, and in arrays cut without regard to their rows."""
    check("add", name, shape, axis)
    check("max", name, shape, axis, (16 // dtype_of(name).itemsize,) * 2, in_place=True)


def test_stripes_of_any_number_and_parts() -> None:
    for columns in (256, 512, 768, 1280, 2816, 20_480, 69_632):
        check("add", "float32", (300, columns), 1, (4, 8))
        check("mul", "float32", (columns, 40), 0, (0, 4))


def test_nans_go_through_and_are_chosen() -> None:
    import cupy

    for dtype in ("f2", "f4", "f8"):
        special = cupy.asarray([np.nan, np.inf, -np.inf, 0, -0.0, 1, -1, 6e-8] * 8, dtype)
        x = cupy.repeat(special[:8, None], 64, 1)
        for operation in OPERATIONS:
            found = getattr(tma, f"broadcast_{operation}")(x, special)
            expected = expected_of(operation, x.get(), special.get(), 1)
            np.testing.assert_array_equal(found.get(), expected)


@pytest.mark.parametrize("name", [name for name in ELEMENTS if name not in ("uint16", "uint32", "uint64")])
def test_the_same_as_torch(name: str) -> None:
    torch = pytest.importorskip("torch")
    dtype = getattr(torch, name)
    generator = torch.Generator("cuda").manual_seed(1)
    for shape in ((40_001, 512), (3000, 1000), (5000, 31)):
        x = (torch.randn(shape, device="cuda", generator=generator) * 60).to(dtype)
        for axis in (0, 1):
            vector = (torch.randn(shape[axis], device="cuda", generator=generator) * 60).to(dtype)
            other = vector if axis else vector[:, None]
            found = tma.broadcast_add(x, vector, axis=axis)
            assert isinstance(found, torch.Tensor)
            assert found.dtype == dtype
            assert torch.equal(found, x + other)
            assert torch.equal(tma.broadcast_mul(x, vector, axis=axis), x * other)
            assert torch.equal(tma.broadcast_min(x, vector, axis=axis), torch.minimum(x, other))
            assert torch.equal(tma.broadcast_max(x, vector, axis=axis), torch.maximum(x, other))


def test_turned_and_flipped_arrays_and_rows_of_the_array_itself() -> None:
    import cupy

    x = cupy.random.default_rng(0).random((300, 512), dtype=cupy.float32)
    row, column = x[7], x[:, 3]
    assert bool((tma.broadcast_add(x, row) == x + row).all())
    assert bool((tma.broadcast_add(x, column, axis=0) == x + column[:, None]).all())
    assert bool((tma.broadcast_add(x.T, row, axis=0) == x.T + row[:, None]).all())
    assert bool((tma.broadcast_add(x[::-1, ::2], row[::2]) == x[::-1, ::2] + row[::2]).all())
    assert bool((tma.broadcast_add(x[:, 4:], row[:-4]) == x[:, 4:] + row[:-4]).all())
    out = cupy.zeros((512, 300), cupy.float32)
    assert bool((tma.broadcast_add(x, row, out.T) == x + row).all())


def test_kinds_may_differ_and_empty_arrays_are_left_alone() -> None:
    import cupy

    x, row = cupy.ones((300, 512), cupy.float32), cupy.arange(512, dtype=cupy.float32)
    torch = pytest.importorskip("torch")
    y = torch.zeros(300, 512, device="cuda")
    torch.cuda.synchronize()
    tma.broadcast_add(x, row, y)
    assert torch.equal(y, 1 + torch.arange(512, device="cuda", dtype=torch.float32).expand(300, 512))
    assert tma.broadcast_add(x[:0], row).shape == (0, 512)
    assert tma.broadcast_add(x[:, :0], row[:0]).shape == (300, 0)


def test_what_does_not_fit_is_refused() -> None:
    import cupy

    x, row = cupy.zeros((4, 8), cupy.float32), cupy.zeros(8, cupy.float32)
    for call, message in (
        (lambda: tma.broadcast_add(x, row, axis=0), "the vector has shape"),
        (lambda: tma.broadcast_add(x, row, axis=2), "axis = 2"),
        (lambda: tma.broadcast_add(x, row[:, None]), "the vector has shape"),
        (lambda: tma.broadcast_add(x, row.astype("f8")), "types differ"),
        (lambda: tma.broadcast_add(x, row, x[:, :4]), "out has shape"),
        (lambda: tma.broadcast_add(x, x[1], x), "the vector overlaps"),
        (lambda: tma.broadcast_add(x, row.get()), "host memory"),
        (lambda: tma.broadcast_add(x.get(), row, x), "host memory"),
        (lambda: tma.broadcast_add(x.astype("c8"), row.astype("c8")), "no arithmetic"),
    ):  # fmt: skip
        with pytest.raises(ArrayError, match=message):
            call()


def test_operations_are_captured_in_graphs_and_follow_the_stream() -> None:
    import cupy

    x, row = cupy.random.default_rng(0).random((5120, 512), dtype=cupy.float32), cupy.ones(512, cupy.float32)
    before = x.copy()
    stream = cupy.cuda.Stream(non_blocking=True)
    tma.broadcast_add(x, row, cupy.empty_like(x))
    cupy.cuda.Device().synchronize()
    with stream:
        stream.begin_capture()
        tma.broadcast_add(x, row, x)
        graph = stream.end_capture()
        graph.launch(stream)
        graph.launch(stream)
        stream.synchronize()
    assert bool((x == before + 1 + 1).all())
    with stream:
        for _ in range(50):
            tma.broadcast_add(x, row, x)
        tma.broadcast_mul(x, row, x)
        found = x.copy()
    stream.synchronize()
    expected = before + 1 + 1
    for _ in range(50):
        expected += 1
    assert bool((found == expected).all())
