"""Cases on the hardware: each copy by a kernel of its own, and what it did to memory and to a barrier."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np

from cupytma.record import forms
from cupytma.record.drawing import draw_cases, draw_faults
from cupytma.record.prediction import expected_bytes, predict, tensor_map
from cupytma.record.recording import (
    COMPLETED,
    DIED,
    NEVER_COMPLETED,
    REDUCTION,
    SHARED_BYTES,
    Bytes,
    Case,
    Observation,
    Recording,
    load_image,
    memory_contents,
    write_image,
)
from cupytma.record.unit import ALIGNMENT, Buffer, KernelDied, Unit
from cupytma.sim.faults import Fault, NotSimulatedError
from cupytma.version import __version__

if TYPE_CHECKING:
    from cupytma.targets import Target
    from cupytma.tensormap.tensor_map import TensorMap

# `Copy` of kernels/record.cu.
COPY = np.dtype(
    [
        ("coordinates", "<i4", 5), ("offsets", "<u2", 4), ("form", "<u4"), ("shared_offset", "<u4"),
        ("expected_bytes", "<u4"), ("cta_mask", "<u4"),
    ]
)  # fmt: skip
SHARED_LAUNCH_BYTES = SHARED_BYTES + ALIGNMENT
_PROCESSES = 4
_UNCOUNTED = 0xFFFFFFFF

Progress = Callable[[int, int], None]


def _expected(case: Case, m: TensorMap) -> int:
    """The bytes that a barrier is to expect; those of the tensor map where nobody knows better."""
    try:
        return expected_bytes(case, m)
    except NotSimulatedError:
        return m.box_bytes


def new_unit(target: Target, memory: Bytes, source: Bytes) -> Unit:
    """A unit with the recorder's kernels and buffers.

    Parameters
    ----------
    target : Target
    memory, source : ndarray of uint8
        What global memory holds, and shared memory before stores and reductions.
    """
    return Unit(forms.kernels(target), unit_buffers(memory, source))


def unit_buffers(memory: Bytes, source: Bytes) -> dict[str, Bytes]:
    """What the recorder's kernels work on, by name."""
    return {
        "memory": memory,
        "source": source,
        "image": np.zeros(2 * SHARED_BYTES, np.uint8),
        "answer": np.zeros(64, np.uint8),
        "maps": np.zeros(1024, np.uint8),
    }


def form_of(case: Case) -> int:
    """The number of the case's form of the instruction."""
    rank = case.parameters.rank
    if case.is_load:
        return forms.load_form(rank, case.mode)
    if case.kind == REDUCTION:
        return forms.reduce_form(rank, case.reduction, case.mode)
    return forms.store_form(rank, case.mode)


def copy_operands(case: Case, expected_bytes: int = 0, cta_mask: int = 0, form: int | None = None) -> Any:
    """The case's operands as the kernels take them."""
    found = np.zeros((), COPY)
    found["coordinates"][: len(case.coords)] = case.coords
    found["offsets"][: len(case.offsets)] = case.offsets
    found["form"] = form_of(case) if form is None else form
    found["shared_offset"], found["expected_bytes"], found["cta_mask"] = case.shared_offset, expected_bytes, cta_mask
    return found[()]


