"""``cupytma encode``: parameters to the 128 bytes of a tensor map."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any

import click

from cupytma.errors import DescriptorError
from cupytma.targets import DEFAULT_TARGET, TARGETS, Target
from cupytma.targets import target as target_of
from cupytma.tensormap import (
    DataType,
    Im2col,
    Im2colWide,
    Interleave,
    L2Promotion,
    OobFill,
    Parameters,
    Swizzle,
    Tiled,
    WideMode,
)
from cupytma.tensormap.arrays import array_order
from cupytma.tensormap.enums import DriverEnum

from .address_names import Address, AddressName
from .array_forms import ArrayForm, parameters_of
from .descriptor_writing import WRITERS, output_options, print_violations_as_json
from .failures import Failure, violations_text
from .options import Integer, Integers, Member, Source, TargetName
from .parameter_files import read_parameters

_DIMENSIONS = "N,N,…"


def _members(enumeration: type[DriverEnum]) -> str:
    return ", ".join(member.short_name for member in enumeration)


# For each parameter of any kind of tensor map: further option names, type, metavar, help.
_OPTIONS: dict[str, tuple[tuple[str, ...], Address | Integer | Integers | Member, str, str]] = {
    "data_type": ((), Member(DataType), "TYPE", f"Of the elements: {_members(DataType)}."),
    "global_address": (
        ("--address",), Address(), "N|NAME",
        "Of the first element, in bytes; 0x… is understood. Default 0. A name, such as d_x or params.x, stands in C "
        "and JSON as it is; in the bytes it is 0, to be filled in later.",
    ),
    "global_dim": ((), Integers(), _DIMENSIONS, "Extents in elements, the fastest dimension first."),
    "global_strides": (
        (), Integers(), _DIMENSIONS, "Bytes between neighbours in dimensions 1 and up. Default: dense."
    ),
    "box_dim": ((), Integers(), _DIMENSIONS, "Extents of the box that one instruction moves, in elements."),
    "pixel_box_lower_corner": (
        (), Integers(), _DIMENSIONS, "Pixels from the first one to the first start pixel, W first: -1,-1 for padding 1."
    ),
    "pixel_box_upper_corner": (
        (), Integers(), _DIMENSIONS, "Pixels from the last one to the last start pixel, W first."
    ),
    "pixel_box_lower_corner_width": ((), Integer(), "N", "Pixels from the first one to the first start pixel, in W."),
    "pixel_box_upper_corner_width": ((), Integer(), "N", "Pixels from the last one to the last start pixel, in W."),
    "channels_per_pixel": ((), Integer(), "N", "Elements of dimension 0 that one instruction brings of each pixel."),
    "pixels_per_column": ((), Integer(), "N", "Pixels that one instruction brings."),
    "mode": ((), Member(WideMode), "NAME", f"How pixels are counted along W: {_members(WideMode)}."),
    "element_strides": ((), Integers(), _DIMENSIONS, "Take every n-th element. Default: 1 in every dimension."),
    "interleave": ((), Member(Interleave), "NAME", f"{_members(Interleave)}."),
    "swizzle": ((), Member(Swizzle), "NAME", f"{_members(Swizzle)}."),
    "l2_promotion": ((), Member(L2Promotion), "NAME", f"{_members(L2Promotion)}."),
    "oob_fill": ((), Member(OobFill), "NAME", f"Of elements out of bounds: {_members(OobFill)}. NONE fills with 0."),
}
_PIXELS = "dimension 0, the channels, is the fastest, then come W, H, D as far as there are, and the batch"
_FILE = "FILE holds parameters as JSON or TOML (- for standard input); options override it."
_ADDRESS = "global_address"
_DEFAULTS: dict[str, Any] = {_ADDRESS: 0}


class _Kinds(click.Group):
    """The kinds of tensor map, of which one comes before its options."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            raise self.missing(ctx, f" before {error.option_name}") from None

    def missing(self, ctx: click.Context, place: str = "") -> click.UsageError:
        """The error that says that no kind is given, and at which place it is missed."""
        kinds = ", ".join(self.list_commands(ctx))
        message = f"missing the kind of tensor map{place}: {kinds}; `cupytma encode tiled --help` shows how"
        return click.UsageError(message, ctx)


@click.group(
    cls=_Kinds,
    invoke_without_command=True,
    epilog="\b\nExample:\n  cupytma encode tiled --from-array shape=512,1024,dtype=float16,box=32,64",
)
@click.pass_context
def encode(context: click.Context) -> None:
    """Make the 128 bytes of a tensor map, as the driver would. Needs no GPU.

    Exit code 2, and every broken rule, if the driver would refuse.
    """
    if context.invoked_subcommand is None:
        raise encode.missing(context)


