"""What the compiler says of kernels, beside what the driver says once they are loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cupytma as tma
from cupytma.runtime import compiler, environment

pytestmark = pytest.mark.gpu

SOURCE = """
template <class T, int N> __global__ void scale(T* x, T by) { x[threadIdx.x] *= by * T(N); }
namespace tiles { __global__ void twice(float* x) { x[threadIdx.x] *= 2; } }
extern "C" __global__ void __launch_bounds__(256) resources(float* p, int n) {
    __shared__ float s[1000];
    float a[64];
    for (int i = 0; i < n; i++) a[(i * n) % 64] = p[i];
    s[n] = a[n % 64];
    __syncthreads();
    p[0] = s[p[1] > 0];
}
"""


def _attributes(kernel: Any, folder: Path) -> dict[str, int]:
    import cupy

    path = folder / "code.cubin"
    path.write_bytes(kernel.module.cubin)
    return dict(cupy.RawModule(path=str(path)).get_function(kernel.name).attributes)


def test_an_instance_of_a_template_and_a_cxx_name_are_launched() -> None:
    import cupy

    module = tma.compile(SOURCE)
    x = cupy.arange(32, dtype=np.float32)
    module.kernel("scale<float, 4>")(1, 32, (x, 0.5))
    module.kernel("tiles::twice")(1, 32, (x,))
    assert np.array_equal(x.get(), np.arange(32, dtype=np.float32) * 4)


@pytest.mark.parametrize("name", ["resources", "tiles::twice", "scale<double, 2>"])
def test_resources_are_those_that_the_driver_reports(name: str, tmp_path: Path) -> None:
    kernel = tma.compile(SOURCE, name_expressions=["scale<double, 2>"]).kernel(name)
    taken, driver = kernel.module.resources[kernel.name], _attributes(kernel, tmp_path)
    assert taken.registers == driver["num_regs"]
    assert taken.shared_bytes == driver["shared_size_bytes"]
    assert taken.stack_bytes == driver["local_size_bytes"]
    if taken.max_threads is not None:
        assert np.prod(taken.max_threads) == driver["max_threads_per_block"]


def test_what_is_compiled_again_has_its_report_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiler, which keeps its work where there is a driver, does not keep what the assembler says of it."""
    monkeypatch.setenv("CUPYTMA_CACHE_DIR", "")
    values = ", ".join(f"x[{i} * n]" for i in range(120))
    squares = "\n".join(f"x[{i} * n] = a[{i}] * a[{i * 7 % 120}];" for i in range(120))
    source = f'extern "C" __global__ void spilling(float* x, int n) {{ float a[] = {{{values}}};\n{squares} }}'
    found = []
    for _ in range(3):
        compiler.forget_modules()
        module = tma.compile(source, options=["--maxrregcount=40"])
        found.append((module.resources["spilling"].spill_store_bytes, module.log))
    assert found[0][0] > 0
    assert found[1:] == found[:1] * 2


def test_the_doctor_finds_the_device_and_everything_works() -> None:
    import cupy

    found = environment.look()
    assert [device.has_unit for device in found.devices]
    assert found.devices[0].memory == cupy.cuda.runtime.getDeviceProperties(0)["totalGlobalMem"]
    digits = cupy.cuda.Device(0).compute_capability
    assert found.devices[0].compute_capability == (int(digits[:-1]), int(digits[-1]))
    assert found.driver_cuda == divmod(cupy.cuda.runtime.driverGetVersion() // 10, 100)
    assert [ability.works for ability in found.abilities] == [True] * 4
