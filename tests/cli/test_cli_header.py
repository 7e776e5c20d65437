"""``cupytma header``: what it prints and writes, for which target, and with which functions."""

from __future__ import annotations

from pathlib import Path

import pytest
from invoking import Invoke
from test_cli_hostile import assert_refused

from cupytma import ptx


def test_it_is_the_library_s_header(invoke: Invoke) -> None:
    assert invoke("header", "--no-wgmma").stdout == ptx.header("sm_90a", wgmma=False)
    assert invoke("header", "--target", "sm_120", "-o", "-").stdout == ptx.header("sm_120")


def test_only_some_functions_and_what_they_call(invoke: Invoke) -> None:
    text = ptx.header("sm_90a", ["tensor_load_2d", "mbarrier_wait_parity"])
    assert invoke("header", "--only", "tensor_load_2d, mbarrier_wait_parity").stdout == text
    assert invoke("header", "--only", "tensor_load_2d", "--only", "mbarrier_wait_parity").stdout == text
    assert "mbarrier_try_wait_parity(" in text


def test_a_file_is_written_and_compiles(invoke: Invoke, tmp_path: Path) -> None:
    path = tmp_path / "my.cuh"
    result = invoke("header", "--only", "fence_proxy_async", "--output", str(path))
    assert path.read_text() == ptx.header("sm_90a", "fence_proxy_async")
    assert " ".join(result.stdout.split()).endswith(f"1 function for sm_90a, {path.stat().st_size:,} bytes")
    pytest.importorskip("cuda.bindings.nvrtc", reason="needs cuda-python and NVRTC")
    kernel = tmp_path / "kernel.cu"
    kernel.write_text('#include "my.cuh"\nextern "C" __global__ void k() { cupytma::fence_proxy_async(); }')
    assert "fence.proxy.async;" in invoke("compile", str(kernel), "-o", "-").stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--only", "nope"], ["the header has no function 'nope'", "it has, for example"]),
        (["--only", "tensor_load_2d_cta_group_1"], ["sm_90a has no", "targets that do", "sm_100a"]),
        (["--only", ","], ["names no function"]),
        (["--only", "x" * 5000], ["has no function"]),
        (["--target", "sm_80"], ["compute capability 9.0"]),
        (["--target", "🙂"], ["unknown target"]),
        (["--output", "/"], ["directory"]),
        (["--output", "/no/such/folder/x.cuh"], ["cannot write", "No such file or directory"]),
        (["more"], ["unexpected extra argument"]),
    ],
    ids=lambda value: str(value)[:30].replace("\0", "0"),
)
def test_what_cannot_be_is_refused_in_one_block(invoke: Invoke, arguments: list[str], words: list[str]) -> None:
    assert_refused(invoke("header", *arguments), *words)
