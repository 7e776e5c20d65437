"""Fence recipes, held against a small model of the PTX ISA's memory consistency rules.

The model knows nothing of the recipes. It takes from each step what it accesses and through which proxy, and asks for
every two accesses of one thing, of which one writes, whether the steps between them put them in order:

- what the async proxy did is over only when its completion mechanism says so, with a proxy fence of its own
  (Asynchronous copy: Async Proxy);
- from the generic to the async proxy it takes a ``fence.proxy.async`` of the accessing thread, for that state space
  (membar, fence: it takes effect within a single thread), in either direction of the data;
- from the generic to the tensormap proxy it takes a release and an acquire (membar, fence; cp_fenceproxy);
- between different threads it takes something that synchronises them, at a scope that has both.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import pytest
from assembler import assemblers
from test_ptx_assembly import concrete

from cupytma import ptx
from cupytma.errors import EmissionError
from cupytma.ptx import Step

SCOPES = ("cta", "cluster", "gpu", "sys")
Steps = tuple[Step, ...]
#: What a path leads to another block by, and how far that is; all else is between threads of one block.
REACH = {
    "map-global": {"map": "sys"},
    "map-changed-other-block": {"map": "gpu"},
    "map-changed-other-kernel": {"map": "gpu"},
    "map-changed-other-device": {"map": "sys"},
    "map-changed-in-place": {"map": "gpu"},
    "store-to-global-read": {"tensor": "gpu"},
    "store-to-global-loaded": {"tensor": "gpu"},
    "global-written-to-load": {"tensor": "gpu"},
    "global-written-earlier-kernel": {"tensor": "gpu"},
    "cluster-peers": {"tile": "cluster", "mbarrier": "cluster"},
    "shared-to-peer": {"peer": "cluster"},
}
#: Whom a barrier of the block tells.
WITHIN_BLOCK = {"one thread", "one thread of each block", "each reading thread", "each writing thread", "the warpgroup"}
#: The state space of each thing. An mbarrier is reached through the generic proxy by all, bulk copies included.
SPACE = {
    "mbarrier": "shared::cta",
    "tile": "shared::cta",
    "peer": "shared::cluster",
    "tensor": "global",
    "staged": "shared::cta",
    "map": "global",
}


@dataclass(frozen=True)
class Access:
    at: int
    who: str
    thing: str
    proxy: str
    writes: bool


def accesses(at: int, step: Step) -> list[Access]:
    """What a step reads and writes."""
    found = [(step.reads, "generic", False), (step.writes, "generic", True)]
    i = step.instruction
    family = i.family if i else ""
    mnemonic = i.mnemonic if i else ""
    if family.startswith("tensor_"):
        found.append(("map", "tensormap", False))
    if mnemonic.startswith("cp.async.bulk"):
        if ".shared::cluster.global" in mnemonic:
            found += [("tile", "async", True), ("tensor", "async", False)]
        elif ".global.shared::cta" in mnemonic:
            found += [("tile", "async", False), ("tensor", "async", True)]
        elif ".shared::cluster.shared::cta" in mnemonic:
            found += [("tile", "async", False), ("peer", "async", True)]
    if family == "wgmma_mma_async":
        found.append(("tile", "async", False))
    if family == "tensormap_replace":
        found.append(("staged" if ".shared::cta" in mnemonic else "map", "generic", True))
    if family == "tensormap_cp_fenceproxy":
        found += [("staged", "generic", False), ("map", "generic", True)]
    if mnemonic.startswith("mbarrier.") or "mbarrier::complete_tx" in mnemonic:
        found.append(("mbarrier", "generic", mnemonic.startswith("mbarrier.init")))
    return [Access(at, step.who, thing, proxy, writes) for thing, proxy, writes in found if thing]


def mnemonic(step: Step) -> str:
    return step.instruction.mnemonic if step.instruction else ""


def narrower(step: Step, scope: str) -> bool:
    return SCOPES.index(step.scope or "cta") < SCOPES.index(scope)


def told(steps: Steps, first: int, last: int, whom: str, far: str) -> bool:
    """Whether who executes the first step has synchronised with another, that far away, before the last step."""
    knowing, arrived = {steps[first].who}, False
    for step in steps[first + 1 : last]:
        wide = not narrower(step, far)
        telling = step.who in knowing or step.who.startswith(("all ", "the host", "one whole warp"))
        if step.scope and step.instruction is None:
            if wide and telling:
                return True
            knowing |= WITHIN_BLOCK
        elif mnemonic(step).startswith(("mbarrier.arrive", "barrier.cluster.arrive")):
            arrived |= wide and telling
        elif mnemonic(step).startswith("mbarrier.try_wait") and arrived and wide:
            knowing.add(step.who)
        elif mnemonic(step).startswith("barrier.cluster.wait") and arrived and wide:
            return True
    return whom in knowing


def completes(started: Step, overwritten: bool, step: Step) -> bool:
    """Whether a step waits until an asynchronous operation has read; or, if its result is used, has written as well."""
    name = mnemonic(step)
    if "mbarrier::complete_tx" in mnemonic(started):
        return name.startswith("mbarrier.try_wait")
    if mnemonic(started).startswith("wgmma"):
        return name.startswith("wgmma.wait_group")
    return name.startswith("cp.async.bulk.wait_group") and (overwritten or not name.endswith(".read"))


def unordered(steps: Steps, a: Access, b: Access, far: str) -> str | None:
    """Why an access does not come before a later one of another proxy or thread; None if it does."""
    between = range(a.at + 1, b.at)
    after = a.at
    if a.proxy == "async":
        waits = [n for n in between if completes(steps[a.at], not a.writes, steps[n])]
        if not waits:
            return "is not waited for"
        after = waits[0]
        if "mbarrier" in mnemonic(steps[after]) and steps[after].who != a.who and narrower(steps[after], far):
            return f"is waited for at scope {steps[after].scope}"
    elif a.proxy == "generic" and b.proxy == "async" and not any("stream order" in steps[n].what for n in between):
        covering = ("fence.proxy.async", f"fence.proxy.async.{SPACE[a.thing]}")
        fences = [n for n in between if mnemonic(steps[n]) in covering and steps[n].who == a.who]
        if not fences:
            return "has no fence to the async proxy"
        after = fences[0]
    elif b.proxy == "tensormap":
        by_host = a.who == "the host"
        releases = [n for n in range(a.at, b.at) if ".release." in mnemonic(steps[n]) and steps[n].scope == far]
        acquire = "fence.proxy.tensormap::generic.acquire"
        acquires = [n for n in between if mnemonic(steps[n]).startswith(acquire) and steps[n].scope == far]
        if not acquires or not (releases or by_host):
            return "is not released and acquired at that scope"
        if not by_host and not told(steps, releases[-1], acquires[-1], steps[acquires[-1]].who, far):
            return "is acquired by a thread that nothing has told"
        after, far = acquires[-1], "cta"
    if not told(steps, after, b.at, b.who, far):
        return f"is not known to {b.who}"
    if a.proxy == b.proxy == "async" and a.who != b.who and far != "cta":
        covering = ("fence.proxy.async", f"fence.proxy.async.{SPACE[a.thing]}")
        if not any(mnemonic(steps[n]) in covering and steps[n].who == b.who for n in between):
            return "has no fence to the async proxy of another block"
    return None


def problems(steps: Steps, reach: dict[str, str]) -> list[str]:
    """Pairs of accesses that nothing orders."""
    made = [access for at, step in enumerate(steps) for access in accesses(at, step)]
    found = []
    for a, b in itertools.product(made, repeat=2):
        conflicting = a.at < b.at and a.thing == b.thing and (a.writes or b.writes)
        if conflicting and (why := unordered(steps, a, b, reach.get(a.thing, "cta"))):
            found.append(f"{a.thing}: step {a.at + 1}, before step {b.at + 1}, {why}")
    return found


def unrolled(path: str) -> Steps:
    """The steps of a recipe; where it is one round of a loop, with what comes before or after."""
    steps = ptx.recipe(path).steps
    if path in ("shared-refilled", "shared-multiplied-refilled"):
        return steps[-2:] + steps
    if path == "shared-to-peer":
        return (*steps, steps[0])
    if path == "cluster-peers":
        load = next(step for step in steps if "multicast" in mnemonic(step))
        return (*steps[:-2], load, *steps[-2:])
    return steps


@pytest.mark.parametrize("path", ptx.RECIPES)
def test_a_recipe_orders_all_accesses(path: str) -> None:
    assert problems(unrolled(path), REACH.get(path, {})) == []


#: Steps whose purpose is no order of two accesses that the model sees: what begins the name or the text, and why.
BESIDE = {
    "prefetch": "a hint",
    "cp.async.bulk.commit_group": "makes the group that is waited for",
    "wgmma.commit_group": "makes the group that is waited for",
    "wgmma.fence": "orders registers",
    "mbarrier.arrive.expect_tx": "counts the bytes",
    "fence.mbarrier_init": "the barrier after it releases, too; needed where that is relaxed",
    "mapa": "an address",
    "griddepcontrol": "only under programmatic dependent launch",
    "fence.acq_rel": "part of what tells the other thread",
}
#: Steps of one path, by number: they concern what comes before or after it, or double what another step does.
BESIDE_IN = {
    "shared-written-to-store": {6},
    "shared-written-to-wgmma": {7},
    "cluster-peers": {15, 16},
    "map-constant": {1},  # stream order, without which the kernel reads nothing
    "map-changed-in-place": {2},  # the founding document's acquire before the change
    "global-written-to-load": {6},  # the loading thread's fence beside the writers'
    **{path: {1} for path in ptx.RECIPES if path.startswith("map-changed") and path != "map-changed-in-place"},
}
BESIDE_IN["map-changed-in-place"] |= {1}


@pytest.mark.parametrize("path", ptx.RECIPES)
def test_a_recipe_has_no_step_that_it_could_do_without(path: str) -> None:
    steps = unrolled(path)
    for n, step in enumerate(steps):
        accessing = any(access.thing != "mbarrier" or access.writes for access in accesses(n, step))
        if accessing or mnemonic(step).startswith(tuple(BESIDE)) or n + 1 in BESIDE_IN.get(path, ()):
            continue
        assert problems((*steps[:n], *steps[n + 1 :]), REACH.get(path, {})), f"{n + 1}. {step}"


@pytest.mark.parametrize("path", REACH)
def test_a_narrower_scope_is_not_enough(path: str) -> None:
    steps = unrolled(path)
    for thing, scope in REACH[path].items():
        narrow = SCOPES[SCOPES.index(scope) - 1]
        places = [n for n, step in enumerate(steps) if step.scope == scope]
        assert places
        for n in places:
            narrowed = (*steps[:n], replace(steps[n], scope=narrow), *steps[n + 1 :])
            # A barrier of the cluster has no other scope, and stream order is no matter of scopes.
            beside = mnemonic(steps[n]).startswith(("barrier.cluster", *BESIDE)) or n + 1 in BESIDE_IN.get(path, ())
            if beside or (path == "map-global" and steps[n].who == "the host"):
                continue
            assert problems(narrowed, REACH[path]), f"{thing}: {n + 1}. {narrowed[n]}"


def test_every_path_of_the_contract_has_a_recipe() -> None:
    assert set(ptx.RECIPES) >= {
        "shared-written-to-store", "barrier-to-load", "map-parameter", "map-constant", "map-global",
        "map-changed-same-block", "map-changed-other-block", "map-changed-other-kernel", "map-changed-other-device",
        "shared-refilled", "store-to-shared-reused", "global-written-to-load", "cluster-peers",
    }  # fmt: skip
    with pytest.raises(EmissionError, match="there is no recipe for 'nothing'"):
        ptx.recipe("nothing")


def test_steps_say_who_and_recipes_say_where_it_is_written() -> None:
    for made in ptx.RECIPES.values():
        assert made.source.startswith("PTX ISA: ")
        assert all(step.who and step.what for step in made.steps)
        assert all(i in ptx.catalogue() for i in made.instructions)
        assert str(made).count("\n") == len(made.steps) + 1


def test_a_scope_is_what_the_instruction_has_and_a_fence_within_a_thread_has_none() -> None:
    # PTX ISA, membar, fence: a proxy fence of both directions acts within one thread. mbarrier.arrive and try_wait have
    # the scope .cta where none is written.
    for step in (step for made in ptx.RECIPES.values() for step in made.steps if step.instruction):
        words = step.instruction.mnemonic.split(".")
        written = next((word for word in words if word in SCOPES), None)
        if written:
            assert step.scope == written
        elif step.instruction.mnemonic.startswith("mbarrier.") and "init" not in words:
            assert step.scope == "cta"
        elif step.instruction.mnemonic.startswith(("fence.proxy.async", "cp.", "wgmma", "mapa", "tensormap.replace")):
            assert step.scope is None


def test_every_instruction_of_a_recipe_assembles() -> None:
    assembler = assemblers().get((12, 9))
    if assembler is None:
        pytest.skip("needs the NVRTC 12.9 wheel, nvidia-cuda-nvrtc-cu12")
    # One recipe at a time: some orders of unrelated instructions kill the assembler.
    for made in ptx.RECIPES.values():
        assert assembler.refused(map(concrete, made.instructions), "sm_90a") == {}


# The sequences that the documents write out, in their own words.
DOCUMENTED = {
    # PTX ISA, membar, fence: Examples.
    "map-changed-in-place": [
        "tensormap.replace.tile.global_address.global.b1024.b64",
        "fence.proxy.tensormap::generic.release.gpu",
        "fence.proxy.tensormap::generic.acquire.gpu",
        "cp.async.bulk.tensor",
    ],
    # PTX ISA, tensormap.cp_fenceproxy: Examples.
    "map-changed-other-block": [
        "tensormap.replace.tile.global_address.shared::cta.b1024.b64",
        "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned",
        "fence.proxy.tensormap::generic.acquire.gpu",
        "cp.async.bulk.tensor",
    ],
    # The founding document: .cta within a block.
    "map-changed-same-block": [
        "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.cta.sync.aligned",
        "fence.proxy.tensormap::generic.acquire.cta",
        "cp.async.bulk.tensor",
    ],
    # CUDA programming guide, "Async data copies with TMA": what the host wrote is acquired at .sys.
    "map-global": ["fence.proxy.tensormap::generic.acquire.sys", "cp.async.bulk.tensor"],
    # The same, the steps of reading, changing and writing an array.
    "shared-written-to-store": [
        "fence.proxy.async.shared::cta",
        "cp.async.bulk.tensor",
        "cp.async.bulk.commit_group",
        "cp.async.bulk.wait_group.read",
    ],
    # PTX ISA, mbarrier.test_wait, mbarrier.try_wait: Examples, "Synchronizing the CTA0 threads with cluster threads".
    "cluster-peers": [
        "mbarrier.init.shared::cta.b64",
        "barrier.cluster.arrive",
        "barrier.cluster.wait",
        "mapa.u64",
        "mbarrier.arrive.release.cluster.b64",
        "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64",
    ],
}


@pytest.mark.parametrize("path", DOCUMENTED)
def test_a_recipe_has_the_sequence_that_the_documents_write_out(path: str) -> None:
    names = iter(i.mnemonic for i in ptx.recipe(path).instructions)
    for wanted in DOCUMENTED[path]:
        assert any(name.startswith(wanted) for name in names), wanted


@pytest.mark.parametrize("path", ["map-parameter", "map-constant"])
def test_a_map_that_does_not_change_needs_no_fence(path: str) -> None:
    assert not any("fence" in i.mnemonic for i in ptx.recipe(path).instructions)


@pytest.mark.parametrize("path", [path for path in ptx.RECIPES if "changed" in path])
def test_a_map_is_not_changed_while_copies_use_it(path: str) -> None:
    first = ptx.recipe(path).steps[0]
    assert first.instruction == ptx.bulk_wait_group(read=True)
    assert "loads" in first.what
