"""What a kernel's PTX says of its tensor copies and its shared memory."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from cupytma.ptx.reductions import REDUCTIONS

# PTX ISA, "cp.async.bulk.tensor" and "cp.reduce.async.bulk.tensor". Prefetches bring nothing to shared memory.
_COPY = re.compile(r"\bcp\.(?P<reduce>reduce\.)?async\.bulk\.tensor\.(?P<rank>[1-5])d\.(?P<words>[\w.:]+)")
_PREFETCH = re.compile(r"\bcp\.async\.bulk\.prefetch\.tensor\.(?P<rank>[1-5])d\.(?P<words>[\w.:]+)")
_SECTION = re.compile(r"^[ \t]*(?:\.visible\s+|\.weak\s+)*\.(?:(?P<entry>entry)|func)\b(?P<head>[^\n]*)", re.MULTILINE)
_SHARED = re.compile(
    r"(?P<extern>\.extern\s+)?\.shared\s+(?:\.align\s+(?P<align>\d+)\s+)?\.[a-z]+(?P<bits>\d+)\s+(?P<name>[\w$]+)"
    r"(?:\[(?P<count>\d*)\])?;"
)
_CLUSTER = re.compile(r"\.(?:reqnctapercluster|explicitcluster)\b")
_IM2COL = "im2col"


@dataclass(frozen=True)
class TensorCopy:
    """One form of tensor copy that a kernel has.

    Attributes
    ----------
    rank : int
    is_im2col : bool
    store : bool
        Whether shared memory is the source.
    reduction : str
        The operation of a reduction; empty for other copies.
    multicast : bool
    prefetch : bool
        Whether it goes to the L2 cache alone.
    """

    rank: int
    is_im2col: bool
    store: bool
    reduction: str = ""
    multicast: bool = False
    prefetch: bool = False


@dataclass(frozen=True)
class SharedArray:
    """A shared array whose size is in the code: its name, bytes, and alignment in bytes."""

    name: str
    size: int
    alignment: int


@dataclass(frozen=True)
class KernelCode:
    """What the code of a kernel, and of every function beside it, has.

    Attributes
    ----------
    copies : frozenset of TensorCopy
    shared_arrays : tuple of SharedArray
    is_clustered : bool
        Whether the code itself says that blocks are in clusters.
    changes_maps : bool
        Whether it replaces fields of tensor maps, so that a map that it is given may be a template.
    """

    copies: frozenset[TensorCopy]
    shared_arrays: tuple[SharedArray, ...]
    is_clustered: bool
    changes_maps: bool

    @property
    def static_bytes(self) -> int:
        """The most that its own shared arrays can take, in bytes."""
        return sum(array.size + array.alignment - 1 for array in self.shared_arrays)

    def copies_of(self, rank: int, is_im2col: bool) -> tuple[TensorCopy, ...]:
        """The copies that take tensor maps of a rank and kind."""
        return tuple(copy for copy in self.copies if (copy.rank, copy.is_im2col) == (rank, is_im2col))


def kernel_code(kernel: Any) -> KernelCode | None:
    """What a kernel's PTX says; None for a kernel without PTX."""
    ptx, name = getattr(getattr(kernel, "module", None), "ptx", None), getattr(kernel, "name", None)
    return _read(ptx, name) if isinstance(ptx, str) and isinstance(name, str) else None


@lru_cache(maxsize=64)
def _read(ptx: str, name: str) -> KernelCode | None:
    starts = list(_SECTION.finditer(ptx))
    if not starts:
        return None
    ends = [start.start() for start in starts[1:]] + [len(ptx)]
    text, entry = ptx[: starts[0].start()], ""
    for start, end in zip(starts, ends, strict=True):
        if not start["entry"]:
            text += ptx[start.start() : end]  # the kernel may call any of them
        elif re.match(rf"\s+{re.escape(name)}(?![\w$])", start["head"]):
            entry = ptx[start.start() : end]
    if not entry:
        return None
    text += entry
    found = [_copy(match) for match in _COPY.finditer(text)]
    found += [_copy(match, prefetch=True) for match in _PREFETCH.finditer(text)]
    return KernelCode(
        frozenset(found), tuple(_shared(text)), _CLUSTER.search(entry) is not None, "tensormap.replace." in text
    )


def _copy(match: re.Match[str], *, prefetch: bool = False) -> TensorCopy:
    words = match["words"].split(".")
    return TensorCopy(
        rank=int(match["rank"]),
        is_im2col=any(word.startswith(_IM2COL) for word in words),
        store=words[0] == "global" and not prefetch,
        reduction=next((word for word in words if word in REDUCTIONS), "") if not prefetch and match["reduce"] else "",
        multicast="multicast::cluster" in words,
        prefetch=prefetch,
    )


def _shared(text: str) -> list[SharedArray]:
    found: dict[str, SharedArray] = {}
    for match in _SHARED.finditer(text):
        if match["extern"] or match["count"] == "":
            continue
        element = int(match["bits"]) // 8
        size = element * int(match["count"] or 1)
        found[match["name"]] = SharedArray(match["name"], size, int(match["align"] or element))
    return list(found.values())
