"""PTX text to `Instruction`: any spelling that assembles, and the spellings of the compilers' documents, with notes."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache

from cupytma.errors import EmissionError
from cupytma.ptx import tensor, tensormap
from cupytma.ptx.catalogue import catalogue
from cupytma.ptx.checks import shown
from cupytma.ptx.instruction import Instruction
from cupytma.ptx.literals import INTEGER, number, refuse_operand, unfit
from cupytma.ptx.reductions import REDUCTIONS

_COMMENT = re.compile(r"//[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_GUARD = re.compile(r"@!?%?[\w$]+\s+")
# A register, a placeholder, a name, a number, or a sum of those; not the sink symbol, which is written where a form has
# no operand.
_OPERAND = r"((?!_[,|])[%\w.+!-]+)"
_PLACEHOLDER = re.compile(r"%\d+")
_DIMENSION = re.compile(r"[1-5]d")
_LONGEST_MNEMONIC = 400
_ALIKE = 30
_SPACES = ("global", "shared::cta", "shared::cluster")
_COMPLETION = "mbarrier::complete_tx::bytes"
_LOAD_MODES = ("tile", "tile::gather4", "im2col", "im2col::w", "im2col::w::128")
_MODES = (*_LOAD_MODES, "tile::scatter4", "im2col_no_offs")


@dataclass
class _Reading:
    """A mnemonic as words, its arguments, and what was noticed on the way."""

    words: list[str]
    arguments: str
    notes: list[str]


def parse(text: str) -> Instruction:
    """The instruction that a line of PTX is.

    Registers, placeholders (``%0``, ``$0``) and literals may stand for the operands; a literal in the place of an
    immediate is bound to it. The modifiers may be in another order than the documented one, and the founding documents'
    spellings are taken as well; the instruction's ``notes`` then say what differs.

    Parameters
    ----------
    text : str
        One instruction, with or without a guard predicate, a comment and the semicolon.

    Returns
    -------
    Instruction
        Its ``text`` has the documented spelling.

    Raises
    ------
    EmissionError
        If it is no instruction of the family, or its operands do not fit; the message says what would.
    """
    return read(text).instruction


@dataclass(frozen=True)
class Statement:
    """A line of PTX: the instruction, what stands for each operand by its name, and the guard predicate, if any."""

    instruction: Instruction
    given: dict[str, str]
    guard: str


def plain(text: object) -> str:
    """A line of PTX without comments, line breaks and the semicolon, with ``%0`` for ``$0``.

    Raises
    ------
    EmissionError
        If it is no text.
    """
    if not isinstance(text, str):
        raise EmissionError(f"{shown(text)} is no PTX text")
    return " ".join(_COMMENT.sub(" ", text).replace("$", "%").split()).rstrip("; ")


def statements(text: str) -> list[str]:
    """The statements of PTX, split at their semicolons."""
    return [line for line in map(plain, _COMMENT.sub(" ", text).split(";")) if line]


def read(text: str) -> Statement:
    """A line of PTX with all that it says.

    Raises
    ------
    EmissionError
        As `parse` does.
    """
    line = plain(text)
    guard = _GUARD.match(line)
    mnemonic, _, arguments = line[guard.end() if guard else 0 :].partition(" ")
    if len(mnemonic) > _LONGEST_MNEMONIC:
        raise EmissionError(f"{shown(mnemonic)} is no instruction of the family")
    reading = _Reading(mnemonic.split("."), arguments.strip(), [])
    for rule in _RULES:
        rule(reading)
    candidates, reordered = _candidates(reading.words)
    if not candidates:
        raise EmissionError(_unknown(reading.words))
    match = next(_matches(candidates, reading), None)
    if match is None:
        raise EmissionError(_misfit(candidates, reading))
    found, given = match
    if reordered:
        reading.notes.append(f"the documented order of the modifiers is {found.mnemonic}")
    noted = replace(found, notes=tuple(reading.notes)) if reading.notes else found
    return Statement(noted, given, guard[0].strip() if guard else "")


def _matches(candidates: tuple[Instruction, ...], reading: _Reading) -> Iterator[tuple[Instruction, dict[str, str]]]:
    """The forms whose operands the arguments fit, immediates bound, with what stands for the operands."""
    squeezed = reading.arguments.replace(" ", "")
    for form in candidates:
        found = _pattern(form.arguments).fullmatch(squeezed)
        if found is None:
            continue
        given = {o.name: value for o, value in zip(form.operands, found.groups(), strict=True)}
        for place, operand in enumerate(form.operands):
            refuse_operand(operand, given[operand.name], has_coordinates=f"[%{place}, {{" in form.arguments)
            reading.notes += unfit(operand, given[operand.name])
        size, stands = form.arguments.rpartition(", ")[2], squeezed.rpartition(",")[2]
        if size.isdigit() and _PLACEHOLDER.fullmatch(stands):
            reading.notes.append(f'{stands} stands for the constant {size}, with the constraint "n"')
        literals = {
            o.name: number(o.name, value)
            for o, value in zip(form.operands, found.groups(), strict=True)
            if o.is_immediate and value[0] in "-.0123456789"
        }
        yield (form.bind(**literals) if literals else form), given


@cache
def _pattern(arguments: str) -> re.Pattern[str]:
    """A regular expression for a form's arguments, whatever stands for its operands and however numbers are written."""

    def matching(part: str) -> str:
        if _PLACEHOLDER.fullmatch(part):
            return _OPERAND
        return rf"(?:(?:{part}|0[xX]0*{int(part):x})[uU]?|%\d+)" if part.isdigit() else re.escape(part)

    parts = re.findall(r"%\d+|\d+|.", arguments.replace(" ", ""))
    return re.compile("".join(map(matching, parts)), re.ASCII)


