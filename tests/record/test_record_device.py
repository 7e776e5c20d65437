"""The recorder at work, from the command to the file, on a device that is the simulator."""

from __future__ import annotations

from pathlib import Path

import pytest

from cupytma import record
from cupytma.record import forms
from cupytma.record.drawing import draw_cases
from cupytma.record.hardware import observe, unit_buffers
from cupytma.record.recording import COMPLETED, DIED, memory_contents
from cupytma.record.unit import Unit
from cupytma.targets import TARGETS

pytest.importorskip("cuda.bindings.nvrtc", reason="needs cuda-python and NVRTC")

DEVICE = Path(__file__).parent / "device"


def test_a_device_that_does_what_the_simulator_does_agrees_with_it(on_simulated_gpu, tmp_path: Path) -> None:
    file = tmp_path / "recording"
    result = on_simulated_gpu("--cases", "60", "--faults", "4", "--seed", "3", "-o", str(file))
    assert result.returncode == 0, result.stdout + result.stderr
    assert "hardware and simulator agree" in result.stdout
    recording = record.read(file)
    assert recording.about["device"] == "Simulator"
    assert recording.about["driver CUDA"] == "13.0"
    assert recording.seed == 3
    outcomes = [seen.outcome for seen in recording.observations]
    assert outcomes == [COMPLETED] * 60 + [DIED] * 4
    assert {seen.error.partition(":")[0] for seen in recording.observations[60:]} <= {
        "cudaErrorIllegalInstruction", "cudaErrorMisalignedAddress",
    }  # fmt: skip
    assert not list(record.disagreements(recording))
    # The same cases and bytes for the same seed, wherever they are drawn.
    assert list(record.disagreements(record.Recording(recording.cases, recording.observations, 4))) != []


@pytest.mark.parametrize(
    ("capability", "kinds"),
    [
        ("100", {"gather loads", "scatter stores", "im2col::w loads", "im2col::w::128 loads"}),
        ("120", {"gather loads", "im2col::w loads"}),
    ],
)
def test_newer_devices_are_asked_for_what_documents_alone_describe(
    on_simulated_gpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capability: str, kinds: set[str]
) -> None:
    monkeypatch.setenv("SIMULATED_GPU_CAPABILITY", capability)
    file = tmp_path / "recording.npz"
    result = on_simulated_gpu("--cases", "120", "--faults", "2", "--seed", "7", "-o", str(file))
    assert result.returncode == 0, result.stdout + result.stderr
    for kind in ("gather loads", "scatter stores", "im2col::w loads", "im2col::w::128 loads"):
        assert (f"  {kind} " in result.stdout) == (kind in kinds)
    recording = record.read(file)
    silent = record.undescribed(recording)
    assert f"{len(silent)} of them are such as no document describes" in result.stdout
    assert not list(record.disagreements(recording))


@pytest.mark.parametrize(
    ("defect", "message"),
    [
        ("byte", "bytes of shared memory differ; the first is byte"),
        ("count", "bytes to the transaction count, the simulator"),
        ("write", "by hardware, "),
        ("death", "the hardware faults (cudaErrorLaunchFailure"),
    ],
)
def test_a_device_that_does_something_else_is_found_out(on_simulated_gpu, tmp_path: Path, defect, message) -> None:
    file = tmp_path / "recording.npz"
    result = on_simulated_gpu("--cases", "12", "--faults", "0", "--seed", "5", "-o", str(file), defect=defect)
    assert result.returncode == 1, result.stdout + result.stderr
    assert message in result.stdout
    assert " copies differ" in result.stdout
    assert message in "\n".join(map(str, record.disagreements(record.read(file))))


def test_a_kernel_that_hangs_is_given_up_and_its_process_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(DEVICE))  # for the child: it inherits the path
    monkeypatch.setenv("SIMULATED_GPU_DEFECT", "hang")
    case, (memory, source) = draw_cases(1, 5)[0], memory_contents(5)
    with Unit(forms.kernels(TARGETS["sm_90a"]), unit_buffers(memory, source), patience=4) as unit:
        seen = observe(unit, case, memory, target=TARGETS["sm_90a"])
        assert (seen.outcome, seen.error) == (DIED, "no answer in 4 s: the kernel hangs")
        monkeypatch.setenv("SIMULATED_GPU_DEFECT", "")
        seen = observe(unit, case, memory, target=TARGETS["sm_90a"])
        assert seen.outcome == COMPLETED
        assert (seen.image == record.predict(case, memory, source).image).all()
