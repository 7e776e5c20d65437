"""Matrix products up to the driver's call, without a GPU: prepared once, launched with the addresses of the moment."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import remembered
from test_prepared_operations import HALF, OTHER, SM_90A, THIRD, Array, simulated_cuda

import cupytma as tma
from cupytma.errors import ArrayError, TargetError
from cupytma.ops import array_copy, matmul_choices, matmul_plan, matrix_product, multicast, prepared, short_way
from cupytma.ops.matmul_configuration import Configuration
from cupytma.ops.matmul_operands import check_operands
from cupytma.ops.matmul_plan import _PRODUCT, matmul_module, plan_matmul
from cupytma.runtime import cache, places, submission
from cupytma.runtime.kernel import Kernel
from cupytma.targets import target
from cupytma.tensormap.arrays import view_of
from cupytma.tensormap.tensor_map import TensorMap

FOURTH, FIFTH, SIXTH = 0xA0000000, 0xB0000000, 0xC0000000
MULTIPROCESSORS = 132


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> simulated_cuda.SimulatedCuda:
    """Products that find a GPU, and kernels that are launched nowhere."""
    cuda = simulated_cuda.SimulatedCuda(monkeypatch)
    device = SimpleNamespace(Device=lambda number: simulated_cuda.Device(cuda, number))
    monkeypatch.setitem(places.readers, Array, places._of_cupy)
    monkeypatch.setitem(short_way.short_ways, Array, short_way.OF_CUPY)
    for module in (matrix_product, multicast, prepared, array_copy, short_way):
        monkeypatch.setattr(module, "cupy", lambda: SimpleNamespace(cuda=device))
        for name, value in (("current_target", SM_90A), ("multiprocessors", MULTIPROCESSORS)):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, lambda *_, value=value: value)
    remembered.forget(monkeypatch, matrix_product)
    monkeypatch.setattr(matmul_choices, "device_name", lambda device: "NVIDIA H100 80GB HBM3")
    monkeypatch.setattr(Kernel, "persistent_grid", lambda *_, cluster=None: MULTIPROCESSORS)

    def load(name, defines):
        module = matmul_module(name, defines)
        return SimpleNamespace(kernel=lambda kernel: cuda.load(module.kernel(kernel)))

    def extended(handle: int, shape: submission.LaunchShape) -> submission.Submit:
        def submit(stream: int, places: int, _: int) -> None:
            cuda._launch(handle, *shape.numbers, stream, places, 0)
            cuda.launches[-1].cluster, cuda.launches[-1].programmatic = shape.cluster, shape.programmatic

        return submit

    monkeypatch.setattr(matrix_product, "matmul_module", load)
    monkeypatch.setattr(submission, "_extended", extended)
    return cuda


def transposed(address: int, n: int, k: int, dtype: str = "<f2") -> Array:
    found = Array(address, (n, k), dtype)
    found.shape, found.strides = found.shape[::-1], found.strides[::-1]
    return found


def addresses(launch: SimpleNamespace) -> list[int]:
    """Of the maps of rows, columns and result, of the result, and of the factors of rows, columns, and the bias."""
    assert [len(data) for data in launch.arguments] == [128, 128, 128, _PRODUCT.itemsize, 8, 8, 8, 8]
    return [int.from_bytes(data[:8], "little") for position, data in enumerate(launch.arguments) if position != 3]


def test_products_are_prepared_once_and_launched_anywhere(cuda) -> None:
    a, b, bias = Array(HALF, (512, 256)), transposed(OTHER, 384, 256), Array(SIXTH, (384,), "<f4")
    scale_a, scale_b = Array(FOURTH, (512,), "<f4"), Array(FIFTH, (1,), "<f4")
    configuration = Configuration(1, 128, 2)
    for distance in (0, 0x100, 0x12300):
        a.data.ptr, bias.data.ptr = HALF + distance, SIXTH + distance
        out = Array(THIRD - distance, (512, 384))
        vectors = {"scale_a": scale_a, "scale_b": scale_b, "bias": bias}
        assert tma.matmul(a, b, out=out, configuration=configuration, **vectors) is out
        launch, place = cuda.launches[-1], THIRD - distance
        assert addresses(launch) == [HALF + distance, OTHER, place, place, FOURTH, FIFTH, SIXTH + distance]
        assert launch.kernel == "matmul"
        assert (launch.cluster, launch.programmatic, launch.shape[0]) == ((2, 1, 1), True, 12)
    assert len({id(found) for found in matrix_product._prepared._known.values()}) == 1
    product = np.frombuffer(cuda.launches[-1].arguments[3], _PRODUCT)[0]
    told = {name: int(product[name]) for name in ("rows", "columns", "depth_blocks", "row_tiles", "column_tiles")}
    assert told == {"rows": 512, "columns": 384, "depth_blocks": 4, "row_tiles": 2, "column_tiles": 3}
    assert (product["row_stride"], product["column_stride"], product["by_unit"]) == (768, 2, 1)


def test_the_third_call_at_the_same_addresses_launches_the_same_bytes(cuda, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b, scale = Array(HALF, (512, 256)), transposed(OTHER, 384, 256), Array(FOURTH, (512,), "<f4")
    out, other = Array(THIRD, (512, 384)), Array(THIRD + 0x100000, (512, 384))
    for _ in range(2):
        tma.matmul(a, b, out=out, scale_a=scale)
    with monkeypatch.context() as patch:
        patch.setattr(matrix_product, "_multiply_described", None)  # it is not asked again
        for _ in range(2):
            tma.matmul(a, b, out=out, scale_a=scale)
        for options in ({"out": other}, {"scale_a": None}, {"static_b": True}):
            with pytest.raises(TypeError):
                tma.matmul(a, b, **{"out": out, "scale_a": scale, **options})
    assert [launch.arguments for launch in cuda.launches] == [cuda.launches[0].arguments] * 4
    tma.matmul(a, b, out=other, scale_a=scale)
    assert addresses(cuda.launches[-1])[2:4] == [THIRD + 0x100000] * 2


@pytest.mark.parametrize("given", [1, 0, 1.0, 0.0, None, "yes", np.int64(1)])
@pytest.mark.parametrize("name", ["fast_accumulation", "static_b", "tf32"])
def test_what_equals_true_or_false_is_refused_also_after_them(cuda, name: str, given: object) -> None:
    a, b, out = Array(HALF, (512, 256)), transposed(OTHER, 384, 256), Array(THIRD, (512, 384))
    for flag in (True, False, np.True_, np.False_):
        for _ in range(3):
            tma.matmul(a, b, out=out, **{name: flag})
    before = len(cuda.launches)
    for _ in range(3):
        with pytest.raises(ArrayError, match=f"{name} = .*; it must be True or False"):
            tma.matmul(a, b, out=out, **{name: given})
    assert len(cuda.launches) == before == 12


def test_memory_that_an_array_has_lost_is_missed_whatever_was_launched_before(cuda) -> None:
    arrays = {
        "a": Array(HALF, (512, 256)), "b": transposed(OTHER, 384, 256), "out": Array(THIRD, (512, 384)),
        "scale_a": Array(FOURTH, (512,), "<f4"), "scale_b": Array(FIFTH, (1,), "<f4"),
        "bias": Array(SIXTH, (384,), "<f4"),
    }  # fmt: skip
    for _ in range(3):
        tma.matmul(**arrays)
    for name, lost in arrays.items():
        place, lost.data.ptr = lost.data.ptr, 0
        for _ in range(3):
            with pytest.raises(ArrayError, match=f"{name} has .* elements? at a null address"):
                tma.matmul(**arrays)
        lost.data.ptr = place
    tma.matmul(**arrays)
    assert len(cuda.launches) == 4


def test_what_is_being_prepared_or_launched_when_all_is_forgotten_is_not_kept(
    cuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as by a thread beside one that has found a better way."""
    a, b, out = Array(HALF, (512, 256)), transposed(OTHER, 384, 256), Array(THIRD, (512, 384))
    memories = matrix_product._prepared, matrix_product._addressed

    def then_forget(function):
        def called(*given):
            found = function(*given)
            matrix_product.forget_prepared()
            return found

        return called

    with monkeypatch.context() as patch:
        patch.setattr(matrix_product, "prepared_for", then_forget(matrix_product.prepared_for))
        tma.matmul(a, b, out=out)
        assert [len(memory) for memory in memories] == [0, 0]
    matrix_product.forget_prepared()
    tma.matmul(a, b, out=out)
    with monkeypatch.context() as patch:
        patch.setattr(prepared, "hash", then_forget(hash), raising=False)
        patch.setattr(matrix_product._addressed._met, "get", lambda _: True)
        tma.matmul(a, b, out=out)
    assert [len(memory) for memory in memories] == [0, 0]
    for _ in range(3):
        tma.matmul(a, b, out=out)
    assert len(matrix_product._addressed) == 1
    assert len({launch.arguments[3] for launch in cuda.launches}) == 1


