"""Launches that are known to go wrong are refused before they are made, when that is asked for."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fake_cuda import FakeCuda
from launch_records import kernel, packed, record
from test_faults import CLEAN, FAULTS, MAP, OUT, POSSIBLE, TILED

import cupytma as tma
from cupytma.errors import LaunchError
from cupytma.runtime import allocations, checks, coordinates, descriptors, launch_rules, transfer
from cupytma.runtime.allocations import Allocation, UnknownMemory, reach_problem
from cupytma.runtime.checks import check_launch
from cupytma.runtime.history import LaunchRecord

pytest.importorskip("cuda.bindings.nvrtc", reason="needs cuda-python and NVRTC")


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    with tma.checks(checks.enabled):
        yield
    coordinates._declared.clear()


def check(made: LaunchRecord, arrays: Any = ()) -> None:
    check_launch(made.kernel, made.grid, made.block, made.cluster, made.shared_bytes, made.parameters, arrays)


@pytest.mark.parametrize("name", [*CLEAN, *POSSIBLE])
def test_a_launch_that_may_go_well_is_let_through(name: str) -> None:
    check(CLEAN[name]() if name in CLEAN else POSSIBLE[name][2]())


@pytest.mark.parametrize("name", FAULTS)
def test_a_launch_that_cannot_go_well_is_refused_with_its_rule(name: str) -> None:
    _, rule, made, _ = FAULTS[name]
    broken = made()
    with pytest.raises(LaunchError, match=f"checked before its launch, {broken.name} \\(grid.*(?s:.*)\n{rule}: "):
        check(broken)


def test_declared_coordinates_are_judged_before_the_launch() -> None:
    tma.declare_coordinates(kernel("load"), 0, lambda x, y, z: (32 * x, 0))
    made = record("load", MAP, OUT, 0, 0, 4096, grid=(8, 1, 1))
    check(made)
    tma.declare_coordinates(kernel("load"), 0, lambda x, y, z: (31 * x, 0))
    with pytest.raises(LaunchError, match=r"block \(1, 0, 0\) copies at \(31, 0\)"):
        check(made)


def test_everything_that_is_wrong_is_named_at_once() -> None:
    tma.declare_coordinates(kernel("load_dynamic"), 0, lambda x, y, z: (1, 0))
    with pytest.raises(LaunchError) as caught:
        check(record("load_dynamic", MAP.with_address(0), OUT, 0, 0, 4096))
    for rule in ("start-inner-multiple", "null-address", "shared-size"):
        assert f"\n{rule}: " in str(caught.value)


def test_extents_may_be_given_short() -> None:
    check_launch(kernel("load"), (4,), [128], (2,), 0, packed(kernel("load"), (MAP, OUT, 0, 0, 4096)))


# On and off


def test_checks_are_off_unless_asked_for_and_go_back_to_what_they_were() -> None:
    with tma.checks(False):
        assert not checks.enabled
        with tma.checks() as nothing:
            assert nothing is None
            assert checks.enabled
            with tma.checks(False):
                assert not checks.enabled
            assert checks.enabled
        assert not checks.enabled
        switch = tma.checks(True)
        assert checks.enabled
        assert repr(switch) == "<checks are on>"
        with pytest.raises(ZeroDivisionError), tma.checks(False):
            1 / 0  # noqa: B018
        assert checks.enabled


@pytest.mark.parametrize(
    ("value", "on"),
    [(None, False), ("", False), ("0", False), ("off", False), ("FALSE", False), (" no ", False), ("1", True),
     ("yes", True)],
)  # fmt: skip
def test_the_environment_turns_them_on(value: str | None, on: bool) -> None:
    environment = {k: v for k, v in os.environ.items() if k != "CUPYTMA_CHECK"}
    if value is not None:
        environment["CUPYTMA_CHECK"] = value
    code = "from cupytma.runtime import checks; print(checks.enabled)"
    done = subprocess.run([sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True)
    assert done.stdout.strip() == str(on)


# Freshness


def of(array: Any) -> tma.TensorMap:
    """A map that remembers its array."""
    tensor_map = tma.tensor_map(array, (8, 8))
    tensor_map.__dict__["_source"] = array
    return tensor_map


class Movable:
    """A device array that can be put elsewhere, as torch's ``set_`` does."""

    def __init__(self, address: int) -> None:
        self.address = address

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if self.address < 0:
            raise RuntimeError("freed")
        return {"shape": (8, 8), "typestr": "<f4", "data": (self.address, False), "version": 3, "strides": None}


