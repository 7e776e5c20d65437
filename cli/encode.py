"""``cupytma encode``: parameters to the 128 bytes of a tensor map."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any

import click

from cupytma.errors import DescriptorError
from cupytma.targets import DEFAULT_TARGET, Target
from cupytma.targets import target as target_of
from cupytma.tensormap import DataType, Interleave, L2Promotion, OobFill, Parameters, Swizzle, Tiled
from cupytma.tensormap.enums import DriverEnum

from .descriptor_writing import WRITERS, output_options, print_violations_as_json
from .failures import Failure, violations_text
from .options import Integer, Integers, Member, TargetName
from .parameter_files import read_parameters

_DIMENSIONS = "N,N,…"


def _members(enumeration: type[DriverEnum]) -> str:
    return ", ".join(member.short_name for member in enumeration)


# For each parameter of any kind of tensor map: further option names, type, metavar, help.
_OPTIONS: dict[str, tuple[tuple[str, ...], Integer | Integers | Member, str, str]] = {
    "data_type": ((), Member(DataType), "TYPE", f"Of the elements: {_members(DataType)}."),
    "global_address": (("--address",), Integer(), "N", "Of the first element, in bytes; 0x… is understood. Default 0."),
    "global_dim": ((), Integers(), _DIMENSIONS, "Extents in elements, the fastest dimension first."),
    "global_strides": (
        (), Integers(), _DIMENSIONS, "Bytes between neighbours in dimensions 1 and up. Default: dense."
    ),
    "box_dim": ((), Integers(), _DIMENSIONS, "Extents of the box that one instruction moves, in elements."),
    "element_strides": ((), Integers(), _DIMENSIONS, "Take every n-th element. Default: 1 in every dimension."),
    "interleave": ((), Member(Interleave), "NAME", f"{_members(Interleave)}."),
    "swizzle": ((), Member(Swizzle), "NAME", f"{_members(Swizzle)}."),
    "l2_promotion": ((), Member(L2Promotion), "NAME", f"{_members(L2Promotion)}."),
    "oob_fill": ((), Member(OobFill), "NAME", f"Of elements out of bounds: {_members(OobFill)}. NONE fills with 0."),
}
_DEFAULTS: dict[str, Any] = {"global_address": 0}


@click.group()
def encode() -> None:
    """Make the 128 bytes of a tensor map, as the driver would. Needs no GPU."""


def _encoder(kind: type[Parameters], summary: str, example: str) -> click.Command:
    """The command that encodes one kind of tensor map, with an option for each of its parameters."""
    names = tuple(name for name in _OPTIONS if name in {field.name for field in fields(kind)})
    required = tuple(
        field.name for field in fields(kind) if field.default is MISSING and field.name not in _DEFAULTS
    )

    def run(source: str | None, target: Target | None, output: str, **given: Any) -> None:
        values, named = read_parameters(source, kind.kind, names) if source is not None else ({}, None)
        values = {**_DEFAULTS, **values, **{name: value for name, value in given.items() if value is not None}}
        missing = [_option_name(name) for name in required if name not in values]
        if missing:
            raise click.UsageError(f"missing {', '.join(missing)}; give options, or a file of parameters with --from")
        _encode(kind(**values), target or target_of(named or DEFAULT_TARGET), output)

    command: Any = run
    for decorate in reversed((
        *(_option(name) for name in names),
        click.option("--target", type=TargetName(), help="The architecture.  [default: sm_90a]"),
        click.option(
            "--from", "source", metavar="FILE",
            help="Take parameters from a JSON or TOML file (- for standard input). Other options override it.",
        ),
        output_options,
    )):
        command = decorate(command)
    return click.command(kind.kind.replace("_", "-"), help=summary, epilog=example)(command)


def _option_name(name: str) -> str:
    return "--" + name.replace("_", "-")


def _option(name: str) -> Any:
    aliases, kind, metavar, text = _OPTIONS[name]
    return click.option(*aliases, _option_name(name), name, type=kind, metavar=metavar, help=text)


def _encode(parameters: Parameters, target: Target, output: str) -> None:
    try:
        tensor_map = parameters.encode(target)
    except DescriptorError as error:
        if output == "json":
            print_violations_as_json(error.violations)
        raise Failure(
            violations_text(f"the driver would refuse this for {target}", error.violations)
            if error.violations else str(error)
        ) from None
    WRITERS[output](tensor_map, target)


encode.add_command(
    _encoder(
        Tiled,
        "A tensor that is moved in boxes, in the words of cuTensorMapEncodeTiled; dimension 0 is the fastest.",
        "\b\nExamples:\n"
        "  cupytma encode tiled --data-type FLOAT16 --global-dim 1024,512 \\\n"
        "      --box-dim 64,32 --swizzle 128B\n"
        "  cupytma encode tiled --from map.toml --address 0x7f0000000000 --output c",
    )
)
