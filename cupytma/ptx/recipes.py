"""Fence recipes: for each path that data can take, the instructions in order, who executes each, and at which scope.

What they follow from, in the PTX ISA:

- A place in memory that is accessed through two proxies needs a proxy fence in between, whichever of the accesses
  write (Asynchronous copy: Async Proxy). The fence acts within the thread that executes it and has no scope, so the
  thread that made the ordinary accesses executes it, and then synchronises (membar, fence).
- So the text asks for that fence also after ordinary reads of a tile, before it is loaded again. A program run in
  `sim.Program` without that one is not reported: kernels in the field leave it out, and reads that come before an
  arrival on a barrier are done. A missing barrier is reported.
- The completion of a bulk copy, reduction or wgmma is followed by such a fence of its own (Async Proxy). Only the
  completion mechanism of the instruction tells of it.
- mbarriers are accessed through the generic proxy, by bulk copies too (cp.async.bulk).
- A copy's complete-tx releases at cluster scope. A wait for a copy that another block started acquires at that scope.
- A stream's order covers the async proxy. It does not cover the tensormap proxy, which acquires a map explicitly
  (Memory Consistency Model: Memory Synchronization).
- A tensor map or a source that a copy still reads must not change (Completion Mechanisms for Asynchronous Copies).
"""

from __future__ import annotations

from dataclasses import dataclass

from cupytma.errors import EmissionError
from cupytma.ptx import barriers, bulk, cluster, fences, groups, tensor, tensormap, waits, wgmma
from cupytma.ptx.checks import shown
from cupytma.ptx.instruction import Instruction


@dataclass(frozen=True)
class Step:
    """One step of a recipe.

    Attributes
    ----------
    who : str
        Who executes it.
    what : str
        What it is for.
    instruction : Instruction or None
        The instruction; None for ordinary accesses and for what synchronises threads by other means.
    scope : str or None
        The scope at which it synchronises: ``"cta"``, ``"cluster"``, ``"gpu"`` or ``"sys"``; None where it acts within
        the thread, as ``fence.proxy.async`` does.
    reads, writes : str or None
        What it accesses by ordinary loads and stores, through the generic proxy: ``"tile"`` in shared memory,
        a ``"peer"`` block's tile, the ``"tensor"`` in global memory, the tensor ``"map"``, or its copy that is
        ``"staged"`` in shared memory.
    """

    who: str
    what: str
    instruction: Instruction | None = None
    scope: str | None = None
    reads: str | None = None
    writes: str | None = None

    def __str__(self) -> str:
        scope = f" [{self.scope}]" if self.scope else ""
        return f"{self.who}: {self.instruction.text if self.instruction else self.what}{scope}" + (
            f"  // {self.what}" if self.instruction else ""
        )


@dataclass(frozen=True)
class Recipe:
    """What a data path needs.

    Attributes
    ----------
    path : str
        Its name, as `recipe` takes it.
    summary : str
        The path in words.
    steps : tuple of Step
        In the order of execution.
    source : str
        The sections that it follows from.
    """

    path: str
    summary: str
    steps: tuple[Step, ...]
    source: str

    @property
    def instructions(self) -> tuple[Instruction, ...]:
        """The instructions among the steps, in order."""
        return tuple(step.instruction for step in self.steps if step.instruction)

    def _repr_html_(self) -> str:
        from cupytma.view.instruction_card import recipe_card

        return recipe_card(self)

    def __str__(self) -> str:
        lines = [f"{self.path}: {self.summary}", *(f"{n}. {step}" for n, step in enumerate(self.steps, 1))]
        return "\n".join((*lines, f"Source: {self.source}."))


_ONE, _ALL, _HOST = "one thread", "all threads of the block", "the host"
_WRITERS, _READERS = "each writing thread", "each reading thread"
_WARP, _CHANGER = "one whole warp", "the changing thread"
_EACH_BLOCK, _USING_BLOCK = "one thread of each block", "one thread of each block that uses the map"
_LOADER, _CLUSTER = "one thread of the cluster", "all threads of the cluster"

