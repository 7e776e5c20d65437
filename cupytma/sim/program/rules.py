"""What can be wrong with a program: one row for each fault that a run reports."""

from __future__ import annotations

from dataclasses import dataclass

KINDS = ("hang", "race", "misuse", "fault")

_MODEL = "PTX ISA: Memory Consistency Model"
_MBARRIER = "PTX ISA: mbarrier"
_GROUPS = "PTX ISA: cp.async.bulk.wait_group"
_ASYNC = "PTX ISA: Asynchronous Operations, Async Proxy"
_MAPS = "PTX ISA: membar, fence: fence.proxy.tensormap; CUDA programming guide: tensor maps in global memory"


@dataclass(frozen=True)
class Rule:
    """One row of the table.

    Attributes
    ----------
    id : str
        Stable name, such as ``proxy-fence``.
    kind : str
        ``"hang"``: a thread waits for what never comes. ``"race"``: the memory model does not order two accesses.
        ``"misuse"``: an instruction used in a way that has no meaning, or another one. ``"fault"``: the hardware kills
        the kernel.
    statement : str
        What has to hold.
    message : str
        What is wrong, with the numbers in it; a format string.
    fix : str
        What to do; a format string.
    source : str
        Where it is known from.
    """

    id: str
    kind: str
    statement: str
    message: str
    fix: str
    source: str


