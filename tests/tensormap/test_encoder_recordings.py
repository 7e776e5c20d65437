"""Encoding against the recorded driver: return codes and bytes, scalar and vectorised."""

from __future__ import annotations

import numpy as np
import pytest
from encoder_recordings import parameters_of, recordings

from cupytma.errors import DescriptorError
from cupytma.tensormap import Im2col, TensorMap, encode_records


@pytest.fixture(scope="module")
def rows() -> np.ndarray:
    return recordings()


def test_every_recorded_call_gets_the_drivers_code_and_bytes_vectorised(rows: np.ndarray) -> None:
    status, payload = encode_records(rows)
    np.testing.assert_array_equal(status, rows["rc"])
    accepted = rows["rc"] == 0
    np.testing.assert_array_equal(payload[accepted], rows["bytes"][accepted])
    assert not payload[~accepted].any()
    assert (status.dtype, payload.dtype, payload.shape) == (np.int32, np.uint8, (40_000, 128))


@pytest.mark.parametrize("op", [0, 1, 2], ids=["tiled", "im2col", "im2col_wide"])
def test_every_recorded_call_gets_the_drivers_code_and_bytes_one_by_one(rows: np.ndarray, op: int) -> None:
    for row in rows[rows["op"] == op]:
        parameters = parameters_of(row)
        broken = parameters.violations()
        assert bool(broken) == bool(row["rc"]), (row, broken)
        if broken:
            with pytest.raises(DescriptorError) as caught:
                parameters.encode()
            assert caught.value.violations == broken
            assert all(violation.rule in str(caught.value) for violation in broken)
        else:
            assert bytes(parameters.encode()) == row["bytes"].tobytes()


def test_recorded_maps_decode_to_their_parameters_with_no_bit_unexplained(rows: np.ndarray) -> None:
    accepted = rows[(rows["rc"] == 0)]
    for row in accepted[::3]:
        decoded = TensorMap.from_bytes(row["bytes"])
        assert decoded.reserved_bits == ()
        assert decoded.verified
        parameters = parameters_of(row)
        if row["op"] < 2:
            assert decoded.decode() == parameters
        else:
            assert isinstance(decoded.decode(), Im2col)
            assert decoded.decode().pixel_box_lower_corner[0] == row["lower"][0]
        assert bytes(decoded.decode().encode()) == row["bytes"].tobytes()


def test_rows_in_any_order_and_number_are_encoded_alike(rows: np.ndarray) -> None:
    status, payload = encode_records(rows)
    order = np.random.default_rng(0).permutation(len(rows))[:9999]
    shuffled_status, shuffled_payload = encode_records(rows[order])
    np.testing.assert_array_equal(shuffled_status, status[order])
    np.testing.assert_array_equal(shuffled_payload, payload[order])
    for count in (0, 1, 2):
        assert len(encode_records(rows[:count])[0]) == count


def test_records_without_a_field_or_of_an_unknown_kind_are_refused(rows: np.ndarray) -> None:
    with pytest.raises(DescriptorError, match="lacks pixels"):
        encode_records(rows[[name for name in rows.dtype.names if name != "pixels"]][:5])
    unknown = rows[:5].copy()
    unknown["op"] = 3
    with pytest.raises(DescriptorError, match="op must be"):
        encode_records(unknown)
    with pytest.raises(DescriptorError, match="one-dimensional"):
        encode_records(rows[:4].reshape(2, 2))
