"""Rows of the rule table that refuse nothing: warnings about legal tensor maps, and faults of their use.

Also the folklore: what is often enforced and is no rule. Sources: "measured" is an H100 (driver 580.159); "driver API"
is NVIDIA's documentation of the encoders.
"""

from __future__ import annotations

from dataclasses import dataclass

from cupytma.targets import Feature
from cupytma.tensormap.rule import IM2COL, Rule

_MEASURED = "measured"


def _warning(
    id: str,
    statement: str,
    holds: str,
    message: str,
    fix: str,
    source: str = _MEASURED,
    per: str = "",
    modes: tuple[str, ...] = ("tiled", *IM2COL),
    feature: Feature | None = None,
) -> Rule:
    return Rule(id, statement, holds, message, fix, source, per, modes, "warning", feature)


WARNINGS: tuple[Rule, ...] = (
    _warning(
        "null-address", "the address is not null",
        "global_address != 0",
        "global_address is null; the driver accepts it, and the first copy faults",
        "put the address in before use (`with_address`, or tensormap.replace on the device)",
    ),
    _warning(
        "swizzle-address", "a swizzled tensor starts on a 128-byte boundary",
        "(swizzle <= 0) | (global_address % 128 == 0)",
        "global_address {global_address:#x} is {global_address % 128} mod 128; with swizzle {swizzle:swizzle} rows "
        "then straddle memory lines",
        "align the tensor to 128 bytes for speed; the bytes that arrive are right either way",
        "CUDA programming guide; not enforced",
    ),
    _warning(
        "inner-extent-store", "the innermost extent is a multiple of 16 bytes",
        "(interleave != 0) | (global_dim[0] * element_bits % 128 == 0)",
        "rows of {global_dim[0] * element_bits:size} end inside a 16-byte unit: a store or reduction through this map "
        "writes up to 15 bytes past the end of every row",
        "store through a map whose global_dim[0] is cut to {global_dim[0] * element_bits // 128 * 128 // element_bits} "
        "and write the rest with ordinary stores, or own the padding; loads are exact",
    ),
    _warning(
        "stride-zero", "no stride is zero",
        "(global_strides[i] != 0) | (global_dim[i + 1] == 1)",
        "global_strides[{i}] = 0 B (of dimension {i + 1}): every index of that dimension is the same memory",
        "right for a broadcast load; a store through it leaves the order to chance",
        per="stride",
    ),
    _warning(
        "stride-row", "no stride is shorter than a row",
        "(global_strides[i] == 0) | (global_strides[i] >= row_bytes) | (global_dim[i + 1] == 1)",
        "global_strides[{i}] = {global_strides[i]} B (of dimension {i + 1}) is shorter than a row of {row_bytes} B: "
        "rows overlap",
        "check that overlapping rows are meant; the driver does not",
        per="stride",
    ),
    _warning(
        "stride-overlap", "no stride is less than what the dimensions of smaller stride reach over",
        "(global_strides[i] == 0) | (global_strides[i] < row_bytes) | (global_strides[i] >= covered[i]) | "
        "(global_dim[i + 1] == 1)",
        "global_strides[{i}] = {global_strides[i]} B (of dimension {i + 1}) is less than the {covered[i]} B that the "
        "dimensions of smaller stride reach over: elements may overlap",
        "check that overlapping elements are meant; the driver does not",
        per="stride",
    ),
    _warning(
        "box-exceeds-tensor", "the box is no larger than the tensor",
        "box_dim[i] <= global_dim[i]",
        "box_dim[{i}] = {box_dim[i]} exceeds global_dim[{i}] = {global_dim[i]}: the rest of the tile is filled, and "
        "counts in the transaction bytes",
        "nothing to do if the fill is wanted",
        per="dim", modes=("tiled",),
    ),
    _warning(
        "element-stride-remainder", "element strides divide the box",
        "(box_dim[i] % element_strides[i] == 0) | ((interleave == 0) & (i == 0))",
        "box_dim[{i}] = {box_dim[i]} is no multiple of element_strides[{i}] = {element_strides[i]}: a load brings "
        "{-(-box_dim[i] // element_strides[i])} elements, and the driver reckons with "
        "{box_dim[i] // element_strides[i]}",
        "count the mbarrier's bytes with `box_bytes`, or make box_dim[{i}] a multiple",
        per="dim", modes=("tiled",),
    ),
    _warning(
        "element-stride-ignored", "element_strides[0] is 1 without interleave",
        "(element_strides[0] == 1) | (interleave != 0)",
        "element_strides[0] = {element_strides[0]} is checked and recorded by the driver and ignored by the unit",
        "use 1; to skip elements, give the tensor one more dimension",
    ),
    _warning(
        "box-exceeds-shared", "one load fits the shared memory of a block",
        "tile_bytes <= shared_bytes",
        "one load takes {tile_bytes} B of shared memory (rows shorter than the swizzle's span advance by a whole "
        "span); a block on {target} has {shared_bytes} B at most",
        "make the box smaller",
    ),
    _warning(
        "channels-exceed-tensor", "a pixel has as many channels as are loaded",
        "(channels_per_pixel <= global_dim[0]) | (interleave != 0)",
        "channels_per_pixel = {channels_per_pixel} exceeds global_dim[0] = {global_dim[0]}: the rest of every pixel is "
        "filled, and counts in the transaction bytes",
        "nothing to do if the fill is wanted",
        modes=IM2COL,
    ),
    _warning(
        "packed-direction", "16U4_ALIGN16B is loaded only, and 128B_ATOM_64B of 16U6_ALIGN16B stored only",
        "(data_type != 14) & ((data_type != 15) | (swizzle != 6))",
        "{data_type:data_type} with swizzle {swizzle:swizzle} is documented for one direction alone: 16U4_ALIGN16B for "
        "loads, 128B_ATOM_64B of 16U6_ALIGN16B for stores",
        "use this map in that direction only",
        "driver API", feature=Feature.PACKED_TYPES,
    ),
    _warning(
        "l2-promotion-row", "the L2 promotion is no wider than a row",
        "(l2_promotion == 0) | (interleave != 0) | (2 ** (l2_promotion + 8) <= global_dim[0] * element_bits)",
        "L2 promotion {2 ** (l2_promotion + 5)}B is wider than a row of {global_dim[0] * element_bits:size}: bytes of "
        "other rows, or of nothing, are fetched along",
        "use a smaller promotion, or NONE",
    ),
    _warning(
        "interleave-swizzle", "interleave 32B goes with swizzle 32B",
        "(interleave != 2) | (swizzle == 1)",
        "interleave 32B with swizzle {swizzle:swizzle}: documented as illegal, and accepted by the driver seen",
        "use swizzle 32B",
        "driver API; not enforced",
    ),
    _warning(
        "pixel-dim-signed", "im2col extents stay below 2^31",
        "pixel_dim[i] < 2**31",
        "the extent {pixel_dim[i]} of spatial dimension {i} is 2^31 or more, which the driver takes for negative",
        "split the tensor",
        "observed", per="corner", modes=IM2COL,
    ),
    _warning(
        "wide-target", "im2col-wide is used on targets that document it",
        "layout == mode",
        "{target} has no im2col-wide instruction; the driver encodes the map there as an im2col map",
        "use Im2col on this target",
        "driver API; not enforced", modes=("im2col_wide",),
    ),
    _warning(
        "small-tensor-defect", "a tensor below 128 KB is dense and does not overlap",
        "dense | (reach >= 128 * 1024)",
        "the tensor takes {reach} B, less than 128 KB, and is not dense and non-overlapping: drivers before 595 encode "
        "such maps wrongly on Blackwell",
        "encode here and not with such a driver, or apply `TensorMap.apply_workaround()` to what it made",
        "release notes of driver 595", feature=Feature.IM2COL_WIDE,
    ),
)