def observe(unit: Unit, case: Case, memory: Bytes, *, source: Bytes | None = None, target: Target) -> Observation:
    """Run one case on the hardware.

    Parameters
    ----------
    unit : Unit
        From `new_unit`.
    case : Case
    memory : ndarray of uint8
        What the window of global memory is to hold before the case.
    source : ndarray of uint8, optional
        What shared memory is to hold before a store or reduction; default: what the unit was made with.
    target : Target
        What the tensor map is encoded for.
    """
    writes = {"memory": memory} if source is None else {"memory": memory, "source": source}
    try:
        m = tensor_map(case, unit.addresses["memory"], target)
        expected = _expected(case, m)
        operands = (m, copy_operands(case, expected))
        if case.is_load:
            read = unit.run(
                "record_load", (*operands, Buffer("image"), Buffer("answer")),
                shared_bytes=SHARED_LAUNCH_BYTES, writes=writes, reads=("image", "answer"),
            )  # fmt: skip
            completed, counted = read["answer"].view("<u4")[:2].tolist()
            return Observation(
                COMPLETED if completed else NEVER_COMPLETED,
                expected if counted == _UNCOUNTED else counted,
                load_image(read["image"][:SHARED_BYTES], case.shared_offset),
            )
        kernel = "record_reduce" if case.kind == REDUCTION else "record_store"
        read = unit.run(
            kernel, (*operands, Buffer("source"), Buffer("answer")),
            shared_bytes=SHARED_LAUNCH_BYTES, writes=writes, reads=("memory",),
        )  # fmt: skip
        return Observation(COMPLETED, expected, write_image(memory, read["memory"]))
    except KernelDied as death:
        return Observation(DIED, error=str(death))


def record_cases(
    cases: Sequence[Case], seed: int, *, processes: int = _PROCESSES, progress: Progress | None = None
) -> Recording:
    """Run cases on the current GPU.

    Parameters
    ----------
    cases : sequence of Case
    seed : int
        Of the bytes that memory holds.
    processes : int
        How many processes run cases beside each other. One that dies takes seconds to be replaced.
    progress : callable, optional
        Called with the number of cases done and of all.

    Raises
    ------
    NoDeviceError
        If there is no GPU with a Tensor Memory Accelerator.
    CompileError
        If NVRTC is missing.
    """
    from cupytma.runtime.compiler import current_target, nvrtc_version

    target = current_target()
    memory, source = memory_contents(seed)
    local, units = threading.local(), []
    done = 0
    lock = threading.Lock()
    forms.kernels(target)  # compiled once, before the processes ask for it

    def one(case: Case) -> Observation:
        nonlocal done
        if not hasattr(local, "unit"):
            local.unit = new_unit(target, memory, source)
            units.append(local.unit)
        seen = observe(local.unit, case, memory, target=target)
        with lock:
            done = min(done + 1, len(cases))
            if progress is not None:
                progress(done, len(cases))
        return seen

    try:
        with ThreadPoolExecutor(max(1, min(processes, len(cases)))) as pool:
            observations = list(pool.map(one, cases))
            for number, (case, seen) in enumerate(zip(cases, observations, strict=True)):
                if seen.outcome == DIED and not _foretold(case, memory, source):
                    # Perhaps another process's fault was taken for this one's: again, with nothing else running.
                    observations[number] = pool.submit(one, case).result()
        about = {
            **(units[0].about if units else {}),
            "target": target.name,
            "NVRTC": ".".join(map(str, nvrtc_version())),
            "cupytma": __version__,
            "counted": "transaction bytes were counted by a barrier",
        }
    finally:
        for unit in units:
            unit.close()
    return Recording(tuple(cases), tuple(observations), seed, about)


def _foretold(case: Case, memory: Bytes, source: Bytes) -> bool:
    """Whether the simulator says that a case kills the kernel."""
    try:
        return predict(case, memory, source).outcome == DIED
    except (Fault, NotSimulatedError):
        return False


def record_random(
    count: int, faults: int, seed: int, *, processes: int = _PROCESSES, progress: Progress | None = None
) -> Recording:
    """Draw random copies and run them on the current GPU.

    Parameters
    ----------
    count : int
        Copies that should work. On a device that has them, modes, types and swizzles that the simulator knows from
        documents alone are among them.
    faults : int
        Copies that should kill the kernel; each costs a second or two.
    seed : int
        The same copies, and the same bytes in memory, for the same seed.
    processes, progress
        As for `record_cases`.

    Raises
    ------
    NoDeviceError, CompileError
        As for `record_cases`.
    """
    from cupytma.runtime.compiler import current_target

    target = current_target()
    cases = draw_cases(count, seed, target=target) + draw_faults(faults, seed, target=target)
    return record_cases(cases, seed, processes=processes, progress=progress)
