"""``cupytma rules``: the rule table, all of it or one rule whole."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest

from cupytma.tensormap import FOLKLORE, RULES
from cupytma.tensormap.checking import rules_for


def listed(invoke, *arguments: str) -> list[dict]:
    result = invoke("rules", *arguments, "--json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def test_every_rule_is_listed_with_what_must_hold_and_a_fix(invoke):
    text = invoke("rules").stdout
    flat = " ".join(text.split())
    for rule in RULES:
        assert f"\n  {rule.id}" in text
        assert rule.statement in flat
    for entry in FOLKLORE:
        assert entry.claim in flat
        assert entry.truth in flat
    assert text.count("\n    fix: ") == len(RULES)
    assert not re.search("<[^ ]", flat)
    assert max(map(len, text.splitlines())) <= 80


def test_every_rule_and_its_expressions_in_json(invoke):
    found = {row["id"]: row for row in listed(invoke)}
    assert list(found) == [row.id for row in (*RULES, *FOLKLORE)]
    for rule in RULES:
        assert (found[rule.id]["holds"], found[rule.id]["fix"]) == (rule.holds, rule.fix)
        assert found[rule.id]["severity"] == rule.severity


def test_json_loses_nothing_where_the_output_takes_ascii_alone():
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    command = [sys.executable, "-m", "cupytma", "rules", "box-inner-span", "--json"]
    output = subprocess.run(command, env=environment, capture_output=True, check=True).stdout
    assert "≤" in json.loads(output.decode("ascii"))[0]["fix"]


@pytest.mark.parametrize("kind", ["tiled", "im2col", "im2col-wide"])
@pytest.mark.parametrize("target", ["sm_90a", "sm_100a"])
def test_kind_and_target_leave_what_the_checker_checks(invoke, kind, target):
    found = listed(invoke, "--kind", kind, "--target", target, "--severity", "error")
    assert [row["id"] for row in found] == [rule.id for rule in rules_for(kind.replace("-", "_"), target, "error")]


@pytest.mark.parametrize("severity", ["error", "warning", "fault", "folklore"])
def test_severities(invoke, severity):
    assert {row["severity"] for row in listed(invoke, "--severity", severity)} == {severity}


def test_words_must_all_be_there_in_either_case(invoke):
    found = [row["id"] for row in listed(invoke, "STRIDE", "row")]
    assert "stride-row" in found
    assert len(found) < len(listed(invoke, "row")) < len(listed(invoke))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_one_rule_whole(invoke, rule):
    result = invoke("rules", rule.id)
    text = " ".join(result.stdout.split())
    assert result.exit_code == 0
    assert text.startswith(f"{rule.id} is: {rule.severity}")
    assert rule.statement in text
    assert f"exactly: {rule.holds}" in text
    assert f"known: {rule.source}" in text
    assert not re.search(r"[{}<>]", text.partition(" says: ")[2].partition(" known: ")[0])
    assert max(map(len, result.stdout.splitlines())) <= 80


def test_one_rule_whole_says_what_its_operands_mean(invoke):
    text = invoke("rules", "box-inner-span").stdout
    assert "swizzle_span: bytes the swizzle pattern spans" in text


def test_messages_with_numbers_are_those_of_an_example(invoke):
    text = " ".join(invoke("rules", "box-inner-span").stdout.split())
    assert "says: for example: box_dim[0] = 128 × 2 B = 256 B exceeds the 128 B span of SWIZZLE_128B" in text
    assert "fix: for example: use box_dim[0] ≤ 64 or split the box" in text
    assert "fix: use interleave NONE known:" in " ".join(invoke("rules", "packed-interleave").stdout.split())


def test_an_id_that_is_a_word_too_names_the_others(invoke):
    text = " ".join(invoke("rules", "swizzle").stdout.split())
    assert text.startswith("swizzle is: error")
    assert "swizzle is spoken of by: box-inner-span, packed-swizzle, wide-swizzle" in text
    assert [row["id"] for row in listed(invoke, "swizzle")] == ["swizzle"]


def test_folklore_whole(invoke):
    text = " ".join(invoke("rules", "tile-1024").stdout.split())
    assert "said: a 128B-swizzled tile must be aligned to 1024 bytes" in text
    assert "so: 128 bytes are enough" in text


def test_several_rules_whole_and_each_once(invoke):
    text = invoke("rules", "rank", "swizzle", "rank").stdout
    assert text.count("exactly:") == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["box-iner-span"], "did you mean box-inner-span"),
        (["🙂"], "`cupytma rules` lists all"),
        (["x" * 5000], "`cupytma rules` lists all"),
        (["wide-mode", "--kind", "tiled"], "wide-mode is not among what the options leave"),
        (["packed-dim", "--target", "sm_90a"], "packed-dim is not among"),
        (["--kind", "conv"], "'conv'"),
        (["--severity", "mild"], "'mild'"),
        (["--target", "sm_80"], "compute capability 9.0"),
    ],
)
def test_nothing_found_says_what_to_do(invoke, arguments, said):
    result = invoke("rules", *arguments)
    assert result.exit_code == 2
    assert said in " ".join(result.stderr.split())
    assert max(map(len, result.stderr.splitlines())) <= 80
