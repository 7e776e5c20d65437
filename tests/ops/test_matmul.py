"""Matrix products before any GPU: what is refused and why, how they are tiled, and what is told of them."""

from __future__ import annotations

import importlib.util
import random
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matmul_any import any_way
from matmul_arrays import judged_of

import cupytma as tma
from cupytma.errors import ArrayError, NoDeviceError, TargetError
from cupytma.ops.matmul_configuration import Configuration, problem_with, tiles_of
from cupytma.ops.matmul_operands import Operands, check_operands
from cupytma.ops.matmul_plan import plan_matmul
from cupytma.ops.matmul_ways import CONFIGURATIONS
from cupytma.runtime.device import has_tma_device
from cupytma.targets import target
from cupytma.tensormap.arrays import ArrayView

HOPPER = target("sm_90a")


def view(shape: tuple[int, ...], dtype: str = "float8_e4m3fn", strides: tuple[int, ...] | None = None, **more: Any):
    size = {"float8_e4m3fn": 1, "float8_e5m2": 1, "uint8": 1, "float32": 4, "float64": 8}.get(dtype, 2)
    if strides is None:
        strides = tuple(size * int(np.prod(shape[i + 1 :])) for i in range(len(shape)))
    return ArrayView(more.pop("address", 1 << 40), shape, strides, dtype, size, more.pop("device", 0), **more)


def transposed(n: int, k: int, dtype: str = "float8_e4m3fn", **more: Any) -> ArrayView:
    found = view((n, k), dtype, address=1 << 44, **more)
    return ArrayView(found.address, found.shape[::-1], found.strides[::-1], dtype, found.itemsize, found.device)


def out_of(m: int, n: int, dtype: str = "bfloat16", **more: Any) -> ArrayView:
    return view((m, n), dtype, address=more.pop("address", 1 << 48), **more)


def judged(m: int = 64, n: int = 96, k: int = 128, dtype: str = "float8_e4m3fn", out: str = "bfloat16") -> Operands:
    return judged_of(m, n, k, dtype, out)


A, B, OUT = view((64, 128)), transposed(96, 128), out_of(64, 96)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"a": view((64, 8)), "b": transposed(96, 8)}, "K = 8 elements of 1 B are 8 B.*multiple of 16 B.*pad.*16 elem"),
        ({"a": view((64, 12), "float16"), "b": transposed(96, 12, "float16")}, "24 B.*to 16 elements"),
        ({"a": view((64, 128, 1))}, "two dimensions"),
        ({"a": view((64, 96)), "b": view((64, 96))}, r"both K; pass b transposed, b\.T"),
        ({"a": view((64, 127))}, "127 and 128 are both K"),
        ({"a": view((64, 128), "float64")}, "float64; these can be: float8_e4m3fn"),
        ({"a": view((64, 128), "uint8")}, "uint8.*a_dtype"),
        ({"b": transposed(96, 128, "bfloat16")}, "float8_e4m3fn and b bfloat16: only"),
        ({"a": view((64, 128), "float32"), "b": transposed(96, 128, "float32")}, "pass tf32=True"),
        ({"b": view((128, 96))}, r"b has strides \(96, 1\).*transpose of a row-major \(N, K\) array: make a copy"),
        ({"a": view((64, 128), strides=(1, 64))}, "a has strides.*row-major"),
        ({"a": view((64, 128), strides=(136, 1))}, "lines 136 B apart.*multiple of 16"),
        ({"a": view((64, 128), strides=(-128, 1))}, "lines -128 B apart"),
        ({"a": view((64, 128), address=(1 << 40) + 8)}, "8 mod 16"),
        ({"out": out_of(64, 95)}, r"out has shape \(64, 95\)"),
        ({"out": out_of(64, 96, "float64")}, "float64; these can be: bfloat16, float16, float32"),
        ({"out": out_of(64, 96, read_only=True)}, "out is read-only"),
        ({"out": out_of(64, 96, strides=(0, 2))}, "elements overlap"),
        ({"out": out_of(64, 96, address=(1 << 48) + 1)}, "no multiple of its elements"),
        ({"out": out_of(64, 96, address=(1 << 40) + 128)}, "out overlaps a in memory"),
        ({"out": out_of(64, 96, device=1)}, "a is on device 0, and out on device 1"),
        ({"out": out_of(64, 96, device=None)}, "a is on device 0, and out in host memory"),
        ({"scale_a": view((63,), "float32", address=1 << 50)}, r"scale_a has shape \(63,\).*\(64,\) or \(64, 1\)"),
        ({"scale_a": view((64,), "float16", address=1 << 50)}, "scale_a has dtype float16; it must be float32"),
        ({"scale_b": view((96, 1), "float32", address=1 << 50)}, r"scale_b has shape \(96, 1\)"),
        ({"scale_b": view((96,), "float32", strides=(8,), address=1 << 50)}, "lie together"),
        ({"bias": view((1,), "float32", address=1 << 50)}, r"bias has shape \(1,\)"),
        ({"bias": view((96,), "float16", address=1 << 50)}, "bias has dtype float16; it must be float32 or bfloat16"),
        ({"a_dtype": "bfloat16"}, "a has dtype float8_e4m3fn, and a_dtype says bfloat16"),
        ({"a_dtype": 3.5}, r"a_dtype = 3\.5 is no dtype"),
        ({"a_dtype": {"names": ["x"], "formats": []}}, "a_dtype = {.*} is no dtype"),
        ({"a_dtype": ("f4", -1)}, r"a_dtype = \('f4', -1\) is no dtype"),
        ({"a": view((64, 128), "uint32"), "a_dtype": "float32"}, "give an array of float32$"),
        ({"a": view((64, 128), address=0)}, "a has 8192 elements at a null address"),
        ({"out": out_of(64, 96, address=0)}, "out has 6144 elements at a null address"),
        ({"bias": view((96,), "float32", address=0)}, "bias has 96 elements at a null address"),
        ({"a": view((2**31 - 4095, 16)), "out": out_of(2**31 - 4095, 96)}, "2147479552 is the largest extent"),
        ({"out_dtype": "float16"}, "out has dtype bfloat16, and out_dtype says float16"),
        ({"a": view((2**31, 16)), "out": out_of(2**31, 96)}, "largest extent"),
    ],
)  # fmt: skip
def test_what_cannot_be_multiplied_is_refused_with_the_reason(change: dict[str, Any], words: str) -> None:
    arrays = {"a": A, "b": B, "out": OUT, **change}
    with pytest.raises(ArrayError, match=f"(?s){words}"):
        check_operands(**arrays)


