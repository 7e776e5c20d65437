"""The matrix product's kernel as machine code, and where its matrix descriptors find what tensor loads have brought."""

from __future__ import annotations

import re

import numpy as np
import pytest
from matmul_any import ODD_WAYS
from matmul_arrays import judged_of, matrix, operands

from cupytma import ptx, sim
from cupytma.kernels import source
from cupytma.ops.matmul_configuration import MOST_ROUND, Configuration, problem_with, round_of
from cupytma.ops.matmul_operands import check_operands
from cupytma.ops.matmul_plan import MatmulPlan, matmul_module, plan_matmul
from cupytma.ops.matmul_schedule import element_offsets
from cupytma.ops.matmul_ways import CONFIGURATIONS, possible
from cupytma.targets import target
from cupytma.tensormap.arrays import view_of

HOPPER = target("sm_90a")


# Of which every way that is as wide as they ask for is compiled: M, N, K and the type.
FITTED = (
    (24, 4096, 4096, "float8_e4m3fn"), (48, 7168, 2048, "float8_e4m3fn"), (64, 14336, 4096, "bfloat16"),
    (512, 2112, 7168, "float8_e4m3fn"), (2048, 2112, 7168, "float8_e4m3fn"), (2048, 7168, 2048, "bfloat16"),
)  # fmt: skip


def plans() -> list[MatmulPlan]:
    """Every way of the table and odd ones once of 8 bits, promoted where that fits, and some of 16; and fitted ones."""
    found = []
    for number, configuration in enumerate((*CONFIGURATIONS, *ODD_WAYS)):
        for dtype in ("float8_e4m3fn", "bfloat16")[: 1 + (number % 9 == 0)]:
            k = (16, 7168, 1536)[number % 3]  # rounds of 16, 14 and 12 stages of 8 bits
            result, is_row_major = ("bfloat16", "float32")[number % 2], dtype == "bfloat16" and number % 2 == 0
            judged = judged_of(8, 8, k, dtype, result, is_row_major)
            for fast in (False, True):
                is_promoted = not fast and judged.a.type.is_narrow
                if not problem_with(configuration, judged, is_promoted, HOPPER.shared_bytes):
                    how = {"configuration": configuration, "fast_accumulation": fast, "static_b": number % 3 == 0}
                    found.append(plan_matmul(judged, HOPPER, 132, **how))
                    break
    for m, n, k, dtype in FITTED:
        judged = judged_of(m, n, k, dtype)
        for configuration in possible(judged, judged.a.type.is_narrow, HOPPER.shared_bytes, 132):
            if configuration not in (*CONFIGURATIONS, *ODD_WAYS):
                found.append(plan_matmul(judged, HOPPER, 132, configuration=configuration))
    return list({tuple(plan.defines().items()): plan for plan in found}.values())


@pytest.mark.parametrize("plan", plans(), ids=lambda plan: f"{plan.rows.type.name}-{plan.configuration}")
def test_every_configuration_compiles_and_keeps_its_sums_in_registers(plan: MatmulPlan) -> None:
    module = matmul_module("sm_90a", plan.defines())
    found = module.resources["matmul"]
    assert (found.spill_store_bytes, found.spill_load_bytes, found.stack_bytes) == (0, 0, 0)
    assert found.registers * plan.size.threads <= 65536
    assert "wgmma" not in module.log  # what the assembler says where it has to put products one after the other
    # Those of one stage, and where two sums or parts of one are held those of a round as well; or of the first stage
    # and of any other.
    defines = plan.defines()
    parts, in_turn = int(defines["COLUMN_PARTS"]), defines["PROMOTE"] == 2 or defines["COLUMN_PARTS"] == 2
    stages = 1 + int(defines["ROUND"]) * in_turn if defines["PROMOTE"] else 2
    assert module.ptx.count("wgmma.mma_async") == 4 * plan.configuration.row_blocks * parts * stages


@pytest.mark.parametrize(("blocks", "stages"), [(12, 12), (16, 16), (32, 16), (33, 16), (56, 14), (112, 16), (1, 16)])
def test_rounds_are_as_long_as_leaves_the_fewest_waits(blocks: int, stages: int) -> None:
    assert round_of(blocks) == stages


def test_rounds_are_even_and_other_lengths_have_no_fewer_waits() -> None:
    for blocks in range(1, 400):
        found = round_of(blocks)
        assert found in range(2, MOST_ROUND + 1, 2)
        for other in range(2, MOST_ROUND + 1, 2):
            assert blocks // found + blocks % found <= blocks // other + blocks % other


@pytest.mark.parametrize(
    ("configuration", "sums", "parts"),
    [
        (Configuration(1, 128), 2, 1),  # 3 × 64 accumulators
        (Configuration(1, 144), 1, 2),
        (Configuration(1, 192), 1, 2),
        (Configuration(1, 184), 1, 1),  # whose half is no multiple of eight
        (Configuration(2, 96), 1, 2),
        (Configuration(1, 136, consumers=1), 2, 1),
        (Configuration(1, 256), 0, 1),  # which cannot be promoted
    ],
)
def test_promoted_tiles_are_halved_where_registers_hold_one_sum_beside_the_total(
    configuration: Configuration, sums: int, parts: int
) -> None:
    assert (configuration.stage_sums, configuration.promoted_parts) == (sums, parts)
    for fast in (True, False)[: 1 + (sums > 0)]:
        plan = plan_matmul(
            judged_of(8, 512, 512, "float8_e4m3fn"), HOPPER, 132, configuration=configuration, fast_accumulation=fast
        )
        defines, used = plan.defines(), 1 if fast else parts
        assert (defines["COLUMN_PARTS"], defines["PROMOTE"]) == (used, 0 if fast else sums)
        assert f"n{configuration.tile_columns // used}k" in str(defines["MULTIPLY"])


