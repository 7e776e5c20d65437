"""Sequences: rebinding a tensor map, fence recipes; and the matrix descriptor."""

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
        (GLOBAL, "host", "scope .gpu, too narrow within a host: it needs .sys"),
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
    ptx.check_rebind([texts[0].replace("%rd1", "%rd9"), *texts[1:]])  # generic, so another register than the global one
    with pytest.raises(EmissionError, match="the global addresses differ: %rd1, %rd2"):
        ptx.check_rebind([*texts[:2], texts[2].replace("%rd1", "%rd2"), *texts[3:]])
    with pytest.raises(EmissionError, match="the global addresses differ: %0, %5"):
        ptx.check_rebind([*(i.text for i in GLOBAL[:2]), GLOBAL[2].text.replace("[%0]", "[%5]"), *GLOBAL[3:]])
    staged = [*named(STAGED[:-1], "%r1"), COPY.text.replace("%0", "%rd1").replace("%1", "%r1")]
    ptx.check_rebind(staged)
    with pytest.raises(EmissionError, match="the shared::cta addresses differ: %r1, %r2"):
        ptx.check_rebind([*staged[:-1], staged[-1].replace("%r1", "%r2")])
    used = named((ACQUIRE, PREFETCH), "%rd1")
    ptx.check_rebind([*GLOBAL, *used])
    with pytest.raises(EmissionError, match="the generic addresses differ: %rd1, %rd3"):
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


def test_every_path_has_a_recipe_with_its_source() -> None:
    paths = {
        "shared-written-to-store", "barrier-to-load", "map-parameter", "map-constant", "map-global",
        "map-changed-same-block", "map-changed-other-block", "map-changed-other-kernel", "map-changed-other-device",
        "shared-refilled", "store-to-shared-reused", "global-written-to-load", "cluster-peers",
    }  # fmt: skip
    assert paths <= set(ptx.RECIPES)
    for made in ptx.RECIPES.values():
        assert made.source.startswith("PTX ISA")
        assert all(step.who for step in made.steps)
        assert all(i in ptx.catalogue() for i in made.instructions)
    with pytest.raises(EmissionError, match="there is no recipe for 'nothing'"):
        ptx.recipe("nothing")


