"""Pointing a tensor map at another tensor on the device: the sequence, its CUDA C++ function, and its checker.

The order is the founding document's: address, dimensions, strides, ``2 * rank`` replaces in all, between an acquire and
a release. In shared memory the release is fused with the copy to where copies use the map, `tensormap_cp_fenceproxy`.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable
from dataclasses import dataclass

from cupytma.errors import EmissionError
from cupytma.ptx.instruction import Instruction, comment, declaration
from cupytma.ptx.parse import read as _read_statement
from cupytma.ptx.tensormap import (
    SCOPES,
    fence_proxy_tensormap_acquire,
    fence_proxy_tensormap_release,
    tensormap_cp_fenceproxy,
    tensormap_replace,
)

#: The narrowest scope for whom the fence is between: threads of a block, blocks of a grid, the host and the device.
SCOPE_WITHIN = {"block": "cta", "cluster": "gpu", "grid": "gpu", "host": "sys"}
_SPACES = ("global", "shared::cta")
_RANKS = range(1, 6)


@dataclass(frozen=True)
class Rebind:
    """The instructions that point a tiled tensor map at another tensor.

    Attributes
    ----------
    rank : int
        Of the tensor map, 1 to 5.
    space : str
        Where the fields are replaced: ``"global"`` or ``"shared::cta"``.
    scope : str
        Of the fences.
    seeded : bool
        Whether a template that the host has made is copied to the map first.
    instructions : tuple of Instruction
        In the order of execution. Who uses the map then acquires it: `acquire`.
    """

    rank: int
    space: str
    scope: str
    seeded: bool
    instructions: tuple[Instruction, ...]

    @property
    def acquire(self) -> Instruction:
        """What a thread of each block that uses the map executes before."""
        return fence_proxy_tensormap_acquire(scope=self.scope)

    @property
    def function_name(self) -> str:
        """The C++ function's name."""
        seed = "_seeded" if self.seeded else ""
        return f"rebind_{self.space.replace('::', '_')}{seed}_{self.rank}d_{self.scope}"

    @property
    def calls(self) -> tuple[str, ...]:
        """The functions of the header that the C++ function calls."""
        return tuple(dict.fromkeys(_unbound(i).function_name for i in self.instructions))

    def function(self) -> str:
        """The sequence as one function in CUDA C++, for one whole warp, calling the header's functions."""
        shared, rank = self.space == "shared::cta", self.rank
        staged = shared or self.seeded
        parameters = ["void* tensor_map"]
        if staged:
            parameters.append("void* staging")
        if self.seeded:
            parameters.append("const void* seed")
        parameters.append("unsigned long long address")
        parameters.append(f"const unsigned (&extents)[{rank}]")
        if rank > 1:
            parameters.append(f"const unsigned long long (&strides)[{rank - 1}]")
        body = []
        if self.seeded:
            body += [
                "if (lane < 8) {",
                "    static_cast<ulonglong2*>(staging)[lane] = static_cast<const ulonglong2*>(seed)[lane];",
                "}",
                "__syncwarp();",
            ]
        changes: list[str] = []
        for instruction in self.instructions:
            if instruction.family == "tensormap_replace":
                changes.append(f"    {_call(instruction, 'staging' if shared else 'tensor_map')}")
                continue
            # One lane changes the fields; all lanes execute the copy, and the fences.
            body += _by_one_lane(changes)
            changes = []
            body.append(_call(instruction, "tensor_map"))
        body += _by_one_lane(changes)
        lines = [
            comment(
                f"Points the {rank}-dimensional tiled tensor map at another tensor, for users at {self.scope} scope. A "
                "whole warp calls it with the same arguments. tensor_map is in global memory"
                + (", staging in shared memory" if staged else "")
                + "; each is aligned to 128 bytes. extents count elements, strides bytes, from dimension 0 and 1 on. A "
                f"thread of each block that uses the map then executes {self.acquire.function_name}."
            ),
            declaration(f"void {self.function_name}", tuple(parameters)),
            "{",
            "    unsigned lane;",
            '    asm("mov.u32 %0, %%laneid;" : "=r"(lane));',
            *(f"    {line}" for line in body),
            "}",
        ]
        return "\n".join(lines)


def _by_one_lane(changes: list[str]) -> list[str]:
    return ["if (lane == 0) {", *changes, "}", "__syncwarp();"] if changes else []


def _unbound(instruction: Instruction) -> Instruction:
    if not instruction.bound:
        return instruction
    words = dict(instruction.words)
    return tensormap_replace(field=str(words["field"]), space=str(words["space"]))


def _call(instruction: Instruction, where: str) -> str:
    """The C++ statement for one instruction of the sequence."""
    name, ordinal = _unbound(instruction).function_name, dict(instruction.bound).get("ordinal")
    if instruction.family == "tensormap_cp_fenceproxy":
        return f"{name}({where}, staging);"
    if instruction.family != "tensormap_replace":
        return f"{name}({where});" if instruction.operands else f"{name}();"
    source = {"global_address": "address", "global_dim": f"extents[{ordinal}]", "global_stride": f"strides[{ordinal}]"}
    value = source[str(dict(instruction.words)["field"])]
    template = "" if ordinal is None else f"<{ordinal}>"
    return f"{name}{template}({where}, {value});"


