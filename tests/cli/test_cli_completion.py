"""``cupytma completion``: its scripts, and what bash makes of them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from invoking import Invoke
from test_cli_hostile import assert_refused

# What readline sets before it calls the function, and what the function answers.
ASK = """
source completion.sh
line=$1; COMP_LINE=$line; COMP_POINT=${#line}; COMP_WORDS=($line); COMP_CWORD=0
_cupytma_completion ./cupytma
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shell")
    command = folder / "cupytma"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m cupytma "$@"\n')
    command.chmod(0o755)
    script = subprocess.run([command, "completion", "bash"], capture_output=True, text=True, check=True).stdout
    (folder / "completion.sh").write_text(script)
    return folder


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize(
    ("line", "answers"),
    [  # bash replaces what is behind the last colon or equals sign
        ("cupytma expl", ["explain"]),
        ("cupytma emit tensor_l", ["tensor_load"]),
        ("cupytma emit tensor_load --mode tile:", [":gather4"]),
        ("cupytma emit tensor_load --destination shared::c", ["cluster", "cta"]),
        ("cupytma emit tensor_load --destination=shared::cl", ["cluster"]),
        ("cupytma emit tensor_load --destination=sh", ["shared::cluster", "shared::cta"]),
        ("cupytma emit fence.proxy.tensormap::generic.r", ["generic.release"]),
        ("cupytma emit cp.async.bulk.pre", ["cp.async.bulk.prefetch.tensor", "cp.async.bulk.prefetch.L2.global"]),
        ("cupytma emit tensor_load --ra", ["--rank"]),
        ("cupytma emit tensor_load --as f", ["function"]),
        ("cupytma emit recipe barrier", ["barrier-to-load"]),
        ("cupytma compile x.cu --target sm_90a,sm_103", ["sm_90a,sm_103", "sm_90a,sm_103a"]),
        ("cupytma header --only tensor_load_2d,mbarrier_wait", ["tensor_load_2d,mbarrier_wait_parity"]),
        ("cupytma catalogue --family tensor_p", ["tensor_prefetch"]),
        ("cupytma completion f", ["fish"]),
        ("cupytma simulate map.bin --mode=tile::s", ["scatter4"]),
        ("cupytma simulate map.bin --op x", ["xor"]),
        ("cupytma catalogue --toolkit 13.0", ["13.0"]),
        ("cupytma nothing", [""]),
        ("cupytma emit 'open", [""]),
    ],
)  # fmt: skip
def test_bash_completes(shell: Path, line: str, answers: list[str]) -> None:
    result = subprocess.run(["bash", "-c", ASK, "ask", line], cwd=shell, capture_output=True, text=True)
    found = result.stdout.splitlines()
    assert found == answers
    assert result.stderr == ""


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_takes_the_script(shell: Path) -> None:
    ask = "source completion.sh; complete -p cupytma"
    result = subprocess.run(["bash", "-c", ask], cwd=shell, capture_output=True, text=True, check=True)
    assert "-F _cupytma_completion cupytma" in result.stdout


@pytest.mark.parametrize("name", ["zsh", "fish"])
def test_the_scripts_of_other_shells_call_the_command(invoke: Invoke, name: str) -> None:
    assert f"_CUPYTMA_COMPLETE={name}_complete" in invoke("completion", name).stdout


def test_the_shell_in_use_is_the_default(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHELL", "/usr/local/bin/fish")
    assert invoke("completion").stdout == invoke("completion", "fish").stdout
    monkeypatch.setenv("SHELL", "/bin/tcsh")
    assert_refused(invoke("completion"), "say which: bash, zsh, fish")
    assert_refused(invoke("completion", "tcsh"), "'tcsh'")


def test_other_words_of_the_environment_still_work() -> None:
    environment = {
        **os.environ, "_CUPYTMA_COMPLETE": "zsh_complete", "COMP_WORDS": "cupytma emit tensor_lo", "COMP_CWORD": "2",
    }  # fmt: skip
    command = [sys.executable, "-m", "cupytma"]
    assert "tensor_load" in subprocess.run(command, env=environment, capture_output=True, text=True).stdout
