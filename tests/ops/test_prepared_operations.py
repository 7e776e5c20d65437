"""Operations up to the driver's call, without a GPU: prepared once, launched with the addresses of the moment."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import remembered

import cupytma as tma
from cupytma.errors import ArrayError
from cupytma.ops import (
    arrangement,
    array_copy,
    convolution_columns,
    copy_launches,
    explain,
    explanation,
    filling,
    launch_size,
    ordinary,
    paired,
    permutation,
    prepared,
    reduction,
    rows,
    short_way,
)
from cupytma.runtime import places
from cupytma.targets import target

sys.path.append(str(Path(__file__).parents[1] / "runtime"))
import simulated_cuda

pytest.importorskip("cuda.bindings.nvrtc", reason="needs cuda-python and NVRTC")
HALF, OTHER, THIRD = 0x10000000, 0x40000000, 0x70000000
SM_90A = target("sm_90a")
MODULES = (
    arrangement, array_copy, convolution_columns, copy_launches, explanation, filling, launch_size, paired, permutation,
    prepared, reduction, rows, short_way,
)  # fmt: skip
# What compiles the kernels of the operations.
KERNELS = (
    "kernels", "_copy_module", "_ordinary_module", "transpose_module", "turn_module", "reduction_module", "rows_module",
)  # fmt: skip


class Array(simulated_cuda.Array):
    """A dense device array of any type and shape, read as CuPy's are."""

    def __init__(self, address: int, shape: tuple[int, ...], dtype: str = "<f2") -> None:
        super().__init__(address, 0, shape)
        self.dtype, steps = np.dtype(dtype), [int(np.prod(shape[i + 1 :])) for i in range(len(shape))]
        self.strides = tuple(step * self.dtype.itemsize for step in steps)

    @property
    def __cuda_array_interface__(self) -> dict[str, object]:
        return {**super().__cuda_array_interface__, "typestr": self.dtype.str, "strides": self.strides}


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> simulated_cuda.SimulatedCuda:
    return prepared_on(simulated_cuda.SimulatedCuda(monkeypatch), monkeypatch)


def prepared_on(cuda: simulated_cuda.SimulatedCuda, monkeypatch: pytest.MonkeyPatch) -> simulated_cuda.SimulatedCuda:
    """Operations that find a GPU, and kernels that are launched nowhere."""
    know(monkeypatch, Array)
    remembered.forget(monkeypatch, paired, reduction, rows)
    for module in MODULES:
        answers = {"cupy": cuda.cupy, "current_target": SM_90A, "multiprocessors": 132}
        for name, value in answers.items():
            if hasattr(module, name):
                monkeypatch.setattr(module, name, lambda *_, value=value: value)
        for name in KERNELS:
            if hasattr(module, name):
                monkeypatch.setattr(module, name, loading(cuda, getattr(module, name)))
    monkeypatch.setattr(rows, "record_address", lambda device: 0x1000)
    return cuda


def know(monkeypatch: pytest.MonkeyPatch, kind: type) -> None:
    """Let copies, which remember nothing yet, take arrays of a type for CuPy's own, but that they may change."""
    monkeypatch.setitem(places.readers, kind, places._of_cupy)
    monkeypatch.setitem(short_way.short_ways, kind, short_way.OF_CUPY._replace(same=None))
    remembered.forget(monkeypatch, array_copy)


def loading(cuda: simulated_cuda.SimulatedCuda, kernels):
    def load(*arguments, **defines: int):
        module = kernels(*arguments, **defines)
        return SimpleNamespace(kernel=lambda kernel: cuda.load(module.kernel(kernel)))

    return load


def pointers(launch: SimpleNamespace) -> list[int]:
    """The addresses of a launch: of its tensor maps, and those that are arguments themselves."""
    return [int.from_bytes(data[:8], "little") for data in launch.arguments if len(data) in (8, 128)]


