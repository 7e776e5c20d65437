"""The matrix product's kernel as machine code, and where its matrix descriptors find what tensor loads have brought."""

from __future__ import annotations

import re

import numpy as np
import pytest
from matmul_arrays import matrix, operands

from cupytma import ptx, sim
from cupytma.kernels import source
from cupytma.ops.matmul_configuration import Configuration, problem_with
from cupytma.ops.matmul_operands import check_operands
from cupytma.ops.matmul_plan import MatmulPlan, matmul_module, plan_matmul
from cupytma.ops.matmul_schedule import element_offsets
from cupytma.ops.matmul_ways import CONFIGURATIONS
from cupytma.targets import target
from cupytma.tensormap.arrays import view_of

HOPPER = target("sm_90a")


def plans() -> list[MatmulPlan]:
    """Every configuration once of 8 bits, promoted where that fits, and some of 16."""
    found = []
    for number, configuration in enumerate(CONFIGURATIONS):
        for dtype in ("float8_e4m3fn", "bfloat16")[: 1 + (number % 9 == 0)]:
            a, b = operands(8, 8, 16, dtype, is_row_major=dtype == "bfloat16" and number % 2 == 0)
            out = matrix(8, 8, ("bfloat16", "float32")[number % 2])
            judged = check_operands(view_of(a), view_of(b), view_of(out))
            for fast in (False, True):
                is_promoted = not fast and judged.a.type.is_narrow
                if not problem_with(configuration, judged, is_promoted, HOPPER.shared_bytes):
                    how = {"configuration": configuration, "fast_accumulation": fast, "static_b": number % 3 == 0}
                    found.append(plan_matmul(judged, HOPPER, 132, **how))
                    break
    return found


@pytest.mark.parametrize("plan", plans(), ids=lambda plan: f"{plan.rows.type.name}-{plan.configuration}")
def test_every_configuration_compiles_and_keeps_its_sums_in_registers(plan: MatmulPlan) -> None:
    module = matmul_module("sm_90a", plan.defines())
    found = module.resources["matmul"]
    assert (found.spill_store_bytes, found.spill_load_bytes, found.stack_bytes) == (0, 0, 0)
    assert found.registers * plan.size.threads <= 65536
    assert "wgmma" not in module.log  # what the assembler says where it has to put products one after the other
    # Those of one stage, and where two sums or parts of one are held those of a round as well.
    defines = plan.defines()
    parts, in_turn = int(defines["COLUMN_PARTS"]), defines["PROMOTE"] == 2 or defines["COLUMN_PARTS"] == 2
    stages = 1 + int(defines["ROUND"]) * in_turn
    assert module.ptx.count("wgmma.mma_async") == 4 * plan.configuration.row_blocks * parts * stages


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
