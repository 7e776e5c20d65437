"""Sequences: rebinding a tensor map; and the matrix descriptor."""

from __future__ import annotations

import re

import pytest

from cupytma import ptx
from cupytma.errors import EmissionError
from cupytma.runtime.compiler import compile as compile_cuda

FORMS = [
    (rank, space, seeded) for rank in range(1, 6) for space in ("global", "shared::cta") for seeded in (False, True)
]


@pytest.mark.parametrize(("rank", "space", "seeded"), FORMS)
def test_rebind_is_two_replaces_per_dimension_in_order(rank: int, space: str, seeded: bool) -> None:
    made = ptx.rebind(rank=rank, space=space, seeded=seeded)
    replaced = [dict(i.words)["field"] for i in made.instructions if i.family == "tensormap_replace"]
    assert replaced == ["global_address", *["global_dim"] * rank, *["global_stride"] * (rank - 1)]
    assert len(replaced) == 2 * rank
    ptx.check_rebind(made, rank=rank)
    ptx.check_rebind([i.text for i in made.instructions], rank=rank)


def test_rebind_functions_compile() -> None:
    made = [ptx.rebind(rank=rank, space=space, seeded=seeded) for rank, space, seeded in FORMS]
    header = ptx.header(only=[name for m in made for name in m.calls])
    source = header + "namespace cupytma {" + "\n".join(m.function() for m in made) + "}"
    source += """
        extern "C" __global__ void use(void* map, const void* seed, unsigned long long address) {
            __shared__ alignas(128) char staging[128];
            unsigned extents[2] = {8, 16};
            unsigned long long strides[1] = {64};
            cupytma::rebind_shared_cta_seeded_2d_gpu(map, staging, seed, address, extents, strides);
            cupytma::rebind_global_2d_gpu(map, address, extents, strides);
        }"""
    code = compile_cuda(source, target="sm_90a").ptx
    assert code.count("tensormap.replace.tile.") == 8
    assert code.index("fence.proxy.tensormap::generic.acquire.gpu") < code.index("tensormap::generic.release.gpu;")


COPY = ptx.tensormap_cp_fenceproxy(scope="gpu")
ACQUIRE = ptx.fence_proxy_tensormap_acquire(scope="gpu")
LOAD, PREFETCH = ptx.tensor_load(rank=2), ptx.prefetch_tensormap()
STAGED = ptx.rebind(rank=2, space="shared::cta").instructions
MIXED = ptx.tensormap_replace(field="global_dim", ordinal=1, space="shared::cta")
GLOBAL = ptx.rebind(rank=2, space="global").instructions
SHARED = ptx.rebind(rank=2, space="shared::cta", scope="cta")


@pytest.mark.parametrize(
    ("sequence", "within", "message"),
    [
        ((GLOBAL[0], GLOBAL[2], GLOBAL[1], *GLOBAL[3:]), "grid", "out of order"),
        (GLOBAL[1:], "grid", "an acquire fence of the tensormap proxy is missing"),
        (GLOBAL[:-1], "grid", "a release fence of the tensormap proxy is missing"),
        ((*GLOBAL[:3], *GLOBAL[4:]), "grid", "rank 1 takes 2 replaces"),
        (GLOBAL, "host", "scope .gpu, too narrow between the host and the device: it needs .sys"),
        (SHARED, "grid", "scope .cta, too narrow within a grid: it needs .gpu"),
        (SHARED.instructions[:-1], "block", "tensormap.cp_fenceproxy is missing"),
        ((*GLOBAL[:-1], COPY, GLOBAL[-1]), "grid", "out of place; here it belongs before the acquire"),
        ((*GLOBAL[:2], COPY, *GLOBAL[2:]), "grid", "out of place; here it belongs before the acquire"),
        ((*GLOBAL, COPY), "grid", "out of place; here it belongs before the acquire"),
        ((*GLOBAL[:-1], COPY), "grid", "a release fence of the tensormap proxy is missing"),
        ((*STAGED[:2], COPY, *STAGED[2:]), "grid", "out of place; here it comes once"),
        ((COPY, *STAGED), "grid", "out of place; here it comes once"),
        ((*STAGED, COPY), "grid", "out of place; here it comes once"),
        ((*GLOBAL[:3], LOAD, *GLOBAL[3:]), "grid", "uses the map before it is released"),
        ((*GLOBAL[:-1], LOAD, GLOBAL[-1]), "grid", "uses the map before it is released"),
        ((*STAGED[:-1], LOAD, STAGED[-1]), "grid", "uses the map before it is released"),
        ((*GLOBAL, LOAD), "grid", "after its release with no acquire"),
        ((*STAGED, PREFETCH, ACQUIRE), "grid", "after its release with no acquire"),
        ((*GLOBAL, ptx.tensor_store(rank=2), ACQUIRE), "grid", "after its release with no acquire"),
        ((*GLOBAL[:3], MIXED, *GLOBAL[4:]), "grid", "in different spaces, global and shared::cta"),
        ((*GLOBAL[:2], ACQUIRE, *GLOBAL[2:]), "grid", "a fence, fence.proxy.tensormap::generic.acquire.gpu, stands"),
        ((*STAGED[:2], ptx.fence_proxy_async(), *STAGED[2:]), "grid", "a fence, fence.proxy.async, stands"),
        ((*GLOBAL[:2], ptx.mbarrier_init(), *GLOBAL[2:]), "grid", "a foreign instruction, mbarrier.init"),
    ],
)
def test_a_wrong_rebind_is_refused(sequence: tuple[ptx.Instruction, ...], within: str, message: str) -> None:
    with pytest.raises(EmissionError) as refusal:
        ptx.check_rebind(sequence, within=within)
    assert message in str(refusal.value)