RULES: dict[str, Rule] = {
    rule.id: rule
    for rule in (
        Rule(
            "expect-tx-high", "hang", "the bytes announced for a phase are those that its copies bring",
            "{barrier} never completes phase {phase}: {announced} B were announced and {arrived} B have come, and no "
            "copy is under way that brings the other {rest} B",
            "announce what the copies bring, {arrived} B here (`box_bytes` of the tensor maps; fill counts), or start "
            "the copy that is missing",
            _MBARRIER + ": expect-tx and complete-tx operations; measured",
        ),
        Rule(
            "expect-tx-low", "hang", "every byte that a copy brings is announced to the phase that it completes on",
            "{barrier}: {announced} B were announced for phase {phase}, and its copies bring more: {outcome}",
            "announce all that the copies of a phase bring (`box_bytes` of each tensor map; fill counts), by "
            "mbarrier_arrive_expect_tx, or by mbarrier_expect_tx before the arrival that ends the phase",
            _MBARRIER + ": expect-tx and complete-tx operations; measured: completes early, or never",
        ),
        Rule(
            "arrival-missing", "hang", "as many threads arrive in a phase as the barrier was initialised with",
            "{barrier} never completes phase {phase}: {arrivals} of {count} arrivals have come ({announced} B "
            "announced, {arrived} B arrived)",
            "let every thread that is counted arrive in each phase, or initialise the barrier with the number of those "
            "that do; a first wait that should pass at once asks for parity 1",
            _MBARRIER + ": phase of the mbarrier object",
        ),
        Rule(
            "wait-phase", "hang", "the n-th wait for a barrier, counted from 0, asks for parity n % 2",
            "{waiter} waits for parity {parity} of {barrier}, which is now phase {phase}, and nothing arrives in it; "
            "phase {before} has completed, and this thread has not waited for that",
            "ask for parity {other} here: phases alternate between parity 0 and 1, beginning with 0",
            _MBARRIER + ".test_wait, mbarrier.try_wait",
        ),
        Rule(
            "thread-barrier", "hang", "every thread that a barrier counts comes to it",
            "{barrier} waits for {count} threads, and {arrived} have come",
            "let every thread that is counted execute the barrier, also those that have nothing to do between",
            "PTX ISA: bar, barrier; barrier.cluster",
        ),
        Rule(
            "never-changes", "hang", "what a thread polls changes",
            "{waiter} polls {place}, and nobody is left to change it",
            "set it in every path through the program, after what it announces",
            _MODEL + ": release and acquire patterns",
        ),
        Rule(
            "unordered", "race", "two accesses to the same bytes, one of them a write, are ordered by synchronisation",
            "{later}; {earlier}; no barrier or wait orders the two",
            "put a barrier between them that both threads take part in (syncthreads, an mbarrier, a flag that is "
            "released and acquired)",
            _MODEL + ": causality order",
        ),
        Rule(
            "proxy-fence", "race", "fence.proxy.async stands between a generic write and an asynchronous access",
            "{later}; {earlier}; synchronisation orders the two, but no fence.proxy.async is on the way",
            "let every writing thread execute fence_proxy_async after its writes and before the barrier",
            _ASYNC,
        ),
        Rule(
            "tile-not-complete", "race", "a tile is used after the phase that its load completes on",
            "{later}; {earlier}; {reason}",
            "wait for the phase of the barrier that the load completes on, with the parity of that phase, before "
            "touching the tile",
            _ASYNC + "; " + _MBARRIER + ".test_wait, mbarrier.try_wait",
        ),
        Rule(
            "refill-unordered", "race", "a tile is loaded again after all who use it have said that they are done",
            "{later}; {earlier}; nothing says that its user is done with the tile when it is loaded again",
            "let every user of the tile arrive on a barrier when it is done, and wait for that before the next load "
            "into it",
            _MODEL + ": causality order",
        ),
        Rule(
            "source-still-read", "race", "what a copy reads is overwritten after the copy has read it",
            "{later}; {earlier}, and may still be reading",
            "before writing there again: bulk_wait_group(…, read=True) by the thread that committed the copy, then a "
            "barrier if another thread writes; for a load, wait for its barrier",
            _GROUPS,
        ),
        Rule(
            "result-not-written", "race", "what a bulk store writes is used after bulk_wait_group, not only .read",
            "{later}; {earlier}, and may still be writing{reason}",
            "wait with bulk_wait_group(0) in the thread that committed the store, then a barrier if another thread "
            "uses the result",
            _GROUPS,
        ),
        Rule(
            "init-unordered", "race", "an mbarrier is used after its initialisation",
            "{later} uses {barrier}, and {reason}",
            "put syncthreads (a cluster barrier, for other blocks) between the initialisation and the first use",
            _MBARRIER + ".init",
        ),
        Rule(
            "init-not-fenced", "race", "fence.mbarrier_init stands between an mbarrier's initialisation and a copy",
            "{later} completes on {barrier}, whose initialisation was not fenced for the async proxy",
            "let the initialising thread execute fence_mbarrier_init before the barrier that tells the others",
            "PTX ISA: membar, fence: fence.mbarrier_init",
        ),
        Rule(
            "map-not-released", "race", "a changed tensor map is released to the tensormap proxy",
            "{later} reads the tensor map in {region}; {earlier}, and did not release it to the tensormap proxy",
            "after the last change: fence_proxy_tensormap_release (in place), or publish it with "
            "tensormap_cp_fenceproxy",
            _MAPS,
        ),
        Rule(
            "map-not-acquired", "race", "a tensor map in global memory is acquired by the block that uses it",
            "{later} reads the tensor map in {region}; {earlier}, and this block has not acquired it{reason}",
            "fence_proxy_tensormap_acquire of its 128 bytes at scope {scope!r}, in this block, after the change is "
            "announced and before the copy",
            _MAPS,
        ),
        Rule(
            "map-scope", "race", "release and acquire of a tensor map have a scope that includes both threads",
            "{later} reads the tensor map in {region}; {earlier}, and {reason}",
            "use scope {scope!r} on both sides: 'cta' within a block, 'cluster' within a cluster, 'gpu' between blocks "
            "and kernels, 'sys' where the host wrote it",
            _MAPS,
        ),
        Rule(
            "map-in-use", "race", "a tensor map is changed after the copies that read it are complete",
            "{later} the tensor map in {region}; {earlier}, and may still be reading the map",
            "wait for the copies that use the map before changing it: the barrier of a load, bulk_wait_group of a "
            "store",
            "PTX ISA: Completion Mechanisms for Asynchronous Copy Operations",
        ),
        Rule(
            "exit-in-flight", "race", "a block ends after the copies and the other blocks are done with its memory",
            "{block} ends while {what}",
            "before the end wait for it: bulk_wait_group(0, read=True) for stores, the barrier for loads, a cluster "
            "barrier for other blocks",
            "PTX ISA: cp.async.bulk; CUDA programming guide: distributed shared memory",
        ),
        Rule(
            "group-not-committed", "misuse", "bulk stores are committed to a group by the thread that started them",
            "{thread} starts {what} and never commits it to a group: no wait covers it",
            "bulk_commit_group() after the last store of a group, in the same thread",
            "PTX ISA: cp.async.bulk.commit_group",
        ),
        Rule(
            "group-other-thread", "misuse", "bulk groups are waited for by the thread that committed them",
            "{thread} waits for bulk groups and never committed one; {other} commits those of this block",
            "let the thread that commits the groups wait for them, and tell the others by a barrier",
            _GROUPS,
        ),
        Rule(
            "group-not-bulk", "misuse", "bulk groups are waited for with cp.async.bulk.wait_group",
            "{thread} executes cp.async.wait_group while {what} of its bulk copies are pending: it waits for none of "
            "them",
            "use bulk_commit_group and bulk_wait_group: the groups of cp.async are others",
            "PTX ISA: cp.async.wait_group",
        ),
        Rule(
            "cluster-barrier-order", "misuse", "a thread arrives at the cluster's barrier once before each wait",
            "{later} comes {problem}",
            "let every thread of the cluster execute barrier_cluster_arrive and then barrier_cluster_wait",
            "PTX ISA: barrier.cluster",
        ),
        Rule(
            "multicast-outside", "misuse", "a multicast goes to blocks of the cluster",
            "{later} multicasts to rank {rank}, and the cluster has {blocks}",
            "set no bit of cta_mask beyond the cluster's {blocks}: at most {mask:#x}",
            "PTX ISA: cp.async.bulk.tensor: .multicast::cluster",
        ),
        Rule(
            "multicast-not-expected", "misuse", "every block that a multicast writes to announces the bytes",
            "{later} brings {arrived} B to {barrier}, where phase {phase} has none announced",
            "let a thread of each receiving block announce the bytes on its own barrier, or take it out of cta_mask",
            "PTX ISA: cp.async.bulk.tensor: .multicast::cluster",
        ),
        Rule(
            "tiles-overlap", "misuse", "tiles in use at the same time have shared memory of their own",
            "{later}; {earlier}: the arrays share bytes",
            "give each its own bytes of shared memory, or order the two uses by a barrier",
            "PTX ISA: cp.async.bulk.tensor",
        ),
        Rule(
            "tile-overruns", "misuse", "a tile fits the array that it is loaded to or stored from",
            "{later} touches {touched} B from the start of {region}, which has {size} B",
            "make the array as large as the tile: with a swizzle, rows advance by a whole span",
            "PTX ISA: cp.async.bulk.tensor; measured",
        ),
        Rule(
            "barrier-overwritten", "misuse", "nothing else is written where an mbarrier is",
            "{later} writes over {barrier}",
            "keep tiles apart from barriers, or end the barrier with mbarrier_inval first",
            _MBARRIER + ": contents of the mbarrier object",
        ),
        Rule(
            "tx-count-range", "misuse", "the transaction count stays within 2^20 - 1 bytes",
            "{later} raises the transaction count of {barrier} to {tx} B; the most is {most} B",
            "split the copies over more barriers or phases",
            _MBARRIER + ": tx-count",
        ),
        Rule(
            "arrival-surplus", "misuse", "no more arrivals come in a phase than are pending",
            "{later} arrives {arrivals} times on {barrier} in phase {phase}, where {pending} of {count} arrivals are "
            "pending",
            "initialise the barrier with the number of arrivals of a phase",
            _MBARRIER + ".arrive",
        ),
        Rule(
            "double-init", "misuse", "an mbarrier is initialised once",
            "{later} initialises {barrier}, which {earlier} has initialised",
            "initialise each barrier in one thread; mbarrier_inval comes between two uses of the memory",
            _MBARRIER + ".init",
        ),
        Rule(
            "use-after-inval", "misuse", "an mbarrier is not used after mbarrier_inval",
            "{ender} ends {barrier}, and nothing orders {user} before that",
            "end a barrier after its last use, ordered by another barrier",
            _MBARRIER + ".inval",
        ),
        Rule(
            "stale-token", "misuse", "a token is waited for in its phase or the one after it",
            "{later} waits for the token of phase {token} of {barrier}, which is in phase {phase}",
            "wait with the token of the newest arrival",
            _MBARRIER + ".test_wait, mbarrier.try_wait",
        ),
        Rule(
            "map-unusable", "fault", "a tensor map in memory is complete when it is used",
            "{later} finds no tensor map that an encoder makes in the 128 bytes of {region}: {reason}",
            "replace every field that the template does not have right, before the map is published",
            "PTX ISA: tensormap.replace",
        ),
        Rule(
            "hardware-fault", "fault", "a copy keeps the rules of the hardware",
            "{later}: {reason}",
            "see `cupytma.sim.load` and `store` for what the operands must be",
            "measured",
        ),
    )
}  # fmt: skip
"""What a simulated program is told, by id."""
