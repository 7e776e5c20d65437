"""One function per kind, rank and target that checks and packs parameters, made from the two tables.

The general path evaluates the tables' expressions over a dictionary of operands, and can say what is broken. This one
is the same expressions with every index resolved into a local variable, for speed: it answers with the bytes, or None
where any rule is broken.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import cache
from struct import Struct
from typing import Any, cast

from cupytma.targets import TARGETS
from cupytma.tensormap import checking, codec
from cupytma.tensormap.fields import RANKS, SIZE, WORDS
from cupytma.tensormap.parameters import KINDS
from cupytma.tensormap.rule import DERIVED, SEQUENCES

Encoder = Callable[[Mapping[str, Any]], "bytes | None"]

# Kinds whose parameters are named as the operands of the rules are.
_KINDS = ("tiled", "im2col")


@cache
def encoder(kind: str, rank: int, target: str) -> Encoder | None:
    """The function for tiled and im2col maps of a legal rank; None for others, which take the general path.

    It takes the parameters' attributes by name and returns the 128 bytes, or None if a rule is broken.
    """
    layout = checking.layout_of(kind, TARGETS[target])
    if kind not in _KINDS or rank not in RANKS[kind]:
        return None
    constants: dict[str, Any] = {"mode": kind, "layout": layout, "rank": rank, "wide_mode": 0}
    constants.update({k: v for k, v in checking.target_operands(TARGETS[target]).items() if k != "target"})
    resolve = _Resolver(rank, constants)
    lines = [f"    {_unpacked(field.name, rank)} = given[{field.name!r}]" for field in fields(KINDS[kind])]
    lines.append("    try:")  # a data type or swizzle beyond the tables is one of the rules' cases
    for name, expression, kinds in DERIVED:
        if kind in kinds:
            lines += _assignment(name, resolve(expression))
    lines.append("    except IndexError:\n        return None")
    clauses = [
        resolve(clause) for rule in checking.rules_for(kind, target, "error") for clause in checking.clauses(rule, rank)
    ]
    lines.append(f"    if not ({' and '.join(f'({c})' for c in clauses if c != 'True')}):\n        return None")
    words = [codec.word_text(layout, rank, word) for word in range(WORDS)]
    used = max(i for i, word in enumerate(words) if word) + 1
    lines.append(f"    return pack({', '.join(resolve(word) if word else '0' for word in words[:used])})")
    namespace = {**checking.LOOKUPS, **codec.LOOKUPS, "pack": Struct(f"<{used}Q{SIZE - 8 * used}x").pack}
    exec(compile("def encode(given):\n" + "\n".join(lines), f"<{kind} rank {rank} {target}>", "exec"), namespace)
    return cast(Encoder, namespace["encode"])


def _unpacked(name: str, rank: int) -> str:
    """The left side of an assignment that unpacks an operand."""
    if name not in SEQUENCES:
        return name
    count = rank - SEQUENCES[name][0]
    return "".join(f"{name}_{i}, " for i in range(count)) if count else "_"


def _assignment(name: str, text: str) -> list[str]:
    """A derived operand as local variables, one for each entry of a tuple."""
    body = ast.parse(text, mode="eval").body
    if not isinstance(body, ast.Tuple):
        return [f"        {name} = {text}"]
    return [f"        {name}_{i} = {ast.unparse(entry)}" for i, entry in enumerate(body.elts)]


class _Resolver(ast.NodeTransformer):
    """Rewrites a table's expression for one rank: indices become variables, and what is constant is worked out."""

    def __init__(self, rank: int, constants: Mapping[str, Any]) -> None:
        self._rank = rank
        self._constants = constants

    def __call__(self, expression: str) -> str:
        body: ast.expr = self.visit(ast.parse(expression, mode="eval").body)
        return ast.unparse(ast.fix_missing_locations(body))

    def visit_Name(self, node: ast.Name) -> ast.expr:  # the base class looks the method up by this name
        return ast.Constant(self._constants[node.id]) if node.id in self._constants else node

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        self.generic_visit(node)
        name = node.value.id if isinstance(node.value, ast.Name) else ""
        if isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, int):
            entry = node.slice.value
            if name in SEQUENCES and entry >= self._rank - SEQUENCES[name][0]:
                return ast.Constant(SEQUENCES[name][1])
            if name in SEQUENCES or name == "pixel_dim":
                return ast.Name(f"{name}_{entry}")
        return _folded(node)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        dividend, divisor = (self.visit(argument) for argument in node.args)  # `quotient`, the only function there is
        if isinstance(divisor, ast.Constant):
            return _folded(ast.BinOp(dividend, ast.FloorDiv(), divisor))
        return ast.BinOp(dividend, ast.FloorDiv(), ast.BoolOp(ast.Or(), [divisor, ast.Constant(1)]))

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        if isinstance(node.op, ast.Mult) and isinstance(node.right, ast.Constant) and node.right.value == 1:
            return node.left
        if isinstance(node.op, (ast.BitAnd, ast.BitOr)) and _is_truth(node.left) and _is_truth(node.right):
            return _joined(node)
        return _folded(node)

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        self.generic_visit(node)
        return _folded(node)

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        self.generic_visit(node)
        return _folded(node)


def _is_truth(node: ast.expr) -> bool:
    known = isinstance(node, ast.Constant) and isinstance(node.value, bool)
    return known or isinstance(node, (ast.Compare, ast.BoolOp))


def _joined(node: ast.BinOp) -> ast.expr:
    """``&`` and ``|`` of truth values as ``and`` and ``or``, shortened where one side is known."""
    absorbing = isinstance(node.op, ast.BitOr)
    for side, other in ((node.left, node.right), (node.right, node.left)):
        if isinstance(side, ast.Constant):
            return ast.Constant(absorbing) if bool(side.value) == absorbing else other
    return ast.BoolOp(ast.Or() if absorbing else ast.And(), [node.left, node.right])


def _folded(node: ast.expr) -> ast.expr:
    """The value of an expression of constants, else the expression."""
    if any(isinstance(inner, ast.Name) and inner.id not in checking.LOOKUPS for inner in ast.walk(node)):
        return node
    return ast.Constant(eval(ast.unparse(ast.fix_missing_locations(node)), {"__builtins__": {}, **checking.LOOKUPS}))
