"""Which reductions exist: the table of operation and element type, by where the result goes.

Source: PTX ISA, "cp.reduce.async.bulk" and "cp.reduce.async.bulk.tensor", and what an H100 and an H200 do: a tensor
reduction that is not in the table kills the kernel, such as one of signed 64-bit integers with ``and``.
"""

from __future__ import annotations

from cupytma.errors import EmissionError
from cupytma.ptx.checks import shown

REDUCTIONS = ("add", "min", "max", "inc", "dec", "and", "or", "xor")
"""The eight reductions, in the order of the founding document's redKind enumeration."""

_FLOATS_16 = ("f16", "bf16")
_BITS = ("and", "or", "xor")

# One row per destination: reduction -> PTX element types. A tensor's elements are typed by its tensor map, not by the
# instruction, and f32.ftz is the FLOAT32_FTZ of a tensor map.
_TYPES: dict[str, dict[str, tuple[str, ...]]] = {
    "tensor": {
        "add": ("u32", "s32", "u64", "f16", "bf16", "f32", "f32.ftz", "f64", "tf32", "tf32.ftz"),
        **dict.fromkeys(("min", "max"), ("u32", "s32", "u64", "s64", *_FLOATS_16)),
        **dict.fromkeys(("inc", "dec"), ("u32",)),
        **dict.fromkeys(_BITS, ("u32", "s32", "u64")),
    },
    "global": {
        "add": ("u32", "s32", "u64", "f16", "bf16", "f32", "f64"),
        **dict.fromkeys(("min", "max"), ("u32", "s32", "u64", "s64", *_FLOATS_16)),
        **dict.fromkeys(("inc", "dec"), ("u32",)),
        **dict.fromkeys(_BITS, ("b32", "b64")),
    },
    "shared::cluster": {
        "add": ("u32", "s32", "u64"),
        **dict.fromkeys(("min", "max"), ("u32", "s32")),
        **dict.fromkeys(("inc", "dec"), ("u32",)),
        **dict.fromkeys(_BITS, ("b32",)),
    },
}
_DRIVER_TYPES = {
    "UINT8": "u8",
    "INT16": "s16",
    "UINT16": "u16",
    "UINT32": "u32",
    "INT32": "s32",
    "UINT64": "u64",
    "INT64": "s64",
    "FLOAT16": "f16",
    "BFLOAT16": "bf16",
    "FLOAT32": "f32",
    "FLOAT32_FTZ": "f32.ftz",
    "FLOAT64": "f64",
    "TFLOAT32": "tf32",
    "TFLOAT32_FTZ": "tf32.ftz",
}


def reduction_types(reduction: str, destination: str = "tensor") -> tuple[str, ...]:
    """The element types that a reduction exists for.

    Parameters
    ----------
    reduction : str
        ``"add"``, ``"min"``, ``"max"``, ``"inc"``, ``"dec"``, ``"and"``, ``"or"`` or ``"xor"``.
    destination : str
        ``"tensor"`` for a reduction into a tensor, else where a bulk reduction writes: ``"global"`` or
        ``"shared::cluster"``.

    Returns
    -------
    tuple of str
        PTX types. For a tensor, ``and``, ``or`` and ``xor`` are listed with the types that the tensor map may have.

    Raises
    ------
    EmissionError
        For another reduction or destination.
    """
    if not isinstance(destination, str) or destination not in _TYPES:
        raise EmissionError(f"reductions go to {', '.join(map(repr, _TYPES))}, not to {shown(destination)}")
    if not isinstance(reduction, str) or reduction not in REDUCTIONS:
        supported = ", ".join(map(repr, REDUCTIONS))
        raise EmissionError(f"reduction={shown(reduction)} is not supported; supported: {supported}")
    return _TYPES[destination][reduction]


def reduction_table(destination: str = "tensor") -> dict[str, tuple[str, ...]]:
    """Every reduction with the element types that it exists for; see `reduction_types`."""
    return {reduction: reduction_types(reduction, destination) for reduction in REDUCTIONS}


def check_reduction(reduction: str, data_type: object, destination: str = "tensor") -> None:
    """Refuse a reduction of elements that it does not exist for.

    Parameters
    ----------
    reduction : str
        The operation.
    data_type : str or an enumeration member
        A PTX type such as ``"s32"``, or a name of the driver's such as ``"INT32"``.
    destination : str
        As for `reduction_types`.

    Raises
    ------
    EmissionError
        If it does not exist; the message says for which types it does, and what exists for this type.
    """
    legal = reduction_types(reduction, destination)
    named = getattr(data_type, "name", data_type)
    name = named if isinstance(named, str) and len(named) < 100 else shown(named)
    given = _DRIVER_TYPES.get(name.upper(), name.lower())
    if given in legal:
        return
    others = [other for other in REDUCTIONS if given in reduction_types(other, destination)]
    raise EmissionError(
        f"reduction={reduction!r} clashes with data_type={name!r}: {reduction} exists for {', '.join(legal)}; "
        f"{given} has {', '.join(others) or 'no reduction'}"
    )
