"""Kernels that give the unit a tensor map in local memory, and kernels that do not."""

from __future__ import annotations

import warnings

import pytest

import cupytma as tma
from cupytma.errors import CupytmaWarning, KernelWarning
from cupytma.runtime.local_copies import local_copies

pytest.importorskip("cuda.bindings.nvrtc", reason="needs cuda-python and NVRTC")

HEAD = """\
#include <cupytma.cuh>
#define SHARED __shared__ alignas(128) char tile[4096]; __shared__ unsigned long long bar;
#define LOAD(map) cupytma::tensor_load_2d(tile, map, 0, 0, &bar)
struct Pair { CUtensorMap maps[2]; int count; };
__constant__ CUtensorMap constant_map;
__device__ CUtensorMap global_map;
"""
WRONG = {
    "by value": 'extern "C" __global__ void k(CUtensorMap map) { SHARED LOAD(&map); }',
    "const by value": 'extern "C" __global__ void k(const CUtensorMap map) { SHARED LOAD(&map); }',
    "a prefetch": 'extern "C" __global__ void k(CUtensorMap map) { cupytma::prefetch_tensormap(&map); }',
    "a store": 'extern "C" __global__ void k(CUtensorMap map) { SHARED cupytma::tensor_store_2d(&map, 0, 0, tile); }',
    "a reduction": (
        'extern "C" __global__ void k(CUtensorMap map) { SHARED cupytma::tensor_reduce_add_2d(&map, 0, 0, tile); }'
    ),
    "one of two": (
        'extern "C" __global__ void k(const __grid_constant__ CUtensorMap a, CUtensorMap b) '
        "{ SHARED LOAD(&a); LOAD(&b); }"
    ),
    "a choice": 'extern "C" __global__ void k(CUtensorMap a, CUtensorMap b, int i) { SHARED LOAD(i ? &a : &b); }',
    "a struct": 'extern "C" __global__ void k(const Pair pair) { SHARED LOAD(&pair.maps[blockIdx.x]); }',
    "a function": """
        __device__ __noinline__ void f(const CUtensorMap* m, char* tile, unsigned long long* b)
        { cupytma::tensor_load_2d(tile, m, 0, 0, b); }
        extern "C" __global__ void k(CUtensorMap map) { SHARED f(&map, tile, &bar); }""",
    "a function in a function": """
        __device__ __noinline__ void f(int x, const CUtensorMap* m, char* t, unsigned long long* b)
        { cupytma::tensor_load_2d(t, m, x, 0, b); }
        __device__ __noinline__ void g(const CUtensorMap* m, char* t, unsigned long long* b, int x)
        { f(x + 1, m, t, b); }
        extern "C" __global__ void k(CUtensorMap map, int x) { SHARED g(&map, tile, &bar, x); }""",
    "inline asm": """
        extern "C" __global__ void k(CUtensorMap map) { SHARED
            asm volatile("cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%0, {%1, %1}];" :: "l"(&map), "r"(0)); }""",
    "C++ linkage": "__global__ void k(CUtensorMap map) { SHARED LOAD(&map); }",
}
COPIES = {
    "of a parameter": (
        'extern "C" __global__ void k(const __grid_constant__ CUtensorMap map) '
        "{ SHARED CUtensorMap copy = map; LOAD(&copy); }"
    ),
    "of a pointer": (
        'extern "C" __global__ void k(const CUtensorMap* map) { SHARED CUtensorMap copy = *map; LOAD(&copy); }'
    ),
    "of a constant": 'extern "C" __global__ void k() { SHARED CUtensorMap copy = constant_map; LOAD(&copy); }',
    "by a function's parameter": """
        __device__ void f(const CUtensorMap map, char* tile, unsigned long long* b)
        { cupytma::tensor_load_2d(tile, &map, 0, 0, b); }
        extern "C" __global__ void k(const __grid_constant__ CUtensorMap map) { SHARED f(map, tile, &bar); }""",
}
RIGHT = {
    "a grid constant": 'extern "C" __global__ void k(const __grid_constant__ CUtensorMap map) { SHARED LOAD(&map); }',
    "a reference": """
        __device__ void f(const CUtensorMap& map, char* tile, unsigned long long* b)
        { cupytma::tensor_load_2d(tile, &map, 0, 0, b); }
        extern "C" __global__ void k(const __grid_constant__ CUtensorMap map) { SHARED f(map, tile, &bar); }""",
    "a struct": (
        'extern "C" __global__ void k(const __grid_constant__ Pair pair, int i) '
        "{ SHARED LOAD(i ? &pair.maps[0] : &pair.maps[1]); }"
    ),
    "a pointer": 'extern "C" __global__ void k(const CUtensorMap* map) { SHARED LOAD(map); }',
    "constant and global": 'extern "C" __global__ void k() { SHARED LOAD(&constant_map); LOAD(&global_map); }',
    "a map that is only copied": 'extern "C" __global__ void k(CUtensorMap map, CUtensorMap* out) { *out = map; }',
    "a map by value that is never used": 'extern "C" __global__ void k(CUtensorMap map) {}',
    "a local array beside": """
        extern "C" __global__ void k(const __grid_constant__ CUtensorMap map, int* p, int n) {
            SHARED int own[40]; for (int i = 0; i < n; i++) own[p[i] % 40] = i; LOAD(&map); p[0] = own[n % 40]; }""",
    "coordinates in a local array": """
        extern "C" __global__ void k(const __grid_constant__ CUtensorMap map, int* p, int n) {
            SHARED int at[8]; for (int i = 0; i < n; i++) at[p[i] % 8] = i;
            cupytma::tensor_load_2d(tile, &map, at[n % 8], at[(n + 1) % 8], &bar); p[0] = at[2]; }""",
    "local memory handed to a function": """
        __device__ __noinline__ int f(const CUtensorMap* m, int* own, char* t, unsigned long long* b)
        { cupytma::tensor_load_2d(t, m, own[0], own[1], b); return own[2]; }
        extern "C" __global__ void k(const __grid_constant__ CUtensorMap map, int* p, int n) {
            SHARED int own[8]; own[n % 8] = n; own[p[1] % 8] = 2; p[0] = f(&map, own, tile, &bar); }""",
    "a map built in shared memory": """
        extern "C" __global__ void k(const __grid_constant__ CUtensorMap map, CUtensorMap* slot) {
            __shared__ alignas(128) CUtensorMap own; own = map;
            cupytma::tensormap_replace_rank_shared_cta(&own, 1); cupytma::fence_proxy_tensormap_release_gpu();
            SHARED LOAD(slot); }""",
}


