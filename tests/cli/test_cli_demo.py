"""``cupytma demo``: passes with and without a GPU, fails when the result is wrong, runs without a compiler."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import cupytma
from cupytma.cli import demo_checks
from cupytma.errors import CompileError, NoDeviceError
from cupytma.runtime import compiler


@pytest.fixture
def no_gpu(monkeypatch):
    def refuse() -> None:
        raise NoDeviceError("no GPU for this test")

    monkeypatch.setattr(compiler, "current_target", refuse)


def _demo(*prelude: str, cwd: object = None, **environment: str) -> subprocess.CompletedProcess[str]:
    code = "; ".join((*prelude, "from cupytma.cli import main", "main()"))
    return subprocess.run(
        [sys.executable, "-c", code, "demo"], cwd=cwd, capture_output=True, text=True,
        env={**os.environ, "COLUMNS": "80", **environment},
    )


def test_one_screen(invoke, no_gpu):
    result = invoke("demo")
    lines = result.stdout.splitlines()
    assert result.exit_code == 0, result.stdout
    assert max(map(len, lines)) <= 80
    assert len(lines) <= 50
    assert result.stderr == ""


def test_shows_the_whole_chain(invoke, no_gpu):
    text = invoke("demo").stdout
    assert "Tiled(data_type='FLOAT16'" in text
    for word in cupytma.cli.demo_kernel.parameters(demo_checks.SOURCE_ADDRESS).encode().words:
        assert f"{word:016x}" in text or word == 0
    assert "[63:32] global_strides[0] 96" in text
    assert "cp.async.bulk.tensor.2d.shared::cluster.global.tile" in text
    assert "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group" in text
    assert "cupytma::tensor_load_2d" in text
    assert "On the simulator" in text
    assert text.count("  pass  ") == 2


def test_sizes_for_two_architectures(invoke, no_gpu):
    try:
        compiler.nvrtc_version()
    except CompileError as error:
        pytest.skip(str(error))
    text = invoke("demo").stdout
    assert "sm_90a" in text
    assert "sm_100a" in text


def test_from_any_directory_without_a_gpu(tmp_path):
    result = _demo(cwd=tmp_path, CUDA_VISIBLE_DEVICES="")
    assert result.returncode == 0, result.stderr
    assert "On the simulator" in result.stdout


def test_without_a_compiler_it_says_how_to_get_one():
    result = _demo("import sys", "sys.modules['cuda.bindings'] = None")
    assert result.returncode == 0, result.stderr
    assert "pip install 'cupytma[cuda12]'" in " ".join(result.stdout.split())
    assert result.stdout.count("  pass  ") == 2


def test_without_cupy_it_says_so():
    result = _demo("import sys", "sys.modules['cupy'] = None")
    assert result.returncode == 0, result.stderr
    assert "On the simulator (CuPy is not installed)" in result.stdout


@pytest.mark.parametrize("broken", ["store", "load"])
def test_a_wrong_result_fails(invoke, no_gpu, monkeypatch, broken):
    from cupytma import sim

    monkeypatch.setattr(sim, broken, lambda *_, **__: 0)
    result = invoke("demo")
    assert result.exit_code == 1
    assert "FAIL  move_tile" in result.stdout
    assert "FAIL  copy" in result.stdout


def test_a_failure_on_the_gpu_is_no_traceback():
    check = demo_checks._guarded("copy", lambda: 1 / 0)
    assert not check.passed
    assert "ZeroDivisionError" in check.detail


@pytest.mark.gpu
def test_on_a_gpu():
    result = _demo()
    assert result.returncode == 0, result.stdout + result.stderr
    assert "On the GPU" in result.stdout
    assert "GB/s" in result.stdout
    assert result.stdout.count("  pass  ") == 2
