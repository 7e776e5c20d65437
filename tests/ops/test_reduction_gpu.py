"""Reductions on a GPU: bit for bit what the simulator has, and nothing outside the destination."""

from __future__ import annotations

import numpy as np
import pytest

import cupytma as tma
from cupytma.errors import ArrayError
from cupytma.ops.reduction_plan import element_type
from cupytma.ptx.reductions import REDUCTIONS
from cupytma.sim.reductions import combine, reduction

pytestmark = pytest.mark.gpu
GUARD = 256
# Element types by what they are called, and the numpy type of their bits.
BITS = {
    "uint32": "u4", "int32": "i4", "uint64": "u8", "int64": "i8", "float16": "u2", "bfloat16": "u2", "float32": "u4",
    "float64": "u8",
}
INTEGERS = ("uint32", "int32", "uint64", "int64")
TYPES = {
    "add": tuple(BITS),
    **dict.fromkeys(("min", "max"), (*INTEGERS, "float16", "bfloat16")),
    **dict.fromkeys(("and", "or", "xor"), INTEGERS),
    **dict.fromkeys(("inc", "dec"), ("uint32",)),
}
CASES = [(operation, name) for operation, names in TYPES.items() for name in names]


def numbers(generator, shape, name: str, exact: bool):
    """Random bits of a type; with `exact`, small whole numbers, whose sums do not depend on their order."""
    if exact or name == "float64":
        most = 1 if name in ("float16", "bfloat16") else 8  # what a long sum does not round
        values = generator.integers(-most, most + 1, shape) if exact else generator.standard_normal(shape)
        if name == "bfloat16":
            return (values.astype("f4").view("u4") >> 16).astype("u2")
        return values.astype(name).view(BITS[name])
    if name == "uint32" and generator.integers(2):
        return generator.integers(0, 5, shape).astype("u4")
    return generator.integers(0, 256, (*shape, np.dtype(BITS[name]).itemsize), np.uint8).view(BITS[name])[..., 0]


class Placed:
    """An array of bits in a larger random buffer, the same on the host and on the device."""

    def __init__(self, generator, shape, name: str, pad: int, offset: int, exact: bool) -> None:
        import cupy

        self.name, self.shape, size = name, shape, np.dtype(BITS[name]).itemsize
        strides, step = [], size
        for extent in reversed(shape):
            strides.insert(0, step)
            step = step * extent + (pad * size if len(strides) == 1 else 0)
        self.strides, self.start = tuple(strides), GUARD + offset
        self.buffer = generator.integers(0, 256, step + 2 * GUARD + offset, dtype=np.uint8)
        self.host[...] = numbers(generator, shape, name, exact)
        self.memory = cupy.asarray(self.buffer)

    @property
    def host(self):
        return np.ndarray(self.shape, BITS[self.name], self.buffer, self.start, self.strides)

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


def reduced(operation: str, name: str, old, new):
    found = combine(
        reduction(element_type(operation, name), operation),
        np.ascontiguousarray(old).reshape(-1).view(np.uint8), np.ascontiguousarray(new).reshape(-1).view(np.uint8),
    )
    return found.view(BITS[name]).reshape(old.shape)


def check(
    operation: str, name: str, shape, lead=(), pads=(0, 0), offsets=(0, 0), seed: int = 0, atomic: bool = False
) -> None:
    import cupy

    generator = np.random.default_rng(seed)
    size, exact = np.dtype(BITS[name]).itemsize, bool(lead) and operation == "add"
    source = Placed(generator, (*lead, *shape), name, pads[0], offsets[0] * size, exact)
    destination = Placed(generator, shape, name, pads[1], offsets[1] * size, exact)
    place = destination.host
    for part in source.host.reshape(-1, *shape) if source.host.size else ():
        place[...] = reduced(operation, name, place, part)
    array = destination.device
    assert getattr(tma, f"reduce_{operation}")(array, source.device, atomic=atomic) is array
    cupy.cuda.Device().synchronize()
    np.testing.assert_array_equal(destination.memory.get(), destination.buffer)


@pytest.mark.parametrize("seed", range(600))
def test_random_reductions_are_exact_and_touch_nothing_else(seed: int) -> None:
    generator = np.random.default_rng(seed)
    operation, name = CASES[seed % len(CASES)]
    rank = int(generator.integers(0, 6))
    extents = [1, 2, 3, 8, 16, 17, 40] if rank > 3 else [1, 5, 16, 31, 64, 100, 129, 257]
    shape = tuple(int(extent) for extent in generator.choice(extents, rank))
    if np.prod(shape, dtype=int) > 2**20:
        shape = shape[1:]
    counts = operation in ("inc", "dec")  # whose result depends on the order
    leads = [(), (), ()] if counts else [(), (3,), (2, 2)]
    lead = leads[int(generator.integers(3))]
    pads = tuple(int(pad) for pad in generator.choice([0, 0, 1, 4, 8], 2))
    offsets = tuple(int(offset) for offset in generator.choice([0, 0, 0, 8, 1], 2))
    check(operation, name, shape, lead, pads, offsets, seed, atomic=bool(generator.integers(2)))


