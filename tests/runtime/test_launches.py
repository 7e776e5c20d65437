"""Launches and plans up to the driver's call, without a GPU: what would reach it, and what must not."""

from __future__ import annotations

import gc
import threading
import weakref

import launch_records
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated_cuda import STATIC_SHARED, Array, SimulatedCuda

import cupytma as tma
from cupytma.errors import DriverError, LaunchError
from cupytma.runtime.arguments import Marshaller, ParameterBlock
from cupytma.runtime.history import KEPT, recent
from cupytma.runtime.launch_shape import parse_launch_bounds
from cupytma.runtime.occupancy import grid_of
from cupytma.runtime.signature import KernelSignature, parse_signatures
from cupytma.runtime.streams import handle_of

pytest.importorskip("cuda.bindings.nvrtc", reason="needs cuda-python and NVRTC")

SOURCE = """
#include <cupytma.cuh>
struct Maps { CUtensorMap map[3]; };
extern "C" __global__ void mixed(const __grid_constant__ CUtensorMap map, double* x, int n, float scale) {}
extern "C" __global__ void several(const __grid_constant__ Maps maps, double* x, double* y) {}
extern "C" __global__ void __cluster_dims__(2, 2, 1) __launch_bounds__(128) tied() {}
"""


@pytest.fixture(scope="module")
def module() -> tma.runtime.Module:
    return tma.compile(SOURCE, target="sm_90a")


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> SimulatedCuda:
    return SimulatedCuda(monkeypatch)


@pytest.fixture
def mixed(module, cuda) -> tma.runtime.Kernel:
    return cuda.load(tma.runtime.Kernel(module, "mixed"))


def map_of(array: Array) -> tma.TensorMap:
    return tma.tensor_map(array, box=(8, 16))


def test_arguments_and_shape_reach_the_driver(cuda, mixed) -> None:
    x, y = Array(0x1000), Array(0x20000)
    mixed((4, 2), 64, (map_of(x), y, -7, 0.5), shared_bytes=1000)
    (launch,) = cuda.launches
    assert launch.shape == (4, 2, 1, 64, 1, 1, 1000)
    assert launch.arguments == [
        bytes(map_of(x)), (0x20000).to_bytes(8, "little"), np.int32(-7).tobytes(), np.float32(0.5).tobytes(),
    ]  # fmt: skip


def test_a_launch_is_made_in_the_current_stream_or_the_one_given(cuda, mixed) -> None:
    values = map_of(Array(0x1000)), None, 1, 1.0
    cuda.stream = 77
    mixed(1, 1, values)
    mixed(1, 1, values, stream=88)
    plan, own = mixed.plan(1, 1, values), mixed.plan(1, 1, values, stream=99)
    plan()
    plan(66)
    own()
    own(55)
    assert [launch.stream for launch in cuda.launches] == [77, 88, 77, 66, 99, 55]


@pytest.mark.parametrize("stream", [object(), "0", 1.5, True, [1]])
def test_what_is_no_stream_is_refused(stream: object) -> None:
    with pytest.raises(LaunchError, match="stream"):
        handle_of(stream)


def test_lists_are_shapes_too_and_equal_numbers_of_other_types_are_no_surprise(cuda, mixed) -> None:
    values = map_of(Array(0x1000)), None, 1, 1.0
    mixed([2, 3], [32], values)
    mixed(np.int64(2), 32, values)
    for wrong in (2.0, (2.0,), "2", None, (1, 2, 3, 4), 0):
        with pytest.raises(LaunchError, match="grid"):
            mixed(wrong, 32, values)
    assert [launch.shape[:3] for launch in cuda.launches] == [(2, 3, 1), (2, 1, 1)]


def test_arrays_of_two_devices_are_refused_by_name(cuda, module) -> None:
    several = cuda.load(tma.runtime.Kernel(module, "several"))
    maps = [map_of(Array(0x1000 * i, 1)) for i in (1, 2, 3)]
    with pytest.raises(LaunchError, match="arguments 0, 2 on device 1; argument 1 on device 0"):
        several(1, 1, (maps, Array(0x1000, 0), Array(0x1000, 1)))
    with pytest.raises(LaunchError, match="on device 1 and the current device is 0"):
        several(1, 1, (maps, Array(0x1000, 1), None))
    cuda.device = 1
    several(1, 1, (maps, Array(0x1000, 1), None))
    assert len(cuda.launches) == 1