def test_swapped_operands_change_places_with_their_factors(cuda) -> None:
    a, b, out = Array(HALF, (16, 256)), transposed(OTHER, 384, 256), Array(THIRD, (16, 384))
    scale_a, scale_b = Array(FOURTH, (16, 1), "<f4"), Array(FIFTH, (1, 384), "<f4")
    tma.matmul(a, b, out=out, scale_a=scale_a, scale_b=scale_b, configuration=Configuration(1, 16, is_swapped=True))
    (launch,) = cuda.launches
    assert addresses(launch) == [OTHER, HALF, THIRD, THIRD, FIFTH, FOURTH, 0]
    maps = [TensorMap.from_bytes(data).decode() for data in launch.arguments[:3]]
    assert [tuple(map(int, found.global_dim)) for found in maps] == [(256, 384), (256, 16), (384, 16)]
    assert [tuple(map(int, found.box_dim)) for found in maps] == [(64, 128), (64, 16), (64, 16)]
    assert launch.cluster is None
    product = np.frombuffer(launch.arguments[3], _PRODUCT)[0]
    assert (product["rows"], product["columns"], product["row_stride"], product["column_stride"]) == (384, 16, 2, 768)


def test_a_sum_that_blocks_share_has_a_cluster_for_each_tile(cuda) -> None:
    a, b, out = Array(HALF, (8, 4096), "|u1"), transposed(OTHER, 40000, 4096, "|u1"), Array(THIRD, (8, 40000), "<u2")
    types = {"a_dtype": "float8_e4m3fn", "b_dtype": "float8_e4m3fn", "out_dtype": "bfloat16"}
    tma.matmul(a, b, out=out, configuration=Configuration(1, 8, split=4, is_swapped=True), **types)
    (launch,) = cuda.launches
    assert (launch.shape[0], launch.cluster) == (4 * 313, (4, 1, 1))


