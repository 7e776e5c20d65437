"""Stores: the 16-byte rounding, overlap, and what is never written."""

from __future__ import annotations

import numpy as np
import pytest

from cupytma import sim
from cupytma.tensormap import Tiled

BASE = 0x20000


def view_of(data_type: str, width: int, shape: tuple[int, int] = (32, 512)) -> tuple[Tiled, np.ndarray]:
    """A tensor map of ``array[:, :width]``, and the array, all ones."""
    dtype = np.dtype({"UINT8": "u1", "UINT16": "u2", "INT32": "i4"}[data_type])
    array = np.ones(shape, dtype=dtype)
    p = Tiled(
        data_type=data_type,
        global_address=BASE,
        global_dim=(width, shape[0]),
        global_strides=(shape[1] * dtype.itemsize,),
        box_dim=(128, 32),
    )
    return p, array


def store_zeros(p: Tiled, array: np.ndarray, column: int) -> list[int]:
    """The columns that a store of zeros at `column` changes."""
    shared = np.zeros(p.encode().box_bytes, dtype=np.uint8)
    sim.store(p.encode(), (column, 0), memory=array.reshape(-1).view(np.uint8), base=BASE, shared=shared)
    changed = np.flatnonzero((array == 0).any(axis=0))
    assert (array[:, changed] == 0).all()
    return changed.tolist()


@pytest.mark.parametrize(
    ("data_type", "width", "spilled"),
    [
        ("UINT8", 466, range(466, 480)),
        ("UINT16", 470, range(470, 472)),
        ("INT32", 466, range(466, 468)),
        ("UINT8", 464, ()),
        ("INT32", 468, ()),
    ],
)
def test_a_store_over_a_view_writes_whole_16_byte_chunks(data_type: str, width: int, spilled: range) -> None:
    p, array = view_of(data_type, width)
    assert store_zeros(p, array, 384) == [*range(384, width), *spilled]


def test_bytes_written_past_the_tensor_must_lie_in_the_window() -> None:
    p = Tiled(data_type="UINT8", global_address=BASE, global_dim=(13,), box_dim=(16,))
    shared = np.zeros(16, dtype=np.uint8)
    short = np.ones(13, dtype=np.uint8)
    with pytest.raises(sim.OutOfWindow, match=r"last 16-byte chunk of a row whole, here 3 bytes past.*give 3 bytes"):
        sim.store(p.encode(), (0,), memory=short, base=BASE, shared=shared)
    assert short.all()
    long = np.ones(17, dtype=np.uint8)
    sim.store(p.encode(), (0,), memory=long, base=BASE, shared=shared)
    assert long.tolist() == [0] * 16 + [1]
    assert sim.load(p.encode(), (0,), memory=short, base=BASE, shared=shared) == 16
    assert shared.tolist() == [1] * 13 + [0] * 3


def test_a_store_beyond_the_tensor_writes_nothing_and_needs_no_memory() -> None:
    p, array = view_of("INT32", 466)
    assert store_zeros(p, array, 468) == []
    sim.store(p.encode(), (0, 32), memory=np.zeros(0, np.uint8), base=0, shared=np.zeros(16384, np.uint8))


@pytest.mark.parametrize("data_type", ["TFLOAT32", "TFLOAT32_FTZ", "FLOAT32_FTZ"])
def test_stores_convert_no_value(data_type: str) -> None:
    bits = np.array([0x7F800001, 0x00000001, 0x3F801FFF, 0xFFFFFFFF], dtype=np.uint32)
    memory = np.zeros(16, dtype=np.uint8)
    m = Tiled(data_type=data_type, global_address=BASE, global_dim=(4,), box_dim=(4,)).encode()
    sim.store(m, (0,), memory=memory, base=BASE, shared=bits.view(np.uint8))
    assert np.array_equal(memory.view(np.uint32), bits)


def test_where_rows_overlap_the_last_stays() -> None:
    m = Tiled(data_type="UINT8", global_address=BASE, global_dim=(16, 3), global_strides=(0,), box_dim=(16, 3)).encode()
    memory = np.zeros(16, dtype=np.uint8)
    sim.store(m, (0, 0), memory=memory, base=BASE, shared=np.repeat(np.array([1, 2, 3], np.uint8), 16))
    assert (memory == 3).all()


def test_a_matrix_is_copied_tile_by_tile() -> None:
    source = np.random.default_rng(3).standard_normal((100, 76), dtype=np.float32)
    target = np.zeros_like(source)
    p = Tiled(data_type="FLOAT32", global_address=BASE, global_dim=(76, 100), box_dim=(32, 16), swizzle="128B")
    m, shared = p.encode(), np.zeros(2048, dtype=np.uint8)
    for y in range(0, 100, 16):
        for x in range(0, 76, 32):
            sim.load(m, (x, y), memory=source.reshape(-1).view(np.uint8), base=BASE, shared=shared)
            sim.store(m, (x, y), memory=target.reshape(-1).view(np.uint8), base=BASE, shared=shared)
    assert np.array_equal(source, target)
