"""Registers that are written more than once, told apart by the writes that can reach each use.

Compilers use one register for what were different variables, and for one variable before and in a loop. Each use is
given a name of its own that says which writes reach it, so that a use which one write alone reaches has its value.
"""

from __future__ import annotations

import re

from cupytma.check.flow import Flow
from cupytma.check.module import Function
from cupytma.check.written import REGISTER, written

_MOST_WRITES = 1 << 15
# A use that more writes reach than this is taken to be reached by all writes of its register.
_MOST_TOLD_APART = 64


def rename_by_reaching_writes(function: Function, flow: Flow) -> None:
    """Rename the registers of a function that have several writes, in place."""
    several = _several(function)
    if not several:
        return
    places = [(index, name) for index, name in _writes(function, several)]
    if len(places) > _MOST_WRITES:
        return
    bits = {place: 1 << number for number, place in enumerate(places)}
    masks: dict[str, int] = {}
    for (_, name), bit in bits.items():
        masks[name] = masks.get(name, 0) | bit
    entering = _entering(flow, places, bits, masks)
    _Renamer(function, flow, several, bits, masks).rename(entering)


def _several(function: Function) -> frozenset[str]:
    counts: dict[str, int] = {}
    for statement in function.statements:
        for name in written(statement):
            counts[name] = counts.get(name, 0) + 1
    return frozenset(name for name, count in counts.items() if count > 1)


def _writes(function: Function, several: frozenset[str]) -> list[tuple[int, str]]:
    return [
        (statement.index, name)
        for statement in function.statements
        for name in dict.fromkeys(written(statement))
        if name in several
    ]


def _entering(
    flow: Flow, places: list[tuple[int, str]], bits: dict[tuple[int, str], int], masks: dict[str, int]
) -> list[int]:
    """The writes that can reach the beginning of each block, as bits."""
    begins = [0] * len(flow.blocks)
    ends = [0] * len(flow.blocks)
    for place in places:
        block = flow.block_of(place[0])
        begins[block] = begins[block] & ~masks[place[1]] | bits[place]
        ends[block] |= masks[place[1]]
    entering = [0] * len(flow.blocks)
    waiting = list(range(len(flow.blocks)))[::-1]
    while waiting:
        block = waiting.pop()
        leaving = entering[block] & ~ends[block] | begins[block]
        for following in flow.successors[block]:
            if leaving & ~entering[following]:
                entering[following] |= leaving
                waiting.append(following)
    return entering


class _Renamer:
    """Goes through the blocks with what reaches them."""

    def __init__(
        self, function: Function, flow: Flow, several: frozenset[str], bits: dict[tuple[int, str], int],
        masks: dict[str, int],
    ) -> None:  # fmt: skip
        self._function, self._flow, self._several = function, flow, several
        self._bits, self._masks = bits, masks
        self._places: dict[str, list[int]] = {}
        for place, name in bits:
            self._places.setdefault(name, []).append(place)
        self._names: dict[tuple[str, int], str] = {}

    def rename(self, entering: list[int]) -> None:
        for block in self._flow.blocks:
            reaching = entering[block.index]
            for index in range(block.start, block.stop):
                statement = self._function.statements[index]
                outputs = [name for name in dict.fromkeys(written(statement)) if name in self._several]
                if statement.guard in self._several:
                    statement.guard = self._name(statement.guard, reaching)
                mentioned = self._several.intersection(REGISTER.findall(statement.tail))
                if not mentioned:
                    continue
                new = {name: self._name(name, reaching) for name in mentioned}
                after = {name: self._name(name, self._bits[index, name]) for name in outputs}
                statement.replace_tail(self._replaced(statement.tail, new, after))
                for name in outputs:
                    reaching = reaching & ~self._masks[name] | self._bits[index, name]

    def _name(self, name: str, reaching: int) -> str:
        """The name for a use that some writes reach."""
        own = reaching & self._masks[name]
        if not own:
            return name
        if own.bit_count() > _MOST_TOLD_APART:
            own = self._masks[name]
        key = (name, own)
        if key not in self._names:
            new = self._names[key] = f"{name}__v{len(self._names)}"
            self._function.several[new] = tuple(
                place for place in self._places[name] if self._bits[place, name] & own
            )
        return self._names[key]

    @staticmethod
    def _replaced(tail: str, before: dict[str, str], after: dict[str, str]) -> str:
        """A statement's operands with new names: where a register is written first, then read, the first is written."""
        pending = dict(after)

        def new(found: re.Match[str]) -> str:
            name = found[0]
            return pending.pop(name, None) or before.get(name, name)

        return REGISTER.sub(new, tail)
