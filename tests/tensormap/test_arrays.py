"""Tensor maps of arrays of any library and layout; messages in the array's own order."""

from __future__ import annotations

import pickle
from math import prod
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from array_likes import CudaArray, TorchTensor
from hypothesis import given
from hypothesis import strategies as st

from cupytma import ArrayError, DataType, DescriptorError, sim, tensor_map
from cupytma.tensormap.arrays import ArrayView, array_parameters, coalesced, data_type_of, view_of


def view(shape: tuple[int, ...], strides: tuple[int, ...], dtype: str = "float16", address: int = 1 << 40) -> ArrayView:
    itemsize = {"uint8": 1, "float16": 2, "float32": 4}[dtype]
    return ArrayView(address, shape, strides, dtype, itemsize, 0)


def aligned(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    buffer = np.zeros(prod(shape) * np.dtype(dtype).itemsize + 64, np.uint8)
    return np.ndarray(shape, dtype, buffer, -buffer.ctypes.data % 64)


# Where the elements lie.


@given(st.data())
def test_any_numpy_view_is_described_as_numpy_does(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 6), min_size=0, max_size=6)))
    array = np.zeros(shape, data.draw(st.sampled_from(["u1", "f2", "i4", "f8", "c8", "?"])))
    array = array.transpose(data.draw(st.permutations(range(len(shape)))))
    array = array[(*(slice(None, None, data.draw(st.sampled_from([1, 2, -1]))) for _ in shape), ...)]
    array.flags.writeable = data.draw(st.booleans())
    found = view_of(array)
    assert (found.address, found.shape) == (array.ctypes.data, array.shape)
    walked = [axis for axis, extent in enumerate(array.shape) if extent > 1]
    assert [found.strides[axis] for axis in walked] == [array.strides[axis] for axis in walked]
    assert (found.dtype, found.itemsize, found.device) == (array.dtype.name, array.itemsize, None)
    assert found.size == array.size


@pytest.mark.parametrize("strides", [None, (512, 2)])
def test_a_cuda_array_interface_is_enough(strides: Any) -> None:
    found = view_of(CudaArray((8, 256), "<f2", strides))
    assert found == ArrayView(1 << 40, (8, 256), (512, 2), "float16", 2, 0, read_only=True)


def test_the_device_is_the_arrays_own() -> None:
    array = CudaArray((8,), "<f2")
    array.__dlpack_device__ = lambda: (2, 3)
    assert view_of(array).device == 3
    array = CudaArray((8,), "<f2")
    array.device = type("Device", (), {"id": 2})()
    assert view_of(array).device == 2


def test_the_arrays_own_dtype_says_what_a_typestr_cannot() -> None:
    array = CudaArray((8, 64), "<V2")
    array.dtype = np.dtype(ml_dtypes.bfloat16)
    assert tensor_map(array, (8, 64)).decode().data_type == DataType.BFLOAT16


@pytest.mark.parametrize(
    ("dtype", "itemsize", "data_type"),
    [
        ("bfloat16", 2, "BFLOAT16"), ("float8_e4m3fn", 1, "UINT8"), ("float8_e5m2", 1, "UINT8"), ("half", 2, None),
        ("float16", 2, "FLOAT16"), ("int64", 8, "INT64"), ("uint16", 2, "UINT16"), ("bool", 1, "UINT8"),
        ("complex32", 4, "UINT32"), ("complex64", 8, "UINT64"), ("complex128", 16, None), ("quint8", 1, None),
    ],
)
def test_torch_tensors_of_every_type_are_taken_without_torch(dtype: str, itemsize: int, data_type: Any) -> None:
    tensor = TorchTensor((32, 64), (128, 1), dtype, itemsize)
    assert view_of(tensor).strides == (128 * itemsize, itemsize)
    assert view_of(tensor).device == 1
    if data_type is None:
        with pytest.raises(ArrayError, match=f"no type for dtype {dtype}"):
            tensor_map(tensor, (8, 16))
    else:
        assert tensor_map(tensor, (8, 16)).decode().data_type == DataType.of(data_type)


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (TorchTensor((8,), (1,), "complex64", 8, conj=True), r"pass tensor\.resolve_conj\(\)"),
        (TorchTensor((8,), (1,), "float32", 4, neg=True), r"pass tensor\.resolve_neg\(\)"),
        (TorchTensor((8,), (1,), "float32", 4, sparse=True), "no strided memory"),
        (TorchTensor((8,), (1,), "float32", 4, device="meta"), "CUDA or host memory"),
    ],
)
def test_torch_tensors_whose_memory_is_not_their_value_are_refused(tensor: Any, message: str) -> None:
    with pytest.raises(ArrayError, match=message):
        view_of(tensor)


