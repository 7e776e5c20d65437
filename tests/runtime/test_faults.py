"""Faults of each kind are found in the launch that has them, and in no other."""

from __future__ import annotations

import gc
import re
import sys
import weakref
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fake_cuda import FakeCuda
from launch_records import BASE, MAP, OUT, TILED, kernel, load, packed, record

import cupytma as tma
from cupytma.errors import LaunchError
from cupytma.record.prediction import _ERRORS as RECORDED
from cupytma.runtime import coordinates, descriptors, faults, history, launch_rules, loading, transfer
from cupytma.runtime.descriptors import DescriptorBuffer
from cupytma.runtime.faults import explain_fault
from cupytma.runtime.history import LaunchRecord, launches, recent, remember
from cupytma.runtime.launch_rules import CODE_OF_FAULT, judge
from cupytma.sim.faults import Fault
from cupytma.sticky import STICKY_ERRORS

pytest.importorskip("cuda.bindings.nvrtc", reason="needs cuda-python and NVRTC")

IMAGE = tma.Im2col(
    data_type="FLOAT16", global_address=BASE, global_dim=(64, 32, 4), channels_per_pixel=64, pixels_per_column=32,
    pixel_box_lower_corner=(0,), pixel_box_upper_corner=(0,),
)  # fmt: skip


def changed(target: str = "sm_90a", **changes: Any) -> tma.TensorMap:
    return replace(TILED, **changes).encode(target)


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    launches.clear()
    yield
    launches.clear()
    coordinates._declared.clear()


# What goes well


CLEAN = {
    "load": lambda: load(),
    "load at the edge": lambda: load(x=-32, y=2**20),
    "dynamic shared memory": lambda: load(name="load_dynamic", shared_bytes=4096),
    "dynamic shared memory, to the byte": lambda: load(name="load_dynamic", shared_bytes=4096 - 15),
    "narrow swizzled rows": lambda: load(changed(box_dim=(8, 128), swizzle="128B")),
    "interleave": lambda: record(
        "im2col_load",
        replace(IMAGE, interleave="16B", global_dim=(32, 8, 4), global_strides=(512, 4096)).encode(), OUT, 0, 0, 512,
    ),
    "store": lambda: record("store", MAP, 0, 0),
    "reduction": lambda: record("reduce_and", changed(data_type="UINT32"), 0, 0),
    "multicast in a cluster": lambda: load(name="multicast", cluster=(2, 1, 1)),
    "im2col store": lambda: record("im2col_store", IMAGE.encode(), 0),
    "im2col load": lambda: record(
        "im2col_load", replace(IMAGE, pixel_box_lower_corner=(-1,)).encode(), OUT, 0, 0, 4096
    ),
    "prefetch of a box that no shared memory holds": lambda: record(
        "prefetch", changed(data_type="UINT8", box_dim=(256, 256), global_strides=(256,)), 0, 0
    ),
    "a struct of two": lambda: record("struct_of_two", [MAP, changed(box_dim=(64, 64))], OUT, 0, 4096),
    "a template": lambda: record("change", TILED.encode().with_address(0), OUT, BASE),
    "a template of zeros": lambda: record("change", bytes(128), OUT, BASE),
    "no maps": lambda: record("scalars", -1, 0.5, 1.5, 255, 2**64 - 1, OUT),
    "newer targets": lambda: load(changed(swizzle="128B_ATOM_32B", target="sm_100a"), target="sm_100a"),
}


@pytest.mark.parametrize("code", [*STICKY_ERRORS, "no code"])
@pytest.mark.parametrize("name", CLEAN)
def test_nothing_is_suspected_of_what_goes_well(name: str, code: Any) -> None:
    report = explain_fault(code, launches=[CLEAN[name]()])
    assert report.suspects == ()
    assert "likely cause" not in str(report)


def test_declared_coordinates_that_are_right_are_no_suspects() -> None:
    tma.declare_coordinates(kernel("load"), 0, lambda x, y, z: (32 * x, 32 * y))
    assert judge(load(grid=(8, 4, 1))) == ()