def _encoder(kind: type[Parameters], default: Target, title: str, summary: str, example: str) -> click.Command:
    """The command that encodes one kind of tensor map, with an option for each of its parameters."""
    names = tuple(name for name in _OPTIONS if name in {field.name for field in fields(kind)})
    required = tuple(
        field.name for field in fields(kind) if field.default is MISSING and field.name not in _DEFAULTS
    )

    def run(
        file: str | None, source: str | None, array: dict[str, Any] | None, target: Target | None, output: str,
        **given: Any,
    ) -> None:
        if file is not None and source is not None:
            raise click.UsageError(f"parameters come from one file, and {file!r} and {source!r} are given")
        source = file if source is None else source
        values, named = read_parameters(source, kind.kind, names) if source is not None else ({}, None)
        options = {name: value for name, value in given.items() if value is not None}
        if array is not None:
            interleave = {**values, **options}.get("interleave", Interleave.NONE)
            values.update(parameters_of(array, interleave, names))
        values = {**_DEFAULTS, **values, **options}
        missing = [_option_name(name) for name in required if name not in values]
        if missing:
            raise click.UsageError(f"missing {', '.join(missing)}; give options, or a file of parameters with --from")
        address = values[_ADDRESS]
        name = address if isinstance(address, AddressName) else ""
        parameters = kind(**{**values, _ADDRESS: 0 if name else address})
        _encode(parameters, target or target_of(named or default), output, name, of_array=array is not None)

    command: Any = run
    for decorate in reversed((
        click.argument("file", required=False, type=Source()),
        *(_option(name) for name in names),
        click.option("--target", type=TargetName(), help=f"The architecture.  [default: {default}]"),
        click.option(
            "--from", "source", type=Source(), metavar="FILE", help="The same as FILE.",
        ),
        click.option(
            "--from-array", "array", type=ArrayForm(), metavar="ARRAY",
            help="Take the type, extents and strides of an array in its own order, the last dimension fastest: "
            f"shape=…,dtype=…{',box=…' if 'box_dim' in names else ''}; also strides=… in bytes, address=… and "
            "coalesce=true. Other options override it.",
        ),
        output_options,
    )):
        command = decorate(command)
    return click.command(
        kind.kind.replace("_", "-"), short_help=title, help=f"{title} {summary}\n\n{_FILE}", epilog=example
    )(command)


def _option_name(name: str) -> str:
    return "--" + name.replace("_", "-")


def _option(name: str) -> Any:
    aliases, kind, metavar, text = _OPTIONS[name]
    return click.option(*aliases, _option_name(name), name, type=kind, metavar=metavar, help=text)


def _encode(parameters: Parameters, target: Target, output: str, address_name: str, of_array: bool) -> None:
    try:
        tensor_map = parameters.encode(target)
    except DescriptorError as error:
        if of_array:  # as the user gave it
            error = array_order(error, parameters.rank)
        if output == "json":
            print_violations_as_json(error.violations)
        raise Failure(
            violations_text(f"the driver would refuse this for {target}", error.violations)
            if error.violations else str(error)
        ) from None
    WRITERS[output](tensor_map, target, address_name)


_COMMANDS: tuple[tuple[type[Parameters], Target, str, str, str], ...] = (
    (
        Tiled, DEFAULT_TARGET,
        "A tensor that is moved in boxes.",
        "In the words of cuTensorMapEncodeTiled; dimension 0 is the fastest.",
        "\b\nExamples:\n"
        "  cupytma encode tiled --data-type FLOAT16 --global-dim 1024,512 \\\n"
        "      --box-dim 64,32 --swizzle 128B\n"
        "  cupytma encode tiled --from-array shape=512,1024,dtype=float16,box=32,64 \\\n"
        "      --swizzle 128B -o raw > map.bin\n"
        "  cupytma encode tiled map.toml --address 0x7f0000000000 --output c\n"
        "  cupytma encode tiled --address d_x --output c \\\n"
        "      --from-array shape=512,1024,dtype=float16,box=32,64",
    ),
    (
        Im2col, DEFAULT_TARGET,
        "A tensor of pixels that is walked as a convolution does.",
        f"In the words of cuTensorMapEncodeIm2col; {_PIXELS}.",
        "\b\nExample, the loads of a 3×3 convolution with padding 1:\n"
        "  cupytma encode im2col --data-type FLOAT16 --global-dim 64,56,56,32 \\\n"
        "      --pixel-box-lower-corner -1,-1 --pixel-box-upper-corner -1,-1 \\\n"
        "      --channels-per-pixel 64 --pixels-per-column 128 --swizzle 128B",
    ),
    (
        Im2colWide, TARGETS["sm_100a"],
        "A tensor of pixels that is walked along W alone.",
        f"In the words of cuTensorMapEncodeIm2colWide; {_PIXELS}.",
        "\b\nExample:\n"
        "  cupytma encode im2col-wide --data-type FLOAT16 --global-dim 64,56,56,32 \\\n"
        "      --pixel-box-lower-corner-width -1 --pixel-box-upper-corner-width -1 \\\n"
        "      --channels-per-pixel 64 --pixels-per-column 128 --swizzle 128B",
    ),
)
for _row in _COMMANDS:
    encode.add_command(_encoder(*_row))