class _Refusing:
    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        raise RuntimeError("requires grad")

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0

    def __dlpack__(self, **options: Any) -> Any:
        raise BufferError("sharded over 4 devices")


class _Broken:
    __array_interface__ = {"shape": (4,), "typestr": "<f4", "data": None}  # noqa: RUF012


@pytest.mark.parametrize(
    ("thing", "message"),
    [
        ([1, 2, 3], r"builtins\.list is no array"),
        (None, "NoneType is no array"),
        (5, "cupy.asarray makes one"),
        (np.ndarray, "type is no array"),
        (object(), "neither __cuda_array_interface__ nor __array_interface__ nor __dlpack__"),
        (_Refusing(), r"refuses \(requires grad\); __dlpack__ refuses \(sharded over 4 devices\)"),
        (_Broken(), "its array interface is incomplete"),
        (CudaArray((4,), "<f4", mask=np.ones(4)), "masked"),
    ],
)
def test_what_is_no_array_is_refused(thing: Any, message: str) -> None:
    with pytest.raises(ArrayError, match=message):
        tensor_map(thing, (4,))


# Types.


@pytest.mark.parametrize(
    ("dtype", "data_type"),
    [
        (ml_dtypes.bfloat16, "BFLOAT16"), (ml_dtypes.float8_e4m3fn, "UINT8"), (ml_dtypes.float8_e5m2, "UINT8"),
        (ml_dtypes.float8_e8m0fnu, "UINT8"), ("i1", "UINT8"), ("i2", "UINT16"), ("?", "UINT8"), ("c8", "UINT64"),
        ("f2", "FLOAT16"), ("f4", "FLOAT32"), ("f8", "FLOAT64"), ("u8", "UINT64"), ("i4", "INT32"),
    ],
)
def test_types_are_carried_by_one_of_the_same_size(dtype: Any, data_type: str) -> None:
    array = aligned((64, 64), dtype)
    parameters = array_parameters(array, (8, 16))
    assert str(parameters.data_type) == data_type
    assert parameters.element_bytes == array.itemsize


@pytest.mark.parametrize("dtype", [ml_dtypes.int4, ml_dtypes.uint4, ml_dtypes.int2, ml_dtypes.float4_e2m1fn])
def test_types_of_less_than_a_byte_are_refused_with_the_way_out(dtype: Any) -> None:
    with pytest.raises(ArrayError, match="view the array as uint8 and count bytes"):
        tensor_map(aligned((64, 64), dtype), (8, 16))


@pytest.mark.parametrize("name", ["float4_e2m1fn_x2", "int4", "uint4", "bits4x2", "uint1", "float6_e2m3fn"])
def test_packed_types_of_other_libraries_are_refused_too(name: str) -> None:
    with pytest.raises(ArrayError, match="share or pad their bytes"):
        data_type_of(name)


@pytest.mark.parametrize("dtype", ["c16", ">f4", "M8[s]", "V16", "U4", "O"])
def test_types_without_a_carrier_are_refused(dtype: str) -> None:
    with pytest.raises(ArrayError, match="no type for dtype"):
        tensor_map(aligned((64, 64), dtype) if dtype != "O" else np.empty((8, 8), object), (8, 16))


def test_another_type_must_be_as_long() -> None:
    array = aligned((64, 64), "f4")
    assert tensor_map(array, (8, 16), data_type="TFLOAT32").decode().data_type == DataType.TFLOAT32
    with pytest.raises(ArrayError, match="FLOAT16 has 2 B and the array's float32 elements 4 B"):
        tensor_map(array, (8, 16), data_type="FLOAT16")
    with pytest.raises(ArrayError, match="16U4_ALIGN8B share or pad"):
        tensor_map(array, (8, 16), data_type="16U4_ALIGN8B")
    with pytest.raises(DescriptorError, match="has no member 'FLOAT17'"):
        tensor_map(array, (8, 16), data_type="FLOAT17")


# Layouts.


@given(st.data())
def test_shapes_strides_and_boxes_turn_to_driver_order_and_back(data: st.DataObject) -> None:
    rank = data.draw(st.integers(1, 5))
    shape = tuple(data.draw(st.integers(2, 1 << 20)) for _ in range(rank))
    strides = (*(16 * data.draw(st.integers(0, (1 << 36) - 1)) for _ in range(rank - 1)), 2)
    box = (*(data.draw(st.integers(1, 8)) for _ in range(rank - 1)), 8)
    steps = tuple(data.draw(st.integers(1, 8)) for _ in range(rank))
    found = tensor_map(view(shape, strides), box, element_strides=steps).decode()
    assert found.global_dim[::-1] == shape
    assert found.global_strides[::-1] == strides[:-1]
    assert found.box_dim[::-1] == box
    assert found.element_strides[::-1] == steps


