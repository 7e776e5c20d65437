"""The rules a tensor map must obey: one table that checkers, messages and documentation read.

A rule's predicate and message are expressions over named operands (`OPERANDS`). Written with ``&``, ``|`` and ``//``
alone they mean the same for Python integers and for numpy columns, so the scalar and the vectorised checker evaluate
the very same text.

Sources: "observed" is what an H100's driver (580.159) was seen to do in 40,000 recorded calls; "driver API" is NVIDIA's
documentation of ``cuTensorMapEncodeTiled``, ``cuTensorMapEncodeIm2col`` and ``cuTensorMapEncodeIm2colWide``.
"""

from __future__ import annotations

from dataclasses import dataclass

from cupytma.tensormap.fields import MODES

# What a predicate may name. Sequences are padded to full length with values no rule objects to.
OPERANDS: dict[str, str] = {
    "mode": "'tiled', 'im2col' or 'im2col_wide'",
    "data_type": "driver number of the data type",
    "interleave": "0 none, 1 16B, 2 32B",
    "swizzle": "driver number of the swizzle",
    "l2_promotion": "driver number",
    "oob_fill": "driver number",
    "wide_mode": "0 W, 1 W128; 0 outside im2col_wide",
    "rank": "number of dimensions",
    "global_address": "bytes",
    "global_dim": "elements, 5 of them",
    "global_strides": "bytes, 4 of them",
    "box_dim": "elements, 5 of them",
    "element_strides": "elements, 5 of them",
    "pixel_box_lower_corner": "pixels, 3 of them",
    "pixel_box_upper_corner": "pixels, 3 of them",
    "channels_per_pixel": "elements",
    "pixels_per_column": "pixels",
    "data_types": "how many data types the target has",
    "swizzles": "how many swizzles the target has",
    "shared_bytes": "the most shared memory of a multiprocessor that a box may fill, in bytes",
    # derived, see DERIVED
    "element_bytes": "bytes of one element",
    "alignment": "bytes that addresses and strides must be a multiple of",
    "inner_elements": "elements of the innermost row that one load brings",
    "inner_bytes": "bytes of the same",
    "swizzle_span": "bytes the swizzle pattern spans; 0 without swizzle",
    "recorded_box_bytes": "bytes of the box as the driver counts them",
    "corner_limit": "corners lie in -corner_limit … corner_limit - 1",
    "pixel_dim": "elements, the extent that corner [j] belongs to, 3 of them",
}

_PRODUCT = " * ".join(f"(box_dim[{i}] // (element_strides[{i}] + (element_strides[{i}] == 0)))" for i in range(5))
# Derived operands in order of evaluation, by the modes that have them.
DERIVED: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("element_bytes", "ELEMENT_BYTES[data_type]", MODES),
    ("alignment", "16 + 16 * (interleave == 2)", MODES),
    ("swizzle_span", "SWIZZLE_SPAN[swizzle]", MODES),
    ("inner_elements", "box_dim[0]", ("tiled",)),
    ("inner_elements", "channels_per_pixel", ("im2col", "im2col_wide")),
    ("inner_bytes", "element_bytes * inner_elements", MODES),
    ("recorded_box_bytes", f"element_bytes * {_PRODUCT}", ("tiled",)),
    ("recorded_box_bytes", "element_bytes * channels_per_pixel * pixels_per_column", ("im2col", "im2col_wide")),
    ("corner_limit", "CORNER_LIMIT[rank]", ("im2col", "im2col_wide")),
    (
        "pixel_dim",
        "(global_dim[0] + (global_dim[1] - global_dim[0]) * (interleave == 0), "
        "global_dim[1] + (global_dim[2] - global_dim[1]) * (interleave == 0), "
        "global_dim[2] + (global_dim[3] - global_dim[2]) * (interleave == 0))",
        ("im2col", "im2col_wide"),
    ),
)


