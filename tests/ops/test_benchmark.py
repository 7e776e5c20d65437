"""Benchmarks up to the GPU: every case made and called once on numpy arrays, and what is made of the times."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from cupytma.ops import benchmark, benchmark_cases
from cupytma.ops.benchmark import SCALES, Aim, Measurement, Skipped, chosen, fitting_scale, measure, run
from cupytma.ops.benchmark_cases import CASES
from cupytma.ops.simulated_columns import simulate_col2im, simulate_im2col
from cupytma.ops.simulated_rows import simulate_gather_rows, simulate_scatter_add_rows, simulate_scatter_rows

SMALLEST = SCALES[-1]
NAMED = {case.name: case for case in CASES}


def _im2col(x, kernel, padding, out=None):
    out = np.empty((x.shape[0] * x.shape[1] * x.shape[2], 9 * x.shape[3]), x.dtype) if out is None else out
    return simulate_im2col(x, out, kernel, padding=padding)


@pytest.fixture
def numpy_gpu(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A GPU that is numpy and the simulator, with 64 GiB; the list has the bytes of each array that was made."""
    made: list[int] = []
    free = SimpleNamespace(memGetInfo=lambda: (64 << 30, 80 << 30))
    module = SimpleNamespace(
        **{name: getattr(np, name) for name in ("dtype", "uint64", "uint8", "copyto", "add", "random")},
        cuda=SimpleNamespace(runtime=free), get_default_memory_pool=lambda: SimpleNamespace(free_all_blocks=int),
    )
    for name in ("empty", "zeros", "empty_like"):
        setattr(module, name, _noting(getattr(np, name), made))
    stand_ins = {
        "copy": lambda x, out: np.copyto(out, x), "transpose": lambda x, out: np.copyto(out, x.T),
        "permute": lambda x, axes, out: np.copyto(out, x.transpose(axes)),
        "reduce_add": lambda out, x: np.add(out, x if x.shape == out.shape else x.sum(0), out=out),
        "gather_rows": simulate_gather_rows, "scatter_rows": simulate_scatter_rows,
        "scatter_add_rows": simulate_scatter_add_rows, "im2col": _noting(_im2col, made),
        "col2im": lambda columns, shape, kernel, padding, out: simulate_col2im(columns, out, kernel, padding=padding),
        "broadcast_add": lambda x, row, out: np.add(x, row, out=out),
        "multicast_copy": lambda one, copies: np.copyto(copies, one),
        "random_array": _noting(benchmark_cases.random_array, made), "cupy": lambda: module,
        "_torch_module": lambda: None,
    }  # fmt: skip
    for name, value in stand_ins.items():
        monkeypatch.setattr(benchmark_cases, name, value)
    monkeypatch.setattr(benchmark, "cupy", lambda: module)
    return made


def _noting(make, made: list[int]):
    def noted(*arguments, **options):
        array = make(*arguments, **options)
        made.append(array.nbytes)
        return array

    return noted


@pytest.mark.parametrize("name", [case.name for case in CASES if case.group == "large"])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # random bits are added up
def test_every_large_case_is_made_within_its_memory_and_can_be_called(numpy_gpu, name: str) -> None:
    case = NAMED[name]
    work = case.make(SMALLEST)
    assert sum(numpy_gpu) <= case.memory(SMALLEST) - benchmark._QUEUED_BYTES
    assert 0 < work.bytes <= 3 * sum(numpy_gpu) + 2**20
    work.ours()
    assert set(work.others) <= {"CuPy", "CUDA"}
    if "CuPy" in work.others:
        work.others["CuPy"]()
    assert work.title.startswith(name.partition("-")[0])


def test_small_cases_are_the_same_for_all_and_leave_torch_out_where_it_is_not(numpy_gpu) -> None:
    work = NAMED["transpose-64KiB"].make(1)
    assert (work.bytes, work.title, set(work.others)) == (2 * 65536, "transpose, 64 KiB", {"CuPy"})
    work.ours()
    skipped = measure(NAMED["copy-1MiB-torch"], 1, 3, 1e12)
    assert isinstance(skipped, Skipped)
    assert "torch is not installed" in skipped.reason


