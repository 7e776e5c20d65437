"""Matrix products on a GPU: exact where sums are, as accurate as cuBLAS elsewhere, and nothing outside the result."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from matmul_any import ODD_WAYS, any_product
from matmul_arrays import TYPES, expected, matrix, operands

import cupytma as tma
from cupytma.errors import ArrayError
from cupytma.ops import matrix_product
from cupytma.ops.matmul_configuration import MOST_ROWS_BEFORE, Configuration, problem_with
from cupytma.ops.matmul_operands import check_operands
from cupytma.ops.matmul_ways import CONFIGURATIONS
from cupytma.runtime.compiler import current_target
from cupytma.tensormap.arrays import view_of

pytestmark = pytest.mark.gpu
BITS = {1: np.uint8, 2: np.uint16, 4: np.float32}
GUARD = 32  # elements on each side of a result's rows, and rows above and below are two


@pytest.fixture(autouse=True)
def _needs_wgmma() -> None:
    if str(current_target()) != "sm_90a":
        pytest.skip("needs a Hopper GPU")


def device(array: np.ndarray) -> Any:
    """The bits of a matrix on the GPU, laid out as on the host."""
    import cupy

    if not array.size:
        return cupy.zeros(array.shape, BITS[array.itemsize])
    bits = array.view(BITS[array.itemsize])
    whole = bits if bits.strides[1] == bits.itemsize else bits.T
    room = np.zeros((whole.shape[0], max(1, whole.strides[0] // whole.itemsize)), whole.dtype)
    room[:, : whole.shape[1]] = whole
    found = cupy.asarray(room)[:, : whole.shape[1]]
    return found if whole is bits else found.T


class Guarded:
    """A result within a larger matrix of sevens."""

    def __init__(self, m: int, n: int, dtype: str, guard: int = GUARD) -> None:
        import cupy

        self.dtype = np.dtype(TYPES[dtype])
        self.host = np.full((m + 4, n + 2 * GUARD + -n % 8), 7, np.float32).astype(self.dtype)
        self.whole = cupy.asarray(self.host.view(BITS[self.dtype.itemsize]))
        self.inner = slice(2, m + 2), slice(guard, guard + n)
        self.out = self.whole[self.inner]

    def check(self, want: np.ndarray) -> None:
        found = self.whole.get().view(self.dtype)
        np.testing.assert_array_equal(
            found[self.inner].astype(np.float32), want.astype(np.float32).astype(self.dtype).astype(np.float32)
        )
        found[self.inner] = self.host[self.inner]
        assert found.tobytes() == self.host.tobytes()


def multiply(a: np.ndarray, b: np.ndarray, out: Any, result: str, vectors: Any = (), **how: Any) -> None:
    names = {"a_dtype": a.dtype.name, "b_dtype": b.dtype.name, "out_dtype": result}
    tma.matmul(device(a), device(b), out=out, tf32=a.dtype == np.float32, **names, **dict(vectors), **how)


LAYOUTS = [(name, False) for name in TYPES] + [("bfloat16", True), ("float16", True)]
WAYS = list(dict.fromkeys((*CONFIGURATIONS, *ODD_WAYS)))


def fast_if_needed(configuration: Configuration, a: np.ndarray, b: np.ndarray) -> bool:
    """Whether the way is one of fast accumulation only. Skips where it is none for these operands at all."""
    judged = check_operands(view_of(a), view_of(b), view_of(matrix(len(a), b.shape[1], "bfloat16")), tf32=True)
    is_narrow, most_bytes = judged.a.type.is_narrow, current_target().shared_bytes
    fast = bool(problem_with(configuration, judged, is_narrow, most_bytes))
    if problem_with(configuration, judged, is_narrow and not fast, most_bytes):
        pytest.skip("not for these operands")
    return fast


@pytest.mark.parametrize("configuration", WAYS, ids=str)
@pytest.mark.parametrize(("dtype", "is_row_major"), LAYOUTS)
def test_every_configuration_is_exact(configuration: Configuration, dtype: str, is_row_major: bool) -> None:
    n = 424
    a, b = operands(333, n, 1200, dtype, is_row_major)
    fast = fast_if_needed(configuration, a, b)
    for result in ("bfloat16", "float32"):
        for static_b, some in ((False, a), (True, a[:MOST_ROWS_BEFORE])):
            guarded = Guarded(len(some), n, result)
            how = {"configuration": configuration, "fast_accumulation": fast, "static_b": static_b}
            multiply(some, b, guarded.out, result, **how)
            guarded.check(expected(some, b))


@pytest.fixture
def few_blocks(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Products as on a GPU of one multiprocessor, whose clusters, two at a time, take many tiles in turn."""
    matrix_product.forget_prepared()
    monkeypatch.setattr(matrix_product, "multiprocessors", lambda *_: 1)
    monkeypatch.setattr(matrix_product, "resident_clusters", lambda *_: 2)
    yield
    matrix_product.forget_prepared()