# What does not


FAULTS = {
    "null address": (700, "null-address", lambda: load(MAP.with_address(0)), r"argument 0 .*address 0"),
    "too little dynamic shared memory": (
        700, "shared-size", lambda: load(name="load_dynamic", shared_bytes=2048),
        r"4096 B of shared memory; .* 2048 B of dynamic.*shared_bytes=4096",
    ),
    "no dynamic shared memory": (
        700, "shared-size", lambda: load(name="load_dynamic"), "the block has 0 B of dynamic"
    ),
    "a box larger than the tile": (
        700, "shared-size", lambda: load(changed(box_dim=(256, 32))), "takes 32768 B of shared memory"
    ),
    "swizzled rows that are shorter than the span": (
        700, "shared-size", lambda: load(changed(box_dim=(8, 256), swizzle="128B")), "takes 32768 B of shared memory",
    ),
    "a box larger than the tile, stored": (
        700, "shared-size", lambda: record("store", changed(box_dim=(256, 32)), 0, 0), "takes 32768 B"
    ),
    "one of two maps": (
        700, "shared-size", lambda: record("struct_of_two", [MAP, changed(box_dim=(256, 32))], OUT, 0, 4096),
        r"argument 0\[1\]",
    ),
    "zeros": (None, "map-of-zeros", lambda: load(bytes(128)), "128 bytes of zeros"),
    "a map of another target": (
        None, "map-illegal", lambda: load(changed(swizzle="128B_ATOM_32B", target="sm_100a")),
        "no encoder makes for sm_90a: swizzle",
    ),
    "a box that a raw replacement broke": (
        None, "map-illegal", lambda: load(MAP.replace_raw("box_dim", 30, 0)), "no encoder makes.*120 B is no multiple",
    ),
    "a reduction that the type does not have": (
        715, "reduction", lambda: record("reduce_and", changed(data_type="INT64", box_dim=(32, 16)), 0, 0),
        "argument 0: .*reduction and on INT64",
    ),
    "an im2col store with a negative corner": (
        715, "store-lower-corner",
        lambda: record("im2col_store", replace(IMAGE, pixel_box_lower_corner=(-1,)).encode(), 0), "lower corner -1",
    ),
}  # fmt: skip
POSSIBLE = {
    "a tile that nothing aligns": (
        716, "tile-alignment", lambda: load(name="load_unaligned"),
        r"tile.* \(aligned to 1 B\); declare it alignas\(128\)",
    ),
    "a multicast without a cluster": (715, "multicast-cluster", lambda: load(name="multicast"), "any mask but 1"),
    "a multicast in clusters of one": (
        715, "multicast-cluster", lambda: load(name="multicast", cluster=(1, 1, 1)), "launch with cluster="
    ),
    "a map of another rank": (
        None, "map-kind", lambda: load(tma.Tiled(data_type="UINT8", global_address=BASE, global_dim=(64,),
                                                 box_dim=(64,)).encode()),
        "a map of kind tiled and rank 1; the kernel's copies take maps that are tiled of rank 2",
    ),
    "an im2col map for a tiled copy": (
        None, "map-kind", lambda: load(IMAGE.encode()), "a map of kind im2col and rank 3; .* tiled of rank 2"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", [*FAULTS, *POSSIBLE])
def test_a_fault_of_each_kind_is_found_and_told_with_its_rule(name: str) -> None:
    code, rule, made, pattern = {**FAULTS, **POSSIBLE}[name]
    broken, clean = made(), CLEAN["store"]()
    report = explain_fault(code or 700, launches=[clean, broken, clean])
    assert [(s.rule, s.code, s.is_certain) for s in report.suspects] == [(rule, code, name in FAULTS)]
    assert report.suspects[0].record is broken
    text = str(report)
    assert ("likely cause" if name in FAULTS else "possible causes") in text
    assert re.search(pattern, text.replace("\n", " ")), text
    assert rule in repr(report) or name not in FAULTS


@pytest.mark.parametrize("name", [name for name, row in FAULTS.items() if row[0]])
def test_what_gives_another_error_is_no_suspect_of_this_one(name: str) -> None:
    code, rule, made, _ = FAULTS[name]
    others = [other for other in (700, 715, 716, 719) if other != code]
    for other in others:
        assert rule not in [s.rule for s in explain_fault(other, launches=[made()]).suspects]


def test_every_error_that_a_rule_says_is_in_the_table() -> None:
    assert {row[0] for row in (*FAULTS.values(), *POSSIBLE.values())} - {None} == {700, 715, 716}
    assert set(CODE_OF_FAULT.values()) <= set(STICKY_ERRORS)
    for kind, name in RECORDED.items():
        assert STICKY_ERRORS[CODE_OF_FAULT[kind]].runtime_name == name


def test_every_fault_of_the_simulator_has_its_error() -> None:
    def kinds(base: type[Fault]) -> Iterator[type[Fault]]:
        for kind in base.__subclasses__():
            yield from kinds(kind)
            if not kind.__name__.startswith("_"):
                yield kind

    assert set(kinds(Fault)) == set(CODE_OF_FAULT)


@pytest.mark.parametrize(
    ("tensor_map", "function", "options", "code", "rule", "pattern"),
    [
        (MAP, lambda x, y, z: (33 * x, 0), {}, 715, "start-inner-multiple",
         r"block \(1, 0, 0\) copies at \(33, 0\).*4 mod 16"),
        (MAP, lambda x, y, z: (32 * x, -32 * y), {"store": True}, 715, "store-start", r"block \(0, 1, 0\).*-32"),
        (MAP, lambda x, y, z: (0, 0), {"shared_offset": 64}, 716, "tile-alignment", r"byte 64, 64 mod 128"),
        (MAP, lambda x, y, z: [(0, 0), (x, 0)], {}, 715, "start-inner-multiple",
         r"block \(1, 0, 0\) copies at \(1, 0\)"),
        (MAP, lambda x, y, z: None if x < 7 else (2, 0), {}, 715, "start-inner-multiple", r"block \(7, 0, 0\)"),
        (MAP, lambda x, y, z, arguments: (arguments[2], 0), {}, 715, "start-inner-multiple", r"copies at \(-6, 0\)"),
    ],
)  # fmt: skip
def test_declared_coordinates_are_judged_for_every_block(
    tensor_map: Any, function: Any, options: Any, code: int, rule: str, pattern: str
) -> None:
    tma.declare_coordinates(kernel("load"), 0, function, **options)
    report = explain_fault(code, launches=[load(tensor_map, x=-6, grid=(8, 4, 1))])
    assert [s.rule for s in report.suspects] == [rule]
    assert report.suspects[0].is_certain
    assert re.search(pattern, str(report)), str(report)
    assert explain_fault(719, launches=[load(tensor_map, x=-6, grid=(8, 4, 1))]).suspects == ()


def test_im2col_starts_are_judged_too() -> None:
    tma.declare_coordinates(kernel("im2col_load"), 0, lambda x, y, z: (0, 32 * x, 0))
    made = record("im2col_load", IMAGE.encode(), OUT, 0, 0, 4096, grid=(2, 1, 1))
    (suspect,) = explain_fault(715, launches=[made]).suspects
    assert (suspect.rule, suspect.code) == ("pixel-start", 715)
    assert "block (1, 0, 0)" in suspect.message


def test_one_bad_block_of_a_grid_too_large_to_see_whole_is_found_at_its_ends() -> None:
    last = 10**6 - 1
    tma.declare_coordinates(kernel("load"), 0, lambda x, y, z: (32 * x + (x == last), 0))
    (suspect,) = judge(load(grid=(last + 1, 3, 1)))
    assert f"block ({last}, 0, 0)" in suspect.message


def test_a_declaration_takes_the_place_of_the_one_before() -> None:
    tma.declare_coordinates(kernel("load"), 0, lambda x, y, z: (1, 0))
    tma.declare_coordinates(kernel("load"), 0, lambda x, y, z: (0, 0))
    assert judge(load()) == ()
    tma.declare_coordinates(kernel("load"), 0, lambda x, y, z: (1, 0), store=True)
    assert [s.rule for s in judge(load())] == ["start-inner-multiple"]


def failing(x: int, y: int, z: int) -> Any:
    raise KeyError("mine")


@pytest.mark.parametrize(
    ("function", "pattern"),
    [
        (failing, "argument 0 of kernel load fail at block .*KeyError: 'mine'"),
        (lambda x, y, z: 5, "fail at block .*TypeError"),
        (lambda x, y, z: (0,), r"at block \(0, 0, 0\): 1 coordinate for a tensor map of rank 2"),
        (lambda x, y, z: (0, 2**40), "does not fit the instruction's 32-bit"),
        (lambda x, y, z: (0, None), "must be an integer"),
        (lambda x, y, z: "ab", "1 coordinate for a tensor map of rank 2"),
    ],
)
def test_a_declaration_that_fails_is_told_and_is_no_certain_cause(function: Any, pattern: str) -> None:
    tma.declare_coordinates(kernel("load"), 0, function)
    (suspect,) = judge(load())
    assert (suspect.rule, suspect.is_certain, suspect.code) == ("declared-coordinates", False, None)
    assert re.search(pattern, suspect.message), suspect.message


@pytest.mark.parametrize(
    ("arguments", "options", "pattern"),
    [
        ((None, 0, failing), {}, "NoneType is no kernel"),
        (("load", 0, failing), {}, "str is no kernel"),
        ((kernel, 0, failing), {}, "is no kernel"),
        (("K", 9, failing), {}, "has parameters 0 to 4"),
        (("K", -1, failing), {}, "has parameters"),
        (("K", "map", failing), {}, "a position, or a position and an index"),
        (("K", (0, 1, 2), failing), {}, "a position, or a position and an index"),
        (("K", 0, 7), {}, "a function of a block's x, y and z is needed"),
        (("K", 0, lambda x, y: 0), {}, "must take a block's x, y and z"),
        (("K", 0, failing), {"offsets": ("a",)}, "offsets = "),
        (("K", 0, failing), {"offsets": 3}, "offsets = 3"),
        (("K", 0, failing), {"shared_offset": None}, "shared_offset = None"),
    ],
)
def test_declarations_that_make_no_sense_are_refused(arguments: Any, options: Any, pattern: str) -> None:
    called = kernel("load") if arguments[0] == "K" else arguments[0]
    with pytest.raises(LaunchError, match=pattern):
        tma.declare_coordinates(called, *arguments[1:], **options)


# Maps in buffers


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    fake = FakeCuda()
    for module in (descriptors, transfer, faults, loading):
        monkeypatch.setattr(module, "cupy", lambda: fake)
    return fake


def test_maps_in_a_buffer_are_judged_like_those_by_value(cuda: FakeCuda) -> None:
    buffer = DescriptorBuffer(3, target="sm_90a")
    buffer[1] = MAP
    buffer[2] = changed(box_dim=(256, 32))
    (suspect,) = judge(record("indirect", buffer.address(0), OUT, 0, 0, 4096))
    assert (suspect.rule, suspect.code) == ("shared-size", 700)
    assert "slot 2 of argument 0" in suspect.message
    tma.declare_coordinates(kernel("indirect"), (0, 1), lambda x, y, z: (3, 0))
    buffer[2] = MAP
    assert [s.rule for s in judge(record("indirect", buffer.address(0), OUT, 0, 0, 4096))] == ["start-inner-multiple"]


@pytest.mark.parametrize(("distance", "code"), [(8, 716), (16, 716), (32, 716), (96, 716), (64, None), (192, None)])
def test_a_pointer_into_the_middle_of_a_slot_is_found(cuda: FakeCuda, distance: int, code: int | None) -> None:
    buffer = DescriptorBuffer(2, target="sm_90a")
    report = explain_fault(716, launches=[record("indirect", buffer.address(0) + distance, OUT, 0, 0, 4096)])
    assert [(s.rule, s.code) for s in report.suspects] == [("slot-start", code)]
    assert "slots are 128 B apart" in str(report)
    gc.collect()


def test_a_pointer_to_a_slot_is_right(cuda: FakeCuda) -> None:
    buffer = DescriptorBuffer(2, target="sm_90a")
    buffer.write([MAP, MAP])
    assert judge(record("indirect", buffer.address(1), OUT, 0, 0, 4096)) == ()


# Memory


def test_maps_of_memory_that_cuda_does_not_know_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int, int | None]] = []

    def problem(address: int, reach: int, device: int | None) -> str:
        asked.append((address, reach, device))
        return f"{address:#x} is no memory that CUDA knows"

    monkeypatch.setattr(launch_rules, "reach_problem", problem)
    (suspect,) = judge(load())
    assert (suspect.rule, suspect.code) == ("map-memory", 700)
    assert asked == [(BASE, 1024 * 127 + 1024, 0)]


