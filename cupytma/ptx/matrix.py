"""Matrices between shared memory and a warp's registers (ldmatrix, stmatrix), and the descriptor wgmma finds one by.

Source: PTX ISA, "ldmatrix", "stmatrix" and "Asynchronous Warpgroup Level Matrix Shared Memory Layout".
"""

from __future__ import annotations

from dataclasses import dataclass

from cupytma.errors import EmissionError
from cupytma.ptx import operands
from cupytma.ptx.checks import checked_integer, checked_word, integer, shown
from cupytma.ptx.family import Argument, Choice, Clash, Family, Note, Requirement, Word, Words, flag, given
from cupytma.ptx.instruction import Instruction
from cupytma.targets import Feature

_SECTION = "Warp Level Matrix Instructions: "
_NUMBER = Word("num", tuple(Choice(n, f"x{n}", f"_x{n}") for n in (1, 2, 4)))
_SPACES = ("shared::cta", "generic")
_SPACE = Word("space", (Choice("shared::cta", ".shared::cta"), Choice("generic", "", "_generic")))
_TRANS = flag("trans", ".trans")
_PACKED = ("b8x16.b6x16_p32", "b8x16.b4x16_p64")
_BYTES = frozenset({Feature.BYTE_MATRICES})
_ROW = "a row of a matrix, aligned to 16 bytes; lanes 8i to 8i + 7 give the rows of matrix i"


def _word(name: str, *values: str) -> Word:
    return Word(name, tuple(Choice(v, v, "_" + v.replace(".", "_")) for v in values))


def _registers(words: Words) -> int:
    """Two registers hold a lane's part of a matrix of 256 bytes, one that of the others."""
    number = words["num"]
    assert isinstance(number, int)
    return number * (2 if words["shape"] == "m16n16" else 1)


def _only(shape: str | tuple[str, ...], types: tuple[str, ...], legal: str) -> Clash:
    return Clash(given(shape=shape, type=types), f"type={{type!r}} clashes with shape={{shape!r}}; legal: {legal}")


LOAD = Family(
    name="ldmatrix",
    mnemonic="ldmatrix.sync.aligned.{shape}.{num}{trans}{space}.{type}",
    words=(
        _word("shape", "m8n8", "m16n16", "m8n16"),
        _NUMBER,
        _TRANS,
        _word("type", "b16", "b8", *_PACKED),
        _SPACE,
    ),
    arguments=(
        Argument(
            "{%*}",
            (operands.value("r", "b32", "this lane's part of the matrices", "output", vector="r", packed=True),),
            length=_registers,
        ),
        *(Argument("[%]", (operands.address("row", s, _ROW, "const void*"),), given(space=s)) for s in _SPACES),
    ),
    summary="Loads {num} matrices of {shape} {type} from shared memory into the registers of the warp.",
    section=_SECTION + "ldmatrix",
    ptx_version=(6, 5),
    clashes=(
        _only("m8n8", ("b8", *_PACKED), "'b16'"),
        _only("m16n16", ("b16",), "'b8', 'b8x16.b6x16_p32', 'b8x16.b4x16_p64'"),
        _only("m8n16", ("b16", "b8"), "'b8x16.b6x16_p32', 'b8x16.b4x16_p64'"),
        Clash(
            given(shape="m16n16", trans=False), "trans=False clashes with shape='m16n16', which is always transposed"
        ),
        Clash(given(shape="m8n16", trans=True), "trans=True clashes with shape='m8n16', which is never transposed"),
        Clash(given(shape="m16n16", num=4), "num=4 clashes with shape='m16n16'; legal: 1, 2"),
    ),
    requirements=(
        Requirement(given(space="shared::cta"), (7, 8)),
        Requirement(given(shape=("m16n16", "m8n16")), (8, 6), _BYTES),
    ),
    notes=(Note(given(trans=True), "Each matrix is transposed."),),
)

STORE = Family(
    name="stmatrix",
    mnemonic="stmatrix.sync.aligned.{shape}.{num}{trans}{space}.{type}",
    words=(_word("shape", "m8n8", "m16n8"), _NUMBER, _TRANS, _word("type", "b16", "b8"), _SPACE),
    arguments=(
        *(Argument("[%]", (operands.address("row", s, _ROW, "void*"),), given(space=s)) for s in _SPACES),
        Argument(
            "{%*}",
            (operands.value("r", "b32", "this lane's part of the matrices", vector="r", packed=True),),
            length=_registers,
        ),
    ),
    summary="Stores {num} matrices of {shape} {type} from the registers of the warp to shared memory.",
    section=_SECTION + "stmatrix",
    ptx_version=(7, 8),
    clashes=(
        _only("m8n8", ("b8",), "'b16'"),
        _only("m16n8", ("b16",), "'b8'"),
        Clash(given(shape="m16n8", trans=False), "trans=False clashes with shape='m16n8', which is always transposed"),
    ),
    requirements=(Requirement(given(shape="m16n8"), (8, 6), _BYTES),),
    notes=(Note(given(trans=True), "Each matrix is transposed."),),
)


