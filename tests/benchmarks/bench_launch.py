"""What a launch costs on the host, beside CuPy, cuda-python's bare call and Triton; and how long a first launch takes.

Needs a GPU. Run it by name, with pytest-benchmark installed; compare medians of one run:

    pytest tests/benchmarks/bench_launch.py --benchmark-columns=median,min,iqr

The kernels do nothing, so that the GPU keeps up with the host.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

import cupytma as tma

pytest.importorskip("pytest_benchmark", reason="pip install pytest-benchmark")
pytestmark = pytest.mark.gpu

SOURCE = """
#include <cupytma.cuh>
extern "C" __global__ void maps(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b,
                                const __grid_constant__ CUtensorMap c) {}
extern "C" __global__ void pointers(float* a, float* b, float* c) {}
extern "C" __global__ void mixed(const __grid_constant__ CUtensorMap a, float* b, int c, float d) {}
"""
LAUNCHES, ROUNDS = 200, 100


@pytest.fixture(scope="module")
def module() -> tma.runtime.Module:
    return tma.compile(SOURCE)


@pytest.fixture(scope="module")
def array() -> Any:
    import cupy

    return cupy.zeros((4096, 4096), cupy.float32)


@pytest.fixture(scope="module")
def maps(array: Any) -> list[tma.TensorMap]:
    return [tma.tensor_map(array, box=(32, 32)) for _ in range(3)]


def measure(benchmark: Any, launch: Callable[[], object]) -> None:
    import cupy

    launch()
    cupy.cuda.Device().synchronize()
    benchmark.pedantic(launch, rounds=ROUNDS, iterations=LAUNCHES, warmup_rounds=5)


def test_cupy_raw_kernel_with_three_descriptors(benchmark: Any, module: Any, maps: Any) -> None:
    raw = module.kernel("maps").function().raw
    values = tuple(tensor_map.to_numpy() for tensor_map in maps)
    measure(benchmark, lambda: raw((1,), (32,), values))


def test_cupy_raw_kernel_with_three_arrays(benchmark: Any, module: Any, array: Any) -> None:
    raw = module.kernel("pointers").function().raw
    measure(benchmark, lambda: raw((1,), (32,), (array, array, array)))


def test_bare_call_through_cuda_python(benchmark: Any, module: Any, maps: Any) -> None:
    from cuda.bindings import driver

    kernel = module.kernel("maps")
    memory = tma.runtime.ParameterBlock(kernel.signature)
    kernel.marshaller.fill(memory.data, maps)
    function, pointers = driver.CUfunction(kernel.function().handle), memory.pointers
    measure(benchmark, lambda: driver.cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, 0, pointers, 0))


def test_call_with_three_descriptors(benchmark: Any, module: Any, maps: Any) -> None:
    kernel = module.kernel("maps")
    measure(benchmark, lambda: kernel(1, 32, maps))


def test_call_with_three_descriptors_in_clusters(benchmark: Any, module: Any, maps: Any) -> None:
    kernel = module.kernel("maps")
    measure(benchmark, lambda: kernel(2, 32, maps, cluster=2))


def test_call_with_three_fresh_addresses(benchmark: Any, module: Any, maps: Any) -> None:
    kernel, (first, *_), address = module.kernel("maps"), maps, maps[0].decode().global_address
    measure(
        benchmark, lambda: kernel(1, 32, [first.with_address(address), first.with_address(address), first])
    )


def test_call_with_three_arrays(benchmark: Any, module: Any, array: Any) -> None:
    kernel = module.kernel("pointers")
    measure(benchmark, lambda: kernel(1, 32, (array, array, array)))


def test_call_with_arguments_of_every_kind(benchmark: Any, module: Any, maps: Any, array: Any) -> None:
    kernel = module.kernel("mixed")
    measure(benchmark, lambda: kernel(1, 32, (maps[0], array, 5, 2.5)))


def test_call_with_three_torch_tensors(benchmark: Any, module: Any) -> None:
    torch = pytest.importorskip("torch")
    kernel, tensor = module.kernel("pointers"), torch.zeros(1024, device="cuda")
    measure(benchmark, lambda: kernel(1, 32, (tensor, tensor, tensor)))


def test_plan_in_the_current_stream(benchmark: Any, module: Any, maps: Any) -> None:
    measure(benchmark, module.kernel("maps").plan(1, 32, maps))


def test_plan_in_a_stream_of_its_own(benchmark: Any, module: Any, maps: Any) -> None:
    measure(benchmark, module.kernel("maps").plan(1, 32, maps, stream=0))


def test_plan_in_clusters(benchmark: Any, module: Any, maps: Any) -> None:
    measure(benchmark, module.kernel("maps").plan(2, 32, maps, cluster=2, stream=0))


def test_plan_given_a_new_address(benchmark: Any, module: Any, maps: Any) -> None:
    plan, address = module.kernel("maps").plan(1, 32, maps, stream=0), maps[0].decode().global_address

    def launch() -> None:
        plan.set(0, address)
        plan()

    measure(benchmark, launch)


def test_triton_with_three_descriptors(benchmark: Any, tmp_path_factory: Any) -> None:
    torch = pytest.importorskip("torch")
    descriptor = pytest.importorskip("triton.tools.tensor_descriptor").TensorDescriptor
    folder = tmp_path_factory.mktemp("triton")
    (folder / "empty_kernel.py").write_text(
        "import triton\nimport triton.language as tl\n\n\n@triton.jit\ndef empty(a, b, c):\n    pass\n"
    )
    sys.path.insert(0, str(folder))
    try:
        from empty_kernel import empty  # Triton reads a kernel's source from its file
    finally:
        sys.path.pop(0)
    tensor = torch.zeros((4096, 4096), device="cuda")
    given = [descriptor.from_tensor(tensor, [32, 32]) for _ in range(3)]
    measure(benchmark, lambda: empty[(1,)](*given))


FIRST = """
import time
start = time.perf_counter()
def lap(name, last=[start]):
    now = time.perf_counter()
    print(f"{name} {1e3 * (now - last[0]):.1f} ms", end="; ")
    last[0] = time.perf_counter()
import cupytma as tma
lap("import cupytma")
import cupy
array = cupy.zeros((4096, 4096), cupy.float32)
lap("import cupy and make an array")
tensor_map = tma.tensor_map(array, box=(32, 32))
lap("encode")
module = tma.compile(SOURCE)
lap("compile")
module.kernel("maps")(1, 32, (tensor_map,) * 3)
lap("load and launch")
cupy.cuda.Device().synchronize()
lap("synchronize")
"""


def test_first_launch_of_a_fresh_process(benchmark: Any) -> None:
    script = f"SOURCE = {SOURCE!r}\n{FIRST}"

    def run() -> str:
        return subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout

    run()  # fills the caches
    print(f"\n{benchmark.pedantic(run, rounds=3)}")
