"""The checker of sequences that point a tensor map at another tensor: their order, fences, scopes, map and thread."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from cupytma.errors import EmissionError
from cupytma.ptx.checks import checked_integer, checked_word, shown
from cupytma.ptx.instruction import Instruction
from cupytma.ptx.parse import plain, read, statements
from cupytma.ptx.rebind import RANKS, Rebind
from cupytma.ptx.tensormap import SCOPES

#: The narrowest scope for whom the fence is between: threads of a block, blocks of a grid, the host and the device.
SCOPE_WITHIN = {"block": "cta", "cluster": "gpu", "grid": "gpu", "host": "sys"}

_REPLACE, _COPY = "tensormap_replace", "tensormap_cp_fenceproxy"
_ACQUIRE, _RELEASE = "fence_proxy_tensormap_acquire", "fence_proxy_tensormap_release"
# What reads a map through the tensormap proxy.
_USES = ("tensor_load", "tensor_store", "tensor_reduce", "tensor_prefetch", "prefetch_tensormap")
_PLACEHOLDER = re.compile(r"%\d+")
# Lines of PTX beside the family that a sequence has: another name for an address, and barriers of threads.
_RENAMING = re.compile(
    r"(?:cvta(?:\.to)?\.(?:global|shared|shared::cta)\.u(?:32|64)|mov\.[bu]64) (%?\w+) ?, ?(%?[\w.]+)", re.ASCII
)
_BARRIER = re.compile(r"(?:bar|barrier)\.(?:warp\.|cta\.)?sync\b")
_LONGEST = 256


@dataclass(frozen=True)
class _Item:
    """One instruction of a sequence: its form, what text gives for its operands, and the predicate that guards it."""

    form: Instruction
    given: dict[str, str]
    guard: str = ""

    def address(self, operand: str) -> str:
        """What stands for an address, without an offset of zero; empty where the sequence does not say."""
        return re.sub(r"\+0+$", "", self.given.get(operand, ""))


def check_rebind(
    sequence: Iterable[Instruction | str] | str | Rebind, *, rank: int | None = None, within: str = "grid"
) -> None:
    """Refuse a rebind sequence that is out of order, lacks a fence, or has fences of too narrow a scope.

    Between the fences only the replaces may stand. All that text names must be of one map and of one thread: the same
    address in the replaces, in the fences, in the copy and in what uses the map afterwards, and one guard predicate
    around the replaces and their fences. Uses of the map may follow after an acquire. Uses of the map as it was before
    do not belong into the sequence.

    Parameters
    ----------
    sequence : iterable of Instruction or str, str, or Rebind
        The instructions in the order of execution, as forms or as PTX text; or PTX with a semicolon after each. Text
        may also have ``cvta`` and ``mov``, which say that two names are one address, and barriers of the warp or block.
    rank : int, optional
        Of the tensor map, 1 to 5. Default: as many dimensions as are replaced.
    within : str
        Whom the fences are between: threads of one ``"block"``, blocks of a ``"cluster"`` or ``"grid"``, or the
        ``"host"`` and the device.

    Raises
    ------
    EmissionError
        With one sentence per fault; for text that is no instruction of the family; and for an argument of another kind.

    Notes
    -----
    Placeholders such as ``%0`` number the operands of one asm statement. They tell the map that is replaced from others
    and nothing more, and forms have no addresses at all.
    """
    within = checked_word("check_rebind", "within", within, SCOPE_WITHIN)
    if rank is not None:
        rank = checked_integer("check_rebind", "rank", rank, RANKS)
    read_sequence = _Sequence(*_items(sequence))
    problems = [
        *_order_problems(read_sequence, rank),
        *_fence_problems(read_sequence),
        *_scope_problems(read_sequence, within),
        *_address_problems(read_sequence),
        *_thread_problems(read_sequence),
    ]
    if problems:
        raise EmissionError("; ".join(dict.fromkeys(problems)))


def _items(sequence: object) -> tuple[list[_Item], dict[str, str]]:
    """The instructions, and for a name of an address that text makes of another name, that one."""
    items: list[_Item] = []
    names: dict[str, str] = {}
    for number, given in enumerate(_listed(sequence), 1):
        if isinstance(given, Instruction):
            items.append(_Item(given, {}))
            continue
        try:
            line = plain(given)
            renaming = _RENAMING.fullmatch(line)
            if renaming:
                names[renaming[1]] = names.get(renaming[2], renaming[2])
            elif not _BARRIER.match(line):
                statement = read(line)
                items.append(_Item(statement.instruction, statement.given, statement.guard))
        except EmissionError as error:
            raise EmissionError(f"instruction {number}: {error}") from None
    return items, names


def _listed(sequence: object) -> Iterator[object]:
    if isinstance(sequence, Rebind):
        return iter(sequence.instructions)
    if isinstance(sequence, str):
        return iter(statements(sequence))
    try:
        listed = list(itertools.islice(sequence, _LONGEST + 1))  # type: ignore[call-overload]
    except Exception:  # a caller's iterable may raise anything
        raise EmissionError(f"check_rebind takes instructions or their text, not {shown(sequence)}") from None
    if len(listed) > _LONGEST:
        raise EmissionError(f"check_rebind takes at most {_LONGEST} instructions; a sequence for rank 5 has 12")
    return iter(listed)


@dataclass(frozen=True)
class _Sequence:
    """A sequence with the places of its parts."""

    items: list[_Item]
    names: dict[str, str]

    @cached_property
    def families(self) -> list[str]:
        return [item.form.family for item in self.items]

    @cached_property
    def replaces(self) -> list[int]:
        """The places of the replaces."""
        return [n for n, family in enumerate(self.families) if family == _REPLACE]

    @cached_property
    def spaces(self) -> list[str]:
        """The spaces of the replaces, each once."""
        return list(dict.fromkeys(str(dict(self.items[n].form.words)["space"]) for n in self.replaces))

    @cached_property
    def staged(self) -> bool:
        """Whether the fields are replaced in shared memory; what publishes the map tells it of generic addresses."""
        after = self.families[self.replaces[-1] :] if self.replaces else []
        return self.spaces[:1] == ["shared::cta"] or (
            self.spaces[:1] == ["generic"] and _COPY in after and _RELEASE not in after
        )

    @cached_property
    def opening(self) -> int | None:
        """The place of the last acquire before the replaces."""
        return max((n for n in range(self.replaces[0]) if self.families[n] == _ACQUIRE), default=None)

    @cached_property
    def closing(self) -> int | None:
        """The place of what publishes the map after the replaces."""
        wanted = _COPY if self.staged else _RELEASE
        later = range(self.replaces[-1] + 1, len(self.items))
        return next((n for n in later if self.families[n] == wanted), None)

    def name(self, address: str) -> str:
        """The first name of an address that has several."""
        base, sign, offset = re.fullmatch(r"(%?[\w.]*)([+-]?)(.*)", address, re.DOTALL).groups()  # type: ignore[union-attr]
        return f"{self.names.get(base, base)}{sign}{offset}"


def _order_problems(sequence: _Sequence, rank: int | None) -> list[str]:
    if not sequence.replaces:
        return ["the sequence replaces nothing"]
    forms = [sequence.items[n].form for n in sequence.replaces]
    found = [(str(dict(form.words)["field"]), dict(form.bound).get("ordinal", 0)) for form in forms]
    for form in forms:
        if any(operand.name == "ordinal" for operand in form.operands):
            return [f"{form.mnemonic} does not say which dimension: its ordinal must be a number"]
    dims = rank if rank is not None else max(1, sum(field == "global_dim" for field, _ in found))
    expected = [
        ("global_address", 0),
        *(("global_dim", i) for i in range(dims)),
        *(("global_stride", i) for i in range(dims - 1)),
    ]
    if found == expected:
        return []
    spoken = {pair: pair[0] if pair[0] == "global_address" else f"{pair[0]}[{pair[1]}]" for pair in (*expected, *found)}
    if sorted(found) == sorted(expected):
        return [f"the replaces are out of order; the order is {', '.join(spoken[pair] for pair in expected)}"]
    problems = [f"rank {dims} takes {2 * dims} replaces, not {len(found)}"]
    missing = [spoken[pair] for pair in expected if pair not in found]
    extra = [spoken[pair] for n, pair in enumerate(found) if pair not in expected or pair in found[:n]]
    problems += [f"missing: {', '.join(missing)}"] if missing else []
    return problems + ([f"not part of it: {', '.join(extra)}"] if extra else [])


def _fence_problems(sequence: _Sequence) -> list[str]:
    if not sequence.replaces:
        return []
    if len(sequence.spaces) > 1:
        spaces = " and ".join(sequence.spaces)
        return [f"the replaces are in different spaces, {spaces}; a map is changed in one"]
    staged, opening, closing = sequence.staged, sequence.opening, sequence.closing
    problems = []
    if opening is None and not staged:
        problems.append("an acquire fence of the tensormap proxy is missing before the first replace")
    if closing is None:
        what = "tensormap.cp_fenceproxy" if staged else "a release fence of the tensormap proxy"
        problems.append(f"{what} is missing after the last replace")
    start = sequence.replaces[0] if opening is None or staged else opening
    end = len(sequence.items) if closing is None else closing
    acquired = False
    for n, item in enumerate(sequence.items):
        family, mnemonic = item.form.family, item.form.mnemonic
        acquired |= n > end and family == _ACQUIRE
        if n == closing:
            continue
        if family == _COPY and (staged or n > start):
            place = "comes once, right after the last replace" if staged else "belongs before the acquire"
            problems.append(f"{mnemonic} is out of place; here it {place}")
        elif family in _USES and n < end:
            problems.append(f"{mnemonic} uses the map before it is released")
        elif family in _USES and not acquired:
            problems.append(f"{mnemonic} uses the map after its release with no acquire before it")
        elif start < n < end and family != _REPLACE:
            kind = "fence" if "fence" in family else "foreign instruction"
            problems.append(f"a {kind}, {mnemonic}, stands between the replaces and their fences")
    return problems


def _scope_problems(sequence: _Sequence, within: str) -> list[str]:
    needed = SCOPE_WITHIN[within]
    where = "between the host and the device" if within == "host" else f"within a {within}"
    return [
        f"{item.form.mnemonic} has scope .{scope}, too narrow {where}: it needs .{needed}"
        for item in sequence.items
        if item.form.family in (_COPY, _ACQUIRE, _RELEASE)
        and SCOPES.index(scope := str(dict(item.form.words)["scope"])) < SCOPES.index(needed)
    ]


def _address_problems(sequence: _Sequence) -> list[str]:
    """Addresses that are not the map's, or not its staged copy's, although they should be."""
    maps: list[str] = []
    copies: list[str] = []
    problems = []
    for item in sequence.items:
        family, form = item.form.family, item.form
        if family == _REPLACE:
            (copies if sequence.staged else maps).append(item.address("tensor_map"))
        elif family == _COPY:
            maps.append(item.address("destination"))
            if sequence.staged:
                copies.append(item.address("source"))
        elif family == _ACQUIRE or family in _USES:
            maps.append(item.address("tensor_map"))
            space = form.operands[form.index_of("tensor_map")].space
            if space in ("param", "const"):
                problems.append(f"{form.mnemonic} is of another map: one that is changed lies in global memory")
    replaced = [sequence.items[n].address("tensor_map") for n in sequence.replaces]
    seeds = [
        item.address("destination") for item in sequence.items if item.form.family == _COPY and not sequence.staged
    ]
    problems += _differing("the map's addresses", [*replaced, *seeds], sequence, placeholders=True)
    problems += _differing("the map's addresses", maps, sequence)
    problems += _differing("the addresses of the staged copy", copies, sequence)
    both = {sequence.name(a) for a in maps if a} & {sequence.name(a) for a in copies if a}
    both = {name for name in both if not _PLACEHOLDER.fullmatch(name)}
    if both:
        problems.append(f"{', '.join(sorted(both))} is the address of the map and of its staged copy")
    return problems


def _differing(what: str, addresses: list[str], sequence: _Sequence, placeholders: bool = False) -> list[str]:
    kept = [a for a in addresses if a and bool(_PLACEHOLDER.fullmatch(a)) == placeholders]
    names = list(dict.fromkeys(map(sequence.name, kept)))
    if len(names) < 2:
        return []
    return [f"{what} differ: {', '.join(names)}; they must be one, or a cvta or mov must make one of the other"]


def _thread_problems(sequence: _Sequence) -> list[str]:
    """Guard predicates by which not the same threads execute the replaces and their fences."""
    guards = list(dict.fromkeys(sequence.items[n].guard for n in sequence.replaces))
    if len(guards) > 1:
        spoken = " and ".join(guard or "none" for guard in guards)
        return [f"the replaces have different guards, {spoken}: one thread executes them all"]
    places = () if sequence.staged or not sequence.replaces else (sequence.opening, sequence.closing)
    fences = [sequence.items[n] for n in places if n is not None]
    return [
        f"{fence.form.mnemonic} has the guard {fence.guard}, the replaces {guards[0] or 'none'}: the thread that "
        "replaces executes it"
        for fence in fences
        if fence.guard not in ("", *guards)
    ]
