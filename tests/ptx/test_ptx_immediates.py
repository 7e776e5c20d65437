"""Immediates: every value that a form takes assembles, and one beyond each limit is refused, by the assembler too."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator, Mapping

import pytest
from assembler import Assembler, assemblers

from cupytma import ptx
from cupytma.errors import EmissionError
from cupytma.ptx import Instruction, Operand

pytestmark = pytest.mark.skipif(
    (12, 9) not in assemblers(), reason="needs the NVRTC 12.9 wheel, nvidia-cuda-nvrtc-cu12"
)
WITH_IMMEDIATES = [i for i in ptx.catalogue() if i.immediates]
WITH_SEVERAL = [i for i in WITH_IMMEDIATES if len(i.immediates) > 1]
#: What the assembler takes beyond a limit, and why it is refused here: by family, field and immediate.
TAKEN_BEYOND = {
    ("bulk_wait_group", None, "count"): "it encodes 63 for anything outside 0 to 63",
    ("cp_async_wait_group", None, "count"): "it encodes 63 for anything outside 0 to 63",
    ("wgmma_wait_group", None, "count"): "it encodes 7 for anything above 7",
    ("tensormap_replace", "global_stride", "ordinal"): "a map has four strides, and a fifth overwrites others",
}


def assembler() -> Assembler:
    return assemblers()[12, 9]


def text(i: Instruction, values: Mapping[str, int]) -> str:
    """The text with registers named by class and number, and these immediates, legal or not."""
    numbers: Counter[str] = Counter()
    names = []
    for o in i.operands:
        letter = "p" if o.is_predicate else o.constraint[-1]
        names.append(str(values[o.name]) if o.is_immediate else f"{letter}{numbers[letter]}")
        numbers[letter] += 1
    return re.sub(r"%(\d+)", lambda m: names[int(m[1])], i.text)


def smallest(i: Instruction) -> dict[str, int]:
    return {o.name: o.values[0] for o in i.immediates if o.values}


def beyond(o: Operand) -> Iterator[int]:
    """One value beyond each limit, and between two where there are steps; and what 32 bits do not hold."""
    assert o.values
    yield from (o.values[0] - 1, o.values[-1] + 1, 1 << 32)
    if o.values.step > 1:
        yield o.values[0] + 1


def combinations(i: Instruction) -> Iterator[dict[str, int]]:
    names = [o.name for o in i.immediates]
    return (dict(zip(names, v, strict=True)) for v in itertools.product(*(o.values or () for o in i.immediates)))


def targets_of(i: Instruction) -> list[str]:
    return [t for t in assembler().targets if i.supported_on(t)]


def test_only_wgmma_has_several() -> None:
    assert {i.family for i in WITH_SEVERAL} == {"wgmma_mma_async"}
    assert {len(i.immediates) for i in WITH_SEVERAL} == {2, 3, 4}
    assert all(o.values for i in WITH_IMMEDIATES for o in i.immediates)


def test_every_combination_of_several_immediates_assembles() -> None:
    lines = []
    for i in WITH_SEVERAL:
        for values in combinations(i):
            assert i.bind(**values).bound == tuple(values.items())
            lines.append(text(i, values))
    assert len(lines) == 4608
    assert assembler().refused(lines, "sm_90a") == {}


def test_every_single_immediate_that_claims_a_target_assembles_on_it() -> None:
    bound = [i.bind(**v) for i in WITH_IMMEDIATES if len(i.immediates) == 1 for v in combinations(i)]
    for target in assembler().targets:
        texts = {text(i, {}): i for i in bound if i.ptx_version <= assembler().ptx_version}
        refused = assembler().refused(texts, target)
        assert {t for t, i in texts.items() if not i.supported_on(target)} == set(refused)


def test_one_beyond_each_limit_is_refused_here_and_by_the_assembler() -> None:
    # The width of a product changes nothing about its immediates: the narrowest, a middle one and the widest.
    forms = [i for i in WITH_IMMEDIATES if dict(i.words).get("n", 8) in (8, 64, 256)]
    lines: dict[str, dict[str, tuple[str, str | None, str]]] = {}
    for i in forms:
        for o in i.immediates:
            for value in beyond(o):
                with pytest.raises(EmissionError, match=f"{o.name}={value} is out of range; legal: "):
                    i.bind(**{o.name: value})
                field = dict(i.words).get("field")
                what = (i.family, field if isinstance(field, str) else None, o.name)
                for target in targets_of(i)[:1]:
                    lines.setdefault(target, {})[text(i, {**smallest(i), o.name: value})] = what
    taken = set()
    for target, texts in lines.items():
        refused = assembler().refused(texts, target)
        taken |= {what for line, what in texts.items() if line not in refused}
    assert taken == set(TAKEN_BEYOND)


@pytest.mark.parametrize("value", [True, 1.0, "1", None, [1]])
def test_an_immediate_is_a_whole_number(value: object) -> None:
    with pytest.raises(EmissionError, match=r"count=.* is out of range; legal: 0 to 63"):
        ptx.bulk_wait_group().bind(count=value)  # type: ignore[arg-type]


def test_a_numpy_integer_is_bound_as_a_number() -> None:
    numpy = pytest.importorskip("numpy")
    bound = ptx.bulk_wait_group().bind(count=numpy.uint8(7))
    assert bound == ptx.bulk_wait_group().bind(count=7)
    assert repr(bound) == "bulk_wait_group(read=False).bind(count=7)"