def _checked_rank(function: str, rank: object) -> int:
    try:
        number = operator.index(rank)  # type: ignore[arg-type]
    except TypeError:
        number = 0
    if isinstance(rank, bool) or number not in _RANKS:
        raise EmissionError(f"{function}: rank={rank!r} is not supported; supported: 1, 2, 3, 4, 5")
    return number


def rebind(*, rank: int, space: str = "shared::cta", scope: str = "gpu", seeded: bool | None = None) -> Rebind:
    """The sequence that points a tiled tensor map at another tensor on the device.

    Parameters
    ----------
    rank : int
        1 to 5.
    space : str
        ``"shared::cta"``: replace the fields in a staged copy in shared memory, then copy it to global memory.
        ``"global"``: replace them in global memory, between fences.
    scope : str
        ``"cta"`` for users in the same block, ``"gpu"`` for other blocks, ``"sys"`` where the host or another device
        takes part.
    seeded : bool, optional
        Copy a template that the host has made to the map first. Default: for ``"shared::cta"``, whose staging has to
        come from somewhere.

    Raises
    ------
    EmissionError
        For a word with another value.

    Notes
    -----
    Sources: the founding document's update algorithm; PTX ISA, "tensormap.replace", "tensormap.cp_fenceproxy".
    """
    rank = _checked_rank("rebind", rank)
    if space not in _SPACES:
        raise EmissionError(f"rebind: space={space!r} is not supported; supported: {', '.join(map(repr, _SPACES))}")
    seed = space == "shared::cta" if seeded is None else seeded
    replaces = (
        tensormap_replace(field="global_address", space=space),
        *(tensormap_replace(field="global_dim", space=space, ordinal=i) for i in range(rank)),
        *(tensormap_replace(field="global_stride", space=space, ordinal=i) for i in range(rank - 1)),
    )
    copy = tensormap_cp_fenceproxy(scope=scope)
    if space == "shared::cta":
        sequence: tuple[Instruction, ...] = (*replaces, copy)
    else:
        acquire, release = fence_proxy_tensormap_acquire(scope=scope), fence_proxy_tensormap_release(scope=scope)
        sequence = (*((copy,) if seed else ()), acquire, *replaces, release)
    return Rebind(rank, space, scope, seed, sequence)


_REPLACE, _COPY = "tensormap_replace", "tensormap_cp_fenceproxy"
_ACQUIRE, _RELEASE = "fence_proxy_tensormap_acquire", "fence_proxy_tensormap_release"
# What reads a map through the tensormap proxy.
_USES = ("tensor_load", "tensor_store", "tensor_reduce", "tensor_prefetch", "prefetch_tensormap")
_PLACEHOLDER = re.compile(r"%\d+")


def check_rebind(
    sequence: Iterable[Instruction | str] | Rebind, *, rank: int | None = None, within: str = "grid"
) -> None:
    """Refuse a rebind sequence that is out of order, lacks a fence, or has fences of too narrow a scope.

    Between the fences only the replaces may stand, all in one space and, where text names registers, on one map. Uses
    of the map may follow after an acquire. Uses of the map as it was before do not belong into the sequence.

    Parameters
    ----------
    sequence : iterable of Instruction or str, or Rebind
        The instructions in the order of execution, as forms or as PTX text.
    rank : int, optional
        Of the tensor map. Default: as many dimensions as are replaced.
    within : str
        Whom the fences are between: threads of one ``"block"``, blocks of a ``"cluster"`` or ``"grid"``, or the
        ``"host"`` and the device.

    Raises
    ------
    EmissionError
        With one sentence per fault; text that is no instruction of the family, and a rank that is none, too.
    """
    if within not in SCOPE_WITHIN:
        raise EmissionError(f"within={within!r} is not supported; supported: {', '.join(map(repr, SCOPE_WITHIN))}")
    if rank is not None:
        rank = _checked_rank("check_rebind", rank)
    items = sequence.instructions if isinstance(sequence, Rebind) else sequence
    read = [_reading(item) for item in items]
    forms = [form for form, _ in read]
    problems = [
        *_order_problems(forms, rank),
        *_fence_problems(forms),
        *_scope_problems(forms, within),
        *_address_problems(read),
    ]
    if problems:
        raise EmissionError("; ".join(problems))


def _reading(item: Instruction | str) -> tuple[Instruction, dict[str, str]]:
    if isinstance(item, Instruction):
        return item, {}
    statement = _read_statement(item)
    return statement.instruction, statement.given


