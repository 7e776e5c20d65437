"""What the recordings leave open about the TMA unit, asked of the GPU at hand: prints a table and saves every answer.

    python tests/golden/record_open_questions.py --out FOLDER

Writes random_cases.npz (fresh random copies, as `cupytma record` makes them), open_questions.npz (copies with the bytes
they worked on; see `save`) and open_questions.json (the answers that are no copies of that kind). Takes two or three
minutes. Each copy that may kill a kernel runs in a process of its own, and no kernel waits for ever.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from open_question_kernels import Row, descriptor_places, im2col_wide, multicasts, prefetches, window_ends
from open_question_trials import SEED, TRIALS, Trial

from cupytma.errors import CupytmaError
from cupytma.record import forms, hardware
from cupytma.record.prediction import disagreements, predict
from cupytma.record.recording import COMPLETED, DIED, Observation, Recording, memory_contents
from cupytma.record.unit import Unit
from cupytma.runtime import current_target

PROCESSES = 8
OUTCOMES = {COMPLETED: "completed", DIED: "DIED", 0: "never completed"}


def run_trial(unit: Unit, trial: Trial) -> Observation:
    memory, source = trial.contents()
    return hardware.observe(unit, trial.case, memory, source=source, target=current_target())


def verdict(trial: Trial, seen: Observation) -> str:
    """The answer in words, with what the simulator says."""
    answer = OUTCOMES[seen.outcome] + (f" ({seen.error.partition(':')[0]})" if seen.error else "")
    try:
        predicted = predict(trial.case, *trial.contents())
    except CupytmaError as error:
        if seen.outcome == COMPLETED and not trial.case.is_load:
            return f"{answer}, {len(seen.changes()[0])} bytes changed; the simulator refuses: {type(error).__name__}"
        return f"{answer}; the simulator refuses: {type(error).__name__}"
    if predicted.outcome != seen.outcome:
        return f"{answer}; THE SIMULATOR {OUTCOMES[predicted.outcome]}"
    if seen.outcome == DIED:
        foretold = seen.error.startswith(predicted.error)
        return f"{answer}, as simulated" if foretold else f"{answer}; THE SIMULATOR {predicted.error}"
    if trial.case.is_load and predicted.transaction_bytes != seen.transaction_bytes:
        return f"{answer}, {seen.transaction_bytes} B counted; THE SIMULATOR {predicted.transaction_bytes} B"
    same = np.array_equal(seen.image, predicted.image)
    if same:
        return f"{answer}, bytes as simulated"
    places, _ = seen.changes() if not trial.case.is_load else (np.empty(0), None)
    return f"{answer}, OTHER BYTES THAN SIMULATED ({len(places) or len(seen.image)} against {len(predicted.image)})"


def save(path: Path, trials: list[Trial], seen: list[Observation], about: dict[str, str]) -> None:
    """A recording's columns, with question, label, and for each case the bytes that replace those of the seed."""
    Recording(tuple(t.case for t in trials), tuple(seen), SEED, about).save(path)
    with np.load(path) as file:
        columns = dict(file)
    columns["questions"] = np.array([t.question for t in trials])
    columns["labels"] = np.array([t.label for t in trials])
    columns["patches"] = np.concatenate([part for t in trials for part in (t.memory, t.tile)])
    columns["patch_bytes"] = np.array([(len(t.memory), len(t.tile)) for t in trials], np.int64)
    np.savez_compressed(path, **columns)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder for the answers")
    parser.add_argument("--cases", type=int, default=1000, help="random copies")
    parser.add_argument("--faults", type=int, default=40, help="random copies that should die")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    target, (memory, source) = current_target(), memory_contents(SEED)
    forms.kernels(target)

    recording = hardware.record_random(arguments.cases, arguments.faults, SEED, processes=PROCESSES)
    recording.save(arguments.out / "random_cases.npz")
    wrong = list(disagreements(recording))
    print(*(f"{name}: {value}" for name, value in recording.about.items()), sep="\n")
    seconds = time.monotonic() - began
    print(f"random copies: {len(recording.cases)}, {len(wrong)} disagree [{seconds:.0f} s]", flush=True)
    print(*wrong[:20], sep="\n")

    local, units = threading.local(), []

    def with_unit(work: Callable[[Unit], Any]) -> Any:
        if not hasattr(local, "unit"):
            local.unit = hardware.new_unit(target, memory, source)
            units.append(local.unit)
        return work(local.unit)

    trials = [trial for ask in TRIALS for trial in ask()]
    with ThreadPoolExecutor(PROCESSES) as pool:
        seen = list(pool.map(lambda trial: with_unit(lambda unit: run_trial(unit, trial)), trials))
        for number, (trial, one) in enumerate(zip(trials, seen, strict=True)):
            if one.outcome == DIED and "THE SIMULATOR" in verdict(trial, one):  # not another process's doing?
                seen[number] = pool.submit(with_unit, lambda unit, trial=trial: run_trial(unit, trial)).result()
        save(arguments.out / "open_questions.npz", trials, seen, recording.about)
        print(f"{len(trials)} copies of open questions [{time.monotonic() - began:.0f} s]", flush=True)
        asks = descriptor_places, prefetches, multicasts, window_ends
        answers = [pool.submit(with_unit, lambda unit, ask=ask: list(ask(unit))) for ask in asks]
        rows: list[Row] = [row for answer in answers for row in answer.result()]
    for unit in units:
        unit.close()
    rows += im2col_wide()
    copies = [(t.question, t.label, verdict(t, s)) for t, s in zip(trials, seen, strict=True)]
    for question, label, answer in sorted((*rows, *copies), key=lambda row: row[0]):
        print(f"{question:<34} {label:<62} {answer}")
    report = {"about": recording.about, "answers": rows}
    (arguments.out / "open_questions.json").write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n")
    print(f"{time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
