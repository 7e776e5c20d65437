"""Enough of Hopper's and Blackwell's machine code to run what ``tensormap.replace`` expands to.

The kernel takes a shared address and a value. It is a straight line of loads, shifts, masks and stores.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np

from cupytma.runtime.compiler import compile

# Where the kernel's two parameters are in the constant bank, by target.
_PARAMETERS = {"sm_90a": 0x210, "sm_100a": 0x380}
_WORD = 0xFFFFFFFF


def nvdisasm() -> str | None:
    """The disassembler, from PATH or from the nvidia-cuda-nvdisasm wheel."""
    found = shutil.which("nvdisasm")
    if found:
        return found
    for folder in sys.path:
        for place in Path(folder, "nvidia").glob("*/bin/nvdisasm") if folder else ():
            if os.access(place, os.X_OK):
                return str(place)
    return None


@cache
def expansions(instructions: tuple[str, ...], target: str) -> dict[str, tuple[str, ...]]:
    """The machine code of kernels that each execute one instruction on ``[%0]`` with the value ``%1``."""
    kernels = []
    for number, instruction in enumerate(instructions):
        kind, letter = ("unsigned long long", "l") if ".b64 " in instruction else ("unsigned", "r")
        kernels.append(
            f'extern "C" __global__ void k{number}(unsigned address, {kind} value) {{'
            f'asm volatile("{instruction}" :: "r"(address), "{letter}"(value) : "memory"); }}'
        )
    program = nvdisasm()
    assert program is not None
    with tempfile.NamedTemporaryFile(suffix=".cubin") as image:
        image.write(compile("\n".join(kernels), target).cubin)
        image.flush()
        listing = subprocess.run([program, "-c", image.name], check=True, capture_output=True, text=True).stdout
    found = {}
    for section in re.split(r"^\s*\.section\s+\.text\.k", listing, flags=re.MULTILINE)[1:]:
        number = int(re.match(r"\d+", section)[0])  # type: ignore[index]
        lines = re.findall(r"^\s+/\*[0-9a-f]{4}\*/\s+(.*?)\s*;", section, re.MULTILINE)
        found[instructions[number]] = tuple(lines[: lines.index("EXIT")])
    return found


class Machine:
    """Registers, the constant bank with the kernel's parameters, and 128 bytes of shared memory at address 0."""

    def __init__(self, memory: bytes, value: int, wide: bool, target: str) -> None:
        self.memory = bytearray(memory)
        self._registers: dict[str, int] = {"RZ": 0, "URZ": 0}
        base = _PARAMETERS[target]
        self._constants = {base: 0}
        first = base + (8 if wide else 4)
        self._constants.update({first: value & _WORD, first + 4: value >> 32})

    def run(self, lines: tuple[str, ...]) -> bytes:
        """The shared memory after all instructions."""
        for line in lines:
            name, _, rest = line.partition(" ")
            operands = [operand.strip().removesuffix(".reuse") for operand in rest.split(",")]
            _OPERATIONS[name](self, operands)
        return bytes(self.memory)

    def read(self, operand: str) -> int:
        if re.fullmatch(r"U?R(\d+|Z)", operand):
            return self._registers[operand]
        if match := re.fullmatch(r"c\[0x0\]\[(0x[0-9a-f]+)\]", operand):
            return self._constants.get(int(match[1], 16), 0)
        if operand.startswith("-"):
            return -self.read(operand[1:]) & _WORD
        return int(operand, 0) & _WORD

    def write(self, register: str, value: int) -> None:
        if not register.endswith("RZ"):
            self._registers[register] = value & _WORD

    def place(self, operand: str) -> int:
        match = re.fullmatch(r"\[(U?R\d+)?\+?(0x[0-9a-f]+)?\]", operand)
        assert match, operand
        return (self._registers[match[1]] if match[1] else 0) + int(match[2] or "0", 16)


def _next(register: str) -> str:
    return f"R{int(register[1:]) + 1}"


def _load_constant_pair(machine: Machine, o: list[str]) -> None:
    place = int(re.search(r"\[(0x[0-9a-f]+)\]$", o[1])[1], 16)  # type: ignore[index]
    for register, at in ((o[0], place), (_next(o[0]), place + 4)):
        machine.write(register, machine.read(f"c[0x0][{at:#x}]"))


def _store(machine: Machine, o: list[str], registers: list[str]) -> None:
    for i, register in enumerate(registers):
        at = machine.place(o[0]) + 4 * i
        machine.memory[at : at + 4] = machine.read(register).to_bytes(4, "little")


def _lop3(machine: Machine, o: list[str]) -> None:
    a, b, c, table = (machine.read(operand) for operand in o[1:5])
    result = 0
    for bit in range(32):
        index = (a >> bit & 1) << 2 | (b >> bit & 1) << 1 | (c >> bit & 1)
        result |= (table >> index & 1) << bit
    machine.write(o[0], result)


def _shift_right_pair(machine: Machine, o: list[str]) -> None:
    low, amount, high = (machine.read(operand) for operand in o[1:4])
    machine.write(o[0], (high << 32 | low) >> amount)


def _half_constants(machine: Machine, o: list[str]) -> None:
    high, low = (int(np.float16(float(text)).view(np.uint16)) for text in o[3:5])
    assert o[1] == "-RZ"
    machine.write(o[0], high << 16 | low)


def _move(machine: Machine, o: list[str]) -> None:
    machine.write(o[0], machine.read(o[-1]))


_Operation = Callable[[Machine, list[str]], None]
_OPERATIONS: dict[str, _Operation] = {
    **dict.fromkeys(("LDC", "LDCU", "ULDC", "MOV", "IMAD.MOV.U32", "UMOV"), _move),
    "LDC.64": _load_constant_pair,
    "LDS": lambda m, o: m.write(o[0], int.from_bytes(m.memory[m.place(o[1]) : m.place(o[1]) + 4], "little")),
    "STS": lambda m, o: _store(m, o, [o[1]]),
    "STS.64": lambda m, o: _store(m, o, [o[1], _next(o[1])]),
    "LOP3.LUT": _lop3,
    "VIADD": lambda m, o: m.write(o[0], m.read(o[1]) + m.read(o[2])),
    "IADD3": lambda m, o: m.write(o[0], sum(m.read(p) for p in o[1:] if p != "PT")),
    "IMAD.SHL.U32": lambda m, o: m.write(o[0], m.read(o[1]) * m.read(o[2])),
    "SHF.L.U32": lambda m, o: m.write(o[0], m.read(o[1]) << m.read(o[2])),
    "SHF.R.U32.HI": lambda m, o: m.write(o[0], m.read(o[3]) >> m.read(o[2])),
    "SHF.R.U64": _shift_right_pair,
    **dict.fromkeys(("HFMA2", "HFMA2.MMA"), _half_constants),
}
