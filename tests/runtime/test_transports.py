"""Descriptors in constant memory, in slots of global memory, and built on the device: all that needs no GPU."""

from __future__ import annotations

import ctypes
import gc
import weakref
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from captured_streams import CapturedStreams
from fake_cuda import FakeCuda
from transports import REBIND, compiled

import cupytma as tma
from cupytma import ptx
from cupytma.errors import CupytmaError, DescriptorError, LaunchError, SlotError
from cupytma.runtime import compiler, constants, descriptors, faults, loading, streams, transfer
from cupytma.runtime.constants import parse_variables, set_constant
from cupytma.runtime.descriptors import DescriptorBuffer, buffer_at
from cupytma.runtime.history import launches
from cupytma.runtime.transfer import Staging, stream_handle

pytest.importorskip("cuda.bindings.nvrtc", reason="needs cuda-python and NVRTC")

TILED = tma.Tiled(data_type="FLOAT32", global_address=1 << 20, global_dim=(64, 64), box_dim=(32, 32))
MAPS = [replace(TILED, global_address=(n + 1) << 20).encode() for n in range(4)]


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    fake = FakeCuda()
    for module in (descriptors, transfer, constants, faults, loading, streams):
        monkeypatch.setattr(module, "cupy", lambda: fake)
    monkeypatch.setattr(loading, "compute_capability", lambda: (9, 0))
    monkeypatch.setattr(loading, "_loaded", weakref.WeakKeyDictionary())
    launches.clear()
    return fake


@pytest.fixture(scope="module")
def module() -> tma.runtime.Module:
    return compiled("sm_90a")


@pytest.mark.parametrize("target", ["sm_90a", "sm_100a"])
def test_every_example_compiles_and_shows_its_transport(target: str) -> None:
    made = compiled(target)
    assert set(made.signatures) == {f"through_{way}" for way in ("parameter", "constant", "buffer", "rebinding")}
    assert set(parse_variables(made.ptx)) >= {"constant_map"}
    bodies = {text.split("(")[0].strip(): text for text in made.ptx.split(".entry ")[1:]}
    assert "acquire.sys" in bodies["through_buffer"]
    assert "acquire.gpu" in bodies["through_rebinding"]
    assert "tensormap.cp_fenceproxy" in bodies["through_rebinding"]
    for name in ("through_parameter", "through_constant"):
        assert "fence.proxy.tensormap" not in bodies[name]
    for text in bodies.values():
        assert "cp.async.bulk.tensor.2d" in text


def test_the_rebind_sequence_of_the_example_is_a_right_one() -> None:
    ptx.check_rebind([*REBIND.instructions, REBIND.acquire], rank=2, within="grid")


# Slots


def test_slots_lie_128_bytes_apart_on_128_byte_boundaries_whatever_the_allocator_gives(cuda: FakeCuda) -> None:
    for shift in (0, 16, 64, 127):
        cuda.shift = shift
        buffer = DescriptorBuffer(5, target="sm_90a")
        addresses = [buffer.address(i) for i in range(5)]
        assert [a % 128 for a in addresses] == [0] * 5
        assert set(np.diff(addresses)) == {128}
        assert DescriptorBuffer.slot_bytes == 128
        start = buffer._memory.ptr
        assert start <= addresses[0]
        assert addresses[-1] + 128 <= start + buffer._memory.nbytes


def test_what_was_written_is_on_the_device_and_comes_back(cuda: FakeCuda) -> None:
    buffer = DescriptorBuffer(4, target="sm_90a")
    assert buffer.to_host() == (None,) * 4
    buffer[1] = MAPS[0]
    buffer[2:4] = MAPS[1:3]
    assert list(buffer) == [None, *MAPS[:3]]
    assert buffer[-1] == MAPS[2]
    assert buffer[1:3] == (MAPS[0], MAPS[1])
    assert buffer.to_host() == (None, *MAPS[:3])
    assert len(buffer) == 4
    assert buffer.version == 2
    assert "3 written, version 2" in repr(buffer)


