"""A kernel's parameters with its tensor maps appended: those made on the device first, those of the host after them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from cupytma.errors import EmissionError
from cupytma.ptx.checks import shown

_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_LAST_NAME = re.compile(r"(\w+)\s*(?:\[[^\]]*\]\s*)*(?:,|$)", re.ASCII)
_MOST = 64


def appended_maps(
    parameters: str | Iterable[str] = (), *, device: str | Iterable[str] = (), host: str | Iterable[str] = ()
) -> str:
    """The declaration of a kernel's parameters, tensor maps appended.

    Pointers to slots that the device makes maps in come before the maps that the host passes by value, so that they lie
    right behind the kernel's own parameters however many maps the host passes (after the founding documents' order).
    Arguments are given in the same order.

    Parameters
    ----------
    parameters : str or iterable of str
        The kernel's own, as C++ declares them, such as ``"float* out"``.
    device : str or iterable of str
        Names of pointers to slots: ``CUtensorMap* name``. A `cupytma.DescriptorBuffer` is passed for each.
    host : str or iterable of str
        Names of maps by value: ``const __grid_constant__ CUtensorMap name``. A `cupytma.TensorMap` is passed for each.

    Returns
    -------
    str

    Raises
    ------
    EmissionError
        If a name is none in C++, or occurs twice.

    Examples
    --------
    >>> appended_maps("int n", device="own", host=["a", "b"])
    'int n, CUtensorMap* own, const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b'
    """
    own, born_there, born_here = (
        _listed(name, given) for name, given in (("parameters", parameters), ("device", device), ("host", host))
    )
    names = [*born_there, *born_here]
    taken = {found for text in own for found in _LAST_NAME.findall(text)}
    for name in names:
        if name in taken:
            raise EmissionError(f"appended_maps: {name} is one of the parameters already")
        if not _NAME.fullmatch(name):
            raise EmissionError(f"appended_maps: {shown(name)} is no name in C++")
        if names.count(name) > 1:
            raise EmissionError(f"appended_maps: two tensor maps are named {name}")
    return ", ".join((
        *own, *(f"CUtensorMap* {name}" for name in born_there),
        *(f"const __grid_constant__ CUtensorMap {name}" for name in born_here),
    ))  # fmt: skip


def _listed(name: str, given: Any) -> list[str]:
    if isinstance(given, str):
        return [given]
    try:
        found: list[str] = list(given)
    except Exception:  # a caller's iterable may raise anything
        raise EmissionError(f"appended_maps: {name} is {shown(given)}; text, or a list of it, is needed") from None
    if len(found) > _MOST or not all(isinstance(entry, str) and entry.strip() for entry in found):
        raise EmissionError(f"appended_maps: {name} is {shown(found)}; up to {_MOST} texts are needed")
    return found
