"""The fenced blocks of README.md and of the pages in docs, with what stands around them."""

from __future__ import annotations

import re
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
        for block, following in zip(found, [*found[1:], None], strict=True)
        if block.language == "python"
    ]
