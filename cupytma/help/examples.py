"""For each rule of tensor maps, parameters that break it and no other of its severity."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, field, fields, replace
from typing import Any

from cupytma.tensormap import DataType, Im2col, Im2colWide, Interleave, Parameters, Swizzle, Tiled, Violation
from cupytma.tensormap.enums import DriverEnum

_WIDTH = 78  # of a terminal of 80 columns, which keeps one free on either side of code
_GLUE = "\N{NO-BREAK SPACE}"  # keeps an argument on one line

_MATRIX = Tiled(
    data_type=DataType.FLOAT16, global_address=1 << 20, global_dim=(1024, 512), global_strides=(2048,),
    box_dim=(64, 32), swizzle=Swizzle.B128,
)  # fmt: skip
_CUBE = Tiled(
    data_type=DataType.UINT8, global_address=1 << 20, global_dim=(64, 8, 4), global_strides=(2048, 16384),
    box_dim=(32, 1, 1), interleave=Interleave.B32, swizzle=Swizzle.B32,
)  # fmt: skip
_IMAGES = Im2col(
    data_type=DataType.FLOAT16, global_address=1 << 20, global_dim=(64, 56, 56, 32), pixel_box_lower_corner=(-1, -1),
    pixel_box_upper_corner=(-1, -1), channels_per_pixel=64, pixels_per_column=128, swizzle=Swizzle.B128,
)  # fmt: skip
_WIDE = Im2colWide(
    data_type=DataType.FLOAT16, global_address=1 << 20, global_dim=(64, 56, 56, 32), pixel_box_lower_corner_width=-1,
    pixel_box_upper_corner_width=-1, channels_per_pixel=64, pixels_per_column=128, swizzle=Swizzle.B128,
)  # fmt: skip
_PACKED = Tiled(
    data_type=DataType.of("16U6_ALIGN16B"), global_address=1 << 20, global_dim=(256, 4096), global_strides=(192,),
    box_dim=(128, 64), swizzle=Swizzle.B128,
)  # fmt: skip


@dataclass(frozen=True)
class Example:
    """Parameters that break a rule, and where they do.

    Attributes
    ----------
    parameters : Parameters
    target : str
    use : dict
        For faults the arguments of `Parameters.faults`: where a copy starts, whether it stores.
    """

    parameters: Parameters
    target: str = "sm_90a"
    use: dict[str, Any] = field(default_factory=dict)

    def violation(self, rule: str) -> Violation:
        """What is said of the rule; `StopIteration` if the example does not break it."""
        return next(found for found in self.broken() if found.rule == rule)

    def broken(self) -> tuple[Violation, ...]:
        """All that is said: violations, or warnings where the driver accepts, or faults of a use."""
        if self.use:
            return self.parameters.faults(**self.use)
        return self.parameters.violations(self.target) or self.parameters.warnings(self.target)

    @property
    def code(self) -> str:
        """The call that shows it, in lines that fit a terminal of 80 columns."""
        call = f"parameters = {_call(self.parameters)}"
        if self.use:
            arguments = (str(self.use["coordinates"]), *(f"{k}={v}" for k, v in self.use.items() if k != "coordinates"))
            return f"{call}\nparameters.faults({', '.join(arguments)})"
        asks = "violations" if self.parameters.violations(self.target) else "warnings"
        return f'{call}\nparameters.{asks}("{self.target}")'


def _call(parameters: Parameters) -> str:
    """What makes the parameters, without those that have their default."""
    arguments = []
    for parameter in fields(parameters):
        value = getattr(parameters, parameter.name)
        is_default = all(stride == 1 for stride in value) if parameter.name == "element_strides" else (
            value == parameter.default
        )
        if not is_default:
            arguments.append(f"{parameter.name}={_spoken(parameter.name, value)},".replace(" ", _GLUE))
    lines = textwrap.wrap(" ".join(arguments), _WIDTH - 4, break_on_hyphens=False, break_long_words=False)
    body = "\n".join(f"    {line}" for line in lines).replace(_GLUE, " ")
    return f"tma.{type(parameters).__name__}(\n{body}\n)"


def _spoken(name: str, value: Any) -> str:
    if name == "global_address":
        return f"{value:#x}"
    return f'"{value}"' if isinstance(value, DriverEnum) else repr(value)


def _of(base: Parameters, target: str = "sm_90a", **change: Any) -> Example:
    return Example(replace(base, **change), target)


def _use(base: Parameters, coordinates: tuple[int, ...], **use: Any) -> Example:
    return Example(base, use={"coordinates": coordinates, **use})


EXAMPLES: dict[str, Example] = {
    "data-type": _of(_PACKED, "sm_90a", data_type="16U4_ALIGN8B", global_dim=(256, 4096), swizzle="NONE"),
    "rank": _of(
        _MATRIX, global_dim=(64, 8, 8, 8, 8, 8), global_strides=(128, 1024, 8192, 65536, 524288),
        box_dim=(64, 1, 1, 1, 1, 1), element_strides=(1,) * 6,
    ),
    "rank-im2col": _of(
        _IMAGES, global_dim=(64, 56), global_strides=(128,), element_strides=(1, 1), pixel_box_lower_corner=(),
        pixel_box_upper_corner=(),
    ),
    "interleave": _of(
        _MATRIX, interleave=3, global_dim=(64, 8, 1), global_strides=(128, 1024), box_dim=(64, 8, 1),
        element_strides=(1, 1, 1),
    ),
    "interleave-rank": _of(_MATRIX, interleave="16B"),
    "swizzle": _of(_MATRIX, swizzle="128B_ATOM_32B"),
    "l2-promotion": _of(_MATRIX, l2_promotion=4),
    "oob-fill": _of(_MATRIX, oob_fill=2),
    "oob-fill-type": _of(_MATRIX, data_type="INT32", oob_fill="NAN_REQUEST_ZERO_FMA", box_dim=(32, 32)),
    "wide-mode": _of(_WIDE, "sm_100a", mode=2),
    "address-alignment": _of(_MATRIX, global_address=0xFFFD770E9C0C),
    "address-range": _of(_MATRIX, global_address=1 << 57),
    "dim-range": _of(_MATRIX, global_dim=(1024, 0)),
    "stride-alignment": _of(_MATRIX, data_type="FLOAT32", global_strides=(6932,), box_dim=(32, 32)),
    "stride-range": _of(_MATRIX, global_strides=(-2048,)),
    "element-stride-range": _of(_MATRIX, element_strides=(1, 9)),
    "box-range": _of(_MATRIX, box_dim=(64, 512)),
    "channels-range": _of(_IMAGES, channels_per_pixel=264, swizzle="NONE", pixels_per_column=8),
    "pixels-range": _of(_IMAGES, pixels_per_column=1025),
    "box-inner-multiple": _of(_MATRIX, box_dim=(63, 32)),
    "box-bytes": _of(_MATRIX, box_dim=(256, 256), swizzle="NONE", data_type="FLOAT32"),
    "box-inner-span": _of(_MATRIX, box_dim=(128, 32)),
    "lower-corner-range": _of(_IMAGES, pixel_box_lower_corner=(-1, -129)),
    "upper-corner-range": _of(_IMAGES, pixel_box_upper_corner=(128, 0)),
    "pixel-box": _of(_IMAGES, pixel_box_lower_corner=(57, 0)),
    "packed-dim": _of(_PACKED, "sm_100a", global_dim=(192, 4096)),
    "packed-box": _of(_PACKED, "sm_100a", box_dim=(64, 64)),
    "packed-interleave": _of(
        _PACKED, "sm_100a", global_dim=(256, 8, 8), global_strides=(192, 1536), box_dim=(128, 8, 1),
        element_strides=(1, 1, 1), interleave="16B",
    ),
    "packed-swizzle": _of(_PACKED, "sm_100a", swizzle="128B_ATOM_64B", data_type="16U4_ALIGN16B"),
    "wide-swizzle": _of(_WIDE, "sm_100a", swizzle="NONE"),
    "null-address": _of(_MATRIX, global_address=0),
    "swizzle-address": _of(_MATRIX, global_address=(1 << 20) + 16),
    "inner-extent-store": _of(_MATRIX, global_dim=(1023, 512)),
    "stride-zero": _of(_MATRIX, global_strides=(0,)),
    "stride-row": _of(_MATRIX, global_strides=(1024,)),
    "stride-overlap": _of(
        _MATRIX, global_dim=(1024, 512, 4), global_strides=(2048, 1 << 19), box_dim=(64, 32, 1),
        element_strides=(1, 1, 1),
    ),
    "box-exceeds-tensor": _of(_MATRIX, global_dim=(1024, 31)),
    "element-stride-remainder": _of(_MATRIX, element_strides=(1, 5)),
    "element-stride-ignored": _of(_MATRIX, element_strides=(2, 1)),
    "box-exceeds-shared": _of(
        _MATRIX, "sm_120a", global_dim=(1024, 512, 8), global_strides=(2048, 1 << 20), box_dim=(64, 256, 7),
        element_strides=(1, 1, 1),
    ),
    "channels-exceed-tensor": _of(_IMAGES, global_dim=(32, 56, 56, 32), global_strides=(64, 3584, 200704)),
    "packed-direction": _of(_PACKED, "sm_100a", data_type="16U4_ALIGN16B"),
    "l2-promotion-row": _of(_MATRIX, global_dim=(64, 512), l2_promotion="L2_256B"),
    "interleave-swizzle": _of(_CUBE, swizzle="NONE"),
    "pixel-dim-signed": _of(
        _IMAGES, global_dim=(64, 2**31 + 5, 1, 1), pixel_box_upper_corner=(-9, -1), global_strides=(128, 2**39, 2**39),
    ),
    "wide-target": _of(_WIDE, "sm_90a"),
    "small-tensor-defect": _of(_MATRIX, "sm_100a", global_dim=(64, 16), global_strides=(256,), box_dim=(64, 8)),
    "start-inner-multiple": _use(_MATRIX, (130, 0)),
    "tile-alignment": _use(_MATRIX, (0, 0), shared_address=64),
    "store-start": _use(_MATRIX, (0, -1), store=True),
    "store-lower-corner": _use(_IMAGES, (0, 0, 0, 0), store=True),
    "pixel-start": _use(_IMAGES, (0, -2, 0, 0)),
}  # fmt: skip
