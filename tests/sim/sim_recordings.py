"""The copies recorded on an H100, as arguments for the simulator.

What the recorder did: one window of 1 MiB of global memory and 32 KiB of shared memory, both filled anew for every
case. The bytes of global memory are the first draw of ``numpy.random.default_rng(seed)``, the source tiles of stores
and reductions the bytes that follow. Loads found shared memory filled with 0xCD. Addresses in the recording are
relative to the window, shared offsets to the array, which was aligned to 1024 bytes.

An image of a load is shared memory from the tile's base on. One of a store or reduction lists the bytes of global
memory that changed: their offsets as little-endian uint32, then their new values.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from cupytma.tensormap import Im2col, TensorMap, Tiled

GLOBAL_BYTES = 1 << 20
SHARED_BYTES = 1 << 15
UNWRITTEN = 0xCD
BASE = 0x7F0000000000  # any address does that keeps the alignment of the recorder's allocation

TILED_LOAD, IM2COL_LOAD, TILED_STORE, IM2COL_STORE, REDUCTION = range(5)
REDUCTIONS = ("add", "min", "max", "inc", "dec", "and", "or", "xor")
NEVER_COMPLETED, COMPLETED, DIED = range(3)

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Case:
    """One recorded operation."""

    number: int
    kind: int
    reduction: str
    tensor_map: TensorMap
    interleaved: bool
    coords: tuple[int, ...]
    offsets: tuple[int, ...]
    shared_offset: int
    transaction_bytes: int
    outcome: int
    image: Bytes

    @property
    def is_load(self) -> bool:
        return self.kind in (TILED_LOAD, IM2COL_LOAD)

    def changes(self) -> tuple[npt.NDArray[np.int64], Bytes]:
        """Places and new values of the bytes a store or reduction changed."""
        count = len(self.image) // 5
        return self.image[: 4 * count].view("<u4").astype(np.int64), self.image[4 * count :]


def _tensor_map(record: Any) -> TensorMap:
    rank = int(record["rank"])

    def first(name: str, count: int) -> tuple[int, ...]:
        return tuple(int(value) for value in record[name][:count])

    common: dict[str, Any] = {
        "data_type": int(record["dtype"]),
        "global_address": BASE + int(record["addr"]),
        "global_dim": first("dims", rank),
        "global_strides": first("strides", rank - 1),
        "element_strides": first("estr", rank),
        "interleave": int(record["interleave"]),
        "swizzle": int(record["swizzle"]),
        "l2_promotion": int(record["l2"]),
        "oob_fill": int(record["oob"]),
    }
    if not record["op"]:
        return Tiled(**common, box_dim=first("box", rank)).encode()
    return Im2col(
        **common,
        pixel_box_lower_corner=first("lower", rank - 2),
        pixel_box_upper_corner=first("upper", rank - 2),
        channels_per_pixel=int(record["channels"]),
        pixels_per_column=int(record["pixels"]),
    ).encode()


@cache
def recording() -> tuple[tuple[Case, ...], Bytes, Bytes]:
    """Every case, the bytes global memory held, and the bytes shared memory held before stores and reductions."""
    with np.load(Path(__file__).parents[1] / "golden" / "hardware_cases.npz") as file:
        cases, images, seed = file["cases"], file["images"], int(file["seed"])
    stream = np.random.default_rng(seed)
    memory = np.frombuffer(stream.bytes(GLOBAL_BYTES), dtype=np.uint8)
    source = np.frombuffer(stream.bytes(SHARED_BYTES), dtype=np.uint8)
    return tuple(_case(i, case, images) for i, case in enumerate(cases)), memory, source


def _case(number: int, case: Any, images: Bytes) -> Case:
    record = case["rec"]
    rank, place = int(record["rank"]), int(case["img_at"])
    kind = int(case["kind"])
    return Case(
        number=number,
        kind=kind,
        reduction=REDUCTIONS[case["redop"]],
        tensor_map=_tensor_map(record),
        interleaved=bool(record["interleave"]),
        coords=tuple(int(c) for c in case["coords"][:rank]),
        offsets=tuple(int(o) for o in case["offsets"][: rank - 2]) if kind == IM2COL_LOAD else (),
        shared_offset=int(case["smem_off"]),
        transaction_bytes=int(case["tx"]),
        outcome=int(case["done"]),
        image=images[place : place + int(case["img_len"])],
    )
