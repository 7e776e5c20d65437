"""The command as a whole: help, version, completion, how it looks on a terminal."""

from __future__ import annotations

import os
import subprocess
import sys

import click
import pytest
from invoking import in_terminal

import cupytma
from cupytma.cli.application import COMMANDS, cli


def _commands(group: click.Group, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    found = []
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        found.append((*path, name))
        if isinstance(command, click.Group):
            found += _commands(command, (*path, name))
    return found


ALL = _commands(cli)


def test_version(invoke):
    assert invoke("--version").stdout == f"cupytma {cupytma.__version__}\n"


@pytest.mark.parametrize(
    ("given", "said"),
    [("encod", "Did you mean encode"), ("rule", "Did you mean rules"), ("zzz", "No such command 'zzz'.")],
)
def test_a_command_that_is_none_is_told_what_is_near(invoke, given, said):
    result = invoke(given, "--help")
    assert result.exit_code == 2
    assert said in result.stderr


def test_help_lists_every_command(invoke):
    text = invoke("--help").stdout
    assert text == invoke("-h").stdout
    for name, (_, summary) in COMMANDS.items():
        assert f"  {name}" in text
        assert summary in text


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_every_command_has_help_that_fits(invoke, path):
    result = invoke(*path, "--help")
    assert result.exit_code == 0
    assert max(map(len, result.stdout.splitlines())) <= 80


@pytest.mark.parametrize("path", [path for path in ALL if path != ("encode",)], ids=" ".join)
def test_every_command_shows_an_example(invoke, path):
    assert f"cupytma {' '.join(path)}" in invoke(*path, "--help").stdout.partition("Example")[2]


def test_module_runs_as_the_command(tmp_path):
    result = subprocess.run(
        [sys.executable, "-m", "cupytma", "--help"], capture_output=True, text=True, check=True
    )
    assert result.stdout.startswith("Usage: cupytma [OPTIONS]")


def _complete(words: str, index: int) -> str:
    environment = {
        **os.environ, "_CUPYTMA_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(index),
    }
    return subprocess.run(
        [sys.executable, "-m", "cupytma"], env=environment, capture_output=True, text=True
    ).stdout


def test_completion():
    assert "plain,encode" in _complete("cupytma en", 1)
    assert "plain,BFLOAT16" in _complete("cupytma encode tiled --data-type BF", 4)
    assert "plain,sm_90a" in _complete("cupytma encode tiled --target sm_9", 4)
    for words in ("simulate ma", "tile ma", "decode ma", "simulate map.bin --input ma", "swizzle --picture ma"):
        assert "file,ma" in _complete(f"cupytma {words}", len(words.split()))


@pytest.mark.skipif(os.name != "posix", reason="needs a pseudo-terminal")
def test_colours_on_a_terminal_only():
    seen = in_terminal(["decode", "0" * 256])
    assert b"\x1b[1m" in seen


@pytest.mark.skipif(os.name != "posix", reason="needs a pseudo-terminal")
@pytest.mark.parametrize("arguments", [("decode", "no-file"), ("explain", "fence.proxy.async;"), ("record", "--seed")])
@pytest.mark.parametrize(
    ("wish", "wanted"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False), ({"NO_COLOR": ""}, True)]
)
def test_colours_only_where_they_are_wanted(arguments, wish, wanted):
    seen = in_terminal(arguments, **wish)
    assert seen
    assert (b"\x1b[" in seen) == (wanted and arguments[0] != "record")  # click's own errors have none


@pytest.mark.skipif(os.name != "posix", reason="needs a pseudo-terminal")
def test_raw_bytes_are_kept_from_a_terminal():
    import pty

    leader, follower = pty.openpty()
    process = subprocess.run(
        [sys.executable, "-m", "cupytma", "encode", "tiled", "--data-type", "UINT8", "--global-dim", "16",
         "--box-dim", "16", "-o", "raw"],
        stdout=follower, stderr=subprocess.PIPE, text=True,
    )
    os.close(follower)
    os.close(leader)
    assert process.returncode == 2
    assert "garble the terminal" in process.stderr
