"""mbarrier objects in shared memory: initialisation, arrival, transaction counts and waiting.

Source of every row: PTX ISA, the section named after the instruction. ``cp.async.bulk`` and its kin complete
transactions in bytes, so that is the unit of every transaction count here.
"""

from __future__ import annotations

from cupytma.ptx import operands
from cupytma.ptx.family import Argument, Choice, Clash, Family, Note, Requirement, Word, flag, given, optional
from cupytma.ptx.instruction import Instruction

_SECTION = "Parallel Synchronization and Communication Instructions: mbarrier."
_MBARRIER = Argument("[%]", (operands.mbarrier(),))
_SCOPES = ("cta", "cluster")
_SCOPE = optional("scope", *_SCOPES)
_STATE = Word("state", (Choice(True), Choice(False, suffix="_sink")))
_STATE_ARGUMENTS = (Argument("%", (operands.STATE,), given(state=True)), Argument("_", (), given(state=False)))
# Both words came in PTX 8.0, relaxed arrivals and waits in 8.6.
_SEMANTICS_VERSIONS = (
    Requirement(given(scope=_SCOPES), (8, 0)),
    Requirement(given(semantics="relaxed"), (8, 6)),
)
_CLUSTER_NOTE = Note(given(scope="cluster"), "Synchronises with threads of the whole cluster.")
_ARRIVAL_NOTES = (
    Note(given(semantics=(None, "release")), "Releases the thread's earlier memory accesses to those who wait."),
    Note(given(semantics="relaxed"), "Orders no memory accesses."),
    _CLUSTER_NOTE,
    Note(given(state=True), "Returns a token of the phase that it arrived in."),
)
_WAIT_NOTES = (
    Note(
        given(semantics=(None, "acquire")),
        "True acquires what the arriving threads released and what bulk copies wrote in that phase.",
    ),
    Note(given(semantics="relaxed"), "Orders no memory accesses."),
    _CLUSTER_NOTE,
)


def _both_or_neither(*semantics: str) -> tuple[Clash, Clash]:
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
    mnemonic="mbarrier.init.shared::cta.b64",
    words=(),
    arguments=(_MBARRIER, Argument("%", (operands.ARRIVAL_COUNT,))),
    summary=(
        "Makes an mbarrier object of 8 bytes aligned to 8 bytes, in its phase 0, that expects count (1 to 1,048,575) "
        "arrivals in each phase. fence_mbarrier_init and a barrier after it make it known to the other threads."
    ),
    section=_SECTION + "init",
    ptx_version=(7, 8),
)

INVAL = Family(
    name="mbarrier_inval",
    mnemonic="mbarrier.inval.shared::cta.b64",
    words=(),
    arguments=(_MBARRIER,),
    summary="Ends an mbarrier object, so that its 8 bytes can hold something else.",
    section=_SECTION + "inval",
    ptx_version=(7, 8),
)

ARRIVE = Family(
    name="mbarrier_arrive",
    mnemonic="mbarrier.arrive{semantics}{scope}.shared::cta.b64",
    words=(optional("semantics", "release", "relaxed"), _SCOPE, _STATE, flag("count")),
    arguments=(*_STATE_ARGUMENTS, _MBARRIER, Argument("%", (operands.ARRIVAL_COUNT,), given(count=True))),
    summary="Arrives at the mbarrier in its current phase.",
    section=_SECTION + "arrive",
    ptx_version=(7, 8),
    clashes=_both_or_neither("release", "relaxed"),
    requirements=_SEMANTICS_VERSIONS,
    notes=(Note(given(count=True), "It counts as count (1 to 1,048,575) arrivals."), *_ARRIVAL_NOTES),
)

ARRIVE_EXPECT_TX = Family(
    name="mbarrier_arrive_expect_tx",
    mnemonic="mbarrier.arrive.expect_tx{semantics}{scope}.shared::cta.b64",
    words=(optional("semantics", "release", "relaxed"), _SCOPE, _STATE),
    arguments=(*_STATE_ARGUMENTS, _MBARRIER, Argument("%", (operands.TRANSACTION_BYTES,))),
    summary=(
        "Raises the transaction count of the mbarrier's current phase by bytes, then arrives once; the phase completes "
        "when no arrival is missing and as many bytes have been written."
    ),
    section=_SECTION + "arrive",
    ptx_version=(8, 0),
    clashes=_both_or_neither("release", "relaxed"),
    requirements=_SEMANTICS_VERSIONS,
    notes=_ARRIVAL_NOTES,
)

EXPECT_TX = Family(
    name="mbarrier_expect_tx",
    mnemonic="mbarrier.expect_tx{semantics}{scope}.shared::cta.b64",
    words=(optional("semantics", "relaxed"), _SCOPE),
    arguments=(_MBARRIER, Argument("%", (operands.TRANSACTION_BYTES,))),
    summary=(
        "Raises the transaction count of the mbarrier's current phase by bytes, without arriving. Orders no memory "
        "accesses."
    ),
    section=_SECTION + "expect_tx",
    ptx_version=(8, 0),
    clashes=_both_or_neither("relaxed"),
)

TEST_WAIT_PARITY = Family(
    name="mbarrier_test_wait_parity",
    mnemonic="mbarrier.test_wait.parity{semantics}{scope}.shared::cta.b64",
    words=(optional("semantics", "acquire", "relaxed"), _SCOPE),
    arguments=(Argument("%", (operands.WAIT_COMPLETE,)), _MBARRIER, Argument("%", (operands.PARITY,))),
    summary="Returns at once whether the mbarrier's phase of this parity (0 or 1) has completed.",
    section=_SECTION + "test_wait, mbarrier.try_wait",
    ptx_version=(7, 8),
    clashes=_both_or_neither("acquire", "relaxed"),
    requirements=_SEMANTICS_VERSIONS,
    notes=_WAIT_NOTES,
)

