"""What a tensor map describes, as the driver's encoders take it.

Everything is in driver order: dimension 0 moves fastest.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar

from cupytma import targets
from cupytma.errors import DescriptorError
from cupytma.tensormap import checking
from cupytma.tensormap.enums import DataType, DriverEnum, Interleave, L2Promotion, OobFill, Swizzle

if TYPE_CHECKING:
    from cupytma.tensormap.rules import Violation
    from cupytma.tensormap.tensor_map import TensorMap

_ENUMS: dict[str, type[DriverEnum]] = {
    "data_type": DataType,
    "interleave": Interleave,
    "swizzle": Swizzle,
    "l2_promotion": L2Promotion,
    "oob_fill": OobFill,
}
# Sequences by how many entries they have less than the rank, and what fills them up for the rules.
_SEQUENCES: dict[str, tuple[int, int]] = {
    "global_dim": (0, 1),
    "global_strides": (1, 0),
    "box_dim": (0, 1),
    "element_strides": (0, 1),
    "pixel_box_lower_corner": (2, 0),
    "pixel_box_upper_corner": (2, 0),
}
_FULL_RANK = 5


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """What every kind of tensor map has. Use `Tiled`.

    Parameters
    ----------
    data_type : DataType, str, int, or dtype
        A member, its name, its driver number, or a numpy, ml_dtypes or torch dtype.
    global_address : int
        Of element (0, …, 0), in bytes; a multiple of 16.
    global_dim : sequence of int
        Extents in elements, dimension 0 fastest; 1 to 5 of them, each up to 2^32.
    global_strides : sequence of int, optional
        Distance in bytes between neighbours in dimensions 1…rank−1; multiples of 16 below 2^40. Dimension 0 is dense.
        Default: rows that follow one another without padding.
    element_strides : sequence of int, optional
        Take every n-th element of a dimension, 1 to 8. Default: 1.
    interleave : Interleave or str
        Default NONE.
    swizzle : Swizzle or str
        Default NONE.
    l2_promotion : L2Promotion or str
        Default NONE.
    oob_fill : OobFill or str
        Default NONE, which fills with zeros.

    Raises
    ------
    DescriptorError
        If an operand is no integer, a name is unknown, or the sequences' lengths do not fit one another. Whether the
        values are legal is said by `violations` and `encode`.
    """

    mode: ClassVar[str]

    data_type: DataType
    global_address: int
    global_dim: tuple[int, ...]
    global_strides: tuple[int, ...] = None  # type: ignore[assignment]  # filled in below
    element_strides: tuple[int, ...] = None  # type: ignore[assignment]
    interleave: Interleave = Interleave.NONE
    swizzle: Swizzle = Swizzle.NONE
    l2_promotion: L2Promotion = L2Promotion.NONE
    oob_fill: OobFill = OobFill.NONE

    def __post_init__(self) -> None:
        problems: list[str] = []
        for name, value in self._normalised(problems).items():
            object.__setattr__(self, name, value)
        if problems:
            raise DescriptorError("; ".join(problems))

    def _normalised(self, problems: list[str]) -> dict[str, Any]:
        """Every operand as an enumeration member, an integer or a tuple of integers."""
        found: dict[str, Any] = {}
        for field in fields(self):
            value, name = getattr(self, field.name), field.name
            try:
                if name in _ENUMS:
                    found[name] = _member(_ENUMS[name], value)
                elif name in _SEQUENCES:
                    found[name] = None if value is None else _integers(value)
                else:
                    found[name] = operator.index(value)
            except (TypeError, ValueError) as error:
                problems.append(str(error) if name in _ENUMS else f"{name} = {value!r}: {error}")
        if not problems:
            self._fill_defaults(found)
            problems += _length_problems(found)
        return found

    @staticmethod
    def _fill_defaults(found: dict[str, Any]) -> None:
        dims = found["global_dim"]
        if found["element_strides"] is None:
            found["element_strides"] = (1,) * len(dims)
        if found["global_strides"] is None:
            size, strides = checking.SCALAR_TABLES["ELEMENT_BYTES"][found["data_type"]], []
            for extent in dims[:-1]:
                size *= extent
                strides.append(size)
            found["global_strides"] = tuple(strides)

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.global_dim)

    @property
    def element_bytes(self) -> int:
        """Bytes of one element."""
        return int(checking.SCALAR_TABLES["ELEMENT_BYTES"][self.data_type])

    def operands(self, target: targets.Target) -> dict[str, Any]:
        """The operands of the rules, derived ones included, for one target."""
        found: dict[str, Any] = {
            "mode": self.mode,
            "rank": self.rank,
            "wide_mode": 0,
            **checking.target_operands(target),
        }
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name in _SEQUENCES:
                short, neutral = _SEQUENCES[field.name]
                value = value + (neutral,) * (_FULL_RANK - short - len(value))
            found[field.name] = value
        checking.derive(found, checking.SCALAR_TABLES)
        return found

    def violations(self, target: str | targets.Target = targets.DEFAULT_TARGET) -> tuple[Violation, ...]:
        """Every rule the parameters break on a target; empty when the driver would accept them.

        Parameters
        ----------
        target : str or Target
            Default ``"sm_90a"``.

        Raises
        ------
        TargetError
            If the target is unknown or has no Tensor Memory Accelerator.
        """
        return checking.violations(self.operands(targets.target(target)))

    def encode(self, target: str | targets.Target = targets.DEFAULT_TARGET) -> TensorMap:
        """The 128-byte tensor map, byte for byte as the driver makes it. Needs no GPU.

        Raises
        ------
        DescriptorError
            Naming every broken rule.
        TargetError
            If the target is unknown or has no Tensor Memory Accelerator.
        """
        from cupytma.tensormap.tensor_map import TensorMap

        return TensorMap.encode(self, target)


@dataclass(frozen=True, kw_only=True)
class Tiled(Parameters):
    """A tensor that is moved in boxes, as ``cuTensorMapEncodeTiled`` takes it. All in driver order.

    Parameters
    ----------
    box_dim : sequence of int
        Extents of the box one instruction moves, in elements, 1 to 256 each; the innermost row is a multiple of
        16 bytes.
    **parameters
        See `Parameters`.

    Examples
    --------
    >>> parameters = Tiled(data_type="FLOAT16", global_address=0x7F0000000000, global_dim=(1024, 512),
    ...                    global_strides=(2048,), box_dim=(64, 32), swizzle="128B")
    >>> parameters.violations(target="sm_90a")
    ()
    >>> parameters.encode(target="sm_90a").box_bytes
    4096
    """

    mode: ClassVar[str] = "tiled"

    box_dim: tuple[int, ...]


def _member(enumeration: type[DriverEnum], value: Any) -> Any:
    """A member; an unknown number is kept, for the rules to report beside the others."""
    try:
        return enumeration.of(value)
    except ValueError:
        if isinstance(value, bool):
            raise
        try:
            return operator.index(value)
        except TypeError:
            pass
        raise


def _integers(value: Any) -> tuple[int, ...]:
    if isinstance(value, (str, bytes)):
        raise TypeError("expected a sequence of integers")
    return tuple(operator.index(entry) for entry in value)


def _length_problems(found: dict[str, Any]) -> list[str]:
    rank = len(found["global_dim"])
    return [
        f"{name} has {len(value)} entries, and rank {rank} (the length of global_dim) needs {max(rank - short, 0)}"
        for name, (short, _) in _SEQUENCES.items()
        if (value := found.get(name)) is not None and len(value) != max(rank - short, 0)
    ]
