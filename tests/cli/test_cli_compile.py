"""``cupytma compile``: where its results go, what it says of kernels, and how it ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from invoking import Invoke
from test_cli_hostile import assert_refused

from cupytma.errors import CompileError
from cupytma.runtime import nvrtc

pytest.importorskip("cuda.bindings.nvrtc", reason="needs cuda-python and NVRTC")

SOURCE = """
extern "C" __global__ void local(int n, float* out)
{
    float values[64];
    for (int i = 0; i < n; i++) values[i] = out[i];
    out[0] = values[n & 63];
}
extern "C" __global__ void shared(float* out)
{
    __shared__ float tile[1000];
    tile[threadIdx.x] = out[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = tile[blockDim.x - threadIdx.x];
}
"""


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    path = tmp_path / "kernel.cu"
    path.write_text(SOURCE)
    return path


def test_a_table_says_what_each_kernel_takes(invoke: Invoke, kernel: Path) -> None:
    lines = invoke("compile", str(kernel), "-t", "sm_90a,sm_100a").stdout.splitlines()
    assert lines[0].split("  ")[-1].strip() == "code B"
    rows = {tuple(line.split()[:2]): line.split()[2:] for line in lines[1:]}
    assert rows.keys() == {(target, name) for target in ("sm_90a", "sm_100a") for name in ("local", "shared")}
    for (_, name), (registers, shared, local, spilt, code) in rows.items():
        assert int(registers) > 0
        assert int(code.replace(",", "")) > 0
        assert (shared, local, spilt) == (("0", "256", "0") if name == "local" else ("4,000", "0", "0"))


def test_on_a_narrow_terminal_each_kernel_has_lines_of_its_own(
    invoke: Invoke, kernel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cupytma.cli.output.text_width", lambda: 40)
    result = invoke("compile", str(kernel))
    assert result.stdout.splitlines()[:2] == ["  sm_90a", "    kernel: local"]
    assert max(map(len, result.stdout.splitlines())) <= 40


def test_a_file_is_written_by_its_ending(invoke: Invoke, kernel: Path, tmp_path: Path) -> None:
    code, text = tmp_path / "k.cubin", tmp_path / "k.ptx"
    result = invoke("compile", str(kernel), "-o", str(code), "--json")
    assert code.read_bytes().startswith(b"\x7fELF")
    assert json.loads(result.stdout)["sm_90a"]["files"] == [str(code)]
    assert "written: k.ptx" in invoke("compile", str(kernel), "-o", str(text)).stdout
    assert text.read_text() == invoke("compile", str(kernel), "-o", "-").stdout


def test_ptx_on_standard_output_is_all_there_is(invoke: Invoke, kernel: Path) -> None:
    text = invoke("compile", "-", "-o", "-", input=SOURCE).stdout
    assert text.lstrip().startswith("//")
    assert ".target sm_90a" in text
    assert "registers" not in text


def test_json_names_the_resources(invoke: Invoke, kernel: Path) -> None:
    found = json.loads(invoke("compile", str(kernel), "--json").stdout)["sm_90a"]["kernels"]
    assert found["local"]["stack_bytes"] == 256
    assert found["shared"]["shared_bytes"] == 4000
    assert found["shared"]["barriers"] == 1


def test_a_source_that_does_not_compile_ends_with_1_and_others_are_made(invoke: Invoke, tmp_path: Path) -> None:
    source = "#if __CUDA_ARCH__ >= 1000\n#error no\n#endif\n" + SOURCE
    result = invoke("compile", "-", "-t", "sm_90a,sm_100a", "-o", str(tmp_path / "out"), input=source)
    assert result.exit_code == 1
    assert "Error: compiling for sm_100a" in result.stderr
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["kernel.sm_90a.cubin", "kernel.sm_90a.ptx"]
    result = invoke("compile", "-", "-t", "sm_100a", "--json", input=source)
    assert json.loads(result.stdout)["sm_100a"]["diagnostics"]
    assert result.stderr == ""


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-D", "a b"], ["'a b' is no macro", "NAME=VALUE"]),
        (["-D", ""], ["is no macro"]),
        (["-D", "=1"], ["is no macro"]),
        (["-I", "/no/such/folder"], ["/no/such/folder", "does not exist"]),
        (["--option", "-nonsense"], ["unrecognized option -nonsense"]),
        (["--option", "--gpu-architecture=sm_80"], ["--option '--gpu-architecture=sm_80'", "--target sm_90a"]),
        (["--option", ""], ["--option"]),
        (["--name", ""], ["--name"]),
        (["-o", "-", "-t", "sm_90a,sm_100a"], ["is for one target"]),
        (["-o", "x.ptx", "-t", "sm_90a,sm_100a"], ["is for one target"]),
        (["-o", "-", "--json"], ["give one of them"]),
        (["-o", "/dev/null/x"], ["cannot write into"]),
        (["-o", "/no/such/folder/x.ptx"], ["cannot write into"]),
    ],
    ids=lambda value: str(value)[:40].replace("\0", "0"),
)
def test_what_stands_around_a_source_is_refused_with_2(
    invoke: Invoke, kernel: Path, arguments: list[str], words: list[str]
) -> None:
    assert_refused(invoke("compile", str(kernel), *arguments), *words)


@pytest.mark.parametrize(
    ("data", "word"), [(b"\xff", "no text in UTF-8"), (b"int x;\0", "NUL character"), (b"\xff\xfe", "no text in UTF-8")]
)
def test_sources_that_are_no_text_are_refused(invoke: Invoke, data: bytes, word: str) -> None:
    assert_refused(invoke("compile", "-", input=data), word)


def test_files_that_cannot_be_read_are_refused(invoke: Invoke) -> None:
    assert_refused(invoke("compile", "/"), "cannot read '/'")
    assert_refused(invoke("compile", "absent.cu"), "cannot read 'absent.cu'", "No such file")
    assert_refused(invoke("compile", ""), "cannot read ''")


def test_without_a_compiler_it_is_said_once_and_ends_with_2(
    invoke: Invoke, kernel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(*_: object) -> None:
        raise CompileError("NVRTC is not usable here; pip install it")

    monkeypatch.setenv("CUPYTMA_CACHE_DIR", "")
    monkeypatch.setattr(nvrtc.Nvrtc, "load", missing)
    result = invoke("compile", str(kernel), "-t", "sm_90a,sm_100a", "-D", "NEVER_BEFORE")
    assert_refused(result, "pip install it")
    assert result.stderr.count("NVRTC is not usable here") == 1


@pytest.mark.parametrize("command", ["compile", "check"])
def test_errors_name_the_file_that_was_given(invoke: Invoke, tmp_path: Path, command: str) -> None:
    wrong = tmp_path / "a.cu"
    wrong.write_text("__global__ void k() {\n    nothing;\n}\n", encoding="utf-8")
    result = invoke(command, str(wrong))
    assert result.exit_code == (1 if command == "compile" else 2)
    # Lines end where the path's length says.
    assert "".join(f"{wrong}(2):error:".split()) in "".join(result.stderr.split())
    assert "kernel.cu" not in result.stderr


LONG = "int a_variable_with_a_long_name_that_nothing_reads, another_variable_with_a_long_name_that_nothing_reads_too;"


@pytest.mark.parametrize("wrong", ["", "\n    call(1, 2); "], ids=["warnings", "errors"])
@pytest.mark.parametrize("command", ["compile", "check"])
def test_what_the_compiler_says_is_wrapped_and_lines_of_the_source_are_whole(
    invoke: Invoke, tmp_path: Path, command: str, wrong: str
) -> None:
    source = "struct AVeryLongNameOfAStruct {}; void __device__ call(AVeryLongNameOfAStruct*, int*);\n"
    file = tmp_path / "a.cu"
    file.write_text(f"{source}__global__ void k() {{{wrong}{LONG} }}\n", encoding="utf-8")
    said = invoke(command, str(file)).stderr
    own, others = [], []
    for line in said.splitlines():
        (own if "^" in line or LONG in line else others).append(line)
    assert max(map(len, others), default=0) <= 80
    assert bool(own) == (bool(wrong) or command == "compile")


@pytest.mark.parametrize("command", ["compile", "check"])
@pytest.mark.parametrize(
    ("body", "is_explained"),
    [("nothing;", False), ("cupytma::tensor_load_9d();", True), ('asm("fence.proxy.sync;");', True)],
)
def test_errors_of_the_unit_alone_lead_to_the_how_to(
    invoke: Invoke, command: str, body: str, is_explained: bool
) -> None:
    source = f'#include <cupytma.cuh>\nextern "C" __global__ void k() {{ {body} }}'
    result = invoke(command, "-", input=source)
    assert "Error: compiling for sm_90a" in result.stderr
    assert ("More: cupytma help instruction-refused" in result.stderr) == is_explained