# Reports


def test_the_report_names_the_meaning_the_causes_the_launches_and_the_way_on() -> None:
    text = str(explain_fault(715, launches=[load()]))
    for words in (
        "715 (CUDA_ERROR_ILLEGAL_INSTRUCTION)", "16 bytes of the innermost", "(H100)", "load (grid (1, 1, 1)",
        "no launch that is known breaks a rule", "argument 0: copies start at multiples of 4 FLOAT32", "new process",
        "declare_coordinates", "CUDA_LAUNCH_BLOCKING=1",
    ):  # fmt: skip
        assert words in text
    assert "<FaultReport CUDA_ERROR_ILLEGAL_INSTRUCTION; 1 launch known; likeliest cause: none>" in repr(
        explain_fault(715, launches=[load()])
    )


def test_the_likeliest_comes_first() -> None:
    possible, certain = load(name="load_unaligned"), load(name="load")
    tma.declare_coordinates(kernel("load"), 0, lambda x, y, z: (0, 0), shared_offset=16)
    report = explain_fault(716, launches=[possible, certain])
    assert [s.record.name for s in report.suspects] == ["load", "load_unaligned"]


def test_the_last_launches_of_the_process_are_judged_newest_first() -> None:
    large = changed(box_dim=(256, 32))
    for n in range(40):
        remember(tuple(load({5: large, 20: large, 39: MAP.with_address(0)}.get(n, MAP), x=n)))
    assert len(recent()) == 32
    report = explain_fault(700)
    assert [s.record.values()[2] for s in report.suspects] == [39, 20]


