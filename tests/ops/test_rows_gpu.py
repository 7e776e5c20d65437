"""Gathers and scatters of rows on a GPU: bit for bit, nothing outside the destination, wrong indices reported."""

from __future__ import annotations

import numpy as np
import pytest

import cupytma as tma
from cupytma.errors import ArrayError, RowIndexError

pytestmark = pytest.mark.gpu
GUARD = 256
ROW_BYTES = (8, 16, 24, 48, 128, 160, 256, 272, 320, 512, 1024, 1040, 2048, 2304, 4096, 20_000, 40_064)
DTYPES = ("u1", "f2", "f4", "f8", "c16")
SUMMED = ("u4", "i4", "u8", "i8", "f2", "f4", "f8")


class Placed:
    """Rows in a larger random buffer, each some bytes after the end of the one before, on the host and the device."""

    def __init__(self, generator, rows: int, width: int, dtype: str, pad: int = 0, offset: int = 0) -> None:
        import cupy

        size = np.dtype(dtype).itemsize
        self.shape, self.dtype, self.strides = (rows, width), dtype, (width * size + pad, size)
        self.start = GUARD + offset
        self.buffer = generator.integers(0, 256, rows * self.strides[0] + 2 * GUARD + offset, dtype=np.uint8)
        self.host[...] = generator.integers(0 if dtype[0] == "u" else -8, 9, self.shape).astype(dtype)
        self.memory = cupy.asarray(self.buffer)

    @property
    def host(self):
        return np.ndarray(self.shape, self.dtype, self.buffer, self.start, self.strides)

    @property
    def device(self):
        import cupy

        place = cupy.cuda.MemoryPointer(
            self.memory.data.mem, self.memory.data.ptr - self.memory.data.mem.ptr + self.start
        )
        return cupy.ndarray(self.shape, self.dtype, place, strides=self.strides)

    def check(self) -> None:
        np.testing.assert_array_equal(self.memory.get(), self.buffer)


def expect(is_valid: bool) -> None:
    """The check waits for the kernel, and raises if it has met an index out of range."""
    if is_valid:
        tma.check_indices()
    else:
        with pytest.raises(RowIndexError, match="out of range"):
            tma.check_indices()
        tma.check_indices()  # once


