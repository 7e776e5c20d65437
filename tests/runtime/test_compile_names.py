"""Kernels by name: extern "C", C++ names, instances of templates."""

from __future__ import annotations

import re

import pytest

import cupytma as tma
from cupytma.errors import CompileError, CompileInputError, LaunchError
from cupytma.runtime.source_text import cxx_name, parameter_texts, template_kernels

pytest.importorskip("cuda.bindings.nvrtc", reason="needs cuda-python and NVRTC")

SOURCE = """
template <class T, int N> __global__ void scale(T* x, T by) { x[threadIdx.x] *= by * T(N); }
namespace tiles { __global__ void move(int* x, char y) { x[0] = y; } }
__global__ void twice(float* x) { x[0] *= 2; }
__global__ void twice(int* x) { x[0] *= 2; }
extern "C" __global__ void plain(int* x) { x[0] = 1; }
__device__ int helper(int x) { return x + 1; }
"""


@pytest.fixture(scope="module")
def module() -> tma.runtime.Module:
    return tma.compile(SOURCE, "sm_90a")


def test_kernels_are_listed_by_their_names_in_the_code(module: tma.runtime.Module) -> None:
    assert set(module.kernels) == {"plain", "_ZN5tiles4moveEPic", "_Z5twicePf", "_Z5twicePi"}


@pytest.mark.parametrize("name", ["tiles::move", "::tiles::move", " tiles :: move", "_ZN5tiles4moveEPic"])
def test_a_kernel_is_asked_for_by_its_cxx_name(module: tma.runtime.Module, name: str) -> None:
    assert module.kernel(name).name == "_ZN5tiles4moveEPic"
    assert [p.size for p in module.signatures[name].parameters] == [8, 1]
    assert module.resources[name].registers > 0


def test_an_instance_of_a_template_is_compiled_when_it_is_asked_for(module: tma.runtime.Module) -> None:
    kernel = module.kernel("scale<float, 4>")
    assert kernel.name == "_Z5scaleIfLi4EEvPT_S0_"
    assert [p.type for p in kernel.signature.parameters] == ["u64", "f32"]
    assert module.kernel("scale<float,4>").name == kernel.name
    assert [p.type for p in module.kernel("scale<double, 2>").signature.parameters] == ["u64", "f64"]


def test_name_expressions_compile_instances_into_the_module() -> None:
    names = ("scale<float, 4>", "scale<double,8>", "tiles::move")
    module = tma.compile(SOURCE, "sm_90a", name_expressions=names)
    assert module.lowered_names == {
        "scale<float, 4>": "_Z5scaleIfLi4EEvPT_S0_",
        "scale<double,8>": "_Z5scaleIdLi8EEvPT_S0_",
        "tiles::move": "_ZN5tiles4moveEPic",
    }
    for name in ("scale<float, 4>", "scale<float,4>", "scale< double , 8 >"):
        assert module.kernel(name).module is module
    assert set(module.lowered_names.values()) < set(module.kernels)
    assert module.resources["scale<float, 4>"].parameter_bytes == 12


def test_overloads_are_told_apart_by_type(module: tma.runtime.Module) -> None:
    with pytest.raises(LaunchError, match=r"several kernels .* _Z5twicePf, _Z5twicePi"):
        module.kernel("twice")
    assert module.kernel("(void (*)(int*)) twice").name == "_Z5twicePi"
    assert module.kernel("_Z5twicePf").name == "_Z5twicePf"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("scale", "scale is a template: ask for an instance, such as scale<float>"),
        ("plane", "Is plain meant"),
        ("helper", "it lacks __global__"),
        ("nothing", "it has: plain, tiles::move, twice, twice"),
        ("nothing<int>", 'identifier "nothing" is undefined'),
        ("scale<float>", "name expression 'scale<float>'"),
        ("scale<", "name expression"),
        ("", "no kernel ''"),
    ],
)
def test_a_name_that_is_none_says_why(module: tma.runtime.Module, name: str, message: str) -> None:
    with pytest.raises(LaunchError, match=re.escape(message)):
        module.kernel(name)


@pytest.mark.parametrize("name", [None, 3, b"plain", ["plain"]])
def test_a_name_that_is_no_text_is_refused(module: tma.runtime.Module, name: object) -> None:
    with pytest.raises(LaunchError, match="names are text"):
        module.kernel(name)  # type: ignore[arg-type]


def test_a_signature_of_an_unknown_kernel_is_a_key_error(module: tma.runtime.Module) -> None:
    with pytest.raises(KeyError):
        module.signatures["nothing"]
    with pytest.raises(KeyError):
        module.resources["nothing"]
    assert module.signatures.get("nothing") is None


@pytest.mark.parametrize("names", [["scale<float>"], ["scale<float,4>) ; int a("], ["wrong"], ["scale<float, 4"]])
def test_a_name_expression_that_is_none_is_an_error_of_the_compiler(names: list[str]) -> None:
    with pytest.raises(CompileError, match="name expression"):
        tma.compile(SOURCE, "sm_90a", name_expressions=names)


@pytest.mark.parametrize("names", [[""], ["a\nb"], ["a\0b"], [3], 3, [None]])
def test_a_name_expression_that_is_no_line_of_text_is_refused(names: object) -> None:
    with pytest.raises(CompileInputError, match="name_expressions"):
        tma.compile(SOURCE, "sm_90a", name_expressions=names)  # type: ignore[arg-type]


def test_one_name_expression_may_be_given_without_a_list() -> None:
    module = tma.compile(SOURCE, "sm_90a", name_expressions="scale<int, 1>")
    assert module.kernel("scale<int, 1>").module is module


@pytest.mark.parametrize(
    ("mangled", "name"),
    [
        ("plain", "plain"), ("_Z1kPf", "k"), ("_ZN2ns5inner1kEv", "ns::inner::k"), ("_Z", "_Z"), ("_ZTV1k", "_ZTV1k"),
        ("_ZN12_GLOBAL__N_11kEv", "(anonymous namespace)::k"), ("_Z5scaleIfLi4EEvPT_", "scale"),
    ],
)
def test_cxx_names_are_read_from_mangled_ones(mangled: str, name: str) -> None:
    assert cxx_name(mangled) == name


def test_declarations_are_found_in_the_text() -> None:
    source = """
    // __global__ void k(int wrong)
    extern "C" __global__ void __launch_bounds__(128, 2) k(const __grid_constant__ CUtensorMap map, /* a, b */
        Pair<int, 4> pair, float (&x)[4]) {}
    template <int N = (1 < 2)> __global__ void __cluster_dims__(2, 1, 1) t(float* x) {}
    """
    assert parameter_texts(source, "k") == [
        "const __grid_constant__ CUtensorMap map", "Pair<int, 4> pair", "float (&x)[4]",
    ]
    assert parameter_texts(source, "nothing") == []
    assert template_kernels(source) == {"t"}
