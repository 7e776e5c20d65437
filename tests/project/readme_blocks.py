"""The fenced blocks of README.md and of the pages in docs, with what stands around them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
NEEDS_GPU = "needs a GPU"
VARIES = "varies from machine to machine"


@dataclass(frozen=True)
class Block:
    """One fenced block.

    Attributes
    ----------
    heading : str
        The heading it stands under.
    language : str
    text : str
    remark : str
        The HTML comment right above it, if there is one.
    line : int
        Of its first line in the file.
    """

    heading: str
    language: str
    text: str
    remark: str
    line: int


def blocks(page: Path = README) -> list[Block]:
    """Every fenced block of a page in order."""
    found: list[Block] = []
    heading, remark, language, body = "", "", None, []
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1):
        fence = re.fullmatch(r"```(\w*)", line)
        if language is not None:
            if fence:
                found.append(Block(heading, language, "\n".join(body) + "\n", remark, number - len(body)))
                language, body, remark = None, [], ""
            else:
                body.append(line)
        elif fence:
            language = fence[1]
        elif line.startswith("#"):
            heading = line.lstrip("# ")
        elif comment := re.fullmatch(r"<!-- (.*) -->", line):
            remark = comment[1]
        elif line.strip():
            remark = ""
    return found


def command_under(heading: str) -> str:
    """The one shell command under a heading."""
    (block,) = [block for block in blocks() if block.heading == heading and block.language == "bash"]
    return block.text


def snippets(page: Path = README) -> list[tuple[Block, str | None]]:
    """Every piece of Python of a page with what it prints, where that is shown."""
    found = blocks(page)
    return [
        (block, following.text if following is not None and following.language == "text" else None)
        for block, following in zip(found, (*found[1:], None), strict=False)
        if block.language == "python"
    ]


def consoles(page: Path = README) -> list[Block]:
    """The blocks of commands with what they print, but for what varies from machine to machine."""
    return [block for block in blocks(page) if block.language == "console" and block.remark != VARIES]


def _commands(block: Block) -> list[tuple[str, str]]:
    """Each command of a console block with what it prints; a command may go on behind a backslash, or to a mark."""
    found = []
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        lines = part.splitlines(keepends=True)
        mark = re.search(r"<<'(\w+)'$", lines[0])
        last = f"{mark[1]}\n" if mark else None
        end = 1 + next(i for i, line in enumerate(lines) if (line == last if mark else not line.endswith("\\\n")))
        found.append(("".join(lines[:end]), "".join(lines[end:])))
    return found


def assert_console_prints_what_is_shown(page: Path, folder: Path) -> None:
    """Run the commands of a page in a folder, in a terminal of 80 columns."""
    prelude = f'cupytma() {{ "{sys.executable}" -m cupytma "$@"; }}\n'
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "COLUMNS": "80", "PYTHONPATH": path}
    checked = 0
    for block in consoles(page):
        for command, shown in _commands(block):
            result = subprocess.run(
                ["bash", "-c", prelude + command], cwd=folder, env=environment, text=True,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
            )  # fmt: skip
            assert result.stdout == shown, f"{page.name}, line {block.line}: {command}"
            checked += 1
    assert checked
