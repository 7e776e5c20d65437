"""mbarrier objects in shared memory: initialisation, arrival and transaction counts.

Source of every row: PTX ISA, the section named after the instruction. ``cp.async.bulk`` and its kin complete
transactions in bytes, so that is the unit of every transaction count here.
"""

from __future__ import annotations

from cupytma.ptx import operands
from cupytma.ptx.checks import checked_flag
from cupytma.ptx.family import Argument, Choice, Clash, Family, Note, Requirement, Word, flag, given, optional
from cupytma.ptx.instruction import Instruction

SECTION = "Parallel Synchronization and Communication Instructions: mbarrier."
_CTA, _CLUSTER, _GENERIC = "shared::cta", "shared::cluster", "generic"


def _space(*spaces: str) -> Word:
    """The state space of the mbarrier's address; the block's own shared memory is left out of function names."""
    suffixes = {_CTA: "", _CLUSTER: "_shared_cluster", _GENERIC: "_generic"}
    return Word("space", tuple(Choice(s, "" if s == _GENERIC else f".{s}", suffixes[s]) for s in spaces))


LOCAL = _space(_CTA, _GENERIC)
_ANYWHERE = _space(_CTA, _CLUSTER, _GENERIC)
MBARRIER = tuple(Argument("[%]", (operands.mbarrier(s),), given(space=s)) for s in (_CTA, _CLUSTER, _GENERIC))
_SCOPES = ("cta", "cluster")
SCOPE = optional("scope", *_SCOPES)
_STATE = Word("state", (Choice(True), Choice(False, suffix="_sink")))
_SINK = Requirement(given(state=False), (7, 1))
_STATE_ARGUMENTS = (Argument("%", (operands.STATE,), given(state=True)), Argument("_", (), given(state=False)))
# The names of the shared spaces came in PTX 7.8; before, an address was generic or in plain .shared.
NAMED_SPACE = Requirement(given(space=(_CTA, _CLUSTER)), (7, 8))
# Both words came in PTX 8.0, relaxed arrivals and waits in 8.6.
SEMANTICS_VERSIONS = (
    Requirement(given(scope=_SCOPES), (8, 0)),
    Requirement(given(semantics="relaxed"), (8, 6)),
)
CLUSTER_NOTE = Note(given(scope="cluster"), "Synchronises with threads of the whole cluster.")
_ARRIVAL_NOTES = (
    Note(given(semantics=(None, "release")), "Releases the thread's earlier memory accesses to those who wait."),
    Note(given(semantics="relaxed"), "Orders no memory accesses."),
    CLUSTER_NOTE,
    Note(given(state=True), "Returns a token of the phase that it arrived in."),
)


def both_or_neither(*semantics: str) -> tuple[Clash, Clash]:
    """The clashes of giving semantics without a scope, and a scope without semantics."""
    legal = ", ".join(repr(name) for name in semantics)
    return (
        Clash(
            given(semantics=semantics, scope=None),
            "semantics={semantics!r} clashes with scope=None: PTX writes both or neither; "
            "legal scopes: 'cta', 'cluster'",
        ),
        Clash(
            given(semantics=None, scope=_SCOPES),
            f"scope={{scope!r}} clashes with semantics=None: PTX writes both or neither; legal semantics: {legal}",
        ),
    )


INIT = Family(
    name="mbarrier_init",
    mnemonic="mbarrier.init{space}.b64",
    words=(LOCAL,),
    arguments=(*MBARRIER, Argument("%", (operands.ARRIVAL_COUNT,))),
    summary=(
        "Makes an mbarrier object of 8 bytes aligned to 8 bytes, in its phase 0, that expects count (1 to 1,048,575) "
        "arrivals in each phase. fence_mbarrier_init and a barrier after it make it known to the other threads."
    ),
    section=SECTION + "init",
    ptx_version=(7, 0),
    requirements=(NAMED_SPACE,),
)

