"""The load and store modes of the instruction, and which of them a tensor map takes.

Modes and types that no H100 has are simulated as the PTX ISA and the driver API describe them, and not measured:
`verified` says which.
"""

from __future__ import annotations

from dataclasses import fields

from cupytma.errors import SimulationError
from cupytma.sim.faults import NotSimulatedError
from cupytma.targets import DEFAULT_TARGET, TARGETS, Target
from cupytma.tensormap.enums import DataType, Interleave, Swizzle, WideMode
from cupytma.tensormap.fields import extract
from cupytma.tensormap.parameters import Im2col, Im2colWide, Tiled
from cupytma.tensormap.tensor_map import TensorMap

GATHER4, SCATTER4 = "tile::gather4", "tile::scatter4"
WIDE, WIDE_128 = "im2col::w", "im2col::w::128"
_IM2COL_STORE = "im2col_no_offs"

AnyParameters = Tiled | Im2col | Im2colWide

# What each kind of parameters can be copied with; the first is the default.
_LOADS: dict[str, tuple[str, ...]] = {
    Tiled.kind: ("tile", GATHER4), Im2col.kind: ("im2col", WIDE, WIDE_128), Im2colWide.kind: (WIDE, WIDE_128),
}  # fmt: skip
_STORES: dict[str, tuple[str, ...]] = {
    Tiled.kind: ("tile", SCATTER4), Im2col.kind: (_IM2COL_STORE,), Im2colWide.kind: (),
}  # fmt: skip
MODES = tuple(dict.fromkeys(mode for table in (_LOADS, _STORES) for modes in table.values() for mode in modes))
"""Those of loads and stores, as PTX spells them."""

MEASURED = ("tile", "im2col", _IM2COL_STORE)
"""Modes of which there are recordings."""

FULL_TARGET: Target = TARGETS["sm_100a"]
"""A target that has every type, swizzle and mode."""


def mode_of(tensor_map: TensorMap, mode: str | None, *, store: bool) -> str:
    """The mode of a copy, checked against the tensor map.

    Parameters
    ----------
    tensor_map : TensorMap
    mode : str or None
        As the instruction spells it; None for what the tensor map says.
    store : bool
        Whether shared memory is the source.

    Raises
    ------
    SimulationError
        If it is no tensor map, or its instruction has no such mode.
    NotSimulatedError
        For a type or swizzle that is documented for the other direction alone.
    """
    if not isinstance(tensor_map, TensorMap):
        raise SimulationError(
            f"tensor_map is a {type(tensor_map).__name__}; pass the TensorMap that `encode()` of parameters or "
            "`TensorMap.from_bytes` returns"
        )
    parameters = tensor_map.decode()
    legal = (_STORES if store else _LOADS)[parameters.kind]
    if not legal:
        raise SimulationError(
            f"no {parameters.kind} store exists on targets of PTX 9.3 and before; encode an Im2col for the store"
        )
    what = f"for a {'store' if store else 'load'} of a tensor map of kind {parameters.kind}"
    chosen = _chosen(mode, _default(parameters, legal), legal, what)
    _check_gathered(parameters, chosen)
    _check_direction(parameters, store=store)
    return chosen


def verified(tensor_map: TensorMap, mode: str | None = None) -> bool:
    """Whether copies with a tensor map are simulated as hardware was measured to make them.

    False for what is known from documentation alone: ``tile::gather4`` and ``tile::scatter4``, ``im2col::w`` and
    ``im2col::w::128``, packed element types, and the 128B swizzles with a larger atom.

    Parameters
    ----------
    tensor_map : TensorMap
    mode : str, optional
        As the instruction spells it; default: what the tensor map says.

    Raises
    ------
    SimulationError
        If the tensor map is none, or no instruction has such a mode for it.
    """
    if not isinstance(tensor_map, TensorMap):
        raise SimulationError(f"tensor_map is a {type(tensor_map).__name__}; pass a TensorMap")
    parameters = tensor_map.decode()
    legal = tuple(dict.fromkeys((*_LOADS[parameters.kind], *_STORES[parameters.kind])))
    chosen = _chosen(mode, _default(parameters, legal), legal, f"of a tensor map of kind {parameters.kind}")
    return chosen in MEASURED and not parameters.violations(DEFAULT_TARGET)


