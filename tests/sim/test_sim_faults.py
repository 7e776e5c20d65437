"""What dies on hardware raises a fault that says why, and changes nothing; what cannot be asked says so."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cupytma import sim
from cupytma.errors import ArrayError, CupytmaError
from cupytma.sim.faults import FAULT_OF_RULE
from cupytma.tensormap import Im2col, TensorMap, Tiled
from cupytma.tensormap.cautions import FAULTS
from cupytma.tensormap.rule import Violation

BASE = 0x30000


def matrix(**changes: Any) -> TensorMap:
    values: dict[str, Any] = {
        "data_type": "UINT16", "global_address": BASE, "global_dim": (64, 16), "box_dim": (32, 4),
    }  # fmt: skip
    return Tiled(**(values | changes)).encode()


def expect(error: type[Exception], pattern: str, operation: Any, *args: Any, **changes: Any) -> None:
    """The operation raises, the message matches, and neither array has changed."""
    arrays = {
        "memory": np.arange(64 * 16, dtype=np.uint16).view(np.uint8),
        "shared": np.full(4096, 7, dtype=np.uint8),
    }
    arguments: dict[str, Any] = {"base": BASE, **arrays} | changes
    before = {name: array.copy() for name, array in arrays.items()}
    with pytest.raises(error, match=pattern):
        operation(*args, **arguments)
    assert all(np.array_equal(array, before[name]) for name, array in arrays.items())


def test_faults_are_errors_of_the_package_and_runtime_errors() -> None:
    for fault in (sim.IllegalInstruction, sim.MisalignedAddress, sim.OutOfWindow, sim.SharedOverrun):
        assert issubclass(fault, sim.Fault)
    assert issubclass(sim.Fault, CupytmaError)
    assert issubclass(sim.Fault, RuntimeError)
    assert issubclass(sim.NotSimulatedError, sim.SimulationError)
    assert issubclass(sim.SimulationError, (CupytmaError, ValueError))


@pytest.mark.parametrize("operation", [sim.load, sim.store])
def test_an_inner_start_that_is_no_multiple_of_16_bytes_is_illegal(operation: Any) -> None:
    m = matrix(global_dim=(1304, 1))
    for pid in range(10):
        start = pid // 9 * 130
        if start * 2 % 16:
            pattern = "illegal instruction: coordinate 130 of dimension 0 is byte 260, 4 mod 16.*8 elements.*128 or 136"
            expect(sim.IllegalInstruction, pattern, operation, m, (start, 0))
        else:
            operation(m, (start, 0), memory=np.zeros(4096, np.uint8), base=BASE, shared=np.zeros(4096, np.uint8))


def test_the_inner_rule_holds_below_zero_too() -> None:
    expect(sim.IllegalInstruction, "start at -8 or 0", sim.load, matrix(), (-4, 0))


@pytest.mark.parametrize("shared_offset", [1, 16, 64, 192])
@pytest.mark.parametrize("operation", [sim.load, sim.store])
def test_a_shared_tile_must_start_at_a_multiple_of_128_bytes(operation: Any, shared_offset: int) -> None:
    pattern = rf"misaligned address.*byte {shared_offset}, .*to {shared_offset // 128 * 128 + 128}(?!\d)"
    expect(sim.MisalignedAddress, pattern, operation, matrix(), (0, 0), shared_offset=shared_offset)


@pytest.mark.parametrize("coords", [(-8, 0), (0, -1)])
def test_a_store_must_not_start_below_zero(coords: tuple[int, int]) -> None:
    expect(sim.IllegalInstruction, "a store starts at coordinate -", sim.store, matrix(), coords)


def test_a_tile_must_end_within_shared_memory() -> None:
    expect(sim.SharedOverrun, "ends at byte 4224 .*which has 4096", sim.load, matrix(), (0, 0), shared_offset=3968)
    swizzled = matrix(swizzle="128B", box_dim=(32, 8))
    expect(sim.SharedOverrun, "8 rows of 64 bytes ends at byte 4992", sim.store, swizzled, (0, 0), shared_offset=3968)
    exact, short = np.zeros(256, np.uint8), np.zeros(255, np.uint8)
    sim.load(matrix(), (0, 0), memory=np.zeros(2048, np.uint8), base=BASE, shared=exact)
    expect(sim.SharedOverrun, "ends at byte 256 .*which has 255", sim.load, matrix(), (0, 0), shared=short)
    huge = matrix(global_dim=(64, 16, 1, 1), box_dim=(256, 7, 256, 256), element_strides=(1, 8, 1, 1))
    expect(sim.SharedOverrun, "any block", sim.load, huge, (0, 0, 0, 0))


def test_a_swizzled_tile_may_end_in_the_middle_of_the_last_span() -> None:
    one_row = matrix(swizzle="128B", box_dim=(32, 1))
    sim.load(one_row, (0, 0), memory=np.zeros(2048, np.uint8), base=BASE, shared=np.zeros(64, np.uint8))


@pytest.mark.parametrize("operation", [sim.load, sim.store])
def test_global_memory_outside_the_window_is_named_and_left_alone(operation: Any) -> None:
    expect(sim.OutOfWindow, "global bytes 0x30000 to 0x301c0.*pass all", operation, matrix(), (0, 0), base=BASE + 16)
    expect(
        sim.OutOfWindow,
        "0x30640 to 0x30800; memory holds 2048 bytes from 0x2ffff",
        operation,
        matrix(),
        (32, 12),
        base=BASE - 1,
    )
    distant = matrix(global_dim=(64, 2**32), global_strides=(2**40 - 16,))
    expect(sim.OutOfWindow, "touches global bytes", operation, distant, (0, 2**31 - 1))


PIXELS: dict[str, Any] = {
    "data_type": "UINT16", "global_address": BASE, "global_dim": (32, 4, 8), "channels_per_pixel": 8,
    "pixels_per_column": 6,
}  # fmt: skip


def column(lower: int = 0, upper: int = 0) -> TensorMap:
    return Im2col(**PIXELS, pixel_box_lower_corner=(lower,), pixel_box_upper_corner=(upper,)).encode()


def test_an_im2col_start_must_lie_in_its_bounding_box() -> None:
    pattern = "illegal instruction: the start pixel {} of spatial dimension 0 lies outside the bounding box -1 … 2"
    for outside in (-2, 3):
        expect(sim.IllegalInstruction, pattern.format(outside), sim.load, column(-1, -1), (0, outside, 0))


def test_an_im2col_store_needs_a_lower_corner_that_is_not_negative() -> None:
    expect(sim.IllegalInstruction, "store with lower corner -1 in spatial", sim.store, column(-1), (0, 1, 0))
    memory = np.zeros(64 * 16 * 2, np.uint8)
    sim.store(column(1), (0, 1, 0), memory=memory, base=BASE, shared=np.ones(128, np.uint8))
    assert memory.any()


def test_every_fault_row_of_the_table_is_raised_as_one_kind_of_fault() -> None:
    assert {rule.id for rule in FAULTS} == set(FAULT_OF_RULE)
    assert set(FAULT_OF_RULE.values()) == {sim.IllegalInstruction, sim.MisalignedAddress}


def test_all_broken_rows_are_named_at_once() -> None:
    with pytest.raises(sim.IllegalInstruction) as caught:
        sim.store(
            column(-1), (4, -2, -1), memory=np.zeros(2048, np.uint8), base=BASE, shared=np.zeros(512, np.uint8),
            shared_offset=16,
        )  # fmt: skip
    found = caught.value.violations
    rows = ["start-inner-multiple", "store-start", "store-start", "store-lower-corner", "pixel-start", "tile-alignment"]
    assert [violation.rule for violation in found] == rows
    kinds = ["illegal instruction"] * 5 + ["misaligned address"]
    lines = [f"{kind}: {v.message}; {v.fix}" for kind, v in zip(kinds, found, strict=True)]
    assert str(caught.value).splitlines() == lines


@st.composite
def uses(draw: st.DrawFn) -> tuple[Tiled | Im2col, tuple[int, ...], int, bool]:
    """Parameters, a start near or outside what is allowed, a place of the tile, and whether it is stored."""
    interleave = draw(st.sampled_from(["NONE", "16B"]))
    shape: dict[str, Any] = {
        "data_type": draw(st.sampled_from(["UINT8", "FLOAT16", "FLOAT64"])), "global_address": BASE,
        "global_dim": (32, 4, 8, 2), "interleave": interleave,
    }  # fmt: skip
    corners = st.tuples(*[st.integers(-2, 1)] * 2)
    p: Tiled | Im2col = Tiled(**shape, box_dim=(16, 2, 2, 1))
    if draw(st.booleans()):
        p = Im2col(
            **shape, pixel_box_lower_corner=draw(corners), pixel_box_upper_corner=draw(corners),
            channels_per_pixel=16, pixels_per_column=4,
        )  # fmt: skip
    inner = draw(st.sampled_from([-16, -1, 0, 3, 8, 16, 33]))
    coords = (inner, *(draw(st.integers(-3, 9)) for _ in range(3)))
    return p, coords, draw(st.sampled_from([0, 16, 128])), draw(st.booleans())


@settings(max_examples=300, deadline=None, derandomize=True)
@given(uses())
def test_the_simulator_raises_exactly_where_the_parameters_foresee_a_fault(
    use: tuple[Tiled | Im2col, tuple[int, ...], int, bool],
) -> None:
    p, coords, place, stored = use
    foreseen = p.faults(coords, shared_address=place, store=stored)
    memory, shared = np.zeros(1 << 14, np.uint8), np.zeros(1 << 13, np.uint8)
    try:
        (sim.store if stored else sim.load)(
            p.encode(), coords, memory=memory, base=BASE, shared=shared, shared_offset=place
        )
        raised: tuple[Violation, ...] = ()
    except (sim.IllegalInstruction, sim.MisalignedAddress) as fault:
        raised = fault.violations
    assert sorted(raised, key=str) == sorted(foreseen, key=str)


def test_packed_types_with_interleave_are_not_simulated() -> None:
    p = Tiled(
        data_type="16U4_ALIGN8B", global_address=BASE, global_dim=(64, 16, 4), global_strides=(1024, 16384),
        box_dim=(64, 4, 1), interleave="16B",
    )  # fmt: skip
    pattern = "16U4_ALIGN8B with interleave 16B is not simulated"
    expect(sim.NotSimulatedError, pattern, sim.load, p.encode(target="sm_100a"), (0, 0, 0))


def test_a_map_that_no_encoder_makes_is_refused_with_the_rule() -> None:
    broken = matrix().replace_raw("box_dim", 7, 0)
    expect(sim.SimulationError, "no encoder makes.*box-inner-multiple", sim.load, broken, (0, 0))


@pytest.mark.parametrize(
    ("coords", "pattern"),
    [
        ((0,), "1 coordinate for a tensor map of rank 2"),
        (5, "coords is 5; it must be a sequence"),
        ((0.0, 0), "coordinate of dimension 0 is 0.0; it must be an integer"),
        ((0, 2**31), "coordinate 2147483648 of dimension 1 does not fit"),
    ],
)
def test_coordinates_no_instruction_carries_are_refused(coords: Any, pattern: str) -> None:
    expect(sim.SimulationError, pattern, sim.load, matrix(), coords)


def test_offsets_belong_to_im2col_loads() -> None:
    expect(sim.SimulationError, "for a tiled tensor map", sim.load, matrix(), (0, 0), offsets=(1,))
    expect(sim.SimulationError, "2 im2col offsets for 1 spatial", sim.load, column(), (0, 0, 0), offsets=(1, 1))
    expect(sim.SimulationError, "offset -1 does not fit", sim.load, column(), (0, 0, 0), offsets=(-1,))


@pytest.mark.parametrize(
    ("array", "pattern"),
    [
        (b"bytes", "is a bytes; it must be a numpy array"),
        (np.zeros(4096, np.float32), "dtype float32 and 1 dimension.*view"),
        (np.zeros((64, 64), np.uint8), "2 dimensions"),
        (np.zeros(8192, np.uint8)[::2], "not contiguous: its bytes are 2 apart"),
    ],
)
@pytest.mark.parametrize("name", ["memory", "shared"])
def test_arrays_must_be_bytes_in_one_piece(name: str, array: Any, pattern: str) -> None:
    expect(ArrayError, f"{name} .*{pattern}|{name} is a bytes", sim.load, matrix(), (0, 0), **{name: array})


def test_arrays_that_are_changed_must_be_writable_and_others_need_not() -> None:
    frozen = np.zeros(4096, np.uint8)
    frozen.setflags(write=False)
    expect(ArrayError, "shared is read-only", sim.load, matrix(), (0, 0), shared=frozen)
    expect(ArrayError, "memory is read-only", sim.store, matrix(), (0, 0), memory=frozen)
    sim.load(matrix(), (0, 0), memory=frozen, base=BASE, shared=np.zeros(4096, np.uint8))
    sim.store(matrix(), (0, 0), memory=np.zeros(4096, np.uint8), base=BASE, shared=frozen)


@pytest.mark.parametrize("other", [Tiled(data_type="UINT8", global_address=0, global_dim=(1,), box_dim=(16,)), b"", []])
def test_what_is_no_tensor_map_is_refused(other: Any) -> None:
    expect(sim.SimulationError, r"tensor_map is a .*`encode\(\)`", sim.load, other, (0,))


def test_places_must_be_whole_and_not_negative() -> None:
    expect(sim.SimulationError, "shared_offset is -128", sim.load, matrix(), (0, 0), shared_offset=-128)
    expect(sim.SimulationError, "base is 1.5; it must be an integer", sim.load, matrix(), (0, 0), base=1.5)
