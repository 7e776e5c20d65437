"""Which values are one for a whole block, which differ between its warps, and which between the lanes of a warp."""

from __future__ import annotations

from enum import IntEnum

from cupytma.check.flow import Flow, base_of
from cupytma.check.module import Statement
from cupytma.check.values import Value, Values
from cupytma.check.written import read_registers, written


class Level(IntEnum):
    """How far a value is shared."""

    BLOCK = 0
    WARP = 1
    LANE = 2


_WARP = 32
_SPECIAL = {
    "tid.x": Level.LANE, "tid.y": Level.LANE, "tid.z": Level.LANE, "laneid": Level.LANE, "warpid": Level.WARP,
    "lanemask_eq": Level.LANE, "lanemask_lt": Level.LANE, "lanemask_le": Level.LANE, "lanemask_gt": Level.LANE,
    "lanemask_ge": Level.LANE, "clock": Level.LANE, "clock64": Level.LANE, "globaltimer": Level.LANE,
}  # fmt: skip
_ONE_FOR_A_WARP = ("vote", "activemask", "match", "redux")
_EACH_LANE = ("atom", "elect", "call", "ldmatrix")
_WAITS = ("mbarrier.try_wait", "mbarrier.test_wait")
_MOST_PASSES = 12


class Levels:
    """The levels of a function's registers and blocks."""

    def __init__(self, values: Values, flow: Flow) -> None:
        self._values, self._flow = values, flow
        self._registers: dict[str, Level] = {}
        self._blocks: dict[int, Level] = {}
        self._find()

    def of(self, register: str) -> Level:
        """The level of a register; that of a special register by its name."""
        return self._registers.get(register) or _SPECIAL.get(register.lstrip("%"), Level.BLOCK)

    def of_text(self, text: str) -> Level:
        """The level of an operand."""
        return self.of(text.partition("+")[0].strip("[] ")) if "%" in text else Level.BLOCK

    def of_block(self, block: int) -> Level:
        """By what it is decided who runs a block: the level of the finest condition on the way to it."""
        if block not in self._blocks:
            levels = [self.of(edge.predicate) for edge in self._flow.conditions(block)]
            self._blocks[block] = max(levels, default=Level.BLOCK)
        return self._blocks[block]

    def _find(self) -> None:
        rows = []
        for statement in self._values.function.statements:
            outputs = written(statement)
            if outputs:
                ceiling, floor = self._limits(statement)
                rows.append((outputs, read_registers(statement), ceiling, floor, statement.index))
        statements = self._values.function.statements
        for name, writes in self._values.function.several.items():
            if len(writes) > 1:  # what a use reads that several writes reach
                rows += [([name], written(statements[index]), Level.LANE, Level.BLOCK, index) for index in writes]
        several = {name for name, found in self._values.definitions.items() if len(found) > 1}
        for number in range(_MOST_PASSES):
            changed = False
            for outputs, inputs, ceiling, floor, index in rows:
                level = max((self.of(name) for name in inputs), default=Level.BLOCK)
                level = max(min(level, ceiling), floor)
                if number and level < Level.LANE and several.intersection(outputs):
                    edges = self._flow.conditions(self._flow.block_of(index))
                    level = max(level, *(self.of(edge.predicate) for edge in edges)) if edges else level
                for name in outputs:
                    if level > self._registers.get(name, Level.BLOCK):
                        self._registers[name], changed = level, True
            if number and not changed:
                break

    def _limits(self, statement: Statement) -> tuple[Level, Level]:
        """The highest and the lowest level that an instruction's result can have."""
        base = base_of(statement.opcode)
        if base in _EACH_LANE or statement.opcode.startswith("ld.local"):
            return Level.LANE, Level.LANE
        if statement.opcode.startswith(_WAITS):
            return Level.BLOCK, Level.BLOCK
        shuffled = base == "shfl" and ".idx" in statement.opcode and self._from_one_lane(statement)
        if base in _ONE_FOR_A_WARP or shuffled:
            return Level.WARP, Level.WARP
        if base in ("shr", "and", "div", "setp") and self._is_of_warp(statement, base):
            return Level.WARP, Level.BLOCK
        return Level.LANE, Level.BLOCK

    def _from_one_lane(self, statement: Statement) -> bool:
        arguments = statement.arguments
        return len(arguments) > 2 and self._values.of(arguments[2]).is_constant

    def _is_of_warp(self, statement: Statement, base: str) -> bool:
        """Whether the result is one for a warp although threads' numbers go into it."""
        if len(statement.arguments) < 3:
            return False
        first, second = (self._values.of(text) for text in statement.arguments[1:3])
        if not second.is_constant or not self._is_thread_number(first):
            return False
        number = second.constant
        if base == "shr":
            return number >= 5
        if base == "and":
            return number % _WARP == 0
        if base == "div":
            return number > 0 and number % _WARP == 0
        relation = statement.opcode.split(".")[1]
        limit = number - first.constant + (relation in ("le", "gt", "ls", "hi"))
        return relation in ("lt", "ge", "le", "gt", "lo", "hs", "ls", "hi") and limit % _WARP == 0

    def _is_thread_number(self, value: Value) -> bool:
        """Whether a value is a thread's number in its block, or the low bits of it with all of the lane's."""
        terms = self._values.terms(value)
        if len(terms) != 1 or terms[0][1] != 1:
            return False
        symbol = terms[0][0]
        if symbol.kind == "operation" and symbol.data[0] == "and" and len(symbol.data) == 3:
            mask = self._values.value(symbol.data[2])
            lanes = mask.is_constant and mask.constant % _WARP == _WARP - 1
            return lanes and self._is_thread_number(self._values.value(symbol.data[1]))
        return symbol == ("special", ("tid.x",))
