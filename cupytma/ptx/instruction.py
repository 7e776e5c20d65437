"""One PTX instruction as data: its text, its operands, what has it, and its CUDA C++ wrapper."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import cached_property

from cupytma.errors import EmissionError
from cupytma.ptx.checks import integer, shown
from cupytma.ptx.operands import Operand
from cupytma.targets import TARGETS, Feature, Target
from cupytma.targets import target as target_of

_PLACEHOLDER = re.compile(r"%(\d+)")
_WIDTH = 116
_SHORT_LIST = 12
# Where C++ wrappers check what costs time. NVRTC has assert without a header; elsewhere <cassert> comes first.
DEBUG_BUILD = "(defined(CUPYTMA_CHECK) || defined(__CUDACC_DEBUG__)) && defined(assert)"


@dataclass(frozen=True, repr=False)
class Instruction:
    """One form of one PTX instruction, as the constructors of `cupytma.ptx` make it.

    Attributes
    ----------
    family : str
        The constructor that makes it, such as ``"tensor_load"``.
    words : tuple of (str, value)
        The constructor's arguments that select this form.
    mnemonic : str
        The instruction with its modifiers, in the order that the PTX ISA documents.
    arguments : str
        The operands as PTX writes them, with ``%0``, ``%1``… for the registers.
    operands : tuple of Operand
        In the order of the placeholders; outputs come first.
    clobbers : tuple of str
        What inline assembly declares as clobbered.
    ptx_version : tuple of int
        The oldest PTX ISA version that has this form.
    features : frozenset of Feature
        What a target needs to have.
    function_name : str
        The name of the C++ wrapper in namespace ``cupytma``.
    documentation : str
        What it does, its units and alignments, and what completes it.
    source : str
        The section of the PTX ISA that describes it.
    bound : tuple of (str, int)
        The immediates that `bind` has written into the text.
    notes : tuple of str
        What was unusual in the text that it was parsed from.
    """

    family: str
    words: tuple[tuple[str, bool | int | str | None], ...]
    mnemonic: str
    arguments: str
    operands: tuple[Operand, ...]
    clobbers: tuple[str, ...]
    ptx_version: tuple[int, int]
    features: frozenset[Feature] = field(compare=False)
    function_name: str
    documentation: str = field(compare=False)
    source: str = field(compare=False)
    bound: tuple[tuple[str, int], ...] = ()
    notes: tuple[str, ...] = field(default=(), compare=False)

    @cached_property
    def text(self) -> str:
        """The PTX text, with placeholders for the registers and the closing semicolon."""
        return f"{self.mnemonic} {self.arguments};" if self.arguments else f"{self.mnemonic};"

    @property
    def outputs(self) -> tuple[Operand, ...]:
        """The operands that the instruction writes. Their constraints begin with ``=``."""
        return tuple(operand for operand in self.operands if operand.is_output)

    @property
    def inputs(self) -> tuple[Operand, ...]:
        """The operands that the instruction reads, immediates included."""
        return tuple(operand for operand in self.operands if not operand.is_output)

    @property
    def constraints(self) -> tuple[str, ...]:
        """The constraint letters of the inputs: ``r``, ``l``, ``h``, ``f``, or ``n`` for an immediate."""
        return tuple(operand.constraint for operand in self.inputs)

    @property
    def output_constraints(self) -> tuple[str, ...]:
        """The constraints of the outputs, with ``=`` or ``+``; ``=r`` also for a predicate, which ``selp`` moves."""
        return tuple(operand.constraint for operand in self.outputs)

    @property
    def targets(self) -> tuple[Target, ...]:
        """The targets that have this form."""
        return tuple(target for target in TARGETS.values() if self.supported_on(target))

    def supported_on(self, target: str | Target) -> bool:
        """Whether a target has this form.

        Raises
        ------
        TargetError
            For a target with no Tensor Memory Accelerator, or one that does not exist.
        """
        return self.features <= target_of(target).features

    def index_of(self, name: str) -> int:
        """The placeholder number of an operand.

        Parameters
        ----------
        name : str
            Such as ``"tensor_map"`` or ``"cta_mask"``.

        Raises
        ------
        EmissionError
            If the form has no such operand; the message lists those it has.
        """
        names = [operand.name for operand in self.operands]
        if not isinstance(name, str) or name not in names:
            raise EmissionError(f"{self!r} has no operand {shown(name)}; it has: {', '.join(names) or 'none'}")
        return names.index(name)

    @cached_property
    def result(self) -> Operand | None:
        """The output that the C++ wrapper returns: the predicate where there is one, else the first; or None."""
        single = [operand for operand in self.outputs if not operand.packed]
        predicates = [operand for operand in single if operand.is_predicate]
        return next(iter((*predicates, *single)), None)

    @property
    def parameters(self) -> tuple[Operand, ...]:
        """The operands that are parameters of the C++ wrapper, in the instruction's order."""
        return tuple(o for o in self.operands if not o.is_immediate and o is not self.result)

    @property
    def immediates(self) -> tuple[Operand, ...]:
        """The operands that are constants in the instruction."""
        return tuple(operand for operand in self.operands if operand.is_immediate)

    def bind(self, **values: int) -> Instruction:
        """The same form with its immediates written into the text.

        Parameters
        ----------
        **values : int
            Immediates by name, such as ``ordinal=2``.

        Raises
        ------
        EmissionError
            If the form has no such immediate, or the value is out of its range; the message says what is legal.
        """
        legal = {operand.name: operand for operand in self.immediates}
        for name, number in values.items():
            if name not in legal:
                raise EmissionError(f"{self!r} has no immediate {shown(name)}; it has: {', '.join(legal) or 'none'}")
            allowed = legal[name].values
            value = integer(number)
            if value is None or (allowed and value not in allowed):
                raise EmissionError(
                    f"{self.family}: {name}={shown(number)} is out of range; legal: {spoken_range(allowed)}"
                )
            values[name] = value
        needs = [need for name, number in values.items() for need in legal[name].needs_of(number)]
        places = {self.index_of(name): str(number) for name, number in values.items()}
        kept = [i for i in range(len(self.operands)) if i not in places]
        places |= {i: f"%{place}" for place, i in enumerate(kept)}
        return replace(
            self,
            arguments=_PLACEHOLDER.sub(lambda m: places[int(m[1])], self.arguments),
            operands=tuple(self.operands[i] for i in kept),
            function_name="_".join((self.function_name, *(str(v).replace("-", "minus_") for v in values.values()))),
            bound=(*self.bound, *values.items()),
            features=self.features.union(*(need.features for need in needs)),
            ptx_version=max([self.ptx_version, *(need.ptx_version for need in needs)]),
        )

    def function(self, target: str | Target | None = None) -> str:
        """The instruction as a function in CUDA C++.

        Parameters
        ----------
        target : str or Target, optional
            Whose range of values the immediates are held to. Default: what any target has.

        Returns
        -------
        str
            A ``__device__ __forceinline__`` function named `function_name`, with a comment above it. Addresses are
            generic pointers, whatever their state space: ``void*``, ``const void*``, and ``unsigned long long*`` for
            an mbarrier. The function converts those to shared memory, parameters and constants itself. Immediates are
            template parameters. A predicate is returned as ``bool``; an output besides the returned one is a reference.
        """
        chosen = None if target is None else target_of(target)
        lines = [comment(f"{self.documentation} ({self.source})")]
        if self.immediates:
            lines.append(f"template <{', '.join(_defaulted(f'{o.c_type} {o.name}', o) for o in self.immediates)}>")
        returned = self.result.c_type if self.result else "void"
        lines.append(declaration(f"{returned} {self.function_name}", self._declared()))
        lines.append("{")
        lines += self._body(chosen)
        if self.result:
            lines.append(f"    return {self.result.name}{' != 0' if self.result.is_predicate else ''};")
        lines.append("}")
        return "\n".join(lines)

    def inline_asm(self, target: str | Target | None = None) -> str:
        """The instruction as inline assembly in CUDA C++: the statements of `function`, for a kernel's own code.

        Parameters
        ----------
        target : str or Target, optional
            As for `function`.

        Returns
        -------
        str
            Statements that read and write variables with the operands' names, of the types that `function` takes.
            The `result` is declared by the first of them, a predicate as ``unsigned``, 0 or 1.
        """
        body = "\n".join(self._body(None if target is None else target_of(target)))
        return "\n".join(line.removeprefix("    ") for line in body.splitlines())

    def _body(self, target: Target | None) -> list[str]:
        lines = [line for operand in self.immediates for line in _assertion(operand, target)]
        lines += _debug_assertions([operand for operand in self.inputs if operand.multiple > 1])
        if self.result:
            lines.append(f"    {'unsigned' if self.result.is_predicate else self.result.c_type} {self.result.name};")
        lines += [f"    {line}" for line in dict.fromkeys(line for o in self.operands for line in o.preparation)]
        return lines + self._asm()

    def _declared(self) -> tuple[str, ...]:
        arrays = Counter(o.vector for o in self.parameters if o.packed)
        declared: dict[str, str] = {}
        for o in self.parameters:
            if o.packed:
                constant = "" if o.is_output else "const "
                declared[o.vector or ""] = f"{constant}{o.c_type} (&{o.vector})[{arrays[o.vector]}]"
            else:
                declared[o.name] = _defaulted(f"{o.c_type}{'&' if o.is_output else ''} {o.name}", o)
        return tuple(declared.values())

    def _asm(self) -> list[str]:
        """The lines of the asm statement. Predicates live in a PTX scope of their own: setp in, selp out."""
        predicates = {i: f"p{n}" for n, i in enumerate(i for i, o in enumerate(self.operands) if o.is_predicate)}
        text = _PLACEHOLDER.sub(lambda m: predicates.get(int(m[1]), m[0]), self.text)
        if predicates:
            before = [f"setp.ne.b32 {p}, %{i}, 0;" for i, p in predicates.items() if not self.operands[i].is_output]
            after = [f"selp.b32 %{i}, 1, 0, {p};" for i, p in predicates.items() if self.operands[i].is_output]
            declared = f".reg .pred {', '.join(predicates.values())};"
            text = " ".join(("{", declared, *before, text, *after, "}"))
        sections = [
            [f'"{o.constraint}"({o.expression})' for o in self.outputs],
            [f'"{o.constraint}"({o.expression})' for o in self.inputs],
            [f'"{name}"' for name in self.clobbers],
        ]
        while sections and not sections[-1]:
            sections.pop()
        body = [f'    asm volatile("{text}"', *("        : " + _listed(s) for s in sections)]
        return [line.rstrip() for line in (*body[:-1], body[-1] + ");")]

    def _repr_html_(self) -> str:
        from cupytma.view.instruction_card import instruction_card

        return instruction_card(self)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        call = f"{self.family}({', '.join(f'{name}={value!r}' for name, value in self.words)})"
        return call + (f".bind({', '.join(f'{n}={v}' for n, v in self.bound)})" if self.bound else "")


