"""Copies to many places on a GPU: bit for bit, and nothing outside the destination."""

from __future__ import annotations

import numpy as np
import pytest
from test_columns_gpu import check_written, placed

import cupytma as tma
from cupytma.errors import ArrayError

pytestmark = pytest.mark.gpu
DTYPES = ["u1", "i2", "f4", "f8", "c16"]


def check(host: np.ndarray, x, lead: tuple[int, ...], pads=(0, 0), offset: int = 0) -> None:
    expected = np.broadcast_to(host, (*lead, *host.shape))
    out, buffer = placed(np.full_like(expected, 77, subok=False), pads, offset, expected.size)
    before = buffer.get()
    assert tma.multicast_copy(x, out) is out
    check_written(out, buffer, expected, before)


@pytest.mark.parametrize("seed", range(600))
def test_random_copies_are_exact_and_touch_nothing_else(seed: int) -> None:
    generator = np.random.default_rng(seed)
    dtype = DTYPES[seed % len(DTYPES)]
    size, rank = np.dtype(dtype).itemsize, int(generator.integers(1, 5))
    extents = [1, 2, 3, 8, 16, 33, 64] if rank > 2 else [1, 7, 16, 64, 130, 600, 2000]
    shape = tuple(int(n) for n in generator.choice(extents, rank))
    leads = [(1,), (2,), (3,), (4,), (5,), (6,), (8,), (13,), (16,), (2, 3), (4, 1), (1, 2, 2)]
    lead = leads[int(generator.integers(len(leads)))]
    while np.prod(shape, dtype=int) * np.prod(lead, dtype=int) > 2**21:
        shape = (max(1, shape[0] // 4), *shape[1:])
    host = generator.integers(1, 100, shape).astype(dtype)
    pads = [tuple(int(p) for p in generator.choice([0, 0, 0, 16, size], 2)) for _ in range(2)]
    offsets = [int(o) for o in generator.choice([0, 0, 0, 16, size], 2)]
    check(host, placed(host, pads[0], offsets[0], seed)[0], lead, pads[1], offsets[1])


@pytest.mark.parametrize("copies", [1, 2, 3, 4, 5, 7, 8, 9, 12, 100])
@pytest.mark.parametrize("shape", [(2000, 512), (1999, 260), (1_000_003,)])
def test_many_tiles_in_clusters_of_every_size(copies: int, shape: tuple[int, ...]) -> None:
    host = np.random.default_rng(copies).integers(0, 2**31, shape).astype("i4")
    check(host, placed(host, (0, 0), 0, 1)[0], (copies,))


def test_turned_sources_and_places_in_any_order() -> None:
    import cupy

    x = cupy.random.default_rng(0).random((300, 256), dtype=cupy.float32)
    for source in (x.T, x[::-1], x[:, ::2], x[1:, 1:], x.T[::-1], x[:, 5]):
        for copies in (2, 5, 8):
            found = tma.multicast_copy(source, copies=copies)
            assert found.shape == (copies, *source.shape)
            assert bool((found == source).all())
        out = cupy.zeros((6, *source.shape), x.dtype)
        tma.multicast_copy(source, out[::-2])
        assert bool((out[1::2] == source).all())
        assert not out[::2].any()


def test_copies_are_the_callers_kind() -> None:
    import cupy

    x = cupy.arange(5000, dtype=cupy.float64).reshape(50, 100)
    found = tma.multicast_copy(x, copies=(2, 3))
    assert isinstance(found, cupy.ndarray)
    assert found.shape == (2, 3, 50, 100)
    assert bool((found == x).all())
    torch = pytest.importorskip("torch")
    y = torch.randn(100, 64, device="cuda").to(torch.bfloat16)
    copies = tma.multicast_copy(y, copies=7)
    assert isinstance(copies, torch.Tensor)
    assert torch.equal(copies, y.expand(7, 100, 64))


def test_empty_arrays_and_no_copies() -> None:
    import cupy

    x = cupy.zeros((4, 8), cupy.float32)
    assert tma.multicast_copy(x, copies=0).shape == (0, 4, 8)
    assert tma.multicast_copy(x[:0], copies=3).shape == (3, 0, 8)
    assert tma.multicast_copy(cupy.float32(3) + x[0, 0], copies=5).tolist() == [3.0] * 5


def test_what_does_not_fit_is_refused() -> None:
    import cupy

    x = cupy.zeros((4, 8), cupy.float32)
    for call, message in (
        (lambda: tma.multicast_copy(x), "how many copies"),
        (lambda: tma.multicast_copy(x, copies=-1), "a number of copies"),
        (lambda: tma.multicast_copy(x, cupy.zeros((2, 4, 9), x.dtype)), "shapes do not fit"),
        (lambda: tma.multicast_copy(x, cupy.zeros((2, 4, 8), x.dtype), copies=3), "copies = 3"),
        (lambda: tma.multicast_copy(x, cupy.zeros((2, 4, 8), "i4")), "types differ"),
        (lambda: tma.multicast_copy(x.get(), cupy.zeros((2, 4, 8), x.dtype)), "host memory"),
        (lambda: tma.multicast_copy(x[0], x), "overlap"),
    ):  # fmt: skip
        with pytest.raises(ArrayError, match=message):
            call()


def test_copies_are_captured_in_graphs() -> None:
    import cupy

    x, out = cupy.random.default_rng(0).random((512, 256), dtype=cupy.float32), cupy.zeros((8, 512, 256), cupy.float32)
    turned = cupy.zeros((8, 256, 512), cupy.float32)
    stream = cupy.cuda.Stream(non_blocking=True)
    tma.multicast_copy(x, out)
    tma.multicast_copy(x.T, turned)
    out[:], turned[:] = 0, 0
    cupy.cuda.Device().synchronize()
    with stream:
        stream.begin_capture()
        tma.multicast_copy(x, out)
        tma.multicast_copy(x.T, turned)
        graph = stream.end_capture()
        graph.launch(stream)
        stream.synchronize()
    assert bool((out == x).all())
    assert bool((turned == x.T).all())
