"""What the errors of the compiler say: the place, the line with a caret, and what it means for a TMA kernel."""

from __future__ import annotations

import pytest
from mistakes import MISTAKES, Mistake

import cupytma as tma
from cupytma.runtime import headers
from cupytma.runtime.diagnostics import parse_log, places

pytest.importorskip("cuda.bindings.nvrtc", reason="needs cuda-python and NVRTC")


@pytest.fixture(autouse=True)
def _no_toolkit_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The toolkit's headers may be installed here, and are not for these tests."""
    monkeypatch.setattr(headers, "needed_folders", lambda missing, major: ())


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda m: m.name)
def test_a_mistake_is_explained(mistake: Mistake) -> None:
    with pytest.raises(tma.CompileError) as caught:
        tma.compile(mistake.source, mistake.target)
    message = str(caught.value)
    for words in mistake.words:
        assert words in message
    assert caught.value.line == mistake.line
    assert caught.value.source == mistake.source
    assert caught.value.log
    if mistake.line is not None:
        line = mistake.source.splitlines()[mistake.line - 1]
        assert f"{mistake.line:>4} | {line}" in message


def test_there_are_enough_mistakes() -> None:
    assert len({mistake.name for mistake in MISTAKES}) == len(MISTAKES) >= 25


@pytest.mark.parametrize("statement", ["cupytma::nothing_of_the_kind();", 'asm volatile("tensormap.nothing;");'])
def test_the_caret_stands_below_what_is_wrong(statement: str) -> None:
    with pytest.raises(tma.CompileError) as caught:
        tma.compile(f'#include <cupytma.cuh>\nextern "C" __global__ void k() {{\n\t{statement}\n}}\n', "sm_90a")
    lines = str(caught.value).splitlines()
    caret = next(i for i, line in enumerate(lines) if line.strip(" |\t") == "^")
    column = lines[caret].index("^")
    assert lines[caret - 1][column:].startswith(("nothing", "tensormap"))
    assert lines[caret].count("\t") == lines[caret - 1][:column].count("\t") == 1


def test_an_error_of_the_assembler_in_an_inlined_function_points_at_the_call() -> None:
    source = """\
__device__ __forceinline__ void commit() { asm volatile("cp.async.bulk.commit_grp;"); }
extern "C" __global__ void k() {
    commit();
}
"""
    with pytest.raises(tma.CompileError) as caught:
        tma.compile(source, "sm_90a")
    assert caught.value.line in (1, 3)
    assert caught.value.diagnostics[0].statement == "cp.async.bulk.commit_grp"


def test_an_error_in_a_given_header_has_its_line() -> None:
    with pytest.raises(tma.CompileError) as caught:
        tma.compile("#include <mine.cuh>\n", "sm_90a", headers={"mine.cuh": "\n#error stop here\n"})
    first = caught.value.diagnostics[0]
    assert (first.file, first.line, first.text) == ("mine.cuh", 2, "#error stop here")
    assert caught.value.line is None


def test_warnings_are_diagnostics_and_do_not_crowd_the_message() -> None:
    with pytest.raises(tma.CompileError) as caught:
        tma.compile('extern "C" __global__ void k() { int unused; wrong(); }', "sm_90a")
    assert {d.severity for d in caught.value.diagnostics} == {"error", "warning"}
    assert "unused" not in str(caught.value).split("|")[0]
    assert "declared but never referenced" in caught.value.log


def test_many_errors_are_counted_and_a_few_are_shown() -> None:
    source = 'extern "C" __global__ void k() {\n' + "".join(f"wrong_{i}();\n" for i in range(40)) + "}"
    with pytest.raises(tma.CompileError) as caught:
        tma.compile(source, "sm_90a")
    message = str(caught.value)
    assert "40 errors" in message
    assert "and 34 more" in message
    assert message.count("is undefined") == 6


def test_a_target_that_is_too_new_says_which_compiler_has_it() -> None:
    if tma.runtime.nvrtc_version() >= (13, 0):
        pytest.skip("this NVRTC knows every target of the table")
    with pytest.raises(tma.CompileError, match=r"sm_110a needs PTX 9\.0, which NVRTC of CUDA 13\.0 writes.*pip inst"):
        tma.compile("", "sm_110a")


