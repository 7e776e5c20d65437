"""Launches that kill their process's context, each by one broken rule: ``python dying_launches.py NAME`` runs one.

Prints what `explain_fault` says, and what later calls are answered, as JSON.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from typing import Any

from launch_records import kernel

import cupytma as tma
from cupytma.errors import LaunchError
from cupytma.runtime.history import recent

OFFSET = """
#include <cupytma.cuh>
extern "C" __global__ void load_at(const __grid_constant__ CUtensorMap map, unsigned char* out, int offset) {
    __shared__ alignas(1024) unsigned char tile[8192];
    __shared__ unsigned long long loaded;
    if (threadIdx.x == 0) {
        cupytma::mbarrier_init(&loaded, 1);
        cupytma::fence_mbarrier_init();
        cupytma::mbarrier_arrive_expect_tx_sink(&loaded, 4096);
        cupytma::tensor_load_2d(tile + offset, &map, 0, 0, &loaded);
        cupytma::mbarrier_wait_parity(&loaded, 0);
    }
    __syncthreads();
    out[threadIdx.x] = tile[threadIdx.x];
}
"""


def _by_arguments(x: int, y: int, z: int, arguments: Any) -> Any:
    """Where the kernels of launch_records start: at their own arguments."""
    return arguments[-3:-1] if len(arguments) == 5 else arguments[1:]


def _load(tensor_map: Any, x: int = 0, y: int = 0, name: str = "load", **launch: Any) -> None:
    kernel(name, TARGET)(1, 1, (tensor_map, OUT, x, y, 4096), **launch)


def inner_start() -> None:
    tma.declare_coordinates(kernel("load", TARGET), 0, _by_arguments)
    _load(MAP, x=1)


def inner_start_undeclared() -> None:
    _load(MAP, x=1)


def store_below_zero() -> None:
    tma.declare_coordinates(kernel("store", TARGET), 0, _by_arguments, store=True)
    kernel("store", TARGET)(1, 1, (MAP, 0, -1))


def shared_tile() -> None:
    called = tma.compile(OFFSET).kernel("load_at")
    tma.declare_coordinates(called, 0, lambda x, y, z: (0, 0), shared_offset=16)
    called(1, 128, (MAP, OUT, 16))


def null_address() -> None:
    _load(MAP.with_address(0))


def shared_size() -> None:
    _load(MAP, name="load_dynamic", shared_bytes=128)


def reduction() -> None:
    integers = replace(TILED, data_type="INT64", global_dim=(128, 128), box_dim=(16, 32)).encode()
    kernel("reduce_and", TARGET)(1, 1, (integers, 0, 0))


def multicast() -> None:
    _load(MAP, name="multicast")


def slot() -> None:
    buffer = tma.DescriptorBuffer(2)
    buffer.write([MAP, MAP])
    kernel("indirect", TARGET)(1, 1, (memory_pointer(buffer.address(0) + 16), OUT, 0, 0, 4096))
    KEPT.append(buffer)


def memory_pointer(address: int) -> Any:
    """An address as something that goes to a pointer parameter."""
    import cupy

    return cupy.cuda.MemoryPointer(cupy.cuda.UnownedMemory(address, 128, None), 0)


CASES = {
    "inner_start": (715, "start-inner-multiple", True),
    "inner_start_undeclared": (715, None, False),
    "store_below_zero": (715, "store-start", True),
    "shared_tile": (716, "tile-alignment", True),
    "null_address": (700, "null-address", True),
    "shared_size": (700, "shared-size", True),
    "reduction": (715, "reduction", True),
    "multicast": (715, "multicast-cluster", False),
    "slot": (716, "slot-start", True),
}
KEPT: list[Any] = []


def answers(name: str) -> dict[str, Any]:
    """What comes of a case."""
    kernel("scalars", TARGET)  # an innocent launch goes before and after
    kernel("scalars", TARGET)(1, 1, (1, 2.0, 3.0, 4, 5, OUT))
    tma.runtime.synchronize()
    globals()[name]()
    found: dict[str, Any] = {"remembered": len(recent())}
    try:
        tma.runtime.synchronize()
        return found
    except tma.errors.DriverError as error:
        found |= {"code": error.code, "text": str(error)}
    report = tma.explain_fault(found["code"])
    found["suspects"] = [[s.record.name, s.rule, s.is_certain] for s in report.suspects]
    found["asked"] = tma.explain_fault().code
    for what, call in (
        ("encode", lambda: TILED.encode(backend="driver")),
        ("launch", lambda: kernel("scalars", TARGET)(1, 1, (1, 2.0, 3.0, 4, 5, OUT))),
    ):
        try:
            call()
            found[what] = "went well"
        except LaunchError as error:
            found[what] = str(error)
    return found


if __name__ == "__main__":
    import cupy

    TARGET = str(tma.runtime.current_target())
    ARRAY, OUT = cupy.zeros((128, 256), cupy.float32), cupy.zeros(4096, cupy.uint8)
    TILED = tma.Tiled(
        data_type="FLOAT32", global_address=ARRAY.data.ptr, global_dim=(256, 128), global_strides=(1024,),
        box_dim=(32, 32),
    )  # fmt: skip
    MAP = TILED.encode()
    print(json.dumps(answers(sys.argv[1])))
