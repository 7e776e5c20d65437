"""The catalogue: every form once, and what each says of itself."""

from __future__ import annotations

import dataclasses
import subprocess
import sys

import pytest

from cupytma import ptx
from cupytma.errors import TargetError
from cupytma.targets import TARGETS


def test_texts_and_function_names_are_unique() -> None:
    texts = [i.text for i in ptx.catalogue()]
    names = [i.function_name for i in ptx.catalogue()]
    assert len(set(texts)) == len(texts)
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("i", ptx.catalogue(), ids=repr)
def test_repr_is_the_call_that_makes_it(i: ptx.Instruction) -> None:
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


@pytest.mark.parametrize("name", TARGETS)
def test_tile_mode_and_barriers_are_on_every_target(name: str) -> None:
    assert all(i.supported_on(name) for i in ptx.catalogue())
    assert all(TARGETS[name] in i.targets for i in ptx.catalogue())


def test_supported_on_refuses_targets_without_the_unit() -> None:
    with pytest.raises(TargetError, match=r"'sm_80' has no Tensor Memory Accelerator"):
        ptx.tensor_load(rank=1).supported_on("sm_80")


@pytest.mark.parametrize("i", ptx.catalogue(), ids=repr)
def test_documentation_and_source(i: ptx.Instruction) -> None:
    assert i.documentation.endswith((".", "then bulk_wait_group."))
    assert "{" not in i.documentation
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