@pytest.mark.parametrize(("padding", "kernel"), [(1, "im2col_2d"), (140, "im2col_words")])
def test_columns_are_prepared_once_and_launched_anywhere(cuda, padding: int, kernel: str) -> None:
    x = Array(HALF, (2, 20, 20, 64))
    for distance in (0, 0x100, 0x12380):
        out = Array(OTHER - distance, convolution_columns.convolution(x.shape, 3, 1, padding, 1).columns)
        x.data.ptr = HALF + distance
        assert tma.im2col(x, 3, padding=padding, out=out) is out
        assert pointers(cuda.launches[-1]) == [HALF + distance, OTHER - distance]
    assert {launch.kernel for launch in cuda.launches} == {kernel}
    assert len({id(found) for found in paired._prepared._known.values()}) == 1


def test_sums_begin_with_zeros_in_the_output(cuda) -> None:
    out, columns = Array(OTHER, (2, 20, 20, 64)), Array(HALF, (800, 576))
    tma.col2im(columns, [2, 20, 20, 64], 3, padding=1, out=out)
    zeros, sums = cuda.launches
    assert zeros.kernel == "fill"
    region = np.frombuffer(zeros.arguments[0], ordinary._REGION)[0]
    assert (region["destination"], region["words"] * region["word_bytes"]) == (OTHER, 2 * 20 * 20 * 64 * 2)
    assert not any(zeros.arguments[1])
    assert (sums.kernel, pointers(sums)) == ("col2im_2d", [HALF, OTHER])


def test_blocks_leave_room_for_a_second_one_on_a_multiprocessor(cuda) -> None:
    for channels in (8, 64, 256, 1000, 4096):
        x = Array(HALF, (8, 64, 64, channels))
        out = Array(1 << 40, (8 * 64 * 64, 9 * channels))
        tma.im2col(x, 3, padding=1, out=out)
        tma.col2im(out, x.shape, 3, padding=1, out=x)
    for launch in cuda.launches:
        assert 2 * (launch.shape[6] + 2048) <= 228 * 1024


def test_what_is_in_parts_is_launched_in_parts(cuda) -> None:
    x = Array(HALF, (4, 16, 16, 128))
    tma.pad(x, ((0, 0), (1, 2), (1, 1), (0, 0)), out=Array(OTHER, (4, 19, 18, 128)))
    assert [launch.kernel for launch in cuda.launches] == ["im2col_2d"]
    tma.pad(x, ((0, 0), (1, 2), (0, 0), (0, 0)), 1.0, out=Array(OTHER, (4, 19, 16, 128)))
    assert [launch.kernel for launch in cuda.launches[1:]] == ["tile_copy_2d", "fill", "fill"]
    tma.roll(x, (3, 1), (1, 2), out=Array(OTHER, x.shape))
    assert [launch.kernel for launch in cuda.launches[4:]] == ["tile_copy_3d"] * 4


def test_results_may_not_share_memory_with_what_they_are_made_of(cuda) -> None:
    x = Array(HALF, (2, 20, 20, 64))
    for distance in (0, 16, 2 * 20 * 20 * 64 * 2 - 16):
        with pytest.raises(ArrayError, match="overlaps"):
            tma.im2col(x, 1, out=Array(HALF + distance, (800, 64)))
    tma.im2col(x, 1, out=Array(HALF + 2 * 20 * 20 * 64 * 2, (800, 64)))
    assert len(cuda.launches) == 1


def array(place: int, *shape: int, dtype: str = "<f4") -> Array:
    return Array(place, shape, dtype)