def test_maps_of_a_struct_are_all_checked(cuda, module) -> None:
    several = cuda.load(tma.runtime.Kernel(module, "several"))
    good = map_of(Array(0x1000))
    host = tma.tensor_map(np.zeros((64, 64)), box=(8, 16))
    for maps, message in (
        ([good, good, host], "host memory"),
        ([good, good], "the kernel declares a struct of 384 B"),
        ([], "tensor maps alone"),
        ([good, good, 5], "tensor maps alone"),
        ((good,) * 4, "4 tensor maps, 512 B"),
    ):
        with pytest.raises(LaunchError, match=message):
            several(1, 1, (maps, None, None))
    several(1, 1, ((good, good, good), None, None))
    assert cuda.launches[0].arguments[0] == 3 * bytes(good)


@pytest.mark.parametrize("given", [Array(0x1000), 5, "text", b"bytes", None, {1: 2}])
def test_arguments_that_are_no_sequence_are_refused(mixed, given: object) -> None:
    with pytest.raises(LaunchError, match="a tuple or list of arguments"):
        mixed(1, 1, given)


def test_what_a_kernel_says_of_its_launches_is_kept(cuda, module) -> None:
    tied = cuda.load(tma.runtime.Kernel(module, "tied"))
    assert tied.bounds == tma.runtime.LaunchBounds((128, 1, 1), (2, 2, 1))
    with pytest.raises(LaunchError) as caught:
        tied((3, 2), 256, cluster=3)
    for part in ("at most 128", "__cluster_dims__ of (2, 2, 1)"):
        assert part in str(caught.value)
    with pytest.raises(LaunchError, match=r"no whole number of clusters \(2, 2, 1\): use \(4, 2, 1\)"):
        tied((3, 2), 128)
    tied((4, 2), 128, cluster=(2, 2))
    assert cuda.launches[0].shape[:3] == (4, 2, 1)


def test_bounds_are_read_of_every_kernel(module) -> None:
    assert set(parse_launch_bounds(module.ptx)) == set(module.signatures)


@pytest.mark.parametrize(
    ("cluster", "message"),
    [(17, "17 blocks; 8 is the most everywhere"), (3, r"use \(6, 1, 1\)"), (0, "cluster = 0"), ((2, 2.5), "cluster"),
     ((4, 4, 2), "32 blocks")],
)  # fmt: skip
def test_impossible_clusters_are_refused(mixed, cluster: object, message: str) -> None:
    with pytest.raises(LaunchError, match=message):
        mixed(4, 1, (map_of(Array(0x1000)), None, 1, 1.0), cluster=cluster)


def test_a_plan_launches_on_its_own_device_whichever_is_current(cuda, mixed) -> None:
    cuda.device = 2
    plan = mixed.plan(1, 1, (map_of(Array(0x1000, 2)), None, 1, 1.0))
    cuda.device = 0
    plan()
    assert cuda.launches[0].device == 2
    assert cuda.device == 0


def test_what_is_set_in_a_plan_reaches_its_next_launch_alone(cuda, mixed) -> None:
    first, second = Array(0x10000), Array(0x20000)
    plan = mixed.plan(1, 1, (map_of(first), None, 1, 1.0))
    plan()
    plan.set(0, second)
    plan.set(1, first)
    plan.set(2, 5)
    plan.set(-1, 2.5)
    plan()
    plan.set(0, 0x30000)
    plan()
    before, after, last = (launch.arguments for launch in cuda.launches)
    assert before == [bytes(map_of(first)), bytes(8), b"\1\0\0\0", np.float32(1).tobytes()]
    assert after == [bytes(map_of(second)), (0x10000).to_bytes(8, "little"), b"\5\0\0\0", np.float32(2.5).tobytes()]
    assert last[0] == bytes(map_of(Array(0x30000)))
    assert plan.arguments[1] is first


@pytest.mark.parametrize(
    ("position", "value", "message"),
    [
        (0, 0x10008, "16"),
        (0, Array(0x20000, shape=(64, 32)), r"shape \(64, 64\), and this one has shape \(64, 32\)"),
        (0, Array(0x20000, 1), "on device 1"),
        (0, np.zeros((64, 64)), "host memory"),
        (0, "text", "argument 0 of kernel mixed"),
        (0, True, "argument 0 of kernel mixed"),
        (1, np.zeros(4), "host memory"),
        (1, Array(0x20000, 3), "on device 3"),
        (2, 2**40, "does not fit"),
        (3, 1e300, "too large"),
        (4, 1, "position = 4"),
        ("x", 1, "position = 'x'"),
    ],
)
def test_a_wrong_value_leaves_a_plan_as_it_was(cuda, mixed, position: object, value: object, message: str) -> None:
    plan = mixed.plan(1, 1, (map_of(Array(0x10000)), Array(0x1000), 1, 1.0))
    plan()
    with pytest.raises(LaunchError, match=message):
        plan.set(position, value)
    plan()
    assert cuda.launches[0].arguments == cuda.launches[1].arguments


