"""Tensor maps as other libraries' objects."""

from __future__ import annotations

import ctypes
import gc
import subprocess
import sys

import numpy as np
import pytest
from descriptor_strategies import raw_maps
from hypothesis import given

import cupytma as tma
from cupytma.tensormap import TensorMap, slot_array

MAP = tma.Tiled(data_type="FLOAT16", global_address=0x7F0000000000, global_dim=(1024, 512), box_dim=(64, 32)).encode()


@given(raw_maps)
def test_there_and_back(data):
    m = TensorMap(data)
    assert TensorMap.from_numpy(m.to_numpy()) == m
    assert TensorMap.from_ctypes(m.to_ctypes()) == m
    assert TensorMap.from_bytes(m.to_numpy()) == m
    assert TensorMap.from_numpy(np.asarray(m)) == m
    assert TensorMap.from_bytes(memoryview(data)) == m


def test_the_numpy_scalar_is_one_of_128_bytes():
    value = MAP.to_numpy()
    assert isinstance(value, np.void)
    assert value.itemsize == 128
    assert value.tobytes() == bytes(MAP)


@pytest.mark.parametrize("shape", [(128,), (2, 64)])
def test_arrays_of_any_type_that_hold_128_bytes(shape):
    bytes_array = np.frombuffer(bytes(MAP), np.uint8).reshape(shape)
    assert TensorMap.from_numpy(bytes_array) == MAP
    assert TensorMap.from_numpy(bytes_array.reshape(-1).view(np.uint64)) == MAP
    assert TensorMap.from_numpy(np.asfortranarray(bytes_array)) == MAP


def test_as_an_array():
    found = np.asarray(MAP)
    assert found.dtype == np.uint8
    assert found.shape == (128,)
    assert not found.flags.writeable
    assert np.array(MAP, copy=True).flags.writeable
    assert np.asarray(MAP, dtype=np.uint16).dtype == np.uint16


def test_a_structure_is_on_a_64_byte_boundary_and_lives_by_itself():
    structures = [MAP.to_ctypes() for _ in range(64)]
    gc.collect()
    junk = [bytearray(256) for _ in range(256)]
    for structure in structures:
        assert ctypes.addressof(structure) % 64 == 0
        assert ctypes.sizeof(structure) == 128
        assert ctypes.string_at(ctypes.addressof(structure), 128) == bytes(MAP)
    assert len(junk) == 256
    assert structures[0].opaque[0] == 0x7F0000000000


def test_a_structure_changes_alone():
    structure = MAP.to_ctypes()
    structure.opaque[0] = 16
    assert MAP.decode().global_address == 0x7F0000000000
    assert TensorMap.from_ctypes(structure) == MAP.with_address(16)


def test_cuda_python_there_and_back():
    driver = pytest.importorskip("cuda.bindings.driver")
    made = MAP.to_driver()
    assert isinstance(made, driver.CUtensorMap)
    assert [int(word) for word in made.opaque] == list(MAP.words)
    assert TensorMap.from_driver(made) == MAP
    own = driver.CUtensorMap()
    own.opaque = [driver.cuuint64_t(word) for word in MAP.words]
    assert TensorMap.from_driver(own) == MAP


@pytest.mark.parametrize("value", [bytes(128), object(), MAP])
def test_only_the_drivers_type_is_read_as_one(value):
    with pytest.raises(tma.DescriptorError, match="is no CUtensorMap of cuda-python"):
        TensorMap.from_driver(value)


def test_without_cuda_python_the_way_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    with pytest.raises(tma.NoDeviceError, match=r"pip install 'cupytma\[cuda12\]'"):
        MAP.to_driver()


@pytest.mark.parametrize(
    ("read", "value"),
    [
        (TensorMap.from_numpy, np.zeros(64, np.uint8)),
        (TensorMap.from_numpy, np.zeros(129, np.uint8)),
        (TensorMap.from_ctypes, (ctypes.c_uint64 * 8)()),
        (TensorMap.from_bytes, bytes(64)),
    ],
)
def test_other_sizes_are_refused(read, value):
    with pytest.raises(tma.DescriptorError, match="a tensor map is 128 bytes"):
        read(value)


@pytest.mark.parametrize("value", [None, 128, 0, True, 1.5, "x" * 128, [0] * 128, object(), {}])
@pytest.mark.parametrize("read", [TensorMap, TensorMap.from_bytes])
def test_what_holds_no_bytes_is_no_tensor_map(read, value):
    with pytest.raises(tma.DescriptorError, match="holds no bytes of a tensor map"):
        read(value)


def test_slots_for_upload_are_128_bytes_apart_and_aligned():
    maps = [MAP.with_address(4096 * i) for i in range(5)]
    slots = slot_array(maps)
    assert slots.shape == (5, 128)
    assert slots.dtype == np.uint8
    assert slots.strides == (128, 1)
    assert slots.ctypes.data % 128 == 0
    assert [TensorMap.from_bytes(row) for row in slots] == maps
    assert slot_array([]).shape == (0, 128)


def test_nothing_of_cuda_or_numpy_is_loaded_for_it():
    script = """
import sys, cupytma
m = cupytma.TensorMap(bytes(128))
m.replace_raw("rank", 1).with_address(16).debug_line()
m.to_ctypes()
print([name for name in ("numpy", "cuda.bindings", "cupy") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
