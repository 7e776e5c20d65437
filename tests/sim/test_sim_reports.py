"""What people ran into about coordinates and the simulator's subject, each as its whole kind."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sim_reference import random_bytes

from cupytma import sim
from cupytma.tensormap import TensorMap, Tiled

_REPORTS = json.loads((Path(__file__).parents[1] / "golden" / "reports.json").read_text(encoding="utf-8"))
GIVEN: dict[str, dict[str, Any]] = {report["id"]: report["given"] for report in _REPORTS}
BASE = 0x40000
SIZES = {"UINT8": 1, "FLOAT16": 2, "FLOAT32": 4, "FLOAT64": 8}
OPERATIONS: dict[str, Callable[..., Any]] = {
    "load": sim.load, "store": sim.store, "reduce": lambda m, coords, **use: sim.reduce(m, "add", coords, **use),
}  # fmt: skip


def matrix(data_type: str, width: int, rows: int = 4, box: tuple[int, int] | None = None, **changes: Any) -> TensorMap:
    pitch = -(-width * SIZES[data_type] // 16) * 16
    box = box or (32 // SIZES[data_type], 2)
    shape: dict[str, Any] = {"global_dim": (width, rows), "global_strides": (pitch,), "box_dim": box}
    return Tiled(data_type=data_type, global_address=BASE, **shape, **changes).encode()


# inner-start-260-bytes: a start that depends on the block, legal for the first ones.


@pytest.mark.parametrize("data_type", SIZES)
@pytest.mark.parametrize("store", [False, True])
def test_every_block_whose_inner_start_is_no_multiple_of_16_bytes_is_named(data_type: str, store: bool) -> None:
    size, m = SIZES[data_type], matrix(data_type, 2000)
    for step in (1, 3, 8, 16, 130):
        found = sim.grid_faults(m, lambda x, y, z, step=step: (x * step, y), (12, 2), store=store)
        expected = [(x, y, 0) for y in range(2) for x in range(12) if x * step * size % 16]
        assert [fault.block for fault in found] == expected
        for fault in found:
            byte = fault.coordinates[0] * size
            assert isinstance(fault.fault, sim.IllegalInstruction)
            assert str(fault) == (
                f"block {fault.block} at {fault.coordinates}: illegal instruction: coordinate {byte // size} of "
                f"dimension 0 is byte {byte}, {byte % 16} mod 16; the innermost start must be a multiple of 16 bytes, "
                f"that is of {16 // size} elements; start at {byte // 16 * 16 // size} or "
                f"{(byte // 16 + 1) * 16 // size}"
            )


def test_the_reported_grid_dies_in_its_last_block_alone() -> None:
    given = GIVEN["inner-start-260-bytes"]
    assert given["element_bytes"] == 2
    m = matrix("FLOAT16", 1304)
    found = sim.grid_faults(m, lambda x, y, z: (eval(given["inner_start"], {"pid": x}), 0), given["grid"])
    (fault,) = found
    assert fault.block == (9, 0, 0)
    assert "coordinate 130 of dimension 0 is byte 260, 4 mod 16" in str(fault)


@pytest.mark.parametrize(
    ("grid", "coordinates", "message"),
    [
        ((2, 0), lambda x, y, z: (0, 0), r"grid is \(2, 0\); it must be one to three extents of 1 or above"),
        ((1, 1, 1, 1), lambda x, y, z: (0, 0), "one to three extents"),
        (2.5, lambda x, y, z: (0, 0), "an extent of the grid is 2.5; it must be an integer"),
        (3, lambda x, y, z: (0,) * (2 - x // 2), r"block \(2, 0, 0\): 1 coordinate for a tensor map of rank 2"),
        (3, lambda x, y, z: (0, "top"), r"block \(0, 0, 0\): the coordinate of dimension 1 is 'top'"),
    ],
)
def test_a_grid_that_makes_no_sense_is_refused(grid: Any, coordinates: Any, message: str) -> None:
    with pytest.raises(sim.SimulationError, match=message):
        sim.grid_faults(matrix("FLOAT16", 64), coordinates, grid)


# tail-store-offset: how far along the inner axis a tile may start.


@pytest.mark.parametrize("operation", ["load", "store", "reduce"])
@pytest.mark.parametrize("data_type", ["FLOAT16", "FLOAT32"])
def test_inner_offsets_are_legal_at_multiples_of_16_bytes_and_nowhere_else(operation: str, data_type: str) -> None:
    size, per_chunk = SIZES[data_type], 16 // SIZES[data_type]
    rows, width = GIVEN["tail-store-offset"]["array_shape"][0] // 64, 5000
    m = matrix(data_type, width, rows, (128 // size, 4))
    memory = np.zeros(rows * width * size + 64, np.uint8)
    for offset in range(width - 2 * per_chunk, width + 1):
        use = {"memory": memory, "base": BASE, "shared": np.zeros(1024, np.uint8)}
        if offset % per_chunk == 0:
            OPERATIONS[operation](m, (offset, 0), **use)
            continue
        with pytest.raises(sim.IllegalInstruction, match=f"a multiple of 16 bytes, that is of {per_chunk} elements"):
            OPERATIONS[operation](m, (offset, 0), **use)


# swizzle-base-128: readers that reckon from the tile's start, and from the absolute address.


@pytest.mark.parametrize("swizzle", ["32B", "64B", "128B"])
@pytest.mark.parametrize("base", [0, 128, 256, 384, 512, 640, 768, 896, 1024])
def test_only_the_absolute_address_finds_the_tile_on_every_base(swizzle: str, base: int) -> None:
    span, rows = int(swizzle[:-1]), 32
    values = random_bytes(span * rows, 8)
    m = matrix("UINT8", span, rows, (span, rows), swizzle=swizzle)
    shared = np.zeros(base + span * rows, np.uint8)
    sim.load(m, (0, 0), memory=values, base=BASE, shared=shared, shared_offset=base)
    linear = np.arange(span * rows)
    assert (shared[sim.swizzle_address(base + linear, swizzle)] == values).all()
    relative = shared[base + sim.swizzle_address(linear, swizzle)]
    assert (relative == values).all() == (base % (8 * span) == 0)
    assert m.shared_alignment == 8 * span  # what a reader with tile-relative offsets needs
    # A store reads it by the absolute address too: what a load brought goes back as it was.
    back = np.zeros_like(values)
    sim.store(m, (0, 0), memory=back, base=BASE, shared=shared, shared_offset=base)
    assert (back == values).all()


# store-spill: what a store writes past a width that is no multiple of 16 bytes.


@pytest.mark.parametrize(
    ("operation", "case"),
    [("store", case) for case in GIVEN["store-spill"]["cases"]]
    + [("reduce", case) for case in GIVEN["store-spill"]["cases"] if case["data_type"] == "INT32"],
    ids=lambda value: value if isinstance(value, str) else value["data_type"],
)
def test_the_columns_to_the_end_of_the_last_16_bytes_are_written_too(operation: str, case: dict[str, Any]) -> None:
    dtype = {"UINT8": np.uint8, "UINT16": np.uint16, "INT32": np.int32}[case["data_type"]]
    (rows, columns), per_chunk = GIVEN["store-spill"]["array_shape"], 16 // np.dtype(dtype).itemsize
    for width in range(case["width"] - per_chunk, case["width"] + per_chunk + 1):
        array = np.zeros((rows, columns), dtype)
        box = GIVEN["store-spill"]["box"]
        p = Tiled(
            data_type=case["data_type"], global_address=BASE, global_dim=(width, rows),
            global_strides=(array.strides[0],), box_dim=(box[1], box[0]),
        )  # fmt: skip
        start = max(0, width - box[1]) // per_chunk * per_chunk
        OPERATIONS[operation](
            p.encode(), (start, 0), memory=array.reshape(-1).view(np.uint8), base=BASE,
            shared=np.ones(box[0] * box[1], dtype).view(np.uint8),
        )  # fmt: skip
        end = min(-(-width // per_chunk) * per_chunk, start + box[1])
        assert (array[:, start:end] == 1).all()
        assert not array[:, :start].any()
        assert not array[:, end:].any()
        spilt = any(warning.rule == "inner-extent-store" for warning in p.warnings())
        assert spilt == bool(width % per_chunk)


def test_the_reported_widths_spill_into_the_columns_reported() -> None:
    spilt = {"UINT8": range(466, 480), "UINT16": range(470, 472), "INT32": range(466, 468)}
    for case in GIVEN["store-spill"]["cases"]:
        size = {"UINT8": 1, "UINT16": 2, "INT32": 4}[case["data_type"]]
        end = -(-case["width"] * size // 16) * 16 // size
        assert range(case["width"], end) == spilt[case["data_type"]]


TESTED = {"inner-start-260-bytes", "tail-store-offset", "swizzle-base-128", "store-spill"}


def test_every_report_about_simulation_and_coordinates_is_here() -> None:
    assert {report["id"] for report in _REPORTS if report["area"] in ("simulation", "coordinates")} == TESTED
