"""The shape of a pipeline's tiles. Everything here is in driver order: dimension 0 moves fastest."""

from __future__ import annotations

from dataclasses import dataclass

from cupytma.errors import PipelineError
from cupytma.limits import MAX_BOX, TILE_ALIGNMENT, UNIT, WARP_THREADS
from cupytma.ops.copy_plan import even

_UNBOUND = 1 << 31
_ROWS_BYTES = 16384  # of a tile with a row for each warp


@dataclass(frozen=True)
class Pieces:
    """What limits the rows of one array's tiles.

    Attributes
    ----------
    itemsize : int
        In bytes.
    pack : int or None
        Elements in one word of the tensor map; None where there is no map.
    """

    itemsize: int
    pack: int | None


@dataclass(frozen=True)
class Shaping:
    """What the shape of tiles depends on.

    Attributes
    ----------
    extents : tuple of int
        Of the arrays.
    pieces : tuple of Pieces
        Of each array.
    each : str
    by_row : bool
        Whether each warp reduces rows of its own.
    threads : int
        Of the consumer.
    """

    extents: tuple[int, ...]
    pieces: tuple[Pieces, ...]
    each: str
    by_row: bool
    threads: int

    @property
    def step(self) -> int:
        """Elements that are a multiple of 16 bytes in every array."""
        return UNIT // min(piece.itemsize for piece in self.pieces)

    @property
    def line(self) -> int:
        """Elements that are a multiple of 128 bytes in every array."""
        return TILE_ALIGNMENT // min(piece.itemsize for piece in self.pieces)

    @property
    def largest(self) -> int:
        """Bytes of the largest element."""
        return max(piece.itemsize for piece in self.pieces)

    @property
    def limit(self) -> int:
        """Elements of a row that one instruction can move of every array."""
        return min((MAX_BOX * piece.pack for piece in self.pieces if piece.pack), default=_UNBOUND)

    def piece(self, inner: int) -> int:
        """Elements of a row of so many that one instruction moves: all, or equal parts; 0 if there are none."""
        if inner <= self.limit:
            return inner
        lines = range(-(-inner // self.limit), inner // self.line + 1)
        return next((inner // n for n in lines if inner % n == 0 and inner // n % self.line == 0), 0)

    @property
    def warps(self) -> int:
        """Of the consumer."""
        return self.threads // WARP_THREADS


def choose_box(shaping: Shaping, tile_bytes: int) -> tuple[int, ...]:
    """A box that fits the arrays; one of few, so that few kernels are compiled."""
    elements = max(shaping.step, tile_bytes // shaping.largest)
    extents = shaping.extents
    if shaping.each == "row":
        return _rows(shaping, elements)
    if len(extents) == 1:
        inner = _stepped(min(extents[0], elements), shaping.step)
        return (inner if inner <= shaping.limit else _in_pieces(inner, shaping),)
    inner = _stepped(even(extents[0], max(shaping.step, min(shaping.limit, elements))), shaping.step)
    if shaping.by_row:  # a row for each warp
        elements = max(elements, inner * shaping.warps)
    return (inner, *_outer(extents[1:], elements // inner))


def _rows(shaping: Shaping, elements: int) -> tuple[int, ...]:
    """Whole rows: one for each warp, if they are short."""
    inner = _stepped(shaping.extents[0], shaping.step)
    if inner > shaping.limit:
        inner = _in_pieces(inner, shaping)
    of_all_warps = inner * shaping.warps
    if of_all_warps * shaping.largest <= _ROWS_BYTES:
        elements = max(elements, of_all_warps)
    return (inner, *_outer(shaping.extents[1:], max(1, elements // inner)))


def _in_pieces(inner: int, shaping: Shaping) -> int:
    """A row of pieces for every array: each a power of two of elements, and a multiple of 128 bytes."""
    piece = 1 << (shaping.limit.bit_length() - 1)
    return -(-inner // piece) * piece


def _outer(extents: tuple[int, ...], room: int) -> tuple[int, ...]:
    box = []
    for extent in extents:
        most = max(1, min(MAX_BOX, room))
        box.append(min(1 << (most.bit_length() - 1), 1 << (extent - 1).bit_length()))
        room //= box[-1]
    return tuple(box)


def _stepped(count: int, step: int) -> int:
    """The least multiple of a step that holds a count, with no more than three significant binary digits."""
    steps = -(-count // step)
    shift = max(0, steps.bit_length() - 3)
    return (-(-steps >> shift) << shift) * step


def given_box(shaping: Shaping, box: tuple[int, ...]) -> tuple[int, ...]:
    """A caller's box, checked.

    Raises
    ------
    PipelineError
        Naming the rule that it breaks.
    """
    shown = box[::-1]
    if box[0] % shaping.step:
        raise PipelineError(
            f"box = {shown}: its last extent must be a multiple of {shaping.step} elements, 16 bytes in every array; "
            f"the next is {-(-box[0] // shaping.step) * shaping.step}"
        )
    if any(extent > MAX_BOX for extent in box[1:]):
        raise PipelineError(f"box = {shown}: all extents but the last are {MAX_BOX} at most, as those of a tensor map")
    if not shaping.piece(box[0]):
        raise PipelineError(
            f"box = {shown}: a row longer than the {shaping.limit} elements that one instruction moves is loaded in "
            f"pieces of equal length, multiples of {shaping.line} elements: use {_in_pieces(box[0], shaping)}"
        )
    if shaping.each == "row" and box[0] < shaping.extents[0]:
        raise PipelineError(
            f"box = {shown}: with each='row' a tile holds whole rows, which have {shaping.extents[0]} elements"
        )
    return box

