"""Maps made in a buffer's slots by kernels: what they are, what breaks a rule, and what errors say. Without a GPU."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from captured_streams import CapturedStreams
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


TILED = tma.Tiled(
    data_type="FLOAT16", global_address=1 << 20, global_dim=(64, 32, 4), global_strides=(128, 4096), box_dim=(32, 8, 1),
    swizzle="64B", l2_promotion="L2_256B", oob_fill="NAN_REQUEST_ZERO_FMA",
)
TEMPLATE = TILED.encode()


def rebound(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Addresses, extents and strides of as many tensors of rank 3."""
    random = np.random.default_rng(seed)
    return (
        random.integers(1, 1 << 50, n, dtype=np.int64) * 16, random.integers(1, 1 << 32, (n, 3), dtype=np.int64),
        random.integers(0, 1 << 36, (n, 2), dtype=np.int64) * 16,
    )  # fmt: skip


@needs_compiler
@pytest.mark.parametrize("on_device", [True, False])
@pytest.mark.parametrize("own", [True, False])
def test_a_rebound_map_is_what_the_host_makes_of_the_template(cuda: EmulatedCuda, on_device: bool, own: bool) -> None:
    n = 300
    addresses, extents, strides = rebound(n)
    buffer = DescriptorBuffer(n + 7, target="sm_90a")
    if own:
        buffer.write([TEMPLATE] * n, 7)
    given = [Array.of(a) if on_device else a for a in (addresses, extents, strides)]
    assert rebind_on_device(buffer, None if own else TEMPLATE, *given, 7) is buffer
    wanted = [
        TEMPLATE.rebind(a, extents=e, strides=s)
        for a, e, s in zip(addresses.tolist(), extents.tolist(), strides.tolist(), strict=True)
    ]
    assert buffer.to_host() == (*(None,) * 7, *wanted)
    buffer.check()
    assert not buffer.status.get().any()
    assert buffer[7] is None
    assert cuda.launches == ["rebind_own_maps" if own else "rebind_maps"]


@needs_compiler
def test_one_row_may_serve_all_maps_and_other_integer_types_do(cuda: EmulatedCuda) -> None:
    buffer = DescriptorBuffer(3, target="sm_90a", release_scope="sys")
    addresses = Array.of(np.arange(1, 7, dtype=np.uint32)[::2] * np.uint32(256))
    rebind_on_device(buffer, TEMPLATE, addresses, (64, 9, 2), Array.of(np.array([128, 4096], np.int32)))
    assert [held.decode().global_address for held in buffer.to_host()] == [256, 768, 1280]
    assert {held.decode().global_dim for held in buffer.to_host()} == {(64, 9, 2)}
    flat = tma.Tiled(data_type="UINT8", global_address=16, global_dim=(16,), box_dim=(16,)).encode()
    rebind_on_device(buffer, flat, [16, 32, 48], [[1], [2], [3]])
    assert [held.decode().global_dim for held in buffer.to_host()] == [(1,), (2,), (3,)]


@needs_compiler
def test_mappings_of_columns_and_of_one_for_all_and_sequences_of_parameters_are_encoded(cuda: EmulatedCuda) -> None:
    wanted = [replace(TILED, global_address=(i + 1) << 20, global_dim=(64, 30 + i, 4)) for i in range(5)]
    columns = {
        "global_address": Array.of(np.array([p.global_address for p in wanted])),
        "global_dim": np.array([p.global_dim for p in wanted]), "global_strides": (128, 4096), "data_type": "FLOAT16",
        "box_dim": (32, 8, 1), "swizzle": "64B", "l2_promotion": 3, "oob_fill": "NAN_REQUEST_ZERO_FMA",
    }  # fmt: skip
    for given in (columns, wanted, tma.tensormap.records.to_records(wanted)):
        buffer = DescriptorBuffer(5, target="sm_90a")
        encode_on_device(buffer, given)
        assert [bytes(held)[:LIVE] for held in buffer.to_host()] == [bytes(p.encode())[:LIVE] for p in wanted]


