"""The package's own kernels, which run right on hardware: nothing is found in them, and most of what breaks them is."""

from __future__ import annotations

import time

import pytest
from mutants import MUTATIONS, kernels_of, maps_of, mutants
from own_kernels import TARGETS, own_ptx

from cupytma import check

pytest.importorskip("cuda.bindings.nvrtc", reason="needs cuda-python and NVRTC")


@pytest.mark.parametrize("target", TARGETS)
def test_nothing_is_found_in_our_own_kernels(target: str) -> None:
    for name, ptx in own_ptx(target).items():
        assert check.check_ptx(ptx) == (), name


@pytest.mark.parametrize(
    ("name", "kernel"),
    [("copy", "tile_copy_2d"), ("transpose_4_3d", "transpose"), ("transports", "through_parameter"),
     ("transports", "through_rebinding")],
)  # fmt: skip
def test_most_steps_are_missed_when_they_are_missing(name: str, kernel: str) -> None:
    text = kernels_of(own_ptx("sm_90a")[name])[kernel]
    label = f"{name}:{kernel}"
    assert check.check_ptx(text, maps_of(label)) == ()
    found = {mutant: mutant.findings for mutant in mutants(label, text)}
    assert len(found) >= 8
    caught = [mutant for mutant, findings in found.items() if findings]
    assert len(caught) >= 0.9 * len(found), [m.mutation for m, findings in found.items() if not findings]


def test_every_mutation_changes_some_kernel() -> None:
    names = set()
    for name in ("copy", "transpose_4_3d", "transports"):
        for kernel, text in kernels_of(own_ptx("sm_90a")[name]).items():
            names |= {mutant.mutation for mutant in mutants(kernel, text)}
    assert names == {mutation.name for mutation in MUTATIONS}


def test_twenty_thousand_lines_take_less_than_two_seconds() -> None:
    single = kernels_of(own_ptx("sm_90a")["transpose_1_5d"])["transpose"]
    head, body = single[: single.index(".visible .entry")], single[single.index(".visible .entry") :]
    copies = 1 + 20_000 // len(body.splitlines())
    text = head + "\n".join(body.replace("entry transpose(", f"entry transpose_{n}(") for n in range(copies))
    assert len(text.splitlines()) >= 20_000
    check.check_ptx(single)  # the catalogue is made once
    start = time.process_time()
    assert check.check_ptx(text) == ()
    assert time.process_time() - start < 2
