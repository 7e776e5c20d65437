"""``cupytma decode``: what the bytes of a tensor map say."""

from __future__ import annotations

import re
import sys

import click

from cupytma.errors import DescriptorError
from cupytma.targets import TARGETS, Target
from cupytma.tensormap import TensorMap, Violation

from .descriptor_writing import WRITERS, output_options, print_violations_as_json
from .failures import Failure, violations_text
from .options import TargetName
from .sources import STANDARD_INPUT, is_path, read_file, read_standard_input

# Has every feature that a tensor map can use: what is illegal here is illegal everywhere.
_MOST_PERMISSIVE = TARGETS["sm_100a"]
# What may have been meant as the name of a file.
_NAME = re.compile(r"[^\s{},]+")


@click.command(
    epilog="\b\nExamples:\n"
    "  cupytma decode map.bin\n"
    "  cupytma encode tiled --from map.toml --output hex | cupytma decode -\n"
    "  cuda-gdb … -ex 'x/16gx &map' | cupytma decode - --json"
)
@click.argument("source", nargs=-1)
@click.option("--target", type=TargetName(), help="Check against its rules; by default the rules of every target.")
@output_options
def decode(source: tuple[str, ...], target: Target | None, output: str) -> None:
    """Read a tensor map and name every field.

    SOURCE is a file, - for standard input, or the text itself: hex in memory order (spaces and line breaks do not
    matter), 16 words of 64 bits as a debugger's x/16gx prints them, a C initialiser, or JSON as `cupytma encode`
    prints it. A file may also hold the 128 raw bytes.
    """
    tensor_map = _read(source)
    try:
        broken = tensor_map.decode().violations(target or _MOST_PERMISSIVE)
    except DescriptorError as error:
        if output == "table":
            _print_what_is_known(tensor_map)
        raise Failure(str(error)) from None
    if broken and output == "json":
        print_violations_as_json(broken)
    else:
        WRITERS[output](tensor_map, target, "")
    if tensor_map.reserved_bits:
        click.echo(f"Warning: bits are set that mean nothing known: {', '.join(tensor_map.reserved_bits)}", err=True)
    if broken:
        raise Failure(
            violations_text(
                f"no driver would make this{f' for {target}' if target else ''}", broken,
                lambda violation: _place(tensor_map, violation),
            )
        )


def _read(source: tuple[str, ...]) -> TensorMap:
    if not source:
        if sys.stdin is None or sys.stdin.isatty():  # closed, it is None
            raise click.UsageError("nothing to decode; give a file, the text itself, or - for standard input")
        return TensorMap.parse(read_standard_input())
    if len(source) == 1 and (source[0] == STANDARD_INPUT or is_path(source[0])):
        return TensorMap.parse(read_file(source[0]))
    try:
        return TensorMap.parse(" ".join(source))
    except DescriptorError as error:
        if len(source) > 1 or not _NAME.fullmatch(source[0]):
            raise
        name = _shortened(source[0])
        raise Failure(f"there is no file {name!r}, and it is no tensor map: {error}") from None


def _print_what_is_known(tensor_map: TensorMap) -> None:
    try:
        tensor_map.fields()
    except DescriptorError:
        return  # without a rank it is unknown which fields there are
    WRITERS["table"](tensor_map, None, "")


def _place(tensor_map: TensorMap, violation: Violation) -> str:
    """The bits of the fields that a violation speaks of."""
    return ", ".join(field.bits for field in tensor_map.fields() if field.label in violation.message)


def _shortened(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:40]}…"