def broken(**changes: Any) -> dict[str, Any]:
    """Columns on the device, of which one map is wrong."""
    columns = {"addresses": [1 << 20] * 3, "extents": [(64, 9, 2)] * 3, "strides": [(128, 4096)] * 3}
    for name, value in changes.items():
        columns[name] = list(columns[name])
        columns[name][1] = value
    return {name: np.array(value, np.int64) for name, value in columns.items()}


BROKEN = [
    ({"addresses": 0}, "null-address", "global_address is null"),
    ({"addresses": (1 << 20) + 8}, "address-alignment", "is 8 mod 16"),
    ({"addresses": 1 << 57}, "address-range", r"0 … 2\^57"),
    ({"addresses": -16}, "address-range", r"0 … 2\^57"),
    ({"extents": (64, 0, 2)}, "dim-range", r"global_dim\[1\] = 0"),
    ({"extents": (-1, 9, 2)}, "dim-range", r"global_dim\[0\] = -1"),
    ({"extents": (64, 9, 2**32 + 1)}, "dim-range", r"global_dim\[2\] = 4294967297"),
    ({"strides": (1022, 4096)}, "stride-alignment", "1022 B .*14 mod 16"),
    ({"strides": (128, -4096)}, "stride-range", r"global_strides\[1\] = -4096"),
    ({"strides": (128, 1 << 40)}, "stride-range", "1099511627776"),
]


@needs_compiler
@pytest.mark.parametrize(("changes", "rule", "message"), BROKEN)
def test_a_map_that_breaks_a_rule_on_the_device_is_never_used_and_raised_by_check(
    cuda: EmulatedCuda, changes: dict[str, Any], rule: str, message: str
) -> None:
    buffer = DescriptorBuffer(4, target="sm_90a")
    rebind_on_device(buffer, TEMPLATE, *map(Array.of, broken(**changes).values()), 1)
    status = buffer.status.get()
    assert [bool(s) for s in status] == [False, False, True, False]
    assert rule_ids("sm_90a")[status[2] - 1] == rule
    # What is in the slot harms nobody: one element of the buffer's own memory, in boxes of the template's.
    parked = buffer.to_host()[2].decode()
    assert parked.global_address == buffer.refuge_address
    assert parked.global_dim == (1, 1, 1)
    assert (parked.box_dim, parked.data_type) == (TILED.box_dim, TILED.data_type)
    assert parked.violations() == ()
    with pytest.raises(DescriptorError, match=f"slot 2: {rule}: .*{message}"):
        buffer.check()
    buffer.check()
    buffer.write([TEMPLATE], 2)
    assert not buffer.status.get().any()


@pytest.mark.parametrize(("changes", "rule", "message"), BROKEN)
def test_the_same_is_refused_before_the_launch_where_the_host_sees_it(
    cuda: EmulatedCuda, changes: dict[str, Any], rule: str, message: str
) -> None:
    buffer = DescriptorBuffer(4, target="sm_90a")
    with pytest.raises(DescriptorError, match=f"map 1: {rule}: .*{message}"):
        rebind_on_device(buffer, TEMPLATE, *broken(**changes).values())
    assert cuda.launches == []


