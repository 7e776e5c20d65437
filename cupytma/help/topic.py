"""What a topic is."""

from __future__ import annotations

from dataclasses import dataclass

KINDS: dict[str, str] = {
    "how-to": "How-tos",
    "rule": "Rules of tensor maps: what the driver refuses",
    "warning": "Warnings about tensor maps: legal, and surprising",
    "fault": "Faults: the map encodes, and the copy kills the kernel",
    "folklore": "Folklore: often enforced, and no rules",
    "finding": "What the checker finds in a kernel",
    "program": "What a simulated program is told",
    "cuda": "Errors of CUDA that stay",
    "recipe": "Fences, by the path that data takes",
    "error": "Errors that this package raises",
}
"""How a topic is called, and what a list of its kind is headed with, in the order in which they are listed."""


@dataclass(frozen=True)
class Topic:
    """Something that can be asked for by its id.

    Attributes
    ----------
    id : str
        Stable name, such as ``"box-inner-span"`` or ``"kernel-hangs"``.
    kind : str
        A key of `KINDS`. Topics of different kinds may have the same id.
    title : str
        In one line.
    text : str
        Markdown, without a heading for the title. Ids of other topics are in backticks.
    aliases : tuple of str
        Other names, such as ``"715"`` and ``"CUDA_ERROR_ILLEGAL_INSTRUCTION"``.
    """

    id: str
    kind: str
    title: str
    text: str
    aliases: tuple[str, ...] = ()