def test_launches_that_fail_alike_are_told_once_by_the_newest() -> None:
    for n in range(30):
        remember(tuple(load(MAP.with_address(0), x=n, name="load" if n % 2 else "load_unaligned")))
    report = explain_fault(700)
    assert [(s.record.name, s.record.values()[2]) for s in report.suspects] == [("load", 29), ("load_unaligned", 28)]


def test_what_is_no_fault_is_said_to_be_none() -> None:
    assert "is no fault of a kernel" in str(explain_fault(1, launches=[load(MAP.with_address(0))]))
    assert str(explain_fault(0, launches=[])).startswith("no fault is known")
    report = explain_fault(600, launches=[load()])
    assert report.is_running
    assert "still under way" in str(report)
    assert "expect more bytes" in str(report)
    assert "still running" in repr(report)


@pytest.mark.parametrize(
    "answer", [0, 600, 715, None, RuntimeError("cudaErrorMisalignedAddress"), OSError("no driver")]
)
def test_without_an_error_cuda_is_asked_and_not_waited_for(monkeypatch: pytest.MonkeyPatch, answer: Any) -> None:
    def query(stream: int) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    fake = SimpleNamespace(cuda=SimpleNamespace(runtime=SimpleNamespace(streamQuery=query)))
    monkeypatch.setitem(sys.modules, "cupy", fake)
    expected = 716 if isinstance(answer, RuntimeError) else answer or None
    assert explain_fault().code == (None if isinstance(answer, OSError) else expected)