def test_bits_in_integers_are_what_the_caller_names() -> None:
    bits = check_operands(
        view((64, 128), "uint8"), transposed(96, 128, "uint8"), out_of(64, 96, "uint16"),
        a_dtype="float8_e5m2", b_dtype="float8_e4m3fn", out_dtype="bfloat16",
    )  # fmt: skip
    assert (bits.a.type.name, bits.b.type.name, bits.result) == ("float8_e5m2", "float8_e4m3fn", "bfloat16")


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_16_bit_operands_may_be_row_major(dtype: str) -> None:
    found = check_operands(view((64, 128), dtype), view((128, 96), dtype, address=1 << 44), out_of(64, 96, "float32"))
    assert found.b.is_mn_major
    assert found.b.stride == 192
    plan = plan_matmul(found, HOPPER, 132)
    box = plan.maps()[0 if plan.configuration.is_swapped else 1].decode().box_dim
    assert tuple(map(int, box)) == (64, 64)


def test_strides_of_one_line_do_not_matter() -> None:
    found = check_operands(
        view((1, 128), strides=(7, 1)), transposed(1, 128, strides=(3, 1)), out_of(1, 1, strides=(5, 6))
    )
    assert (found.a.stride, found.b.stride) == (16, 16)
    assert not found.b.is_mn_major


@pytest.mark.parametrize("name", ["sm_90", "sm_100a", "sm_120a"])
def test_other_architectures_are_told_that_the_kernels_are_hoppers(name: str) -> None:
    with pytest.raises(TargetError, match=rf"{name} has no wgmma.*Hopper's \(sm_90a\).*cuBLAS"):
        plan_matmul(judged(), target(name), 132)


def test_every_configuration_fits_some_product() -> None:
    several = [judged(512, 512, 512, dtype, "bfloat16") for dtype in ("float8_e4m3fn", "bfloat16")]
    for configuration in CONFIGURATIONS:
        fitting = [
            plan_matmul(product, HOPPER, 132, configuration=configuration, fast_accumulation=True)
            for product in several
            if not problem_with(configuration, product, False, HOPPER.shared_bytes)
        ]
        assert fitting, configuration
        for plan in fitting:
            assert 2 <= plan.stages <= 12
            assert plan.size.shared_bytes <= HOPPER.shared_bytes
    assert len(set(CONFIGURATIONS)) == len(set(map(str, CONFIGURATIONS))) == len(CONFIGURATIONS)