_ASYNC_PROXY = "PTX ISA: Asynchronous copy: Async Proxy; membar, fence"
_GROUPS = "cp.async.bulk.commit_group; cp.async.bulk.wait_group"
_GUIDE = "CUDA programming guide: Async data copies with TMA"
_MAPS = (
    "PTX ISA: tensormap.replace; tensormap.cp_fenceproxy; membar, fence: fence.proxy.tensormap; Completion Mechanisms "
    "for Asynchronous Copy Operations; " + _GUIDE
)
_HOST_MAPS = "PTX ISA: cp.async.bulk.tensor; Memory Consistency Model: Memory Synchronization; " + _GUIDE

_BLOCK_BARRIER = Step(_ALL, "__syncthreads(): what comes before is done for all of them", scope="cta")
_WARP_BARRIER = Step(_WARP, "__syncwarp(): what its lanes wrote is in the sight of all of them", scope="cta")
_LOAD = Step(_ONE, "the load", tensor.tensor_load(rank=2))
_EXPECT = Step(_ONE, "announces the bytes of the load", barriers.mbarrier_arrive_expect_tx(state=False), "cta")
_WAIT = Step(_READERS, "until it is true: the tile is there", waits.mbarrier_try_wait_parity(), "cta")
_READ = Step(_READERS, "reads the tile", reads="tile")
_WRITE = Step(_WRITERS, "writes the tile", writes="tile")
_STORE = Step(_ONE, "the store", tensor.tensor_store(rank=2))
_COMMIT = Step(_ONE, "ends the group", groups.bulk_commit_group())
_SOURCE_READ = Step(
    _ONE, "with count 0, before the tile is written again or the block ends; no other thread may wait for it",
    groups.bulk_wait_group(read=True),
)  # fmt: skip
_WRITTEN = Step(_ONE, "with count 0: the bytes are written, and visible to this thread", groups.bulk_wait_group())
_INIT = barriers.mbarrier_init()
_CLUSTER_WAIT = waits.mbarrier_try_wait_parity(semantics="acquire", scope="cluster")


def _proxy_fence(who: str, accesses: str = "writes", space: str = "shared::cta") -> Step:
    what = f"orders its {accesses} before what the async proxy does"
    return Step(who, what, fences.fence_proxy_async(space=space))


def _thread_fence(who: str, what: str) -> Step:
    return Step(who, what, fences.fence(semantics="acq_rel", scope="gpu"), "gpu")


def _told(who: str, scope: str, whom: str = "the users") -> Step:
    """What tells other threads, after a release at that scope and before an acquire."""
    means = {
        "gpu": "a strong write of a flag, or a barrier of the cluster or the grid",
        "sys": "a strong write of a flag",
    }
    return Step(who, f"tells {whom}: {means[scope]}, at {scope} scope", scope=scope)


def _met(what: str) -> tuple[Step, Step]:
    """A barrier of the cluster."""
    return (
        Step(_CLUSTER, "arrive", cluster.barrier_cluster_arrive(semantics="release"), "cluster"),
        Step(_CLUSTER, f"wait: {what}", cluster.barrier_cluster_wait(semantics="acquire"), "cluster"),
    )


def _unused(who: str) -> Step:
    what = "until its stores have read the map and the tile, with count 0; of loads, until their mbarriers say so"
    return Step(who, what, groups.bulk_wait_group(read=True))


def _replaced(scope: str) -> tuple[Step, ...]:
    """A map staged in shared memory, changed, and published at a scope."""
    return (
        _unused("each thread that copies with the map as it was"),
        Step(_WARP, "copies the map, or a template, to 128 aligned bytes of shared memory", writes="staged"),
        _WARP_BARRIER,
        Step("one lane", "changes the copy; so for each field", tensormap.tensormap_replace(field="global_address")),
        _WARP_BARRIER,
        Step(
            _WARP, "copies it to global memory and releases it", tensormap.tensormap_cp_fenceproxy(scope=scope), scope
        ),
    )


def _acquired(who: str, scope: str) -> Step:
    return Step(who, "acquires the map's 128 bytes", tensormap.fence_proxy_tensormap_acquire(scope=scope), scope)


def _used_by_others(scope: str) -> tuple[Step, ...]:
    """What each block does that uses a map which has changed elsewhere."""
    barrier = "__syncthreads(), unless the thread that acquired it is the one that loads"
    return (
        _acquired(_USING_BLOCK, scope),
        Step("all threads of each block that uses the map", barrier, scope="cta"),
        _EXPECT,
        _LOAD,
    )


