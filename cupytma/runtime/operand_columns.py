"""Parameters of many tensor maps as columns: one entry for all maps, or one row for each, on the host or the device."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from cupytma.errors import ArrayError, DescriptorError
from cupytma.runtime.device_rules import KIND, OPERANDS, SCALARS
from cupytma.runtime.given import shown
from cupytma.targets import Target
from cupytma.tensormap import checking
from cupytma.tensormap.arrays import ArrayView, view_of
from cupytma.tensormap.enums import DataType, DriverEnum, Interleave, L2Promotion, OobFill, Swizzle
from cupytma.tensormap.parameters import Tiled
from cupytma.tensormap.rule import DERIVED, FULL_RANK, SEQUENCES
from cupytma.tensormap.rules import RULES_BY_ID
from cupytma.words import counted

ENTRIES = dict(OPERANDS)
_ENUMS: dict[str, type[DriverEnum]] = {
    "data_type": DataType, "interleave": Interleave, "swizzle": Swizzle, "l2_promotion": L2Promotion,
    "oob_fill": OobFill,
}  # fmt: skip
_DEVICE_TYPES = ("int32", "uint32", "int64", "uint64")
_DEFAULTS: dict[str, Any] = {"interleave": 0, "swizzle": 0, "l2_promotion": 0, "oob_fill": 0}
# What stands in on the host for what only the device knows: no rule objects to it.
_STAND_INS = {"global_address": 1 << 20, "global_strides": 32}
_SHOWN_ROWS = 3


@dataclass(frozen=True)
class Column:
    """One operand of many maps.

    Attributes
    ----------
    name : str
        As `Tiled` spells it, or ``"rank"``.
    constant : tuple of int or None
        Of all maps; None where they differ.
    rows : numpy.ndarray or None
        On the host, shape (maps, entries).
    view : ArrayView or None
        On the device, shape (maps,) or (maps, entries); or (entries,), for all maps.
    array
        What the view is of, to be kept alive.
    """

    name: str
    constant: tuple[int, ...] | None = None
    rows: npt.NDArray[Any] | None = None
    view: ArrayView | None = None
    array: Any = None

    @property
    def is_scalar(self) -> bool:
        """Whether each map has one number."""
        return self.name in SCALARS

    @property
    def count(self) -> int | None:
        """Of how many maps it has rows; None where it is of any number."""
        if self.rows is not None:
            return len(self.rows)
        if self.view is None or (not self.is_scalar and len(self.view.shape) == 1):
            return None
        return self.view.shape[0]

    @property
    def entries(self) -> int:
        """Numbers of each map."""
        if self.constant is not None:
            return len(self.constant)
        if self.rows is not None:
            return int(self.rows.shape[1])
        assert self.view is not None
        return 1 if self.is_scalar else self.view.shape[-1]

    @property
    def strides(self) -> tuple[int, int]:
        """Bytes on the device from one map's to the next's, and from one entry to the next."""
        assert self.view is not None
        if self.is_scalar:
            return self.view.strides[0], 0
        return (0, *self.view.strides)[-2:]  # type: ignore[return-value]


def columns_of(given: Mapping[str, Any], named: Mapping[str, str] | None = None) -> dict[str, Column]:
    """Every operand of the device's kernels.

    Parameters
    ----------
    given : mapping
        By the names of `Tiled`.
    named : mapping, optional
        What errors call an operand, where that is another name.

    Raises
    ------
    DescriptorError
        If one is missing or is no integers of a fitting shape, or the operands are of different numbers of maps.
    """
    spoken = dict(named or {})
    known = {name for name, _ in OPERANDS}
    for name in given:
        if name not in known:
            raise DescriptorError(f"parameters have no {shown(name)}; they have {', '.join(sorted(known))}")
    values = {**_DEFAULTS, **{name: value for name, value in given.items() if value is not None}}
    for name in ("global_address", "data_type", "global_dim", "box_dim"):
        if name not in values:
            raise DescriptorError(f"{spoken.get(name, name)} is missing")
    found = {name: column_of(name, value, spoken.get(name, name)) for name, value in values.items()}
    rank = _rank(found, spoken)
    found.setdefault("rank", Column("rank", (rank,)))
    found.setdefault("element_strides", Column("element_strides", (1,) * rank))
    if rank == 1:
        found.setdefault("global_strides", Column("global_strides", ()))
    for name in SEQUENCES:
        if name in known:
            wanted = rank - SEQUENCES[name][0]
            if name not in found:
                raise DescriptorError(f"{spoken.get(name, name)} is missing: rank {rank} has {wanted} of them")
            if found[name].entries != wanted:
                raise DescriptorError(
                    f"{spoken.get(name, name)} has {counted(found[name].entries, 'entry')} for each map; rank {rank}, "
                    f"which is the length of {spoken.get('global_dim', 'global_dim')}, has {wanted}"
                )
    return found


def _rank(found: Mapping[str, Column], spoken: Mapping[str, str]) -> int:
    rank = found["global_dim"].entries
    name = spoken.get("global_dim", "global_dim")
    if not 1 <= rank <= FULL_RANK:
        raise DescriptorError(f"{name} has {counted(rank, 'entry')} for each map; a tensor map has 1 to 5 dimensions")
    ranks = found.get("rank")
    if ranks is not None and ranks.constant not in (None, (rank,)):
        raise DescriptorError(f"rank is {ranks.constant}, and {name} has {counted(rank, 'entry')} for each map")
    if ranks is not None and ranks.constant is None and rank != FULL_RANK:
        raise DescriptorError(f"where rank differs from map to map, {name} has 5 entries for each, not {rank}")
    return rank


def count_of(columns: Mapping[str, Column], named: Mapping[str, str] | None = None) -> int:
    """How many maps the columns are of.

    Raises
    ------
    DescriptorError
        If they do not agree, or none says.
    """
    counts = {name: column.count for name, column in columns.items() if column.count is not None}
    if not counts:
        raise DescriptorError(
            "every parameter is one for all maps, so nothing says how many there are: give global_address a row for "
            "each, or write one map with DescriptorBuffer.write"
        )
    if len(set(counts.values())) > 1:
        spoken = dict(named or {})
        each = ", ".join(f"{spoken.get(name, name)} has {count}" for name, count in counts.items())
        raise DescriptorError(f"the parameters are of different numbers of maps: {each} rows")
    return next(iter(counts.values()))


def column_of(name: str, value: Any, spoken: str) -> Column:
    """One operand.

    Parameters
    ----------
    name : str
        As `Tiled` spells it.
    value
        A number or a sequence, a member of an enumeration or its name, for all maps; or an array of rows.
    spoken : str
        What errors call it.

    Raises
    ------
    DescriptorError
        If it is no integers of a fitting shape.
    """
    is_scalar = name in SCALARS
    if _is_on_device(value, spoken):
        return _device_column(name, value, is_scalar, spoken)
    if name in _ENUMS and (isinstance(value, str) or not _is_listed(value)):
        try:
            return Column(name, (int(_ENUMS[name].of(value)),))
        except ValueError as error:
            raise DescriptorError(f"{spoken}: {error}") from None
    rows = _host_rows(name, value, spoken)
    if rows.ndim == 0 and is_scalar:
        return Column(name, (int(rows),))
    if rows.ndim == 1 and not is_scalar:
        return Column(name, tuple(map(int, rows)))
    if rows.ndim == (1 if is_scalar else 2):
        return Column(name, rows=rows[:, None] if is_scalar else rows)
    raise DescriptorError(f"{spoken} has shape {rows.shape}; {_shape_needed(is_scalar)}")


def _shape_needed(is_scalar: bool) -> str:
    return "(maps,) is needed" if is_scalar else "(maps, entries) is needed, or (entries,) for all maps"


def _is_on_device(value: Any, spoken: str) -> bool:
    if isinstance(value, (str, int, list, tuple, np.ndarray, np.generic, DriverEnum)):
        return False
    try:
        return view_of(value).device is not None
    except ArrayError:
        return False
    except Exception as error:  # a caller's class may raise anything
        raise DescriptorError(f"{spoken} = {shown(value)} cannot be read: {type(error).__name__}: {error}") from None


def _is_listed(value: Any) -> bool:
    return isinstance(value, (list, tuple)) or (isinstance(value, np.ndarray) and value.ndim > 0)


def _device_column(name: str, value: Any, is_scalar: bool, spoken: str) -> Column:
    view = view_of(value)
    if view.dtype not in _DEVICE_TYPES:
        raise DescriptorError(f"{spoken} is of {view.dtype}; on the device it is of {', '.join(_DEVICE_TYPES)}")
    if len(view.shape) not in ((1,) if is_scalar else (1, 2)):
        raise DescriptorError(f"{spoken} has shape {view.shape}; {_shape_needed(is_scalar)}")
    if any(number % view.itemsize for number in (view.address, *view.strides)):
        raise DescriptorError(f"{spoken} lies at {view.address:#x}, which its type does not allow; copy it first")
    return Column(name, view=view, array=value)


def _host_rows(name: str, value: Any, spoken: str) -> npt.NDArray[Any]:
    """Numbers on the host, as signed or unsigned integers of 64 bits."""
    if name in _ENUMS and _is_listed(value):
        try:
            value = [int(_ENUMS[name].of(entry)) for entry in value]
        except ValueError as error:
            raise DescriptorError(f"{spoken}: {error}") from None
    try:
        rows = np.asarray(value)
    except Exception:  # rows of different lengths, or a caller's class that raises
        raise DescriptorError(f"{spoken} = {shown(value)}: whole numbers are needed, every row as long") from None
    if rows.size == 0 and rows.dtype.kind == "f":
        rows = rows.astype(np.int64)
    if rows.dtype.kind not in "iu":
        raise DescriptorError(f"{spoken} = {shown(value)}: whole numbers of at most 64 bits are needed")
    return rows.astype(np.uint64 if rows.dtype.kind == "u" else np.int64)


def check_host_rows(columns: Mapping[str, Column], target: Target) -> None:
    """Refuse what breaks a rule as far as the host sees it: every rule whose operands are all on the host.

    Raises
    ------
    DescriptorError
        Naming the first maps that are wrong, and every rule that they break.
    """
    known = _known(columns)
    operands = _with_derived(known, target)
    broken: dict[int, list[str]] = {}
    for rule in (*checking.rules_for(KIND, target.name, "error"), RULES_BY_ID["null-address"]):
        for clause in checking.clauses(rule, FULL_RANK):
            if _operands_of(clause) <= known.keys():
                holds = np.atleast_1d(checking.evaluate(clause, operands))
                for row in np.flatnonzero(~holds.astype(bool)).tolist():
                    broken.setdefault(row, []).append(rule.id)
    if broken:
        several = any(column.rows is not None for column in columns.values())
        told = [
            (f"map {row}: " if several else "") + _told(columns, row, broken[row], target)
            for row in sorted(broken)[:_SHOWN_ROWS]
        ]
        more = f"; and {len(broken) - _SHOWN_ROWS} more" if len(broken) > _SHOWN_ROWS else ""
        raise DescriptorError("; ".join(told) + more)


def _known(columns: Mapping[str, Column]) -> dict[str, Any]:
    """The operands that the host sees, as numpy columns; entries beyond the rank are what no rule objects to."""
    ranks = _values(columns["rank"])
    found: dict[str, Any] = {}
    for name, column in columns.items():
        values = _values(column)
        if values is None or (ranks is None and not column.is_scalar):
            continue
        if column.is_scalar:
            found[name] = values[:, 0]
            continue
        assert ranks is not None
        short, neutral = SEQUENCES[name]
        entries = [
            np.where(i < ranks[:, 0] - short, values[:, i], neutral) if i < values.shape[1] else np.array([neutral])
            for i in range(ENTRIES[name])
        ]
        found[name] = tuple(entries)
    return found


def _values(column: Column) -> npt.NDArray[np.int64] | None:
    """What the host sees of a column, shape (maps or 1, entries); numbers above 2^63 - 1, all illegal, as that."""
    if column.constant is not None:
        return np.array([[max(-(2**63), min(value, 2**63 - 1)) for value in column.constant]], np.int64)
    if column.rows is None:
        return None
    rows = column.rows
    return (np.minimum(rows, np.uint64(2**63 - 1)) if rows.dtype.kind == "u" else rows).astype(np.int64)


_DERIVED = {name: text for name, text, kinds in DERIVED if KIND in kinds}


@cache
def _operands_of(text: str) -> frozenset[str]:
    """The operands that an expression of the tables rests on."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(text, mode="eval")):
        if isinstance(node, ast.Name):
            found |= _operands_of(_DERIVED[node.id]) if node.id in _DERIVED else {node.id} & ENTRIES.keys()
    return frozenset(found)


