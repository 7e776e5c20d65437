"""What is read of a kernel from its code: its copies, and its shared arrays."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from launch_records import KERNELS, kernel

import cupytma as tma
from cupytma.runtime.kernel_code import TensorCopy, kernel_code

pytest.importorskip("cuda.bindings.nvrtc", reason="needs cuda-python and NVRTC")

@pytest.mark.parametrize(
    ("name", "copies"),
    [
        ("load", {TensorCopy(2, False, False)}),
        ("store", {TensorCopy(2, False, True)}),
        ("reduce_and", {TensorCopy(2, False, True, "and")}),
        ("multicast", {TensorCopy(2, False, False, multicast=True)}),
        ("im2col_store", {TensorCopy(3, True, True)}),
        ("im2col_load", {TensorCopy(3, True, False)}),
        ("prefetch", {TensorCopy(2, False, False, prefetch=True)}),
        ("scalars", set()),
    ],
)
def test_the_copies_of_a_kernel_are_read_from_its_code(name: str, copies: set[TensorCopy]) -> None:
    assert kernel_code(kernel(name)).copies == copies


def test_shared_arrays_are_read_with_their_alignment_and_other_kernels_are_left_out() -> None:
    source = """
    extern __shared__ char dynamic[];
    __device__ __noinline__ int called(int i) {
        __shared__ int own[32]; own[i] = i; __syncthreads(); return own[31 - i]; }
    extern "C" __global__ void one(int* out) {
        __shared__ alignas(256) char tile[1000]; __shared__ double d; tile[*out] = 1; d = *out; __syncthreads();
        *out = tile[*out] + d + dynamic[*out] + called(*out); }
    extern "C" __global__ void one_more(int* out) { __shared__ int other[5000]; other[*out] = 1; __syncthreads();
        *out = other[*out + 1]; }
    extern "C" __global__ void __cluster_dims__(2, 1, 1) clustered(int* out) { *out = 1; }
    """
    module = tma.compile(source, "sm_90a")
    found = kernel_code(module.kernel("one"))
    assert sorted((a.size, a.alignment) for a in found.shared_arrays) == [(8, 8), (128, 4), (1000, 256)]
    assert not found.is_clustered
    assert kernel_code(module.kernel("clustered")).is_clustered
    assert {a.size for a in kernel_code(module.kernel("one_more")).shared_arrays} == {128, 20000}


@pytest.mark.parametrize("other", [None, object(), SimpleNamespace(module=SimpleNamespace(ptx=""), name="k")])
def test_what_has_no_code_says_nothing(other: Any) -> None:
    assert kernel_code(other) is None


@pytest.mark.parametrize("name", KERNELS)
def test_every_kernel_here_compiles_for_blackwell_too(name: str) -> None:
    assert kernel_code(kernel(name, "sm_100a")) == kernel_code(kernel(name))


# Errors of earlier work
