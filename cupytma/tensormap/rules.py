"""The rules a tensor map must obey: one table that checkers, messages and documentation read.

A rule's predicate and message are expressions over named operands (`cupytma.tensormap.rule.OPERANDS`). Written with
``&``, ``|`` and ``//`` alone they mean the same for Python integers and for numpy columns, so the scalar and the
vectorised checker evaluate the very same text.

Sources: "observed" is what an H100's driver (580.159) was seen to do in 40,000 recorded calls; "driver API" is NVIDIA's
documentation of ``cuTensorMapEncodeTiled``, ``cuTensorMapEncodeIm2col`` and ``cuTensorMapEncodeIm2colWide``.
"""

from __future__ import annotations

from cupytma.targets import Feature
from cupytma.tensormap.cautions import FAULTS, WARNINGS
from cupytma.tensormap.fields import PACKED_ROW
from cupytma.tensormap.rule import IM2COL, Rule, Violation

__all__ = ["ERRORS", "RULES", "RULES_BY_ID", "Rule", "Violation"]

_TILED = ("tiled",)
_CORNER_HOLDS = (
    "(-corner_limit <= pixel_box_{side}_corner[i]) & (pixel_box_{side}_corner[i] < corner_limit)"
)
_OBSERVED = "observed"
_DOCUMENTED = "driver API, observed"

ERRORS: tuple[Rule, ...] = (
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
        _DOCUMENTED, modes=IM2COL,
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
        "address-alignment", "the address is a multiple of 16 bytes, 32 with interleave 32B or an ALIGN16B type",
        "global_address & (alignment - 1) == 0",
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
        "stride-alignment", "every stride is a multiple of 16 bytes, 32 with interleave 32B or an ALIGN16B type",
        "global_strides[i] & (alignment - 1) == 0",
        "global_strides[{i}] = {global_strides[i]} B (of dimension {i + 1}) is {global_strides[i] % alignment} mod "
        "{alignment}; it must be a multiple of {alignment} bytes",
        "pad the rows: the nearest legal stride above is {-(-global_strides[i] // alignment) * alignment} B "
        "({-(-global_strides[i] // alignment) * alignment * 8 // element_bits} elements)",
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
        _DOCUMENTED, modes=IM2COL,
    ),
    Rule(
        "pixels-range", "pixels_per_column is 1 to 1024 (ignored in mode W128 on targets that document it)",
        "(1 <= pixels_per_column) & (pixels_per_column <= 1024)",
        "pixels_per_column = {pixels_per_column} is outside 1…1024 pixels",
        "load the pixels in several steps",
        _DOCUMENTED, modes=IM2COL,
    ),
    Rule(
        "box-inner-multiple", "the inner row of the box is a multiple of 16 bytes",
        "inner_bits & 127 == 0",
        "{inner:inner} × {shared_bits:size} = {inner_bits:size} is no multiple of 16 bytes",
        "use a multiple of {128 // shared_bits} elements, such as "
        "{-(-inner_bits // 128) * 128 // shared_bits}; a box may be larger than the tensor",
        _DOCUMENTED,
    ),
    Rule(
        "box-bytes", "the box fits the shared memory of a multiprocessor",
        "recorded_box_bytes <= box_bytes_limit",
        "the box takes {recorded_box_bytes} B; {box_bytes_limit} B is the most",
        "make the box smaller, or move it in several loads",
        _OBSERVED,
    ),
    Rule(
        "box-inner-span", "the inner row of the box fits the span of the swizzle (without interleave)",
        "(interleave != 0) | (swizzle <= 0) | (inner_bits <= 8 * swizzle_span)",
        "{inner:inner} × {shared_bits:size} = {inner_bits:size} exceeds the {swizzle_span} B span of "
        "SWIZZLE_{swizzle:swizzle}",
        "use {inner:operand} ≤ {8 * swizzle_span // shared_bits} or split the box",
        _DOCUMENTED,
    ),
    *(
        Rule(
            f"{side}-corner-range",
            f"every {side} corner fits its bits: 16, 8 or 5 for rank 3, 4 or 5; 16 for im2col-wide where documented",
            _CORNER_HOLDS.format(side=side),
            f"pixel_box_{side}_corner[{{i}}] = {{pixel_box_{side}_corner[i]}} is outside {{-corner_limit}} … "
            "{corner_limit - 1}, the range of rank {rank}",
            "use a smaller padding or kernel, or a lower rank",
            _DOCUMENTED, per="corner", modes=IM2COL,
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
        _OBSERVED, per="corner", modes=IM2COL,
    ),
    Rule(
        "packed-dim", "an ALIGN16B type needs an innermost extent that is a multiple of 128, 16U4_ALIGN8B an even one",
        "(data_type < 13) | (data_type > 15) | (global_dim[0] % (2 + 126 * (data_type >= 14)) == 0)",
        "global_dim[0] = {global_dim[0]} of {data_type:data_type} is no multiple of {2 + 126 * (data_type >= 14)}",
        "pad the innermost dimension",
        "driver API", feature=Feature.PACKED_TYPES,
    ),
    Rule(
        "packed-box", f"an ALIGN16B type moves exactly {PACKED_ROW} elements of the innermost dimension",
        f"(data_type < 14) | (data_type > 15) | (inner_elements == {PACKED_ROW})",
        f"{{inner:inner}} of {{data_type:data_type}} must be {PACKED_ROW}",
        f"use {{inner:operand}} = {PACKED_ROW}",
        "driver API", feature=Feature.PACKED_TYPES,
    ),
    Rule(
        "packed-interleave", "16U6_ALIGN16B has no interleaved layout",
        "(data_type != 15) | (interleave == 0)",
        "16U6_ALIGN16B with interleave {interleave:interleave}",
        "use interleave NONE",
        "driver API", feature=Feature.PACKED_TYPES,
    ),
    Rule(
        "packed-swizzle", "an ALIGN16B type takes swizzle NONE, 128B or 128B_ATOM_32B; 16U6 stores 128B_ATOM_64B too",
        "(data_type < 14) | (data_type > 15) | (swizzle == 0) | (swizzle == 3) | (swizzle == 4) | "
        "((swizzle == 6) & (data_type == 15))",
        "{data_type:data_type} with swizzle {swizzle:swizzle}",
        "use NONE, 128B or 128B_ATOM_32B",
        "driver API", feature=Feature.PACKED_TYPES,
    ),
    Rule(
        "wide-swizzle", "im2col-wide takes swizzle 64B, 128B or 128B_ATOM_32B",
        "(swizzle == 2) | (swizzle == 3) | (swizzle == 4)",
        "im2col-wide with swizzle {swizzle:swizzle}",
        "use 64B, 128B or 128B_ATOM_32B",
        "driver API", modes=("im2col_wide",), feature=Feature.IM2COL_WIDE,
    ),
)

RULES: tuple[Rule, ...] = (*ERRORS, *WARNINGS, *FAULTS)
"""What a tensor map must keep, what is legal and surprising, and which uses of a legal one kill a kernel."""
RULES_BY_ID: dict[str, Rule] = {rule.id: rule for rule in RULES}
