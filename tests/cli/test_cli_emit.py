"""``cupytma emit``: every instruction by words and by spelling, as PTX, inline assembly and function; recipes."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from invoking import Invoke
from test_cli_hostile import assert_refused

from cupytma import ptx
from cupytma.cli.instruction_words import Constructor, constructors, named, option_name
from cupytma.errors import EmissionError

CATALOGUE = ptx.catalogue()
FEW = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
LOAD = "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"


def options(instruction: ptx.Instruction, leaves_out: bool = False) -> list[str]:
    """The words of an instruction as options; those with the usual value may be left out."""
    defaults = {word.name: word for word in constructors()[instruction.family].words}
    found = []
    for name, value in instruction.words:
        word = defaults[name]
        if leaves_out and not word.is_required and word.default == value:
            continue
        if isinstance(value, bool):
            found.append(option_name(name) if value else f"--no-{option_name(name)[2:]}")
        else:
            found += [option_name(name), "none" if value is None else str(value)]
    return found


@FEW
@given(form=st.sampled_from(CATALOGUE), leaves_out=st.booleans())
def test_any_form_is_what_its_words_select(invoke: Invoke, form: ptx.Instruction, leaves_out: bool) -> None:
    result = invoke("emit", form.family, *options(form, leaves_out))
    if form.family != "wgmma_mma_async" or not leaves_out:  # whose defaults depend on each other
        assert (result.stdout, result.stderr, result.exit_code) == (f"{form.text}\n", "", 0)


@FEW
@given(form=st.sampled_from(CATALOGUE), command=st.sampled_from(["emit", "explain"]))
def test_any_form_is_known_by_its_spelling(invoke: Invoke, form: ptx.Instruction, command: str) -> None:
    result = invoke(command, form.text)
    assert result.exit_code == 0
    flat, wanted = "".join(result.stdout.split()), "".join(form.text.rstrip(";").split())
    assert flat.startswith(wanted)


def test_every_form_is_made_of_its_mnemonic_and_its_words() -> None:
    for form in CATALOGUE[::7]:
        found = named(form.mnemonic)
        assert found is not None
        assert found.make(dict(form.words)) == form
        assert named(form.function_name).make({}) == form  # type: ignore[union-attr]


@pytest.mark.parametrize("constructor", constructors().values(), ids=lambda c: c.name)
def test_the_example_of_every_instruction_runs(invoke: Invoke, constructor: Constructor) -> None:
    result = invoke(*constructor.example.split()[1:], "--json")
    assert json.loads(result.stdout)["family"] == constructor.name
    assert invoke("emit", constructor.name.replace("_", "-"), "--help").exit_code == 0


def test_no_word_is_a_flag_here_and_a_number_there_under_one_stem() -> None:
    for constructor in constructors().values():
        for length in range(1, len(constructor.stem) + 1):
            found = named(".".join(constructor.stem[:length]))
            assert found is not None
            kinds: dict[str, set[bool]] = {}
            for several, _ in found.candidates:
                for word in several.words:
                    kinds.setdefault(word.name, set()).add(word.is_flag)
                for operand in several.immediates:
                    kinds.setdefault(operand.name, set()).add(False)
            assert [name for name, kind in kinds.items() if len(kind) > 1] == []


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["tensor_load", "--rank", "2"], LOAD),
        (["--rank", "2", "tensor-load"], LOAD),
        (["tensor_load_2d"], LOAD),
        (["cp.async.bulk.tensor", "--rank", "2", "--mode", "tile", "--destination", "shared::cluster"], LOAD),
        (["cp.async.bulk.tensor.2d.shared::cluster"], LOAD),
        (["cp.async.bulk.tensor", "--rank", "1", "--destination", "global"],
         "cp.async.bulk.tensor.1d.global.shared::cta.tile.bulk_group [%0, {%1}], [%2];"),
        ([LOAD], LOAD),
        (LOAD.split(), LOAD),
        (["bulk_wait_group", "--count", "3"], "cp.async.bulk.wait_group 3;"),
        (["bulk_wait_group", "--read", "--count=0x3"], "cp.async.bulk.wait_group.read 3;"),
        (["cp.async.bulk.wait_group"], "cp.async.bulk.wait_group %0;"),
        (["cp.async.bulk.wait_group", "--read"], "cp.async.bulk.wait_group.read %0;"),
        (["fence", "--scope", "cta"], "fence.cta;"),
        (["tensor_load", "--rank", "2", "--cta-group", "none"], LOAD),
    ],
    ids=str,
)
def test_ways_to_say_it(invoke: Invoke, arguments: list[str], text: str) -> None:
    result = invoke("emit", *arguments)
    assert (result.stdout, result.stderr) == (f"{text}\n", "")


def test_lines_come_from_standard_input(invoke: Invoke) -> None:
    result = invoke("emit", "-", input="fence.proxy.async;  // said\ncp.async.bulk.commit_group\n")
    assert result.stdout == "fence.proxy.async;\ncp.async.bulk.commit_group;\n"
    assert len(json.loads(invoke("emit", "-", "--json", input="fence.cta; fence.gpu;").stdout)) == 2


def test_spellings_of_documents_come_with_a_note(invoke: Invoke) -> None:
    result = invoke("emit", "cp.async.bulk.tensor.2d.global.shared::cta [%0, {%1, %2}], [%3];")
    assert result.stdout == "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];\n"
    assert "Note: without a mode it is .tile" in result.stderr


# Targets.


def test_what_a_target_lacks_is_named_with_the_targets_that_have_it(invoke: Invoke) -> None:
    load = ("emit", "tensor_load", "--rank", "2")
    assert_refused(
        invoke(*load, "--cta-group", "2", "--target", "sm_90a"), "sm_90a has no .cta_group", "sm_100a", "targets that"
    )
    assert_refused(invoke("emit", "wgmma_fence", "-t", "sm_100a"), "sm_100a has no wgmma", "sm_90a")
    assert_refused(invoke(*load, "--destination", "shared::cta", "--toolkit", "11.0"), "'11.0'", "12.6")
    assert_refused(invoke("emit", "fence_sync_restrict", "--semantics", "acquire", "--toolkit", "12.0"), "PTX 8.6")


def test_a_spelling_that_the_target_takes_is_chosen_and_said(invoke: Invoke) -> None:
    result = invoke("emit", "tensor_load", "--rank", "2", "--cta-group", "1", "-t", "sm_90a")
    assert result.stdout == f"{LOAD}\n"
    assert "sm_90a does not take cta_group=1" in result.stderr
    result = invoke("emit", "tensor_load", "--rank", "2", "--destination", "shared::cta", "--toolkit", "12.0")
    assert result.stdout == f"{LOAD}\n"


# Forms.


def test_a_function_is_the_library_s(invoke: Invoke) -> None:
    form = ptx.tensor_load(rank=3, multicast=True)
    result = invoke("emit", "tensor_load", "--rank", "3", "--multicast", "--as", "function")
    assert result.stdout == f"{form.function()}\n"


def test_json_has_all_forms(invoke: Invoke) -> None:
    form = ptx.mbarrier_try_wait_parity()
    found = json.loads(invoke("emit", "mbarrier_try_wait_parity", "--json").stdout)
    assert found["ptx"] == form.text
    assert found["function"] == form.function()
    assert found["asm"] == form.inline_asm()
    assert found["words"] == dict(form.words)
    assert [o["name"] for o in found["operands"]] == [o.name for o in form.operands]
    assert found["ptx_version"] == "7.8"
    assert "barrier-to-load" in found["recipes"]


DECLARED = """
struct alignas(64) Map { unsigned long long words[16]; };
extern "C" __global__ void kernel(const __grid_constant__ Map given, unsigned long long* out)
{
    __shared__ alignas(128) unsigned char tile[4096];
    __shared__ unsigned long long barrier;
    void* destination = tile; const void* source = tile; const void* tensor_map = &given;
    unsigned long long* mbarrier = &barrier; unsigned long long address = 0;
    int coordinate_0 = 0, coordinate_1 = 0; unsigned bytes = 16, parity = 0, membermask = ~0u, rank = 0;
    unsigned short cta_mask = 1; unsigned long long cache_policy = 0, state = 0;
    const void* shared_address = tile; const void* row = tile; unsigned r[2];
    STATEMENTS
    out[0] = OUTPUT;
}
"""


def compiled(statements: str, output: str = "0", target: str = "sm_90a") -> str:
    pytest.importorskip("cuda.bindings.nvrtc", reason="needs cuda-python and NVRTC")
    import cupytma

    return cupytma.compile(DECLARED.replace("STATEMENTS", statements).replace("OUTPUT", output), target).ptx


@pytest.mark.parametrize(
    ("arguments", "output"),
    [
        (["tensor_load", "--rank", "2", "--multicast", "--cache-hint"], "0"),
        (["tensor_store", "--rank", "2"], "0"),
        (["mbarrier_try_wait_parity"], "wait_complete"),
        (["mbarrier_arrive_expect_tx", "--no-state"], "0"),
        (["bulk_wait_group", "--count", "0"], "0"),
        (["elect_sync"], "is_elected"),
        (["ldmatrix", "--num", "2"], "r[0]"),
    ],
    ids=str,
)
def test_inline_assembly_compiles_where_variables_have_its_names(
    invoke: Invoke, arguments: list[str], output: str
) -> None:
    text = invoke("emit", *arguments, "--as", "asm").stdout
    mnemonic = json.loads(invoke("emit", *arguments, "--json").stdout)["mnemonic"]
    assert mnemonic in compiled(text, output)


def test_the_comments_of_inline_assembly_declare_what_it_takes(invoke: Invoke) -> None:
    lines = invoke("emit", "ldmatrix", "--num", "2", "--as", "asm").stdout.splitlines()
    assert lines[0].startswith("// unsigned r[2]: ")
    assert lines[1].startswith("// const void* row: ")


# Recipes.


def test_recipes_are_listed(invoke: Invoke) -> None:
    text = invoke("emit", "recipe").stdout
    assert all(path in text for path in ptx.RECIPES)
    assert max(map(len, text.splitlines())) <= 80
    assert [r["path"] for r in json.loads(invoke("emit", "recipe", "--json").stdout)] == list(ptx.RECIPES)


@pytest.mark.parametrize("path", ptx.RECIPES)
def test_a_recipe_has_its_instructions_in_order(invoke: Invoke, path: str) -> None:
    lines = invoke("emit", "recipe", path).stdout.splitlines()
    code = [line for line in lines if not line.startswith("//")]
    assert code == [instruction.text for instruction in ptx.recipe(path).instructions]
    steps = json.loads(invoke("emit", "recipe", path, "--json").stdout)["steps"]
    assert [step["instruction"]["ptx"] for step in steps if step["instruction"]] == code


def test_a_recipe_as_inline_assembly_compiles(invoke: Invoke) -> None:
    text = invoke("emit", "recipe", "shared-written-to-store", "--as", "asm", "-t", "sm_90a").stdout
    code = compiled(f"constexpr int count = 0;\n{text}")
    assert code.index("fence.proxy.async") < code.index("cp.async.bulk.tensor") < code.index("commit_group")


@pytest.mark.parametrize("path", ptx.RECIPES)
def test_a_recipe_as_functions_calls_those_of_the_header(invoke: Invoke, path: str) -> None:
    text = invoke("emit", "recipe", path, "--as", "function").stdout
    called = re.findall(r"^cupytma::(\w+)[<(].*\);$", text, re.MULTILINE)
    assert called == [instruction.function_name for instruction in ptx.recipe(path).instructions]


def test_a_recipe_needs_a_target_that_has_all_of_it(invoke: Invoke) -> None:
    assert_refused(invoke("emit", "recipe", "shared-written-to-wgmma", "-t", "sm_100a"), "sm_100a has no wgmma")


# What is wrong.


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([""], ["no instruction"]),
        (["nope"], ["no instruction of the family", "cupytma catalogue"]),
        (["tensor_lod"], ["near it: tensor_load"]),
        (["x" * 5000], ["no instruction"]),
        (["🙂"], ["no instruction"]),
        (["a\0b"], ["no instruction"]),
        ([";"], ["no instruction in it"]),
        (["--as", "asm", "nope"], ["'nope' is no instruction"]),
        (["tensor_load"], ["needs --rank (1, 2, 3, 4, 5)"]),
        (["tensor_load", "--rank", "6"], ["rank=6", "supported: 1, 2, 3, 4, 5"]),
        (["tensor_load", "--rank", "9" * 5000], ["rank="]),
        (["tensor_load", "--rank", "二"], ["rank="]),
        (["tensor_load", "--rank", "none"], ["rank='none'"]),
        (["tensor_load", "--rank"], ["requires an argument"]),
        (["tensor_load", "--rank", "2", "--colour", "red"], ["--colour"]),
        (["tensor_load", "--rank", "2", "--mode", "im2col"], ["rank=2 clashes with mode='im2col'", "3, 4, 5"]),
        (["tensor_load", "--rank", "2", "tile"], ["'tile' is no option"]),
        (["cp.async.bulk.tensor", "--rank", "2"], ["may be tensor_load, tensor_store"]),
        (["cp.async.bulk.tensor.2d", "--rank", "3", "--multicast"], ["says rank=2", "--rank is 3"]),
        (["cp.async.bulk.tensor.2d [%0], [%1, {%2, %3}], [%4];"], ["no instruction"]),
        (["bulk_wait_group", "--count", "64"], ["count=64", "0 to 63"]),
        (["bulk_wait_group", "--count", "-1"], ["count=-1", "0 to 63"]),
        (["bulk_wait_group", "--count", "1e9"], ["no integer"]),
        (["tensor_load", "--rank", "2", "--target", "sm_80"], ["compute capability 9.0"]),
        (["tensor_load", "--rank", "2", "--as", "xml"], ["'xml'"]),
        (["recipe", "nope"], ["no recipe 'nope'"]),
        (["recipe", "barrier-to-lod"], ["near it: barrier-to-load"]),
        (["-", "more"], ["give nothing else"]),
    ],
    ids=lambda value: str(value)[:40].replace("\0", "0"),
)
def test_what_cannot_be_is_refused_in_one_block(invoke: Invoke, arguments: list[str], words: list[str]) -> None:
    assert_refused(invoke("emit", *arguments), *words)


@pytest.mark.parametrize("data", [b"", b"\n", b"\xff\xfe\xfd", b"fence.cta;\0", b"a" * 5_000_000], ids=lambda d: d[:9])
def test_standard_input_that_is_no_ptx_is_refused(invoke: Invoke, data: bytes) -> None:
    assert_refused(invoke("emit", "-", input=data))


@FEW
@given(
    text=st.text(max_size=30) | st.sampled_from(["tensor_load", "fence", "cp.async", "mbarrier"]),
    more=st.lists(st.text(max_size=12) | st.sampled_from(["--rank", "2", "--count", "--scope", "cta"]), max_size=3),
)
def test_any_arguments_end_with_0_or_2(invoke: Invoke, text: str, more: list[str]) -> None:
    assert invoke("emit", text, *more).exit_code in (0, 2)


def test_words_that_no_candidate_has_are_named() -> None:
    found = named("cp.async.bulk.tensor")
    assert found is not None
    with pytest.raises(EmissionError, match="none of tensor_load, tensor_store takes --nothing"):
        found.make({"nothing": "here"})


@pytest.mark.parametrize(
    ("word", "hint"),
    [("rank=2", "write --rank 2"), ("multicast=true", "write --multicast"), ("cta_group=1", "--cta-group 1")],
)
def test_a_word_that_is_assigned_is_told_as_an_option(word: str, hint: str, invoke: Invoke) -> None:
    result = invoke("emit", "tensor_load", word)
    assert result.exit_code == 2
    assert result.stderr.rstrip().endswith(hint)
