"""``cupytma doctor``: what is installed, what works, and what to do about the rest."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from cupytma.words import counted

from .cache import spoken_size
from .output import paragraph, show, show_json, show_rows, text_width, wrapped

if TYPE_CHECKING:
    from cupytma.runtime.environment import Environment

_SHOWN_DEVICES = 4


@click.command(epilog="Example:  cupytma doctor --json")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def doctor(as_json: bool) -> None:
    """Say what is installed here, what works, and how to get what is missing.

    The exit code is 0 if descriptors, the simulator and the compiler work, which need no GPU, and 1 if one of them does
    not.
    """
    from cupytma.runtime import environment

    found = environment.look()
    missing, problems = environment.missing_headers(found), environment.problems(found)
    if as_json:
        facts = {**asdict(found), "cuda": found.cuda, "problems": problems, "missing_headers": dict(missing)}
        show_json(facts)
    else:
        _show(found, missing, problems)
    works = {ability.name: ability.works for ability in found.abilities}
    sys.exit(0 if all(works[name] for name in environment.WITHOUT_GPU) else 1)


def _show(found: Environment, missing: list[tuple[str, str]], problems: list[str]) -> None:
    from cupytma.version import __version__

    show(f"cupytma {__version__}", style="bold")
    show_rows(("", ""), _facts(found, missing))
    show("What works", style="bold cyan")
    for ability in found.abilities:
        mark, style = ("yes", "green") if ability.works else ("no ", "bold red")
        show(paragraph(f"{mark}  {ability.name:<12} {ability.detail}", 2, 18), style=style)
    steps = [(f"{a.name}:", a.fix) for a in found.abilities if a.fix] + [(f"{what}:", how) for what, how in missing]
    if steps or problems:
        show("What to do", style="bold cyan")
        if problems:
            show(*(paragraph(problem, 2, 2) for problem in problems))
        _show_steps(steps)


def _show_steps(steps: list[tuple[str, str]]) -> None:
    """What to do about each thing, below its name where there is no room beside it: commands stay whole."""
    if max((len(label) for label, _ in steps), default=0) + max((len(how) for _, how in steps), default=0) + 4 <= (
        text_width()
    ):
        show_rows(("", ""), steps)
        return
    for label, how in steps:
        show(f"  {label}", wrapped(how, text_width(), " " * 4, " " * 4, whole=True))


def _facts(found: Environment, missing: list[tuple[str, str]]) -> list[tuple[str, str]]:
    driver = found.driver_problem or "found"
    if found.driver_cuda is not None:
        release = f" {found.driver_release}" if found.driver_release else ""
        driver = f"release{release} for CUDA {_spoken(found.driver_cuda)}".replace("release for", "for")
    devices = [
        f"{d.name}, compute capability {_spoken(d.compute_capability)}, {spoken_size(d.memory)}" for d in found.devices
    ]
    if len(devices) > _SHOWN_DEVICES:
        devices[_SHOWN_DEVICES:] = [f"and {len(devices) - _SHOWN_DEVICES} more"]
    compiler = found.nvrtc_problem
    if found.nvrtc_version is not None:
        compiler = f"{_spoken(found.nvrtc_version)}, {_shortened(found.nvrtc_path)}"
    packages = [f"{n} {v}" for n, v in found.packages.items() if n.startswith(("cupy", "cuda-bindings", "cuda-python"))]
    entries = counted(found.cache.entries, "entry")
    kept = f"{_shortened(found.cache.folder, 44)}, {entries}, {spoken_size(found.cache.size)}"
    return [
        ("Python", f"{sys.version.split()[0]}, {_shortened(sys.executable)}"),
        ("driver", driver),
        *((f"device {number}" if number < _SHOWN_DEVICES else "", device) for number, device in enumerate(devices)),
        ("NVRTC", compiler),
        ("targets", ", ".join(found.targets) or "none"),
        ("packages", ", ".join(packages) or "neither CuPy nor cuda-python"),
        ("headers", "\n".join(map(_shortened, found.header_folders)) or "none of the toolkit's, only cupytma.cuh"),
        ("cache", f"off: {found.cache.why_off}" if found.cache.why_off else kept),
    ]


def _shortened(path: str, beside: int = 20) -> str:
    """A path that fits beside so many columns: its end tells more than its beginning. JSON has it whole."""
    room = text_width() - beside
    return path if len(path) <= room else f"…{path[1 - room:]}"


def _spoken(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"
