"""The kernels' own source run on the host: every result exact, and nothing written outside it."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from host_kernels import COMPILER, compiled, host_run
from pipeline_cases import CASES, random_layout, random_shape, random_values

from cupytma.pipeline.declarations import ELEMENT_TYPES

pytestmark = pytest.mark.skipif(COMPILER is None, reason="needs g++ to run the kernels' source on the host")
GUARD = 256


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kernels")


def placed(generator: np.random.Generator, shape: Any, dtype: str) -> tuple[Any, Any]:
    """An array of random layout within a buffer of random bytes; and the buffer."""
    kind = np.dtype(dtype)
    strides, offset, size = random_layout(generator, shape, kind.itemsize)
    buffer = generator.integers(0, 2, size + 2 * GUARD + 32, dtype=np.uint8)
    start = -buffer.ctypes.data % 16 + GUARD + offset
    return np.ndarray(shape, kind, buffer, start, strides), buffer


def results_in(made: Any) -> list[Any]:
    return list(made) if isinstance(made, tuple) else [made]


@pytest.mark.parametrize("name", CASES)
def test_results_are_exact_and_nothing_else_is_written(name: str, folder: Path) -> None:
    case = CASES[name]
    generator = np.random.default_rng(5000 + list(CASES).index(name))
    shape = random_shape(generator, int(generator.choice(case.ranks)), 6000)
    inputs = []
    for dtype in case.types:
        array, _ = placed(generator, shape, dtype)
        array[...] = random_values(generator, shape, dtype)
        inputs.append(array)
    wanted = results_in(case.expected(*inputs, *(value for _, value in case.scalars)))
    held = [placed(generator, np.shape(w), dtype) for w, dtype in zip(wanted, case.results, strict=True)]
    before = [buffer.copy() for _, buffer in held]
    kernel = case.make(threads=64, tile_bytes=1024, name=f"{name}_kernel")
    plan = host_run(kernel, folder, inputs, [array for array, _ in held], **dict(case.scalars))
    for (array, buffer), expected, untouched in zip(held, wanted, before, strict=True):
        if name == "tiles":  # each has its tile's first coordinate added
            extent, box = shape[0], plan.variant.box[-1]
            expected = expected + (np.arange(extent) // box * box).reshape(-1, *(1,) * (len(shape) - 1))
        if case.tolerance:
            np.testing.assert_allclose(array, expected, rtol=case.tolerance)
        else:
            np.testing.assert_array_equal(array, expected, f"{shape} {array.strides}")
        start = array.ctypes.data - buffer.ctypes.data
        np.ndarray(array.shape, array.dtype, untouched, start, array.strides)[...] = array
        np.testing.assert_array_equal(buffer, untouched)


def test_reductions_begin_at_the_ends_of_each_type(folder: Path) -> None:
    types = [kind for kind in ELEMENT_TYPES.values() if kind.code]
    body = "".join(
        f"    *({kind.stored}*)(out + {16 * n}) = lowest<{kind.stored}>();\n"
        f"    *({kind.stored}*)(out + {16 * n + 8}) = highest<{kind.stored}>();\n"
        for n, kind in enumerate(types)
    )
    head = "#include <cupytma/pipeline.cuh>\nusing namespace cupytma::pipeline;\n"
    library = compiled(f'{head}extern "C" void ends(char* out)\n{{\n{body}}}\n', folder)
    out = np.zeros((len(types), 2, 8), np.uint8)
    library.ends(ctypes.c_void_p(out.ctypes.data))
    for kind, ends in zip(types, out, strict=True):
        low, high = (end[: kind.itemsize].copy().view(kind.name)[0] for end in ends)
        if kind.name == "bool":
            assert (bool(low), bool(high)) == (False, True)
        elif kind.name.startswith("float"):
            assert (low, high) == (-np.inf, np.inf)
        else:
            assert (low, high) == (np.iinfo(kind.name).min, np.iinfo(kind.name).max)
