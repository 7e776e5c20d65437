"""The driver's encoders: against a stand-in everywhere, against the real one where there is a GPU."""

from __future__ import annotations

import re
import sys
from collections import Counter
from typing import Any

import numpy as np
import pytest
from fake_driver import FakeDriver, by_the_rules

from cupytma import DescriptorError, Im2col, Im2colWide, LaunchError, NoDeviceError, Tiled
from cupytma.tensormap import driver
from cupytma.tensormap.driver import DriverError, driver_context, encode, verify_against_driver
from cupytma.tensormap.driver_comparison import driver_records, parameters_of
from cupytma.tensormap.random_records import random_records
from cupytma.tensormap.records import encode_records
from cupytma.tensormap.rules import RULES

TILED = Tiled(
    data_type="BFLOAT16", global_address=0xA9BDCD0000, global_dim=(128, 415, 2, 1), global_strides=(2048, 1024, 0),
    box_dim=(64, 128, 1, 1), swizzle="128B", l2_promotion="L2_128B",
)
IMAGE: dict[str, Any] = {
    "data_type": "FLOAT16", "global_address": 1 << 40, "global_dim": (64, 56, 56, 32), "channels_per_pixel": 64,
    "pixels_per_column": 128, "swizzle": "128B",
}
IM2COL = Im2col(pixel_box_lower_corner=(-1, -2), pixel_box_upper_corner=(-3, 1), **IMAGE)
WIDE = Im2colWide(pixel_box_lower_corner_width=-1, pixel_box_upper_corner_width=-2, mode="W128", **IMAGE)
KINDS = pytest.mark.parametrize("parameters", [TILED, IM2COL, WIDE], ids=lambda p: p.kind)
STICKY = (700, 702, 709, 710, 714, 715, 716, 717, 718, 719)


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Any:
    def install(**options: Any) -> FakeDriver:
        fake = FakeDriver(**options)
        monkeypatch.setattr(driver, "_bindings", lambda: fake)
        return fake

    return install


def answering(code: int) -> Any:
    return lambda record: (code, b"")


@KINDS
def test_every_operand_reaches_the_driver_and_its_bytes_come_back(use: Any, parameters: Any) -> None:
    use()
    assert encode(parameters) == parameters.encode()


@pytest.mark.parametrize(("kind", "name"), [("tiled", "Tiled"), ("im2col", "Im2col"), ("im2col_wide", "Im2colWide")])
def test_arguments_are_in_the_order_of_the_drivers_signature(kind: str, name: str) -> None:
    bindings = pytest.importorskip("cuda.bindings.driver")
    signature = getattr(bindings, f"cuTensorMapEncode{name}").__doc__.split("\n")[0]
    # Without the annotations, which have commas in brackets, each argument ends in its name.
    plain = re.sub(r": *[^,()\[]*(\[[^()]*?\]+)?(?=[,)])", "", signature.split("(", 1)[1].rstrip(")") + ",")
    declared = [argument.split()[-1] for argument in plain.split(",") if argument.strip()]
    renamed = {"tensor_data_type": "data_type", "tensor_rank": "rank", "mode": "wide_mode"}
    snake = [re.sub(r"(?<=[a-z0-9])[A-Z]", lambda m: f"_{m[0]}", word).lower() for word in declared]
    assert tuple(renamed.get(word, word) for word in snake) == driver.ARGUMENTS[kind]


def test_many_rows_reach_the_driver_as_they_are(use: Any) -> None:
    use(current=5)
    records = random_records(3000, seed=11)
    with driver_context() as encoders:
        status, payload = driver_records(encoders, records)
    expected = encode_records(records)
    np.testing.assert_array_equal(status, expected[0])
    np.testing.assert_array_equal(payload, expected[1])


def test_without_a_context_the_primary_one_is_used_and_given_back(use: Any) -> None:
    fake = use()
    encode(TILED)
    assert fake.log[:5] == ["cuInit", "cuCtxGetCurrent", "cuDeviceGet", "cuDevicePrimaryCtxRetain", "cuCtxPushCurrent"]
    assert (fake.contexts, fake.retained) == ([], 0)


