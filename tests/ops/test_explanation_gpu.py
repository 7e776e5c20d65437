"""Explanations of arrays on a GPU, and benchmarks that run there. Needs a GPU."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

import cupytma as tma
from cupytma.ops import explain
from cupytma.runtime.compiler import current_target
from cupytma.runtime.occupancy import multiprocessors

from cupytma.cli.application import cli  # isort: skip

pytestmark = pytest.mark.gpu


def test_the_plan_is_that_of_the_arrays_gpu_and_nothing_is_written() -> None:
    import cupy

    x, out = cupy.ones((5000, 256), cupy.float32), cupy.zeros((9000, 256), cupy.float32)
    index = cupy.zeros(9000, cupy.int64)
    found = explain(tma.gather_rows, x, index, out)
    assert (found.machine.target, found.machine.multiprocessors) == (current_target(), multiprocessors())
    assert found.bytes_by_unit == out.nbytes
    cupy.cuda.Device().synchronize()
    assert not out.any()


def test_arrays_in_host_and_device_memory_are_not_explained_together() -> None:
    import cupy
    import numpy

    with pytest.raises(tma.errors.ArrayError, match="in host memory"):
        explain(tma.copy, cupy.ones(4), numpy.ones(4))


@pytest.mark.parametrize("names", ["large", "small,launch"])
def test_every_case_is_measured_or_says_why_not(names: str) -> None:
    result = CliRunner().invoke(cli, ["bench", "--only", names, "--scale", "16", "--repeats", "1", "--json"])
    assert result.exit_code == 0, result.output
    for case in json.loads(result.stdout)["cases"]:
        assert "torch" in case["skipped"] if "skipped" in case else case["seconds"] > 0