class _Table:
    """A look-up by column, which an index outside its range does not break: the rule on the index reports it."""

    def __init__(self, values: Sequence[int]) -> None:
        self._values = np.array(values)

    def __getitem__(self, index: Any) -> Any:
        return np.take(self._values, index, mode="clip")


_TABLES: dict[str, Any] = {
    **{name: _Table(values) for name, values in checking.LOOKUPS.items()},
    "quotient": lambda dividend, divisor: dividend // np.where(divisor == 0, 1, divisor),
}


def _with_derived(known: Mapping[str, Any], target: Target) -> dict[str, Any]:
    """The operands with those that come from the target, and those that can be derived."""
    found = {**_TABLES, **checking.target_operands(target), "mode": KIND, "layout": KIND, "wide_mode": 0, **known}
    for name, text in _DERIVED.items():
        if _operands_of(text) <= known.keys():
            found[name] = checking.evaluate(text, found)
    return found


def _told(columns: Mapping[str, Column], row: int, broken: Sequence[str], target: Target) -> str:
    """What is wrong with one map, in words; operands on the device are not judged."""
    operands: dict[str, tuple[int, ...]] = {}
    for name, column in columns.items():
        if column.constant is not None:
            operands[name] = column.constant
        elif column.rows is not None:
            operands[name] = tuple(map(int, column.rows[row if len(column.rows) > 1 else 0]))
        else:
            operands[name] = (_STAND_INS.get(name, 1 if name in SEQUENCES else 0),) * column.entries
    return explained(operands, target, broken)


