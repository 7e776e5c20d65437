"""What a function does that matters to the family: its instructions, and the ordinary ones that they meet."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

from cupytma.check.flow import Flow, base_of, reached
from cupytma.check.levels import Levels
from cupytma.check.module import Function, Module, Statement
from cupytma.check.paths import Paths
from cupytma.check.reaching import rename_by_reaching_writes
from cupytma.check.regions import Anchors, Region, region_of
from cupytma.check.values import Value, Values
from cupytma.errors import EmissionError
from cupytma.ptx.instruction import Instruction
from cupytma.ptx.parse import read

# First words of the family's mnemonics; of cp and prefetch only some members are of it.
_FIRST_WORDS = (
    "cp", "mbarrier", "fence", "tensormap", "elect", "mapa", "barrier", "griddepcontrol", "prefetch", "stmatrix",
    "multimem",
)  # fmt: skip
_OF_FAMILY = (
    "cp.async.bulk", "cp.reduce.async.bulk", "cp.async.mbarrier", "cp.async.commit_group", "cp.async.wait",
)  # fmt: skip
#: By which a text is seen to have anything to do with the family.
MARKS = ("cp.async", "cp.reduce.async", "mbarrier.", "tensormap", "multimem.cp", "mapa", "barrier.cluster")
_UNNAMED_SPACES = ("global", "local", "param", "const", "tmem")
_MOST_REFUSALS = 200
# What only code for several threads has.
_OF_MANY_THREADS = ("elect", "shfl", "vote", "bar.sync", "barrier.sync", "bar.warp")
_THREAD_NUMBERS = ("%tid.", "%laneid", "%warpid", "%ntid.")

LOADS = ("tensor_load",)
STORES = ("tensor_store", "tensor_reduce")
BULK = ("bulk_copy", "bulk_reduce", "multimem_bulk_copy", "multimem_bulk_reduce")
WAITS = ("mbarrier_try_wait_parity", "mbarrier_test_wait_parity", "mbarrier_try_wait", "mbarrier_test_wait")
EXPECTS = ("mbarrier_arrive_expect_tx", "mbarrier_expect_tx", "mbarrier_arrive_drop_expect_tx")
ARRIVALS = (
    "mbarrier_arrive", "mbarrier_arrive_expect_tx", "mbarrier_arrive_no_complete", "mbarrier_arrive_drop",
    "mbarrier_arrive_drop_expect_tx", "mbarrier_arrive_drop_no_complete", "cp_async_mbarrier_arrive", "tcgen05_commit",
)  # fmt: skip


@dataclass(frozen=True, eq=False)  # each is itself alone
class Event:
    """One thing that a function does.

    Attributes
    ----------
    number : int
        Its place among the function's events.
    kind : str
        The instruction's family in `cupytma.ptx`, such as ``"tensor_load"``; or one of ``"shared_write"``,
        ``"shared_read"``, ``"shared_async_write"`` (by cp.async), ``"thread_barrier"``, ``"thread_barrier_arrive"``,
        ``"warp_barrier"``, ``"tcgen05_commit"``, ``"remote_store"`` (st.async), ``"foreign_completion"`` (by another
        family's instruction), ``"map_write"`` (an ordinary store to a global address), ``"call"`` and ``"exit"``.
    statement : Statement
    block : int
    form : Instruction or None
    given : dict of str to str
        What stands for each operand of the form.
    """

    number: int
    kind: str
    statement: Statement
    block: int
    form: Instruction | None = None
    given: dict[str, str] = field(default_factory=dict)

    @property
    def words(self) -> dict[str, object]:
        """The words that select the form."""
        return dict(self.form.words) if self.form else {}

    @property
    def is_bulk(self) -> bool:
        """Whether it starts an asynchronous bulk or tensor copy or reduction."""
        return self.kind in LOADS or self.kind in STORES or self.kind in BULK

    @property
    def completes_on_barrier(self) -> bool:
        """Whether it is completed by an mbarrier."""
        return self.is_bulk and "mbarrier" in self.given

    @property
    def is_in_group(self) -> bool:
        """Whether it is completed by a bulk group."""
        return self.is_bulk and "mbarrier" not in self.given

    @property
    def reads_shared(self) -> bool:
        """Whether it is a copy or reduction out of shared memory."""
        if self.kind in BULK:  # all but the copies that say otherwise
            return self.words.get("source") != "global"
        return self.kind in STORES


class Unit:
    """One function under analysis: its flow, values and events."""

    def __init__(self, module: Module, function: Function, with_family: frozenset[str]) -> None:
        self.module, self.function = module, function
        self.with_family = with_family
        self.flow = Flow(function)
        rename_by_reaching_writes(function, self.flow)
        self.flow.take_new_names()
        self.values = Values(module, function)
        self.events: list[Event] = []
        self.refused: list[tuple[Statement, str]] = []
        self._regions: dict[str, Region | None] = {}
        for statement in function.statements:
            self._take(statement)

    @cached_property
    def levels(self) -> Levels:
        """What is one for a block, a warp, a lane."""
        return Levels(self.values, self.flow)

    @cached_property
    def paths(self) -> Paths:
        """The ways through the function."""
        return Paths(self.values, self.flow, sorted({event.block for event in self.events}))

    @cached_property
    def calls_family(self) -> bool:
        """Whether it calls functions that have instructions of the family, or that are not known."""
        return any(event.kind == "call" for event in self.events)

    @cached_property
    def has_many_threads(self) -> bool:
        """Whether the code is for blocks of several threads."""
        threads = self.function.numbers_of("reqntid") or self.function.numbers_of("maxntid")
        if threads is not None:
            return any(number != 1 for number in threads)
        return any(
            statement.opcode.startswith(_OF_MANY_THREADS) or any(name in statement.tail for name in _THREAD_NUMBERS)
            for statement in self.function.statements
        )

    @cached_property
    def by_block(self) -> dict[int, list[Event]]:
        """The events of each block that has any, in order."""
        found: dict[int, list[Event]] = {}
        for event in self.events:
            found.setdefault(event.block, []).append(event)
        return found

    def of_kind(self, *kinds: str) -> list[Event]:
        """The events of some kinds."""
        return [event for event in self.events if event.kind in kinds]

    def may_follow(self, later: Event, earlier: Event) -> bool:
        """Whether a thread can come from one event to another."""
        if later.block == earlier.block and later.number > earlier.number:
            return True
        if earlier.block not in self._after:
            nexts = self.flow.successors[earlier.block]
            self._after[earlier.block] = {block for n in nexts for block in reached(self.flow.successors, n)}
        return later.block in self._after[earlier.block]

    @cached_property
    def _after(self) -> dict[int, set[int]]:
        return {}

    def operand(self, event: Event, name: str) -> Value:
        """The value of an operand; a sum that nothing is known of where the form has no such operand."""
        text = event.given.get(name)
        return self.values.of(text) if text is not None else self.values.term("none", event.number, name)

    def region(self, event: Event, name: str) -> Region | None:
        """Where in shared memory an operand's address lies; None where it is not known to be there."""
        text = event.given.get(name)
        if text is None:
            return None
        if text not in self._regions:
            self._regions[text] = region_of(self.values, self.values.of(text))
        return self._regions[text]

    @cached_property
    def anchors(self) -> Anchors:
        """The places in shared memory that the family's instructions name."""
        named = [
            self.region(event, name)
            for event in self.events
            if event.is_bulk or event.kind == "mbarrier_init"
            for name in ("destination", "source", "mbarrier")
        ]
        return Anchors(region for region in named if region is not None)

    def _take(self, statement: Statement) -> None:
        base = base_of(statement.opcode)
        if base in _FIRST_WORDS and self._take_of_family(statement, base):
            return
        taker = _TAKERS.get(base)
        if taker is not None:
            taker(self, statement)
        elif "mbarrier::" in statement.opcode:
            self._take_foreign(statement)

    def _add(self, kind: str, statement: Statement, form: Instruction | None = None, **given: str) -> None:
        block = self.flow.block_of(statement.index)
        self.events.append(Event(len(self.events), kind, statement, block, form, given))

    def _take_of_family(self, statement: Statement, base: str) -> bool:
        opcode = statement.opcode
        if base == "cp" and not opcode.startswith(_OF_FAMILY):
            self._take_cp_async(statement)
            return True
        if base == "barrier" and not opcode.startswith("barrier.cluster"):
            return False
        if base in ("multimem", "prefetch") and "bulk" not in opcode and "tensormap" not in opcode:
            return True
        if len(self.refused) > _MOST_REFUSALS:
            return True
        try:
            found = read(statement.text)
        except EmissionError as error:
            self.refused.append((statement, str(error)))
            self._take_refused(statement)
            return True
        given = found.given | {name: str(number) for name, number in found.instruction.bound}
        self._add(found.instruction.family, statement, found.instruction, **given)
        return True

    def _take_refused(self, statement: Statement) -> None:
        """A form that is not known: what can be said of it by its first words."""
        address = next((a for a in statement.arguments if a[:1] == "["), "")
        for start, kind in (("mbarrier.try_wait", WAITS[0]), ("mbarrier.test_wait", WAITS[1])):
            if statement.opcode.startswith(start):
                self._add(kind, statement, None, mbarrier=address, parity=statement.arguments[-1])
                return
        if statement.opcode.startswith("mbarrier.arrive"):
            self._add("mbarrier_arrive", statement, None, mbarrier=address)
        else:
            self._add("call", statement)

    def _take_cp_async(self, statement: Statement) -> None:
        if statement.arguments:
            self._add("shared_async_write", statement, destination=statement.arguments[0])

    def _take_store(self, statement: Statement) -> None:
        words = statement.opcode.split(".")
        address = next((a for a in statement.arguments if a[:1] == "["), "")
        if not address:
            return
        if "async" in words:  # to a peer, completed by an mbarrier
            barrier = [a for a in statement.arguments if a[:1] == "["][-1]
            self._add("remote_store", statement, destination=address, mbarrier=barrier)
        elif self._in_shared(words, address):
            self._add("shared_write", statement, destination=address)
        elif "global" in words or not any(word in _UNNAMED_SPACES for word in words):
            self._add("map_write", statement, destination=address)

    def _take_load(self, statement: Statement) -> None:
        words = statement.opcode.split(".")
        address = statement.arguments[-1] if statement.arguments else ""
        if address[:1] == "[" and self._in_shared(words, address):
            self._add("shared_read", statement, source=address)

    def _in_shared(self, words: list[str], address: str) -> bool:
        if any(word.startswith("shared") for word in words):
            return True
        if any(word in _UNNAMED_SPACES for word in words):
            return False
        return region_of(self.values, self.values.of(address)) is not None

    def _take_atomic(self, statement: Statement) -> None:
        self._take_store(statement)

    def _take_barrier(self, statement: Statement) -> None:
        if ".arrive" in statement.opcode:
            self._add("thread_barrier_arrive", statement)
            return
        self._add("warp_barrier" if ".warp" in statement.opcode else "thread_barrier", statement)

    def _take_tensor_core(self, statement: Statement) -> None:
        if statement.opcode.startswith("tcgen05.commit"):
            address = next((a for a in statement.arguments if a[:1] == "["), "")
            self._add("tcgen05_commit", statement, mbarrier=address)

    def _take_foreign(self, statement: Statement) -> None:
        """An instruction of another family that completes on an mbarrier: the last address that it has."""
        addresses = [a for a in statement.arguments if a[:1] == "["]
        self._add("foreign_completion", statement, mbarrier=addresses[-1] if addresses else "")

    def _take_call(self, statement: Statement) -> None:
        arguments = [a for a in statement.arguments if a[:1] != "("]
        name = arguments[0] if arguments else ""
        is_plain = name in self.module.by_name and name not in self.with_family
        if not is_plain and name not in _HARMLESS:
            self._add("call", statement, function=name)

    def _take_end(self, statement: Statement) -> None:
        self._add("exit", statement)


_HARMLESS = ("vprintf", "__assertfail", "malloc", "free")
_TAKERS = {
    "st": Unit._take_store,
    "ld": Unit._take_load,
    "atom": Unit._take_atomic,
    "red": Unit._take_atomic,
    "bar": Unit._take_barrier,
    "barrier": Unit._take_barrier,
    "tcgen05": Unit._take_tensor_core,
    "ldmatrix": Unit._take_load,
    "call": Unit._take_call,
    "ret": Unit._take_end,
    "exit": Unit._take_end,
}


def functions_with_family(module: Module) -> frozenset[str]:
    """The functions that have instructions of the family, or call some that have."""
    found: set[str] = set()
    calls: dict[str, set[str]] = {}
    for function in module.functions:
        called: set[str] = set()
        for statement in function.statements:
            if statement.opcode.startswith(MARKS):
                found.add(function.name)
            elif statement.opcode.startswith("call"):
                called |= _called(statement.arguments)
        calls[function.name] = called
    while True:
        more = {name for name, called in calls.items() if name not in found and called & found}
        if not more:
            return frozenset(found)
        found |= more


def _called(arguments: Iterable[str]) -> set[str]:
    return {a for a in arguments if a[:1] not in "([%"} if arguments else set()
