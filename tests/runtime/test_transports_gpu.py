"""The four transports on a GPU: each brings the right tile, and writes take effect in the order of the stream."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transports import BOX, TILE_BYTES, compiled

import cupytma as tma
from cupytma.errors import LaunchError
from cupytma.runtime import set_constant

pytestmark = pytest.mark.gpu
HEIGHT, WIDTH = 200, 300
WAYS = ("parameter", "constant", "buffer", "rebinding")


@pytest.fixture(scope="module")
def module() -> tma.runtime.Module:
    return compiled()


def matrix(seed: int, height: int = HEIGHT, width: int = WIDTH) -> Any:
    import cupy

    return cupy.random.default_rng(seed).random((height, width), dtype=cupy.float32)


def expected(array: Any, x: int, y: int) -> np.ndarray:
    """A tile, with zeros outside the array."""
    padded = np.zeros((array.shape[0] + 128, array.shape[1] + 128), np.float32)
    padded[64 : 64 + array.shape[0], 64 : 64 + array.shape[1]] = array.get()
    return padded[64 + y : 64 + y + BOX[0], 64 + x : 64 + x + BOX[1]]


def launch(module: tma.runtime.Module, way: str, array: Any, x: int, y: int, stream: Any = None) -> np.ndarray:
    """The tile that one way brings."""
    import cupy

    out, tensor_map = cupy.zeros(BOX, cupy.float32), tma.tensor_map(array, BOX)
    stream = stream or cupy.cuda.get_current_stream()
    stream.wait_event(cupy.cuda.get_current_stream().record())
    kernel: Any = module.kernel(f"through_{way}")
    if way == "parameter":
        kernel(1, 128, (tensor_map, x, y, out), stream=stream)
    elif way == "constant":
        set_constant(module, "constant_map", tensor_map, stream)
        kernel(1, 128, (x, y, out), stream=stream)
    elif way == "buffer":
        buffer = tma.DescriptorBuffer(3)
        buffer.write([tensor_map], 2, stream=stream)
        kernel(1, 128, (buffer, 2, x, y, out), stream=stream)
    else:
        seed = tma.tensor_map(cupy.zeros((64, 64), cupy.float32), BOX)
        buffer, addresses = tma.DescriptorBuffer(1), cupy.asarray([array.data.ptr], cupy.uint64)
        stream.wait_event(cupy.cuda.get_current_stream().record())
        height, width = array.shape
        kernel(1, 128, (seed, buffer, addresses, width, height, array.strides[0], x, y, out), stream=stream)
    stream.synchronize()
    return out.get()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("seed", range(5))
def test_every_way_brings_a_random_tile(module: tma.runtime.Module, way: str, seed: int) -> None:
    generator = random.Random(seed)
    array, x, y = matrix(seed), 4 * generator.randrange(-4, 75), generator.randrange(-16, 190)
    np.testing.assert_array_equal(launch(module, way, array, x, y), expected(array, x, y))


@pytest.mark.parametrize("way", WAYS)
def test_every_way_works_on_a_stream_of_its_own(module: tma.runtime.Module, way: str) -> None:
    import cupy

    array = matrix(7)
    cupy.cuda.Device().synchronize()
    found = launch(module, way, array, 8, 9, cupy.cuda.Stream(non_blocking=True))
    np.testing.assert_array_equal(found, expected(array, 8, 9))


@pytest.mark.parametrize("way", ["constant", "buffer"])
def test_writes_and_launches_that_follow_one_another_do_not_wait_and_do_not_mix(
    module: tma.runtime.Module, way: str
) -> None:
    import cupy

    arrays = [matrix(n) for n in range(8)]
    maps = [tma.tensor_map(array, BOX) for array in arrays]
    outs = cupy.zeros((400, *BOX), cupy.float32)
    buffer, stream = tma.DescriptorBuffer(1), cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    for n in range(len(outs)):
        if way == "constant":
            set_constant(module, "constant_map", maps[n % 8], stream)
            module.kernel("through_constant")(1, 128, (32, 16, outs[n]), stream=stream)
        else:
            buffer.write([maps[n % 8]], stream=stream)
            module.kernel("through_buffer")(1, 128, (buffer, 0, 32, 16, outs[n]), stream=stream)
    stream.synchronize()
    found = outs.get()
    for n in range(len(outs)):
        np.testing.assert_array_equal(found[n], expected(arrays[n % 8], 32, 16), err_msg=f"launch {n}")


def test_a_graph_replays_a_write_and_its_launch(module: tma.runtime.Module) -> None:
    import cupy

    arrays = [matrix(1), matrix(2)]
    buffer, out = tma.DescriptorBuffer(1), cupy.zeros(BOX, cupy.float32)
    kernel, stream = module.kernel("through_buffer"), cupy.cuda.Stream(non_blocking=True)
    buffer.write([tma.tensor_map(arrays[1], BOX)])
    kernel(1, 128, (buffer, 0, 0, 0, out))  # loaded before anything is captured
    cupy.cuda.Device().synchronize()
    with stream:
        stream.begin_capture()
        buffer.write([tma.tensor_map(arrays[0], BOX)], stream=stream)
        kernel(1, 128, (buffer, 0, 4, 5, out), stream=stream)
        graph = stream.end_capture()
    for _ in range(3):
        buffer.write([tma.tensor_map(arrays[1], BOX)], stream=stream)
        graph.launch(stream)
        stream.synchronize()
        np.testing.assert_array_equal(out.get(), expected(arrays[0], 4, 5))


def test_a_batch_of_matrices_of_one_shape_is_read_through_maps_built_on_the_device(module: tma.runtime.Module) -> None:
    import cupy

    arrays = [matrix(n, 100, 512) for n in range(24)]
    buffer, outs = tma.DescriptorBuffer(24), cupy.zeros((24, *BOX), cupy.float32)
    addresses = cupy.asarray([array.data.ptr for array in arrays], cupy.uint64)
    seed = tma.tensor_map(cupy.zeros((64, 64), cupy.float32), BOX)
    module.kernel("through_rebinding")(24, 64, (seed, buffer, addresses, 512, 100, 2048, 480, 80, outs))
    tma.runtime.synchronize()
    for n, array in enumerate(arrays):
        np.testing.assert_array_equal(outs[n].get(), expected(array, 480, 80))
    built = buffer.to_host()
    assert [bytes(tensor_map)[:64] for tensor_map in built] == [bytes(tma.tensor_map(a, BOX))[:64] for a in arrays]
    assert list(buffer) == [None] * 24


def test_slots_hold_what_was_written_and_a_new_buffer_is_empty(module: tma.runtime.Module) -> None:
    buffer, maps = tma.DescriptorBuffer(5), [tma.tensor_map(matrix(n), BOX) for n in range(3)]
    assert buffer.to_host() == (None,) * 5
    buffer[1:4] = maps
    assert buffer.to_host() == (None, *maps, None)
    assert buffer.address(3) % 128 == 0


def test_constants_of_every_kind_arrive() -> None:
    import cupy

    source = """
    __constant__ float scale = 2;
    namespace a { __constant__ int pair[2]; }
    extern "C" __global__ void k(float* out) { out[0] = scale; out[1] = a::pair[0]; out[2] = a::pair[1]; }
    extern "C" __global__ void other(float* out) { out[0] = scale; }
    """
    module, out = tma.compile(source), cupy.zeros(3, cupy.float32)
    module.kernel("k")(1, 1, (out,))
    assert out.get().tolist() == [2, 0, 0]
    set_constant(module, "scale", np.float32(5))
    set_constant(module, "a::pair", np.array([7, 8], np.int32))
    module.kernel("k")(1, 1, (out,))
    assert out.get().tolist() == [5, 7, 8]
    module.kernel("other")(1, 1, (out,))  # all kernels of a module share its variables
    assert out.get().tolist() == [5, 7, 8]


def test_checks_let_every_way_through_and_refuse_memory_that_is_gone(module: tma.runtime.Module) -> None:
    import cupy

    array = matrix(3)
    with tma.checks():
        for way in WAYS:
            np.testing.assert_array_equal(launch(module, way, array, 0, 0), expected(array, 0, 0))
        out = cupy.zeros(BOX, cupy.float32)
        memory = cupy.cuda.Memory(4 * HEIGHT * WIDTH)  # apart from every pool
        lost = tma.tensor_map(array, BOX).with_address(memory.ptr)
        module.kernel("through_parameter")(1, 128, (lost, 0, 0, out))
        cupy.cuda.Device().synchronize()
        del memory
        with pytest.raises(LaunchError, match="map-memory: argument 0"):
            module.kernel("through_parameter")(1, 128, (lost, 0, 0, out))


BAD_STRIDE = """
import sys, cupy, cupytma as tma
sys.path.insert(0, {here!r})
from transports import BOX, compiled
array, out = cupy.zeros((64, 512), cupy.float32), cupy.zeros(BOX, cupy.float32)
addresses, buffer = cupy.asarray([array.data.ptr], cupy.uint64), tma.DescriptorBuffer(1)
compiled({check}).kernel("through_rebinding")(
    1, 128, (tma.tensor_map(array, BOX), buffer, addresses, 511, 64, 2044, 0, 0, out))
try:
    tma.runtime.synchronize()
    print("completed")
except tma.errors.DriverError as error:
    print(error.code)
"""


@pytest.mark.parametrize(("check", "answer"), [("CUPYTMA_CHECK=None", "710"), ("", "completed")])
def test_a_stride_that_is_no_multiple_of_16_stops_a_debug_build_alone(check: str, answer: str) -> None:
    script = BAD_STRIDE.format(here=str(Path(__file__).parent), check=check)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300)
    assert done.stdout.splitlines()[-1:] == [answer], done.stdout + done.stderr
    if check:
        assert "value is a multiple of 16" in done.stdout + done.stderr


def test_tiles_have_the_size_that_the_examples_say() -> None:
    assert tma.tensor_map(matrix(0), BOX).box_bytes == TILE_BYTES