def ldmatrix(
    *, num: int, shape: str = "m8n8", trans: bool = False, type: str = "b16", space: str = "shared::cta"
) -> Instruction:
    """A load of matrices from shared memory into the registers of a warp.

    Parameters
    ----------
    num : int
        How many: 1, 2 or 4; 1 or 2 of shape ``"m16n16"``.
    shape : str
        ``"m8n8"``; on architecture-specific Blackwell targets also ``"m16n16"`` and ``"m8n16"``.
    trans : bool
        Transpose each; always for ``"m16n16"``, never for ``"m8n16"``.
    type : str
        ``"b16"``, ``"b8"``, ``"b8x16.b6x16_p32"`` or ``"b8x16.b4x16_p64"``.
    space : str
        ``"shared::cta"`` or ``"generic"``.

    Raises
    ------
    EmissionError
        For a word with another value, or a type that the shape does not have.

    Notes
    -----
    Source: PTX ISA, "ldmatrix".
    """
    return LOAD.build(num=num, shape=shape, trans=trans, type=type, space=space)


def stmatrix(
    *, num: int, shape: str = "m8n8", trans: bool = False, type: str = "b16", space: str = "shared::cta"
) -> Instruction:
    """A store of matrices from the registers of a warp to shared memory.

    Parameters
    ----------
    num : int
        How many: 1, 2 or 4.
    shape : str
        ``"m8n8"``; on architecture-specific Blackwell targets also ``"m16n8"``.
    trans : bool
        Transpose each; always for ``"m16n8"``.
    type : str
        ``"b16"`` for ``"m8n8"``, ``"b8"`` for ``"m16n8"``.
    space : str
        ``"shared::cta"`` or ``"generic"``.

    Raises
    ------
    EmissionError
        For a word with another value, or a type that the shape does not have.

    Notes
    -----
    Source: PTX ISA, "stmatrix".
    """
    return STORE.build(num=num, shape=shape, trans=trans, type=type, space=space)


# The descriptor's swizzle codes count down from the widest, unlike a tensor map's.
_SWIZZLES = {"NONE": 0, "128B": 1, "64B": 2, "32B": 3}
# Field: lowest bit, bits, and how many low bits of the value are left out.
_FIELDS = {
    "start_address": (0, 14, 4),
    "leading_byte_offset": (16, 14, 4),
    "stride_byte_offset": (32, 14, 4),
    "base_offset": (49, 3, 0),
}
_SWIZZLE_BIT = 62


@dataclass(frozen=True)
class MatrixDescriptor:
    """The 64-bit description of a matrix in shared memory that wgmma takes.

    Attributes
    ----------
    start_address : int
        The shared-memory address in bytes, a multiple of 16 below 262,144.
    leading_byte_offset, stride_byte_offset : int
        The distances between repeating patterns in the leading and in the strided dimension, in bytes, likewise. With a
        swizzle and K-major operands the leading one is not used.
    base_offset : int
        ``(start >> 7) & 7`` of a pattern that does not begin on its repetition (1024, 512 or 256 bytes); else 0.
    swizzle : str
        ``"NONE"``, ``"32B"``, ``"64B"`` or ``"128B"``, as the tile was loaded.
    """

    start_address: int
    leading_byte_offset: int = 0
    stride_byte_offset: int = 0
    base_offset: int = 0
    swizzle: str = "NONE"

    def __post_init__(self) -> None:
        checked_word("MatrixDescriptor", "swizzle", self.swizzle, _SWIZZLES)
        for name, (_, bits, dropped) in _FIELDS.items():
            given, step = getattr(self, name), 1 << dropped
            number = integer(given)
            if number is None or number not in range(0, 1 << (bits + dropped), step):
                largest = ((1 << bits) - 1) << dropped
                raise EmissionError(
                    f"{name}={shown(given)} does not fit: a multiple of {step} from 0 to {largest} does"
                )
            object.__setattr__(self, name, number)

    def encode(self) -> int:
        """The 64 bits."""
        word = _SWIZZLES[self.swizzle] << _SWIZZLE_BIT
        for name, (low, _, dropped) in _FIELDS.items():
            word |= getattr(self, name) >> dropped << low
        return word

    @classmethod
    def decode(cls, word: int) -> MatrixDescriptor:
        """The descriptor of 64 bits.

        Raises
        ------
        EmissionError
            If a bit is set that no field has, or it is no number of 64 bits.
        """
        word = checked_integer("MatrixDescriptor.decode", "word", word, range(1 << 64))
        fields = {n: (word >> low & ((1 << bits) - 1)) << dropped for n, (low, bits, dropped) in _FIELDS.items()}
        swizzle = {code: name for name, code in _SWIZZLES.items()}[word >> _SWIZZLE_BIT & 3]
        descriptor = cls(**fields, swizzle=swizzle)
        if descriptor.encode() != word:
            raise EmissionError(f"{word:#018x} is no matrix descriptor: bits outside its fields are set")
        return descriptor


#: The same in CUDA C++, for the header.
MATRIX_DESCRIPTOR_FUNCTION = """\
// The matrix descriptor of a tile in shared memory for wgmma. Offsets are in bytes; swizzle is 0 for none, 1 for 128B,
// 2 for 64B, 3 for 32B. (PTX ISA: Asynchronous Warpgroup Level Matrix Shared Memory Layout)
__device__ __forceinline__ unsigned long long matrix_descriptor(
    const void* start,
    unsigned leading_byte_offset,
    unsigned stride_byte_offset,
    unsigned swizzle,
    unsigned base_offset = 0)
{
    const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(start));
    return static_cast<unsigned long long>((address & 0x3ffffu) >> 4)
        | static_cast<unsigned long long>((leading_byte_offset & 0x3ffffu) >> 4) << 16
        | static_cast<unsigned long long>((stride_byte_offset & 0x3ffffu) >> 4) << 32
        | static_cast<unsigned long long>(base_offset & 7u) << 49
        | static_cast<unsigned long long>(swizzle & 3u) << 62;
}"""