@pytest.mark.parametrize(
    ("operation", "arguments", "options"),
    [
        (tma.copy, (array(HALF, 300, 501), array(OTHER, 300, 501)), {}),
        (tma.copy, (array(HALF, 4099), array(OTHER, 4099)), {}),
        (tma.copy, (array(HALF + 4, 999), array(OTHER, 999)), {}),
        (tma.transpose, (array(HALF, 504, 500),), {"out": array(OTHER, 500, 504)}),
        (tma.transpose, (array(HALF, 504, 501),), {"out": array(OTHER, 501, 504)}),
        (tma.permute, (array(HALF, 40, 50, 31, 8, dtype="<f2"), (1, 0, 2, 3)),
         {"out": array(OTHER, 50, 40, 31, 8, dtype="<f2")}),
        (tma.im2col, (array(HALF, 2, 20, 20, 64), 3), {"padding": 1, "out": array(OTHER, 800, 576)}),
        (tma.im2col, (array(HALF, 2, 20, 20, 63), 3), {"padding": 1, "out": array(OTHER, 800, 567)}),
        (tma.col2im, (array(HALF, 800, 576), (2, 20, 20, 64), 3),
         {"padding": 1, "out": array(OTHER, 2, 20, 20, 64)}),
        (tma.col2im, (array(HALF, 800, 567), (2, 20, 20, 63), 3),
         {"padding": 1, "out": array(OTHER, 2, 20, 20, 63)}),
        (tma.pad, (array(HALF, 20, 64, 8), ((1, 2), (3, 0), (0, 0))), {"out": array(OTHER, 23, 67, 8)}),
        (tma.pad, (array(HALF, 20, 64), 3, 1), {"out": array(OTHER, 26, 70)}),
        (tma.flip, (array(HALF, 20, 64), 1), {"out": array(OTHER, 20, 64)}),
        (tma.roll, (array(HALF, 20, 64), (4, 8), (0, 1)), {"out": array(OTHER, 20, 64)}),
        (tma.fill, (array(HALF, 1000, 1000), 2), {}),
        (tma.reduce_add, (array(OTHER, 77, 501), array(HALF, 9, 77, 501)), {}),
        (tma.reduce_min, (array(OTHER + 4, 77, 500, dtype="<i4"), array(HALF, 77, 500, dtype="<i4")), {}),
        (tma.gather_rows, (array(HALF, 5000, 256), array(THIRD, 9000, dtype="<i8")),
         {"out": array(OTHER, 9000, 256)}),
        (tma.scatter_rows, (array(OTHER, 5000, 7), array(THIRD, 900, dtype="<i4"), array(HALF, 900, 7)), {}),
        (tma.scatter_add_rows, (array(OTHER, 5000, 8), array(THIRD, 900, dtype="<i4"), array(HALF, 900, 8)), {}),
    ],
)  # fmt: skip
def test_what_is_explained_is_what_is_launched(cuda, operation, arguments, options) -> None:
    found = explain(operation, *arguments, **options)
    operation(*arguments, **options)
    assert found.launches == len(cuda.launches)
    for part in found.parts:
        grid, _, _, threads, _, _, shared = cuda.launches[part.launch].shape[:7]
        assert (part.grid, part.threads, part.shared_bytes) == (grid, threads, shared)


def test_rows_are_prepared_once_and_launched_anywhere(cuda) -> None:
    for distance in (0, 0x100, 0x12380):
        x, out = array(HALF + distance, 5000, 256), array(OTHER + distance, 900, 256)
        index = array(THIRD - distance, 900, dtype="<i4")
        assert tma.gather_rows(x, index, out) is out
        told = np.frombuffer(cuda.launches[-1].arguments[0], rows._ROWS)[0]
        assert (told["source"], told["destination"], told["index"]) == (
            HALF + distance, OTHER + distance, THIRD - distance
        )  # fmt: skip
    assert len({id(found) for found in rows._prepared._known.values()}) == 1
    tma.gather_rows(x, index, out, mode="clip")
    assert len(rows._prepared._known) == 2


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((array(OTHER, 50, 256), None, array(HALF, 9, 256)), {}, "index = None"),
        ((array(OTHER, 50, 256), np.zeros(9, "i4"), array(HALF, 9, 256)), {}, "index is in host memory"),
        ((array(OTHER, 50, 256), array(THIRD, 9, dtype="<i4"), np.zeros((9, 256), "f4")), {}, "in host memory"),
        ((array(OTHER, 50, 256), array(THIRD, 9, dtype="<i4"), array(HALF, 9, 256)), {"mode": []}, "mode = "),
        ((array(OTHER, 50, 256), array(OTHER, 9, dtype="<i4"), array(HALF, 9, 256)), {}, "index and the destination"),
        ((array(OTHER, 50, 256), array(THIRD, 9, dtype="<i4"), array(OTHER + 1024, 9, 256)), {}, "source and the"),
    ],
)
def test_rows_that_cannot_be_moved_are_refused(cuda, arguments, options, message: str) -> None:
    with pytest.raises(ArrayError, match=message):
        tma.scatter_rows(*arguments, **options)
    assert not cuda.launches
