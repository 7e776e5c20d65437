"""``cupytma cache``: the compiled kernels and the measurements kept on disk."""

from __future__ import annotations

import os
from dataclasses import asdict

import click

from cupytma.words import counted

from .output import show, show_json, show_rows


@click.group(epilog="\b\nExamples:\n  cupytma cache info\n  cupytma cache clear")
def cache() -> None:
    """Show or clear the compiled kernels kept on disk, and what matmul.autotune has measured.

    CUPYTMA_CACHE_DIR names another folder, and empty turns the cache off; CUPYTMA_CACHE_SIZE is the most that all
    entries may take, such as 500M, by default 1 GiB. Those that were not used for longest go first.
    """


@cache.command(epilog="Example:  cupytma cache info --json")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def info(as_json: bool) -> None:
    """Show where the cache is, how much it holds and how much it may."""
    from cupytma.runtime import cache as kept

    found = kept.info()
    problem = _problem(found.folder)
    if as_json:
        show_json({**asdict(found), "problem": problem})
        return
    rows = [
        ("folder", found.folder or "none"),
        ("entries", f"{found.entries:,}"),
        ("size", spoken_size(found.size)),
        ("limit", spoken_size(found.limit)),
    ]
    more = (("off", found.why_off), ("problem", problem))
    show_rows(("", ""), [*rows, *((name, text) for name, text in more if text)])


@cache.command(epilog="Example:  cupytma cache clear")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def clear(as_json: bool) -> None:
    """Remove every compiled kernel and measurement from the cache. Other files in the folder stay."""
    from cupytma.runtime import cache as kept

    before, after = kept.clear(), kept.info()
    removed = before.entries - after.entries
    if as_json:
        show_json({"folder": before.folder, "removed": removed, "size": before.size - after.size})
    elif before.why_off and not before.folder:
        show(f"there is no cache: {before.why_off}")
    else:
        entries = counted(removed, "entry", spec=",")
        show(f"removed {entries}, {spoken_size(before.size - after.size)}, from {before.folder}")


def _problem(folder: str) -> str:
    """Why nothing can be kept in a folder, and what to do; empty where it can, or where there is none."""
    way_out = "CUPYTMA_CACHE_DIR names another folder"
    if not folder or not os.path.lexists(folder):
        return ""
    if not os.path.isdir(folder):
        return f"this is no folder; {way_out}"
    return "" if os.access(folder, os.W_OK | os.X_OK) else f"nothing can be written into this folder; {way_out}"


def spoken_size(size: int) -> str:
    """Bytes as people say them."""
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= factor:
            return f"{size / factor:.1f} {unit}".replace(".0 ", " ")
    return f"{size} B"
