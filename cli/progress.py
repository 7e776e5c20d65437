"""A bar on a terminal for long work; elsewhere nothing."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

Report = Callable[[int, str], None]
"""Takes how much is done, and what is being done now."""

PATIENCE = 0.5
"""Seconds without a bar of work that is mostly short."""

_LONGEST_LABEL = 32


@contextmanager
def progress_bar(total: int | None, label: str, patience: float = 0.0) -> Iterator[Report]:
    """Show how far some work is, on standard error where that is a terminal. It is gone when the work ends.

    Parameters
    ----------
    total : int or None
        Steps of the work; None where that is not known.
    label : str
        What is done at first.
    patience : float, optional
        Seconds that the work may take before there is a bar, so that short work shows none.

    Yields
    ------
    callable
        To be called with the number of steps that are done and what is done next.
    """
    if sys.stderr is None or not sys.stderr.isatty():
        yield lambda done, now: None
        return
    bar = _Bar(total, label, time.monotonic() + patience)
    if not patience:
        bar(0, label)
    try:
        yield bar
    finally:
        bar.close()


class _Bar:
    """A bar that appears with the first report after its time."""

    def __init__(self, total: int | None, label: str, begin: float) -> None:
        self.total, self.label, self.begin = total, label, begin
        self._progress: Progress | None = None
        self._task: TaskID | None = None

    def __call__(self, done: int, label: str) -> None:
        if self._progress is None:
            if time.monotonic() < self.begin:
                return
            self._progress = _started()
        text = _fitted(label or self.label, min(_LONGEST_LABEL, self._progress.console.width // 2))
        if self._task is None:
            self._task = self._progress.add_task(text, total=self.total, completed=done)
        else:
            self._progress.update(self._task, completed=done, description=text)

    def close(self) -> None:
        if self._progress is not None:
            self._progress.stop()


def _started() -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    # Labels are names of files and cases, in which a bracket is no markup. The bar takes what room there is.
    columns = TextColumn("{task.description}", markup=False), BarColumn(bar_width=None), MofNCompleteColumn()
    progress = Progress(
        *columns, console=Console(file=sys.stderr), transient=True, expand=True, redirect_stdout=False,
        redirect_stderr=False,
    )  # fmt: skip
    progress.start()
    return progress


def _fitted(label: str, width: int) -> str:
    """A label of the same length always, so that the bar stands still; of a long one its end, where files differ."""
    return label.ljust(width) if len(label) <= width else f"…{label[1 - width :]}"