TRY_WAIT_PARITY = Family(
    name="mbarrier_try_wait_parity",
    mnemonic="mbarrier.try_wait.parity{semantics}{scope}.shared::cta.b64",
    words=(optional("semantics", "acquire", "relaxed"), _SCOPE, flag("suspend_time_hint")),
    arguments=(
        Argument("%", (operands.WAIT_COMPLETE,)),
        _MBARRIER,
        Argument("%", (operands.PARITY,)),
        Argument("%", (operands.SUSPEND_TIME_HINT,), given(suspend_time_hint=True)),
    ),
    summary=(
        "Returns whether the mbarrier's phase of this parity (0 or 1) has completed, after suspending the thread for a "
        "while where it has not."
    ),
    section=_SECTION + "test_wait, mbarrier.try_wait",
    ptx_version=(7, 8),
    clashes=_both_or_neither("acquire", "relaxed"),
    requirements=_SEMANTICS_VERSIONS,
    notes=(Note(given(suspend_time_hint=True), "The hint is the longest suspension, in nanoseconds."), *_WAIT_NOTES),
)


def mbarrier_init() -> Instruction:
    """The making of an mbarrier object; its operands are the object and the number of arrivals of a phase.

    Notes
    -----
    Source: PTX ISA, "mbarrier.init".
    """
    return INIT.build()


def mbarrier_inval() -> Instruction:
    """The end of an mbarrier object.

    Notes
    -----
    Source: PTX ISA, "mbarrier.inval".
    """
    return INVAL.build()


def mbarrier_arrive(
    *, semantics: str | None = None, scope: str | None = None, state: bool = True, count: bool = False
) -> Instruction:
    """An arrival at an mbarrier of the executing block.

    Parameters
    ----------
    semantics : str or None
        ``"release"``, or from PTX 8.6 ``"relaxed"``; None leaves it out, which means release.
    scope : str or None
        ``"cta"`` or ``"cluster"``; given when `semantics` is.
    state : bool
        Whether the phase token is an output; if not, the sink symbol ``_`` stands in its place.
    count : bool
        Adds an operand with the number of arrivals.

    Raises
    ------
    EmissionError
        For another value, and for only one of `semantics` and `scope`.

    Notes
    -----
    Source: PTX ISA, "mbarrier.arrive".
    """
    return ARRIVE.build(semantics=semantics, scope=scope, state=state, count=count)


def mbarrier_arrive_expect_tx(
    *, semantics: str | None = None, scope: str | None = None, state: bool = True
) -> Instruction:
    """An arrival that first raises the transaction count by a number of bytes.

    Parameters
    ----------
    semantics : str or None
        ``"release"``, or from PTX 8.6 ``"relaxed"``; None leaves it out, which means release.
    scope : str or None
        ``"cta"`` or ``"cluster"``; given when `semantics` is.
    state : bool
        Whether the phase token is an output; if not, the sink symbol ``_`` stands in its place.

    Raises
    ------
    EmissionError
        For another value, and for only one of `semantics` and `scope`.

    Notes
    -----
    Source: PTX ISA, "mbarrier.arrive".
    """
    return ARRIVE_EXPECT_TX.build(semantics=semantics, scope=scope, state=state)


def mbarrier_expect_tx(*, semantics: str | None = None, scope: str | None = None) -> Instruction:
    """A rise of the transaction count by a number of bytes, without an arrival.

    Parameters
    ----------
    semantics : str or None
        ``"relaxed"``; None leaves it out, which means the same.
    scope : str or None
        ``"cta"`` or ``"cluster"``; given when `semantics` is.

    Raises
    ------
    EmissionError
        For another value, and for only one of `semantics` and `scope`.

    Notes
    -----
    Source: PTX ISA, "mbarrier.expect_tx".
    """
    return EXPECT_TX.build(semantics=semantics, scope=scope)


def mbarrier_test_wait_parity(*, semantics: str | None = None, scope: str | None = None) -> Instruction:
    """A test, without blocking, of whether the phase of a parity has completed.

    Parameters
    ----------
    semantics : str or None
        ``"acquire"``, or from PTX 8.6 ``"relaxed"``; None leaves it out, which means acquire.
    scope : str or None
        ``"cta"`` or ``"cluster"``; given when `semantics` is.

    Raises
    ------
    EmissionError
        For another value, and for only one of `semantics` and `scope`.

    Notes
    -----
    Source: PTX ISA, "mbarrier.test_wait, mbarrier.try_wait".
    """
    return TEST_WAIT_PARITY.build(semantics=semantics, scope=scope)


def mbarrier_try_wait_parity(
    *, semantics: str | None = None, scope: str | None = None, suspend_time_hint: bool = False
) -> Instruction:
    """A wait of limited time for the phase of a parity to complete.

    Parameters
    ----------
    semantics : str or None
        ``"acquire"``, or from PTX 8.6 ``"relaxed"``; None leaves it out, which means acquire.
    scope : str or None
        ``"cta"`` or ``"cluster"``; given when `semantics` is.
    suspend_time_hint : bool
        Adds an operand with the time limit in nanoseconds.

    Raises
    ------
    EmissionError
        For another value, and for only one of `semantics` and `scope`.

    Notes
    -----
    Source: PTX ISA, "mbarrier.test_wait, mbarrier.try_wait".
    """
    return TRY_WAIT_PARITY.build(semantics=semantics, scope=scope, suspend_time_hint=suspend_time_hint)