def spoken_range(values: range | None) -> str:
    """The values that a number may have, as a message says them."""
    if values is None:
        return "an integer"
    if len(values) == 2:
        return f"{values[0]} or {values[1]}"
    return f"{values[0]} to {values[-1]}" + (f" in steps of {values.step}" if values.step > 1 else "")


def _defaulted(declared: str, operand: Operand) -> str:
    return declared + (f" = {operand.default}" if operand.default else "")


def _listed(items: list[str]) -> str:
    """Asm operands, one to a line; those of a large vector run on."""
    return (",\n          " if len(items) <= _SHORT_LIST else ", ").join(items)


def _assertion(operand: Operand, target: Target | None) -> list[str]:
    """The static_assert for an immediate's range on a target."""
    values = operand.values_on(target)
    if values is None:
        return []
    name, low, high = operand.name, values[0], values[-1]
    test = f"{name} >= {low} && {name} <= {high}"
    if values.step > 1:
        test += f" && ({name} - {low}) % {values.step} == 0"
    return [f'    static_assert({test}, "{name} is {spoken_range(values)}");']


def _debug_assertions(operands: list[Operand]) -> list[str]:
    """What debug builds check of values that the hardware would take wrong without a word."""
    if not operands:
        return []
    lines = [f"#if {DEBUG_BUILD}"]
    for o in operands:
        number = o.name if o.space is None else f"reinterpret_cast<unsigned long long>({o.name})"
        lines.append(f'    assert({number} % {o.multiple} == 0 && "{o.name} is a multiple of {o.multiple}");')
    return [*lines, "#endif"]


def comment(text: str) -> str:
    """A C++ line comment, wrapped."""
    lines = ["//"]
    for word in text.split():
        if len(lines[-1]) + 1 + len(word) > _WIDTH:
            lines.append("//")
        lines[-1] += f" {word}"
    return "\n".join(lines)


def declaration(name: str, parameters: tuple[str, ...]) -> str:
    """The first lines of a device function: its return type and name, and its parameters."""
    line = f"__device__ __forceinline__ {name}({', '.join(parameters)})"
    if len(line) <= _WIDTH:
        return line
    return f"__device__ __forceinline__ {name}(\n    " + ",\n    ".join(parameters) + ")"


def form_of(function: str, value: object) -> Instruction:
    """The instruction that a caller gives.

    Raises
    ------
    EmissionError
        For anything else.
    """
    if isinstance(value, Instruction):
        return value
    raise EmissionError(f"{function} takes an Instruction, not {shown(value)}; parse makes one of text")
