"""Indices out of range, which kernels note for the host to raise."""

from __future__ import annotations

from cupytma.errors import RowIndexError
from cupytma.ops.noted_failures import NotedFailures


def out_of_range(name: str, rows: int, position: int, index: int) -> RowIndexError:
    """The error of one index, given as the bits of a signed number."""
    value = index - 2**64 if index >= 2**63 else index
    return RowIndexError(
        f"{name}: index[{position}] = {value} is out of range: the table has {rows} rows, numbered from 0 (negative "
        "numbers count no rows from the end); its row was left out. Use mode=\"clip\" to take the nearest row instead"
    )


# Of calls, by the function's name and the rows of the table.
_failures: NotedFailures[tuple[str, int]] = NotedFailures(
    lambda call, position, index: out_of_range(*call, position, index)
)
record_address, tag_of, raise_noted = _failures.record_address, _failures.tag_of, _failures.raise_noted


def check_indices() -> None:
    """Wait for the work on every GPU that rows were gathered or scattered on, and raise if an index was out of range.

    `gather_rows`, `scatter_rows` and `scatter_add_rows` return before their kernels have read the index. A kernel that
    meets an index out of range leaves that row out, touches no memory outside its arrays, and notes the place. The next
    call of one of the three on that device raises, without waiting, if the note is there by then, and launches nothing;
    this function waits first. Each note is raised once; of several failures before it is read, one is named. Launches
    of CUDA graphs are noted in the same way.

    Raises
    ------
    RowIndexError
        Naming the call, the place in the index, the index there and the number of rows.
    """
    _failures.check()
