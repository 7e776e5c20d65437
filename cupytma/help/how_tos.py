"""The how-tos: one Markdown file each, beside this module.

The file's name is the id, its first heading the title. What a how-to is about it says in its text, where the ids of
rules and errors stand in backticks; these then refer back to it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from importlib.resources import files

from cupytma.help.topic import Topic

# In the order in which somebody new meets them.
ORDER = (
    "encode-fails",
    "slices-and-odd-rows",
    "tile-too-large",
    "which-swizzle",
    "which-target",
    "instruction-refused",
    "kernel-hangs",
    "wrong-values",
    "wrong-now-and-then",
    "illegal-instruction",
    "misaligned-address",
    "illegal-address",
    "every-call-fails",
    "store-writes-past-rows",
    "descriptor-in-global-memory",
    "slow-copy",
    "no-gpu",
)
_CODE = re.compile(r"`([^`\n]+)`")


@cache
def topics() -> tuple[Topic, ...]:
    """The how-tos in order."""
    return tuple(_read(name) for name in ORDER)


def speaking_of(name: str) -> Iterator[Topic]:
    """The how-tos that have a name in backticks, in any case of letters."""
    return (topic for topic in topics() if name in _named(topic))


@cache
def _named(topic: Topic) -> frozenset[str]:
    return frozenset(word.lower() for word in _CODE.findall(topic.text))


def _read(name: str) -> Topic:
    text = (files(__package__) / f"{name}.md").read_text(encoding="utf-8")
    head, _, body = text.partition("\n")
    return Topic(name, "how-to", head.removeprefix("# "), body.strip() + "\n")
