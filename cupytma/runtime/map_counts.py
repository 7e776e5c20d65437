"""How many tensor maps a kernel is given by the host, and how many it makes itself; read from its PTX."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from cupytma.runtime.signature import KernelSignature
from cupytma.tensormap.fields import SIZE
from cupytma.tensormap.interop import ALIGNMENT

_CODE = re.compile(r"\.(?:entry|func)\s+(?:\([^)]*\)\s*)?([\w$]+)\s*(?:\([^)]*\))?[^{;]*\{")
_CALLED = re.compile(r"\bcall(?:\.uni)?\s+(?:\([^)]*\)\s*,\s*)?([\w$]+)")
# What writes a tensor map in global memory; the first operand is its address.
_WRITES = re.compile(
    r"tensormap\.(?:cp_fenceproxy\.global|replace\.tile\.\w+\.global)[\w.:]*\s*\[\s*([%\w$]+)\s*(?:\+\s*(\d+))?\s*\]"
)
_LOADED = re.compile(r"ld\.param\.(?:v\d\.)?[ub]64\s+\{?([^\[}]+)\}?\s*,\s*\[([%\w$]+)(?:\+(-?\d+))?\]")
_MOVED = re.compile(r"(?:mov\.[ubs]64|cvta(?:\.to)?\.global\.u64)\s+(%\w+)\s*,\s*([%\w$]+)\s*;")
_ADDED = re.compile(r"add\.[su]64\s+(%\w+)\s*,\s*(%\w+)\s*,\s*(%?-?\w+)\s*;")
_SCALED = re.compile(r"mad\.(?:wide|lo)\.[su]\d+\s+(%\w+)\s*,\s*[^,;]+,\s*[^,;]+,\s*(%\w+)\s*;")
_CHOSEN = re.compile(r"selp\.[bsu]64\s+(%\w+)\s*,\s*([%\w$]+)\s*,\s*([%\w$]+)\s*,")
# What debug builds keep in the thread's own memory, which stands for a register here.
_KEPT = re.compile(r"st\.(?:local\.)?[bu]64\s+\[(%SPL?(?:\+\d+)?)\]\s*,\s*(%\w+)\s*;")
_FETCHED = re.compile(r"ld\.(?:local\.)?[bu]64\s+(%\w+)\s*,\s*\[(%SPL?(?:\+\d+)?)\]\s*;")
_READ = "at "
_WALKED = -1  # in the place of an offset: a loop adds to the address


@dataclass(frozen=True)
class Origin:
    """Where the address of a map comes from.

    Attributes
    ----------
    name : str
        A parameter or a variable; the register where nothing is known.
    offset : int
        Constant bytes added to it.
    """

    name: str
    offset: int


def host_maps(signature: KernelSignature) -> int:
    """Tensor maps that a kernel takes by value, those in structs of nothing else included."""
    return sum(
        p.size // SIZE for p in signature.parameters if p.is_struct and p.alignment >= ALIGNMENT and p.size % SIZE == 0
    )


@lru_cache(maxsize=256)
def device_maps(ptx: str, kernel: str) -> frozenset[Origin]:
    """The slots that a kernel writes maps to: each pointer that it is given counts once for each constant distance.

    A slot of an array counts once, whichever one a block takes. What a function that is not inlined is given counts as
    a pointer of its own, however often it is called.
    """
    found: set[Origin] = set()
    for body in _bodies(ptx, kernel):
        definitions = _definitions(body)
        for match in _WRITES.finditer(body):
            found |= set(_origins(match[1], int(match[2] or 0), definitions, frozenset())) or {Origin(match[1], 0)}
    walked = {origin.name for origin in found if origin.offset == _WALKED}
    return frozenset(Origin(o.name, 0) if o.name in walked else o for o in found)


def _bodies(ptx: str, kernel: str) -> Iterator[str]:
    """The text between the braces of a kernel, and of the functions that it calls."""
    starts = {match[1]: match.end() for match in _CODE.finditer(ptx)}
    pending, seen = [kernel], {kernel}
    while pending:
        start = starts.get(pending.pop())
        if start is None:
            continue
        depth, end = 1, start
        while depth and end < len(ptx):
            depth += {"{": 1, "}": -1}.get(ptx[end], 0)
            end += 1
        body = ptx[start:end]
        called = set(_CALLED.findall(body)) - seen
        seen |= called
        pending += called
        yield body


_Definition = tuple[str, int]  # another register or a name, and constant bytes added to it


def _definitions(body: str) -> dict[str, list[_Definition]]:
    """What each 64-bit register may be, as far as it can be the address of a slot."""
    found: dict[str, list[_Definition]] = {}
    for match in _LOADED.finditer(body):
        for place, register in enumerate(match[1].split(",")):
            # Marked, for what is read there is another address than that of the parameter.
            found.setdefault(register.strip(), []).append((f"{_READ}{match[2]}", int(match[3] or 0) + 8 * place))
    for pattern in (_MOVED, _SCALED, _KEPT, _FETCHED):
        for match in pattern.finditer(body):
            found.setdefault(match[1], []).append((match[2], 0))
    for match in _CHOSEN.finditer(body):
        found.setdefault(match[1], []).extend(((match[2], 0), (match[3], 0)))
    for match in _ADDED.finditer(body):
        register, one, other = match.groups()
        if other.startswith("%"):
            found.setdefault(register, []).extend(((one, 0), (other, 0)))
        else:
            found.setdefault(register, []).append((one, int(other, 0)))
    return found


def _origins(
    name: str, offset: int, definitions: dict[str, list[_Definition]], above: frozenset[str]
) -> Iterator[Origin]:
    """Where an address comes from; without an offset where a loop adds to it, for then it goes through an array."""
    if not name.startswith("%"):
        yield Origin(name, offset)
        return
    above |= {name}
    sources = definitions.get(name, ())
    loops = any(_leads_to(source, name, definitions) for source, _ in sources)
    for source, added in sources:
        total = offset + added
        if source.startswith(_READ):
            for place in _origins(source.removeprefix(_READ), added, definitions, above):
                yield Origin(f"{place.name}+{place.offset}" if place.offset else place.name, offset)
        elif source not in above:
            for found in _origins(source, total, definitions, above):
                yield Origin(found.name, _WALKED) if loops or found.offset == _WALKED else found


def _leads_to(source: str, name: str, definitions: dict[str, list[_Definition]]) -> bool:
    """Whether a register is made of another, directly or through others."""
    seen: set[str] = set()
    pending = [source]
    while pending:
        register = pending.pop()
        if register == name:
            return True
        if register not in seen:
            seen.add(register)
            pending += [further for further, _ in definitions.get(register, ())]
    return False