@pytest.mark.parametrize(
    ("configuration", "words"),
    [
        (Configuration(2, 256), "a thread has no registers for 1 × 256 accumulators"),
        (Configuration(4, 64), "512 rows of an operand are more than a box has, 256"),
        (Configuration(None), "configuration: row_blocks = None is none of 1, 2, 4"),  # type: ignore[arg-type]
        (Configuration(1, [128]), r"tile_columns = \[128\] is none"),  # type: ignore[arg-type]
        (Configuration(consumers=0), "consumers = 0 is none of 1, 2"),
        (Configuration(1, 20), "tile_columns = 20 is none of"),
        (Configuration(1, 128.0), r"tile_columns = 128\.0 is none"),  # type: ignore[arg-type]
        (Configuration(1, 64, split=2), "K is split in swapped"),
        (Configuration(1, 24), "shorter than the 64 B"),
        (Configuration(1, 64, 8, 2), "16 blocks are more than"),
        (Configuration(1, 8, 2, is_swapped=True), "cannot be loaded in 2 parts"),
        (Configuration(2, 128, split=8, is_swapped=True), "3 stages, where sums and results are laid out, do not fit"),
        (Configuration(1, 64, is_ping_pong=True, consumers=1), "ping-pong: one warpgroup takes no turns"),
        (Configuration(1, 64, is_ping_pong=True, is_swapped=True, spare_rows=8), "left out of swapped, cooperative"),
        (Configuration(1, 8, split=2, is_swapped=True, spare_rows=8), "tiles that have all of K"),
        (Configuration(1, 64, spare_rows=8), "left out of swapped"),
        (Configuration(1, 8, is_swapped=True, spare_rows=64), "64 spare rows leave a warpgroup none of its 64"),
        (Configuration(1, 8, spare_rows=12), "spare_rows = 12 is none of"),
        ("fast", "is no Configuration"),
    ],
)
def test_a_configuration_that_cannot_be_is_refused(configuration: Any, words: str) -> None:
    with pytest.raises(ArrayError, match=words):
        plan_matmul(judged(dtype="bfloat16"), HOPPER, 132, configuration=configuration)


def every_product() -> list[Operands]:
    """Of each type and layout that the kernel has, large enough for any tile."""
    dtypes, results = ("float8_e4m3fn", "bfloat16", "float32"), ("bfloat16", "float32")
    found = [judged(700, 960, 256, dtype, out) for dtype in dtypes for out in results]
    a, row_major = view((700, 128), "bfloat16"), view((128, 960), "bfloat16", address=1 << 44)
    return [*found, *(check_operands(a, row_major, out_of(700, 960, out)) for out in results)]


def test_whatever_is_called_possible_has_boxes_and_buffers_as_hardware_and_kernel_want_them() -> None:
    """What matmul_tiles.cuh asserts, and what tensor maps and launches allow, for any way."""
    found = 0
    for number, operands in enumerate(every_product()):
        chosen = random.Random(number)
        for c in (any_way(chosen) for _ in range(60_000)):
            if problem_with(c, operands, False, HOPPER.shared_bytes):
                continue
            found += 1
            plan = plan_matmul(operands, HOPPER, 132, configuration=c, fast_accumulation=True)
            step, size = c.step_columns(operands.result_bytes), operands.result_bytes
            for matrix, extent, parts in (
                (plan.rows, c.tile_rows, c.cluster_columns), (plan.columns, c.tile_columns, c.cluster_rows),
            ):  # fmt: skip
                share = extent // parts
                assert share * parts == extent, c
                assert share % (64 if matrix.is_mn_major else 8) == 0, c
                assert matrix.is_mn_major or share <= 256, c
            assert c.tile_columns % step == 0 if c.is_swapped else c.tile_columns >= step, c
            assert 64 * step * size % 1024 == 0, c
            assert c.is_swapped or (c.split == 1 and step * size in (64, 128)), c
            assert c.consumers == 2 or not c.is_ping_pong, c
            assert c.split == 1 or c.cluster == c.split, c
            assert c.cluster <= 8, c
            assert plan.stages >= c.least_stages(size, plan.has_one_tile) >= 2, c
            assert plan.size.shared_bytes <= HOPPER.shared_bytes, c
            assert c.resident == 1 or (plan.size.shared_bytes + 1024) * c.resident <= HOPPER.shared_bytes + 1024, c
            assert c.threads * c.resident <= 2048, c
            assert 0 <= c.spare_rows < c.group_rows, c
            assert c.spare_rows == 0 or not (plan.rows.is_mn_major or c.is_ping_pong or c.split > 1), c
            assert c.spare_rows == 0 or c.is_swapped, c
            read = (plan.stages - 1) * c.stage_bytes + c.multiplied_rows * 128  # by the last instruction
            assert read <= plan.size.shared_bytes - 1024, c
            assert c.stage_bytes < 2**20, c  # what an mbarrier counts
    assert found > 3_000


