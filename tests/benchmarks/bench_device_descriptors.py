"""Tensor maps made on the device, and operations on many arrays at once, beside what they take the place of.

Needs a GPU: ``python tests/benchmarks/bench_device_descriptors.py [part …]``; parts are maps, bandwidth, small,
building, stress, and tune, which is left out unless it is named. Times are medians of rounds; compare within one run.
Each line that has an aim says whether it is met.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "device"))

import device_examples
import stress

import cupytma as tma
from cupytma.ops import grouped_copies
from cupytma.tensormap.random_records import random_records
from cupytma.tensormap.records import encode_records

ROUNDS = 20
ARRAYS = 4096
TURNS = 10000


def wall_seconds(call: Callable[[], object], rounds: int = ROUNDS) -> float:
    """From the call to the end of its work on the device."""
    import cupy

    synchronize = cupy.cuda.Device().synchronize
    for _ in range(3):
        call()
    found = []
    for _ in range(rounds):
        synchronize()
        start = time.perf_counter()
        call()
        synchronize()
        found.append(time.perf_counter() - start)
    return statistics.median(found)


def device_seconds(call: Callable[[], object], rounds: int = ROUNDS, busy: Any = None) -> float:
    """Of the work on the device, by events around it; `busy` is an array to be filled while the host makes the call."""
    import cupy

    for _ in range(3):
        call()
    found = []
    for _ in range(rounds):
        begin, end = cupy.cuda.Event(), cupy.cuda.Event()
        if busy is not None:
            busy.fill(0)
        begin.record()
        call()
        end.record()
        end.synchronize()
        found.append(cupy.cuda.get_elapsed_time(begin, end) / 1e3)
    return statistics.median(found)


def verdict(value: float, aim: float) -> str:
    return f"aim {aim:g}: {'met' if value >= aim else 'NOT MET'}"


def maps() -> None:
    """10,000 random parameter sets against the host's encoder, and what a map costs."""
    import cupy

    records = random_records(16000, seed=11, modes=("tiled",))
    status, payload = encode_records(records, tma.runtime.current_target())
    names = {
        "global_address": "addr", "rank": "rank", "data_type": "dtype", "interleave": "interleave",
        "swizzle": "swizzle", "l2_promotion": "l2", "oob_fill": "oob", "global_dim": "dims",
        "global_strides": "strides", "box_dim": "box", "element_strides": "estr",
    }  # fmt: skip
    columns = {name: cupy.asarray(np.ascontiguousarray(records[field])) for name, field in names.items()}
    buffer = tma.DescriptorBuffer(len(records))
    tma.encode_on_device(buffer, columns)
    held = b"".join(bytes(m)[:64] if m else bytes(64) for m in buffer.to_host())
    made = np.frombuffer(held, np.uint8).reshape(-1, 64)
    wanted = (status == 0) & (records["addr"] != 0)
    alike = (made[wanted] == payload[wanted, :64]).all(axis=1).sum()
    print(f"legal parameter sets {wanted.sum()}, equal in the first 64 bytes {alike}: {verdict(alike, wanted.sum())}")
    template = tma.Tiled(
        data_type="FLOAT16", global_address=0, global_dim=(64, 64), global_strides=(128,), box_dim=(64, 8)
    ).encode()
    for n in (1, 100, 10_000, 1_000_000):
        slots = tma.DescriptorBuffer(n)
        addresses, extents = cupy.full(n, 1 << 40, cupy.uint64), cupy.full((n, 2), 64, cupy.int32)
        strides = cupy.full((n, 1), 128, cupy.int64)

        def call(slots: Any = slots, arguments: Any = (addresses, extents, strides)) -> None:
            tma.rebind_on_device(slots, template, *arguments)

        host, device = wall_seconds(call), device_seconds(call)
        print(f"rebind_on_device of {n:8d}: {1e6 * host:9.1f} µs with the host, {1e6 * device:9.1f} µs on the device")


