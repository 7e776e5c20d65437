"""The matrix product's kernel, run on the host from its own source: exact, within its result, under any tiling."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from matmul_any import any_product
from matmul_arrays import TYPES, expected, matrix, operands
from matmul_on_host import COMPILER, multiply_on_host

from cupytma.ops.matmul_configuration import Configuration

pytestmark = pytest.mark.skipif(COMPILER is None, reason="needs g++")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("matmul")


C = Configuration
# M, N, K, type, type of the result, whether b is row-major, tiling, and how.
CASES = [
    (70, 64, 160, "float8_e4m3fn", "bfloat16", False, C(1, 64), {}),
    (300, 136, 1008, "float8_e5m2", "bfloat16", False, C(1, 128, 2), {}),
    (200, 133, 144, "bfloat16", "float32", True, C(1, 64, 1, 2), {}),
    (5, 139, 1040, "float8_e4m3fn", "bfloat16", False, C(1, 8, split=4, is_swapped=True), {}),
    (9, 136, 1040, "bfloat16", "float32", True, C(1, 16, split=2, is_swapped=True), {"static_b": True}),
    (300, 200, 144, "bfloat16", "bfloat16", False, C(1, 128, 2, is_ping_pong=True), {}),
    (300, 200, 800, "float16", "float16", True, C(2, 64, is_ping_pong=True), {"static_b": True}),
    (70, 192, 96, "float16", "float16", False, C(1, 192), {}),
    (300, 256, 264, "bfloat16", "bfloat16", True, C(2, 128, 2, 2), {}),
    (40, 77, 320, "float32", "float32", False, C(1, 32, is_swapped=True), {"tf32": True}),
    (130, 131, 96, "float8_e4m3fn", "float16", False, C(1, 128, split=8, is_swapped=True), {"fast_accumulation": True}),
    (3, 1, 16, "bfloat16", "bfloat16", False, C(1, 8, split=8, is_swapped=True), {}),
    (65, 10, 0, "bfloat16", "float32", False, C(1, 128, 1, 2), {}),
    (65, 10, 0, "float8_e4m3fn", "float32", False, C(1, 64, is_ping_pong=True), {}),
    (5, 139, 1040, "float8_e4m3fn", "bfloat16", False, C(1, 8, split=2, is_swapped=True, consumers=1, resident=3), {}),
    (20, 200, 2064, "float8_e4m3fn", "float32", False, C(2, 24, split=4, is_swapped=True, consumers=1), {}),
    (300, 200, 1040, "float8_e5m2", "bfloat16", False, C(1, 192), {}),
    (90, 139, 208, "bfloat16", "bfloat16", False, C(1, 96, is_swapped=True, consumers=1), {}),
    (45, 72, 208, "float8_e4m3fn", "float32", False, C(1, 40, is_swapped=True, consumers=1), {}),
    (70, 200, 400, "bfloat16", "bfloat16", False, C(1, 64, 2, consumers=1, resident=2), {"static_b": True}),
    (70, 200, 272, "float8_e4m3fn", "bfloat16", False, C(1, 32, consumers=2, resident=2), {}),
    (513, 129, 32, "bfloat16", "bfloat16", False, C(1, 128, 4, 2, is_ping_pong=True), {}),
    (150, 300, 400, "bfloat16", "bfloat16", False, C(1, 136), {}),
    (150, 300, 2064, "float8_e4m3fn", "bfloat16", False, C(1, 88), {}),
    (150, 300, 2064, "float8_e4m3fn", "bfloat16", False, C(1, 176), {}),
    (70, 133, 144, "bfloat16", "float32", False, C(1, 72, is_ping_pong=True), {}),
    (70, 136, 144, "bfloat16", "bfloat16", False, C(1, 32, consumers=1), {}),
    (70, 136, 144, "float8_e4m3fn", "float16", False, C(1, 40, 1, 2), {}),
    (70, 133, 144, "float16", "float32", False, C(1, 24, consumers=1, resident=2), {}),
    (70, 139, 1040, "bfloat16", "bfloat16", False, C(1, 72, split=3, is_swapped=True, consumers=1), {}),
    (120, 139, 400, "bfloat16", "float32", False, C(1, 128, split=2, is_swapped=True), {}),
    (130, 72, 784, "float8_e4m3fn", "bfloat16", False, C(1, 40, split=2, is_swapped=True, consumers=1), {}),
    (60, 203, 784, "float8_e5m2", "float16", False, C(2, 72, split=4, is_swapped=True), {"static_b": True}),
    (5, 300, 1040, "float8_e4m3fn", "bfloat16", False, C(1, 8, is_swapped=True, spare_rows=16), {"static_b": True}),
    (70, 200, 208, "bfloat16", "float32", False, C(1, 72, 1, 2, is_swapped=True, spare_rows=32), {}),
    (30, 400, 208, "bfloat16", "bfloat16", False, C(2, 32, is_swapped=True, spare_rows=120), {}),
    (5, 200, 1040, "float8_e4m3fn", "bfloat16", False, C(1, 8, is_swapped=True, consumers=1, spare_rows=24), {}),
    (20, 192, 208, "bfloat16", "float32", False, C(1, 24, is_swapped=True, consumers=1, spare_rows=40), {}),
    (20, 200, 208, "float16", "float16", False, C(1, 24, is_swapped=True, consumers=1, spare_rows=16), {}),
    (9, 144, 272, "float8_e5m2", "float32", False, C(1, 16, 1, 2, is_swapped=True, consumers=1, spare_rows=48), {}),
    (9, 20, 272, "float8_e5m2", "bfloat16", False, C(1, 16, is_swapped=True, consumers=1, spare_rows=40), {}),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}x{case[1]}x{case[2]}-{case[3]}-{case[6]}")
def test_products_are_exact_and_nothing_else_is_written(case, folder: Path) -> None:
    m, n, k, dtype, result, is_row_major, configuration, how = case
    a, b = operands(m, n, k, dtype, is_row_major)
    rng = np.random.default_rng(1)
    scales = [rng.choice([0.5, 1, 2], length).astype(np.float32) for length in (m, n)]
    bias = rng.integers(-3, 4, n).astype(np.float32)
    whole = matrix(m + 2, n, result, 16 + -n % 8)
    whole = np.lib.stride_tricks.as_strided(whole, (m + 2, whole.strides[0] // whole.itemsize), whole.strides)
    whole[...] = 7
    out = whole[1 : m + 1, 8 : 8 + n]
    plan = multiply_on_host(folder, a, b, out, *scales, bias, configuration=configuration, **how)
    assert plan.is_stored_by_unit == (n * out.itemsize % 16 == 0)
    want = expected(a, b, *scales, bias).astype(np.float32).astype(TYPES[result])
    np.testing.assert_array_equal(out.astype(np.float32), want.astype(np.float32))
    out[...] = 7
    assert (whole == 7).all()


@pytest.mark.parametrize("seed", range(8))
def test_any_product_is_exact_in_any_way_that_is_possible(seed: int, folder: Path) -> None:
    one = any_product(seed, 1600)
    out = matrix(one.a.shape[0], one.b.shape[1], one.result)
    out[...] = 7
    multiply_on_host(folder, one.a, one.b, out, configuration=one.configuration, tf32=True, **one.how)
    want = expected(one.a, one.b).astype(np.float32).astype(TYPES[one.result])
    np.testing.assert_array_equal(out.astype(np.float32), want.astype(np.float32), err_msg=str(one))


def test_a_result_of_any_layout_is_written_where_it_lies(folder: Path) -> None:
    a, b = operands(70, 64, 160, "float8_e4m3fn")
    out = np.full((64, 140), 7, np.float32)
    turned = out.T[::-2]
    plan = multiply_on_host(folder, a, b, turned, configuration=C(1, 64))
    assert not plan.is_stored_by_unit
    np.testing.assert_array_equal(turned, expected(a, b))
    turned[...] = 7
    assert (out == 7).all()


def test_one_scale_for_all_and_a_bias_of_the_results_type(folder: Path) -> None:
    a, b = operands(70, 64, 160, "float8_e4m3fn")
    out = matrix(70, 64, "bfloat16")
    scales = np.full((1, 1), 0.5, np.float32), np.full(1, 4, np.float32)
    bias = np.arange(64).astype(TYPES["bfloat16"])
    multiply_on_host(folder, a, b, out, *scales, bias, configuration=C(1, 64))
    want = expected(a, b, *scales, bias).astype(TYPES["bfloat16"])
    np.testing.assert_array_equal(out.astype(np.float32), want.astype(np.float32))


def test_nan_and_infinity_reach_the_elements_that_they_are_part_of(folder: Path) -> None:
    a, b = operands(70, 64, 96, "bfloat16")
    a[3, 5], b[7, 11] = np.nan, np.inf
    out = matrix(70, 64, "float32")
    multiply_on_host(folder, a, b, out, configuration=C(1, 64))
    with np.errstate(invalid="ignore"):
        want = expected(a, b)
    np.testing.assert_array_equal(np.isnan(out), np.isnan(want))
    np.testing.assert_array_equal(np.isinf(out), np.isinf(want))


class WorkBefore:
    """Operands that the kernel before this one writes, which ends when it is waited for, and so does its result."""

    def __init__(self, m: int, n: int, k: int, dtype: str, is_row_major: bool, static_b: bool) -> None:
        self.a, self.b = operands(m, n, k, dtype, is_row_major)
        rng = np.random.default_rng(2)
        self.scales = [rng.choice([0.5, 1, 2], length).astype(np.float32) for length in (m, n)]
        self.bias = rng.integers(-3, 4, n).astype(np.float32)
        self.out = matrix(m, n, "float32")
        self.out[...] = 5
        self.want = expected(self.a, self.b, *self.scales, self.bias)
        written = [self.a, *self.scales, self.bias, *([] if static_b else [self.b])]
        self.written = [(array, array.copy()) for array in written]
        for array in written:
            array[...] = 3
        self.was_written_early = False

    def __call__(self) -> None:
        self.was_written_early = bool((self.out != 5).any())
        for array, copy in self.written:
            array[...] = copy
        self.out[...] = 7


BEFORE = [
    (70, 136, 272, "float8_e4m3fn", False, C(1, 64), False),
    (70, 136, 272, "float8_e4m3fn", False, C(1, 64), True),
    (60, 136, 272, "float8_e4m3fn", False, C(1, 72, is_swapped=True), True),
    (70, 136, 144, "bfloat16", True, C(1, 128, 1, 2, is_ping_pong=True), True),
    (60, 133, 144, "bfloat16", True, C(1, 64, 2, is_swapped=True), True),
    (9, 133, 528, "float8_e4m3fn", False, C(1, 16, split=4, is_swapped=True, consumers=1, resident=2), True),
    (9, 136, 528, "float8_e4m3fn", False, C(1, 16, split=4, is_swapped=True), False),
    (70, 136, 0, "bfloat16", False, C(1, 64), True),
    (9, 136, 0, "float8_e4m3fn", False, C(1, 16, split=4, is_swapped=True), True),
    (9, 136, 0, "bfloat16", False, C(1, 16, 2, is_swapped=True, is_ping_pong=True), False),
]


@pytest.mark.parametrize("case", BEFORE, ids=lambda case: f"{case[0]}x{case[1]}x{case[2]}-{case[5]}-{case[6]}")
def test_nothing_but_a_static_b_is_touched_before_the_kernel_before_has_ended(case, folder: Path) -> None:
    *shape, configuration, static_b = case
    work = WorkBefore(*shape, static_b)
    given = work.a, work.b, work.out, *work.scales, work.bias
    multiply_on_host(folder, *given, configuration=configuration, static_b=static_b, before=work)
    assert not work.was_written_early
    np.testing.assert_array_equal(work.out, work.want)


def test_a_static_b_is_read_before_the_kernel_before_has_ended(folder: Path) -> None:
    work = WorkBefore(60, 64, 272, "float8_e4m3fn", False, True)

    def before() -> None:
        work()
        work.b[...] = 0  # too late: the one tile's stages are loaded

    given = work.a, work.b, work.out, *work.scales, work.bias
    multiply_on_host(folder, *given, configuration=C(1, 128, is_swapped=True), static_b=True, before=before)
    np.testing.assert_array_equal(work.out, work.want)


# What the kernel waits for, and the configuration, K and type that show it.
# Beside waits, what keeps rows that are not a tile's from being written.
WAITS = {
    "rows behind a tile's are not written": (
        " && within + of_rows < tile_rows", "", C(1, 8, is_swapped=True, spare_rows=16), 208, "bfloat16", (5, 301),
    ),
    "groups are counted as buffers are where a tile is not whole": (
        "            cupytma::bulk_commit_group();  // of no stores", "            //",
        C(1, 8, is_swapped=True, consumers=1, spare_rows=8), 208, "bfloat16",
    ),
    "loads wait for the kernel before": (
        "    cupytma::griddepcontrol_wait();\n#pragma unroll 1", "#pragma unroll 1", C(1, 64), 272, "float8_e4m3fn",
    ),
    "the result waits for the kernel before": (
        "        cupytma::griddepcontrol_wait();  // before scales", "  //", C(1, 64), 0, "bfloat16",
    ),
    "stages are given back when they have been read": (
        "        cupytma::wgmma_wait_group<1>();  // all but", "  //", C(1, 64), 2064, "bfloat16",
    ),
    "sums are added when they have been made": (
        "                    cupytma::wgmma_wait_group<1>();\n", "", C(1, 64), 2064, "float8_e4m3fn",
    ),
    "the last sums are written when they have been made": (
        "    cupytma::wgmma_wait_group<0>();\n    hold_all(sum);", "", C(1, 64), 272, "bfloat16",
    ),
    "a buffer is filled again when the store has read it": (
        "cupytma::bulk_wait_group_read<buffers - 1>();", "", C(1, 128), 272, "bfloat16",
    ),
    "a block ends when its stores have read": (
        "cupytma::bulk_wait_group_read<0>();", "", C(1, 64), 272, "bfloat16",
    ),
    "a block that may have ended is told of nothing": (
        "tells && released < reloaded", "tells", C(1, 64, 2), 272, "bfloat16",
    ),
    "parcels are sent when the others are there": (
        "    cupytma::barrier_cluster_wait();  // before parcels", "  //", C(1, 64, split=2, is_swapped=True), 272,
        "bfloat16",
    ),
    "numbers are sent when the others are there": (
        "    cupytma::barrier_cluster_wait();  // before numbers", "  //", C(1, 16, split=2, is_swapped=True), 272,
        "bfloat16",
    ),
    "parts are added when they have come": (
        "        wait_for_cluster(arrived, 0);", "", C(1, 64, split=2, is_swapped=True), 272, "bfloat16",
    ),
    "a block ends when its parcels have been read": (
        "    if constexpr (parcels) {\n        cupytma::barrier_cluster_wait();", "    if constexpr (false) {",
        C(1, 64, split=2, is_swapped=True), 272, "bfloat16",
    ),
    "results are laid out beside parcels": (
        "!one_tile ? stages_bytes : parcels ? partial_bytes : 0;", "!one_tile ? stages_bytes : 0;",
        C(1, 64, split=2, is_swapped=True), 272, "bfloat16",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WAITS)
def test_every_wait_and_every_limit_of_the_kernel_is_needed(name: str, folder: Path) -> None:
    there, instead, configuration, k, dtype, *shape = WAITS[name]
    m, n = shape[0] if shape else (200, 136)

    def run(edit: tuple[str, str]) -> None:
        work = WorkBefore(m, n, k, dtype, False, False)
        multiply_on_host(
            folder, work.a, work.b, work.out, *work.scales, work.bias, configuration=configuration, before=work,
            edit=edit,
        )
        assert not work.was_written_early
        np.testing.assert_array_equal(work.out, work.want)

    run(("", ""))
    with pytest.raises(AssertionError):
        run((there, instead))
