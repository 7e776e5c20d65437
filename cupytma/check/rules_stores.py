"""The rules about copies out of shared memory and their groups."""

from __future__ import annotations

from cupytma.check.examples import (
    COMMIT,
    FENCE,
    MAP,
    STORED,
    SYNC,
    TILE,
    WAIT_STORE,
    changed,
    kernel,
)
from cupytma.check.finding import Rule, Severity

_STORED = kernel(STORED, MAP)
_ASYNC = "PTX ISA: Async proxy; membar, fence: fence.proxy.async"
_GROUPS = "PTX ISA: cp.async.bulk.commit_group, cp.async.bulk.wait_group"
_REUSED = kernel(
    TILE
    + "    for (int i = 0; i < 8; ++i) {\n"
    + "        if (threadIdx.x == 0) cupytma::bulk_wait_group_read<0>();\n"
    + "        __syncthreads();\n"
    + "        tile[threadIdx.x] = i;\n"
    + "        cupytma::fence_proxy_async_shared_cta();\n"
    + "        __syncthreads();\n"
    + "        if (threadIdx.x == 0) {\n"
    + "            cupytma::tensor_store_2d(&map, 0, 32 * i, tile);\n"
    + "            cupytma::bulk_commit_group();\n"
    + "        }\n"
    + "    }\n"
    + "    if (threadIdx.x == 0) cupytma::bulk_wait_group<0>();\n",
    MAP,
)

STORE_RULES = (
    Rule(
        "proxy-fence-missing", Severity.ERROR,
        "fence.proxy.async stands between ordinary writes of shared memory and a bulk copy that reads it",
        "A bulk store or reduction reads shared memory through the async proxy, which need not see what "
        "ordinary stores "
        "have written, not even those of the same thread, until a proxy fence. Old bytes are stored, now and then.",
        "let every writing thread execute fence.proxy.async.shared::cta after its writes and before the barrier",
        _ASYNC, bad=changed(_STORED, (FENCE, "")), good=_STORED,
    ),
    Rule(
        "tile-not-synchronised", Severity.ERROR,
        "a barrier stands between what many threads write and the one thread that stores it",
        "The thread that starts the copy may be ahead of those that still write the tile.",
        "put __syncthreads(), or a barrier of the threads that write, after their proxy fence and before the copy",
        "PTX ISA: Memory consistency model: causality order", bad=changed(_STORED, (SYNC, "")), good=_STORED,
    ),
    Rule(
        "commit-group-missing", Severity.ERROR,
        "bulk copies are committed to a group by the thread that starts them",
        "cp.async.bulk.wait_group waits for groups. A copy that was never committed to one is waited for by nothing.",
        "execute cp.async.bulk.commit_group after the last copy of a group, in the same thread",
        _GROUPS, bad=changed(_STORED, (COMMIT, "")), good=_STORED,
    ),
    Rule(
        "shared-reused-early", Severity.ERROR,
        "shared memory is written again only after the copies that read it have read it",
        "A committed copy still reads its source. What is written there next is stored in its place.",
        "execute cp.async.bulk.wait_group.read in the thread that committed the copy, then a barrier if others write",
        _GROUPS,
        bad=changed(_REUSED, ("        if (threadIdx.x == 0) cupytma::bulk_wait_group_read<0>();\n", "")), good=_REUSED,
    ),
    Rule(
        "wait-group-kind", Severity.ERROR,
        "groups of bulk copies are waited for with cp.async.bulk.wait_group, those of cp.async with "
        "cp.async.wait_group",
        "The two kinds of groups are separate. A wait for the other kind returns at once.",
        "use cp.async.bulk.commit_group and cp.async.bulk.wait_group for bulk and tensor copies, and for "
        "cp.async those "
        "without .bulk",
        _GROUPS + "; cp.async.wait_group",
        bad=changed(_STORED, (WAIT_STORE, "        cupytma::cp_async_wait_all();\n" + WAIT_STORE)), good=_STORED,
    ),
    Rule(
        "exit-in-flight", Severity.WARNING,
        "a kernel ends after its copies have read its shared memory",
        "Shared memory is free for another block when the block ends. A copy that still reads it may store the other "
        "block's bytes.",
        "end with cp.async.bulk.wait_group 0 (.read is enough for the source) in the thread that committed the copies",
        _GROUPS, bad=changed(_STORED, (WAIT_STORE, "")), good=_STORED,
    ),
)  # fmt: skip
