"""The rule table: every row can be broken alone, says so with numbers, and both checkers agree on it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cupytma as tma
from cupytma.errors import DescriptorError, TargetError
from cupytma.tensormap import FOLKLORE, RULES, Im2col, Im2colWide, Parameters, Tiled, encode_records
from cupytma.tensormap.records import to_records

BASE = Tiled(
    data_type="FLOAT16", global_address=0x7F0000000000, global_dim=(1024, 512), global_strides=(2048,),
    box_dim=(64, 32), swizzle="128B",
)  # fmt: skip
CUBE = Tiled(
    data_type="UINT8", global_address=1 << 20, global_dim=(64, 8, 4), global_strides=(64, 512), box_dim=(32, 8, 1),
    interleave="32B", swizzle="32B",
)  # fmt: skip
PIXELS = Im2col(
    data_type="FLOAT16", global_address=1 << 20, global_dim=(64, 56, 56, 32), pixel_box_lower_corner=(-1, -1),
    pixel_box_upper_corner=(-1, -1), channels_per_pixel=64, pixels_per_column=128, swizzle="128B",
)  # fmt: skip
WIDE = Im2colWide(
    data_type="FLOAT16", global_address=1 << 20, global_dim=(64, 56, 56, 32), pixel_box_lower_corner_width=-1,
    pixel_box_upper_corner_width=-1, channels_per_pixel=64, pixels_per_column=128, swizzle="128B",
)  # fmt: skip
PACKED = Tiled(
    data_type="16U6_ALIGN16B", global_address=1 << 20, global_dim=(256, 64), global_strides=(192,), box_dim=(128, 64),
    swizzle="128B",
)  # fmt: skip

# Rule, legal parameters, the change that breaks it and nothing else, target, and words of the message and the fix.
BREAKING: list[tuple[str, Parameters, dict[str, Any], str, tuple[str, ...]]] = [
    ("data-type", BASE, {"data_type": 13, "box_dim": (128, 1), "swizzle": 0}, "sm_90a", ("16U4_ALIGN8B", "sm_90a")),
    ("data-type", BASE, {"data_type": 16, "box_dim": (64, 1)}, "sm_100a", ("data type 16",)),
    ("rank", BASE, {"global_dim": (64,) * 6, "global_strides": (128,) * 5, "box_dim": (64,) + (1,) * 5,
                    "element_strides": (1,) * 6}, "sm_90a", ("rank 6", "1…5")),
    ("rank-im2col", WIDE, {"global_dim": (64, 8), "global_strides": (128,), "element_strides": (1, 1)}, "sm_90a",
     ("rank 2", "3…5")),
    ("interleave", BASE, {"interleave": 3, "global_dim": (64, 8, 1), "global_strides": (128, 1024),
                          "box_dim": (64, 8, 1), "element_strides": (1, 1, 1)}, "sm_90a", ("interleave 3",)),
    ("interleave-rank", BASE, {"interleave": "16B"}, "sm_90a", ("16B", "rank 2", "at least 3")),
    ("swizzle", BASE, {"swizzle": "128B_ATOM_32B"}, "sm_90a", ("128B_ATOM_32B", "sm_90a", "sm_100a")),
    ("swizzle", BASE, {"swizzle": 7}, "sm_100a", ("swizzle 7",)),
    ("l2-promotion", BASE, {"l2_promotion": 4}, "sm_90a", ("promotion 4", "256B")),
    ("oob-fill", BASE, {"oob_fill": 2}, "sm_90a", ("fill 2",)),
    ("oob-fill-type", BASE, {"data_type": "INT32", "oob_fill": 1, "box_dim": (32, 32)}, "sm_90a", ("INT32", "NaN")),
    ("wide-mode", WIDE, {"mode": 2}, "sm_90a", ("mode 2",)),
    ("address-alignment", BASE, {"global_address": 0xFFFD770E9C0C}, "sm_90a",
     ("0xfffd770e9c0c", "12 mod 16", "slice")),
    ("address-alignment", CUBE, {"global_address": 16}, "sm_90a", ("16 mod 32",)),
    ("address-range", BASE, {"global_address": 1 << 57}, "sm_90a", ("0x200000000000000", "2^57")),
    ("address-range", BASE, {"global_address": -16}, "sm_90a", ("-0x10",)),
    ("dim-range", BASE, {"global_dim": (1024, 0)}, "sm_90a", ("global_dim[1] = 0", "skip the launch")),
    ("dim-range", BASE, {"global_dim": (1024, 2**32 + 1)}, "sm_90a", ("4294967297", "2^32")),
    ("stride-alignment", BASE, {"global_strides": (6932,)}, "sm_90a",
     ("6932 B", "4 mod 16", "6944 B", "3472 elements")),
    ("stride-range", BASE, {"global_strides": (1 << 40,)}, "sm_90a", ("1099511627776", "2^40")),
    ("stride-range", BASE, {"global_strides": (-2048,)}, "sm_90a", ("-2048", "flip")),
    ("element-stride-range", BASE, {"element_strides": (1, 9)}, "sm_90a", ("element_strides[1] = 9", "1…8")),
    ("element-stride-range", BASE, {"element_strides": (0, 1)}, "sm_90a", ("element_strides[0] = 0",)),
    ("box-range", BASE, {"box_dim": (64, 512)}, "sm_90a", ("box_dim[1] = 512", "1…256", "mbarrier")),
    ("channels-range", PIXELS, {"channels_per_pixel": 264, "swizzle": 0, "pixels_per_column": 8}, "sm_90a",
     ("264", "1…256")),
    ("pixels-range", PIXELS, {"pixels_per_column": 1025}, "sm_90a", ("1025", "1…1024")),
    ("box-inner-multiple", BASE, {"box_dim": (63, 32)}, "sm_90a", ("126 B", "multiple of 8 elements", "such as 64")),
    ("box-inner-multiple", PIXELS, {"channels_per_pixel": 4}, "sm_90a", ("channels_per_pixel = 4", "8 B")),
    ("box-bytes", BASE, {"box_dim": (256, 256), "swizzle": 0, "data_type": "FLOAT32"}, "sm_90a",
     ("262144 B", "233472 B")),
    ("box-inner-span", BASE, {"data_type": "FLOAT32"}, "sm_90a",
     ("box_dim[0] = 64 × 4 B = 256 B", "128 B span", "SWIZZLE_128B", "box_dim[0] ≤ 32", "split the box")),
    ("box-inner-span", PIXELS, {"channels_per_pixel": 128}, "sm_90a", ("128 × 2 B = 256 B", "≤ 64")),
    ("lower-corner-range", PIXELS, {"pixel_box_lower_corner": (-1, -129)}, "sm_90a", ("[1] = -129", "-128 … 127")),
    ("upper-corner-range", PIXELS, {"pixel_box_upper_corner": (128, 0)}, "sm_90a", ("[0] = 128",)),
    ("upper-corner-range", WIDE, {"pixel_box_upper_corner_width": 128}, "sm_90a", ("_corner_width = 128",)),
    ("pixel-box", PIXELS, {"pixel_box_lower_corner": (57, 0)}, "sm_90a", ("dimension 0", "56", "57")),
    ("pixel-box", PIXELS, {"global_dim": (64, 56, 2**31, 32), "pixel_box_upper_corner": (0, 0)}, "sm_90a",
     ("2147483648", "signed 32 bits")),
    ("packed-dim", PACKED, {"global_dim": (192, 64)}, "sm_100a", ("192", "no multiple of 128")),
    ("packed-dim", PACKED, {"data_type": "16U4_ALIGN8B", "global_dim": (257, 64)}, "sm_100a", ("257", "of 2")),
    ("packed-box", PACKED, {"box_dim": (64, 64)}, "sm_100a", ("must be 128",)),
    ("packed-interleave", PACKED, {"global_dim": (256, 8, 8), "global_strides": (192, 1536), "box_dim": (128, 8, 1),
                                   "element_strides": (1, 1, 1), "interleave": "16B"}, "sm_100a", ("16U6_ALIGN16B",)),
    ("packed-swizzle", PACKED, {"swizzle": "128B_ATOM_64B", "data_type": "16U4_ALIGN16B"},
     "sm_100a", ("16U4_ALIGN16B", "128B_ATOM_64B")),
    ("wide-swizzle", WIDE, {"swizzle": "NONE"}, "sm_100a", ("swizzle NONE", "64B, 128B")),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "parameters", "change", "target", "words"), BREAKING)
def test_a_rule_broken_alone_is_named_alone_with_its_numbers(
    rule: str, parameters: Parameters, change: dict[str, Any], target: str, words: tuple[str, ...]
) -> None:
    broken = replace(parameters, **change).violations(target)
    assert [violation.rule for violation in broken] == [rule]
    for word in words:
        assert word in str(broken[0])


def test_every_error_rule_has_a_case_that_breaks_it_alone() -> None:
    assert {rule.id for rule in RULES if rule.severity == "error"} == {case[0] for case in BREAKING}


@pytest.mark.parametrize("parameters", [BASE, CUBE, PIXELS, WIDE], ids=lambda p: p.kind)
@pytest.mark.parametrize("target", ["sm_90", "sm_90a", "sm_100a", "sm_120a"])
def test_the_legal_cases_are_legal_everywhere(parameters: Parameters, target: str) -> None:
    assert parameters.violations(target) == ()
    assert parameters.encode(target).decode() == parameters


def test_a_map_without_dimensions_breaks_the_rank_rule() -> None:
    empty = replace(BASE, global_dim=(), global_strides=(), box_dim=(), element_strides=())
    assert "rank" in [violation.rule for violation in empty.violations()]


def test_all_broken_rules_are_named_at_once() -> None:
    bad = replace(BASE, global_address=8, global_dim=(1024, 0), box_dim=(65, 300), element_strides=(1, 0))
    rules = [violation.rule for violation in bad.violations()]
    assert rules == [
        "address-alignment", "dim-range", "element-stride-range", "box-range", "box-inner-multiple", "box-inner-span",
    ]  # fmt: skip
    with pytest.raises(DescriptorError, match="6 rules are broken"):
        bad.encode()


def test_ids_are_unique_and_every_row_is_complete() -> None:
    assert len({rule.id for rule in RULES}) == len(RULES)
    for rule in RULES:
        assert rule.statement
        assert rule.source
        assert rule.severity in ("error", "warning", "fault")
    assert len({entry.id for entry in FOLKLORE}) == len(FOLKLORE)


def test_folklore_is_accepted() -> None:
    assert replace(BASE, global_dim=(32, 8)).violations() == ()  # box larger than the tensor
    assert replace(BASE, global_address=16).violations() == ()  # not aligned to 128
    assert replace(BASE, box_dim=(8, 32)).violations() == ()  # inner row shorter than the span
    assert replace(BASE, global_strides=(16,)).violations() == ()  # overlapping rows
    assert replace(BASE, global_strides=(0,)).violations() == ()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"swizzle": "256B"}, "NONE, 32B, 64B, 128B"),
        ({"data_type": "INT128"}, "UINT8"),
        ({"global_dim": "12"}, "global_dim = '12'"),
        ({"global_dim": (1.5, 2)}, "global_dim"),
        ({"global_dim": 5}, "global_dim = 5"),
        ({"global_address": "0x10"}, "global_address"),
        ({"global_strides": (1, 2)}, "global_strides has 2 entries"),
        ({"box_dim": (64,), "element_strides": (1, 1, 1)}, "box_dim has 1 entry.*element_strides has 3"),
        ({"oob_fill": True}, "OobFill"),
    ],
)
def test_operands_that_are_no_parameters_at_all_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(DescriptorError, match=message):
        replace(BASE, **change)


@pytest.mark.parametrize(
    "spelling", ["FLOAT16", "float16", np.float16, np.dtype("f2"), 6, tma.DataType.FLOAT16,
                 "CU_TENSOR_MAP_DATA_TYPE_FLOAT16"]
)  # fmt: skip
def test_a_data_type_may_be_spelt_in_every_way(spelling: object) -> None:
    assert replace(BASE, data_type=spelling) == BASE


def test_driver_spellings_and_ml_dtypes_are_understood() -> None:
    import ml_dtypes

    assert replace(BASE, swizzle="CU_TENSOR_MAP_SWIZZLE_128B", l2_promotion="L2_128B").l2_promotion == 2
    assert tma.DataType.of(ml_dtypes.bfloat16) == tma.DataType.BFLOAT16


def test_unknown_and_too_old_targets_are_refused() -> None:
    with pytest.raises(TargetError, match=r"no Tensor Memory Accelerator.*9\.0"):
        BASE.encode("sm_80")
    with pytest.raises(TargetError, match="unknown target"):
        BASE.encode("sm_95")


def test_2_to_the_32_elements_in_one_dimension_are_legal() -> None:
    tensor_map = Tiled(data_type="UINT8", global_address=0, global_dim=(2**32,), box_dim=(256,)).encode()
    assert tensor_map.words[4] == 0xFFFFFFFF
    assert tma.TensorMap.from_bytes(bytes(tensor_map)).decode().global_dim == (2**32,)


@st.composite
def any_parameters(draw: st.DrawFn) -> Parameters:
    """Parameters near every limit, legal and not."""
    kind = draw(st.sampled_from(["tiled", "im2col", "im2col_wide"]))
    rank = draw(st.integers(1, 5) if kind == "tiled" else st.integers(2, 5))
    near = st.sampled_from

    def several(values: list[int], count: int) -> tuple[int, ...]:
        return tuple(draw(near(values)) for _ in range(max(count, 0)))

    common: dict[str, Any] = {
        "data_type": draw(st.integers(-1, 17)),
        "global_address": draw(near([0, 16, 32, 8, 2**57 - 32, 2**57, 2**64 - 16])),
        "global_dim": several([0, 1, 2, 5, 7, 128, 256, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**32 + 1, 2**63], rank),
        "global_strides": several([0, 16, 32, 48, 24, 2**40 - 32, 2**40, 2**64 - 16], rank - 1),
        "element_strides": several([1, 1, 1, 2, 3, 8, 0, 9], rank),
        "interleave": draw(near([0, 0, 1, 2, 3, -1])),
        "swizzle": draw(st.integers(-1, 7)),
        "l2_promotion": draw(near([0, 3, 4])),
        "oob_fill": draw(near([0, 1, 2])),
    }
    if kind == "tiled":
        return Tiled(box_dim=several([16, 32, 64, 128, 1, 8, 256, 257, 0], rank), **common)
    common |= {
        "channels_per_pixel": draw(near([16, 32, 128, 8, 0, 256, 257])),
        "pixels_per_column": draw(near([1, 8, 1024, 1025, 0])),
    }
    corners = [0, 1, -1, 15, 16, -16, -17, 127, 128, -128, -129, 32767, 32768, -32768, -32769]
    if kind == "im2col":
        lower, upper = several(corners, rank - 2), several(corners, rank - 2)
        return Im2col(pixel_box_lower_corner=lower, pixel_box_upper_corner=upper, **common)
    lower, upper = several(corners, 2)
    return Im2colWide(
        pixel_box_lower_corner_width=lower, pixel_box_upper_corner_width=upper, mode=draw(st.integers(-1, 2)), **common
    )


@given(st.lists(any_parameters(), min_size=1, max_size=12), st.sampled_from(["sm_90a", "sm_100a", "sm_120"]))
@settings(max_examples=400, deadline=None)
def test_the_scalar_and_the_vectorised_checker_and_encoder_agree(several: list[Parameters], target: str) -> None:
    status, payload = encode_records(to_records(several), target)
    for parameters, code, data in zip(several, status, payload, strict=True):
        assert bool(parameters.violations(target)) == bool(code), parameters
        assert data.tobytes() == (bytes(128) if code else bytes(parameters.encode(target)))


@given(any_parameters(), st.sampled_from(["sm_90a", "sm_100a"]))
@settings(max_examples=300, deadline=None)
def test_messages_fill_in_for_whatever_is_broken(parameters: Parameters, target: str) -> None:
    for violation in (*parameters.violations(target), *parameters.warnings(target)):
        assert "{" not in str(violation)
        assert violation.rule in {rule.id for rule in RULES}
