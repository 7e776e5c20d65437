"""The API reference: one page for each room, whose members mkdocstrings reads from the sources."""

from __future__ import annotations

import inspect
import re
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any

import cupytma

FOLDER = "api"
# In the order in which a name that several of them export is documented once.
_ROOMS: tuple[tuple[str, str], ...] = (
    ("errors", "Errors"),
    ("targets", "Targets"),
    ("tensormap", "Tensor maps"),
    ("ptx", "Instructions"),
    ("sim.program", "Programs"),
    ("sim.model", "The model"),
    ("sim", "The simulator"),
    ("check", "The checker"),
    ("runtime", "The runtime"),
    ("pipeline", "Pipelines"),
    ("ops", "Operations"),
    ("record", "Recordings"),
    ("view", "Pictures"),
    ("help", "Help"),
)


def navigation() -> list[str | dict[str, str]]:
    """What the site's navigation has under "API"."""
    return [f"{FOLDER}/index.md", *({title: _path(room)} for room, title in _ROOMS)]


def pages() -> dict[str, str]:
    """The pages by path."""
    return {f"{FOLDER}/index.md": _index(), **{_path(room): _page(room, title) for room, title in _ROOMS}}


def _path(room: str) -> str:
    return f"{FOLDER}/{room.replace('.', '-')}.md"


def _public(module: ModuleType) -> list[str]:
    """The names that a room exports; those it defines, where it does not say."""
    if hasattr(module, "__all__"):
        return list(module.__all__)
    return [name for name, value in vars(module).items() if getattr(value, "__module__", None) == module.__name__
            and not name.startswith("_")]  # fmt: skip


@cache
def documented() -> dict[str, str]:
    """Where each public object is documented, by the name under which a room, or the package, exports it.

    Values are paths to definitions, for that is what the sources are searched by: names that are loaded when they are
    first used are in no file but that one.
    """
    found: dict[str, str] = {}
    seen: dict[int, str] = {}
    for room, _ in _ROOMS:
        module = import_module(f"cupytma.{room}")
        for name in _public(module):
            value = getattr(module, name)
            if not isinstance(value, ModuleType):
                found[f"{room}.{name}"] = seen.setdefault(id(value), _definition(room, name, value))
    for name in cupytma.__all__:
        value = getattr(cupytma, name)
        if not isinstance(value, ModuleType | str):
            found[name] = seen.setdefault(id(value), _definition("", name, value))
    return found


def _definition(room: str, name: str, value: Any) -> str:
    """Where an object is defined; for one that does not know, where it is exported."""
    module, own = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if module and own and module.startswith("cupytma"):
        return f"{module}.{own}"
    return ".".join(filter(None, ("cupytma", room, name)))


def _members(room: str) -> dict[str, str]:
    """The objects that are documented on a room's page: those that no room before it has."""
    before: set[str] = set()
    for other, _ in _ROOMS:
        own = {name: place for name, place in documented().items() if name.rpartition(".")[0] == other}
        if other == room:
            return {name.rpartition(".")[2]: place for name, place in own.items() if place not in before}
        before.update(own.values())
    raise KeyError(room)


def _page(room: str, title: str) -> str:
    module = import_module(f"cupytma.{room}")
    parts = [f"# {title}: `cupytma.{room}`\n", inspect.cleandoc(module.__doc__ or "") + "\n"]
    parts += [f"::: {place}\n" for place in _members(room).values()]
    elsewhere = {
        name.rpartition(".")[2]: place
        for name, place in documented().items()
        if name.rpartition(".")[0] == room and name.rpartition(".")[2] not in _members(room)
    }
    if elsewhere:
        links = ", ".join(f"[`{name}`][{place}]" for name, place in elsewhere.items())
        parts.append(f"Also here, and described elsewhere: {links}.\n")
    return "\n".join(parts)


def _index() -> str:
    lines = [
        "# The public names\n",
        "`import cupytma as tma` brings these; the rooms below it have more.\n",
        "| name | is |", "| --- | --- |",
    ]  # fmt: skip
    for name in sorted(cupytma.__all__, key=str.lower):
        place = documented().get(name)
        value = getattr(cupytma, name)
        if place:
            summary = inspect.cleandoc(getattr(value, "__doc__", "") or "").partition("\n")[0]
            own = summary if callable(value) else ""
            lines.append(f"| [`{name}`][{place}] | {own.replace('|', chr(92) + '|')} |")
    lines.append("\n| room | is |\n| --- | --- |")
    for room, title in _ROOMS:
        summary = inspect.cleandoc(import_module(f"cupytma.{room}").__doc__ or "").partition("\n")[0]
        lines.append(f"| [`cupytma.{room}`]({_path(room).rpartition('/')[2]}) | {summary or title} |")
    in_rooms = {place for name, place in documented().items() if "." in name}
    lines += [f"\n::: {place}" for name, place in documented().items() if "." not in name and place not in in_rooms]
    return "\n".join(lines) + "\n"


_CODE = re.compile(r"(?<!\">)<code>([A-Za-z_][\w.]*)(\(\))?</code>(?!</a>)")


def linked(html: str, path: str) -> str:
    """HTML in which names of the package, in code, lead to where they are documented."""
    own = path.removeprefix(f"{FOLDER}/").removesuffix(".md").replace("-", ".") if path.startswith(FOLDER) else ""

    def link(match: re.Match[str]) -> str:
        name = match[1].removeprefix("cupytma.").removeprefix("tma.")
        place = documented().get(f"{own}.{name}" if own else name) or (documented().get(name) if "." in name else None)
        if place is None or (not own and "." not in match[1]):
            return match[0]
        return f'<autoref identifier="{place}" optional>{match[0]}</autoref>'

    return _CODE.sub(link, html)
