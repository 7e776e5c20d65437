"""What is wrong with a launch, as far as its record and its kernel's code tell: one rule for each thing that kills.

A rule that needs operands of the device (coordinates, shared addresses, masks) judges what is declared, or what no
operand could make right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from cupytma.errors import CupytmaError, DescriptorError
from cupytma.limits import TILE_ALIGNMENT
from cupytma.runtime.allocations import reach_problem
from cupytma.runtime.coordinates import declarations, declared_faults
from cupytma.runtime.descriptors import DescriptorBuffer, buffer_at
from cupytma.runtime.history import LaunchRecord
from cupytma.runtime.kernel_code import KernelCode, TensorCopy, kernel_code
from cupytma.sim.faults import Fault, IllegalInstruction, LaunchFailure, MisalignedAddress, OutOfWindow, SharedOverrun
from cupytma.sim.reductions import reduction
from cupytma.targets import DEFAULT_TARGET, Target
from cupytma.tensormap import checking
from cupytma.tensormap.fields import SIZE
from cupytma.tensormap.interop import ALIGNMENT
from cupytma.tensormap.parameters import Im2col, Parameters, Tiled
from cupytma.tensormap.tensor_map import TensorMap
from cupytma.words import counted

_ADDRESS, _INSTRUCTION, _ALIGNMENT, _FAILURE = 700, 715, 716, 719
# What the device reports for each fault of the simulator.
CODE_OF_FAULT: dict[type[Fault], int] = {
    IllegalInstruction: _INSTRUCTION,
    MisalignedAddress: _ALIGNMENT,
    OutOfWindow: _ADDRESS,
    SharedOverrun: _ADDRESS,
    LaunchFailure: _FAILURE,
}
_POINTER_BYTES = 8


@dataclass(frozen=True)
class Suspect:
    """A rule that a launch breaks.

    Attributes
    ----------
    record : LaunchRecord
        The launch.
    rule : str
        A name: of a row of the rule table, or of one of this module's.
    code : int or None
        What the device reports for it; None where that is not known.
    message : str
        What is wrong, with the numbers.
    fix : str
        The way out.
    is_certain : bool
        Whether the launch cannot have gone well; else it may have, with other operands than can be known.
    """

    record: LaunchRecord
    rule: str
    code: int | None
    message: str
    fix: str
    is_certain: bool = True

    def __str__(self) -> str:
        likely = "" if self.is_certain else " (possible)"
        return f"{self.rule}{likely}: {self.message}; {self.fix}"


@dataclass(frozen=True)
class PlacedMap:
    """A tensor map that a launch was given: where, and its parameters if it has any."""

    label: str
    place: tuple[int, int]
    tensor_map: TensorMap
    parameters: Parameters

    @property
    def is_empty(self) -> bool:
        """Whether its bytes are zeros."""
        return not any(bytes(self.tensor_map))

    @property
    def is_im2col(self) -> bool:
        """Whether it is for im2col copies."""
        return not isinstance(self.parameters, Tiled)

    @property
    def reach(self) -> int:
        """Bytes from the first to the last of its tensor."""
        operands = self.parameters.operands(DEFAULT_TARGET)
        checking.add_layout(operands)
        return int(operands["reach"])


class Launch:
    """A record with what its rules read."""

    def __init__(self, record: LaunchRecord) -> None:
        self.record = record
        self.code: KernelCode | None = kernel_code(record.kernel)
        found = getattr(getattr(record.kernel, "module", None), "target", None)
        self.target = found if isinstance(found, Target) else DEFAULT_TARGET

    @cached_property
    def pointers(self) -> list[tuple[int, int, DescriptorBuffer]]:
        """Arguments that point into a buffer of descriptors: position, address, buffer."""
        parameters = getattr(getattr(self.record.kernel, "signature", None), "parameters", ())
        found = []
        for position, (parameter, value) in enumerate(zip(parameters, self.record.values(), strict=True)):
            if isinstance(value, int) and parameter.size == _POINTER_BYTES:
                buffer = buffer_at(value)
                if buffer is not None:
                    found.append((position, value, buffer))
        return found

    @cached_property
    def maps(self) -> list[PlacedMap]:
        """Every map that the launch was given, by value or in a buffer."""
        counts: dict[int, int] = {}
        given = list(self.record.tensor_maps())
        several = {position for position, _ in given if sum(position == other for other, _ in given) > 1}
        found = []
        for position, tensor_map in given:
            index = counts[position] = counts.get(position, -1) + 1
            label = f"argument {position}[{index}]" if position in several else f"argument {position}"
            found.append((label, (position, index), tensor_map))
        for position, _, buffer in self.pointers:
            found += [
                (f"slot {slot} of argument {position}", (position, slot), tensor_map)
                for slot, tensor_map in enumerate(buffer)
                if tensor_map is not None
            ]
        placed = []
        for label, place, tensor_map in found:
            try:
                placed.append(PlacedMap(label, place, tensor_map, tensor_map.decode()))
            except DescriptorError:
                continue
        return placed

    @property
    def used(self) -> list[PlacedMap]:
        """The maps that the kernel copies with, as far as its code tells; none where maps may be templates."""
        if self.code is None:
            return self.maps
        return [] if self.code.changes_maps else [placed for placed in self.maps if self.copies(placed)]

    def copies(self, placed: PlacedMap) -> tuple[TensorCopy, ...]:
        """The kernel's copies that take such a map."""
        return () if self.code is None else self.code.copies_of(placed.parameters.rank, placed.is_im2col)

    def suspect(self, rule: str, code: int | None, message: str, fix: str, is_certain: bool = True) -> Suspect:
        """A suspect of this launch."""
        return Suspect(self.record, rule, code, message, fix, is_certain)


