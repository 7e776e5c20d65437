"""``cupytma catalogue``: its filters, its formats."""

from __future__ import annotations

import json

import pytest
from invoking import Invoke
from test_cli_hostile import assert_refused

from cupytma import ptx

ALL = ptx.catalogue()


def lines(invoke: Invoke, *arguments: str) -> list[str]:
    found: list[str] = invoke("catalogue", *arguments).stdout.splitlines()
    return found


def test_without_filters_every_instruction_has_a_line_with_the_number_of_its_forms(invoke: Invoke) -> None:
    rows = {line.split()[0]: line.split()[1] for line in lines(invoke)[1:-1]}
    assert rows.keys() == {form.family for form in ALL}
    assert sum(int(count.replace(",", "")) for count in rows.values()) == len(ALL)
    assert max(map(len, lines(invoke))) <= 80


@pytest.mark.parametrize(
    ("arguments", "fits"),
    [
        (["-f", "tensor_load"], lambda f: f.family == "tensor_load"),
        (["--family", "tensor-load", "-t", "sm_90a"], lambda f: f.family == "tensor_load" and f.supported_on("sm_90a")),
        (["rank=2"], lambda f: dict(f.words).get("rank") == 2),
        (["multicast=true", "tensor"], lambda f: dict(f.words).get("multicast") is True and "tensor" in f.mnemonic),
        (["cta-group=none"], lambda f: ("cta_group", None) in f.words),
        (["try_wait"], lambda f: "try_wait" in f.mnemonic),
        (["-f", "bulk_copy", "--toolkit", "12.6"], lambda f: f.family == "bulk_copy" and f.ptx_version <= (8, 5)),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_filters_leave_the_forms_that_fit_all_of_them(invoke: Invoke, arguments: list[str], fits: object) -> None:
    wanted = [form for form in ALL if fits(form)]  # type: ignore[operator]
    assert wanted
    assert lines(invoke, *arguments) == [form.text for form in wanted]
    assert lines(invoke, *arguments, "--names") == [form.function_name for form in wanted]
    assert invoke("catalogue", *arguments).stderr == f"{len(wanted):,} form{'s'[: len(wanted) != 1]}\n"
    assert [one["ptx"] for one in json.loads(invoke("catalogue", *arguments, "--json").stdout)] == [
        form.text for form in wanted
    ]


def test_a_target_alone_counts_what_it_has(invoke: Invoke) -> None:
    text = invoke("catalogue", "--target", "sm_100").stdout
    assert "wgmma" not in text
    assert f"{sum(form.supported_on('sm_100') for form in ALL):,} forms" in text


def test_nothing_that_fits_ends_with_1(invoke: Invoke) -> None:
    result = invoke("catalogue", "rank=9")
    assert (result.exit_code, result.stdout, result.stderr) == (1, "", "0 forms\n")
    assert json.loads(invoke("catalogue", "nonsense", "--json").stdout) == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["colour=red"], ["no instruction has the word 'colour'", "rank"]),
        (["=2"], ["no instruction has the word ''"]),
        (["--family", "tensor_lod"], ["near it: tensor_load"]),
        (["--family", "x" * 5000], ["no family"]),
        (["--target", "sm_80"], ["compute capability 9.0"]),
        (["--toolkit", "11.8"], ["unknown toolkit '11.8'", "12.6"]),
    ],
    ids=lambda value: str(value)[:30],
)
def test_what_cannot_be_is_refused_in_one_block(invoke: Invoke, arguments: list[str], words: list[str]) -> None:
    assert_refused(invoke("catalogue", *arguments), *words)