def test_plans_and_maps_keep_arrays_alive_and_let_go_of_them(cuda, mixed) -> None:
    source, pointed = Array(0x10000), Array(0x20000)
    alive = weakref.ref(source), weakref.ref(pointed)
    plan = mixed.plan(1, 1, (map_of(source), pointed, 1, 1.0))
    del source, pointed
    gc.collect()
    assert all(reference() is not None for reference in alive)
    plan.set(0, Array(0x30000))
    plan.set(1, None)
    gc.collect()
    assert not any(reference() is not None for reference in alive)


def test_a_map_without_a_source_takes_arrays_that_are_long_enough(cuda, mixed) -> None:
    tensor_map = map_of(Array(0x10000)).with_address(0x20000)
    plan = mixed.plan(1, 1, (tensor_map, None, 1, 1.0))
    with pytest.raises(LaunchError, match="reaches 32768 B, and this array has 32760 B"):
        plan.set(0, Array(0x40000, shape=(4095,)))
    plan.set(0, Array(0x40000, shape=(4096,)))


def test_the_drivers_refusal_names_the_kernel_and_the_shape(cuda, mixed) -> None:
    cuda.answer = 1
    values = map_of(Array(0x1000)), None, 1, 1.0
    for launch in (lambda: mixed(1, 32, values), mixed.plan(1, 32, values)):
        with pytest.raises(LaunchError, match=r"refuses to launch mixed \(grid \(1, 1, 1\), block \(32, 1, 1\)"):
            launch()


def test_shared_memory_of_the_kernels_own_counts(cuda, mixed) -> None:
    values, raw = (map_of(Array(0x1000)), None, 1, 1.0), mixed._functions[0].raw
    mixed(1, 1, values, shared_bytes=48 * 1024 - STATIC_SHARED)
    assert not hasattr(raw, "max_dynamic_shared_size_bytes")
    mixed(1, 1, values, shared_bytes=48 * 1024)
    assert raw.max_dynamic_shared_size_bytes == 48 * 1024
    mixed(1, 1, values, shared_bytes=227 * 1024 - STATIC_SHARED)
    with pytest.raises(LaunchError, match="use at most 232348"):
        mixed(1, 1, values, shared_bytes=227 * 1024 - STATIC_SHARED + 1)