def compiled(code: str) -> tuple[tma.runtime.Module, list[warnings.WarningMessage]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        module = tma.compile(HEAD + code, "sm_90a")
    return module, caught


@pytest.mark.parametrize("code", WRONG.values(), ids=WRONG)
def test_a_parameter_without_grid_constant_is_warned_about(code: str) -> None:
    module, caught = compiled(code)
    (warning,) = module.warnings
    assert "in local memory" in warning
    assert "Declare it as `const __grid_constant__ CUtensorMap`" in warning
    assert [w.category for w in caught] == [KernelWarning]
    assert str(caught[0].message) == warning
    assert caught[0].filename == __file__


def test_the_parameter_is_named() -> None:
    module, _ = compiled(WRONG["one of two"])
    assert "`CUtensorMap b`" in module.warnings[0]
    assert "CUtensorMap a" not in module.warnings[0]


@pytest.mark.parametrize("code", COPIES.values(), ids=COPIES)
def test_a_copy_in_a_variable_is_warned_about(code: str) -> None:
    module, caught = compiled(code)
    assert len(module.warnings) == 1
    assert "it is a copy in a variable" in module.warnings[0]
    assert len(caught) == 1


@pytest.mark.parametrize("code", RIGHT.values(), ids=RIGHT)
def test_a_right_kernel_is_not_warned_about(code: str) -> None:
    module, caught = compiled(code)
    assert module.warnings == ()
    assert caught == []


def test_a_warning_comes_from_the_cache_too() -> None:
    from cupytma.runtime.compiler import forget_modules

    first, _ = compiled(WRONG["by value"])
    forget_modules()
    again, caught = compiled(WRONG["by value"])
    assert again is not first
    assert again.warnings == first.warnings
    assert len(caught) == 1


def test_warnings_can_be_errors() -> None:
    assert issubclass(KernelWarning, CupytmaWarning)
    assert issubclass(CupytmaWarning, UserWarning)
    with warnings.catch_warnings():
        warnings.simplefilter("error", KernelWarning)
        with pytest.raises(KernelWarning):
            tma.compile(HEAD + WRONG["by value"], "sm_90a")


@pytest.mark.parametrize("target", ["sm_90a", "sm_100a", "sm_120a"])
def test_the_packages_own_kernels_are_not_warned_about(target: str) -> None:
    from cupytma.ops.copy_launches import _copy_module, _ordinary_module, transpose_module, turn_module
    from cupytma.record.forms import kernels
    from cupytma.targets import TARGETS

    assert _copy_module(target).warnings == ()
    assert _ordinary_module(target, "words", 2).warnings == ()
    assert _ordinary_module(target, "granules", 2).warnings == ()
    assert turn_module(target).warnings == ()
    assert transpose_module(target, 2, 3).warnings == ()
    assert kernels(TARGETS[target]).warnings == ()


def test_text_that_is_no_ptx_says_nothing() -> None:
    assert local_copies("") == ()
    assert local_copies("__local_depot tensor. .entry k( .func { ; [ ] %rd1") == ()
