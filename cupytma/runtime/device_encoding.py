"""Tensor maps that kernels make in a buffer's slots, of parameters in device memory: nothing waits for the host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np

from cupytma.errors import ArrayError, CupytmaError, DescriptorError
from cupytma.limits import WARP_THREADS
from cupytma.runtime.compiler import Module, compile
from cupytma.runtime.descriptors import DescriptorBuffer
from cupytma.runtime.device_rules import MOST_FAILURES, OPERANDS, rules_header
from cupytma.runtime.given import shown, whole
from cupytma.runtime.operand_columns import Column, check_host_rows, column_of, columns_of, count_of, on_device
from cupytma.runtime.streams import as_cupy, current_stream, wait_for
from cupytma.targets import TARGETS, Feature
from cupytma.tensormap.columns import FIELD_NAMES, RECORD
from cupytma.tensormap.enums import DataType, L2Promotion
from cupytma.tensormap.fields import FIELDS
from cupytma.tensormap.parameters import Parameters, Tiled
from cupytma.tensormap.records import to_records
from cupytma.tensormap.rule import FULL_RANK
from cupytma.tensormap.tensor_map import TensorMap
from cupytma.words import counted

_WARPS = 4
_THREADS = WARP_THREADS * _WARPS
# More blocks than this take their rows in turn.
_MOST_BLOCKS = 1 << 14
_COLUMN = np.dtype(
    [
        ("data", "u8"), ("row_bytes", "i8"), ("entry_bytes", "i8"), ("constant", "i8", FULL_RANK), ("item_bytes", "i4"),
        ("is_signed", "i4"),
    ]
)
_REQUEST = np.dtype(
    [
        ("slots", "u8"), ("status", "u8"), ("failures", "u8"), ("refuge", "u8"), ("first", "u8"), ("count", "u8"),
        *((name, _COLUMN) for name, _ in OPERANDS),
    ]
)
_REBOUND = {"global_address": "addresses", "global_dim": "extents", "global_strides": "strides"}
_HOST_BORN = "it is made on the host: encode it, and write it with DescriptorBuffer.write"
# The smallest map, which encode gives everything but its L2 promotion.
_SEED = Tiled(data_type=DataType.UINT8, global_address=0, global_dim=(16,), box_dim=(16,))


def encode_on_device(
    buffer: DescriptorBuffer, parameters: Any, start: int = 0, *, stream: Any = None
) -> DescriptorBuffer:
    """Make tiled tensor maps in a buffer's slots by a kernel, one warp for each. Returns at once.

    Parameters
    ----------
    buffer : DescriptorBuffer
    parameters : mapping, sequence of Tiled, or numpy array of `RECORD`
        A mapping has the names of `Tiled`, all in driver order: ``global_address`` (bytes), ``global_dim`` (elements),
        ``global_strides`` (bytes; not for rank 1), ``data_type``, ``box_dim`` (elements), and where they are not the
        defaults ``element_strides``, ``interleave``, ``swizzle``, ``l2_promotion``, ``oob_fill``. Each is one for all
        maps; or rows, one for each map, of shape (maps,) or (maps, entries): on the host, or on the device as int32,
        uint32, int64 or uint64 of any strides. Rows of ``data_type`` and the other enumerations are the driver's
        numbers. Where ``rank`` is given, as rows, sequences have the 5 or 4 entries of rank 5.
    start : int
        The first slot. As many follow as there are rows.
    stream : stream or int, optional
        Default: torch's current stream if an array is torch's, else CuPy's.

    Returns
    -------
    DescriptorBuffer
        The buffer. Who uses a slot acquires it at its `release_scope`; `DescriptorBuffer.check` raises for slots whose
        parameters broke a rule.

    Raises
    ------
    DescriptorError
        If what the host sees breaks a rule, is missing, or has another shape. Nothing is launched then.
    SlotError
        If there are not as many slots.
    TargetError
        If the buffer's target has no ``tensormap.replace``.

    Notes
    -----
    Parameters on the device that break a rule, or have a null address, make no map: the slot's ``status`` is not 0, and
    the slot holds a map over memory of the buffer's own, with the same box where that is legal, so that a kernel that
    uses it all the same reads zeros and harms nobody. Words 8 and 9 of a map, which the hardware does not read, stay
    the template's (measured). Extents of 2^32 are legal, as on the host.
    """
    _check_buffer(buffer)
    columns = columns_of(_mapping(parameters))
    templates = b"".join(bytes(_with_promotion(promotion)) for promotion in L2Promotion)
    return _build(buffer, "encode_maps", columns, start, stream, (templates,))


def rebind_on_device(
    buffer: DescriptorBuffer,
    template: TensorMap | None,
    addresses: Any,
    extents: Any,
    strides: Any = None,
    start: int = 0,
    *,
    cta_group: int = 1,
    stream: Any = None,
) -> DescriptorBuffer:
    """Point tensor maps in a buffer's slots at other tensors by a kernel, one warp for each. Returns at once.

    Parameters
    ----------
    buffer : DescriptorBuffer
    template : TensorMap or None
        A tiled map, which gives the element type, the box and all else; its address and extents do not matter. None:
        what each slot holds now.
    addresses : array of int, shape (maps,)
        Bytes, multiples of 16.
    extents : array of int, shape (maps, rank) or (rank,)
        Elements, driver order.
    strides : array of int, shape (maps, rank - 1) or (rank - 1,), optional
        Bytes, multiples of 16, of dimensions 1 and up. Not for rank 1.
    start : int
        The first slot.
    cta_group : int
        1; maps that ``.cta_group::2`` instructions of paired blocks use are made on the host, and 2 is refused.
    stream : stream or int, optional
        As for `encode_on_device`, and so are arrays, errors and what becomes of parameters that break a rule.

    Returns
    -------
    DescriptorBuffer

    Raises
    ------
    DescriptorError
        Also for an im2col template, and for one whose rank is not that of the extents.

    Examples
    --------
    >>> template = tma.tensor_map(arrays[0], box=(32, 64))
    >>> addresses = cupy.asarray([a.data.ptr for a in arrays], cupy.uint64)
    >>> tma.rebind_on_device(buffer, template, addresses, extents, strides)   # extents, strides: on the device
    >>> kernel(grid, block, (buffer, buffer.status, out))
    >>> buffer.check()
    """
    _check_buffer(buffer)
    _check_pair(cta_group)
    rebound = {"global_address": addresses, "global_dim": extents, "global_strides": strides}
    if template is None:
        # What the rules ask of the map beside these: the kernel reads it in the slot.
        neutral = {"data_type": 0, "box_dim": (16,) + (1,) * (FULL_RANK - 1)}
        columns = _rebind_columns(rebound, neutral)
        _check_own(buffer, start, count_of(columns, _REBOUND), columns["rank"])
        return _build(buffer, "rebind_own_maps", columns, start, stream)
    held = _tiled(template, "the template")
    if held.violations(buffer.target):
        raise DescriptorError(f"the template is no map of {buffer.target}: {held.violations(buffer.target)[0]}")
    rest = ("data_type", "box_dim", "element_strides", "interleave", "swizzle", "l2_promotion", "oob_fill")
    columns = _rebind_columns(rebound, {name: getattr(held, name) for name in rest}, held.rank)
    return _build(buffer, "rebind_maps", columns, start, stream, (bytes(template),))


def _rebind_columns(
    rebound: Mapping[str, Any], rest: Mapping[str, Any], rank: int | None = None
) -> dict[str, Column]:
    """The columns of a rebind; the rank is the template's, which the extents must have."""
    for name, spoken in _REBOUND.items():
        if rebound[name] is None and name != "global_strides":
            raise DescriptorError(f"{spoken} = None: {spoken} of each map are needed")
    given = {**rest, **rebound}
    if rank is None:
        rank = _entries(rebound["global_dim"])
        given["box_dim"] = rest["box_dim"][:rank]
    elif _entries(rebound["global_dim"]) != rank:
        raise DescriptorError(
            f"extents has {counted(_entries(rebound['global_dim']), 'entry')} for each map, and the template has rank "
            f"{rank}, which a rebind keeps: give a template of that rank"
        )
    return columns_of(given, _REBOUND)


