"""Checks before every launch, for development: off unless asked for."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import lru_cache
from types import TracebackType
from typing import TYPE_CHECKING, Any

from cupytma.errors import ArrayError, LaunchError
from cupytma.runtime.given import truth

if TYPE_CHECKING:
    from cupytma.check import Finding

_OFF = ("", "0", "false", "off", "no")

enabled: bool = os.environ.get("CUPYTMA_CHECK", "").strip().lower() not in _OFF
"""Whether launches are checked; changed by `checks`."""


class Switch:
    """What `checks` returns: as a context manager it puts back what was before."""

    def __init__(self, before: bool) -> None:
        self._before = before

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        checks(self._before)

    def __repr__(self) -> str:
        return f"<checks are {'on' if enabled else 'off'}>"


def checks(on: bool = True) -> Switch:
    """Turn checks before each launch on or off, for the whole process; ``CUPYTMA_CHECK=1`` starts with them on.

    With checks on, a launch raises `LaunchError` and is not made where something is known to be wrong with it: a tensor
    map whose array has moved or whose memory CUDA does not know, a map that no encoder makes for the device, a block
    with less shared memory than a tile takes, declared coordinates (`declare_coordinates`) that the hardware refuses, a
    pointer into the middle of a descriptor slot, code in which the kernel checker (`cupytma.check`) finds an error.

    What cannot be known: whether an array of a memory pool has been freed, while the pool keeps its memory; coordinates
    that are not declared; where in shared memory a tile lies.

    Parameters
    ----------
    on : bool

    Returns
    -------
    Switch
        May be used in a ``with`` statement, at whose end checks are as they were.

    Examples
    --------
    >>> with tma.checks():
    ...     kernel(grid, block, arguments)
    """
    global enabled
    try:
        before, enabled = enabled, truth(on)
    except TypeError as error:
        raise LaunchError(f"on: {error}") from None
    return Switch(before)


def check_launch(
    kernel: Any,
    grid: Sequence[int],
    block: Sequence[int],
    cluster: Sequence[int] | None,
    shared_bytes: int,
    parameters: bytes,
    arrays: Sequence[Any] = (),
    device: int | None = None,
) -> None:
    """Refuse a launch that is known to go wrong. Called before each launch while `enabled` is true.

    Parameters
    ----------
    kernel : Kernel
    grid, block, cluster : sequence of int
        Three each; cluster may be None.
    shared_bytes : int
        Dynamic shared memory of a block.
    parameters : bytes
        The parameter block.
    arrays : sequence
        The arguments as they were given: tensor maps, and whatever else.
    device : int, optional
        That it is launched on. Default: any.

    Raises
    ------
    LaunchError
        Naming everything that is wrong.
    """
    from cupytma.runtime.history import LaunchRecord
    from cupytma.runtime.launch_rules import judge

    record = LaunchRecord(
        kernel, _three(grid), _three(block), None if cluster is None else _three(cluster), shared_bytes,
        device, bytes(parameters),
    )  # fmt: skip
    problems = [str(suspect) for suspect in judge(record) if suspect.is_certain]
    problems += [f"map-source: {text}" for text in _stale(arrays)]
    problems += _wrong_code(kernel)
    if problems:
        raise LaunchError("\n".join([f"checked before its launch, {record.summary} would go wrong:", *problems]))


def _wrong_code(kernel: Any) -> list[str]:
    """What the kernel checker is sure of, in the kernel and in the functions that are not inlined."""
    ptx, name = getattr(getattr(kernel, "module", None), "ptx", None), getattr(kernel, "name", None)
    if not isinstance(ptx, str):
        return []
    others = set(getattr(getattr(kernel, "module", None), "signatures", ())) - {name}
    return [
        f"{finding.rule}: {finding.place}: {finding.message}. Fix: {finding.fix}"
        for finding in _findings(ptx)
        if finding.severity == "error" and finding.function not in others
    ]


@lru_cache(maxsize=64)
def _findings(ptx: str) -> tuple[Finding, ...]:
    from cupytma.check import check_ptx

    return check_ptx(ptx)


def _three(extents: Sequence[int]) -> tuple[int, int, int]:
    x, y, z = (*extents, 1, 1, 1)[:3]
    return x, y, z


def _stale(arguments: Sequence[Any]) -> list[str]:
    """Maps whose own array is not where it was."""
    from cupytma.runtime.descriptors import DescriptorBuffer
    from cupytma.tensormap.tensor_map import TensorMap

    found = []
    for position, argument in enumerate(arguments):
        several = isinstance(argument, (list, tuple, DescriptorBuffer))
        for index, entry in enumerate(argument if several else (argument,)):
            if isinstance(entry, TensorMap):
                problem = _moved(entry)
                if problem:
                    found.append(f"argument {position}{f'[{index}]' if several else ''}: {problem}")
    return found


def _moved(tensor_map: Any) -> str | None:
    from cupytma.tensormap.arrays import view_of

    source = getattr(tensor_map, "source", None)
    if source is None:
        return None
    described = int.from_bytes(bytes(tensor_map)[:8], "little")
    try:
        view = view_of(source)
    except ArrayError as error:
        return f"the array that it was made of has no memory any more ({error}); make the map again"
    if view.address != described:
        return (
            f"the map describes memory at {described:#x}, and the array that it was made of lies at {view.address:#x} "
            "now: make the map again"
        )
    return None