@dataclass(frozen=True)
class Rule:
    """One row of the table.

    Attributes
    ----------
    id : str
        Stable name, such as ``box-inner-span``.
    statement : str
        The rule in words.
    holds : str
        Expression that is true where the rule is kept. ``i`` is the index where the rule is per dimension.
    message : str
        What is wrong, with the numbers in it; a format string over the operands.
    fix : str
        What to do instead; a format string over the operands.
    source : str
        Where the rule is known from.
    per : str
        ``""``, or what ``i`` runs over: ``"dim"`` (0…rank−1), ``"stride"`` (0…rank−2), ``"corner"`` (0…rank−3).
    modes : tuple of str
        The encoders it holds for.
    severity : str
        ``"error"``: the driver refuses. ``"warning"``: legal and surprising.
    """

    id: str
    statement: str
    holds: str
    message: str
    fix: str
    source: str
    per: str = ""
    modes: tuple[str, ...] = MODES
    severity: str = "error"

    def indices(self, rank: int) -> tuple[int | None, ...]:
        """What ``i`` takes for a tensor map of a rank; ``(None,)`` where the rule has no index."""
        count = {"dim": rank, "stride": rank - 1, "corner": rank - 2}.get(self.per)
        return (None,) if count is None else tuple(range(max(0, min(count, 5))))


@dataclass(frozen=True)
class Violation:
    """A broken rule.

    Attributes
    ----------
    rule : str
        The id of the rule.
    message : str
        The rule, the value and the limit.
    fix : str
        The way out.
    index : int or None
        Dimension, stride or corner index in driver order, where the rule has one.
    severity : str
        ``"error"`` or ``"warning"``.
    """

    rule: str
    message: str
    fix: str
    index: int | None = None
    severity: str = "error"

    def __str__(self) -> str:
        return f"{self.rule}: {self.message}; {self.fix}"


_TILED = ("tiled",)
_IM2COL = ("im2col", "im2col_wide")
_CORNER_HOLDS = (
    "(-corner_limit <= pixel_box_{side}_corner[i]) & (pixel_box_{side}_corner[i] < corner_limit)"
)
_OBSERVED = "observed"
_DOCUMENTED = "driver API, observed"

