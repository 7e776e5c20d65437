"""Tensor copies between global and shared memory: loads, stores, reductions and prefetches.

Source of every row: PTX ISA, "cp.async.bulk.tensor", "cp.reduce.async.bulk.tensor" and "cp.async.bulk.prefetch.tensor".
"""

from __future__ import annotations

from cupytma.ptx import operands
from cupytma.ptx.checks import checked_flag, checked_integer
from cupytma.ptx.family import Argument, Choice, Clash, Family, Note, Requirement, Word, Words, flag, given
from cupytma.ptx.instruction import Instruction
from cupytma.ptx.reductions import REDUCTIONS, check_reduction
from cupytma.targets import Feature

GATHER4, SCATTER4 = "tile::gather4", "tile::scatter4"
_WIDE = ("im2col::w", "im2col::w::128")
_SECTION = "Data Movement and Conversion Instructions: "
_RANK = Word("rank", tuple(Choice(rank, f"{rank}d", f"_{rank}d") for rank in range(1, 6)))
_CACHE_HINT = flag("cache_hint", ".L2::cache_hint")
_DESTINATIONS = ("shared::cluster", "shared::cta")


def _modes(*modes: str) -> Word:
    """The load or store modes; the tile mode is left out of function names."""
    choices = (Choice(m, m, "" if m == "tile" else "_" + m.removeprefix("tile::").replace("::", "_")) for m in modes)
    return Word("mode", tuple(choices))


def _rank(words: Words) -> int:
    rank = words["rank"]
    assert isinstance(rank, int)
    return rank


_LOAD_MODES = _modes("tile", GATHER4, "im2col", *_WIDE)
_FOUR_ROWS = (GATHER4, SCATTER4)
_OTHER_MODES = ("tile", "im2col", "im2col_no_offs", *_WIDE)
_COORDINATES = (
    Argument("[%, {%*}]", (operands.tensor_map(), operands.COORDINATE), given(mode=_OTHER_MODES), _rank),
    Argument("[%, {%*}]", (operands.tensor_map(), operands.GATHERED_COORDINATE), given(mode=_FOUR_ROWS), lambda _: 5),
)
_OFFSETS = (
    Argument("{%*}", (operands.IM2COL_OFFSET,), given(mode="im2col"), lambda words: _rank(words) - 2),
    Argument("{%, %}", (operands.IM2COL_HALO, operands.IM2COL_SHIFT), given(mode=_WIDE)),
)
_CACHE_POLICY = Argument("%", (operands.CACHE_POLICY,), given(cache_hint=True))
_RANK_CLASHES = (
    Clash(
        given(mode=("im2col", "im2col_no_offs", *_WIDE), rank=(1, 2)),
        "rank={rank} clashes with mode={mode!r}, whose tensors have channels, batch and 1 to 3 spatial dimensions; "
        "legal ranks: 3, 4, 5",
    ),
    Clash(
        given(mode=_FOUR_ROWS, rank=(1, 3, 4, 5)),
        "rank={rank} clashes with mode={mode!r}, which takes four rows of a matrix; legal rank: 2",
    ),
)
_UNITS = (
    Note(
        given(mode=_OTHER_MODES),
        "The coordinates count elements, dimension 0 first; without interleave coordinate_0 falls on a multiple of 16 "
        "bytes.",
    ),
    Note(
        given(mode=_FOUR_ROWS),
        "coordinate_0 is the first column, on a multiple of 16 bytes, and the others the four rows, in elements.",
    ),
    Note(given(mode="im2col"), "The im2col offsets are added to the pixels of the box."),
    Note(given(mode=_WIDE), "w_halo and w_offset say which pixels along W are loaded."),
)
_GROUP_COMPLETION = Note(
    given(), "Completes through the executing thread's bulk async-group: bulk_commit_group, then bulk_wait_group."
)
_TENSOR_COPY = frozenset({Feature.TENSOR_COPY})
_BLACKWELL = frozenset({Feature.CTA_GROUP})