@pytest.mark.parametrize(("operation", "name"), CASES)
@pytest.mark.parametrize("atomic", [False, True])
def test_large_arrays_of_every_type(operation: str, name: str, atomic: bool) -> None:
    check(operation, name, (300_001,), atomic=atomic)
    check(operation, name, (513, 515), pads=(13, 5), atomic=atomic)


@pytest.mark.parametrize("name", TYPES["add"])
def test_many_parts_are_accumulated(name: str) -> None:
    for shape, parts in (((96, 160), 50), ((97, 83), 50), ((64,), 2000), ((300, 512), 31), ((301, 513), 30)):
        check("add", name, shape, (parts,))


@pytest.mark.parametrize("name", TYPES["add"])
def test_several_streams_may_reduce_into_one_array_at_the_same_time(name: str) -> None:
    import cupy

    generator = np.random.default_rng(1)
    for shape, pads in (((513, 512), (0, 0)), ((513, 515), (13, 5))):
        destination = Placed(generator, shape, name, pads[1], 0, True)
        sources = [Placed(generator, shape, name, pads[0], 0, True) for _ in range(8)]
        cupy.cuda.Device().synchronize()
        for source in sources:
            destination.host[...] = reduced("add", name, destination.host, source.host)
            tma.reduce_add(destination.device, source.device, atomic=True, stream=cupy.cuda.Stream(non_blocking=True))
        cupy.cuda.Device().synchronize()
        np.testing.assert_array_equal(destination.memory.get(), destination.buffer)


def test_dimensions_of_stride_0_are_accumulated() -> None:
    import cupy

    x = cupy.random.default_rng(0).integers(0, 100, (64, 30, 48)).astype("f4")
    for axis in range(3):
        kept = cupy.ones(tuple(1 if i == axis else n for i, n in enumerate(x.shape)), "f4")
        tma.reduce_add(cupy.broadcast_to(kept, x.shape), x)
        assert bool((kept == 1 + x.sum(axis=axis, keepdims=True)).all())


def test_an_array_may_be_reduced_into_itself_and_kinds_may_differ() -> None:
    import cupy

    x = cupy.arange(100_003, dtype="f4")
    tma.reduce_add(x, x)
    assert bool((x == 2 * cupy.arange(100_003, dtype="f4")).all())
    torch = pytest.importorskip("torch")
    y = torch.arange(100_003, device="cuda", dtype=torch.float32)
    torch.cuda.synchronize()
    tma.reduce_add(y, x)
    assert torch.equal(y, 3 * torch.arange(100_003, device="cuda", dtype=torch.float32))


def test_transposed_and_flipped_sources() -> None:
    import cupy

    x, out = cupy.random.default_rng(0).random((300, 200), cupy.float32), cupy.zeros((200, 300), cupy.float32)
    tma.reduce_add(out, x.T)
    tma.reduce_add(out, x.T[::-1, ::-1])
    assert bool((out == x.T + x.T[::-1, ::-1]).all())


def test_what_cannot_be_reduced_is_refused() -> None:
    import cupy

    x = cupy.zeros((4, 6), cupy.float32)
    for operation in REDUCTIONS:
        with pytest.raises(ArrayError):
            getattr(tma, f"reduce_{operation}")(x.astype("u1"), x.astype("u1"))
    with pytest.raises(ArrayError, match="shapes differ"):
        tma.reduce_add(x, x[:, :4])
    with pytest.raises(ArrayError, match="overlap"):
        tma.reduce_add(x[0], x)
    with pytest.raises(ArrayError, match="host memory"):
        tma.reduce_add(x, np.zeros((4, 6), np.float32))


def test_reductions_are_captured_in_graphs() -> None:
    import cupy

    x, out = cupy.random.default_rng(0).random((512, 256), dtype=cupy.float32), cupy.zeros((512, 256), cupy.float32)
    stream = cupy.cuda.Stream(non_blocking=True)
    tma.reduce_add(out, x)
    out[:] = 0
    cupy.cuda.Device().synchronize()
    with stream:
        stream.begin_capture()
        tma.reduce_add(out, x, stream=stream)
        graph = stream.end_capture()
        graph.launch(stream)
        graph.launch(stream)
        stream.synchronize()
    assert bool((out == x + x).all())