def _loaded_elsewhere() -> tuple[Step, ...]:
    """What a thread does that loads what was written to global memory in the same kernel."""
    who = "the loading thread"
    return (
        _thread_fence(who, "has seen the flag or barrier, and acquires what was released"),
        _proxy_fence(who, "acquire", "global"),
        Step(who, "announces the bytes of the load", barriers.mbarrier_arrive_expect_tx(state=False), "cta"),
        Step(who, "the load", tensor.tensor_load(rank=2)),
    )


_RECIPES = (
    Recipe(
        "shared-written-to-store",
        "threads write shared memory, then a bulk store reads it",
        (_WRITE, _proxy_fence(_WRITERS), _BLOCK_BARRIER, _STORE, _COMMIT, _SOURCE_READ),
        f"{_ASYNC_PROXY}; {_GROUPS}; {_GUIDE}",
    ),
    Recipe(
        "barrier-to-load",
        "an mbarrier is initialised, then a load completes on it",
        (
            Step(_ONE, "makes the mbarrier", _INIT),
            Step(_ONE, "releases it to the cluster", fences.fence_mbarrier_init(), "cluster"),
            _BLOCK_BARRIER,
            _EXPECT,
            _LOAD,
            _WAIT,
            _READ,
        ),
        "PTX ISA: mbarrier.init; membar, fence: fence.mbarrier_init; cp.async.bulk.tensor; mbarrier.try_wait",
    ),
    Recipe(
        "map-parameter",
        "the host passes the tensor map as a __grid_constant__ parameter, which needs no fence: it does not change",
        (Step(_ONE, "optional: hides the map's latency", tensormap.prefetch_tensormap(space="param")), _EXPECT, _LOAD),
        _HOST_MAPS,
    ),
    Recipe(
        "map-constant",
        "the host writes the tensor map to a __constant__ variable before the launch; no fence, as for a parameter",
        (
            Step(_HOST, "cudaMemcpyToSymbol before the launch, in stream order", scope="sys"),
            Step(_ONE, "optional: hides the map's latency", tensormap.prefetch_tensormap(space="const")),
            _EXPECT,
            _LOAD,
        ),
        _HOST_MAPS,
    ),
    Recipe(
        "map-global",
        "the host writes the tensor map to global memory; stream order alone is not enough",
        (
            Step(_HOST, "cudaMemcpy before the launch, in stream order", scope="sys", writes="map"),
            *_used_by_others("sys"),
        ),
        _HOST_MAPS,
    ),
    Recipe(
        "map-changed-same-block",
        "the device changes a tensor map, and the same block uses it",
        (*_replaced("cta"), _BLOCK_BARRIER, _acquired(_ONE, "cta"), _EXPECT, _LOAD),
        _MAPS,
    ),
    Recipe(
        "map-changed-other-block",
        "the device changes a tensor map, and another block uses it; a barrier of the grid or cluster is not enough",
        (*_replaced("gpu"), _told(_WARP, "gpu"), *_used_by_others("gpu")),
        _MAPS,
    ),
    Recipe(
        "map-changed-other-kernel",
        "the device changes a tensor map, and a later kernel uses it; stream order alone is not enough",
        (
            *_replaced("gpu"),
            Step(_HOST, "launches the second kernel after the first, in stream order", scope="sys"),
            *_used_by_others("gpu"),
        ),
        _MAPS + "; PTX ISA: Memory Consistency Model: Memory Synchronization",
    ),
    Recipe(
        "map-changed-other-device",
        "one device changes a tensor map, and another one, or the host, uses it",
        (*_replaced("sys"), _told(_WARP, "sys"), *_used_by_others("sys")),
        _MAPS,
    ),
    Recipe(
        "map-changed-in-place",
        "the device changes a tensor map where it lies in global memory, and other blocks use it",
        (
            _unused("each thread that copies with the map as it was"),
            Step(
                _CHANGER,
                "acquires the map, which the tensormap proxy may have used",
                tensormap.fence_proxy_tensormap_acquire(scope="gpu"),
                "gpu",
            ),
            Step(
                _CHANGER,
                "changes the map; so for each field",
                tensormap.tensormap_replace(field="global_address", space="global"),
            ),
            Step(_CHANGER, "releases its changes", tensormap.fence_proxy_tensormap_release(scope="gpu"), "gpu"),
            _told(_CHANGER, "gpu"),
            *_used_by_others("gpu"),
        ),
        _MAPS,
    ),
    Recipe(
        "shared-refilled",
        "threads read a tile, then a load writes the same shared memory",
        (
            _WAIT,
            _READ,
            _proxy_fence(_READERS, "reads"),
            Step(_READERS, "says that it has read", barriers.mbarrier_arrive(state=False), "cta"),
            Step(_ONE, "until all have, on that other mbarrier", waits.mbarrier_try_wait_parity(), "cta"),
            _EXPECT,
            _LOAD,
        ),
        f"{_ASYNC_PROXY}; mbarrier.arrive; mbarrier.try_wait",
    ),
    Recipe(
        "shared-rewritten-refilled",
        "threads write shared memory, then a load writes the same place",
        (_WRITE, _proxy_fence(_WRITERS), _BLOCK_BARRIER, _EXPECT, _LOAD),
        _ASYNC_PROXY,
    ),
    Recipe(
        "shared-multiplied-refilled",
        "wgmma reads a tile, then a load writes the same shared memory; all of it in the async proxy",
        (
            Step("the warpgroup", "until it is true: the tile is there", waits.mbarrier_try_wait_parity(), "cta"),
            Step("the warpgroup", "reads the tile", wgmma.wgmma_mma_async(n=64, a_type="bf16")),
            Step("the warpgroup", "ends the group", wgmma.wgmma_commit_group()),
            Step("the warpgroup", "with count 0: the tile has been read", wgmma.wgmma_wait_group()),
            Step("the warpgroup", "says so, each of its 128 threads", barriers.mbarrier_arrive(state=False), "cta"),
            Step(_ONE, "until all have, on that other mbarrier", waits.mbarrier_try_wait_parity(), "cta"),
            _EXPECT,
            _LOAD,
        ),
        "PTX ISA: Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions: Async Proxy; wgmma.wait_group",
    ),
    Recipe(
        "shared-written-to-wgmma",
        "threads write shared memory, then wgmma reads it",
        (
            _WRITE,
            _proxy_fence(_WRITERS),
            _BLOCK_BARRIER,
            Step("the warpgroup", "before the first one, and after changes of its registers", wgmma.wgmma_fence()),
            Step("the warpgroup", "reads the tile", wgmma.wgmma_mma_async(n=64, a_type="bf16")),
            Step("the warpgroup", "ends the group", wgmma.wgmma_commit_group()),
            Step("the warpgroup", "with count 0: the accumulators are final", wgmma.wgmma_wait_group()),
        ),
        "PTX ISA: Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions: Async Proxy; wgmma.fence",
    ),
    Recipe(
        "store-to-shared-reused",
        "a bulk store reads shared memory, then threads write it again",
        (_STORE, _COMMIT, _SOURCE_READ, _BLOCK_BARRIER, _WRITE),
        f"PTX ISA: {_GROUPS}: .read waits for the source and the tensor map to be read",
    ),
    Recipe(
        "store-to-global-read",
        "a bulk store writes global memory, then threads read it",
        (
            _STORE,
            _COMMIT,
            _WRITTEN,
            _thread_fence(_ONE, "releases them to the others"),
            _told(_ONE, "gpu", "the readers"),
            _thread_fence("each reader", "has seen the flag or barrier, and acquires what was released"),
            Step("each reader", "reads what was stored", reads="tensor"),
        ),
        f"PTX ISA: {_GROUPS}; Asynchronous copy: Async Proxy; Memory Consistency Model: Release and Acquire Patterns",
    ),
    Recipe(
        "store-to-global-loaded",
        "a bulk store writes global memory, then another block loads it",
        (
            _STORE,
            _COMMIT,
            _WRITTEN,
            _thread_fence(_ONE, "releases them to the others"),
            _told(_ONE, "gpu", "the loading thread"),
            *_loaded_elsewhere(),
        ),
        f"PTX ISA: {_GROUPS}; Asynchronous copy: Async Proxy; Memory Consistency Model: Causality Order",
    ),
    Recipe(
        "global-written-to-load",
        "threads write global memory, then a tensor copy of the same kernel loads it",
        (
            Step(_WRITERS, "writes the tensor", writes="tensor"),
            _proxy_fence(_WRITERS, space="global"),
            _thread_fence(_WRITERS, "releases its writes"),
            _told(_WRITERS, "gpu", "the loading thread"),
            *_loaded_elsewhere(),
        ),
        f"{_ASYNC_PROXY}; Memory Consistency Model: Proxies; Release and Acquire Patterns",
    ),
    Recipe(
        "global-written-earlier-kernel",
        "one kernel writes global memory, and a later one loads it; no fence: stream order covers the async proxy",
        (
            Step(_WRITERS, "of the first kernel writes the tensor", writes="tensor"),
            Step(_HOST, "launches the second kernel after the first, in stream order", scope="sys"),
            Step(
                _ONE,
                "only under programmatic dependent launch: until the first kernel has ended",
                cluster.griddepcontrol(action="wait"),
                "gpu",
            ),
            _EXPECT,
            _LOAD,
        ),
        "PTX ISA: Memory Consistency Model: Memory Synchronization; griddepcontrol",
    ),
    Recipe(
        "cluster-peers",
        "one block loads for the blocks of its cluster, by multicast",
        (
            Step(_EACH_BLOCK, "makes its mbarriers", _INIT),
            Step(_EACH_BLOCK, "releases them to the cluster", fences.fence_mbarrier_init(), "cluster"),
            *_met("all blocks run and have made their mbarriers"),
            Step(_EACH_BLOCK, "announces its bytes", barriers.mbarrier_arrive_expect_tx(state=False), "cta"),
            Step(_LOADER, "the load for all of them", tensor.tensor_load(rank=2, multicast=True)),
            Step(_READERS, "until it is true: another block may have started the copy", _CLUSTER_WAIT, "cluster"),
            _READ,
            _proxy_fence(_READERS, "reads"),
            _BLOCK_BARRIER,
            Step(
                _EACH_BLOCK,
                "the generic address of the loading block's mbarrier that counts the blocks",
                cluster.mapa(space="generic", type="u64"),
            ),
            Step(
                _EACH_BLOCK,
                "tells the loading block, at that address, that its tile may be refilled",
                barriers.mbarrier_arrive(semantics="release", scope="cluster", space="generic", state=False),
                "cluster",
            ),
            Step(_LOADER, "until all blocks have, before it loads again", _CLUSTER_WAIT, "cluster"),
            *_met("no block ends while others write to its shared memory"),
        ),
        "PTX ISA: barrier.cluster; membar, fence: fence.mbarrier_init; cp.async.bulk.tensor: .multicast::cluster; "
        "mapa; mbarrier.arrive; mbarrier.try_wait; Asynchronous copy: Async Proxy",
    ),
    Recipe(
        "shared-to-peer",
        "a block copies from its shared memory to another block's, whose mbarrier was made as for cluster-peers",
        (
            _WRITE,
            _proxy_fence(_WRITERS),
            _BLOCK_BARRIER,
            Step(
                _ONE,
                "the addresses there of the destination and of the mbarrier; in CUDA C++ mapa_generic_u64, since the "
                "functions take pointers",
                cluster.mapa(),
            ),
            Step(
                "one thread of the other block",
                "announces the bytes",
                barriers.mbarrier_arrive_expect_tx(state=False),
                "cta",
            ),
            Step(_ONE, "the copy", bulk.bulk_copy(destination="shared::cluster", source="shared::cta")),
            Step("each reader in the other block", "until it is true", _CLUSTER_WAIT, "cluster"),
            Step("each reader in the other block", "reads what was copied", reads="peer"),
            *_met("the copy is done, so the source may be written again and either block may end"),
        ),
        "PTX ISA: cp.async.bulk; mapa; mbarrier.try_wait; barrier.cluster; Asynchronous copy: Async Proxy",
    ),
)
RECIPES = {entry.path: entry for entry in _RECIPES}
"""Every recipe, by the name of its path."""


def recipe(path: str) -> Recipe:
    """What a data path needs: the exact instructions in order, who executes each, and at which scope.

    Parameters
    ----------
    path : str
        One of `RECIPES`, such as ``"shared-written-to-store"`` or ``"map-changed-other-block"``.

    Raises
    ------
    EmissionError
        For another path; the message lists those there are.
    """
    if not isinstance(path, str) or path not in RECIPES:
        raise EmissionError(f"there is no recipe for {shown(path)}; there are: {', '.join(RECIPES)}")
    return RECIPES[path]
