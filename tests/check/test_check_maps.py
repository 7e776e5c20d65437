"""With the tensor maps given, byte counts and coordinates are compared exactly."""

from __future__ import annotations

from typing import Any

import pytest

import cupytma as tma
from cupytma import check
from cupytma.check import RULES
from cupytma.check.examples import changed
from cupytma.errors import CheckError, CompileError, CupytmaError

pytest.importorskip("cuda.bindings.nvrtc", reason="needs cuda-python and NVRTC")

SOURCE = RULES["load-never-waited"].good  # loads a tile of 4096 bytes


def tiled(**given: Any) -> tma.Tiled:
    parameters = {"data_type": "FLOAT32", "global_address": 0, "global_dim": (64, 64), "box_dim": (32, 32), **given}
    return tma.Tiled(**parameters)


def rules(source: str, maps: Any) -> set[str]:
    return {finding.rule for finding in check.check_cuda(source, tensor_maps=maps)}


@pytest.mark.parametrize("key", [0, "map", "kernel_param_0"])
@pytest.mark.parametrize("make", [lambda p: p, lambda p: p.encode(), lambda p: bytes(p.encode())])
def test_a_map_is_given_by_position_or_name_in_any_form(key: int | str, make: Any) -> None:
    assert rules(SOURCE, {key: make(tiled())}) == set()
    assert rules(SOURCE, {key: make(tiled(box_dim=(32, 16)))}) == {"expect-tx-mismatch"}


def test_the_message_has_both_numbers() -> None:
    (finding,) = check.check_cuda(SOURCE, tensor_maps={0: tiled(box_dim=(16, 16))})
    assert "4096 bytes are expected" in finding.message
    assert "brings 1024" in finding.message
    assert SOURCE.splitlines()[finding.line - 1].strip().startswith("cupytma::mbarrier_arrive_expect_tx_sink")


def test_a_map_of_another_parameter_says_nothing() -> None:
    assert rules(SOURCE, {1: tiled(box_dim=(16, 16))}) == set()


@pytest.mark.parametrize(("data_type", "start", "legal"), [
    ("FLOAT32", 4, True), ("FLOAT32", 2, False), ("FLOAT64", 2, True), ("FLOAT64", 1, False), ("FLOAT16", 4, False),
    ("UINT8", 16, True), ("UINT8", 8, False), ("FLOAT32", -4, True),
])  # fmt: skip
def test_coordinates_are_judged_by_the_element(data_type: str, start: int, legal: bool) -> None:
    source = changed(SOURCE, ("&map, 0, 0", f"&map, {start}, 0"))
    box = (4096 // 32 // tma.Tiled(**_of(data_type)).element_bytes, 32)
    assert rules(source, {0: tma.Tiled(**{**_of(data_type), "box_dim": box})}) == (
        set() if legal else {"coordinate-misaligned"}
    )


def _of(data_type: str) -> dict[str, Any]:
    return {"data_type": data_type, "global_address": 0, "global_dim": (512, 64), "box_dim": (16, 16)}


def test_an_interleaved_map_takes_any_coordinate() -> None:
    source = changed(SOURCE, ("load_2d(tile, &map, 0, 0", "load_4d(tile, &map, 3, 0, 0, 0"))
    parameters = {"global_dim": (64, 64, 4, 2), "data_type": "UINT8", "global_address": 0}
    strides = (1024, 65536, 262144)
    interleaved = tma.Tiled(**parameters, global_strides=strides, box_dim=(16, 16, 1, 1), interleave="16B")
    assert rules(source, {0: interleaved}) == set()
    plain = tma.Tiled(**parameters, global_strides=strides, box_dim=(16, 16, 4, 4))
    assert rules(source, {0: plain}) == {"coordinate-misaligned"}


def test_a_swizzle_wants_the_tile_at_the_start_of_its_pattern() -> None:
    swizzled = tiled(swizzle="128B")
    assert rules(SOURCE, {0: swizzled}) == {"shared-weakly-aligned"}
    assert rules(changed(SOURCE, ("alignas(128)", "alignas(1024)")), {0: swizzled}) == set()


@pytest.mark.parametrize("maps", [None, 5, {0: None}, {0: "a"}, {0: 3.5}, [tiled()]])
def test_what_is_no_map_is_refused(maps: Any) -> None:
    with pytest.raises(CheckError, match="tensor_maps") as caught:
        check.check_ptx("", maps)
    assert isinstance(caught.value, (CupytmaError, ValueError))


@pytest.mark.parametrize("data", [b"", b"abc", bytes(64)])
def test_bytes_that_hold_no_map_are_refused(data: bytes) -> None:
    with pytest.raises(tma.DescriptorError):
        check.check_ptx("", {0: data})


@pytest.mark.parametrize("text", [None, 5, b"ptx", ["a"]])
def test_what_is_no_text_is_refused(text: Any) -> None:
    with pytest.raises(CheckError, match="text of a PTX module"):
        check.check_ptx(text)


def test_a_source_that_does_not_compile_is_refused_as_compile_does() -> None:
    with pytest.raises(CompileError) as caught:
        check.check_cuda("extern \"C\" __global__ void k() { nonsense; }")
    assert caught.value.line == 1


def test_an_unknown_target_is_refused() -> None:
    with pytest.raises(tma.TargetError):
        check.check_cuda(SOURCE, target="sm_80")


@pytest.mark.parametrize("name", ["options", "name_expressions"])
@pytest.mark.parametrize("value", [None, 5, "-G", [3], [None]])
def test_what_are_no_options_or_names_are_refused(name: str, value: Any) -> None:
    with pytest.raises(CheckError, match=name):
        check.check_cuda(SOURCE, **{name: value})


@pytest.mark.parametrize("option", ["-lineinfo", "--generate-line-info"])
def test_options_for_lines_may_be_given(option: str) -> None:
    found = check.check_cuda(RULES["load-never-waited"].bad, options=[option])
    assert "load-never-waited" in {finding.rule for finding in found}
    assert {finding.file for finding in found} == {"kernel.cu"}


def test_code_that_is_not_optimised_raises_no_false_alarm() -> None:
    for rule in RULES.values():
        if not rule.good.startswith(".version"):
            found = check.check_cuda(rule.good, options=["-G"])
            assert [finding for finding in found if finding.severity == "error"] == []


def test_a_kernel_for_blocks_of_one_thread_needs_no_condition() -> None:
    single = changed(
        SOURCE,
        ("    if (threadIdx.x == 0) {\n        cupytma::mbarrier_init", "    {\n        cupytma::mbarrier_init"),
        ("    __syncthreads();\n", ""), ("    if (threadIdx.x == 0) {\n", "    {\n"),
        ("[threadIdx.x] = tile[threadIdx.x]", "[0] = tile[0]"),
    )
    assert rules(single, {0: tiled()}) == set()
    assert rules(single, {0: tiled(box_dim=(16, 16))}) == {"expect-tx-mismatch"}
