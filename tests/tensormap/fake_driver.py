"""A stand-in for cuda-python's driver module: real C functions, whose answers come from the rules or from the test."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from cupytma.tensormap import driver
from cupytma.tensormap.records import RECORD, encode_records
from cupytma.tensormap.rule import MODES

_ENTRIES = {"global_dim": ("u8", 5), "global_strides": ("u8", 4), "box_dim": ("u4", 5), "element_strides": ("u4", 5),
            "pixel_box_lower_corner": ("i4", 3), "pixel_box_upper_corner": ("i4", 3)}  # fmt: skip
_COLUMNS = {
    "data_type": "dtype", "rank": "rank", "global_address": "addr", "global_dim": "dims", "global_strides": "strides",
    "box_dim": "box", "element_strides": "estr", "pixel_box_lower_corner": "lower", "pixel_box_upper_corner": "upper",
    "channels_per_pixel": "channels", "pixels_per_column": "pixels", "interleave": "interleave", "swizzle": "swizzle",
    "l2_promotion": "l2", "oob_fill": "oob", "wide_mode": "wide_mode",
}  # fmt: skip
Answer = Callable[[np.ndarray], tuple[int, bytes]]


def by_the_rules(record: np.ndarray) -> tuple[int, bytes]:
    status, payload = encode_records(record)
    return int(status[0]), payload.tobytes()


class FakeDriver:
    """Logs what is asked of it. ``codes`` are answers by function name, ``answer`` those of the encoders."""

    CUdevice_attribute = SimpleNamespace(
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR=75, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR=76
    )

    def __init__(
        self,
        *,
        current: int = 0,
        capability: tuple[int, int] = (9, 0),
        answer: Answer = by_the_rules,
        **codes: int,
    ) -> None:
        self.contexts = [current] if current else []
        self.retained = 0
        self.log: list[str] = []
        self._codes, self._answer, self._capability = codes, answer, capability
        self._functions = [self._encoder(kind) for kind in MODES]

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("cu"):
            raise AttributeError(name)

        def function(*arguments: Any) -> tuple[Any, ...]:
            self.log.append(name)
            code = self._codes.get(name, 0)
            return (code, *([None] if code else self._value(name, *arguments)))

        return function

    def _value(self, name: str, *arguments: Any) -> list[Any]:
        if name == "cuCtxGetCurrent":
            return [self.contexts[-1] if self.contexts else 0]
        if name == "cuCtxPushCurrent":
            self.contexts.append(arguments[0])
            return []
        if name == "cuCtxPopCurrent":
            return [self.contexts.pop()]
        if name == "cuDevicePrimaryCtxRetain":
            self.retained += 1
            return [77]
        if name == "cuDevicePrimaryCtxRelease":
            self.retained -= 1
            return []
        if name == "cuDeviceGetAttribute":
            return [self._capability[arguments[0] - 75]]
        if name == "cuGetProcAddress":
            symbols = [b"cuTensorMapEncodeTiled", b"cuTensorMapEncodeIm2col", b"cuTensorMapEncodeIm2colWide"]
            function = self._functions[symbols.index(arguments[0])]
            return [ctypes.cast(function, ctypes.c_void_p).value, 0]
        return [{"cuDriverGetVersion": 13000}.get(name, 0)]

    def _encoder(self, kind: str) -> Any:
        def encode(place: int, *values: Any) -> int:
            if not self.contexts:
                return 201
            code, data = self._answer(_record(kind, values))
            ctypes.memmove(place, data, len(data))
            assert place % 64 == 0
            return code

        return ctypes.CFUNCTYPE(ctypes.c_int32, *driver.argument_types(kind))(encode)


def _record(kind: str, values: tuple[Any, ...]) -> np.ndarray:
    """The row that a call's arguments say, read from memory as the driver reads them."""
    record = np.zeros(1, RECORD)
    record["op"] = MODES.index(kind)
    for name, value in zip(driver.ARGUMENTS[kind], values, strict=True):
        if name in _ENTRIES:
            kind_of, count = _ENTRIES[name]
            size = np.dtype(kind_of).itemsize * count
            record[_COLUMNS[name]] = np.frombuffer(ctypes.string_at(value, size), kind_of)
        elif name.endswith("_width"):
            record[_COLUMNS[name.removesuffix("_width")]][0, 0] = value
        else:
            record[_COLUMNS[name]] = value
    return record