ODD_STRIDES = (0, 1, 7, -1, -16, 2**31, 2**31 + 3, 2**40, 2**45 + 3, 2**62, -(2**62))


@given(st.data())
def test_strides_of_size_1_dimensions_never_decide_and_never_show(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.sampled_from([1, 1, 4, 16, 64]), min_size=1, max_size=5)))
    packed, step = [], 2
    for extent in reversed((*shape[:-1], max(8, shape[-1]))):
        packed.insert(0, step)
        step *= extent
    odd = tuple(s if n > 1 else data.draw(st.sampled_from(ODD_STRIDES)) for n, s in zip(shape, packed, strict=True))
    usual = tuple(s if n > 1 else 2 for n, s in zip(shape, packed, strict=True))
    box = (*(1 for _ in shape[:-1]), 8)
    assert tensor_map(view(shape, odd), box) == tensor_map(view(shape, usual), box)


@pytest.mark.parametrize("stride", [131072, 0, 7, 2**31, 2**31 + 8, 2**40, 2**62 + 1, -5])
def test_a_leading_dimension_of_size_1_is_normalised_to_the_packed_stride(stride: int) -> None:
    found = tensor_map(view((1, 512, 256), (stride, 256, 1), "uint8"), (1, 64, 128), swizzle="128B").decode()
    assert found.global_dim == (256, 512, 1)
    assert found.global_strides == (256, 131072)


def test_everything_is_reckoned_in_64_bits() -> None:
    found = tensor_map(view((1, 2**31, 2**32), (3, 2**39, 1), "uint8"), (1, 1, 128)).decode()
    assert found.global_dim == (2**32, 2**31, 1)
    assert found.global_strides[0] == 2**39
    assert found.global_strides[1] < 2**40


def test_broadcast_dimensions_are_kept() -> None:
    array = np.broadcast_to(aligned((1, 64, 64), "f2"), (8, 64, 64))
    found = tensor_map(array, (2, 8, 64))
    assert found.decode().global_strides == (128, 0)
    assert tensor_map(np.broadcast_to(array[0], (64, 64)), (8, 64)).decode().global_strides == (128,)


def test_read_only_arrays_are_as_good_as_others() -> None:
    array = aligned((64, 64), "f2")
    writable = tensor_map(array, (8, 64))
    array.flags.writeable = False
    assert tensor_map(array, (8, 64)) == writable


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (view((128, 1733), (6932, 4), "float32"), r"strides\[0\] = 6932 B is 4 mod 16.*6944 B \(1736 elements\)"),
        (view((4, 8, 64), (2**40, 128, 2)), r"strides\[0\] = 1099511627776 B is outside"),
        (view((4, 8, 64), (1024, 100, 2)), r"strides\[1\] = 100 B is 4 mod 16"),
        (view((8, 64), (128, 2), address=(1 << 40) + 12), r"the array's address 0x1000000000c is 12 mod 16"),
        (view((2**32 + 1, 64), (128, 2)), r"shape\[0\] = 4294967297 is outside"),
    ],
)
def test_broken_rules_are_said_in_the_arrays_order(array: ArrayView, message: str) -> None:
    with pytest.raises(DescriptorError, match=message) as caught:
        tensor_map(array, (1,) * (len(array.shape) - 1) + (16,))
    assert caught.value.violations
    text = str(caught.value)
    assert not any(word in text for word in ("global_", "box_dim", "of dimension"))