@needs_compiler
def test_slots_that_hold_no_map_or_another_one_are_refused_on_the_device(cuda: EmulatedCuda) -> None:
    im2col = tma.Im2col(
        data_type="FLOAT16", global_address=1 << 20, global_dim=(64, 9, 9, 2), global_strides=(128, 2048, 32768),
        pixel_box_lower_corner=(0, 0), pixel_box_upper_corner=(0, 0), channels_per_pixel=64, pixels_per_column=16,
    ).encode()
    buffer, two = DescriptorBuffer(4, target="sm_90a"), {"global_dim": (64, 8), "global_strides": (128,)}
    flat = replace(TILED, **two, box_dim=(32, 8), element_strides=(1, 1)).encode()
    buffer.write([TEMPLATE, im2col, flat], 1)
    buffer.changed_by_device(0, 4)  # the host does not know what is in them
    columns = [Array.of(np.repeat(c[:1], 4, 0)) for c in broken().values()]
    rebind_on_device(buffer, None, *columns)
    assert [rule_ids("sm_90a")[s - 1] if s else "" for s in buffer.status.get()] == [
        "empty-slot", "", "host-born", "rank-kept",
    ]  # fmt: skip
    assert buffer.to_host()[2:] == (im2col, flat)
    with pytest.raises(DescriptorError, match="slot 0: empty-slot: the slot holds no map") as caught:
        buffer.check()
    assert "slot 2: host-born" in str(caught.value)
    assert "slot 3: rank-kept" in str(caught.value)


def im2col_map() -> tma.TensorMap:
    return tma.Im2col(
        data_type="FLOAT16", global_address=1 << 20, global_dim=(64, 9, 9), global_strides=(128, 2048),
        pixel_box_lower_corner=(0,), pixel_box_upper_corner=(0,), channels_per_pixel=64, pixels_per_column=16,
    ).encode()


ADDRESSES, EXTENTS, STRIDES = [16, 32], [[64, 9, 2]] * 2, [[128, 4096]] * 2


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((im2col_map(), ADDRESSES, EXTENTS, STRIDES), {}, "the template is an im2col map.*host-born"),
        ((TEMPLATE, ADDRESSES, EXTENTS, STRIDES), {"cta_group": 2}, "paired-CTA map is host-born"),
        ((TEMPLATE, ADDRESSES, EXTENTS, STRIDES), {"cta_group": 3}, "cta_group = 3"),
        ((TEMPLATE, ADDRESSES, EXTENTS, STRIDES), {"cta_group": None}, "cta_group = None"),
        ((bytes(128), ADDRESSES, EXTENTS, STRIDES), {}, "the template is a bytes"),
        ((TEMPLATE, ADDRESSES, [[64, 9]] * 2, STRIDES), {}, "extents has 2 entries .*, and the template has rank 3"),
        ((TEMPLATE, ADDRESSES, EXTENTS, [[128]] * 2), {}, "strides has 1 entry for each map; rank 3"),
        ((TEMPLATE, ADDRESSES, EXTENTS), {}, "strides is missing: rank 3 has 2"),
        ((TEMPLATE, None, EXTENTS, STRIDES), {}, "addresses = None"),
        ((TEMPLATE, [16.5, 2], EXTENTS, STRIDES), {}, "addresses = .*whole numbers"),
        ((TEMPLATE, [float("nan")] * 2, EXTENTS, STRIDES), {}, "whole numbers"),
        ((TEMPLATE, ["a", "b"], EXTENTS, STRIDES), {}, "whole numbers"),
        ((TEMPLATE, [10**30], EXTENTS[:1], STRIDES[:1]), {}, "at most 64 bits"),
        ((TEMPLATE, [[16], [32]], EXTENTS, STRIDES), {}, r"addresses has shape \(2, 1\)"),
        ((TEMPLATE, [16], EXTENTS, STRIDES), {}, "different numbers of maps: addresses has 1, extents has 2"),
        ((TEMPLATE, ADDRESSES, [[64, 9, 2], [1]], STRIDES), {}, "every row as long"),
        ((TEMPLATE, 16, (64, 9, 2), (128, 4096)), {}, "nothing says how many"),
        ((TEMPLATE, Array.of(np.zeros(2, np.float32)), EXTENTS, STRIDES), {}, "addresses is of float32"),
        ((TEMPLATE, Array.of(np.zeros((2, 2), np.int64)), EXTENTS, STRIDES), {}, r"addresses has shape \(2, 2\)"),
        ((None, ADDRESSES, EXTENTS, STRIDES, 2), {}, "slot 2 is an im2col map"),
    ],
)
def test_what_cannot_be_rebound_is_refused_before_anything_is_launched(
    cuda: EmulatedCuda, arguments: Any, options: Any, message: str
) -> None:
    buffer = DescriptorBuffer(4, target="sm_90a")
    buffer[2] = im2col_map()
    with pytest.raises(DescriptorError, match=message):
        rebind_on_device(buffer, *arguments, **options)
    assert cuda.launches == []


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "global_address is missing"),
        ({"box": (16,)}, "parameters have no 'box'"),
        ({"global_address": [16], "data_type": "FLOAT17", "global_dim": (16,), "box_dim": (16,)}, "FLOAT17"),
        ({"global_address": [16], "data_type": 0, "global_dim": (1,) * 6, "box_dim": (16,) * 6}, "1 to 5 dimensions"),
        ({"global_address": [16], "data_type": 0, "global_dim": (16,), "box_dim": (0,)}, "box-range"),
        ({"global_address": [16], "data_type": 0, "global_dim": (16,), "box_dim": (8,)}, "box-inner-multiple"),
        ({"global_address": [16], "data_type": 0, "global_dim": (16,), "box_dim": (16,), "rank": 2}, "rank is"),
        ({"global_address": [16], "data_type": 0, "global_dim": (16,), "box_dim": (16,), "rank": [1]}, "has 5 entries"),
        ([im2col_map().decode()], "im2col map is host-born"),
        ([None], "parameters holds None"),
        (7, "parameters holds 7"),
        (np.zeros(2, [("op", "i4")]), "lack"),
    ],
)
def test_parameters_that_are_none_are_refused(cuda: EmulatedCuda, given: Any, message: str) -> None:
    with pytest.raises(DescriptorError, match=message):
        encode_on_device(DescriptorBuffer(2, target="sm_90a"), given)
    assert cuda.launches == []


