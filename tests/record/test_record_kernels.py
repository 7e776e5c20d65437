"""The recorder's kernels and what they share with Python."""

from __future__ import annotations

import re

import pytest

from cupytma.kernels import source
from cupytma.record import forms
from cupytma.record.hardware import COPY
from cupytma.targets import target

pytest.importorskip("cuda.bindings.nvrtc", reason="needs cuda-python and NVRTC")


@pytest.mark.parametrize("name", ["sm_90a", "sm_100a", "sm_120a"])
def test_the_kernels_compile(name: str) -> None:
    module = forms.kernels(target(name))
    assert module.cubin.startswith(b"\x7fELF")
    assert {"record_load", "record_store", "record_reduce"} <= set(module.signatures)
    assert "warning #" not in module.log


def test_the_operands_have_the_size_that_the_kernels_declare() -> None:
    parameter = forms.kernels(target("sm_90a")).signatures["record_load"].parameters[1]
    assert (parameter.size, parameter.is_struct) == (COPY.itemsize, True)
    declared = re.search(r"struct Copy \{(.*?)\};", source("record.cu"), re.DOTALL)
    assert declared
    assert re.findall(r"(\w+)(?:\[\d\])?;", declared[1]) == list(COPY.names or ())


@pytest.mark.parametrize("name", ["sm_90a", "sm_100a"])
def test_every_form_that_the_target_has_is_there_once(name: str) -> None:
    text = forms.header(target(name))
    for function in re.split(r"__device__", text)[1:]:
        numbers = re.findall(r"case (\d+):", function)
        assert len(numbers) == len(set(numbers)) > 0
    assert ("gather4" in text) == ("scatter4" in text) == ("im2col_w_128" in text) == (name == "sm_100a")
    assert f"case {forms.load_form(3, 'im2col')}: cupytma::tensor_load_3d_im2col(" in text
    assert f"case {forms.reduce_form(2, 'xor')}: cupytma::tensor_reduce_xor_2d(" in text


def test_no_kernel_waits_for_ever() -> None:
    """Waits are bounded by time, but for the store's own, which the process's patience bounds."""
    text = source("record.cu")
    assert "wait_parity(&" not in text.replace("test_wait_parity", "")
    assert text.count("while (") == 2
    for loop in re.findall(r"while \(.*?\n    \}\n", text, re.DOTALL):
        assert "nanoseconds()" in loop
