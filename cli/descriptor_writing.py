"""A tensor map as people and programs want it: a table, hex, C, JSON, raw bytes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from cupytma.targets import Target
from cupytma.tensormap import TensorMap, Violation

from .address_names import c_with_name, demand
from .descriptor_card import print_card
from .failures import Failure
from .options import OutputForm
from .output import remark, show_json


def _print_hex(tensor_map: TensorMap, target: Target | None, address_name: str) -> None:
    click.echo(tensor_map.to_hex())
    _note_name(tensor_map, target, address_name)


def _print_c(tensor_map: TensorMap, target: Target | None, address_name: str) -> None:
    click.echo(c_with_name(tensor_map, address_name, target) if address_name else tensor_map.to_c())


def _print_json(tensor_map: TensorMap, target: Target | None, address_name: str) -> None:
    show_json(document_of(tensor_map, target, address_name))


def _print_raw(tensor_map: TensorMap, target: Target | None, address_name: str) -> None:
    if sys.stdout.isatty():
        raise Failure("raw bytes would garble the terminal; send them to a file (> map.bin) or a pipe")
    sys.stdout.buffer.write(bytes(tensor_map))
    _note_name(tensor_map, target, address_name)


def _note_name(tensor_map: TensorMap, target: Target | None, address_name: str) -> None:
    """Say what the bytes alone cannot: on stderr, so that pipes get the bytes alone."""
    if address_name:
        remark(f"{demand(tensor_map, address_name, target)}; they are 0 here.")


# Each takes the map, the target it was encoded for where that is known, and the name that stands for its address.
WRITERS: dict[str, Callable[[TensorMap, Target | None, str], None]] = {
    "table": print_card,
    "hex": _print_hex,
    "c": _print_c,
    "json": _print_json,
    "raw": _print_raw,
}


def document_of(tensor_map: TensorMap, target: Target | None, address_name: str = "") -> dict[str, Any]:
    """Everything known of a map as plain values; a name for its address stands where the parameters are."""
    document = tensor_map.to_dict(target)
    if address_name and document["parameters"]:
        document["parameters"]["global_address"] = address_name
    return document


def output_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: the options ``--output`` and ``--json``, which arrive as ``output``."""

    @wraps(command)
    def with_output(*, output: str, as_json: bool, **rest: Any) -> Any:
        return command(output="json" if as_json else output, **rest)

    choose = click.option(
        "-o", "--output", type=OutputForm(WRITERS, "raw"), default="table", show_default=True,
        help="What to print; hex is the bytes in memory order.",
    )
    return choose(click.option("--json", "as_json", is_flag=True, help="The same as --output json.")(with_output))


def print_violations_as_json(violations: tuple[Violation, ...]) -> None:
    """Broken rules for a program to read."""
    listed = [{"rule": v.rule, "message": v.message, "fix": v.fix, "index": v.index} for v in violations]
    show_json({"violations": listed})
