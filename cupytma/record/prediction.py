"""What the simulator says of recorded cases, and where it differs from what hardware did."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from cupytma import sim
from cupytma.record.recording import (
    COMPLETED,
    DIED,
    REDUCTION,
    SHARED_BYTES,
    UNWRITTEN,
    Bytes,
    Case,
    Observation,
    Recording,
    load_image,
    write_image,
)
from cupytma.sim.faults import IllegalInstruction, MisalignedAddress
from cupytma.sim.geometry import geometry
from cupytma.sim.modes import FULL_TARGET
from cupytma.targets import DEFAULT_TARGET, Target
from cupytma.tensormap.parameters import Im2colWide
from cupytma.tensormap.tensor_map import TensorMap

# Where the simulator takes the window to lie; any address does that is aligned to 1024 bytes.
BASE = 0x7F00_0000_0000
# How CUDA names what the unit reports.
_ERRORS: dict[type[sim.Fault], str] = {
    IllegalInstruction: "cudaErrorIllegalInstruction",
    MisalignedAddress: "cudaErrorMisalignedAddress",
}


@dataclass(frozen=True)
class Disagreement:
    """A case in which hardware and simulator differ: its number, the case, and how they differ."""

    number: int
    case: Case
    difference: str

    def __str__(self) -> str:
        return f"case {self.number}: {self.difference}\n  {self.case}"


def tensor_map(case: Case, base: int, target: Target | None = None) -> TensorMap:
    """The case's tensor map, with the window at an address; by default for the oldest target that has it."""
    p = case.parameters
    if target is None:
        target = FULL_TARGET if isinstance(p, Im2colWide) or p.violations(DEFAULT_TARGET) else DEFAULT_TARGET
    return replace(p, global_address=p.global_address + base).encode(target)


def expected_bytes(case: Case, m: TensorMap) -> int:
    """The transaction bytes of the case, halo pixels included."""
    plan = geometry(m, None if case.kind == REDUCTION else case.mode, store=not case.is_load)
    if plan.walk is not None and plan.walk.is_wide and case.offsets:
        plan = plan.with_halo(case.offsets[0])
    return plan.transaction_bytes


def predict(case: Case, memory: Bytes, source: Bytes) -> Observation:
    """What the simulator does with a case.

    Parameters
    ----------
    case : Case
    memory, source : ndarray of uint8
        What the window of global memory holds, and shared memory before stores and reductions. Not changed.

    Raises
    ------
    NotSimulatedError
        For a case that no document describes.
    OutOfWindow, SharedOverrun
        For one that leaves the window of global memory or the shared array.
    """
    m, at = tensor_map(case, BASE), case.shared_offset
    try:
        if case.is_load:
            shared = np.full(SHARED_BYTES, UNWRITTEN, np.uint8)
            moved = sim.load(
                m, case.coords, memory=memory, base=BASE, shared=shared, shared_offset=at, offsets=case.offsets,
                mode=case.mode,
            )  # fmt: skip
            return Observation(COMPLETED, moved, load_image(shared, at))
        written = memory.copy()
        if case.kind == REDUCTION:
            sim.reduce(m, case.reduction, case.coords, memory=written, base=BASE, shared=source, shared_offset=at)
        else:
            sim.store(m, case.coords, memory=written, base=BASE, shared=source, shared_offset=at, mode=case.mode)
    except (sim.OutOfWindow, sim.SharedOverrun):
        raise
    except sim.Fault as fault:
        return Observation(DIED, error=_ERRORS.get(type(fault), ""))
    return Observation(COMPLETED, expected_bytes(case, m), write_image(memory, written))


def disagreements(recording: Recording) -> Iterator[Disagreement]:
    """Every case of a recording in which the simulator does not do what hardware did.

    Cases that no document describes are left out; see `undescribed`.
    """
    memory, source = recording.contents
    counted = "counted" in recording.about
    for number, (case, seen) in enumerate(zip(recording.cases, recording.observations, strict=True)):
        try:
            difference = _difference(case, seen, predict(case, memory, source), counted)
        except sim.SharedOverrun as fault:
            difference = "" if seen.outcome == DIED else f"the simulator refuses it: {fault}"
        except sim.NotSimulatedError:
            continue
        if difference:
            yield Disagreement(number, case, difference)


def undescribed(recording: Recording) -> tuple[int, ...]:
    """The numbers of the cases that the simulator cannot judge, because no document says what they do."""
    memory, source = recording.contents
    found = []
    for number, case in enumerate(recording.cases):
        try:
            predict(case, memory, source)
        except sim.NotSimulatedError:
            found.append(number)
        except sim.Fault:
            pass
    return tuple(found)


def _difference(case: Case, seen: Observation, predicted: Observation, counted: bool) -> str:
    """How hardware and simulator differ; empty if they do not."""
    if DIED in (seen.outcome, predicted.outcome):
        if seen.outcome != predicted.outcome:
            died, lived = ("hardware", "simulator") if seen.outcome == DIED else ("simulator", "hardware")
            return f"the {died} faults ({seen.error or predicted.error}) and the {lived} does not"
        if seen.error and predicted.error and not seen.error.startswith(predicted.error):
            return f"hardware reports {seen.error}, the simulator {predicted.error}"
        return ""
    if case.is_load and counted:
        if seen.transaction_bytes != predicted.transaction_bytes:
            return (
                f"hardware adds {seen.transaction_bytes} bytes to the transaction count, the simulator "
                f"{predicted.transaction_bytes}"
            )
        if seen.outcome != COMPLETED:
            return f"a barrier that expects {predicted.transaction_bytes} bytes never completes"
    if np.array_equal(seen.image, predicted.image):
        return ""
    if case.is_load:
        return _shared_difference(seen.image, predicted.image)
    return f"{_changed(seen)} by hardware, {_changed(predicted)} by the simulator"


def _shared_difference(seen: Bytes, predicted: Bytes) -> str:
    length = max(len(seen), len(predicted))
    images = [np.concatenate([image, np.full(length - len(image), UNWRITTEN, np.uint8)]) for image in (seen, predicted)]
    wrong = np.flatnonzero(images[0] != images[1])
    first = int(wrong[0])
    return (
        f"{len(wrong)} bytes of shared memory differ; the first is byte {first} of the tile: hardware "
        f"{images[0][first]:#04x}, simulator {images[1][first]:#04x}"
    )


def _changed(observation: Observation) -> str:
    places, values = observation.changes()
    if not len(places):
        return "no byte changed"
    return f"{len(places)} bytes changed from {places[0]:#x} to {places[-1]:#x} (the first to {values[0]:#04x})"