LOAD = Family(
    name="tensor_load",
    mnemonic=(
        "cp.async.bulk.tensor.{rank}.{destination}.global.{mode}.mbarrier::complete_tx::bytes"
        "{multicast}{cta_group}{cache_hint}"
    ),
    words=(
        _RANK,
        _LOAD_MODES,
        Word(
            "destination",
            (Choice("shared::cluster", "shared::cluster"), Choice("shared::cta", "shared::cta", "_shared_cta")),
        ),
        flag("multicast", ".multicast::cluster"),
        Word("cta_group", (Choice(None), *(Choice(n, f".cta_group::{n}", f"_cta_group_{n}") for n in (1, 2)))),
        _CACHE_HINT,
    ),
    arguments=(
        *(Argument("[%]", (operands.tile_destination(s),), given(destination=s)) for s in _DESTINATIONS),
        *_COORDINATES,
        *(Argument("[%]", (operands.mbarrier(s),), given(destination=s)) for s in _DESTINATIONS),
        *_OFFSETS,
        Argument("%", (operands.CTA_MASK,), given(multicast=True)),
        _CACHE_POLICY,
    ),
    summary=(
        "Starts the copy of a box of a {rank}-dimensional tensor in global memory to {destination}, in mode {mode}. "
        "destination is aligned to 128 bytes. Completes by complete_tx on mbarrier with the bytes written, those of "
        "elements out of bounds included."
    ),
    section=_SECTION + "cp.async.bulk.tensor",
    ptx_version=(8, 0),
    features=_TENSOR_COPY,
    clashes=(
        Clash(
            given(destination="shared::cta", multicast=True),
            "multicast=True clashes with destination='shared::cta', which only the executing block has; multicast "
            "goes with destination='shared::cluster'",
        ),
        *_RANK_CLASHES,
    ),
    requirements=(
        Requirement(given(destination="shared::cta"), (8, 6)),
        Requirement(
            given(destination="shared::cta", mode=(GATHER4, "im2col::w")), (8, 6), frozenset({Feature.GATHER4_TO_CTA})
        ),
        Requirement(given(destination="shared::cluster", mode=(GATHER4, "im2col::w")), (8, 6), _BLACKWELL),
        Requirement(given(mode="im2col::w::128"), (8, 6), _BLACKWELL),
        Requirement(given(cta_group=(1, 2)), (8, 6), _BLACKWELL),
    ),
    notes=(
        *_UNITS,
        Note(
            given(multicast=True),
            "Writes to the same offset in each block of the cluster that has its bit in cta_mask, and signals the "
            "mbarrier at the same offset there.",
        ),
        Note(given(cta_group=1), "The mbarrier is in the same block as the destination, as without cta_group."),
        Note(given(cta_group=2), "The mbarrier may be in the destination's block or in the other one of its pair."),
    ),
)

STORE = Family(
    name="tensor_store",
    mnemonic="cp.async.bulk.tensor.{rank}.global.shared::cta.{mode}.bulk_group{cache_hint}",
    words=(_RANK, _modes("tile", SCATTER4, "im2col_no_offs"), _CACHE_HINT),
    arguments=(*_COORDINATES, Argument("[%]", (operands.TILE_SOURCE,)), _CACHE_POLICY),
    summary=(
        "Starts the copy of a box from shared::cta to a {rank}-dimensional tensor in global memory, in mode {mode}; "
        "elements out of bounds are not written, and no coordinate may be negative. source is aligned to 128 bytes."
    ),
    section=_SECTION + "cp.async.bulk.tensor",
    ptx_version=(8, 0),
    features=_TENSOR_COPY,
    clashes=_RANK_CLASHES,
    requirements=(Requirement(given(mode=SCATTER4), (8, 6), _BLACKWELL),),
    notes=(*_UNITS, _GROUP_COMPLETION),
)