def random_layout(seed: int, dtypes=DTYPES):
    generator = np.random.default_rng(seed)
    dtype = dtypes[seed % len(dtypes)]
    size = np.dtype(dtype).itemsize
    row_bytes = int(generator.choice(ROW_BYTES))
    rows, count = int(generator.integers(1, 60)), int(generator.integers(0, 20 if row_bytes > 10_000 else 700))
    margin = int(generator.choice([0, 0, 1]))
    index = generator.integers(-margin, rows + margin, count).astype(generator.choice(["i4", "i8"]))
    pads = [int(pad) for pad in generator.choice([0, 0, 16, 64, size], 2)]
    offsets = [int(offset) for offset in generator.choice([0, 0, 0, 16, size], 2)]
    return generator, dtype, max(1, row_bytes // size), rows, index, pads, offsets


def good(index, rows: int):
    return (index >= 0) & (index < rows)


@pytest.mark.parametrize("seed", range(600))
def test_random_gathers_are_exact_and_touch_nothing_else(seed: int) -> None:
    import cupy

    generator, dtype, width, rows, index, pads, offsets = random_layout(seed)
    x = Placed(generator, rows, width, dtype, pads[0], offsets[0])
    out = Placed(generator, len(index), width, dtype, pads[1], offsets[1])
    mode = ["raise", "clip"][seed // 7 % 2]
    taken = good(index, rows) if mode == "raise" else np.ones(len(index), bool)
    out.host[taken] = x.host[np.clip(index[taken], 0, rows - 1)]
    given = out.device
    assert tma.gather_rows(x.device, cupy.asarray(index), given, mode=mode) is given
    expect(bool(taken.all()))
    out.check()


@pytest.mark.parametrize("seed", range(600))
def test_random_scatters_are_exact_and_touch_nothing_else(seed: int) -> None:
    import cupy

    generator, dtype, width, rows, index, pads, offsets = random_layout(seed)
    index = np.unique(index)  # which row stays where an index repeats is not defined
    generator.shuffle(index)
    src = Placed(generator, len(index), width, dtype, pads[0], offsets[0])
    dst = Placed(generator, rows, width, dtype, pads[1], offsets[1])
    taken = good(index, rows)
    dst.host[index[taken]] = src.host[taken]
    tma.scatter_rows(dst.device, cupy.asarray(index), src.device)
    expect(bool(taken.all()))
    dst.check()


@pytest.mark.parametrize("seed", range(600))
def test_random_sums_are_exact_and_touch_nothing_else(seed: int) -> None:
    import cupy

    generator, dtype, width, rows, index, pads, offsets = random_layout(seed, SUMMED)
    src = Placed(generator, len(index), width, dtype, pads[0], offsets[0])
    dst = Placed(generator, rows, width, dtype, pads[1], offsets[1])
    mode = ["raise", "clip"][seed // 7 % 2]
    taken = good(index, rows) if mode == "raise" else np.ones(len(index), bool)
    np.add.at(dst.host, np.clip(index[taken], 0, rows - 1), src.host[taken])
    tma.scatter_add_rows(dst.device, cupy.asarray(index), src.device, mode=mode)
    expect(bool(taken.all()))
    dst.check()


@pytest.mark.parametrize("row_bytes", [16, 256, 1024, 4096, 65_536])
def test_many_rows_of_a_large_table(row_bytes: int) -> None:
    import cupy

    count = (1 << 28) // row_bytes
    x = cupy.random.default_rng(0).integers(0, 2**62, (count, row_bytes // 8)).astype("i8")
    index = cupy.random.default_rng(1).integers(0, count, count // 2).astype("i8")
    out = tma.gather_rows(x, index)
    assert bool((out == x[index]).all())
    where = cupy.random.RandomState(2).permutation(count)[: count // 2].astype("i4")
    expected = x.copy()
    expected[where] = out
    assert bool((tma.scatter_rows(x, where, out) == expected).all())
    expected[where] += out
    assert bool((tma.scatter_add_rows(x, where, out) == expected).all())
    tma.check_indices()


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_repeated_indices_are_all_added(dtype: str) -> None:
    import cupy

    for width in (256, 257, 3):
        source = cupy.ones((1500, width), dtype)
        table, index = cupy.zeros((3, width), dtype), cupy.arange(1500, dtype="i8") % 3
        assert bool((tma.scatter_add_rows(table, index, source) == 500).all())


def test_the_callers_kind_is_kept() -> None:
    import cupy

    x, index = cupy.arange(6 * 8 * 40, dtype="f4").reshape(6, 8, 40), cupy.array([5, 0, 5, 2])
    result = tma.gather_rows(x, index)
    assert isinstance(result, cupy.ndarray)
    assert bool((result == x[index]).all())
    torch = pytest.importorskip("torch")
    y = torch.randn(100, 4, 256, device="cuda").to(torch.bfloat16)
    numbers = torch.randint(0, 100, (333,), device="cuda")
    for _ in range(2):
        assert torch.equal(tma.gather_rows(y, numbers), y[numbers])
    added = torch.ones(333, 4, 256, device="cuda", dtype=torch.float32)
    sums = torch.zeros(100, 4, 256, device="cuda", dtype=torch.float32)
    tma.scatter_add_rows(sums, numbers, added)
    assert torch.equal(sums[:, 0, 0], torch.bincount(numbers, minlength=100).float())


def test_an_index_out_of_range_is_named_and_raised_once() -> None:
    import cupy

    for width in (512, 3):  # by bulk copies, and by ordinary ones
        x = cupy.zeros((10, width), cupy.float32)
        index = cupy.array([1, 2, 3, 17, 4], "i8")
        tma.gather_rows(x, index)
        with pytest.raises(RowIndexError, match=r"gather_rows: index\[3\] = 17 .* 10 rows"):
            tma.check_indices()
        tma.check_indices()
        tma.scatter_rows(x, cupy.array([-(2**40)], "i8"), x[:1].copy())
        cupy.cuda.Device().synchronize()
        with pytest.raises(RowIndexError, match=r"scatter_rows: index\[0\] = -1099511627776 "):
            tma.gather_rows(x, cupy.array([0]))
        assert bool((tma.gather_rows(x, cupy.array([0])) == 0).all())


def test_indices_anywhere_reach_no_memory_outside_the_table() -> None:
    import cupy

    x = cupy.ones((64, 256), cupy.float32)
    index = cupy.asarray(np.random.default_rng(0).integers(-(2**62), 2**62, 5000))
    out = cupy.full((5000, 256), 7, cupy.float32)
    tma.gather_rows(x, index, out)
    expect(False)
    assert bool((out == 7).all())
    tma.scatter_add_rows(x, index, out)
    expect(False)
    assert bool((x == 1).all())
    assert bool((tma.gather_rows(x, index, out, mode="clip") == 1).all())
    tma.check_indices()


def test_what_does_not_fit_is_refused() -> None:
    import cupy

    x, index = cupy.zeros((4, 6), cupy.float32), cupy.zeros(3, "i8")
    with pytest.raises(ArrayError, match="shapes do not fit"):
        tma.gather_rows(x, index, cupy.zeros((4, 6), cupy.float32))
    with pytest.raises(ArrayError, match="overlap"):
        tma.gather_rows(x, index, x[:3])
    with pytest.raises(ArrayError, match="host memory"):
        tma.gather_rows(x, np.zeros(3, "i8"))
    with pytest.raises(ArrayError, match="mode"):
        tma.gather_rows(x, index, mode="wrap")
    with pytest.raises(ArrayError, match="int32 or int64"):
        tma.gather_rows(x, index.astype("u1"))
    assert tma.gather_rows(x, index[:0]).shape == (0, 6)


def test_overlap_is_found_wherever_arrays_lie() -> None:
    import cupy

    memory, index = cupy.zeros((64, 256), cupy.float32), cupy.zeros(8, "i8")
    for start in (32, 40, 48):
        tma.gather_rows(memory[:32], index, memory[start : start + 8])
    with pytest.raises(ArrayError, match="overlap"):
        tma.gather_rows(memory[:32], index, memory[24:32])
    with pytest.raises(ArrayError, match="overlap"):
        tma.gather_rows(memory[8:40], index, memory[32:40])


def test_gathers_are_captured_in_graphs_and_their_failures_are_raised() -> None:
    import cupy

    x = cupy.random.default_rng(0).random((512, 256), dtype=cupy.float32)
    index, out = cupy.arange(100, dtype="i8"), cupy.zeros((100, 256), cupy.float32)
    stream = cupy.cuda.Stream(non_blocking=True)
    tma.gather_rows(x, index, out)
    cupy.cuda.Device().synchronize()
    with stream:
        stream.begin_capture()
        tma.gather_rows(x, index, out, stream=stream)
        graph = stream.end_capture()
        index[:] = cupy.arange(100, 200)
        graph.launch(stream)
        stream.synchronize()
        assert bool((out == x[100:200]).all())
        index[5] = 512
        graph.launch(stream)
    with pytest.raises(RowIndexError, match=r"index\[5\] = 512"):
        tma.check_indices()