Rule = Callable[[Launch], Iterator[Suspect]]


def _declared_coordinates(launch: Launch) -> Iterator[Suspect]:
    placed = {entry.place: entry for entry in launch.maps}
    for declared in declarations(launch.record.kernel):
        entry = placed.get(declared.place)
        if entry is None:
            continue
        try:
            found = declared_faults(declared, entry.tensor_map, launch.record)
        except CupytmaError as error:
            yield launch.suspect(
                "declared-coordinates", None, str(error), "mend the declaration, or the map that was passed", False
            )
            continue
        for grid_fault in found[:1]:
            fault = grid_fault.fault
            rules = [violation.rule for violation in getattr(fault, "violations", ())]
            others = len(found) - 1
            do = "does" if others == 1 else "do"
            more = f"; so {do} {counted(others, 'other')} of those looked at" if others else ""
            # The text of a fault ends in its fix.
            message, _, fix = str(fault).rpartition("; ")
            yield launch.suspect(
                ", ".join(rules) or "copy",
                next((code for kind, code in CODE_OF_FAULT.items() if isinstance(fault, kind)), None),
                f"{entry.label}: block {grid_fault.block} copies at {grid_fault.coordinates}: {message or fix}{more}",
                fix,
            )


def _illegal_maps(launch: Launch) -> Iterator[Suspect]:
    for entry in launch.used:
        broken = () if entry.is_empty else entry.parameters.violations(launch.target)
        if broken:
            listed = "; ".join(f"{violation.rule}: {violation.message}" for violation in broken)
            yield launch.suspect(
                "map-illegal", None, f"{entry.label} is a map that no encoder makes for {launch.target}: {listed}",
                broken[0].fix,
            )  # fmt: skip


def _zeros(launch: Launch) -> Iterator[Suspect]:
    code = launch.code
    if code is not None and (code.changes_maps or not code.copies):
        return
    for entry in launch.maps:
        if entry.is_empty:
            yield launch.suspect(
                "map-of-zeros", None, f"{entry.label} is 128 bytes of zeros, which is no map of anything",
                "encode it, or write the slot before the launch",
            )  # fmt: skip


def _null_addresses(launch: Launch) -> Iterator[Suspect]:
    for entry in launch.used:
        if entry.parameters.global_address == 0 and not entry.is_empty:
            yield launch.suspect(
                "null-address", _ADDRESS, f"{entry.label} describes memory at address 0",
                "give the map a device address (`with_address`)",
            )  # fmt: skip


def _memory(launch: Launch) -> Iterator[Suspect]:
    for entry in launch.used:
        address = entry.parameters.global_address
        problem = reach_problem(address, entry.reach, launch.record.device) if address else None
        if problem is not None:
            yield launch.suspect(
                "map-memory", _ADDRESS, f"{entry.label}: {problem}",
                "make the map of the array that is there now, and keep that alive until the kernel has ended",
            )  # fmt: skip


