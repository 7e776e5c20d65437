"""Shapes and offsets in device memory that do not fit their arrays, which kernels note for the host to raise."""

from __future__ import annotations

from cupytma.errors import ArrayError
from cupytma.ops.noted_failures import NotedFailures

# What is wrong with a group, by the second word of the note.
_MESSAGES = (
    "shapes[{group}] is not within 0 and the shapes of both arrays: nothing of this pair was touched",
    "offsets[{group}] and offsets[{next}] are not in order, not within the ragged array, or further apart than the "
    "padded array has rows: nothing of this sequence was touched",
)


def _misfit(name: str, group: int, what: int) -> ArrayError:
    return ArrayError(f"{name}: {_MESSAGES[what].format(group=group, next=group + 1)}")


_failures: NotedFailures[str] = NotedFailures(_misfit)
record_address, tag_of, raise_noted = _failures.record_address, _failures.tag_of, _failures.raise_noted


def check_groups() -> None:
    """Wait for grouped work on every GPU, and raise if shapes or offsets in device memory did not fit their arrays.

    `grouped_copy`, `grouped_transpose`, `ragged_gather` and `ragged_scatter` return before their kernels have read
    shapes or offsets that are in device memory. A kernel that meets one that does not fit leaves the whole group out
    and notes it. The next call of one of them on that device raises, without waiting, if the note is there by then, and
    launches nothing; this function waits first. Each note is raised once; of several failures, one is named.

    Raises
    ------
    ArrayError
        Naming the call and the group.
    """
    _failures.check()
