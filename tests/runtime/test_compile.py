"""Compilation with NVRTC, without a GPU."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import cupytma as tma
from cupytma.errors import CompileError, LaunchError, NoDeviceError, TargetError
from cupytma.runtime.arguments import Marshaller, ParameterBlock
from cupytma.runtime.device import has_tma_device
from cupytma.runtime.signature import parse_signatures

nvrtc = pytest.importorskip("cuda.bindings.nvrtc", reason="needs cuda-python and NVRTC")

SOURCE = """
#include <cupytma.cuh>
struct Pair { int a; double b; };
extern "C" __global__ void everything(
    unsigned char a, const __grid_constant__ CUtensorMap map, short b, int c, float d, double* e, Pair f, double g,
    unsigned long long h, const __grid_constant__ CUtensorMap other, bool i)
{
    cupytma::prefetch_tensormap(&map);
    cupytma::prefetch_tensormap(&other);
    e[0] = a + b + c + d + f.a + f.b + g + h + i;
}
extern "C" __global__ void nothing() {}
"""
TILED = tma.Tiled(data_type="FLOAT32", global_address=0, global_dim=(64,), box_dim=(16,))
MAP = TILED.encode()


@pytest.fixture(scope="module")
def module() -> tma.runtime.Module:
    return tma.compile(SOURCE, target="sm_90a")


@pytest.mark.parametrize("target", ["sm_90", "sm_90a", "sm_100", "sm_100a", "sm_103a", "sm_120a"])
def test_a_kernel_compiles_to_machine_code_for_every_named_target(target: str) -> None:
    module = tma.compile(SOURCE.replace("sm_90a", target), target=target)
    assert module.cubin.startswith(b"\x7fELF")
    assert f".target {target}" in module.ptx
    assert "prefetch.tensormap" in module.ptx


def test_the_parameters_are_read_from_the_ptx(module: tma.runtime.Module) -> None:
    parameters = module.signatures["everything"].parameters
    assert [(p.size, p.alignment, p.is_struct) for p in parameters] == [
        (1, 1, False), (128, 64, True), (2, 2, False), (4, 4, False), (4, 4, False), (8, 8, False), (16, 8, True),
        (8, 8, False), (8, 8, False), (128, 64, True), (1, 1, False),
    ]  # fmt: skip
    assert [p.offset for p in parameters] == [0, 64, 192, 196, 200, 208, 216, 232, 240, 256, 384]
    assert module.signatures["everything"].size == 385
    assert module.signatures["nothing"].parameters == ()
    assert module.signatures["nothing"].size == 0


def test_pointer_annotations_of_newer_compilers_are_understood() -> None:
    ptx = ".entry k(\n.param .u64 .ptr .align 1 k_param_0,\n.param .u64 .ptr .global .align 4 k_param_1\n)\n{"
    assert [str(p) for p in parse_signatures(ptx)["k"].parameters] == [".u64", ".u64"]


class DeviceArray:
    """What CuPy, torch and Numba arrays have in common."""

    @property
    def __cuda_array_interface__(self) -> dict[str, object]:
        return {"version": 3, "typestr": "<f8", "data": (0x7F0000000000, False), "shape": (4,), "strides": None}


def marshal(signature: tma.runtime.KernelSignature, values: list[object]) -> list[bytes]:
    """The bytes of each argument."""
    block = ParameterBlock(signature)
    Marshaller(signature).fill(block.data, values)
    return [bytes(block.data[p.offset : p.offset + p.size]) for p in signature.parameters]


def arguments() -> list[object]:
    pair = np.zeros((), [("a", "i4"), ("pad", "i4"), ("b", "f8")])[()]
    return [200, MAP, -3, np.int64(7), 0.5, DeviceArray(), pair, 1.5, 2**64 - 1, MAP, True]


def test_arguments_become_scalars_of_the_declared_size(module: tma.runtime.Module) -> None:
    signature = module.signatures["everything"]
    values = marshal(signature, arguments())
    assert values[0] == b"\xc8"
    assert values[1] == values[9] == bytes(MAP)
    assert values[2] == np.int16(-3).tobytes()
    assert values[3] == np.int32(7).tobytes()
    assert values[4] == np.float32(0.5).tobytes()
    assert values[5] == np.uint64(0x7F0000000000).tobytes()
    assert values[7] == np.float64(1.5).tobytes()
    assert values[8] == b"\xff" * 8
    assert values[10] == b"\x01"


@pytest.mark.parametrize(
    ("position", "value", "message"),
    [
        (0, 256, "does not fit the 8 bits"),
        (0, 1.5, "is no integer"),
        (0, None, "would be passed as a pointer"),
        (1, 5, "is a number"),
        (1, b"\0" * 64, "64 bytes were given"),
        (1, DeviceArray(), "would be passed as a pointer"),
        (2, 40000.0, "is no integer"),
        (3, 2**32, "does not fit the 32 bits"),
        (3, -(2**31) - 1, "does not fit the 32 bits"),
        (4, "1.0", "would be passed as a pointer"),
        (5, np.zeros(4), "host memory"),
        (5, MAP, "const __grid_constant__ CUtensorMap"),
        (5, "text", "no array"),
        (4, 1e300, "too large"),
        (7, 1j, "would be passed as a pointer"),
        (7, np.complex128(1), "is no real number"),
        (7, np.str_("2.5"), "is no real number"),
        (1, tma.tensor_map(np.zeros((8, 8)), (8, 8)), "host memory"),
        (1, tma.TensorMap.from_bytes(b"\xff" * 128), "no tensor map"),
        (1, replace(TILED, swizzle="128B_ATOM_32B").encode("sm_100a"), "not available on sm_90a"),
        (6, np.zeros(3, "u1").view("V3")[0], "3 bytes were given"),
    ],
)
def test_an_argument_that_does_not_fit_is_named(
    module: tma.runtime.Module, position: int, value: object, message: str
) -> None:
    values = arguments()
    values[position] = value
    with pytest.raises(LaunchError, match=f"argument {position} of kernel everything: .*{message}"):
        marshal(module.signatures["everything"], values)


def test_every_argument_that_does_not_fit_is_named_at_once(module: tma.runtime.Module) -> None:
    with pytest.raises(LaunchError) as caught:
        marshal(module.signatures["everything"], [999, 0, *arguments()[2:]])
    assert str(caught.value).count("argument") == 2


def test_a_wrong_number_of_arguments_is_refused(module: tma.runtime.Module) -> None:
    with pytest.raises(LaunchError, match="takes 11 arguments and was given 1"):
        marshal(module.signatures["everything"], [1])


def test_an_unknown_kernel_name_lists_the_known_ones(module: tma.runtime.Module) -> None:
    with pytest.raises(LaunchError, match="everything, nothing"):
        module.kernel("something")


def test_a_compile_error_carries_the_log_and_the_line() -> None:
    with pytest.raises(CompileError) as caught:
        tma.compile('extern "C" __global__ void k()\n{\n    undeclared = 1;\n}\n', target="sm_90a")
    assert "undeclared" in caught.value.log
    assert "     3 |     undeclared = 1;\n       |     ^" in str(caught.value)
    assert caught.value.line == 3
    assert caught.value.source.startswith("extern")


@pytest.mark.parametrize(("source", "message"), [("// \udc80", "UTF-8"), ("int a;\0int b;", "NUL")])
def test_a_source_that_cannot_reach_the_compiler_whole_is_refused(source: str, message: str) -> None:
    with pytest.raises(CompileError, match=message):
        tma.compile(source, target="sm_90a")


def test_one_option_may_be_given_without_a_list() -> None:
    assert ".loc" in tma.compile('extern "C" __global__ void k(int* a) { *a = 1; }', "sm_90a", "-lineinfo").ptx


def test_a_template_that_no_encoder_makes_may_be_passed(module: tma.runtime.Module) -> None:
    values = arguments()
    values[1] = tma.TensorMap(bytes(128))
    assert marshal(module.signatures["everything"], values)[1] == bytes(128)


def test_an_unknown_option_is_reported_as_such() -> None:
    with pytest.raises(CompileError, match="--no-such-option"):
        tma.compile("", target="sm_90a", options=["--no-such-option"])


@pytest.mark.parametrize(("target", "message"), [("sm_80", "no Tensor Memory Accelerator"), ("sm_9", "no Tensor"),
                                                 ("sm_999", "unknown target"), ("", "unknown target")])
def test_a_target_without_the_unit_is_refused(target: str, message: str) -> None:
    with pytest.raises(TargetError, match=message):
        tma.compile("", target=target)


def test_a_target_this_compiler_does_not_know_is_reported() -> None:
    if tma.runtime.nvrtc_version() >= (13, 0):
        pytest.skip("this NVRTC knows every target of the table")
    with pytest.raises(CompileError, match="sm_110a"):
        tma.compile("", target="sm_110a")


def test_defines_headers_and_includes_reach_the_compiler(tmp_path: object) -> None:
    (tmp_path / "folder.cuh").write_text("#define FROM_FOLDER 3\n")  # type: ignore[operator]
    source = """
    #include <given.cuh>
    #include <folder.cuh>
    static_assert(FROM_GIVEN + FROM_FOLDER + VALUE == 6, "all three");
    #ifndef FLAG
    #error "FLAG is missing"
    #endif
    """
    tma.compile(
        source, target="sm_90a", defines={"VALUE": 1, "FLAG": None}, headers={"given.cuh": "#define FROM_GIVEN 2\n"},
        includes=[str(tmp_path)],
    )


@pytest.mark.skipif(has_tma_device(), reason="there is a GPU to take the target from")
def test_without_a_gpu_the_target_must_be_named() -> None:
    with pytest.raises(NoDeviceError, match=r'has to be named, as in target="sm_90a": .*cupytma\.sim'):
        tma.compile("")


@pytest.mark.skipif(has_tma_device(), reason="there is a GPU to launch on")
def test_without_a_gpu_a_launch_says_so(module: tma.runtime.Module) -> None:
    with pytest.raises(NoDeviceError, match=r"cupytma\.sim"):
        module.kernel("nothing")(1, 32)


@pytest.mark.skipif(has_tma_device(), reason="there is a GPU to copy on")
def test_without_a_gpu_copy_names_the_simulator() -> None:
    with pytest.raises(NoDeviceError, match=r"cupytma\.sim"):
        tma.copy(np.zeros(4), np.zeros(4))


@pytest.mark.parametrize(
    ("launch", "message"),
    [
        ({"grid": 0, "block": 32}, "grid"),
        ({"grid": (1, 2, 3, 4), "block": 32}, "grid"),
        ({"grid": 1, "block": (1024, 2)}, "2048 threads, more than 1024"),
        ({"grid": 1, "block": -1}, "block"),
        ({"grid": (1, 65536), "block": 1}, "grid"),
        ({"grid": 2**31, "block": 1}, "grid"),
        ({"grid": (1.5,), "block": 1}, "grid"),
        ({"grid": 1.5, "block": 1}, "grid"),
        ({"grid": "2", "block": 1}, "grid"),
        ({"grid": 1, "block": (1, 1, 65)}, "block"),
        ({"grid": 1, "block": 32, "shared_bytes": 1 << 20}, "shared_bytes"),
        ({"grid": 1, "block": 32, "shared_bytes": -1}, "shared_bytes"),
    ],
)
def test_impossible_launch_shapes_are_refused_before_the_gpu(
    module: tma.runtime.Module, launch: dict[str, object], message: str
) -> None:
    with pytest.raises(LaunchError, match=message):
        module.kernel("nothing")(**launch)  # type: ignore[arg-type]


@pytest.mark.parametrize("target", ["sm_90a", "sm_100a"])
def test_the_packages_own_kernels_compile(target: str) -> None:
    from cupytma.ops.copy_launches import _copy_module, _ordinary_module
    from cupytma.ops.ordinary import _PLACES

    by_rank = {f"tile_copy_{rank}d" for rank in range(1, 6)}
    assert set(_copy_module(target).signatures) == {"word_copy", "bulk_copy", *by_rank}
    for name, word in (("words", 1), ("words", 16), ("granules", 1), ("granules", 8)):
        found = _ordinary_module(target, name, word).signatures
        assert set(found) == {f"copy_{name}_{rank}d" for rank in range(1, 6)}
        assert {signature.size for signature in found.values()} == {_PLACES.itemsize}
