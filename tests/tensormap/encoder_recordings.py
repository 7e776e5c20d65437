"""Recorded answers of an H100's driver (580.159) to 40,000 calls of the three encoders."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from cupytma.tensormap import Im2col, Im2colWide, Parameters, Tiled

_FILE = Path(__file__).parent.parent / "golden" / "encoder_calls.npz"


def recordings() -> np.ndarray:
    """Structured rows; ``rc`` is the return code and ``bytes`` the map."""
    with np.load(_FILE) as file:
        return file["records"]


def parameters_of(row: np.void) -> Parameters:
    """The parameters of one row; ranks without room in the row are padded with legal values."""
    rank = max(int(row["rank"]), 0)

    def entries(name: str, count: int, padding: int) -> list[int]:
        read = row[name][: max(count, 0)].tolist()
        return read + [padding] * (count - len(read))

    common = {
        "data_type": int(row["dtype"]),
        "global_address": int(row["addr"]),
        "global_dim": entries("dims", rank, 1),
        "global_strides": entries("strides", rank - 1, 0),
        "element_strides": entries("estr", rank, 1),
        "interleave": int(row["interleave"]),
        "swizzle": int(row["swizzle"]),
        "l2_promotion": int(row["l2"]),
        "oob_fill": int(row["oob"]),
    }
    if row["op"] == 0:
        return Tiled(box_dim=entries("box", rank, 16), **common)
    common.update(channels_per_pixel=int(row["channels"]), pixels_per_column=int(row["pixels"]))
    if row["op"] == 1:
        return Im2col(
            pixel_box_lower_corner=entries("lower", rank - 2, 0), pixel_box_upper_corner=entries("upper", rank - 2, 0),
            **common,
        )  # fmt: skip
    return Im2colWide(
        pixel_box_lower_corner_width=int(row["lower"][0]), pixel_box_upper_corner_width=int(row["upper"][0]),
        mode=int(row["wide_mode"]), **common,
    )  # fmt: skip
