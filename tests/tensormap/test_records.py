"""Many tensor maps at once: rows of any layout, in any number, like one map after the other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from encoder_recordings import parameters_of

from cupytma.tensormap import encode_records
from cupytma.tensormap.random_records import random_records
from cupytma.tensormap.records import RECORD

PACKED = np.dtype([(name, RECORD[name]) for name in RECORD.names or ()])
FIELDS = {name: RECORD[name] for name in RECORD.names or ()}
LAYOUTS = {
    "packed": PACKED,
    "packed behind one byte": np.dtype([("note", "u1"), *PACKED.descr]),
    "behind a name of 5 characters": np.dtype([("name", "S5"), *FIELDS.items(), ("more", "S131")]),
    "with an object": np.dtype([*FIELDS.items(), ("anything", object)]),
    "with much between the fields": np.dtype([part for n in FIELDS for part in ((n, FIELDS[n]), (f"{n}_", "S99"))]),
    "of the other byte order": PACKED.newbyteorder("S"),
    "all of 64 bits": np.dtype(
        [(n, (np.dtype(f"{f.base.kind if f.base.kind == 'u' else 'i'}8"), f.shape)) for n, f in FIELDS.items()]
    ),
    "in the other order": np.dtype([(name, FIELDS[name]) for name in reversed(FIELDS)]),
    "aligned in the other order": np.dtype([(name, FIELDS[name]) for name in reversed(FIELDS)], align=True),
}


def in_layout(records: np.ndarray, dtype: Any) -> np.ndarray:
    found = np.zeros(len(records), dtype)
    for name in FIELDS:
        found[name] = records[name]
    return found


def assert_alike(given: np.ndarray, wanted: np.ndarray, target: str = "sm_90a") -> None:
    for got, want in zip(encode_records(given, target), encode_records(wanted, target), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("target", ["sm_90a", "sm_100a", "sm_120"])
def test_rows_near_every_limit_get_what_the_scalar_encoder_gives(target: str) -> None:
    records = random_records(3000, seed=17)
    records["dtype"][::3] += np.random.default_rng(0).integers(-1, 5, 1000, dtype=np.int32)
    records["swizzle"][::5] += np.random.default_rng(1).integers(-1, 4, 600, dtype=np.int32)
    status, payload = encode_records(records, target)
    for row, code, data in zip(records, status, payload, strict=True):
        if not 0 <= row["rank"] <= 5:
            assert code == 1
            continue
        parameters = parameters_of(row)
        assert bool(parameters.violations(target)) == bool(code), row
        assert data.tobytes() == (bytes(128) if code else bytes(parameters.encode(target))), row


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_layout_of_the_rows_does_not_matter(layout: str) -> None:
    records = random_records(5000, seed=3)
    assert_alike(in_layout(records, LAYOUTS[layout]), records)


def test_rows_at_any_address_and_step_are_read() -> None:
    records = random_records(1500, seed=4)
    raw = np.zeros(records.nbytes + 3, np.uint8)
    unaligned = raw[3:].view(RECORD)
    unaligned[:] = records
    assert_alike(unaligned, records)
    assert_alike(np.repeat(records, 3)[::3], records)
    assert_alike(records[::-1][::-1], records)
    assert_alike(np.repeat(records[:1], 3), records[[0, 0, 0]])


def test_values_beyond_a_column_of_the_record_are_not_cut_to_fit() -> None:
    records = in_layout(random_records(2000, seed=5), LAYOUTS["all of 64 bits"])
    legal = records[encode_records(records)[0] == 0]
    for name in ("box", "estr", "dtype", "rank", "channels", "pixels", "interleave", "swizzle", "l2", "oob"):
        beyond = legal.copy()
        beyond[name] += np.array(2**32, beyond[name].dtype)
        status, _ = encode_records(beyond)
        ignored = {"box": (0,), "channels": (1, 2), "pixels": (1, 2)}
        assert status[np.isin(beyond["op"], ignored.get(name, (0, 1, 2)))].all(), name


def test_columns_that_hold_one_number_are_encoded_like_columns_of_several() -> None:
    records = random_records(3000, seed=6)
    for kind in (0, 1, 2):
        alike = records[(records["op"] == kind) & (records["rank"] == 3)][:200]
        for name in ("dtype", "interleave", "swizzle", "l2", "oob", "estr"):
            for value in (0, 1, 2, 3, 8, 9, 255, 2**31 - 1):
                changed = alike.copy()
                changed[name] = value
                varied = np.concatenate([changed, alike])
                status, payload = encode_records(changed)
                among, payload_among = encode_records(varied)
                np.testing.assert_array_equal(status, among[: len(changed)])
                np.testing.assert_array_equal(payload, payload_among[: len(changed)])


@pytest.mark.parametrize("count", [1, 511, 512, 513, 8191, 8192, 8193, 16385, 70_001])
def test_any_number_of_rows_is_encoded_like_few(count: int) -> None:
    few = random_records(1000, seed=7)
    status, payload = encode_records(few)
    many_status, many_payload = encode_records(np.resize(few, count))
    np.testing.assert_array_equal(many_status, np.resize(status, count))
    np.testing.assert_array_equal(many_payload, np.resize(payload, (count, 128)))


def test_many_rows_of_one_kind_and_rank_are_encoded_like_few() -> None:
    few = random_records(3000, seed=8, modes=("tiled",))
    few = few[few["rank"] == 4]
    status, payload = encode_records(few)
    many_status, many_payload = encode_records(np.resize(few, 70_000))
    np.testing.assert_array_equal(many_status, np.resize(status, 70_000))
    np.testing.assert_array_equal(many_payload, np.resize(payload, (70_000, 128)))


@pytest.mark.parametrize("target", ["sm_90a", "sm_100a"])
def test_rows_of_one_kind_and_rank_are_encoded_as_among_all_others(target: str) -> None:
    records = random_records(20_000, seed=9)
    status, payload = encode_records(records, target)
    for kind in (0, 1, 2):
        for rank in range(-1, 8):
            alike = (records["op"] == kind) & (records["rank"] == rank)
            alone_status, alone_payload = encode_records(records[alike], target)
            np.testing.assert_array_equal(alone_status, status[alike])
            np.testing.assert_array_equal(alone_payload, payload[alike])


def test_ranks_far_outside_their_range_are_refused_among_others() -> None:
    records = random_records(100, seed=10)
    for rank in (-(2**31), -1, 0, 6, 7, 8, 2**31 - 1):
        records["rank"][::2] = rank
        status, payload = encode_records(records)
        assert status[::2].all()
        assert not payload[::2].any()


def test_the_records_given_are_left_as_they_are() -> None:
    records = random_records(2000, seed=11)
    before = records.copy()
    encode_records(records)
    np.testing.assert_array_equal(records, before)


def test_blocks_of_one_kind_and_rank_leave_nothing_to_those_of_another() -> None:
    few = random_records(4000, seed=12)
    status, payload = encode_records(few)
    order = np.lexsort((-few["rank"], few["op"]))
    order = np.repeat(order, 60)  # whole blocks of one kind and rank, the highest rank first
    many_status, many_payload = encode_records(few[order])
    np.testing.assert_array_equal(many_status, status[order])
    np.testing.assert_array_equal(many_payload, payload[order])
