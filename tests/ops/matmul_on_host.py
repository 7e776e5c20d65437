"""The matrix product's kernel on the host: its own source, compiled by g++ against stand-ins, run by threads."""

from __future__ import annotations

import ctypes
import hashlib
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from cupytma.kernels import source
from cupytma.ops.matmul_operands import check_operands
from cupytma.ops.matmul_plan import MatmulPlan, plan_matmul
from cupytma.targets import target
from cupytma.tensormap.arrays import view_of

COMPILER = shutil.which("g++")
_HERE = Path(__file__).parent / "matmul_host"
_OURS = ("cluster_blocks.cuh", "matmul_tiles.cuh", "matmul_result.cuh", "matmul_sums.cuh")
_TYPES = {"e4m3": 0, "e5m2": 1, "bf16": 2, "f16": 3, "tf32": 4}
_CALL = """
extern "C" int host_matmul(
    void (*before)(), unsigned grid, unsigned threads, const CUtensorMap* maps, const Product* product,
    unsigned char* out, const float* row_scales, const float* column_scales, const unsigned char* bias)
{
    cupytma::work_before = before;
    return host_launch(grid, threads, CLUSTER, [=] {
        matmul(maps[0], maps[1], maps[2], *product, out, row_scales, column_scales, bias);
    });
}
"""


def plan_on_host(
    a: Any, b: Any, out: Any, scale_a: Any = None, scale_b: Any = None, bias: Any = None, *, multiprocessors: int = 3,
    tf32: bool = False, **how: Any,
) -> MatmulPlan:
    """The plan of a product of numpy arrays, for a GPU of few multiprocessors, so that blocks have several tiles."""
    arrays = (a, b, out, scale_a, scale_b, bias)
    operands = check_operands(*(None if array is None else view_of(array) for array in arrays), tf32=tf32)
    return plan_matmul(operands, target("sm_90a"), multiprocessors, **how)


def multiply_on_host(
    folder: Path, a: Any, b: Any, out: Any, scale_a: Any = None, scale_b: Any = None, bias: Any = None, *,
    before: Callable[[], None] | None = None, edit: tuple[str, str] = ("", ""), **how: Any,
) -> MatmulPlan:
    """Run the kernel on numpy arrays, as its launch would be; returns the plan.

    Parameters
    ----------
    before : callable
        What the kernel before this one does, which may still run when this one begins.
    edit : tuple of str
        A part of the kernel's source, and what stands there instead.
    """
    plan = plan_on_host(a, b, out, scale_a, scale_b, bias, **how)
    cluster = plan.configuration.cluster
    grid = plan.size.most
    if plan.size.blocks:
        grid = min(grid, max(1, plan.multiprocessors // cluster) * cluster)
    scales = [None if scale is None else scale.ctypes.data_as(ctypes.c_void_p) for scale in (scale_a, scale_b)]
    if plan.configuration.is_swapped:
        scales.reverse()
    memory = np.zeros(4 * 128 + 128, np.uint8)
    maps = memory[-memory.ctypes.data % 128 :][: 3 * 128]
    for number, found in enumerate(plan.maps()):
        maps[128 * number : 128 * (number + 1)] = np.frombuffer(_packed(found), np.uint8)
    product = np.array(plan.argument())
    work = ctypes.CFUNCTYPE(None)(before or (lambda: None))
    wrong = _library(plan, folder, edit).host_matmul(
        work, grid, plan.size.threads, ctypes.c_void_p(maps.ctypes.data), ctypes.c_void_p(product.ctypes.data),
        ctypes.c_void_p(view_of(out).address), *scales,
        None if bias is None else ctypes.c_void_p(bias.ctypes.data),
    )  # fmt: skip
    assert wrong == 0, f"{wrong} mistakes"
    return plan


def _packed(tensor_map: Any) -> bytes:
    words = np.zeros(16, np.uint64)
    if any(bytes(tensor_map)):
        p = tensor_map.decode()
        span = {"B64": 64, "B128": 128}[p.swizzle.name]
        across = slice(None, None, len(p.global_dim) - 1)  # the first extent and the last; of three, with one between
        words[:8] = (
            p.global_address, p.element_bytes, *p.global_dim[across], p.global_strides[-1], *p.box_dim[across], span,
        )  # fmt: skip
        words[8:10] = p.global_dim[1], p.global_strides[0]
    return words.tobytes()


def _library(plan: MatmulPlan, folder: Path, edit: tuple[str, str]) -> Any:
    defines = plan.defines()
    defines["MULTIPLY"] = "host_multiply"
    defines["HOST_ROWS_TYPE"] = _TYPES[plan.rows.type.wgmma]
    defines["HOST_COLUMNS_TYPE"] = _TYPES[plan.columns.type.wgmma]
    key = hashlib.sha256(repr((edit, sorted(defines.items()))).encode()).hexdigest()[:16]
    library = folder / f"{key}.so"
    if not library.exists():
        for name in _OURS:
            (folder / name).write_text(source(name).replace(*edit) if edit[0] else source(name))
        assert edit[0] in "".join(map(source, ("matmul.cu", *_OURS)))
        text = (source("matmul.cu").replace(*edit) if edit[0] else source("matmul.cu")).replace(
            "extern __shared__ unsigned char dynamic_shared[];", "unsigned char* dynamic_shared = host_shared();"
        )
        file = folder / f"{key}.cpp"
        file.write_text(text + _CALL)
        macros = [f"-D{name}={value}" for name, value in defines.items()]
        flags = ["-std=c++17", "-O2", "-w", "-Wno-psabi", "-shared", "-fPIC", "-pthread", f"-I{_HERE}", f"-I{folder}"]
        subprocess.run([str(COMPILER), *flags, *macros, str(file), "-o", str(library)], check=True)
    return ctypes.CDLL(str(library))
