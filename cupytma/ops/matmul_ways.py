"""The ways of tiling that a matrix product can choose among, and the choice."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from cupytma.ops.matmul_configuration import INSTRUCTION_ROWS, Configuration, problem_with
from cupytma.ops.matmul_cost import cost_of
from cupytma.ops.matmul_operands import Operands

# Ways that were the fastest of some measured product or within 1.5 % of it.
_FEW_ROWS = (
    # The weights' rows, 64 at a time, and as many columns as a has rows. One cluster adds up a tile.
    *(
        Configuration(1, columns, split=split, is_swapped=True, consumers=1)
        for columns in (8, 16, 32, 64, 128)
        for split in (1, 2)
    ),
    # With static_b: the next product's blocks have room beside this one's, and load.
    *(
        Configuration(1, columns, split=split, is_swapped=True, consumers=1, resident=resident)
        for columns, split, resident in (
            (8, 3, 2), (16, 3, 2), (32, 3, 2), (16, 2, 3), (8, 4, 3), (8, 8, 3), (16, 8, 3),
        )
    ),
    # Many weights: 128 of their rows at a time.
    *(
        Configuration(1, columns, split=split, is_swapped=True, resident=resident)
        for columns, split, resident in ((8, 1, 1), (8, 3, 2), (8, 4, 2))
    ),
)  # fmt: skip
# Small tiles, so that there is one for each multiprocessor, of 64 or 128 rows of a.
_SOME_ROWS = tuple(Configuration(rows, columns, consumers=1) for rows, columns in ((1, 32), (1, 64), (2, 64)))
_MANY_ROWS = (
    # 128 or 256 rows: the most products for each byte from shared memory, and with promotion what registers hold.
    *(Configuration(1, columns) for columns in (64, 112, 128, 176, 192, 256)),
    *(Configuration(2, columns) for columns in (112, 128)),
    # Pairs that load for one another.
    Configuration(1, 112, 2, consumers=1),
    *(Configuration(1, columns, 2) for columns in (128, 192, 224)),
    Configuration(1, 192, 2, is_swapped=True),
    # Several tiles of a short K for each block: one is written while the next is multiplied.
    *(
        Configuration(2, columns, *pair, is_ping_pong=True)
        for columns, pair in (
            (64, (1, 1)), (112, (1, 1)), (112, (2, 1)), (128, (1, 1)), (128, (2, 1)), (128, (1, 2)),
        )
    ),
    *(Configuration(rows, 128, is_swapped=True) for rows in (1, 2)),  # one wave of weights' rows
)
CONFIGURATIONS = _SOME_ROWS + _FEW_ROWS + _MANY_ROWS
# Row blocks, consumers and whether swapped, of tiles that are as wide as fills one wave or a few.
_FITTED = ((1, 1, False), (1, 2, False), (2, 1, False), (1, 1, True), (1, 2, True))
_FITTED_WAVES = 2
# Parts of a's rows that are the columns of a tile each, and blocks that K is split among.
_FITTED_FEW = ((1, 1), (1, 2), (1, 3), (2, 1), (2, 2))
# Parts of a's rows again, of which two blocks have neighbours, and share the loads of b; and their consumers.
_FITTED_PAIRS = ((2, 1), (2, 2), (4, 1), (4, 2))

_MOST_HEIGHT = 2 * INSTRUCTION_ROWS  # of b's rows, that two warpgroups multiply


def _fitted(operands: Operands, is_promoted: bool, multiprocessors: int) -> Iterator[Configuration]:
    """Ways that are as wide as a product asks for.

    So wide that tiles of one wave, or two, are as many as the multiprocessors; or as a has rows, or half of them. Or so
    high that each multiprocessor gets as many of b's rows: where one has more of them than another, and most of all
    where one of the two that share a way to L2 has none, it goes on loading while others have ended (measured).
    """
    for row_blocks, consumers, is_swapped in _FITTED:
        rows, columns = (operands.n, operands.m) if is_swapped else (operands.m, operands.n)
        row_tiles = -(-rows // (row_blocks * consumers * INSTRUCTION_ROWS))
        for waves in range(1, _FITTED_WAVES + 1):
            if at_once := multiprocessors * waves // max(1, row_tiles):
                way = Configuration(row_blocks, _width(columns, at_once), is_swapped=is_swapped, consumers=consumers)
                if is_promoted and way.stage_sums == 1 and way.promoted_parts == 1:
                    way = replace(way, tile_columns=way.tile_columns + 8)  # which two parts take turns in
                yield way
    for tiles, split in _FITTED_FEW:
        yield Configuration(1, _width(operands.m, tiles), split=split, is_swapped=True, consumers=1)
    height = _height(operands.n, multiprocessors)
    consumers = 1 if height <= INSTRUCTION_ROWS else 2
    if spare_rows := consumers * INSTRUCTION_ROWS - height:
        yield Configuration(
            1, _width(operands.m, 1), is_swapped=True, consumers=consumers, spare_rows=spare_rows
        )
    for tiles, consumers in _FITTED_PAIRS:
        yield Configuration(1, _width(operands.m, tiles), 1, 2, is_swapped=True, consumers=consumers)


def _height(rows: int, multiprocessors: int) -> int:
    """Of tiles that as few waves as can be have equal parts of the rows: a multiple of eight, of at most 128."""
    waves = max(1, -(-rows // (_MOST_HEIGHT * multiprocessors)))
    return 8 * max(1, -(-rows // (8 * waves * multiprocessors)))


def _width(columns: int, tiles: int) -> int:
    """Of so many tiles for so many columns: a multiple of eight."""
    return 8 * max(1, -(-columns // (8 * tiles)))


def possible(
    operands: Operands, is_promoted: bool, most_bytes: int, multiprocessors: int
) -> Iterator[Configuration]:
    """The table's ways of tiling a product, and those that are as wide as it asks for."""
    ways = dict.fromkeys((*CONFIGURATIONS, *_fitted(operands, is_promoted, multiprocessors)))
    return (c for c in ways if not problem_with(c, operands, is_promoted, most_bytes))


def choose(
    operands: Operands, is_promoted: bool, multiprocessors: int, most_bytes: int, is_static: bool = False
) -> Configuration:
    """The cheapest way by the model; of equals the first in the table."""
    return min(
        possible(operands, is_promoted, most_bytes, multiprocessors),
        key=lambda c: cost_of(c, operands, is_promoted, multiprocessors, is_static).ranked_seconds,
    )
