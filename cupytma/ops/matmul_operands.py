"""What a matrix product is asked for: its arrays, judged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cupytma.errors import ArrayError
from cupytma.limits import MAX_EXTENT, STRIDE_LIMIT, UNIT
from cupytma.ops.array_copy import place_in_words
from cupytma.ops.layout import check_address, share_memory
from cupytma.ops.matmul_types import OPERAND_TYPES, RESULT_TYPES, OperandType, carried_type, type_name
from cupytma.tensormap.arrays import ArrayView, view_of

# Of an extent: coordinates are 32-bit integers, also in the last cluster's tiles, of 4096 rows or columns at most.
_LARGEST = MAX_EXTENT - 4096


@dataclass(frozen=True)
class Matrix:
    """An operand as the tensor unit loads it: a line for each row of it, or for each element along K.

    Attributes
    ----------
    address : int
    rows, depth : int
        Elements along M or N, and along K.
    stride : int
        Between the lines, in bytes.
    is_mn_major : bool
        Elements along M or N lie together, and a line is one place along K; else those along K do.
    type : OperandType
    """

    address: int
    rows: int
    depth: int
    stride: int
    is_mn_major: bool
    type: OperandType


@dataclass(frozen=True)
class Operands:
    """A matrix product, whose arrays are as they must be.

    Attributes
    ----------
    a, b : Matrix
        b has the rows of its transpose.
    out : ArrayView
    result : str
        The type of the result.
    row_scale, column_scale, bias : ArrayView or None
        Of rows of a, columns of b, and columns of the result.
    """

    a: Matrix
    b: Matrix
    out: ArrayView
    result: str
    row_scale: ArrayView | None
    column_scale: ArrayView | None
    bias: ArrayView | None

    @property
    def m(self) -> int:
        """Rows of the result."""
        return self.a.rows

    @property
    def n(self) -> int:
        """Columns of the result."""
        return self.b.rows

    @property
    def k(self) -> int:
        """Products that are summed for each element."""
        return self.a.depth

    @property
    def scale_kinds(self) -> tuple[int, int]:
        """Of rows and of columns: 0 for no scale, 1 for one number, 2 for one of each."""
        row, column = (
            0 if scale is None else 1 if scale.size == 1 else 2 for scale in (self.row_scale, self.column_scale)
        )
        return row, column

    @property
    def bias_kind(self) -> int:
        """0 for no bias, 1 for float32, 2 for the type of the result."""
        return 0 if self.bias is None else 1 if self.bias.dtype == "float32" else 2

    @property
    def result_bytes(self) -> int:
        """Of one element of the result."""
        return self.out.itemsize


def named_view(name: str, array: Any) -> ArrayView:
    """An argument as an array.

    Raises
    ------
    ArrayError
        If it is none; the message begins with its name.
    """
    try:
        return view_of(array)
    except ArrayError as error:
        raise ArrayError(f"{name}: {error}") from None


def check_on_gpu(**views: ArrayView) -> None:
    """Refuse arrays in host memory, by name.

    Raises
    ------
    ArrayError
    """
    for name, view in views.items():
        if view.device is None:
            raise ArrayError(
                f"{name} is in host memory, and products are made on a GPU: move it with cupy.asarray (without a GPU "
                "matmul.explain tells how it would be made)"
            )


def result_shape(a: ArrayView, b: ArrayView) -> tuple[int, int]:
    """Rows and columns of a product.

    Raises
    ------
    ArrayError
        If the two are no matrices whose extents fit.
    """
    for name, view in (("a", a), ("b", b)):
        if len(view.shape) != 2:
            raise ArrayError(f"{name} has shape {view.shape}; it must have two dimensions: a (M, K), b (K, N)")
        if max(view.shape) > _LARGEST:
            raise ArrayError(f"{name} has shape {view.shape}, and {_LARGEST} is the largest extent")
    if a.shape[1] != b.shape[0]:
        hint = "; pass b transposed, b.T" if a.shape[1] == b.shape[1] else ""
        raise ArrayError(f"a has shape {a.shape} and b {b.shape}: {a.shape[1]} and {b.shape[0]} are both K{hint}")
    return a.shape[0], b.shape[1]


def result_type(a: ArrayView, a_dtype: Any, out: ArrayView | None, out_dtype: Any) -> str:
    """The type of a product's result: the one asked for, that of `out`, or what its operands' type has by default."""
    if out is not None:
        return carried_type("out", out.dtype, out_dtype, RESULT_TYPES)
    if out_dtype is None:
        return OPERAND_TYPES[carried_type("a", a.dtype, a_dtype, OPERAND_TYPES)].result
    name = type_name("out_dtype", out_dtype)
    if name not in RESULT_TYPES:
        raise ArrayError(f"out_dtype = {name!r}; a result can be of {', '.join(RESULT_TYPES)}")
    return name


def new_result(a: ArrayView, b: ArrayView, a_dtype: Any, out_dtype: Any, address: int) -> ArrayView:
    """The C-contiguous result that would be allocated for a product, at an address.

    Raises
    ------
    ArrayError
        As `result_shape` and `result_type`.
    """
    rows, columns = result_shape(a, b)
    name = result_type(a, a_dtype, None, out_dtype)
    size = 4 if name == "float32" else 2
    return ArrayView(address, (rows, columns), (columns * size, size), name, size, a.device)


def check_operands(
    a: ArrayView, b: ArrayView, out: ArrayView, scale_a: ArrayView | None = None, scale_b: ArrayView | None = None,
    bias: ArrayView | None = None, *, a_dtype: Any = None, b_dtype: Any = None, out_dtype: Any = None,
    tf32: bool = False,
) -> Operands:
    """A matrix product as it is asked for. Operands as for `cupytma.matmul`.

    Raises
    ------
    ArrayError
        If something is not as it must be.
    """
    shape = m, n = result_shape(a, b)
    types = _types(a, b, a_dtype, b_dtype, tf32)
    result = result_type(a, a_dtype, out, out_dtype)
    if out.shape != shape:
        raise ArrayError(f"out has shape {out.shape}, and a {a.shape} times b {b.shape} has shape {shape}")
    _check_out(out)
    check_address(out, "out")
    named = {"a": a, "b": b, "scale_a": scale_a, "scale_b": scale_b, "bias": bias}
    for name, view in named.items():
        if view is None:
            continue
        if view.device != out.device:
            raise ArrayError(f"{name} is {place_in_words(view)}, and out {place_in_words(out)}: move one of them")
        check_address(view, name)
        if view.size and out.size and share_memory(view, out):
            raise ArrayError(f"out overlaps {name} in memory; give it memory of its own")
    return Operands(
        _matrix("a", a, (0, 1), types[0]), _matrix("b", b, (1, 0), types[1]), out, result,
        _vector("scale_a", scale_a, m, (m, 1), ("float32",), may_be_one=True),
        _vector("scale_b", scale_b, n, (1, n), ("float32",), may_be_one=True),
        _vector("bias", bias, n, (1, n), tuple(dict.fromkeys(("float32", result, out.dtype)))),
    )  # fmt: skip


def _types(
    a: ArrayView, b: ArrayView, a_dtype: Any, b_dtype: Any, tf32: bool
) -> tuple[OperandType, OperandType]:
    first = OPERAND_TYPES[carried_type("a", a.dtype, a_dtype, OPERAND_TYPES)]
    second = OPERAND_TYPES[carried_type("b", b.dtype, b_dtype, OPERAND_TYPES)]
    if first != second and not (first.bytes == second.bytes == 1):
        raise ArrayError(
            f"a holds {first.name} and b {second.name}: only float8_e4m3fn and float8_e5m2 go together; convert one"
        )
    if first.name == "float32" and tf32 is not True:
        raise ArrayError(
            "a and b are float32, whose products the tensor cores make in tf32, with 10 bits after the point: pass "
            "tf32=True to have that, or bfloat16 or float16 arrays"
        )
    return first, second


def _matrix(name: str, view: ArrayView, axes: tuple[int, int], kind: OperandType) -> Matrix:
    """An operand, whose axes along M or N and along K are given."""
    rows, depth = (view.shape[axis] for axis in axes)
    across, along = (view.strides[axis] for axis in axes)
    size = kind.bytes
    if depth * size % UNIT:
        raise ArrayError(
            f"K = {depth} elements of {size} B are {depth * size} B, which is no multiple of {UNIT} B: pad a and b "
            f"along K with zeros to {-(-depth * size // UNIT) * UNIT // size} elements"
        )
    if not rows or not depth:
        return Matrix(view.address, rows, depth, UNIT, False, kind)
    is_mn_major = along != size
    if is_mn_major and not (name == "b" and size == 2 and (across == size or rows == 1)):
        wanted = {
            "a": f"row-major, with K elements that lie together, {size} B apart",
            "b": "the transpose of a row-major (N, K) array" + (", or a row-major (K, N) one" * (size == 2)),
        }[name]
        raise ArrayError(f"{name} has strides {view.strides} in bytes; it must be {wanted}: make a copy that is")
    stride, lines = (along, depth) if is_mn_major else (across, rows)
    if lines == 1:
        stride = UNIT
    if stride % UNIT or not 0 <= stride < STRIDE_LIMIT:
        raise ArrayError(
            f"{name} has lines {stride} B apart; tensor loads need a multiple of {UNIT} from 0 to 2^40 - 1: pad "
            "its lines, or make a contiguous copy"
        )
    if view.address % UNIT:
        raise ArrayError(
            f"{name} begins at an address that is {view.address % UNIT} mod {UNIT}; tensor loads need a multiple of "
            f"{UNIT}: make a copy"
        )
    return Matrix(view.address, rows, depth, stride, is_mn_major, kind)


def _check_out(out: ArrayView) -> None:
    if out.read_only and out.size:
        raise ArrayError("out is read-only; give an array that may be written")
    if out.size and out.address % out.itemsize:
        raise ArrayError(f"out begins at an address that is no multiple of its elements' {out.itemsize} B")
    steps = sorted((abs(stride), extent) for stride, extent in zip(out.strides, out.shape, strict=True) if extent > 1)
    reach = out.itemsize
    for stride, extent in steps:
        if out.size and (stride < reach or stride % out.itemsize):
            raise ArrayError(
                f"out has strides {out.strides} in bytes, and its elements overlap or interleave; give another array"
            )
        reach += stride * (extent - 1)


def _vector(
    name: str, view: ArrayView | None, length: int, other: tuple[int, int], types: tuple[str, ...],
    may_be_one: bool = False,
) -> ArrayView | None:
    """Numbers along the rows or columns, one for each, or one for all."""
    if view is None:
        return None
    if view.dtype not in types:
        raise ArrayError(f"{name} has dtype {view.dtype}; it must be {' or '.join(types)}")
    if not (view.shape in ((length,), other) or (may_be_one and view.size == 1)):
        one = "one element, or " * may_be_one
        raise ArrayError(f"{name} has shape {view.shape}; it must have {one}shape {(length,)} or {other}")
    wide = [stride for stride, extent in zip(view.strides, view.shape, strict=True) if extent > 1]
    if wide not in ([], [view.itemsize]):
        raise ArrayError(f"{name} has strides {view.strides} in bytes; its elements must lie together: make a copy")
    if view.address % view.itemsize:
        raise ArrayError(f"{name} begins at an address that is no multiple of its elements' {view.itemsize} B")
    return view
