"""Launches on a GPU: every argument arrives, descriptors by value in any position."""

from __future__ import annotations

import ctypes
import random

import numpy as np
import pytest

import cupytma as tma
from cupytma.errors import LaunchError

pytestmark = pytest.mark.gpu

# How a parameter is declared, what is passed, and the bytes that must arrive.
SCALARS = {
    "unsigned char": "u1", "short": "i2", "int": "i4", "unsigned": "u4", "long long": "i8", "float": "f4",
    "double": "f8",
}  # fmt: skip


def random_map(generator: random.Random) -> tma.TensorMap:
    return tma.Tiled(
        data_type="FLOAT16", global_address=16 * generator.randrange(2**40),
        global_dim=(64, generator.randrange(1, 99)), global_strides=(128,), box_dim=(64, 8),
        swizzle=generator.choice(["NONE", "128B"]),
    ).encode()  # fmt: skip


def random_parameter(generator: random.Random) -> tuple[str, object, bytes]:
    kind = generator.choice(["map", "map", "pointer", "struct", *SCALARS])
    if kind == "map":
        tensor_map = random_map(generator)
        return "const __grid_constant__ CUtensorMap", tensor_map, bytes(tensor_map)
    if kind == "pointer":
        return "void*", None, bytes(8)
    if kind == "struct":
        value = np.zeros((), [("a", "u1"), ("b", "u4"), ("c", "u8", 3)])
        size = value.nbytes
        value = np.frombuffer(generator.randbytes(size), f"V{size}")[0]
        return f"Bytes<{size}>", value, value.tobytes()
    value = np.frombuffer(generator.randbytes(8), SCALARS[kind])[0]
    if SCALARS[kind].startswith("f"):
        value = np.dtype(SCALARS[kind]).type(generator.random())
    return kind, value, value.tobytes()


@pytest.mark.parametrize("seed", range(12))
def test_every_argument_arrives_bit_exact_in_every_position(seed: int) -> None:
    import cupy

    generator = random.Random(seed)
    parameters = [random_parameter(generator) for _ in range(generator.randrange(1, 12))]
    declared = "".join(f", {kind} p{i}" for i, (kind, _, _) in enumerate(parameters))
    copies = "".join(f"    out = echo(out, &p{i}, sizeof(p{i}));\n" for i in range(len(parameters)))
    source = f"""
    #include <cupytma.cuh>
    template <int size> struct Bytes {{ unsigned char bytes[size]; }};
    __device__ unsigned char* echo(unsigned char* out, const void* value, int size) {{
        for (int i = 0; i < size; ++i) out[i] = static_cast<const unsigned char*>(value)[i];
        return out + size;
    }}
    extern "C" __global__ void k(unsigned char* out{declared}) {{
    {copies}
    }}
    """
    expected = b"".join(data for _, _, data in parameters)
    out = cupy.zeros(len(expected), cupy.uint8)
    tma.compile(source).kernel("k")(1, 1, (out, *(value for _, value, _ in parameters)))
    assert out.get().tobytes() == expected


class Pair(ctypes.Structure):
    _fields_ = [("a", ctypes.c_int), ("b", ctypes.c_double)]


def random_struct_parameters(generator: random.Random) -> tuple[str, object, bytes]:
    """How a parameter is declared, what is passed, and the bytes that must arrive."""
    kind = generator.choice(["maps", "ctypes", "half", "complex", "bytes", "numbers"])
    if kind == "maps":
        count = generator.randrange(1, 5)
        maps = [
            tma.Tiled(data_type="FLOAT32", global_address=16 * generator.randrange(2**40), global_dim=(64,),
                      box_dim=(16,)).encode()
            for _ in range(count)
        ]  # fmt: skip
        return f"const __grid_constant__ Maps<{count}>", maps, b"".join(map(bytes, maps))
    if kind == "ctypes":
        pair = Pair(generator.randrange(2**31), generator.random())
        return "Pair", pair, bytes(pair)
    if kind == "half":
        value = np.float16(generator.random())
        return "Bytes<2>", value, value.tobytes()
    if kind == "complex":
        value = np.complex64(generator.random() + 1j)
        return "Bytes<8>", value, value.tobytes()
    if kind == "bytes":
        data = generator.randbytes(generator.randrange(1, 400))
        return f"Bytes<{len(data)}>", data, data
    number = generator.randrange(-(2**63), 2**63)
    return "long long", number, number.to_bytes(8, "little", signed=True)


@pytest.mark.parametrize("seed", range(8))
def test_structs_of_every_kind_arrive_bit_exact(seed: int) -> None:
    import cupy

    generator = random.Random(seed)
    parameters = [random_struct_parameters(generator) for _ in range(generator.randrange(1, 8))]
    declared = "".join(f", {kind} p{i}" for i, (kind, _, _) in enumerate(parameters))
    copies = "".join(f"    out = echo(out, &p{i}, {len(data)});\n" for i, (_, _, data) in enumerate(parameters))
    source = f"""
    #include <cupytma.cuh>
    template <int size> struct Bytes {{ unsigned char bytes[size]; }};
    template <int count> struct Maps {{ CUtensorMap maps[count]; }};
    struct Pair {{ int a; double b; }};
    __device__ unsigned char* echo(unsigned char* out, const void* value, int size) {{
        for (int i = 0; i < size; ++i) out[i] = static_cast<const unsigned char*>(value)[i];
        return out + size;
    }}
    extern "C" __global__ void k(unsigned char* out{declared}) {{
    {copies}
    }}
    """
    expected = b"".join(data for _, _, data in parameters)
    out = cupy.zeros(len(expected), cupy.uint8)
    kernel = tma.compile(source).kernel("k")
    kernel(1, 1, (out, *(value for _, value, _ in parameters)))
    assert out.get().tobytes() == expected
    out[:] = 0
    kernel.plan(1, 1, (out, *(value for _, value, _ in parameters)))()
    assert out.get().tobytes() == expected