def test_a_current_context_is_borrowed_and_left_alone(use: Any) -> None:
    fake = use(current=123)
    encode(TILED)
    assert fake.contexts == [123]
    assert not {"cuCtxPushCurrent", "cuCtxPopCurrent", "cuDevicePrimaryCtxRetain"} & set(fake.log)


def test_one_context_serves_many_calls(use: Any) -> None:
    fake = use()
    with driver_context():
        encode(TILED)
        encode(TILED)
    assert fake.log.count("cuDevicePrimaryCtxRetain") == 1
    assert (fake.contexts, fake.retained) == ([], 0)


@pytest.mark.parametrize(
    "failing",
    [{"answer": answering(700)}, {"answer": answering(1)}, {"cuCtxPushCurrent": 719}, {"cuGetProcAddress": 500}],
)
def test_the_context_is_given_back_after_a_failure(use: Any, failing: dict[str, Any]) -> None:
    fake = use(**failing)
    with pytest.raises((LaunchError, DescriptorError)):
        encode(TILED)
    assert (fake.contexts, fake.retained) == ([], 0)


@pytest.mark.parametrize("code", STICKY)
@pytest.mark.parametrize("where", ["answer", "cuCtxGetCurrent", "cuDevicePrimaryCtxRetain", "cuCtxPushCurrent"])
def test_an_earlier_kernels_fault_is_not_blamed_on_the_parameters(use: Any, code: int, where: str) -> None:
    use(**{where: answering(code) if where == "answer" else code})
    with pytest.raises(DriverError) as caught:
        encode(TILED)
    text = str(caught.value)
    assert caught.value.code == code
    assert str(code) in text
    assert "a kernel launched earlier in this process failed" in text
    assert "Nothing is wrong with these parameters" in text
    assert isinstance(caught.value, LaunchError)


def test_an_earlier_kernels_fault_does_not_hide_broken_rules(use: Any) -> None:
    use(answer=answering(716))
    with pytest.raises(DriverError, match=r"kernel launched earlier(?s:.*)the parameters are illegal.*box-range"):
        encode(Tiled(data_type="UINT8", global_address=16, global_dim=(1024,), box_dim=(512,)))


def test_a_refusal_names_the_broken_rules_of_the_device(use: Any) -> None:
    use()
    with pytest.raises(DescriptorError) as caught:
        encode(Tiled(data_type="UINT8", global_address=8, global_dim=(1024,), box_dim=(512,)))
    assert [v.rule for v in caught.value.violations] == ["address-alignment", "box-range"]
    use(capability=(10, 0), answer=answering(1))
    with pytest.raises(DescriptorError, match="break no rule known for sm_100a"):
        encode(Tiled(data_type="FLOAT32", global_address=16, global_dim=(1024,), box_dim=(32,), swizzle=4))


def test_a_refusal_that_no_rule_explains_says_that_rules_and_driver_differ(use: Any) -> None:
    use(answer=answering(1))
    with pytest.raises(DescriptorError, match="break no rule known for sm_90a: this driver and the rules differ"):
        encode(TILED)


@pytest.mark.parametrize("code", [2, 3, 4, 46, 201, 801, 803, 999, 12345])
def test_other_answers_are_named_and_the_rules_still_heard(use: Any, code: int) -> None:
    use(answer=answering(code))
    with pytest.raises(DriverError, match=rf"answered {code} \((CUDA_ERROR|CUresult).*Nothing is wrong with these"):
        encode(TILED)


@pytest.mark.parametrize("code", [34, 100, 101])
def test_without_a_device_the_error_names_the_way_without_one(use: Any, code: int) -> None:
    use(cuInit=code)
    with pytest.raises(NoDeviceError, match=r"encode\(\) makes the same bytes"):
        encode(TILED)


def test_devices_without_the_unit_are_named(use: Any) -> None:
    use(capability=(8, 9), answer=answering(801))
    with pytest.raises(NoDeviceError, match=r"compute capability 8\.9"):
        encode(TILED)


def test_devices_newer_than_the_targets_known_are_taken_for_the_newest(use: Any) -> None:
    use(capability=(13, 7), current=1)
    with driver_context() as encoders:
        assert encoders.target().compute_capability == (12, 1)


def test_without_cuda_python_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    with pytest.raises(NoDeviceError, match=r"pip install 'cupytma\[cuda12\]'"):
        encode(TILED)


