"""What registers hold: sums of symbols with constant factors, found by following single definitions.

A symbol is a number that stands for something whose value is not known: a variable's address, a special register, a
parameter, or an operation on other values. The same operation on the same values is the same symbol, whichever
registers hold them, so that equal values are seen to be equal.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from itertools import islice
from typing import NamedTuple

from cupytma.check.flow import base_of
from cupytma.check.module import Function, Module, Statement, Variable
from cupytma.check.written import written

_NUMBER = re.compile(r"-?(?:0[xX][0-9a-fA-F]+|\d+)[uU]?")
_OFFSET = re.compile(r"(.+?)\s*\+\s*(-?(?:0[xX][0-9a-fA-F]+|\d+))")
_DEEPEST = 120
_MOST_WAYS = 6
_VARYING = ("register", "result", "induction", "unknown", "none")
_LONG_SUM = 24


class Symbol(NamedTuple):
    """What a symbol stands for: its kind, and what that kind needs."""

    kind: str
    data: tuple[object, ...]


class Value(NamedTuple):
    """A sum: symbols with their factors, and a constant."""

    terms: frozenset[tuple[int, int]]
    constant: int

    @property
    def is_constant(self) -> bool:
        """Whether the value is known."""
        return not self.terms


def constant(number: int) -> Value:
    """A known value."""
    return Value(frozenset(), number)


class Values:
    """The values of one function's registers."""

    def __init__(self, module: Module, function: Function) -> None:
        self.module, self.function = module, function
        self.symbols: list[Symbol] = []
        self._numbers: dict[Symbol, int] = {}
        self._values: list[Value] = []
        self._value_numbers: dict[Value, int] = {}
        self._known: dict[str, Value] = {}
        self._busy: set[str] = set()
        self._varying: dict[int, bool] = {}

    @cached_property
    def definitions(self) -> Mapping[str, list[Statement]]:
        """For each register, by the names that its uses have, the statements that write it."""
        found: dict[str, list[Statement]] = {}
        for statement in self.function.statements:
            for register in written(statement):
                found.setdefault(register, []).append(statement)
        for name, writes in self.function.several.items():
            found[name] = [self.function.statements[index] for index in writes]
        return found

    def symbol(self, kind: str, *data: object) -> int:
        """The number of a symbol."""
        entry = Symbol(kind, data)
        number = self._numbers.get(entry)
        if number is None:
            number = self._numbers[entry] = len(self.symbols)
            self.symbols.append(entry)
        return number

    def term(self, kind: str, *data: object) -> Value:
        """A symbol as a value."""
        return Value(frozenset({(self.symbol(kind, *data), 1)}), 0)

    def of(self, text: str) -> Value:
        """The value of an operand: a register, a number, a name, or a sum of one of those and a number."""
        text = text.strip()
        known = self._known.get(text)
        if known is not None:
            return known
        if text[:1] == "[" and text[-1:] == "]":
            return self.of(text[1:-1])
        if _NUMBER.fullmatch(text):
            return constant(_integer(text))
        if found := _OFFSET.fullmatch(text):
            return add(self.of(found[1]), constant(_integer(found[2])))
        if text[:1] == "%":
            return self._register(text)
        variable = self.variable(text)
        if variable is None:
            return self.term("unknown", text)
        is_dynamic = variable.is_extern and variable.space == "shared"
        return self.term("address", variable.space, self._dynamic if is_dynamic else variable.name)

    @cached_property
    def _dynamic(self) -> str:
        """The name for dynamic shared memory: all arrays without a size begin at its one address."""
        variables = [*self.module.variables.values(), *self.function.variables.values()]
        dynamic = [variable for variable in variables if variable.is_extern and variable.space == "shared"]
        return max(dynamic, key=lambda variable: variable.alignment).name

    def variable(self, name: object) -> Variable | None:
        """A variable or parameter by its name."""
        if not isinstance(name, str):
            return None
        found = self.function.variables.get(name) or self.module.variables.get(name)
        return found or next((p for p in self.function.parameters if p.name == name), None)

    def _register(self, name: str) -> Value:
        definitions = self.definitions.get(name)
        if not definitions:
            value = self.term("special", name.lstrip("%"))
        elif name in self._busy or len(self._busy) > _DEEPEST:
            return self.term("register", name)
        else:
            self._busy.add(name)
            try:
                value = self._defined(name, definitions)
            finally:
                self._busy.discard(name)
        self._known[name] = value
        return value

    def _defined(self, name: str, definitions: list[Statement]) -> Value:
        if len(definitions) == 1 and not definitions[0].guard:
            from cupytma.check.evaluation import evaluated

            return evaluated(self, definitions[0], name)
        if len(definitions) <= 4:
            # The same constant on every way in.
            texts = {s.arguments[1] for s in definitions if base_of(s.opcode) == "mov" and len(s.arguments) == 2}
            if len(texts) == 1 and all(base_of(s.opcode) == "mov" for s in definitions):
                text = texts.pop()
                if _NUMBER.fullmatch(text):
                    return constant(_integer(text))
        if len(definitions) <= _MOST_WAYS and not any(definition.guard for definition in definitions):
            found = self._stepped(name, definitions)
            if found is not None:
                return found
        return self.term("register", name)

    def _stepped(self, name: str, definitions: list[Statement]) -> Value | None:
        """An address that a loop moves on by steps: where it starts, and a symbol for the steps."""
        from cupytma.check.evaluation import evaluated
        from cupytma.check.ranges import trailing_zeros, zeros_of

        before = len(self._known)
        found = [evaluated(self, definition, name) for definition in definitions]
        for register in list(islice(reversed(self._known), len(self._known) - before)):
            del self._known[register]  # they were found while this register was taken as a symbol
        own = self.symbol("register", name)
        starts = [value for value in found if (own, 1) not in value.terms]
        steps = [Value(value.terms - {(own, 1)}, value.constant) for value in found if (own, 1) in value.terms]
        if not starts or not steps or len({start.terms for start in starts}) != 1:
            return None
        if not any(symbol.kind == "address" for symbol, _ in self.terms(starts[0])):
            return None
        first = min(start.constant for start in starts)
        zeros = [trailing_zeros(self, step) for step in steps] + [zeros_of(s.constant - first) for s in starts]
        return add(Value(starts[0].terms, first), self.term("induction", name, min(zeros)))

    def varies(self, number: int) -> bool:
        """Whether a symbol may stand for different values at different times."""
        known = self._varying.get(number)
        if known is None:
            symbol = self.symbols[number]
            self._varying[number] = True  # of one that contains itself
            known = symbol.kind in _VARYING
            if symbol.kind in ("operation", "peer", "comparison"):
                numbers = symbol.data[2:] if symbol.kind == "comparison" else symbol.data
                inner = [self.value(data) for data in numbers if isinstance(data, int)]
                known = any(self.varies(part) for value in inner for part, _ in value.terms)
            self._varying[number] = known
        return known

    def number(self, value: Value) -> int:
        """The number that stands for a value in a symbol's data."""
        number = self._value_numbers.get(value)
        if number is None:
            number = self._value_numbers[value] = len(self._values)
            self._values.append(value)
        return number

    def value(self, number: object) -> Value:
        """The value that a number of a symbol's data stands for."""
        return self._values[number] if isinstance(number, int) else constant(0)

    def terms(self, value: Value) -> list[tuple[Symbol, int]]:
        """The symbols of a value with their factors."""
        return [(self.symbols[number], factor) for number, factor in value.terms]