TILE = """
#include <cupytma.cuh>
extern "C" __global__ void tile(
    float scale, const __grid_constant__ CUtensorMap source, float* out, const __grid_constant__
    CUtensorMap destination, int x, int y)
{
    __shared__ alignas(1024) float tile[32 * 32];
    __shared__ unsigned long long loaded;
    if (threadIdx.x == 0) {
        cupytma::mbarrier_init(&loaded, 1);
        cupytma::fence_mbarrier_init();
        cupytma::mbarrier_arrive_expect_tx_sink(&loaded, sizeof(tile));
        cupytma::tensor_load_2d(tile, &source, x, y, &loaded);
    }
    __syncthreads();
    cupytma::mbarrier_wait_parity(&loaded, 0);
    for (int i = threadIdx.x; i < 32 * 32; i += blockDim.x) {
        out[i] = tile[i];
        tile[i] *= scale;
    }
    cupytma::fence_proxy_async_shared_cta();
    __syncthreads();
    if (threadIdx.x == 0) {
        cupytma::tensor_store_2d(&destination, x, y, tile);
        cupytma::bulk_commit_group();
        cupytma::bulk_wait_group<0>();
    }
}
"""


@pytest.mark.parametrize("swizzle", ["NONE", "128B"])
@pytest.mark.parametrize(("x", "y"), [(0, 0), (32, 64), (96, 96)])
def test_a_users_kernel_moves_a_tile_both_ways_and_agrees_with_the_simulator(swizzle: str, x: int, y: int) -> None:
    import cupy

    source = cupy.random.default_rng(1).random((100, 112), dtype=cupy.float32)
    destination = cupy.full_like(source, -1)
    maps = [tma.tensor_map(a, box=(32, 32), swizzle=swizzle) for a in (source, destination)]
    out = cupy.zeros(32 * 32, cupy.float32)
    tma.compile(TILE).kernel("tile")(1, 128, (2.0, maps[0], out, maps[1], x, y))

    host, shared = source.get(), np.zeros(4096, np.uint8)
    tma.sim.load(maps[0], (x, y), memory=host.reshape(-1).view(np.uint8), base=source.data.ptr, shared=shared)
    np.testing.assert_array_equal(out.get().view(np.uint8), shared)
    expected = np.full_like(host, -1)
    expected[y : y + 32, x : x + 32] = 2 * host[y : y + 32, x : x + 32]
    np.testing.assert_array_equal(destination.get(), expected)


def test_negative_start_coordinates_load_the_fill_before_the_tensor() -> None:
    import cupy

    source = cupy.random.default_rng(2).random((64, 64), dtype=cupy.float32)
    maps = [tma.tensor_map(a, box=(32, 32)) for a in (source, cupy.zeros((4, 32), cupy.float32))]
    out = cupy.full(32 * 32, -1, cupy.float32)
    kernel = tma.compile(TILE.split("    cupytma::fence_proxy_async_shared_cta")[0] + "}").kernel("tile")
    kernel(1, 128, (1.0, maps[0], out, maps[1], -16, -5))
    expected = np.zeros((32, 32), np.float32)
    expected[5:, 16:] = source.get()[:27, :16]
    np.testing.assert_array_equal(out.get().reshape(32, 32), expected)


def test_large_dynamic_shared_memory_is_allowed() -> None:
    import cupy

    source = """
    extern "C" __global__ void k(int* out, int words) {
        extern __shared__ int shared[];
        shared[words - 1] = 7;
        *out = shared[words - 1];
    }
    """
    kernel, out = tma.compile(source).kernel("k"), cupy.zeros(1, cupy.int32)
    for shared_bytes in (1024, 200 * 1024, 100 * 1024, 227 * 1024):
        out[:] = 0
        kernel(1, 1, (out, shared_bytes // 4), shared_bytes=shared_bytes)
        assert int(out[0]) == 7


def test_a_launch_follows_the_stream_it_is_given() -> None:
    import cupy

    kernel = tma.compile('extern "C" __global__ void k(int* out, int value) { *out = value; }').kernel("k")
    out, stream = cupy.zeros(1, cupy.int32), cupy.cuda.Stream(non_blocking=True)
    kernel(1, 1, (out, 5), stream=stream)
    stream.synchronize()
    assert int(out[0]) == 5
    with cupy.cuda.Stream(non_blocking=True) as current:
        kernel(1, 1, (out, 6))
        current.synchronize()
    assert int(out[0]) == 6


def test_code_for_another_architecture_is_refused_with_both_names() -> None:
    other = "sm_100a" if tma.runtime.current_target().compute_capability == (9, 0) else "sm_90a"
    kernel = tma.compile('extern "C" __global__ void k() {}', target=other).kernel("k")
    with pytest.raises(LaunchError, match=f"compiled for {other}"):
        kernel(1, 1)
