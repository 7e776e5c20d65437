"""Maps made in a buffer's slots by kernels: what they are, what breaks a rule, and what errors say. Without a GPU."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from emulated_cuda import Array, EmulatedCuda, needs_compiler

import cupytma as tma
from cupytma.errors import CupytmaError, DescriptorError, SlotError, TargetError
from cupytma.runtime.descriptors import DescriptorBuffer
from cupytma.runtime.device_encoding import device_module, encode_on_device, rebind_on_device
from cupytma.runtime.device_rules import rule_ids
from cupytma.tensormap.random_records import random_records
from cupytma.tensormap.records import encode_records

pytest.importorskip("cuda.bindings.nvrtc", reason="needs cuda-python and NVRTC")

LIVE = 64  # bytes of a map that the hardware reads


def slots_of(buffer: DescriptorBuffer) -> np.ndarray:
    """The buffer's bytes in device memory, (slots, 128)."""
    empty = bytes(128)
    found = [bytes(held) if held is not None else empty for held in buffer.to_host()]
    return np.frombuffer(b"".join(found), np.uint8).reshape(-1, 128)


def device_columns(records: np.ndarray) -> dict[str, Any]:
    """Records as columns in device memory, entries beyond the rank and all."""
    names = {
        "global_address": ("addr", np.uint64), "rank": ("rank", np.int32), "data_type": ("dtype", np.int32),
        "interleave": ("interleave", np.int32), "swizzle": ("swizzle", np.int32), "l2_promotion": ("l2", np.int32),
        "oob_fill": ("oob", np.int32), "global_dim": ("dims", np.uint64), "global_strides": ("strides", np.uint64),
        "box_dim": ("box", np.uint32), "element_strides": ("estr", np.uint32),
    }  # fmt: skip
    return {name: Array.of(records[field].astype(kind)) for name, (field, kind) in names.items()}


@pytest.mark.parametrize("target", ["sm_90a", "sm_100a", "sm_103a", "sm_120a"])
@pytest.mark.parametrize("scope", ["gpu", "sys"])
def test_the_kernels_compile_and_release_at_the_scope(target: str, scope: str) -> None:
    made = device_module(target, scope)
    assert set(made.kernels) == {"encode_maps", "rebind_maps", "rebind_own_maps"}
    assert made.ptx.count(f"tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.{scope}") >= 3
    assert all(r.spill_store_bytes == 0 for r in map(made.resources.__getitem__, made.kernels))
    assert made.warnings == ()


@needs_compiler
@pytest.mark.parametrize("target", ["sm_90a", "sm_100a"])
def test_device_made_maps_equal_the_hosts_where_these_accept_them(cuda: EmulatedCuda, target: str) -> None:
    records = random_records(1500, seed=5, modes=("tiled",))
    status, payload = encode_records(records, target)
    wanted = (status == 0) & (records["addr"] != 0)
    assert 600 < wanted.sum() < 1400
    buffer = DescriptorBuffer(len(records), target=target)
    assert encode_on_device(buffer, device_columns(records)) is buffer
    np.testing.assert_array_equal(buffer.status.get() == 0, wanted)
    np.testing.assert_array_equal(slots_of(buffer)[wanted, :LIVE], payload[wanted, :LIVE])
    with pytest.raises(DescriptorError) as caught:
        buffer.check()
    assert len(str(caught.value).splitlines()) >= 17
    assert f"and {(~wanted).sum() - 16} more" in str(caught.value)
    buffer.check()  # each is raised once
    assert cuda.launches == ["encode_maps"]
    assert list(buffer) == [None] * len(records)