def parameters_of(tensor_map: TensorMap, mode: str) -> AnyParameters:
    """What a tensor map says to an instruction of a mode: the bits of the corners mean one thing to im2col::w alone.

    Raises
    ------
    SimulationError
        For an im2col-wide map that was encoded for a target without the instruction.
    """
    parameters = tensor_map.decode()
    if mode not in (WIDE, WIDE_128) or isinstance(parameters, Tiled):
        return parameters
    bits = extract(int.from_bytes(bytes(tensor_map), "little"), Im2colWide.kind, parameters.rank)
    lower, upper = (bits[f"pixel_box_{side}_corner", 0] for side in ("lower", "upper"))
    if isinstance(parameters, Im2colWide):
        if (lower, upper) != (parameters.pixel_box_lower_corner_width, parameters.pixel_box_upper_corner_width):
            raise SimulationError(
                f"this im2col-wide map was encoded for a target without {mode}, which would read corners {lower} and "
                f"{upper} from it; encode it for a target that has it, such as {FULL_TARGET}"
            )
        return parameters
    shared = {field.name: getattr(parameters, field.name) for field in fields(parameters) if "corner" not in field.name}
    return Im2colWide(
        **shared,
        pixel_box_lower_corner_width=lower,
        pixel_box_upper_corner_width=upper,
        mode=WideMode.W128 if mode == WIDE_128 else WideMode.W,
    )


def _default(parameters: AnyParameters, legal: tuple[str, ...]) -> str:
    if isinstance(parameters, Im2colWide):
        return WIDE_128 if parameters.mode == WideMode.W128 else WIDE
    return legal[0]


def _chosen(mode: str | None, default: str, legal: tuple[str, ...], what: str) -> str:
    if mode is None:
        return default
    if not isinstance(mode, str) or mode not in legal:
        raise SimulationError(f"mode {mode!r} is none {what}; legal: {', '.join(map(repr, legal))}")
    return mode


def _check_gathered(parameters: AnyParameters, mode: str) -> None:
    """Four rows are taken from a matrix without interleave, by a box of one row (PTX ISA, "tile::gather4")."""
    if mode not in (GATHER4, SCATTER4) or not isinstance(parameters, Tiled):
        return
    problems = [f"rank {parameters.rank}; it must be 2"] * (parameters.rank != 2)
    problems += [f"box_dim[1] = {n}; it must be 1" for n in parameters.box_dim[1:2] if n != 1]
    problems += [f"interleave {parameters.interleave}; it must be NONE"] * (parameters.interleave != Interleave.NONE)
    if problems:
        raise SimulationError(f"mode {mode!r} with {', and '.join(problems)}")


def one_way(parameters: AnyParameters, *, store: bool) -> str:
    """What of a type and swizzle exists in the other direction alone; empty if nothing does.

    Sources: driver API; PTX ISA, "Swizzling Modes".
    """
    packed, swizzle = parameters.data_type, parameters.swizzle
    if store and packed == DataType.PACKED_16U4_ALIGN16B:
        return f"element type {packed}"
    if store and swizzle == Swizzle.B128_ATOM_32B_FLIP_8B:
        return f"swizzle {swizzle}"
    if not store and packed == DataType.PACKED_16U6_ALIGN16B and swizzle == Swizzle.B128_ATOM_64B:
        return f"swizzle {swizzle} of element type {packed}"
    return ""


def _check_direction(parameters: AnyParameters, *, store: bool) -> None:
    what = one_way(parameters, store=store)
    if what:
        this, other = ("stores", "loads") if store else ("loads", "stores")
        raise NotSimulatedError(f"{what} is documented for {other} alone; what {this} do is unknown")
