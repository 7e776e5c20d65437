"""The source of pipeline kernels: it compiles for every type, rank and layout, and says what it does."""

from __future__ import annotations

import numpy as np
import pytest
from pipeline_cases import CASES

import cupytma as tma
from cupytma.errors import CompileError
from cupytma.limits import TILE_ALIGNMENT
from cupytma.pipeline.declarations import ELEMENT_TYPES
from cupytma.pipeline.program import numpy_type

pytest.importorskip("cuda.bindings.nvrtc", reason="needs cuda-python and NVRTC")
SHAPES = [(5000,), (70, 300), (6, 70, 130), (3, 4, 5, 130), (2, 3, 4, 5, 60)]


def windows(shape: tuple[int, ...], types: tuple[str, ...]) -> list[np.ndarray]:
    """Arrays whose dimensions cannot be merged."""
    wide = (*(extent + 1 for extent in shape[:-1]), -(-shape[-1] // 16) * 16)
    return [np.zeros(wide, numpy_type(dtype))[tuple(slice(extent) for extent in shape)] for dtype in types]


def assert_compiles(kernel: tma.pipeline.PipelineKernel, arrays: list[np.ndarray], target: str) -> None:
    module = kernel.compile(*arrays, target=target)
    assert module.log.strip() == ""
    assert module.warnings == ()
    found = module.resources[kernel.declaration.name]
    assert found.spill_store_bytes == 0
    assert found.shared_bytes + kernel.plan(*arrays).variant.shared_bytes + TILE_ALIGNMENT <= 227 * 1024


@pytest.mark.parametrize("number", range(len(ELEMENT_TYPES)))
def test_every_type_compiles_in_every_rank(number: int) -> None:
    dtype = list(ELEMENT_TYPES)[number]
    kernel = tma.pipeline_kernel("out = a; wide = a;", [f"{dtype} a"], [f"{dtype} out", "float64 wide"])
    arrays = windows(SHAPES[number % 5], (dtype,))
    assert len(kernel.plan(*arrays).variant.box) == len(arrays[0].shape)
    assert_compiles(kernel, arrays, ("sm_90a", "sm_100a")[number % 2])


@pytest.mark.parametrize("target", ["sm_90a", "sm_100a"])
@pytest.mark.parametrize("name", CASES)
def test_every_kind_of_kernel_compiles(name: str, target: str) -> None:
    case = CASES[name]
    assert_compiles(case.make(), windows(SHAPES[case.ranks[-1] // 2], case.types), target)


@pytest.mark.parametrize("dtype", [name for name, kind in ELEMENT_TYPES.items() if kind.code])
def test_reductions_of_every_type_compile(dtype: str) -> None:
    ways = ["add", "mul", "min", "max"] + ([] if "float" in dtype else ["and", "or", "xor"])
    kernel = tma.pipeline_kernel(
        "".join(f"{dtype}_{way} = a;" for way in ways), [f"{dtype} a"],
        reduce={f"{dtype} {dtype}_{way}": way for way in ways}, over="all",
    )
    assert_compiles(kernel, windows((70, 300), (dtype,)), "sm_90a")


def test_arrays_that_no_map_takes_have_a_source_of_their_own() -> None:
    kernel = tma.pipeline_kernel("out = a + b", "float32 a, float32 b", "float32 out")
    a = np.zeros((40, 301), np.float32)
    plan = kernel.plan(a[:, 1:], a[:, :1], out=a[:, 1:])
    assert not any(way.mapped for way in plan.variant.ways)
    source = kernel.source_for(a[:, 1:], a[:, :1], out=a[:, 1:])
    assert "Producer" not in source
    assert source.count("copy_in(") == 2
    assert_compiles(kernel, [a[:, 1:], a[:, :1]], "sm_90a")


def test_the_source_shows_the_code_and_what_it_is_about() -> None:
    kernel = tma.pipeline_kernel(
        "out = scale * a", "float16 a", "float32 out", scalars="float32 scale", stages=3, name="scaled"
    )
    for text in (
        "// scaled, a pipeline", "//   inputs   float16 a", "constexpr int stages = 3;", "    out = scale * a;\n",
        "const __grid_constant__ CUtensorMap a_map", "loaded_bytes = sizeof(Stage::a);",
    ):
        assert text in kernel.source
    for case in CASES.values():
        assert max(map(len, case.make().source.splitlines() if 2 in case.ranks else [""])) <= 120
    boxed = tma.pipeline_kernel("out = a", "float16 a", "float32 out", box=(2, 4, 64))
    assert "using TileBox = Box<64, 4, 2>;" in boxed.source


def test_a_mistake_in_the_code_is_shown_in_its_line() -> None:
    kernel = tma.pipeline_kernel("out = a +* b", "float32 a, float32 b", "float32 out")
    with pytest.raises(CompileError) as caught:
        kernel.compile(np.zeros(64, np.float32), np.zeros(64, np.float32))
    assert caught.value.line is not None
    assert caught.value.source.splitlines()[caught.value.line - 1].strip() == "out = a +* b;"


def test_the_header_serves_kernels_written_by_hand() -> None:
    source = r"""
    #include <cupytma/pipeline.cuh>
    using namespace cupytma::pipeline;
    using TileBox = Box<64, 8>;
    struct Shared { struct { alignas(128) float x[TileBox::elements]; } stage[4]; };

    extern "C" __global__ void largest(
        const __grid_constant__ CUtensorMap map, const __grid_constant__ Tiling<2> tiling, float* out)
    {
        __shared__ RingBarriers<4> barriers;
        Shared& shared = shared_memory<Shared>();
        if (threadIdx.x == 0) barriers.init(4);
        __syncthreads();
        if (threadIdx.x >= 128) {
            if (cupytma::elect_sync()) {
                Producer<4> producer(barriers);
                for (TileWalk<TileBox> tile(tiling); tile.more(); tile.next()) {
                    auto& stage = shared.stage[producer.begin(sizeof(float) * TileBox::elements)];
                    load<TileBox, 64, 1>(stage.x, map, tile, producer.loaded());
                    producer.end();
                }
            }
            return;
        }
        const Group<128> group;
        Consumer<4> consumer(barriers);
        float top = lowest<float>();
        for (TileWalk<TileBox> tile(tiling); tile.more(); tile.next()) {
            const auto& stage = shared.stage[consumer.wait()];
            for (int i = group.thread; i < TileBox::elements; i += group.threads) top = max(top, stage.x[i]);
            consumer.release();
        }
        top = group.max(top);
        if (group.thread == 0) out[blockIdx.x] = top;
    }
    """
    module = tma.compile(source, target="sm_90a")
    assert module.kernels == ("largest",)
    assert "mbarrier.try_wait.parity" in module.ptx
    assert tma.compile(source, target="sm_90a") is module


def test_a_store_ring_needs_two_stages() -> None:
    code = "#include <cupytma/pipeline.cuh>\n__global__ void k() { cupytma::pipeline::StoreRing<1, 64> ring; }"
    with pytest.raises(CompileError, match="at least 2 stages are needed"):
        tma.compile(code, target="sm_90a")


def test_code_may_end_in_a_comment() -> None:
    made = tma.pipeline_kernel("out = 2 * x  // twice", "float32 x", "float32 out", name="twice")
    assert made.compile(np.zeros((64, 64), np.float32)).kernels == ("twice",)
