"""Tensor maps that an instruction is given in local memory, found in compiled PTX.

The unit reads a tensor map where it lies, in the kernel's parameters, constants or global memory. A copy that the
compiler makes in local memory, which is each thread's own, is out of its reach (PTX ISA, "Tensor-map").
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from cupytma.runtime.source_text import cxx_name, parameter_texts

_FUNCTION = re.compile(r"\.(?P<kind>entry|func)\s+(?:\([^)]*\)\s*)?(?P<name>[\w$]+)\s*(?:\((?P<parameters>[^)]*)\))?")
_PARAMETER = re.compile(r"\.param\s[^,]*?([\w$]+)(?:\[\d+\])?\s*(?:,|$)")
_WRITES = re.compile(r"(?:@!?%\w+\s+)?(?P<operation>[\w.:]+)\s+(?P<target>%[\w$]+)\s*,\s*(?P<rest>.*)", re.DOTALL)
_REGISTER = re.compile(r"%[\w$]+")
# What carries an address from one register to another.
_CARRYING = re.compile(r"(?:add|sub|mov|selp|mad|or|cvta|min|max)\b")
_LOADED = re.compile(r"ld\.param(?:\.v[24])?\.\w+")
_LOADED_FROM = re.compile(r"\[([\w$]+)(?:\+\d+)?\]")
_STORED = re.compile(r"st\.param\.[bu]64\s+\[(\w+)(?:\+0)?\],\s*(%[\w$]+)")
_CALL = re.compile(r"call(?:\.uni)?\s*(?:\([^)]*\)\s*,\s*)?([\w$]+)\s*,\s*\(([^)]*)\)")
_MAP_OPERAND = re.compile(
    r"(?:@!?%\w+\s+)?(?:cp\.(?:reduce\.)?async\.bulk\.(?:prefetch\.)?tensor\.[^\[]*(?:\[%\w+\]\s*,\s*)?\[(?P<map>%[\w$]+)\s*,"
    r"|prefetch\.tensormap\s*\[(?P<hinted>%[\w$]+)\])"
)
_COMMENT = re.compile(r"//[^\n]*")
_TENSOR = re.compile(r"\btensor\.|prefetch\.tensormap")
_LOCAL = "local memory"


@dataclass
class _Function:
    """One function: where addresses in its registers come from, and what it does with them.

    An origin is `_LOCAL` or the name of a parameter.
    """

    name: str
    is_kernel: bool
    parameters: tuple[str, ...]
    origins: dict[str, set[str]] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)
    calls: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    copied: set[str] = field(default_factory=set)

    def passed_on(self, known: dict[str, set[int]]) -> set[str]:
        """Origins of what is given to an instruction, here or in a function that is called."""
        found = {origin for register in self.used for origin in self.origins.get(register, ())}
        for callee, registers in self.calls:
            for place in known.get(callee, ()):
                if place < len(registers):
                    found |= self.origins.get(registers[place], set())
        return found


def local_copies(ptx: str, source: str = "") -> tuple[str, ...]:
    """What is to be said of kernels that give the unit a tensor map in local memory: a sentence or two for each.

    Parameters
    ----------
    ptx : str
    source : str, optional
        The CUDA C++, to name the parameter that lacks ``__grid_constant__``.
    """
    if "__local_depot" not in ptx or not _TENSOR.search(ptx):
        return ()
    functions = list(_functions(_COMMENT.sub("", ptx)))
    known: dict[str, set[int]] = {}  # the parameters, by position, that a function gives to an instruction
    for _ in functions:
        before = {name: set(places) for name, places in known.items()}
        for function in functions:
            passed = function.passed_on(known)
            known[function.name] = {i for i, name in enumerate(function.parameters) if name in passed}
        if known == before:
            break
    return tuple(
        _sentence(function, source) for function in functions if _LOCAL in function.passed_on(known)
    )


def _functions(ptx: str) -> Iterator[_Function]:
    starts = list(_FUNCTION.finditer(ptx))
    for start, following in zip(starts, [*starts[1:], None], strict=True):
        body = ptx[start.end() : following.start() if following else len(ptx)]
        if "{" not in body.partition(";")[0]:
            continue  # a declaration
        parameters = tuple(_PARAMETER.findall(start["parameters"] or ""))
        yield _read(_Function(start["name"], start["kind"] == "entry", parameters), body)


def _read(function: _Function, body: str) -> _Function:
    flows: list[tuple[str, set[str]]] = []
    stored: dict[str, str] = {}
    for statement in (part.strip().lstrip("{}").strip() for part in body.split(";")):
        if found := _MAP_OPERAND.match(statement):
            function.used.add(found["map"] or found["hinted"])
        elif found := _STORED.match(statement):
            stored[found[1]] = found[2]
        elif found := _CALL.match(statement):
            names = (name.strip() for name in found[2].split(","))
            function.calls.append((found[1], tuple(stored.pop(name, "") for name in names)))
        elif loaded := _LOADED.match(statement):
            _take_loaded(function, statement[loaded.end() :])
        elif found := _WRITES.match(statement):
            _take_written(function, flows, found)
    _spread(function.origins, flows)
    return function


def _take_loaded(function: _Function, rest: str) -> None:
    """A load of a parameter: of a pointer, or of a piece of a struct."""
    source = _LOADED_FROM.search(rest)
    if source is None or source[1] not in function.parameters:
        return
    function.copied.add(source[1])
    if not function.is_kernel and (target := _REGISTER.search(rest)):
        function.origins.setdefault(target[0], set()).add(source[1])


def _take_written(function: _Function, flows: list[tuple[str, set[str]]], found: re.Match[str]) -> None:
    if found["operation"].startswith("cvta.local"):
        function.origins.setdefault(found["target"], set()).add(_LOCAL)
    elif _CARRYING.match(found["operation"]):
        flows.append((found["target"], set(_REGISTER.findall(found["rest"]))))


def _spread(origins: dict[str, set[str]], flows: list[tuple[str, set[str]]]) -> None:
    """Carry origins along until nothing changes; a loop in the code may carry them backwards."""
    changed = True
    while changed:
        changed = False
        for target, sources in flows:
            carried = set().union(*(origins.get(register, ()) for register in sources))
            if not carried <= origins.get(target, set()):
                origins.setdefault(target, set()).update(carried)
                changed = True


def _sentence(function: _Function, source: str) -> str:
    what = f"{'kernel' if function.is_kernel else 'function'} {cxx_name(function.name)}"
    unannotated = [
        text
        for name, text in zip(function.parameters, parameter_texts(source, function.name), strict=False)
        if function.is_kernel and name in function.copied and "__grid_constant__" not in text and "*" not in text
    ]
    maps = [text for text in unannotated if "CUtensorMap" in text] or unannotated
    start = f"{what} gives the tensor unit a tensor map in local memory, which it cannot read"
    if maps:
        named = ", ".join(f"`{text}`" for text in maps)
        return (
            f"{start}: taking the address of {named} makes a copy there, since the parameter is not "
            "__grid_constant__. Declare it as `const __grid_constant__ CUtensorMap`"
        )
    return (
        f"{start}: it is a copy in a variable. Take the address of the `const __grid_constant__` parameter, "
        "the __constant__ variable or the slot in global memory itself, and hand it on by pointer or reference"
    )
