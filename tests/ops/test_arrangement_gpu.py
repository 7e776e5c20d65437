"""`pad`, `flip` and `roll` on a GPU: exact, and nothing outside the destination."""

from __future__ import annotations

import numpy as np
import pytest
from test_columns_gpu import check_written, placed

import cupytma as tma
from cupytma.errors import ArrayError

pytestmark = pytest.mark.gpu
DTYPES = ["u1", "i2", "f4", "f8", "c16"]


def random_case(seed: int):
    """A generator, a random array on the GPU, and how its result is placed: padding and offset in bytes."""
    generator = np.random.default_rng(seed)
    dtype = DTYPES[seed % len(DTYPES)]
    size = np.dtype(dtype).itemsize
    shape = tuple(int(n) for n in generator.choice([1, 2, 3, 8, 16, 31, 64], int(generator.integers(1, 5))))
    host = generator.integers(1, 100, shape).astype(dtype)
    pads = [tuple(int(p) for p in generator.choice([0, 0, 0, 16, size], 2)) for _ in range(2)]
    offsets = [int(o) for o in generator.choice([0, 0, 0, 16, size], 2)]
    return generator, host, placed(host, pads[0], offsets[0], seed)[0], pads[1], offsets[1]


def check(operation, expected: np.ndarray, pads, offset: int) -> None:
    out, buffer = placed(np.full_like(expected, 77), pads, offset, expected.size)
    before = buffer.get()
    assert operation(out) is out
    check_written(out, buffer, expected, before)


@pytest.mark.parametrize("seed", range(500))
def test_random_borders_are_exact_and_touch_nothing_else(seed: int) -> None:
    generator, host, x, pads, offset = random_case(seed)
    widths = [(0, 0) if generator.random() < 0.4 else tuple(map(int, generator.integers(0, 5, 2))) for _ in host.shape]
    if generator.random() < 0.5:
        widths[-1] = (0, 0)
    value = int(generator.choice([0, 0, 9]))
    check(lambda out: tma.pad(x, widths, value, out), np.pad(host, widths, constant_values=value), pads, offset)


@pytest.mark.parametrize("seed", range(500))
def test_random_rolls_are_exact_and_touch_nothing_else(seed: int) -> None:
    generator, host, x, pads, offset = random_case(1000 + seed)
    axes = tuple(map(int, generator.integers(-host.ndim, host.ndim, 2)))
    shifts = tuple(map(int, generator.integers(-70, 71, 2)))
    check(lambda out: tma.roll(x, shifts, axes, out), np.roll(host, shifts, axes), pads, offset)


@pytest.mark.parametrize("seed", range(500))
def test_random_flips_are_exact_and_touch_nothing_else(seed: int) -> None:
    generator, host, x, pads, offset = random_case(2000 + seed)
    axes = tuple(axis for axis in range(host.ndim) if generator.random() < 0.5)
    check(lambda out: tma.flip(x, axes, out), np.flip(host, axes), pads, offset)


def test_defaults_are_numpys() -> None:
    import cupy

    x = cupy.arange(3 * 16 * 20, dtype=cupy.float32).reshape(3, 16, 20)
    middle = (0, 0), (1, 1), (0, 0)
    for found, expected in (
        (tma.pad(x, 2), np.pad(x.get(), 2)),
        (tma.pad(x, (0, 3), 1.5), np.pad(x.get(), (0, 3), constant_values=1.5)),
        (tma.pad(x, middle, np.nan), np.pad(x.get(), middle, constant_values=np.nan)),
        (tma.flip(x), np.flip(x.get())),
        (tma.roll(x, 37), np.roll(x.get(), 37)),
        (tma.roll(x, -5, 1), np.roll(x.get(), -5, 1)),
    ):
        np.testing.assert_array_equal(found.get(), expected)


def test_torch_tensors_stay_torchs() -> None:
    torch = pytest.importorskip("torch")
    x = torch.randn(8, 20, 64, device="cuda").to(torch.bfloat16)
    assert torch.equal(tma.pad(x, ((0, 0), (2, 1), (0, 0))), torch.nn.functional.pad(x, (0, 0, 2, 1)))
    assert torch.equal(tma.flip(x, (0, 2)), x.flip(0, 2))
    assert torch.equal(tma.roll(x, (3, -70), (1, 2)), x.roll((3, -70), (1, 2)))


def test_empty_arrays() -> None:
    import cupy

    x = cupy.zeros((0, 4), cupy.float32)
    assert tma.flip(x).shape == tma.roll(x, 3, 0).shape == tma.roll(x, 3).shape == (0, 4)
    assert bool((tma.pad(x, 1, 5) == 5).all())


def test_what_does_not_fit_is_refused() -> None:
    import cupy

    x = cupy.zeros((4, 8), cupy.uint8)
    for call, message in (
        (lambda: tma.pad(x, -1), "pad_width"), (lambda: tma.pad(x, 1, 300), "value = "),
        (lambda: tma.pad(x, 1, out=x), "out has shape"), (lambda: tma.flip(x, 2), "axis = "),
        (lambda: tma.flip(x, 0, x), "overlaps"), (lambda: tma.roll(x, 1, 0, x), "overlaps"),
        (lambda: tma.roll(x.T, 1), "C-contiguous"), (lambda: tma.roll(x, (1, 2), 0), "2 entries for 1 axis"),
        (lambda: tma.flip(x, 0, cupy.zeros((4, 8), cupy.int8)), "types differ"),
    ):  # fmt: skip
        with pytest.raises(ArrayError, match=message):
            call()
