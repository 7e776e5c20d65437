"""Every example of every command's help, run as it stands there, in a folder with the files that it names."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import numpy as np
import pytest
from invoking import Invoke

import cupytma as tma
from cupytma.check import RULES
from cupytma.cli.application import cli

MAP = tma.Tiled(
    data_type="FLOAT16", global_address=0x7F0000000000, global_dim=(1024, 512), box_dim=(64, 32), swizzle="128B"
).encode()  # fmt: skip
NEEDS_GPU = re.compile(r"cupytma (bench --only|record )")
NEEDS_COMPILER = re.compile(r"\.cu\b|demo|check\.sarif")
NEEDS_TOML = re.compile(r"\.toml\b")
# What a debugger prints of a map.
DEBUGGER = "\n".join(
    f"{0x7FFF0000 + 8 * i:#x} <map+{8 * i}>:\t{MAP.words[i]:#018x}\t{MAP.words[i + 1]:#018x}" for i in range(0, 16, 2)
)


def _commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield (*path, name), command
        if isinstance(command, click.Group):
            yield from _commands(command, (*path, name))


def _examples() -> dict[str, tuple[str, ...]]:
    """The lines below "Example", each with what continues it, by the command in whose help they stand."""
    found = {}
    for path, command in (((), cli), *_commands(cli)):
        text = (command.epilog or "").replace("\b\n", "").replace("\\\n", " ")
        lines = [line.partition("  ")[2].strip() for line in text.splitlines()]
        found[" ".join(("cupytma", *path))] = tuple(line for line in lines if line)
    return found


EXAMPLES = _examples()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with every file that an example names."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("CUPYTMA_CACHE_DIR", str(tmp_path / "cache"))
    for name in ("map.bin", "before.bin"):
        Path(name).write_bytes(bytes(MAP))
    Path("after.bin").write_bytes(bytes(MAP.replace(global_dim=(1000, 500))))
    Path("map.json").write_text(MAP.to_json())
    Path("map.toml").write_text('data_type = "FLOAT16"\nglobal_dim = [1024, 512]\nbox_dim = [64, 32]\n')
    Path("dump.txt").write_text(DEBUGGER)
    Path("core.1234").write_bytes(bytes(0x1C80) + Path("after.bin").read_bytes() + bytes(64))
    Path("parameters.bin").write_bytes(bytes(0x40) + bytes(MAP))
    np.save("x.npy", np.zeros((512, 1024), np.float16))
    for place in ("src", ".config/fish/completions"):
        Path(place).mkdir(parents=True)
    for name in ("kernel.cu", "src/kernel.cu"):
        Path(name).write_text(RULES["proxy-fence-missing"].good)
    return tmp_path


def _run(invoke: Invoke, line: str) -> str:
    """What a pipeline prints in the end, each command in this process; every one must end well."""
    words = shlex.shlex(line, posix=True, punctuation_chars=True)
    words.whitespace_split = True
    data, current, target = b"", [], None
    for word in (*words, "|"):
        if word in ("|", "&&"):
            data = _command(invoke, current, data)
            current = []
        elif word in (">", ">>"):
            target = ""
        elif target == "":
            target = word
        else:
            current += sorted(map(str, Path().glob(word))) if "*" in word else [word]
    if target is not None:
        Path(target).expanduser().write_bytes(data)
        assert data
    return data.decode(errors="replace")


def _command(invoke: Invoke, words: list[str], data: bytes) -> bytes:
    if words[0] == "cuda-gdb":
        return DEBUGGER.encode()
    if words[0] == "less":
        return data
    if words[0] == "echo":
        return " ".join(words[1:]).encode()
    assert words[0] == "cupytma"
    result = invoke(*words[1:], input=data)
    # Maps that differ, or a machine without a compiler, are no failure of an example.
    assert result.exit_code in ((0, 1) if words[1] in ("diff", "doctor") else (0,)), result.output
    assert result.stdout_bytes or not result.stderr
    return result.stdout_bytes


@pytest.mark.parametrize("command", EXAMPLES)
def test_every_example_works_as_it_stands(invoke: Invoke, folder: Path, command: str) -> None:
    assert EXAMPLES[command]
    for line in EXAMPLES[command]:
        assert "…" not in line
        if NEEDS_GPU.search(line):
            continue
        if NEEDS_COMPILER.search(line):
            pytest.importorskip("cuda.bindings.nvrtc", reason="needs cuda-python and NVRTC")
        if NEEDS_TOML.search(line):
            pytest.importorskip("tomllib", reason="TOML needs Python 3.11")
        if "kernel.ptx" in line:
            Path("kernel.ptx").write_text(tma.compile(RULES["proxy-fence-missing"].good, "sm_90a").ptx)
        assert _run(invoke, line)