REDUCE = Family(
    name="tensor_reduce",
    mnemonic="cp.reduce.async.bulk.tensor.{rank}.global.shared::cta.{reduction}.{mode}.bulk_group{cache_hint}",
    words=(
        Word("reduction", tuple(Choice(op, op, f"_{op}") for op in REDUCTIONS)),
        _RANK,
        _modes("tile", SCATTER4, "im2col_no_offs"),
        _CACHE_HINT,
    ),
    arguments=(*_COORDINATES, Argument("[%]", (operands.TILE_SOURCE,)), _CACHE_POLICY),
    summary=(
        "Starts the reduction ({reduction}) of a box in shared::cta into a {rank}-dimensional tensor in global memory, "
        "in mode {mode}: each element becomes the result of it and the box's element; the tensor map says their type. "
        "Each element's update is atomic and relaxed at gpu scope. source is aligned to 128 bytes."
    ),
    section=_SECTION + "cp.reduce.async.bulk.tensor",
    ptx_version=(8, 0),
    features=_TENSOR_COPY,
    clashes=(
        Clash(
            given(mode=SCATTER4),
            "mode='tile::scatter4' clashes with a reduction: PTX does not define it, and the assembler turns it into a "
            "plain scatter store that loses the reduction; legal modes: 'tile', 'im2col_no_offs'",
        ),
        *_RANK_CLASHES,
    ),
    notes=(*_UNITS, _GROUP_COMPLETION),
)

PREFETCH = Family(
    name="tensor_prefetch",
    mnemonic="cp.async.bulk.prefetch.tensor.{rank}.L2.global.{mode}{cache_hint}",
    words=(_RANK, _LOAD_MODES, _CACHE_HINT),
    arguments=(*_COORDINATES, *_OFFSETS, _CACHE_POLICY),
    summary=(
        "Asks for a box of a {rank}-dimensional tensor to be brought into the L2 cache, in mode {mode}. Nothing waits "
        "for it."
    ),
    section=_SECTION + "cp.async.bulk.prefetch.tensor",
    ptx_version=(8, 0),
    features=_TENSOR_COPY,
    clashes=_RANK_CLASHES,
    requirements=(Requirement(given(mode=(GATHER4, *_WIDE)), (8, 6), _BLACKWELL),),
    notes=_UNITS,
)


def tensor_load(
    *,
    rank: int,
    mode: str = "tile",
    destination: str = "shared::cluster",
    multicast: bool = False,
    cta_group: int | None = None,
    cache_hint: bool = False,
) -> Instruction:
    """A copy of a box of a tensor from global to shared memory.

    Parameters
    ----------
    rank : int
        Dimensions of the tensor map, 1 to 5, which is also the number of coordinates, in elements.
    mode : str
        ``"tile"``; ``"tile::gather4"``, with rank 2, a column and four rows; ``"im2col"``, ``"im2col::w"`` or
        ``"im2col::w::128"``, with rank 3 to 5.
    destination : str
        ``"shared::cluster"`` or, from PTX 8.6, ``"shared::cta"``. Both reach the executing block's own shared memory.
    multicast : bool
        Write to several blocks of the cluster; adds the 16-bit operand ``cta_mask``.
    cta_group : int or None
        1 or 2, on the data-centre Blackwells: where the mbarrier may be in a pair of blocks. None means 1.
    cache_hint : bool
        Adds the 64-bit operand ``cache_policy``.

    Raises
    ------
    EmissionError
        For a word with another value, multicast to ``"shared::cta"``, or a mode with a rank that it does not have.

    Notes
    -----
    Source: PTX ISA, "cp.async.bulk.tensor". The mbarrier counts the bytes written.
    """
    return LOAD.build(
        rank=rank, mode=mode, destination=destination, multicast=multicast, cta_group=cta_group, cache_hint=cache_hint
    )


