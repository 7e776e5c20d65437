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
from cupytma.tensormap.resolving import Resolver, folded, is_truth, variables
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
    resolver = _ScalarResolver(kind, rank, target)
    lines = [f"    {_unpacked(field.name, kind, rank)} = given[{field.name!r}]" for field in fields(KINDS[kind])]
    lines.append("    try:")  # a data type or swizzle beyond the tables is one of the rules' cases
    for name, expression, kinds in DERIVED:
        if kind in kinds:
            lines += _assignment(name, resolver(expression))
    lines.append("    except IndexError:\n        return None")
    clauses = [
        ast.unparse(resolver(clause))
        for rule in checking.rules_for(kind, target, "error")
        for clause in checking.clauses(rule, rank)
    ]
    lines.append(f"    if not ({' and '.join(f'({c})' for c in clauses if c != 'True')}):\n        return None")
    words = [codec.word_text(layout, rank, word) for word in range(WORDS)]
    used = max(i for i, word in enumerate(words) if word) + 1
    packed = ", ".join(ast.unparse(resolver(word)) if word else "0" for word in words[:used])
    lines.append(f"    return pack({packed})")
    namespace = {**checking.LOOKUPS, **codec.LOOKUPS, "pack": Struct(f"<{used}Q{SIZE - 8 * used}x").pack}
    exec(compile("def encode(given):\n" + "\n".join(lines), f"<{kind} rank {rank} {target}>", "exec"), namespace)
    return cast(Encoder, namespace["encode"])


def _unpacked(name: str, kind: str, rank: int) -> str:
    """The left side of an assignment that unpacks an operand."""
    names = variables(name, kind, rank)
    if name not in SEQUENCES:
        return name
    return "".join(f"{variable}, " for variable in names) or "_"


def _assignment(name: str, body: ast.expr) -> list[str]:
    """A derived operand as local variables, one for each entry of a tuple."""
    if not isinstance(body, ast.Tuple):
        return [f"        {name} = {ast.unparse(body)}"]
    return [f"        {name}_{i} = {ast.unparse(entry)}" for i, entry in enumerate(body.elts)]


class _ScalarResolver(Resolver):
    """Numbers have ``and`` and ``or``, which stop early."""

    def visit_Call(self, node: ast.Call) -> ast.expr:
        dividend, divisor = (self.visit(argument) for argument in node.args)  # `quotient`, the only function there is
        if isinstance(divisor, ast.Constant):
            return folded(ast.BinOp(dividend, ast.FloorDiv(), divisor))
        return ast.BinOp(dividend, ast.FloorDiv(), ast.BoolOp(ast.Or(), [divisor, ast.Constant(1)]))

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        found = super().visit_BinOp(node)
        if isinstance(found, ast.BinOp) and isinstance(found.op, (ast.BitAnd, ast.BitOr)) and is_truth(found):
            return ast.BoolOp(ast.Or() if isinstance(found.op, ast.BitOr) else ast.And(), [found.left, found.right])
        return found
