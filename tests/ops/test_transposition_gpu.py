"""`permute` and `transpose` on a GPU: bit for bit, and nothing outside the destination."""

from __future__ import annotations

import numpy as np
import pytest

import cupytma as tma
from cupytma.errors import ArrayError

pytestmark = pytest.mark.gpu
DTYPES = {1: "u1", 2: "u2", 4: "u4", 8: "u8", 16: "c16"}
GUARD = 256


def placed(shape, size: int, pad: int, offset: int, seed: int):
    """A random array within a larger random buffer, rows some bytes longer than they need be; and the buffer."""
    import cupy

    strides, step = [], size
    for extent in reversed(shape):
        strides.insert(0, step)
        step = step * extent + (pad if len(strides) == 1 else 0)
    state = cupy.random.RandomState(seed)
    buffer = state.randint(0, 256, step + 2 * GUARD + offset, dtype=cupy.int32).astype(cupy.uint8)
    memory = cupy.cuda.MemoryPointer(buffer.data.mem, buffer.data.ptr - buffer.data.mem.ptr + GUARD + offset)
    return cupy.ndarray(shape, DTYPES[size], memory, strides=tuple(strides)), buffer


def as_bytes(array, size: int):
    """The elements' bytes as a last dimension, in host memory."""
    return np.ascontiguousarray(array.get()).view(np.uint8).reshape(*array.shape, size)


def check(shape, axes, size: int, pads=(0, 0), offsets=(0, 0), seed: int = 0) -> None:
    source, _ = placed(shape, size, pads[0], offsets[0], seed)
    out, buffer = placed(tuple(shape[axis] for axis in axes), size, pads[1], offsets[1], seed + 1)
    before = buffer.copy()
    assert tma.permute(source, axes, out=out) is out
    np.testing.assert_array_equal(as_bytes(out, size), as_bytes(source, size).transpose(*axes, len(axes)))
    import cupy

    bits = {16: "u8"}.get(size, DTYPES[size])
    for memory in (buffer, before):
        start = memory.data.ptr - memory.data.mem.ptr + out.data.ptr - buffer.data.ptr
        place = cupy.cuda.MemoryPointer(memory.data.mem, start)
        if size == 16:
            cupy.ndarray((*out.shape, 2), bits, place, strides=(*out.strides, 8))[...] = 0
        else:
            cupy.ndarray(out.shape, bits, place, strides=out.strides)[...] = 0
    assert bool((buffer == before).all())


@pytest.mark.parametrize("seed", range(500))
def test_random_permutations_are_exact_and_touch_nothing_else(seed: int) -> None:
    generator = np.random.default_rng(seed)
    size = int(generator.choice(sorted(DTYPES)))
    rank = int(generator.integers(2, 6))
    extents = [1, 2, 3, 8, 16, 17, 32, 40] if rank > 3 else [1, 5, 16, 31, 64, 100, 128, 257, 400]
    shape = tuple(int(e) for e in generator.choice(extents, rank))
    axes = tuple(int(a) for a in generator.permutation(rank))
    pads = tuple(int(p) for p in generator.choice([0, 0, 16, 64, size], 2))
    offsets = tuple(int(o) for o in generator.choice([0, 0, 0, 16, size], 2))
    check(shape, axes, size, pads, offsets, seed)


@pytest.mark.parametrize("size", sorted(DTYPES))
@pytest.mark.parametrize("shape", [(1040, 2064), (2064, 1040), (64, 8192), (8192, 64), (1000, 1001)])
def test_large_matrices(size: int, shape: tuple[int, int]) -> None:
    check(shape, (1, 0), size, seed=size)


@pytest.mark.parametrize("size", sorted(DTYPES))
def test_batches_of_matrices(size: int) -> None:
    check((3, 5, 128, 272), (0, 1, 3, 2), size)
    check((3, 5, 128, 272), (1, 0, 3, 2), size)
    check((2, 3, 2, 64, 128), (2, 0, 1, 4, 3), size)


