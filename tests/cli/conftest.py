"""Runs the command in this process, in a terminal 80 columns wide that is none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner, Result

from cupytma.cli.application import cli

Invoke = Callable[..., Result]


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
