"""``cupytma swizzle``: its formulas, its picture and its counts are the simulator's."""

from __future__ import annotations

import json
import random
import re

import pytest
from invoking import Invoke

import cupytma as tma
from cupytma import sim
from cupytma.tensormap import Swizzle

HOPPER = [swizzle for swizzle in Swizzle if swizzle <= Swizzle.B128]


def _facts(invoke: Invoke, *arguments: str) -> dict:
    result = invoke("swizzle", *arguments, "--target", "sm_100a", "--json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


@pytest.mark.parametrize("swizzle", Swizzle, ids=str)
def test_the_formula_of_addresses_holds_for_any(invoke: Invoke, swizzle: Swizzle) -> None:
    formula = _facts(invoke, str(swizzle))["address_formula"]
    rng = random.Random(1)
    for address in [*range(0, 2048, 4), *(rng.randrange(1 << 18) for _ in range(500))]:
        assert eval(formula, {"a": address}) == sim.swizzle_address(address, swizzle)  # C and Python bind alike here


@pytest.mark.parametrize("swizzle", Swizzle, ids=str)
def test_the_formula_of_chunks_holds_for_any(invoke: Invoke, swizzle: Swizzle) -> None:
    formula = _facts(invoke, str(swizzle))["chunk_formula"].replace("/", "//")
    for row in range(40):
        for chunk in range((swizzle.span or 128) // 16):
            assert eval(formula, {"row": row, "chunk": chunk}) == sim.swizzle_chunk(row, chunk, swizzle)


@pytest.mark.parametrize("swizzle", Swizzle, ids=str)
@pytest.mark.parametrize("offset", [0, 128, 896])
def test_the_picture_shows_every_chunk_where_it_is(invoke: Invoke, swizzle: Swizzle, offset: int) -> None:
    arguments = (str(swizzle), "--rows", "16", "--shared-offset", str(offset), "--target", "sm_100a")
    text = invoke("swizzle", *arguments).stdout
    span, seen = swizzle.span or 128, {}
    for match in re.finditer(r"^ *(\d+)[' ]((?: +[\d:-]+){8})$", text, re.MULTILINE):
        for place, held in enumerate(match[2].split()):
            seen[tuple(map(int, held.split(":")))] = int(match[1]) + 16 * place
    assert seen == {
        (row, chunk): sim.swizzle_address(offset + row * span + 16 * chunk, swizzle) // 16 * 16
        for row in range(16) for chunk in range(span // 16)
    }  # fmt: skip


@pytest.mark.parametrize("access", ["row", "column", "ldmatrix"])
def test_conflicts_and_the_recommendation_are_the_simulators(invoke: Invoke, access: str) -> None:
    found = _facts(invoke, "--data-type", "FLOAT32", "--box-dim", "8,64", "--access", access)
    p = tma.Tiled(data_type="FLOAT32", global_address=0, global_dim=(8, 64), box_dim=(8, 64))
    advice = sim.best_swizzle(p.encode(), access, target="sm_100a")
    assert found["recommended"] == found["swizzle"] == str(advice.swizzle)
    assert [(one["swizzle"], one["conflicts"]) for one in found["conflicts"]] == [
        (str(result.swizzle), result.conflicts) for result in advice.results
    ]
    assert len(found["conflicts"]) == len(Swizzle)


def test_the_table_has_every_access_of_every_legal_swizzle(invoke: Invoke) -> None:
    text = invoke("swizzle", "--data-type", "FLOAT32", "--box-dim", "32,32").stdout
    rows = {line.split()[0]: line.split()[1:] for line in text.splitlines() if re.match(r"  (NONE|\d+B) +\d", line)}
    assert rows == {"NONE": ["0", "992", "224", "4,096"], "128B": ["0", "96", "0", "4,096"]}
    assert "32B cannot be had: box_dim[0] = 32 × 4 B = 128 B exceeds the 32 B span" in " ".join(text.split())


def test_ways_out_of_conflicts_that_stay(invoke: Invoke) -> None:
    text = " ".join(invoke("swizzle", "--data-type", "FLOAT32", "--box-dim", "256,32").stdout.split())
    assert "Use NONE for column reads of 4 B: 7,936 conflicts, 32-way at worst" in text
    assert "A box of 32 elements in dimension 0 (128 B) may have swizzle 128B: 96 conflicts" in text
    text = " ".join(invoke("swizzle", "--data-type", "FLOAT32", "--box-dim", "32,32").stdout.split())
    assert "Reads of 16 B (--access-bytes 16) have no conflicts with 128B" in text
    text = invoke("swizzle", "--access", "ldmatrix").stdout
    assert "Use 128B for ldmatrix reads of 16 B: no conflicts." in text
    assert "--access-bytes" not in text


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("256B",), "Swizzle has no member '256B'"),
        (("99",), "Swizzle has no member 99"),
        (("-1",), "-1"),
        (("64B", "--box-dim", "64,8"), "exceeds the 64 B span"),
        (("128B_ATOM_32B",), "this tile cannot have swizzle 128B_ATOM_32B on sm_90a"),
        (("--box-dim", ""), "1 to 5 extents"),
        (("--box-dim", "0,8"), "1 to 5 extents"),
        (("--box-dim", "1,1,1,1,1,1"), "1 to 5 extents"),
        (("--box-dim", "1,8"), "multiple of 16"),
        (("--box-dim", "257,8"), "256"),
        (("--box-dim", f"{2**64}"), "does not fit 64 bits"),
        (("--data-type", "FLOAT8"), "DataType has no member"),
        (("--data-type", "99"), "DataType has no member 99"),
        (("--data-type", "16U4_ALIGN16B", "--box-dim", "128,8"), "sm_90a"),
        (("--access", "diagonal"), "'diagonal'"),
        (("--access-bytes", "3"), "access_bytes is 3"),
        (("--access-bytes", "0"), "access_bytes is 0"),
        (("--access-bytes", "4", "--access", "ldmatrix"), "access_bytes is 4"),
        (("--access-bytes", "1"), "no multiple of the 2 bytes"),
        (("--shared-offset", "64"), "64 mod 128"),
        (("--shared-offset", "-128"), "0 or above"),
        (("--shared-offset", str(2**32)), "32 bits"),
        (("--rows", "0"), "1<=x<=32"),
        (("--target", "sm_80"), "compute capability 9.0"),
        (("128B", "64B"), "unexpected extra argument"),
        (("--picture", "/nowhere/p.svg"), "cannot write"),
    ],
)
def test_what_makes_no_sense_is_one_block_and_exit_code_2(
    invoke: Invoke, arguments: tuple[str, ...], word: str
) -> None:
    result = invoke("swizzle", *arguments)
    assert result.exit_code == 2
    assert word in " ".join(result.stderr.split())
    assert "Traceback" not in result.stderr
    assert max(map(len, result.stderr.splitlines())) <= 80


@pytest.mark.parametrize("swizzle", HOPPER, ids=str)
def test_svg_to_a_file_and_to_a_pipe(invoke: Invoke, tmp_path, swizzle: Swizzle) -> None:
    path = tmp_path / "swizzle.svg"
    result = invoke("swizzle", str(swizzle), "--picture", str(path))
    assert "Index formulas" in result.stdout
    svg = path.read_text()
    assert svg.startswith("<svg")
    assert invoke("swizzle", str(swizzle), "--picture", "-").stdout.strip() == svg.strip()
