"""On a GPU: maps made by kernels are the host's, those that break a rule harm nobody, and no stale map is used."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import stress
from device_examples import BOX, SEED, compiled, described, expected
from test_encoding import TEMPLATE, rebound

import cupytma as tma
from cupytma.errors import DescriptorError
from cupytma.runtime.device_rules import rule_ids
from cupytma.tensormap.random_records import random_records
from cupytma.tensormap.records import encode_records

pytestmark = pytest.mark.gpu
LIVE = 64


def live_bytes(buffer: tma.DescriptorBuffer) -> np.ndarray:
    """What the hardware reads of every slot."""
    return np.frombuffer(
        b"".join(bytes(held)[:LIVE] if held else bytes(LIVE) for held in buffer.to_host()), np.uint8
    ).reshape(-1, LIVE)


def device_columns(records: np.ndarray) -> dict[str, Any]:
    import cupy

    names = {
        "global_address": ("addr", "u8"), "rank": ("rank", "i4"), "data_type": ("dtype", "i4"),
        "interleave": ("interleave", "i4"), "swizzle": ("swizzle", "i4"), "l2_promotion": ("l2", "i4"),
        "oob_fill": ("oob", "i4"), "global_dim": ("dims", "u8"), "global_strides": ("strides", "u8"),
        "box_dim": ("box", "u4"), "element_strides": ("estr", "u4"),
    }  # fmt: skip
    return {name: cupy.asarray(records[field].astype(kind)) for name, (field, kind) in names.items()}


def test_ten_thousand_random_parameters_give_the_hosts_first_64_bytes() -> None:
    records = random_records(16000, seed=11, modes=("tiled",))
    target = tma.runtime.current_target()
    status, payload = encode_records(records, target)
    wanted = (status == 0) & (records["addr"] != 0)
    assert wanted.sum() >= 10000
    buffer = tma.DescriptorBuffer(len(records))
    tma.encode_on_device(buffer, device_columns(records))
    np.testing.assert_array_equal(buffer.status.get() == 0, wanted)
    np.testing.assert_array_equal(live_bytes(buffer)[wanted], payload[wanted, :LIVE])
    with pytest.raises(DescriptorError, match="more"):
        buffer.check()
    buffer.check()


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("n", [1, 3, 5000])
def test_rebound_maps_are_what_the_host_makes_of_the_template(own: bool, n: int) -> None:
    import cupy

    addresses, extents, strides = rebound(n, seed=n)
    buffer = tma.DescriptorBuffer(n)
    if own:
        buffer.write([TEMPLATE] * n)
    tma.rebind_on_device(buffer, None if own else TEMPLATE, *map(cupy.asarray, (addresses, extents, strides)))
    wanted = tuple(
        TEMPLATE.rebind(a, extents=e, strides=s)
        for a, e, s in zip(addresses.tolist(), extents.tolist(), strides.tolist(), strict=True)
    )
    assert buffer.to_host() == wanted
    buffer.check()


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("addresses", 0, "null-address"), ("addresses", 0x7F0000000008, "address-alignment"),
        ("addresses", 1 << 57, "address-range"), ("extents", (64, 0), "dim-range"), ("extents", (-1, 64), "dim-range"),
        ("strides", (1022,), "stride-alignment"), ("strides", (-256,), "stride-range"),
    ],
)  # fmt: skip
def test_a_map_that_breaks_a_rule_is_raised_and_its_slot_harms_nobody(name: str, value: Any, rule: str) -> None:
    import cupy

    template = tma.Tiled(
        data_type="FLOAT32", global_address=0, global_dim=(64, 64), global_strides=(256,), box_dim=BOX[::-1]
    ).encode()
    array, out = cupy.full((64, 64), 5, cupy.float32), cupy.full((3, *BOX), -1, cupy.float32)
    columns = {"addresses": [array.data.ptr] * 3, "extents": [(64, 64)] * 3, "strides": [(256,)] * 3}
    columns[name][1] = value
    buffer = tma.DescriptorBuffer(3)
    tma.rebind_on_device(buffer, template, *(cupy.asarray(np.array(c, np.int64)) for c in columns.values()))
    status = buffer.status.get()
    assert status.astype(bool).tolist() == [False, True, False]
    assert rule_ids(str(buffer.target))[status[1] - 1] == rule
    compiled().kernel("consume_tile")(3, 64, (buffer, 0, 8, out))  # it does not look at the status
    with pytest.raises(DescriptorError, match=f"slot 1: {rule}: "):
        buffer.check()
    assert [float(tile.min()) for tile in out] == [float(tile.max()) for tile in out] == [5, 0, 5]


@pytest.mark.parametrize("one_kernel", [False, True])
@pytest.mark.parametrize(("x", "y"), [(0, 0), (8, 5), (-4, 30), (36, -7)])
def test_every_matrix_is_read_through_its_own_map(one_kernel: bool, x: int, y: int) -> None:
    import cupy

    random, module, n = np.random.default_rng(3), compiled(), 200
    arrays = []
    for _ in range(n):
        rows, columns = (int(k) for k in random.integers(1, 40, 2))
        arrays.append(cupy.asarray(random.random((rows, -(-columns // 4) * 4), dtype=np.float32))[:, :columns])
    given, slots = cupy.asarray(described(arrays)), tma.DescriptorBuffer(n)
    out = cupy.full((n, *BOX), -1, cupy.float32)
    if one_kernel:
        module.kernel("encode_and_consume")(n, 64, (SEED, given, slots, x, y, out))
    else:
        made = tma.DescriptorBuffer(1)
        module.kernel("make_template")(1, 32, (SEED, made))
        module.kernel("encode_maps_of_matrices")(n, 32, (made, given, slots))
        module.kernel("consume_tile")(n, 64, (slots, x, y, out))
    tma.runtime.synchronize()
    for i, array in enumerate(arrays):
        np.testing.assert_array_equal(out[i].get(), expected(array.get(), x, y))
    for held, array in zip(slots.to_host(), arrays, strict=True):
        assert bytes(held)[:LIVE] == bytes(tma.tensor_map(array, BOX))[:LIVE]


def test_a_slot_of_zeros_is_a_template_on_hopper() -> None:
    import cupy

    if tma.runtime.current_target().name != "sm_90a":
        pytest.skip("documented for sm_90a alone")
    module = tma.compile(
        r"""
        #include <cupytma.cuh>
        namespace maps = cupytma::tensormap;
        extern "C" __global__ void k(const __grid_constant__ maps::Parameters parameters, CUtensorMap* out)
        {
            __shared__ maps::Slot slot;
            maps::zero(slot);
            maps::encode(slot, parameters);
            maps::publish(out, slot);
        }
        """
    )
    array = cupy.zeros((32, 64), cupy.float32)
    parameters = np.zeros(1, [
        ("address", "u8"), ("rank", "u4"), ("element_type", "u4"), ("interleave", "u4"), ("swizzle", "u4"),
        ("atomicity", "u4"), ("fill", "u4"), ("extents", "u4", 5), ("box", "u4", 5), ("steps", "u4", 5),
        ("pad", "u4"), ("strides", "u8", 4),
    ])  # fmt: skip
    row = parameters[0]
    row["address"], row["rank"], row["element_type"], row["swizzle"] = array.data.ptr, 2, 7, 3
    row["extents"][:2], row["box"][:2], row["steps"][:2], row["strides"][0] = (64, 32), (32, 8), (1, 1), 256
    buffer = tma.DescriptorBuffer(1)
    module.kernel("k")(1, 32, (row, buffer))
    wanted = tma.tensor_map(array, (8, 32), swizzle="128B")
    assert bytes(buffer.to_host()[0])[:LIVE] == bytes(wanted)[:LIVE]


@pytest.mark.parametrize("blocks", [1, 2])
def test_ten_thousand_changes_of_each_map_are_all_seen(blocks: int) -> None:
    module = stress.compiled(None, blocks, acquire=True)
    groups = 2 * tma.runtime.multiprocessors() // blocks
    assert stress.stale_reads(module, blocks, groups, 10000) == 0


def test_making_maps_can_be_captured_and_replayed_with_other_parameters() -> None:
    import cupy

    addresses, extents, strides = map(cupy.asarray, rebound(100))
    buffer, stream = tma.DescriptorBuffer(100), cupy.cuda.Stream(non_blocking=True)
    tma.rebind_on_device(buffer, TEMPLATE, addresses, extents, strides, stream=stream)
    with stream:
        stream.begin_capture()
        tma.rebind_on_device(buffer, TEMPLATE, addresses, extents, strides, stream=stream)
        graph = stream.end_capture()
    stream.synchronize()
    addresses += 1 << 20
    cupy.cuda.Device().synchronize()
    graph.launch(stream)
    found = [held.decode().global_address for held in buffer.to_host(stream)]
    assert found == addresses.get().tolist()


def test_rows_of_the_host_are_uploaded_at_every_replay() -> None:
    import cupy

    addresses, extents, strides = rebound(100)
    buffer, stream = tma.DescriptorBuffer(100), cupy.cuda.Stream(non_blocking=True)
    tma.rebind_on_device(buffer, TEMPLATE, addresses, extents, strides, stream=stream)
    stream.synchronize()
    with stream:
        stream.begin_capture()
        tma.rebind_on_device(buffer, TEMPLATE, addresses, extents, strides, stream=stream)
        graph = stream.end_capture()
        others = [cupy.full(1 << size, 7, cupy.uint8) for size in range(9, 16)]  # which may take freed memory
    tma.rebind_on_device(buffer, TEMPLATE, addresses + (1 << 20), extents, strides, stream=stream)
    graph.launch(stream)
    found = [held.decode().global_address for held in buffer.to_host(stream)]
    assert found == addresses.tolist()
    assert all(bool((other == 7).all()) for other in others)
