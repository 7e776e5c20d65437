"""Broken variants of correct kernels: one synchronisation step of the PTX removed or changed at a time.

Run as a script, it prints how many of them the checker finds in the package's own kernels, and lists those that it does
not: ``python tests/check/mutants.py [sm_90a …]``.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import cupytma as tma
from cupytma import check
from cupytma.ops.transposition import SHAPES


class Mutation(NamedTuple):
    """A way to break a line: its name, what the line is like, and what comes in its place."""

    name: str
    pattern: re.Pattern[str]
    replacement: str


def _mutation(name: str, pattern: str, replacement: str = "") -> Mutation:
    return Mutation(name, re.compile(pattern), replacement)


MUTATIONS = (
    _mutation("no proxy fence", r"^\s*fence\.proxy\.async[^;]*;"),
    _mutation("no init fence", r"^\s*fence\.mbarrier_init[^;]*;"),
    _mutation("no barrier", r"^\s*(?:bar|barrier)\.(?:cta\.)?sync\b[^;]*;"),
    _mutation("no initialisation", r"^\s*mbarrier\.init\b[^;]*;"),
    _mutation("no arrival", r"^\s*mbarrier\.arrive\.(?!expect_tx)[^;]*;"),
    _mutation("no expectation", r"^\s*mbarrier\.arrive\.expect_tx[^;]*;"),
    _mutation("no commit", r"^\s*cp\.async\.bulk\.commit_group[^;]*;"),
    _mutation("no wait for groups", r"^\s*cp\.async\.bulk\.wait_group[^;]*;"),
    _mutation("more groups left pending", r"(cp\.async\.bulk\.wait_group(?:\.read)?) \d", r"\1 7"),
    _mutation("wait for the other groups", r"cp\.async\.bulk\.wait_group(?:\.read)? (\d)", r"cp.async.wait_group \1"),
    _mutation(
        "no wait for a phase", r"mbarrier\.(?:try|test)_wait\.parity[\w.:]* (\w+), \[[^]]*\], %?\w+",
        r"setp.eq.u32 \1, 0, 0",
    ),
    _mutation(
        "one parity alone", r"(mbarrier\.(?:try|test)_wait\.parity[\w.:]* \w+, \[[^]]*\], )%\w+", r"\g<1>1"
    ),
    _mutation("fewer bytes expected", r"(mbarrier\.arrive\.expect_tx[\w.:]* _, \[[^]]*\], )%?\w+", r"\g<1>1040"),
    _mutation("every lane elected", r"elect\.sync _\|(\w+), %?\w+", r"setp.eq.u32 \1, 0, 0"),
    _mutation("no copy of the map", r"^\s*tensormap\.cp_fenceproxy[^;]*;"),
    _mutation("map not acquired", r"^\s*fence\.proxy\.tensormap::generic\.acquire[^;]*;"),
    _mutation("tile moved by 16 bytes", r"(cp\.async\.bulk\.tensor[^[]*shared::c\w+\.global[^[]*\[%?\w+)\]", r"\1+16]"),
)  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """A broken kernel.

    Attributes
    ----------
    kernel : str
    mutation : str
    line : int
        Of the PTX that was changed, from 1, within the kernel's own text.
    original : str
        The line as it was.
    ptx : str
    """

    kernel: str
    mutation: str
    line: int
    original: str
    ptx: str

    @property
    def findings(self) -> tuple[check.Finding, ...]:
        """What the checker says of it."""
        return check.check_ptx(self.ptx, maps_of(self.kernel))


def maps_of(kernel: str) -> dict[int | str, tma.Tiled]:
    """Tensor maps as a kernel is given them: what matters is how many bytes their boxes have."""
    source = kernel.partition(":")[0]
    if source.startswith("transpose"):
        element_bytes = int(source.split("_")[1])
        rows = SHAPES[element_bytes].square_rows * 128 // element_bytes
        return {0: _map(rows)}
    if source == "transports":
        return {0: _map(32), 1: _map(32), "constant_map": _map(32)}
    return {0: _map(64)}


def _map(rows: int) -> tma.Tiled:
    return tma.Tiled(
        data_type="UINT8", global_address=0, global_dim=(1024, 1024), global_strides=(1024,), box_dim=(128, rows)
    )


_ENTRY = re.compile(r"^\s*(?:\.visible|\.weak)?\s*\.entry\s+([\w$]+)", re.MULTILINE)


def kernels_of(ptx: str) -> dict[str, str]:
    """Each kernel of a module alone, with all that is no kernel."""
    starts = list(_ENTRY.finditer(ptx))
    found = {}
    for start in starts:
        end = re.compile(r"^}", re.MULTILINE).search(ptx, start.end())
        if end is None:
            continue
        others = ptx
        for other in reversed(starts):
            if other is not start:
                stop = re.compile(r"^}", re.MULTILINE).search(ptx, other.end())
                assert stop is not None
                others = others[: other.start()] + others[stop.end() :]
        found[start[1]] = others
    return found


def mutants(name: str, ptx: str) -> Iterator[Mutant]:
    """Every mutant of one kernel, each with one line changed."""
    lines = ptx.split("\n")
    entry = next(number for number, line in enumerate(lines) if _ENTRY.match(line))
    for number in range(entry, len(lines)):
        for mutation in MUTATIONS:
            changed = mutation.pattern.sub(mutation.replacement, lines[number], count=1)
            if changed != lines[number]:
                text = "\n".join([*lines[:number], changed, *lines[number + 1 :]])
                yield Mutant(name, mutation.name, number + 1, lines[number].strip(), text)


#: The kernels that are broken, and for each source which of its kernels.
CHOSEN = {
    "copy": r"tile_copy_2d", "transpose_1_2d": r".*", "transpose_4_3d": r".*", "transpose_16_2d": r".*",
    "reduce_add_FLOAT32": r"tile_reduce_2d", "rows": r"gather_rows|scatter_rows", "rows_add": r"scatter_add_rows",
    "im2col": r"im2col_2d", "col2im": r"col2im_2d", "transports": r".*",
}  # fmt: skip


def all_mutants(target: str) -> Iterator[Mutant]:
    """The mutants of the package's own kernels."""
    from own_kernels import own_ptx

    sources = own_ptx(target)
    for name, pattern in CHOSEN.items():
        for kernel, text in kernels_of(sources[name]).items():
            if re.fullmatch(pattern, kernel):
                yield from mutants(f"{name}:{kernel}", text)


def main() -> None:
    """Print how many mutants are found, for each target."""
    for target in sys.argv[1:] or ("sm_90a", "sm_100a"):
        found = [(mutant, mutant.findings) for mutant in all_mutants(target)]
        caught = [mutant for mutant, findings in found if findings]
        print(f"{target}: {len(caught)} of {len(found)} mutants found, {len(caught) / len(found):.1%}")
        for mutant, findings in found:
            if not findings:
                print(f"    not found: {mutant.mutation} in {mutant.kernel}, line {mutant.line}: {mutant.original}")


if __name__ == "__main__":
    main()