@pytest.mark.parametrize(
    "broken",
    [
        LaunchRecord(None, (1, 1, 1), (1, 1, 1), None, 0, None, b""),
        LaunchRecord(object(), (0, 0, 0), (1, 1, 1), None, 0, 0, b"\0" * 3),
        LaunchRecord(SimpleNamespace(name=5, signature=None, module=None), (1, 1, 1), (1, 1, 1), None, 0, 0, b""),
    ],
)
def test_records_that_say_little_are_taken_for_what_they_are(broken: LaunchRecord) -> None:
    assert broken.tensor_maps() == ()
    assert broken.summary in broken.describe()
    for code in STICKY_ERRORS:
        assert explain_fault(code, launches=[broken]).suspects == ()


@pytest.mark.parametrize("length", [0, 1, 100, 128, 140, 147])
def test_a_parameter_block_that_is_cut_short_hides_what_is_missing_alone(length: int) -> None:
    whole = load()
    cut = whole._replace(parameters=whole.parameters[:length])
    assert [value is None for value in cut.values()] == [
        p.offset + p.size > length for p in whole.kernel.signature.parameters
    ]
    assert "not known" in cut.describe()
    assert judge(cut) == ()


# Records


def test_a_record_finds_its_maps_by_position_and_says_every_argument() -> None:
    one = record("load", MAP, OUT, -5, 7, 4096, grid=(4, 2, 1), shared_bytes=64, cluster=(2, 1, 1))
    assert one.tensor_maps() == ((0, MAP),)
    assert one.values() == ((MAP,), OUT, -5, 7, 4096)
    lines = one.describe().splitlines()
    assert lines[0] == (
        "load (grid (4, 2, 1), block (128, 1, 1), clusters of (2, 1, 1), 64 B of dynamic shared memory, device 0)"
    )
    assert lines[1].strip() == f"argument 0: {MAP!r}"
    assert lines[2].strip() == f"argument 1: {OUT:#x} (.u64)"
    assert lines[3].strip() == "argument 2: -5 (.u32)"


