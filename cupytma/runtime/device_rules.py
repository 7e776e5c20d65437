"""The rules of tiled tensor maps as CUDA C++, for maps whose parameters only the device knows.

The text is made from the table that the host's checkers evaluate, clause by clause, and gives the first rule broken.
"""

from __future__ import annotations

import ast
from functools import cache
from typing import NamedTuple

import numpy as np

from cupytma.targets import TARGETS
from cupytma.tensormap import checking
from cupytma.tensormap.codec import LOOKUPS as CODE_LOOKUPS
from cupytma.tensormap.enums import DataType
from cupytma.tensormap.mutation import ELEMENT_TYPES
from cupytma.tensormap.rule import DERIVED, FULL_RANK, SEQUENCES, entries
from cupytma.tensormap.rules import RULES_BY_ID

KIND = "tiled"
SCALARS = ("global_address", "rank", "data_type", "interleave", "swizzle", "l2_promotion", "oob_fill")
VECTORS = tuple(name for name in SEQUENCES if entries(name, KIND, FULL_RANK) and "corner" not in name)
OPERANDS: tuple[tuple[str, int], ...] = (
    *((name, 1) for name in SCALARS), *((name, entries(name, KIND, FULL_RANK)) for name in VECTORS),
)
"""What a map's parameters are on the device, and how many entries each has; all of 64 bits, in this order."""

MOST_FAILURES = 16
"""Maps that break a rule, whose parameters the device keeps for the host."""

# What the host only warns of, and the device refuses: nobody would see a warning.
_WARNED = ("null-address",)


class Refusal(NamedTuple):
    """Why the device refuses to build a map, beside the rules."""

    id: str
    message: str


REFUSALS = (
    Refusal("empty-slot", "the slot holds no map to rebind: write one, or give a template"),
    Refusal(
        "host-born",
        "the slot holds an im2col map, which is host-born: a rebind changes the address, the extents and the strides "
        "of tiled maps alone; encode it on the host",
    ),
    Refusal("rank-kept", "the slot's map has another rank, which a rebind keeps: give a template of the new rank"),
)

_SYMBOLS: dict[type[ast.AST], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.BitAnd: "&", ast.BitOr: "|", ast.LShift: "<<", ast.RShift: ">>",
    ast.FloorDiv: "/", ast.Mod: "%", ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">",
    ast.GtE: ">=",
}  # fmt: skip


@cache
def rule_ids(target: str) -> tuple[str, ...]:
    """The rules that a map can break on the device: number n in a slot's status is entry n - 1."""
    rules = checking.rules_for(KIND, target, "error")
    return (*(rule.id for rule in rules), *_WARNED, *(refusal.id for refusal in REFUSALS))


@cache
def rules_header(target: str) -> str:
    """CUDA C++ with a map's parameters, ``Operands``, and ``broken_rule``, the number of the first rule they break."""
    ids = rule_ids(target)
    fields = [f"    long long {name}{f'[{count}]' if count > 1 else ''};" for name, count in OPERANDS]
    translate = _Translator(target)
    derived = {name: text for name, text, kinds in DERIVED if KIND in kinds}
    tests: list[str] = []
    for rule in (*checking.rules_for(KIND, target, "error"), *(RULES_BY_ID[name] for name in _WARNED)):
        number = ids.index(rule.id) + 1
        for clause in checking.clauses(rule, FULL_RANK):
            # Worked out where it is first needed: the rules before keep its operands from being out of all bounds.
            tests += _definitions(clause, derived, translate)
            tests.append(f"    if (!({translate(clause)})) return {number};  // {rule.id}")
    constants = [f"constexpr unsigned {_spelled(r.id)} = {ids.index(r.id) + 1};" for r in REFUSALS]
    tables = {
        **{name: checking.LOOKUPS[name] for name in ("ELEMENT_BITS", "SHARED_BITS", "SWIZZLE_SPAN")},
        **{name: CODE_LOOKUPS[name] for name in ("SWIZZLE_MODE", "SWIZZLE_ATOMICITY")},
        # A type's number in tensormap.replace, and the type that a map's code stands for as far as rules ask.
        "ELEMENT_TYPE": tuple(ELEMENT_TYPES.index(t) if t in ELEMENT_TYPES else 0 for t in DataType),
        "TYPE_OF_FORMAT": _types_of_formats(),
    }
    lines = [
        "#pragma once",
        "struct Operands {", *fields, "};", *constants,
        *(_table(name, values) for name, values in tables.items()),
        "template <int Size>",
        "__device__ __forceinline__ long long looked_up(const int (&table)[Size], long long index)", "{",
        "    return table[index < 0 ? 0 : index >= Size ? Size - 1 : index];", "}",
        "__device__ __forceinline__ long long quotient(long long dividend, long long divisor)", "{",
        "    return divisor ? dividend / divisor : dividend;", "}",
        "__device__ __forceinline__ unsigned broken_rule(const Operands& o)", "{",
        *tests, "    return 0;", "}", "",
    ]  # fmt: skip
    return "\n".join(lines)


