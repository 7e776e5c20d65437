"""The rule table at work: predicates compiled once, messages filled in when a rule is broken."""

from __future__ import annotations

import string
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from types import CodeType
from typing import Any

from cupytma.limits import MULTIPROCESSOR_SHARED_BYTES
from cupytma.listed import Listed
from cupytma.targets import TARGETS, Feature, Target
from cupytma.tensormap.enums import DataType, DriverEnum, Interleave, Swizzle
from cupytma.tensormap.fields import CORNER_BITS, DATA_TYPES
from cupytma.tensormap.rule import DERIVED, Rule, Violation
from cupytma.tensormap.rules import RULES

_OBSERVED_DATA_TYPES, _OBSERVED_SWIZZLES = DataType.TFLOAT32_FTZ + 1, Swizzle.B128 + 1

# By number; ranks that im2col does not have are refused by another rule.
LOOKUPS: dict[str, tuple[int, ...]] = {
    "ELEMENT_BITS": tuple(DATA_TYPES[member].element_bits for member in DataType),
    "SHARED_BITS": tuple(DATA_TYPES[member].shared_bits for member in DataType),
    "SWIZZLE_SPAN": tuple(member.span for member in Swizzle),
    "CORNER_LIMIT": tuple(1 << (CORNER_BITS.get(rank, 16) - 1) for rank in range(6)),
}


class _Clipped(tuple[int, ...]):
    """A look-up that an index outside its range cannot break: the rule on the index itself reports it."""

    def __getitem__(self, index: Any) -> Any:
        return super().__getitem__(min(max(index, 0), len(self) - 1))


def _quotient(dividend: int, divisor: int) -> int:
    return dividend // (divisor or 1)


SCALAR_LOOKUPS: dict[str, Any] = {
    **{name: _Clipped(values) for name, values in LOOKUPS.items()}, "quotient": _quotient,
}


@cache
def target_operands(target: Target) -> dict[str, Any]:
    """The operands of rules that come from the target."""
    return {
        "target": target.name,
        "data_types": len(DataType) if target.has(Feature.PACKED_TYPES) else _OBSERVED_DATA_TYPES,
        "swizzles": len(Swizzle) if target.has(Feature.SWIZZLE_ATOMICITY) else _OBSERVED_SWIZZLES,
        "box_bytes_limit": MULTIPROCESSOR_SHARED_BYTES,
        "shared_bytes": target.shared_bytes,
    }


def layout_of(mode: str, target: Target) -> str:
    """How the bits of a mode are laid out for a target."""
    return "im2col" if mode == "im2col_wide" and not target.has(Feature.IM2COL_WIDE) else mode


@cache
def _compiled(expression: str) -> CodeType:
    return compile(expression, expression, "eval")


def evaluate(expression: str, operands: dict[str, Any]) -> Any:
    """The value of one of the table's expressions."""
    return eval(_compiled(expression), {"__builtins__": {}}, operands)


def derive(operands: dict[str, Any]) -> None:
    """Add the derived operands, in place."""
    operands.update(SCALAR_LOOKUPS)
    for name, expression, modes in DERIVED:
        if operands["mode"] in modes:
            operands[name] = evaluate(expression, operands)


@cache
def rules_for(mode: str, target: str, severity: str) -> tuple[Rule, ...]:
    """The rows of a severity that hold for a mode on a target."""
    return tuple(
        rule
        for rule in RULES
        if mode in rule.modes
        and rule.severity == severity
        and (rule.feature is None or TARGETS[target].has(rule.feature))
    )


def clauses(rule: Rule, rank: int) -> list[str]:
    """A rule's predicate, once for every index it has."""
    return [
        rule.holds if i is None else rule.holds.replace("[i + 1]", f"[{i + 1}]").replace("[i]", f"[{i}]").replace(
            "(i ==", f"({i} =="
        )
        for i in rule.indices(rank)
    ]


@cache
def all_hold(mode: str, rank: int, target: str, severity: str) -> Callable[[dict[str, Any]], bool]:
    """One function that says whether every rule of a severity holds, without saying which does not."""
    rules = rules_for(mode, target, severity)
    text = " and ".join(f"({clause})" for rule in rules for clause in clauses(rule, rank)) or "True"
    code = _compiled(text)
    return lambda operands: bool(eval(code, {"__builtins__": {}}, operands))


def violations(operands: dict[str, Any], severity: str = "error") -> tuple[Violation, ...]:
    """Every rule of a severity that scalar operands break, in the order of the table.

    ``operands`` holds what `cupytma.tensormap.rule.OPERANDS` names, derived operands included.
    """
    mode, rank, target = operands["mode"], operands["rank"], operands["target"]
    if all_hold(mode, rank, target, severity)(operands):
        return ()
    found = []
    for rule in rules_for(mode, target, severity):
        for i, clause in zip(rule.indices(rank), clauses(rule, rank), strict=True):
            if not evaluate(clause, operands):
                found.append(_violation(rule, i, operands))
    return Listed(found)


def _violation(rule: Rule, index: int | None, operands: dict[str, Any]) -> Violation:
    named = {**operands, "i": index}
    return Violation(rule.id, _fill(rule.message, named), _fill(rule.fix, named), index, rule.severity)


class _Filler(string.Formatter):
    """Format strings whose fields are expressions over the operands."""

    _ENUMS: Mapping[str, type[DriverEnum]] = {"data_type": DataType, "interleave": Interleave, "swizzle": Swizzle}

    def get_field(self, field_name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        return evaluate(field_name, dict(kwargs)), field_name

    def format_field(self, value: Any, format_spec: str) -> str:
        if format_spec in self._ENUMS:
            members = {int(member): member.short_name for member in self._ENUMS[format_spec]}
            return members.get(value, str(value))
        if format_spec == "size":  # bits, said in bytes where they are whole ones
            return f"{value} bits" if value % 8 else f"{value // 8} B"
        text: str = super().format_field(value, format_spec)
        return text


def _fill(template: str, operands: dict[str, Any]) -> str:
    inner = "box_dim[0]" if operands["mode"] == "tiled" else "channels_per_pixel"
    template = template.replace("{inner:inner}", f"{inner} = {{inner_elements}}").replace("{inner:operand}", inner)
    text = _Filler().vformat(template, (), operands)
    return text.replace("_corner[0]", "_corner_width") if operands["mode"] == "im2col_wide" else text


def add_layout(operands: dict[str, Any]) -> None:
    """Add the operands that warnings alone need: what the strides reach over."""
    strides, dims, interleave = operands["global_strides"], operands["global_dim"], operands["interleave"]
    unit_bits = (operands["element_bits"], 8 * 16, 8 * 32)[interleave]
    row_bytes = reach = (unit_bits * dims[0] + 7) // 8
    dense = True
    covered = [0] * len(strides)
    for stride, i in sorted((stride, i) for i, stride in enumerate(strides) if i < operands["rank"] - 1):
        covered[i] = reach
        dense = dense and (stride == reach or dims[i + 1] == 1)
        reach += stride * (dims[i + 1] - 1)
    operands.update(row_bytes=row_bytes, covered=tuple(covered), reach=reach, dense=dense)
