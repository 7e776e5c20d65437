"""Changing a tensor map by ``tensormap.replace`` with everything checked that the instruction does not check.

The parameters are decoded, changed and judged by the rules; what passes is written by the instruction's own effect on
the bytes, and read back. Everything is in driver order.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from cupytma.errors import DescriptorError
from cupytma.targets import Target
from cupytma.tensormap.fields import SWIZZLES
from cupytma.tensormap.mutation import ELEMENT_TYPES, MUTATORS, Mutator, Step, applied
from cupytma.tensormap.parameters import Parameters, Tiled
from cupytma.tensormap.rule import FULL_RANK, SEQUENCES
from cupytma.tensormap.tensor_map import TensorMap, describe_violations
from cupytma.words import counted

REPLACEABLE: tuple[str, ...] = tuple(dict.fromkeys(mutator.parameter for mutator in MUTATORS.values()))
# What a dimension holds that is not there: its bits are then zero, as the encoders leave them.
_NEUTRAL: dict[str, int] = {name: SEQUENCES[name][1] for name in REPLACEABLE if name in SEQUENCES}
_ENCODE = "change the parameters and encode them: dataclasses.replace(tensor_map.decode(), …).encode()"
_HOST_BORN = "the device path rebinds the address, the extents and the strides of tiled tensor maps alone"

# The operand of a mutator where it is not the parameter itself.
_OPERANDS: dict[str, Callable[[Any], Any]] = {
    "rank": lambda p: p.rank - MUTATORS["rank"].offset,
    "elemtype": lambda p: ELEMENT_TYPES.index(p.data_type),
    "swizzle_mode": lambda p: SWIZZLES[p.swizzle].swizzle_mode,
    "swizzle_atomicity": lambda p: SWIZZLES[p.swizzle].swizzle_atomicity,
}


def rebind_steps(address: Any, extents: Sequence[Any], strides: Sequence[Any]) -> tuple[Step, ...]:
    """The replacements that give a tensor map another tensor of the same rank, in the order they are made in.

    The address, then the extents of dimensions 0…rank−1, then the strides of dimensions 1…rank−1: 2·rank steps.

    Parameters
    ----------
    address : int
        Of element (0, …, 0), in bytes.
    extents : sequence of int
        In elements, driver order.
    strides : sequence of int
        In bytes, of dimensions 1…rank−1.

    Returns
    -------
    tuple of Step
        Each (field, ordinal, value), values as given: an emitter may pass the names of registers.

    Raises
    ------
    DescriptorError
        If the lengths fit no rank.
    """
    if not 1 <= len(extents) <= FULL_RANK or len(strides) != len(extents) - 1:
        raise DescriptorError(
            f"{counted(len(extents), 'extent')} and {counted(len(strides), 'stride')}; a tensor map has 1 to 5 "
            "extents and one stride less (dimension 0 is dense)"
        )
    return (
        Step("global_address", 0, address),
        *(Step("global_dim", i, extent) for i, extent in enumerate(extents)),
        *(Step("global_stride", i, stride) for i, stride in enumerate(strides)),
    )


def replaced(
    tensor_map: TensorMap, changes: Mapping[str, Any], target: Target, steps: Sequence[Step] | None = None
) -> tuple[bytes, Parameters]:
    """The bytes and the parameters after checked replacements; see `TensorMap.replace`.

    ``steps`` are the replacements to make, where they are not simply those of the changes.
    """
    held = tensor_map.decode()
    _check_names(held, changes)
    changed = _changed(held, changes)
    broken = changed.violations(target)
    if broken:
        raise DescriptorError(describe_violations(broken), broken)
    data = applied(bytes(tensor_map), _steps(held, changed, changes) if steps is None else steps, target)
    _check_written(data, held, changed, changes)
    return data, changed


def rebound(
    tensor_map: TensorMap,
    address: int,
    extents: Sequence[int],
    strides: Sequence[int],
    general: bool,
    changes: Mapping[str, Any],
    target: Target,
) -> tuple[bytes, Parameters]:
    """The bytes and the parameters after a rebind; see `TensorMap.rebind`."""
    steps = rebind_steps(address, tuple(extents), tuple(strides))
    all_changes = {"global_address": address, "global_dim": extents, "global_strides": strides, **changes}
    if general:
        rank = {} if len(extents) == tensor_map.decode().rank else {"rank": len(extents)}
        return replaced(tensor_map, {**rank, **all_changes}, target)
    _check_device_born(tensor_map, len(extents), changes)
    return replaced(tensor_map, all_changes, target, steps)


def _check_device_born(tensor_map: TensorMap, extents: int, changes: Mapping[str, Any]) -> None:
    held = tensor_map.decode()
    problems = []
    if not isinstance(held, Tiled):
        problems.append("this is an im2col tensor map, which is host-born")
    elif extents != held.rank:
        problems.append(f"{extents} extents were given for rank {held.rank}, which a rebind keeps")
    if changes:
        problems.append(f"{', '.join(changes)} cannot be changed: what has them is host-born")
    if problems:
        raise DescriptorError(f"{'; '.join(problems)}: {_HOST_BORN}; pass general=True, or encode afresh")


def _check_names(held: Parameters, changes: Mapping[str, Any]) -> None:
    known = {field.name for field in dataclasses.fields(held)} | {"rank"}
    for name in changes:
        if name not in REPLACEABLE:
            what = "tensormap.replace has no field for" if name in known else "no tensor map has a parameter"
            raise DescriptorError(f"{what} {name}; it replaces {', '.join(REPLACEABLE)}; for others {_ENCODE}")
        if name not in known:
            raise DescriptorError(
                f"an im2col tensor map has no {name}: tensormap.replace would overwrite what it has in those bits; "
                f"{_ENCODE}"
            )
    if "rank" in changes and not isinstance(held, Tiled):
        raise DescriptorError(f"the rank of an im2col tensor map decides how its corners are packed; {_ENCODE}")


def _changed(held: Parameters, changes: Mapping[str, Any]) -> Parameters:
    """The parameters after the changes, entries given by index put in their places."""
    rank = _rank(held, changes)
    values = {name: value for name, value in changes.items() if name != "rank"}
    for name in _sequences(held):
        entries = (*getattr(held, name), *(_NEUTRAL[name],) * FULL_RANK)[: _length(name, rank)]
        values[name] = _merged(name, entries, values.get(name, {}), rank)
    _check_new_strides(held, values, changes)
    return dataclasses.replace(held, **values)


def _rank(held: Parameters, changes: Mapping[str, Any]) -> int:
    try:
        rank = operator.index(changes.get("rank", held.rank))
    except TypeError:
        raise DescriptorError(f"rank = {changes['rank']!r} is no integer") from None
    if not 1 <= rank <= FULL_RANK:
        raise DescriptorError(f"rank {rank} is outside 1…{FULL_RANK}")
    return rank


def _sequences(held: Parameters) -> tuple[str, ...]:
    return tuple(name for name in _NEUTRAL if hasattr(held, name))


def _length(name: str, rank: int) -> int:
    return rank - SEQUENCES[name][0]


def _merged(name: str, entries: tuple[int, ...], change: Any, rank: int) -> Any:
    """All entries of a sequence, those given by index in their places; a whole sequence as it is."""
    if not isinstance(change, Mapping):
        try:
            given = len(change)
        except TypeError:
            raise DescriptorError(f"{name} = {change!r}: give all entries, or {{index: value}}") from None
        if given != len(entries):
            raise DescriptorError(
                f"{name} has {counted(given, 'entry')}, and rank {rank} needs {len(entries)}; pass rank= as well to "
                "change it"
            )
        return change
    for index in change:
        if index not in range(len(entries)):
            raise DescriptorError(f"{name} has no entry {index!r}: rank {rank} has {len(entries)} of them, from 0 up")
    return tuple(change.get(i, entry) for i, entry in enumerate(entries))


def _check_new_strides(held: Parameters, values: Mapping[str, Any], changes: Mapping[str, Any]) -> None:
    """A dimension that is added and has an extent needs a stride; nothing else could know it."""
    given = changes.get("global_strides", {})
    for i in range(held.rank, len(values["global_dim"])):
        if values["global_dim"][i] != 1 and isinstance(given, Mapping) and i - 1 not in given:
            raise DescriptorError(
                f"dimension {i} is new and has extent {values['global_dim'][i]}: give global_strides[{i - 1}] as well"
            )


def _steps(held: Parameters, changed: Parameters, changes: Mapping[str, Any]) -> tuple[Step, ...]:
    """The replacements that the changes stand for, in the order of the instruction's fields."""
    return tuple(step for mutator in MUTATORS.values() for step in _steps_of(mutator, held, changed, changes))