def _shared_size(launch: Launch) -> Iterator[Suspect]:
    if launch.code is None:
        return
    room = launch.code.static_bytes + launch.record.shared_bytes
    rounded = -(-room // TILE_ALIGNMENT) * TILE_ALIGNMENT
    for entry in launch.used:
        if all(copy.prefetch for copy in launch.copies(entry)):
            continue
        tile = entry.parameters.tile_bytes
        if tile > rounded:
            yield launch.suspect(
                "shared-size", _ADDRESS,
                f"one tile of {entry.label} takes {tile} B of shared memory; the block has {launch.record.shared_bytes}"
                f" B of dynamic and at most {launch.code.static_bytes} B of its own",
                f"launch with shared_bytes={tile} or more, or make the box smaller",
            )  # fmt: skip


def _shared_alignment(launch: Launch) -> Iterator[Suspect]:
    if launch.code is None or launch.record.shared_bytes or not launch.used:
        return  # tiles may be in dynamic shared memory, whose start only the kernel knows
    smallest = min(entry.parameters.tile_bytes for entry in launch.used)
    rooms = [array for array in launch.code.shared_arrays if array.size >= smallest]
    if rooms and all(array.alignment % TILE_ALIGNMENT for array in rooms):
        named = ", ".join(f"{array.name} (aligned to {array.alignment} B)" for array in rooms)
        yield launch.suspect(
            "tile-alignment", _ALIGNMENT, f"no shared array that a tile fits in is aligned to 128 bytes: {named}",
            "declare it alignas(128), or alignas(1024) where it is swizzled", False,
        )  # fmt: skip


def _reductions(launch: Launch) -> Iterator[Suspect]:
    code = launch.code
    if code is None:
        return
    for copy in sorted(code.copies, key=repr):
        entries = [entry for entry in launch.used if copy in launch.copies(entry)] if copy.reduction else []
        refused = {}
        for entry in entries:
            try:
                reduction(entry.parameters.data_type, copy.reduction)
            except IllegalInstruction as fault:
                refused[entry.label] = str(fault)
            except CupytmaError:
                continue
        if entries and len(refused) == len(entries):
            label, text = next(iter(refused.items()))
            message, _, fix = text.partition("; ")
            yield launch.suspect("reduction", _INSTRUCTION, f"{label}: {message}", fix)


def _lower_corners(launch: Launch) -> Iterator[Suspect]:
    for entry in launch.used:
        if not isinstance(entry.parameters, Im2col):
            continue
        copies = launch.copies(entry)
        if not any(copy.store for copy in copies):
            continue
        start = (0,) * entry.parameters.rank
        broken = [v for v in entry.parameters.faults(start, store=True) if v.rule == "store-lower-corner"]
        for violation in broken[:1]:
            yield launch.suspect(
                violation.rule, _INSTRUCTION, f"{entry.label}: {violation.message}", violation.fix,
                all(copy.store for copy in copies),
            )  # fmt: skip


def _multicasts(launch: Launch) -> Iterator[Suspect]:
    code, cluster = launch.code, launch.record.cluster
    if code is None or code.is_clustered or any(copy.multicast for copy in code.copies) is False:
        return
    if not cluster or tuple(cluster) == (1, 1, 1):
        yield launch.suspect(
            "multicast-cluster", _INSTRUCTION,
            "the kernel multicasts and was launched without a cluster: any mask but 1 names a block that is not there",
            "launch with cluster=, or declare __cluster_dims__", False,
        )  # fmt: skip


def _kinds(launch: Launch) -> Iterator[Suspect]:
    code = launch.code
    if code is None or code.changes_maps or not code.copies:
        return
    taken = sorted({f"{'im2col' if copy.is_im2col else 'tiled'} of rank {copy.rank}" for copy in code.copies})
    for entry in launch.maps:
        if not launch.copies(entry) and not entry.is_empty:
            kind = "im2col" if entry.is_im2col else "tiled"
            yield launch.suspect(
                "map-kind", None,
                f"{entry.label} is a map of kind {kind} and rank {entry.parameters.rank}; the kernel's copies "
                f"take maps that are {', '.join(taken)}",
                "pass a map of the instruction's rank and mode", False,
            )  # fmt: skip


def _slots(launch: Launch) -> Iterator[Suspect]:
    for position, address, buffer in launch.pointers:
        distance = (address - buffer.address(0)) % SIZE
        if distance:
            certain = distance % ALIGNMENT != 0
            yield launch.suspect(
                "slot-start", _ALIGNMENT if certain else None,
                f"argument {position} points {distance} B into a slot of {buffer!r}; slots are {SIZE} B apart",
                "pass buffer.address(i), or the buffer itself and count slots in the kernel",
            )  # fmt: skip


RULES: tuple[Rule, ...] = (
    _declared_coordinates, _slots, _zeros, _illegal_maps, _null_addresses, _memory, _shared_size, _reductions,
    _lower_corners, _shared_alignment, _multicasts, _kinds,
)  # fmt: skip


def judge(record: LaunchRecord) -> tuple[Suspect, ...]:
    """Every rule that a launch breaks."""
    launch = Launch(record)
    return tuple(suspect for rule in RULES for suspect in rule(launch))


def start_multiples(record: LaunchRecord) -> Iterator[str]:
    """For each map what its copies must start at, where nothing says where they do."""
    declared = {entry.place for entry in declarations(record.kernel)}
    for entry in Launch(record).used:
        p: Any = entry.parameters
        if entry.place not in declared and p.interleave == 0:
            elements = max(1, 128 // int(p.element_bits))
            yield f"{entry.label}: copies start at multiples of {elements} {p.data_type} in dimension 0"