def test_rows_that_end_within_a_unit_have_no_map(cuda) -> None:
    a, b, out = Array(HALF, (16, 256)), transposed(OTHER, 383, 256), Array(THIRD, (16, 383))
    tma.matmul(a, b, out=out)
    assert not any(cuda.launches[-1].arguments[2])
    assert addresses(cuda.launches[-1])[2:4] == [0, THIRD]


def test_nothing_is_launched_for_nothing(cuda) -> None:
    tma.matmul(Array(HALF, (0, 256)), transposed(OTHER, 384, 256), out=Array(THIRD, (0, 384)))
    assert not cuda.launches
    tma.matmul(Array(HALF, (16, 0)), transposed(OTHER, 384, 0), out=Array(THIRD, (16, 384)))
    assert addresses(cuda.launches[-1])[:4] == [0, 0, THIRD, THIRD]


def test_a_result_over_an_operand_is_refused_each_time(cuda) -> None:
    a, b, out = Array(HALF, (64, 256)), transposed(OTHER, 384, 256), Array(THIRD, (64, 384))
    tma.matmul(a, b, out=out)
    out.data.ptr = OTHER + 1024
    for _ in range(2):
        with pytest.raises(ArrayError, match="out overlaps b"):
            tma.matmul(a, b, out=out)
    out.data.ptr = HALF - 64 * 384 * 2
    tma.matmul(a, b, out=out)
    assert len(cuda.launches) == 2