INVAL = Family(
    name="mbarrier_inval",
    mnemonic="mbarrier.inval{space}.b64",
    words=(LOCAL,),
    arguments=MBARRIER,
    summary="Ends an mbarrier object, so that its 8 bytes can hold something else.",
    section=SECTION + "inval",
    ptx_version=(7, 0),
    requirements=(NAMED_SPACE,),
)

_REMOTE_TOKEN = Clash(
    given(space=_CLUSTER, state=True),
    "state=True clashes with space='shared::cluster': an arrival at another block's mbarrier returns no token; "
    "legal: state=False",
)
_ARRIVAL_WORDS = (optional("semantics", "release", "relaxed"), SCOPE, _ANYWHERE, _STATE)
_DROPS = " It also lowers the number of arrivals that every later phase expects by as many."


def _arrivals(name: str, verb: str, extra: str) -> tuple[Family, Family, Family]:
    """The rows of arrive or arrive_drop: plain, with a rise of the transaction count, and noComplete."""
    # The documented order of arrive_drop.expect_tx differs from that of all its kin.
    modifiers = "{space}{semantics}{scope}" if verb == "arrive_drop" else "{semantics}{scope}{space}"
    common = (*_STATE_ARGUMENTS, *MBARRIER)
    plain = Family(
        name=name,
        mnemonic=f"mbarrier.{verb}{{semantics}}{{scope}}{{space}}.b64",
        words=(*_ARRIVAL_WORDS, flag("count")),
        arguments=(*common, Argument("%", (operands.ARRIVAL_COUNT,), given(count=True))),
        summary="Arrives at the mbarrier in its current phase." + extra,
        section=SECTION + verb,
        ptx_version=(7, 0),
        clashes=(*both_or_neither("release", "relaxed"), _REMOTE_TOKEN),
        requirements=(
            *SEMANTICS_VERSIONS,
            NAMED_SPACE,
            _SINK,
            Requirement(given(count=True), (7, 8)),
            Requirement(given(space=_CLUSTER), (8, 0)),
        ),
        notes=(Note(given(count=True), "It counts as count (1 to 1,048,575) arrivals."), *_ARRIVAL_NOTES),
    )
    expecting = Family(
        name=name + "_expect_tx",
        mnemonic=f"mbarrier.{verb}.expect_tx{modifiers}.b64",
        words=_ARRIVAL_WORDS,
        arguments=(*common, Argument("%", (operands.TRANSACTION_BYTES,))),
        summary=(
            "Raises the transaction count of the mbarrier's current phase by bytes, then arrives once; the phase "
            "completes when no arrival is missing and as many bytes have been written." + extra
        ),
        section=SECTION + verb,
        ptx_version=(8, 0),
        clashes=(*both_or_neither("release", "relaxed"), _REMOTE_TOKEN),
        requirements=SEMANTICS_VERSIONS,
        notes=_ARRIVAL_NOTES,
    )
    incomplete = Family(
        name=name + "_no_complete",
        mnemonic=f"mbarrier.{verb}.noComplete{{release_cta}}{{space}}.b64",
        words=(flag("release_cta", ".release.cta"), LOCAL, _STATE),
        arguments=(*common, Argument("%", (operands.ARRIVAL_COUNT,))),
        summary=(
            "Arrives at the mbarrier as count arrivals, which must leave the phase incomplete. Releases the thread's "
            "earlier memory accesses to those who wait." + extra
        ),
        section=SECTION + verb,
        ptx_version=(7, 0),
        requirements=(NAMED_SPACE, _SINK, Requirement(given(release_cta=True), (8, 0))),
        notes=(Note(given(state=True), "Returns a token of the phase that it arrived in."),),
    )
    return plain, expecting, incomplete