def test_too_few_slots_targets_without_replace_and_other_buffers_are_refused(cuda: EmulatedCuda) -> None:
    with pytest.raises(SlotError, match="2 maps from slot 1 on; the buffer has 2 slots"):
        rebind_on_device(DescriptorBuffer(2, target="sm_90a"), TEMPLATE, ADDRESSES, EXTENTS, STRIDES, 1)
    with pytest.raises(TargetError, match=r"tensormap\.replace"):
        rebind_on_device(DescriptorBuffer(2, target="sm_90"), TEMPLATE, ADDRESSES, EXTENTS, STRIDES)
    with pytest.raises(DescriptorError, match="a DescriptorBuffer is needed"):
        rebind_on_device([], TEMPLATE, ADDRESSES, EXTENTS, STRIDES)  # type: ignore[arg-type]
    for scope in ("cta", "cluster", None, 3):
        with pytest.raises(DescriptorError, match="release_scope = "):
            DescriptorBuffer(2, target="sm_90a", release_scope=scope)  # type: ignore[arg-type]
    assert encode_on_device(DescriptorBuffer(2, target="sm_90a"), []).status.get().tolist() == [0, 0]


def test_every_error_is_one_of_the_packages() -> None:
    assert issubclass(DescriptorError, CupytmaError)
    assert issubclass(SlotError, IndexError)


@needs_compiler
def test_rows_of_the_host_live_as_long_as_a_graph_that_uploads_them(
    cuda: EmulatedCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    buffer = DescriptorBuffer(2, target="sm_90a")
    rows = {"global_address": [1 << 20, 1 << 21], "global_dim": [[256], [512]]}
    streams = CapturedStreams(monkeypatch, cuda.module.cuda)
    streams.begin(7)
    encode_on_device(buffer, {"data_type": "UINT8", "box_dim": (64,), **rows}, stream=7)
    held = [entry.get().tolist() for entry in buffer._staging._captured if isinstance(entry, Array)]
    assert held == list(rows.values())
    streams.end(7)
    encode_on_device(buffer, {"data_type": "UINT8", "box_dim": (64,), **rows}, stream=7)
    assert len([entry for entry in buffer._staging._captured if isinstance(entry, Array)]) == 2
