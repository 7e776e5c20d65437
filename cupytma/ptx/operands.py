"""The operand classes of the family: register type, constraint letter, C++ type and state space of each.

A row says what an operand is; its constraint letter and the conversion that a C++ wrapper applies follow from the row.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

from cupytma.targets import Feature, Target

# An address in shared memory is a 32-bit register, every other address a 64-bit one. The wrappers take generic
# pointers, so each space also has the CUDA C++ expression that turns one into an address of that space. A generic
# pointer into another block of the cluster becomes a shared::cluster address by the same intrinsic.
#
# NVRTC dies of an asm operand that is the address, in one space, of a variable which it knows to lie in another one:
# 12.9 of global and constant addresses, 13.1 to 13.5 of those in shared memory, too. So the wrappers convert in a way
# that it does not look into and that costs nothing: to 64 bits by the instruction itself; to shared memory with a zero
# added that the assembler sees through, since there the compiler's own conversion gives shorter code.
_SHARED = "static_cast<unsigned>(__cvta_generic_to_shared({}))"
_ZERO = ("unsigned zero;", 'asm("mov.u32 %0, 0;" : "=r"(zero));')
_SPACES = {
    "shared::cta": ("u32", f"{_SHARED} + zero"),
    "shared::cluster": ("u32", f"{_SHARED} + zero"),
    "global": ("u64", "{}_address"),
    "param": ("u64", "__cvta_generic_to_grid_constant({})"),
    "const": ("u64", "{}_address"),
    "generic": ("u64", "{}"),
    # Where a whole 64-bit register holds the address of a space whose addresses fit into 32 bits.
    "shared::cluster.u64": ("u64", f"static_cast<unsigned long long>({_SHARED}) + zero"),
    "generic.u32": ("u32", "static_cast<unsigned>(reinterpret_cast<unsigned long long>({}))"),
}
_CVTA = {"global": "cvta.to.global.u64", "const": "cvta.to.const.u64"}
# CUDA C++ has no constraint letter for a predicate; wrappers carry one in a 32-bit register, as 0 or 1.
_LETTERS = {
    "b16": "h",
    "u16": "h",
    "b32": "r",
    "u32": "r",
    "s32": "r",
    "pred": "r",
    "b64": "l",
    "u64": "l",
    "f32": "f",
}
_C_TYPES = {
    "b16": "unsigned short",
    "u16": "unsigned short",
    "b32": "unsigned",
    "u32": "unsigned",
    "s32": "int",
    "pred": "bool",
    "b64": "unsigned long long",
    "u64": "unsigned long long",
    "f32": "float",
}
_MARKS = {"output": "=", "updated": "+"}


@dataclass(frozen=True)
class ValueNeed:
    """What some values of an immediate need beyond what the form needs.

    Attributes
    ----------
    values : range
    features : frozenset of Feature
        What a target needs to have.
    ptx_version : tuple of int
        The oldest PTX ISA version that has them.
    """

    values: range
    features: frozenset[Feature]
    ptx_version: tuple[int, int]


@dataclass(frozen=True)
class Operand:
    """One operand of an instruction.

    Attributes
    ----------
    name : str
        Its name, also the parameter's name in the C++ wrapper.
    description : str
        What it is, with its unit (bytes or elements) and its alignment.
    type : str
        The PTX type of the register that holds it, such as ``"s32"``; ``"pred"`` for a predicate.
    c_type : str
        The type of the C++ wrapper's parameter.
    space : str or None
        For an address, the state space it is an address of; None for a value.
    direction : str
        ``"input"``, ``"output"``, ``"updated"`` for one that is read and written, or ``"immediate"`` for an input that
        is a constant in the instruction.
    vector : str or None
        The vector that it is an element of, such as ``"coordinates"``.
    default : str or None
        The C++ wrapper's default argument.
    limits : tuple of int or None
        For an immediate, the smallest and the largest value.
    step : int
        For an immediate, what its value is a multiple of, counted from the smallest one.
    packed : bool
        Whether the C++ wrapper takes the whole vector as one array.
    index : int or None
        The place in the vector.
    needs : tuple of ValueNeed
        For an immediate, what some of its values need.
    literals : range or None
        For a value that may be in a register, the numbers that may be in its place.
    multiple : int
        What the value or address must be a multiple of where the hardware takes others without a word; the C++ wrapper
        asserts it in debug builds.
    """

    name: str
    description: str
    type: str
    c_type: str
    space: str | None = None
    direction: str = "input"
    vector: str | None = None
    default: str | None = None
    limits: tuple[int, int] | None = None
    step: int = 1
    packed: bool = False
    index: int | None = None
    needs: tuple[ValueNeed, ...] = ()
    literals: range | None = None
    multiple: int = 1

    @property
    def is_output(self) -> bool:
        """Whether the instruction writes it."""
        return self.direction in _MARKS

    @property
    def is_immediate(self) -> bool:
        """Whether it is a constant in the instruction, and a template parameter of the C++ wrapper."""
        return self.direction == "immediate"

    @property
    def is_predicate(self) -> bool:
        """Whether it is a predicate register."""
        return self.type == "pred"

    @property
    def constraint(self) -> str:
        """Its inline-assembly constraint: ``r``, ``l``, ``h``, ``f`` or ``n``; ``=`` before it for an output.

        One that is read and written has ``+``. A predicate has ``r``: the wrapper moves it from or to a 32-bit
        register.
        """
        if self.is_immediate:
            return "n"
        return _MARKS.get(self.direction, "") + _LETTERS[self.type]

    @property
    def values(self) -> range | None:
        """For an immediate with limits, the values it may have."""
        return range(self.limits[0], self.limits[1] + 1, self.step) if self.limits else None

    def needs_of(self, value: int) -> tuple[ValueNeed, ...]:
        """What one value of an immediate needs beyond what the form needs."""
        return tuple(need for need in self.needs if value in need.values)

    def values_on(self, target: Target | None) -> range | None:
        """For an immediate with limits, the values it may have on a target; on any for None."""
        values = self.values
        if target is None or values is None or not self.needs:
            return values
        kept = [v for v in values if all(need.features <= target.features for need in self.needs_of(v))]
        return range(kept[0], kept[-1] + 1, self.step)

    @property
    def expression(self) -> str:
        """The C++ expression that turns the wrapper's parameter into the register's value, after `preparation`."""
        name = f"{self.vector}[{self.index}]" if self.packed else self.name
        if self.is_predicate and not self.is_output:
            name = f"static_cast<int>({name})"
        return name if self.space is None else _SPACES[self.space][1].format(name)

    @property
    def preparation(self) -> tuple[str, ...]:
        """The C++ statements that `expression` needs before it; several operands may share some."""
        if self.space in _CVTA:
            convert = f'asm("{_CVTA[self.space]} %0, %1;" : "=l"({self.expression}) : "l"({self.name}));'
            return (f"unsigned long long {self.expression};", convert)
        return _ZERO if self.expression.endswith(" + zero") else ()

    def element(self, index: int) -> Operand:
        """One element of the vector that this operand stands for."""
        return _element(self, index)

    def __str__(self) -> str:
        place = f" in {self.space}" if self.space else ""
        return f'{self.name} ("{self.constraint}", .{self.type}{place}): {self.description}'


@cache
def _element(vector: Operand, index: int) -> Operand:
    return replace(vector, name=f"{vector.name}_{index}", index=index)


def address(name: str, space: str, description: str, c_type: str) -> Operand:
    """An operand that is an address of a state space."""
    return Operand(name, description, _SPACES[space][0], c_type, space=space)


def value(
    name: str,
    type: str,
    description: str,
    direction: str = "input",
    vector: str | None = None,
    default: str | None = None,
    limits: tuple[int, int] | None = None,
    step: int = 1,
    packed: bool = False,
) -> Operand:
    """An operand that is a value in a register, or an immediate."""
    return Operand(name, description, type, _C_TYPES[type], None, direction, vector, default, limits, step, packed)


def immediate(
    name: str,
    description: str,
    low: int,
    high: int,
    step: int = 1,
    default: int | None = None,
    needs: tuple[ValueNeed, ...] = (),
) -> Operand:
    """An operand that is a constant in the instruction, with the values that it may have."""
    given = None if default is None else str(default)
    return replace(value(name, "s32", description, "immediate", None, given, (low, high), step), needs=needs)


def tile_destination(space: str) -> Operand:
    """The shared-memory address that a tensor copy writes to."""
    return address("destination", space, "the tile in shared memory, aligned to 128 bytes", "void*")


def tensor_map(space: str = "generic") -> Operand:
    """The address of a tensor map: generic, or of one state space."""
    return address("tensor_map", space, "the 128-byte tensor map, aligned to 64 bytes", "const void*")


def changed_map(space: str, name: str = "tensor_map") -> Operand:
    """The address of a tensor map that the instruction writes."""
    whole = address(name, space, "the 128-byte tensor map, aligned to 128 bytes", "void*")
    return replace(whole, multiple=128)


def mbarrier(space: str = "shared::cta") -> Operand:
    """The address of an mbarrier object."""
    return address("mbarrier", space, "the 8-byte mbarrier object, aligned to 8 bytes", "unsigned long long*")


def bulk_destination(space: str) -> Operand:
    """The address that a bulk copy writes to."""
    return address("destination", space, f"where the bytes go in {space}, aligned to 16 bytes", "void*")


def bulk_source(space: str) -> Operand:
    """The address that a bulk copy reads from."""
    return address("source", space, f"where the bytes lie in {space}, aligned to 16 bytes", "const void*")


TILE_SOURCE = address("source", "shared::cta", "the tile in shared memory, aligned to 128 bytes", "const void*")
COORDINATE = value(
    "coordinate",
    "s32",
    "where the box starts in this dimension, in elements; dimension 0 moves fastest",
    vector="coordinates",
)
GATHERED_COORDINATE = value(
    "coordinate",
    "s32",
    "in elements: number 0 is the column where the box starts, numbers 1 to 4 are the four rows",
    vector="coordinates",
)
IM2COL_OFFSET = value(
    "im2col_offset",
    "u16",
    "the pixel's distance from the base pixel in a spatial dimension, W first, in elements",
    vector="im2col_offsets",
)
IM2COL_HALO = value("w_halo", "u16", "how many pixels beside the box are loaded along W, in elements")
IM2COL_SHIFT = value("w_offset", "u16", "the distance from the base pixel along W, in elements")
CTA_MASK = value("cta_mask", "b16", "the blocks of the cluster to write to, one bit per rank in the cluster")
CACHE_POLICY = value("cache_policy", "b64", "an L2 cache policy, as createpolicy makes it")
BYTES = replace(value("bytes", "u32", "how many bytes, a multiple of 16"), literals=range(0, 1_048_561, 16))
BYTE_MASK = value("byte_mask", "b16", "which bytes of every 16 are copied, bit i for byte i")
IGNORED_LEFT = value("ignored_left", "u32", "how many bytes at the beginning may lie out of bounds, 0 to 15")
IGNORED_RIGHT = value("ignored_right", "u32", "how many bytes at the end may lie out of bounds, 0 to 15")
ARRIVAL_COUNT = replace(value("count", "u32", "how many arrivals, 1 to 1,048,575"), literals=range(1, 1_048_576))
TRANSACTION_BYTES = value("bytes", "u32", "by how many bytes to raise the transaction count, at most 1,048,575")
PARITY = replace(
    value("parity", "u32", "the parity of the phase to wait for, 0 or 1; a new mbarrier's first phase has 0"),
    literals=range(2),
)
SUSPEND_TIME_HINT = value("suspend_time_hint", "u32", "the longest suspension, in nanoseconds")
STATE = value("state", "b64", "an opaque token of the phase before the arrival", direction="output")
PHASE_TOKEN = value("state", "b64", "the token that an arrival at the same mbarrier returned")
PENDING_COUNT = value("pending", "u32", "how many arrivals the phase still lacked", direction="output")
WAIT_COMPLETE = value("wait_complete", "pred", "whether the phase has completed", direction="output")
IS_ELECTED = value("is_elected", "pred", "whether the executing thread is the leader", direction="output")
LEADER_LANE = value("leader_lane", "b32", "the lane number of the leader", direction="output")
MEMBER_MASK = value(
    "membermask", "b32", "the lanes to elect from, one bit per lane; all of them must execute", default="0xffffffffu"
)
PENDING_GROUPS = immediate(
    "count",
    "how many of the newest bulk async-groups may be pending; the assembler encodes 63 for anything outside 0..63",
    0,
    63,
)
PENDING_COPIES = immediate(
    "count",
    "how many of the newest cp.async groups may be pending; the assembler encodes 63 for anything outside 0..63",
    0,
    63,
)
