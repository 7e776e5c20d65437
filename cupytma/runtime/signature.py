"""The parameters of a compiled kernel, read from its PTX."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

# PTX ISA, "Kernel Function Parameters": a scalar is `.param .f32 name`, a struct `.param .align 64 .b8 name[128]`.
_ENTRY = re.compile(r"\.entry\s+([\w$]+)\s*(?:\(([^)]*)\))?", re.DOTALL)
_PARAMETER = re.compile(
    r"\.param\s+(?:\.align\s+(?P<align>\d+)\s+)?\.(?P<type>[a-z]\w*)\s+(?:\.ptr\s+(?:\.\w+\s+)?(?:\.align\s+\d+\s+)?)?"
    r"(?P<name>[\w$]+)(?:\[(?P<count>\d+)\])?"
)


@dataclass(frozen=True)
class KernelParameter:
    """One parameter of a kernel.

    Attributes
    ----------
    type : str
        The PTX type: ``"u64"`` (also every pointer), ``"f32"``, …; ``"b8"`` for a struct.
    size : int
        Bytes it takes in the parameter block.
    alignment : int
        In bytes.
    is_struct : bool
        Whether it is an aggregate passed by value, such as a ``CUtensorMap``.
    offset : int
        Bytes from the start of the kernel's parameter block.
    """

    type: str
    size: int
    alignment: int
    is_struct: bool
    offset: int = 0

    def __str__(self) -> str:
        return f"a struct of {self.size} B aligned to {self.alignment} B" if self.is_struct else f".{self.type}"


@dataclass(frozen=True)
class KernelSignature:
    """The name and parameters of a kernel, in order."""

    name: str
    parameters: tuple[KernelParameter, ...]

    @property
    def size(self) -> int:
        """Bytes of the parameter block."""
        return max((p.offset + p.size for p in self.parameters), default=0)


def parse_signatures(ptx: str) -> dict[str, KernelSignature]:
    """Every kernel (``.entry``) in a PTX text, by name."""
    return {
        name: KernelSignature(name, tuple(_placed(_PARAMETER.finditer(body)))) for name, body in _ENTRY.findall(ptx)
    }


def _placed(matches: Iterator[re.Match[str]]) -> Iterator[KernelParameter]:
    """Parameters one after the other, each at the next multiple of its alignment."""
    end = 0
    for match in matches:
        element = int(re.sub(r"\D", "", match["type"])) // 8
        size, alignment = element * int(match["count"] or 1), int(match["align"] or element)
        offset = -(-end // alignment) * alignment
        yield KernelParameter(match["type"], size, alignment, match["count"] is not None, offset)
        end = offset + size
