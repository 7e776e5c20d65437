"""What a map knows beyond its bytes, and how firmly an encoding is known."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace

import numpy as np
import pytest

import cupytma as tma
from cupytma.tensormap import Im2col, Im2colWide, TensorMap, Tiled

PLAIN = Tiled(
    data_type="FLOAT16", global_address=1 << 20, global_dim=(1024, 512), global_strides=(2048,), box_dim=(64, 32),
    swizzle="128B",
)  # fmt: skip
PIXELS = Im2col(
    data_type="FLOAT16", global_address=1 << 20, global_dim=(64, 56, 56, 32), pixel_box_lower_corner=(-1, -1),
    pixel_box_upper_corner=(-1, -1), channels_per_pixel=64, pixels_per_column=128, swizzle="128B",
)  # fmt: skip
WIDE = Im2colWide(
    data_type="FLOAT16", global_address=1 << 20, global_dim=(64, 56, 56, 32), pixel_box_lower_corner_width=-200,
    pixel_box_upper_corner_width=300, channels_per_pixel=32, pixels_per_column=64, mode="W128", swizzle="64B",
)  # fmt: skip
COPIES = [
    copy.copy, copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m)), lambda m: TensorMap.from_json(m.to_json()),
    lambda m: m.apply_workaround(), lambda m: m.with_address(1 << 20),
]  # fmt: skip


@pytest.mark.parametrize("copied", COPIES)
def test_copies_say_what_the_original_says(copied) -> None:
    original = WIDE.encode("sm_100a")
    made = copied(original)
    assert made == original
    assert made.decode() == WIDE
    assert (made.box_bytes, made.verified) == (original.box_bytes, False)


def test_copies_of_an_arrays_map_keep_its_axes() -> None:
    original = tma.tensor_map(np.zeros((4, 8, 64), np.float16), (1, 8, 64))
    assert copy.deepcopy(original).axes == pickle.loads(pickle.dumps(original)).axes == ((0,), (1,), (2,))


@pytest.mark.parametrize("parameters", [PLAIN, PIXELS], ids=["tiled", "im2col"])
def test_what_the_driver_was_seen_to_write_is_verified(parameters) -> None:
    assert parameters.encode().verified
    assert TensorMap.from_bytes(bytes(parameters.encode())).verified


@pytest.mark.parametrize("swizzle", ["128B_ATOM_32B", "128B_ATOM_32B_FLIP_8B", "128B_ATOM_64B"])
def test_atom_swizzles_are_known_refused_on_hopper_and_encoded_unverified_on_blackwell(swizzle: str) -> None:
    atoms = replace(PLAIN, swizzle=swizzle)
    assert [violation.rule for violation in atoms.violations("sm_90a")] == ["swizzle"]
    made = atoms.encode("sm_100a")
    assert not made.verified
    assert TensorMap.from_bytes(bytes(made)).decode() == atoms


@pytest.mark.parametrize("data_type", ["16U4_ALIGN8B", "16U4_ALIGN16B", "16U6_ALIGN16B"])
def test_packed_types_are_encoded_unverified_and_their_packed_bits_count(data_type: str) -> None:
    packed = replace(PLAIN, data_type=data_type, global_dim=(1024, 512), box_dim=(128, 8))
    made = packed.encode("sm_100a")
    assert not made.verified
    assert made.box_bytes == 128 * 8 * (6 if "U6" in data_type else 4) // 8
    assert packed.tile_bytes == 8 * 128  # rows advance by the swizzle's span
    assert TensorMap.from_bytes(bytes(made)).decode() == packed


@pytest.mark.parametrize("word", [1, 8, 12])
def test_changed_bytes_are_not_verified(word: int) -> None:
    data = bytearray(bytes(PLAIN.encode()))
    data[8 * word + 3] ^= 0x80
    assert not TensorMap.from_bytes(data).verified


def test_the_bit_of_the_driver_defect_is_warned_about_and_cleared() -> None:
    marked = TensorMap.from_bytes((int.from_bytes(bytes(PLAIN.encode()), "little") | 1 << 85).to_bytes(128, "little"))
    assert [warning.rule for warning in marked.warnings()] == ["driver-defect"]
    assert "w1[21] set" in repr(marked)
    assert marked.decode() == PLAIN
    assert marked.apply_workaround() == PLAIN.encode()
    assert marked.apply_workaround().warnings() == ()


def test_w128_takes_128_pixels_whatever_is_said_where_it_is_documented() -> None:
    for pixels in (0, 1, 128, 5000):
        made = replace(WIDE, pixels_per_column=pixels).encode("sm_100a")
        assert made == replace(WIDE, pixels_per_column=128).encode("sm_100a")
        assert made.box_bytes == 128 * 64
    assert replace(WIDE, mode="W", pixels_per_column=0).violations("sm_100a")[0].rule == "pixels-range"
