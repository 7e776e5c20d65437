"""Operations by multicast up to the driver's call, without a GPU: prepared once, launched with the addresses of now."""

from __future__ import annotations

import numpy as np
import pytest
import remembered
from test_prepared_operations import HALF, OTHER, THIRD, Array, know, loading, pointers, simulated_cuda

import cupytma as tma
from cupytma.errors import ArrayError
from cupytma.ops import (
    array_copy,
    broadcast,
    copy_launches,
    launch_size,
    multicast,
    ordinary,
    paired,
    prepared,
    short_way,
)
from cupytma.ops.broadcast import _ELEMENTS, _STRIPES, broadcast_module
from cupytma.ops.multicast import multicast_module
from cupytma.runtime import submission
from cupytma.runtime.kernel import Kernel

MULTIPROCESSORS = 132
FITTING_BLOCKS = 8  # on one of them


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> simulated_cuda.SimulatedCuda:
    """Operations that find a GPU, and kernels that are launched nowhere, in clusters or not."""
    cuda = simulated_cuda.SimulatedCuda(monkeypatch)
    know(monkeypatch, Array)
    for module in (array_copy, broadcast, copy_launches, launch_size, multicast, paired, prepared, short_way):
        answers = {"cupy": cuda.cupy, "current_target": "sm_90a", "multiprocessors": MULTIPROCESSORS}
        for name, value in answers.items():
            if hasattr(module, name):
                monkeypatch.setattr(module, name, lambda *_, value=value: value)
    remembered.forget(monkeypatch, paired, broadcast)
    monkeypatch.setattr(multicast, "multicast_module", loading(cuda, multicast_module))
    monkeypatch.setattr(broadcast, "broadcast_module", loading(cuda, broadcast_module))
    monkeypatch.setattr(Kernel, "persistent_grid", lambda *_, cluster=None: FITTING_BLOCKS * MULTIPROCESSORS)
    for name in ("_copy_module", "_ordinary_module"):
        monkeypatch.setattr(copy_launches, name, loading(cuda, getattr(copy_launches, name)))

    def extended(handle: int, shape: submission.LaunchShape) -> submission.Submit:
        def submit(stream: int, places: int, _: int) -> None:
            cuda._launch(handle, *shape.numbers, stream, places, 0)
            cuda.launches[-1].cluster = shape.cluster

        return submit

    monkeypatch.setattr(submission, "_extended", extended)
    return cuda


def test_copies_are_prepared_once_and_launched_anywhere(cuda) -> None:
    src = Array(HALF, (1024, 512))
    for distance in (0, 0x100, 0x12380):
        dst = Array(OTHER - distance, (16, 1024, 512))
        src.data.ptr = HALF + distance
        assert tma.multicast_copy(src, dst) is dst
        launch = cuda.launches[-1]
        assert pointers(launch) == [HALF + distance, OTHER - distance]
        assert (launch.kernel, launch.cluster) == ("multicast_copy_3d", (8, 1, 1))
        blocks = min(FITTING_BLOCKS, multicast.MULTICAST_BLOCKS_PER_MULTIPROCESSOR)
        assert launch.shape[0] == blocks * MULTIPROCESSORS // 8 * 8
        assert launch.shape[3] == 32, "nothing is left for helpers"
    assert len(paired._prepared._known) > 0
    assert len({id(prepared) for prepared in paired._prepared._known.values()}) == 1


def test_a_source_that_is_copied_first_makes_the_other_places(cuda) -> None:
    tma.multicast_copy(Array(HALF + 2, (64, 512)), Array(OTHER, (5, 64, 512)))
    first, others = cuda.launches
    place = 64 * 512 * 2
    assert first.kernel == "copy_granules_1d"
    found = np.frombuffer(first.arguments[0], ordinary._PLACES)[0]
    assert (found["source"], found["destination"], found["run"]) == (HALF + 2, OTHER, place)
    assert pointers(others) == [OTHER, OTHER + place]
    assert others.cluster == (4, 1, 1)


def test_how_many_copies(cuda) -> None:
    src = Array(HALF, (64, 512))
    tma.multicast_copy(src, Array(OTHER, (2, 3, 64, 512)), copies=(2, 3))
    with pytest.raises(ArrayError, match=r"copies = 3 of an array of shape \(64, 512\)"):
        tma.multicast_copy(src, Array(OTHER, (2, 64, 512)), copies=3)
    with pytest.raises(ArrayError, match="how many copies"):
        tma.multicast_copy(src)
    tma.multicast_copy(src, Array(OTHER, (0, 64, 512)))
    assert len(cuda.launches) == 1
    for distance in (0, 64 * 512 * 2, 4 * 64 * 512 * 2 - 16):
        with pytest.raises(ArrayError, match="overlap"):
            tma.multicast_copy(Array(OTHER + distance, (64, 512)), Array(OTHER, (4, 64, 512)))


