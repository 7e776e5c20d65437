"""Addresses in shared memory, taken apart into what they are based on, an index, and a constant."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from math import gcd
from typing import NamedTuple

from cupytma.check.ranges import bounds
from cupytma.check.values import Symbol, Value, Values, add

_DEEPEST = 6
_LARGEST_OFFSET = 1 << 20


class Region(NamedTuple):
    """An address in shared memory.

    Attributes
    ----------
    base : frozenset
        The terms that name the memory: variables, and what rounds their addresses up.
    address : Value
        The whole address.
    is_peer : bool
        Whether it is of another block of the cluster.
    """

    base: frozenset[tuple[int, int]]
    address: Value
    is_peer: bool

    @property
    def is_indexed(self) -> bool:
        """Whether something besides the base and a constant goes into the address."""
        return self.address.terms != self.base


def region_of(values: Values, address: Value, depth: int = 0) -> Region | None:
    """The region of an address; None where it is not known to be in shared memory."""
    base = []
    for number, factor in address.terms:
        symbol = values.symbols[number]
        if _is_shared(values, symbol) or _rounds_down(values, symbol) or _offset_of(values, symbol):
            base.append((number, factor))
        elif symbol.kind in ("peer", "operation") and depth < _DEEPEST and factor == 1:
            inner = _masked(values, symbol)
            found = region_of(values, inner, depth + 1) if inner is not None else None
            if found is not None:
                rest = Value(address.terms - {(number, factor)}, address.constant)
                return Region(found.base, add(found.address, rest), True)
    named = [values.symbols[number] for number, factor in base if factor == 1]
    if not any(_is_shared(values, symbol) or _rounds_down(values, symbol) for symbol in named):
        return None
    return Region(frozenset(base), address, False)


def _is_shared(values: Values, symbol: Symbol) -> bool:
    return symbol.kind == "address" and symbol.data[0] == "shared"


def _rounds_down(values: Values, symbol: Symbol) -> bool:
    """Whether an operation clears the low bits of a shared address."""
    if symbol.kind != "operation" or symbol.data[0] != "and" or len(symbol.data) != 3:
        return False
    masked, mask = values.value(symbol.data[1]), values.value(symbol.data[2])
    cleared = ~mask.constant & 0xFFFFFFFF
    if not mask.is_constant or cleared >= _LARGEST_OFFSET or cleared & (cleared + 1):
        return False
    return any(factor == 1 and _is_shared(values, inner) for inner, factor in values.terms(masked))


def _variables(values: Values, base: frozenset[tuple[int, int]], depth: int = 0) -> set[int]:
    """The variables that a base is made of."""
    found: set[int] = set()
    for number, _ in base:
        symbol = values.symbols[number]
        if _is_shared(values, symbol):
            found.add(number)
        elif symbol.kind == "operation" and depth < _DEEPEST:
            for part in symbol.data[1:]:
                found |= _variables(values, values.value(part).terms, depth + 1)
    return found


def _masked(values: Values, symbol: Symbol) -> Value | None:
    """The own block's address that a peer's address was made of, by mapa or by bits that are cleared."""
    if symbol.kind == "peer":
        return values.value(symbol.data[0])
    if symbol.data[0] == "and" and len(symbol.data) == 3 and values.value(symbol.data[2]).is_constant:
        mask = values.value(symbol.data[2]).constant
        return values.value(symbol.data[1]) if not 0 <= mask < _LARGEST_OFFSET else None
    return None


def _offset_of(values: Values, symbol: Symbol) -> bool:
    """Whether an operation gives a small number from nothing but shared addresses: what rounds one up."""
    if symbol.kind != "operation" or symbol.data[0] != "and" or len(symbol.data) != 3:
        return False
    masked, mask = values.value(symbol.data[1]), values.value(symbol.data[2])
    if not mask.is_constant or not 0 <= mask.constant < _LARGEST_OFFSET or not masked.terms:
        return False
    return all(_is_shared(values, inner) for inner, _ in values.terms(masked))


def may_be_one(values: Values, first: Region, second: Region) -> bool:
    """Whether two addresses may be equal."""
    if first.base != second.base:
        # One variable reached in two ways may be one place; two variables are none.
        return bool(_variables(values, first.base) & _variables(values, second.base))
    # What changes from one time to another does not cancel, though it is the same symbol.
    fixed, changing = _parted(values, first.address)
    other_fixed, other_changing = _parted(values, second.address)
    difference = add(fixed, other_fixed, -1)
    factors = [factor for value in (difference, changing, other_changing) for _, factor in value.terms]
    if not factors:
        return difference.constant == 0
    if difference.constant % gcd(*map(abs, factors)):
        return False
    low, high = bounds(values, add(difference, changing))
    least, most = bounds(values, other_changing)
    return (low is None or most is None or low <= most) and (high is None or least is None or least <= high)


def _parted(values: Values, address: Value) -> tuple[Value, Value]:
    """What of an address stays the same while a thread runs, and what may change."""
    changing = frozenset(term for term in address.terms if values.varies(term[0]))
    return Value(address.terms - changing, address.constant), Value(changing, 0)


class Anchors:
    """The places in shared memory that instructions of the family name, by which it is divided into parts."""

    def __init__(self, regions: Iterable[Region]) -> None:
        self._places: dict[frozenset[tuple[int, int]], list[int]] = {}
        for region in regions:
            self._places.setdefault(region.base, []).append(region.address.constant)
        for places in self._places.values():
            places.sort()

    def part_of(self, region: Region) -> tuple[frozenset[tuple[int, int]], int]:
        """The part that an address lies in, as far as its constant says: its base and where the part begins."""
        places = self._places.get(region.base, [])
        at = bisect_right(places, region.address.constant)
        return region.base, places[at - 1] if at else -1