def _fault(
    id: str,
    statement: str,
    holds: str,
    message: str,
    fix: str,
    per: str = "",
    modes: tuple[str, ...] = ("tiled", *IM2COL),
) -> Rule:
    return Rule(id, statement, holds, message, fix, _MEASURED, per, modes, "fault")


FAULTS: tuple[Rule, ...] = (
    _fault(
        "start-inner-multiple", "without interleave a copy starts on a multiple of 16 bytes of the innermost dimension",
        "(interleave != 0) | (coordinates[0] * element_bits % 128 == 0)",
        "coordinate {coordinates[0]} of dimension 0 is byte {coordinates[0] * element_bits // 8}, "
        "{coordinates[0] * element_bits // 8 % 16} mod 16; the innermost start must be a multiple of 16 bytes, that is "
        "of {128 // element_bits} elements",
        "start at {coordinates[0] * element_bits // 128 * 128 // element_bits} or "
        "{(coordinates[0] * element_bits // 128 + 1) * 128 // element_bits}",
    ),
    _fault(
        "tile-alignment", "the tile in shared memory starts on a multiple of 128 bytes",
        "shared_address % 128 == 0",
        "the shared tile starts at byte {shared_address}, {shared_address % 128} mod 128; it must start at a multiple "
        "of 128 bytes",
        "align it, such as to {shared_address // 128 * 128 + 128}",
    ),
    _fault(
        "store-start", "a store or reduction starts at 0 or above in every dimension",
        "(store == 0) | (coordinates[i] >= 0)",
        "a store starts at coordinate {coordinates[i]} of dimension {i}; stores must start at 0 or above in every "
        "dimension (loads may start below)",
        "move the tile's origin inside the tensor",
        per="dim",
    ),
    _fault(
        "store-lower-corner", "an im2col store has lower corners of 0 or above",
        "(store == 0) | (pixel_box_lower_corner[i] >= 0)",
        "an im2col store with lower corner {pixel_box_lower_corner[i]} in spatial dimension {i}; stores need 0 or "
        "above",
        "encode a second tensor map, with lower corner 0, for the store",
        per="corner", modes=IM2COL,
    ),
    _fault(
        "pixel-start", "an im2col copy starts inside its pixel box",
        "(pixel_box_lower_corner[i] <= pixel_start[i]) & "
        "(pixel_start[i] <= pixel_dim[i] + pixel_box_upper_corner[i] - 1)",
        "the start pixel {pixel_start[i]} of spatial dimension {i} lies outside the bounding box "
        "{pixel_box_lower_corner[i]} … {pixel_dim[i] + pixel_box_upper_corner[i] - 1} (the lower corner, and extent + "
        "upper corner - 1)",
        "start inside it",
        per="corner", modes=("im2col",),
    ),
)