def test_a_vector_has_an_address_of_its_own(cuda) -> None:
    for distance in (0, 0x100, 0x12380):
        x, vector = Array(HALF + distance, (16384, 512)), Array(OTHER - distance, (512,))
        out = Array(THIRD + distance, (16384, 512))
        assert tma.broadcast_add(x, vector, out) is out
        launch = cuda.launches[-1]
        assert pointers(launch) == [HALF + distance, THIRD + distance, OTHER - distance]
        assert (launch.kernel, launch.cluster) == ("broadcast_2d", (4, 1, 1))
        assert launch.shape[0] == 2 * MULTIPROCESSORS
        assert launch.shape[3] == 32 + 256
    assert len({id(prepared) for prepared in broadcast._prepared._known.values()}) == 1
    tma.broadcast_mul(x, vector, x)
    assert pointers(cuda.launches[-1]) == [HALF + distance, HALF + distance, OTHER - distance]
    tma.broadcast_add(x, Array(OTHER, (16384,)), out, axis=0)
    stripes = np.frombuffer(cuda.launches[-1].arguments[3], _STRIPES)[0]
    assert (stripes["by_rows"], stripes["stripes"], stripes["length"]) == (1, 16, 1024)


def test_what_no_tensor_map_moves_is_told_where_it_lies(cuda) -> None:
    x, vector, out = Array(HALF + 2, (256, 509)), Array(OTHER + 6, (509,)), Array(THIRD + 4, (256, 509))
    tma.broadcast_add(x, vector, out)
    (launch,) = cuda.launches
    assert launch.kernel == "broadcast_elements"
    found = np.frombuffer(launch.arguments[0], _ELEMENTS)[0]
    assert [int(found[name]) for name in ("source", "vector", "destination")] == [HALF + 2, OTHER + 6, THIRD + 4]
    assert found["elements"] == 256 * 509
    x, vector, out = Array(HALF, (256, 509)), Array(OTHER, (509,)), Array(THIRD, (256, 509))
    tma.broadcast_add(x, vector, out)
    launch = cuda.launches[-1]
    assert launch.kernel == "broadcast_2d"
    assert launch.shape[3] == 32 + 256 + 128, "helpers take the end"
    found = np.frombuffer(launch.arguments[4], _ELEMENTS)[0]
    assert [int(found[name]) for name in ("source", "vector", "destination")] == [HALF, OTHER, THIRD]
    assert found["elements"] - found["first"] == 256 * 509 % 1024


def test_results_may_not_share_memory_with_what_they_are_made_of(cuda) -> None:
    x, vector = Array(HALF, (256, 512)), Array(OTHER, (512,))
    with pytest.raises(ArrayError, match="source and destination overlap"):
        tma.broadcast_add(x, vector, Array(HALF + 1024, (256, 512)))
    with pytest.raises(ArrayError, match="the vector overlaps the result"):
        tma.broadcast_add(x, vector, Array(OTHER - 512, (256, 512)))
    tma.broadcast_add(x, Array(HALF + 2048, (512,)), Array(THIRD, (256, 512)))
    assert len(cuda.launches) == 1
    with pytest.raises(ArrayError, match="the vector overlaps the result"):
        tma.broadcast_add(x, Array(HALF + 2048, (512,)), x)


def test_axes_and_shapes_are_checked_before_anything_is_launched(cuda) -> None:
    x, out = Array(HALF, (256, 512)), Array(THIRD, (256, 512))
    for axis, message in ((2, "axes 0 to 1"), (1.5, "axes 0 to 1"), (None, "axes 0 to 1"), (0, "the vector has shape")):
        with pytest.raises(ArrayError, match=message):
            tma.broadcast_add(x, Array(OTHER, (512,)), out, axis=axis)
    with pytest.raises(ArrayError, match="no dimensions"):
        tma.broadcast_add(Array(HALF, ()), Array(OTHER, (1,)), Array(THIRD, ()))
    with pytest.raises(ArrayError, match="host memory"):
        tma.broadcast_add(x, np.zeros(512, np.float16), out)
    tma.broadcast_add(Array(HALF, (0, 512)), Array(OTHER, (512,)), Array(THIRD, (0, 512)))
    assert not cuda.launches