def test_what_is_possible_has_tensor_maps() -> None:
    for operands in every_product():
        chosen = random.Random(operands.result_bytes)
        for c in (any_way(chosen) for _ in range(12_000)):
            if not problem_with(c, operands, False, HOPPER.shared_bytes):
                plan_matmul(operands, HOPPER, 132, configuration=c, fast_accumulation=True).maps()


@pytest.mark.parametrize(
    ("m", "is_swapped", "static_b", "begins"),
    [(64, True, True, True), (65, True, True, False), (64, False, True, False), (64, True, False, False)],
)
def test_weights_that_are_rows_are_loaded_before_for_few_rows_of_a_where_that_is_promised(
    m: int, is_swapped: bool, static_b: bool, begins: bool
) -> None:
    configuration = Configuration(1, 64, is_swapped=is_swapped)
    plan = plan_matmul(judged(m, 512, 512, "bfloat16"), HOPPER, 132, configuration=configuration, static_b=static_b)
    assert plan.begins_before == begins == bool(plan.defines()["ROWS_BEFORE"])


@pytest.mark.parametrize("swapped", [False, True])
def test_coordinates_of_the_last_tiles_fit_into_32_bits(swapped: bool) -> None:
    most = 2**31 - 4096
    ways = [Configuration(1, 192, 1, 8, is_swapped=swapped), Configuration(4, 64, 8, is_swapped=swapped),
            Configuration(1, 64, 8, is_swapped=swapped), Configuration(2, 128, 2, 4, is_swapped=swapped),
            Configuration(1, 256, 1, 8, is_swapped=swapped)]  # fmt: skip
    for m, n in ((most, 8), (8, most)):
        operands = judged(m, n, 16, "bfloat16")
        for c in ways:
            if problem_with(c, operands, False, HOPPER.shared_bytes):
                continue
            plan = plan_matmul(operands, HOPPER, 132, configuration=c)
            row, column = plan.tile(plan.tiles - 1, c.cluster - 1)
            assert row + c.tile_rows <= 2**31, c
            assert column + c.tile_columns <= 2**31, c
            assert plan.size.most < 2**31, c
            across = plan.argument()["row_tiles" if c.is_swapped else "column_tiles"]
            assert plan.band * int(across) < 2**32, c  # as the kernel multiplies them


@pytest.mark.parametrize("is_swapped", [False, True])
def test_tiles_of_the_same_weights_follow_one_another_within_a_band(is_swapped: bool) -> None:
    c = Configuration(1, 64, is_swapped=is_swapped, consumers=1)
    plan = plan_matmul(judged(2100, 200, 128, "bfloat16"), HOPPER, 132, configuration=c)
    corners = [plan.tile(number, 0) for number in range(plan.tiles)]
    found = [corner[::-1] if is_swapped else corner for corner in corners]  # of a, and of b
    bands = [range(begin, min(begin + 1024, 2112), 64) for begin in range(0, 2100, 1024)]
    assert found == [(of_a, of_b) for band in bands for of_b in range(0, 200, 64) for of_a in band]


@settings(max_examples=40, deadline=None)
@given(
    m=st.integers(1, 2000), n=st.integers(1, 2000), units=st.integers(1, 300),
    dtype=st.sampled_from(["float8_e4m3fn", "bfloat16", "float32"]), out=st.sampled_from(["bfloat16", "float32"]),
    multiprocessors=st.sampled_from([1, 78, 132]),
)  # fmt: skip
def test_any_product_is_tiled_so_that_each_element_is_computed_once(
    m: int, n: int, units: int, dtype: str, out: str, multiprocessors: int
) -> None:
    operands = judged(m, n, units * 16, dtype, out)
    plan = plan_matmul(operands, HOPPER, multiprocessors)
    c = plan.configuration
    assert not problem_with(c, operands, plan.is_promoted, HOPPER.shared_bytes)
    ranks = 1 if c.split > 1 else c.cluster
    corners = [plan.tile(number, rank) for number in range(plan.tiles) for rank in range(ranks)]
    assert len(set(corners)) == len(corners)
    rows, columns = tiles_of(c, operands)
    assert set(corners) == {
        (c.tile_rows * i, c.tile_columns * j)
        for i in range(rows * c.cluster_rows)
        for j in range(columns * c.cluster_columns)
    }
    assert plan.cost.seconds >= plan.cost.floor_seconds


