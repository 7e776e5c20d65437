"""Errors that stay: read from whatever raises them, told from others, and explained where a program waits."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fake_cuda import FakeCuda
from launch_records import MAP, TILED, kernel, load

from cupytma.errors import DriverError, LaunchError
from cupytma.runtime import coordinates, descriptors, faults, loading, transfer
from cupytma.runtime.faults import explain_fault, explained_faults, launch_failure, synchronize
from cupytma.runtime.history import launches, remember
from cupytma.sticky import STICKY_ERRORS, code_of, earlier_fault
from cupytma.tensormap.driver import describe_answer

pytest.importorskip("cuda.bindings.nvrtc", reason="needs cuda-python and NVRTC")

@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    launches.clear()
    yield
    launches.clear()
    coordinates._declared.clear()


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    fake = FakeCuda()
    for module in (descriptors, transfer, faults, loading):
        monkeypatch.setattr(module, "cupy", lambda: fake)
    return fake


class Torch(RuntimeError):
    """As torch words it, without a code."""


class Coded(Exception):
    def __init__(self, **attributes: Any) -> None:
        super().__init__("something")
        self.__dict__.update(attributes)


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


def chained(inner: Exception) -> Exception:
    outer = ValueError("outer")
    outer.__cause__ = inner
    return outer


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (715, 715), (np.int32(716), 716), (Coded(status=700), 700), (Coded(code=719), 719),
        (DriverError("text", 701), 701),
        (Torch("CUDA error: an illegal memory access was encountered\nCUDA kernel errors might be"), 700),
        (Torch("CUDA error: misaligned address"), 716),
        (Torch("CUDA error: unspecified launch failure"), 719),
        (Torch("CUDA error: device-side assert triggered"), 710),
        ("cudaErrorIllegalInstruction: an illegal instruction was encountered", 715),
        (Exception("[700] Call to cuCtxSynchronize results in CUDA_ERROR_ILLEGAL_ADDRESS"), 700),
        ("the driver answered 716", 716),
        (chained(Torch("CUDA error: misaligned address")), 716),
        (chained(chained(Coded(status=715))), 715),
        (None, None), ("", None), ("all is well", None), (object(), None), (Unspeakable(), None), (True, None),
        (Coded(status=None, code="x"), None), ("error 12345", None), (b"cudaErrorIllegalAddress", 700), ([715], None),
        (1.5, None),
    ],
)  # fmt: skip
def test_the_code_is_read_from_errors_of_every_library(error: Any, code: int | None) -> None:
    assert code_of(error) == code


def test_an_error_that_was_raised_from_itself_ends() -> None:
    error = Coded()
    error.__cause__ = error
    assert code_of(error) is None


@pytest.mark.parametrize("error", ["?", object(), Unspeakable(), "x" * 10**7, float("nan"), -5, 10**30, [], {}])
def test_anything_may_be_asked_about(error: Any) -> None:
    str(explain_fault(error, launches=[load()]))
    repr(explain_fault(error))


@pytest.mark.parametrize("code", STICKY_ERRORS)
def test_an_error_of_earlier_work_names_the_last_launches(code: int) -> None:
    assert "last launches" not in earlier_fault(code)
    for name in ("load", "store", "load_dynamic", "prefetch"):
        remember((kernel(name), (1, 1, 1), (32, 1, 1), None, 0, 0, b""))
    text = earlier_fault(code)
    assert "a kernel launched earlier in this process failed" in text
    assert text.index("prefetch") < text.index("load_dynamic") < text.index("store (")
    assert "and 1 before" in text
    assert STICKY_ERRORS[code].meaning in text
    assert text in describe_answer(code, TILED)
    assert "Nothing is wrong with these parameters" in describe_answer(code, TILED)


@pytest.mark.parametrize("code", [0, 1, 2, 200, 201, 999, -1])
def test_an_answer_about_the_call_itself_is_no_error_of_earlier_work(code: int) -> None:
    assert earlier_fault(code) is None


def test_encoding_loads_nothing_that_launches() -> None:
    code = (
        "import sys, cupytma; from cupytma.tensormap.driver import describe_answer;"
        "assert '700' in describe_answer(700);"
        "assert not [m for m in sys.modules if m.startswith(('cupytma.runtime', 'cupy.'))]"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_launching_does_not_load_the_simulator() -> None:
    code = (
        "import sys, cupytma.runtime; assert not [m for m in sys.modules if m.startswith(('cupytma.sim', 'cupy.'))]"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_failure_to_load_or_launch_is_told_apart_from_an_earlier_fault() -> None:
    remember((kernel("load"), (1, 1, 1), (32, 1, 1), None, 0, 0, b""))
    error = launch_failure(RuntimeError("CUDA_ERROR_LAUNCH_FAILED: unspecified launch failure"), "kernel k failed")
    assert isinstance(error, DriverError)
    assert error.code == 719
    assert "kernel k failed: CUDA_ERROR_LAUNCH_FAILED (719): a kernel launched earlier" in str(error)
    assert "load (grid" in str(error)
    plain = launch_failure(Coded(status=209), "kernel k failed")
    assert (plain.code, "earlier" in str(plain)) == (209, False)
    assert not isinstance(launch_failure(ValueError("odd"), "kernel k failed"), DriverError)


# Synchronising


def test_synchronising_explains_a_fault(cuda: FakeCuda) -> None:
    remember(tuple(load(MAP.with_address(0))))
    cuda.answer = Torch("CUDA error: an illegal memory access was encountered")
    for wait in (synchronize, lambda: synchronize(5), lambda: synchronize(SimpleNamespace(synchronize=_raise(cuda)))):
        with pytest.raises(DriverError, match="null-address") as caught:
            wait()
        assert caught.value.code == 700
        assert caught.value.__cause__ is cuda.answer
    assert isinstance(caught.value, LaunchError)


def _raise(cuda: FakeCuda) -> Any:
    def wait() -> None:
        assert cuda.answer is not None
        raise cuda.answer

    return wait


def test_synchronising_lets_other_errors_through(cuda: FakeCuda) -> None:
    cuda.answer = MemoryError("full")
    with pytest.raises(MemoryError):
        synchronize()
    cuda.answer = None
    synchronize()
    synchronize(0)


@pytest.mark.parametrize("stream", ["0", True, 1.5, object(), []])
def test_what_is_no_stream_cannot_be_waited_for(cuda: FakeCuda, stream: Any) -> None:
    with pytest.raises(LaunchError, match="a stream with a method synchronize"):
        synchronize(stream)


def test_a_block_of_launches_is_explained_at_its_end_or_where_it_fails(cuda: FakeCuda) -> None:
    remember(tuple(load(MAP.with_address(0))))
    with explained_faults():
        pass
    cuda.answer = Torch("CUDA error: an illegal memory access was encountered")
    with pytest.raises(DriverError, match="null-address"), explained_faults():
        pass
    with pytest.raises(DriverError, match="null-address"), explained_faults():
        raise cuda.answer
    with pytest.raises(ZeroDivisionError), explained_faults():
        1 / 0  # noqa: B018
    with pytest.raises(DriverError, match="null-address") as caught, explained_faults():
        synchronize()
    assert str(caught.value).count("likely cause") == 1
