"""What kernels take, read from the machine code, beside what the assembler and cuobjdump say."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import cupytma as tma
from cupytma.errors import CompileInputError
from cupytma.runtime.resources import read_resources

pytest.importorskip("cuda.bindings.nvrtc", reason="needs cuda-python and NVRTC")

SOURCE = """
__device__ int global_array[10];
__constant__ int constant_array[8];
__device__ __noinline__ int recursive(int n) {
    volatile int local[10];
    local[n % 10] = n;
    return n < 2 ? 1 : recursive(n - 1) + local[n % 3];
}
extern "C" __global__ void nothing() {}
extern "C" __global__ void small_shared(int* p) {
    __shared__ char x;
    x = p[0]; __syncthreads(); p[1] = x + global_array[3] + constant_array[p[2]]; global_array[p[3]] = 1;
}
extern "C" __global__ void large_shared(int* p) {
    __shared__ int s[2500];
    s[p[0]] = p[1]; __syncthreads(); p[2] = s[p[3]]; asm volatile("bar.sync 5;");
}
extern "C" __global__ void dynamic_shared(int* p) {
    extern __shared__ int d[];
    d[threadIdx.x] = 1; __syncthreads(); p[0] = d[3];
}
extern "C" __global__ void local_array(float* p, int n) {
    float a[64];
    for (int i = 0; i < n; i++) a[(i * n) % 64] = p[i];
    p[0] = a[n % 64];
}
extern "C" __global__ void recursion(int* p) { p[0] = recursive(p[1]); }
extern "C" __global__ void __launch_bounds__(128) __cluster_dims__(2, 1, 1) bounded(float* p, int n, char c) {
    p[n] = c;
}
extern "C" __global__ void spilling(float* p, int n) {
    float a[120];
#pragma unroll
    for (int i = 0; i < 120; i++) a[i] = p[i * n];
#pragma unroll
    for (int i = 0; i < 120; i++) p[i * n + 1] = a[i] * a[(i * 7) % 120];
}
"""
TARGETS = ["sm_90", "sm_90a", "sm_100a", "sm_103a", "sm_120a"]


@pytest.fixture(scope="module", params=TARGETS)
def module(request: pytest.FixtureRequest) -> tma.runtime.Module:
    return tma.compile(SOURCE, request.param, ["--ptxas-options=-v", "--maxrregcount=40"])


def _reported(log: str) -> dict[str, dict[str, int]]:
    """The assembler's report, by kernel: its own words, read without the code under test."""
    found: dict[str, dict[str, int]] = {}
    for part in log.split("Compiling entry function '")[1:]:
        name = part.partition("'")[0]
        used = next(line for line in part.splitlines() if "Used" in line)
        numbers = {what: int(n) for n, what in re.findall(r"(\d+) (registers|barriers|bytes smem)", used)}
        properties = part.partition(f"Function properties for {name}\n")[2].splitlines()[0]
        sizes = re.findall(r"(\d+) bytes (stack frame|spill stores|spill loads)", properties)
        numbers |= {what: int(n) for n, what in sizes}
        numbers["cumulative"] = int((re.search(r"(\d+) bytes cumulative stack", used) or [0, 0])[1])
        found[name] = numbers
    return found


def test_everything_agrees_with_the_assemblers_report(module: tma.runtime.Module) -> None:
    reported = _reported(module.log)
    assert set(reported) == set(module.resources) == set(module.kernels)
    for name, numbers in reported.items():
        taken = module.resources[name]
        assert taken.registers == numbers["registers"], name
        assert taken.barriers == numbers["barriers"], name
        assert taken.shared_bytes == numbers.get("bytes smem", 0), name
        assert taken.frame_bytes == numbers["stack frame"], name
        assert taken.spill_store_bytes == numbers["spill stores"], name
        assert taken.spill_load_bytes == numbers["spill loads"], name
        if name != "recursion":
            assert taken.stack_bytes == numbers["cumulative"], name


def test_the_report_covers_what_it_should(module: tma.runtime.Module) -> None:
    taken = module.resources
    assert taken["spilling"].spill_store_bytes > 0
    assert taken["spilling"].spill_load_bytes > 0
    assert taken["local_array"].stack_bytes >= 256
    assert taken["large_shared"].shared_bytes == 10000
    assert taken["large_shared"].barriers == 6
    assert taken["nothing"].shared_bytes == taken["dynamic_shared"].shared_bytes == 0


def test_promises_of_the_kernel_are_read(module: tma.runtime.Module) -> None:
    bounded, nothing = module.resources["bounded"], module.resources["nothing"]
    assert (bounded.max_threads, bounded.cluster) == ((128, 1, 1), (2, 1, 1))
    assert (nothing.max_threads, nothing.cluster, nothing.required_threads) == (None, None, None)
    assert (bounded.parameter_bytes, nothing.parameter_bytes) == (13, 0)
    assert bounded.code_bytes % 128 == 0


def test_parameter_bytes_agree_with_the_signature(module: tma.runtime.Module) -> None:
    for name, taken in module.resources.items():
        assert taken.parameter_bytes == module.signatures[name].size


def _cuobjdump() -> str | None:
    places = [Path(base) / "nvidia" / "cu13" / "bin" / "cuobjdump" for base in sys.path]
    return next((str(place) for place in places if place.exists()), shutil.which("cuobjdump"))


@pytest.mark.skipif(_cuobjdump() is None, reason="needs cuobjdump (pip install nvidia-cuda-cuobjdump)")
def test_everything_agrees_with_cuobjdump(module: tma.runtime.Module, tmp_path: Path) -> None:
    (tmp_path / "code.cubin").write_bytes(module.cubin)
    printed = subprocess.run(
        [_cuobjdump() or "", "-res-usage", str(tmp_path / "code.cubin")], capture_output=True, text=True, check=True
    ).stdout
    seen = re.findall(r"Function (\w+):\s+REG:(\d+) STACK:(\w+) SHARED:(\d+) LOCAL:\d+ CONSTANT\[0\]:(\d+)", printed)
    assert {name for name, *_ in seen} == set(module.resources)
    for name, registers, stack, shared, constant in seen:
        taken = module.resources[name]
        assert taken.registers == int(registers)
        assert taken.shared_bytes == max(0, int(shared) - 1024)  # it counts the system's 1 KB
        assert taken.constant_bytes == int(constant)
        if name != "recursion":
            assert taken.stack_bytes == int(stack)


def test_the_log_is_empty_unless_the_report_is_asked_for() -> None:
    source = 'extern "C" __global__ void k(int* p) { p[0] = 1; }'
    assert tma.compile(source, "sm_90a").log == ""
    assert "registers" in tma.compile(source, "sm_90a", ["--ptxas-options=-v"]).log


@pytest.mark.parametrize("data", [b"", b"\x7fELF", b"PK\x03\x04" + bytes(100), b"\x7fELF\x02\x01" + bytes(58)])
def test_what_is_no_cubin_is_refused(data: bytes) -> None:
    with pytest.raises(CompileInputError, match="cubin"):
        read_resources(data)


def test_a_cubin_cut_anywhere_is_read_or_refused_and_no_more() -> None:
    cubin = tma.compile(SOURCE, "sm_90a").cubin
    for size in range(0, len(cubin), 997):
        try:
            read_resources(cubin[:size])
        except CompileInputError:
            continue