@pytest.mark.usefixtures("few_blocks")
@pytest.mark.parametrize("configuration", [way for way in WAYS if way.split == 1], ids=str)
def test_every_configuration_is_exact_where_blocks_have_many_tiles(configuration: Configuration) -> None:
    dtype, is_row_major = LAYOUTS[WAYS.index(configuration) % len(LAYOUTS)]
    m, n = 1100, 1096
    a, b = operands(m, n, 336, dtype, is_row_major)
    fast = fast_if_needed(configuration, a, b)
    for result in ("bfloat16", "float32"):
        for static_b, some in ((False, a), (True, a[:MOST_ROWS_BEFORE])):
            guarded = Guarded(len(some), n, result)
            how = {"configuration": configuration, "fast_accumulation": fast, "static_b": static_b}
            for _ in range(2):
                multiply(some, b, guarded.out, result, **how)
            guarded.check(expected(some, b))


@pytest.mark.parametrize("height", [*range(8, 64, 8), *range(72, 128, 8)])
def test_tiles_of_any_height_are_exact(height: int) -> None:
    n, consumers = 37 * height, 1 + (height > 64)
    way = Configuration(1, 24, is_swapped=True, consumers=consumers, spare_rows=64 * consumers - height)
    for dtype in ("float8_e4m3fn", "bfloat16", "float32"):
        a, b = operands(43, n, 1200, dtype)
        for result, guard in (("bfloat16", GUARD), ("bfloat16", GUARD - 1), ("float32", GUARD), ("float32", GUARD - 1)):
            guarded = Guarded(43, n, result, guard)  # whose rows begin on 16 bytes, or not
            multiply(a, b, guarded.out, result, configuration=way, static_b=guard == GUARD)
            guarded.check(expected(a, b))


@pytest.mark.parametrize("seed", range(200))
def test_any_shape_is_exact_and_stays_within_its_result(seed: int) -> None:
    import cupy

    rng = np.random.default_rng(seed)
    dtype, is_row_major = LAYOUTS[seed % len(LAYOUTS)]
    primes = (1, 2, 3, 7, 17, 61, 127, 257, 509, 1021)
    m, n = (int(rng.choice(primes)) if rng.integers(2) else int(rng.integers(1, 700)) for _ in range(2))
    k = 16 // np.dtype(TYPES[dtype]).itemsize * int(rng.choice((1, 2, 3, int(rng.integers(1, 150)))))
    a, b = operands(m, n, k, dtype, is_row_major, seed)
    result = ("bfloat16", "float16", "float32")[int(rng.integers(3))]
    vectors: dict[str, Any] = {}
    if rng.integers(2):
        vectors["scale_a"] = rng.choice([0.5, 1, 2], m if rng.integers(2) else 1).astype(np.float32)
        vectors["scale_b"] = rng.choice([0.5, 1, 2], n if rng.integers(2) else 1).astype(np.float32)
    if rng.integers(2):
        vectors["bias"] = rng.integers(-3, 4, n).astype(np.float32)
    guarded = Guarded(m, n, result)
    multiply(a, b, guarded.out, result, {name: cupy.asarray(vector) for name, vector in vectors.items()})
    guarded.check(expected(a, b, **vectors))


@pytest.mark.parametrize("seed", range(60))
def test_any_product_is_exact_in_any_way_that_is_possible(seed: int) -> None:
    one = any_product(seed, 8 * 384)
    guarded = Guarded(one.a.shape[0], one.b.shape[1], one.result)
    guarded.out[...] = 0
    for _ in range(2):
        multiply(one.a, one.b, guarded.out, one.result, configuration=one.configuration, **one.how)
    guarded.check(expected(one.a, one.b))


