"""``cupytma record``: what this machine's GPU does, held against the simulator."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import click

from cupytma.words import counted

from .failures import Failure
from .options import Within
from .output import paragraph, show, show_json, show_rows
from .progress import progress_bar

if TYPE_CHECKING:
    from cupytma.record import Disagreement, Recording

_SHOWN = 10


@click.command(
    epilog="\b\nExamples:\n"
    "  cupytma record --cases 2000 --output b200.npz\n"
    "  cupytma record --check b200.npz\n"
    "  cupytma record --check b200.npz --json"
)
@click.option("--cases", type=Within(0, 100_000), default=500, show_default=True, help="Random copies.")
@click.option(
    "--faults", type=Within(0, 1000), default=12, show_default=True,
    help="Copies that should kill the kernel, each in a process of its own.",
)
@click.option("--seed", type=Within(0, 2**62), help="Of the copies and of memory; by default a new one.")
@click.option(
    "--output", "-o", type=click.Path(dir_okay=False, writable=True), default="recording.npz", show_default=True,
    help="The file to write.",
)
@click.option(
    "--check", type=click.Path(exists=True, dir_okay=False), metavar="FILE",
    help="Hold a recording against the simulator instead; needs no GPU.",
)
@click.option("--json", "as_json", is_flag=True, help="Print what was found as JSON.")
def record(cases: int, faults: int, seed: int | None, output: str, check: str | None, as_json: bool) -> None:
    """Record what this machine's GPU does with random tensor copies.

    Loads, stores and reductions through random tensor maps run on the GPU, one by one, and their bytes and transaction
    counts go to a file with the names of the card, its driver and CUDA. Then the simulator does the same, and every
    difference is printed: the exit code is 0 if there is none and 1 if there is one.

    On GPUs newer than Hopper the copies include modes and types that the simulator knows from documents alone.

    A recording of a GPU that the simulator has not been measured against is worth sending to its authors.
    """
    from cupytma import record as recorder

    if check is not None:
        recording = recorder.read(check)
    else:
        chosen = int.from_bytes(os.urandom(4), "little") if seed is None else seed
        if not os.path.isdir(os.path.dirname(output) or "."):
            raise Failure(f"cannot write {output!r}: there is no such folder")
        recording = _recorded(cases, faults, chosen)
        try:
            recording.save(output)
        except OSError as error:
            raise Failure(f"cannot write {output!r}: {error.strerror or error}") from None
    wrong = list(recorder.disagreements(recording))
    facts = _facts(recording, wrong, output if check is None else check)
    if as_json:
        show_json(facts)
    else:
        _show_summary(facts, wrong)
        if check is None:
            show(f"written to {output}")
    sys.exit(1 if wrong else 0)


def _recorded(cases: int, faults: int, seed: int) -> Recording:
    from cupytma.record import record_random
    from cupytma.runtime.compiler import current_target

    current_target()  # complain of a missing GPU before there is a bar
    with progress_bar(cases + faults, "copies") as report:
        return record_random(cases, faults, seed, progress=lambda done, _: report(done, "copies"))


def _facts(recording: Recording, wrong: list[Disagreement], file: str) -> dict[str, Any]:
    from cupytma.record.prediction import undescribed
    from cupytma.record.recording import DIED, KINDS

    kinds = {}
    for kind, (name, *_) in enumerate(KINDS):
        numbers = [i for i, case in enumerate(recording.cases) if case.kind == kind]
        died = sum(recording.observations[i].outcome == DIED for i in numbers)
        if numbers:
            kinds[name] = {"copies": len(numbers), "died": died, "differ": sum(one.case.kind == kind for one in wrong)}
    return {
        "file": file,
        "about": {name: value for name, value in recording.about.items() if name != "counted"},
        "seed": recording.seed,
        "copies": len(recording.cases),
        "kinds": kinds,
        "not_compared": len(undescribed(recording)),
        "differences": [{"case": w.number, "difference": w.difference, "copy": str(w.case)} for w in wrong],
    }


def _show_summary(facts: dict[str, Any], wrong: list[Disagreement]) -> None:
    show_rows(("", ""), [*facts["about"].items(), ("seed", str(facts["seed"]))])
    headings = ("copies", "died", "differ")
    rows = [(f"{kind}s", *(str(counts[name]) for name in headings)) for kind, counts in facts["kinds"].items()]
    show_rows(("", *headings), rows, right=headings)
    if facts["not_compared"]:
        silent = "of them are such as no document describes; they are recorded and not compared"
        show(paragraph(f"{facts['not_compared']} {silent}"))
    for one in wrong[:_SHOWN]:
        show(paragraph(str(one)), style="red")
    if len(wrong) > _SHOWN:
        show(f"… and {len(wrong) - _SHOWN} more")
    show("hardware and simulator agree" if not wrong else f"{len(wrong)} of {counted(facts['copies'], 'copy')} differ")
