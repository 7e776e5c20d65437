"""All topics, from how-tos and tables, and finding one by its id."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from functools import cache

from cupytma.help import how_tos, tables
from cupytma.help.topic import KINDS, Topic


@cache
def topics() -> tuple[Topic, ...]:
    """Every topic, kind by kind in the order of `KINDS`."""
    found = (*how_tos.topics(), *tables.topics())
    return tuple(topic for kind in KINDS for topic in found if topic.kind == kind)


def names() -> tuple[str, ...]:
    """Every id once, how-tos first; no aliases."""
    return tuple(dict.fromkeys(topic.id for topic in topics()))


def find(name: str) -> tuple[Topic, ...]:
    """The topics of an id or alias, in any case of letters.

    Returns
    -------
    tuple of Topic
        One for each kind that has the id. For a name that no topic has, the how-tos that speak of it. Empty where there
        is none.
    """
    wanted = name.strip().lower() if isinstance(name, str) else ""
    ids = {topic.id for topic in topics() if wanted in _names(topic)}
    return tuple(topic for topic in topics() if topic.id in ids) or tuple(how_tos.speaking_of(wanted))


def similar(name: str, count: int = 3) -> tuple[str, ...]:
    """Ids that look like a name, the most alike first."""
    known = names()
    within = [known_name for known_name in known if len(name) > 2 and name.lower() in known_name.lower()]
    return tuple(dict.fromkeys((*within, *difflib.get_close_matches(name.lower(), known, count))))[:count]


def _names(topic: Topic) -> Iterator[str]:
    yield topic.id.lower()
    yield from (alias.lower() for alias in topic.aliases)
