"""Small inputs that people really ran into, of launches and of descriptors on the device, with the right answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_cuda import FakeCuda
from launch_records import kernel

import cupytma as tma
from cupytma import ptx
from cupytma.errors import DescriptorError
from cupytma.runtime import descriptors, transfer
from cupytma.runtime.history import launches, remember
from cupytma.tensormap.driver import describe_answer

pytest.importorskip("cuda.bindings.nvrtc", reason="needs cuda-python and NVRTC")

_REPORTS = json.loads((Path(__file__).parents[1] / "golden" / "reports.json").read_text(encoding="utf-8"))
GIVEN: dict[str, dict[str, Any]] = {report["id"]: report["given"] for report in _REPORTS}


def test_sticky_fault() -> None:
    given = dict(GIVEN["sticky-fault"])
    answer, given["global_address"] = given.pop("driver_answer"), int(given["global_address"], 16)
    launches.clear()
    remember((kernel("store"), (3, 1, 1), (128, 1, 1), None, 0, 0, b""))
    text = describe_answer(answer, tma.Tiled(**given))
    launches.clear()
    assert "a kernel launched earlier in this process failed" in text
    assert "Nothing is wrong with these parameters" in text
    assert "the last launches, newest first: store (grid (3, 1, 1)" in text


def test_slots_64_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeCuda()
    for module in (descriptors, transfer):
        monkeypatch.setattr(module, "cupy", lambda: fake)
    wrong = GIVEN["slots-64-apart"]["slot_stride"]
    buffer = tma.DescriptorBuffer(4, target="sm_90a")
    addresses = np.array([buffer.address(i) for i in range(4)])
    assert set(np.diff(addresses)) == {2 * wrong}
    assert not (addresses % (2 * wrong)).any()
    # One acquire is of 128 bytes, one slot; code that changes a slot asserts its alignment in debug builds.
    assert ptx.fence_proxy_tensormap_acquire(scope="sys").text.endswith(", 128;")
    changing = (ptx.tensormap_replace(field="global_dim", space="global"), ptx.tensormap_cp_fenceproxy(scope="gpu"))
    for instruction in changing:
        assert "% 128 == 0" in instruction.function()


def test_device_map_511() -> None:
    given = GIVEN["device-map-511"]
    template = tma.Tiled(data_type=given["data_type"], global_address=1 << 20, global_dim=(512, 64), box_dim=(64, 8))
    stride = given["row_stride_bytes"]
    with pytest.raises(DescriptorError, match=r"1022 B .* 14 mod 16; .* 1024 B \(512 elements\)"):
        template.encode().rebind(1 << 30, (given["K"], 64), (stride,))
    silent = template.encode().replace_raw("global_stride", stride, 0).decode()
    assert silent.global_strides == (1008,)
    assert "assert(value % 16 == 0" in ptx.tensormap_replace(field="global_stride", space="shared::cta").function()


def test_every_report_about_launches_and_device_descriptors_is_here() -> None:
    wanted = {report["id"] for report in _REPORTS if report["area"] in ("launch", "device descriptor")}
    here = {name.removeprefix("test_").replace("_", "-") for name in globals() if name.startswith("test_")}
    assert wanted <= here