C = Configuration
NEIGHBOURS = [
    C(1, 64, consumers=1, resident=2), C(2, 128, consumers=1, resident=2), C(1, 64, consumers=1, resident=3),
    C(1, 16, is_swapped=True, consumers=1, resident=4), C(1, 64, resident=2), C(1, 96, resident=2),
    C(1, 16, is_swapped=True, resident=3),
]  # fmt: skip


@pytest.mark.parametrize("configuration", NEIGHBOURS, ids=str)
def test_blocks_that_share_a_multiprocessor_have_the_registers_that_are_counted_on(configuration: C) -> None:
    judged = judged_of(8, 8, 16, "bfloat16")
    assert not problem_with(configuration, judged, False, HOPPER.shared_bytes)
    plan = plan_matmul(judged, HOPPER, 132, configuration=configuration)
    found = matmul_module("sm_90a", plan.defines()).resources["matmul"]
    assert found.registers <= configuration.registers
    assert (found.spill_store_bytes, found.stack_bytes) == (0, 0)
    warps = -(-configuration.threads * configuration.resident // 128)  # of a scheduler, which has 16,384 registers
    assert configuration.registers <= 16384 // (32 * warps) < configuration.registers + 8


@pytest.mark.parametrize("is_mn_major", [False, True])
@pytest.mark.parametrize(("dtype", "size"), [("float8_e4m3fn", 1), ("bfloat16", 2), ("float32", 4)])
def test_descriptors_find_what_a_load_has_brought(dtype: str, size: int, is_mn_major: bool) -> None:
    if is_mn_major and size != 2:
        pytest.skip("other types are K-major")
    depth, rows = 128 // size, 128
    a, b = operands(8, rows, 3 * depth, dtype, is_mn_major, seed=3)
    judged = check_operands(view_of(a), view_of(b), view_of(matrix(8, rows, "float32")), tf32=True)
    columns_map = plan_matmul(judged, HOPPER, 132, configuration=Configuration(1, rows)).maps()[1]
    shared = np.zeros(rows * 128, np.uint8)
    memory, start = np.frombuffer(bytes(_held(b)), np.uint8).copy(), view_of(b).address
    box = tuple(map(int, columns_map.decode().box_dim))
    loads = range(0, rows, box[0] if is_mn_major else box[1])
    for first in loads:
        at = (first, depth) if is_mn_major else (depth, first)
        sim.load(columns_map, at, memory=memory, base=start, shared=shared, shared_offset=first * 128)
    offsets = element_offsets(rows, depth, size, is_mn_major)
    held = shared[offsets[..., None] + np.arange(size)]
    found = np.ascontiguousarray(held).view(b.dtype)[..., 0]
    np.testing.assert_array_equal(found, b.T[:, depth : 2 * depth])
    # The PTX ISA's canonical layouts, from the descriptor of each instruction's part.
    for step in range(4):
        k = np.arange(32 // size)
        descriptor = ptx.MatrixDescriptor(
            start_address=step * (2048 if is_mn_major else 32), leading_byte_offset=8192, stride_byte_offset=1024,
            swizzle="128B",
        )  # fmt: skip
        places = _canonical(descriptor, np.arange(rows)[:, None], k[None], size, is_mn_major)
        np.testing.assert_array_equal(offsets[:, step * len(k) : (step + 1) * len(k)], places)


def _canonical(descriptor: ptx.MatrixDescriptor, row, k, size: int, is_mn_major: bool):
    d = descriptor
    if is_mn_major:
        groups = row // 64 * d.leading_byte_offset + k // 8 * d.stride_byte_offset
        linear = d.start_address + groups + row % 64 * size + k % 8 * 128
    else:
        linear = d.start_address + row // 8 * d.stride_byte_offset + row % 8 * 128 + k * size
    return linear ^ (linear >> 7 & 7) << 4


def _held(array: np.ndarray) -> memoryview:
    """The bytes from an array's first element to its last, in the order of memory."""
    whole = array if array.strides[1] == array.itemsize else array.T
    reach = (whole.shape[0] - 1) * whole.strides[0] + whole.shape[1] * whole.itemsize
    return memoryview(np.lib.stride_tricks.as_strided(whole.view(np.uint8), (reach,), (1,)))


def test_the_kernel_steps_through_a_stage_as_the_descriptors_are_judged() -> None:
    text = source("matmul.cu")
    assert re.search(r"step = \(MnMajor \? 2 \* pattern_bytes : 32\) >> 4", text)
    assert "matrix_descriptor(part, MnMajor ? group_bytes : 16, pattern_bytes, 1)" in text
