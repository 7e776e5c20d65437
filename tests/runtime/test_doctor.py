"""``cupytma doctor`` and ``cupytma compile``: what they find, whatever is missing or broken."""

from __future__ import annotations

import builtins
import json
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from cupytma.cli.application import cli
from cupytma.errors import CompileError
from cupytma.runtime import environment, headers, nvrtc
from cupytma.runtime.environment import Device, Environment

ROOT = Path(__file__).parents[2]
SOURCE = 'extern "C" __global__ void k(int* p) { p[0] = VALUE; }'
TEMPLATE = "template <class T> __global__ void t(T* p) { p[0] = 1; }"


def run(*arguments: str, input: str | None = None) -> Result:
    result = CliRunner(env={"COLUMNS": "80"}).invoke(cli, arguments, input=input)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def has_nvrtc() -> bool:
    try:
        nvrtc.Nvrtc.load()
    except CompileError:
        return False
    return True


needs_nvrtc = pytest.mark.skipif(not has_nvrtc(), reason="needs cuda-python and NVRTC")


def test_one_screen_that_fits() -> None:
    lines = run("doctor").output.splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 80
    text = "\n".join(lines)
    for word in ("driver", "NVRTC", "targets", "headers", "cache", "What works"):
        assert word in text


@needs_nvrtc
def test_it_names_what_is_there() -> None:
    result = run("doctor", "--json")
    found = json.loads(result.output)
    assert result.exit_code == 0
    assert tuple(found["nvrtc_version"]) == nvrtc.Nvrtc.load().version
    assert Path(found["nvrtc_path"]).is_file()
    assert {"sm_90a", "sm_100a", "sm_120a"} <= set(found["targets"])
    assert found["packages"]["cuda-bindings"] == metadata.version("cuda-bindings")
    works = {ability["name"]: ability["works"] for ability in found["abilities"]}
    assert works["descriptors"]
    assert works["simulator"]
    assert works["compile"]


@needs_nvrtc
def test_every_named_target_compiles_and_no_other_of_the_table_does() -> None:
    from cupytma.runtime.compilation import Request
    from cupytma.targets import TARGETS

    library = nvrtc.Nvrtc.load()
    for name, target in TARGETS.items():
        request = Request('extern "C" __global__ void k() {}', target)
        if target in library.targets:
            assert library.compile(request).cubin
        else:
            with pytest.raises(nvrtc.CompilerRefusal):
                library.compile(request)
            assert name not in map(str, library.targets)


def test_without_a_compiler_it_says_how_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise CompileError("NVRTC is not usable here (No module named 'cuda'); install it")

    monkeypatch.setattr(nvrtc.Nvrtc, "load", missing)
    result = run("doctor")
    assert result.exit_code == 1
    assert "pip install 'cupytma[cuda" in result.output
    assert "NVRTC is not usable here" in result.output


def test_the_command_is_for_the_drivers_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    for driver, wanted in (((12, 4), 12), ((13, 0), 13), ((14, 2), 13), ((11, 8), None), (None, None)):
        assert Environment(driver_cuda=driver).cuda == wanted
    assert Environment(driver_cuda=(12, 9)).install == "pip install 'cupytma[cuda12]'"
    assert Environment(driver_cuda=(13, 0)).install == "pip install 'cupytma[cuda13]'"
    assert Environment(packages={"cuda-bindings": "13.1.0"}).cuda == 13
    assert Environment(nvrtc_version=(12, 9), driver_cuda=(13, 0)).cuda == 13


HOPPER = Device("NVIDIA H100", (9, 0), 80 << 30)
AMPERE = Device("NVIDIA A100", (8, 0), 40 << 30)


@pytest.mark.parametrize(
    ("found", "detail", "fix"),
    [
        (Environment(driver_problem="no driver here"), "no driver here", "compute capability 9.0"),
        (Environment(driver_cuda=(11, 8), devices=(HOPPER,)), "CUDA 11", "driver of 525"),
        (Environment(driver_cuda=(12, 8), devices=(AMPERE,)), "no GPU here has", "9.0 or newer"),
        (Environment(driver_cuda=(13, 0), devices=(HOPPER,)), "CuPy is not installed", "cupytma[cuda13]"),
        (
            Environment(
                driver_cuda=(12, 8), devices=(HOPPER,), packages={"cupy-cuda12x": "14", "cupy-cuda13x": "14"}
            ),
            "several CuPy packages clash", "pip uninstall cupy-cuda13x",
        ),
        (
            Environment(
                driver_cuda=(12, 8), devices=(HOPPER,), packages={"cupy-cuda13x": "14"}, nvrtc_version=(13, 0)
            ),
            "a driver for CUDA 12 cannot load", "cupytma[cuda12]",
        ),
    ],
)
def test_why_nothing_can_be_launched(found: Environment, detail: str, fix: str) -> None:
    works, said, do = environment._launching(found)
    assert not works
    assert detail in said
    assert fix in do


def test_packages_of_different_cuda_versions_are_noticed() -> None:
    found = Environment(packages={"cupy-cuda12x": "14.0", "cuda-bindings": "13.0.1"})
    assert "different versions of CUDA" in environment.problems(found)[0]
    assert environment.problems(Environment(packages={"cupy-cuda12x": "14.0", "cuda-bindings": "12.9.1"})) == []
    found = Environment(nvrtc_version=(13, 0), driver_cuda=(12, 8))
    assert "pip install 'cupytma[cuda12]'" in environment.problems(found)[0]


