"""What can be told from the text of a source: kernels as they are declared."""

from __future__ import annotations

import re

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


def parameter_texts(source: str, name: str) -> list[str]:
    """The declarations of a kernel's parameters; empty where the kernel is not found in the text.

    Parameters
    ----------
    source : str
    name : str
        As in the machine code: plain, or mangled.
    """
    plain = cxx_name(name).rpartition("::")[2]
    bare = _COMMENT.sub(" ", source)
    for found in re.finditer(rf"__global__[^;{{}}]*?\b{re.escape(plain)}\s*\(", bare):
        inside = _bracketed(bare, found.end() - 1)
        if inside is not None:
            return [" ".join(part.split()) for part in split_arguments(inside)]
    return []


def split_arguments(text: str) -> list[str]:
    """The parts of a list with commas, those within brackets left whole."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "([{<") - (letter in ")]}>")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts if part.strip()]


def _bracketed(text: str, start: int) -> str | None:
    depth = 0
    for at in range(start, len(text)):
        depth += (text[at] == "(") - (text[at] == ")")
        if depth == 0:
            return text[start + 1 : at]
    return None


def template_kernels(source: str) -> set[str]:
    """Names of the kernels that are templates."""
    found = set()
    for head in re.split(r"\btemplate\s*<", _COMMENT.sub(" ", source))[1:]:
        declared = re.split(r"[;{]", head, maxsplit=1)[0].partition("__global__")[2]
        names = [name for name in re.findall(r"(\w+)\s*\(", declared) if not name.startswith("__")]
        found.update(names[:1])
    return found


def cxx_name(mangled: str) -> str:
    """The C++ name of a function that is no template, such as ``ns::scale``; other names as they are.

    Only the name is read, not the types of the parameters (Itanium C++ ABI, "Mangling").
    """
    if not mangled.startswith("_Z"):
        return mangled
    at = 3 if mangled.startswith("_ZN") else 2
    parts = []
    while digits := re.match(r"\d+", mangled[at:]):
        start = at + digits.end()
        at = start + int(digits[0])
        parts.append(mangled[start:at])
        if not mangled.startswith("_ZN"):
            break
    if not parts:
        return mangled
    return "::".join("(anonymous namespace)" if part.startswith("_GLOBAL__N_") else part for part in parts)