@pytest.mark.parametrize(
    "statement",
    [
        'asm volatile("multimem.cp.async.bulk.global.shared::cta.bulk_group [%1], [%0], 16;" :: "r"(a), "l"(b));',
        f"cupytma::{tma.ptx.multimem_bulk_copy().function_name}(b, b, 16);",
    ],
)
def test_an_instruction_that_is_too_new_says_which_compiler_has_it(statement: str) -> None:
    if tma.runtime.nvrtc_version() >= (13, 1):
        pytest.skip("this NVRTC has the instruction")
    source = f'#include <cupytma.cuh>\nextern "C" __global__ void k(unsigned a, void* b) {{ {statement} }}'
    with pytest.raises(tma.CompileError, match=r"needs PTX 9\.1, which NVRTC of CUDA 13\.1 writes.*pip install"):
        tma.compile(source, "sm_90a")


def test_too_much_static_shared_memory_names_the_way_out() -> None:
    if tma.runtime.nvrtc_version() >= (13, 0):
        pytest.skip("newer assemblers leave this to the driver")
    source = 'extern "C" __global__ void k(int* p) { __shared__ int a[25000]; a[p[0]] = 1; p[1] = a[p[2]]; }'
    with pytest.raises(tma.CompileError, match=r"shared_bytes=100000"):
        tma.compile(source, "sm_90a")


@pytest.mark.parametrize(
    ("name", "package"),
    [
        ("cuda_fp16.h", "nvidia-cuda-runtime"), ("cuda_bf16.h", "nvidia-cuda-runtime"),
        ("cuda_fp8.h", "nvidia-cuda-runtime"), ("cooperative_groups.h", "nvidia-cuda-runtime"),
        ("cuda/ptx", "nvidia-cuda-cccl"), ("cuda/barrier", "nvidia-cuda-cccl"),
        ("cuda/std/cstdint", "nvidia-cuda-cccl"),
        ("cub/block/block_reduce.cuh", "nvidia-cuda-cccl"), ("curand_kernel.h", "nvidia-curand"),
    ],
)
def test_a_missing_header_of_the_toolkit_names_its_package(name: str, package: str) -> None:
    major = tma.runtime.nvrtc_version()[0]
    with pytest.raises(tma.CompileError) as caught:
        tma.compile(f"#include <{name}>\n", "sm_90a")
    if major == 12:
        command = f"pip install {package}-cu12"
    else:
        command = f"pip install '{package}=={major}.*'" if "nvidia-cuda" in package else f"pip install {package}"
    assert str(caught.value).endswith(command)


def test_a_log_is_read_line_by_line() -> None:
    log = """\
ptxas application ptx input, line 7; error   : Unknown modifier '.x'
ptxas fatal   : Ptx assembly aborted due to errors
nvrtc: error: unrecognized option --x found
Command-line error: invalid macro definition: 1
kernel.cu(2): catastrophic error: could not open source file "a"
  here
  ^

kernel.cu(2): warning #177-D: variable "here" was declared but never referenced
"""
    found = parse_log(log, lambda file, line: "  here" if (file, line) == ("kernel.cu", 2) else "")
    assert [(d.severity, d.line, d.column) for d in found] == [
        ("error", 7, None), ("error", None, None), ("error", None, None), ("error", 2, 0), ("warning", 2, 2),
    ]
    assert [d.from_assembler for d in found] == [True, False, False, False, False]


def test_places_follow_inlined_calls_out_of_our_header() -> None:
    ptx = """\
.entry k()
	.loc	1 5 3
	mov a;
	.loc	2 90 1, function_name $x, inlined_at 2 40 1
	asm b;
	.loc	2 40 1, function_name $y, inlined_at 1 6 3
	asm c;
	.file	1 "/build/kernel.cu"
	.file	2 "/build/cupytma.cuh"
"""
    found = places(ptx, lambda name: name.rpartition("/")[2], {"kernel.cu"})
    assert found[2] == ("kernel.cu", 5)
    assert found[4] == ("kernel.cu", 6)


def test_messages_stay_short_whatever_is_compiled() -> None:
    line = "int a; " * 20_000 + "wrong(); " + "int b; " * 20_000
    with pytest.raises(tma.CompileError) as caught:
        tma.compile(f'extern "C" __global__ void k() {{\n{line}\n}}', "sm_90a")
    assert len(str(caught.value)) < 5_000
    module = tma.compile("template <class T> __global__ void k(T* p) {}", "sm_90a")
    with pytest.raises(tma.LaunchError) as refused:
        module.kernel("k<" * 50_000)
    assert len(str(refused.value)) < 10_000


def test_the_caret_of_a_long_line_stands_below_its_name() -> None:
    line = "/* " + "x" * 3_000 + " */ wrong(); /* " + "y" * 3_000 + " */"
    with pytest.raises(tma.CompileError) as caught:
        tma.compile(f'extern "C" __global__ void k() {{\n{line}\n}}', "sm_90a")
    shown, below = str(caught.value).splitlines()[2:4]
    assert shown[below.index("^") :].startswith("wrong();")
    assert len(shown) < 500
