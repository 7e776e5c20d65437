"""Warnings and faults: what is legal and surprising, and what kills a kernel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cupytma.errors import DescriptorError
from cupytma.tensormap import RULES, Im2col, Im2colWide, Parameters, TensorMap, Tiled

CLEAN = Tiled(
    data_type="FLOAT16", global_address=1 << 20, global_dim=(1024, 512, 4), global_strides=(2048, 1 << 20),
    box_dim=(64, 32, 1), swizzle="128B",
)  # fmt: skip
CUBE = Tiled(
    data_type="UINT8", global_address=1 << 20, global_dim=(64, 8, 4), global_strides=(2048, 16384),
    box_dim=(32, 1, 1), interleave="32B", swizzle="32B",
)  # fmt: skip
PIXELS = Im2col(
    data_type="FLOAT16", global_address=1 << 20, global_dim=(64, 56, 56, 32), pixel_box_lower_corner=(-1, -1),
    pixel_box_upper_corner=(-1, -1), channels_per_pixel=64, pixels_per_column=128, swizzle="128B",
)  # fmt: skip
PACKED = Tiled(
    data_type="16U6_ALIGN16B", global_address=1 << 20, global_dim=(256, 4096), global_strides=(192,),
    box_dim=(128, 64), swizzle="128B",
)  # fmt: skip
WIDE = Im2colWide(
    data_type="FLOAT16", global_address=1 << 20, global_dim=(64, 56, 56, 32), pixel_box_lower_corner_width=-1,
    pixel_box_upper_corner_width=-1, channels_per_pixel=64, pixels_per_column=128, swizzle="128B",
)  # fmt: skip

SURPRISING: list[tuple[str, Parameters, dict[str, Any], str, tuple[str, ...]]] = [
    ("null-address", CLEAN, {"global_address": 0}, "sm_90a", ("null", "accepts")),
    ("swizzle-address", CLEAN, {"global_address": 16}, "sm_90a", ("16 mod 128",)),
    ("inner-extent-store", CLEAN, {"global_dim": (1023, 512, 4)}, "sm_90a", ("2046 B", "15 bytes", "1016")),
    ("stride-zero", CLEAN, {"global_strides": (2048, 0)}, "sm_90a", ("dimension 2", "broadcast")),
    ("stride-row", CLEAN, {"global_strides": (1024, 1 << 20)}, "sm_90a", ("1024 B", "2048 B", "overlap")),
    ("stride-overlap", CLEAN, {"global_strides": (2048, 1 << 19)}, "sm_90a", ("524288 B", "1048576 B")),
    ("box-exceeds-tensor", CLEAN, {"global_dim": (1024, 31, 4)}, "sm_90a", ("box_dim[1] = 32", "31", "transaction")),
    ("element-stride-remainder", CLEAN, {"element_strides": (1, 5, 1)}, "sm_90a", ("brings 7", "reckons with 6")),
    ("element-stride-ignored", CLEAN, {"element_strides": (2, 1, 1)}, "sm_90a", ("ignored by the unit",)),
    ("box-exceeds-shared", CLEAN, {"box_dim": (64, 256, 7), "global_dim": (1024, 512, 8)}, "sm_120",
     ("229376 B", "101376 B")),
    ("l2-promotion-row", CLEAN, {"global_dim": (64, 512, 4), "l2_promotion": "256B"}, "sm_90a", ("256B", "128 B")),
    ("interleave-swizzle", CUBE, {"swizzle": "NONE"}, "sm_90a", ("documented as illegal",)),
    ("pixel-dim-signed", PIXELS, {"global_dim": (64, 2**31 + 5, 56, 32), "pixel_box_upper_corner": (-9, -1),
                                  "global_strides": (128, 2**39 - 16, 2**39)}, "sm_90a", ("2147483653", "negative")),
    ("wide-target", WIDE, {}, "sm_90a", ("sm_90a", "Im2col")),
    ("channels-exceed-tensor", PIXELS, {"global_dim": (32, 56, 56, 32), "global_strides": (64, 3584, 200704)}, "sm_90a",
     ("channels_per_pixel = 64", "32", "filled")),
    ("packed-direction", PACKED, {"data_type": "16U4_ALIGN16B"}, "sm_100a", ("one direction",)),
    ("packed-direction", PACKED, {"swizzle": "128B_ATOM_64B"}, "sm_100a", ("one direction",)),
    ("box-exceeds-shared", CLEAN, {"box_dim": (8, 256, 8), "global_dim": (1024, 512, 8)}, "sm_90a",
     ("262144 B", "span")),
    ("stride-row", CUBE, {"global_strides": (512, 16384)}, "sm_90a", ("512 B", "2048 B")),
    ("small-tensor-defect", CLEAN, {"global_dim": (64, 8, 4), "global_strides": (256, 2048), "box_dim": (64, 8, 1)},
     "sm_100a", ("8064 B", "apply_workaround")),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "parameters", "change", "target", "words"), SURPRISING)
def test_what_is_legal_and_surprising_is_said_and_not_rejected(
    rule: str, parameters: Parameters, change: dict[str, Any], target: str, words: tuple[str, ...]
) -> None:
    changed = replace(parameters, **change)
    changed.encode(target)
    said = {warning.rule: warning for warning in changed.warnings(target)}
    assert rule in said
    assert said[rule].severity == "warning"
    for word in words:
        assert word in str(said[rule])
    before = parameters.warnings(target if change else "sm_100a")
    assert rule not in {warning.rule for warning in before}


def test_every_warning_has_a_case() -> None:
    assert {rule.id for rule in RULES if rule.severity == "warning"} == {case[0] for case in SURPRISING}


@pytest.mark.parametrize("parameters", [CLEAN, CUBE, PIXELS], ids=lambda p: p.kind + str(p.interleave))
@pytest.mark.parametrize("target", ["sm_90a", "sm_100a"])
def test_ordinary_maps_have_no_warnings(parameters: Parameters, target: str) -> None:
    assert parameters.warnings(target) == ()


def test_size_1_dimensions_raise_no_stride_warnings() -> None:
    assert replace(CLEAN, global_dim=(1024, 1, 1), global_strides=(0, 16), box_dim=(64, 1, 1)).warnings() == ()


def test_dimensions_of_decreasing_stride_do_not_overlap() -> None:
    swapped = replace(CLEAN, global_dim=(1024, 4, 512), global_strides=(1 << 20, 2048), box_dim=(64, 1, 32))
    assert swapped.warnings() == ()


def test_what_is_refused_has_no_warnings() -> None:
    assert replace(CLEAN, global_address=8).warnings() == ()


@pytest.mark.parametrize(
    ("parameters", "coordinates", "use", "rule", "words"),
    [
        (CLEAN, (130, 0, 0), {}, "start-inner-multiple", ("byte 260", "4 mod 16", "start at 128 or 136")),
        (replace(CLEAN, data_type="FLOAT32", box_dim=(32, 32, 1), global_strides=(4096, 1 << 21)), (-6, 0, 0), {},
         "start-inner-multiple", ("byte -24", "8 mod 16", "start at -8 or -4")),
        (CLEAN, (0, 0, 0), {"shared_address": 64}, "tile-alignment", ("64 mod 128", "to 128")),
        (CLEAN, (0, -1, 0), {"store": True}, "store-start", ("coordinate -1 of dimension 1",)),
        (PIXELS, (0, 0, 0, 0), {"store": True}, "store-lower-corner", ("lower corner -1",)),
        (PIXELS, (0, -2, 0, 0), {}, "pixel-start", ("start pixel -2", "-1 … 54")),
        (PIXELS, (0, 0, 55, 0), {}, "pixel-start", ("start pixel 55", "dimension 1")),
    ],
)  # fmt: skip
def test_what_faults_in_use_is_said_before(
    parameters: Parameters, coordinates: tuple[int, ...], use: dict[str, Any], rule: str, words: tuple[str, ...]
) -> None:
    found = parameters.faults(coordinates, **use)
    assert rule in [fault.rule for fault in found]
    fault = next(fault for fault in found if fault.rule == rule)
    assert fault.severity == "fault"
    for word in words:
        assert word in str(fault)


def test_a_good_start_has_no_faults() -> None:
    assert CLEAN.faults((-64, -3, 99)) == ()
    assert CLEAN.faults((64, 3, 0), shared_address=128, store=True) == ()
    assert PIXELS.faults((0, -1, 54, -5)) == ()


def test_a_wrong_number_of_coordinates_is_refused() -> None:
    with pytest.raises(DescriptorError, match="2 coordinates for rank 3"):
        CLEAN.faults((0, 0))


def refusal_of(call: Callable[[], object]) -> str:
    """What a call refuses, empty when it does not."""
    try:
        call()
    except DescriptorError as error:
        return str(error)
    return ""


@given(st.binary(min_size=128, max_size=128))
@settings(max_examples=2000, deadline=None)
def test_any_128_bytes_decode_or_say_which_bits_make_no_sense(data: bytes) -> None:
    tensor_map = TensorMap.from_bytes(data)
    assert bytes(tensor_map) == data
    assert repr(tensor_map)
    refusal = refusal_of(tensor_map.decode)
    if refusal:
        assert "w1[" in refusal
        return
    parameters = tensor_map.decode()
    parameters.violations()
    parameters.warnings()
    assert tensor_map.box_bytes == parameters.transaction_bytes
    assert tensor_map.fields()
    assert all(bit.startswith("w") for bit in tensor_map.reserved_bits)


@given(st.integers(0, 1023), st.sampled_from([CLEAN, CUBE, PIXELS]))
@settings(max_examples=300, deadline=None)
def test_a_flipped_bit_shows_in_the_fields_or_the_reserved_bits(bit: int, parameters: Parameters) -> None:
    original = parameters.encode()
    flipped = TensorMap.from_bytes((int.from_bytes(bytes(original), "little") ^ (1 << bit)).to_bytes(128, "little"))
    assert flipped != original
    refusal = refusal_of(flipped.fields)
    if refusal:
        assert "w1[6:4]" in refusal
    else:
        assert flipped.fields() != original.fields() or flipped.reserved_bits != original.reserved_bits
