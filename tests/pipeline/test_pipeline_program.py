"""The schedule of pipeline kernels on the simulator: clean and exact in every order, no step superfluous."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pipeline_cases import CASES, random_layout, random_shape, random_values

from cupytma.errors import ArrayError, CupytmaError, PipelineError
from cupytma.ops.simulated_copy import span_of
from cupytma.pipeline import pipeline_kernel
from cupytma.sim import ProgramError

FAULTS = {
    "init fence": "init-not-fenced",
    "init barrier": "init-unordered",
    "announce": "arrival-missing",
    "wait for an empty stage": "refill-unordered",
    "wait for a full stage": "tile-not-complete",
    "release the stage": "arrival-missing",
    "proxy fence": "proxy-fence",
    "outputs' barrier": "unordered",
    "wait for the output stage": "source-still-read",
    "commit": "group-not-committed",
    "wait for the stores": "exit-in-flight",
}


def strided(generator: np.random.Generator, shape: Any, dtype: str) -> Any:
    kind = np.dtype(dtype)
    strides, offset, size = random_layout(generator, shape, kind.itemsize)
    buffer = np.zeros(size + 64, np.uint8)
    return np.ndarray(shape, kind, buffer, -buffer.ctypes.data % 16 + offset, strides)


@given(name=st.sampled_from([name for name in CASES if name != "coordinates"]), seed=st.integers(0, 2**32))
@settings(max_examples=40, deadline=None)
def test_every_schedule_gives_the_results(name: str, seed: int) -> None:
    case, generator = CASES[name], np.random.default_rng(seed)
    shape = random_shape(generator, int(generator.choice(case.ranks)), 1500)
    inputs = [strided(generator, shape, dtype) for dtype in case.types]
    for array, dtype in zip(inputs, case.types, strict=True):
        array[...] = random_values(generator, shape, dtype)
    scalars = dict(case.scalars)
    made = case.expected(*inputs, *scalars.values())
    wanted = list(made) if isinstance(made, tuple) else [made]
    out = [strided(generator, np.shape(w), dtype) for w, dtype in zip(wanted, case.results, strict=True)]
    stages = int(generator.integers(1, 5))
    kernel = case.make(tile_bytes=int(generator.choice([128, 512])), stages=stages, threads=64)
    program = kernel.program(*inputs, out=out, reference=case.tile, blocks=int(generator.integers(1, 4)), **scalars)
    report = program.run(schedules=2, seed=seed % 1000)
    assert report.clean, report
    assert not report.order_dependent
    for declared, place, expected in zip(kernel.declaration.results, out, wanted, strict=True):
        place[...] = expected
        found = report.arrays[declared.name]
        if case.tolerance:
            np.testing.assert_allclose(found.view("f4"), span_of(place)[0].view("f4"), rtol=case.tolerance)
        else:
            np.testing.assert_array_equal(found, span_of(place)[0])


def scale_add_program(**options: Any) -> Any:
    a = np.arange(64 * 64, dtype=np.float32).reshape(64, 64)
    kernel = CASES["scale_add"].make(tile_bytes=1024, stages=2, **options)
    return kernel.program(a, a + 1, reference=lambda a, b, scale: scale * a + b, scale=2.0)


@pytest.mark.parametrize("step", FAULTS)
def test_every_step_is_needed(step: str) -> None:
    program = scale_add_program()
    assert set(program.steps) == set(FAULTS)
    found: set[str] = set()
    for seed in range(4):
        found |= set(program.without(step).run(schedules=2, seed=seed).rules)
    assert FAULTS[step] in found, found


def test_an_output_may_be_an_input() -> None:
    a = np.arange(4000, dtype=np.float32).reshape(40, 100)
    kernel = CASES["scale_add"].make(tile_bytes=512)
    program = kernel.program(a, a, out=a, reference=lambda a, b, scale: scale * a + b, scale=2.0)
    report = program.run(schedules=10)
    assert report.clean, report
    np.testing.assert_array_equal(report.arrays["a"].view("f4"), 3 * a.ravel())


def test_few_long_rows_are_cut_into_runs_that_a_second_kernel_combines() -> None:
    x = np.arange(2 * 3000, dtype=np.float32).reshape(2, 3000) % 7
    kernel = CASES["row_sum"].make(tile_bytes=512, threads=64)
    assert kernel.plan(x).for_blocks(4).parts == 4
    report = kernel.program(x, reference=lambda x: x, blocks=4).run(schedules=10)
    assert report.clean, report
    assert report.arrays["partial total"].shape == (4, 2)
    np.testing.assert_array_equal(report.arrays["total"].view("f4"), x.sum(1))


def test_what_has_no_program_is_refused() -> None:
    a = np.zeros(64, np.float32)
    own = pipeline_kernel("top = x", "float32 x", reduce={"float32 top": ("a < b ? b : a", "0")}, over="all")
    with pytest.raises(PipelineError, match="has no equal in numpy"):
        own.program(a, reference=lambda x: x)
    double = pipeline_kernel("out = x", "float32 x", "float32 out")
    with pytest.raises(PipelineError, match="reference"):
        double.program(a, reference=None)
    with pytest.raises(ProgramError, match="reference returned 2"):
        double.program(a, reference=lambda x: (x, x)).run(schedules=1)
    with pytest.raises(ArrayError, match="empty"):
        double.program(a[:0], reference=lambda x: x)
    with pytest.raises(ProgramError, match="blocks"):
        double.program(a, reference=lambda x: x, blocks=0)


@pytest.mark.parametrize("returned", [None, "x", 1j, [None]])
def test_what_a_reference_returns_has_to_be_numbers(returned: Any) -> None:
    made = pipeline_kernel("out = a", "float32 a", "float32 out")
    with pytest.raises(CupytmaError, match="no array of real numbers"):
        made.program(np.zeros((4, 64), np.float32), reference=lambda a: (returned,)).run(schedules=1)