def _steps_of(mutator: Mutator, held: Parameters, changed: Parameters, changes: Mapping[str, Any]) -> Iterator[Step]:
    name = mutator.parameter
    if mutator.ordinals:
        for ordinal in _ordinals(name, held, changed, changes):
            values = getattr(changed, name)
            yield Step(mutator.field, ordinal, values[ordinal] if ordinal < len(values) else _NEUTRAL[name])
    elif name in changes:
        operand = _OPERANDS.get(mutator.field, operator.attrgetter(name))
        # Targets without atom swizzles have no instruction for the atom either, and need none.
        if mutator.field != "swizzle_atomicity" or operand(changed) != operand(held):
            yield Step(mutator.field, 0, int(operand(changed)))


def _ordinals(name: str, held: Parameters, changed: Parameters, changes: Mapping[str, Any]) -> Sequence[int]:
    """The entries to write: those changed, and those of dimensions that come or go with the rank."""
    if not hasattr(held, name):
        return ()
    change = changes.get(name, {})
    before, after = len(getattr(held, name)), len(getattr(changed, name))
    listed = change if isinstance(change, Mapping) else range(after)
    return sorted({*listed, *range(min(before, after), max(before, after))})


def _check_written(data: bytes, held: Parameters, changed: Parameters, changes: Mapping[str, Any]) -> None:
    """Refuse what the instruction cannot say: it never clears the TF32 flag."""
    try:
        read = TensorMap(data).decode()
        wrong = [name for name in changes if getattr(read, name) != getattr(changed, name)]
        reason = "the bits it does not write keep their old meaning"
    except DescriptorError as error:
        # Bits that no longer make sense come of the one field that the instruction cannot write all of.
        wrong = [name for name in changes if name == "data_type"] or list(changes)
        reason = str(error)
    if wrong:
        pairs = (f"{name} from {getattr(held, name)} to {getattr(changed, name)}" for name in wrong)
        raise DescriptorError(f"tensormap.replace cannot change {', '.join(pairs)}: {reason}; {_ENCODE}")