def bandwidth() -> None:
    """4,096 arrays of random sizes, 1 KiB to 4 MiB, beside one contiguous copy of as many bytes."""
    import cupy

    random = np.random.default_rng(0)
    for title, sizes in (
        ("evenly random sizes", random.integers(1 << 10, (1 << 22) + 1, ARRAYS)),
        ("sizes of random length", np.exp2(random.uniform(10, 22, ARRAYS)).astype(int)),
        ("sizes that are multiples of 16 B", random.integers(1 << 6, (1 << 18) + 1, ARRAYS) * 16),
    ):
        sources = [cupy.zeros(int(size), cupy.uint8) for size in sizes]
        destinations = [cupy.empty(int(size), cupy.uint8) for size in sizes]
        compare(title, sources, destinations)
    sizes = random.integers(4, 2048, (ARRAYS, 2))
    sources = [cupy.zeros((int(h), 2048), cupy.uint8)[:, : int(w)] for h, w in sizes]
    destinations = [cupy.empty((int(h), 2304), cupy.uint8)[:, : int(w)] for h, w in sizes]
    compare("windows of matrices, any width (no aim)", sources, destinations, aim=0)
    sources = [cupy.zeros((int(h), 2048), cupy.uint8)[:, : int(w) // 16 * 16 + 16] for h, w in sizes]
    destinations = [cupy.empty((int(h), 2304), cupy.uint8)[:, : int(w) // 16 * 16 + 16] for h, w in sizes]
    compare("windows of matrices, widths of 16 B (no aim)", sources, destinations, aim=0)


def compare(title: str, sources: list[Any], destinations: list[Any], aim: float = 0.85) -> None:
    import cupy

    total = sum(source.nbytes for source in sources)
    busy = cupy.empty(1 << 31, cupy.uint8)
    parts = device_seconds(lambda: tma.grouped_copy(sources, destinations), busy=busy)
    both = device_seconds(lambda: tma.grouped_copy(sources, destinations))
    contiguous = cupy.zeros(total, cupy.uint8), cupy.empty(total, cupy.uint8)
    whole = device_seconds(lambda: tma.copy(*contiguous), busy=busy)
    rate = [2 * total / seconds / 1e9 for seconds in (parts, whole, both)]
    print(
        f"{title}: {total / 2**30:.2f} GiB, grouped {rate[0]:.0f} GB/s, contiguous {rate[1]:.0f} GB/s, ratio "
        f"{rate[0] / rate[1]:.3f}; {verdict(rate[0] / rate[1], aim)} (with the host's time {rate[2]:.0f} GB/s)"
    )


def small() -> None:
    """4,096 arrays of 16 KiB, beside one copy for each by CuPy and torch. With the host's time."""
    import cupy

    sources = [cupy.full(16384, i % 251, cupy.uint8) for i in range(ARRAYS)]
    destinations = [cupy.empty(16384, cupy.uint8) for _ in range(ARRAYS)]

    def each() -> None:
        for source, destination in zip(sources, destinations, strict=True):
            cupy.copyto(destination, source)

    grouped = wall_seconds(lambda: tma.grouped_copy(sources, destinations))
    assert all(bool((s == d).all()) for s, d in zip(sources[::97], destinations[::97], strict=True))
    device = device_seconds(lambda: tma.grouped_copy(sources, destinations))
    ratio = wall_seconds(each, 5) / grouped
    print(f"4096 × 16 KiB: {1e3 * grouped:.3f} ms with the host ({1e6 * device:.0f} µs between events), "
          f"{ratio:.1f} times as fast as cupy.copyto for each; {verdict(ratio, 20)}")  # fmt: skip

    def anew(*lists: Any) -> None:
        grouped_copies._recent.clear()
        tma.grouped_copy(*lists)

    print(f"  with other arrays at every call: {1e3 * wall_seconds(lambda: anew(sources, destinations), 5):.1f} ms")
    try:
        import torch
    except ImportError:
        print("  torch is not installed")
        return
    tensors = [[torch.as_tensor(array, device="cuda") for array in arrays] for arrays in (sources, destinations)]

    def each_tensor() -> None:
        for source, destination in zip(*tensors, strict=True):
            destination.copy_(source)

    grouped = wall_seconds(lambda: tma.grouped_copy(*tensors))
    baseline = wall_seconds(each_tensor, 5)
    print(f"  of torch: {1e3 * grouped:.3f} ms, {baseline / grouped:.1f} times as fast as copy_ for each; "
          f"{verdict(baseline / grouped, 20)}")  # fmt: skip
    print(f"  with other tensors at every call: {1e3 * wall_seconds(lambda: anew(*tensors), 5):.1f} ms")
    together = wall_seconds(lambda: torch._foreach_copy_(tensors[1], tensors[0]), 5)
    print(f"  torch._foreach_copy_: {1e3 * together:.3f} ms")


def building() -> None:
    """What it costs to make the maps in a launch before the copy, and in the block that uses them."""
    import cupy

    sources = [cupy.zeros((64, 2048), cupy.uint8)[:, :256] for _ in range(ARRAYS)]
    destinations = [cupy.empty((64, 2048), cupy.uint8)[:, :256] for _ in range(ARRAYS)]
    shapes = cupy.asarray([[64, 256]] * ARRAYS, cupy.int32)
    ready = device_seconds(lambda: tma.grouped_copy(sources, destinations))
    made = device_seconds(lambda: tma.grouped_copy(sources, destinations, shapes=shapes))
    print(f"4096 windows of 16 KiB: {1e6 * ready:.0f} µs with maps that are there, {1e6 * made:.0f} µs with maps made "
          "before, at every call, of shapes on the device")  # fmt: skip
    matrices = [cupy.zeros((64, 256), cupy.float32) for _ in range(ARRAYS)]
    module, given = device_examples.compiled(), cupy.asarray(device_examples.described(matrices))
    template, own = tma.DescriptorBuffer(1), tma.DescriptorBuffer(ARRAYS)
    out = cupy.empty((ARRAYS, *device_examples.BOX), cupy.float32)
    module.kernel("make_template")(1, 32, (device_examples.SEED, template))

    def before() -> None:
        module.kernel("encode_maps_of_matrices")(ARRAYS, 32, (template, given, own))
        module.kernel("consume_tile")(ARRAYS, 128, (own, 0, 0, out))

    def within() -> None:
        module.kernel("encode_and_consume")(ARRAYS, 128, (device_examples.SEED, given, own, 0, 0, out))

    print(f"4096 maps used once each: made in a launch before {1e6 * device_seconds(before):.1f} µs, in the block that "
          f"uses them {1e6 * device_seconds(within):.1f} µs")  # fmt: skip
    slots, data = tma.DescriptorBuffer(1), cupy.zeros(64 * 32, cupy.uint32)
    flags, stale = cupy.zeros(64, cupy.uint32), cupy.zeros(1, cupy.uint32)
    for acquire in (True, False):
        kernel = stress.compiled(None, 1, acquire).kernel("stress")
        arguments = (stress.SEED, slots, data, 64, 1000, flags, stale)
        seconds = device_seconds(lambda kernel=kernel, arguments=arguments: kernel(1, 32, arguments))
        acquires = "acquires" if acquire else "does not acquire"
        print(f"one block that makes, publishes, {acquires} and loads through a map: {1e6 * seconds:.0f} ns a turn")


def stale() -> None:
    """10,000 changes of each map, used in the same block and in another, with the fence and without."""
    multiprocessors = tma.runtime.multiprocessors()
    for blocks, where in ((1, "the same block"), (2, "another block")):
        groups = 2 * multiprocessors // blocks
        for acquire in (True, False):
            found = stress.stale_reads(stress.compiled(None, blocks, acquire), blocks, groups, TURNS)
            total = groups * TURNS
            with_fence = f"{verdict(-found, 0)}" if acquire else (
                "the fence is needed" if found else "this hardware did not show that the fence is needed"
            )
            acquired = "acquired" if acquire else "not acquired"
            print(f"maps used in {where}, {acquired}: {found} stale of {total} copies; {with_fence}")


def tune() -> None:
    """Pieces of other sizes, and blocks of other numbers of warps, for grouped copies. Not among the default parts."""
    import cupy

    random, before = np.random.default_rng(0), (grouped_copies.STAGE_BYTES, grouped_copies.MOVE_WARPS)
    sizes = random.integers(1 << 10, (1 << 20) + 1, ARRAYS)
    cases = {"random sizes to 1 MiB": sizes, "16 KiB": np.full(ARRAYS, 16384)}
    arrays = {name: [[cupy.zeros(int(n), cupy.uint8) for n in of] for _ in range(2)] for name, of in cases.items()}
    arrays["windows of 64 x 1 KiB"] = [
        [cupy.zeros((64, 2048), cupy.uint8)[:, :1024] for _ in range(1024)] for _ in range(2)
    ]
    for stage in (1024, 2048, 4096, 8192, 16384):
        for warps in (1, 2, 4, 8):
            if stage * warps > 65536:
                continue
            grouped_copies.STAGE_BYTES, grouped_copies.MOVE_WARPS = stage, warps
            grouped_copies.module.cache_clear()
            grouped_copies._recent.clear()
            rates = []
            for lists in arrays.values():
                seconds = device_seconds(lambda lists=lists: tma.grouped_copy(*lists))
                rates.append(2 * sum(array.nbytes for array in lists[0]) / seconds / 1e9)
            print(f"{stage:6d} B, {warps} warps: " + ", ".join(
                f"{name} {rate:.0f} GB/s" for name, rate in zip(arrays, rates, strict=True)
            ))  # fmt: skip
    grouped_copies.STAGE_BYTES, grouped_copies.MOVE_WARPS = before
    grouped_copies.module.cache_clear()
    grouped_copies._recent.clear()


PARTS: dict[str, Callable[[], None]] = {
    "maps": maps, "bandwidth": bandwidth, "small": small, "building": building, "stress": stale, "tune": tune,
}  # fmt: skip


def main() -> None:
    import cupy

    for name in sys.argv[1:] or [part for part in PARTS if part != "tune"]:
        PARTS[name]()
        cupy.get_default_memory_pool().free_all_blocks()
    properties = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)
    print(f"{properties['name'].decode()}, CuPy {cupy.__version__}")


if __name__ == "__main__":
    main()
