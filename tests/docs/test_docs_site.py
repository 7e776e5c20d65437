"""The site: it is built without a warning, every link in it leads somewhere, and it has every row of the tables."""

from __future__ import annotations

import os
import posixpath
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from urllib.parse import unquote, urlsplit

import pytest

import cupytma
from cupytma import check, ptx
from cupytma.cli.application import COMMANDS
from cupytma.help import topics
from cupytma.targets import TARGETS
from cupytma.tensormap import FIELDS

for needed in ("mkdocs", "material", "mkdocstrings"):
    pytest.importorskip(needed, reason="pip install 'cupytma[docs]'")

ROOT = Path(__file__).resolve().parents[2]
LONGEST = 60  # seconds of the processor: the clock would measure the tests beside this one too


class Page(HTMLParser):
    """What a page links to, and what can be linked to in it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = {""}
        self.texts: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))
        self.text = "".join(self.texts)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.anchors.update(filter(None, (given.get("id"), given.get("name") if tag == "a" else None)))
        self.links += [value for name in ("href", "src") if (value := given.get(name)) is not None]

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    began = os.times()
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert built.returncode == 0, built.stdout + built.stderr
    assert "WARNING" not in built.stderr
    took = os.times()
    assert took.children_user + took.children_system - began.children_user - began.children_system < LONGEST
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[str, Page]:
    return {path.relative_to(site).as_posix(): Page(path) for path in site.rglob("*.html")}


def test_every_link_leads_to_a_page_and_an_anchor(site: Path, pages: dict[str, Page]) -> None:
    broken = []
    for name, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc or name == "404.html":
                continue
            path = posixpath.join(posixpath.dirname(name), unquote(parts.path)) if parts.path else name
            target = posixpath.normpath(path)
            target = "index.html" if target == "." else target
            anchors = pages[target].anchors if target in pages else {parts.fragment}
            if not (site / target).exists() or unquote(parts.fragment) not in anchors:
                broken.append(f"{name}: {link}")
    assert not broken, "\n".join(broken)
    assert sum(len(page.links) for page in pages.values()) > 1000


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    for path in site.rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        for start in ('<script src="http', '<link rel="stylesheet" href="http', '<img src="http', "fonts.googleapis"):
            assert start not in text, path


def test_pictures_stand_in_their_pages_and_not_in_the_search(site: Path) -> None:
    drawn = {path.stem: path.read_text(encoding="utf-8") for path in (ROOT / "docs" / "images").glob("*.svg")}
    everything = "".join(path.read_text(encoding="utf-8") for path in site.rglob("*.html"))
    assert not re.search(r"<img[^>]*\.svg", everything)
    for name, svg in drawn.items():
        shapes = svg.partition(">")[2].strip()
        assert shapes in everything, name
    assert 'aria-label="The 128B swizzle: each chunk' in everything
    index = (site / "search" / "search_index.json").read_text(encoding="utf-8")
    assert "nothing, all bits 0" not in index


def test_every_topic_has_its_place(pages: dict[str, Page]) -> None:
    anchors = {anchor for name, page in pages.items() if name.startswith("reference/") for anchor in page.anchors}
    for topic in topics():
        if topic.kind == "how-to":
            assert topic.title in pages[f"how-to/{topic.id}.html"].text
        else:
            assert topic.id in anchors


def test_ids_in_text_are_links(pages: dict[str, Page]) -> None:
    assert "../reference/tensor-map-rules.html#start-inner-multiple" in pages["how-to/illegal-instruction.html"].links
    assert "../how-to/illegal-instruction.html" in pages["reference/tensor-map-rules.html"].links


def test_tables_are_there_whole(pages: dict[str, Page]) -> None:
    bits, findings = pages["reference/bit-fields.html"].text, pages["reference/checker-findings.html"].text
    for field in FIELDS:
        assert f"{field.bits}\n{field.label}" in bits
    for rule in check.RULES.values():
        assert rule.title in findings
    for name in TARGETS:
        assert name in pages["reference/targets.html"].text
    instructions = "".join(page.text for name, page in pages.items() if name.startswith("reference/instructions/"))
    for form in ptx.catalogue():
        assert f"\n{form.mnemonic}\n{form.function_name}\n" in instructions


def test_every_command_is_described(pages: dict[str, Page]) -> None:
    for name, (_, summary) in COMMANDS.items():
        assert f"cupytma-{name}" in pages["reference/command-line.html"].anchors
        assert summary


def test_every_public_name_is_described(pages: dict[str, Page]) -> None:
    text = pages["api/index.html"].text
    rooms = {name for name in cupytma.__all__ if isinstance(getattr(cupytma, name), ModuleType)}
    assert rooms >= {"check", "ops", "ptx", "sim"}
    for name in set(cupytma.__all__) - rooms - {"__version__"}:
        assert f"\n{name}\n" in text
    for room in rooms:
        assert f"cupytma.{room}\n" in text


@pytest.mark.parametrize(
    ("page", "anchor"),
    [
        ("api/tensormap.html", "cupytma.tensormap.parameters.Tiled"),
        ("api/tensormap.html", "cupytma.tensormap.parameters.Parameters.violations"),
        ("api/ops.html", "cupytma.ops.rows.gather_rows"),
        ("api/sim.html", "cupytma.sim.unit.load"),
        ("api/runtime.html", "cupytma.runtime.faults.explain_fault"),
    ],
)
def test_docstrings_are_on_their_page(page: str, anchor: str, pages: dict[str, Page]) -> None:
    assert anchor in pages[page].anchors


def test_every_public_object_has_a_text(site: Path) -> None:
    silent = []
    for path in (site / "api").glob("*.html"):
        described = path.read_text(encoding="utf-8").partition("<footer")[0]
        for part in described.split('<h2 id="cupytma.')[1:]:
            if "<p>" not in part:
                silent.append(f"{path.name}: {part.partition(chr(34))[0]}")
    assert not silent, "\n".join(silent)


def test_functions_that_are_made_have_their_signatures(pages: dict[str, Page]) -> None:
    text = pages["api/ops.html"].text
    for name in ("reduce_add", "broadcast_max"):
        assert f"{name}(\n" in text
    assert "element by element" in text
