"""Runs the command in this process, in a terminal 80 columns wide that is none."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from invoking import Invoke

from cupytma.cli.application import cli


@pytest.fixture(autouse=True, scope="session")
def _importable_everywhere() -> Iterator[None]:
    """Processes that the tests start elsewhere find the package even where it is not installed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[2]), prepend=os.pathsep)
        yield


def _runner() -> CliRunner:
    try:
        return CliRunner(mix_stderr=False, env={"COLUMNS": "80"})  # click 8.1
    except TypeError:
        return CliRunner(env={"COLUMNS": "80"})


@pytest.fixture(scope="session")
def invoke() -> Invoke:
    """Call the command with arguments; anything but a clean end is an error of the test."""

    def run(*arguments: str, input: Any = None) -> Result:
        result = _runner().invoke(cli, arguments, input=input, prog_name="cupytma")
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return run
