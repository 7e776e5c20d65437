"""Input that is wrong in every way: one block on stderr that says so, exit code 2, no traceback."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

TILED = ("encode", "tiled", "--data-type", "FLOAT16", "--global-dim", "1024,512", "--box-dim", "64,32")
FUZZ = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def assert_refused(result, *words):
    assert result.exit_code == 2
    assert "Error: " in result.stderr
    assert "Traceback" not in result.stderr
    assert max(map(len, result.stderr.splitlines())) <= 80
    flat = " ".join(result.stderr.split())
    for word in words:
        assert word in flat


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "no input"),
        ("   \n\t ", "no input"),
        ("zz", "'zz' is no hex"),
        ("00", "2 hex digits"),
        ("0" * 255, "255 hex digits"),
        ("0" * 257, "257 hex digits"),
        ("0" * 100_000, "100000 hex digits"),
        ("x" * 100_000, "is no hex"),
        ("0x", "hex"),
        ("−1", "is no hex"),
        ("١٢٣", "is no hex"),
        ("🙂" * 64, "is no hex"),
        ("{", "0 numbers"),
        ("{}", "0 numbers"),
        ('{"a": 1}', 'neither "bytes" nor "words"'),
        ('{"bytes": 7}', "1 hex digit"),
        ('{"words": "7"}', '"words" is a list'),
        ('{"words": [1, 2]}', "2 numbers"),
        ('{"words": [1.5, null, {}, [], true, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]}', "no integer"),
        ('{"bytes": "00", ', "no JSON"),
        ('{"a":' * 30_000, "no JSON"),
        ("[" + "1," * 15 + "-1]", "no unsigned number of 64 bits"),
        ("{" + "1, " * 15 + f"{2**64}" + "}", "no unsigned number of 64 bits"),
        ("{" + "1, " * 15 + "9" * 5000 + "}", "no integer"),
        ("{" + "1, " * 31 + f"{2**32}" + "}", "no unsigned number of 32 bits"),
        ("{" + "1, " * 16 + "1}", "17 numbers"),
        ("{0 <repeats 999 times>}", "999 numbers"),
        ("{1, two}", "no integer"),
        ("0x0: 0x1 0x2", "2 numbers"),
        ("a: b: c", "no integer"),
        ("\x00", ""),
    ],
)
def test_decode_of_text(invoke, text, word):
    assert_refused(invoke("decode", "-", input=text.encode()), word)
    if "\0" not in text:
        assert_refused(invoke("decode", text), word)


@pytest.mark.parametrize(
    "data", [b"\xff" * 5, bytes(range(255, 190, -1)) + b"\0", b"\0" * 127, b"\0" * 129, b"\xff" * 4096], ids=len
)
def test_decode_of_binary_junk(invoke, data):
    assert_refused(invoke("decode", "-", input=data), f"{len(data)} bytes of binary data")


def test_decode_of_too_much(invoke, tmp_path):
    path = tmp_path / "large"
    path.write_bytes(b"\0" * (1 << 21))
    assert_refused(invoke("decode", str(path)), "more than 1 MiB")


def test_files_that_cannot_be_read(invoke, tmp_path):
    assert_refused(invoke("decode", str(tmp_path)), "cannot read", "directory")
    assert_refused(invoke("decode", "missing.bin"), "there is no file 'missing.bin'")
    assert_refused(invoke("encode", "tiled", "--from", str(tmp_path)), "cannot read", "directory")
    assert_refused(invoke("encode", "tiled", "--from", str(tmp_path / "x.toml")), "cannot read", "No such file")
    assert_refused(invoke("encode", "tiled", "--from", "a\0b"), "cannot read")
    assert_refused(invoke("encode", "tiled", "--from", "x" * 5000), "cannot read")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["is empty"]),
        ("{", ["is no JSON"]),
        ("[1, 2]", ["neither JSON", "nor TOML"]),
        ("x = ", ["neither JSON", "nor TOML"]),
        ("{}", ["missing --data-type, --global-dim, --box-dim"]),
        ('{"kind": "im2col"}', ["kind 'im2col'"]),
        ('{"target": 7}', ["target"]),
        ('{"target": "sm_80", "data_type": 6, "global_dim": [8], "box_dim": [8]}', ["compute capability 9.0"]),
        ('{"parameters": 7}', ["no table"]),
        ('{"colour": 1}', ["'colour'", "is no parameter"]),
        ('{"box_dim": 1e9}', ["neither an integer nor a name"]),
        ('{"box_dim": [true]}', ["neither an integer nor a name"]),
        ('{"box_dim": {"a": 1}}', ["neither an integer nor a name"]),
        ('{"box_dim": [NaN]}', ["neither an integer nor a name"]),
        (json.dumps({"global_dim": [2**64]}), ["does not fit 64 bits"]),
        ('{"global_dim": [' + "9" * 5000 + "]}", ["no JSON"]),
        ('{"global_address": "0xzz"}', ["no integer"]),
        ('{"data_type": "FLOAT16", "global_dim": 5, "box_dim": "64"}', ["global_dim", "box_dim"]),
        ('{"data_type": [1], "global_dim": [5], "box_dim": [64]}', ["DataType"]),
        ('{"data_type": "FLOAT16", "global_dim": [[5]], "box_dim": [64]}', ["global_dim"]),
        ('{"data_type": "FLOAT16", "global_dim": ["a"], "box_dim": [64]}', ["global_dim"]),
    ],
)
def test_encode_from_a_file(invoke, tmp_path, text, words):
    if not text.startswith("{"):
        pytest.importorskip("tomllib", reason="TOML needs Python 3.11")
    assert_refused(invoke("encode", "tiled", "--from", "-", input=text), *words)
    path = tmp_path / "parameters"
    path.write_text(text)
    assert_refused(invoke("encode", "tiled", "--from", str(path)), *words)


def test_encode_from_binary_junk(invoke):
    assert_refused(invoke("encode", "tiled", "--from", "-", input=b"\xff\x00\xfe"), "no text")


@pytest.mark.parametrize(
    ("option", "value", "word"),
    [
        ("--data-type", "FLOAT8", "DataType has no member 'FLOAT8'"),
        ("--data-type", "", "DataType has no member"),
        ("--data-type", "99", "broken rule"),
        ("--swizzle", "256B", "Swizzle has no member"),
        ("--interleave", "-1", "Interleave has no member"),
        ("--l2-promotion", "²", "L2Promotion has no member"),
        ("--oob-fill", "NAN", "OobFill has no member"),
        ("--address", "", "no integer"),
        ("--address", "1.5", "no integer"),
        ("--address", "0xg", "no integer"),
        ("--address", "-16", "address-range"),
        ("--address", "1", "address-alignment"),
        ("--address", str(2**57), "address-range"),
        ("--address", str(2**64), "does not fit 64 bits"),
        ("--address", "9" * 10_000, "does not fit 64 bits"),
        ("--address", "0x" + "f" * 10_000, "no integer"),
        ("--global-dim", "1024;512", "numbers with commas"),
        ("--global-dim", "1024,", "no integer"),
        ("--global-dim", "1024,x", "no integer"),
        ("--global-dim", "", "rank 0"),
        ("--global-dim", "1024", "rank 1"),
        ("--global-dim", "-1,512", "dim-range"),
        ("--global-dim", f"1024,{2**33}", "dim-range"),
        ("--global-dim", ",".join(["2"] * 5000), "rank 5000"),
        ("--global-dim", "٣,٤", "no integer"),
        ("--box-dim", "64,32,1", "rank 2"),
        ("--box-dim", "0,0", "box-range"),
        ("--box-dim", "18446744073709551615,1", "box-range"),
        ("--element-strides", "0,0", "element-stride-range"),
        ("--global-strides", "2040", "stride-alignment"),
        ("--global-strides", "", "needs 1"),
        ("--target", "sm_80", "compute capability 9.0"),
        ("--target", "sm_9999", "unknown target"),
        ("--target", "🙂", "unknown target"),
        ("--output", "xml", "'xml'"),
        ("--colour", "1", "--colour"),
    ],
)
def test_encode_options(invoke, option, value, word):
    assert_refused(invoke(*TILED, option, value), word)


def test_missing_parameters_are_named(invoke):
    assert_refused(invoke("encode", "tiled"), "missing --data-type, --global-dim, --box-dim", "--from")
    assert_refused(invoke("encode", "tiled", "--data-type", "UINT8", "--box-dim", "16"), "missing --global-dim")


@pytest.mark.parametrize("arguments", [["nope"], ["encode", "nope"], ["--nope"], ["decode", "--nope"]])
def test_unknown_commands_and_options(invoke, arguments):
    assert_refused(invoke(*arguments), "No such")


@FUZZ
@given(data=st.binary(max_size=300) | st.binary(min_size=128, max_size=128))
def test_decode_of_any_bytes(invoke, data):
    assert invoke("decode", "-", input=data).exit_code in (0, 2)


@FUZZ
@given(text=st.text(alphabet=st.sampled_from('0123456789abcdefxX{}[]",:<> \n=-'), max_size=300))
def test_decode_of_any_text(invoke, text):
    assert invoke("decode", "-", input=text).exit_code in (0, 2)


@FUZZ
@given(value=st.text(max_size=30), option=st.sampled_from(["--data-type", "--address", "--global-dim", "--box-dim"]))
def test_encode_of_any_option(invoke, option, value):
    assert invoke(*TILED, option, value).exit_code in (0, 2)


@FUZZ
@given(
    document=st.dictionaries(
        st.sampled_from(["data_type", "global_dim", "box_dim", "element_strides", "swizzle", "global_address", "kind"]),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
            lambda inner: st.lists(inner, max_size=5), max_leaves=5,
        ),
    )
)
def test_encode_of_any_document(invoke, document):
    base = {"data_type": "FLOAT16", "global_dim": [64, 8], "box_dim": [8, 8]}
    result = invoke("encode", "tiled", "--from", "-", input=json.dumps({**base, **document}))
    assert result.exit_code in (0, 2)


def _process(*arguments, **keywords):
    environment = {**os.environ, "COLUMNS": "80", **keywords.pop("env", {})}
    return subprocess.run(
        [sys.executable, "-m", "cupytma", *arguments], env=environment, capture_output=True, **keywords
    )


def test_a_process_ends_with_2_and_one_block(tmp_path):
    result = _process("decode", "missing", cwd=tmp_path)
    assert result.returncode == 2
    assert result.stdout == b""
    assert result.stderr.startswith(b"Error: there is no file 'missing'")


def test_no_colours_in_a_pipe():
    assert b"\x1b" not in _process(*TILED).stdout
    assert b"\x1b" not in _process("decode", "zz").stderr


def test_an_encoding_without_the_signs():
    result = _process(*TILED, "--box-dim", "300,1", env={"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"})
    assert result.returncode == 2
    assert b"box-range" in result.stderr
    assert b"Traceback" not in result.stderr


@pytest.mark.skipif(os.name != "posix", reason="closes the stream as a shell does")
@pytest.mark.parametrize("redirection", ["<&-", "- <&-", "| head -c 1", f"{'0' * 256} >&-", f"{'0' * 256} -o raw >&-"])
def test_closed_streams(redirection):
    result = subprocess.run(
        f"{sys.executable} -m cupytma decode {redirection}", shell=True, capture_output=True, stdin=subprocess.DEVNULL
    )
    assert b"Traceback" not in result.stderr
