"""The log of NVRTC and of the assembler in it: what is said, of which line."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from cupytma.runtime.compilation import SOURCE_NAME

# Where NVRTC keeps the name expressions, one a line from the second.
NAME_MAP = "__nv_name_map"
_INDENT = 2
_LONG_LINE = 400
_COMPILER = re.compile(
    r"(?P<file>[^\s(][^(]*)\((?P<line>\d+)\): (?P<severity>(?:catastrophic |internal )?error|warning|remark)"
    r"(?: #[\w-]+)?: (?P<message>.*)"
)
_PLACELESS = re.compile(r"(?:nvrtc: |Command-line )?(?P<severity>error|warning)\s*:\s+(?P<message>.*)")
_ASSEMBLER = re.compile(
    r"ptxas (?:application ptx input, line (?P<line>\d+); )?(?P<severity>error|warning|fatal)\s*:\s+(?P<message>.*)"
)
_ABORTED = "Ptx assembly aborted due to errors"
_QUOTED = re.compile(r"""["']([^"']+)["']""")
_INSTANTIATED = re.compile(rf"at line (\d+)(?: of {re.escape(SOURCE_NAME)})?$")
_LOCATION = re.compile(r"\s*\.loc\s+(\d+) (\d+)(?:.*\binlined_at (\d+) (\d+))?")
_FILE = re.compile(r'^\s*\.file\s+(\d+) "([^"]*)"', re.MULTILINE)
# What the assembler says of resources when it is asked to (see `cupytma.runtime.resources`).
_REPORT = re.compile(
    r"ptxas info    : (?:\d+ bytes gmem|Compiling entry function|Function properties for|Used \d+ registers|"
    r"Compile time|Overriding )|ptxas         \.  "
)
_FUNCTION = re.compile(r"ptxas info    : Function properties for (\S+)")
_SPILL = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")


@dataclass(frozen=True)
class Diagnostic:
    """One error or warning of the compiler or the assembler.

    Attributes
    ----------
    severity : str
        ``"error"``, ``"warning"`` or ``"remark"``.
    message : str
    file : str
        ``"kernel.cu"`` for the source, a header's name, or empty where no place is known.
    line : int or None
        From 1.
    column : int or None
        From 0; guessed from the name in the message where the compiler gives none.
    text : str
        The line itself.
    statement : str
        The PTX instruction that the assembler complains of, or empty.
    from_assembler : bool
    """

    severity: str
    message: str
    file: str = ""
    line: int | None = None
    column: int | None = None
    text: str = ""
    statement: str = ""
    from_assembler: bool = False

    @property
    def is_error(self) -> bool:
        """Whether it ended the compilation."""
        return self.severity == "error"

    @property
    def in_source(self) -> bool:
        """Whether it is about the source itself."""
        return self.file == SOURCE_NAME

    def __str__(self) -> str:
        place = f"{self.file}({self.line}): " if self.file and self.line else ""
        lines = [f"{place}{self.severity}: {cut(self.message)}"]
        if self.statement:
            lines.append(f"  in the instruction  {cut(self.statement)}")
        if self.text.strip() and self.line:
            text, column = _window(self.text, self.column)
            number = f"{self.line:>4}"
            lines.append(f"  {number} | {text}")
            if column is not None:
                # Tabs stay tabs, so that the caret stands below its letter.
                blank = "".join("\t" if letter == "\t" else " " for letter in text[:column])
                lines.append(f"  {' ' * len(number)} | {blank}^")
        return "\n".join(lines)


def cut(text: str, length: int = 400) -> str:
    """A text that a message has room for."""
    return text if len(text) <= length else f"{text[:length]}… ({len(text):,} characters)"


def _window(text: str, column: int | None) -> tuple[str, int | None]:
    """A line, or of a long one the part around a column, and where the column is in that."""
    start = max(0, (column or 0) - _LONG_LINE // 2)
    if len(text) <= _LONG_LINE:
        return text, column
    shown = text[start : start + _LONG_LINE]
    before, after = "…" if start else "", "…" if start + _LONG_LINE < len(text) else ""
    return f"{before}{shown}{after}", None if column is None else column - start + len(before)


def parse_log(log: str, line_of: Callable[[str, int], str]) -> tuple[Diagnostic, ...]:
    """What a log says, in its order, each thing once.

    Parameters
    ----------
    log : str
    line_of : callable
        Gives a line of a file by its name and number, or an empty text.
    """
    return tuple(dict.fromkeys(_parsed(log.splitlines(), line_of)))


def _parsed(lines: list[str], line_of: Callable[[str, int], str]) -> Iterator[Diagnostic]:
    for number, line in enumerate(lines):
        line = line.strip(" \0")
        if found := _COMPILER.fullmatch(line):
            file, at = found["file"], int(found["line"])
            column, printed = _caret(lines[number + 1 :])
            text = line_of(file, at) or printed
            severity = found["severity"].rpartition(" ")[2]
            if file != SOURCE_NAME and (user := _instantiated(lines[number + 1 :])):
                # An assertion in a header: the line that asked for the instance is the one to change.
                file, at, column = SOURCE_NAME, user, None
                text = line_of(file, at)
            yield with_caret(Diagnostic(severity, found["message"], file, at, column, text))
        elif found := _ASSEMBLER.fullmatch(line):
            if found["message"] != _ABORTED:
                severity = "warning" if found["severity"] == "warning" else "error"
                in_ptx = int(found["line"]) if found["line"] else None  # `in_statement` finds the source's
                yield Diagnostic(severity, found["message"], line=in_ptx, from_assembler=True)
        elif found := _PLACELESS.fullmatch(line):
            yield Diagnostic(found["severity"], found["message"].strip())


def _caret(following: list[str]) -> tuple[int | None, str]:
    """The column that NVRTC's own caret stands at, and the line above it as printed."""
    above, line = (*following[:2], "", "")[:2]
    if line.strip() == "^" and above.startswith(" " * _INDENT):
        return line.index("^") - _INDENT, above[_INDENT:]
    return None, ""


