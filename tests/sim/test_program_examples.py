"""The shipped programs: clean, right to the byte, and each of their synchronisation steps needed."""

from __future__ import annotations

import numpy as np
import pytest

import cupytma as tma
from cupytma.sim import Program, examples

# What leaving a step out breaks. Every named operation of every example has to be here.
FAULTS: dict[str, dict[str, str]] = {
    "read-modify-write": {
        "init fence": "init-not-fenced",
        "init barrier": "init-unordered",
        "announce": "arrival-missing",
        "wait for the load": "tile-not-complete",
        "proxy fence": "proxy-fence",
        "barrier": "unordered",
        "commit": "group-not-committed",
        "wait for the store": "exit-in-flight",
    },
    "prefetch pipeline": {
        "init fence": "init-not-fenced",
        "init barrier": "init-unordered",
        "announce": "arrival-missing",
        "wait for the load": "tile-not-complete",
        "wait for the stage": "source-still-read",
        "proxy fence": "proxy-fence",
        "barrier": "unordered",
        "commit": "group-not-committed",
        "wait for the stores": "exit-in-flight",
    },
    "tile move": {
        "init fence": "init-not-fenced",
        "announce": "arrival-missing",
        "wait for the load": "tile-not-complete",
        "commit": "group-not-committed",
        "wait for the store": "exit-in-flight",
    },
    "template encode": {
        "warp barrier": "unordered",
        "publish": "map-unusable",
        "acquire": "map-not-acquired",
        "barrier": "map-not-acquired",
        "init fence": "init-not-fenced",
        "announce": "arrival-missing",
        "wait for the load": "tile-not-complete",
    },
    "swizzled transpose": {
        "init fence": "init-not-fenced",
        "init barrier": "init-unordered",
        "announce": "arrival-missing",
        "wait for the load": "tile-not-complete",
        "proxy fence": "proxy-fence",
        "barrier": "unordered",
        "commit": "group-not-committed",
        "wait for the store": "exit-in-flight",
    },
    "matrix multiply": {
        "init fence": "init-not-fenced",
        "init barrier": "init-unordered",
        "wait for an empty stage": "refill-unordered",
        "announce": "arrival-missing",
        "wait for a full stage": "tile-not-complete",
        "release the stage": "arrival-missing",
        "proxy fence": "proxy-fence",
        "consumers' barrier": "unordered",
        "commit": "group-not-committed",
        "wait for the store": "exit-in-flight",
    },
    "rebind handshake": {
        "acquire from the host": "map-not-acquired",
        "init fence": "init-not-fenced",
        "announce": "arrival-missing",
        "wait for the load": "map-in-use",
        "release": "map-not-released",
        "tell": "never-changes",
        "be told": "map-in-use",
        "acquire from the changer": "map-not-acquired",
    },
}
STEPS = [(name, step) for name, faults in FAULTS.items() for step in faults]


def arrays_at_start(program: Program) -> dict[str, np.ndarray]:
    return {name: array.read(program.initial[name]) for name, array in program.arrays.items()}


def expected_arrays(name: str, start: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What numpy makes of the same arrays."""
    if name == "read-modify-write":
        return {"data": start["data"] + 1}
    if name == "prefetch pipeline":
        return {"data": start["data"] * 2}
    if name == "tile move":
        return {"moved": start["source"]}
    if name == "template encode":
        return {"tile": start["matrix"][2:6, 4:12]}
    if name == "swizzled transpose":
        return {"transposed": start["matrix"].transpose(1, 0, 2)}
    if name == "matrix multiply":
        return {"c": start["a"] @ start["b"]}
    return {"tiles": np.stack([start["first"], start["second"][:4, :8]])}


def test_the_examples_are_the_ones_that_are_tested() -> None:
    assert list(FAULTS) == list(examples.EXAMPLES)


@pytest.mark.parametrize("name", FAULTS)
def test_an_example_is_clean_and_computes_what_numpy_does(name: str) -> None:
    program = examples.EXAMPLES[name]()
    assert program.name == name
    start = arrays_at_start(program)
    report = program.run(schedules=100)
    assert report.clean, report
    assert not report.order_dependent
    for array, expected in (start | expected_arrays(name, start)).items():
        if array in ("slot", "flag"):  # changed by the handshakes themselves
            continue
        np.testing.assert_array_equal(report.arrays[array], expected, err_msg=array)


def test_the_map_made_on_the_device_is_the_one_the_encoder_makes() -> None:
    program = examples.template_encode()
    made = program.run(schedules=1).arrays["slot"]
    wanted = tma.tensor_map(program.arrays["matrix"], box=(4, 8))
    assert made[:64].tobytes() == bytes(wanted)[:64]  # the rest is bookkeeping that no replacement writes


@pytest.mark.parametrize("name", FAULTS)
def test_every_synchronisation_step_of_an_example_is_tested(name: str) -> None:
    assert set(examples.EXAMPLES[name]().steps) == set(FAULTS[name])


@pytest.mark.parametrize(("name", "step"), STEPS)
def test_without_a_step_the_fault_is_named(name: str, step: str) -> None:
    report = examples.EXAMPLES[name]().without(step).run(schedules=12)
    assert FAULTS[name][step] in report.rules, report


@pytest.mark.parametrize(("name", "step"), STEPS)
def test_without_a_step_no_schedule_is_lucky(name: str, step: str) -> None:
    """The memory model decides, so that one schedule is enough to find that something is wrong."""
    program = examples.EXAMPLES[name]().without(step)
    for seed in range(8):
        assert not program.run(schedules=1, seed=seed).clean


@pytest.mark.parametrize("name", FAULTS)
def test_the_same_seed_gives_the_same_report(name: str) -> None:
    for step in list(FAULTS[name])[1::3]:
        first = examples.EXAMPLES[name]().without(step).run(schedules=4, seed=5)
        assert str(examples.EXAMPLES[name]().without(step).run(schedules=4, seed=5)) == str(first)


def test_different_seeds_give_different_schedules() -> None:
    program = examples.read_modify_write().without("wait for the load")
    results = {program.run(schedules=1, seed=seed).arrays["data"].tobytes() for seed in range(40)}
    assert len(results) > 5