def tensor_store(*, rank: int, mode: str = "tile", cache_hint: bool = False) -> Instruction:
    """A copy of a box from shared memory to a tensor in global memory, completed through a bulk async-group.

    Parameters
    ----------
    rank : int
        Dimensions of the tensor map, 1 to 5, which is also the number of coordinates, in elements.
    mode : str
        ``"tile"``; ``"tile::scatter4"``, with rank 2, a column and four rows; ``"im2col_no_offs"``, with rank 3 to 5.
    cache_hint : bool
        Adds the 64-bit operand ``cache_policy``.

    Raises
    ------
    EmissionError
        For a word with another value, or a mode with a rank that it does not have.

    Notes
    -----
    Source: PTX ISA, "cp.async.bulk.tensor".
    """
    return STORE.build(rank=rank, mode=mode, cache_hint=cache_hint)


def tensor_reduce(
    *, rank: int, reduction: str, mode: str = "tile", cache_hint: bool = False, data_type: object = None
) -> Instruction:
    """A reduction of a box in shared memory into a tensor in global memory, completed through a bulk async-group.

    Parameters
    ----------
    rank : int
        Dimensions of the tensor map, 1 to 5, which is also the number of coordinates, in elements.
    reduction : str
        ``"add"``, ``"min"``, ``"max"``, ``"inc"``, ``"dec"``, ``"and"``, ``"or"`` or ``"xor"``.
    mode : str
        ``"tile"``, or ``"im2col_no_offs"`` with rank 3 to 5.
    cache_hint : bool
        Adds the 64-bit operand ``cache_policy``.
    data_type : str, enumeration member, optional
        The tensor map's element type, such as ``"INT32"``. The instruction does not say it; given, it is checked
        against the table of reductions.

    Raises
    ------
    EmissionError
        For a word with another value, ``"tile::scatter4"``, a mode with a rank that it does not have, and a reduction
        that does not exist for the elements.

    Notes
    -----
    Source: PTX ISA, "cp.reduce.async.bulk.tensor". `reduction_table` says what exists.
    """
    if data_type is not None:
        check_reduction(reduction, data_type)
    return REDUCE.build(rank=rank, reduction=reduction, mode=mode, cache_hint=cache_hint)


def tensor_prefetch(*, rank: int, mode: str = "tile", cache_hint: bool = False) -> Instruction:
    """A prefetch of a box of a tensor into the L2 cache.

    Parameters
    ----------
    rank : int
        Dimensions of the tensor map, 1 to 5, which is also the number of coordinates, in elements.
    mode : str
        As for `tensor_load`.
    cache_hint : bool
        Adds the 64-bit operand ``cache_policy``.

    Raises
    ------
    EmissionError
        For a word with another value, or a mode with a rank that it does not have.

    Notes
    -----
    Source: PTX ISA, "cp.async.bulk.prefetch.tensor".
    """
    return PREFETCH.build(rank=rank, mode=mode, cache_hint=cache_hint)


def mcast_opnum(rank: int, im2col_count: int = 0) -> int:
    """The placeholder number of a tensor load's multicast mask.

    Parameters
    ----------
    rank : int
        The number of coordinates.
    im2col_count : int
        The number of im2col offsets.

    Raises
    ------
    EmissionError
        For a rank that is not 1 to 5, and a count that is not 0 to 3.
    """
    coordinates = checked_integer("mcast_opnum", "rank", rank, range(1, 6))
    return coordinates + 3 + checked_integer("mcast_opnum", "im2col_count", im2col_count, range(4))


def ch_opnum(rank: int, im2col_count: int = 0, multicast: bool = False) -> int:
    """The placeholder number of a tensor load's cache policy.

    Parameters
    ----------
    rank : int
        The number of coordinates.
    im2col_count : int
        The number of im2col offsets.
    multicast : bool
        Whether the load has a multicast mask, which comes before the policy.

    Raises
    ------
    EmissionError
        As for `mcast_opnum`, and if `multicast` is not a bool.
    """
    return mcast_opnum(rank=rank, im2col_count=im2col_count) + checked_flag("ch_opnum", "multicast", multicast)
