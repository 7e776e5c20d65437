"""Transpositions of many matrices: every element arrives, and nothing beside them is written."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from emulated_cuda import Array, EmulatedCuda, needs_compiler
from guarded import Guarded

from cupytma.errors import ArrayError
from cupytma.ops import grouped_transposition
from cupytma.ops.group_errors import check_groups
from cupytma.ops.grouped_transposition import grouped_transpose, module
from cupytma.ops.transposition import SHAPES

pytest.importorskip("cuda.bindings.nvrtc", reason="needs cuda-python and NVRTC")


@pytest.fixture(autouse=True)
def _forgetful() -> Iterator[None]:
    yield
    grouped_transposition._recent.clear()


@pytest.mark.parametrize("size", SHAPES)
@pytest.mark.parametrize("target", ["sm_90a", "sm_100a"])
def test_the_kernels_compile_without_spills(target: str, size: int) -> None:
    made = module(target, size)
    assert set(made.kernels) == {"settle_transposes", "transpose_groups", "turn_groups"}
    assert all(made.resources[name].spill_store_bytes == 0 for name in made.kernels)
    assert made.ptx.count("fence.proxy.tensormap::generic.acquire.gpu") == 2
    assert "acquire" not in made.ptx.split(".entry turn_groups")[1].split(".entry")[0]


def matrices(size: int, seed: int, guarded: tuple[Guarded, Guarded]) -> list[tuple[np.ndarray, np.ndarray]]:
    """Pairs of a source and a destination, aligned or not, of random extents."""
    random = np.random.default_rng(seed)
    dtype = np.dtype(f"V{size}") if size == 16 else np.dtype(f"u{size}")
    made = []
    for _ in range(14):
        rows, columns = (int(n) for n in random.integers(1, 300 // size + 40, 2))
        aligned = random.random() < 0.6
        pitches = [(-n * size) % 16 if aligned else size * int(random.integers(0, 3)) for n in (columns, rows)]
        shift = 0 if aligned or random.random() < 0.5 else size
        made.append((
            guarded[0].array((rows, columns), dtype, pitches[0], shift),
            guarded[1].array((columns, rows), dtype, pitches[1], shift),
        ))  # fmt: skip
    return made


@needs_compiler
@pytest.mark.parametrize("size", SHAPES)
def test_random_matrices_are_transposed_and_nothing_beside_them_is_touched(cuda: EmulatedCuda, size: int) -> None:
    guarded = Guarded(1 << 23, size), Guarded(1 << 23, size + 1)
    pairs = matrices(size, size, guarded)
    wanted = guarded[1].before.copy()
    for source, destination in pairs:
        guarded[1].place(wanted, destination)[...] = source.T
    grouped_transpose([Array.of(s) for s, _ in pairs], [Array.of(d) for _, d in pairs])
    np.testing.assert_array_equal(guarded[1].memory, wanted)
    # Elements of 16 bytes lie at multiples of 16 bytes, whatever the matrix.
    rest = [] if size == 16 else ["turn_groups"]
    assert cuda.launches == ["settle_transposes", "transpose_groups", *rest]


@needs_compiler
def test_elements_of_several_sizes_and_any_strides_go_in_one_call(cuda: EmulatedCuda) -> None:
    random = np.random.default_rng(0)
    sources = [
        random.integers(0, 99, (64, 48)).astype(np.float32), random.integers(0, 99, (5, 7)).astype(np.uint8),
        random.integers(0, 99, (40, 30)).astype(np.float32)[::2, ::3], np.zeros((0, 4), np.float32),
    ]  # fmt: skip
    made = grouped_transpose([Array.of(source) for source in sources])
    for source, destination in zip(sources, made, strict=True):
        np.testing.assert_array_equal(destination.host, source.T)


@needs_compiler
def test_shapes_on_the_device_are_read_when_the_kernels_run(cuda: EmulatedCuda) -> None:
    random = np.random.default_rng(1)
    sources = [random.integers(0, 99, (64, 80)).astype(np.float16) for _ in range(6)]
    shapes = np.array([[64, 80], [63, 8], [1, 1], [0, 9], [65, 2], [17, 33]], np.int64)
    destinations = [np.full((80, 72), 7, np.float16) for _ in sources]
    grouped_transpose([Array.of(s) for s in sources], [Array.of(d) for d in destinations], shapes=Array.of(shapes))
    for i, (source, destination) in enumerate(zip(sources, destinations, strict=True)):
        wanted = np.full((80, 72), 7, np.float16)
        if i != 4:
            rows, columns = shapes[i]
            wanted[:columns, :rows] = source[:rows, :columns].T
        np.testing.assert_array_equal(destination, wanted)
    with pytest.raises(ArrayError, match=r"grouped_transpose: shapes\[4\]"):
        check_groups()


MATRIX = Array.of(np.zeros((4, 16), np.uint8))


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (([MATRIX], [Array.of(np.zeros((4, 16), np.uint8))]), {}, r"of \(4, 16\) goes to a destination of \(16, 4\)"),
        (([MATRIX], [Array.of(np.zeros((16, 4), np.int8))]), {}, "are of uint8 and int8"),
        (([Array.of(np.zeros(4))],), {}, "has 1 dimension; matrices"),
        (([Array.of(np.zeros((4, 16), "V12"))], [Array.of(np.zeros((16, 4), "V12"))]), {}, "elements of 12 B"),
        (([MATRIX], [Array.of(np.zeros((16, 4), np.uint8))]), {"shapes": [(5, 1)]}, r"shapes\[0\] = \(5, 1\)"),
        (([MATRIX], [Array.of(np.zeros((16, 4), np.uint8))]), {"shapes": Array.of(np.zeros((2, 2), int))}, "is needed"),
        (([MATRIX], [MATRIX.T]), {}, "source and destination overlap|every element"),
        (([MATRIX], []), {}, "1 source and 0 destinations"),
    ],
)
def test_what_cannot_be_transposed_is_refused_before_anything_is_launched(
    cuda: EmulatedCuda, arguments: Any, options: Any, message: str
) -> None:
    if message.startswith("source and"):
        with pytest.raises(ArrayError):
            grouped_transpose(*arguments, **options)
    else:
        with pytest.raises(ArrayError, match=message):
            grouped_transpose(*arguments, **options)
    assert cuda.launches == []


@needs_compiler
def test_a_matrix_that_was_given_another_shape_is_turned_by_that(cuda: EmulatedCuda) -> None:
    source, destination = Array.of(np.arange(32.0).reshape(4, 8)), Array.of(np.zeros((8, 4)))
    for shape in ((4, 8), (8, 4), (2, 16)):
        source.host, destination.host = source.host.reshape(shape), destination.host.reshape(shape[::-1])
        grouped_transpose([source], [destination])
        np.testing.assert_array_equal(destination.host, source.host.T)


def test_references_to_objects_are_refused(cuda: EmulatedCuda) -> None:
    class Objects:
        __cuda_array_interface__ = {  # noqa: RUF012
            "version": 3, "shape": (4, 4), "typestr": "|O", "data": (1 << 40, False), "strides": None,
        }  # fmt: skip

    with pytest.raises(ArrayError, match=r"sources\[0\] holds references to objects"):
        grouped_transpose([Objects()], [Array.of(np.zeros((4, 4)))])
    assert cuda.launches == []