@pytest.mark.parametrize("dtype", TYPES)
def test_nan_and_infinity_reach_the_elements_that_they_are_part_of(dtype: str) -> None:
    a, b = operands(70, 72, 96, dtype)
    a[3, 5], b[7, 11] = np.nan, -np.nan
    if dtype != "float8_e4m3fn":  # which has no infinity
        a[9, 5], b[7, 13] = np.inf, -np.inf
    guarded = Guarded(70, 72, "float32")
    multiply(a, b, guarded.out, "float32")
    with np.errstate(invalid="ignore"):
        want = expected(a, b)
    found = guarded.out.get()
    np.testing.assert_array_equal(np.isnan(found), np.isnan(want))
    np.testing.assert_array_equal(found[~np.isnan(want)], want[~np.isnan(want)].astype(np.float32))


def test_without_depth_the_result_is_the_bias_and_without_elements_nothing_is_done() -> None:
    import cupy

    bias = np.arange(72, dtype=np.float32)
    for dtype in ("bfloat16", "float8_e4m3fn"):
        a, b = operands(70, 72, 0, dtype)
        guarded = Guarded(70, 72, "bfloat16")
        multiply(a, b, guarded.out, "bfloat16", {"bias": cupy.asarray(bias)})
        guarded.check(np.broadcast_to(bias, (70, 72)))
        a, b = operands(0, 72, 64, dtype)
        found = tma.matmul(device(a), device(b), a_dtype=dtype, b_dtype=dtype, out_dtype="float32")
        assert found.shape == (0, 72)


@pytest.mark.parametrize("shape", [(8, 4096, 4096), (300, 1024, 2048), (2048, 2048, 4096)])
def test_the_same_call_gives_the_same_bits(shape: tuple[int, int, int]) -> None:
    torch = pytest.importorskip("torch")
    m, n, k = shape
    a, b = (torch.randn(rows, k, device="cuda").to(torch.bfloat16) for rows in (m, n))
    first = tma.matmul(a, b.T, out_dtype="float32")
    for _ in range(5):
        assert torch.equal(tma.matmul(a, b.T, out_dtype="float32"), first)


SHAPES = [(1, 512, 4096), (128, 4096, 4096), (4096, 4096, 4096), (333, 1000, 7168)]


def relative_error(found: Any, want: Any) -> float:
    return float((found.double() - want).norm() / want.norm())


@pytest.mark.parametrize(("m", "n", "k"), SHAPES)
@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "bfloat16", "float16"])
def test_errors_are_no_larger_than_cublas(m: int, n: int, k: int, dtype: str) -> None:
    torch = pytest.importorskip("torch")
    kind = getattr(torch, dtype)
    a, b = (torch.randn(rows, k, device="cuda").to(kind) for rows in (m, n))
    want = a.double() @ b.double().T
    found = tma.matmul(a, b.T)
    if dtype.startswith("float8"):
        if n % 16:
            pytest.skip("torch._scaled_mm needs multiples of 16")
        one = torch.ones((), device="cuda")
        beside = torch._scaled_mm(a, b.T, one, one, out_dtype=torch.bfloat16, use_fast_accum=False)
    else:
        beside = a @ b.T
    assert found.dtype == beside.dtype
    assert relative_error(found, want) <= 1.05 * relative_error(beside, want)


def test_tf32_is_as_accurate_as_cublas() -> None:
    torch = pytest.importorskip("torch")
    a, b = (torch.randn(rows, 2048, device="cuda") for rows in (512, 768))
    want = a.double() @ b.double().T
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        beside = a @ b.T
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
    assert relative_error(tma.matmul(a, b.T, tf32=True), want) <= 1.05 * relative_error(beside, want)
    with pytest.raises(ArrayError, match="tf32=True"):
        tma.matmul(a, b.T)


def test_scales_are_those_of_scaled_mm() -> None:
    torch = pytest.importorskip("torch")
    a, b = (torch.randn(rows, 512, device="cuda").to(torch.float8_e4m3fn) for rows in (256, 384))
    scale_a, scale_b = torch.rand(256, 1, device="cuda") + 0.5, torch.rand(1, 384, device="cuda") + 0.5
    bias = torch.randn(384, device="cuda").to(torch.bfloat16)
    found = tma.matmul(a, b.T, scale_a=scale_a, scale_b=scale_b, bias=bias)
    beside = torch._scaled_mm(
        a, b.T, scale_a=scale_a, scale_b=scale_b, bias=bias, out_dtype=torch.bfloat16, use_fast_accum=False
    )
    want = (a.double() @ b.double().T) * scale_a.double() * scale_b.double() + bias.double()
    assert relative_error(found, want) <= 1.05 * relative_error(beside, want)
    assert relative_error(found, want) < 2**-8