def test_what_does_not_fit_is_made_smaller_or_left_out(numpy_gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    largest = max(case.memory(1) for case in CASES)
    assert fitting_scale(CASES, largest) == 1
    assert fitting_scale(CASES, largest - 1) == 2
    assert fitting_scale(CASES, 0) == SMALLEST
    monkeypatch.setattr(benchmark, "free_memory", lambda: 2 << 30)
    found = measure(NAMED["gather_rows"], 1, 3, 1e12)
    assert isinstance(found, Skipped)
    assert found.reason == "it needs 12.5 GiB of device memory, and 2.0 GiB are free"


def test_full_memory_is_a_reason_and_other_errors_are_raised(numpy_gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    class OutOfMemoryError(MemoryError):
        pass

    def fails(error: Exception):
        def make(scale: int):
            raise error

        return benchmark.Case("copy-x", "", make)

    found = measure(fails(OutOfMemoryError("by 3 bytes")), 1, 3, 1e12)
    assert isinstance(found, Skipped)
    assert "by 3 bytes" in found.reason
    with pytest.raises(ZeroDivisionError):
        measure(fails(ZeroDivisionError()), 1, 3, 1e12)


def test_a_run_gives_medians_beside_a_plain_copy(numpy_gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    def timed(ways, repeats):
        ways[""]()
        return {name: [1e-6, 5e-6, 2e-6 * (1 + len(name))] for name in ways}

    monkeypatch.setitem(benchmark.TIMINGS, "device", timed)
    monkeypatch.setattr(benchmark, "copy_rate", lambda scale, repeats: 1e12)
    started = []
    (found,) = run(chosen(CASES, ["copy-window"]), SMALLEST, 3, started.append)
    assert isinstance(found, Measurement)
    assert started == [NAMED["copy-window"]]
    assert (found.seconds, found.others) == (2e-6, {"CuPy": 5e-6})
    assert found.bytes == 2 * 256 * 256 * 4
    assert found.rate == pytest.approx(found.bytes / 2e-6)
    assert found.of_copy == pytest.approx(found.rate / 1e12)


def measurement(name: str, seconds: float = 1e-3, scale: int = 1, **others: float) -> Measurement:
    return Measurement(NAMED[name], f"{name}, a title", 2 * 10**9, seconds, others, 2.5e12, scale)


def test_aims_are_reached_missed_or_cannot_be_told() -> None:
    fast = measurement("gather_rows", torch=1.1e-3)  # 2,000 GB/s
    assert [fast.is_reached(aim) for aim in fast.case.aims] == [True, False]
    assert [fast.reached(aim) for aim in fast.case.aims] == ["1.10 ×", "0.800"]
    assert fast.is_reached(Aim("CuPy", 1.0)) is None
    assert [measurement("im2col", s).is_reached(NAMED["im2col"].aims[0]) for s in (1e-3, 1.1e-3)] == [True, False]
    assert measurement("im2col", scale=2).is_reached(NAMED["im2col"].aims[0]) is None
    aims = *fast.case.aims, *NAMED["im2col"].aims
    assert [str(aim) for aim in aims] == ["1 × torch", "0.9 of a copy", "2,000 GB/s"]


def test_the_benchmark_prints_every_number_and_every_aim() -> None:
    path = Path(__file__).parents[1] / "benchmarks" / "bench_operations.py"
    spec = importlib.util.spec_from_file_location("bench_operations", path)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    found = [
        measurement("copy-contiguous", torch=0.9e-3, CUDA=1e-3), Skipped(NAMED["permute"], "no room"),
        measurement("im2col"),
    ]  # fmt: skip
    text = "\n".join(script.lines(found))
    for line in (
        r"copy-contiguous, a title +2000 +1\.000 +2000 +0\.800 +torch 2222 GB/s \(0\.90 ×\), CUDA 2000 GB/s",
        r"permute: left out, no room",
        r"copy-contiguous, a title +1 × torch +0\.90 ×, missed",
        r"copy-contiguous, a title +0\.97 × CUDA +1\.00 ×, reached",
        r"im2col, a title +2,000 GB/s +2,000 GB/s, reached",
        r"a plain copy: 2500 GB/s",
    ):
        assert re.search(line, text), line


def test_names_are_of_cases_operations_and_groups() -> None:
    assert chosen(CASES, []) == list(CASES)
    assert {case.name for case in chosen(CASES, ["transpose-uint8", "permute"])} == {"transpose-uint8", "permute"}
    assert {case.group for case in chosen(CASES, ["small"])} == {"small"}
    assert {case.name.partition("-")[0] for case in chosen(CASES, ["transpose"])} == {"transpose"}
    assert len(NAMED) == len(CASES)


@pytest.mark.parametrize(("timing", "calls", "waits"), [("alone", 1, True), ("queued", 50, True), ("host", 50, False)])
def test_calls_are_timed_in_alternation(monkeypatch, timing: str, calls: int, waits: bool) -> None:
    events: list[str] = []
    device = SimpleNamespace(synchronize=lambda: events.append("wait"))
    monkeypatch.setattr(benchmark, "cupy", lambda: SimpleNamespace(cuda=SimpleNamespace(Device=lambda: device)))
    ways = {"": lambda: events.append("ours"), "CuPy": lambda: events.append("theirs")}
    found = benchmark.TIMINGS[timing](ways, 2)
    rounds = benchmark.WARMUPS + 2 * benchmark._MORE_OFTEN
    after = ["wait"] * waits
    assert events == [*(["wait", *["ours"] * calls, *after, "wait", *["theirs"] * calls, *after] * rounds), "wait"]
    assert [len(seconds) for seconds in found.values()] == [2 * benchmark._MORE_OFTEN] * 2


def test_the_gpus_time_is_that_between_two_events(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]

    class Event:
        def record(self) -> None:
            self.at = clock[0]

        def synchronize(self) -> None: ...

    cuda = SimpleNamespace(Event=Event, get_elapsed_time=lambda start, end: end.at - start.at)
    module = SimpleNamespace(cuda=cuda, empty=lambda size, dtype: np.empty(16, dtype), uint8=np.uint8)
    monkeypatch.setattr(benchmark, "cupy", lambda: module)
    found = benchmark.TIMINGS["device"]({"": lambda: clock.__setitem__(0, clock[0] + 250)}, 4)
    assert found[""] == [0.25] * 4
