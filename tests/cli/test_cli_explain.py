"""``cupytma explain``: one instruction, PTX of the compiler, CUDA C++ with inline assembly and calls."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from invoking import Invoke
from test_cli_hostile import assert_refused

from cupytma import compile, ptx
from cupytma.check import RULES
from cupytma.cli.instruction_sources import find, is_of_family

FUZZ = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
LOAD = "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
ASSEMBLY = r'''
#define STORE "cp.async.bulk.tensor.1d" \
              ".global.shared::cta.tile.bulk_group"
// asm volatile("fence.sc.sys;");
/* asm volatile("fence.sc.sys;"); */
extern "C" __global__ void kernel(const void* map, unsigned tile, unsigned bar)
{
    const char quote = '"'; int big = 1'000'000; const char* said = "fence.sc.sys; // asm(";
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;\n" :: "r"(bar), "r"(1));
    asm volatile(
        "{\n\t"
        ".reg .pred P1;\n\t"
        "WAIT:\n\t"
        "mbarrier.try_wait.parity.shared::cta.b64 P1, [%0], %1;  // fence.sc.sys;\n\t"
        "@P1 bra DONE;\n\t"
        "bra WAIT;\n\t"
        "DONE:\n\t"
        "}" :: "r"(bar), "r"(0));
    asm volatile(R"(
        fence.proxy.async;
        cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0],
            [%1, {%2, %3}], [%4];
    )" :: "r"(tile), "l"(map), "r"(0), "r"(0), "r"(bar) : "memory");
    asm("mov.u32 %0, %%laneid;" : "=r"(bar));
    asm volatile(STORE " [%0, {%1}], [%2];" :: "l"(map), "r"(0), "r"(tile) : "memory");
    __asm__ __volatile__ ("cp.async.bulk.commit_group;" ::: "memory");
}
'''
FAMILIES = [
    (9, "mbarrier_init"), (14, "mbarrier_try_wait_parity"), (20, "fence_proxy_async"), (21, "tensor_load"),
    (25, "tensor_store"), (26, "bulk_commit_group"),
]  # fmt: skip


def facts(invoke: Invoke, *arguments: str, input: Any = None) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(invoke("explain", *arguments, "--json", input=input).stdout)
    return found


# One instruction.


def test_everything_the_library_says_is_said(invoke: Invoke) -> None:
    form = ptx.tensor_load(rank=2)
    result = invoke("explain", form.text)
    flat = " ".join(result.stdout.split())
    assert form.documentation in flat
    for operand in form.operands:
        assert f"{operand.name}" in flat
        assert operand.description in flat
    assert f"Completed by {ptx.completion(form)}." in flat
    assert "Needs PTX 8.0 (CUDA 12.0); exists on every target." in flat
    assert form.source in flat
    assert "barrier-to-load" in flat
    assert max(map(len, result.stdout.splitlines())) <= 80


def test_what_stands_for_the_operands_is_beside_them(invoke: Invoke) -> None:
    text = f"@%p1 {LOAD} [%r7], [%rd1, {{%r3, 5}}], [%r9];"
    lines = [line.split(":")[0].split()[:2] for line in invoke("explain", text).stdout.splitlines()]
    for place, name in (("%r7", "destination"), ("%rd1", "tensor_map"), ("5", "coordinate_1"), ("%r9", "mbarrier")):
        assert [place, name] in lines
    one = facts(invoke, text)["instructions"][0]
    assert one["given"]["coordinate_1"] == "5"
    assert one["guard"] == "@%p1"


def test_a_text_may_come_in_pieces_and_hold_several(invoke: Invoke) -> None:
    assert facts(invoke, *f"{LOAD} [%0], [%1, {{%2, %3}}], [%4];".split())["instructions"][0]["family"] == "tensor_load"
    assert len(facts(invoke, "fence.cta; fence.gpu;")["instructions"]) == 2


def test_names_and_spellings_without_operands_are_enough(invoke: Invoke) -> None:
    for text in ("tensor_load_2d", LOAD, "cp.async.bulk.tensor.2d.shared::cluster"):
        assert facts(invoke, text)["instructions"][0]["family"] == "tensor_load"


def test_a_note_says_what_was_unusual(invoke: Invoke) -> None:
    result = invoke("explain", "cp.async.bulk.tensor.2d.global.shared::cta [%0, {%1, %2}], [%3];")
    assert "Note: without a mode it is .tile" in result.stdout


def test_a_target_that_lacks_it_ends_with_1(invoke: Invoke) -> None:
    text = "tensormap.replace.tile.rank.shared::cta.b1024.b32 [%0], %1;"
    assert invoke("explain", text, "--target", "sm_90a").exit_code == 0
    result = invoke("explain", text, "--target", "sm_90")
    assert result.exit_code == 1
    assert "sm_90 does not have it, for want of tensormap.replace." in result.stdout


# Sources.


def test_inline_assembly_is_found_where_it_stands(invoke: Invoke, tmp_path: Path) -> None:
    path = tmp_path / "kernel.cu"
    path.write_text(ASSEMBLY)
    for source in (ASSEMBLY, ASSEMBLY.replace("\n", "\r\n")):
        found = facts(invoke, "-", input=source)
        assert [(i["line"], i["family"]) for i in found["instructions"]] == FAMILIES
        assert found["not_understood"] == []
    result = invoke("explain", str(path))
    assert f"{path}:21" in result.stdout
    assert "6 instructions of the family, 6 kinds" in result.stdout
    assert result.exit_code == 0


def test_the_source_and_what_the_compiler_makes_of_it_have_the_same_instructions(invoke: Invoke) -> None:
    pytest.importorskip("cuda.bindings.nvrtc", reason="needs cuda-python and NVRTC")
    code = invoke("compile", "-", "-o", "-", input=ASSEMBLY.replace("__asm__ __volatile__", "asm volatile")).stdout
    found = facts(invoke, "-", input=code)
    assert [i["family"] for i in found["instructions"]] == [family for _, family in FAMILIES]
    assert {i["function"] for i in found["instructions"]} == {"kernel"}
    for one in found["instructions"]:
        assert one["mnemonic"] in code.splitlines()[one["line"] - 1]


@pytest.mark.parametrize("rule", ["proxy-fence-missing", "load-never-waited", "exit-in-flight"])
def test_of_a_compiled_kernel_everything_is_understood(invoke: Invoke, rule: str) -> None:
    pytest.importorskip("cuda.bindings.nvrtc", reason="needs cuda-python and NVRTC")
    code = compile(RULES[rule].good, "sm_90a").ptx
    found = facts(invoke, "-", input=code)
    assert found["not_understood"] == []
    written = Counter(re.findall(r"(?<![\w.:%])((?:cp\.async\.bulk|mbarrier|fence)\.[\w.:]*)", code))
    assert written
    assert Counter(i["mnemonic"] for i in found["instructions"]) == written


def test_calls_of_the_header_s_functions_are_found(invoke: Invoke) -> None:
    source = """
    #include <cupytma.cuh>
    __global__ void k() {
        cupytma::tensor_load_2d(tile, &map, 0, 0, &bar);
        cupytma::tensor_store(&map, at, tile);  // any rank
        cupytma::bulk_wait_group<0>();
        cupytma::mbarrier_wait_parity(&bar, 0);
        other.fence_gpu(); fence_gpu(); mine::fence_gpu();
    }
    """
    found = facts(invoke, "-", input=source)
    assert [(i["line"], i["text"], i["family"]) for i in found["instructions"]] == [
        (4, "tensor_load_2d", "tensor_load"), (5, "tensor_store", "tensor_store"),
        (6, "bulk_wait_group", "bulk_wait_group"), (7, "mbarrier_wait_parity", "mbarrier_try_wait_parity"),
    ]  # fmt: skip
    using = facts(invoke, "-", input=source + "using namespace cupytma;")
    assert [i["text"] for i in using["instructions"]][-2:] == ["fence_gpu", "fence_gpu"]
    assert "mbarrier_wait_parity(), by mbarrier_try_wait_parity" in invoke("explain", "-", input=source).stdout


def test_what_no_assembler_takes_is_listed_and_ends_with_1(invoke: Invoke) -> None:
    code = "cp.async.bulk.tensor.2d.shared.global [%0], [%1, {%2, %3}], [%4];\ncp.async.ca.shared.global [a], [b], 16;"
    result = invoke("explain", "-", input=code)
    assert result.exit_code == 1
    assert "bare .shared is refused here" in " ".join(result.stdout.split())
    assert "1 not understood" in result.stdout
    found = facts(invoke, "-", input=code)
    assert [(one["line"], one["text"].split()[0]) for one in found["not_understood"]] == [(1, code.split()[0])]


def test_a_macro_from_elsewhere_is_named(invoke: Invoke) -> None:
    source = 'asm volatile("cp.async.bulk" REST : : "r"(x));\nasm("mov." TYPE " %0, 1;" : "=r"(x));'
    found = facts(invoke, "-", input=source)
    assert [(one["line"], one["text"]) for one in found["not_understood"]] == [(1, "asm(REST)")]


def test_a_form_is_explained_once_a_file(invoke: Invoke) -> None:
    result = invoke("explain", "-", input="fence.cta;\nfence.gpu;\nfence.cta;\n")
    assert result.stdout.count("of its cta scope") == 1
    assert "as at line 1" in result.stdout
    assert "3 instructions of the family, 2 kinds" in result.stdout


def test_what_all_need_is_said(invoke: Invoke) -> None:
    code = "wgmma.fence.sync.aligned;\nfence.proxy.async::generic.acquire.sync_restrict::shared::cluster.cluster;\n"
    found = facts(invoke, "-", input=code)
    assert (found["ptx_version"], found["targets"]) == ("8.6", ["sm_90a"])
    assert "together they need PTX 8.6 (CUDA 12.8) and exist on sm_90a" in " ".join(
        invoke("explain", "-", input=code).stdout.split()
    )


def test_the_catalogue_can_be_piped_in(invoke: Invoke) -> None:
    listed = invoke("catalogue", "--family", "tensor_store").stdout
    assert len(facts(invoke, "-", input=listed)["instructions"]) == len(listed.splitlines())


def test_other_families_are_passed_over() -> None:
    for mnemonic in ("cp.async.ca.shared.global", "prefetch.global.L2", "mov.u32", "barrier.sync", "st.async", ""):
        assert not is_of_family(mnemonic)
    for mnemonic in ("cp.async.bulk.nonsense", "prefetch.tensormap", "fence.nonsense", "mbarrier.init"):
        assert is_of_family(mnemonic)


def test_a_source_without_any_ends_well(invoke: Invoke) -> None:
    result = invoke("explain", "-", input="__global__ void k() {}")
    assert (result.exit_code, result.stdout) == (0, "no instruction of the family in it\n")
    assert result.stderr == ""


def test_what_is_no_source_at_all_is_told_what_would_be_one(invoke: Invoke) -> None:
    listed = invoke("catalogue").stdout
    result = invoke("explain", "-", input=listed)
    assert (result.exit_code, result.stdout) == (0, "no instruction of the family in it\n")
    assert "Note: this is neither PTX nor CUDA C++" in result.stderr


# What is wrong.


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([""], ["no instruction in it"]),
        ([";;"], ["no instruction in it"]),
        (["nope"], ["no instruction of the family"]),
        (["nope.ptx"], ["there is no file 'nope.ptx'"]),
        (["x" * 5000], ["no instruction"]),
        (["🙂"], ["no instruction"]),
        (["/"], ["cannot read '/'", "directory"]),
        (["cp.async.bulk.tensor"], ["tensor_load", "--rank"]),
        (["cp.async.bulk.tensor.2d.shared::cluster.global.tile [%0];"], ["do not fit"]),
        (["fence.cta;", "--target", "sm_80"], ["compute capability 9.0"]),
        (["fence.cta;", "--nope"], ["--nope"]),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_cannot_be_explained_is_refused_in_one_block(
    invoke: Invoke, arguments: list[str], words: list[str]
) -> None:
    assert_refused(invoke("explain", *arguments), *words)


@pytest.mark.parametrize(
    ("data", "word"),
    [(b"", "is empty"), (b" \n", "is empty"), (b"\x7fELF\0\0", "holds no text"), (b"fence.cta;\0", "holds no text"),
     (b"\xff\xfe\xfd", "holds no text")],
)  # fmt: skip
def test_files_that_are_no_text_are_refused(invoke: Invoke, tmp_path: Path, data: bytes, word: str) -> None:
    assert_refused(invoke("explain", "-", input=data), word)
    path = tmp_path / "file"
    path.write_bytes(data)
    assert_refused(invoke("explain", str(path)), word)


@FUZZ
@given(
    text=st.text(alphabet=st.sampled_from('asm("fence.%0;:)R{}[]/*\\\n\' _,'), max_size=200)
    | st.lists(
        st.sampled_from(["asm(", '"fence.cta;', '"', ")", ":", "R\"(", ")\"", "{", "}", "/*", "//", "\n", "x", LOAD]),
        max_size=40,
    ).map("".join)
)
def test_any_text_is_gone_through(text: str) -> None:
    for one in find(text):
        assert (one.instruction is None) == bool(one.problem)
        assert 1 <= one.line <= text.count("\n") + 2


def test_a_long_line_takes_no_time(invoke: Invoke) -> None:
    for unit in ("x", "{", '"', "asm(", "/*", "R\"(", "fence", "[", "(", "\\"):
        assert invoke("explain", "-", input=f'asm("{unit * 50_000}').exit_code in (0, 1)
        assert invoke("explain", "-", input=unit * 50_000).exit_code in (0, 1)
