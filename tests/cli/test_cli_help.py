"""``cupytma help``: what ids mean, offline."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import click
import pytest
from click.shell_completion import ShellComplete
from invoking import Invoke

from cupytma.cli.application import cli
from cupytma.help import KINDS, names, topics


def test_without_an_id_everything_is_listed(invoke: Invoke) -> None:
    result = invoke("help")
    assert result.exit_code == 0
    for heading in KINDS.values():
        assert f"## {heading}\n" in result.stdout
    for name in names():
        assert f"`{name}`" in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80


def test_an_id_prints_its_text(invoke: Invoke) -> None:
    result = invoke("help", "box-inner-span")
    assert result.stdout.startswith("## box-inner-span: the inner row of the box fits the span of the swizzle")
    assert "use box_dim[0] ≤ 64 or split the box" in result.stdout
    assert result.stderr == ""


def test_several_ids_are_printed_once_each(invoke: Invoke) -> None:
    result = invoke("help", "box-range", "rank", "BOX-RANGE")
    assert [line.split(":")[0] for line in result.stdout.splitlines() if line.startswith("## ")] == [
        "## box-range", "## rank",
    ]  # fmt: skip


def test_an_id_of_several_kinds_prints_all(invoke: Invoke) -> None:
    result = invoke("help", "map-not-acquired")
    assert result.stdout.count("## map-not-acquired: ") == 2


def test_links_to_pages_are_written_out(invoke: Invoke) -> None:
    output = invoke("help", "kernel-hangs").stdout
    assert "Programs (docs/programs.md)" in output
    assert "](" not in output


def test_text_fits_80_columns_but_for_code_and_headings(invoke: Invoke) -> None:
    for topic in topics():
        in_code = False
        for line in invoke("help", topic.id).stdout.splitlines():
            in_code ^= line.startswith("```")
            assert in_code or line.startswith("#") or len(line) <= 80 or " " not in line.strip(" `"), (topic.id, line)


def test_a_command_prints_its_help(invoke: Invoke) -> None:
    assert invoke("help", "decode").stdout.startswith("Usage: cupytma decode [OPTIONS]")


def test_json_has_every_part(invoke: Invoke) -> None:
    (topic,) = json.loads(invoke("help", "--json", "box-range").stdout)
    assert (topic["id"], topic["kind"]) == ("box-range", "rule")
    assert {topic["id"] for topic in json.loads(invoke("help", "--json").stdout)} == set(names())


@pytest.mark.parametrize("name", ["box-rang", "\x1b[31m", "", "x" * 500])
def test_an_unknown_id_ends_with_two_and_offers_what_is_near(name: str, invoke: Invoke) -> None:
    result = invoke("help", name)
    assert result.exit_code == 2
    assert result.stderr.startswith("Error: there is no help on ")
    assert "\x1b" not in result.stderr
    assert ("box-range" in result.stderr) == (name == "box-rang")


def test_ids_are_completed() -> None:
    completer = ShellComplete(cli, {}, "cupytma", "_CUPYTMA_COMPLETE")
    offered = {item.value for item in completer.get_completions(["help"], "kernel-")}
    assert offered == {"kernel-hangs"}
    assert {"box-range", "box-bytes"} <= {item.value for item in completer.get_completions(["help"], "box-")}


def test_errors_that_are_about_no_rule_refer_to_a_how_to(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    from cupytma.errors import NoDeviceError

    def fail(*_: object, **__: object) -> None:
        raise NoDeviceError("there is no GPU")

    monkeypatch.setattr(click.Command, "invoke", fail)
    result = invoke("doctor")
    assert result.exit_code == 2
    assert result.stderr == "Error: there is no GPU\nMore: cupytma help no-gpu\n"


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
def test_a_terminal_gets_colours_and_no_marks() -> None:
    import pty

    ours, theirs = pty.openpty()
    environment = {**os.environ, "COLUMNS": "80", "TERM": "xterm-256color", "NO_COLOR": ""}
    command = [sys.executable, "-m", "cupytma", "help", "illegal-instruction"]
    process = subprocess.Popen(command, stdout=theirs, stdin=theirs, env=environment)
    os.close(theirs)
    output = b""
    while True:
        try:
            part = os.read(ours, 1 << 16)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        output += part
    os.close(ours)
    assert process.wait() == 0
    text = output.decode()
    assert "\x1b[1" in text
    assert "\x1b[40m" not in text  # no ground of its own
    assert "```" not in text
    assert "x // 9 * 130" in text.replace("\x1b[0m", "").replace("\x1b[94m", "")
