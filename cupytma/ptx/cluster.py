"""Threads, blocks and clusters: addresses of other blocks, cluster barriers, election, dependent grids, registers.

Source of every row: PTX ISA, the section named after the instruction.
"""

from __future__ import annotations

from cupytma.ptx import operands
from cupytma.ptx.family import Argument, Choice, Family, Note, Requirement, Word, flag, given, optional
from cupytma.ptx.instruction import Instruction
from cupytma.targets import Feature

_SYNCHRONISATION = "Parallel Synchronization and Communication Instructions: "
_DATA_MOVEMENT = "Data Movement and Conversion Instructions: "

# In either space an address comes in a 32-bit or a 64-bit register, as the type says.
_OPERAND_SPACES = {
    ("shared::cluster", "u32"): "shared::cluster",
    ("shared::cluster", "u64"): "shared::cluster.u64",
    ("generic", "u32"): "generic.u32",
    ("generic", "u64"): "generic",
}
_SPACE = Word(
    "space", (Choice("shared::cluster", ".shared::cluster", "_shared_cluster"), Choice("generic", "", "_generic"))
)
_TYPE = Word("type", (Choice("u32", ".u32", "_u32"), Choice("u64", ".u64", "_u64")))
_SOURCES = tuple(
    Argument(
        "%",
        (
            operands.address(
                "address", register, "an address in the shared memory of the executing block", "const void*"
            ),
        ),
        given(space=space, type=type_),
    )
    for (space, type_), register in _OPERAND_SPACES.items()
)
_CTA_RANK = operands.value("cta_rank", "u32", "the rank of a block in the cluster")

MAPA = Family(
    name="mapa",
    mnemonic="mapa{space}{type}",
    words=(_SPACE, _TYPE),
    arguments=(
        *(
            Argument(
                "%", (operands.value("mapped", t, "the address in the other block", direction="output"),), given(type=t)
            )
            for t in ("u32", "u64")
        ),
        *_SOURCES,
        Argument("%", (_CTA_RANK,)),
    ),
    summary=(
        "Returns the address, in space {space}, of the variable at the same offset in the shared memory of the block "
        "with rank cta_rank in the cluster."
    ),
    section=_DATA_MOVEMENT + "mapa",
    ptx_version=(7, 8),
    clobbers=(),
    notes=(
        Note(
            given(space="shared::cluster"),
            "The result is a shared::cluster address and no generic pointer, so not what these functions take; "
            "mapa_generic_u64 returns one that is.",
        ),
    ),
)

GETCTARANK = Family(
    name="getctarank",
    mnemonic="getctarank{space}{type}",
    words=(_SPACE, _TYPE),
    arguments=(
        Argument("%", (operands.value("rank", "u32", "the rank of the block in the cluster", direction="output"),)),
        *_SOURCES,
    ),
    summary="Returns the rank in the cluster of the block that an address of space {space} lies in.",
    section=_DATA_MOVEMENT + "getctarank",
    ptx_version=(7, 8),
    clobbers=(),
)

_ALIGNED = flag("aligned", ".aligned")
_ALIGNED_NOTE = Note(given(aligned=True), "All threads of the warp execute the same one.")

CLUSTER_ARRIVE = Family(
    name="barrier_cluster_arrive",
    mnemonic="barrier.cluster.arrive{semantics}{aligned}",
    words=(optional("semantics", "release", "relaxed"), _ALIGNED),
    arguments=(),
    summary="Arrives at the barrier of the cluster's threads, without waiting.",
    section=_SYNCHRONISATION + "barrier.cluster",
    ptx_version=(7, 8),
    requirements=(Requirement(given(semantics=("release", "relaxed")), (8, 0)),),
    notes=(
        Note(given(semantics=(None, "release")), "Releases the thread's earlier memory accesses to the cluster."),
        Note(given(semantics="relaxed"), "Orders no memory accesses."),
        _ALIGNED_NOTE,
    ),
)

CLUSTER_WAIT = Family(
    name="barrier_cluster_wait",
    mnemonic="barrier.cluster.wait{semantics}{aligned}",
    words=(optional("semantics", "acquire"), _ALIGNED),
    arguments=(),
    summary="Waits until all threads of the cluster have arrived, and acquires what they released.",
    section=_SYNCHRONISATION + "barrier.cluster",
    ptx_version=(7, 8),
    requirements=(Requirement(given(semantics="acquire"), (8, 0)),),
    notes=(_ALIGNED_NOTE,),
)

ELECT_SYNC = Family(
    name="elect_sync",
    mnemonic="elect.sync",
    words=(flag("lane"),),
    arguments=(
        Argument("_|%", (operands.IS_ELECTED,), given(lane=False)),
        Argument("%|%", (operands.LEADER_LANE, operands.IS_ELECTED), given(lane=True)),
        Argument("%", (operands.MEMBER_MASK,)),
    ),
    summary=(
        "Elects one of the lanes in membermask, always the same for the same mask, and returns whether it is the "
        "executing one. All those lanes must execute it; it waits for them."
    ),
    section=_SYNCHRONISATION + "elect.sync",
    ptx_version=(8, 0),
    # It orders no memory accesses, so the compiler may move them across it.
    clobbers=(),
    notes=(Note(given(lane=True), "leader_lane becomes the number of the elected lane."),),
)

