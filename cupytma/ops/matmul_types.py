"""What matrix products are made of: element types, as arrays, tensor maps and wgmma name them."""

from __future__ import annotations

from dataclasses import dataclass

from cupytma.errors import ArrayError
from cupytma.runtime.given import shown
from cupytma.tensormap.enums import DataType


@dataclass(frozen=True)
class OperandType:
    """The type of an operand's elements.

    Attributes
    ----------
    name : str
        Of the dtype.
    bytes : int
        Of one element.
    wgmma : str
        As wgmma names it.
    data_type : DataType
        Of the tensor map; loads of TFLOAT32 round to nearest (measured on an H100).
    multiply_adds : int
        Of one multiprocessor in one cycle, dense (NVIDIA H100 data sheet: 1,979 TFLOP/s of 8-bit numbers).
    result : str
        The type of the result unless another is asked for.
    """

    name: str
    bytes: int
    wgmma: str
    data_type: DataType
    multiply_adds: int
    result: str

    @property
    def is_narrow(self) -> bool:
        """Whether the tensor cores add its products with fewer bits than float32 has."""
        return self.bytes == 1


OPERAND_TYPES = {
    found.name: found
    for found in (
        OperandType("float8_e4m3fn", 1, "e4m3", DataType.UINT8, 4096, "bfloat16"),
        OperandType("float8_e5m2", 1, "e5m2", DataType.UINT8, 4096, "bfloat16"),
        OperandType("bfloat16", 2, "bf16", DataType.BFLOAT16, 2048, "bfloat16"),
        OperandType("float16", 2, "f16", DataType.FLOAT16, 2048, "float16"),
        OperandType("float32", 4, "tf32", DataType.TFLOAT32, 1024, "float32"),
    )
}
# Types of the result, and what their tensor map calls them.
RESULT_TYPES = {"bfloat16": DataType.BFLOAT16, "float16": DataType.FLOAT16, "float32": DataType.FLOAT32}
# Arrays of these hold the bits of a type of as many bytes that is named beside them.
_BITS = {"uint8": 1, "int8": 1, "uint16": 2, "int16": 2}


def type_name(argument: str, dtype: object) -> str:
    """The name of a dtype that a caller gives: a name, a numpy or ml_dtypes dtype, or a torch dtype.

    Raises
    ------
    ArrayError
        If it is none.
    """
    if isinstance(dtype, str):
        return dtype
    if type(dtype).__module__ == "torch":
        return str(dtype).removeprefix("torch.")
    try:
        import numpy as np

        if dtype is not None:
            return np.dtype(dtype).name  # type: ignore[call-overload, no-any-return]
    except Exception:  # numpy's own are of several classes, and objects may raise anything
        pass
    raise ArrayError(f"{argument} = {shown(dtype)} is no dtype: give its name, such as 'bfloat16'")


def carried_type(argument: str, dtype: str, named: object, types: object) -> str:
    """The type of an array's elements, whose own dtype may be integers that hold the bits of another.

    Parameters
    ----------
    argument : str
        What the array is called.
    dtype : str
        Its own.
    named : object
        What the caller says it holds; None for its own.
    types : mapping of str
        Those that can be.

    Raises
    ------
    ArrayError
        If it cannot be.
    """
    assert isinstance(types, dict)
    name = dtype if named is None else type_name(f"{argument}_dtype", named)
    if name not in types:
        held = f" (uint8 and uint16 arrays hold the bits of the type named by {argument}_dtype)" * (dtype in _BITS)
        raise ArrayError(f"{argument} has elements of type {name}; these can be: {', '.join(types)}{held}")
    if name != dtype:
        size = 4 if name == "float32" else OPERAND_TYPES[name].bytes
        if _BITS.get(dtype) != size:
            bits = {1: ", or of uint8 with its bits", 2: ", or of uint16 with its bits"}.get(size, "")
            raise ArrayError(
                f"{argument} has dtype {dtype}, and {argument}_dtype says {name}: give an array of {name}{bits}"
            )
    return name