ARRIVE, ARRIVE_EXPECT_TX, ARRIVE_NO_COMPLETE = _arrivals("mbarrier_arrive", "arrive", "")
ARRIVE_DROP, ARRIVE_DROP_EXPECT_TX, ARRIVE_DROP_NO_COMPLETE = _arrivals("mbarrier_arrive_drop", "arrive_drop", _DROPS)


def _transactions(verb: str, summary: str) -> Family:
    return Family(
        name=f"mbarrier_{verb}",
        mnemonic=f"mbarrier.{verb}{{semantics}}{{scope}}{{space}}.b64",
        words=(optional("semantics", "relaxed"), SCOPE, _ANYWHERE),
        arguments=(*MBARRIER, Argument("%", (operands.TRANSACTION_BYTES,))),
        summary=summary + " Orders no memory accesses.",
        section=SECTION + verb,
        ptx_version=(8, 0),
        clashes=both_or_neither("relaxed"),
    )


EXPECT_TX = _transactions(
    "expect_tx", "Raises the transaction count of the mbarrier's current phase by bytes, without arriving."
)
COMPLETE_TX = _transactions(
    "complete_tx",
    "Lowers the transaction count of the mbarrier's current phase by bytes, as if an asynchronous copy had written "
    "them; it copies nothing.",
)

PENDING_COUNT = Family(
    name="mbarrier_pending_count",
    mnemonic="mbarrier.pending_count.b64",
    words=(),
    arguments=(Argument("%", (operands.PENDING_COUNT,)), Argument("%", (operands.PHASE_TOKEN,))),
    summary="Returns how many arrivals the phase of a token still lacked; the token comes from a noComplete arrival.",
    section=SECTION + "pending_count",
    ptx_version=(7, 0),
    clobbers=(),
)


def mbarrier_init(*, space: str = "shared::cta") -> Instruction:
    """The making of an mbarrier object; its operands are the object and the number of arrivals of a phase.

    Parameters
    ----------
    space : str
        The state space of the address: ``"shared::cta"`` or ``"generic"``.

    Notes
    -----
    Source: PTX ISA, "mbarrier.init".
    """
    return INIT.build(space=space)


def mbarrier_inval(*, space: str = "shared::cta") -> Instruction:
    """The end of an mbarrier object.

    Parameters
    ----------
    space : str
        The state space of the address: ``"shared::cta"`` or ``"generic"``.

    Notes
    -----
    Source: PTX ISA, "mbarrier.inval".
    """
    return INVAL.build(space=space)


def mbarrier_arrive(
    *,
    semantics: str | None = None,
    scope: str | None = None,
    space: str = "shared::cta",
    state: bool = True,
    count: bool = False,
    drop: bool = False,
) -> Instruction:
    """An arrival at an mbarrier of the executing block, or of another block of the cluster.

    Parameters
    ----------
    semantics : str or None
        ``"release"``, or from PTX 8.6 ``"relaxed"``; None leaves it out, which means release.
    scope : str or None
        ``"cta"`` or ``"cluster"``; given when `semantics` is.
    space : str
        ``"shared::cta"``; ``"shared::cluster"`` for another block's mbarrier; ``"generic"``.
    state : bool
        Whether the phase token is an output; if not, the sink symbol ``_`` stands in its place. An arrival at another
        block's mbarrier has none.
    count : bool
        Adds an operand with the number of arrivals that it counts as.
    drop : bool
        Also lower the number of arrivals that later phases expect (``arrive_drop``).

    Raises
    ------
    EmissionError
        For another value, for only one of `semantics` and `scope`, and for a token from another block.

    Notes
    -----
    Source: PTX ISA, "mbarrier.arrive" and "mbarrier.arrive_drop".
    """
    family = ARRIVE_DROP if checked_flag("mbarrier_arrive", "drop", drop) else ARRIVE
    return family.build(semantics=semantics, scope=scope, space=space, state=state, count=count)


