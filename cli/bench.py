"""``cupytma bench``: how fast the operations are on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from .failures import Failure
from .options import Within, suggested
from .output import show, show_json, show_rows
from .progress import progress_bar

if TYPE_CHECKING:
    from cupytma.ops.benchmark import Case, Measurement, Skipped


def _names() -> list[str]:
    from cupytma.ops.benchmark_cases import CASES

    return sorted({name for case in CASES for name in case.names})


@click.command(
    epilog="\b\nExamples:\n"
    "  cupytma bench --only copy,transpose\n"
    "  cupytma bench --only small --repeats 50 --json\n"
    "  cupytma bench --list"
)
@click.option(
    "--only", metavar="NAMES", multiple=True, shell_complete=suggested(_names),
    help="Cases, operations or groups, with commas between them.",
)
@click.option(
    "--repeats", type=Within(1, 10_000), default=15, show_default=True, help="Of each call; the median counts."
)
@click.option(
    "--scale", type=click.Choice(["1", "2", "4", "8", "16", "32"]), metavar="N",
    help="Divide extents by 1, 2, 4, 8, 16 or 32; by default as little as fits the GPU's memory.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--list", "lists", is_flag=True, help="Only list the cases; needs no GPU.")
def bench(only: tuple[str, ...], repeats: int, scale: str | None, as_json: bool, lists: bool) -> None:
    """Measure the operations on this machine's GPU, beside torch and CuPy where they can do the same.

    Large cases are timed on the GPU, small ones from the call until the GPU has done it, launches on the host alone.
    Bytes are those read and written. "of copy" is the part of the bytes a second that CUDA's own copy within the
    device reaches in the same run.
    """
    from cupytma.ops import benchmark
    from cupytma.ops.benchmark_cases import CASES

    names = [name.strip() for given in only for name in given.split(",") if name.strip()]
    for name in names:
        if not any(name in case.names for case in CASES):
            others = sorted({short for case in CASES for short in case.names - {case.name}})
            raise Failure(f"there is no case {name!r}: see `cupytma bench --list`, or name one of {', '.join(others)}")
    cases = benchmark.chosen(CASES, names)
    if lists:
        _list(cases, as_json)
        return
    from cupytma.runtime.compiler import current_target

    target = str(current_target())  # complains of a missing GPU
    divisor = int(scale) if scale else benchmark.fitting_scale(cases, benchmark.free_memory())
    order = {case.name: 1 + i for i, case in enumerate(cases)}
    with progress_bar(1 + len(cases), "a plain copy") as report:
        found = list(benchmark.run(cases, divisor, repeats, lambda case: report(order[case.name], case.name)))
    about = {"device": _device_name(), "target": target, "scale": divisor, "repeats": repeats}
    if as_json:
        show_json({**about, "cases": [_facts(one) for one in found]})
    else:
        _show(about, found)


def _list(cases: Sequence[Case], as_json: bool) -> None:
    if as_json:
        show_json([{"name": c.name, "group": c.group, "description": c.description} for c in cases])
    else:
        show_rows(("case", "group", "what"), [(case.name, case.group, case.description) for case in cases])


def _device_name() -> str:
    from cupytma.runtime.device import cupy

    runtime = cupy().cuda.runtime
    return str(runtime.getDeviceProperties(runtime.getDevice())["name"].decode())


def _show(about: dict[str, Any], found: Sequence[Measurement | Skipped]) -> None:
    from cupytma.ops.benchmark import CUDA, CUPY, TORCH, Measurement

    measured = [one for one in found if isinstance(one, Measurement)]
    others = [name for name in (TORCH, CUPY, CUDA) if any(name in one.others for one in measured)]
    title = f"{about['device']}, {about['target']}: medians of {about['repeats']}"
    show(title + (f", extents divided by {about['scale']}" if about["scale"] != 1 else ""), style="bold")
    headings = ("case", "bytes", "µs", "GB/s", "of copy", *others)
    if measured:
        show_rows(headings, [_row(one, others) for one in measured], right=headings[1:])
        show(f"A plain copy reaches {measured[0].copy_rate / 1e9:,.0f} GB/s, read plus written.")
    if others:
        show(f"{', '.join(others)}: their time over ours.")
    if measured and TORCH not in others:
        show("torch is not installed here, or sees no GPU: it is left out.")
    for one in found:
        if not isinstance(one, Measurement):
            show(f"{one.case.name} was left out: {one.reason}", style="yellow")


def _row(one: Measurement, others: Sequence[str]) -> tuple[str, ...]:
    moved = (f"{one.bytes:,}", f"{one.rate / 1e9:,.1f}", f"{one.of_copy:.3f}") if one.bytes else ("", "", "")
    beside = ("" if (times := one.times(name)) is None else f"{times:.2f} ×" for name in others)
    return (one.case.name, moved[0], f"{1e6 * one.seconds:,.2f}", *moved[1:], *beside)


def _facts(one: Measurement | Skipped) -> dict[str, Any]:
    from cupytma.ops.benchmark import Measurement

    facts: dict[str, Any] = {"name": one.case.name, "group": one.case.group, "timing": one.case.timing}
    if not isinstance(one, Measurement):
        return {**facts, "skipped": one.reason}
    return {
        **facts, "title": one.title, "bytes": one.bytes, "seconds": one.seconds, "bytes_per_second": one.rate,
        "of_copy": one.of_copy, "copy_bytes_per_second": one.copy_rate, "other_seconds": one.others,
    }  # fmt: skip
