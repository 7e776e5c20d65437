"""The example of maps born on the device: in three kernels and in one, what is consumed is what was encoded."""

from __future__ import annotations

import re

import numpy as np
import pytest
import stress
from device_examples import BOX, SEED, compiled, described, expected
from emulated_cuda import Array, EmulatedCuda, needs_compiler

import cupytma as tma
from cupytma.errors import CompileError, EmissionError
from cupytma.ptx import appended_maps
from cupytma.runtime.map_counts import device_maps

pytest.importorskip("cuda.bindings.nvrtc", reason="needs cuda-python and NVRTC")

KERNELS = ("make_template", "encode_maps_of_matrices", "consume_tile", "encode_and_consume")


@pytest.mark.parametrize("target", ["sm_90a", "sm_100a", "sm_120a"])
def test_the_kernels_have_the_fences_that_their_scopes_ask_for(target: str) -> None:
    made = compiled(target)
    assert set(made.kernels) == set(KERNELS)
    bodies = {text.split("(")[0].strip(): text for text in made.ptx.split(".entry ")[1:]}
    found = {name: re.findall(r"\.(release|acquire)\.(cta|gpu|sys)", body) for name, body in bodies.items()}
    assert found == {
        "make_template": [("release", "gpu")], "encode_maps_of_matrices": [("release", "gpu")],
        "consume_tile": [("acquire", "gpu")], "encode_and_consume": [("release", "cta"), ("acquire", "cta")],
    }  # fmt: skip
    counts = {name: (made.kernel(name).num_host_tmas, made.kernel(name).num_device_tmas) for name in KERNELS}
    assert counts == {
        "make_template": (1, 1), "encode_maps_of_matrices": (0, 1), "consume_tile": (0, 0),
        "encode_and_consume": (1, 1),
    }  # fmt: skip


def test_a_rebind_changes_the_address_then_the_extents_then_the_strides() -> None:
    body = compiled("sm_90a").ptx.split(".entry encode_maps_of_matrices")[1].split(".entry")[0]
    order = re.findall(r"tensormap\.replace\.tile\.(\w+)\.[^;]*?\],(?: (\d),)?|(cp_fenceproxy)", body)
    assert [entry[2] or entry[0] + entry[1] for entry in order] == [
        "global_address", "global_dim0", "global_dim1", "global_stride0", "cp_fenceproxy",
    ]  # fmt: skip


