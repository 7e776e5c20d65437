"""What pipeline kernels declare and are called with: whatever is wrong is refused, and the message says what to do."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cupytma as tma
from cupytma.errors import ArrayError, CupytmaError, NoDeviceError, PipelineError
from cupytma.pipeline.declarations import ELEMENT_TYPES, parse_declaration, scalar_bits
from cupytma.runtime.device import has_tma_device


class Awkward:
    """Refuses whatever is asked of it."""

    def __getattribute__(self, name: str) -> Any:
        if name == "__class__":
            return Awkward
        raise ValueError("no")

    def __index__(self) -> int:
        raise ValueError("no")

    def __repr__(self) -> str:
        raise ValueError("no")


GOOD: dict[str, Any] = {"consume": "out = a", "inputs": ["float32 a"], "outputs": ["float32 out"]}
WRONG = [
    ({"consume": ""}, "consume is empty"),
    ({"consume": None}, "consume = None: text"),
    ({"consume": b"out = a"}, "text"),
    ({"consume": "out = a\0"}, "text"),
    ({"inputs": []}, "inputs is empty"),
    ({"inputs": None}, "inputs = None: a list is needed"),
    ({"inputs": 3}, "a list is needed"),
    ({"inputs": {"a": "float32"}}, "a list is needed"),
    ({"inputs": ["a"]}, "'a' is no dtype and name"),
    ({"inputs": ["float32 a b"]}, "no dtype and name"),
    ({"inputs": [np.zeros(3)]}, "no dtype and name"),
    ({"inputs": ["float23 a"]}, "is float32 meant"),
    ({"inputs": ["complex64 a"]}, "no dtype of a pipeline"),
    ({"inputs": ["float32 out"]}, "'out' is declared twice"),
    ({"inputs": ["float32 class"]}, "has a meaning"),
    ({"inputs": ["float32 tile"]}, "has a meaning"),
    ({"inputs": ["float32 a_map"]}, "has a meaning"),
    ({"inputs": ["float32 wchar_t"]}, "has a meaning"),
    ({"inputs": ["float32 not_eq"]}, "has a meaning"),
    ({"inputs": ["float32 NULL"]}, "has a meaning"),
    ({"inputs": ["float32 \N{GREEK SMALL LETTER ALPHA}"]}, "no dtype and name"),
    ({"inputs": ["float32 a\N{LATIN SMALL LETTER E WITH ACUTE}"]}, "no dtype and name"),
    ({"scalars": ["float32 reference"]}, "a parameter of the call"),
    ({"scalars": ["float32 blocks"]}, "a parameter of the call"),
    ({"outputs": []}, "nothing is written"),
    ({"scalars": ["float16 s"]}, "declare it as float32"),
    ({"scalars": ["float32 a"]}, "declared twice"),
    ({"reduce": ["float32 total"]}, "a mapping is needed"),
    ({"reduce": {"float32 total": "sum"}}, "add, mul, min, max"),
    ({"reduce": {"float32 total": ("a + b",)}}, "a pair"),
    ({"reduce": {"float32 total": ("", "0")}}, "a pair"),
    ({"reduce": {"float32 total": "and"}}, "combines bits"),
    ({"reduce": {3: "add"}}, "no dtype and name"),
    ({"reduce": {"float32 total": "add"}, "each": "row"}, "use each='element', or over='all'"),
    ({"over": "column"}, "over = 'column'; it is one of 'row', 'all'"),
    ({"each": None}, "each = None"),
    ({"finish": "total = 1"}, "finish is run for the results of reduce="),
    ({"name": "2fast"}, "no name for a function"),
    ({"name": "while"}, "no name for a function"),
    ({"name": "main"}, "no name for a function"),
    ({"name": "caf\N{LATIN SMALL LETTER E WITH ACUTE}"}, "no name for a function"),
    ({"name": None}, "text"),
    ({"stages": 0}, "stages = 0: a whole number from 1 to 64"),
    ({"stages": 65}, "stages = 65"),
    ({"stages": 2.5}, "stages = 2.5"),
    ({"stages": True}, "stages = True"),
    ({"stages": float("nan")}, "stages = nan"),
    ({"threads": 100}, "whole warps"),
    ({"threads": 1024}, "threads = 1024"),
    ({"threads": -32}, "threads = -32"),
    ({"blocks": 0}, "blocks = 0"),
    ({"blocks": 32}, "more than the 2048 threads"),
    ({"blocks": 10**40}, "blocks"),
    ({"tile_bytes": 0}, "tile_bytes = 0"),
    ({"box": ()}, "box = ()"),
    ({"box": (0, 4)}, "box = (0, 4): positive"),
    ({"box": "4"}, "box"),
    ({"box": (4, None)}, "box"),
    ({"options": 3}, "options = 3"),
    ({"consume": Awkward()}, "consume"),
    ({"stages": Awkward()}, "stages"),
    ({"reduce": Awkward()}, "reduce"),
]


@pytest.mark.parametrize(("change", "message"), WRONG)
def test_a_wrong_declaration_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(PipelineError) as caught:
        tma.pipeline_kernel(**{**GOOD, **change})
    assert message in str(caught.value)
    assert isinstance(caught.value, (CupytmaError, ValueError))


def test_declarations_may_be_one_text_and_code_may_lack_its_semicolon() -> None:
    kernel = tma.pipeline_kernel("out = a + b", "float32 a, int8 b", "float64 out")
    assert [str(entry) for entry in kernel.declaration.inputs] == ["float32 a", "int8 b"]
    assert kernel.declaration.consume == "out = a + b;"
    assert tma.pipeline_kernel("if (a > 0) { out = a; }\n", "int8 a", "int8 out").declaration.consume[-1] == "}"
    assert tma.pipeline_kernel("out = a  // half", "int8 a", "int8 out").declaration.consume == "out = a  // half\n;"
    assert repr(kernel) == "<PipelineKernel pipeline(float32 a, int8 b) -> float64 out>"


def kernel(**change: Any) -> tma.pipeline.PipelineKernel:
    return tma.pipeline_kernel(**{**GOOD, "inputs": "float32 a, float32 b", "scalars": "int32 n", **change})


X = np.zeros((8, 64), np.float32)
CALLS: list[tuple[tuple[Any, ...], dict[str, Any], str]] = [
    ((), {"n": 1}, "lacks a, b"),
    ((X, X), {}, "lacks n; it takes float32 a, float32 b, int32 n"),
    ((X, X, X), {"n": 1}, "takes 2 arrays (a, b), not 3"),
    ((X, X), {"n": 1, "m": 2}, "has no 'm'"),
    ((X, X), {"n": 1, "a": X}, "given a twice"),
    ((X, X), {"n": 1.5}, "scalar n = 1.5 is no int32"),
    ((X, X), {"n": 2**31}, "no int32"),
    ((X, X), {"n": None}, "scalar n = None"),
    ((X, X), {"n": Awkward()}, "scalar n"),
    ((X, X), {"n": 1, "out": [X, X]}, "out has 2 arrays"),
    ((X, X), {"n": 1, "out": {"other": X}}, "the results are out"),
]


@pytest.mark.parametrize(("arrays", "named", "message"), CALLS)
def test_a_wrong_call_is_refused_before_a_gpu_is_needed(arrays: Any, named: Any, message: str) -> None:
    with pytest.raises(PipelineError) as caught:
        kernel()(*arrays, **named)
    assert message in str(caught.value)


@pytest.mark.skipif(has_tma_device(), reason="there is a GPU")
def test_without_a_gpu_a_call_says_so() -> None:
    with pytest.raises(NoDeviceError):
        kernel()(X, X, n=1)


ARRAYS: list[tuple[tuple[Any, ...], Any, str]] = [
    ((X, X.astype("f8")), None, "b is float64, and float32 is declared"),
    ((X, X[:5]), None, "cannot be broadcast together: a (8, 64), b (5, 64)"),
    ((X, object()), None, "no array"),
    ((X, None), None, "no array"),
    ((X, X), X[:4].copy(), "out has shape (4, 64)"),
    ((X, X), X.astype("i4"), "out is int32"),
    ((X[1:], X[1:]), X[:-1], "out overlaps a"),
    ((X, X), np.broadcast_to(np.zeros(64, "f4"), X.shape), "read-only"),
    ((X, X), np.lib.stride_tricks.as_strided(np.zeros(64, "f4"), X.shape, (0, 4)), "out's elements overlap"),
    ((X[:0], X[:0]), None, "empty"),
    ((X.view("u1").ravel()[1:-3].view("f4"), X.ravel()[1:]), None, "do not lie at multiples of their 4 B"),
]


@pytest.mark.parametrize(("arrays", "out", "message"), ARRAYS)
def test_arrays_that_do_not_fit_are_refused(arrays: Any, out: Any, message: str) -> None:
    with pytest.raises(ArrayError) as caught:
        kernel(scalars=()).plan(*arrays, out=out)
    assert message in str(caught.value)


def test_results_may_not_overlap_one_another() -> None:
    two = kernel(scalars=(), outputs="float32 out, float32 other", consume="out = other = a")
    room = np.zeros((9, 64), np.float32)
    with pytest.raises(ArrayError, match="other overlaps out"):
        two.plan(X, X, out=[room[1:], room[:-1]])


def test_more_dimensions_than_a_tensor_map_has_are_refused_and_merged_where_they_can_be() -> None:
    x = np.zeros((2, 3, 2, 3, 2, 3, 16), np.float32)
    copied = tma.pipeline_kernel(**GOOD)
    assert copied.plan(x).variant.rank == 1
    with pytest.raises(ArrayError, match=r"7 dimensions are left .* at most 5"):
        tma.pipeline_kernel("out = a + at[0]", "float32 a", "float32 out").plan(x)


BOXES = [
    ((8, 8, 8), "has 3 extents, and the arrays have 2 dimensions"),
    ((8, 6), "a multiple of 4 elements, 16 bytes in every array; the next is 8"),
    ((257, 8), "256 at most"),
    ((1, 516), "pieces of equal length"),
    ((256, 512), "of shared memory"),
]


@pytest.mark.parametrize(("box", "message"), BOXES)
def test_a_box_that_breaks_a_rule_is_refused(box: tuple[int, ...], message: str) -> None:
    wide = np.zeros((512, 1024), np.float32)
    with pytest.raises(PipelineError) as caught:
        tma.pipeline_kernel("out = a + at[0]", "float32 a", "float32 out", box=box).plan(wide)
    assert message in str(caught.value)


def test_rows_that_do_not_fit_shared_memory_are_refused() -> None:
    rows = tma.pipeline_kernel("out[0] = x[0]", "float32 x", "float32 out", each="row")
    with pytest.raises(PipelineError, match="use shorter rows"):
        rows.plan(np.zeros((4, 60000), np.float32))
    with pytest.raises(PipelineError, match="holds whole rows, which have 100 elements"):
        tma.pipeline_kernel("out[0] = x[0]", "float32 x", "float32 out", each="row", box=(1, 64)).plan(
            np.zeros((4, 100), np.float32)
        )


@pytest.mark.parametrize("dtype", [name for name, kind in ELEMENT_TYPES.items() if kind.code])
def test_scalars_are_the_bytes_of_their_type(dtype: str) -> None:
    declaration = parse_declaration(
        "out = a", ["int8 a"], ["int8 out"], [f"{dtype} s"], None, "row", "element", "", "", "k"
    )
    (declared,) = declaration.scalars
    value = np.ones(1, dtype)[0]
    assert scalar_bits(declared, value).to_bytes(8, "little")[: value.itemsize] == value.tobytes()
    if dtype.startswith("int"):
        negative = np.array(-5, dtype)
        assert scalar_bits(declared, -5).to_bytes(8, "little")[: value.itemsize] == negative.tobytes()


def test_types_have_the_sizes_of_their_dtypes() -> None:
    for name, kind in ELEMENT_TYPES.items():
        dtype = np.dtype(getattr(ml_dtypes, name)) if hasattr(ml_dtypes, name) else np.dtype(name)
        assert kind.itemsize == dtype.itemsize


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        ("bool", None), ("bool", "no"), ("bool", 2), ("bool", 0.5), ("bool", float("nan")), ("bool", []),
        ("float32", "3"), ("float64", b"1"), ("float32", np.complex64(1 + 2j)), ("float64", 1j), ("float32", 1e300),
        ("int32", "3"), ("int8", np.complex64(1)),
    ],
)  # fmt: skip
def test_scalars_that_only_look_like_numbers_are_refused(dtype: str, value: Any) -> None:
    made = tma.pipeline_kernel("out = a", "int8 a", "int8 out", scalars=f"{dtype} s")
    with pytest.raises(PipelineError, match=f"scalar s = .* is no {dtype}"):
        made(X, s=value)


def test_a_scalar_may_have_any_name_that_the_call_leaves() -> None:
    made = tma.pipeline_kernel("out = self * a", "float32 a", "float32 out", scalars="float32 self")
    with pytest.raises(PipelineError, match="lacks a"):
        made(self=2)


class Somewhere:
    """An array that is only an address, a shape and strides."""

    def __init__(
        self, shape: tuple[int, ...], typestr: str = "<f4", address: int = 1 << 40, strides: Any = None
    ) -> None:
        self.__cuda_array_interface__ = {
            "version": 3, "shape": shape, "typestr": typestr, "data": (address, False), "strides": strides,
        }  # fmt: skip


def test_more_tiles_or_larger_coordinates_than_a_kernel_counts_are_refused() -> None:
    total = {"reduce": {"float32 t": "add"}, "over": "all"}
    made = tma.pipeline_kernel("t += a", "float32 a", **total)
    with pytest.raises(ArrayError, match="562949953421312 tiles"):
        made.plan(Somewhere((2**30, 2**30), strides=(0, 0)))
    with pytest.raises(ArrayError, match=r"274877906944 tiles of \(1, 4\) elements"):
        tma.pipeline_kernel("t += a", "float32 a", box=(1, 4), **total).plan(Somewhere((2**20, 2**20)))
    bytes_ = tma.pipeline_kernel("t += a", "uint8 a", reduce={"uint8 t": "add"}, over="all", box=(100352,))
    with pytest.raises(ArrayError, match="extent of 2147479552 is too large for tiles of 100352"):
        bytes_.plan(Somewhere((2**31 - 4096,), "|u1"))
    assert bytes_.plan(Somewhere((2**31 - 200000,), "|u1")).tiles * 100352 < 2**31


def test_an_array_at_a_null_address_is_refused() -> None:
    for arrays, out in (((Somewhere((8, 64), address=0),), None), ((X,), Somewhere((8, 64), address=0))):
        with pytest.raises(ArrayError, match="512 elements at a null address"):
            tma.pipeline_kernel("out = a", "float32 a", "float32 out").plan(*arrays, out=out)