def mbarrier_arrive_expect_tx(
    *,
    semantics: str | None = None,
    scope: str | None = None,
    space: str = "shared::cta",
    state: bool = True,
    drop: bool = False,
) -> Instruction:
    """An arrival that first raises the transaction count by a number of bytes.

    Parameters
    ----------
    semantics, scope, space, state, drop
        As for `mbarrier_arrive`.

    Raises
    ------
    EmissionError
        For another value, for only one of `semantics` and `scope`, and for a token from another block.

    Notes
    -----
    Source: PTX ISA, "mbarrier.arrive" and "mbarrier.arrive_drop".
    """
    drops = checked_flag("mbarrier_arrive_expect_tx", "drop", drop)
    family = ARRIVE_DROP_EXPECT_TX if drops else ARRIVE_EXPECT_TX
    return family.build(semantics=semantics, scope=scope, space=space, state=state)


def mbarrier_arrive_no_complete(
    *, release_cta: bool = False, space: str = "shared::cta", state: bool = True, drop: bool = False
) -> Instruction:
    """An arrival that must not complete the phase.

    Parameters
    ----------
    release_cta : bool
        Write the semantics and scope that it has in any case.
    space : str
        ``"shared::cta"`` or ``"generic"``.
    state, drop
        As for `mbarrier_arrive`.

    Notes
    -----
    Source: PTX ISA, "mbarrier.arrive" and "mbarrier.arrive_drop".
    """
    drops = checked_flag("mbarrier_arrive_no_complete", "drop", drop)
    family = ARRIVE_DROP_NO_COMPLETE if drops else ARRIVE_NO_COMPLETE
    return family.build(release_cta=release_cta, space=space, state=state)


def mbarrier_arrive_drop(**words: bool | str | None) -> Instruction:
    """`mbarrier_arrive` with ``drop=True``."""
    return mbarrier_arrive(drop=True, **words)  # type: ignore[arg-type]


def mbarrier_arrive_drop_expect_tx(**words: bool | str | None) -> Instruction:
    """`mbarrier_arrive_expect_tx` with ``drop=True``."""
    return mbarrier_arrive_expect_tx(drop=True, **words)  # type: ignore[arg-type]


def mbarrier_arrive_drop_no_complete(**words: bool | str) -> Instruction:
    """`mbarrier_arrive_no_complete` with ``drop=True``."""
    return mbarrier_arrive_no_complete(drop=True, **words)  # type: ignore[arg-type]


def mbarrier_pending_count() -> Instruction:
    """The number of arrivals that the phase of a token still lacked.

    Notes
    -----
    Source: PTX ISA, "mbarrier.pending_count".
    """
    return PENDING_COUNT.build()


def mbarrier_expect_tx(
    *, semantics: str | None = None, scope: str | None = None, space: str = "shared::cta"
) -> Instruction:
    """A rise of the transaction count by a number of bytes, without an arrival.

    Parameters
    ----------
    semantics : str or None
        ``"relaxed"``; None leaves it out, which means the same.
    scope : str or None
        ``"cta"`` or ``"cluster"``; given when `semantics` is.
    space : str
        ``"shared::cta"``, ``"shared::cluster"`` or ``"generic"``.

    Raises
    ------
    EmissionError
        For another value, and for only one of `semantics` and `scope`.

    Notes
    -----
    Source: PTX ISA, "mbarrier.expect_tx".
    """
    return EXPECT_TX.build(semantics=semantics, scope=scope, space=space)


def mbarrier_complete_tx(
    *, semantics: str | None = None, scope: str | None = None, space: str = "shared::cta"
) -> Instruction:
    """A fall of the transaction count by a number of bytes, without a copy.

    Parameters
    ----------
    semantics, scope, space
        As for `mbarrier_expect_tx`.

    Notes
    -----
    Source: PTX ISA, "mbarrier.complete_tx".
    """
    return COMPLETE_TX.build(semantics=semantics, scope=scope, space=space)
