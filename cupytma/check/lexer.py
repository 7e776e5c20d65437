"""PTX text to statements, directives, labels and braces, each with its line; whatever the text is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple


class Piece(NamedTuple):
    """A piece of PTX: what it is, its text without comments and the closing semicolon, and its line from 1.

    The kinds are ``"statement"``, ``"label"``, ``"{"``, ``"}"``, ``"head"`` (what stands before a function's body),
    ``"loc"``, ``"file"`` and ``"comment"`` (one that speaks to this checker).
    """

    kind: str
    text: str
    line: int


#: What a comment that speaks to this checker begins with.
MARK = "cupytma:"
# A statement that does not end within so many characters is none.
_LONGEST = 1 << 15
_PART = re.compile(
    r"\s*(?:(?P<label>[A-Za-z_$%][\w$]*)\s*:(?!:)|(?P<brace>[{}])|(?P<statement>[^;{}]+(?:\{[^{};]*\}[^;{}]*)*);)"
)
_BLOCK_COMMENT = re.compile(r"/\*.*?(?:\*/|\Z)", re.DOTALL)
_HEAD = re.compile(r"(?:\.(?:visible|weak|extern|common)\s+)*\.(?:entry|func)\b")
_LINE_DIRECTIVES = (".version", ".target", ".address_size", ".file", ".loc ", ".loc\t", ".pragma", ".section", ".alias")


def pieces(text: str) -> Iterator[Piece]:
    """All pieces of a PTX file, in order. Text that is no PTX gives pieces that mean nothing, and never an error."""
    if "/*" in text:
        text = _BLOCK_COMMENT.sub(lambda found: "\n" * found[0].count("\n") or " ", text)
    pending, started, in_section = "", 0, False
    for number, raw in enumerate(text.split("\n"), 1):
        line = raw.strip()
        if "//" in line and not line.startswith(".file"):
            line, _, comment = line.partition("//")
            line = line.rstrip()
            if MARK in comment:
                yield Piece("comment", comment.strip(), number)
        if not line:
            continue
        if in_section:
            in_section = not line.startswith("}")
            continue
        if not pending and line[0] == "." and line.startswith(_LINE_DIRECTIVES):
            if line.startswith(".section"):
                in_section = True
            elif line.startswith(".pragma"):
                pass
            else:
                yield Piece({".loc": "loc", ".fil": "file"}.get(line[:4], "statement"), line.rstrip(";"), number)
            continue
        is_whole = not pending and line[-1] == ";" and line.count(";") == 1 and line[0] != ":" and "{" not in line
        if is_whole and not _starts_with_label(line):
            yield Piece("statement", line[:-1].rstrip(), number)
            continue
        if not pending:
            started = number
        pending = f"{pending} {line}" if pending else line
        pending, found = _split(pending, started)
        yield from found
        if len(pending) > _LONGEST:
            pending = ""


def _starts_with_label(line: str) -> bool:
    at = line.find(":")
    return at > 0 and line[at + 1 : at + 2] != ":" and line[at - 1] != ":" and " " not in line[:at].strip()


def _split(text: str, line: int) -> tuple[str, list[Piece]]:
    """The complete pieces at the beginning of a text, and what is left."""
    found: list[Piece] = []
    at = 0
    while at < len(text):
        if _HEAD.match(text, _past_blanks(text, at)):
            end = _end_of_head(text, at)
            if end < 0:
                break
            found.append(Piece("head", text[at:end].strip(), line))
            at = end + (text[end] == ";")
            continue
        part = _PART.match(text, at)
        if part is None:
            break
        at = part.end()
        if part["label"]:
            found.append(Piece("label", part["label"], line))
        elif part["brace"]:
            found.append(Piece(part["brace"], part["brace"], line))
        else:
            found.append(Piece("statement", part["statement"].strip(), line))
    return text[at:].strip(), found


def _past_blanks(text: str, at: int) -> int:
    while at < len(text) and text[at].isspace():
        at += 1
    return at


def _end_of_head(text: str, at: int) -> int:
    """Where the body of a function begins, or the semicolon of a declaration; -1 where neither is there yet."""
    ends = [end for end in (text.find("{", at), text.find(";", at)) if end >= 0]
    return min(ends, default=-1)
