"""An array in words, ``shape=512,1024,dtype=float16,box=32,64``, as parameters of its tensor map."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import click
from click.shell_completion import CompletionItem

from cupytma.errors import ArrayError, DescriptorError
from cupytma.tensormap.arrays import PACKED_TYPES, array_parameters, data_type_of
from cupytma.tensormap.enums import DataType
from cupytma.tensormap.fields import DATA_TYPES
from cupytma.tensormap.views import ArrayView, packed_elements
from cupytma.words import counted

from .address_names import AddressName, parse_address
from .failures import Failure
from .options import parse_integer, starting
from .output import shortened

_EXAMPLE = "shape=512,1024,dtype=float16,box=32,64"
# What an array is said by, and how each is read.
_KEYS = ("shape", "dtype", "box", "strides", "address", "coalesce")
_ENTRY = re.compile(r",\s*(?=[A-Za-z_]+\s*=)")
_TIMES = re.compile(r"(?<=\d)[x×](?=\d)")
_MOST_DIMENSIONS = 64
_INNER_BITS = 128  # of a box that no rule refuses


class ArrayForm(click.ParamType):  # type: ignore[type-arg, unused-ignore]  # generic in newer click only
    """An array in words; everything in array order, as numpy has it."""

    name = "array"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> dict[str, Any]:
        if isinstance(value, dict):
            return value
        try:
            return parse_array(str(value))
        except ValueError as error:
            self.fail(f"{error}; write it as {_EXAMPLE}", param, ctx)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        done, comma, last = incomplete.rpartition(",")
        named = {entry.partition("=")[0] for entry in incomplete.split(",")}
        words = (f"{done}{comma}{key}=" for key in _KEYS if key not in named and key.startswith(last.lower()))
        return starting(words, incomplete)


def parse_array(text: str) -> dict[str, Any]:
    """The words by name: ``shape``, ``dtype``, ``box``, ``strides`` (bytes, one for each dimension), ``address``.

    Raises
    ------
    ValueError
        If a word is unknown, missing, given twice or no such value.
    """
    found: dict[str, Any] = {}
    for entry in _ENTRY.split(text.strip()):
        key, equals, value = (part.strip() for part in entry.partition("="))
        if not equals or key not in _KEYS:
            raise ValueError(f"{shortened(entry)!r} is none of {', '.join(f'{name}=…' for name in _KEYS)}")
        if key in found:
            raise ValueError(f"{key} is given twice")
        found[key] = _value(key, value)
    missing = [key for key in ("shape", "dtype") if key not in found]
    if missing:
        raise ValueError(f"{' and '.join(missing)} of the array {'is' if len(missing) == 1 else 'are'} missing")
    for key in ("box", "strides"):
        if key in found and len(found[key]) != len(found["shape"]) and not (key == "box" and found.get("coalesce")):
            raise ValueError(f"{key} has {counted(len(found[key]), 'entry')}, and shape {len(found['shape'])}")
    return found


def parameters_of(array: Mapping[str, Any], interleave: Any, known: tuple[str, ...]) -> dict[str, Any]:
    """What an array says of its tensor map, in driver order.

    Parameters
    ----------
    array : mapping
        As `parse_array` returns it.
    interleave : Interleave, str or int
        With 16B or 32B the array's last dimension is the slice of channels, and none of the tensor map's.
    known : tuple of str
        The parameters that the kind of map has: im2col has no box.

    Raises
    ------
    Failure
        If no tensor map describes such an array.
    """
    if "box" in array and "box_dim" not in known:
        raise Failure("an im2col map has no box: leave box=… out, and give --channels-per-pixel and the like")
    address = array.get("address", 0)
    try:
        data_type = data_type_of(array["dtype"])
        if data_type in PACKED_TYPES:
            raise ArrayError(packed_elements(str(data_type)))
        view = _view(array, data_type, 0 if isinstance(address, AddressName) else address)
        box = array.get("box") or _some_box(view, data_type, bool(interleave) and str(interleave) != "NONE")
        made = array_parameters(view, box, interleave=interleave, coalesce=array.get("coalesce", False))
    except (ArrayError, DescriptorError) as error:
        raise Failure(f"--from-array: {error}") from None
    names = ["data_type", "global_dim", "global_strides"]
    names += ["box_dim"] if "box" in array else []
    return {**{name: getattr(made, name) for name in names}, **({"global_address": address} if address else {})}


def _value(key: str, value: str) -> Any:
    if key == "dtype":
        return _dtype(value)
    if key == "address":
        return parse_address(value)
    if key == "coalesce":
        if value.lower() not in ("true", "false"):
            raise ValueError(f"coalesce is {shortened(value)!r}, and says true or false")
        return value.lower() == "true"
    entries = [entry for part in value.strip("()[]").split(",") for entry in _extents(part)]
    if len(entries) > 1 and not entries[-1]:
        entries.pop()  # a tuple of one ends in a comma
    numbers = tuple(parse_integer(entry) for entry in entries)
    if len(numbers) > _MOST_DIMENSIONS:
        raise ValueError(
            f"{key} has {counted(len(numbers), 'entry')}; an array has {_MOST_DIMENSIONS} dimensions at most"
        )
    if key != "strides" and min(numbers) < 0:
        raise ValueError(f"{key} has the negative entry {min(numbers)}")
    return numbers


def _extents(text: str) -> list[str]:
    """``32x64`` as two numbers; ``0x20`` as one."""
    return [text] if text.strip().lower().startswith("0x") else _TIMES.split(text)


def _dtype(text: str) -> str:
    """The name of a dtype, of whatever library; numpy's short forms are asked of numpy."""
    name = text.removeprefix("torch.").removeprefix("np.").removeprefix("numpy.")
    try:
        data_type_of(name)
    except ArrayError:
        import numpy as np

        try:
            return str(np.dtype(name).name)
        except (TypeError, ValueError, SyntaxError):
            raise ValueError(
                f"{shortened(text)!r} is no dtype of numpy or ml_dtypes, and none of "
                f"{', '.join(member.short_name for member in DataType)}"
            ) from None
    return name


def _view(array: Mapping[str, Any], data_type: DataType, address: int) -> ArrayView:
    itemsize = DATA_TYPES[data_type].element_bits // 8
    shape: tuple[int, ...] = array["shape"]
    strides, step = [], itemsize
    for extent in reversed(shape):
        strides.append(step)
        step *= extent
    dense = tuple(reversed(strides))
    return ArrayView(address, shape, array.get("strides", dense), array["dtype"], itemsize, device=0)


def _some_box(view: ArrayView, data_type: DataType, interleaved: bool) -> tuple[int, ...]:
    """A box that nothing is wrong with, where the parameters have another or none."""
    inner = view.shape[-1] if interleaved and view.shape else _INNER_BITS // DATA_TYPES[data_type].element_bits
    return (*(1 for _ in view.shape[1:]), inner)
