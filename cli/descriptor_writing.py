"""A tensor map as people and programs want it: a table, hex, C, JSON, raw bytes."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from cupytma.targets import Target
from cupytma.tensormap import TensorMap, Violation

from .descriptor_card import print_card
from .failures import Failure


def _print_hex(tensor_map: TensorMap, target: Target | None) -> None:
    click.echo(tensor_map.to_hex())


def _print_c(tensor_map: TensorMap, target: Target | None) -> None:
    click.echo(tensor_map.to_c())


def _print_json(tensor_map: TensorMap, target: Target | None) -> None:
    click.echo(tensor_map.to_json(target))


def _print_raw(tensor_map: TensorMap, target: Target | None) -> None:
    if sys.stdout.isatty():
        raise Failure("raw bytes would garble the terminal; send them to a file (> map.bin) or a pipe")
    sys.stdout.buffer.write(bytes(tensor_map))


WRITERS: dict[str, Callable[[TensorMap, Target | None], None]] = {
    "table": print_card,
    "hex": _print_hex,
    "c": _print_c,
    "json": _print_json,
    "raw": _print_raw,
}


def output_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: the options ``--output`` and ``--json``, which arrive as ``output``."""

    @wraps(command)
    def with_output(*, output: str, as_json: bool, **rest: Any) -> Any:
        return command(output="json" if as_json else output, **rest)

    choose = click.option(
        "-o", "--output", type=click.Choice(tuple(WRITERS)), default="table", show_default=True,
        help="What to print; hex is the bytes in memory order.",
    )
    return choose(click.option("--json", "as_json", is_flag=True, help="The same as --output json.")(with_output))


def print_violations_as_json(violations: tuple[Violation, ...]) -> None:
    """Broken rules for a program to read."""
    listed = [{"rule": v.rule, "message": v.message, "fix": v.fix, "index": v.index} for v in violations]
    click.echo(json.dumps({"violations": listed}, indent=2))