def test_structs_of_several_maps_are_several_maps() -> None:
    other = changed(box_dim=(64, 64))
    assert record("struct_of_two", [MAP, other], OUT, 0, 4096).tensor_maps() == ((0, MAP), (0, other))


def test_scalars_are_read_with_their_types() -> None:
    values = record("scalars", -1, 0.5, float("nan"), 255, 2**64 - 1, OUT).values()
    assert values[:2] == (-1, 0.5)
    assert np.isnan(values[2])
    assert values[3:] == (-1, 2**64 - 1, OUT)
    assert "argument 2: nan (.f64)" in record("scalars", -1, 0.5, float("nan"), 255, 2**64 - 1, OUT).describe()


def test_a_struct_that_is_no_map_is_bytes() -> None:
    made = load(b"\xff" * 128)
    assert made.tensor_maps() == ()
    assert made.values()[0] == b"\xff" * 128
    assert "argument 0: a struct of 128 B" in made.describe()
    assert judge(made) == ()


def test_the_history_keeps_kernels_and_no_arrays_and_takes_plain_tuples() -> None:
    array = np.zeros(4).view(type("Array", (np.ndarray,), {}))
    alive = weakref.ref(array)
    made = load()
    remember((made.kernel, (1, 1, 1), (32, 1, 1), None, 0, 0, packed(made.kernel, (MAP, OUT, 0, 0, 0))))
    del array
    gc.collect()
    assert alive() is None
    assert isinstance(recent()[0], LaunchRecord)
    assert recent()[0].name == "load"
    assert remember.__self__ is history.launches


# What the code says
