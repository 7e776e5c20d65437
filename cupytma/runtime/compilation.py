"""What is asked of the compiler, checked, and what it gives back."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from cupytma.errors import CompileInputError
from cupytma.runtime.given import shown
from cupytma.targets import Target

SOURCE_NAME = "kernel.cu"
# Options that ask for what the parameters of `compile` are for.
_RESERVED = ("-arch", "--gpu-architecture", "-gpu-architecture", "-gencode", "--generate-code")
_STANDARD = re.compile(r"--?std\b")
_DEFINED = re.compile(r"[A-Za-z_]\w*(\([\w\s,.]*\))?")
_INCLUDING = ("--include-path", "-I")
_PRE_INCLUDING = ("--pre-include", "-include")


@dataclass(frozen=True)
class Request:
    """One compilation, with everything that decides its outcome but the compiler and the files it reads.

    Attributes
    ----------
    source : str
    target : Target
    options : tuple of str
    defines : tuple of (str, str or None)
    headers : tuple of (str, str)
        Names and texts.
    includes : tuple of str
        Folders.
    names : tuple of str
        Name expressions.
    """

    source: str
    target: Target
    options: tuple[str, ...] = ()
    defines: tuple[tuple[str, str | None], ...] = ()
    headers: tuple[tuple[str, str], ...] = ()
    includes: tuple[str, ...] = ()
    names: tuple[str, ...] = ()

    def arguments(self, folders: Iterable[str] = (), target: str = "") -> list[str]:
        """NVRTC's options; `folders` are searched after the request's own, `target` stands in for its target."""
        standard = [] if any(map(_STANDARD.match, self.options)) else ["--std=c++17"]
        return [
            f"--gpu-architecture={target or self.target}",
            *standard,
            *(f"--include-path={folder}" for folder in (*self.includes, *folders)),
            *(f"-D{name}" if value is None else f"-D{name}={value}" for name, value in self.defines),
            *self.options,
        ]

    @property
    def searched(self) -> tuple[str, ...]:
        """The folders in which headers are searched, those of the options too."""
        return (*self.includes, *_values_of(self.options, _INCLUDING))

    @property
    def pre_included(self) -> tuple[str, ...]:
        """Headers that the options include before the source."""
        return tuple(_values_of(self.options, _PRE_INCLUDING))


@dataclass(frozen=True)
class Compiled:
    """What the compiler made of a request.

    Attributes
    ----------
    cubin : bytes
    ptx, log : str
    lowered : dict of str to str
        The name in the machine code of each name expression.
    spills : dict of str to (int, int)
        Bytes that each function stores to and loads from local memory for want of registers.
    warnings : tuple of str
    """

    cubin: bytes
    ptx: str
    log: str
    lowered: dict[str, str] = field(default_factory=dict)
    spills: dict[str, tuple[int, int]] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


def checked_request(
    source: object, target: Target, options: object, defines: object, headers: object, includes: object, names: object
) -> Request:
    """A request of what a caller gives.

    Raises
    ------
    CompileInputError
        Naming the parameter, the value and what would be right.
    """
    text = _text("source", source).removeprefix("\ufeff")  # what some editors begin a file with
    return Request(
        text,
        target,
        tuple(_option(item) for item in _items("options", options)),
        tuple(_define(name, value) for name, value in _pairs("defines", defines)),
        tuple((_name("headers", name), _text(f"headers[{name!r}]", body)) for name, body in _pairs("headers", headers)),
        tuple(_folder(item) for item in _items("includes", includes)),
        tuple(dict.fromkeys(_name("name_expressions", item) for item in _items("name_expressions", names))),
    )


def _text(what: str, value: object) -> str:
    if not isinstance(value, str):
        hint = "; decode it first" if isinstance(value, (bytes, bytearray)) else ""
        raise CompileInputError(f"{what} is {shown(value)}, a {type(value).__name__}: text (str) is needed{hint}")
    if "\0" in value:
        line = value[: value.index("\0")].count("\n") + 1
        raise CompileInputError(
            f"the {what} has a NUL character, which would end it, in line {line}; remove it", source=value
        )
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise CompileInputError(
            f"the {what} is no text that can be written as UTF-8 ({error.reason} at character {error.start}); it was "
            "probably read with errors='surrogateescape'",
            source=value,
        ) from None
    return str(value)


def _line(what: str, value: object) -> str:
    text = _text(what, value)
    if "\n" in text or "\r" in text:
        raise CompileInputError(f"{what}: {shown(text)} has a line break; write it in one line")
    return text


def _name(what: str, value: object) -> str:
    text = _line(f"a name in {what}" if what == "headers" else what, value).strip()
    if not text:
        raise CompileInputError(f"{what}: a name is empty; leave it out or name what is meant")
    return text


def _option(value: object) -> str:
    text = _line("options", value).strip()
    if not text:
        raise CompileInputError("options: an option is empty; leave it out")
    name = re.split(r"[=\s]", text, maxsplit=1)[0]
    if name in _RESERVED:
        raise CompileInputError(f"options: {shown(text)} would clash with the target; give target='sm_90a' instead")
    return text


def _define(name: object, value: object) -> tuple[str, str | None]:
    text = _line("defines", name).strip()
    if not _DEFINED.fullmatch(text):
        raise CompileInputError(
            f"defines: {shown(name)} is no macro's name; names are like TILE or SCALE(x), and the value is the "
            "mapping's: defines={'TILE': 64}"
        )
    if value is None:
        return text, None
    if isinstance(value, bool):
        return text, str(int(value))
    try:
        written = str(value)
    except Exception:  # a caller's class may raise anything
        raise CompileInputError(f"defines: the value of {text} cannot be written as text") from None
    if written in ("nan", "inf", "-inf"):
        raise CompileInputError(f"defines: {text} = {written} is no C++ literal; write the expression that is meant")
    return text, _line(f"defines[{text!r}]", written)


def _folder(value: object) -> str:
    try:
        path = os.fspath(value)  # type: ignore[call-overload]
    except TypeError:
        raise CompileInputError(f"includes: {shown(value)} is no folder; give its path as str or Path") from None
    text = _line("includes", os.fsdecode(path))
    if not os.path.isdir(text):
        what = "is a file, not a folder" if os.path.exists(text) else "does not exist"
        raise CompileInputError(f"includes: {shown(text)} {what}; headers given as text go into headers=")
    try:
        return os.path.abspath(text)
    except OSError:
        raise CompileInputError(f"includes: {shown(text)} is in the current folder, which has been removed") from None


def _items(what: str, value: Any) -> list[object]:
    if value is None:
        return []
    if isinstance(value, (str, bytes, os.PathLike)):
        return [value]
    try:
        return list(value)
    except Exception:  # a caller's iterable may raise anything
        raise CompileInputError(f"{what} is {shown(value)}: a list of text is needed") from None


def _pairs(what: str, value: Any) -> list[tuple[object, object]]:
    if value is None:
        return []
    if not isinstance(value, Mapping):
        example = "{'TILE': 64}" if what == "defines" else "{'tile.cuh': '#define TILE 64'}"
        raise CompileInputError(f"{what} is {shown(value)}: a mapping is needed, such as {example}")
    return list(value.items())


def _values_of(options: tuple[str, ...], names: tuple[str, ...]) -> Iterable[str]:
    """What options of some names are given, joined or as the next option."""
    following = False
    for option in options:
        if following:
            yield option
        following = option in names
        for name in names:
            if option.startswith(name) and not following and not option.startswith(f"{name}-"):
                yield option.removeprefix(name).lstrip("= ")
                break


def with_names(request: Request, *names: object) -> Request:
    """The same request with further name expressions.

    Raises
    ------
    CompileInputError
        If one is no line of text.
    """
    added = (_name("name_expressions", name) for name in names)
    return replace(request, names=tuple(dict.fromkeys((*request.names, *added))))