@pytest.mark.parametrize("static_b", [False, True])
def test_products_that_read_one_anothers_results_wait_for_them(static_b: bool) -> None:
    """Launches overlap: what one loads, the one before has just written."""
    torch = pytest.importorskip("torch")
    turns = [torch.eye(1024, device="cuda")[torch.randperm(1024, device="cuda")].to(torch.bfloat16) for _ in range(8)]
    start = torch.randint(-100, 100, (64, 1024), device="cuda").to(torch.bfloat16)
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()

    def chain() -> Any:
        x = start
        for turn in turns:
            x = tma.matmul(x, turn.T, static_b=static_b)
        return x

    want = start
    for turn in turns:
        want = want @ turn.T
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        for _ in range(20):
            assert torch.equal(chain(), want)
        stream.synchronize()
        with torch.cuda.graph(graph, stream=stream):
            captured = chain()
        for _ in range(20):
            captured.zero_()
            graph.replay()
            stream.synchronize()
            assert torch.equal(captured, want)


@pytest.mark.parametrize("is_captured", [False, True])
def test_a_product_waits_for_all_before_it_not_for_the_last_alone(is_captured: bool) -> None:
    """Three overlap: the third reads what the first wrote by ordinary stores, and the fourth writes what it reads."""
    torch = pytest.importorskip("torch")
    a = torch.randint(-2, 3, (512, 4096), device="cuda").to(torch.bfloat16)
    b = torch.randint(-2, 3, (1024, 4096), device="cuda").to(torch.bfloat16)
    small = torch.eye(64, device="cuda").to(torch.bfloat16)
    turns = [torch.eye(512, device="cuda")[torch.randperm(512, device="cuda")].to(torch.bfloat16) for _ in range(2)]
    written = torch.zeros(1024, 512, device="cuda", dtype=torch.bfloat16)
    results = [torch.zeros(1024, 512, device="cuda", dtype=torch.float32) for _ in turns]
    other = torch.empty(64, 64, device="cuda", dtype=torch.bfloat16)
    want = (a.float() @ b.float().T).to(torch.bfloat16)

    def chain() -> None:
        for turn, result in zip(turns, results, strict=True):
            tma.matmul(a, b.T, out=written.T)  # along columns: no tensor map can write it
            tma.matmul(small, small.T, out=other)
            tma.matmul(written, turn.T, out=result, static_b=True)
            tma.matmul(small, small.T, out=written[:64, :64], static_b=True)  # which the one before may still read

    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        chain()
        stream.synchronize()
        run = chain
        if is_captured:
            with torch.cuda.graph(graph, stream=stream):
                chain()
            run = graph.replay
        for _ in range(20):
            written.zero_()
            run()
            stream.synchronize()
            for turn, result in zip(turns, results, strict=True):
                assert torch.equal(result, want.T.float() @ turn.float().T)
            assert torch.equal(written[:64, :64], small)
            assert torch.equal(written[64:], want.T[64:])


def test_arrays_of_torch_and_cupy_and_streams() -> None:
    import cupy

    torch = pytest.importorskip("torch")
    a, b = (torch.randint(-2, 3, (rows, 256), device="cuda").half() for rows in (100, 200))
    want = (a.float() @ b.float().T).half()
    assert torch.equal(tma.matmul(a, b.T), want)
    assert torch.equal(tma.matmul(a, b.T.contiguous()), want)
    with torch.cuda.stream(torch.cuda.Stream()):
        assert torch.equal(tma.matmul(a, b.T, out_dtype=torch.float32).half(), want)
    torch.cuda.synchronize()
    found = tma.matmul(cupy.asarray(a), cupy.asarray(b).T, stream=cupy.cuda.Stream())
    cupy.cuda.Device().synchronize()
    assert isinstance(found, cupy.ndarray)
    np.testing.assert_array_equal(found.get(), want.cpu().numpy())


def test_results_over_operands_are_refused_each_time() -> None:
    import cupy

    memory = cupy.zeros((128, 128), cupy.float16)
    free = cupy.zeros((64, 64), cupy.float16)
    a, b, over = memory[:64], memory[64:].T[:, :64], memory[:64, :64]
    tma.matmul(a, b, out=free)
    tma.matmul(a, b, out=free)
    for _ in range(3):
        with pytest.raises(ArrayError, match="out overlaps a"):
            tma.matmul(a, b, out=over)
    with pytest.raises(ArrayError, match="host memory"):
        tma.matmul(np.zeros((64, 64), np.float16), b, out=free)