def test_arrays_that_are_none_or_elsewhere_are_named(cuda) -> None:
    a, b, out = Array(HALF, (64, 256)), transposed(OTHER, 384, 256), Array(THIRD, (64, 384))
    on_host = np.zeros((64, 256), np.float16), np.zeros((384, 256), np.float16).T, np.zeros((64, 384), np.float16)
    for arrays, words in (
        ((on_host[0], b, None), "^a is in host memory"),
        ((*on_host[:2], None), "^a is in host memory"),
        (on_host, "^a is in host memory"),
        ((a, on_host[1], out), "^b is in host memory, and out on device 0"),
        ((a, b, on_host[2]), "^out is in host memory"),
        ((None, b, out), "^a: .*NoneType is no array"),
        ((a, None, out), "^b: .*NoneType is no array"),
        ((a, b, [1.0]), "^out: .*list is no array"),
    ):
        with pytest.raises(ArrayError, match=words):
            tma.matmul(*arrays[:2], out=arrays[2])
    for name in ("scale_a", "scale_b", "bias"):
        with pytest.raises(ArrayError, match=f"^{name}: .*float is no array"):
            tma.matmul(a, b, out=out, **{name: 2.0})
        with pytest.raises(ArrayError, match=f"^{name} is in host memory, and out on device 0"):
            tma.matmul(a, b, out=out, **{name: np.ones(1, np.float32)})
    assert not cuda.launches


def test_blackwell_is_told_that_the_kernels_are_hoppers(cuda, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matrix_product, "current_target", lambda: target("sm_100a"))
    with pytest.raises(TargetError, match="sm_100a has no wgmma"):
        tma.matmul(Array(HALF, (64, 256)), transposed(OTHER, 384, 256), out=Array(THIRD, (64, 384)))


def test_a_measured_configuration_is_looked_up_once_and_launched(
    cuda, tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUPYTMA_CACHE_DIR", str(tmp_path))
    asked, read = [], cache.read_note
    monkeypatch.setattr(cache, "read_note", lambda name: (asked.append(name), read(name))[1])
    a, b, out = Array(HALF, (16, 256)), transposed(OTHER, 384, 256), Array(THIRD, (16, 384))
    tma.matmul(a, b, out=out)
    assert cuda.launches[-1].cluster != (4, 1, 1)
    plan = plan_matmul(check_operands(*map(view_of, (a, b, out))), SM_90A, MULTIPROCESSORS)
    measured = matmul_plan.Measured("NVIDIA H100 80GB HBM3", 5e-6, False)
    matmul_choices.keep(replace(plan, configuration=Configuration(1, 128, 2, 2), measured=measured))
    tma.matmul(a, b, out=out)
    assert cuda.launches[-1].cluster != (4, 1, 1)  # as it was planned before
    matrix_product.forget_prepared()
    for distance in range(3):
        a.data.ptr = HALF + 128 * distance
        tma.matmul(a, b, out=out)
        assert cuda.launches[-1].cluster == (4, 1, 1)
    assert len(asked) == 2
    tma.matmul(a, b, out=out, configuration=Configuration(1, 128))
    assert cuda.launches[-1].cluster is None
    assert len(asked) == 2
