"""The control flow of a function: blocks, edges with their conditions, loops, and what each block depends on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from cupytma.check.module import Function, Statement


class Edge(NamedTuple):
    """A way from one block to another, and the predicate under which it is taken; an empty one for always."""

    target: int
    predicate: str
    negated: bool


@dataclass
class Block:
    """Statements that run one after another: those from `start` up to `stop`."""

    index: int
    start: int
    stop: int
    edges: list[Edge] = field(default_factory=list)


_ENDS = ("ret", "exit", "trap")
_JUMPS = ("bra", "brx", *_ENDS)


def base_of(opcode: str) -> str:
    """The first word of a mnemonic."""
    return opcode.partition(".")[0]


def _is_guarded(statement: Statement) -> bool:
    """Whether a predicate decides about an instruction that is no jump."""
    return bool(statement.guard) and base_of(statement.opcode) not in _JUMPS


class Flow:
    """A function's blocks. Block 0 is the entry.

    A guarded instruction stands in a block of its own, after an empty one in which it is decided whether it runs.
    """

    def __init__(self, function: Function) -> None:
        self.function = function
        self.blocks: list[Block] = []
        self._block_at: dict[int, int] = {}
        self._divide()
        self._connect()

    def _divide(self) -> None:
        statements = self.function.statements
        leaders = {0} | {index for index in self.function.labels.values() if index < len(statements)}
        for statement in statements:
            if base_of(statement.opcode) in _JUMPS:
                leaders.add(statement.index + 1)
            elif _is_guarded(statement):
                leaders |= {statement.index, statement.index + 1}
        starts = sorted(leader for leader in leaders if leader < len(statements))
        for number, start in enumerate(starts):
            stop = starts[number + 1] if number + 1 < len(starts) else len(statements)
            self._block_at[start] = len(self.blocks)
            if _is_guarded(statements[start]):  # where it is decided, with no statement of its own
                self.blocks.append(Block(len(self.blocks), start, start))
            self.blocks.append(Block(len(self.blocks), start, stop))

    def _connect(self) -> None:
        statements, count = self.function.statements, len(self.blocks)
        for block in self.blocks:
            block.edges = []
            following = [block.index + 1] if block.index + 1 < count else []
            if block.start == block.stop:
                guarded = statements[block.start]
                block.edges = [Edge(block.index + 1, guarded.guard, guarded.negated)]
                if block.index + 2 < count:
                    block.edges.append(Edge(block.index + 2, guarded.guard, not guarded.negated))
                continue
            last = statements[block.stop - 1]
            jumps = base_of(last.opcode) in _JUMPS
            if jumps:
                block.edges += [Edge(target, last.guard, last.negated) for target in self._targets(last)]
            if not jumps:
                block.edges += [Edge(target, "", False) for target in following]
            elif last.guard:
                block.edges += [Edge(target, last.guard, not last.negated) for target in following]

    def _targets(self, jump: Statement) -> Iterator[int]:
        names: tuple[str, ...] = jump.arguments[-1:] if base_of(jump.opcode) not in _ENDS else ()
        if base_of(jump.opcode) == "brx" and names:
            names = self.function.tables.get(names[0], ())
        for name in names:
            index = self.function.target_of(name, jump.scope)
            if index is not None and index in self._block_at:
                yield self._block_at[index]

    def take_new_names(self) -> None:
        """Give the edges the predicates' names that the jumps have after registers were renamed."""
        self._connect()

    def block_of(self, statement: int) -> int:
        """The block that a statement stands in."""
        return self._owners[statement]

    @cached_property
    def _owners(self) -> list[int]:
        owners = [0] * len(self.function.statements)
        for block in self.blocks:
            for index in range(block.start, block.stop):
                owners[index] = block.index
        return owners

    @cached_property
    def successors(self) -> list[list[int]]:
        """For each block, those that may come next."""
        return [list(dict.fromkeys(edge.target for edge in block.edges)) for block in self.blocks]

    @cached_property
    def predecessors(self) -> list[list[int]]:
        """For each block, those that may come before."""
        return reversed_graph(self.successors)

    @cached_property
    def loops(self) -> list[frozenset[int]]:
        """The natural loops, each as its blocks; the smallest first."""
        dominators = self._dominators
        place = {block: number for number, block in enumerate(reached(self.successors, 0))}
        found: dict[int, set[int]] = {}
        for block, nexts in enumerate(self.successors):
            if dominators[block] < 0:
                continue
            for head in nexts:
                if place[head] <= place[block] and _dominates(dominators, head, block):
                    found.setdefault(head, {head}).update(self._reaching(block, head))
        return sorted((frozenset(loop) for loop in found.values()), key=len)

    @cached_property
    def _dominators(self) -> list[int]:
        return immediate_dominators(self.successors, 0)

    def runs_each_time(self, block: int, loop: frozenset[int]) -> bool:
        """Whether each time round a loop comes through a block."""
        heads = [head for head in loop if any(before not in loop for before in self.predecessors[head]) or head == 0]
        latches = [b for b in loop if any(head in self.successors[b] for head in heads)]
        return bool(latches) and all(_dominates(self._dominators, block, latch) for latch in latches)

    def _reaching(self, block: int, head: int) -> set[int]:
        seen, waiting = {head, block}, [block] if block != head else []
        while waiting:
            for before in self.predecessors[waiting.pop()]:
                if before not in seen:
                    seen.add(before)
                    waiting.append(before)
        return seen

    @cached_property
    def _controlling(self) -> list[list[Edge]]:
        """For each block, the edges (with the block they leave as target) that it directly depends on."""
        count = len(self.blocks)
        backwards = [list(befores) for befores in self.predecessors] + [[]]
        for block in self.blocks:
            if not block.edges:
                backwards[count].append(block.index)
        after = immediate_dominators(backwards, count)
        found: list[list[Edge]] = [[] for _ in range(count)]
        for block in self.blocks:
            if len({edge.target for edge in block.edges}) < 2:
                continue
            for edge in block.edges:
                runner, steps = edge.target, 0
                while runner not in (after[block.index], count, -1) and steps <= count:
                    found[runner].append(Edge(block.index, edge.predicate, edge.negated))
                    runner, steps = after[runner], steps + 1
        return found

    def conditions(self, block: int) -> list[Edge]:
        """All edges that decide whether a block runs, directly or not; an edge's target here is where it begins."""
        if block not in self._conditions:
            found: dict[Edge, None] = {}
            waiting, seen = [block], {block}
            while waiting:
                for edge in self._controlling[waiting.pop()]:
                    found[edge] = None
                    if edge.target not in seen:
                        seen.add(edge.target)
                        waiting.append(edge.target)
            self._conditions[block] = list(found)
        return self._conditions[block]

    @cached_property
    def _conditions(self) -> dict[int, list[Edge]]:
        return {}