def test_boxes_and_element_strides_are_named_in_the_arrays_order() -> None:
    with pytest.raises(DescriptorError) as caught:
        tensor_map(aligned((64, 128, 64), "f4"), (512, 1, 64), element_strides=(1, 9, 1), swizzle="128B")
    text = str(caught.value)
    assert "box[0] = 512 is outside 1…256" in text
    assert "element_strides[1] = 9 is outside" in text
    assert "box[2] = 64 × 4 B = 256 B exceeds the 128 B span" in text
    assert "use box[2] ≤ 32" in text


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (view((), ()), r"no dimensions.*array\.reshape\(1\)"),
        (view((3, 0), (16, 2)), r"shape \(3, 0\) is empty: shape\[1\] = 0.*skip the launch"),
        (view((0,), (2,)), r"skip the launch"),
        (view((2,) * 6, (128, 64, 16, 32, 48, 2)), "rank 6.*1 to 5.*coalesce=True merges it to rank 5"),
        (view((2,) * 6, (512, 64, 128, 16, 48, 2)), "rank 6.*index the outer dimensions away"),
        (view((64, 64), (2, 128)), r"stride 128 B.*move axis 0 last \(array\.transpose\(1, 0\), shape \(64, 64\)\)"),
        (view((64, 64), (128, 4)), "stride 4 B; a tensor map needs it dense.*contiguous copy"),
        (view((64, 64), (1024, 16)), r"add a last dimension of size 1 \(array\[\.\.\., None\]\)"),
        (view((64, 64), (128, 0)), "this one is broadcast"),
        (view((64, 32), (-64, 2)), r"strides\[0\] = -64 B.*array\[::-1, :\].*i of axis 0 becomes 63 - i"),
        (view((64, 32), (-64, -2)), r"array\[::-1, ::-1\]"),
        (view((64, 32), (64, -2)), r"strides\[1\] = -2 B.*array\[:, ::-1\]"),
    ],
)
def test_layouts_that_no_map_can_hold_are_refused_with_what_to_do(array: ArrayView, message: str) -> None:
    with pytest.raises(DescriptorError, match=message):
        tensor_map(array, (1,) * max(0, len(array.shape) - 1) + (8,) * bool(array.shape))


@pytest.mark.parametrize(
    ("shape", "strides", "message"),
    [
        ((512, 1), (2, 2), r"axis 0: squeeze axis 1 \(shape \(512,\).*move axis 0 last \(array\.transpose\(1, 0\)"),
        ((512, 1), (2, 77), "axis 0: squeeze axis 1"),
        ((256, 512, 1), (1024, 2, 2), r"axis 1: squeeze axis 2 \(shape \(256, 512\).*transpose\(0, 2, 1\)"),
        ((256, 512, 1, 1), (1024, 2, 1, 1), r"axis 1: squeeze axes \(2, 3\) \(shape \(256, 512\)"),
        ((512, 8, 1), (2, 1024, 2), r"axis 0: move axis 0 last \(array\.transpose\(1, 2, 0\), shape \(8, 1, 512\)\)"),
    ],
)
def test_a_dense_axis_before_a_last_one_of_size_1_is_named_and_never_moved_silently(
    shape: tuple[int, ...], strides: tuple[int, ...], message: str
) -> None:
    with pytest.raises(DescriptorError, match=message):
        tensor_map(view(shape, strides), (1,) * (len(shape) - 1) + (8,))


def test_a_last_dimension_of_size_1_is_right_where_its_neighbours_stand_16_bytes_apart() -> None:
    column = aligned((512, 8), "f2")[:, :1]
    found = tensor_map(column, (64, 8)).decode()
    assert found.global_dim == (1, 512)
    assert found.global_strides == (16,)
    assert tensor_map(view((1, 1), (3, 5)), (1, 8)).decode().global_dim == (1, 1)


def test_the_ways_out_of_a_dense_axis_bring_the_same_elements() -> None:
    array = aligned((512, 1), "f2")
    array[:, 0] = np.arange(512)
    for way in (array.reshape(512), array.transpose(1, 0)):
        m = tensor_map(way, (64,) if way.ndim == 1 else (1, 64))
        shared = np.zeros(128, np.uint8)
        start = (128,) if way.ndim == 1 else (128, 0)
        sim.load(m, start, memory=np.frombuffer(array.base, np.uint8), base=array.base.ctypes.data, shared=shared)
        np.testing.assert_array_equal(shared.view("f2"), np.arange(128, 192))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"box": (8,)}, "box has 1 entry; the array has 2 dimensions: give one per dimension"),
        ({"box": 8}, "box = 8: expected one integer per dimension"),
        ({"box": (8, 8.5)}, "expected one integer per dimension"),
        ({"box": (8, 8), "element_strides": (1,)}, "element_strides has 1 entry; "),
        ({"box": (8, 8), "swizzle": "7B"}, "no member '7B'"),
        ({"box": (8, 8), "interleave": "7B"}, "no member '7B'"),
    ],
)
def test_operands_of_the_wrong_form_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(DescriptorError, match=message):
        tensor_map(aligned((64, 64), "f2"), **options)


# Interleaved layouts.


