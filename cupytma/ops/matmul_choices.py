"""Which way of tiling a product was measured to be the fastest: kept on disk, and found when one is planned."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, replace

from cupytma.ops.matmul_configuration import Configuration, problem_with
from cupytma.ops.matmul_plan import MatmulPlan, Measured, kernel_digest
from cupytma.ops.matmul_ways import CONFIGURATIONS
from cupytma.runtime import cache
from cupytma.runtime.device import device_name

# What could not be written to the disk, for this process.
_unwritten: dict[str, bytes] = {}


def note_name(plan: MatmulPlan, device: str) -> str:
    """What a measurement is kept under: the same for products that are alike on GPUs that are.

    Everything counts that decides the time of a product but the configuration: the GPU, the kernels and the ways of
    tiling that there are, types, extents and layouts, how results are written, scales and bias, and what was promised.

    Parameters
    ----------
    plan : MatmulPlan
        Of any configuration.
    device : str
        The GPU's name.
    """
    o = plan.operands
    parts = (
        device, plan.multiprocessors, kernel_digest(), CONFIGURATIONS, o.a.type.name, o.b.type.name, o.result, o.m, o.n,
        o.k, o.a.is_mn_major, o.b.is_mn_major, plan.is_stored_by_unit, o.scale_kinds, o.bias_kind, plan.is_promoted,
        plan.is_static,
    )  # fmt: skip
    return hashlib.sha256(repr(("matmul", parts)).encode()).hexdigest()


def keep(plan: MatmulPlan) -> bool:
    """Keep a measured plan's configuration for products alike, and say whether it is on disk, for other processes too.

    It is one file of its own, written under another name and renamed: processes that measure at the same time do not
    disturb one another, and the last one stays.
    """
    assert plan.measured is not None
    name = note_name(plan, plan.measured.device)
    told = {
        "configuration": asdict(plan.configuration), "seconds": plan.measured.seconds,
        "is_cold": plan.measured.is_cold,
    }  # fmt: skip
    content = json.dumps(told).encode()
    if cache.write_note(name, content):
        _unwritten.pop(name, None)
        return True
    _unwritten[name] = content
    return False


def as_measured(plan: MatmulPlan, device: int) -> MatmulPlan:
    """A plan with the configuration that was measured for it on a GPU; as it is where none was, or none that is legal.

    Parameters
    ----------
    plan : MatmulPlan
        As the model chose.
    device : int
        The GPU's number.
    """
    if plan.is_empty:
        return plan
    name = device_name(device)
    note = note_name(plan, name)
    found = _read(_unwritten.get(note) or cache.read_note(note))
    if found is None:
        return plan
    configuration, seconds, is_cold = found
    if problem_with(configuration, plan.operands, plan.is_promoted, plan.most_bytes):
        return plan
    return replace(plan, configuration=configuration, measured=Measured(name, seconds, is_cold))


def _read(content: bytes) -> tuple[Configuration, float, bool] | None:
    """What a note tells; None where it is damaged."""
    if not content:
        return None
    try:
        told = json.loads(content)
        configuration, seconds, is_cold = (told[name] for name in ("configuration", "seconds", "is_cold"))
        found = Configuration(**configuration)
        is_sound = isinstance(seconds, float) and 0 < seconds < 1e6 and isinstance(is_cold, bool)
    except (ValueError, TypeError, LookupError, RecursionError):
        return None
    return (found, seconds, is_cold) if is_sound else None
