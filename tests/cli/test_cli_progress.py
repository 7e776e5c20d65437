"""The bar of long work: on a terminal alone, after a while, and gone in the end."""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest

from cupytma.cli import dumps
from cupytma.cli.progress import progress_bar


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def on_terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[[], _Terminal]:
    """To be called in the test itself: before it pytest puts its own stream in place."""

    def replace(columns: int = 80) -> _Terminal:
        found = _Terminal()
        monkeypatch.setattr("sys.stderr", found)
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setenv("COLUMNS", str(columns))
        return found

    return replace


def test_a_terminal_shows_what_is_done_and_how_much(on_terminal) -> None:
    terminal = on_terminal()
    with progress_bar(3, "a plain copy") as report:
        report(1, "im2col")
    assert "a plain copy" in terminal.getvalue()
    assert "im2col" in terminal.getvalue()
    assert "1/3" in terminal.getvalue()


def test_short_work_shows_nothing(on_terminal) -> None:
    terminal = on_terminal()
    with progress_bar(2, "copies", patience=60) as report:
        report(1, "copies")
        report(2, "copies")
    assert terminal.getvalue() == ""


def test_a_label_with_brackets_is_no_markup(on_terminal) -> None:
    terminal = on_terminal()
    with progress_bar(2, "[red]kernel[/red].cu"):
        pass
    assert "[red]kernel[/red].cu" in terminal.getvalue()


def test_elsewhere_there_is_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for stream in (io.StringIO(), None):
        monkeypatch.setattr("sys.stderr", stream)
        with progress_bar(2, "copies") as report:
            report(1, "copies")
        assert stream is None or stream.getvalue() == ""


@pytest.mark.parametrize("columns", [20, 40, 80])
def test_it_stays_on_one_line_of_any_terminal_and_is_gone_in_the_end(on_terminal, columns: int) -> None:
    terminal = on_terminal(columns)
    with progress_bar(100_000, "x" * 200) as report:
        report(99_999, "y" * 200)
    seen = terminal.getvalue()
    assert seen.count("\n") == 1
    assert seen.endswith("\x1b[1A\x1b[2K")  # up, and the line erased
    for line in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "\r", seen).replace("\r\r", "\r").split("\n"):
        assert max(map(len, line.split("\r"))) <= columns


@pytest.mark.skipif(os.name != "posix", reason="needs a pseudo-terminal")
def test_results_are_not_mixed_with_the_bar() -> None:
    """Standard output in a pipe, standard error on a terminal: the pipe gets the same as without one."""
    import pty

    import cupytma as tma

    encoded = tma.Tiled(data_type="UINT8", global_address=0, global_dim=(16, 100), box_dim=(16, 1)).encode()
    at_once = "from cupytma.cli import main, simulation; simulation.PATIENCE = 0; main()"
    command = [sys.executable, "-c", at_once, "simulate", bytes(encoded).hex(), "--every-box", "--limit", "2"]
    leader, follower = pty.openpty()
    seen = bytearray()

    def read() -> None:  # all the time: a terminal that nobody reads stops who writes to it
        with contextlib.suppress(OSError):  # how Linux reports that the other side has closed
            while data := os.read(leader, 4096):
                seen.extend(data)

    reader = threading.Thread(target=read)
    reader.start()
    shown = subprocess.run(command, stdout=subprocess.PIPE, stderr=follower, env={**os.environ, "TERM": "xterm"})
    os.close(follower)
    reader.join()
    os.close(leader)
    plain = subprocess.run(command, capture_output=True)
    assert b"/100" in seen
    assert b"100 copies" in shown.stdout
    assert shown.stdout == plain.stdout
    assert plain.stderr == b""


def test_a_search_shows_how_many_mebibytes_are_done(on_terminal, monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(dumps, "PATIENCE", 0)
    path = tmp_path / "core"
    path.write_bytes(bytes(9 << 20))
    terminal = on_terminal()
    assert dumps.search(str(path)) == []
    assert "MiB searched" in terminal.getvalue()
    assert "/9" in terminal.getvalue()


def test_a_search_of_a_pipe_shows_what_is_done_alone(on_terminal, monkeypatch) -> None:
    monkeypatch.setattr(dumps, "PATIENCE", 0)
    reading, writing = os.pipe()
    os.write(writing, bytes(4096))
    os.close(writing)
    terminal = on_terminal()
    with open(reading, "rb") as pipe:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(pipe))
        assert dumps.search("-") == []
    assert "/?" in terminal.getvalue()


def test_compiling_for_several_targets_says_for_which(on_terminal, monkeypatch, tmp_path) -> None:
    pytest.importorskip("cuda.bindings.nvrtc", reason="needs cuda-python and NVRTC")
    command = importlib.import_module("cupytma.cli.compile")
    monkeypatch.setattr(command, "PATIENCE", 0)
    path = tmp_path / "kernel.cu"
    path.write_text('extern "C" __global__ void empty() {}')
    terminal = on_terminal()
    with pytest.raises(SystemExit):
        command.compile.main([str(path), "--target", "sm_90a,sm_100a"], standalone_mode=False)
    assert "compiling for sm_100a" in terminal.getvalue()
    assert "1/2" in terminal.getvalue()