GRIDDEPCONTROL = Family(
    name="griddepcontrol",
    mnemonic="griddepcontrol.{action}",
    words=(Word("action", tuple(Choice(a, a, f"_{a}") for a in ("launch_dependents", "wait"))),),
    arguments=(),
    summary="Programmatic dependent launch:",
    section=_SYNCHRONISATION + "griddepcontrol",
    ptx_version=(7, 8),
    notes=(
        Note(given(action="wait"), "waits until the grids that this one depends on have completed and are visible."),
        Note(
            given(action="launch_dependents"), "allows the dependent grids to start once every block said so or ended."
        ),
    ),
)

SETMAXNREG = Family(
    name="setmaxnreg",
    mnemonic="setmaxnreg.{action}.sync.aligned.u32",
    words=(Word("action", tuple(Choice(a, a, f"_{a}") for a in ("inc", "dec"))),),
    arguments=(
        Argument("%", (operands.immediate("count", "registers per thread, 24 to 256 in steps of 8", 24, 256, 8),)),
    ),
    summary=(
        "Sets how many registers each thread of the warpgroup has. All its warps execute it. Without .maxnreg or "
        ".minnctapersm (__launch_bounds__ with blocks per SM) the assembler ignores it."
    ),
    section="Miscellaneous Instructions: setmaxnreg",
    ptx_version=(8, 0),
    features=frozenset({Feature.SETMAXNREG}),
    notes=(
        Note(given(action="inc"), "Waits until enough registers of the block are free; the new ones are undefined."),
        Note(given(action="dec"), "Gives registers back to the block."),
    ),
)


def mapa(*, space: str = "shared::cluster", type: str = "u32") -> Instruction:
    """The address of another block's copy of a shared variable.

    Parameters
    ----------
    space : str
        What the addresses are: ``"shared::cluster"`` or ``"generic"``.
    type : str
        The registers: ``"u32"`` or ``"u64"``.

    Notes
    -----
    Source: PTX ISA, "mapa".
    """
    return MAPA.build(space=space, type=type)


def getctarank(*, space: str = "shared::cluster", type: str = "u32") -> Instruction:
    """The rank of the block that a shared address lies in.

    Parameters
    ----------
    space, type
        As for `mapa`.

    Notes
    -----
    Source: PTX ISA, "getctarank".
    """
    return GETCTARANK.build(space=space, type=type)


def barrier_cluster_arrive(*, semantics: str | None = None, aligned: bool = False) -> Instruction:
    """An arrival at the cluster's barrier.

    Parameters
    ----------
    semantics : str or None
        ``"release"``, which None means too, or ``"relaxed"``.
    aligned : bool
        All threads of the warp execute it together.

    Notes
    -----
    Source: PTX ISA, "barrier.cluster".
    """
    return CLUSTER_ARRIVE.build(semantics=semantics, aligned=aligned)


def barrier_cluster_wait(*, semantics: str | None = None, aligned: bool = False) -> Instruction:
    """A wait at the cluster's barrier.

    Parameters
    ----------
    semantics : str or None
        ``"acquire"``, which None means too.
    aligned : bool
        All threads of the warp execute it together.

    Notes
    -----
    Source: PTX ISA, "barrier.cluster".
    """
    return CLUSTER_WAIT.build(semantics=semantics, aligned=aligned)


def elect_sync(*, lane: bool = False) -> Instruction:
    """The election of one thread of a warp.

    Parameters
    ----------
    lane : bool
        Also give the number of the elected lane, instead of the sink symbol ``_``.

    Raises
    ------
    EmissionError
        If `lane` is not a bool.

    Notes
    -----
    Source: PTX ISA, "elect.sync".
    """
    return ELECT_SYNC.build(lane=lane)


def griddepcontrol(*, action: str) -> Instruction:
    """Programmatic dependent launch, from the device's side.

    Parameters
    ----------
    action : str
        ``"wait"`` or ``"launch_dependents"``.

    Notes
    -----
    Source: PTX ISA, "griddepcontrol".
    """
    return GRIDDEPCONTROL.build(action=action)


def setmaxnreg(*, action: str, count: int | None = None) -> Instruction:
    """A change of the number of registers of a warpgroup's threads.

    Parameters
    ----------
    action : str
        ``"inc"`` or ``"dec"``.
    count : int, optional
        24 to 256 in steps of 8. Given, it is written into the instruction; not given, it stays an immediate operand.

    Raises
    ------
    EmissionError
        For another action or count.

    Notes
    -----
    Source: PTX ISA, "setmaxnreg". Needs an architecture-specific target, such as ``sm_90a``.
    """
    form = SETMAXNREG.build(action=action)
    return form if count is None else form.bind(count=count)