def test_without_a_driver_the_bindings_error_is_explained(use: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = use()

    def missing(flags: int) -> None:
        raise RuntimeError("libcuda.so.1 not found")

    monkeypatch.setattr(fake, "cuInit", missing, raising=False)
    with pytest.raises(NoDeviceError, match=r"no NVIDIA driver on this machine \(libcuda.so.1 not found\)"):
        encode(TILED)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"box_dim": (64, (1 << 32) + 128)}, r"box_dim\[1\] = 4294967424 does not fit"),
        ({"global_strides": (-256,)}, r"global_strides\[0\] = -256 does not fit"),
        ({"global_address": -16}, "global_address = -16 does not fit"),
        ({"global_address": 1 << 64}, "global_address = 18446744073709551616 does not fit"),
        ({"swizzle": 1 << 32}, "swizzle = 4294967296 does not fit"),
    ],
)
def test_values_that_would_reach_the_driver_as_others_are_not_sent(
    use: Any, changes: dict[str, Any], message: str
) -> None:
    fake = use()
    given = {"data_type": "UINT8", "global_address": 1 << 40, "global_dim": (64, 64), "box_dim": (64, 64)}
    with pytest.raises(DescriptorError, match=message) as caught:
        encode(Tiled(**{**given, **changes}))
    assert caught.value.violations
    assert fake.log == []


@pytest.mark.parametrize("number", [-1, 16, 99, 2**31 - 1])
def test_numbers_that_no_enumeration_has_are_refused_and_break_nothing(use: Any, number: int) -> None:
    use()
    with pytest.raises(DescriptorError, match="swizzle"):
        encode(Tiled(data_type="UINT8", global_address=0, global_dim=(64,), box_dim=(16,), swizzle=number))


@pytest.mark.parametrize("rank", [0, 6, 7, 40])
def test_ranks_that_no_map_has_are_refused_and_break_nothing(use: Any, rank: int) -> None:
    use(answer=lambda record: (int(record["rank"][0] not in range(1, 6)), b""))
    with pytest.raises(DescriptorError, match="rank"):
        encode(Tiled(data_type="UINT8", global_address=0, global_dim=(16,) * rank, box_dim=(16,) * rank))


def test_a_driver_without_the_encoder_is_named(use: Any) -> None:
    use(cuGetProcAddress=500)
    with pytest.raises(DriverError, match=r"older than CUDA 12\.0 \(im2col-wide: 12\.8\)"):
        encode(WIDE)


def test_a_driver_that_agrees_everywhere_is_reported_so(use: Any, capsys: pytest.CaptureFixture[str]) -> None:
    use()
    found = verify_against_driver(300, seed=3)
    assert found.ok
    assert found.rows == 300
    assert 0 < found.accepted < 300
    assert "0 of 300 disagree with the driver (CUDA 13.0, sm_90a" in capsys.readouterr().out


def test_disagreements_are_shown_with_their_reason(use: Any, capsys: pytest.CaptureFixture[str]) -> None:
    def odd(record: np.ndarray) -> tuple[int, bytes]:
        """Refuses rank 3, accepts odd addresses, and writes one bit more for FLOAT32."""
        code, data = by_the_rules(record)
        if record["rank"][0] == 3:
            return 1, b""
        if record["addr"][0] % 16:
            return 0, data
        return code, data[:9] + bytes([data[9] | 1 << 7]) + data[10:] if record["dtype"][0] == 7 else data

    use(answer=odd)
    found = verify_against_driver(3000, modes=("tiled",), show=False)
    assert capsys.readouterr().out == ""
    assert not found.ok
    text = str(found)
    assert "no rule is broken" in text
    assert "address-alignment" in {d.difference for d in found.disagreements}
    assert any(d.difference.startswith("w1 0x") and "FLOAT32" in d.parameters for d in found.disagreements)
    assert f"… and {len(found.disagreements) - 20} more" in text
    assert all(d.kind == "tiled" for d in found.disagreements)


def test_a_comparison_ends_at_once_when_the_driver_fails(use: Any) -> None:
    use(answer=answering(700))
    with pytest.raises(DriverError, match="a kernel launched earlier"):
        verify_against_driver(50)


