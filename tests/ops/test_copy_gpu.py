"""`cupytma.copy` on a GPU: every layout, bit for bit, and nothing outside the destination."""

from __future__ import annotations

import numpy as np
import pytest

import cupytma as tma
from cupytma.errors import ArrayError, NoDeviceError

pytestmark = pytest.mark.gpu
GUARD = 256


def device_bytes(count: int, seed: int):
    import cupy

    state = cupy.random.RandomState(seed)
    return state.randint(0, 256, count, dtype=cupy.int32).astype(cupy.uint8)


def placed(shape, dtype, padding, offset, seed):
    """A random array within a larger random buffer, with padding after each dimension; and the buffer."""
    import cupy

    strides, step = [], np.dtype(dtype).itemsize
    for extent, pad in zip(reversed(shape), reversed(padding), strict=True):
        strides.insert(0, step)
        step *= extent + pad
    buffer = device_bytes(step + 2 * GUARD + offset, seed)
    memory = cupy.cuda.MemoryPointer(buffer.data.mem, buffer.data.ptr - buffer.data.mem.ptr + GUARD + offset)
    return cupy.ndarray(shape, dtype, memory, strides=tuple(strides)), buffer


def bits(array):
    """The same elements as unsigned integers, so that NaNs compare equal."""
    return array.view({1: "u1", 2: "u2", 4: "u4", 8: "u8"}[array.dtype.itemsize])


def assert_copies(source, destination, buffer) -> None:
    import cupy

    expected = buffer.copy()
    offset = destination.data.ptr - buffer.data.ptr
    memory = cupy.cuda.MemoryPointer(expected.data.mem, expected.data.ptr - expected.data.mem.ptr + offset)
    bits(cupy.ndarray(destination.shape, destination.dtype, memory, strides=destination.strides))[...] = bits(source)
    assert tma.copy(source, destination) is destination
    assert bool((buffer == expected).all())


@pytest.mark.parametrize("seed", range(500))
def test_random_strided_arrays_are_copied_exactly_and_nothing_else_is_touched(seed: int) -> None:
    generator = np.random.default_rng(seed)
    rank = int(generator.integers(1, 7))
    dtype = generator.choice(["u1", "u2", "u4", "i4", "u8", "i8", "f2", "f4", "f8", "i1", "i2", "?"])
    extents = [1, 2, 3, 4, 5, 8, 16, 17] if rank > 3 else [1, 2, 7, 31, 64, 65, 130, 300]
    shape = tuple(int(e) for e in generator.choice(extents, rank))
    pads = [tuple(int(p) for p in generator.choice([0, 0, 1, 4, 8, 16], rank)) for _ in range(2)]
    offsets = [int(o) for o in generator.choice([0, 0, 16, 32, 8], 2)]
    source, _ = placed(shape, dtype, pads[0], offsets[0], seed)
    destination, buffer = placed(shape, dtype, pads[1], offsets[1], seed + 1)
    assert_copies(source, destination, buffer)


@pytest.mark.parametrize("dtype", ["u1", "u2", "u4", "i4", "u8", "i8", "f2", "f4", "f8"])
@pytest.mark.parametrize("rank", [1, 2, 3, 4, 5])
def test_every_type_and_rank_in_tiles_with_odd_extents(dtype: str, rank: int) -> None:
    shape = (3, 5, 7, 9, 531)[5 - rank :]
    padding = (0,) * (rank - 1) + (16 - 531 % 16,) if rank > 1 else (0,)
    source, _ = placed(shape, dtype, padding, 0, rank)
    destination, buffer = placed(shape, dtype, (*padding[:-1], padding[-1] + 16 * (rank > 1)), 16, rank + 9)
    plan = tma.ops.plan_copy(*map(tma.tensormap.arrays.view_of, (source, destination)))
    assert rank == 1 or plan.tiles is not None
    assert_copies(source, destination, buffer)


