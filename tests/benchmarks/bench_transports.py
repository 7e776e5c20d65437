"""What each way of passing a descriptor costs, beside the others: on the host per launch, and on the device.

Needs a GPU: ``python tests/benchmarks/bench_transports.py``. Each launch is one block that loads a tile of 4 KiB, so
that what differs is the descriptor's way. Host: the time of a call, of many in a row; the median of rounds. Device: the
time of one launch in a CUDA graph of many, without the host; the median of replays. Compare within one run.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "runtime"))

from transports import BOX, compiled

import cupytma as tma
from cupytma.runtime import set_constant

LAUNCHES, ROUNDS = 200, 60
THREADS = 128
Way = Callable[[Any], object]


def ways() -> tuple[dict[str, Way], dict[str, Way]]:
    """What is launched on a stream: with descriptors that stay, and with one that changes before each launch."""
    import cupy

    module, array, out = compiled(), cupy.zeros((512, 512), cupy.float32), cupy.zeros(BOX, cupy.float32)
    tensor_map, address = tma.tensor_map(array, BOX), array.data.ptr
    seed = tma.tensor_map(cupy.zeros((64, 64), cupy.float32), BOX)
    buffer, own = tma.DescriptorBuffer(1), tma.DescriptorBuffer(1)
    addresses = cupy.asarray([address], cupy.uint64)
    buffer.write([tensor_map])
    set_constant(module, "constant_map", tensor_map)
    kernels = {name: module.kernel(f"through_{name}") for name in ("parameter", "constant", "buffer", "rebinding")}

    def parameter(stream: Any, given: Any = tensor_map) -> None:
        kernels["parameter"](1, THREADS, (given, 32, 32, out), stream=stream)

    def constant(stream: Any) -> None:
        kernels["constant"](1, THREADS, (32, 32, out), stream=stream)

    def from_buffer(stream: Any) -> None:
        kernels["buffer"](1, THREADS, (buffer, 0, 32, 32, out), stream=stream)

    def rebinding(stream: Any) -> None:
        kernels["rebinding"](1, THREADS, (seed, own, addresses, 512, 512, 2048, 32, 32, out), stream=stream)

    def written_constant(stream: Any) -> None:
        set_constant(module, "constant_map", tensor_map, stream)
        constant(stream)

    def written_buffer(stream: Any) -> None:
        buffer.write([tensor_map], stream=stream)
        from_buffer(stream)

    staying: dict[str, Way] = {
        "grid constant": parameter, "__constant__": constant, "global memory, acquired": from_buffer,
        "built on the device": rebinding,
    }  # fmt: skip
    changing: dict[str, Way] = {
        "grid constant, another address": lambda stream: parameter(stream, tensor_map.with_address(address)),
        "__constant__, written": written_constant,
        "global memory, written and acquired": written_buffer,
        "built on the device (from a fixed template)": rebinding,
    }
    return staying, changing


def host_seconds(way: Way, stream: Any) -> float:
    """Of one call."""
    found = []
    for _ in range(ROUNDS):
        stream.synchronize()
        start = time.perf_counter()
        for _ in range(LAUNCHES):
            way(stream)
        found.append((time.perf_counter() - start) / LAUNCHES)
    stream.synchronize()
    return statistics.median(found)


def device_seconds(way: Way, stream: Any) -> float:
    """Of one launch, and of its write where it has one, in a graph."""
    import cupy

    with stream:
        stream.begin_capture()
        for _ in range(LAUNCHES):
            way(stream)
        graph = stream.end_capture()
    found = []
    for _ in range(ROUNDS):
        begin, end = cupy.cuda.Event(), cupy.cuda.Event()
        begin.record(stream)
        graph.launch(stream)
        end.record(stream)
        end.synchronize()
        found.append(cupy.cuda.get_elapsed_time(begin, end) / 1e3 / LAUNCHES)
    return statistics.median(found)


def main() -> None:
    import cupy

    stream = cupy.cuda.Stream(non_blocking=True)
    for title, group in zip(("the descriptor stays", "the descriptor changes before each launch"), ways(), strict=True):
        print(f"{title:45s} {'host':>10s} {'device':>10s}")
        for way in group.values():
            way(stream)
        stream.synchronize()
        host = {name: host_seconds(way, stream) for name, way in group.items()}
        device = {name: device_seconds(way, stream) for name, way in group.items()}
        for name in group:
            print(f"  {name:43s} {1e6 * host[name]:7.2f} µs {1e6 * device[name]:7.2f} µs")
    properties = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)
    print(f"{properties['name'].decode()}, CuPy {cupy.__version__}; one block of {THREADS} threads, a tile of 4 KiB")


if __name__ == "__main__":
    main()
