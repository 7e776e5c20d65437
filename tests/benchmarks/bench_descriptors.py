"""How long it takes to make tensor maps, beside the driver where there is one.

Not collected by a plain ``pytest``, whose files begin with ``test_``. Run it by name, with pytest-benchmark installed:

    pytest tests/benchmarks/bench_descriptors.py --benchmark-columns=median,iqr,ops

A benchmark of many descriptors at once shows descriptors per second as ``extra_info`` (``--benchmark-json``), and
prints them with ``-s``. Compare medians of one run on one machine; for one core, start it with ``taskset -c 0``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cupytma import NoDeviceError, Tiled, encode_records, tensor_map
from cupytma.tensormap.driver import driver_context, encode
from cupytma.tensormap.driver_comparison import driver_records
from cupytma.tensormap.planning import plan_boxes
from cupytma.tensormap.random_records import random_records
from cupytma.tensormap.records import RECORD

pytest.importorskip("pytest_benchmark", reason="pip install pytest-benchmark")

OPERANDS: dict[str, Any] = {
    "data_type": "FLOAT16", "global_address": 0x7F0000000000, "global_dim": (1024, 512), "global_strides": (2048,),
    "box_dim": (64, 32), "element_strides": (1, 1), "swizzle": "128B",
}
MILLION = 1_000_000
RECORDED = Path(__file__).parent.parent / "golden" / "encoder_calls.npz"


@pytest.fixture
def driver() -> Any:
    try:
        with driver_context() as encoders:
            yield encoders
    except NoDeviceError as error:
        pytest.skip(str(error))


def per_second(benchmark: Any, count: int) -> None:
    rate = count / benchmark.stats.stats.median
    benchmark.extra_info["descriptors per second"] = rate
    print(f"\n{benchmark.name}: {rate / 1e6:.2f} million descriptors a second")


def legal_records(count: int, kind: str | None = None) -> np.ndarray:
    """Legal rows of one kind and rank 3, or of all kinds and ranks."""
    rows = random_records(4 * 8192, 0, ("tiled", "im2col", "im2col_wide") if kind is None else (kind,))
    keep = encode_records(rows)[0] == 0
    if kind is not None:
        keep &= rows["rank"] == 3
    return np.resize(rows[keep], count)


def test_parameters_from_operands(benchmark: Any) -> None:
    benchmark(lambda: Tiled(**OPERANDS))


def test_encode_with_every_rule_checked(benchmark: Any) -> None:
    parameters = Tiled(**OPERANDS)
    benchmark(parameters.encode)


def test_operands_to_bytes_with_every_rule_checked(benchmark: Any) -> None:
    benchmark(lambda: bytes(Tiled(**OPERANDS).encode()))


def test_with_address(benchmark: Any) -> None:
    m = Tiled(**OPERANDS).encode()
    benchmark(m.with_address, 0x7F0000100000)


def test_tensor_map_of_an_array(benchmark: Any) -> None:
    array = np.zeros((512, 1024), np.float16)
    benchmark(tensor_map, array, (32, 64), swizzle="128B")


def test_plan_of_a_wide_tile(benchmark: Any) -> None:
    parameters = Tiled(**OPERANDS)
    benchmark(plan_boxes, parameters, (256, 256))


@pytest.mark.parametrize("kind", ["tiled", "im2col", "im2col_wide"])
def test_a_million_records_of_one_kind_and_rank(benchmark: Any, kind: str) -> None:
    records = legal_records(MILLION, kind)
    benchmark.pedantic(encode_records, (records,), rounds=5, warmup_rounds=1)
    per_second(benchmark, MILLION)


def test_a_million_records_of_all_kinds_and_ranks(benchmark: Any) -> None:
    records = legal_records(MILLION)
    benchmark.pedantic(encode_records, (records,), rounds=5, warmup_rounds=1)
    per_second(benchmark, MILLION)


def test_a_million_records_legal_and_illegal(benchmark: Any) -> None:
    records = random_records(MILLION)
    assert records.dtype == RECORD
    benchmark.pedantic(encode_records, (records,), rounds=5, warmup_rounds=1)
    per_second(benchmark, MILLION)


def test_a_million_recorded_calls_in_packed_rows(benchmark: Any) -> None:
    """Rows of 313 bytes, about a third refused, kinds and ranks in any order."""
    with np.load(RECORDED) as file:
        records = np.tile(file["records"], 25)
    assert records.dtype.itemsize == 313
    benchmark.pedantic(encode_records, (records,), rounds=5, warmup_rounds=1)
    per_second(benchmark, len(records))


def _bindings_call() -> Any:
    """cuda-python's encoder with its arguments wrapped beforehand, and with nothing wrapped beforehand."""
    from cuda.bindings import driver as cuda

    def wrapped() -> list[Any]:
        return [
            cuda.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_FLOAT16, cuda.cuuint32_t(2), 0x7F0000000000,
            [cuda.cuuint64_t(n) for n in OPERANDS["global_dim"]], [cuda.cuuint64_t(2048)],
            [cuda.cuuint32_t(n) for n in OPERANDS["box_dim"]], [cuda.cuuint32_t(1), cuda.cuuint32_t(1)],
            cuda.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
            cuda.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B,
            cuda.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_NONE,
            cuda.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        ]

    return cuda.cuTensorMapEncodeTiled, wrapped


def test_beside_cuda_bindings_with_arguments_wrapped_beforehand(benchmark: Any, driver: Any) -> None:
    function, wrapped = _bindings_call()
    arguments = wrapped()
    code, _ = benchmark(function, *arguments)
    assert int(code) == 0


def test_beside_cuda_bindings_with_arguments_wrapped_each_time(benchmark: Any, driver: Any) -> None:
    function, wrapped = _bindings_call()
    code, _ = benchmark(lambda: function(*wrapped()))
    assert int(code) == 0


def test_beside_the_driver_through_encode(benchmark: Any, driver: Any) -> None:
    benchmark(encode, Tiled(**OPERANDS))


def test_beside_the_driver_on_many_records(benchmark: Any, driver: Any) -> None:
    records = legal_records(100_000)
    benchmark.pedantic(driver_records, (driver, records), rounds=5, warmup_rounds=1)
    per_second(benchmark, len(records))
