"""Addresses of one state space that go where an instruction takes one of another."""

from __future__ import annotations

import pytest

from cupytma.errors import CompileError
from cupytma.runtime.addresses import misplaced_addresses
from cupytma.runtime.compiler import compile as compile_cuda

DECLARED = """
    #include <cupytma.cuh>
    __device__ unsigned long long device_map[16];
    __constant__ unsigned long long constant_map[16];
    extern "C" __global__ void kernel(
        const __grid_constant__ CUtensorMap map, unsigned long long* maps, unsigned long long address)
    {
        __shared__ alignas(128) unsigned long long staged[32];
"""


def compiled(statement: str) -> str:
    return compile_cuda(DECLARED + statement + "}", target="sm_90a").ptx


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        (
            "cupytma::tensormap_replace_global_address_global(staged, address);",
            "kernel gives .*staged, which lies in shared memory, to an instruction that takes .* in global memory",
        ),
        (
            "cupytma::tensormap_replace_global_address_global(staged + address, address);",
            "staged, which lies in shared",
        ),
        ("cupytma::tensormap_replace_global_address_global(constant_map, address);", "_map, which lies in constant"),
        ("cupytma::prefetch_tensormap_const(device_map);", "_map, which lies in global memory, to an instruction"),
        ("cupytma::bulk_copy_to_global_from_shared_cta(staged, staged, 16);", "which lies in shared memory"),
        ("cupytma::tensormap_cp_fenceproxy_gpu(staged, staged);", "which lies in shared memory"),
    ],
)
def test_a_misplaced_address_is_refused_by_name(statement: str, message: str) -> None:
    with pytest.raises(CompileError, match=message) as refusal:
        compiled(statement)
    assert "Call the function for the space that it is in" in str(refusal.value)
    assert statement in refusal.value.source


@pytest.mark.parametrize(
    "statement",
    [
        "cupytma::tensormap_replace_global_address_shared_cta(staged, address);",
        "cupytma::tensormap_replace_global_address_generic(staged, address);",
        "cupytma::tensormap_replace_global_address_global(maps, address);",
        "cupytma::tensormap_replace_global_address_global(device_map, address);",
        "cupytma::prefetch_tensormap_param(&map); cupytma::prefetch_tensormap(&map);",
        "cupytma::prefetch_tensormap_const(constant_map); cupytma::prefetch_tensormap(constant_map);",
        "cupytma::tensormap_cp_fenceproxy_gpu(maps, staged);",
        "cupytma::bulk_copy_to_global_from_shared_cta(maps + address, staged + 16, 16);",
        "cupytma::tensormap_replace_global_address_global(reinterpret_cast<void*>(maps[address]), address);",
        "unsigned long long own[2] = {1, 2}; maps[own[address]] = own[address + 1];",
    ],
)
def test_an_address_in_its_place_is_taken(statement: str) -> None:
    compiled(statement)


def test_what_is_known_of_a_register_ends_with_its_function() -> None:
    text = """
        .visible .entry one() { mov.u64 %rd1, tile; cvta.shared.u64 %rd2, %rd1; add.s64 %rd3, %rd2, 16;
            cvta.to.shared.u64 %rd4, %rd3; }
        .visible .entry two() { cvta.to.global.u64 %rd4, %rd3; }
        .func (.param .b32 r) three() { cvta.to.global.u64 %rd4, %rd2; }
    """
    assert misplaced_addresses(text) == ()
    assert misplaced_addresses(text.replace("to.shared", "to.global")) == (
        "one gives tile, which lies in shared memory, to an instruction that takes an address in global memory",
    )
