"""Texts that make a careless reader slow: each is refused, or read, in a moment."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from invoking import Invoke

_TEXTS = {
    "line breaks": "\n" * 1_000_000,
    "blanks": "{" + " " * 1_000_000,
    "repeats": "{1 <repeats 999 times>, " * 40_000,
    "comments that do not end": "{/* " * 250_000,
    "a long name": "{" + "_" * 1_000_000,
    "long numbers": "{" + "1" * 1_000_000,
    "many names": "{" + "a " * 500_000,
    "members": "{" + "a.b = " * 150_000,
    "casts": "(cuuint64_t)" + "a[b]" * 250_000,
    "many casts": "(cuuint64_t)" * 80_000,
    "nested objects": '{"parameters": ' + "[" * 900_000,
    "labels": "DESC_TMA512 " * 80_000,
    "words after a label": "DESC_TMA512: " + "0 " * 500_000 + "z",
    "prompts": "(cuda-gdb)" * 100_000,
    "colons": "0:" * 500_000,
    "symbols": "0x1 <" * 200_000,
}


@pytest.mark.parametrize("arguments", [["decode", "-"], ["decode", "-", "--search"], ["slots", "-"], ["check", "-"]])
@pytest.mark.parametrize("name", _TEXTS)
def test_it_ends_in_a_moment(invoke, arguments, name):
    start = time.process_time()
    result = invoke(*arguments, input=_TEXTS[name])
    assert time.process_time() - start < 5
    assert result.exit_code in (1, 2)
    assert result.stdout == ""


@pytest.mark.skipif(not Path("/dev/zero").is_char_device(), reason="needs /dev/zero")
@pytest.mark.parametrize("arguments", [("decode", "--search"), ("decode", "--offset", "0"), ("check",), ("decode",)])
def test_a_device_without_an_end_is_refused_at_once(invoke: Invoke, arguments: tuple[str, ...]) -> None:
    result = invoke(*arguments, "/dev/zero")
    assert result.exit_code == 2
    assert "is a device, which may have no end" in result.stderr
    assert "is a device" not in invoke(*arguments, "/dev/null").stderr
