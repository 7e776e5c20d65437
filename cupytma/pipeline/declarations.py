"""What a pipeline kernel declares: its arrays, scalars and accumulators, their types, and the consumer's code."""

from __future__ import annotations

import difflib
import operator
import re
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from cupytma.errors import PipelineError
from cupytma.runtime.given import shown


@dataclass(frozen=True)
class ElementType:
    """A type of elements.

    Attributes
    ----------
    name : str
        As a dtype has it.
    itemsize : int
        In bytes.
    stored : str
        The C++ type in memory.
    value : str
        The C++ type that code for one element sees.
    code : str
        How `struct` packs a scalar of the type; empty where there are no such scalars.
    """

    name: str
    itemsize: int
    stored: str
    value: str
    code: str

    @property
    def is_narrow(self) -> bool:
        """Whether elements are computed with as another type."""
        return self.stored != self.value


_NARROW = {"float16": 2, "bfloat16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1}
_OWN = {
    "bool": (1, "bool", "?"),
    "int8": (1, "signed char", "b"),
    "uint8": (1, "unsigned char", "B"),
    "int16": (2, "short", "h"),
    "uint16": (2, "unsigned short", "H"),
    "int32": (4, "int", "i"),
    "uint32": (4, "unsigned", "I"),
    "int64": (8, "long long", "q"),
    "uint64": (8, "unsigned long long", "Q"),
    "float32": (4, "float", "f"),
    "float64": (8, "double", "d"),
}
ELEMENT_TYPES: dict[str, ElementType] = {
    **{name: ElementType(name, size, spelt, spelt, code) for name, (size, spelt, code) in _OWN.items()},
    **{name: ElementType(name, size, name, "float", "") for name, size in _NARROW.items()},
}
"""Types of elements by dtype. Those of 16 and 8 bits that are floating-point are computed with as float32."""


@dataclass(frozen=True)
class Declared:
    """A name with a type."""

    name: str
    type: ElementType

    def __str__(self) -> str:
        return f"{self.type.name} {self.name}"


@dataclass(frozen=True)
class Combination:
    """How two values of an accumulator become one.

    Attributes
    ----------
    expression : str
        C++, of ``a`` and ``b``.
    identity : str
        C++: the value that changes nothing.
    ufunc : str
        numpy's function that does the same, for the simulator; empty where there is none.
    """

    expression: str
    identity: str
    ufunc: str = ""


COMBINATIONS: dict[str, Combination] = {
    "add": Combination("a + b", "0", "add"),
    "mul": Combination("a * b", "1", "multiply"),
    "min": Combination("b < a ? b : a", "highest<{type}>()", "minimum"),
    "max": Combination("a < b ? b : a", "lowest<{type}>()", "maximum"),
    "and": Combination("a & b", "({type})~({type})0", "bitwise_and"),
    "or": Combination("a | b", "0", "bitwise_or"),
    "xor": Combination("a ^ b", "0", "bitwise_xor"),
}
_OF_BITS = ("and", "or", "xor")


@dataclass(frozen=True)
class Accumulator:
    """Something that each thread gathers, and that is combined to one result for each row, or for all."""

    declared: Declared
    combination: Combination

    @property
    def name(self) -> str:
        """Of the variable and of the result."""
        return self.declared.name

    @property
    def type(self) -> ElementType:
        """Of the result; the variable's is ``type.value``."""
        return self.declared.type


@dataclass(frozen=True)
class Declaration:
    """All that a pipeline kernel declares.

    Attributes
    ----------
    name : str
    consume, finish, preamble : str
        C++.
    inputs, outputs, scalars : tuple of Declared
    accumulators : tuple of Accumulator
    each : str
        What `consume` is run for: ``"element"``, ``"row"`` or ``"tile"``.
    over : str
        What is combined: ``"row"`` or ``"all"``.
    """

    name: str
    consume: str
    finish: str
    preamble: str
    inputs: tuple[Declared, ...]
    outputs: tuple[Declared, ...]
    scalars: tuple[Declared, ...]
    accumulators: tuple[Accumulator, ...]
    each: str
    over: str

    @property
    def arrays(self) -> tuple[Declared, ...]:
        """Those that go through shared memory: inputs, then outputs."""
        return self.inputs + self.outputs

    @property
    def results(self) -> tuple[Declared, ...]:
        """What a call returns."""
        return self.outputs + tuple(found.declared for found in self.accumulators)

    @property
    def reduces_rows(self) -> bool:
        """Whether there is a result for each row."""
        return bool(self.accumulators) and self.over == "row"

    def mentions(self, word: str) -> bool:
        """Whether the consumer's code has a word."""
        return any(re.search(rf"\b{word}\b", code) for code in (self.consume, self.finish))


# What calls of a kernel and of its program take by name, beside the scalars.
_PARAMETERS = ("out", "stream", "reference", "blocks")
EACH = ("element", "row", "tile")
OVER = ("row", "all")
# Variables that the code sees, and names of the code around it.
_TAKEN = frozenset(
    re.findall(
        r"\w+",
        """at shape size box length group thread threads stream
        barriers column combined consume consumer copy_in copy_out count cupytma deliver element found i inside load
        highest lowest outputs partial producer rank read results row scalars shared slot slots stage stages start store
        tile tiling vector warp whole write
        consumer_threads consumer_warps loaded_bytes output_stages tile_alignment warp_threads
        Accumulators Box Combine Consumer Group Outputs Producer Scalars Shared Stage StoreRing Strided TileBox TileWalk
        Tiling Vector""",
    )
)
_KEYWORDS = frozenset(
    re.findall(
        r"\w+",
        """alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t char32_t class
        co_await co_return co_yield compl concept const const_cast consteval constexpr constinit continue decltype
        default delete do double dynamic_cast else enum explicit export extern false float for friend goto if inline
        int long main mutable namespace new noexcept not not_eq nullptr operator or or_eq private protected public
        register reinterpret_cast requires return short signed sizeof static static_assert static_cast std struct
        switch template this thread_local throw true try typedef typeid typename union unsigned using virtual void
        volatile wchar_t while xor xor_eq NULL
        min max exp expf log logf sqrt sqrtf abs fabs fabsf pow powf sin cos tan""",
    )
)
_SUFFIXES = ("_map", "_array", "_value")
_DECLARED = re.compile(r"(\w+)\s+([A-Za-z]\w*)", re.ASCII)


def parse_declaration(
    consume: Any, inputs: Any, outputs: Any, scalars: Any, reduce: Any, over: Any, each: Any, finish: Any,
    preamble: Any, name: Any,
) -> Declaration:
    """What a caller declares, checked.

    Raises
    ------
    PipelineError
        Naming what is wrong with it.
    """
    for what, value in (("consume", consume), ("finish", finish), ("preamble", preamble), ("name", name)):
        if not isinstance(value, str) or "\0" in value:
            raise PipelineError(f"{what} = {shown(value)}: text (str) is needed")
    if not consume.strip():
        raise PipelineError("consume is empty: write what is done with the inputs, such as 'out = 2 * a'")
    if not re.fullmatch(r"[A-Za-z]\w*", name, re.ASCII) or name in _KEYWORDS or name in _TAKEN:
        raise PipelineError(f"name = {shown(name)} is no name for a function in C++; give one such as 'scale_add'")
    _choice("each", each, EACH)
    _choice("over", over, OVER)
    found = Declaration(
        name, _statements(consume), _statements(finish), preamble.strip("\n"), _list("inputs", inputs),
        _list("outputs", outputs), _list("scalars", scalars), _accumulators(reduce), each, over,
    )
    if not found.inputs:
        raise PipelineError("inputs is empty: a pipeline loads at least one array, such as inputs=['float32 a']")
    if not found.results:
        raise PipelineError("nothing is written: declare outputs=['float32 out'] or reduce={'float32 sum': 'add'}")
    for scalar in found.scalars:
        if not scalar.type.code:
            raise PipelineError(f"scalars: {scalar} cannot be passed to a kernel; declare it as float32")
    if found.reduces_rows and each != "element":
        raise PipelineError(
            f"over='row' with each={each!r}: one result for each row is combined from code for each element; use "
            "each='element', or over='all'"
        )
    if found.finish and not found.accumulators:
        raise PipelineError("finish is run for the results of reduce=, and there is none")
    _check_names(found)
    return found


def _choice(what: str, value: Any, known: tuple[str, ...]) -> None:
    if not isinstance(value, str) or value not in known:
        raise PipelineError(f"{what} = {shown(value)}; it is one of {', '.join(map(repr, known))}")


def _statements(code: str) -> str:
    text = code.strip("\n").rstrip()
    if "//" in text.rpartition("\n")[2]:
        return text + "\n;"  # a comment would take what follows it in its line
    return text + ";" if text and text[-1] not in ";}" else text


def _list(what: str, value: Any) -> tuple[Declared, ...]:
    if isinstance(value, str):
        value = [part for part in value.split(",") if part.strip()]
    if isinstance(value, Mapping) or not isinstance(value, Iterable):
        raise PipelineError(f"{what} = {shown(value)}: a list is needed, such as ['float32 a', 'int32 b']")
    return tuple(_declared(what, entry) for entry in value)


def _declared(what: str, entry: Any) -> Declared:
    match = _DECLARED.fullmatch(entry.strip()) if isinstance(entry, str) else None
    if match is None:
        raise PipelineError(f"{what}: {shown(entry)} is no dtype and name, such as 'float32 a'")
    dtype, name = match.groups()
    if dtype not in ELEMENT_TYPES:
        near = difflib.get_close_matches(dtype, ELEMENT_TYPES, n=1)
        hint = f"is {near[0]} meant? " if near else ""
        raise PipelineError(f"{what}: {dtype} is no dtype of a pipeline; {hint}It has {', '.join(ELEMENT_TYPES)}")
    return Declared(name, ELEMENT_TYPES[dtype])


def _accumulators(reduce: Any) -> tuple[Accumulator, ...]:
    if reduce is None:
        return ()
    if not isinstance(reduce, Mapping):
        raise PipelineError(f"reduce = {shown(reduce)}: a mapping is needed, such as {{'float32 total': 'add'}}")
    found = [(_declared("reduce", key), how) for key, how in reduce.items()]
    return tuple(Accumulator(declared, _combination(declared, how)) for declared, how in found)


def _combination(declared: Declared, how: Any) -> Combination:
    if isinstance(how, str) and how in COMBINATIONS:
        if how in _OF_BITS and "float" in declared.type.name:
            raise PipelineError(f"reduce: {how!r} combines bits, and {declared} is a floating-point number")
        known = COMBINATIONS[how]
        return Combination(known.expression, known.identity.format(type=declared.type.value), known.ufunc)
    if isinstance(how, (tuple, list)) and len(how) == 2 and all(isinstance(code, str) and code.strip() for code in how):
        return Combination(*how)
    raise PipelineError(
        f"reduce: {shown(how)} says not how {declared} is combined; it is one of {', '.join(COMBINATIONS)}, or a pair "
        "of C++ expressions: the combination of a and b, and its identity, such as ('a < b ? b : a', '0')"
    )


def _check_names(found: Declaration) -> None:
    seen: set[str] = set()
    for declared in (*found.inputs, *found.results, *found.scalars):
        name = declared.name
        if name in _TAKEN or name in _KEYWORDS or name.endswith(_SUFFIXES):
            raise PipelineError(f"{name!r} has a meaning in the kernel already; call {declared} otherwise")
        if name in seen:
            raise PipelineError(f"{name!r} is declared twice; give every array, scalar and result a name of its own")
        seen.add(name)
    for scalar in found.scalars:
        if scalar.name in _PARAMETERS:
            raise PipelineError(f"{scalar.name!r} is a parameter of the call that gives the scalar; call it otherwise")


def scalar_bits(declared: Declared, value: Any) -> int:
    """A scalar's bits, as the low bytes of a word of 8 bytes.

    Raises
    ------
    PipelineError
        If the value is none of the declared type.
    """
    kind = declared.type
    try:
        if isinstance(value, (str, bytes, bytearray)) or (value.__class__ is not int and _is_complex(value)):
            raise TypeError
        if kind.name == "bool":
            number: Any = _truth(value)
        elif kind.name.startswith("float"):
            number = float(value)
        else:
            number = operator.index(value)
        packed = struct.pack(f"<{kind.code}", number)
    except Exception:  # a caller's class may raise anything
        raise PipelineError(f"scalar {declared.name} = {shown(value)} is no {kind.name}") from None
    return int.from_bytes(packed, "little")


def _is_complex(value: Any) -> bool:
    return isinstance(value, complex) or getattr(getattr(value, "dtype", None), "kind", "") == "c"


def _truth(value: Any) -> bool:
    """A bool, of Python's or another library's; or 0 or 1. The truth of anything else is rarely what is meant."""
    number = value.item() if hasattr(value, "item") else value
    if not isinstance(number, int) or number not in (0, 1):
        raise TypeError
    return bool(number)