RULES: tuple[Rule, ...] = (
    Rule(
        "data-type", "the data type is one the target has",
        "(0 <= data_type) & (data_type < data_types)",
        "data type {data_type:data_type} is not available on {target}",
        "use a type from UINT8 to TFLOAT32_FTZ, or encode for a target that has it, such as sm_100a",
        _DOCUMENTED,
    ),
    Rule(
        "rank", "a tiled map has 1 to 5 dimensions",
        "(1 <= rank) & (rank <= 5)",
        "rank {rank} is outside 1…5",
        "merge dimensions that are adjacent in memory, or loop over the outer ones",
        _DOCUMENTED, modes=_TILED,
    ),
    Rule(
        "rank-im2col", "an im2col map has 3 to 5 dimensions",
        "(3 <= rank) & (rank <= 5)",
        "rank {rank} is outside 3…5: channels, one to three spatial dimensions and the batch",
        "add dimensions of size 1 for those that are missing",
        _DOCUMENTED, modes=_IM2COL,
    ),
    Rule(
        "interleave", "the interleave is NONE, 16B or 32B",
        "(0 <= interleave) & (interleave <= 2)",
        "interleave {interleave} does not exist",
        "use NONE, 16B or 32B",
        _DOCUMENTED,
    ),
    Rule(
        "interleave-rank", "an interleaved layout needs at least 3 dimensions",
        "(interleave == 0) | (rank >= 3)",
        "interleave {interleave:interleave} with rank {rank}: an interleaved layout has at least 3 dimensions",
        "use interleave NONE, or add dimensions of size 1",
        _DOCUMENTED,
    ),
    Rule(
        "swizzle", "the swizzle is one the target has",
        "(0 <= swizzle) & (swizzle < swizzles)",
        "swizzle {swizzle:swizzle} is not available on {target}",
        "use NONE, 32B, 64B or 128B, or encode for a target that has it, such as sm_100a",
        _DOCUMENTED,
    ),
    Rule(
        "l2-promotion", "the L2 promotion is NONE, 64B, 128B or 256B",
        "(0 <= l2_promotion) & (l2_promotion <= 3)",
        "L2 promotion {l2_promotion} does not exist",
        "use NONE, 64B, 128B or 256B",
        _DOCUMENTED,
    ),
    Rule(
        "oob-fill", "the out-of-bounds fill is NONE or NAN_REQUEST_ZERO_FMA",
        "(0 <= oob_fill) & (oob_fill <= 1)",
        "out-of-bounds fill {oob_fill} does not exist",
        "use NONE (zeros) or NAN_REQUEST_ZERO_FMA",
        _DOCUMENTED,
    ),
    Rule(
        "oob-fill-type", "NaN fill is for floating-point types",
        "(oob_fill != 1) | ((6 <= data_type) & (data_type <= 12))",
        "oob_fill NAN_REQUEST_ZERO_FMA with {data_type:data_type}: an integer type has no NaN",
        "use oob_fill NONE, which fills with zeros",
        _DOCUMENTED,
    ),
    Rule(
        "wide-mode", "the im2col-wide mode is W or W128",
        "(0 <= wide_mode) & (wide_mode <= 1)",
        "im2col-wide mode {wide_mode} does not exist",
        "use W or W128",
        _DOCUMENTED, modes=("im2col_wide",),
    ),
    Rule(
        "address-alignment", "the address is a multiple of 16 bytes, 32 with interleave 32B",
        "global_address % alignment == 0",
        "global_address {global_address:#x} is {global_address % alignment} mod {alignment}; it must be a multiple of "
        "{alignment} bytes",
        "start the view on a {alignment}-byte boundary (a slice or an offset into a buffer often moves it), and move "
        "the difference into the coordinates",
        _DOCUMENTED,
    ),
    Rule(
        "address-range", "the address is below 2^57",
        "(0 <= global_address) & (global_address < 2**57)",
        "global_address {global_address:#x} is outside 0 … 2^57 - 1",
        "pass a device address; this is none",
        _OBSERVED,
    ),
    Rule(
        "dim-range", "every extent is 1 to 2^32 elements",
        "(1 <= global_dim[i]) & (global_dim[i] <= 2**32)",
        "global_dim[{i}] = {global_dim[i]} is outside 1 … 2^32 elements",
        "skip the launch for an empty tensor; split a dimension that is longer",
        _DOCUMENTED, per="dim",
    ),
    Rule(
        "stride-alignment", "every stride is a multiple of 16 bytes, 32 with interleave 32B",
        "global_strides[i] % alignment == 0",
        "global_strides[{i}] = {global_strides[i]} B (of dimension {i + 1}) is {global_strides[i] % alignment} mod "
        "{alignment}; it must be a multiple of {alignment} bytes",
        "pad the rows: the nearest legal stride above is {-(-global_strides[i] // alignment) * alignment} B "
        "({-(-global_strides[i] // alignment) * alignment // element_bytes} elements)",
        _DOCUMENTED, per="stride",
    ),
    Rule(
        "stride-range", "every stride is 0 to 2^40 - 1 bytes",
        "(0 <= global_strides[i]) & (global_strides[i] < 2**40)",
        "global_strides[{i}] = {global_strides[i]} B (of dimension {i + 1}) is outside 0 … 2^40 - 1 bytes",
        "split the tensor, or flip the dimension if its stride is negative",
        _DOCUMENTED, per="stride",
    ),
    Rule(
        "element-stride-range", "every element stride is 1 to 8",
        "(1 <= element_strides[i]) & (element_strides[i] <= 8)",
        "element_strides[{i}] = {element_strides[i]} is outside 1…8",
        "use 1 to take every element; fold a larger step into the global stride",
        _DOCUMENTED, per="dim",
    ),
    Rule(
        "box-range", "every box extent is 1 to 256 elements",
        "(1 <= box_dim[i]) & (box_dim[i] <= 256)",
        "box_dim[{i}] = {box_dim[i]} is outside 1…256 elements",
        "split the tile into boxes of at most 256 that complete on one mbarrier, and add up their bytes",
        _DOCUMENTED, per="dim", modes=_TILED,
    ),
    Rule(
        "channels-range", "channels_per_pixel is 1 to 256",
        "(1 <= channels_per_pixel) & (channels_per_pixel <= 256)",
        "channels_per_pixel = {channels_per_pixel} is outside 1…256 elements",
        "load the channels in several steps",
        _DOCUMENTED, modes=_IM2COL,
    ),
    Rule(
        "pixels-range", "pixels_per_column is 1 to 1024",
        "(1 <= pixels_per_column) & (pixels_per_column <= 1024)",
        "pixels_per_column = {pixels_per_column} is outside 1…1024 pixels",
        "load the pixels in several steps",
        _DOCUMENTED, modes=_IM2COL,
    ),
    Rule(
        "box-inner-multiple", "the inner row of the box is a multiple of 16 bytes",
        "inner_bytes % 16 == 0",
        "{inner:inner} × {element_bytes} B = {inner_bytes} B is no multiple of 16 bytes",
        "use a multiple of {16 // element_bytes} elements, such as "
        "{-(-inner_elements * element_bytes // 16) * 16 // element_bytes}; a box may be larger than the tensor",
        _DOCUMENTED,
    ),
    Rule(
        "box-bytes", "the box fits the shared memory of a multiprocessor",
        "recorded_box_bytes <= shared_bytes",
        "the box takes {recorded_box_bytes} B; {shared_bytes} B is the most",
        "make the box smaller, or move it in several loads",
        _OBSERVED,
    ),
    Rule(
        "box-inner-span", "the inner row of the box fits the span of the swizzle (without interleave)",
        "(interleave != 0) | (swizzle <= 0) | (inner_bytes <= swizzle_span)",
        "{inner:inner} × {element_bytes} B = {inner_bytes} B exceeds the {swizzle_span} B span of "
        "SWIZZLE_{swizzle:swizzle}",
        "use {inner:operand} ≤ {swizzle_span // element_bytes} or split the box",
        _DOCUMENTED,
    ),
    *(
        Rule(
            f"{side}-corner-range", f"every {side} corner fits its bits: 16, 8 or 5 for rank 3, 4 or 5",
            _CORNER_HOLDS.format(side=side),
            f"pixel_box_{side}_corner[{{i}}] = {{pixel_box_{side}_corner[i]}} is outside {{-corner_limit}} … "
            "{corner_limit - 1}, the range of rank {rank}",
            "use a smaller padding or kernel, or a lower rank",
            _DOCUMENTED, per="corner", modes=_IM2COL,
        )
        for side in ("lower", "upper")
    ),
    Rule(
        "pixel-box", "the pixel box holds at least one pixel, in signed 32-bit arithmetic",
        "((pixel_dim[i] + pixel_box_upper_corner[i] + 2**31) & 0xFFFFFFFF) - 2**31 > pixel_box_lower_corner[i]",
        "the pixel box is empty in spatial dimension {i}: extent {pixel_dim[i]} + upper corner "
        "{pixel_box_upper_corner[i]} is not above lower corner {pixel_box_lower_corner[i]} (the driver reckons in "
        "signed 32 bits, so extents from 2^31 on count as negative)",
        "move the corners apart, or split an extent of 2^31 or more",
        _OBSERVED, per="corner", modes=_IM2COL,
    ),
)

RULES_BY_ID: dict[str, Rule] = {rule.id: rule for rule in RULES}
