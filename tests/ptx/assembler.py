"""The assemblers that the catalogue is proven with: NVRTC libraries loaded beside each other, told apart by version.

A module holds many instructions, one per line of one inline-assembly statement, so that a compilation judges hundreds
of them: the assembler names the line of each one that it refuses.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache, cached_property
from pathlib import Path

from cupytma.errors import CompileError
from cupytma.runtime import nvrtc_version

NEW_NVRTC_VARIABLE = "CUPYTMA_TEST_NVRTC"
_REGISTERS = (
    ".reg .b16 h<40>;",
    ".reg .b32 r<300>;",
    ".reg .b64 l<40>;",
    ".reg .pred p<40>;",
    ".reg .f32 f<300>;",
    ".reg .b128 q<4>;",
)
_BATCH_CHARACTERS = 12_000
_LINE = re.compile(r"line (\d+); (error|fatal)\s*: (.*)")


class Assembler:
    """One NVRTC library."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._library = ctypes.CDLL(str(path))
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
        self.version = (major.value, minor.value)

    @cached_property
    def ptx_version(self) -> tuple[int, int]:
        """The PTX ISA version that it writes, read from what it compiles."""
        status, text, _ = self.compile('extern "C" __global__ void k() {}', "compute_90", "PTX")
        assert status == 0
        found = re.search(r"\.version (\d+)\.(\d+)", text)
        assert found
        return int(found[1]), int(found[2])

    @cached_property
    def targets(self) -> tuple[str, ...]:
        """The targets that it compiles for, of those named in `cupytma.targets`."""
        from cupytma.targets import TARGETS

        return tuple(name for name in TARGETS if self.compile("", name, "PTX")[0] == 0)

    def refused(self, lines: Iterable[str], target: str) -> dict[str, str]:
        """Those of the instructions that it refuses for a target, with its message.

        Registers are named by class and number: ``r0`` for 32 bits, ``l0`` for 64, ``h0``, ``f0``, ``p0``, ``q0``.
        """
        refused: dict[str, str] = {}
        for batch in _batches(dict.fromkeys(lines)):
            refused |= self._refused_of(batch, target)
        return refused

    def _refused_of(self, remaining: list[str], target: str) -> dict[str, str]:
        refused: dict[str, str] = {}
        # A log holds no more than some thousand characters, so those that it names are left out and the rest tried
        # again, until all that remain assemble.
        while remaining and (found := self._named_in_log(remaining, target)):
            refused |= found
            remaining = [line for line in remaining if line not in found]
        return refused

    def _named_in_log(self, lines: list[str], target: str) -> dict[str, str]:
        body = "\n".join(f'"{line}\\n"' for line in (*_REGISTERS, *lines))
        source = (
            f'extern "C" __global__ void __launch_bounds__(128, 1) k() {{ asm volatile("{{\\n"\n{body}\n"}}\\n"); }}'
        )
        status, _, log = self.compile(source, target, "")
        if status == 0:
            return {}
        messages = {int(number): message for number, _, message in _LINE.findall(log)}
        status, text, problem = self.compile(source, f"compute_{target.removeprefix('sm_')}", "PTX")
        assert status == 0, problem
        # The block arrives line by line; where it starts shows where each instruction stands.
        first = next(n for n, line in enumerate(text.splitlines(), 1) if line.strip() == _REGISTERS[0])
        offset = first + len(_REGISTERS)
        found = {lines[n - offset]: message for n, message in messages.items() if 0 <= n - offset < len(lines)}
        assert found, log
        return found

    def compile(self, source: str, target: str, product: str) -> tuple[int, str, str]:
        """The status, the product's text and the log of a compilation."""
        library, program = self._library, ctypes.c_void_p()
        library.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"k.cu", 0, None, None)
        words = (f"--gpu-architecture={target}", "--std=c++17", "--ptxas-options=--disable-warnings")
        options = (ctypes.c_char_p * len(words))(*(word.encode() for word in words))
        status = library.nvrtcCompileProgram(program, len(words), options)
        log = self._text(program, "ProgramLog")
        text = self._text(program, product) if product and status == 0 else ""
        library.nvrtcDestroyProgram(ctypes.byref(program))
        return status, text, log

    def _text(self, program: ctypes.c_void_p, what: str) -> str:
        size = ctypes.c_size_t()
        getattr(self._library, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        getattr(self._library, f"nvrtcGet{what}")(program, buffer)
        return buffer.value.decode(errors="replace")


def _batches(lines: Iterable[str]) -> Iterator[list[str]]:
    """The lines in modules of a size that is assembled quickly: large ones with many wgmma take minutes."""
    batch: list[str] = []
    size = 0
    for line in lines:
        if size > _BATCH_CHARACTERS:
            yield batch
            batch, size = [], 0
        batch.append(line)
        size += len(line)
    yield batch


@cache
def assemblers() -> dict[tuple[int, int], Assembler]:
    """The NVRTC libraries at hand, by version: the wheels' and the one that the variable names."""
    with suppress(CompileError):  # the package's own first: cuda-python takes whichever is loaded already
        nvrtc_version()
    spec = importlib.util.find_spec("nvidia")
    folders = [Path(place) for place in (spec.submodule_search_locations or ())] if spec else []
    named = os.environ.get(NEW_NVRTC_VARIABLE)
    paths = [
        *(p for folder in folders for p in sorted(folder.glob("*/lib/libnvrtc.so.1?"))),
        *([Path(named)] if named else ()),
    ]
    return {a.version: a for a in map(Assembler, paths)}
