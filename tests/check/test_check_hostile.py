"""Whatever the text, the checker answers, in time that grows with its length alone."""

from __future__ import annotations

import random
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import cupytma as tma
from cupytma import check
from cupytma.errors import CheckError

WORDS = (
    ".version 8.8", ".target sm_90a", ".visible .entry k(", ".param .u64 a", ")", "{", "}", ";", "\n", "@%p1",
    "@!", "[", "]", "%r1", "%r2", "%rd1", "%p1", ",", "mov.u32", "add.s32", "bra", "L:", "L", "ret", "setp.eq.s32",
    "shl.b32", "-1", "0x", "0xffffffffffffffffffffffff", "99999999999999999999", ".reg .b32 %r<9>", ".reg .pred p",
    ".shared .align 8 .b8 s[8]", "mbarrier.init.shared::cta.b64", "mbarrier.try_wait.parity.shared::cta.b64",
    "cp.async.bulk.commit_group",
    "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes",
    "[%r1], [%rd1, {%r1, %r2}], [%r2]", "tensormap.replace.tile.rank.shared::cta.b1024.b32", "call", "(",
    "selp.b32", "bfi.b32", "mapa.shared::cluster.u32", "// cupytma: ignore", "/*", "*/", ".loc 1 2 3",
    ".file 1 \"x\"", ".section", "brx.idx", ".branchtargets", "elect.sync _|p,", "\x00", "ü", "$", "::", ".",
    "fence.proxy.async", "st.shared.u32", "red.async", "clusterlaunchcontrol.try_cancel",
)  # fmt: skip

SMALL = """.version 8.8
.target sm_90a
.address_size 64
.shared .align 128 .b8 tile[4096];
.shared .align 8 .b8 full[32];
.visible .entry k(.param .align 64 .b8 map[128], .param .u32 n)
{
    .reg .pred %p<9>; .reg .b32 %r<30>; .reg .b64 %rd<9>;
    mov.b64 %rd1, map;
    cvta.param.u64 %rd2, %rd1;
    mov.u32 %r1, %tid.x;
    setp.ne.s32 %p1, %r1, 0;
    mov.u32 %r2, full;
    mov.u32 %r3, tile;
    @%p1 bra A;
    mbarrier.init.shared::cta.b64 [%r2], 1;
    fence.mbarrier_init.release.cluster;
A:  bar.sync 0;
    mov.u32 %r4, 0;
B:  @%p1 bra C;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 4096;
    cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r3], [%rd2, {%r4, %r4}], [%r2];
C:  and.b32 %r5, %r4, 1;
    { .reg .pred p; W: mbarrier.try_wait.parity.shared::cta.b64 p, [%r2], %r5; @!p bra W; }
    st.shared.u32 [%r3+4], %r1;
    fence.proxy.async.shared::cta;
    bar.sync 0;
    @%p1 bra D;
    cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%rd2, {%r4, %r4}], [%r3];
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group.read 0;
D:  add.s32 %r4, %r4, 1;
    setp.lt.s32 %p2, %r4, 9;
    @%p2 bra B;
    ret;
}
"""


def judged(text: str) -> None:
    for finding in check.check_ptx(text):
        assert finding.rule in check.RULES
        assert 1 <= finding.ptx_line <= text.count("\n") + 1


def test_the_small_kernel_is_right() -> None:
    assert check.check_ptx(SMALL) == ()


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.sampled_from(WORDS), max_size=60))
def test_words_in_any_order_are_judged(words: list[str]) -> None:
    judged(" ".join(words))
    judged(SMALL.replace("bar.sync 0;", " ".join(words), 1))


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=300))
def test_any_text_is_judged(text: str) -> None:
    judged(text)
    judged(f"mbarrier.init {text}")


def test_every_truncation_is_judged() -> None:
    for end in range(0, len(SMALL), 7):
        judged(SMALL[:end])


@settings(max_examples=100, deadline=None)
@given(st.randoms(use_true_random=False))
def test_lines_removed_repeated_or_swapped_are_judged(random: random.Random) -> None:
    lines = SMALL.split("\n")
    for _ in range(random.randint(1, 6)):
        a, b = random.randrange(len(lines)), random.randrange(len(lines))
        choice = random.randrange(3)
        if choice == 0:
            del lines[a]
        elif choice == 1:
            lines.insert(a, lines[b])
        else:
            lines[a], lines[b] = lines[b], lines[a]
    judged("\n".join(lines))


