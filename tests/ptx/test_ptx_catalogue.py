"""The catalogue: every form once, and what each says of itself."""

from __future__ import annotations

import dataclasses
import subprocess
import sys

import pytest

from cupytma import ptx
from cupytma.errors import EmissionError, TargetError
from cupytma.targets import TARGETS


def test_texts_and_function_names_are_unique() -> None:
    texts = [i.text for i in ptx.catalogue()]
    names = [i.function_name for i in ptx.catalogue()]
    assert len(set(texts)) == len(texts)
    assert len(set(names)) == len(names)


def test_repr_is_the_call_that_makes_it() -> None:
    for i in (
        *ptx.catalogue(),
        ptx.tensormap_replace(field="global_dim", ordinal=3),
        ptx.setmaxnreg(action="inc", count=64),
    ):
        again = eval(repr(i), vars(ptx))
        assert again == i
        assert hash(again) == hash(i)


def test_instructions_are_frozen() -> None:
    i = ptx.tensor_load(rank=1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        i.mnemonic = "mov"  # type: ignore[misc]


def test_ptx_versions() -> None:
    assert ptx.tensor_load(rank=2).ptx_version == (8, 0)
    assert ptx.tensor_load(rank=2, destination="shared::cta").ptx_version == (8, 6)
    assert ptx.tensor_store(rank=2).ptx_version == (8, 0)
    assert ptx.mbarrier_init().ptx_version == (7, 8)
    assert ptx.mbarrier_arrive().ptx_version == (7, 8)
    assert ptx.mbarrier_arrive(semantics="release", scope="cta").ptx_version == (8, 0)
    assert ptx.mbarrier_arrive(semantics="relaxed", scope="cta").ptx_version == (8, 6)
    assert ptx.mbarrier_expect_tx(semantics="relaxed", scope="cta").ptx_version == (8, 0)
    assert ptx.mbarrier_try_wait_parity().ptx_version == (7, 8)
    assert ptx.mbarrier_test_wait_parity(space="generic").ptx_version == (7, 1)
    assert ptx.mbarrier_arrive(space="generic").ptx_version == (7, 0)
    assert ptx.mbarrier_arrive(space="generic", count=True).ptx_version == (7, 8)
    assert ptx.fence(semantics="sc", scope="gpu").ptx_version == (6, 0)
    assert ptx.fence(semantics="sc", scope="cluster").ptx_version == (7, 8)
    assert ptx.wgmma_mma_async(n=8, a_type="s8").ptx_version == (8, 0)
    assert ptx.wgmma_mma_async(n=8, a_type="s8", b_type="u8").ptx_version == (8, 4)


@pytest.mark.parametrize("semantics", ["acquire", "release"])
def test_one_sided_fences_are_as_new_as_the_assemblers_that_take_them(semantics: str) -> None:
    form = ptx.fence(semantics=semantics, scope="gpu")
    assert form.ptx_version == (8, 6)
    with pytest.raises(EmissionError, match=r"it needs PTX 8\.6 \(CUDA 12\.8\), not 8\.5"):
        ptx.spell(form, toolkit="12.6")


@pytest.mark.parametrize("name", TARGETS)
def test_tile_mode_and_barriers_are_on_every_target(name: str) -> None:
    everywhere = [i for i in ptx.catalogue() if i.family.startswith("mbarrier_") or i.family == "bulk_commit_group"]
    everywhere += [ptx.tensor_load(rank=2), ptx.tensor_store(rank=2), ptx.tensor_reduce(rank=2, reduction="add")]
    assert all(i.supported_on(name) and TARGETS[name] in i.targets for i in everywhere)


DATACENTRE = "sm_100a sm_100f sm_103a sm_110a"
BLACKWELL = "sm_100 sm_100a sm_100f sm_103 sm_103a sm_110 sm_110a sm_120 sm_120a sm_121 sm_121a"
SPECIFIC = "sm_90a sm_100a sm_100f sm_103a sm_110a sm_120a sm_121a"


@pytest.mark.parametrize(
    ("i", "names"),
    [
        (ptx.tensor_load(rank=2, cta_group=2), DATACENTRE),
        (ptx.tensor_load(rank=2, mode="tile::gather4"), DATACENTRE),
        (ptx.tensor_load(rank=2, mode="tile::gather4", destination="shared::cta"), BLACKWELL),
        (ptx.tensor_load(rank=3, mode="im2col::w", destination="shared::cta"), BLACKWELL),
        (ptx.tensor_load(rank=3, mode="im2col::w::128", destination="shared::cta"), DATACENTRE),
        (ptx.tensor_store(rank=2, mode="tile::scatter4"), DATACENTRE),
        (ptx.tensor_prefetch(rank=2, mode="tile::gather4"), DATACENTRE),
        (ptx.bulk_copy(destination="global", source="shared::cta", byte_mask=True), BLACKWELL),
        (ptx.tensormap_replace(field="rank"), SPECIFIC),
        (ptx.tensormap_replace(field="swizzle_atomicity"), SPECIFIC.replace("sm_90a ", "")),
        (ptx.setmaxnreg(action="dec"), SPECIFIC),
        (ptx.wgmma_mma_async(n=64, a_type="bf16"), "sm_90a"),
        (ptx.stmatrix(num=4, shape="m16n8", trans=True, type="b8"), SPECIFIC.replace("sm_90a ", "")),
    ],
    ids=repr,
)
def test_targets_of_forms_that_not_every_target_has(i: ptx.Instruction, names: str) -> None:
    assert " ".join(map(str, i.targets)) == names


def test_supported_on_refuses_targets_without_the_unit() -> None:
    with pytest.raises(TargetError, match=r"'sm_80' has no Tensor Memory Accelerator"):
        ptx.tensor_load(rank=1).supported_on("sm_80")


def test_documentation_and_source() -> None:
    for i in ptx.catalogue():
        assert i.documentation.endswith("."), i
        assert "{" not in i.documentation, i
        assert i.source.startswith("PTX ISA: ")
        assert i.mnemonic.split(".")[0] in i.source


def test_documentation_of_copies_says_units_alignment_and_completion() -> None:
    load = ptx.tensor_load(rank=3, multicast=True).documentation
    for part in ("3-dimensional", "elements", "128 bytes", "complete_tx", "cta_mask"):
        assert part in load
    store = ptx.tensor_store(rank=3).documentation
    for part in ("3-dimensional", "elements", "128 bytes", "bulk_commit_group"):
        assert part in store


def test_import_loads_no_array_or_cuda_library() -> None:
    program = (
        # Packages may put an empty namespace `cuda` there before anything is imported.
        "import sys; before = set(sys.modules); import cupytma.ptx; cupytma.ptx.header(); "
        "print({m.split('.')[0] for m in set(sys.modules) - before} & {'numpy', 'cupy', 'cuda', 'ml_dtypes'})"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
