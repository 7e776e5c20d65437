"""Pipeline kernels on the host: their own source, compiled by g++ against a stand-in for the header, run by threads."""

from __future__ import annotations

import ctypes
import hashlib
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np

from cupytma.kernels import source
from cupytma.pipeline import PipelineKernel
from cupytma.pipeline.declarations import scalar_bits
from cupytma.pipeline.launch import _strided_argument, tiling_argument
from cupytma.pipeline.source import partial_bytes, source_of
from cupytma.targets import target
from cupytma.tensormap.arrays import view_of

COMPILER = shutil.which("g++")
_HERE = Path(__file__).parent / "host"
_PARAMETERS = r'extern "C" __global__ void __launch_bounds__\([^\n]*\) {}\(\n(.*?)\)\n{{'


def host_run(kernel: PipelineKernel, folder: Path, inputs: list[Any], out: list[Any], grid: int = 3, **scalars: Any):
    """Run a kernel on numpy arrays, as its launch would be; returns the plan."""
    views = [view_of(array) for array in (*inputs, *out)]
    plan = kernel.plan_views(views[: len(inputs)], views[len(inputs) :], target("sm_90a")).for_blocks(grid)
    grid = min(grid, plan.runs)
    names = [declared.name for declared in (*kernel.declaration.inputs, *kernel.declaration.results)]
    values: dict[str, bytes] = {"tiling": tiling_argument(plan).tobytes()}
    for position, name in enumerate(names):
        strided = np.array(_strided_argument(plan, position))
        strided["data"] = views[position].address + plan.layout.offsets[position]
        values[f"{name}_array"] = strided.tobytes()
        if position < len(plan.maps) and plan.maps[position] is not None:
            values[f"{name}_map"] = _packed_map(plan.maps[position])
    bits = [scalar_bits(declared, scalars[declared.name]) for declared in kernel.declaration.scalars]
    values["scalars"] = np.array(bits, np.uint64).tobytes()
    declaration = kernel.declaration
    parts = plan.parts_of(grid)
    partial = np.full(max(1, parts * plan.rows * partial_bytes(declaration.accumulators)), 0xCD, np.uint8)
    values["partial"] = partial.ctypes.data.to_bytes(8, "little")
    values["parts"], values["rows"] = parts.to_bytes(4, "little"), plan.rows.to_bytes(8, "little")
    library, parameters = _compiled(source_of(declaration, plan.variant), declaration.name, folder)
    assert _call(library, f"host_{declaration.name}", grid, plan.variant.threads + 32, parameters[0], values) == 0
    if parts > 1:
        combine = f"host_{declaration.name}_combine"
        assert _call(library, combine, 2, plan.variant.threads, parameters[1], values) == 0
    return plan


def _call(library: Any, name: str, grid: int, block: int, parameters: list[str], values: dict[str, bytes]) -> int:
    aligned = np.zeros((len(parameters) + 1) * 512, np.uint8)
    start = -aligned.ctypes.data % 64
    pointers = (ctypes.c_void_p * max(1, len(parameters)))()
    for number, parameter in enumerate(parameters):
        place = start + 512 * number
        held = np.frombuffer(values[parameter], np.uint8)
        aligned[place : place + held.size] = held
        pointers[number] = aligned.ctypes.data + place
    return int(getattr(library, name)(grid, block, pointers))


def _packed_map(tensor_map: Any) -> bytes:
    p = tensor_map.decode()
    words = np.zeros(16, np.uint64)
    words[0], words[1], words[2] = p.global_address, p.rank, p.element_bytes
    words[3 : 3 + p.rank] = p.global_dim
    words[8 : 8 + p.rank - 1] = p.global_strides
    words[12] = sum((extent - 1) << (8 * dimension) for dimension, extent in enumerate(p.box_dim))
    return words.tobytes()


def _compiled(text: str, name: str, folder: Path) -> tuple[Any, list[list[str]]]:
    """The library of a kernel's source, and the names of its kernels' parameters."""
    wrappers, parameters = [], []
    for kernel in (name, f"{name}_combine"):
        found = re.search(_PARAMETERS.format(kernel), text, re.DOTALL)
        if found is None:
            continue
        declared = [re.sub(r"__grid_constant__|\bconst\b", "", line).strip() for line in found[1].split(",\n")]
        pairs = [entry.rsplit(" ", 1) for entry in declared]
        arguments = ", ".join(f"*({kind}*)arguments[{number}]" for number, (kind, _) in enumerate(pairs))
        wrappers.append(
            f'extern "C" int host_{kernel}(unsigned grid, unsigned block, void** arguments)\n'
            f"{{ return host_launch(grid, block, [=] {{ {kernel}({arguments}); }}); }}"
        )
        parameters.append([entry for _, entry in pairs])
    return compiled(text + "\n".join(wrappers), folder), parameters


def compiled(text: str, folder: Path) -> Any:
    """The library of a source that includes the pipeline's header."""
    key = hashlib.sha256(text.encode()).hexdigest()[:20]
    library = folder / f"{key}.so"
    if not library.exists():
        header = source("pipeline.cuh").replace("extern __shared__ unsigned char dynamic_shared[];", "")
        header = re.sub(r'asm volatile\("bar.sync 1.*?;" [^;]*;', "host_bar_sync(1, Threads);", header)
        (folder / "cupytma").mkdir(exist_ok=True)
        (folder / "cupytma" / "pipeline.cuh").write_text(header)
        (folder / "cupytma" / "numbers.cuh").write_text(source("numbers.cuh"))
        file = folder / f"{key}.cpp"
        file.write_text(text)
        flags = ["-std=c++17", "-O0", "-w", "-Wno-psabi", "-shared", "-fPIC", "-pthread", f"-I{folder}", f"-I{_HERE}"]
        subprocess.run([str(COMPILER), *flags, str(file), "-o", str(library)], check=True)
    return ctypes.CDLL(str(library))