def test_what_the_device_changed_comes_back_though_the_host_does_not_know_it(cuda: FakeCuda) -> None:
    buffer = DescriptorBuffer(1, target="sm_90a")
    buffer.write(MAPS[:1])
    cuda.run()
    changed = MAPS[0].with_address(1 << 30)
    cuda.waiting.append((buffer.address(0), np.frombuffer(bytes(changed), np.uint8).ctypes.data, 128))
    assert buffer.to_host() == (changed,)
    assert buffer[0] == MAPS[0]


def test_a_write_takes_effect_in_the_order_of_the_stream_and_whole(cuda: FakeCuda) -> None:
    buffer = DescriptorBuffer(2, target="sm_90a")
    buffer.write(MAPS[:2], stream=7)
    buffer.write(MAPS[2:], stream=7)
    assert cuda.streams[-2:] == [7, 7]
    assert [size for _, _, size in cuda.waiting] == [256, 256]  # each write is one copy
    gc.collect()  # the staging memory of both must outlive their waiting
    assert buffer.to_host() == tuple(MAPS[2:])


def test_staging_memory_is_kept_until_its_copy_is_made_and_no_longer(cuda: FakeCuda) -> None:
    staging, target = Staging(), np.zeros(16, np.uint8)
    for n in range(5):
        staging.upload(target.ctypes.data, bytes([n] * 16))
    assert len({memory.ptr for _, _, memory in staging._pending}) == 5
    cuda.run()
    staging.upload(target.ctypes.data, bytes(16))
    assert len(staging._pending) == 1
    assert len(staging._spare) == 4
    cuda.run()
    assert target.tolist() == [0] * 16


def test_memory_that_is_free_again_is_used_again_if_it_is_large_enough(cuda: FakeCuda) -> None:
    staging, target = Staging(), np.zeros(64, np.uint8)
    staging.upload(target.ctypes.data, bytes(32))
    first = staging._pending[0][2].ptr
    cuda.run()
    staging.upload(target.ctypes.data, bytes([1] * 16))
    assert staging._pending[0][2].ptr == first
    staging.upload(target.ctypes.data + 16, bytes([2] * 48))
    assert staging._pending[1][2].ptr != first
    cuda.run()
    assert target.tolist() == [1] * 16 + [2] * 48


