"""Tuning of matrix products on a GPU: the fastest is kept, found by other processes, taken, and right."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matmul_arrays import TYPES, expected, operands

import cupytma as tma
from cupytma.errors import LaunchError
from cupytma.ops import matmul_choices
from cupytma.ops.matmul_tuning import Tuning
from cupytma.ops.matrix_product import forget_prepared
from cupytma.runtime import cache
from cupytma.runtime.compiler import current_target

pytestmark = pytest.mark.gpu
BITS = {1: np.uint8, 2: np.uint16}
SHAPES = [("float8_e4m3fn", 8, 4096, 2048), ("bfloat16", 512, 1024, 1024)]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A place for notes of the test's own; what is compiled stays where the others have it."""
    if str(current_target()) != "sm_90a":
        pytest.skip("needs a Hopper GPU")
    monkeypatch.setattr(cache, "read_note", lambda name: _read(tmp_path / name))
    monkeypatch.setattr(cache, "write_note", lambda name, content: bool((tmp_path / name).write_bytes(content)))
    monkeypatch.setattr(matmul_choices, "_unwritten", {})
    forget_prepared()
    yield tmp_path
    forget_prepared()


def _read(path: Path) -> bytes:
    return path.read_bytes() if path.exists() else b""


def on_device(dtype: str, m: int, n: int, k: int) -> tuple[Any, Any, np.ndarray, dict[str, str]]:
    import cupy

    a, b = operands(m, n, k, dtype, seed=m)
    kind = BITS[a.itemsize]
    named = {"a_dtype": dtype, "b_dtype": dtype, "out_dtype": "float32"}
    return cupy.asarray(a.view(kind)), cupy.asarray(b.T.view(kind)).T, expected(a, b), named


def check(found: Tuning) -> None:
    assert not found.left_out, str(found)
    assert len(found.rows) > 3
    assert found.rows[0].rounds >= 1
    assert found.rows[0].configuration == found.configuration
    assert found.measured.seconds == found.rows[0].seconds
    kept_on = [row.seconds for row in found.rows if row.rounds == found.rows[0].rounds]
    assert found.rows[0].seconds == min(kept_on)
    assert all(1e-6 < row.seconds < 1e-2 for row in found.rows)


@pytest.mark.parametrize(("dtype", "m", "n", "k"), SHAPES)
@pytest.mark.parametrize("static_b", [False, True])
def test_the_fastest_is_kept_and_taken_and_exact(
    folder: Path, dtype: str, m: int, n: int, k: int, static_b: bool
) -> None:
    a, b, want, named = on_device(dtype, m, n, k)
    before = a.get(), b.get()
    found = tma.matmul.autotune(a, b, static_b=static_b, **named)
    check(found)
    assert found.measured.is_cold == (m <= 128)
    assert len(list(folder.iterdir())) == 1
    (part,) = tma.matmul.explain(a, b, static_b=static_b, **named).parts
    assert part.plan.configuration == found.configuration
    assert str(found.measured) in part.path
    for _ in range(2):
        result = tma.matmul(a, b, static_b=static_b, **named)
        np.testing.assert_array_equal(result.get(), want.astype(np.float32))
    for array, copy in zip((a, b), before, strict=True):
        np.testing.assert_array_equal(array.get(), copy)
    (other,) = tma.matmul.explain(a, b, static_b=not static_b, **named).parts
    assert other.plan.measured is None


def test_a_slow_configuration_that_was_kept_is_what_is_launched(folder: Path) -> None:
    """So that it is seen that it is taken: what tuning finds may be the model's choice."""
    dtype, m, n, k = SHAPES[0]
    a, b, want, named = on_device(dtype, m, n, k)
    found = tma.matmul.autotune(a, b, cold=False, budget=0.5, **named)
    assert not found.measured.is_cold
    (part,) = tma.matmul.explain(a, b, **named).parts
    slowest = max(found.rows, key=lambda row: row.seconds).configuration
    matmul_choices.keep(replace(part.plan, configuration=slowest))
    forget_prepared()
    np.testing.assert_array_equal(tma.matmul(a, b, **named).get(), want.astype(np.float32))
    assert tma.matmul.explain(a, b, **named).parts[0].plan.configuration == slowest


def test_scales_bias_and_the_layout_of_the_result_are_measured_with(folder: Path) -> None:
    import cupy

    dtype, m, n, k = SHAPES[1]
    a, b, want, named = on_device(dtype, m, n, k)
    out = cupy.full((m, n + 3), 7, cupy.float32)
    scale, bias = cupy.full(1, 0.5, cupy.float32), cupy.arange(n, dtype=cupy.float32)
    more = {"scale_a": scale, "bias": bias, "out": out[:, :n], **named}
    check(tma.matmul.autotune(a, b, budget=0.5, **more))
    assert bool((out == 7).all())
    tma.matmul(a, b, **more)
    np.testing.assert_array_equal(out[:, :n].get(), (0.5 * want + np.arange(n)).astype(np.float32))
    assert bool((out[:, n:] == 7).all())
    assert tma.matmul.explain(a, b, **more).parts[0].plan.measured is not None
    assert tma.matmul.explain(a, b, **named).parts[0].plan.measured is None


def test_tensors_on_a_stream_are_waited_for_and_captures_are_refused() -> None:
    torch = pytest.importorskip("torch")
    a, b = (torch.randn(rows, 1024, device="cuda").to(torch.bfloat16) for rows in (64, 512))
    want = a @ b.T
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        check(tma.matmul.autotune(a, b.T, budget=0.5))
        torch.testing.assert_close(tma.matmul(a, b.T), want, rtol=2**-7, atol=1e-2)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        tma.matmul(a, b.T)
        with pytest.raises(LaunchError, match=r"being captured.*tune before"):
            tma.matmul.autotune(a, b.T)


def test_another_process_finds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setenv("CUPYTMA_CACHE_DIR", str(tmp_path / "own"))
    script = (
        "import sys, cupy, cupytma as tma\n"
        "a, b = (cupy.random.rand(rows, 512).astype(cupy.float16) for rows in (16, 256))\n"
        "if sys.argv[1:]: print(tma.matmul.autotune(a, b.T, budget=0.2).configuration)\n"
        "part, = tma.matmul.explain(a, b.T).parts\n"
        "print(part.plan.configuration, part.plan.measured is not None)\n"
    )
    root = Path(__file__).parents[2]

    def told(*more: str) -> list[str]:
        command = [sys.executable, "-c", script, *more]
        return subprocess.run(command, check=True, capture_output=True, text=True, cwd=root).stdout.splitlines()

    assert told()[0].endswith(" False")
    tuned = told("tune")
    assert tuned[1] == f"{tuned[0]} True"
    assert told() == tuned[1:]


def test_every_type_of_the_kernel_can_be_tuned() -> None:
    for dtype in sorted(TYPES):
        if dtype == "float32":
            continue
        a, b, want, named = on_device(dtype, 40, 200, 512)
        check(tma.matmul.autotune(a, b, budget=0.1, **named))
        np.testing.assert_array_equal(tma.matmul(a, b, **named).get(), want.astype(np.float32))
