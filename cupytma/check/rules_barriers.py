"""The rules about mbarriers."""

from __future__ import annotations

from cupytma.check.examples import (
    COPY,
    EXPECT,
    LOADED,
    MAP,
    OUT,
    SYNC,
    WAIT,
    changed,
    kernel,
)
from cupytma.check.finding import Rule, Severity

_LOADED = kernel(LOADED, MAP, OUT)
_INIT = "PTX ISA: mbarrier.init; membar, fence: fence.mbarrier_init"
_PHASES = "PTX ISA: Phase of the mbarrier object"
_TX = "PTX ISA: mbarrier.expect_tx; Tracking asynchronous operations by the mbarrier object"
_BULK = "        cupytma::bulk_copy_to_shared_cluster_from_global(tile, source, 4096, &loaded);\n"
_TWO = kernel(
    changed(
        LOADED,
        (EXPECT, EXPECT.replace("sizeof tile", "4096 + 1024")),
        (COPY, _BULK + _BULK.replace("tile, source, 4096", "more, source + 1024, 1024")),
        ("    __shared__ unsigned", "    __shared__ alignas(128) float more[256];\n    __shared__ unsigned"),
    ),
    "const float* source", OUT,
)  # fmt: skip
RING = kernel(
    "    __shared__ alignas(128) float tile[4][32 * 32];\n"
    "    __shared__ unsigned long long full[4], empty[4];\n"
    "    if (threadIdx.x == 0) {\n"
    "        for (int i = 0; i < 4; ++i) {\n"
    "            cupytma::mbarrier_init(&full[i], 1);\n"
    "            cupytma::mbarrier_init(&empty[i], 128);\n"
    "        }\n"
    "        cupytma::fence_mbarrier_init();\n"
    "    }\n"
    "    __syncthreads();\n"
    "    if (threadIdx.x >= 128) {\n"
    "        if (!cupytma::elect_sync()) return;\n"
    "        int stage = 0, parity = 1;\n"
    "        for (int k = 0; k < tiles; ++k) {\n"
    "            cupytma::mbarrier_wait_parity(&empty[stage], parity);\n"
    "            cupytma::mbarrier_arrive_expect_tx_sink(&full[stage], 4096);\n"
    "            cupytma::tensor_load_2d(tile[stage], &map, 32 * k, 0, &full[stage]);\n"
    "            if (++stage == 4) stage = 0, parity ^= 1;\n"
    "        }\n"
    "        return;\n"
    "    }\n"
    "    float sum = 0;\n"
    "    int stage = 0, parity = 0;\n"
    "    for (int k = 0; k < tiles; ++k) {\n"
    "        cupytma::mbarrier_wait_parity(&full[stage], parity);\n"
    "        sum += tile[stage][threadIdx.x];\n"
    "        cupytma::mbarrier_arrive_sink(&empty[stage]);\n"
    "        if (++stage == 4) stage = 0, parity ^= 1;\n"
    "    }\n"
    "    out[threadIdx.x] = sum;\n",
    MAP, "int tiles", OUT,
)  # fmt: skip

BARRIER_RULES = (
    Rule(
        "mbarrier-not-initialised", Severity.ERROR,
        "an mbarrier is initialised before it is used",
        "What an mbarrier does that lies in shared memory as it happens to be is not defined; mostly the kernel hangs.",
        "initialise it with mbarrier.init in one thread, with the number of arrivals of a phase",
        _INIT, bad=changed(_LOADED, ("        cupytma::mbarrier_init(&loaded, 1);\n", "")), good=_LOADED,
    ),
    Rule(
        "mbarrier-init-not-fenced", Severity.WARNING,
        "fence.mbarrier_init stands between an mbarrier's initialisation and the copies that complete on it",
        "The unit that completes the copy, and other blocks of the cluster, see the initialisation for sure only after "
        "the fence.",
        "let the initialising thread execute fence.mbarrier_init.release.cluster before the barrier that tells "
        "the others",
        _INIT, bad=changed(_LOADED, ("        cupytma::fence_mbarrier_init();\n", "")), good=_LOADED,
    ),
    Rule(
        "mbarrier-init-unordered", Severity.ERROR,
        "a barrier of threads stands between an mbarrier's initialisation and its use by other threads",
        "Threads that come to the mbarrier before the one that initialises it use what lay there before.",
        "put __syncthreads() (a cluster barrier where other blocks use it) after the initialisation",
        _INIT, bad=changed(_LOADED, (SYNC, "")), good=_LOADED,
    ),
    Rule(
        "expect-tx-mismatch", Severity.ERROR,
        "the bytes that are expected in a phase are those that its copies bring",
        "With more bytes expected than come, the phase never completes. With fewer, it may complete before the "
        "copies do, "
        "or never.",
        "expect the sum of the copies' bytes: of a tensor load all bytes of its box, those out of bounds too",
        _TX, bad=changed(_TWO, ("4096 + 1024", "4096")), good=_TWO,
    ),
    Rule(
        "load-never-waited", Severity.ERROR,
        "somebody waits for the mbarrier that a copy completes on",
        "A copy runs on while threads go on. Only the completion of its mbarrier's phase says that the tile is there.",
        "wait with mbarrier.try_wait.parity before the tile is touched, in every thread that touches it",
        _PHASES, bad=changed(_LOADED, (WAIT, "")), good=_LOADED,
    ),
    Rule(
        "wait-never-completed", Severity.ERROR,
        "something arrives on an mbarrier that is waited for",
        "A phase completes when all arrivals have come and all expected bytes. Bytes alone are no arrival: a "
        "wait for a "
        "barrier that nothing arrives on hangs.",
        "arrive on it, for a load with mbarrier.arrive.expect_tx in the thread that starts it",
        _TX, bad=changed(_LOADED, (EXPECT, "")), good=_LOADED,
    ),
    Rule(
        "arrival-never-waited", Severity.WARNING,
        "somebody waits for an mbarrier that threads arrive on",
        "Arrivals say that something is done, such as a tile being read. If nobody waits, the tile is filled again at "
        "any time.",
        "wait for the barrier before what the arrivals allow, or take it out",
        _PHASES,
        bad=changed(RING, ("            cupytma::mbarrier_wait_parity(&empty[stage], parity);\n", "")), good=RING,
    ),
    Rule(
        "parity-never-flips", Severity.ERROR,
        "a loop that comes to the same mbarrier again waits for the other parity",
        "Phases alternate between parity 0 and 1. A wait with the parity of the phase before returns at once, "
        "before the "
        "tile is there.",
        "flip the parity each time the loop comes back to the same mbarrier: parity ^= 1",
        _PHASES,
        bad=changed(
            RING,
            ("&full[stage], parity);\n        sum", "&full[stage], 0);\n        sum"),
        ),
        good=RING,
    ),
    Rule(
        "parity-of-no-phase", Severity.ERROR,
        "a wait for the first phase of an mbarrier has parity 0",
        "A new mbarrier is in phase 0, and a wait for parity 1 is one for the phase before, which counts as "
        "complete. The "
        "wait returns before the tile is there.",
        "wait with parity 0 for the first phase, and with parity 1 for the second",
        _PHASES, bad=changed(_LOADED, ("wait_parity(&loaded, 0)", "wait_parity(&loaded, 1)")), good=_LOADED,
    ),
)  # fmt: skip
