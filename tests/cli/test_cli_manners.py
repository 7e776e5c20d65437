"""What every command does alike: groups called alone, warnings, streams that are closed or full, other encodings."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from invoking import Invoke
from rich.cells import cell_len

import cupytma as tma
from cupytma.cli.application import cli

MAP = tma.Tiled(data_type="UINT8", global_address=0, global_dim=(64, 64), box_dim=(64, 8)).encode().to_hex()
MULTICAST = "cp.async.bulk.commit_group"
TILED = "encode tiled --from-array shape=64,64,dtype=uint8,box=8,64"
# Long ones and short ones, text and bytes.
OUTPUTS = (
    "rules", f"{TILED} -o raw", f"simulate {MAP} -o elements --limit 0", "catalogue multicast",
    "swizzle 128B --picture -",
)  # fmt: skip


def shell(line: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """Run a line of bash in which ``cupytma`` is the command."""
    function = f'cupytma() {{ "{sys.executable}" -m cupytma "$@"; }}; set -o pipefail'
    return subprocess.run(
        ["bash", "-c", f"{function}\n{line}"], capture_output=True, env={**os.environ, "COLUMNS": "80", **environment}
    )


needs_shell = pytest.mark.skipif(os.name != "posix", reason="needs a shell")


@pytest.mark.parametrize("group", [(), ("cache",), ("emit",)], ids=["cupytma", "cache", "emit"])
def test_a_group_alone_shows_its_help_and_no_error(invoke: Invoke, group: tuple[str, ...]) -> None:
    result = invoke(*group)
    assert result.output.startswith(f"Usage: {' '.join(('cupytma', *group))}")
    assert result.output.count("Usage: ") == 1
    assert "Error" not in result.output


def test_every_command_that_prints_data_has_json() -> None:
    texts = {"completion", "header", "demo"}  # scripts, source, a show
    context = click.Context(cli)
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            inner = click.Context(command)
            members = [command.get_command(inner, member) for member in command.list_commands(inner)]
        else:
            members = [command]
        for member in members:
            options = {option for parameter in member.params for option in parameter.opts}
            assert ("--json" in options) != (name in texts), name


def test_warnings_fit_the_terminal(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUPYTMA_CACHE_SIZE", "much")
    with pytest.warns(match="CUPYTMA_CACHE_SIZE"):
        assert invoke("cache", "info").exit_code == 0
    shown = shell("cupytma cache info", CUPYTMA_CACHE_SIZE="abc").stderr.decode()
    assert shown.startswith("Warning: CUPYTMA_CACHE_SIZE='abc' is no size")
    assert max(map(len, shown.splitlines())) <= 80


@needs_shell
def test_a_reader_that_leaves_early_is_no_error() -> None:
    for arguments in OUTPUTS:
        result = shell(f"cupytma {arguments} | head -c 1 > /dev/null")
        assert (arguments, result.stderr) in ((arguments, b""), (arguments, b"102 forms\n"))


@needs_shell
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_one_line_and_exit_code_2() -> None:
    for arguments in OUTPUTS:
        result = shell(f"cupytma {arguments} > /dev/full")
        assert (arguments, result.returncode) == (arguments, 2)
        assert result.stderr.splitlines()[-1] == b"cupytma: cannot write the output: No space left on device"


@needs_shell
def test_the_locale_c_takes_every_output_and_argument() -> None:
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    for arguments in (*OUTPUTS, f"tile {MAP} --json", "demo"):
        result = shell(f"cupytma {arguments}", **plain)
        assert (arguments, result.returncode) == (arguments, 0)
    for arguments in ("decode é", "emit é", "rules é"):
        result = shell(f"cupytma {arguments}", **plain)
        assert (arguments, result.returncode) == (arguments, 2)
        assert result.stderr.count(b"Error: ") == 1
        assert b"Traceback" not in result.stderr


@needs_shell
def test_json_loses_no_sign_where_the_output_takes_ascii_alone() -> None:
    for arguments in ("rules swizzle-address --json", "check --rules --json", f"explain {MULTICAST} --json"):
        plain = shell(f"cupytma {arguments}").stdout
        ascii_alone = shell(f"cupytma {arguments}", PYTHONIOENCODING="ascii").stdout
        assert ascii_alone.isascii()
        assert json.loads(ascii_alone) == json.loads(plain)


@pytest.mark.parametrize("columns", [44, 60, 80, 120])
def test_tables_and_texts_fit_any_terminal(columns: int) -> None:
    for words in (
        "rules", "check --rules", "doctor", "cache info", "layout", "slots", "emit recipe", "bench --list", "catalogue",
        f"tile {MAP}", f"tile {MAP} --at 0,60", f"simulate {MAP}", f"simulate {MAP} --every-box", "swizzle 128B",
        f"simulate {MAP} -o elements --limit 9", f"diff {MAP} {'0' * 256}", "explain cp.async.bulk.commit_group;",
        "emit tensor_load --rank 9", "encod", f"simulate {MAP} --at 1,2,3", "encode tiled", "decode zz",
    ):  # fmt: skip
        result = CliRunner(env={"COLUMNS": str(columns)}).invoke(cli, words.split(), prog_name="cupytma")
        assert (words, max(map(cell_len, result.output.splitlines()))) <= (words, columns)


@needs_shell
@pytest.mark.parametrize(
    ("line", "words"),
    [
        (f"cupytma {TILED} -o hex | cupytma decode - -o c | cupytma decode --json | cupytma decode -", "box_dim 64, 8"),
        (f"cupytma {TILED} --json | cupytma simulate -", "512 B, what the mbarrier must expect"),
        (f"cupytma {TILED} -o raw | cupytma slots -", "tensor_base_ptr"),
        (f"cupytma {TILED} -o c --address p.x | cupytma check -", "a legal tensor map"),
        (f"cupytma simulate {MAP} -o npy | cupytma simulate {MAP} --direction store --tile -", "the swizzle undone"),
        ("cupytma catalogue multicast | cupytma explain -", "102 instructions of the family"),
        ("cupytma catalogue mapa | cupytma emit - --as asm | cupytma explain -", "instructions of the family, 4 kinds"),
        ("cupytma emit recipe shared-written-to-store | cupytma explain -", "4 instructions of the family"),
    ],
    ids=["decode", "simulate", "slots", "check", "store", "explain", "emit", "recipe"],
)
def test_commands_chain(line: str, words: str) -> None:
    result = shell(line)
    assert result.returncode == 0, result.stderr
    assert " ".join(words.split()) in " ".join(result.stdout.decode().split())


def test_what_cannot_be_written_is_an_error(invoke: Invoke, tmp_path: Path) -> None:
    for arguments in (
        ("header", "-o"), ("swizzle", "64B", "--picture"), ("simulate", MAP, "--save"), ("tile", MAP, "--picture"),
    ):  # fmt: skip
        for path in (tmp_path / "missing" / "file", Path("/proc/nothing")):
            result = invoke(*arguments, str(path))
            assert result.exit_code == 2
            assert "cannot write" in result.stderr
            assert result.stdout == ""
