"""Tensor copies between global and shared memory, and the prefetch of a tensor map.

Source of every row: PTX ISA, "cp.async.bulk.tensor" and "prefetch, prefetchu".
"""

from __future__ import annotations

from cupytma.ptx import operands
from cupytma.ptx.family import Argument, Choice, Clash, Family, Note, Requirement, Word, Words, flag, given
from cupytma.ptx.instruction import Instruction
from cupytma.targets import Feature

_RANK = Word("rank", tuple(Choice(rank, f"{rank}d", f"_{rank}d") for rank in range(1, 6)))
_CACHE_HINT = flag("cache_hint", ".L2::cache_hint")
_TILE = Word("mode", (Choice("tile", "tile"),))
_DESTINATIONS = ("shared::cluster", "shared::cta")


def _rank(words: Words) -> int:
    rank = words["rank"]
    assert isinstance(rank, int)
    return rank


_TENSOR = Argument("[%, {%*}]", (operands.tensor_map(), operands.COORDINATE), length=_rank)
_CACHE_POLICY = Argument("%", (operands.CACHE_POLICY,), given(cache_hint=True))

LOAD = Family(
    name="tensor_load",
    mnemonic=(
        "cp.async.bulk.tensor.{rank}.{destination}.global.{mode}.mbarrier::complete_tx::bytes{multicast}{cache_hint}"
    ),
    words=(
        _RANK,
        _TILE,
        Word(
            "destination",
            (Choice("shared::cluster", "shared::cluster"), Choice("shared::cta", "shared::cta", "_shared_cta")),
        ),
        flag("multicast", ".multicast::cluster"),
        _CACHE_HINT,
    ),
    arguments=(
        *(Argument("[%]", (operands.tile_destination(s),), given(destination=s)) for s in _DESTINATIONS),
        _TENSOR,
        *(Argument("[%]", (operands.mbarrier(s),), given(destination=s)) for s in _DESTINATIONS),
        Argument("%", (operands.CTA_MASK,), given(multicast=True)),
        _CACHE_POLICY,
    ),
    summary=(
        "Starts the copy of a box of a {rank}-dimensional tensor in global memory to {destination}. The coordinates "
        "count elements, dimension 0 first; without interleave coordinate_0 falls on a multiple of 16 bytes. "
        "destination is aligned to 128 bytes. Completes by complete_tx on mbarrier with the bytes written, those of "
        "elements out of bounds included."
    ),
    section="Data Movement and Conversion Instructions: cp.async.bulk.tensor",
    ptx_version=(8, 0),
    features=frozenset({Feature.TENSOR_COPY}),
    clashes=(
        Clash(
            given(destination="shared::cta", multicast=True),
            "multicast=True clashes with destination='shared::cta', which only the executing block has; multicast "
            "goes with destination='shared::cluster'",
        ),
    ),
    requirements=(Requirement(given(destination="shared::cta"), (8, 6)),),
    notes=(
        Note(
            given(multicast=True),
            "Writes to the same offset in each block of the cluster that has its bit in cta_mask, and signals the "
            "mbarrier at the same offset there.",
        ),
    ),
)

STORE = Family(
    name="tensor_store",
    mnemonic="cp.async.bulk.tensor.{rank}.global.shared::cta.{mode}.bulk_group{cache_hint}",
    words=(_RANK, _TILE, _CACHE_HINT),
    arguments=(_TENSOR, Argument("[%]", (operands.TILE_SOURCE,)), _CACHE_POLICY),
    summary=(
        "Starts the copy of a box from shared::cta to a {rank}-dimensional tensor in global memory; elements out of "
        "bounds are not written. The coordinates count elements, dimension 0 first, and must not be negative; without "
        "interleave coordinate_0 falls on a multiple of 16 bytes. source is aligned to 128 bytes. Completes through "
        "the executing thread's bulk async-group: bulk_commit_group, then bulk_wait_group."
    ),
    section="Data Movement and Conversion Instructions: cp.async.bulk.tensor",
    ptx_version=(8, 0),
    features=frozenset({Feature.TENSOR_COPY}),
)

