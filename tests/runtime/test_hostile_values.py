"""Values that nobody should give: every public function of the runtime answers with an error of this package."""

from __future__ import annotations

import gc
import os
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from simulated_cuda import Array, SimulatedCuda

import cupytma as tma
from cupytma import runtime
from cupytma.errors import CupytmaError, LaunchError
from cupytma.runtime import cache, compiler, places, streams

pytest.importorskip("cuda.bindings.nvrtc", reason="needs cuda-python and NVRTC")

SOURCE = """
__constant__ float scale;
struct alignas(64) Map { char bytes[128]; };
struct Two { Map map[2]; };
struct Odd { char bytes[24]; };
extern "C" __global__ void mixed(
    const __grid_constant__ Map map, const __grid_constant__ Two maps, float* out, int n, double by, Odd odd, bool on)
{
    out[0] = scale;
}
"""
PLAIN = 'extern "C" __global__ void plain() {}'
MAP = tma.Tiled(data_type="FLOAT32", global_address=1 << 40, global_dim=(256, 64), box_dim=(32, 8)).encode()
GOOD = (MAP, [MAP, MAP], None, 1, 2.0, b"x" * 24, True)


def _raising(*methods: str) -> Any:
    """An object whose methods fail with errors of their own."""

    def fail(*_: object) -> Any:
        raise RuntimeError("no")

    return type("Raising", (), dict.fromkeys(methods, fail))()


class _RaisingArray:
    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        raise RuntimeError("no")


class _ArrayAt:
    def __init__(self, address: Any) -> None:
        self.__cuda_array_interface__ = {
            "version": 3, "typestr": "<f4", "data": (address, False), "shape": (1,), "strides": None,
        }  # fmt: skip


VALUES: dict[str, Any] = {
    "none": None, "nan": float("nan"), "negative": -1, "huge": 2**64, "endless": 10**5000, "fraction": 1.5,
    "empty text": "", "text": "x", "NUL": "\0", "surrogate": "\ud800", "no bytes": b"", "bytearray": bytearray(3),
    "empty": (), "none inside": [None], "dict": {1: 2}, "set": set(), "object": object(), "type": int, "module": tma,
    "numpy": np.array([1, 2]), "numpy text": np.array(["a"]), "NaT": np.datetime64("NaT"), "void": np.void(b"abc"),
    "rows": memoryview(np.zeros((4, 4))[:, ::2]), "slice": slice(0, 1), "nested": [[1]], "four": (1, 1, 1, 1),
    "too many blocks": (2**40,), "generator": iter("x"), "array": Array(4096, device=3),
    "array below": _ArrayAt(-5), "array beyond": _ArrayAt(10**30), "array nowhere": _ArrayAt(None),
    "raises in repr": _raising("__repr__"), "raises in index": _raising("__index__"),
    "raises in iter": _raising("__iter__"), "raises in bool": _raising("__bool__"), "raises as array": _RaisingArray(),
}  # fmt: skip


def _with(position: int, value: Any) -> list[Any]:
    return [*GOOD[:position], value, *GOOD[position + 1 :]]


def _start(x: int, y: int, z: int) -> tuple[int, int]:
    return 0, 0


# What takes a value: a kernel, a plan of it, and the value.
CALLS: dict[str, Callable[[Any, Any, Any], object]] = {
    **{f"argument {i}": lambda k, p, v, i=i: k(1, 1, _with(i, v)) for i in range(len(GOOD))},  # type: ignore[misc]
    **{f"set {i}": lambda k, p, v, i=i: p.set(i, v) for i in range(len(GOOD))},  # type: ignore[misc]
    "arguments": lambda k, p, v: k(1, 1, v),
    "grid": lambda k, p, v: k(v, 1, GOOD),
    "block": lambda k, p, v: k(1, v, GOOD),
    **{
        name: lambda k, p, v, name=name: k.plan(1, 1, GOOD, **{name: v})  # type: ignore[misc]
        for name in ("shared_bytes", "cluster", "stream")
    },
    "cooperative": lambda k, p, v: k.shape(1, 1, cooperative=v),
    "programmatic": lambda k, p, v: k.shape(1, 1, programmatic=v),
    "stream of a call": lambda k, p, v: k(1, 1, GOOD, stream=v),
    "stream of a plan": lambda k, p, v: p(v),
    "position": lambda k, p, v: p.set(v, None),
    "kernel": lambda k, p, v: k.module.kernel(v),
    "grid_of": lambda k, p, v: runtime.grid_of(v, (1, 1)),
    "tile": lambda k, p, v: runtime.grid_of((1, 1), v),
    "declared kernel": lambda k, p, v: tma.declare_coordinates(v, 0, _start),
    "declared parameter": lambda k, p, v: tma.declare_coordinates(k, v, _start),
    "declared index": lambda k, p, v: tma.declare_coordinates(k, (1, v), _start),
    "declared function": lambda k, p, v: tma.declare_coordinates(k, 0, v),
    **{
        f"declared {name}": lambda k, p, v, name=name: tma.declare_coordinates(k, 0, _start, **{name: v})  # type: ignore[misc]
        for name in ("store", "mode", "offsets", "shared_offset")
    },
    "fault": lambda k, p, v: str(tma.explain_fault(v, launches=[])),
    "launches": lambda k, p, v: tma.explain_fault(715, launches=v),
    "module of a constant": lambda k, p, v: runtime.set_constant(v, "x", MAP),
    "constant": lambda k, p, v: runtime.set_constant(k.module, v, MAP),
    "value of a constant": lambda k, p, v: runtime.set_constant(k.module, "scale", v),
    "slots": lambda k, p, v: tma.DescriptorBuffer(v, target="sm_90a"),
    "acquired": lambda k, p, v: tma.DescriptorBuffer.acquire_code(v),
    "checks": lambda k, p, v: tma.checks(v),
    **{
        f"compile {name}": lambda k, p, v, name=name: tma.compile(**{"source": PLAIN, "target": "sm_90a", name: v})  # type: ignore[misc]
        for name in ("source", "target", "options", "defines", "headers", "includes", "name_expressions")
    },
}


