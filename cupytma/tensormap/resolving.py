"""The tables' expressions for one kind, rank and target: indices become variables, constants are worked out."""

from __future__ import annotations

import ast
from typing import Any

from cupytma.targets import TARGETS
from cupytma.tensormap import checking
from cupytma.tensormap.rule import SEQUENCES, entries


def _constants(kind: str, rank: int, target: str) -> dict[str, Any]:
    """The operands of the rules that a kind, rank and target settle."""
    chosen = TARGETS[target]
    found: dict[str, Any] = {"mode": kind, "layout": checking.layout_of(kind, chosen), "rank": rank}
    if kind != "im2col_wide":
        found["wide_mode"] = 0
    found.update({name: value for name, value in checking.target_operands(chosen).items() if name != "target"})
    return found


def variables(name: str, kind: str, rank: int) -> list[str]:
    """What an operand is called once its indices are resolved: one variable, or one for each entry that there is."""
    if name not in SEQUENCES:
        return [name]
    return [f"{name}_{i}" for i in range(entries(name, kind, rank))]


def sequence_of(variable: str) -> tuple[str, int | None]:
    """The operand that a variable belongs to, and the entry it is of a sequence."""
    name, _, entry = variable.rpartition("_")
    return (name, int(entry)) if name in SEQUENCES and entry.isdigit() else (variable, None)


class Resolver(ast.NodeTransformer):
    """Rewrites a table's expression for one kind, rank and target."""

    def __init__(self, kind: str, rank: int, target: str) -> None:
        self._kind = kind
        self._rank = rank
        self._constants = _constants(kind, rank, target)

    def __call__(self, expression: str) -> ast.expr:
        body: ast.expr = self.visit(ast.parse(expression, mode="eval").body)
        return ast.fix_missing_locations(body)

    def visit_Name(self, node: ast.Name) -> ast.expr:  # the base class looks these methods up by their names
        return ast.Constant(self._constants[node.id]) if node.id in self._constants else node

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        self.generic_visit(node)
        name = node.value.id if isinstance(node.value, ast.Name) else ""
        if isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, int):
            entry = node.slice.value
            if name in SEQUENCES and entry >= entries(name, self._kind, self._rank):
                return ast.Constant(SEQUENCES[name][1])
            if name in SEQUENCES or name == "pixel_dim":
                return ast.Name(f"{name}_{entry}")
        return folded(node)

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        if isinstance(node.op, ast.Mult) and isinstance(node.right, ast.Constant) and node.right.value == 1:
            return node.left
        if isinstance(node.op, (ast.BitAnd, ast.BitOr)) and is_truth(node.left) and is_truth(node.right):
            absorbing = isinstance(node.op, ast.BitOr)
            for side, other in ((node.left, node.right), (node.right, node.left)):
                if isinstance(side, ast.Constant):
                    return ast.Constant(absorbing) if bool(side.value) == absorbing else other
        return folded(node)

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        self.generic_visit(node)
        return folded(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        self.generic_visit(node)
        return folded(node)

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        self.generic_visit(node)
        return (node.body if node.test.value else node.orelse) if isinstance(node.test, ast.Constant) else node


def is_truth(node: ast.expr) -> bool:
    """Whether an expression is true or false, and no number."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.BitAnd, ast.BitOr)):
        return is_truth(node.left) and is_truth(node.right)
    known = isinstance(node, ast.Constant) and isinstance(node.value, bool)
    return known or isinstance(node, (ast.Compare, ast.BoolOp))


def folded(node: ast.expr) -> ast.expr:
    """The value of an expression of constants, else the expression."""
    if any(isinstance(inner, ast.Name) and inner.id not in checking.LOOKUPS for inner in ast.walk(node)):
        return node
    return ast.Constant(eval(ast.unparse(ast.fix_missing_locations(node)), {"__builtins__": {}, **checking.LOOKUPS}))
