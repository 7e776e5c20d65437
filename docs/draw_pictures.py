"""Draw the pictures of README.md and the documentation: ``python docs/draw_pictures.py``.

They are written to docs/images; a test says when they are no longer what this draws.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "images"
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

import cupytma as tma  # noqa: E402
from cupytma import view  # noqa: E402
from cupytma.sim.examples import EXAMPLES  # noqa: E402


def _bit_fields() -> view.Picture:
    matrix = tma.Tiled(
        data_type="FLOAT16", global_address=0x7F0000000000, global_dim=(1024, 512), global_strides=(2048,),
        box_dim=(64, 32), swizzle="128B",
    )  # fmt: skip
    return view.bit_fields(matrix.encode())


def _tile() -> view.Picture:
    matrix = tma.Tiled(
        data_type="FLOAT32", global_address=0, global_dim=(28, 18), global_strides=(112,), box_dim=(16, 8)
    )
    return view.tile(matrix, (16, 12))


def _im2col() -> view.Picture:
    images = tma.Im2col(
        data_type="FLOAT16", global_address=0, global_dim=(64, 8, 6, 2), pixel_box_lower_corner=(-1, -1),
        pixel_box_upper_corner=(-1, -1), channels_per_pixel=64, pixels_per_column=20, swizzle="128B",
    )  # fmt: skip
    return view.im2col(images, (0, -1, -1, 0), (0, 0))


PICTURES: dict[str, Callable[[], view.Picture]] = {
    "bit-fields": _bit_fields,
    "im2col": _im2col,
    "swizzle": lambda: view.swizzle("128B"),
    "tile": _tile,
    "timeline": lambda: view.timeline(EXAMPLES["prefetch pipeline"]()),
}


def main() -> None:
    """Write all of them."""
    FOLDER.mkdir(exist_ok=True)
    for name, draw in PICTURES.items():
        draw().save(FOLDER / f"{name}.svg")


if __name__ == "__main__":
    main()
