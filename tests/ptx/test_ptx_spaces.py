"""Pointers to the wrong state space: NVRTC dies of some conversions of them, which the header's functions avoid.

Every compilation is one process of its own, since what is tested is that the process outlives it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from assembler import assemblers

import cupytma
from cupytma import ptx
from cupytma.ptx import Instruction

COMPILE = """
import sys
from pathlib import Path
from assembler import Assembler
print(Assembler(Path(sys.argv[1])).compile(sys.stdin.read(), sys.argv[2], "PTX")[0])
"""
#: At namespace scope, and in the kernel; each declares a pointer `wrong`.
VARIABLES = {
    "static shared memory": ("", "__shared__ alignas(128) unsigned long long wrong[16];"),
    "dynamic shared memory": ("", "extern __shared__ unsigned long long wrong[];"),
    "local memory": ("", "unsigned long long wrong[16] = {}; wrong[number] = 2; out[3] = wrong[number + 1];"),
    "global memory": ("__device__ unsigned long long wrong[16];", ""),
    "constant memory": ("__constant__ unsigned long long wrong[16];", ""),
    "a parameter": ("", "const void* wrong = &map;"),
    "nothing": ("", "void* wrong = nullptr;"),
}


def one_form_per_kind_of_address(target: str) -> list[Instruction]:
    """Forms of every family with every combination of address operands."""
    forms = {}
    for i in ptx.catalogue():
        addresses = tuple((o.space, o.c_type, o.name) for o in i.operands if o.space)
        in_header = i.family != "wgmma_mma_async" and not i.function_name.endswith("_generic_u32")
        if addresses and in_header and i.supported_on(target) and i.ptx_version <= (8, 8):
            forms.setdefault((i.family, addresses), i)
    return list(forms.values())


def call(i: Instruction) -> str:
    """A call with `wrong` for every address."""
    arguments: dict[str, str] = {}
    declared = []
    for o in i.parameters:
        if o.vector and o.packed:
            arguments[o.vector] = o.vector
            count = sum(p.vector == o.vector for p in i.parameters)
            declared.append(f"{o.c_type} {o.vector}[{count}] = {{}};" if o.index == 0 else "")
        elif o.is_output:
            arguments[o.name] = o.name
            declared.append(f"{o.c_type} {o.name};")
        else:
            arguments[o.name] = f"({o.c_type})wrong" if o.space else "1"
    values = [str(o.values[0]) for o in i.immediates if o.values]
    template = f"<{', '.join(values)}>" if values else ""
    return f"{{ {' '.join(declared)} cupytma::{i.function_name}{template}({', '.join(arguments.values())}); }}"


def compiled_apart(source: str, version: tuple[int, int], target: str) -> subprocess.CompletedProcess[str]:
    """What became of a process that compiles the source: its output is NVRTC's status."""
    command = [sys.executable, "-c", COMPILE, str(assemblers()[version].path), target]
    folders = (Path(cupytma.__file__).parents[1], Path(__file__).parent)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, folders))}
    return subprocess.run(command, input=source, capture_output=True, text=True, env=environment, check=False)


@pytest.mark.parametrize("variable", VARIABLES)
@pytest.mark.parametrize("version", assemblers(), ids=lambda version: ".".join(map(str, version)))
def test_a_pointer_to_another_space_does_not_kill_the_compiler(version: tuple[int, int], variable: str) -> None:
    target = "sm_90a"
    outside, inside = VARIABLES[variable]
    forms = one_form_per_kind_of_address(target)
    assert {"shared::cta", "shared::cluster", "global", "const"} <= {o.space for i in forms for o in i.operands}
    source = f"""
        {ptx.header(target, only=forms)}
        {outside}
        extern "C" __global__ void k(const __grid_constant__ CUtensorMap map, unsigned long long* out, unsigned number)
        {{
            {inside}
            {" ".join(map(call, forms))}
        }}"""
    done = compiled_apart(source, version, target)
    # Negative would be the signal that ended the process. That some of it is refused is right.
    assert done.returncode == 0, done.stderr
    if version == (12, 9):
        assert done.stdout == "0\n"  # refused by name: runtime.addresses


@pytest.mark.skipif((12, 9) not in assemblers(), reason="needs the NVRTC 12.9 wheel, nvidia-cuda-nvrtc-cu12")
def test_what_the_functions_avoid_does_kill_it() -> None:
    source = """
        extern "C" __global__ void k() {
            __shared__ int wrong[4];
            asm volatile("prefetch.global.L2 [%0];" :: "l"(__cvta_generic_to_global(wrong)));
        }"""
    assert compiled_apart(source, (12, 9), "sm_90a").returncode < 0