def named(instructions: tuple[ptx.Instruction, ...], *names: str) -> list[str]:
    """Their texts with these names for the first operands, instead of placeholders."""
    texts = [i.text for i in instructions]
    for number, name in enumerate(names):
        texts = [text.replace(f"[%{number}", f"[{name}") for text in texts]
    return [re.sub(r"%(\d+)", r"%v\1", text) for text in texts]


@pytest.mark.parametrize("sequence", [GLOBAL, (COPY, *GLOBAL), (*GLOBAL, ACQUIRE, LOAD), (*STAGED, ACQUIRE, PREFETCH)])
def test_a_right_sequence_is_taken_as_forms_and_as_text(sequence: tuple[ptx.Instruction, ...]) -> None:
    ptx.check_rebind(sequence)
    ptx.check_rebind([i.text for i in sequence])


def test_registers_of_text_must_be_of_one_map() -> None:
    texts = named(GLOBAL, "%rd1")
    ptx.check_rebind(texts)
    with pytest.raises(EmissionError, match="the map's addresses differ: %rd1, %rd2"):
        ptx.check_rebind([*texts[:2], texts[2].replace("%rd1", "%rd2"), *texts[3:]])
    with pytest.raises(EmissionError, match="the map's addresses differ: %0, %5"):
        ptx.check_rebind([*(i.text for i in GLOBAL[:2]), GLOBAL[2].text.replace("[%0]", "[%5]"), *GLOBAL[3:]])
    staged = [*named(STAGED[:-1], "%r1"), COPY.text.replace("%0", "%rd1").replace("%1", "%r1")]
    ptx.check_rebind(staged)
    with pytest.raises(EmissionError, match="the addresses of the staged copy differ: %r1, %r2"):
        ptx.check_rebind([*staged[:-1], staged[-1].replace("%r1", "%r2")])
    used = named((ACQUIRE, PREFETCH), "%rd1")
    ptx.check_rebind([*GLOBAL, *used])
    with pytest.raises(EmissionError, match="the map's addresses differ: %rd1, %rd3"):
        ptx.check_rebind([*GLOBAL, used[0], used[1].replace("%rd1", "%rd3")])


@pytest.mark.parametrize("rank", [2.0, "2", True, 0, 6])
def test_a_rank_that_is_none_is_refused(rank: object) -> None:
    with pytest.raises(EmissionError, match="rank="):
        ptx.rebind(rank=rank)  # type: ignore[arg-type]
    with pytest.raises(EmissionError, match="rank="):
        ptx.check_rebind(GLOBAL, rank=rank)  # type: ignore[arg-type]


def test_parse_refuses_what_is_no_text() -> None:
    with pytest.raises(EmissionError, match="None is no PTX text"):
        ptx.parse(None)  # type: ignore[arg-type]


def test_a_block_may_use_the_narrow_scope() -> None:
    ptx.check_rebind(SHARED, within="block")


def test_matrix_descriptor_bits() -> None:
    made = ptx.MatrixDescriptor(0x400, leading_byte_offset=16, stride_byte_offset=1024, swizzle="128B")
    assert made.encode() == 0x40 | 1 << 16 | 64 << 32 | 1 << 62
    assert ptx.MatrixDescriptor.decode(made.encode()) == made
    assert ptx.MatrixDescriptor(0, base_offset=5, swizzle="32B").encode() == 5 << 49 | 3 << 62
    with pytest.raises(EmissionError, match="start_address=8 does not fit: a multiple of 16"):
        ptx.MatrixDescriptor(8)
    with pytest.raises(EmissionError, match="swizzle='96B' is not supported"):
        ptx.MatrixDescriptor(0, swizzle="96B")
    with pytest.raises(EmissionError, match="bits outside its fields"):
        ptx.MatrixDescriptor.decode(1 << 15)
