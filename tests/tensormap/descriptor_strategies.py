"""Legal parameters of every kind, for property tests."""

from __future__ import annotations

from hypothesis import strategies as st

import cupytma as tma

_FLOATS = ("FLOAT16", "FLOAT32", "FLOAT64", "BFLOAT16", "FLOAT32_FTZ", "TFLOAT32", "TFLOAT32_FTZ")
_TYPES = ("UINT8", "UINT16", "UINT32", "INT32", "UINT64", "INT64", *_FLOATS)
_SPANS = {"NONE": 256, "32B": 32, "64B": 64, "128B": 128}

addresses = st.integers(0, 2**52 - 1).map(lambda n: n * 32)
strides = st.integers(0, 2**35 - 1).map(lambda n: n * 32)
raw_maps = st.binary(min_size=128, max_size=128)


@st.composite
def _common(draw, rank):
    data_type = draw(st.sampled_from(_TYPES))
    return {
        "data_type": data_type,
        "global_address": draw(addresses),
        "global_strides": tuple(draw(strides) for _ in range(rank - 1)),
        "element_strides": tuple(draw(st.integers(1, 8)) for _ in range(rank)),
        "interleave": draw(st.sampled_from(("NONE", "16B", "32B") if rank >= 3 else ("NONE",))),
        "swizzle": draw(st.sampled_from(tuple(_SPANS))),
        "l2_promotion": draw(st.sampled_from(("NONE", "64B", "128B", "256B"))),
        "oob_fill": draw(st.sampled_from(("NONE", "NAN_REQUEST_ZERO_FMA") if data_type in _FLOATS else ("NONE",))),
    }


def _inner(draw, common):
    """Elements of the innermost row: a multiple of 16 bytes within the span of the swizzle."""
    size = tma.tensormap.fields.DATA_TYPES[tma.DataType.of(common["data_type"])].element_bits // 8
    return draw(st.integers(1, _SPANS[common["swizzle"]] // 16)) * 16 // size


@st.composite
def tiled(draw, ranks=(1, 2, 3, 4, 5)):
    rank = draw(st.sampled_from(ranks))
    common = draw(_common(rank))
    return tma.Tiled(
        **common,
        global_dim=tuple(draw(st.integers(1, 2**32)) for _ in range(rank)),
        box_dim=(_inner(draw, common), *(draw(st.integers(1, 5)) for _ in range(rank - 1))),
    )


@st.composite
def im2col(draw):
    rank = draw(st.sampled_from((3, 4, 5)))
    common = draw(_common(rank))
    corners = st.tuples(*(st.integers(-16, 15),) * (rank - 2))
    return tma.Im2col(
        **common,
        global_dim=tuple(draw(st.integers(64, 2**30)) for _ in range(rank)),
        pixel_box_lower_corner=draw(corners),
        pixel_box_upper_corner=draw(corners),
        channels_per_pixel=_inner(draw, common),
        pixels_per_column=draw(st.integers(1, 64)),
    )


@st.composite
def im2col_wide(draw):
    rank = draw(st.sampled_from((3, 4, 5)))
    common = draw(_common(rank))
    return tma.Im2colWide(
        **common,
        global_dim=tuple(draw(st.integers(64, 2**30)) for _ in range(rank)),
        pixel_box_lower_corner_width=draw(st.integers(-16, 15)),
        pixel_box_upper_corner_width=draw(st.integers(-16, 15)),
        channels_per_pixel=_inner(draw, common),
        pixels_per_column=draw(st.integers(1, 64)),
        mode=draw(st.sampled_from(("W", "W128"))),
    )


def parameters():
    return st.one_of(tiled(), im2col(), im2col_wide())
