"""Warpgroup matrix multiplication: the instructions of sm_90a that multiply tiles which tensor copies have brought.

Source of every row: PTX ISA, "Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions".
"""

from __future__ import annotations

from cupytma.errors import EmissionError
from cupytma.ptx import operands
from cupytma.ptx.checks import shown
from cupytma.ptx.family import Argument, Choice, Family, Note, Requirement, Word, Words, flag, given
from cupytma.ptx.instruction import Instruction
from cupytma.targets import Feature

_SECTION = "Asynchronous Warpgroup Level Matrix Instructions: wgmma."
_WGMMA = frozenset({Feature.WGMMA})
_EVERY_EIGHT = tuple(range(8, 257, 8))
# Integer products have fewer widths.
_INTEGER_WIDTHS = (8, 16, 24, *range(32, 257, 16))


def _simple(verb: str, summary: str, arguments: tuple[Argument, ...] = ()) -> Family:
    return Family(
        name=f"wgmma_{verb}",
        mnemonic=f"wgmma.{verb}.sync.aligned",
        words=(),
        arguments=arguments,
        summary=summary + " All warps of the warpgroup execute it.",
        section=_SECTION + verb,
        ptx_version=(8, 0),
        features=_WGMMA,
    )


FENCE = _simple(
    "fence",
    "Orders accesses to registers, and to shared memory by this proxy, before the wgmma_mma_async that follow it: "
    "before the first one, and whenever registers were changed.",
)
COMMIT_GROUP = _simple("commit_group", "Makes a wgmma-group of the wgmma_mma_async that were not committed yet.")
_PENDING = operands.immediate(
    "count", "how many of the newest wgmma-groups may be pending; the assembler encodes 7 for anything above", 0, 7
)
WAIT_GROUP = _simple(
    "wait_group",
    "Waits until at most count of the newest wgmma-groups are pending; the accumulators of the others are final.",
    (Argument("%", (_PENDING,)),),
)

_SCALE = "1, or -1 to negate"
_SCALES = (
    operands.immediate("scale_a", f"{_SCALE} the elements of A", -1, 1, 2, default=1),
    operands.immediate("scale_b", f"{_SCALE} the elements of B", -1, 1, 2, default=1),
)
_TRANSPOSITIONS = {
    side: operands.immediate(f"trans_{side}", f"1 if {side.upper()} lies the other way, MN-major", 0, 1, default=0)
    for side in "ab"
}
_ACCUMULATORS = {
    # A register holds one 32-bit element or two 16-bit ones; each thread has n / 2 elements of the 64 x n matrix.
    "f32": (operands.value("d", "f32", "the accumulators", "updated", vector="d", packed=True), 2),
    "f16": (operands.value("d", "b32", "the accumulators, two to a register", "updated", vector="d", packed=True), 4),
    "s32": (operands.value("d", "s32", "the accumulators", "updated", vector="d", packed=True), 2),
}
_A_REGISTERS = operands.value("a", "b32", "this thread's part of A", vector="a", packed=True)


def _accumulators(d_type: str) -> Argument:
    operand, share = _ACCUMULATORS[d_type]

    def length(words: Words) -> int:
        n = words["n"]
        assert isinstance(n, int)
        return n // share

    return Argument("{%*}", (operand,), given(d_type=d_type), length)


def _types(name: str, types: tuple[str, ...]) -> Word:
    return Word(name, tuple(Choice(t, t, f"_{t}") for t in types))


_MIXED_INTEGERS = tuple(Requirement(given(a_type=a, b_type=b), (8, 4)) for a, b in (("s8", "u8"), ("u8", "s8")))


def _row(
    k: int,
    d_types: tuple[str, ...],
    types: tuple[str, ...],
    widths: tuple[int, ...] = _EVERY_EIGHT,
    transposable: bool = False,
    integer: bool = False,
) -> Family:
    """The row of one kind of elements."""
    immediates: tuple[Argument, ...] = ()
    if not integer:
        immediates = (Argument("%, %", _SCALES),)
    if transposable:
        immediates += (
            Argument("%", (_TRANSPOSITIONS["a"],), given(a_source="shared")),
            Argument("%", (_TRANSPOSITIONS["b"],)),
        )
    return Family(
        name="wgmma_mma_async",
        mnemonic=f"wgmma.mma_async.sync.aligned.m64n{{n}}k{k}{{satfinite}}.{{d_type}}.{{a_type}}.{{b_type}}",
        words=(
            Word("n", tuple(Choice(n, str(n), f"_m64n{n}k{k}") for n in widths)),
            _types("d_type", d_types),
            _types("a_type", types),
            _types("b_type", types),
            Word("a_source", (Choice("shared"), Choice("registers", suffix="_a_registers"))),
            flag("satfinite", ".satfinite") if integer else Word("satfinite", (Choice(False),)),
        ),
        arguments=(
            *(_accumulators(d_type) for d_type in d_types),
            Argument(
                "%", (operands.value("a_descriptor", "b64", "the matrix descriptor of A"),), given(a_source="shared")
            ),
            Argument("{%*}", (_A_REGISTERS,), given(a_source="registers"), lambda _: 4),
            Argument("%", (operands.value("b_descriptor", "b64", "the matrix descriptor of B"),)),
            Argument("%", (operands.value("scale_d", "pred", "whether to add to d; false: d = A * B"),)),
            *immediates,
        ),
        summary=(
            f"Starts d = A * B + d for A of 64 x {k} {{a_type}}, B of {k} x {{n}} {{b_type}} and d of 64 x {{n}} "
            "{d_type}, by the warpgroup, through the async proxy. It completes through wgmma_commit_group and "
            "wgmma_wait_group."
        ),
        section=_SECTION + "mma_async",
        ptx_version=(8, 0),
        features=_WGMMA,
        clobbers=("memory",),
        requirements=_MIXED_INTEGERS,
        notes=(
            Note(given(a_source="shared"), "A and B lie in shared memory, described by matrix descriptors."),
            Note(given(a_source="registers"), "A is in registers; B lies in shared memory."),
            Note(given(satfinite=True), "Sums saturate."),
        ),
    )