def test_a_write_that_is_captured_first_of_all_needs_no_new_memory(
    cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    buffer = DescriptorBuffer(3, target="sm_90a")
    monkeypatch.setattr(cuda.cuda, "alloc_pinned_memory", None)
    cuda.capturing.add(9)
    buffer.write(MAPS[:3], stream=9)
    cuda.run()
    assert ctypes.string_at(buffer.address(0), 384) == b"".join(map(bytes, MAPS[:3]))


def test_staging_memory_that_a_graph_captured_is_kept_for_its_replays(
    cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    staging, target = Staging(), np.zeros(16, np.uint8)
    CapturedStreams(monkeypatch, cuda.cuda).begin(9)
    staging.upload(target.ctypes.data, bytes([5] * 16), 9)
    replayed = list(cuda.waiting)
    cuda.run()
    for _ in range(3):
        staging.upload(target.ctypes.data, bytes([1] * 16))
        cuda.run()
    cuda.waiting += replayed
    cuda.run()
    assert target.tolist() == [5] * 16


def test_a_buffer_goes_to_a_kernel_as_a_pointer(cuda: FakeCuda, module: tma.runtime.Module) -> None:
    from cupytma.tensormap.arrays import view_of

    buffer = DescriptorBuffer(3, target="sm_90a")
    view = view_of(buffer)
    assert (view.address, view.shape, view.dtype, view.device) == (buffer.address(0), (3, 128), "uint8", 0)


def test_a_buffer_is_found_by_any_address_in_it_while_it_lives(cuda: FakeCuda) -> None:
    buffer = DescriptorBuffer(3, target="sm_90a")
    start = buffer.address(0)
    assert buffer_at(start) is buffer
    assert buffer_at(start + 383) is buffer
    assert buffer_at(start + 384) is not buffer
    assert buffer_at(start - 1) is not buffer
    del buffer
    gc.collect()
    assert buffer_at(start) is None


def test_the_buffer_keeps_its_maps_until_they_are_overwritten(cuda: FakeCuda) -> None:
    class Array(np.ndarray):
        pass

    buffer, array = DescriptorBuffer(1, target="sm_90a"), np.zeros(4).view(Array)
    tensor_map = replace(TILED, global_address=1 << 30).encode()
    tensor_map.__dict__["_source"] = array
    alive = weakref.ref(array)
    buffer[0] = tensor_map
    del array, tensor_map
    gc.collect()
    assert alive() is not None
    buffer[0] = MAPS[0]
    gc.collect()
    assert alive() is None


def on_host() -> tma.TensorMap:
    return tma.tensor_map(np.zeros((8, 8), np.float32), (8, 8))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (lambda: None, "takes a TensorMap, not a NoneType"),
        (lambda: bytes(128), "takes a TensorMap, not a bytes"),
        (on_host, "host memory"),
        (lambda: tma.TensorMap(b"\xff" * 128), "no tensor map"),
        (lambda: replace(TILED, swizzle="128B_ATOM_32B").encode("sm_100a"), "not available on sm_90a"),
    ],
)
def test_maps_that_the_device_must_not_be_given_are_refused_and_nothing_is_written(
    cuda: FakeCuda, value: Any, message: str
) -> None:
    buffer = DescriptorBuffer(2, target="sm_90a")
    with pytest.raises(DescriptorError, match=f"slot 1:? .*{message}"):
        buffer.write([MAPS[0], value()])
    assert (list(buffer), buffer.version) == ([None, None], 0)
    assert cuda.waiting == []


@pytest.mark.parametrize("slots", [0, -1, True, 1.5, None, "4", 1 << 40, [1]])
def test_a_number_of_slots_that_makes_no_sense_is_refused(cuda: FakeCuda, slots: Any) -> None:
    with pytest.raises(DescriptorError, match="slots = "):
        DescriptorBuffer(slots, target="sm_90a")


@pytest.mark.parametrize("index", [2, -3, 1 << 70, None, 0.0, "0"])
def test_slots_that_are_not_there_are_refused(cuda: FakeCuda, index: Any) -> None:
    buffer = DescriptorBuffer(2, target="sm_90a")
    for call in (lambda: buffer[index], lambda: buffer.address(index), lambda: buffer.write(MAPS[:1], index)):
        with pytest.raises(SlotError, match="slot"):
            call()
    with pytest.raises(IndexError):
        buffer[index] = MAPS[0]


def test_writes_of_the_wrong_length_are_refused(cuda: FakeCuda) -> None:
    buffer = DescriptorBuffer(3, target="sm_90a")
    with pytest.raises(SlotError, match="2 maps from slot 2 on; the buffer has 3 slots"):
        buffer.write(MAPS[:2], 2)
    with pytest.raises(DescriptorError, match="1 map for 2 slots"):
        buffer[0:2] = MAPS[:1]
    with pytest.raises(SlotError, match="step 1"):
        buffer[::2] = MAPS[:2]
    with pytest.raises(DescriptorError, match="maps is a int"):
        buffer.write(5)  # type: ignore[arg-type]
    buffer.write([])
    assert buffer.version == 0


def test_the_acquire_is_a_function_of_the_header() -> None:
    statement = DescriptorBuffer.acquire_code("maps + i")
    assert statement == "cupytma::fence_proxy_tensormap_acquire_sys(maps + i);"
    source = f'extern "C" __global__ void k(const CUtensorMap* maps, int i) {{ {statement} }}'
    made = tma.compile(f"#include <cupytma.cuh>\n{source}", "sm_90a")
    assert "fence.proxy.tensormap::generic.acquire.sys" in made.ptx