def matrices(seed: int = 0) -> list[np.ndarray]:
    random = np.random.default_rng(seed)
    found = []
    for _ in range(7):
        rows, columns = (int(n) for n in random.integers(1, 40, 2))
        found.append(random.random((rows, -(-columns // 4) * 4), dtype=np.float32)[:, :columns])
    return found


@needs_compiler
@pytest.mark.parametrize(("x", "y"), [(0, 0), (8, 5), (-4, 30), (36, -7)])
@pytest.mark.parametrize("one_kernel", [False, True])
def test_every_matrix_is_read_through_its_own_map(cuda: EmulatedCuda, x: int, y: int, one_kernel: bool) -> None:
    module, arrays = compiled("sm_90a"), [Array.of(m) for m in matrices()]
    given, slots = Array.of(described(arrays)), tma.DescriptorBuffer(7, target="sm_90a")
    out = Array.of(np.full((7, *BOX), -1, np.float32))
    if one_kernel:
        module.kernel("encode_and_consume")(7, 64, (SEED, given, slots, x, y, out))
    else:
        made = tma.DescriptorBuffer(1, target="sm_90a")
        module.kernel("make_template")(1, 32, (SEED, made))
        module.kernel("encode_maps_of_matrices")(7, 32, (made, given, slots))
        module.kernel("consume_tile")(7, 64, (slots, x, y, out))
    for i, array in enumerate(arrays):
        np.testing.assert_array_equal(out.host[i], expected(array.host, x, y))
    for held, array in zip(slots.to_host(), arrays, strict=True):
        assert held is not None
        assert bytes(held)[:64] == bytes(tma.tensor_map(array, BOX))[:64]


@needs_compiler
def test_the_stress_kernel_counts_every_copy_that_brings_another_tensor(cuda: EmulatedCuda) -> None:
    kernel = stress.compiled("sm_90a", 1, acquire=True).kernel("stress")
    data = np.repeat(np.arange(stress.TENSORS, dtype=np.uint32), stress.WORDS)
    found = []
    for wrong in (0, 1):
        slots, stale = tma.DescriptorBuffer(3, target="sm_90a"), Array.of(np.zeros(1, np.uint32))
        given = Array.of(data + np.uint32(wrong))
        flags = Array.of(np.zeros(64 * 3, np.uint32))
        kernel(3, 32, (stress.SEED, slots, given, stress.TENSORS, 50, flags, stale))
        found.append(int(stale.host[0]))
    assert found == [0, 150]


def test_a_slot_of_zeros_is_a_template_on_sm_90a_alone() -> None:
    source = """
    #include <cupytma.cuh>
    extern "C" __global__ void k() { __shared__ cupytma::tensormap::Slot slot; cupytma::tensormap::zero(slot); }
    """
    assert tma.compile(source, "sm_90a").kernels == ("k",)
    with pytest.raises(CompileError, match="documented as a template on sm_90a alone"):
        tma.compile(source, "sm_100a")
    with pytest.raises(CompileError, match="tensormap"):
        tma.compile(source, "sm_90")


def test_debug_builds_assert_the_alignment_of_slots() -> None:
    assert "a slot is aligned to 128 bytes" not in compiled("sm_90a").ptx
    checked = compiled("sm_90a", CUPYTMA_CHECK=None).ptx
    numbers = re.findall(r"\b\d+\b", " ".join(re.findall(r"\{([\d, ]+)\}", checked)))
    text = bytes(int(number) for number in numbers if int(number) < 256)
    assert b"a slot is aligned to 128 bytes" in text


# Counters, and the order of appended parameters


def test_slots_of_the_device_come_right_after_the_kernels_own_parameters_however_many_maps_the_host_passes() -> None:
    offsets = set()
    for count in range(4):
        parameters = appended_maps("int n", device=["own", "other"], host=[f"host{i}" for i in range(count)])
        module = tma.compile(
            f"""
            #include <cupytma.cuh>
            extern "C" __global__ void k({parameters})
            {{
                __shared__ cupytma::tensormap::Slot slot;
                cupytma::tensormap::publish(own + blockIdx.x, slot);
                for (int i = 0; i < n; ++i) cupytma::tensormap::publish(other + i, slot);
            }}""",
            "sm_90a",
        )
        kernel = module.kernel("k")
        assert (kernel.num_device_tmas, kernel.num_host_tmas) == (2, count)
        assert {origin.name for origin in device_maps(module.ptx, "k")} == {"k_param_1", "k_param_2"}
        offsets.add(tuple(p.offset for p in kernel.signature.parameters[:3]))
        assert all(p.offset >= 64 for p in kernel.signature.parameters[3:])
    assert offsets == {(0, 8, 16)}


def test_slots_at_constant_distances_are_counted_apart_and_those_of_one_array_once() -> None:
    module = tma.compile(
        r"""
        #include <cupytma.cuh>
        namespace maps = cupytma::tensormap;
        struct Pair { CUtensorMap maps[2]; };
        extern "C" __global__ void k(const __grid_constant__ Pair pair, CUtensorMap* own, unsigned i)
        {
            __shared__ maps::Slot slot;
            maps::publish(own + 2 * i, slot);
            maps::publish(own + 2 * i + 1, slot);
            if (i > 3) maps::publish(own + 2 * i, slot);
        }
        extern "C" __global__ void none(CUtensorMap* own, int n) { maps::acquire(own + n); }
        """,
        "sm_90a",
    )
    assert (module.kernel("k").num_device_tmas, module.kernel("k").num_host_tmas) == (2, 2)
    assert (module.kernel("none").num_device_tmas, module.kernel("none").num_host_tmas) == (0, 0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"device": ["a b"]}, "'a b' is no name in C"),
        ({"device": ["a"], "host": ["a"]}, "two tensor maps are named a"),
        ({"host": [3]}, "up to 64 texts are needed"),
        ({"host": None}, "host is None"),
        ({"parameters": 5}, "parameters is 5"),
        ({"device": [""]}, "up to 64 texts"),
        ({"device": ["a"] * 65}, "up to 64 texts"),
    ],
)
def test_names_that_cannot_be_parameters_are_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(EmissionError, match=message):
        appended_maps(**arguments)  # type: ignore[arg-type]


_MAKES = """
    __shared__ maps::Slot slot;
    maps::copy_template(slot, &seed);
"""


@pytest.mark.parametrize("debug", [(), ("-G",)])
@pytest.mark.parametrize(
    ("parameters", "code", "count"),
    [
        ("CUtensorMap* a", "", 0),
        ("CUtensorMap* a, CUtensorMap* b, int n", "maps::publish(n > 2 ? a : b, slot);", 2),
        ("CUtensorMap* a, int n", "maps::publish(a + n, slot); maps::publish(a + 3, slot);", 2),
        ("CUtensorMap* a, int n", "make(a, slot); make(a + n, slot);", 1),
        ("CUtensorMap* a, CUtensorMap* b", "make(a, slot); maps::publish(b, slot);", 2),
        ("CUtensorMap* a", "PUBLISH(0) PUBLISH(1) PUBLISH(0)", 2),
    ],
)
def test_slots_are_counted_however_their_addresses_come_about(
    parameters: str, code: str, count: int, debug: tuple[str, ...]
) -> None:
    module = tma.compile(
        f"""
        #include <cupytma.cuh>
        namespace maps = cupytma::tensormap;
        #define PUBLISH(i) maps::publish(a + i, slot);
        __device__ __noinline__ void make(CUtensorMap* map, const maps::Slot& slot) {{ maps::publish(map, slot); }}
        extern "C" __global__ void other(const __grid_constant__ CUtensorMap seed, CUtensorMap* a)
        {{ {_MAKES} maps::publish(a, slot); }}
        extern "C" __global__ void k(const __grid_constant__ CUtensorMap seed, {parameters})
        {{ {_MAKES} {code} }}
        """,
        "sm_90a", options=debug,
    )  # fmt: skip
    assert (module.kernel("k").num_host_tmas, module.kernel("k").num_device_tmas) == (1, count)


def test_appended_maps_take_no_name_that_a_parameter_has() -> None:
    for own in ("int a", ["float* out", "int n, float *a"], "int a, int n", "const int a[3]"):
        with pytest.raises(EmissionError, match="a is one of the parameters already"):
            appended_maps(own, device="a")
    assert appended_maps("int aa, float* b", device="a").endswith("CUtensorMap* a")