_MAP_SPACES = ("generic", "param", "const")
PREFETCH_TENSORMAP = Family(
    name="prefetch_tensormap",
    mnemonic="prefetch{space}.tensormap",
    words=(
        Word("space", (Choice("generic"), Choice("param", ".param", "_param"), Choice("const", ".const", "_const"))),
    ),
    arguments=tuple(Argument("[%]", (operands.tensor_map(s),), given(space=s)) for s in _MAP_SPACES),
    summary=(
        "Brings a tensor map at a {space} address into the cache that tensor copies read it from. tensor_map is "
        "aligned to 64 bytes. Nothing waits for it."
    ),
    section="Data Movement and Conversion Instructions: prefetch, prefetchu",
    ptx_version=(8, 0),
    features=frozenset({Feature.TENSOR_COPY}),
    notes=(
        Note(given(space="param"), "The map must be a __grid_constant__ parameter of the kernel."),
        Note(given(space="const"), "The map must be a __constant__ variable."),
    ),
)


def tensor_load(
    *,
    rank: int,
    mode: str = "tile",
    destination: str = "shared::cluster",
    multicast: bool = False,
    cache_hint: bool = False,
) -> Instruction:
    """A copy of a box of a tensor from global to shared memory.

    Parameters
    ----------
    rank : int
        Dimensions of the tensor map, 1 to 5, which is also the number of coordinates, in elements.
    mode : str
        ``"tile"``.
    destination : str
        ``"shared::cluster"`` or, from PTX 8.6, ``"shared::cta"``. Both reach the executing block's own shared memory.
    multicast : bool
        Write to several blocks of the cluster; adds the 16-bit operand ``cta_mask``.
    cache_hint : bool
        Adds the 64-bit operand ``cache_policy``.

    Raises
    ------
    EmissionError
        For a word with another value, and for multicast to ``"shared::cta"``.

    Notes
    -----
    Source: PTX ISA, "cp.async.bulk.tensor". The mbarrier counts the bytes written.
    """
    return LOAD.build(rank=rank, mode=mode, destination=destination, multicast=multicast, cache_hint=cache_hint)


def tensor_store(*, rank: int, mode: str = "tile", cache_hint: bool = False) -> Instruction:
    """A copy of a box from shared memory to a tensor in global memory, completed through a bulk async-group.

    Parameters
    ----------
    rank : int
        Dimensions of the tensor map, 1 to 5, which is also the number of coordinates, in elements.
    mode : str
        ``"tile"``.
    cache_hint : bool
        Adds the 64-bit operand ``cache_policy``.

    Raises
    ------
    EmissionError
        For a word with another value.

    Notes
    -----
    Source: PTX ISA, "cp.async.bulk.tensor".
    """
    return STORE.build(rank=rank, mode=mode, cache_hint=cache_hint)


def prefetch_tensormap(*, space: str = "generic") -> Instruction:
    """A prefetch of the 128 bytes of a tensor map.

    Parameters
    ----------
    space : str
        The state space of the address: ``"generic"``, ``"param"`` or ``"const"``. A map in global memory has a generic
        address.

    Raises
    ------
    EmissionError
        For another space.

    Notes
    -----
    Source: PTX ISA, "prefetch, prefetchu".
    """
    return PREFETCH_TENSORMAP.build(space=space)


def mcast_opnum(rank: int, im2col_count: int = 0) -> int:
    """The placeholder number of a tensor load's multicast mask.

    Parameters
    ----------
    rank : int
        The number of coordinates.
    im2col_count : int
        The number of im2col offsets.
    """
    return rank + 3 + im2col_count


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
    """
    return mcast_opnum(rank=rank, im2col_count=im2col_count) + int(multicast)