def test_missing_headers_name_their_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(headers, "needed_folders", lambda missing, major: ())
    commands = [how for _, how in environment.missing_headers(Environment(nvrtc_version=(12, 9)))]
    assert commands == ["pip install nvidia-cuda-runtime-cu12", "pip install nvidia-cuda-cccl-cu12"]
    commands = [how for _, how in environment.missing_headers(Environment(nvrtc_version=(13, 0)))]
    assert commands == ["pip install 'nvidia-cuda-runtime==13.*'", "pip install 'nvidia-cuda-cccl==13.*'"]
    assert environment.missing_headers(Environment()) == []


@pytest.mark.parametrize("error", [ImportError("broken"), OSError("no file"), RuntimeError("x"), ValueError("\0")])
def test_nothing_broken_ends_in_a_traceback(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def broken(*_: object, **__: object) -> Any:
        raise error

    monkeypatch.setattr(metadata, "version", broken)
    monkeypatch.setattr(nvrtc.Nvrtc, "load", broken)
    monkeypatch.setattr("cupytma.sim.load", broken)
    monkeypatch.setattr("ctypes.CDLL", lambda name: builtins.object())
    result = run("doctor")
    assert result.exit_code == 1
    assert "simulator" in result.output
    assert "no CUDA driver" in result.output


def test_it_runs_without_any_package_of_cuda(tmp_path: Path) -> None:
    """As after a plain ``pip install cupytma``."""
    for name in ("cuda", "cupy"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise ImportError('not here')\n")
    code = f"import sys; sys.path[:0] = [{str(tmp_path)!r}, {str(ROOT)!r}]\n" \
        "sys.modules.pop('cuda', None)\nsys.argv = ['cupytma', 'doctor']\nfrom cupytma.cli import main\nmain()"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=None, check=False)
    assert result.returncode == 1, result.stderr
    assert "Traceback" not in result.stdout + result.stderr
    assert "pip install 'cupytma[cuda" in result.stdout


# cupytma compile


@needs_nvrtc
def test_a_file_is_compiled_for_every_target(tmp_path: Path) -> None:
    file, output = tmp_path / "tile.cu", tmp_path / "out" / "deep"
    (tmp_path / "value.cuh").write_text("#define VALUE 5\n")
    file.write_text(f'#include <cupytma.cuh>\n#include "value.cuh"\n{SOURCE}')
    result = run("compile", str(file), "--target", "sm_90a,sm_100a", "-o", str(output))
    assert result.exit_code == 0
    assert max(map(len, result.output.splitlines())) <= 80
    assert "sm_90a " in result.output
    assert "sm_100a" in result.output
    names = sorted(path.name for path in output.iterdir())
    assert names == ["tile.sm_100a.cubin", "tile.sm_100a.ptx", "tile.sm_90a.cubin", "tile.sm_90a.ptx"]
    assert (output / "tile.sm_90a.cubin").read_bytes().startswith(b"\x7fELF")
    assert ".target sm_100a" in (output / "tile.sm_100a.ptx").read_text()


@needs_nvrtc
def test_defines_names_options_and_standard_input_reach_the_compiler() -> None:
    result = run("compile", "-", "-D", "VALUE=7", "--option", "-lineinfo", "--json", input=SOURCE)
    assert json.loads(result.output)["sm_90a"]["kernels"]["k"]["registers"] > 0
    result = run("compile", "-", "--name", "t<float>", input=TEMPLATE)
    assert "t<float>" in result.output


@needs_nvrtc
def test_what_does_not_compile_is_explained_and_ends_with_1() -> None:
    wrong = "__device__ CUtensorMap map;\n"
    result = run("compile", "-", "-t", "sm_90a,sm_90", input=wrong)
    assert result.exit_code == 1
    assert result.output.count("CUtensorMap comes with #include <cupytma.cuh>") == 2
    result = run("compile", "-", "--json", input=wrong)
    assert json.loads(result.stdout)["sm_90a"]["diagnostics"][0]["line"] == 1


@needs_nvrtc
def test_a_source_without_kernels_says_how_to_declare_one() -> None:
    assert 'extern "C" __global__' in run("compile", "-", input=TEMPLATE).output


@needs_nvrtc
def test_warnings_are_shown() -> None:
    source = '#include <cupytma.cuh>\nextern "C" __global__ void k(CUtensorMap m) { cupytma::prefetch_tensormap(&m); }'
    assert "__grid_constant__" in run("compile", "-", input=source).output


@pytest.mark.parametrize("target", ["", "sm_80", "sm_90a,", "sm_90a,nothing", "sm_90a;sm_100a"])
def test_targets_that_are_none_are_refused(target: str) -> None:
    result = run("compile", "-", "--target", target, input=SOURCE)
    assert result.exit_code == 2
    assert "sm_90a" in result.output


def test_files_that_cannot_be_read_or_written_are_named(tmp_path: Path) -> None:
    assert run("compile", str(tmp_path / "absent.cu")).exit_code == 2
    (tmp_path / "bytes.cu").write_bytes(b"\xff\xfe")
    result = run("compile", str(tmp_path / "bytes.cu"))
    assert result.exit_code == 2
    assert "no text in UTF-8" in result.output
    if has_nvrtc():
        result = run("compile", "-", "-D", "VALUE=1", "-o", str(tmp_path / "bytes.cu" / "x"), input=SOURCE)
        assert result.exit_code == 2
        assert "cannot write into" in result.output
