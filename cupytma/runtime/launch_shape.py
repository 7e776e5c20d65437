"""How many blocks of how many threads, in clusters or not, with how much shared memory: checked once, kept."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod

from cupytma.errors import LaunchError
from cupytma.limits import MAX_BLOCK, MAX_BLOCK_THREADS, MAX_CLUSTER, MAX_GRID, PORTABLE_CLUSTER
from cupytma.runtime.given import shown, truth, whole, wholes
from cupytma.targets import Target

Extents = tuple[int, int, int]

# What a block may have without asking for more.
DEFAULT_SHARED_BYTES = 48 * 1024


@dataclass(frozen=True)
class LaunchBounds:
    """What a kernel's code says of its launches.

    Attributes
    ----------
    threads : tuple of int or None
        The most threads of a block along x, y, z (``__launch_bounds__``); None where nothing is said.
    cluster : tuple of int or None
        Blocks of a cluster along x, y, z (``__cluster_dims__``).
    """

    threads: Extents | None = None
    cluster: Extents | None = None


# PTX ISA, "Performance-Tuning Directives" and "Cluster Dimension Directives".
_DIRECTIVE = re.compile(r"\.(maxntid|reqntid|reqnctapercluster)\s+(\d+)(?:\s*,\s*(\d+))?(?:\s*,\s*(\d+))?")


def parse_launch_bounds(ptx: str) -> dict[str, LaunchBounds]:
    """What every kernel of a PTX text says of its launches, by the kernel's name."""
    found = {}
    for match in re.finditer(r"\.entry\s+([\w$]+)(.*?)\{", ptx, re.DOTALL):
        said = {name: (int(x), int(y or 1), int(z or 1)) for name, x, y, z in _DIRECTIVE.findall(match[2])}
        found[match[1]] = LaunchBounds(said.get("reqntid", said.get("maxntid")), said.get("reqnctapercluster"))
    return found


@dataclass(frozen=True)
class LaunchShape:
    """The shape of a launch, checked; made by `launch_shape`.

    Attributes
    ----------
    grid, block : tuple of int
        Blocks of the grid and threads of a block, x first.
    shared_bytes : int
        Dynamic shared memory of a block.
    cluster : tuple of int or None
        Blocks of a cluster, where the launch says them and not the kernel.
    cooperative, programmatic : bool
        See `Kernel`.
    """

    grid: Extents
    block: Extents
    shared_bytes: int = 0
    cluster: Extents | None = None
    cooperative: bool = False
    programmatic: bool = False

    @property
    def extended(self) -> bool:
        """Whether it takes ``cuLaunchKernelEx`` to make the launch."""
        return self.cluster is not None or self.cooperative or self.programmatic

    @property
    def numbers(self) -> tuple[int, ...]:
        """As ``cuLaunchKernel`` takes them."""
        return (*self.grid, *self.block, self.shared_bytes)

    def __str__(self) -> str:
        parts = [f"grid {self.grid}", f"block {self.block}", f"{self.shared_bytes} B of dynamic shared memory"]
        parts += [f"cluster {self.cluster}"] if self.cluster else []
        parts += [name for name in ("cooperative", "programmatic") if getattr(self, name)]
        return ", ".join(parts)


def launch_shape(
    grid: int | Sequence[int],
    block: int | Sequence[int],
    shared_bytes: int,
    cluster: int | Sequence[int] | None,
    cooperative: bool,
    programmatic: bool,
    target: Target,
    bounds: LaunchBounds = LaunchBounds(),
) -> LaunchShape:
    """A launch's shape, once everything about it is found possible.

    Raises
    ------
    LaunchError
        Naming everything that is not.
    """
    try:
        tied = None if cluster is None else wholes(cluster)
        modes = truth(cooperative), truth(programmatic)
        return _launch_shape(wholes(grid), wholes(block), tied, whole(shared_bytes), *modes, target, bounds)
    except TypeError as error:
        raise LaunchError(
            f"grid = {shown(grid)}, block = {shown(block)}, cluster = {shown(cluster)}, shared_bytes = "
            f"{shown(shared_bytes)}: whole numbers are needed, or one to three of them; {error}"
        ) from None


@lru_cache(maxsize=1024)
def _launch_shape(
    grid: tuple[int, ...], block: tuple[int, ...], cluster: tuple[int, ...] | None, shared_bytes: int,
    cooperative: bool, programmatic: bool, target: Target, bounds: LaunchBounds,
) -> LaunchShape:
    problems: list[str] = []
    blocks = _extents("grid", grid, MAX_GRID, problems)
    threads = _extents("block", block, MAX_BLOCK, problems)
    if prod(threads) > MAX_BLOCK_THREADS:
        problems.append(f"block {threads} has {prod(threads)} threads, more than {MAX_BLOCK_THREADS}")
    if bounds.threads and prod(threads) > prod(bounds.threads):
        problems.append(
            f"block {threads} has {prod(threads)} threads; the kernel was compiled for at most {prod(bounds.threads)}: "
            "launch fewer, or change its __launch_bounds__"
        )
    if not 0 <= shared_bytes <= target.shared_bytes:
        problems.append(
            f"shared_bytes = {shown(shared_bytes)} is outside 0…{target.shared_bytes}, the limit of {target}"
        )
    tied = _extents("cluster", cluster, MAX_GRID, problems) if cluster is not None else None
    problems += _cluster_problems(blocks, tied, bounds.cluster)
    if problems:
        raise LaunchError("; ".join(problems))
    if tied is not None and (bounds.cluster is not None or prod(tied) == 1):
        tied = None  # the kernel says it already, or there is nothing to say
    return LaunchShape(blocks, threads, shared_bytes, tied, cooperative, programmatic)


def _cluster_problems(grid: Extents, asked: Extents | None, compiled: Extents | None) -> list[str]:
    if asked is not None and compiled is not None and asked != compiled:
        return [f"cluster = {asked}; the kernel was compiled with __cluster_dims__ of {compiled}: leave cluster out"]
    cluster = asked or compiled
    if cluster is None:
        return []
    problems = []
    if prod(cluster) > MAX_CLUSTER:
        problems.append(
            f"cluster {cluster} has {prod(cluster)} blocks; {PORTABLE_CLUSTER} is the most everywhere, and "
            f"{MAX_CLUSTER} on some devices"
        )
    if any(blocks % tied for blocks, tied in zip(grid, cluster, strict=True)):
        whole = tuple(-(-blocks // tied) * tied for blocks, tied in zip(grid, cluster, strict=True))
        problems.append(
            f"grid {grid} is no whole number of clusters {cluster}: use {whole}, and let blocks beyond the work leave"
        )
    return problems


def _extents(name: str, extents: tuple[int, ...], limits: Extents, problems: list[str]) -> Extents:
    if not 1 <= len(extents) <= 3 or not all(1 <= n <= limit for n, limit in zip(extents, limits, strict=False)):
        given = extents[0] if len(extents) == 1 else extents
        problems.append(f"{name} = {shown(given)}: one to three whole numbers are needed, from 1 to {limits}")
        return 1, 1, 1
    x, y, z = (*extents, 1, 1)[:3]
    return x, y, z