@pytest.mark.parametrize(("m", "swapped"), [(1, True), (16, True), (32, True), (4096, False)])
def test_few_rows_put_the_weights_on_the_side_of_64_rows(m: int, swapped: bool) -> None:
    plan = plan_matmul(judged(m, 4096, 4096), HOPPER, 132)
    assert plan.configuration.is_swapped == swapped
    assert plan.tiles * plan.configuration.cluster >= 64 or not swapped


@pytest.mark.parametrize(
    ("out", "stored"),
    [
        (out_of(64, 96), True),
        (out_of(64, 96, strides=(256, 2)), True),
        (out_of(64, 96, strides=(194, 2)), False),
        (out_of(64, 96, strides=(512, 4)), False),
        (out_of(64, 96, strides=(2, 128)), False),
        (out_of(64, 96, address=(1 << 48) + 2), False),
        (out_of(64, 96, strides=(-192, 2), address=(1 << 48) + 192 * 64), False),
    ],
)
def test_tensor_stores_write_what_ends_on_16_bytes(out: ArrayView, stored: bool) -> None:
    assert plan_matmul(check_operands(A, B, out), HOPPER, 132).is_stored_by_unit is stored
    narrow = check_operands(A, transposed(92, 128), out_of(64, 92))
    assert not plan_matmul(narrow, HOPPER, 132).is_stored_by_unit


def test_what_is_told_of_a_product() -> None:
    a, b = view((16, 4096), device=None), transposed(4096, 4096, device=None)
    scale = view((1,), "float32", address=1 << 50, device=None)
    found = tma.matmul.explain(a, b, scale_a=scale)
    text = str(found)
    for words in ("float8_e4m3fn × float8_e4m3fn to bfloat16", "operands swapped", "µs expected"):
        assert words in text
    (part,) = found.parts
    assert part.bytes == 16 * 4096 + 4096 * 4096 + 16 * 4096 * 2
    assert part.stages > 2
    assert found.launches == 1
    odd = tma.ops.explain(tma.matmul, a, transposed(4095, 4096, device=None))
    assert [part.name for part in odd.parts] == ["product", "result"]
    assert odd.bytes_otherwise == 16 * 4095 * 2
    low = Configuration(1, 16, is_swapped=True, consumers=1, spare_rows=8)
    for n, columns in ((120, 8), (112, 0), (40, 40)):
        rest = tma.matmul.explain(a, transposed(n, 4096, device=None), configuration=low)
        assert rest.bytes_otherwise == 16 * columns * 2
        assert rest.bytes_by_unit == 16 * 4096 + n * 4096 + 16 * (n - columns) * 2
        assert ("no whole tile of 56" in str(rest)) == (columns > 0)
    assert "nothing to do" in str(tma.matmul.explain(view((0, 4096), device=None), b))
    assert tma.matmul.explain(view((4, 0), device=None), transposed(4, 0, device=None)).launches == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"tf32": "yes"}, "tf32 = 'yes'; it must be True or False"),
        ({"static_b": np.ones(2)}, "static_b = array.*True or False"),
        ({"fast_accumulation": None}, "fast_accumulation = None"),
        ({"configuration": [1]}, r"configuration = \[1\] is no Configuration"),
        ({"scale_a": 2.0}, "^scale_a: .*float is no array"),
        ({"a": None}, "^a: .*NoneType is no array"),
        ({"b": "weights"}, "^b: .*str is no array"),
        ({"out": 3}, "^out: .*int is no array"),
        ({"bias": [1.0]}, "^bias: .*list is no array"),
        ({"out_dtype": "int8"}, "out_dtype = 'int8'; a result can be of"),
        ({"b_dtype": np.float16}, "b has dtype float8_e4m3fn, and b_dtype says float16"),
        ({"bais": 1}, "bais"),
    ],
)
def test_options_that_are_none_are_named(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ArrayError, match=words):
        tma.matmul.explain(
            **{"a": view((16, 64), device=None), "b": transposed(32, 64, device=None), **options}
        )


@pytest.mark.skipif(has_tma_device(), reason="there is a GPU")
@pytest.mark.skipif(importlib.util.find_spec("cupy") is None, reason="CuPy is not installed")
def test_without_a_gpu_it_says_so() -> None:
    with pytest.raises(NoDeviceError):
        tma.matmul(np.zeros((16, 16), np.float16), np.zeros((16, 16), np.float16).T)


def test_the_name_is_the_functions_after_its_modules_are_loaded() -> None:
    assert callable(tma.ops.matmul)
    assert tma.ops.matmul is tma.matmul
    assert Path(str(sys.modules["cupytma.ops.matrix_product"].__file__)).name == "matrix_product.py"