def reversed_graph(successors: Sequence[Sequence[int]]) -> list[list[int]]:
    """A graph with its edges turned."""
    found: list[list[int]] = [[] for _ in successors]
    for node, nexts in enumerate(successors):
        for following in nexts:
            found[following].append(node)
    return found


def reached(successors: Sequence[Sequence[int]], start: int) -> list[int]:
    """The nodes that can be reached, in reverse postorder."""
    order: list[int] = []
    seen = {start}
    stack: list[tuple[int, Iterator[int]]] = [(start, iter(successors[start]))] if successors else []
    while stack:
        node, rest = stack[-1]
        for following in rest:
            if following not in seen:
                seen.add(following)
                stack.append((following, iter(successors[following])))
                break
        else:
            order.append(node)
            stack.pop()
    return order[::-1]


def immediate_dominators(successors: Sequence[Sequence[int]], start: int) -> list[int]:
    """Each node's immediate dominator; the start's is itself, and -1 is for nodes out of reach."""
    order = reached(successors, start)
    place = {node: number for number, node in enumerate(order)}
    found = [-1] * len(successors)
    if not order:
        return found
    found[start] = start
    befores = reversed_graph(successors)
    changed = True
    while changed:
        changed = False
        for node in order[1:]:
            best = -1
            for before in befores[node]:
                if found[before] >= 0:
                    best = before if best < 0 else _common(found, place, best, before)
            if best != found[node]:
                found[node], changed = best, True
    return found


def _common(dominators: list[int], place: dict[int, int], first: int, second: int) -> int:
    while first != second:
        while place[first] > place[second]:
            first = dominators[first]
        while place[second] > place[first]:
            second = dominators[second]
    return first


def _dominates(dominators: list[int], head: int, block: int) -> bool:
    while block != head:
        if dominators[block] in (block, -1):
            return False
        block = dominators[block]
    return True
