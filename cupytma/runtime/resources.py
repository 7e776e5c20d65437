"""What each kernel takes of a multiprocessor, read from its machine code."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from cupytma.errors import CompileInputError
from cupytma.limits import RESERVED_SHARED_BYTES
from cupytma.words import counted

# The attributes in the .nv.info sections of a cubin: their numbers as cuobjdump --dump-elf names them, checked against
# that and against what the assembler reports.
_MAX_THREADS, _PARAMETER_BYTES, _REQUIRED_THREADS = 0x05, 0x19, 0x10
_FRAME_SIZE, _MIN_STACK_SIZE, _REGISTERS, _BARRIERS, _CLUSTER = 0x11, 0x12, 0x2F, 0x4C, 0x3D
_NO_VALUE, _BYTE, _HALF, _SIZED = 1, 2, 3, 4  # how an attribute's value is kept
_FUNCTION, _ENTRY = 2, 0x10  # a symbol's type, and the mark of a kernel in its other byte
_UNKNOWN_STACK = 0xFFFFFFFF
_BARRIER_BITS = 20  # where older cubins keep the number of barriers in a code section's flags


@dataclass(frozen=True)
class KernelResources:
    """What one kernel takes.

    Attributes
    ----------
    registers : int
        Of 32 bits, per thread.
    shared_bytes : int
        Static shared memory of a block, without the 1024 bytes that the system has in each block.
    stack_bytes : int or None
        Local memory of a thread in bytes: arrays that are indexed at run time, spilt registers, calls. None where
        recursion leaves it open.
    frame_bytes : int
        What the kernel has of it without the functions it calls.
    spill_store_bytes, spill_load_bytes : int
        Bytes that instructions of the kernel move to and from local memory for want of registers.
    barriers : int
        Hardware barriers, as of ``__syncthreads``.
    parameter_bytes : int
    max_threads : tuple of int or None
        The largest block that ``__launch_bounds__`` promises, x first; None without a promise.
    required_threads : tuple of int or None
        The only block that the kernel takes.
    cluster : tuple of int or None
        Blocks of a cluster, where the kernel fixes them.
    constant_bytes : int
        Of the kernel's constant bank, parameters included.
    code_bytes : int
    """

    registers: int
    shared_bytes: int
    stack_bytes: int | None
    frame_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int
    barriers: int
    parameter_bytes: int
    max_threads: tuple[int, ...] | None
    required_threads: tuple[int, ...] | None
    cluster: tuple[int, ...] | None
    constant_bytes: int
    code_bytes: int

    def __str__(self) -> str:
        stack = "unknown" if self.stack_bytes is None else f"{self.stack_bytes} B"
        return (
            f"{counted(self.registers, 'register')}, {self.shared_bytes} B shared, stack {stack}, spills "
            f"{self.spill_store_bytes} B stored and {self.spill_load_bytes} B loaded, "
            f"{counted(self.barriers, 'barrier')}"
        )


@dataclass(frozen=True)
class _Section:
    name: str
    flags: int
    offset: int
    size: int
    link: int
    info: int
    holds_data: bool


class _Cubin:
    """The sections and symbols of an ELF image of 64 bits, little-endian, as all cubins are."""

    def __init__(self, data: bytes) -> None:
        if data[:6] != b"\x7fELF\x02\x01":
            raise CompileInputError(f"{len(data)} bytes that begin with {data[:4]!r} are no cubin, an ELF image")
        try:
            start, size, count, names = struct.unpack_from("<Q", data, 0x28) + struct.unpack_from("<HHH", data, 0x3A)
            rows = [struct.unpack_from("<IIQQQQIIQQ", data, start + i * size) for i in range(count)]
            strings = data[rows[names][4] : rows[names][4] + rows[names][5]]
        except (struct.error, IndexError) as error:
            raise CompileInputError(f"the cubin of {len(data)} bytes ends too early: {error}") from None
        self.data = data
        self.sections = [
            _Section(_string(strings, r[0]), r[2], r[4], r[5], r[6], r[7], holds_data=r[1] != 8) for r in rows
        ]
        self.by_name = {section.name: section for section in self.sections}

    def content(self, section: _Section) -> bytes:
        return self.data[section.offset : section.offset + section.size] if section.holds_data else b""

    def symbols(self) -> Iterator[tuple[int, str, int, int, int]]:
        """Number, name, type, other byte and section of each symbol."""
        table = self.by_name.get(".symtab")
        if table is None or table.link >= len(self.sections):
            return
        strings = self.content(self.sections[table.link])
        for number, row in enumerate(struct.iter_unpack("<IBBHQQ", self.content(table)[: table.size // 24 * 24])):
            yield number, _string(strings, row[0]), row[1] & 15, row[2], row[3]

    def attributes(self, name: str) -> Iterator[tuple[int, bytes | int]]:
        """Number and value of each attribute in an .nv.info section."""
        section = self.by_name.get(name)
        content = self.content(section) if section else b""
        at = 0
        while at + 4 <= len(content):
            kind, attribute, value = struct.unpack_from("<BBH", content, at)
            at += 4
            if kind == _SIZED:
                yield attribute, content[at : at + value]
                at += value
            elif kind in (_NO_VALUE, _BYTE, _HALF):
                yield attribute, value & 0xFF if kind == _BYTE else value
            else:
                raise CompileInputError(f"section {name} of the cubin has an attribute of an unknown form, {kind}")


def _string(strings: bytes, at: int) -> str:
    return strings[at : strings.find(b"\0", at)].decode(errors="replace")


def read_resources(cubin: bytes, spills: Mapping[str, tuple[int, int]] | None = None) -> dict[str, KernelResources]:
    """What each kernel of a cubin takes, by the name of the kernel.

    Parameters
    ----------
    cubin : bytes
    spills : mapping, optional
        Bytes of spill stores and loads by function, which the assembler reports and the cubin does not hold.

    Raises
    ------
    CompileInputError
        If the bytes are no cubin.
    """
    image = _Cubin(cubin)
    kernels = {number: (name, index) for number, name, kind, other, index in image.symbols()
               if kind == _FUNCTION and other & _ENTRY}
    numbers: dict[int, dict[int, int]] = {number: {} for number in kernels}
    for attribute, value in image.attributes(".nv.info"):
        if isinstance(value, bytes) and len(value) == 8:
            number, amount = struct.unpack("<II", value)
            numbers.get(number, {})[attribute] = amount
    return {
        name: _resources(image, name, image.sections[index], numbers[number], (spills or {}).get(name, (0, 0)))
        for number, (name, index) in sorted(kernels.items(), key=lambda item: item[1])
    }


def _resources(
    image: _Cubin, name: str, code: _Section, sizes: Mapping[int, int], spilt: tuple[int, int]
) -> KernelResources:
    own = dict(image.attributes(f".nv.info.{name}"))
    shared = image.by_name.get(f".nv.shared.{name}")
    constants = image.by_name.get(f".nv.constant0.{name}")
    stack = sizes.get(_MIN_STACK_SIZE, 0)
    return KernelResources(
        registers=sizes.get(_REGISTERS, 0),
        shared_bytes=max(0, shared.size - RESERVED_SHARED_BYTES) if shared else 0,  # the section has the system's too
        stack_bytes=None if stack == _UNKNOWN_STACK else stack,
        frame_bytes=sizes.get(_FRAME_SIZE, 0),
        spill_store_bytes=spilt[0],
        spill_load_bytes=spilt[1],
        barriers=_number(own.get(_BARRIERS, code.flags >> _BARRIER_BITS & 0x7F)),
        parameter_bytes=_number(own.get(_PARAMETER_BYTES, 0)),
        max_threads=_three(own.get(_MAX_THREADS)),
        required_threads=_three(own.get(_REQUIRED_THREADS)),
        cluster=_three(own.get(_CLUSTER)),
        constant_bytes=constants.size if constants else 0,
        code_bytes=code.size,
    )


def _number(value: bytes | int) -> int:
    return value if isinstance(value, int) else int.from_bytes(value, "little")


def _three(value: bytes | int | None) -> tuple[int, ...] | None:
    return struct.unpack("<III", value[:12]) if isinstance(value, bytes) and len(value) >= 12 else None
