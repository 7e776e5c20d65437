"""The package's own kernels, which run right on hardware: nothing is found in them, and most of what breaks them is."""

from __future__ import annotations

import re
import time

import pytest
from mutants import MUTATIONS, kernels_of, maps_of, mutants
from own_kernels import TARGETS, own_ptx

from cupytma import check, ptx

pytest.importorskip("cuda.bindings.nvrtc", reason="needs cuda-python and NVRTC")


@pytest.mark.parametrize("target", TARGETS)
def test_nothing_is_found_in_our_own_kernels(target: str) -> None:
    for name, text in own_ptx(target).items():
        found = check.check_ptx(text)
        if name.startswith(("multicast", "broadcast")):  # whose clusters the launch makes
            found = tuple(finding for finding in found if finding.rule != "cluster-not-declared")
        assert found == (), name


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


REBINDS = [
    ptx.rebind(rank=rank, space=space, seeded=seeded, scope=scope)
    for rank in range(1, 6) for space in ("shared::cta", "global") for seeded in (True, False)
    for scope in ("gpu", "sys")
]  # fmt: skip


def _kernel_of(number: int, made: ptx.Rebind) -> str:
    """A kernel that points its block's map at a tensor and loads from it."""
    staged = made.space == "shared::cta"
    scope = made.scope
    arguments = [
        "map", *(["&staging"] if staged or made.seeded else []), *(["&seed"] if made.seeded else []), "address",
        "extents", *(["strides"] if made.rank > 1 else []),
    ]  # fmt: skip
    return f"""
extern "C" __global__ void kernel_{number}(
    const __grid_constant__ CUtensorMap seed, CUtensorMap* maps, unsigned long long address, float* out)
{{
    __shared__ alignas(128) CUtensorMap staging;
    __shared__ alignas(128) float tile[1024];
    __shared__ unsigned long long loaded;
    CUtensorMap* map = maps + blockIdx.x;
    const unsigned extents[{made.rank}] = {{32}};
    const unsigned long long strides[{max(made.rank - 1, 1)}] = {{128}};
    const int start[{made.rank}] = {{}};
    if (threadIdx.x < 32) {{
        {made.function_name}({", ".join(arguments)});
    }}
    if (threadIdx.x == 0) {{
        cupytma::fence_proxy_tensormap_acquire_{scope}(map);
        cupytma::mbarrier_init(&loaded, 1);
        cupytma::fence_mbarrier_init();
        cupytma::mbarrier_arrive_expect_tx_sink(&loaded, 4096);
        cupytma::tensor_load(tile, map, start, &loaded);
    }}
    __syncthreads();
    cupytma::mbarrier_wait_parity(&loaded, 0);
    out[threadIdx.x] = tile[threadIdx.x];
}}
"""


@pytest.mark.parametrize("target", TARGETS)
def test_nothing_is_found_in_kernels_that_rebind_a_map(target: str) -> None:
    functions = "\n".join(made.function() for made in REBINDS)
    kernels = "".join(_kernel_of(number, made) for number, made in enumerate(REBINDS))
    source = f"#include <cupytma.cuh>\nnamespace cupytma {{\n{functions}\n}}\n{kernels}"
    source = re.sub(r"\{\n        rebind", "{\n        cupytma::rebind", source)
    assert check.check_cuda(source, target) == ()
