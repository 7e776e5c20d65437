"""``cupytma record``, as far as it goes without a GPU; the rest is in tests/record."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from cupytma.record import read
from cupytma.runtime import has_tma_device

GOLDEN = Path(__file__).parents[1] / "golden" / "hardware_cases.npz"


@pytest.mark.skipif(has_tma_device(), reason="there is a GPU")
def test_without_a_gpu_the_error_says_so_and_nothing_is_written(invoke, tmp_path: Path) -> None:
    result = invoke("record", "--output", str(tmp_path / "file.npz"))
    assert result.exit_code == 2
    assert "this needs a GPU" in result.stderr
    assert not list(tmp_path.iterdir())


def test_the_recording_of_an_h100_agrees_with_the_simulator(invoke) -> None:
    result = invoke("record", "--check", str(GOLDEN))
    assert result.exit_code == 0
    lines = [line.split() for line in result.stdout.splitlines()]
    assert ["tiled", "loads", "900", "1", "0"] in lines
    assert ["reductions", "250", "16", "0"] in lines
    assert "hardware and simulator agree" in result.stdout


def test_a_recording_that_disagrees_is_shown_and_fails(invoke, tmp_path: Path) -> None:
    with np.load(GOLDEN) as file:
        columns = dict(file)
    first = read(GOLDEN).cases[0]
    columns["images"] = columns["images"].copy()
    columns["images"][columns["cases"]["img_at"][0]] ^= 1
    np.savez(tmp_path / "changed.npz", **columns)
    result = invoke("record", "--check", str(tmp_path / "changed.npz"))
    assert result.exit_code == 1
    assert "1 of 1950 copies differ" in result.stdout
    assert "case 0: 1 bytes of shared memory differ; the first is byte 0 of the tile" in result.stdout
    assert str(first) in " ".join(result.stdout.split())
    document = json.loads(invoke("record", "--check", str(tmp_path / "changed.npz"), "--json").stdout)
    assert document["kinds"]["tiled load"] == {"copies": 900, "died": 1, "differ": 1}
    assert [(entry["case"], entry["copy"]) for entry in document["differences"]] == [(0, str(first))]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--check", "missing.npz"), "does not exist"),
        (("--check", __file__), "is no recording of copies"),
        (("--output", "/nowhere/file.npz"), "there is no such folder"),
        (("--cases", "-1"), "0<=x"),
        (("--cases", "many"), "not a valid integer"),
    ],
)
def test_bad_arguments_are_errors_with_exit_code_2(invoke, arguments: tuple[str, ...], message: str) -> None:
    result = invoke("record", *arguments)
    assert result.exit_code == 2
    assert message in result.stderr.replace("\n", " ")
