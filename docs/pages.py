"""The pages of the site that are not written by hand: MkDocs calls the functions named on_… as it builds.

What stands in a table of the package is read from there, so that a page cannot say something else.
"""

from __future__ import annotations

import posixpath
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
for folder in (ROOT, ROOT / "docs"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

import api_pages  # noqa: E402
import instruction_pages  # noqa: E402
import reference_pages  # noqa: E402
from mkdocs.config.defaults import MkDocsConfig  # noqa: E402
from mkdocs.structure.files import File, Files  # noqa: E402
from mkdocs.structure.pages import Page  # noqa: E402

from cupytma.help import Topic, topics  # noqa: E402

_HOW_TO_INDEX = """\
# How-tos

What goes wrong, why, and what to do. `cupytma help ID` prints the same texts in a terminal, with no network: errors end
with the line that says which.

"""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the generated pages into the navigation."""
    generated = {
        "HOW_TOS": ["how-to/index.md", *({_short(t): f"how-to/{t.id}.md"} for t in _how_tos())],
        "INSTRUCTIONS": instruction_pages.navigation(),
        "API": api_pages.navigation(),
    }

    def filled(entry: Any) -> Any:
        if isinstance(entry, list):
            return [filled(part) for part in entry]
        if isinstance(entry, dict):
            return {title: filled(part) for title, part in entry.items()}
        return generated.get(entry, entry)

    config.nav = filled(config.nav)
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    for path, text in pages().items():
        files.append(File.generated(config, path, content=text))
    for notebook in sorted((ROOT / "notebooks").glob("*.ipynb")):
        files.append(File.generated(config, f"notebooks/{notebook.name}", abs_src_path=str(notebook)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Fill in sections of README.md, and let ids in backticks lead to where they are explained."""
    markdown = _FROM_README.sub(lambda match: _section_of_readme(match[1]), markdown)
    return linked(markdown, page.file.src_uri)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let names of the package in code lead to the API reference, and put pictures into the page."""
    return _PICTURE.sub(_drawn, api_pages.linked(html, page.file.src_uri))


_PICTURE = re.compile(r'<img alt="([^"]*)" src="(?:\.\./)*(images/[^"]+\.svg)" */?>')


def _drawn(match: re.Match[str]) -> str:
    """The picture itself, which has the page's colours; an image of it would have a ground of its own."""
    svg = (ROOT / "docs" / match[2]).read_text(encoding="utf-8").strip()
    # What is written in it is no text of the page that would be searched for.
    return svg.replace("<svg ", f'<svg aria-label="{match[1]}" data-search-exclude ', 1)


def pages() -> dict[str, str]:
    """Every generated page: its path below docs, and its Markdown."""
    how_tos = {f"how-to/{topic.id}.md": f"# {topic.title}\n\n{topic.text}" for topic in _how_tos()}
    rows = "\n".join(f"- [{topic.title}]({topic.id}.md): `cupytma help {topic.id}`" for topic in _how_tos())
    return {
        "index.md": _home(),
        "contributing.md": _of_root("CONTRIBUTING.md"),
        "changelog.md": _of_root("CHANGELOG.md"),
        "licence.md": "# Licence\n\n```text\n" + (ROOT / "LICENSE").read_text(encoding="utf-8") + "```\n",
        "notebooks/index.md": (ROOT / "notebooks" / "README.md").read_text(encoding="utf-8"),
        "how-to/index.md": _HOW_TO_INDEX + rows + "\n",
        **how_tos,
        **reference_pages.pages(),
        **instruction_pages.pages(),
        **api_pages.pages(),
    }


def _how_tos() -> list[Topic]:
    return [topic for topic in topics() if topic.kind == "how-to"]


def _short(topic: Topic) -> str:
    return topic.title.partition(",")[0].rstrip("?")


def _of_root(name: str) -> str:
    """A page that stands beside README.md, with its links as seen from docs."""
    text = (ROOT / name).read_text(encoding="utf-8")
    text = re.sub(r"\]\(docs/", "](", text).replace("](notebooks/README.md)", "](notebooks/index.md)")
    for file, page in (("CONTRIBUTING", "contributing"), ("CHANGELOG", "changelog"), ("README", "index")):
        text = text.replace(f"]({file}.md", f"]({page}.md")
    return text.replace("](LICENSE)", "](licence.md)")


def _home() -> str:
    return re.sub(r'(src|srcset)="docs/', r'\1="', _of_root("README.md"))


_FROM_README = re.compile(r"^<!-- README\.md: (.+) -->$", re.MULTILINE)


def _section_of_readme(heading: str) -> str:
    """What stands under a heading of README.md, without its links, which would lead back."""
    text = (ROOT / "README.md").read_text(encoding="utf-8").partition(f"## {heading}\n")[2]
    if not text:
        raise KeyError(f"README.md has no heading {heading!r}")
    return re.sub(r"; \[more\]\([^)]+\)", "", re.split(r"^## ", text, flags=re.MULTILINE)[0]).strip()


@cache
def places() -> dict[str, str]:
    """Where each id is explained: a path below docs, with an anchor; how-tos come before tables."""
    found: dict[str, str] = {}
    for topic in topics():
        is_how_to = topic.kind == "how-to"
        found.setdefault(
            topic.id, f"how-to/{topic.id}.md" if is_how_to else f"{reference_pages.PAGE_OF[topic.kind]}#{topic.id}"
        )
    return found


# A code span outside of links. Ids of one word, such as `rank`, are also names of parameters, and stay as they are.
_SPAN = re.compile(r"(?<![\[`])`([a-z0-9]+(?:-[a-z0-9]+)+)`(?![\]`])")


def linked(markdown: str, path: str) -> str:
    """Markdown in which ids in backticks are links, seen from a page."""
    known = places()

    def link(match: re.Match[str]) -> str:
        place = known.get(match[1])
        if place is None or place.partition("#")[0] == path:
            return match[0] if place is None or "#" not in place else f"[{match[0]}](#{match[1]})"
        return f"[{match[0]}]({posixpath.relpath(place, posixpath.dirname(path) or '.')})"

    return "\n".join(_outside_code(markdown, lambda line: _SPAN.sub(link, line)))


def _outside_code(markdown: str, change: Any) -> Iterator[str]:
    in_code = False
    for line in markdown.split("\n"):
        fence = line.lstrip().startswith("```")
        in_code ^= fence
        yield line if in_code or fence or line.startswith("#") else change(line)