def explained(operands: Mapping[str, Sequence[int]], target: Target, among: Sequence[str] | None = None) -> str:
    """Every rule that the parameters of one map break on the device, in words.

    Parameters
    ----------
    operands : mapping of str to sequence of int
        Each operand's entries; those beyond the rank are not looked at.
    target : Target
    among : sequence of str, optional
        The rules to look at. Default: all.
    """
    rank = operands["rank"][0]
    if not 1 <= rank <= FULL_RANK:
        return f"rank: {RULES_BY_ID['rank'].statement}, and this one has {rank}"
    strides = (16,) * (rank - 1)
    # The operands that the target gives, and entries beyond the rank, as those of any legal map.
    found = Tiled(
        data_type=DataType.UINT8, global_address=16, global_dim=(1,) * rank, global_strides=strides,
        box_dim=(16,) * rank,
    ).operands(target)
    for name, entries in operands.items():
        short = SEQUENCES.get(name, (0, 0))[0]
        found[name] = entries[0] if name in SCALARS else (*entries[: rank - short], *found[name][rank - short :])
    checking.derive(found)
    told = [str(v) for v in checking.violations(found) if among is None or v.rule in among]
    rule = RULES_BY_ID["null-address"]
    if (among is None or rule.id in among) and not checking.evaluate(rule.holds, found):
        told.append(f"{rule.id}: global_address is null, and the first copy would fault; give the tensor's address")
    return "; ".join(told)


def on_device(column: Column, upload: Any) -> Column:
    """The column with its rows on the device; `upload` takes them there."""
    if column.rows is None:
        return column
    array = upload(np.ascontiguousarray(column.rows[:, 0] if column.is_scalar else column.rows))
    return replace(column, rows=None, view=view_of(array), array=array)
