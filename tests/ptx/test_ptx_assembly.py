"""Every form through the assembler: each wrapper's text arrives in the PTX, and the version table is true."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from cupytma import ptx
from cupytma.ptx import Instruction, Operand
from cupytma.runtime.compiler import compile as compile_cuda

ARGUMENTS = {
    "destination": "tile",
    "source": "tile",
    "mbarrier": "&barrier",
    "leader_lane": "lane",
    "cta_mask": "mask",
    "cache_policy": "policy",
}
MAPS = {"generic": "maps + 1", "param": "&map", "const": "&constant_map"}


def argument(operand: Operand) -> str:
    """An expression for a parameter of a wrapper."""
    if operand.name == "tensor_map":
        return MAPS[operand.space or ""]
    return ARGUMENTS.get(operand.name, "number")


def call(i: Instruction) -> str:
    """A statement that calls the wrapper, with its result written out so that it has a use."""
    immediates = "<5>" if any(o.is_immediate for o in i.operands) else ""
    value = f"cupytma::{i.function_name}{immediates}({', '.join(argument(o) for o in i.parameters)})"
    return f"out[{len(i.text)}] = {value};" if i.result else f"{value};"


def pattern(i: Instruction) -> str:
    """A regular expression for the text with registers, predicates or immediates in its places."""
    return r"(?<!\S)" + re.sub(r"%\d+", r"(?:%\\w+|p0|5)", re.escape(i.text))


@pytest.mark.parametrize("target", ["sm_90a", "sm_100a"])
def test_every_form_assembles_and_its_text_arrives_in_the_ptx(target: str) -> None:
    forms = [i for i in ptx.catalogue() if i.supported_on(target)]
    assert len(forms) == len(ptx.catalogue())
    calls = "\n".join(call(i) for i in forms)
    source = f"""
        #include <cupytma.cuh>
        __constant__ CUtensorMap constant_map;
        extern "C" __global__ void forms(const __grid_constant__ CUtensorMap map, const CUtensorMap* maps,
                                         unsigned long long* out, unsigned number, unsigned short mask,
                                         unsigned long long policy) {{
            __shared__ alignas(128) char tile[128];
            __shared__ unsigned long long barrier;
            unsigned lane = 0;
            {calls}
            out[0] = lane;
        }}"""
    module = compile_cuda(source, target=target)
    assert module.cubin
    missing = [i.text for i in forms if not re.search(pattern(i), module.ptx)]
    assert missing == []


def test_addresses_are_converted_to_their_state_space() -> None:
    source = """
        #include <cupytma.cuh>
        __constant__ CUtensorMap constant_map;
        extern "C" __global__ void spaces(const __grid_constant__ CUtensorMap map) {
            cupytma::prefetch_tensormap_param(&map);
            cupytma::prefetch_tensormap_const(&constant_map);
        }"""
    code = compile_cuda(source, target="sm_90a").ptx
    assert "cvta.to.param" in code or re.search(r"mov\.[bu]64\s+%rd\d+, spaces_param_0;", code)
    assert "cvta.to.const" in code or re.search(r"mov\.[bu]64\s+%rd\d+, constant_map;", code)


def refused_lines(forms: tuple[Instruction, ...], version: tuple[int, int]) -> set[str]:
    """The texts that ptxas refuses in a module of a PTX ISA version."""
    lines = [
        f".version {version[0]}.{version[1]}",
        ".target sm_90",
        ".address_size 64",
        ".visible .entry k() { .reg .b16 h<20>; .reg .b32 r<20>; .reg .b64 l<20>; .reg .pred p<20>;",
    ]
    at = {}
    for i in forms:
        letters = ["5" if o.is_immediate else ("p" if o.is_predicate else o.constraint[-1]) for o in i.operands]
        names = [letter if letter == "5" else f"{letter}{n}" for n, letter in enumerate(letters)]
        lines.append(re.sub(r"%(\d+)", lambda m, names=names: names[int(m[1])], i.text))  # type: ignore[misc]
        at[len(lines)] = i.text
    program = "\n".join([*lines, "ret; }"])
    command = ["ptxas", "-arch", "sm_90", "-o", "/dev/null", "-"]
    done = subprocess.run(command, input=program, capture_output=True, text=True, check=False)
    refused = {at[int(line)] for line in re.findall(r"line (\d+); error", done.stderr)}
    assert bool(refused) == bool(done.returncode), done.stderr
    return refused


@pytest.mark.skipif(shutil.which("ptxas") is None, reason="ptxas is not installed")
@pytest.mark.parametrize("version", [(7, 8), (8, 0), (8, 5), (8, 6)])
def test_a_ptx_version_has_exactly_the_forms_that_claim_it(version: tuple[int, int]) -> None:
    newer = {i.text for i in ptx.catalogue() if i.ptx_version > version}
    assert refused_lines(ptx.catalogue(), version) == newer