def test_2_gib_contiguous() -> None:
    source = device_bytes(1 << 20, 3)
    import cupy

    source = cupy.tile(source, 2048)
    source[::1048573] += 1  # so that no two pieces are the same
    destination, buffer = placed((1 << 31,), "u1", (0,), 0, 4)
    buffer.fill(0xEE)
    guards = buffer[:GUARD].copy(), buffer[-GUARD:].copy()
    tma.copy(source, destination)
    assert bool((destination == source).all())
    assert bool((buffer[:GUARD] == guards[0]).all())
    assert bool((buffer[-GUARD:] == guards[1]).all())


def test_a_window_of_a_large_matrix() -> None:
    import cupy

    matrix = cupy.random.default_rng(5).random((16384, 16384), dtype=cupy.float32)
    target = cupy.full((16384, 16384), -1, cupy.float32)
    window = np.s_[1000:9192, 4000:12192]
    tma.copy(matrix[window], target[window])
    assert bool((target[window] == matrix[window]).all())
    target[window] = -1
    assert bool((target == -1).all())


def test_a_rank_5_float16_tensor_with_odd_extents() -> None:
    import cupy

    source = device_bytes(2 * 7 * 31 * 33 * 65 * 67, 6).view(cupy.float16).reshape(7, 31, 33, 65, 67)
    padded = cupy.full((9, 33, 35, 67, 80), 7, cupy.float16)
    destination = padded[1:8, 1:32, 1:34, 1:66, 8:75]
    tma.copy(source, destination)
    assert bool((bits(destination) == bits(source)).all())
    destination[...] = 7
    assert bool((padded == 7).all())


def test_a_rank_5_window_in_tiles_with_odd_extents() -> None:
    import cupy

    source = device_bytes(2 * 9 * 33 * 35 * 67 * 80, 7).view(cupy.float16).reshape(9, 33, 35, 67, 80)
    padded = cupy.full((9, 33, 35, 67, 80), 7, cupy.float16)
    window = np.s_[1:8, 1:32, 1:34, 1:66, 8:75]
    tma.copy(source[window], padded[window])
    assert bool((bits(padded[window]) == bits(source[window])).all())
    padded[window] = 7
    assert bool((padded == 7).all())


def test_transposed_flipped_and_broadcast_sources() -> None:
    import cupy

    base, _ = placed((40, 50, 60), "f4", (0, 0, 0), 0, 8)
    base[...] = cupy.arange(base.size, dtype="f4").reshape(base.shape)
    for source in (
        base.transpose(2, 0, 1), base[::-1], base[:, ::2, ::-1], cupy.broadcast_to(base[0], (5, 50, 60)), base[:, :, 3],
        cupy.broadcast_to(base[:, :1, :1], (40, 50, 60)),
    ):  # fmt: skip
        assert bool((tma.copy(source) == source).all())


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 5), (1,), (1, 1, 1)])
def test_scalars_and_empty_arrays(shape: tuple[int, ...]) -> None:
    import cupy

    source = cupy.full(shape, 3, cupy.float32)
    assert bool((tma.copy(source, cupy.zeros(shape, cupy.float32)) == source).all())


def test_torch_tensors_on_torchs_current_stream() -> None:
    torch = pytest.importorskip("torch")
    source = torch.randn(513, 1024, device="cuda").to(torch.bfloat16)
    copied = tma.copy(source)
    assert isinstance(copied, torch.Tensor)
    assert torch.equal(copied, source)
    with torch.cuda.stream(torch.cuda.Stream()):
        late = torch.empty_like(source)
        late.copy_(source)
        assert torch.equal(tma.copy(late[::2], torch.empty_like(late[::2])), source[::2])
    eight = torch.randn(100, 64, device="cuda").to(torch.float8_e4m3fn)
    assert torch.equal(tma.copy(eight).view(torch.uint8), eight.view(torch.uint8))


