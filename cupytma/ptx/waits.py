"""Waiting for the phases of mbarrier objects, by token and by parity.

Source of every row: PTX ISA, "mbarrier.test_wait, mbarrier.try_wait".
"""

from __future__ import annotations

from cupytma.ptx import operands
from cupytma.ptx.barriers import (
    CLUSTER_NOTE,
    LOCAL,
    MBARRIER,
    NAMED_SPACE,
    SCOPE,
    SECTION,
    SEMANTICS_VERSIONS,
    both_or_neither,
)
from cupytma.ptx.family import Argument, Family, Note, flag, given, optional
from cupytma.ptx.instruction import Instruction

_WAIT_NOTES = (
    Note(
        given(semantics=(None, "acquire")),
        "True acquires what the arriving threads released and what bulk copies wrote in that phase.",
    ),
    Note(given(semantics="relaxed"), "Orders no memory accesses."),
    CLUSTER_NOTE,
)


def _wait(verb: str, by: str) -> Family:
    """The row of test_wait or try_wait, by parity or by token."""
    parity, tries = by == "parity", verb == "try_wait"
    phase = "this parity (0 or 1)" if parity else "the token state"
    summaries = {
        "test_wait": f"Returns at once whether the mbarrier's phase of {phase} has completed.",
        "try_wait": f"Returns whether the mbarrier's phase of {phase} has completed, after suspending the thread for a "
        "while where it has not.",
    }
    hint = Argument("%", (operands.SUSPEND_TIME_HINT,), given(suspend_time_hint=True))
    hint_note = Note(given(suspend_time_hint=True), "The hint is the longest suspension, in nanoseconds.")
    return Family(
        name=f"mbarrier_{verb}_parity" if parity else f"mbarrier_{verb}",
        mnemonic=f"mbarrier.{verb}{'.parity' if parity else ''}{{semantics}}{{scope}}{{space}}.b64",
        words=(
            optional("semantics", "acquire", "relaxed"),
            SCOPE,
            LOCAL,
            *((flag("suspend_time_hint"),) if tries else ()),
        ),
        arguments=(
            Argument("%", (operands.WAIT_COMPLETE,)),
            *MBARRIER,
            Argument("%", (operands.PARITY if parity else operands.PHASE_TOKEN,)),
            *((hint,) if tries else ()),
        ),
        summary=summaries[verb],
        section=SECTION + "test_wait, mbarrier.try_wait",
        ptx_version=(7, 8) if tries else (7, 1) if parity else (7, 0),
        clashes=both_or_neither("acquire", "relaxed"),
        requirements=(*SEMANTICS_VERSIONS, NAMED_SPACE),
        notes=(*((hint_note,) if tries else ()), *_WAIT_NOTES),
    )


TEST_WAIT, TEST_WAIT_PARITY = _wait("test_wait", "token"), _wait("test_wait", "parity")
TRY_WAIT, TRY_WAIT_PARITY = _wait("try_wait", "token"), _wait("try_wait", "parity")


def mbarrier_test_wait(
    *, semantics: str | None = None, scope: str | None = None, space: str = "shared::cta"
) -> Instruction:
    """A test, without blocking, of whether the phase of a token has completed.

    Parameters
    ----------
    semantics : str or None
        ``"acquire"``, or from PTX 8.6 ``"relaxed"``; None leaves it out, which means acquire.
    scope : str or None
        ``"cta"`` or ``"cluster"``; given when `semantics` is.
    space : str
        ``"shared::cta"`` or ``"generic"``.

    Raises
    ------
    EmissionError
        For another value, and for only one of `semantics` and `scope`.

    Notes
    -----
    Source: PTX ISA, "mbarrier.test_wait, mbarrier.try_wait".
    """
    return TEST_WAIT.build(semantics=semantics, scope=scope, space=space)


def mbarrier_test_wait_parity(
    *, semantics: str | None = None, scope: str | None = None, space: str = "shared::cta"
) -> Instruction:
    """A test, without blocking, of whether the phase of a parity has completed.

    Parameters
    ----------
    semantics, scope, space
        As for `mbarrier_test_wait`.

    Raises
    ------
    EmissionError
        For another value, and for only one of `semantics` and `scope`.

    Notes
    -----
    Source: PTX ISA, "mbarrier.test_wait, mbarrier.try_wait".
    """
    return TEST_WAIT_PARITY.build(semantics=semantics, scope=scope, space=space)


def mbarrier_try_wait(
    *,
    semantics: str | None = None,
    scope: str | None = None,
    space: str = "shared::cta",
    suspend_time_hint: bool = False,
) -> Instruction:
    """A wait of limited time for the phase of a token to complete.

    Parameters
    ----------
    semantics, scope, space
        As for `mbarrier_test_wait`.
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
    return TRY_WAIT.build(semantics=semantics, scope=scope, space=space, suspend_time_hint=suspend_time_hint)


def mbarrier_try_wait_parity(
    *,
    semantics: str | None = None,
    scope: str | None = None,
    space: str = "shared::cta",
    suspend_time_hint: bool = False,
) -> Instruction:
    """A wait of limited time for the phase of a parity to complete.

    Parameters
    ----------
    semantics, scope, space, suspend_time_hint
        As for `mbarrier_try_wait`.

    Raises
    ------
    EmissionError
        For another value, and for only one of `semantics` and `scope`.

    Notes
    -----
    Source: PTX ISA, "mbarrier.test_wait, mbarrier.try_wait".
    """
    return TRY_WAIT_PARITY.build(semantics=semantics, scope=scope, space=space, suspend_time_hint=suspend_time_hint)
