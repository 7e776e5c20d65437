"""``cupytma bench``: as far as it goes without a GPU, and what it makes of measurements."""

from __future__ import annotations

import json
from contextlib import contextmanager

import pytest

from cupytma.ops import benchmark
from cupytma.ops.benchmark import Measurement, Skipped
from cupytma.ops.benchmark_cases import CASES
from cupytma.runtime import compiler, has_tma_device

from cupytma.cli import bench as command  # isort: skip

NAMED = {case.name: case for case in CASES}


@pytest.mark.skipif(has_tma_device(), reason="there is a GPU")
@pytest.mark.parametrize("arguments", [(), ("--json",), ("--only", "copy", "--repeats", "3")])
def test_without_a_gpu_one_block_says_what_is_missing(invoke, arguments: tuple[str, ...]) -> None:
    result = invoke("bench", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("Error: this needs a GPU")
    assert result.stderr.count("Error:") == 1


def test_cases_are_listed_without_a_gpu(invoke) -> None:
    text = invoke("bench", "--list").stdout
    assert all(name in text for name in NAMED)
    listed = json.loads(invoke("bench", "--list", "--json", "--only", "small").stdout)
    assert {one["group"] for one in listed} == {"small"}
    assert {one["name"] for one in listed} >= {"copy-64KiB", "transpose-1MiB-queued"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--only", "nothing"), "there is no case 'nothing'"),
        (("--only", "copy,,nothing", "--list"), "there is no case 'nothing'"),
        (("--repeats", "0"), "1<=x"),
        (("--repeats", "many"), "not a valid integer"),
        (("--scale", "3"), "is not one of"),
    ],
)
def test_bad_arguments_are_errors_with_exit_code_2(invoke, arguments: tuple[str, ...], message: str) -> None:
    result = invoke("bench", *arguments)
    assert result.exit_code == 2
    assert message in result.stderr.replace("\n", " ")


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[tuple]:
    """A GPU on which everything has been measured; the list has what was asked for."""
    asked: list[tuple] = []

    def run(cases, scale, repeats, started):
        asked.append(([case.name for case in cases], scale, repeats))
        for case in cases:
            started(case)
            if case.name == "permute":
                yield Skipped(case, "it needs 9.0 GiB of device memory, and 1.0 GiB are free")
            else:
                moved = 0 if case.group == "launch" else 2 * 10**9
                yield Measurement(case, f"{case.name}, a title", moved, 1e-3, {"CuPy": 1.5e-3}, 2.5e12, scale)

    monkeypatch.setattr(benchmark, "run", run)
    monkeypatch.setattr(benchmark, "free_memory", lambda: 7 << 30)
    monkeypatch.setattr(compiler, "current_target", lambda: "sm_90a")
    monkeypatch.setattr(command, "_device_name", lambda: "NVIDIA of the test")
    return asked


def test_a_table_has_bytes_time_rate_and_part_of_a_copy(invoke, measured) -> None:
    result = invoke("bench", "--only", "im2col,permute", "--only", "launch-arrays", "--repeats", "7")
    assert measured == [(["permute", "im2col", "launch-arrays"], 1, 7)]
    lines = [line.split() for line in result.stdout.splitlines()]
    assert ["im2col", "2,000,000,000", "1,000.00", "2,000.0", "0.800", "1.50", "×"] in lines
    assert ["launch-arrays", "1,000.00", "1.50", "×"] in lines
    assert "permute was left out: it needs 9.0 GiB of device memory, and 1.0 GiB are free" in result.stdout
    assert "A plain copy reaches 2,500 GB/s" in result.stdout
    assert "torch is not installed here" in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80


def test_sizes_shrink_to_fit_the_memory_unless_one_is_given(invoke, measured) -> None:
    assert "extents divided by 2" in invoke("bench", "--only", "gather_rows").stdout
    invoke("bench", "--only", "gather_rows", "--scale", "8")
    assert [scale for _, scale, _ in measured] == [2, 8]


def test_json_has_every_number(invoke, measured) -> None:
    found = json.loads(invoke("bench", "--only", "permute,im2col", "--json").stdout)
    skipped, one = found.pop("cases")
    assert found == {"device": "NVIDIA of the test", "target": "sm_90a", "scale": 1, "repeats": 15}
    assert skipped["skipped"].startswith("it needs 9.0 GiB")
    assert one["bytes_per_second"] == pytest.approx(2e12)
    assert (one["name"], one["other_seconds"], one["of_copy"]) == ("im2col", {"CuPy": 1.5e-3}, pytest.approx(0.8))


def test_progress_is_told_of_each_case(invoke, measured, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple] = []

    @contextmanager
    def bar(total, label):
        told.append((total, label))
        yield lambda done, now: told.append((done, now))

    monkeypatch.setattr(command, "progress_bar", bar)
    invoke("bench", "--only", "im2col,permute")
    assert told == [(3, "a plain copy"), (1, "permute"), (2, "im2col")]
