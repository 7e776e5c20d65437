"""What `check_rebind` must refuse: every change of a right sequence, but for those that are listed as harmless."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cupytma import ptx
from cupytma.errors import EmissionError

NEEDED = {"block": "cta", "cluster": "gpu", "grid": "gpu", "host": "sys"}
SCOPES = ("cta", "cluster", "gpu", "sys")
MAP, STAGED, TEMPLATE = "%rd1", "%r1", "%r2"
FORMS = list(itertools.product((1, 2, 5), ("global", "shared::cta"), (False, True), NEEDED))


def written(i: ptx.Instruction, space: str) -> str:
    """PTX text with registers: one for the map, one for its staged copy, one for a template."""
    names = {"destination": MAP, "source": STAGED if space == "shared::cta" else TEMPLATE, "tensor_map": MAP}
    if i.family == "tensormap_replace" and space == "shared::cta":
        names["tensor_map"] = STAGED
    given_names = [names.get(o.name, f"%v{n}") for n, o in enumerate(i.operands)]
    if i.family == "tensor_load":
        given_names[0] = "%v0"
    return re.sub(r"%(\d+)", lambda match: given_names[int(match[1])], i.text)


def sequence(rank: int, space: str, seeded: bool, within: str) -> list[str]:
    """A right sequence: the rebinding, then an acquire and a load of who uses the map."""
    made = ptx.rebind(rank=rank, space=space, seeded=seeded, scope=NEEDED[within])
    return [written(i, space) for i in (*made.instructions, made.acquire, ptx.tensor_load(rank=rank))]


def is_replace(line: str) -> bool:
    return line.startswith("tensormap.replace")


def is_copy(line: str) -> bool:
    return line.startswith("tensormap.cp_fenceproxy")


def mutations(lines: list[str], space: str) -> Iterator[tuple[str, list[str], str]]:
    """Changed sequences: what was done, the lines, and why it does no harm where it does none."""
    staged = space == "shared::cta"
    last = len(lines) - 1

    def at(n: int, *new: str) -> list[str]:
        return [*lines[:n], *new, *lines[n + 1 :]]

    for n, line in enumerate(lines):
        seeds = is_copy(line) and not staged
        harmless = (
            "without a template the map keeps what it had" if seeds else "nothing uses the map" if n == last else ""
        )
        yield f"{n} deleted", at(n), harmless
        once = is_replace(line) or (is_copy(line) and staged)
        yield f"{n} doubled", at(n, line, line), "" if once else "a fence, a template or a use may come again"
        for register in dict.fromkeys(re.findall(r"\[(%\w+)", line)):
            other = {MAP: "%rd9", STAGED: "%r9", TEMPLATE: "%r9"}.get(register)
            if other:
                harmless = "any template will do" if register == TEMPLATE else ""
                yield f"{n} on another address", at(n, line.replace(register, other)), harmless
                yield f"{n} on the next slot", at(n, line.replace(register, f"{register}+128")), harmless
        scope = re.search(r"(?:acquire|release)\.(\w+)", line)
        for narrow in SCOPES[: SCOPES.index(scope[1])] if scope else ():
            yield f"{n} at {narrow}", at(n, line.replace(f".{scope[1]}" if scope else "", f".{narrow}")), ""
        own_thread = is_replace(line) or (line.startswith("fence") and n < last - 1)
        reason = "" if own_thread else "a whole warp or a user executes it, who may be guarded by something else"
        yield f"{n} guarded", at(n, f"@%p1 {line}"), reason
        if is_copy(line):
            swapped = re.sub(r"\[(%\w+)\], \[(%\w+)\]", r"[\2], [\1]", line)
            yield f"{n} source and destination swapped", at(n, swapped), ""
        if line.endswith("128;"):
            yield f"{n} of another size", at(n, line.replace("128;", "64;")), ""
        ordinal = re.search(r"\], (\d), ", line)
        if is_replace(line) and ordinal:
            for wrong in {*range(6)} - {int(ordinal[1])}:
                yield f"{n} ordinal {wrong}", at(n, line.replace(ordinal[0], f"], {wrong}, ")), ""
            yield f"{n} ordinal unknown", at(n, line.replace(ordinal[0], "], %v9, ")), ""
        if is_replace(line):
            yield f"{n} of another field", at(n, line.replace("global_", "box_").replace("box_address", "rank")), ""
            other_space = (
                line.replace(".shared::cta", ".global") if staged else line.replace(".global.", ".shared::cta.")
            )
            yield f"{n} in another space", at(n, other_space), ""
    for n in range(last):
        yield f"{n} and {n + 1} exchanged", [*lines[:n], lines[n + 1], lines[n], *lines[n + 2 :]], ""
    first = 1 if is_copy(lines[0]) else 0
    for n in range(last + 1):
        reason = "" if first < n < last - 1 else "it stands before or after what the fences enclose"
        yield f"a commit at {n}", [*lines[:n], "cp.async.bulk.commit_group;", *lines[n:]], reason
        yield f"what is no instruction at {n}", [*lines[:n], "ld.global.u32 %v1, [%rd1];", *lines[n:]], ""


@pytest.mark.parametrize(("rank", "space", "seeded", "within"), FORMS)
def test_a_right_sequence_is_taken_and_every_harmful_change_of_it_refused(
    rank: int, space: str, seeded: bool, within: str
) -> None:
    lines = sequence(rank, space, seeded, within)
    ptx.check_rebind(lines, rank=rank, within=within)
    ptx.check_rebind("\n".join(lines), rank=rank, within=within)
    missed, too_strict = [], []
    for what, changed, harmless in mutations(lines, space):
        try:
            ptx.check_rebind(changed, rank=rank, within=within)
        except EmissionError:
            too_strict += [(what, harmless)] if harmless else []
        else:
            missed += [] if harmless else [what]
    assert missed == []
    assert too_strict == []


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(FORMS), st.data())
def test_no_other_order_is_taken(form: tuple[int, str, bool, str], data: st.DataObject) -> None:
    rank, space, seeded, within = form
    lines = sequence(rank, space, seeded, within)
    shuffled = data.draw(st.permutations(lines))
    if shuffled == lines:
        ptx.check_rebind(shuffled, rank=rank, within=within)
    else:
        with pytest.raises(EmissionError):
            ptx.check_rebind(shuffled, rank=rank, within=within)


IN_PLACE = sequence(2, "global", False, "grid")


def test_another_register_needs_a_cvta_or_mov_that_makes_it_the_same_address() -> None:
    generic = [line.replace(MAP, "%rd9") if line.startswith(("fence", "cp.")) else line for line in IN_PLACE]
    with pytest.raises(
        EmissionError, match=r"the map's addresses differ: %rd9, %rd1; .* or a cvta or mov must make one"
    ):
        ptx.check_rebind(generic)
    for renaming in ("cvta.to.global.u64 %rd1, %rd9;", "cvta.global.u64 %rd9, %rd1;", "mov.b64 %rd9, %rd1;"):
        ptx.check_rebind([renaming, *generic])
    ptx.check_rebind(["mov.u64 %rd5, %rd9", "cvta.to.global.u64 %rd1, %rd5;", *generic])
    with pytest.raises(EmissionError, match="differ"):
        ptx.check_rebind(["cvta.to.global.u64 %rd1, %rd8;", *generic])


def test_the_staged_copy_is_not_the_map() -> None:
    lines = [line.replace(STAGED, MAP) for line in sequence(1, "shared::cta", True, "grid")]
    with pytest.raises(EmissionError, match="%rd1 is the address of the map and of its staged copy"):
        ptx.check_rebind(lines)


def test_generic_addresses_are_judged_by_what_publishes_them() -> None:
    in_place = [line.replace(".global.b1024", ".b1024") for line in IN_PLACE]
    ptx.check_rebind(in_place)
    staged = [line.replace(".shared::cta.b1024", ".b1024") for line in sequence(2, "shared::cta", True, "grid")]
    ptx.check_rebind(staged)
    generic = [line.replace(STAGED, "%rd7") if is_replace(line) else line for line in staged]
    with pytest.raises(EmissionError, match="the addresses of the staged copy differ: %rd7, %r1"):
        ptx.check_rebind(generic)
    ptx.check_rebind(["cvta.shared.u64 %rd7, %r1;", *generic])


def test_barriers_of_the_warp_and_the_block_may_stand_anywhere() -> None:
    lines = sequence(2, "shared::cta", True, "grid")
    ptx.check_rebind([line for one in lines for line in ("bar.warp.sync 0xffffffff;", one, "bar.sync 0;")])


def test_all_of_the_thread_that_replaces_may_be_guarded_alike() -> None:
    guarded = [f"@%p1 {line}" for line in IN_PLACE[:-2]] + [f"@%p2 {line}" for line in IN_PLACE[-2:]]
    ptx.check_rebind(guarded)
    with pytest.raises(EmissionError, match=r"different guards, @%p1 and @!%p1: one thread executes them all"):
        ptx.check_rebind([*guarded[:2], guarded[2].replace("@", "@!"), *guarded[3:]])
    with pytest.raises(EmissionError, match=r"release.gpu has the guard @%p2, the replaces @%p1"):
        ptx.check_rebind([line.replace("@%p1", "@%p2") if ".release" in line else line for line in guarded])


def test_placeholders_tell_a_template_from_the_map() -> None:
    made = ptx.rebind(rank=1, space="global", seeded=True)
    texts = [i.text for i in made.instructions]
    ptx.check_rebind(texts)
    with pytest.raises(EmissionError, match="differ: %0, %1"):
        ptx.check_rebind([texts[0].replace("[%0], [%1]", "[%1], [%0]"), *texts[1:]])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (None, "takes instructions or their text, not None"),
        (3, "takes instructions or their text, not 3"),
        ([], "the sequence replaces nothing"),
        ("", "the sequence replaces nothing"),
        ([None], "instruction 1: None is no PTX text"),
        ([*IN_PLACE[:1], "st.global [x], 1"], "instruction 2: 'st.global' is no instruction of the family"),
        (IN_PLACE[:2], "rank 1 takes 2 replaces, not 1; missing: global_dim"),
        (itertools.repeat(IN_PLACE[0]), "at most 256 instructions"),
    ],
)
def test_what_is_no_sequence_is_refused_by_its_number(wrong: object, message: str) -> None:
    with pytest.raises(EmissionError, match=re.escape(message)):
        ptx.check_rebind(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("within", ["gpu", None, ["grid"], 3])
def test_within_is_one_of_four_words(within: object) -> None:
    with pytest.raises(
        EmissionError, match=r"within=.* is not supported; supported: 'block', 'cluster', 'grid', 'host'"
    ):
        ptx.check_rebind(IN_PLACE, within=within)  # type: ignore[arg-type]


@pytest.mark.parametrize("words", [{"seeded": 1}, {"space": ["global"]}, {"scope": "block"}, {"space": "generic"}])
def test_rebind_refuses_other_words(words: dict[str, object]) -> None:
    with pytest.raises(EmissionError, match=r"^rebind: .* is not supported; supported: "):
        ptx.rebind(rank=2, **words)  # type: ignore[arg-type]
