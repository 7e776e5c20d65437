"""Matrix products of 8-, 16- and 32-bit floating-point arrays, fed by the Tensor Memory Accelerator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from cupytma.errors import ArrayError
from cupytma.ops.array_copy import empty
from cupytma.ops.copy_launches import templates
from cupytma.ops.copy_plan import LINE
from cupytma.ops.layout import check_address, share_memory
from cupytma.ops.matmul_choices import as_measured
from cupytma.ops.matmul_operands import check_on_gpu, check_operands, named_view, result_shape, result_type
from cupytma.ops.matmul_plan import MatmulPlan, matmul_module, plan_matmul
from cupytma.ops.matmul_types import type_name
from cupytma.ops.multicast import resident_clusters
from cupytma.ops.prepared import Address, Guard, Guarded, Memory, Recurring, span_bytes
from cupytma.ops.short_way import launch_the_long_way, short_ways
from cupytma.runtime.compiler import current_target
from cupytma.runtime.device import cupy
from cupytma.runtime.given import shown
from cupytma.runtime.kernel import current_device
from cupytma.runtime.occupancy import multiprocessors
from cupytma.runtime.plan import Plan, Template
from cupytma.runtime.tensor_guards import some_are_nested
from cupytma.tensormap.arrays import ArrayView

if TYPE_CHECKING:
    from cupytma.ops.explanation import Explanation
    from cupytma.ops.matmul_tuning import Tuning

_ORDER = ("a", "b", "out", "scale_a", "scale_b", "bias")
# Where plans are made, far from one another: of each array.
_BASES = tuple((number + 1) << 52 for number in range(len(_ORDER)))


def matmul(
    a: Any, b: Any, *, scale_a: Any = None, scale_b: Any = None, bias: Any = None, out: Any = None,
    out_dtype: Any = None, a_dtype: Any = None, b_dtype: Any = None, tf32: bool = False,
    fast_accumulation: bool = False, static_b: bool = False, configuration: Any = None, stream: Any = None,
) -> Any:
    """The product of two matrices: ``(scale_a * a) @ (scale_b * b) + bias``.

    Tensor loads bring tiles of both operands to shared memory, where warpgroups multiply them (wgmma), and tensor
    stores write the result. Where a row of it ends within a 16-byte unit, or its layout breaks the rules of tensor
    maps, ordinary stores write it: no byte outside the elements of ``out`` is written. Needs sm_90a.

    Parameters
    ----------
    a : array
        Of shape (M, K), row-major: float8_e4m3fn, float8_e5m2, bfloat16, float16, or with `tf32` float32. CuPy's,
        torch's, or anything with ``__cuda_array_interface__`` or DLPack. ``K * itemsize`` is a multiple of 16 bytes.
    b : array
        Of shape (K, N): the transpose of a row-major (N, K) array, as ``torch._scaled_mm`` takes it; of 16-bit types
        also row-major. Of the type of `a`; the two float8 types may be mixed.
    scale_a, scale_b : array, optional
        float32: one element, or for `a` one of each row, (M,) or (M, 1), and for `b` one of each column, (N,) or
        (1, N). A product is scaled when it is summed.
    bias : array, optional
        Of shape (N,), float32 or of the type of the result; added to each row.
    out : array, optional
        Of shape (M, N) and any layout, which overlaps no other operand. Default: a new C-contiguous array of the kind
        of `a`.
    out_dtype : dtype, optional
        float32, float16 or bfloat16. Default: that of `out`; without one bfloat16 for float8, else the type of `a`.
    a_dtype, b_dtype : dtype, optional
        What a uint8 or uint16 array holds the bits of, for libraries without such types; ``out_dtype`` says it of
        `out`.
    tf32 : bool
        Multiply float32 arrays in tf32, rounded to nearest.
    fast_accumulation : bool
        The tensor cores add products of float8 with fewer bits than float32 has. By default the sum of each 128 along K
        is added in float32; with this, all is left to them.
    static_b : bool
        The caller's word that no work that has not ended writes `b`: its loads may then begin before (programmatic
        dependent launch), and do for up to 64 rows of `a`. That work is the kernel launched just before on the stream,
        and where that is a product too, also what comes before it: products that follow one another begin while several
        of them still run. Weights are safe that were written before a kernel launched the ordinary way, a copy or a
        synchronisation.
    configuration : cupytma.ops.matmul_configuration.Configuration, optional
        How to tile it. Default: what ``matmul.autotune`` measured for products like this on GPUs like this; else what
        a model of the GPU finds cheapest.
    stream : cupy.cuda.Stream, optional
        Default: torch's current stream if an array is torch's, else CuPy's.

    Returns
    -------
    array
        ``out``. The work is ordered on the stream; the call does not wait for it.

    Raises
    ------
    NoDeviceError
        Without a GPU that has a Tensor Memory Accelerator.
    TargetError
        On a GPU without wgmma: these kernels are Hopper's.
    ArrayError
        If shapes, types, layouts or devices are not as said, an array is in host memory, or ``out`` overlaps another.

    Notes
    -----
    Sums are made in float32, in an order that depends on the configuration alone: the same call gives the same bits,
    until ``matmul.autotune`` has found another configuration for it; with ``configuration`` given, always.
    NaN and infinity propagate as in IEEE arithmetic. A result too large for float16 becomes infinite. With K = 0 the
    result is the bias, or zero. ``matmul.explain`` tells how a product is carried out.

    ``matmul.autotune(a, b, ...)``, with the same arguments, measures the ways of tiling the product on this GPU and
    keeps the fastest in the cache on disk, where every process finds it: from then on this takes it for products of the
    same types, extents, layouts, scales, bias and promises. A product is planned once for arrays that are alike, and
    looked up then, not at each call.
    """
    cupy()
    # 1, which as a key equals True, is none.
    if not (
        (tf32 is False or tf32 is True) and (static_b is False or static_b is True)
        and (fast_accumulation is False or fast_accumulation is True)
    ):  # fmt: skip
        _check_flags(tf32, fast_accumulation, static_b)
    if out is None:
        out = _allocated(a, b, a_dtype, out_dtype, stream)
    named = (None if given is None else type_name(name, given) for name, given in zip(
        ("out_dtype", "a_dtype", "b_dtype"), (out_dtype, a_dtype, b_dtype), strict=True
    ))  # fmt: skip
    options = *named, tf32, fast_accumulation, static_b, configuration
    _multiply(options, (a, b, out, scale_a, scale_b, bias), stream)
    return out


def explain(*arguments: Any, **options: Any) -> Explanation:
    """How a product is carried out: kernel, tiles, stages, clusters, and what a model expects; needs no GPU.

    Takes what `matmul` does; see `cupytma.ops.explain`.
    """
    from cupytma.ops import explanation

    return explanation.explain(matmul, *arguments, **options)


def autotune(*arguments: Any, **options: Any) -> Tuning:
    """Measure the ways of tiling a product on this GPU, and keep the fastest for products like it.

    Takes what `matmul` does but `configuration`, and ``cold`` and ``budget``; see
    `cupytma.ops.matmul_tuning.autotune`.
    """
    from cupytma.ops import matmul_tuning

    return matmul_tuning.autotune(*arguments, **options)


matmul.__dict__["explain"] = explain
matmul.__dict__["autotune"] = autotune


@dataclass(frozen=True)
class PreparedMatmul:
    """A product of any arrays of the layouts that this was prepared for.

    Attributes
    ----------
    launches : tuple of Template
        Given the addresses of all arrays, in the order of `_ORDER`.
    views : tuple of ArrayView or None
        The layouts; their addresses mean nothing.
    spans : tuple of tuple of int
        How far each reaches below and above its address, in bytes.
    """

    launches: tuple[Template, ...]
    views: tuple[ArrayView | None, ...]
    spans: tuple[tuple[int, int], ...]

    def __call__(self, handle: int, addresses: tuple[int, ...]) -> None:
        """Carry it out at some addresses, in a stream.

        Raises
        ------
        ArrayError
            If the result overlaps what it is made of, or an array has elements and no memory.
        """
        low, high = addresses[2] + self.spans[2][0], addresses[2] + self.spans[2][1]
        for number, (below, above) in enumerate(self.spans):
            start = addresses[number]
            if (above and not start) or (number != 2 and start + below < high and low < start + above):
                self._check(number, addresses)
        for launch in self.launches:
            launch(handle, *addresses)

    def _check(self, number: int, addresses: tuple[int, ...]) -> None:
        one, out = self.views[number], self.views[2]
        if one is not None:
            check_address(replace(one, address=addresses[number]), _ORDER[number])
        if number != 2 and one is not None and out is not None and share_memory(
            replace(one, address=addresses[number]), replace(out, address=addresses[2])
        ):
            raise ArrayError(f"out overlaps {_ORDER[number]} in memory; give it memory of its own")


_prepared: Memory[PreparedMatmul] = Memory()


def _multiply(options: tuple[Any, ...], arrays: tuple[Any, ...], stream: Any) -> None:
    """Arrays of CuPy and torch take the short way: their layouts are keys to what was prepared before."""
    kind = arrays[0].__class__
    way = short_ways.get(kind)
    if way is None or stream is not None or any(array is not None and array.__class__ is not kind for array in arrays):
        _multiply_any(options, arrays, stream)
        return
    try:
        guarded = None
        if way.guard is not None:
            guarded = _guarded.get((options, *[None if array is None else array.data_ptr() for array in arrays]))
        given = [] if guarded is None else [array for array in arrays if array is not None]
        if guarded is not None and not some_are_nested(given) and guarded[1](*given):
            known: Known | None = guarded[0]
        else:
            read = way.read
            exact = options, *[_ABSENT if array is None else read(array) for array in arrays]
            known = _addressed.get(exact)
    except (TypeError, RuntimeError):  # host memory or none, or options that are none
        _multiply_any(options, arrays, stream)
        return
    place = exact[1][1] if known is None else known[0]
    if place != current_device():
        _multiply_any(options, arrays, stream)
        return
    handle = way.handle(place)
    if known is None:
        _multiply_described(exact, handle, arrays, way.guard)
        return
    for launch in known[1]:
        launch(handle)


def _multiply_described(
    exact: tuple[Any, ...], handle: int, arrays: tuple[Any, ...], guard: Guard | None
) -> None:
    """Multiply arrays as they are described, on the current device. The second time at some addresses is remembered."""
    since = _prepared.forgotten, _addressed.forgotten, _guarded.forgotten
    options, *described = exact
    key = options, *((start % LINE, *others) for start, *others in described)
    prepared = _prepared.get(key)
    if prepared is None:
        prepared = _prepare(options, views_of(arrays))
        _prepared.keep(key, prepared, since[0])
    addresses = tuple(one[0] for one in described)
    prepared(handle, addresses)
    if _addressed.recurs(exact):
        known = described[0][1], tuple(launch.at(*addresses) for launch in prepared.launches)
        _addressed.keep(exact, known, since[1])
        if guard is not None:
            _guarded.note(options, arrays, known, guard, since[2])


_ABSENT = (0, None)
# Launches and their device, by the options, the arrays' layouts and their addresses.
Known = tuple[int, tuple[Callable[[int], None], ...]]
_addressed: Recurring[Known] = Recurring()
_guarded: Guarded[Known] = Guarded()
# How a result is allocated, by the operands' layouts and what is said of types.
_allocations: Memory[Callable[[Any], Any]] = Memory()


def _allocated(a: Any, b: Any, a_dtype: Any, out_dtype: Any, stream: Any) -> Any:
    """Memory for a result, of the kind of `a`."""
    kind = a.__class__
    way = short_ways.get(kind)
    if way is None or kind is not b.__class__ or stream is not None:
        return _new_result(a, *_result_of(a, b, a_dtype, out_dtype), stream)
    try:
        place = way.read(a)[1]
        key = kind, way.layout(a), way.layout(b), a_dtype, out_dtype
        allocate = _allocations.get(key)
    except (TypeError, RuntimeError):  # host memory, types that are none, or a tensor without strides
        return _new_result(a, *_result_of(a, b, a_dtype, out_dtype), stream)
    if allocate is not None and place == current_device():
        return allocate(a)
    shape, name = _result_of(a, b, a_dtype, out_dtype)
    made = _new_result(a, shape, name, stream)
    dtype, is_torch = made.dtype, hasattr(made, "new_empty")
    empty_like = (lambda a: a.new_empty(shape, dtype=dtype)) if is_torch else (lambda a: cupy().empty(shape, dtype))
    _allocations.keep(key, empty_like)
    return made


def _result_of(a: Any, b: Any, a_dtype: Any, out_dtype: Any) -> tuple[tuple[int, int], str]:
    first = named_view("a", a)
    shape = result_shape(first, named_view("b", b))
    check_on_gpu(a=first)
    return shape, result_type(first, a_dtype, None, out_dtype)


def views_of(arrays: Sequence[Any]) -> tuple[ArrayView | None, ...]:
    """Of a product's arrays, in the order of `plan_for`; None for those that are not given.

    Raises
    ------
    ArrayError
        If one is no array, or there is no ``a`` or ``b``.
    """
    return tuple(
        None if array is None and name not in ("a", "b") else named_view(name, array)
        for name, array in zip(_ORDER, arrays, strict=True)
    )


def _multiply_any(options: tuple[Any, ...], arrays: tuple[Any, ...], stream: Any) -> None:
    views = views_of(arrays)
    prepared = _prepare(options, views)
    given, read = ([one for one in several if one is not None] for several in (arrays, views))
    addresses = tuple(0 if view is None else view.address for view in views)
    launch_the_long_way(given, read, stream, lambda handle: prepared(handle, addresses))


def _prepare(options: tuple[Any, ...], views: tuple[ArrayView | None, ...]) -> PreparedMatmul:
    a, b, out = views[:3]
    assert a is not None
    assert b is not None
    assert out is not None
    check_on_gpu(a=a, out=out)
    device, since = int(out.device or 0), _prepared.forgotten
    try:
        key = device, options, *(None if v is None else replace(v, address=v.address % LINE) for v in views)
        found = _prepared.get(key)
    except TypeError:  # an option that is none cannot be a key
        plan_for(options, views, lambda operands, **how: operands)
        raise ArrayError(f"configuration = {shown(options[-1])} is no Configuration") from None
    if found is None:
        plan_for(options, views, lambda operands, **how: operands)  # judged where the arrays are
        found = prepared_for(options, views, device)
        _prepared.keep(key, found, since)
    return found


def prepared_for(options: tuple[Any, ...], views: tuple[ArrayView | None, ...], device: int) -> PreparedMatmul:
    """A product prepared anew, for all arrays like these; see `plan_for`."""
    bases = [base + (0 if v is None else v.address % LINE) for base, v in zip(_BASES, views, strict=True)]
    placed = tuple(None if v is None else replace(v, address=base) for v, base in zip(views, bases, strict=True))
    with cupy().cuda.Device(device):
        plan: MatmulPlan = plan_for(
            options, placed, lambda operands, **how: plan_matmul(operands, current_target(), multiprocessors(), **how)
        )
        if options[-1] is None:
            plan = as_measured(plan, device)
        launches = () if plan.is_empty else templates([_launch(plan)], bases)
    return PreparedMatmul(launches, views, tuple((0, 0) if v is None else span_bytes(v) for v in views))


def forget_prepared() -> None:
    """Forget how products are carried out, so that each is planned anew."""
    for memory in (_prepared, _addressed, _guarded):
        memory.forget()


def plan_for(options: tuple[Any, ...], views: tuple[ArrayView | None, ...], plan: Callable[..., Any]) -> Any:
    """What a function makes of a product that is asked for, once it has been judged.

    Parameters
    ----------
    options : tuple
        ``out_dtype``, ``a_dtype``, ``b_dtype``, ``tf32``, ``fast_accumulation``, ``static_b``, ``configuration``, in
        the order of `matmul`.
    views : tuple of ArrayView or None
        ``a``, ``b``, ``out``, ``scale_a``, ``scale_b``, ``bias``.
    plan : callable
        Given the operands, and how they are to be multiplied by name.
    """
    out_dtype, a_dtype, b_dtype, tf32, fast_accumulation, static_b, configuration = options
    _check_flags(tf32, fast_accumulation, static_b)
    a, b, out, *others = views
    assert a is not None
    assert b is not None
    assert out is not None
    operands = check_operands(
        a, b, out, *others, a_dtype=a_dtype, b_dtype=b_dtype, out_dtype=out_dtype, tf32=bool(tf32)
    )
    return plan(
        operands, configuration=configuration, fast_accumulation=bool(fast_accumulation), static_b=bool(static_b)
    )


def _check_flags(tf32: Any, fast_accumulation: Any, static_b: Any) -> None:
    for name, flag in (("tf32", tf32), ("fast_accumulation", fast_accumulation), ("static_b", static_b)):
        if not isinstance(flag, (bool, np.bool_)):
            raise ArrayError(f"{name} = {shown(flag)}; it must be True or False")


def arguments_of(plan: MatmulPlan, addresses: Sequence[int | None]) -> tuple[Any, ...]:
    """What the kernel is launched with.

    Parameters
    ----------
    plan : MatmulPlan
    addresses : sequence of int or None
        Of the scales of a and of b, and of the bias.
    """
    scale_a, scale_b, bias = (None if address is None else Address(address) for address in addresses)
    scales = (scale_b, scale_a) if plan.configuration.is_swapped else (scale_a, scale_b)
    return *plan.maps(), plan.argument(), Address(plan.operands.out.address), *scales, bias


def _launch(plan: MatmulPlan) -> Plan:
    kernel = matmul_module(str(current_target()), plan.defines()).kernel("matmul")
    size, cluster = plan.size, plan.configuration.cluster
    grid = size.most
    if size.blocks:
        grid = min(grid, cluster * resident_clusters(kernel, size.threads, size.shared_bytes, cluster, size.blocks))
    o = plan.operands
    vectors = tuple(None if view is None else view.address for view in (o.row_scale, o.column_scale, o.bias))
    return kernel.plan(
        grid, size.threads, arguments_of(plan, vectors), shared_bytes=size.shared_bytes,
        cluster=cluster if cluster > 1 else None, programmatic=True,
    )  # fmt: skip


def _new_result(a: Any, shape: tuple[int, int], name: str, stream: Any) -> Any:
    try:
        return empty(a, shape, stream, name)
    except TypeError:
        raise ArrayError(
            f"a new {type(a).__module__.partition('.')[0]} array cannot have dtype {name}: pass out_dtype='float32' or "
            f"'float16', or a uint16 array as out with out_dtype={name!r}"
        ) from None