def test_unknown_kinds_are_refused(use: Any) -> None:
    use()
    with pytest.raises(DescriptorError, match="choose from tiled, im2col, im2col_wide"):
        verify_against_driver(10, modes=("gather",))


def test_random_rows_are_the_same_for_the_same_seed_and_of_the_kinds_asked_for() -> None:
    assert (random_records(500, 4) == random_records(500, 4)).all()
    assert not (random_records(500, 4) == random_records(500, 5)).all()
    assert set(random_records(500, 4, ("im2col",))["op"]) == {1}


@pytest.mark.parametrize("kind", ["tiled", "im2col", "im2col_wide"])
def test_random_rows_break_every_rule_alone_and_many_break_none(kind: str) -> None:
    records = random_records(12_000, seed=1, modes=(kind,))
    records = records[records["rank"] <= 5]
    alone: Counter[str] = Counter()
    for record in records:
        broken = {v.rule for v in parameters_of(record).violations()}
        alone[next(iter(broken)) if len(broken) == 1 else str(len(broken))] += 1
    # A rank that is wrong, or an interleave on a low rank, breaks others too or cannot be for every kind.
    coupled = {"rank", "interleave-rank"}
    expected = {r.id for r in RULES if kind in r.modes and r.severity == "error" and r.feature is None} - coupled
    assert {rule for rule in expected if alone[rule] < 2} == set()
    assert len(records) // 3 < alone["0"] < 5 * len(records) // 6


def test_random_rows_stand_on_both_sides_of_the_limits() -> None:
    records = random_records(100_000)
    status, _ = encode_records(records)
    legal = records[status == 0]
    for column, last, first in (("box", 256, 257), ("channels", 256, 272), ("pixels", 1024, 1025), ("estr", 8, 9)):
        assert (legal[column] == last).any(), column
        assert (records[column] == first).any(), column
    read = legal["rank"][:, None] > np.arange(5)
    assert ((legal["dims"] == 2**32) & read).any()
    assert ((legal["strides"] == (1 << 40) - 32) & read[:, 1:]).any()
    assert (legal["addr"] == 2**57 - 16).any()
    assert (records["addr"] == 2**57).any()


@pytest.mark.gpu
def test_the_driver_of_this_machine_agrees_on_100_000_random_parameters() -> None:
    found = verify_against_driver(100_000, seed=0)
    assert found.ok, str(found)
    assert found.seconds < 60


@pytest.mark.gpu
@KINDS
def test_the_driver_of_this_machine_makes_the_same_bytes(parameters: Any) -> None:
    with driver_context() as encoders:
        target = encoders.target()
    assert encode(parameters) == parameters.encode(target)


@pytest.mark.gpu
def test_the_driver_of_this_machine_refuses_what_the_rules_refuse() -> None:
    with pytest.raises(DescriptorError) as caught:
        encode(Tiled(data_type="FLOAT32", global_address=4, global_dim=(64, 64), box_dim=(64, 512), swizzle="128B"))
    assert [v.rule for v in caught.value.violations] == ["address-alignment", "box-range", "box-inner-span"]


@pytest.mark.gpu
@pytest.mark.parametrize("held", [False, True], ids=["without context", "with context"])
def test_the_real_context_is_left_as_it_was_found(held: bool) -> None:
    from cuda.bindings import driver as cuda

    def ask(name: str, *arguments: Any) -> Any:
        code, *value = getattr(cuda, name)(*arguments)
        assert int(code) == 0, name
        return value[0] if value else None

    ask("cuInit", 0)
    taken = []
    while int(ask("cuCtxGetCurrent")):
        taken.append(ask("cuCtxPopCurrent"))
    try:
        device = ask("cuDeviceGet", 0)
        if held:
            ask("cuCtxPushCurrent", ask("cuDevicePrimaryCtxRetain", device))
        before = int(ask("cuCtxGetCurrent"))
        encode(TILED)
        assert int(ask("cuCtxGetCurrent")) == before
        if held:
            ask("cuCtxPopCurrent")
            ask("cuDevicePrimaryCtxRelease", device)
    finally:
        for context in reversed(taken):
            ask("cuCtxPushCurrent", context)
