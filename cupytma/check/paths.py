"""The ways through a function that one thread can take: the control flow with what earlier branches have decided.

Whether a thread is the one that was elected, or which role its number gives it, does not change while it runs. A graph
that forgets it has paths that no thread takes: past the wait of thread 0, through the store of thread 0. So a node
here is a block together with the conditions, of those that come again, that were decided on the way to it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from heapq import heappop, heappush
from typing import NamedTuple

from cupytma.check.flow import Edge, Flow, reached, reversed_graph
from cupytma.check.values import Symbol, Value, Values, scaled


class Condition(NamedTuple):
    """Something that a thread finds the same whenever it asks: a sum compared with zero, or a predicate."""

    relation: str  # "eq", "lt" or "is"
    terms: frozenset[tuple[int, int]]
    constant: int


Decided = tuple[tuple[Condition, bool], ...]
Facts = Mapping[int, Sequence[tuple[int, int, int]]]

_MOST_NODES = 6000
_MOST_CONDITIONS = 10
_FIXED = ("special", "parameter", "address", "elected", "elected lane")
_DEEPEST = 8


class Paths:
    """The graph of nodes; node 0 is the entry."""

    def __init__(self, values: Values, flow: Flow, blocks: Sequence[int]) -> None:
        self._values, self._flow = values, flow
        self._in_loops = frozenset().union(*flow.loops) if flow.loops else frozenset()
        self._implied: dict[tuple[str, bool], Decided] = {}
        self.nodes: list[tuple[int, Decided]] = []
        self.successors: list[list[int]] = []
        tracked = self._tracked(blocks)
        while not self._build(frozenset(tracked)):
            tracked = tracked[: len(tracked) // 2]

    def _tracked(self, blocks: Sequence[int]) -> list[Condition]:
        """The conditions that decide about the given blocks and are asked more than once, the most frequent first."""
        counts: Counter[frozenset[tuple[int, int]]] = Counter()
        first: dict[Condition, None] = {}
        for block in self._flow.blocks:
            for condition, _ in {pair for edge in block.edges for pair in self.decides(edge)}:
                counts[condition.terms] += 1
        for block_number in blocks:
            for edge in self._flow.conditions(block_number):
                for condition, _ in self.decides(edge):
                    if counts[condition.terms] > 1:
                        first[condition] = None
        return sorted(first, key=lambda condition: -counts[condition.terms])[:_MOST_CONDITIONS]

    def _build(self, tracked: frozenset[Condition]) -> bool:
        self.nodes, self.successors = [(0, ())], [[]]
        numbers: dict[tuple[int, Decided], int] = {(0, ()): 0}
        waiting = [0]
        while waiting:
            node = waiting.pop()
            block, decided = self.nodes[node]
            for edge in self._flow.blocks[block].edges:
                after = self._after(decided, edge, tracked)
                if after is None:
                    continue
                key = (edge.target, after)
                if key not in numbers:
                    if len(self.nodes) > max(_MOST_NODES, len(self._flow.blocks)) and tracked:
                        return False
                    numbers[key] = len(self.nodes)
                    self.nodes.append(key)
                    self.successors.append([])
                    waiting.append(numbers[key])
                self.successors[node].append(numbers[key])
        return True

    def _after(self, decided: Decided, edge: Edge, tracked: frozenset[Condition]) -> Decided | None:
        """What is decided after an edge; None if no thread takes it."""
        new = self.decides(edge)
        if not new or not tracked:
            return decided
        for condition, holds in new:
            if _contradicts(decided, condition, holds):
                return None
        kept = dict(decided)
        kept.update((condition, holds) for condition, holds in new if condition in tracked)
        return tuple(sorted(kept.items(), key=repr)) if len(kept) > len(decided) else decided

    def decides(self, edge: Edge) -> Decided:
        """What is known of a thread that takes an edge."""
        if not edge.predicate:
            return ()
        key = (edge.predicate, edge.negated)
        if key not in self._implied:
            self._implied[key] = tuple(self._known(self._values.of(edge.predicate), not edge.negated, 0))
        return self._implied[key]

    def _known(self, predicate: Value, holds: bool, depth: int) -> list[tuple[Condition, bool]]:
        terms = self._values.terms(predicate)
        if len(terms) != 1 or terms[0][1] != 1 or predicate.constant or depth > _DEEPEST:
            return []
        symbol = terms[0][0]
        found: list[tuple[Condition, bool]] = []
        if symbol.kind == "comparison":
            return self._compared(symbol, holds, depth)
        if symbol.kind == "operation" and symbol.data[0] in ("and", "or") and holds == (symbol.data[0] == "and"):
            for number in symbol.data[1:]:
                found += self._known(self._values.value(number), holds, depth + 1)
        elif symbol.kind == "operation" and symbol.data[0] == "not":
            return self._known(self._values.value(symbol.data[1]), not holds, depth + 1)
        if self._is_fixed(symbol, 0):
            found.append((Condition("is", predicate.terms, 0), holds))
        return found

    def _compared(self, symbol: Symbol, holds: bool, depth: int) -> list[tuple[Condition, bool]]:
        relation, _, number = symbol.data
        difference = self._values.value(number)
        inner = self._values.terms(difference)
        if relation in ("eq", "ne") and len(inner) == 1 and inner[0][0].kind == "operation":
            name, *operands = inner[0][0].data
            if name == "selp" and len(operands) == 3 and inner[0][1] in (1, -1):
                yes, no = (self._values.value(n) for n in operands[:2])
                are_bits = yes.is_constant and no.is_constant and {yes.constant, no.constant} == {0, 1}
                if are_bits and not difference.constant:
                    nonzero = holds == (relation == "ne")
                    return self._known(self._values.value(operands[2]), nonzero == bool(yes.constant), depth + 1)
        if not difference.terms or not all(self._is_fixed(symbol, 0) for symbol, _ in inner):
            return []
        if relation in ("eq", "ne"):
            if min(difference.terms)[1] < 0:
                difference = scaled(difference, -1)
            return [(Condition("eq", difference.terms, difference.constant), holds == (relation == "eq"))]
        if relation in ("lt", "lo", "ge", "hs"):
            return [(Condition("lt", difference.terms, difference.constant), holds == (relation in ("lt", "lo")))]
        if relation in ("le", "ls", "gt", "hi"):
            return [(Condition("lt", difference.terms, difference.constant - 1), holds == (relation in ("le", "ls")))]
        return []

    def _is_fixed(self, symbol: Symbol, depth: int) -> bool:
        """Whether a thread finds the same value whenever it asks."""
        if symbol.kind in _FIXED:
            return True
        if depth > _DEEPEST:
            return False
        if symbol.kind == "result":
            index = symbol.data[0]
            return isinstance(index, int) and self._flow.block_of(index) not in self._in_loops
        if symbol.kind == "register":
            places = self._values.definitions.get(str(symbol.data[0]), ())
            return all(self._flow.block_of(place.index) not in self._in_loops for place in places)
        if symbol.kind == "comparison":
            return all(self._is_fixed(s, depth + 1) for s, _ in self._values.terms(self._values.value(symbol.data[2])))
        if symbol.kind == "operation":
            return all(
                self._is_fixed(s, depth + 1)
                for number in symbol.data[1:]
                for s, _ in self._values.terms(self._values.value(number))
            )
        return False

    @cached_property
    def predecessors(self) -> list[list[int]]:
        """For each node, those before it."""
        return reversed_graph(self.successors)

    @cached_property
    def _order(self) -> tuple[list[int], dict[int, int]]:
        """The nodes with those before first where there is no loop, and the place of each: what is known is whole."""
        order = reached(self.successors, 0)
        return order, {node: number for number, node in enumerate(order)}

    @cached_property
    def of_block(self) -> dict[int, list[int]]:
        """For each block that can be reached, its nodes."""
        found: dict[int, list[int]] = {}
        for node, (block, _) in enumerate(self.nodes):
            found.setdefault(block, []).append(node)
        return found

    def arriving(self, facts: Facts, start: int = 0) -> dict[int, list[int]]:
        """Facts that may hold before each event: for each node, a set of bits for each event of its block.

        Parameters
        ----------
        facts : mapping
            For each block with events, in their order: a number of its own, the bits that the event ends, and those
            that it begins.
        start : int
            The bits that hold at the entry.

        Returns
        -------
        dict
            For each event's number, the bits that hold before it at each of its block's nodes.
        """
        entering = [0] * len(self.nodes)
        entering[0] = start
        order, place = self._order
        waiting, queued = [place[0]], [True] + [False] * (len(self.nodes) - 1)
        visited = [False] * len(self.nodes)
        while waiting:
            node = order[heappop(waiting)]
            queued[node] = False
            visited[node] = True
            bits = entering[node]
            for _, ends, begins in facts.get(self.nodes[node][0], ()):
                bits = bits & ~ends | begins
            for following in self.successors[node]:
                together = entering[following] | bits
                if together != entering[following] or not visited[following]:
                    entering[following] = together
                    if not queued[following]:
                        queued[following] = True
                        heappush(waiting, place[following])
        found: dict[int, list[int]] = {}
        for node, (block, _) in enumerate(self.nodes):
            bits = entering[node]
            for number, ends, begins in facts.get(block, ()):
                found.setdefault(number, []).append(bits)
                bits = bits & ~ends | begins
        return found


def _contradicts(decided: Decided, condition: Condition, holds: bool) -> bool:
    """Whether a condition cannot have this outcome after what was decided."""
    relation, terms, constant = condition
    for (other, same, number), truth in decided:
        if same != terms:
            continue
        if other == relation and number == constant:
            if truth != holds:
                return True
        elif other == "eq" and truth:
            # The sum without its constant is known.
            known = constant - number
            outcome = known == 0 if relation == "eq" else known < 0
            if relation != "is" and outcome != holds:
                return True
        elif other == "lt" and relation == "eq" and holds:
            if (-constant < -number) != truth:
                return True
        elif other == "lt" and relation == "lt" and truth != holds:
            # Less than one number and not less than a greater one.
            below, above = (number, constant) if truth else (constant, number)
            if -below <= -above:
                return True
    return False