def _definitions(text: str, derived: dict[str, str], translate: _Translator) -> list[str]:
    """The derived operands that an expression names and that are not there yet, which are taken out of `derived`."""
    lines = []
    for node in ast.walk(ast.parse(text, mode="eval")):
        if isinstance(node, ast.Name) and node.id in derived:
            name, value = node.id, derived.pop(node.id)
            lines += [*_definitions(value, derived, translate), f"    const long long {name} = {translate(value)};"]
    return lines


@cache
def failures_type() -> np.dtype[np.void]:
    """What the device notes of maps that break a rule: how many did, and the first of them."""
    operands = [(name, "i8") if name in SCALARS else (name, "i8", count) for name, count in OPERANDS]
    return np.dtype([("count", "u8"), ("first", [("slot", "u8"), ("rule", "u8"), *operands], MOST_FAILURES)])


def _types_of_formats() -> tuple[int, ...]:
    """A data type for each element format of a map; one of several of the same size."""
    formats = CODE_LOOKUPS["ELEMENT_FORMAT"]
    return tuple(formats.index(code) if code in formats else 0 for code in range(16))


def _table(name: str, values: tuple[int, ...]) -> str:
    return f"__device__ const int {name}[] = {{{', '.join(map(str, values))}}};"


def _spelled(name: str) -> str:
    return name.replace("-", "_")


class _Translator:
    """Expressions of the tables as C++; all numbers have 64 bits and a sign."""

    def __init__(self, target: str) -> None:
        self._constants = {
            **checking.target_operands(TARGETS[target]), "mode": KIND, "layout": KIND, "wide_mode": 0,
        }  # fmt: skip
        self._operands = {name for name, _ in OPERANDS}

    def __call__(self, text: str) -> str:
        return self._read(ast.parse(text, mode="eval").body)

    def _read(self, node: ast.expr) -> str:
        match node:
            case ast.Constant(value=bool(value)):
                return str(int(value))
            case ast.Constant(value=int(value)):
                return f"{value}ll"
            case ast.Name(id=name) if name in self._constants:
                return f"{self._constants[name]}ll"
            case ast.Name(id=name):
                return f"o.{name}" if name in self._operands else name
            case ast.BinOp(left=ast.Constant(value=int(base)), op=ast.Pow(), right=ast.Constant(value=int(exponent))):
                return f"{base**exponent}ll"
            case ast.BinOp(left=left, op=op, right=right) | ast.Compare(left=left, ops=[op], comparators=[right]):
                return f"({self._read(left)} {_SYMBOLS[type(op)]} {self._read(right)})"
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return f"(-{self._read(operand)})"
            case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=int(index))) if name in SEQUENCES:
                return f"o.{name}[{index}]"
            case ast.Subscript(value=ast.Name(id=name), slice=index):
                return f"looked_up({name}, {self._read(index)})"
            case ast.Call(func=ast.Name(id="quotient"), args=[dividend, divisor]):
                return f"quotient({self._read(dividend)}, {self._read(divisor)})"
        raise AssertionError(f"the tables have no {ast.unparse(node)}")