def _instantiated(following: list[str]) -> int | None:
    """The line of the source that a template was instantiated at, from the lines below an error."""
    for line in following:
        if found := _INSTANTIATED.search(line):
            return int(found[1])
        if not line.strip():
            return None
    return None


def with_caret(diagnostic: Diagnostic) -> Diagnostic:
    """The diagnostic with a column: the compiler's, or where a name of the message stands in the line."""
    if diagnostic.column is not None and diagnostic.column <= len(diagnostic.text):
        return diagnostic
    names = (*_QUOTED.findall(diagnostic.message), diagnostic.statement.partition(" ")[0])
    for name in names:
        token = name.strip(".")
        if token and (at := diagnostic.text.find(token)) >= 0:
            return replace(diagnostic, column=at)
    return replace(diagnostic, column=None)


def in_statement(
    diagnostic: Diagnostic,
    ptx: str,
    place_of: Callable[[int], tuple[str, int] | None],
    line_of: Callable[[str, int], str],
) -> Diagnostic:
    """An assembler's diagnostic with the PTX instruction that it is about and the place in the source it comes from."""
    lines = ptx.splitlines()
    at = diagnostic.line
    if not diagnostic.from_assembler or at is None or not 0 < at <= len(lines):
        return replace(diagnostic, line=None) if diagnostic.from_assembler else diagnostic
    placed = place_of(at)
    file, line = placed if placed else ("", None)
    found = replace(
        diagnostic, statement=_statement(lines[at - 1], diagnostic.message), file=file, line=line,
        text=line_of(file, line) if line else "",
    )
    return with_caret(found)


def _statement(line: str, message: str) -> str:
    """The statement that a message is about, of those in a line of PTX."""
    statements = [part.strip().lstrip("{} ") for part in line.strip().split(";")]
    names = [name.strip(".") for name in _QUOTED.findall(message)]
    for statement in statements:
        if any(name and name.split(".")[0] in statement for name in names):
            return statement
    return next(filter(None, statements), "")


def places(annotated: str, names: Callable[[str], str], outer: Iterable[str]) -> dict[int, tuple[str, int]]:
    """Where in the source each line of PTX comes from, read from the same PTX with line information.

    Parameters
    ----------
    annotated : str
        PTX compiled with ``-lineinfo``: the same lines with ``.loc`` between them.
    names : callable
        Gives a file's name as diagnostics have it, by its name in the PTX.
    outer : iterable of str
        Files whose lines are wanted. What was inlined from others has the place of the call.

    Returns
    -------
    dict
        By line of the PTX without ``.loc`` and ``.file`` lines, counted from 1.
    """
    files = {int(number): names(name) for number, name in _FILE.findall(annotated)}
    found: dict[int, tuple[str, int]] = {}
    callers: dict[tuple[int, int], tuple[int, int]] = {}
    at = 0
    place: tuple[int, int] | None = None
    for line in annotated.splitlines():
        if location := _LOCATION.match(line):
            place = int(location[1]), int(location[2])
            if location[3]:
                callers[place] = int(location[3]), int(location[4])
        elif not _FILE.match(line):
            at += 1
            if place is not None:
                outermost = _followed(place, callers, inner=lambda n: files.get(n, "") not in outer)
                found[at] = files.get(outermost[0], ""), outermost[1]
    return found


def _followed(
    place: tuple[int, int], callers: dict[tuple[int, int], tuple[int, int]], inner: Callable[[int], bool]
) -> tuple[int, int]:
    """The place, or while it is in an inner file the call that it was inlined at."""
    seen = {place}
    while inner(place[0]) and callers.get(place, place) not in seen:
        place = callers[place]
        seen.add(place)
    return place


def spills(log: str) -> dict[str, tuple[int, int]]:
    """Bytes of spill stores and of spill loads by function, from the assembler's report."""
    found: dict[str, tuple[int, int]] = {}
    name = ""
    for line in log.splitlines():
        if function := _FUNCTION.match(line):
            name = function[1]
        elif name and (numbers := _SPILL.search(line)):
            found[name] = int(numbers[1]), int(numbers[2])
            name = ""
    return found


def without_report(log: str) -> str:
    """A log without the assembler's report of resources."""
    return "\n".join(line for line in log.splitlines() if not _REPORT.match(line)).strip()


def errors_of(diagnostics: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    """Those that ended the compilation."""
    return tuple(d for d in diagnostics if d.is_error)
