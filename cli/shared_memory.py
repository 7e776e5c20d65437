"""Shared memory after a copy, as a hex dump and as a table of elements, each with where it came from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .simulation import Copy, Operation, tile_values

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Int64 = npt.NDArray[np.int64]

_LINE_LENGTHS = (16, 8, 4)
_PLAIN = 1e-4, 1e16  # numbers that are written without an exponent
_NOTHING = ".."  # bytes that the copy leaves as they were


def hex_lines(copy: Copy, operation: Operation, width: int) -> Iterator[str]:
    """Lines of a hex dump: the byte, 16 or fewer of them, and the coordinates of the element that is first.

    Parameters
    ----------
    copy : Copy
    operation : Operation
    width : int
        Characters that a line may have.
    """
    import numpy as np

    assert copy.tile is not None
    assert copy.shared is not None
    assert copy.places is not None
    entry = np.full(copy.shared.size, -1, np.int64)
    entry[copy.places] = np.arange(len(copy.places))[:, None]
    origins = [_origin(copy, number) for number in range(len(copy.places))]
    longest = max(map(len, origins))
    digits = max(4, len(f"{copy.shared.size - 1:x}"))
    length = next((n for n in _LINE_LENGTHS if digits + 3 + 3 * n + longest <= width), _LINE_LENGTHS[-1])
    for first in range(operation.shared_offset, copy.shared.size, length):
        held = entry[first : first + length]
        data = " ".join(
            f"{byte:02x}" if number >= 0 else _NOTHING
            for byte, number in zip(copy.shared[first : first + length].tolist(), held.tolist(), strict=True)
        )
        known = held[held >= 0]
        yield f"{first:0{digits}x}  {data:<{3 * length}} {origins[known[0]] if len(known) else ''}".rstrip()


def element_rows(copy: Copy, operation: Operation) -> Iterator[tuple[str, ...]]:
    """Rows of a table, in the order of shared memory: the byte, the value, its coordinates, its global address."""
    import numpy as np

    assert copy.tile is not None
    order = np.argsort(copy.tile.shared_byte, kind="stable")
    values = _texts(copy, operation)
    for number in order.tolist():
        address = int(copy.tile.global_address[number])
        yield (
            str(int(copy.tile.shared_byte[number])), values(number), _origin(copy, number, mark=False),
            f"{address:#x}" if copy.tile.inside[number] else "out of bounds",
        )  # fmt: skip


def _texts(copy: Copy, operation: Operation) -> Any:
    """A function from the number of an entry to its value: one element, or the bytes of a slice or of packed ones."""
    assert copy.tile is not None
    assert copy.places is not None
    if copy.tile.unit_elements == 1:
        values = tile_values(copy, operation).reshape(-1)
        return lambda number: _text(values[number])
    assert copy.shared is not None
    data = copy.shared[copy.places]
    return lambda number: bytes(data[number]).hex()


def _text(value: Any) -> str:
    """A number with as many digits as tell it from its neighbours."""
    import numpy as np

    if value.dtype.kind in "iu":
        return str(value)
    number = value if value.dtype.kind == "f" else np.float32(value)
    plain = not number or _PLAIN[0] <= abs(float(number)) < _PLAIN[1]
    return str((np.format_float_positional if plain else np.format_float_scientific)(number, trim="-"))


def _origin(copy: Copy, number: int, mark: bool = True) -> str:
    assert copy.tile is not None
    where = ",".join(map(str, copy.tile.coordinates[number].tolist()))
    return where if copy.tile.inside[number] or not mark else f"{where} out"


def plain_values(array: npt.NDArray[Any]) -> Any:
    """Nested lists of numbers for JSON, which has no NaN and no infinity: these are strings."""
    import numpy as np

    if array.dtype.kind in "iub":
        return array.tolist()
    numbers = array.astype(np.float64)
    finite = np.isfinite(numbers)
    if finite.all():
        return numbers.tolist()
    listed = numbers.astype(object)
    listed[~finite] = [str(number) for number in numbers[~finite]]
    return listed.tolist()
