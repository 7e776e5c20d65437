"""The rule table at work: predicates compiled once, messages filled in when a rule is broken."""

from __future__ import annotations

import string
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from types import CodeType
from typing import Any

from cupytma.targets import Feature, Target
from cupytma.tensormap.enums import DataType, DriverEnum, Interleave, Swizzle
from cupytma.tensormap.fields import CORNER_BITS, DATA_TYPES
from cupytma.tensormap.rules import DERIVED, RULES, Rule, Violation

# The largest box the driver accepts: the whole shared memory of a multiprocessor, whatever the kernel may allocate.
_BOX_BYTES_LIMIT = 228 * 1024
_OBSERVED_DATA_TYPES, _OBSERVED_SWIZZLES = DataType.TFLOAT32_FTZ + 1, Swizzle.B128 + 1

ELEMENT_BYTES: tuple[int, ...] = tuple(DATA_TYPES[t].element_bytes if t in DATA_TYPES else 1 for t in DataType)
SWIZZLE_SPAN: tuple[int, ...] = tuple(s.span for s in Swizzle)
# By rank; ranks that im2col does not have are refused by another rule.
CORNER_LIMIT: tuple[int, ...] = tuple(1 << (CORNER_BITS.get(rank, 16) - 1) for rank in range(6))


class _Clipped(tuple[int, ...]):
    """A look-up that an index outside its range cannot break: the rule on the index itself reports it."""

    def __getitem__(self, index: Any) -> Any:
        return super().__getitem__(min(max(index, 0), len(self) - 1))


SCALAR_TABLES: dict[str, Any] = {
    "ELEMENT_BYTES": _Clipped(ELEMENT_BYTES),
    "SWIZZLE_SPAN": _Clipped(SWIZZLE_SPAN),
    "CORNER_LIMIT": _Clipped(CORNER_LIMIT),
}


def target_operands(target: Target) -> dict[str, Any]:
    """The operands of rules that come from the target."""
    return {
        "target": target.name,
        "data_types": len(DataType) if target.has(Feature.PACKED_TYPES) else _OBSERVED_DATA_TYPES,
        "swizzles": len(Swizzle) if target.has(Feature.SWIZZLE_ATOMICITY) else _OBSERVED_SWIZZLES,
        "shared_bytes": _BOX_BYTES_LIMIT,
    }


@cache
def _compiled(expression: str) -> CodeType:
    return compile(expression, expression, "eval")


def evaluate(expression: str, operands: dict[str, Any]) -> Any:
    """The value of one of the table's expressions."""
    return eval(_compiled(expression), {"__builtins__": {}}, operands)


def derive(operands: dict[str, Any], tables: Mapping[str, Any]) -> None:
    """Add the derived operands, in place. Works for integers and for numpy columns alike."""
    operands.update(tables)
    for name, expression, modes in DERIVED:
        if operands["mode"] in modes:
            operands[name] = evaluate(expression, operands)


@cache
def _quick_check(mode: str, rank: int) -> Callable[[dict[str, Any]], bool]:
    """One function that says whether every error rule of a mode holds, without saying which does not."""
    clauses = [
        f"({rule.holds})" if i is None else f"({rule.holds.replace('[i]', f'[{i}]')})"
        for rule in RULES
        if mode in rule.modes and rule.severity == "error"
        for i in rule.indices(rank)
    ]
    code = _compiled(" and ".join(clauses))
    return lambda operands: bool(eval(code, {"__builtins__": {}}, operands))


def violations(operands: dict[str, Any], severity: str = "error") -> tuple[Violation, ...]:
    """Every rule of a severity that scalar operands break, in the order of the table.

    ``operands`` holds everything in `cupytma.tensormap.rules.OPERANDS`, derived ones included.
    """
    mode, rank = operands["mode"], operands["rank"]
    if severity == "error" and _quick_check(mode, rank)(operands):
        return ()
    found = []
    for rule in RULES:
        if mode in rule.modes and rule.severity == severity:
            for i in rule.indices(rank):
                operands["i"] = i
                if not evaluate(rule.holds, operands):
                    found.append(_violation(rule, i, operands))
    operands.pop("i", None)
    return tuple(found)


def _violation(rule: Rule, index: int | None, operands: dict[str, Any]) -> Violation:
    return Violation(rule.id, _fill(rule.message, operands), _fill(rule.fix, operands), index, rule.severity)


class _Filler(string.Formatter):
    """Format strings whose fields are expressions over the operands."""

    _ENUMS: Mapping[str, type[DriverEnum]] = {"data_type": DataType, "interleave": Interleave, "swizzle": Swizzle}

    def get_field(self, field_name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        return evaluate(field_name, dict(kwargs)), field_name

    def format_field(self, value: Any, format_spec: str) -> str:
        if format_spec in self._ENUMS:
            members = {int(member): member.short_name for member in self._ENUMS[format_spec]}
            return members.get(value, str(value))
        text: str = super().format_field(value, format_spec)
        return text


def _fill(template: str, operands: dict[str, Any]) -> str:
    inner = "box_dim[0]" if operands["mode"] == "tiled" else "channels_per_pixel"
    template = template.replace("{inner:inner}", f"{inner} = {{inner_elements}}").replace("{inner:operand}", inner)
    return _Filler().vformat(template, (), operands)
