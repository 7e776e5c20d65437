"""Fence recipes: for each path that data can take, the instructions in order, who executes each, and at which scope.

Sources: the PTX ISA's sections on asynchronous operations, proxies, tensor maps and the instructions named; the CUDA
programming guide's "Async data copies with TMA".
"""

from __future__ import annotations

from dataclasses import dataclass

from cupytma.errors import EmissionError
from cupytma.ptx import barriers, bulk, cluster, fences, groups, tensor, tensormap, waits
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
        The instruction; None for ordinary accesses and for barriers of the block or the stream.
    scope : str or None
        The scope at which it orders accesses.
    """

    who: str
    what: str
    instruction: Instruction | None = None
    scope: str | None = None

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

    def __str__(self) -> str:
        lines = [f"{self.path}: {self.summary}", *(f"{n}. {step}" for n, step in enumerate(self.steps, 1))]
        return "\n".join((*lines, f"Source: {self.source}."))


_ONE, _ALL, _WRITERS, _USER = "one thread", "all threads of the block", "each writing thread", "the using thread"
_WARP, _CHANGER = "one whole warp", "the changing thread"
_TO_LOADER = Step(
    "all threads of each block that uses it", "__syncthreads(), where another thread than that one loads", scope="cta"
)
_BLOCK_BARRIER = Step(_ALL, "__syncthreads(): the others have done so too", scope="cta")
_PROXIES = "PTX ISA: Memory Consistency Model: Proxies; membar, fence"
_MAPS = "PTX ISA: tensormap.replace; tensormap.cp_fenceproxy; membar, fence: fence.proxy.tensormap"
_ASYNC = "PTX ISA: Asynchronous Operations; cp.async.bulk.tensor"

_LOAD = Step(_ONE, "the load", tensor.tensor_load(rank=2))
_STORE = Step(_ONE, "the store", tensor.tensor_store(rank=2))
_EXPECT = Step(_ONE, "announces the bytes of the load", barriers.mbarrier_arrive_expect_tx(state=False), "cta")
_WAIT = Step("each thread that reads the tile", "until it is true", waits.mbarrier_try_wait_parity(), "cta")
_SHARED_FENCE = fences.fence_proxy_async(space="shared::cta")
_INIT = Step(_ONE, "makes the barrier", barriers.mbarrier_init())
_INIT_FENCE = Step(_ONE, "makes it known to the async proxy and the cluster", fences.fence_mbarrier_init(), "cluster")


def _replaced(scope: str) -> tuple[Step, ...]:
    """A map staged in shared memory, changed, and published at a scope."""
    return (
        Step(
            "one lane", "changes the staged map; so for each field", tensormap.tensormap_replace(field="global_address")
        ),
        Step(_WARP, "__syncwarp(): the changes are in the warp's sight", scope="cta"),
        Step(
            _WARP, "copies it to global memory and releases it", tensormap.tensormap_cp_fenceproxy(scope=scope), scope
        ),
    )


def _changed_in_place(scope: str) -> tuple[Step, ...]:
    """A map in global memory, changed there, and published at a scope."""
    return (
        Step(
            _CHANGER,
            "acquires the map, which the tensormap proxy may have used",
            tensormap.fence_proxy_tensormap_acquire(scope=scope),
            scope,
        ),
        Step(
            _CHANGER,
            "changes the map; so for each field",
            tensormap.tensormap_replace(field="global_address", space="global"),
        ),
        Step(_CHANGER, "releases its changes", tensormap.fence_proxy_tensormap_release(scope=scope), scope),
    )


def _acquired(who: str, scope: str) -> Step:
    return Step(who, "acquires the 128 bytes", tensormap.fence_proxy_tensormap_acquire(scope=scope), scope)


_RECIPES = (
    Recipe(
        "shared-written-to-store",
        "threads write shared memory, then a bulk store reads it",
        (
            Step(_WRITERS, "writes its part of the tile"),
            Step(_WRITERS, "orders its writes before the async proxy", _SHARED_FENCE, "cta"),
            _BLOCK_BARRIER,
            _STORE,
            Step(_ONE, "ends the group", groups.bulk_commit_group()),
        ),
        _PROXIES,
    ),
    Recipe(
        "barrier-to-load",
        "an mbarrier is initialised, then a load completes on it",
        (_INIT, _INIT_FENCE, _BLOCK_BARRIER, _EXPECT, _LOAD, _WAIT),
        "PTX ISA: mbarrier.init; membar, fence: fence.mbarrier_init; " + _ASYNC,
    ),
    Recipe(
        "map-parameter",
        "the host passes the tensor map as a __grid_constant__ parameter",
        (
            Step(_ONE, "optional: hides the map's latency", tensormap.prefetch_tensormap(space="param")),
            _EXPECT,
            _LOAD,
        ),
        "PTX ISA: cp.async.bulk.tensor; CUDA programming guide: no fence, since the parameter does not change",
    ),
    Recipe(
        "map-constant",
        "the host writes the tensor map to a __constant__ variable before the launch",
        (
            Step("the host", "cudaMemcpyToSymbol before the launch, in stream order", scope="sys"),
            Step(_ONE, "optional: hides the map's latency", tensormap.prefetch_tensormap(space="const")),
            _EXPECT,
            _LOAD,
        ),
        "PTX ISA: cp.async.bulk.tensor; CUDA programming guide: no fence, since the constant does not change",
    ),
    Recipe(
        "map-global",
        "the host writes the tensor map to global memory",
        (
            Step("the host", "cudaMemcpy before the launch, in stream order", scope="sys"),
            _acquired("one thread of each block", "sys"),
            Step(_ALL, "__syncthreads(), where other threads than that one use the map", scope="cta"),
            _EXPECT,
            _LOAD,
        ),
        _MAPS,
    ),
    Recipe(
        "map-changed-same-block",
        "the device changes a tensor map, and the same block uses it",
        (*_replaced("cta"), _BLOCK_BARRIER, _acquired(_USER, "cta"), _EXPECT, _LOAD),
        _MAPS,
    ),
    Recipe(
        "map-changed-other-block",
        "the device changes a tensor map, and another block uses it; a barrier of the grid or cluster is not enough",
        (
            *_replaced("gpu"),
            Step(_ONE, "a flag, a cluster barrier or a grid barrier tells the other block", scope="gpu"),
            _acquired("one thread of each block that uses it", "gpu"),
            _TO_LOADER,
            _EXPECT,
            _LOAD,
        ),
        _MAPS,
    ),
    Recipe(
        "map-changed-other-kernel",
        "the device changes a tensor map, and a later kernel uses it; stream order alone is not enough",
        (
            *_replaced("gpu"),
            Step("the host", "launches the second kernel after the first, in stream order"),
            _acquired("one thread of each block of the second kernel", "gpu"),
            _TO_LOADER,
            _EXPECT,
            _LOAD,
        ),
        _MAPS,
    ),
    Recipe(
        "map-changed-other-device",
        "one device changes a tensor map, and another one, or the host, uses it",
        (
            *_replaced("sys"),
            Step("the host or a flag", "tells the other device", scope="sys"),
            _acquired("one thread of each block that uses it", "sys"),
            _TO_LOADER,
            _EXPECT,
            _LOAD,
        ),
        _MAPS,
    ),
    Recipe(
        "map-changed-in-place",
        "the device changes a tensor map where it lies in global memory, and other blocks use it",
        (
            *_changed_in_place("gpu"),
            Step(_CHANGER, "a flag or a grid barrier tells the other blocks", scope="gpu"),
            _acquired("one thread of each block that uses it", "gpu"),
            _TO_LOADER,
            _EXPECT,
            _LOAD,
        ),
        _MAPS,
    ),
    Recipe(
        "shared-refilled",
        "threads read a tile, then a load writes the same shared memory",
        (
            _WAIT,
            Step("each reading thread", "reads the tile through the generic proxy"),
            Step("each reading thread", "says that it has read", barriers.mbarrier_arrive(state=False), "cta"),
            Step(_ONE, "until all have, on that other mbarrier", waits.mbarrier_try_wait_parity(), "cta"),
            _EXPECT,
            _LOAD,
        ),
        "PTX ISA: Asynchronous Operations: reads ordered by the barrier come before the async write",
    ),
    Recipe(
        "shared-rewritten-refilled",
        "threads write shared memory, then a load writes the same place",
        (
            Step(_WRITERS, "orders its writes before the async proxy", _SHARED_FENCE, "cta"),
            _BLOCK_BARRIER,
            _EXPECT,
            _LOAD,
        ),
        _PROXIES,
    ),
    Recipe(
        "store-to-shared-reused",
        "a bulk store reads shared memory, then threads write it again",
        (
            _STORE,
            Step("the storing thread", "ends the group", groups.bulk_commit_group()),
            Step("the storing thread", "only it may wait; with count 0", groups.bulk_wait_group(read=True)),
            _BLOCK_BARRIER,
            Step(_WRITERS, "writes shared memory again"),
        ),
        "PTX ISA: cp.async.bulk.commit_group; cp.async.bulk.wait_group: .read waits for the source to be read",
    ),
    Recipe(
        "store-to-global-read",
        "a bulk store writes global memory, then threads read it",
        (
            _STORE,
            Step("the storing thread", "ends the group", groups.bulk_commit_group()),
            Step("the storing thread", "until it is written and visible to this thread", groups.bulk_wait_group()),
            Step(
                "the storing thread", "releases it to the others", fences.fence(semantics="acq_rel", scope="gpu"), "gpu"
            ),
            Step("the readers", "read after a flag or barrier at that scope", scope="gpu"),
        ),
        "PTX ISA: cp.async.bulk.wait_group; membar, fence",
    ),
    Recipe(
        "global-written-to-load",
        "threads write global memory, then a tensor copy loads it",
        (
            Step(_WRITERS, "writes global memory"),
            Step(_WRITERS, "orders its writes before the async proxy", fences.fence_proxy_async(space="global"), "gpu"),
            Step(
                _WRITERS,
                "releases them; then a flag or barrier tells the loading thread",
                fences.fence(semantics="acq_rel", scope="gpu"),
                "gpu",
            ),
            Step(
                _ONE,
                "has seen the flag or barrier, and acquires what was released",
                fences.fence(semantics="acq_rel", scope="gpu"),
                "gpu",
            ),
            Step(
                _ONE, "orders what it acquired before the async proxy", fences.fence_proxy_async(space="global"), "gpu"
            ),
            _EXPECT,
            _LOAD,
        ),
        _PROXIES,
    ),
    Recipe(
        "cluster-peers",
        "one block loads for the blocks of its cluster, by multicast",
        (
            Step("one thread of each block", "makes the barrier", barriers.mbarrier_init()),
            Step("one thread of each block", "makes it known", fences.fence_mbarrier_init(), "cluster"),
            Step(
                "all threads of the cluster", "arrive", cluster.barrier_cluster_arrive(semantics="release"), "cluster"
            ),
            Step("all threads of the cluster", "wait", cluster.barrier_cluster_wait(semantics="acquire"), "cluster"),
            Step(
                "one thread of each block",
                "announces its bytes",
                barriers.mbarrier_arrive_expect_tx(state=False),
                "cta",
            ),
            Step("one thread of the cluster", "the load for all of them", tensor.tensor_load(rank=2, multicast=True)),
            _WAIT,
            Step(
                "one thread of each block",
                "the loading block's barrier for the arrivals, as a generic pointer",
                cluster.mapa(space="generic", type="u64"),
            ),
            Step(
                "one thread of each block",
                "tells the loading block, at that address, that its tile may be refilled",
                barriers.mbarrier_arrive(semantics="release", scope="cluster", space="shared::cluster", state=False),
                "cluster",
            ),
            Step(
                "one thread of the cluster",
                "until all peers have, before it loads again; its barrier for that counts the blocks",
                waits.mbarrier_try_wait_parity(semantics="acquire", scope="cluster"),
                "cluster",
            ),
            Step(
                "all threads of the cluster",
                "arrive at the end",
                cluster.barrier_cluster_arrive(semantics="release"),
                "cluster",
            ),
            Step(
                "all threads of the cluster",
                "wait: no block exits while others write to its shared memory",
                cluster.barrier_cluster_wait(semantics="acquire"),
                "cluster",
            ),
        ),
        "PTX ISA: barrier.cluster; mapa; mbarrier.arrive; cp.async.bulk.tensor: .multicast::cluster",
    ),
    Recipe(
        "shared-to-peer",
        "a block copies from its shared memory to another block's",
        (
            Step(_WRITERS, "orders its writes before the async proxy", _SHARED_FENCE, "cta"),
            _BLOCK_BARRIER,
            Step(
                _ONE,
                "the destination's and the barrier's addresses there, as generic pointers",
                cluster.mapa(space="generic", type="u64"),
            ),
            Step(
                "one thread of the other block",
                "announces the bytes",
                barriers.mbarrier_arrive_expect_tx(state=False),
                "cta",
            ),
            Step(_ONE, "the copy", bulk.bulk_copy(destination="shared::cluster", source="shared::cta")),
            Step("each reader in the other block", "until it is true", waits.mbarrier_try_wait_parity(), "cta"),
        ),
        "PTX ISA: cp.async.bulk: shared::cta to shared::cluster",
    ),
)
#: Every recipe, by the name of its path.
RECIPES = {entry.path: entry for entry in _RECIPES}


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
    if path not in RECIPES:
        raise EmissionError(f"there is no recipe for {path!r}; there are: {', '.join(RECIPES)}")
    return RECIPES[path]