_BRANCH = "setp.eq.s32 %q{}, %r1, {};\n@%q{} bra Y{};\nbar.sync 0;\nY{}:\n"
_GUARDED = "setp.eq.s32 %q{0}, %r1, {0};\n@%q{0} st.shared.u32 [%r3], %r1;\n"
_ADDED = "setp.eq.s32 %q{0}, %r1, {0};\n@%q{0} bra Y{0};\nadd.s32 %r7, %r7, {0};\nY{0}:\n"
_WAITED = (
    "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 4096;\n"
    "W{0}: mbarrier.try_wait.parity.shared::cta.b64 %w{0}, [%r2], 1;\n@!%w{0} bra W{0};\n"
)
_UNKNOWN = "cp.async.bulk.x{} [%r1];\n"
LONG = {
    "a statement that never ends": "mbarrier.init [%r1] " + "x " * 200_000,
    "only braces": "mbarrier. " + "{" * 100_000,
    "closing braces": "mbarrier. " + "}" * 100_000,
    "brackets": "mbarrier.init " + "[" * 50_000 + ";",
    "an entry that never begins": ".entry mbarrier.(" * 5_000,
    "labels": SMALL.replace("ret;", "\n".join(f"X{n}: bra X{n};" for n in range(3000)) + "ret;"),
    "a long sum": SMALL.replace("ret;", "\n".join(f"add.s32 %a{n + 1}, %a{n}, %b{n};" for n in range(5000)) + "ret;"),
    "a long chain": SMALL.replace("ret;", "\n".join(f"xor.b32 %a{n + 1}, %a{n}, %a{n};" for n in range(5000)) + "ret;"),
    "branches": SMALL.replace("ret;", "".join(map(_BRANCH.format, *[range(800)] * 5)) + "ret;"),
    "guarded writes": SMALL.replace("ret;", "".join(map(_GUARDED.format, range(5000))) + "ret;"),
    "one register written again and again": SMALL.replace("ret;", "".join(map(_ADDED.format, range(2500))) + "ret;"),
    "many waits": SMALL.replace("ret;", "".join(map(_WAITED.format, range(1500))) + "ret;"),
    "unknown instructions": SMALL.replace("ret;", "".join(map(_UNKNOWN.format, range(4000))) + "ret;"),
}  # fmt: skip


@pytest.mark.parametrize("name", LONG)
def test_long_and_odd_texts_do_not_take_long(name: str) -> None:
    start = time.process_time()
    judged(LONG[name])
    assert time.process_time() - start < 6


def test_a_predicate_that_is_written_again_and_again_is_no_fixed_one() -> None:
    onward = (
        "mov.pred %p2, -1;\n    setp.ge.s32 %p3, %r4, 9;\n    @!%p3 bra E;\n"
        "    mov.pred %p2, 0;\nE:  @%p2 bra B;\n"
    )
    text = SMALL.replace("setp.lt.s32 %p2, %r4, 9;\n    @%p2 bra B;\n", onward)
    text = text.replace("B:  @%p1", "    mov.pred %p2, -1;\n    @!%p2 bra Z;\nB:  @%p1").replace("    ret;", "Z:  ret;")
    assert check.check_ptx(text) == ()
    without = check.check_ptx(text.replace("    cp.async.bulk.commit_group;\n", ""))
    assert "commit-group-missing" in {finding.rule for finding in without}


_LOADS = """#include <cupytma.cuh>
extern "C" __global__ void kernel(const __grid_constant__ CUtensorMap map, float* out)
{
    __shared__ alignas(128) float tile[1024];
    __shared__ unsigned long long loaded;
    if (threadIdx.x == 0) {
        cupytma::mbarrier_init(&loaded, 1);
        cupytma::fence_mbarrier_init();
        cupytma::mbarrier_arrive_expect_tx_sink(&loaded, 2048);
        cupytma::tensor_load_2d(tile, &map, 0, 0, &loaded);
    }
    __syncthreads();
    cupytma::mbarrier_wait_parity(&loaded, 0);
    out[threadIdx.x] = tile[threadIdx.x];
}
"""
_MAP = tma.Tiled(
    data_type="FLOAT32", global_address=4096, global_dim=(64, 64), global_strides=(256,), box_dim=(32, 32)
).encode()


def test_a_map_that_no_kernel_takes_is_refused() -> None:
    pytest.importorskip("cuda.bindings.nvrtc", reason="needs cuda-python and NVRTC")
    ptx = tma.compile(_LOADS, "sm_90a").ptx
    for key in (2, -1, 10**30, "nope", "ma", "out2", ""):
        for checked in (lambda key=key: check.check_cuda(_LOADS, "sm_90a", {key: _MAP}),
                        lambda key=key: check.check_ptx(ptx, {key: _MAP})):  # fmt: skip
            with pytest.raises(CheckError, match="no kernel here takes"):
                checked()
    for key in (0, "map", "kernel_param_0"):
        assert [f.rule for f in check.check_cuda(_LOADS, "sm_90a", {key: _MAP})] == ["expect-tx-mismatch"]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_lines_may_end_as_they_do_anywhere(end: str) -> None:
    pytest.importorskip("cuda.bindings.nvrtc", reason="needs cuda-python and NVRTC")
    text = tma.compile(_LOADS, "sm_90a").ptx.replace("\n", end)
    assert [finding.rule for finding in check.check_ptx(text, {0: _MAP})] == ["expect-tx-mismatch"]