ROWS: dict[str, Family] = {
    "f16": _row(16, ("f32", "f16"), ("f16",), transposable=True),
    "bf16": _row(16, ("f32",), ("bf16",), transposable=True),
    "tf32": _row(8, ("f32",), ("tf32",)),
    **dict.fromkeys(("e4m3", "e5m2"), _row(32, ("f32", "f16"), ("e4m3", "e5m2"))),
    **dict.fromkeys(("s8", "u8"), _row(32, ("s32",), ("s8", "u8"), _INTEGER_WIDTHS, integer=True)),
}
MMA_ASYNC = tuple({id(row): row for row in ROWS.values()}.values())


def wgmma_fence() -> Instruction:
    """The fence before wgmma.

    Notes
    -----
    Source: PTX ISA, "wgmma.fence".
    """
    return FENCE.build()


def wgmma_commit_group() -> Instruction:
    """The end of a wgmma-group.

    Notes
    -----
    Source: PTX ISA, "wgmma.commit_group".
    """
    return COMMIT_GROUP.build()


def wgmma_wait_group(*, count: int | None = None) -> Instruction:
    """A wait for all but the newest wgmma-groups.

    Parameters
    ----------
    count : int, optional
        How many may be pending, 0 to 7. Given, it is written into the instruction.

    Notes
    -----
    Source: PTX ISA, "wgmma.wait_group".
    """
    form = WAIT_GROUP.build()
    return form if count is None else form.bind(count=count)


def wgmma_mma_async(
    *,
    n: int,
    a_type: str,
    b_type: str | None = None,
    d_type: str | None = None,
    a_source: str = "shared",
    satfinite: bool = False,
) -> Instruction:
    """A product of a matrix of 64 rows with one of n columns, added to accumulators in registers.

    Parameters
    ----------
    n : int
        8 to 256 in steps of 8; for integers 8, 16, 24, and 32 to 256 in steps of 16.
    a_type, b_type : str
        ``"f16"``, ``"bf16"``, ``"tf32"``, ``"e4m3"``, ``"e5m2"``, ``"s8"`` or ``"u8"``. `b_type` is `a_type` unless
        given; only e4m3 with e5m2, and from PTX 8.4 s8 with u8, may be mixed.
    d_type : str
        ``"f32"``; ``"f16"`` for f16, e4m3 and e5m2; ``"s32"`` for integers. Default: the widest.
    a_source : str
        ``"shared"``, by a matrix descriptor, or ``"registers"``.
    satfinite : bool
        Saturate; integers only.

    Raises
    ------
    EmissionError
        For a word with another value, and types that do not go together.

    Notes
    -----
    Source: PTX ISA, "wgmma.mma_async". Needs sm_90a. `MatrixDescriptor` makes the descriptors.
    """
    row = ROWS.get(a_type) if isinstance(a_type, str) else None
    if row is None:
        raise EmissionError(
            f"wgmma_mma_async: a_type={shown(a_type)} is not supported; supported: {', '.join(map(repr, ROWS))}"
        )
    choices = {word.name: [choice.value for choice in word.choices] for word in row.words}
    words: dict[str, object] = {
        "n": n,
        "d_type": choices["d_type"][0] if d_type is None else d_type,
        "a_type": a_type,
        "b_type": a_type if b_type is None else b_type,
        "a_source": a_source,
        "satfinite": satfinite,
    }
    for name in ("d_type", "b_type", "satfinite"):
        value = words[name]
        if not isinstance(value, (str, bool)) or value not in choices[name]:
            legal = ", ".join(map(repr, choices[name]))
            raise EmissionError(
                f"wgmma_mma_async: {name}={shown(value)} clashes with a_type={a_type!r}; legal: {legal}"
            )
    return row.build(**words)
