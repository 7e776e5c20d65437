"""Small inputs that people really ran into, with the right answer for each and for its kind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cupytma as tma
from cupytma.errors import DescriptorError
from cupytma.tensormap.arrays import ArrayView

_REPORTS = json.loads((Path(__file__).parents[1] / "golden" / "reports.json").read_text(encoding="utf-8"))
GIVEN: dict[str, dict[str, Any]] = {report["id"]: report["given"] for report in _REPORTS}


def parameters(name: str, **more: Any) -> tma.Tiled:
    """The report's parameters, as given, with what it leaves open."""
    given = {key: value for key, value in GIVEN[name].items() if key not in ("mode", "target", "driver_answer")}
    if isinstance(given.get("global_address"), str):
        given["global_address"] = int(given["global_address"], 16)
    defaults = {"global_address": 1 << 20, "data_type": "FLOAT16"}
    return tma.Tiled(**{**defaults, **given, **more})


def refused(call: Any) -> str:
    with pytest.raises(DescriptorError) as caught:
        call()
    return str(caught.value)


def rules(made: tma.Tiled, target: str = "sm_90a") -> list[str]:
    return [violation.rule for violation in made.violations(target)]


def test_row_1733() -> None:
    given = GIVEN["row-1733"]
    array = ArrayView(1 << 20, tuple(given["array_shape"]), tuple(given["array_strides_bytes"]), "float32", 4, 0)
    message = refused(lambda: tma.tensor_map(array, given["box"]))
    for words in ("strides[0]", "6932 B", "4 mod 16", "6944 B", "1736 elements"):
        assert words in message
    assert "global_strides" not in message


@pytest.mark.parametrize("width", range(2, 130))
def test_rows_of_any_width_are_refused_exactly_where_16_does_not_divide_them(width: int) -> None:
    array = np.zeros((8, width), np.float16)
    if 2 * width % 16 == 0:
        tma.tensor_map(array, (8, 8))
    else:
        assert f"strides[0] = {2 * width} B" in refused(lambda: tma.tensor_map(array, (8, 8)))


def test_zero_length() -> None:
    made = parameters("zero-length")
    assert rules(made) == ["dim-range"]
    assert "global_dim[1] = 0" in str(made.violations()[0])
    assert "skip the launch" in str(made.violations()[0])


def test_null_base() -> None:
    made = parameters("null-base")
    assert made.encode().words[0] == 0
    assert "null-address" in [warning.rule for warning in made.warnings()]


def test_base_12_off() -> None:
    made = parameters("base-12-off")
    assert rules(made) == ["address-alignment"]  # and not the stride of 0 on the dimension of size 1
    assert "12 mod 16" in str(made.violations()[0])
    assert "slice" in str(made.violations()[0])


@pytest.mark.parametrize("offset", range(1, 32))
def test_every_sliced_buffer_is_refused_by_its_address_alone(offset: int) -> None:
    assert rules(parameters("base-12-off", global_address=(1 << 40) + offset)) == (
        [] if offset % 16 == 0 else ["address-alignment"]
    )


@pytest.mark.parametrize("channels", [64, 72, 128, 256])
def test_im2col_channel_span(channels: int) -> None:
    given = {key: value for key, value in GIVEN["im2col-channel-span"].items() if key != "mode"}
    given["channels_per_pixel"] = channels if channels != 128 else given["channels_per_pixel"]
    made = tma.Im2col(global_address=1 << 20, pixel_box_lower_corner=(0, 0), pixel_box_upper_corner=(0, 0), **given)
    broken = [str(violation) for violation in made.violations()]
    assert bool(broken) == (channels > 64)
    if broken:
        assert f"{channels} × 2 B = {2 * channels} B exceeds the 128 B span" in broken[0]
        assert "≤ 64" in broken[0]


def test_box_512() -> None:
    made = tma.Tiled(data_type="FLOAT16", global_address=1 << 20, global_dim=(1024, 1024), **GIVEN["box-512"])
    assert "box-range" in rules(made)
    plan = tma.plan_boxes(made, (256, 256), swizzle="128B")
    assert len(plan.loads) == 4
    assert plan.boxes == ((64, 256),)
    assert plan.transaction_bytes == 256 * 256 * 2


@pytest.mark.parametrize("stride", [0, 1, 7, 2**31, 2**40, 2**45 + 3])
def test_size_1_axis(stride: int) -> None:
    shape = tuple(GIVEN["size-1-axis"]["array_shape"])
    array = ArrayView(1 << 20, shape, (stride, shape[2], 1), "uint8", 1, 0)
    made = tma.tensor_map(array, (1, 128, 128), swizzle="128B").decode()
    assert made.global_dim == shape[::-1]
    assert made.global_strides[0] == shape[2]
    assert made.violations() == ()


def test_box_over_tensor() -> None:
    made = parameters("box-over-tensor")
    assert made.encode().box_bytes == 64 * 8 * 2
    assert "box-exceeds-tensor" in [warning.rule for warning in made.warnings()]


def test_atom_swizzle_on_hopper() -> None:
    given = dict(GIVEN["atom-swizzle-on-hopper"])
    target = given.pop("target")
    made = tma.Tiled(
        data_type="FLOAT16", global_address=1 << 20, global_dim=(64, 8), box_dim=(64, 8), swizzle=given["swizzle"]
    )
    assert f"not available on {target}" in refused(lambda: made.encode(target))
    assert not made.encode("sm_100a").verified
    unknown = refused(
        lambda: tma.Tiled(data_type="FLOAT16", global_address=0, global_dim=(8,), box_dim=(8,), swizzle="96X")
    )
    assert "has no member '96X'" in unknown


@pytest.mark.parametrize("data_type", ["UINT8", "UINT16", "UINT32", "INT32", "UINT64", "INT64"])
def test_nan_on_integers(data_type: str) -> None:
    made = parameters("nan-on-integers", data_type=data_type, global_dim=(64,), box_dim=(16,))
    assert rules(made) == ["oob-fill-type"]
    assert data_type in str(made.violations()[0])


def test_sticky_fault_is_not_about_its_parameters() -> None:
    assert rules(parameters("sticky-fault")) == []


def test_every_report_about_descriptors_and_arrays_is_here() -> None:
    wanted = {report["id"] for report in _REPORTS if report["area"] in ("descriptor", "array")}
    here = {name.removeprefix("test_").replace("_", "-") for name in globals() if name.startswith("test_")}
    assert wanted <= here