def _entries(extents: Any) -> int:
    """How many extents each map has."""
    return column_of("global_dim", extents, _REBOUND["global_dim"]).entries


def _check_buffer(buffer: Any) -> None:
    if not isinstance(buffer, DescriptorBuffer):
        raise DescriptorError(f"buffer = {shown(buffer)}: a DescriptorBuffer is needed")
    buffer.target.require(Feature.TENSORMAP_REPLACE)


def _check_pair(cta_group: Any) -> None:
    try:
        blocks = whole(cta_group)
    except TypeError:
        raise DescriptorError(f"cta_group = {shown(cta_group)}: 1 or 2 blocks is meant") from None
    if blocks == 2:
        raise DescriptorError(
            "cta_group = 2: how a pair of blocks shares a box is folded into fields that no rebind writes, so a "
            f"paired-CTA map is host-born; {_HOST_BORN}"
        )
    if blocks != 1:
        raise DescriptorError(f"cta_group = {blocks}: 1 or 2 blocks is meant, and only 1 can be rebound on the device")


def _tiled(tensor_map: Any, what: str) -> Tiled:
    if not isinstance(tensor_map, TensorMap):
        raise DescriptorError(f"{what} is a {type(tensor_map).__name__}; a TensorMap is needed")
    held = tensor_map.decode()
    if not isinstance(held, Tiled):
        raise DescriptorError(
            f"{what} is an im2col map, which tensormap.replace has no fields for, so that it is host-born; {_HOST_BORN}"
        )
    return held


def _check_own(buffer: DescriptorBuffer, start: Any, count: int, rank: Column) -> None:
    """Refuse what the host knows of the slots that are their own templates; the kernel looks at the others."""
    first = buffer.room(start, count)
    for slot, held in enumerate(buffer[first : first + count], first):
        if held is not None and (found := _tiled(held, f"slot {slot}").rank) != (rank.constant or (found,))[0]:
            raise DescriptorError(
                f"slot {slot} has a map of rank {found}, which a rebind keeps, and extents of rank {rank.constant}"
            )


