"""Sequences: rebinding a tensor map, fence recipes; and the matrix descriptor."""

from __future__ import annotations

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
    ],
)
def test_a_wrong_rebind_is_refused(sequence: tuple[ptx.Instruction, ...], within: str, message: str) -> None:
    with pytest.raises(EmissionError) as refusal:
        ptx.check_rebind(sequence, within=within)
    assert message in str(refusal.value)


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
