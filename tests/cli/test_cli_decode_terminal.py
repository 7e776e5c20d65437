"""The commands that speak of descriptors on a terminal: nothing wider than it is, and completion."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from click.testing import CliRunner, Result
from invoking import in_terminal

import cupytma as tma
from cupytma.cli.application import cli

# The widest of everything: every digit of the address, the longest names.
WIDEST = tma.Im2col(
    data_type="TFLOAT32_FTZ", global_address=0x1FFFFFFFFFFFFF0, global_dim=(2**31 - 8,) * 5,
    global_strides=(2**40 - 16,) * 4, pixel_box_lower_corner=(-16,) * 3, pixel_box_upper_corner=(-16,) * 3,
    channels_per_pixel=32, pixels_per_column=1024, oob_fill="NAN_REQUEST_ZERO_FMA", swizzle="128B",
    element_strides=(8,) * 5,
).encode()
HEX = bytes(WIDEST).hex()
COMMANDS = {
    "decode": ["decode", HEX],
    "decode --target": ["decode", HEX, "--target", "sm_100a"],
    "encode": ["encode", "tiled", "--from-array", "shape=512,1000,dtype=float16,box=32,64", "--address", "params.x"],
    "diff": ["diff", HEX, "00" * 128],
    "rules": ["rules"],
    "one rule": ["rules", "small-tensor-defect"],
    "layout": ["layout"],
    "layout --kind": ["layout", "--kind", "im2col"],
    "slots": ["slots"],
    "slots of a map": ["slots", HEX],
}
ERRORS = {
    "encode": ["encode", "tiled", "--from-array", "shape=512,1000,dtype=float16,box=300,640", "--swizzle", "128B"],
    "decode": ["decode", "00" * 127],
    "diff": ["diff", "a" * 300, HEX],
    "rules": ["rules", "colour"],
    "layout": ["layout", "colour"],
    "slots": ["slots", "nowhere.bin"],
}


def run(arguments: list[str], columns: str) -> Result:
    """The command in a terminal of so many columns."""
    return CliRunner(env={"COLUMNS": columns}).invoke(cli, arguments, prog_name="cupytma")


def completed(words: str) -> list[str]:
    """What bash is told for the last of some words."""
    environment = {"COMP_WORDS": f"cupytma {words}", "COMP_CWORD": str(len(words.split()))}
    return subprocess.run(
        [sys.executable, "-m", "cupytma"], capture_output=True, text=True, check=False,
        env={**os.environ, "_CUPYTMA_COMPLETE": "bash_complete", **environment},
    ).stdout.split()


@pytest.mark.parametrize("columns", [40, 80])
@pytest.mark.parametrize("command", COMMANDS)
def test_no_line_is_wider_than_the_terminal(command, columns):
    lines = run(COMMANDS[command], str(columns)).stdout.splitlines()
    assert len(lines) > 5
    assert max(map(len, lines)) <= columns
    assert all(line == line.rstrip() for line in lines)


@pytest.mark.parametrize("columns", [40, 80])
@pytest.mark.parametrize("command", ERRORS)
def test_no_error_is_wider_than_the_terminal(command, columns):
    result = run(ERRORS[command], str(columns))
    assert result.exit_code == 2
    assert result.output.startswith("Error: ")
    assert max(map(len, result.output.splitlines())) <= columns


@pytest.mark.parametrize("columns", ["0", "1", "10", "100000", "-3", "x", ""])
def test_widths_that_make_no_sense(columns):
    result = run(COMMANDS["decode"], columns)
    assert result.exit_code == 0
    assert "0x1fffffffffffff0" in result.stdout


@pytest.mark.parametrize("columns", [40, 60, 80])
def test_no_value_is_broken(columns):
    text = run(COMMANDS["decode"], str(columns)).stdout
    words = text.split()
    for field in WIDEST.fields():
        assert field.label in words
        assert field.meaning in text
    for word in WIDEST.words:
        assert f"{word:016x}" in words
    assert "0x1fffffffffffff0" in words


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("rules box-in", ["box-inner-multiple", "box-inner-span"]),
        ("rules TILE-", ["tile-alignment", "tile-1024"]),
        ("rules --kind im2", ["im2col", "im2col-wide"]),
        ("rules --severity f", ["fault", "folklore"]),
        ("rules --target sm_12", ["sm_120", "sm_120a", "sm_121", "sm_121a"]),
        ("layout swizzle_", ["swizzle_mode", "swizzle_atomicity"]),
        ("layout --kind t", ["tiled"]),
        ("slots --target sm_90", ["sm_90", "sm_90a"]),
        ("encode im2c", ["im2col", "im2col-wide"]),
        ("encode im2col --data-type TF", ["TFLOAT32", "TFLOAT32_FTZ"]),
        ("encode im2col-wide --mode W1", ["W128"]),
        ("encode tiled --swizzle 128B_ATOM_6", ["128B_ATOM_64B"]),
        ("encode tiled --from-array dt", ["dtype="]),
        ("decode -o h", ["hex"]),
        ("di", ["diff"]),
    ],
)
def test_completion(words, expected):
    assert completed(words) == [f"plain,{word}" for word in expected]


@pytest.mark.parametrize("words", ["decode ma", "diff a.bin b", "slots ma", "encode tiled --from ma"])
def test_files_are_completed_as_files(words):
    assert completed(words) == [f"file,{words.split()[-1]}"]


@pytest.mark.skipif(os.name != "posix", reason="needs a pseudo-terminal")
@pytest.mark.parametrize("command", ["diff", "rules", "layout", "slots"])
@pytest.mark.parametrize("colour", [True, False])
def test_styles_on_a_terminal_unless_asked_not_to(command, colour):
    seen = in_terminal(COMMANDS[command], TERM="xterm" if colour else "dumb")
    assert (b"\x1b[1m" in seen) == colour


@pytest.mark.skipif(os.name != "posix", reason="closes the stream as a shell does")
@pytest.mark.parametrize("command", ["decode", "diff", "rules", "slots"])
@pytest.mark.parametrize("redirection", [">&-", "| head -c 1", "2>&- >/dev/full"])
def test_output_that_cannot_be_written(command, redirection):
    words = " ".join(f"'{word}'" for word in COMMANDS[command])
    result = subprocess.run(f"{sys.executable} -m cupytma {words} {redirection}", shell=True, capture_output=True)
    assert b"Traceback" not in result.stderr