def test_a_copy_waits_for_the_stream_its_source_is_made_on() -> None:
    import cupy

    class OnStream:
        def __init__(self, array, stream) -> None:
            self._array = array
            self.__cuda_array_interface__ = {**array.__cuda_array_interface__, "stream": stream.ptr}

    slow = cupy.RawKernel(
        'extern "C" __global__ void slow(int* x, int n) { long long t = clock64(); while (clock64() - t < 200000000); '
        "for (int i = threadIdx.x; i < n; i += blockDim.x) x[i] = i; }", "slow",
    )  # fmt: skip
    producer, consumer = cupy.cuda.Stream(non_blocking=True), cupy.cuda.Stream(non_blocking=True)
    source, destination = cupy.zeros(4096, cupy.int32), cupy.zeros(4096, cupy.int32)
    cupy.cuda.Device().synchronize()
    with producer:
        slow((1,), (256,), (source, 4096))
    tma.copy(OnStream(source, producer), destination, stream=consumer)
    consumer.synchronize()
    assert bool((destination == cupy.arange(4096, dtype=cupy.int32)).all())


def test_a_new_destination_belongs_to_the_stream_that_writes_it() -> None:
    import cupy

    stream = cupy.cuda.Stream(non_blocking=True)
    source = cupy.arange(1 << 20, dtype=cupy.int32)
    cupy.cuda.Device().synchronize()
    copied = [tma.copy(source, stream=stream) for _ in range(20)]
    stream.synchronize()
    assert all(bool((one == source).all()) for one in copied)


def test_bad_arguments_are_refused_with_the_reason() -> None:
    import cupy

    x = cupy.zeros((64, 64), cupy.float32)
    for arguments, message in (
        ((x, np.zeros((64, 64), np.float32)), "destination is in host memory"),
        ((np.zeros((64, 64), np.float32), x), "source is in host memory"),
        ((np.zeros(4),), "source is in host memory"),
        ((x, x[:32]), "shapes differ"),
        ((x, x.view(cupy.int32)), "types differ"),
        ((x[:32], x[16:48]), "overlap"),
        ((x, cupy.broadcast_to(x[0], (64, 64))), "overlap"),
        ((x, object()), "no array"),
    ):
        with pytest.raises(ArrayError, match=message):
            tma.copy(*arguments)


def test_errors_leave_the_gpu_usable() -> None:
    import cupy

    with pytest.raises((ArrayError, NoDeviceError)):
        tma.copy(object())
    assert int(tma.copy(cupy.arange(10))[9]) == 9


@pytest.mark.filterwarnings("ignore")
def test_tensors_that_lost_their_memory_or_have_none_are_refused_whatever_was_copied_before() -> None:
    torch = pytest.importorskip("torch")
    made = [torch.arange(4096, device="cuda", dtype=torch.float32) for _ in range(4)]
    for _ in range(4):
        tma.copy(made[0], made[1])
        tma.grouped_copy(made[:2], made[2:])
    sparse = torch.eye(8, device="cuda").to_sparse()
    for other in (sparse, sparse.to_sparse_csr(), np.zeros(4096, np.float32), torch.zeros(4096), None):
        with pytest.raises(ArrayError):
            tma.copy(other, made[1])
        for position in (0, 1):
            with pytest.raises(ArrayError):
                tma.grouped_copy([*made[:position], other, *made[position + 1 : 2]], made[2:])
    with pytest.raises(ArrayError):
        tma.matmul(torch.zeros(8, 8, device="cuda", dtype=torch.float16), sparse.half())
    made[0].untyped_storage().resize_(0)
    for _ in range(3):
        with pytest.raises(ArrayError, match="null address"):
            tma.copy(made[0], made[1])
        with pytest.raises(ArrayError, match="null address"):
            tma.grouped_copy(made[:2], made[2:])
    torch.cuda.synchronize()
    assert torch.equal(made[1], made[3])
