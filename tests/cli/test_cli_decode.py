"""``cupytma decode``: every way that the 128 bytes are shown, and what it says of bytes that make no sense."""

from __future__ import annotations

import json

import pytest

import cupytma as tma

MAP = tma.Tiled(
    data_type="FLOAT16", global_address=0x7F0000000000, global_dim=(1024, 512, 7), box_dim=(64, 32, 1), swizzle="128B"
).encode()
HEX = bytes(MAP).hex()


def _dump(width: int, columns: int, label: str) -> str:
    """As gdb prints memory: an address, perhaps a symbol, and numbers."""
    data = bytes(MAP)
    numbers = [int.from_bytes(data[i : i + width], "little") for i in range(0, 128, width)]
    lines = []
    for first in range(0, len(numbers), columns):
        head = f"{0x4040 + width * first:#x}{label.format(offset=width * first)}:"
        lines.append("\t".join([head, *(f"0x{n:0{2 * width}x}" for n in numbers[first : first + columns])]))
    return "\n".join(lines)


_WORDS = [f"{word:#x}" for word in MAP.words]
FORMS = {
    "hex": HEX,
    "hex in capitals": HEX.upper(),
    "hex with 0x": "0x" + HEX,
    "hex bytes with spaces": " ".join(HEX[i : i + 2] for i in range(0, 256, 2)),
    "hex in lines": "\n".join(HEX[i : i + 32] for i in range(0, 256, 32)) + "\n",
    "hex in lines with Windows' line ends": "\r\n".join(HEX[i : i + 32] for i in range(0, 256, 32)),
    "hex bytes with 0x": " ".join(f"0x{byte:02x}" for byte in bytes(MAP)),
    "words with 0x": " ".join(_WORDS),
    "gdb x/16gx": _dump(8, 2, ""),
    "gdb x/16gx of a symbol": _dump(8, 2, " <tensor_map+{offset}>"),
    "cuda-gdb with its prompt": "(cuda-gdb) x/16gx &map\n" + _dump(8, 2, "") + "\n(cuda-gdb) ",
    "gdb x/32wx": _dump(4, 4, " <map>"),
    "gdb x/64xh": _dump(2, 8, ""),
    "gdb x/128xb": _dump(1, 8, ""),
    "gdb print/x": "$1 = {opaque = {" + ", ".join(_WORDS) + "}}",
    "gdb print": "$1 = {opaque = {" + ", ".join(map(str, MAP.words)) + "}}",
    "gdb print with repeats": "$1 = {opaque = {" + ", ".join(_WORDS[:10]) + ", 0x0 <repeats 6 times>}}",
    "C words": "const unsigned long long map[16] = {" + ", ".join(f"{w}ull" for w in _WORDS) + "}; // one",
    "C with comments": "/* a, b */ CUtensorMap m = {{\n" + ",\n".join(f"{w}, // w{i}" for i, w in enumerate(_WORDS))
    + "}};",
    "C bytes": "unsigned char map[128] = {" + ", ".join(str(byte) for byte in bytes(MAP)) + "};",
    "numbers with commas": ", ".join(_WORDS),
    "JSON with bytes": json.dumps({"bytes": HEX}),
    "JSON with words": json.dumps({"words": list(MAP.words)}),
    "JSON with words in hex": json.dumps({"words": _WORDS}),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("way", ["argument", "file", "standard input"])
def test_every_form_in_every_way(invoke, tmp_path, form, way):
    text = FORMS[form]
    if way == "argument":
        result = invoke("decode", text, "-o", "hex")
    elif way == "file":
        path = tmp_path / "map with spaces.txt"
        path.write_bytes(text.encode())
        result = invoke("decode", str(path), "-o", "hex")
    else:
        result = invoke("decode", "-", "-o", "hex", input=text)
    assert result.exit_code == 0, result.stderr
    assert result.stdout == HEX + "\n"


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_redirected_by_a_shell_with_a_byte_order_mark(invoke, tmp_path, encoding):
    path = tmp_path / "map.txt"
    path.write_text(HEX + "\n", encoding=encoding)
    assert invoke("decode", str(path), "-o", "hex").stdout == HEX + "\n"


def test_unquoted_words(invoke):
    assert invoke("decode", *_WORDS, "-o", "hex").stdout == HEX + "\n"


def test_standard_input_without_an_argument(invoke):
    assert invoke("decode", "-o", "hex", input=HEX).stdout == HEX + "\n"


def test_raw_bytes(invoke, tmp_path):
    path = tmp_path / "map.bin"
    path.write_bytes(bytes(MAP))
    assert invoke("decode", str(path), "-o", "hex").stdout == HEX + "\n"
    assert invoke("decode", "-", "-o", "hex", input=bytes(MAP)).stdout == HEX + "\n"


def test_table_has_parameters_fields_and_words(invoke):
    table = invoke("decode", HEX).stdout
    assert "tiled, rank 3" in table
    assert "1024, 512, 7" in table
    assert "0x7f0000000000" in table
    assert "w1[63:32] + w3[35:32]" in table
    for word in MAP.words:
        assert f"{word:016x}" in table
    assert max(map(len, table.splitlines())) <= 80


def test_json_is_that_of_encode_without_a_target(invoke):
    document = json.loads(invoke("decode", HEX, "--json").stdout)
    assert document["target"] is None
    assert document["parameters"]["global_dim"] == [1024, 512, 7]
    assert document["box_bytes"] == MAP.box_bytes


def _with_word(number: int, change: int) -> str:
    words = list(MAP.words)
    words[number] ^= change
    return " ".join(map(hex, words))


def test_reserved_bits_are_shown_and_no_error(invoke):
    text = _with_word(1, 1 << 22 | 1 << 30)
    result = invoke("decode", text)
    assert result.exit_code == 0
    assert "w1[22], w1[30]" in result.stdout
    assert json.loads(invoke("decode", text, "--json").stdout)["reserved_bits"] == ["w1[22]", "w1[30]"]


@pytest.mark.parametrize("output", ["table", "json", "hex", "c", "raw"])
@pytest.mark.parametrize(
    ("word", "change", "named"),
    [
        (1, 15 << 7 ^ 6 << 7, ["w1[10:7]"]),  # element format 15
        (1, 7 << 4 ^ 2 << 4, ["w1[6:4]"]),  # rank 8
        (1, 3 << 11, ["w1[12:11]"]),  # interleave 3
        (1, 2 << 13 | 1 << 19, ["w1[14:13] = 1"]),  # a larger atom with swizzle 32B
    ],
)
def test_bits_without_a_meaning_are_named(invoke, output, word, change, named):
    result = invoke("decode", _with_word(word, change), "-o", output)
    assert result.exit_code == 2
    assert all(bits in result.stderr for bits in named)


def test_fields_are_shown_even_if_one_has_no_meaning(invoke):
    result = invoke("decode", _with_word(1, 15 << 7 ^ 6 << 7))
    assert "global_dim[0]" in result.stdout
    assert "w1[10:7] = 15" in result.stderr


def test_what_no_driver_would_make_is_shown_and_refused(invoke):
    words = _with_word(0, 8)
    result = invoke("decode", words)
    assert result.exit_code == 2
    assert "global_address" in result.stdout
    assert "address-alignment (w0[63:0])" in result.stderr
    result = invoke("decode", words, "--json")
    assert result.exit_code == 2
    assert json.loads(result.stdout)["violations"][0]["rule"] == "address-alignment"


def test_rules_of_a_target(invoke):
    newer = tma.Tiled(
        data_type="FLOAT16", global_address=0, global_dim=(64, 64), box_dim=(64, 32), swizzle="128B_ATOM_32B"
    ).encode("sm_100a")
    assert invoke("decode", bytes(newer).hex()).exit_code == 0
    assert invoke("decode", bytes(newer).hex(), "--target", "sm_90a").exit_code == 2
