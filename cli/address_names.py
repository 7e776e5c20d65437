"""Addresses that are not known yet: a name that stands where the number will be."""

from __future__ import annotations

import re
from typing import Any

import click

from cupytma.targets import DEFAULT_TARGET, Target
from cupytma.tensormap import TensorMap

from .options import parse_integer

# What C takes as an operand without parentheses: x, &x, params.x, p->x, a[3], ns::x.
_NAME = r"[&*]?[A-Za-z_]\w*(?:(?:\.|->|::)[A-Za-z_]\w*|\[\w+\])*"
_CAST = "(cuuint64_t)"
_LONGEST = 80
_WHOLE = re.compile(_NAME, re.ASCII)
_CAST_NAME = re.compile(rf"{re.escape(_CAST)}[ \t]*({_NAME})", re.ASCII)
_HEX_WITHOUT_PREFIX = re.compile(r"(?=.*\d)[0-9a-fA-F]{8,16}", re.ASCII)


class AddressName(str):
    """The name of an address that is filled in later; in the bytes it is 0."""

    __slots__ = ()


def parse_address(text: str) -> int | AddressName:
    """An address in decimal or hexadecimal, or a name for one.

    Raises
    ------
    ValueError
        If it is neither.
    """
    name = text.strip()
    if _HEX_WITHOUT_PREFIX.fullmatch(name) and not name.isdigit():
        raise ValueError(f"{name!r} is no integer; write it as 0x{name}")
    if len(name) <= _LONGEST and _WHOLE.fullmatch(name):
        return AddressName(name)
    try:
        return parse_integer(text)
    except ValueError as error:
        raise ValueError(f"{error}{'' if 'fit' in str(error) else '; a name such as d_x is filled in later'}") from None


class Address(click.ParamType):  # type: ignore[type-arg, unused-ignore]  # generic in newer click only
    """An address in bytes, or a name for one."""

    name = "address"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | AddressName:
        try:
            return parse_address(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


def demand(tensor_map: TensorMap, name: str, target: Target | None) -> str:
    """What must be filled in, in words."""
    alignment = tensor_map.decode().operands(target or DEFAULT_TARGET)["alignment"]
    return f"{name} goes to bytes 0 to 7: an address that is a multiple of {alignment} bytes, below 2^57"


def c_with_name(tensor_map: TensorMap, name: str, target: Target | None) -> str:
    """The definition in C, with the name in the place of the address."""
    first = f"{tensor_map.words[0]:#018x}"
    return f"// {demand(tensor_map, name, target)}\n{tensor_map.to_c().replace(first, _CAST + name, 1)}"


def without_name(text: str) -> tuple[str, str]:
    """A definition that `c_with_name` wrote with 0 as its address, and the name; "" and the text itself for others."""
    found = _CAST_NAME.search(text)
    return (text, "") if found is None else (_CAST_NAME.sub("0x0", text, count=1), found[1])
