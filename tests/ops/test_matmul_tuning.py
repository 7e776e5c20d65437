"""Tuning of matrix products without a GPU: what is measured, what is believed, what is kept and what is found again."""

from __future__ import annotations

import json
import os
import threading
import warnings
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from matmul_arrays import matrix, operands
from matmul_host_gpu import HostGpu

import cupytma as tma
from cupytma.errors import ArrayError, CacheWarning, CompileError, LaunchError
from cupytma.ops import explanation, matmul_choices, matmul_timing, matmul_tuning
from cupytma.ops.explained_parts import Machine
from cupytma.ops.matmul_configuration import Configuration
from cupytma.ops.matmul_cost import cost_of
from cupytma.ops.matmul_operands import check_operands
from cupytma.ops.matmul_plan import MatmulPlan, Measured, plan_matmul
from cupytma.ops.matmul_timing import difference
from cupytma.ops.matmul_tuning import candidates, measure
from cupytma.ops.matmul_ways import possible
from cupytma.runtime import cache
from cupytma.targets import target
from cupytma.tensormap.arrays import ArrayView, view_of

HOPPER = target("sm_90a")
H100 = "NVIDIA H100 80GB HBM3"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache of the test's own, on a GPU with a name."""
    monkeypatch.setenv("CUPYTMA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("CUPYTMA_CACHE_SIZE", raising=False)
    monkeypatch.setattr(matmul_choices, "device_name", lambda device: H100)
    monkeypatch.setattr(matmul_choices, "_unwritten", {})
    cache._warn.cache_clear()
    yield tmp_path / "cache"
    cache._warn.cache_clear()


def planned(m: int = 64, n: int = 512, k: int = 1024, dtype: str = "bfloat16", **how: Any) -> MatmulPlan:
    a, b = operands(m, n, k, dtype)
    return plan_matmul(check_operands(view_of(a), view_of(b), view_of(matrix(m, n, "bfloat16"))), HOPPER, 132, **how)


def tuned(plan: MatmulPlan, number: int = -1, is_cold: bool = True) -> MatmulPlan:
    """A plan as it would be after measuring: with another configuration than the model's."""
    chosen = candidates(plan)[number].configuration
    assert chosen != plan.configuration
    return replace(plan, configuration=chosen, measured=Measured(H100, 6.5e-6, is_cold))


class FakeTimer:
    """Products that take as long as is said, in a clock that only they move."""

    def __init__(self, seconds: dict[Configuration, float], **faults: dict[Configuration, Any]) -> None:
        self.seconds, self.now = seconds, 0.0
        self.uncompiled, self.unlaunched, self.wrong = (
            faults.get(name, {}) for name in ("uncompiled", "unlaunched", "wrong")
        )
        self.sampled: list[Configuration] = []
        self.checked: list[Configuration] = []
        self.threads: set[int] = set()

    def build(self, plan: MatmulPlan) -> None:
        self.threads.add(threading.get_ident())
        if plan.configuration in self.uncompiled:
            raise self.uncompiled[plan.configuration]

    def check(self, plan: MatmulPlan) -> str:
        self.checked.append(plan.configuration)
        if plan.configuration in self.unlaunched:
            raise self.unlaunched[plan.configuration]
        return self.wrong.get(plan.configuration, "")

    def sample(self, plan: MatmulPlan) -> float:
        self.sampled.append(plan.configuration)
        self.now += self.seconds[plan.configuration]
        # Every fourth sample is disturbed.
        return self.seconds[plan.configuration] * (10 if len(self.sampled) % 4 == 0 else 1)

    def clock(self) -> float:
        return self.now


def several(count: int) -> list[MatmulPlan]:
    found = candidates(planned())[:count]
    assert len(found) == count
    return found


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_what_is_not_compiled_yet_is_given_up_when_tuning_ends_early(
    error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    plans, built, never = several(6), [], threading.Event()

    class Interrupted(FakeTimer):
        def build(self, plan: MatmulPlan) -> None:
            built.append(plan)
            if len(built) == 2:
                raise error
            if len(built) > 2:
                never.wait(0.2)  # so that not all are built before the first thread looks

    timer = Interrupted(dict.fromkeys((plan.configuration for plan in plans), 1.0))
    with pytest.raises(error):
        measure(plans, timer, 1e9, timer.clock)
    assert len(built) < len(plans)
    assert not timer.checked


def test_the_fastest_by_the_median_comes_first_and_the_slow_are_measured_less() -> None:
    plans = several(5)
    seconds = dict(zip([plan.configuration for plan in plans], (1.1, 1.0, 3.0, 1.15, 2.0), strict=True))
    timer = FakeTimer(seconds)
    rows, left_out = measure(plans, timer, 1e9, timer.clock)
    assert not left_out
    assert [row.configuration for row in rows] == [plans[i].configuration for i in (1, 0, 3, 4, 2)]
    assert [row.seconds for row in rows] == [1.0, 1.1, 1.15, 2.0, 3.0]
    assert [row.rounds for row in rows] == [15, 15, 15, 3, 3]
    assert timer.sampled[:10] == [plan.configuration for plan in plans] * 2  # in alternation
    assert threading.get_ident() not in timer.threads
    assert [row.expected_seconds for row in rows] == [plans[i].cost.seconds for i in (1, 0, 3, 4, 2)]


def test_the_budget_ends_the_rounds_but_each_is_measured_once() -> None:
    plans = several(4)
    timer = FakeTimer({plan.configuration: 1.0 for plan in plans})
    rows, _ = measure(plans, timer, 0.5, timer.clock)
    assert [row.rounds for row in rows] == [1] * 4
    timer = FakeTimer({plan.configuration: 1.0 for plan in plans})
    rows, _ = measure(plans, timer, 7.9, timer.clock)
    assert [row.rounds for row in rows] == [2] * 4


def test_what_fails_or_disagrees_is_left_out_with_the_reason() -> None:
    plans = several(5)
    first, wrong, uncompiled, unlaunched, good = (plan.configuration for plan in plans)
    timer = FakeTimer(
        dict.fromkeys((first, wrong, uncompiled, unlaunched, good), 1.0), wrong={wrong: "7 elements differ"},
        uncompiled={uncompiled: CompileError("no registers\nmore")}, unlaunched={unlaunched: LaunchError("no room")},
    )  # fmt: skip
    rows, left_out = measure(plans, timer, 1e9, timer.clock)
    assert {row.configuration for row in rows} == {first, good}
    told = {one.configuration: one.reason for one in left_out}
    assert told == {wrong: "7 elements differ", uncompiled: "no registers", unlaunched: "no room"}
    assert uncompiled not in timer.checked
    assert wrong not in timer.sampled


def test_where_nothing_works_the_first_failure_is_raised() -> None:
    plans = several(2)
    every = [plan.configuration for plan in plans]
    with pytest.raises(CompileError, match="no NVRTC"):
        measure(plans, FakeTimer({}, uncompiled={c: CompileError("no NVRTC") for c in every}), 1.0)
    with pytest.raises(LaunchError, match="no room"):
        measure(plans, FakeTimer({}, unlaunched={c: LaunchError("no room") for c in every}), 1.0)
    with pytest.raises(RuntimeError, match="unexpected"):
        measure(plans, FakeTimer({}, uncompiled={every[1]: RuntimeError("unexpected")}), 1.0)


def test_a_lost_context_ends_the_tuning() -> None:
    plans = several(3)
    lost = LaunchError("CUDA_ERROR_ILLEGAL_ADDRESS")
    timer = FakeTimer({}, unlaunched={plans[1].configuration: lost})
    with pytest.raises(LaunchError, match="ILLEGAL_ADDRESS"):
        measure(plans, timer, 1.0)
    assert len(timer.checked) == 2


def test_candidates_are_the_ways_that_the_model_does_not_find_far_too_expensive() -> None:
    plan = planned(4096, 4096, 4096)
    costs = {
        c: cost_of(c, plan.operands, plan.is_promoted, 132).ranked_seconds
        for c in possible(plan.operands, plan.is_promoted, HOPPER.shared_bytes, 132)
    }
    found = candidates(plan)
    assert found[0].configuration == plan.configuration
    chosen = [costs[one.configuration] for one in found]
    assert chosen == sorted(chosen)
    assert max(chosen) <= 3 * min(costs.values())
    assert len(found) == sum(cost <= 3 * min(costs.values()) for cost in costs.values()) < len(costs)


def notes(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.note"))


def test_what_is_kept_is_found_for_products_alike_alone(folder: Path) -> None:
    plan = planned()
    assert matmul_choices.as_measured(plan, 0) is plan
    best = tuned(plan)
    assert matmul_choices.keep(best)
    assert matmul_choices.as_measured(plan, 0) == best
    others = [
        planned(63), planned(n=520), planned(k=1040), planned(dtype="float16"), planned(static_b=True),
        planned(dtype="float8_e4m3fn"), planned(dtype="float8_e4m3fn", fast_accumulation=True),
        replace(plan, multiprocessors=114),
    ]  # fmt: skip
    a, b = operands(64, 512, 1024, "bfloat16")
    out, odd = matrix(64, 512, "bfloat16"), matrix(64, 512, "bfloat16", pad=3)
    row_major = operands(64, 512, 1024, "bfloat16", is_row_major=True)
    one, many = (view_of(np.ones(count, np.float32)) for count in (1, 64))
    bias = view_of(np.ones(512, np.float32))
    for arrays in (
        (a, b, odd), (*row_major, out), (a, b, matrix(64, 512, "float32")), (a, b, out, one), (a, b, out, many),
        (a, b, out, None, one), (a, b, out, None, None, bias),
    ):  # fmt: skip
        given = (x if x is None or isinstance(x, ArrayView) else view_of(x) for x in arrays)
        others.append(plan_matmul(check_operands(*given), HOPPER, 132))
    names = {matmul_choices.note_name(other, H100) for other in (*others, plan)}
    assert len(names) == len(others) + 1
    for other in others:
        assert matmul_choices.as_measured(other, 0) is other
    padded = operands(64, 512, 1024, "bfloat16", seed=5)
    alike = plan_matmul(check_operands(*map(view_of, (*padded, matrix(64, 512, "bfloat16", pad=8)))), HOPPER, 132)
    assert matmul_choices.as_measured(alike, 0).configuration == best.configuration
    assert len(notes(folder)) == 1


def test_another_gpu_and_other_kernels_are_measured_on_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = planned()
    matmul_choices.keep(tuned(plan))
    for name, value in (
        ("device_name", lambda device: "NVIDIA H200"), ("kernel_digest", lambda: "other"), ("CONFIGURATIONS", ()),
    ):  # fmt: skip
        with monkeypatch.context() as patch:
            patch.setattr(matmul_choices, name, value)
            assert matmul_choices.as_measured(plan, 0) is plan
    assert matmul_choices.as_measured(plan, 0) is not plan


def test_damaged_and_illegal_notes_are_as_none(folder: Path) -> None:
    plan = planned()
    matmul_choices.keep(tuned(plan))
    (note,) = notes(folder)
    told = json.loads(note.read_bytes())
    legal = told["configuration"]
    for content in (
        b"", b"\xff\0garbage", b"[" * 50_000, b"[]", b"null", note.read_bytes()[:-9],
        *(
            json.dumps(wrong).encode()
            for wrong in (
                {**told, "seconds": -1.0}, {**told, "seconds": "6"}, {**told, "is_cold": 1}, {**told, "seconds": None},
                {**told, "seconds": float("nan")}, {"configuration": legal}, {**told, "configuration": [1]},
                {**told, "configuration": {**legal, "colour": 1}},
                {**told, "configuration": {**legal, "row_blocks": 3}},
                {**told, "configuration": {**legal, "row_blocks": [1]}},
                {**told, "configuration": {**legal, "tile_columns": 128.0}},
                {**told, "configuration": asdict(Configuration(2, 256))},
            )
        ),
    ):  # fmt: skip
        note.write_bytes(content)
        assert matmul_choices.as_measured(plan, 0) is plan, content[:80]
    note.write_bytes(json.dumps(told).encode())
    assert matmul_choices.as_measured(plan, 0) is not plan


@pytest.mark.parametrize("configuration", [Configuration(4, 64, is_swapped=True), Configuration(1, 8, is_swapped=True)])
def test_a_note_of_any_configuration_is_launched_or_ignored(folder: Path, configuration: Configuration) -> None:
    """Notes are files that others may write: what is believed has tensor maps."""
    plan = planned()
    matmul_choices.keep(replace(tuned(plan), configuration=configuration))
    found = matmul_choices.as_measured(plan, 0)
    assert (found is plan) == (configuration.tile_rows > 256)
    found.maps()


@pytest.mark.parametrize("kind", ["off", "no room", "read-only"])
def test_without_a_cache_to_write_to_this_process_knows(
    kind: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = planned()
    best = tuned(plan)
    if kind == "off":
        monkeypatch.setenv("CUPYTMA_CACHE_DIR", "")
    elif kind == "no room":
        monkeypatch.setenv("CUPYTMA_CACHE_SIZE", "0")
    else:  # a file where the folder should be: also root cannot write there
        folder.parent.mkdir(exist_ok=True)
        folder.write_bytes(b"")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert not matmul_choices.keep(best)
    assert [one.category for one in said] == [CacheWarning] * (kind == "read-only")
    assert matmul_choices.as_measured(plan, 0) == best
    assert not notes(folder.parent)
    matmul_choices._unwritten.clear()
    assert matmul_choices.as_measured(plan, 0) is plan


def test_two_at_once_leave_one_whole_note(folder: Path) -> None:
    plan = planned()
    bests = [tuned(plan, number) for number in (-1, -2)]
    threads = [
        threading.Thread(target=lambda best=best: [matmul_choices.keep(best) for _ in range(100)]) for best in bests
    ]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        assert matmul_choices.as_measured(plan, 0) in (plan, *bests)
    assert matmul_choices.as_measured(plan, 0) in bests
    assert [path.suffix for path in folder.iterdir()] == [".note"]


def test_the_cache_command_counts_and_clears_what_was_measured(folder: Path) -> None:
    matmul_choices.keep(tuned(planned()))
    found = cache.info()
    assert (found.entries, found.size) == (1, os.path.getsize(notes(folder)[0]))
    assert cache.clear().entries == 1
    assert not notes(folder)
    assert matmul_choices.as_measured(planned(), 0).measured is None


@pytest.mark.parametrize("result", ["bfloat16", "float16", "float32"])
def test_results_may_differ_as_sums_in_another_order_do_and_no_more(result: str) -> None:
    kind = {"bfloat16": ml_dtypes.bfloat16, "float16": np.float16, "float32": np.float32}[result]
    rng = np.random.default_rng(3)
    first = rng.normal(size=(70, 90)).astype(kind)
    first[3, 4], first[5, 6], first[7, 8] = np.nan, np.inf, -np.inf
    bits = f"u{first.itemsize}"

    def compared(found: np.ndarray) -> str:
        return difference(found.view(bits), first.view(bits), result, 2**-6)

    assert compared(first.copy()) == ""
    close = (first.astype(np.float32) * np.float32(1 + 2**-8)).astype(kind)
    assert not np.array_equal(close, first)
    assert compared(close) == ""
    for place, value in (((0, 0), 9.0), ((0, 0), np.nan), ((3, 4), 1.0), ((5, 6), -np.inf), ((7, 8), 0.0)):
        found = first.copy()
        found[place] = value
        assert compared(found).startswith("1 element differs from the first"), (place, value)
    assert difference(found[:, ::2].view(bits), found[:, ::2].view(bits), result, 0) == ""


def on_host(dtype: str = "float16", m: int = 24, pad: int = 0) -> tuple[ArrayView, ArrayView, np.ndarray, list[Any]]:
    """Operands in host memory that say they are on a GPU, and a result whose elements are sevens."""
    a, b = operands(m, 72, 256, dtype)
    out = matrix(m, 72, "float32", pad)
    out[...] = 7
    return *(replace(view_of(x), device=0) for x in (a, b)), out, [a, b]


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> HostGpu:
    found = HostGpu()
    for module in (matmul_tuning, matmul_timing):
        monkeypatch.setattr(module, "cupy", lambda: found)
    for name, value in (
        ("current_target", lambda: HOPPER), ("multiprocessors", lambda: 132), ("device_name", lambda device: H100),
        ("current_stream", lambda *arrays: 5), ("is_capturing", lambda handle: False),
        ("wait_for", lambda producer, stream: found.waits.append(producer)),
        ("prepared_for", found.prepared_for),
    ):  # fmt: skip
        monkeypatch.setattr(matmul_tuning, name, value)
    monkeypatch.setattr(matmul_timing, "matmul_module", lambda target, defines: found.built.append(target))
    return found


@pytest.mark.parametrize(("cold", "m"), [(None, 24), (None, 200), (True, 200), (False, 24)])
@pytest.mark.parametrize("pad", [0, 5])
def test_tuning_keeps_the_fastest_that_is_right_and_changes_no_array(
    gpu: HostGpu, folder: Path, cold: bool | None, m: int, pad: int
) -> None:
    a, b, out, arrays = on_host(m=m, pad=pad)
    before = [array.copy() for array in arrays]
    plan = plan_matmul(check_operands(a, b, replace(view_of(out), device=0)), HOPPER, 132)
    ways = [found.configuration for found in candidates(plan)]
    gpu.seconds = {way: 1e-5 * (2 + number) for number, way in enumerate(ways)}
    gpu.seconds[ways[3]], gpu.seconds[ways[5]] = 1e-6, 1e-5
    gpu.wrong = {ways[3]}
    found = tma.matmul.autotune(a, b, out=replace(view_of(out), device=0), cold=cold)
    assert found.configuration == ways[5]
    assert found.rows[0].seconds == pytest.approx(1e-5)
    assert found.measured == Measured(H100, found.rows[0].seconds, cold if cold is not None else m <= 128)
    assert [one.configuration for one in found.left_out] == [ways[3]]
    assert "element differs" in found.left_out[0].reason
    assert {row.configuration for row in found.rows} == set(ways) - {ways[3]}
    assert found.folder == str(folder)
    assert gpu.built == ["sm_90a"] * len(ways)
    assert gpu.waits == [5, None, None, None]
    assert (out == 7).all()
    for array, copy in zip(arrays, before, strict=True):
        np.testing.assert_array_equal(array, copy)
    weights = {addresses[1] for addresses in gpu.launched}
    assert gpu.copies == len(weights) - 1
    is_cold = found.measured.is_cold
    assert (len(weights) * 72 * 512 >= 2.5 * gpu.cache_bytes) == is_cold
    assert {address % 128 for address in weights} == {b.address % 128}
    assert {addresses[2] % 128 for addresses in gpu.launched} == {view_of(out).address % 128}
    assert matmul_choices.as_measured(plan, 0).configuration == ways[5]
    text = str(found)
    for words in (f"M = {m}, N = 72, K = 256, float16 × float16 to float32", H100, str(ways[5]), "left out", "kept in"):
        assert words in text


def test_what_was_measured_is_told_of_a_product_and_taken_for_it(
    gpu: HostGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(explanation, "_machine", lambda values: Machine(HOPPER, 132))
    a, b, _, _ = on_host()
    ways = [found.configuration for found in candidates(tma.matmul.explain(a, b).parts[0].plan)]
    gpu.seconds = {way: 1e-5 * (2 + number) for number, way in enumerate(ways)}
    gpu.seconds[ways[4]] = 6.54e-6
    assert "measured" not in str(tma.matmul.explain(a, b))
    found = tma.matmul.autotune(a, b)
    (part,) = tma.matmul.explain(a, b).parts
    assert part.plan.configuration == found.configuration == ways[4]
    assert f"measured on {H100}: 6.54 µs with b cold in L2" in part.path
    (part,) = tma.matmul.explain(a, b, configuration=ways[1]).parts
    assert part.plan.configuration == ways[1]
    assert "measured" not in part.path
    elsewhere = (replace(view, device=None) for view in (a, b))
    assert "measured" not in str(tma.matmul.explain(*elsewhere))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"cold": "yes"}, "cold = 'yes'; it must be True, False or None"),
        ({"budget": 0}, "budget = 0; it must be a positive number"),
        ({"budget": float("nan")}, "budget = nan"),
        ({"budget": None}, "budget = None"),
        ({"budget": "1"}, "budget = '1'"),
        ({"tf32": 3}, "tf32 = 3"),
        ({"out_dtype": "int8"}, "out_dtype = 'int8'"),
        ({"scale_a": 2.0}, "^scale_a: .*float is no array"),
        ({"a": None}, "^a: .*NoneType is no array"),
        ({"out": "there"}, "^out: .*str is no array"),
    ],
)
def test_options_that_are_none_are_named(gpu: HostGpu, options: dict[str, Any], words: str) -> None:
    a, b, _, _ = on_host()
    with pytest.raises(ArrayError, match=words):
        tma.matmul.autotune(**{"a": a, "b": b, **options})
    assert not gpu.launched


def test_what_cannot_be_measured_is_refused(gpu: HostGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b, _, _ = on_host()
    with pytest.raises(ArrayError, match=r"shape \(0, 72\), and there is nothing to measure"):
        tma.matmul.autotune(replace(a, shape=(0, 256)), b)
    with pytest.raises(ArrayError, match="in host memory"):
        tma.matmul.autotune(*(replace(view, device=None) for view in (a, b)))
    with pytest.raises(ArrayError, match="both K"):
        tma.matmul.autotune(replace(a, shape=(24, 128)), b)
    monkeypatch.setattr(matmul_tuning, "is_capturing", lambda handle: True)
    with pytest.raises(LaunchError, match=r"being captured.*tune before"):
        tma.matmul.autotune(a, b)
    assert not gpu.launched