@dataclass(frozen=True)
class Folklore:
    """A rule that is often enforced and is none.

    Attributes
    ----------
    id : str
        Stable name.
    claim : str
        What is said.
    truth : str
        What the driver and the hardware do.
    """

    id: str
    claim: str
    truth: str


FOLKLORE: tuple[Folklore, ...] = (
    Folklore(
        "box-within-tensor", "the box must not be larger than the tensor",
        "The driver accepts it (observed); the rest of the tile is filled and counts in the transaction bytes.",
    ),
    Folklore(
        "address-128", "the tensor must be aligned to 128 bytes when swizzled",
        "16 bytes are enough (observed, 32 with interleave 32B); 128 avoids rows that straddle memory lines.",
    ),
    Folklore(
        "box-equals-span", "the inner row of the box must equal the span of the swizzle",
        "Any multiple of 16 bytes up to the span is accepted; shorter rows advance by a whole span (measured).",
    ),
    Folklore(
        "full-row-strides", "every stride must be at least a row, and a multiple of the stride before it",
        "Strides are checked for alignment and range alone: 0, shorter than a row and decreasing ones are accepted "
        "(observed).",
    ),
    Folklore(
        "tile-1024", "a 128B-swizzled tile must be aligned to 1024 bytes in shared memory",
        "128 bytes are enough for the unit (measured); the pattern follows the absolute address, so index formulas "
        "relative to the tile need 1024.",
    ),
)
"""What is often said of tensor maps, and is not so."""