@pytest.fixture(scope="module")
def module() -> tma.runtime.Module:
    return tma.compile(SOURCE, target="sm_90a")


@pytest.fixture
def kernel(module: tma.runtime.Module, monkeypatch: pytest.MonkeyPatch) -> Any:
    return SimulatedCuda(monkeypatch).load(runtime.Kernel(module, "mixed"))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("call", CALLS)
def test_whatever_is_given_the_answer_is_a_result_or_an_error_of_this_package(kernel: Any, call: str) -> None:
    refused, shortest = 0, 1
    for name, value in VALUES.items():
        with tma.checks(False):
            plan = kernel.plan(1, 1, GOOD)
            try:
                CALLS[call](kernel, plan, value)
            except CupytmaError as error:
                refused += 1
                shortest = min(shortest, 6000 - len(str(error)), len(str(error)))
            except Exception as error:
                pytest.fail(f"{call} of {name}: {type(error).__name__}: {error}")
    assert shortest > 0
    assert refused or call in ("fault", "checks")


def test_arguments_that_can_be_read_once_are_refused_at_every_launch(kernel: Any) -> None:
    for _ in range(2):
        with pytest.raises(LaunchError, match=r"list\(arguments\)"):
            kernel(1, 1, iter(GOOD))
        with pytest.raises(LaunchError, match=r"list\(arguments\)"):
            kernel.plan(1, 1, (argument for argument in GOOD))
        kernel(1, 1, GOOD)


def _mapped(address: int) -> tuple[tma.TensorMap, weakref.ref[Any]]:
    array = Array(address)
    return tma.tensor_map(array, box=(8, 8)), weakref.ref(array)


def test_a_plan_keeps_the_arrays_of_a_list_that_changes_afterwards(kernel: Any) -> None:
    (first, at_first), (second, at_second) = _mapped(1 << 20), _mapped(1 << 21)
    maps = [first, first]
    plan = kernel.plan(1, 1, _with(1, maps))
    maps.clear()
    del first
    gc.collect()
    assert at_first() is not None
    maps += [second, second]
    plan.set(1, maps)
    maps.clear()
    del second
    gc.collect()
    assert at_first() is None
    assert at_second() is not None
    assert len(plan.arguments[1]) == 2


def test_a_plan_takes_the_stream_of_the_arrays_that_it_has_now(kernel: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    class Tensor:
        pass

    device = places.TorchDevice(0)
    monkeypatch.setitem(places.readers, Tensor, lambda tensor: (4096, device))
    monkeypatch.setattr(streams, "_torch_handle", lambda device: 77)
    plan = kernel.plan(1, 1, GOOD)
    assert plan._handle(None) == 0
    plan.set(2, Tensor())
    assert plan._handle(None) == 77
    plan.set(3, 5)
    assert plan._handle(None) == 77
    plan.set(2, Array(8192))
    assert plan._handle(None) == 0


def test_threads_that_compile_the_same_get_the_same_module(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = threading.Barrier(4)
    compile_now = compiler._compiled

    def together(*arguments: Any) -> Any:
        found = compile_now(*arguments)
        waiting.wait(60)  # all have compiled before one of them is remembered
        return found

    monkeypatch.setattr(compiler, "_compiled", together)
    source = 'extern "C" __global__ void raced() {}'
    found: list[Any] = []
    threads = [threading.Thread(target=lambda: found.append(tma.compile(source, target="sm_90a"))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert len(set(map(id, found))) == 1


@pytest.mark.skipif(os.name == "nt", reason="there a folder in use cannot be removed")
@pytest.mark.filterwarnings("ignore::cupytma.errors.CacheWarning")
@pytest.mark.parametrize("options", [[], ["-lineinfo"]])
def test_compiling_works_where_the_current_folder_was_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str]
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    monkeypatch.setenv("CUPYTMA_CACHE_DIR", "relative")
    compiler.forget_modules()
    assert tma.compile(PLAIN, target="sm_90a", options=options).kernels == ("plain",)
    assert cache.info().entries == 0


def test_the_mark_that_some_editors_begin_a_file_with_is_left_out() -> None:
    assert tma.compile("\ufeff" + PLAIN, target="sm_90a").kernels == ("plain",)
