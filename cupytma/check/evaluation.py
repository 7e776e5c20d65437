"""What one instruction computes, as a value; what is not followed becomes a symbol of its own."""

from __future__ import annotations

from collections.abc import Callable

from cupytma.check.flow import base_of
from cupytma.check.module import Statement
from cupytma.check.ranges import bounds, trailing_zeros
from cupytma.check.values import Value, Values, add, constant, is_long, scaled

Rule = Callable[[Values, Statement, list[Value]], "Value | None"]


def evaluated(values: Values, statement: Statement, name: str) -> Value:
    """What a statement leaves in a register."""
    rule = _RULES.get(base_of(statement.opcode))
    if rule is not None:
        arguments = statement.arguments
        if len(arguments) >= 2 and "{" not in statement.tail:
            operands = [values.of(argument) for argument in arguments[1:]]
            found = rule(values, statement, operands)
            if found is not None and not is_long(found):
                return found
    elif base_of(statement.opcode) == "elect" and len(statement.arguments) == 2:
        mask = values.of(statement.arguments[1])
        lane = statement.arguments[0].partition("|")[0].strip() == name
        return values.term("elected lane" if lane else "elected", values.number(mask))
    return values.term("result", statement.index, name)


def _same(values: Values, statement: Statement, operands: list[Value]) -> Value:
    return operands[0]


def _converted(values: Values, statement: Statement, operands: list[Value]) -> Value | None:
    kind = statement.opcode.split(".")[-2] if statement.opcode.count(".") >= 2 else ""
    if kind.endswith(("64", "32")) and kind[0] in "us":
        return operands[0]
    return values.term("operation", f"cvt.{kind}", values.number(operands[0]))


def _sum(values: Values, statement: Statement, operands: list[Value]) -> Value | None:
    if statement.opcode.endswith(("f32", "f64", "f16", "x2")) or len(operands) < 2:
        return None
    return add(operands[0], operands[1], -1 if base_of(statement.opcode) == "sub" else 1)


def _negative(values: Values, statement: Statement, operands: list[Value]) -> Value | None:
    return None if ".f" in statement.opcode else scaled(operands[0], -1)


def _product(values: Values, statement: Statement, operands: list[Value]) -> Value | None:
    if ".f" in statement.opcode or len(operands) < 2:
        return None
    first, second = operands[:2]
    if ".hi" in statement.opcode:
        is_plain = statement.opcode == "mul.hi.u32" and second.is_constant
        return values.term("operation", "mul.hi.u", *map(values.number, (first, second))) if is_plain else None
    if first.is_constant:
        first, second = second, first
    if second.is_constant and not statement.opcode.endswith("16"):
        product = scaled(first, second.constant)
    else:
        product = values.term("operation", "mul", *sorted(map(values.number, (first, second))))
    return add(product, operands[2]) if base_of(statement.opcode) == "mad" and len(operands) > 2 else product


def _shifted(values: Values, statement: Statement, operands: list[Value]) -> Value | None:
    if len(operands) == 2 and operands[1].is_constant and 0 <= operands[1].constant < 64:
        return scaled(operands[0], 1 << operands[1].constant)
    return _operation(values, statement, operands)


def _or(values: Values, statement: Statement, operands: list[Value]) -> Value | None:
    """A disjunction is a sum where no bit is in both."""
    if len(operands) == 2:
        for first, second in (operands, operands[::-1]):
            low, high = bounds(values, second)
            if low is not None and high is not None and low >= 0 and high < 1 << trailing_zeros(values, first):
                return add(first, second)
    return _operation(values, statement, operands)


def _inserted(values: Values, statement: Statement, operands: list[Value]) -> Value | None:
    """Bits put above a value that is known to be smaller."""
    if len(operands) == 4 and operands[2].is_constant and operands[3].is_constant:
        field, rest, position, length = operands[0], operands[1], operands[2].constant, operands[3].constant
        low, high = bounds(values, rest)
        is_top = 0 <= position < 64 and position + length in (32, 64)
        if is_top and low is not None and high is not None and 0 <= low <= high < 1 << position:
            return add(rest, field, 1 << position)
    return _operation(values, statement, operands)


def _operation(values: Values, statement: Statement, operands: list[Value]) -> Value | None:
    if ".f" in statement.opcode:
        return None
    words = [w for w in statement.opcode.split(".")[1:] if w != "pred" and not (w[:1] in "busf" and w[1:].isdigit())]
    sign = "s" if statement.opcode.rpartition(".")[2].startswith("s") else "u"
    name = ".".join([base_of(statement.opcode), *words, *([sign] if base_of(statement.opcode) in _SIGNED else [])])
    if name in ("and", "xor", "min.u", "max.u", "min.s", "max.s", "or"):
        operands = sorted(operands, key=lambda value: (value.is_constant, values.number(value)))
    if all(operand.is_constant for operand in operands) and (known := _computed(name, operands)) is not None:
        return constant(known)
    if name == "xor" and operands[-1] == constant(0):
        return operands[0]
    return values.term("operation", name, *map(values.number, operands))


_SIGNED = ("shr", "min", "max", "div", "rem", "setp")
_COMPUTED: dict[str, Callable[[int, int], int]] = {
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "min.u": min,
    "max.u": max,
    "min.s": min,
    "max.s": max,
}


def _computed(name: str, operands: list[Value]) -> int | None:
    if name in _COMPUTED and len(operands) == 2:
        return _COMPUTED[name](operands[0].constant, operands[1].constant)
    if name == "shr.u" and len(operands) == 2 and operands[0].constant >= 0:
        return operands[0].constant >> min(max(operands[1].constant, 0), 64)
    return None


def _loaded(values: Values, statement: Statement, operands: list[Value]) -> Value | None:
    """A parameter read, or a constant address; all else is unknown."""
    if statement.opcode.startswith(("ld.param", "ldu.param")) and len(operands) == 1:
        terms = values.terms(operands[0])
        if len(terms) == 1 and terms[0][0].kind == "address" and terms[0][0].data[0] == "param" and terms[0][1] == 1:
            return values.term("parameter", terms[0][0].data[1], operands[0].constant)
    return None


def _mapped(values: Values, statement: Statement, operands: list[Value]) -> Value | None:
    if len(operands) != 2:
        return None
    return values.term("peer", values.number(operands[0]), values.number(operands[1]))


def _compared(values: Values, statement: Statement, operands: list[Value]) -> Value | None:
    words = statement.opcode.split(".")
    if len(words) != 3 or len(operands) != 2 or "|" in statement.arguments[0]:
        return None
    difference = add(operands[0], operands[1], -1)
    return values.term("comparison", words[1], words[2][:1], values.number(difference))


_PLAIN = ("and", "xor", "not", "shr", "min", "max", "selp", "bfe", "rem", "div", "shf", "prmt", "lop3")
_RULES: dict[str, Rule] = {
    "mov": _same,
    "cvta": _same,
    "cvt": _converted,
    "add": _sum,
    "sub": _sum,
    "neg": _negative,
    "mul": _product,
    "mad": _product,
    "shl": _shifted,
    "or": _or,
    "bfi": _inserted,
    "ld": _loaded,
    "ldu": _loaded,
    "mapa": _mapped,
    "setp": _compared,
    **dict.fromkeys(_PLAIN, _operation),
}