def _integer(text: str) -> int:
    digits = text.rstrip("uU")
    if len(digits) > 24:
        return 0
    if re.fullmatch(r"-?0[xX][0-9a-fA-F]+", digits):
        return int(digits, 16)
    return int(digits) if re.fullmatch(r"-?\d+", digits, re.ASCII) else 0


def add(first: Value, second: Value, factor: int = 1) -> Value:
    """A sum, the second addend multiplied by a number."""
    if not second.terms:
        return Value(first.terms, _wrapped(first.constant + factor * second.constant))
    if not first.terms and factor == 1:
        return Value(second.terms, _wrapped(first.constant + second.constant))
    terms = dict(first.terms)
    for number, coefficient in second.terms:
        total = terms.get(number, 0) + factor * coefficient
        if total:
            terms[number] = total
        else:
            terms.pop(number, None)
    return Value(frozenset(terms.items()), _wrapped(first.constant + factor * second.constant))


def scaled(value: Value, factor: int) -> Value:
    """A value multiplied by a number."""
    if not factor:
        return constant(0)
    return Value(
        frozenset((number, coefficient * factor) for number, coefficient in value.terms),
        _wrapped(value.constant * factor),
    )


def is_long(value: Value) -> bool:
    """Whether a sum has so many terms that following it further costs more than it tells."""
    return len(value.terms) > _LONG_SUM


def _wrapped(number: int) -> int:
    """A number in 64 bits."""
    return number if -(1 << 62) < number < 1 << 62 else (number + (1 << 63)) % (1 << 64) - (1 << 63)