def _replaced(forms: list[Instruction]) -> list[tuple[str, int]]:
    replaces = [form for form in forms if form.family == "tensormap_replace"]
    return [(str(dict(form.words)["field"]), dict(form.bound).get("ordinal", 0)) for form in replaces]


def _order_problems(forms: list[Instruction], rank: int | None) -> list[str]:
    found = _replaced(forms)
    dims = rank if rank is not None else sum(field == "global_dim" for field, _ in found)
    expected = [
        ("global_address", 0),
        *(("global_dim", i) for i in range(dims)),
        *(("global_stride", i) for i in range(dims - 1)),
    ]
    if found == expected:
        return []
    if sorted(found) == sorted(expected):
        names = ", ".join(f"{field}[{i}]" if field != "global_address" else field for field, i in expected)
        return [f"the replaces are out of order; the order is {names}"]
    missing = [f"{field}[{i}]" for field, i in expected if (field, i) not in found]
    extra = [f"{field}[{i}]" for field, i in found if (field, i) not in expected]
    problems = [f"rank {dims} takes {2 * dims} replaces, not {len(found)}"]
    problems += [f"missing: {', '.join(missing)}"] if missing else []
    return problems + ([f"not part of it: {', '.join(extra)}"] if extra else [])


def _fence_problems(forms: list[Instruction]) -> list[str]:
    families = [form.family for form in forms]
    places = [i for i, family in enumerate(families) if family == _REPLACE]
    if not places:
        return []
    spaces = list(dict.fromkeys(str(dict(forms[i].words)["space"]) for i in places))
    if len(spaces) > 1:
        return [f"the replaces are in different spaces, {' and '.join(spaces)}; a map is changed in one"]
    first, last = places[0], places[-1]
    # A generic address may be one of shared memory; what publishes the map tells.
    staged = spaces[0] == "shared::cta" or (
        spaces[0] == "generic" and _COPY in families[last:] and _RELEASE not in families[last:]
    )
    problems = []
    opening = max((i for i in range(first) if families[i] == _ACQUIRE), default=None)
    if opening is None and not staged:
        problems.append("an acquire fence of the tensormap proxy is missing before the first replace")
    wanted = _COPY if staged else _RELEASE
    closing = next((i for i in range(last + 1, len(families)) if families[i] == wanted), None)
    if closing is None:
        what = "tensormap.cp_fenceproxy" if staged else "a release fence of the tensormap proxy"
        problems.append(f"{what} is missing after the last replace")
    start = first if opening is None or staged else opening
    end = len(families) if closing is None else closing
    acquired = False
    for i, form in enumerate(forms):
        family = form.family
        acquired |= i > end and family == _ACQUIRE
        if i == closing:
            continue
        if family == _COPY and (staged or i > start):
            place = "comes once, right after the last replace" if staged else "belongs before the acquire"
            problems.append(f"{form.mnemonic} is out of place; here it {place}")
        elif family in _USES and i < end:
            problems.append(f"{form.mnemonic} uses the map before it is released")
        elif family in _USES and not acquired:
            problems.append(f"{form.mnemonic} uses the map after its release with no acquire before it")
        elif start < i < end and family != _REPLACE:
            kind = "fence" if "fence" in family else "foreign instruction"
            problems.append(f"a {kind}, {form.mnemonic}, stands between the replaces and their fences")
    return problems


def _address_problems(read: list[tuple[Instruction, dict[str, str]]]) -> list[str]:
    """Addresses that differ although they should be the map's, where the sequence is text that names them.

    Addresses are compared within one space: a map's generic and its global address may be in different registers.
    """
    found: dict[str, list[str]] = {}
    for form, given in read:
        for operand in form.operands:
            if operand.name not in given or operand.space is None:
                continue
            if form.family in (_REPLACE, _COPY, _ACQUIRE) or (form.family in _USES and operand.name == "tensor_map"):
                address = given[operand.name].removesuffix("+0")
                # Placeholders number the operands of one instruction. In all replaces the map is the first.
                if form.family == _REPLACE or not _PLACEHOLDER.fullmatch(address):
                    found.setdefault(operand.space, []).append(address)
    return [
        f"the {space} addresses differ: {', '.join(names)}; all of them are of one map"
        for space, addresses in found.items()
        if len(names := _told_apart(addresses)) > 1
    ]


def _told_apart(addresses: list[str]) -> list[str]:
    """The different addresses; a placeholder differs from placeholders alone."""
    names = list(dict.fromkeys(addresses))
    placeholders = [name for name in names if _PLACEHOLDER.fullmatch(name)]
    registers = [name for name in names if name not in placeholders]
    return registers if len(registers) > 1 else placeholders


def _scope_problems(forms: list[Instruction], within: str) -> list[str]:
    needed = SCOPE_WITHIN[within]
    return [
        f"{form.mnemonic} has scope .{scope}, too narrow within a {within}: it needs .{needed}"
        for form in forms
        if (scope := str(dict(form.words).get("scope", "sys"))) in SCOPES and SCOPES.index(scope) < SCOPES.index(needed)
    ]