BULK_LOAD = "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
RELEASING_COPY = "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.{}.sync.aligned"
EXPECTED_LOAD = [("one thread", "mbarrier.arrive.expect_tx.shared::cta.b64", "cta"), ("one thread", BULK_LOAD, None)]
RECIPE_STEPS: dict[str, list[tuple[str, str | None, str | None]]] = {
    "shared-written-to-store": [
        ("each writing thread", None, None),
        ("each writing thread", "fence.proxy.async.shared::cta", "cta"),
        ("all threads of the block", None, "cta"),
        ("one thread", "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group", None),
        ("one thread", "cp.async.bulk.commit_group", None),
    ],
    "barrier-to-load": [
        ("one thread", "mbarrier.init.shared::cta.b64", None),
        ("one thread", "fence.mbarrier_init.release.cluster", "cluster"),
        ("all threads of the block", None, "cta"),
        *EXPECTED_LOAD,
        ("each thread that reads the tile", "mbarrier.try_wait.parity.shared::cta.b64", "cta"),
    ],
    "map-parameter": [
        ("one thread", "prefetch.param.tensormap", None),
        *EXPECTED_LOAD,
    ],
    "map-constant": [
        ("the host", None, "sys"),
        ("one thread", "prefetch.const.tensormap", None),
        *EXPECTED_LOAD,
    ],
    "map-global": [
        ("the host", None, "sys"),
        ("one thread of each block", "fence.proxy.tensormap::generic.acquire.sys", "sys"),
        ("all threads of the block", None, "cta"),
        *EXPECTED_LOAD,
    ],
    "map-changed-same-block": [
        ("one lane", "tensormap.replace.tile.global_address.shared::cta.b1024.b64", None),
        ("one whole warp", None, "cta"),
        ("one whole warp", RELEASING_COPY.format("cta"), "cta"),
        ("all threads of the block", None, "cta"),
        ("the using thread", "fence.proxy.tensormap::generic.acquire.cta", "cta"),
        *EXPECTED_LOAD,
    ],
    "map-changed-other-block": [
        ("one lane", "tensormap.replace.tile.global_address.shared::cta.b1024.b64", None),
        ("one whole warp", None, "cta"),
        ("one whole warp", RELEASING_COPY.format("gpu"), "gpu"),
        ("one thread", None, "gpu"),
        ("one thread of each block that uses it", "fence.proxy.tensormap::generic.acquire.gpu", "gpu"),
        ("all threads of each block that uses it", None, "cta"),
        *EXPECTED_LOAD,
    ],
    "map-changed-other-kernel": [
        ("one lane", "tensormap.replace.tile.global_address.shared::cta.b1024.b64", None),
        ("one whole warp", None, "cta"),
        ("one whole warp", RELEASING_COPY.format("gpu"), "gpu"),
        ("the host", None, None),
        ("one thread of each block of the second kernel", "fence.proxy.tensormap::generic.acquire.gpu", "gpu"),
        ("all threads of each block that uses it", None, "cta"),
        *EXPECTED_LOAD,
    ],
    "map-changed-other-device": [
        ("one lane", "tensormap.replace.tile.global_address.shared::cta.b1024.b64", None),
        ("one whole warp", None, "cta"),
        ("one whole warp", RELEASING_COPY.format("sys"), "sys"),
        ("the host or a flag", None, "sys"),
        ("one thread of each block that uses it", "fence.proxy.tensormap::generic.acquire.sys", "sys"),
        ("all threads of each block that uses it", None, "cta"),
        *EXPECTED_LOAD,
    ],
    "map-changed-in-place": [
        ("the changing thread", "fence.proxy.tensormap::generic.acquire.gpu", "gpu"),
        ("the changing thread", "tensormap.replace.tile.global_address.global.b1024.b64", None),
        ("the changing thread", "fence.proxy.tensormap::generic.release.gpu", "gpu"),
        ("the changing thread", None, "gpu"),
        ("one thread of each block that uses it", "fence.proxy.tensormap::generic.acquire.gpu", "gpu"),
        ("all threads of each block that uses it", None, "cta"),
        *EXPECTED_LOAD,
    ],
    "shared-refilled": [
        ("each thread that reads the tile", "mbarrier.try_wait.parity.shared::cta.b64", "cta"),
        ("each reading thread", None, None),
        ("each reading thread", "mbarrier.arrive.shared::cta.b64", "cta"),
        ("one thread", "mbarrier.try_wait.parity.shared::cta.b64", "cta"),
        *EXPECTED_LOAD,
    ],
    "shared-rewritten-refilled": [
        ("each writing thread", "fence.proxy.async.shared::cta", "cta"),
        ("all threads of the block", None, "cta"),
        *EXPECTED_LOAD,
    ],
    "store-to-shared-reused": [
        ("one thread", "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group", None),
        ("the storing thread", "cp.async.bulk.commit_group", None),
        ("the storing thread", "cp.async.bulk.wait_group.read", None),
        ("all threads of the block", None, "cta"),
        ("each writing thread", None, None),
    ],
    "store-to-global-read": [
        ("one thread", "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group", None),
        ("the storing thread", "cp.async.bulk.commit_group", None),
        ("the storing thread", "cp.async.bulk.wait_group", None),
        ("the storing thread", "fence.acq_rel.gpu", "gpu"),
        ("the readers", None, "gpu"),
    ],
    "global-written-to-load": [
        ("each writing thread", None, None),
        ("each writing thread", "fence.proxy.async.global", "gpu"),
        ("each writing thread", "fence.acq_rel.gpu", "gpu"),
        ("one thread", "fence.acq_rel.gpu", "gpu"),
        ("one thread", "fence.proxy.async.global", "gpu"),
        *EXPECTED_LOAD,
    ],
    "cluster-peers": [
        ("one thread of each block", "mbarrier.init.shared::cta.b64", None),
        ("one thread of each block", "fence.mbarrier_init.release.cluster", "cluster"),
        ("all threads of the cluster", "barrier.cluster.arrive.release", "cluster"),
        ("all threads of the cluster", "barrier.cluster.wait.acquire", "cluster"),
        ("one thread of each block", "mbarrier.arrive.expect_tx.shared::cta.b64", "cta"),
        ("one thread of the cluster", f"{BULK_LOAD}.multicast::cluster", None),
        ("each thread that reads the tile", "mbarrier.try_wait.parity.shared::cta.b64", "cta"),
        ("one thread of each block", "mapa.u64", None),
        ("one thread of each block", "mbarrier.arrive.release.cluster.shared::cluster.b64", "cluster"),
        ("one thread of the cluster", "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64", "cluster"),
        ("all threads of the cluster", "barrier.cluster.arrive.release", "cluster"),
        ("all threads of the cluster", "barrier.cluster.wait.acquire", "cluster"),
    ],
    "shared-to-peer": [
        ("each writing thread", "fence.proxy.async.shared::cta", "cta"),
        ("all threads of the block", None, "cta"),
        ("one thread", "mapa.u64", None),
        ("one thread of the other block", "mbarrier.arrive.expect_tx.shared::cta.b64", "cta"),
        ("one thread", "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes", None),
        ("each reader in the other block", "mbarrier.try_wait.parity.shared::cta.b64", "cta"),
    ],
}


def test_every_recipe_has_a_row() -> None:
    assert RECIPE_STEPS.keys() == ptx.RECIPES.keys()


@pytest.mark.parametrize("path", RECIPE_STEPS)
def test_a_recipe_has_exactly_its_steps(path: str) -> None:
    steps = ptx.recipe(path).steps
    assert [(s.who, s.instruction.mnemonic if s.instruction else None, s.scope) for s in steps] == RECIPE_STEPS[path]


def test_recipes_have_the_fences_at_their_scopes() -> None:
    def mnemonics(path: str) -> list[str]:
        return [i.mnemonic for i in ptx.recipe(path).instructions]

    assert mnemonics("shared-written-to-store")[0] == "fence.proxy.async.shared::cta"
    assert "fence.mbarrier_init.release.cluster" in mnemonics("barrier-to-load")
    assert "fence.proxy.tensormap::generic.acquire.sys" in mnemonics("map-global")
    assert "fence.proxy.tensormap::generic.acquire.gpu" in mnemonics("map-changed-other-kernel")
    assert "fence.proxy.tensormap::generic.acquire.cta" in mnemonics("map-changed-same-block")
    assert "cp.async.bulk.wait_group.read" in mnemonics("store-to-shared-reused")
    assert not any("fence" in m for m in mnemonics("map-parameter"))


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