@pytest.fixture
def _sourced(monkeypatch: pytest.MonkeyPatch) -> None:
    if not hasattr(tma.TensorMap, "source"):
        monkeypatch.setattr(
            tma.TensorMap, "source", property(lambda self: self.__dict__.get("_source")), raising=False
        )


@pytest.mark.usefixtures("_sourced")
@pytest.mark.parametrize("wrapped", [False, True])
def test_a_map_whose_array_has_moved_is_refused(wrapped: bool) -> None:
    array = Movable(1 << 33)
    tensor_map = of(array)
    made = record("load", replace(TILED, box_dim=(8, 8)).encode(), OUT, 0, 0, 256)
    arguments = [[tensor_map] if wrapped else tensor_map, 5, None]
    check(made, arguments)
    array.address += 4096
    place = r"argument 0\[0\]" if wrapped else "argument 0"
    moved = rf"map-source: {place}: the map describes memory at 0x200000000, .* at 0x200001000 now"
    with pytest.raises(LaunchError, match=moved):
        check(made, arguments)
    array.address = -1
    with pytest.raises(LaunchError, match="has no memory any more"):
        check(made, arguments)


@pytest.mark.usefixtures("_sourced")
def test_maps_in_a_buffer_are_looked_at_too(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeCuda()
    monkeypatch.setattr(descriptors, "cupy", lambda: fake)
    monkeypatch.setattr(transfer, "cupy", lambda: fake)
    array = Movable(1 << 33)
    buffer = tma.DescriptorBuffer(2, target="sm_90a")
    buffer[1] = of(array)
    made = record("indirect", buffer.address(0), OUT, 0, 0, 256)
    check(made, (buffer, None))
    array.address += 64
    with pytest.raises(LaunchError, match=r"argument 0\[1\]: the map describes"):
        check(made, (buffer, None))


def test_maps_of_addresses_alone_have_no_array_to_look_at() -> None:
    check(record("load", MAP, OUT, 0, 0, 4096), (MAP, np.zeros(3), "text", None))


# Memory


class FakeDriver:
    """cuda-python's driver, with some allocations."""

    CUpointer_attribute = SimpleNamespace(
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE=2, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL=9,
        CU_POINTER_ATTRIBUTE_RANGE_START_ADDR=11, CU_POINTER_ATTRIBUTE_RANGE_SIZE=12,
    )  # fmt: skip

    def __init__(self, *held: tuple[int, int, int, int], answer: int = 0, peers: bool = False) -> None:
        self.held, self.answer, self.peers = held, answer, peers

    def cuDeviceCanAccessPeer(self, device: int, other: int) -> tuple[int, int]:  # noqa: N802
        return 0, int(self.peers)

    def cuPointerGetAttribute(self, attribute: int, address: int) -> tuple[int, Any]:  # noqa: N802
        if self.answer:
            return self.answer, None
        for start, size, device, kind in self.held:
            if start <= address < start + size:
                return 0, {2: kind, 9: device, 11: start, 12: size}[attribute]
        return 1, None


HOST, DEVICE = 1, 2
START = 1 << 40


@pytest.fixture
def drive(monkeypatch: pytest.MonkeyPatch) -> Any:
    def install(*held: tuple[int, int, int, int], **options: Any) -> None:
        monkeypatch.setattr(allocations, "_driver", lambda: FakeDriver(*held, **options))

    return install


@pytest.mark.parametrize(
    ("held", "address", "reach", "device", "pattern"),
    [
        ([(START, 4096, 0, DEVICE)], START, 4096, 0, None),
        ([(START, 4096, 0, DEVICE)], START + 1024, 3072, 0, None),
        ([(START, 4096, 0, DEVICE)], START + 1024, 3073, 0, "reaches 3073 B .* ends after 3072 B"),
        ([(START, 4096, 0, DEVICE)], START - 16, 32, 0, "no memory that CUDA knows"),
        ([], START, 1, 0, "no memory that CUDA knows"),
        ([(START, 4096, 0, DEVICE), (START + 4096, 4096, 0, DEVICE)], START, 8192, 0, None),  # mapped in two pieces
        ([(START, 4096, 0, DEVICE), (START + 4096, 4096, 1, DEVICE)], START, 8192, 0, "ends after 4096 B"),
        ([(START, 4096, 1, DEVICE)], START, 16, 0, "belongs to device 1, which device 0 cannot reach"),
        ([(START, 4096, 1, DEVICE)], START, 16, None, None),
        ([(START, 4096, 1, HOST)], START, 16, 0, None),
        ([(START, 4096, 0, 0)], START, 16, 0, "no memory that CUDA knows"),
    ],
)
def test_memory_is_held_against_what_a_map_reaches(
    drive: Any, held: Any, address: int, reach: int, device: int | None, pattern: str | None
) -> None:
    drive(*held)
    found = reach_problem(address, reach, device)
    if pattern is None:
        assert found is None
    else:


        assert found is not None
        assert re.search(pattern, found)


def test_devices_that_reach_one_another_may_share_memory(drive: Any) -> None:
    drive((START, 4096, 1, DEVICE), peers=True)
    assert reach_problem(START, 16, 0) is None


@pytest.mark.parametrize("answer", [700, 715, 201, 999])
def test_a_driver_that_answers_nothing_useful_suspects_nothing(drive: Any, answer: int) -> None:
    drive((START, 4096, 0, DEVICE), answer=answer)
    with pytest.raises(UnknownMemory):
        allocations.allocation_at(START)
    assert reach_problem(1, 1, 0) is None


def test_a_freed_array_is_refused_before_the_launch(drive: Any) -> None:
    address = TILED.global_address
    drive((address, 128 * 1024, 0, DEVICE))
    check(record("load", MAP, OUT, 0, 0, 4096))
    drive((address, 128 * 1024 - 1, 0, DEVICE))
    with pytest.raises(LaunchError, match=r"map-memory: argument 0: the map reaches 131072 B from 0x7f0000000000 on"):
        check(record("load", MAP, OUT, 0, 0, 4096))
    drive()
    with pytest.raises(LaunchError, match="map-memory: argument 0: 0x7f0000000000 is no memory that CUDA knows"):
        check(record("load", MAP, OUT, 0, 0, 4096))


@pytest.mark.parametrize(
    ("parameters", "reach"),
    [
        (tma.Tiled(data_type="UINT8", global_address=0, global_dim=(100,), box_dim=(16,)), 100),
        (
            tma.Tiled(data_type="FLOAT32", global_address=0, global_dim=(3, 5), global_strides=(64,), box_dim=(4, 1)),
            268,
        ),
        (
            tma.Tiled(data_type="FLOAT16", global_address=0, global_dim=(4, 2, 3), global_strides=(64, 256),
                      box_dim=(8, 1, 1), interleave="16B"),
            16 * 4 + 64 + 512,
        ),
        (tma.Tiled(data_type="UINT8", global_address=0, global_dim=(16, 9), global_strides=(0,), box_dim=(16, 1)), 16),
    ],
)  # fmt: skip
def test_the_reach_of_a_map_ends_at_its_last_byte(parameters: Any, reach: int) -> None:
    placed = launch_rules.PlacedMap("a", (0, 0), parameters.encode(), parameters)
    assert placed.reach == reach


def test_an_allocation_ends_behind_its_last_byte() -> None:
    assert Allocation(0, 16, 16).end == 32


def test_without_cuda_in_use_nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("cupy", "torch"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    assert reach_problem(START, 16, 0) is None