def test_threads_do_not_share_the_memory_of_arguments(cuda, mixed) -> None:
    tensor_map = map_of(Array(0x1000))

    def work(number: int) -> None:
        for _ in range(200):
            mixed(number, 1, (tensor_map, None, number, float(number)))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(1, 6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(cuda.launches) == 1000
    for launch in cuda.launches:
        assert int.from_bytes(launch.arguments[2], "little") == launch.shape[0]


SCALARS = {
    "u8": ("u1", st.integers(0, 255)), "u16": ("u2", st.integers(0, 2**16 - 1)),
    "u32": ("u4", st.integers(0, 2**32 - 1)), "u64": ("u8", st.integers(0, 2**64 - 1)),
    "f32": ("f4", st.floats(width=32)), "f64": ("f8", st.floats()),
}  # fmt: skip
PARAMETERS = st.one_of(
    st.sampled_from(sorted(SCALARS)).flatmap(lambda name: st.tuples(st.just(name), SCALARS[name][1])),
    st.integers(1, 70).flatmap(lambda size: st.tuples(st.just("struct"), st.binary(min_size=size, max_size=size))),
    st.integers(0, 2**40).map(lambda n: ("map", 16 * n)),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(PARAMETERS, max_size=12), st.randoms(use_true_random=False))
def test_any_list_of_parameters_is_packed_as_the_abi_lays_them_out(parameters, generator) -> None:
    declared, values, expected = [], [], []
    for number, (kind, value) in enumerate(parameters):
        if kind == "struct":
            alignment = generator.choice([1, 2, 4, 8, 16])
            declared.append(f".param .align {alignment} .b8 p{number}[{len(value)}]")
            values.append(value)
            expected.append((alignment, value))
        elif kind == "map":
            tensor_map = map_of(Array(value))
            declared.append(f".param .align 64 .b8 p{number}[128]")
            values.append(tensor_map)
            expected.append((64, bytes(tensor_map)))
        else:
            data = np.dtype(SCALARS[kind][0]).type(value).tobytes()
            declared.append(f".param .{kind} p{number}")
            values.append(generator.choice([value, np.frombuffer(data, SCALARS[kind][0])[0]]))
            expected.append((len(data), data))
    signature = parse_signatures(f".entry k({', '.join(declared)})")["k"] if declared else KernelSignature("k", ())
    block = ParameterBlock(signature)
    Marshaller(signature).fill(block.data, values)
    packed = b""
    for alignment, data in expected:
        packed += bytes(-len(packed) % alignment)
        start = len(packed)
        packed += data
        assert bytes(block.data[start : start + len(data)]) == data
    assert signature.size == len(packed)


def test_grids_cover_extents_with_tiles() -> None:
    assert grid_of((1000, 64), (128, 32)) == (8, 2)
    assert grid_of(129, 128) == (2,)
    for extents, tile in (((1, 2), (1,)), (0, 1), ((4, 4), (2, 0)), ("12", "34"), (1.5, 1)):
        with pytest.raises(LaunchError, match="positive whole numbers"):
            grid_of(extents, tile)


def test_the_history_knows_the_arguments_of_the_last_launches(cuda, mixed) -> None:
    tensor_map = map_of(Array(0x1000))
    plan = mixed.plan((2, 3), 32, (tensor_map, None, 7, 1.0), shared_bytes=64)
    template = plan.template([(0, 0, 0), (128, 1, 16)])
    for number in range(40):
        mixed(number + 1, 64, (tensor_map, None, number, 1.0))
    plan()
    plan.set(2, 8)
    plan()
    template(0, 0x3000, 0x5000)
    newest, second, first, *earlier = recent()
    assert newest.values()[0][0] == map_of(Array(0x3000))
    assert newest.values()[1:] == (0x5010, 7, 1.0)
    assert (second.values()[2], first.values()[2]) == (8, 7)
    assert (first.grid, first.block, first.shared_bytes, first.device) == ((2, 3, 1), (32, 1, 1), 64, 0)
    assert [record.values()[2] for record in earlier] == list(range(39, 39 - len(earlier), -1))
    assert len(earlier) == KEPT - 3


def test_a_template_launches_at_fixed_addresses_what_it_launches_at_those_of_the_moment(cuda, mixed) -> None:
    template = mixed.plan((2, 3), 32, (map_of(Array(0x1000)), None, 7, 1.0), shared_bytes=64).template(
        [(0, 0, 0), (128, 1, 16)]
    )
    one, another = template.at(0x3000, 0x5000), template.at(0x7000, 0x9000)
    for launch, addresses in ((one, (0x3000, 0x5000)), (another, (0x7000, 0x9000)), (one, (0x3000, 0x5000))):
        launch(77)
        template(77, *addresses)
        fixed, given = cuda.launches[-2:]
        assert fixed == given
        assert fixed.arguments[0] == bytes(map_of(Array(addresses[0])))
        assert fixed.arguments[1] == (addresses[1] + 16).to_bytes(8, "little")
        assert (fixed.stream, fixed.shape) == (77, (2, 3, 1, 32, 1, 1, 64))
        newest, before, *_ = recent()
        assert newest == before
    cuda.answer = 1
    with pytest.raises(DriverError, match="mixed"):
        one(77)


def test_launches_at_fixed_addresses_are_judged_while_checks_are_on(cuda) -> None:
    loads = cuda.load(tma.runtime.Kernel(launch_records.kernel("load").module, "load"))
    template = loads.plan(1, 128, (launch_records.MAP, None, 0, 0, 4096)).template([(0, 0, 0)])
    with tma.checks():
        with pytest.raises(LaunchError, match=r"(?s)checked before its launch, load.*null-address"):
            template.at(0)(77)
        assert cuda.launches == []
        template.at(0x1000)(77)
    assert len(cuda.launches) == 1


def test_launches_that_are_known_to_go_wrong_are_not_made_while_checks_are_on(cuda, mixed) -> None:
    moved = Array(0x1000)
    tensor_map = map_of(moved)
    values = tensor_map, None, 1, 1.0
    plan = mixed.plan(1, 1, values)
    moved.data.ptr = 0x7000
    with tma.checks():
        for launch in (lambda: mixed(1, 1, values), plan):
            with pytest.raises(LaunchError, match="checked before its launch, mixed"):
                launch()
    assert cuda.launches == []
    plan()
    assert len(cuda.launches) == 1


@pytest.mark.parametrize("code", [700, 715, 716, 719])
def test_the_fault_of_an_earlier_kernel_is_told_from_a_refusal(cuda, mixed, code: int) -> None:
    values = map_of(Array(0x1000)), None, 1, 1.0
    mixed(5, 1, values)
    cuda.answer = code
    with pytest.raises(DriverError, match=r"(?s)earlier.*mixed \(grid \(5, 1, 1\)") as caught:
        mixed(1, 1, values)
    assert caught.value.code == code