def test_the_permutation_of_the_documentation() -> None:
    check((16, 8, 64, 64, 8), (1, 0, 3, 2, 4), 2)


def test_transpose_keeps_the_callers_kind() -> None:
    import cupy

    x = cupy.random.default_rng(0).random((5, 48, 80), dtype=cupy.float32)
    result = tma.transpose(x)
    assert isinstance(result, cupy.ndarray)
    assert bool((result == x.transpose(0, 2, 1)).all())
    torch = pytest.importorskip("torch")
    y = torch.randn(512, 256, device="cuda").to(torch.bfloat16)
    turned = tma.transpose(y)
    assert torch.equal(turned, y.t())
    assert turned.is_contiguous()
    assert torch.equal(tma.permute(y.reshape(4, 128, 256), (2, 0, 1)), y.reshape(4, 128, 256).permute(2, 0, 1))


def test_what_cannot_be_transposed_is_refused() -> None:
    import cupy

    x = cupy.zeros((4, 6), cupy.float32)
    with pytest.raises(ArrayError, match="the array has 1"):
        tma.transpose(x[0])
    with pytest.raises(ArrayError, match="shapes differ"):
        tma.transpose(x, out=cupy.zeros((4, 6), cupy.float32))
    with pytest.raises(ArrayError, match="overlap"):
        tma.transpose(x[:, :4], out=x[:, :4])
    with pytest.raises(ArrayError, match="host memory"):
        tma.transpose(np.zeros((4, 6)))


def test_transposes_are_captured_in_graphs() -> None:
    import cupy

    x = cupy.random.default_rng(0).random((512, 256), dtype=cupy.float32)
    out, stream = cupy.zeros((256, 512), cupy.float32), cupy.cuda.Stream(non_blocking=True)
    tma.transpose(x, out=out)
    out[:] = 0
    cupy.cuda.Device().synchronize()
    with stream:
        stream.begin_capture()
        tma.transpose(x, out=out, stream=stream)
        graph = stream.end_capture()
        graph.launch(stream)
        stream.synchronize()
    assert bool((out == x.T).all())


def test_copies_on_another_device_than_the_current_one() -> None:
    import cupy

    if cupy.cuda.runtime.getDeviceCount() < 2:
        pytest.skip("needs two GPUs")
    with cupy.cuda.Device(1):
        x = cupy.random.default_rng(0).random((512, 256), dtype=cupy.float32)
        out, turned = cupy.zeros_like(x), cupy.zeros((256, 512), cupy.float32)
        cupy.cuda.Device(1).synchronize()
    with cupy.cuda.Device(0):
        for _ in range(2):
            tma.copy(x, out)
            tma.transpose(x, out=turned)
        assert tma.transpose(x).device.id == 1
    with cupy.cuda.Device(1):
        assert bool((out == x).all())
        assert bool((turned == x.T).all())


def test_arrays_that_come_to_lie_elsewhere_are_copied_from_there() -> None:
    import cupy

    for number in range(20):
        x = cupy.random.default_rng(number).random((64, 48 + number % 2), dtype=cupy.float32)
        held = cupy.empty(number * 1000 + 1, cupy.float32)
        assert bool((tma.copy(x) == x).all())
        assert bool((tma.transpose(x) == x.T).all())
        assert bool((tma.copy(x[::-1]) == x[::-1]).all())
        del held


def test_overlap_is_found_wherever_arrays_lie() -> None:
    import cupy

    memory = cupy.zeros(4096, cupy.float32)
    tma.copy(memory[:1024], memory[1024:2048])
    for start in (0, 4, 1020, 1023):
        tma.copy(memory[start : start + 1024], memory[2048:3072])
        if start:
            with pytest.raises(ArrayError, match="overlap"):
                tma.copy(memory[:1024], memory[start : start + 1024])
    tma.copy(memory[:1024], memory[:1024])