@cache
def _index() -> dict[tuple[tuple[str, ...], tuple[str, ...]], tuple[Instruction, ...]]:
    index: dict[tuple[tuple[str, ...], tuple[str, ...]], list[Instruction]] = {}
    for form in catalogue():
        index.setdefault(_key(form.mnemonic.split(".")), []).append(form)
    return {key: tuple(forms) for key, forms in index.items()}


def _key(words: list[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What is the same for all orders that the assembler takes: the words, and the spaces' and policies' own order."""
    ordered = tuple(w for w in words if w in _SPACES or w.startswith("L2::evict"))
    return tuple(sorted(words)), ordered


def _candidates(words: list[str]) -> tuple[tuple[Instruction, ...], bool]:
    forms = _index().get(_key(words), ())
    exact = tuple(form for form in forms if form.mnemonic.split(".") == words)
    return exact or forms, not exact


@cache
def _mnemonics() -> dict[str, frozenset[str]]:
    """Every mnemonic with its words."""
    return {form.mnemonic: frozenset(form.mnemonic.split(".")) for form in catalogue()}


def _unknown(words: list[str]) -> str:
    mnemonic = ".".join(words)
    # Comparing letters takes long, so only with those that have the most words in common.
    given = set(words)
    known = sorted(_mnemonics().items(), key=lambda item: (-len(item[1] & given), len(item[1] ^ given)))
    longer = sorted((name for name in _mnemonics() if name.startswith(f"{mnemonic}.")), key=len)[:3]
    near = longer or difflib.get_close_matches(mnemonic, [name for name, _ in known[:_ALIKE]], n=3, cutoff=0.5)
    return f"{shown(mnemonic)} is no instruction of the family" + (f"; near it: {', '.join(near)}" if near else "")


def _count(arguments: str) -> int:
    """How many arguments there are, those in brackets and braces counted as one."""
    return len(re.sub(r"[\[{][^\]}]*[\]}]*", "x", arguments).split(",")) if arguments else 0


def _misfit(candidates: tuple[Instruction, ...], reading: _Reading) -> str:
    words = reading.words
    legal = " or ".join(dict.fromkeys(form.arguments or "no operands" for form in candidates))
    given = reading.arguments if len(reading.arguments) < 200 else shown(reading.arguments)
    message = f"the operands of {'.'.join(words)} do not fit: {given or 'none'}; it takes {legal}"
    modifiers = {"cta_mask": ("multicast::cluster", "mask"), "cache_policy": ("L2::cache_hint", "cache hint")}
    names = {operand.name for form in candidates for operand in form.operands}
    count, counts = _count(reading.arguments), [_count(form.arguments) for form in candidates]
    for name, (modifier, what) in modifiers.items():
        if name in names and count < min(counts):
            message += f". .{modifier} needs its operand, the {what}"
        elif name not in names and count > max(counts) and _key([*words, modifier]) in _index():
            message += f". A {what} needs the modifier .{modifier}"
    return message


# The rules that turn a spelling into the one that assembles. Each changes the reading in place.


_TAKES_BARE_SHARED = (("mbarrier",), ("ldmatrix",), ("stmatrix",), ("cp", "async", "mbarrier"))


def _bare_shared(reading: _Reading) -> None:
    """Plain .shared, where it is taken; where it is not, what to write instead."""
    words = reading.words
    if "shared" not in words:
        return
    named = ["shared::cta" if word == "shared" else word for word in words]
    if any(tuple(words[: len(start)]) == start for start in _TAKES_BARE_SHARED):
        reading.words = named
        reading.notes.append(".shared means .shared::cta")
    elif "bulk" in words or words[0] in ("tensormap", "fence", "mapa", "getctarank"):
        raise EmissionError(
            f"{shown('.'.join(words))}: bare .shared is refused here; write .shared::cta or .shared::cluster"
        )


def _underscored_modes(reading: _Reading) -> None:
    spelt = {
        "im2col_w": "im2col::w",
        "im2col_w_128": "im2col::w::128",
        "gather4": "tile::gather4",
        "scatter4": "tile::scatter4",
    }
    for i, word in enumerate(reading.words):
        if word in spelt:
            reading.words[i] = spelt[word]
            reading.notes.append(f"PTX spells .{word} as .{spelt[word]}")


def _reducing_copy(reading: _Reading) -> None:
    words = reading.words
    if words[:4] == ["cp", "async", "bulk", "tensor"] and any(word in REDUCTIONS for word in words):
        words.insert(1, "reduce")
        reading.notes.append("a reduction is cp.reduce.async.bulk.tensor; its operation is no modifier of a copy")
    if "reduce" in words and "tile::scatter4" in words:
        tensor.REDUCE.build(rank=2, reduction="add", mode="tile::scatter4", cache_hint=False)  # raises, and says why


def _tensor_words(reading: _Reading) -> None:
    """What the documents leave out of tensor copies: the mode, the completion mechanism, the level of a prefetch."""
    words = reading.words
    at = next((i for i, word in enumerate(words) if _DIMENSION.fullmatch(word)), None)
    if at is None or "tensor" not in words or not any(word in _SPACES for word in words):
        return
    loads, prefetches = "global" in words and "shared::cta" not in words[words.index("global") :], "prefetch" in words
    if prefetches and "L2" not in words:
        words.insert(at + 1, "L2")
        reading.notes.append("a prefetch names its level, .L2")
    if not loads and "im2col" in words:
        words[words.index("im2col")] = "im2col_no_offs"
        reading.notes.append("a store's im2col mode is spelt .im2col_no_offs")
    if not any(word in _MODES for word in words):
        last = max(i for i, word in enumerate(words) if word in _SPACES)
        while not loads and last + 1 < len(words) and words[last + 1] in REDUCTIONS:
            last += 1
        words.insert(last + 1, "tile")
        reading.notes.append("without a mode it is .tile")
    if prefetches:
        return
    mode_at = max(i for i, word in enumerate(words) if word in (*_MODES, *_SPACES))
    needed = _COMPLETION if loads else "bulk_group"
    if needed not in words:
        words.insert(mode_at + 1, needed)
        reading.notes.append(f".{needed} is mandatory; the assembler refuses the instruction without it")


def _missing_offsets(reading: _Reading) -> None:
    words = reading.words
    rank = next((int(word[0]) for word in words if _DIMENSION.fullmatch(word)), 0)
    if "im2col" not in words or "tensor" not in words or rank < 3 or reading.arguments.count("{") != 1:
        return
    offsets = ", ".join(["%offset"] * (rank - 2))
    head, closing, tail = reading.arguments.rpartition("[") if "prefetch" not in words else (reading.arguments, "", "")
    barrier, bracket, rest = tail.partition("]")
    reading.arguments = f"{head}{closing}{barrier}{bracket}, {{{offsets}}}{rest}"
    reading.notes.append(f"an im2col load has {rank - 2} 16-bit offsets after the mbarrier; they are missing")


def _map_copy(reading: _Reading) -> None:
    if reading.words[:3] == ["tensormap", "cp", "async"]:
        reading.words = tensormap.CP_FENCEPROXY.build(scope="cta").mnemonic.split(".")
        reading.arguments += ", 128"
        reading.notes.append(
            "there is no tensormap.cp.async: a tensor map is copied from shared to global memory by "
            "tensormap.cp_fenceproxy, which also releases it"
        )


_FIELD_ALIASES = {
    "swizzle": "swizzle_mode",
    "interleave": "interleave_layout",
    "fill": "fill_mode",
    "elem_type": "elemtype",
    "box_size": "box_dim",
}


def _map_field(reading: _Reading) -> None:
    words = reading.words
    if words[:3] != ["tensormap", "replace", "tile"] or len(words) < 4:
        return
    field = _FIELD_ALIASES.get(words[3], words[3])
    if field not in tensormap.REPLACE_FIELDS:
        raise EmissionError(
            f"tensormap.replace has no field {shown(words[3])}; it has: {', '.join(tensormap.REPLACE_FIELDS)}"
        )
    if field != words[3]:
        reading.notes.append(f"the field is spelt .{field}")
    rest = words[4:]
    ordinals = [word for word in rest if INTEGER.fullmatch(word)]
    space = next((word for word in rest if word in ("global", "shared::cta")), "generic")
    full = tensormap.REPLACE.build(field=field, space=space).mnemonic.split(".")
    if ordinals:
        reading.arguments = reading.arguments.replace(",", f", {ordinals[0]},", 1)
        reading.notes.append("the ordinal is the second operand, not a modifier")
    if "b1024" not in rest or full[-1] not in rest:
        where = "" if space != "generic" else "; without an address space the address is generic"
        reading.notes.append(f"the widths .b1024.{full[-1]} must be written{where}")
    reading.words = full


_RULES: tuple[Callable[[_Reading], None], ...] = (
    _bare_shared,
    _underscored_modes,
    _reducing_copy,
    _tensor_words,
    _missing_offsets,
    _map_copy,
    _map_field,
)