@pytest.mark.parametrize("stream", [True, None.__class__, "0", 1.5, object()])
def test_what_is_no_stream_is_refused(stream: Any) -> None:
    with pytest.raises(LaunchError, match="a stream of CuPy or torch"):
        stream_handle(stream)


# Constants


VARIABLES = """
#include <cupytma.cuh>
__constant__ CUtensorMap one;
__constant__ CUtensorMap several[3];
__constant__ float scale = 2;
__constant__ unsigned char loose[128];
__device__ CUtensorMap own;
namespace outer { namespace inner { __constant__ int pair[2] = {1, 2}; } }
extern "C" __global__ void k(float* out, const CUtensorMap* p, int i) {
    out[0] = scale + loose[i] + outer::inner::pair[i];
    cupytma::prefetch_tensormap(&one); cupytma::prefetch_tensormap(&several[i]); cupytma::prefetch_tensormap(&own);
}
"""


@pytest.fixture(scope="module")
def variables() -> tma.runtime.Module:
    return tma.compile(VARIABLES, "sm_90a")


@pytest.fixture
def stored(cuda: FakeCuda) -> FakeCuda:
    from fake_cuda import _memory

    sizes = {"one": 128, "several": 384, "scale": 4, "loose": 128, "_ZN5outer5inner4pairE": 8}
    cuda.variables = {name: _memory(size) for name, size in sizes.items()}
    return cuda


def test_variables_are_read_with_their_sizes(variables: tma.runtime.Module) -> None:
    found = parse_variables(variables.ptx)
    assert {name: (v.size, v.alignment, v.is_constant) for name, v in found.items()} == {
        "one": (128, 64, True), "several": (384, 64, True), "scale": (4, 4, True), "loose": (128, 1, True),
        "own": (128, 64, False), "_ZN5outer5inner4pairE": (8, 4, True),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("one", MAPS[0], bytes(MAPS[0])),
        ("one", [MAPS[1]], bytes(MAPS[1])),
        ("several", MAPS[:3], b"".join(map(bytes, MAPS[:3]))),
        ("several", tuple(MAPS[1:]), b"".join(map(bytes, MAPS[1:]))),
        ("scale", np.float32(3), np.float32(3).tobytes()),
        ("loose", bytes(range(128)), bytes(range(128))),
        ("outer::inner::pair", np.array([[5, 6], [7, 8]], np.int32)[:, 1], np.array([6, 8], np.int32).tobytes()),
        ("::outer::inner::pair", np.zeros(2, np.int32), bytes(8)),
    ],
)
def test_a_constant_is_written_whole(
    stored: FakeCuda, variables: tma.runtime.Module, name: str, value: Any, expected: bytes
) -> None:
    set_constant(variables, name, value, 3)
    stored.run()
    written = constants._mangled(name)
    assert stored.variables[written].tobytes() == expected
    assert stored.streams == [3]


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("none", MAPS[0], "no __constant__ variable 'none'; it has: .*one, scale, several"),
        (None, MAPS[0], "no __constant__ variable None"),
        ("own", MAPS[0], "is a __device__ variable"),
        ("one", MAPS[:2], "has 128 B and was given 256 B, 2 tensor maps"),
        ("several", MAPS[0], "has 384 B and was given 128 B"),
        ("loose", MAPS[0], "needs 64 bytes of alignment, and the variable has 1"),
        ("scale", 2.0, "a float has no size of its own"),
        ("scale", None, "a NoneType has no size"),
        ("scale", np.float64(2), "has 4 B and was given 8 B"),
        ("scale", np.array([None]), "a ndarray has no size"),
        ("one", on_host, "host memory"),
        ("one", [MAPS[0], None], "a list has no size"),
        ("one", [], "a list has no size"),
        ("one", tma.TensorMap(b"\xff" * 128), "no tensor map"),
    ],
)
def test_values_that_do_not_fit_a_constant_are_refused(
    stored: FakeCuda, variables: tma.runtime.Module, name: Any, value: Any, message: str
) -> None:
    with pytest.raises(LaunchError, match=message):
        set_constant(variables, name, value() if callable(value) else value)
    assert stored.waiting == []


