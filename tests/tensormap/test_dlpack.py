"""Arrays that speak DLPack, and what their exporters are asked for."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest
from array_likes import DLPackArray

from cupytma import ArrayError
from cupytma.tensormap.arrays import ArrayView, view_of

FLOAT, BFLOAT, UINT = 2, 4, 1


@pytest.mark.parametrize("versioned", [False, True])
@pytest.mark.parametrize(
    ("dtype", "name", "itemsize"),
    [
        ((BFLOAT, 16, 1), "bfloat16", 2), ((FLOAT, 16, 1), "float16", 2), ((UINT, 8, 1), "uint8", 1),
        ((0, 64, 1), "int64", 8), ((5, 64, 1), "complex64", 8), ((6, 8, 1), "bool", 1),
        ((10, 8, 1), "float8_e4m3fn", 1), ((12, 8, 1), "float8_e5m2", 1),
    ],
)
def test_dlpack_is_read_where_there_is_nothing_else(versioned: bool, dtype: Any, name: str, itemsize: int) -> None:
    array = DLPackArray((4, 8), dtype, (16, 1), (2, 5), versioned=versioned, byte_offset=256)
    found = view_of(array)
    assert found == ArrayView((1 << 40) + 256, (4, 8), (16 * itemsize, itemsize), name, itemsize, 5)


@pytest.mark.parametrize("versioned", [False, True])
def test_a_dlpack_capsule_is_given_back_unconsumed_and_no_stream_is_waited_for(versioned: bool) -> None:
    array = DLPackArray((4, 8), (BFLOAT, 16, 1), versioned=versioned)
    for _ in range(3):
        assert view_of(array).strides == (16, 2)
        gc.collect()
        assert array.alive == 0
    assert all(call["stream"] == -1 for call in array.calls)


@pytest.mark.parametrize("versioned", [False, True])
def test_an_exporter_that_takes_no_synchronisation_for_a_stream_is_asked_without_one(versioned: bool) -> None:
    class Literal(DLPackArray):
        def __dlpack__(self, **options: Any) -> Any:
            if options.get("stream") == -1:
                raise RuntimeError("CUDA_ERROR_INVALID_HANDLE")
            return super().__dlpack__(**options)

    array = Literal((4, 8), (BFLOAT, 16, 1), versioned=versioned)
    assert view_of(array).dtype == "bfloat16"
    assert all(call["stream"] is None for call in array.calls)


def test_an_exporter_that_cannot_export_is_asked_once() -> None:
    class Sharded(DLPackArray):
        def __dlpack__(self, **options: Any) -> Any:
            self.calls.append(options)
            raise BufferError("sharded")

    array = Sharded((4, 8), (BFLOAT, 16, 1))
    with pytest.raises(ArrayError, match="sharded"):
        view_of(array)
    assert len(array.calls) == 1


@pytest.mark.parametrize(("device", "number"), [((1, 0), None), ((3, 0), None), ((2, 4), 4), ((13, 1), 1)])
def test_dlpack_devices_are_cuda_managed_and_host(device: tuple[int, int], number: int | None) -> None:
    array = DLPackArray((4, 8), (FLOAT, 16, 1), device=device)
    assert view_of(array).device == number
    assert ("stream" in array.calls[0]) == (number is not None)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (DLPackArray((4,), (FLOAT, 16, 1), device=(10, 0)), "the array is on ROCm"),
        (DLPackArray((4,), (FLOAT, 16, 1), device=(99, 0)), "the array is on device type 99"),
        (DLPackArray((4,), (0, 4, 1)), "elements of type int4"),
        (DLPackArray((4,), (17, 4, 2)), "elements of type float4_e2m1fn"),
        (DLPackArray((4,), (FLOAT, 32, 4)), "vectors of 4 float32"),
        (DLPackArray((4,), (FLOAT, 32, 1), flags=2), "exporter copies"),
        (DLPackArray((4,), (FLOAT, 32, 1), major=7), "DLPack 7.0"),
    ],
)
def test_dlpack_arrays_that_no_tensor_map_can_hold_are_refused(array: Any, message: str) -> None:
    with pytest.raises(ArrayError, match=message):
        view_of(array)
    gc.collect()
    assert array.alive == 0


def test_numpy_speaks_dlpack_as_it_speaks_its_interface() -> None:
    array = np.arange(24, dtype="f4").reshape(4, 6)[1:, ::2]
    array.flags.writeable = False

    class Only:
        __dlpack__, __dlpack_device__ = array.__dlpack__, array.__dlpack_device__

    assert view_of(Only()) == view_of(array)