def _mapping(parameters: Any) -> Mapping[str, Any]:
    """The parameters by name."""
    if isinstance(parameters, Mapping):
        return parameters
    if isinstance(parameters, np.ndarray) and parameters.dtype.names:
        return _of_records(parameters)
    if isinstance(parameters, Tiled):
        return _of_records(to_records([parameters]))
    try:
        listed = list(parameters)
    except CupytmaError:
        raise
    except Exception:  # a caller's iterable may raise anything
        listed = [parameters]
    for entry in listed:
        if not isinstance(entry, Tiled):
            kind = "an im2col map is host-born; " if isinstance(entry, Parameters) else ""
            raise DescriptorError(
                f"parameters holds {shown(entry)}: {kind}a mapping by the names of Tiled, a sequence of Tiled, or "
                "records of tiled maps are needed"
            )
    return _of_records(to_records(listed))


def _of_records(records: Any) -> Mapping[str, Any]:
    missing = [name for name in RECORD.names or () if name not in records.dtype.names]
    if missing or records.ndim != 1:
        raise DescriptorError(f"records of shape {records.shape} lack {', '.join(missing) or 'one dimension'}")
    if (records["op"] != 0).any():
        raise DescriptorError(
            f"record {int(np.flatnonzero(records['op'])[0])} is an im2col map, which is host-born; {_HOST_BORN}"
        )
    return {name: records["rank" if name == "rank" else FIELD_NAMES[name]] for name, _ in OPERANDS}


def _with_promotion(promotion: L2Promotion) -> TensorMap:
    return Tiled(
        data_type=_SEED.data_type, global_address=0, global_dim=_SEED.global_dim, box_dim=_SEED.box_dim,
        l2_promotion=promotion,
    ).encode()


def _build(
    buffer: DescriptorBuffer,
    kernel: str,
    columns: Mapping[str, Column],
    start: Any,
    stream: Any,
    more: Sequence[bytes] = (),
) -> DescriptorBuffer:
    """Launch one of the kernels of ``descriptors.cu``."""
    count = count_of(columns, _REBOUND)
    if not count:
        return buffer
    first = buffer.room(start, count)
    check_host_rows(columns, buffer.target)
    arrays = [column.array for column in columns.values() if column.array is not None]
    with buffer.device:
        stream = as_cupy(current_stream(*arrays) if stream is None else stream)
        placed = {name: _placed(column, buffer, stream) for name, column in columns.items()}
        request = _request(buffer, placed, first, count)
        blocks = min(-(-count // _WARPS), _MOST_BLOCKS)
        _module(str(buffer.target), buffer.release_scope).kernel(kernel)(
            blocks, _THREADS, (request, *(np.void(data) for data in more)), stream=stream
        )
    buffer.changed_by_device(first, count)
    return buffer


def _placed(column: Column, buffer: DescriptorBuffer, stream: Any) -> Column:
    """A column whose rows the kernel can read in the stream."""
    if column.view is not None:
        if column.view.device != int(buffer.device.id):
            raise ArrayError(
                f"{column.name} is on device {column.view.device} and the buffer on device {int(buffer.device.id)}"
            )
        wait_for(column.view.stream, stream)
        return column
    return on_device(column, lambda rows: buffer.uploaded(rows, stream))


def _request(buffer: DescriptorBuffer, columns: Mapping[str, Column], first: int, count: int) -> Any:
    request = np.zeros((), _REQUEST)
    request["slots"], request["first"], request["count"] = buffer.address(first), first, count
    request["status"], request["failures"] = buffer.status_address(first), buffer.failures_address
    request["refuge"] = buffer.refuge_address
    for name, column in columns.items():
        entry = request[name]
        if column.constant is not None:
            values = np.array([value % 2**64 for value in column.constant], np.uint64).view(np.int64)
            entry["constant"][: len(values)] = values
        else:
            assert column.view is not None
            entry["data"] = column.view.address
            entry["row_bytes"], entry["entry_bytes"] = column.strides
            entry["item_bytes"], entry["is_signed"] = column.view.itemsize, column.view.dtype.startswith("int")
    return request[()]


def device_module(target: str, scope: str) -> Module:
    """The kernels that make maps, compiled for a target and the scope that they release at."""
    places = {field.name: field for field in FIELDS if field.word == 1 and field.index is None}
    bits = {"FORMAT": "element_format", "INTERLEAVE": "interleave", "IM2COL": "is_im2col", "RANK": "rank"}
    defines = {f"{name}_LOW": places[field].low for name, field in bits.items()}
    defines |= {f"{name}_MASK": (1 << places[field].width) - 1 for name, field in bits.items()}
    kernels = import_module("cupytma.kernels")  # in a source tree it is where type checkers do not look
    return compile(
        kernels.source("descriptors.cu"), TARGETS[target], headers={"rules.cuh": rules_header(target)},
        defines={"SCOPE": scope, "MOST_FAILURES": MOST_FAILURES, **defines},
    )


_module = cache(device_module)
