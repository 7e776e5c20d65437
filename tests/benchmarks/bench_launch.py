"""What a launch costs on the host, beside CuPy, cuda-python's bare call and Triton; and how long a first launch takes.

Needs a GPU. Each round measures every way once, one after the other, so that all see the same machine; the table has
the medians, and those as a fraction of the bare call's:

    python tests/benchmarks/bench_launch.py

The kernels do nothing, so that the GPU keeps up with the host.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cupytma as tma

SOURCE = """
#include <cupytma.cuh>
extern "C" __global__ void maps(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b,
                                const __grid_constant__ CUtensorMap c) {}
extern "C" __global__ void pointers(float* a, float* b, float* c) {}
extern "C" __global__ void mixed(const __grid_constant__ CUtensorMap a, float* b, int c, float d) {}
"""
LAUNCHES, ROUNDS = 200, 150
BARE = "cuda-python: cuLaunchKernel, prepared arguments"
Ways = dict[str, Callable[[], object]]


def ways() -> Ways:
    """Every way to launch, by name."""
    import cupy

    module, array = tma.compile(SOURCE), cupy.zeros((4096, 4096), cupy.float32)
    kernel, pointers, mixed = (module.kernel(name) for name in ("maps", "pointers", "mixed"))
    maps = [tma.tensor_map(array, box=(32, 32)) for _ in range(3)]
    values, address = tuple(tensor_map.to_numpy() for tensor_map in maps), array.data.ptr
    raw, raw_pointers = kernel.function().raw, pointers.function().raw
    moving = kernel.plan(1, 32, maps, stream=0)
    return {
        BARE: bare(kernel, maps),
        "CuPy RawKernel: three descriptors": lambda: raw((1,), (32,), values),
        "CuPy RawKernel: three arrays": lambda: raw_pointers((1,), (32,), (array, array, array)),
        "call: three descriptors": lambda: kernel(1, 32, maps),
        "call: three descriptors, clusters of two": lambda: kernel(2, 32, maps, cluster=2),
        "call: three descriptors, two of a new address": lambda: kernel(
            1, 32, (maps[0].with_address(address), maps[0].with_address(address), maps[0])
        ),
        "call: three arrays": lambda: pointers(1, 32, (array, array, array)),
        "call: descriptor, array, int, float": lambda: mixed(1, 32, (maps[0], array, 5, 2.5)),
        "plan: current stream": kernel.plan(1, 32, maps),
        "plan: a stream of its own": kernel.plan(1, 32, maps, stream=0),
        "plan: clusters of two": kernel.plan(2, 32, maps, cluster=2, stream=0),
        "plan: a new address each time": lambda: (moving.set(0, address), moving()),
        **torch_ways(pointers),
    }


def bare(kernel: tma.runtime.Kernel, maps: list[tma.TensorMap]) -> Callable[[], object]:
    from cuda.bindings import driver

    memory = tma.runtime.ParameterBlock(kernel.signature)
    kernel.marshaller.fill(memory.data, maps)
    function, pointers = driver.CUfunction(kernel.function().handle), memory.pointers
    return lambda: (driver.cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, 0, pointers, 0), memory)


def torch_ways(pointers: tma.runtime.Kernel) -> Ways:
    """Those that need torch and Triton, where they are installed."""
    try:
        import torch
        from triton.tools.tensor_descriptor import TensorDescriptor
    except ImportError:
        return {}
    folder = tempfile.mkdtemp()  # Triton reads a kernel's source from its file
    (Path(folder) / "empty_kernel.py").write_text(
        "import triton\n\n\n@triton.jit\ndef empty(a, b, c):\n    pass\n"
    )
    sys.path.insert(0, folder)
    from empty_kernel import empty

    tensor = torch.zeros((4096, 4096), device="cuda")
    given = [TensorDescriptor.from_tensor(tensor, [32, 32]) for _ in range(3)]
    return {
        "call: three torch tensors": lambda: pointers(1, 32, (tensor, tensor, tensor)),
        "Triton: three descriptors": lambda: empty[(1,)](*given),
    }


def medians(candidates: Ways) -> dict[str, float]:
    """Seconds of one launch, by name."""
    import cupy

    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    for number in range(ROUNDS + 10):
        for name, launch in candidates.items():
            start = time.perf_counter()
            for _ in range(LAUNCHES):
                launch()
            taken = time.perf_counter() - start
            cupy.cuda.Device().synchronize()
            if number >= 10:
                seconds[name].append(taken / LAUNCHES)
    return {name: statistics.median(values) for name, values in seconds.items()}


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


def first_launch() -> str:
    """What a fresh process spends until its first launch, with full caches."""
    script = f"SOURCE = {SOURCE!r}\n{FIRST}"
    run: Any = None
    for _ in range(3):
        run = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    return str(run.stdout)


def main() -> None:
    found = medians(ways())
    for name, seconds in found.items():
        print(f"{name:50s} {1e6 * seconds:7.2f} µs  {seconds / found[BARE]:5.2f} ×")
    print(f"first launch of a process: {first_launch()}")


if __name__ == "__main__":
    main()