def test_the_slice_of_an_interleaved_layout_is_the_last_dimension_of_the_array() -> None:
    array = aligned((2, 4, 16, 16, 8), "f2")
    array.view("u2")[...] = np.arange(array.size).reshape(array.shape)
    m = tensor_map(array, (1, 1, 4, 8, 8), interleave="16B")
    assert m.decode().global_dim == (16, 16, 4, 2)
    assert m.decode().global_strides == (256, 4096, 16384)
    shared = np.zeros(m.box_bytes, np.uint8)
    memory = np.frombuffer(array.base, np.uint8)
    sim.load(m, (8, 4, 3, 1), memory=memory, base=array.base.ctypes.data, shared=shared)
    np.testing.assert_array_equal(shared.view("u2").reshape(4, 8, 8), array.view("u2")[1, 3, 4:8, 8:16])


def test_an_array_that_has_no_slices_is_refused_for_an_interleaved_layout() -> None:
    with pytest.raises(DescriptorError, match=r"slice of 32 B.*box\[4\] = 4 and must be the whole slice"):
        tensor_map(aligned((2, 4, 16, 16, 8), "f2"), (1, 1, 4, 8, 4), interleave="32B")
    with pytest.raises(DescriptorError, match=r"strides\[3\] = 32 B and slices must follow one another, 16 B apart"):
        tensor_map(aligned((2, 4, 16, 16, 16), "f2")[..., :8], (1, 1, 4, 8, 8), interleave="16B")


# Merging dimensions.


def test_dimensions_are_merged_only_when_asked_and_the_map_says_how() -> None:
    array = aligned((4, 8, 16, 64), "f2")
    kept = tensor_map(array, (1, 1, 8, 64))
    assert kept.decode().rank == 4
    assert kept.axes == ((0,), (1,), (2,), (3,))
    merged = tensor_map(array[:, :, :, :32], (64, 32), coalesce=True)
    assert merged.axes == ((0, 1, 2), (3,))
    assert merged.decode().global_dim == (32, 512)
    chosen = tensor_map(array, (8, 8, 64), coalesce=((0, 1), (2,), (3,)))
    assert chosen.axes == ((0, 1), (2,), (3,))
    assert pickle.loads(pickle.dumps(chosen)) == chosen


@given(st.data())
def test_merging_keeps_every_element_and_leaves_nothing_to_merge(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.sampled_from([1, 2, 3, 4]), min_size=1, max_size=7)))
    array = np.arange(prod(shape)).reshape(shape)
    cut = tuple(slice(0, data.draw(st.integers(1, n))) for n in shape)
    array = array[cut].transpose(data.draw(st.permutations(range(len(shape)))))
    found = coalesced(array)
    assert [axis for group in found.axes for axis in group] == list(range(array.ndim))
    again = np.lib.stride_tricks.as_strided(array, found.view.shape, found.view.strides)
    np.testing.assert_array_equal(again.ravel(), array.ravel())
    assert coalesced(found.view).view == found.view


def test_a_merged_view_is_an_array_like_any_other() -> None:
    found = coalesced(aligned((4, 8, 64), "f2")[:, :, :32])
    assert str(found) == "shape (32, 32): axes 0, 1 → dimension 0; axis 2 → dimension 1"
    assert view_of(found.view) is found.view
    assert tensor_map(found.view, (8, 32)).decode().global_dim == (32, 32)


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        (((0, 1), (2,)), r"axes 0 and 1 do not follow one another in memory: strides\[0\] = 1024 B is not shape"),
        (((0,), (1,)), r"must name every axis of 0…2 once"),
        (((1, 0), (2,)), "in order"),
        (((0,), (), (1, 2)), "in groups"),
    ],
)
def test_axes_that_cannot_be_merged_are_named(axes: Any, message: str) -> None:
    with pytest.raises(DescriptorError, match=message):
        coalesced(aligned((4, 8, 64), "f2")[:, :4], axes)


def test_a_box_of_another_length_than_the_merged_shape_is_told_the_shape() -> None:
    with pytest.raises(DescriptorError, match=r"box has 3 entries; the array has 1 dimension after merging \(axes"):
        tensor_map(aligned((4, 8, 64), "f2"), (1, 8, 64), coalesce=True)


def test_a_layout_no_map_can_hold_does_not_hide_what_else_is_wrong() -> None:
    with pytest.raises(DescriptorError) as caught:
        tensor_map(ArrayView((1 << 40) + 8, (64, 64), (256, 8), "float32", 4, 0), (300, 64), swizzle="128B")
    for words in ("last dimension has stride 8 B", "8 mod 16", "box[0] = 300", "128 B span"):
        assert words in str(caught.value)
    assert [v.rule for v in caught.value.violations] == ["address-alignment", "box-range", "box-inner-span"]
