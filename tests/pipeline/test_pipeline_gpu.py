"""Pipeline kernels on a GPU: every layout exact beside numpy, and nothing written outside the results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pipeline_cases import CASES, SOFTMAX, random_layout, random_shape, random_values

import cupytma as tma
from cupytma.errors import ArrayError
from cupytma.pipeline.declarations import ELEMENT_TYPES

pytestmark = pytest.mark.gpu
GUARD = 256
BOXES = {1: (256,), 2: (4, 64), 3: (2, 4, 64), 4: (1, 2, 4, 64), 5: (2, 1, 2, 2, 64)}


def placed(generator: np.random.Generator, shape: Any, dtype: str) -> tuple[Any, Any]:
    """A GPU array of random layout within a buffer of random bytes; and the buffer."""
    import cupy

    kind = np.dtype(dtype)
    strides, offset, size = random_layout(generator, shape, kind.itemsize)
    buffer = cupy.asarray(generator.integers(0, 2, size + 2 * GUARD + 32, dtype=np.uint8))
    memory = cupy.cuda.MemoryPointer(buffer.data.mem, buffer.data.ptr - buffer.data.mem.ptr + GUARD + offset)
    return cupy.ndarray(shape, kind, memory, strides=strides), buffer


def check_results(case: Any, held: Any, wanted: Any, befores: Any, box: Any = None) -> None:
    """Results are as expected, and the bytes around them as they were."""
    import cupy

    for (array, buffer), expected, before in zip(held, wanted, befores, strict=True):
        found = array.get()
        if box is not None:  # each has its tile's first coordinate added
            starts = np.arange(found.shape[0]) // box[-1] * box[-1]
            expected = expected + starts.reshape(-1, *(1,) * (found.ndim - 1))
        if case.tolerance:
            np.testing.assert_allclose(found, expected, rtol=case.tolerance)
        else:
            np.testing.assert_array_equal(found, expected)
        offset = array.data.ptr - buffer.data.ptr
        memory = cupy.cuda.MemoryPointer(before.data.mem, before.data.ptr - before.data.mem.ptr + offset)
        cupy.ndarray(array.shape, array.dtype, memory, strides=array.strides)[...] = array
        assert bool((buffer == before).all()), "bytes outside the result were written"


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("name", CASES)
def test_random_arrays_are_exact_and_nothing_else_is_written(name: str, seed: int) -> None:
    import cupy

    case = CASES[name]
    generator = np.random.default_rng(10000 * seed + list(CASES).index(name))
    rank = int(generator.choice(case.ranks))
    shape = random_shape(generator, rank, 300_000)
    inputs, hosts = [], []
    for dtype in case.types:
        array, _ = placed(generator, shape, dtype)
        hosts.append(random_values(generator, shape, dtype))
        array[...] = cupy.asarray(hosts[-1])
        inputs.append(array)
    made = case.expected(*hosts, *(value for _, value in case.scalars))
    wanted = list(made) if isinstance(made, tuple) else [made]
    held = [placed(generator, np.shape(w), dtype) for w, dtype in zip(wanted, case.results, strict=True)]
    before = [buffer.copy() for _, buffer in held]
    options: dict[str, Any] = {"stages": [None, 1, 2, 3, 8][seed % 5]}
    if seed % 2 and name != "softmax":
        options["box"] = BOXES[rank]
    kernel = case.make(**options)
    kernel(*inputs, out=[array for array, _ in held], **dict(case.scalars))
    box = kernel.plan(*inputs, out=[array for array, _ in held]).variant.box if name == "tiles" else None
    check_results(case, held, wanted, before, box)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_narrow_types_are_computed_as_float32_and_rounded_once(dtype: str) -> None:
    torch = pytest.importorskip("torch")
    kind = getattr(torch, dtype)
    generator = torch.Generator("cuda").manual_seed(1)
    a, b = (torch.randn(77, 1024, device="cuda", generator=generator).to(kind) for _ in range(2))
    kernel = tma.pipeline_kernel("out = 0.5f * a + 0.25f * b", f"{dtype} a, {dtype} b", f"{dtype} out")
    out = kernel(a, b)
    assert isinstance(out, torch.Tensor)
    assert out.dtype == kind
    expected = (0.5 * a.float() + 0.25 * b.float()).to(kind)
    assert torch.equal(out.view(torch.uint8), expected.view(torch.uint8))


@pytest.mark.parametrize("dtype", [name for name, kind in ELEMENT_TYPES.items() if kind.code])
def test_every_type_and_scalar(dtype: str) -> None:
    import cupy

    x = cupy.asarray(random_values(np.random.default_rng(1), (50, 333), dtype))
    kernel = tma.pipeline_kernel("out = s ? a : 0", f"{dtype} a", f"{dtype} out", scalars=f"{dtype} s")
    assert bool((kernel(x, s=1) == x).all())
    assert not bool(kernel(x, s=0).any())


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("length", [64, 200, 1000, 4096, 8192])
def test_softmax_of_rows_of_any_length(dtype: str, length: int) -> None:
    torch = pytest.importorskip("torch")
    x = 4 * torch.randn(301, length, device="cuda", generator=torch.Generator("cuda").manual_seed(2))
    x = x.to(getattr(torch, dtype))
    softmax = tma.pipeline_kernel(SOFTMAX, f"{dtype} x", f"{dtype} out", each="row", name="softmax")
    expected = torch.softmax(x.float(), -1)
    tolerance = {"float16": 2e-3, "bfloat16": 8e-3, "float32": 2e-5}[dtype]
    torch.testing.assert_close(softmax(x).float(), expected, rtol=tolerance, atol=1e-7)


def test_large_arrays_keep_every_stage_busy() -> None:
    import cupy

    generator = cupy.random.default_rng(3)
    a, b = (generator.random((8192, 4096), dtype=cupy.float32) for _ in range(2))
    for stages in (1, 2, 3, 5, None):
        kernel = tma.pipeline_kernel("out = a > b ? a : b", "float32 a, float32 b", "float32 out", stages=stages)
        assert bool((kernel(a, b) == cupy.maximum(a, b)).all())
    whole = cupy.floor(8 * a)
    rows = tma.pipeline_kernel("total += x", "float32 x", reduce={"float32 total": "add"})
    assert bool((rows(whole) == whole.sum(1)).all())
    everything = tma.pipeline_kernel("total += x", "float32 x", reduce={"float64 total": "add"}, over="all")
    assert float(everything(whole)) == float(whole.sum(dtype="f8"))
    for _ in range(3):  # the same order every time
        assert float(everything(a)) == float(everything(a))


def test_few_long_rows() -> None:
    import cupy

    x = cupy.floor(8 * cupy.random.default_rng(4).random((3, 1 << 22), dtype=cupy.float32))
    kernel = tma.pipeline_kernel(
        "top = max(top, x); total += x;", "float32 x", reduce={"float32 top": "max", "float64 total": "add"},
        finish="total = total / shape[1]",
    )
    top, mean = kernel(x)
    assert bool((top == x.max(1)).all())
    assert bool((mean == x.sum(1, dtype="f8") / x.shape[1]).all())


def test_broadcast_inputs_and_outputs_in_place() -> None:
    import cupy

    generator = cupy.random.default_rng(5)
    x, row, column = (cupy.floor(8 * generator.random(shape)) for shape in ((1000, 513), (513,), (1000, 1)))
    expected = x * row + column
    kernel = tma.pipeline_kernel(
        "out = x * row_of + column_of", "float64 x, float64 row_of, float64 column_of", "float64 out"
    )
    assert bool((kernel(x, row, column) == expected).all())
    assert kernel(x, row, column, out=x) is x
    assert bool((x == expected).all())
    with pytest.raises(ArrayError, match="overlaps"):
        kernel(x[1:], row, column[1:], out=x[:-1])


def test_streams_and_graphs() -> None:
    import cupy

    kernel = tma.pipeline_kernel("out = a + n", "int32 a", "int32 out", scalars="int32 n")
    dot = tma.pipeline_kernel("total += a", "int32 a", reduce={"int32 total": "add"}, over="all")
    x, out, total = cupy.zeros(1 << 20, cupy.int32), cupy.zeros(1 << 20, cupy.int32), cupy.zeros((), cupy.int32)
    kernel(x, out=out, n=1)
    dot(out, out=total)
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    with stream:
        for n in range(20):
            kernel(x, out=x, n=n)
        stream.begin_capture()
        kernel(x, out=out, n=5)
        graph = stream.end_capture()
        graph.launch()
    stream.synchronize()
    assert int(x[17]) == 190
    assert bool((out == 195).all())
    dot(out, out=total, stream=stream)
    stream.synchronize()
    assert int(total) == (195 << 20) % (1 << 32) - (1 << 32) * ((195 << 20) % (1 << 32) >= 1 << 31)


def test_torch_tensors_on_torchs_stream() -> None:
    torch = pytest.importorskip("torch")
    x = torch.randn(513, 1024, device="cuda")
    kernel = tma.pipeline_kernel("out = a * a", "float32 a", "float32 out")
    with torch.cuda.stream(torch.cuda.Stream()):
        y = x + 1
        assert torch.equal(kernel(y), y * y)
        assert torch.equal(kernel(y[:, 1:]), y[:, 1:] * y[:, 1:])


def test_all_threads_see_a_tile_and_may_exchange_elements() -> None:
    import cupy

    flip = tma.pipeline_kernel(
        """
        const int first = box[1];
        for (int k = thread; k < box[0] * first; k += threads) out[k] = x[k];
        group.sync();
        for (int k = thread; k < size[0] * (size[1] / 2); k += threads) {
            const int row = k / (size[1] / 2), i = k % (size[1] / 2), j = size[1] - 1 - i;
            const float left = out[row * first + i];
            out[row * first + i] = out[row * first + j];
            out[row * first + j] = left;
        }
        """,
        "float32 x", "float32 out", each="tile", box=(8, 128),
    )
    x = cupy.random.default_rng(6).random((70, 100), dtype=cupy.float32)
    assert bool((flip(x) == x[:, ::-1]).all())


def test_replays_leave_partial_results_in_memory_of_their_own() -> None:
    import cupy

    dot = tma.pipeline_kernel("total += a", "int32 a", reduce={"int32 total": "add"}, over="all")
    x, total = cupy.ones(1 << 22, cupy.int32), cupy.zeros((), cupy.int32)
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    with stream:
        dot(x, out=total)
        stream.begin_capture()
        dot(x, out=total)
        graph = stream.end_capture()
        others = [cupy.full(1 << size, 7, cupy.uint8) for size in range(9, 20)]  # which may take freed memory
        for n in (2, 3):
            x.fill(n)
            graph.launch()
            assert int(total.get(stream=stream)) == n << 22
        assert all(bool((other == 7).all()) for other in others)