def test_a_module_is_loaded_once_for_its_kernels_and_its_constants(
    stored: FakeCuda, variables: tma.runtime.Module
) -> None:
    fresh = compiler.Module(variables._request, variables._compiled)
    for value in MAPS[:2]:
        set_constant(fresh, "one", value)
    assert loading.raw_module(fresh) is loading.raw_module(fresh)
    assert len(stored.paths) == 1
    with open(stored.paths[0], "rb") as file:
        assert file.read() == variables.cubin


def test_what_a_constant_describes_is_kept_until_it_is_written_again(
    stored: FakeCuda, variables: tma.runtime.Module
) -> None:
    fresh = compiler.Module(variables._request, variables._compiled)
    first = [replace(TILED, global_address=1 << 33).encode()]
    array = np.zeros(1).view(type("Array", (np.ndarray,), {}))
    first[0].__dict__["_source"] = array
    alive = weakref.ref(array)
    set_constant(fresh, "one", first)
    del first, array
    gc.collect()
    assert alive() is not None
    set_constant(fresh, "one", MAPS[0])
    gc.collect()
    assert alive() is None


def test_a_constant_that_cannot_be_reached_is_told_with_the_earlier_fault(
    stored: FakeCuda, variables: tma.runtime.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*arguments: Any) -> None:
        raise RuntimeError("CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered")

    monkeypatch.setattr(stored.cuda.runtime, "memcpyAsync", failing)
    with pytest.raises(tma.errors.DriverError, match="a kernel launched earlier in this process failed") as caught:
        set_constant(variables, "one", MAPS[0])
    assert caught.value.code == 700


def test_code_for_another_architecture_is_refused(
    stored: FakeCuda, variables: tma.runtime.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "compute_capability", lambda: (10, 0))
    with pytest.raises(LaunchError, match=r"compiled for sm_90a; the current device has compute capability 10\.0"):
        set_constant(variables, "one", MAPS[0])


# Built on the device


def asserted(**options: Any) -> bool:
    return "__assertfail" in compiled("sm_90a", **options).ptx


def test_replace_code_checks_strides_addresses_and_slots_in_debug_builds_alone() -> None:
    assert not asserted()
    assert asserted(CUPYTMA_CHECK=None)
    for field, multiple in (("global_stride", 16), ("global_address", 16)):
        for space in ("global", "shared::cta", "generic"):
            text = ptx.tensormap_replace(field=field, space=space).function()
            assert f"assert(value % {multiple} == 0" in text
            assert "(tensor_map) % 128 == 0" in text
    assert "assert(value" not in ptx.tensormap_replace(field="global_dim").function()
    fence = ptx.tensormap_cp_fenceproxy(scope="gpu").function()
    assert "(destination) % 128 == 0" in fence
    assert "(source) % 128 == 0" in fence


@pytest.mark.parametrize("target", ["sm_90a", "sm_100a", "sm_120a"])
def test_the_whole_header_compiles_with_its_checks(target: str) -> None:
    source = '#include <cupytma.cuh>\nextern "C" __global__ void k() {}'
    tma.compile(source, target, defines={"CUPYTMA_CHECK": None})


@pytest.mark.parametrize("extent", [511, 513, 520])
def test_a_stride_that_the_host_sees_is_refused_before_the_device_gets_it(extent: int) -> None:
    template = tma.Tiled(data_type="BFLOAT16", global_address=1 << 20, global_dim=(512, 64), box_dim=(64, 8)).encode()
    stride = 2 * extent
    if stride % 16:
        with pytest.raises(DescriptorError, match=rf"global_strides\[0\] = {stride} B .* {stride % 16} mod 16"):
            template.rebind(1 << 30, (extent, 64), (stride,))
    else:
        assert template.rebind(1 << 30, (extent, 64), (stride,)).decode().global_strides == (stride,)


def test_every_error_here_is_the_packages_own() -> None:
    assert issubclass(SlotError, (CupytmaError, IndexError))
