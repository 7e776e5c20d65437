"""Faults on a GPU: the error that the table says comes, and its cause is found. Each case dies in its own process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from dying_launches import CASES

import cupytma as tma

pytestmark = pytest.mark.gpu
SCRIPT = Path(__file__).with_name("dying_launches.py")


@pytest.mark.parametrize("name", CASES)
def test_a_broken_rule_gives_the_error_of_the_table_and_is_found(name: str) -> None:
    code, rule, is_certain = CASES[name]
    paths = [str(Path(tma.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    done = subprocess.run(
        [sys.executable, str(SCRIPT), name], capture_output=True, text=True, timeout=300, env=environment
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["remembered"] >= 2
    assert found.get("code") == code, found
    assert found["asked"] == code
    named = [(suspect, certain) for _, suspect, certain in found["suspects"]]
    assert named == ([(rule, is_certain)] if rule else []), found["text"]
    assert "new process" in found["text"]
    if rule is None:
        assert "copies start at multiples of 4 FLOAT32" in found["text"]
    for later in ("encode", "launch"):
        assert "a kernel launched earlier in this process failed" in found[later], found[later]
        assert "last launches, newest first: " in found[later]
    assert "Nothing is wrong with these parameters" in found["encode"]
