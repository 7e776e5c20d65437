"""Pointing a tensor map at another tensor on the device: the sequence, its CUDA C++ function, and its checker.

The order is the founding document's: address, dimensions, strides, ``2 * rank`` replaces in all, between an acquire and
a release. In shared memory the release is fused with the copy to where copies use the map, `tensormap_cp_fenceproxy`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cupytma.errors import EmissionError
from cupytma.ptx.instruction import Instruction, comment, declaration
from cupytma.ptx.parse import parse
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
    if isinstance(rank, bool) or rank not in _RANKS:
        raise EmissionError(f"rebind: rank={rank!r} is not supported; supported: 1, 2, 3, 4, 5")
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


_RELEASES = ("fence_proxy_tensormap_release", "tensormap_cp_fenceproxy")


def check_rebind(
    sequence: Iterable[Instruction | str] | Rebind, *, rank: int | None = None, within: str = "grid"
) -> None:
    """Refuse a rebind sequence that is out of order, lacks a fence, or has fences of too narrow a scope.

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
        With one sentence per fault.
    """
    if within not in SCOPE_WITHIN:
        raise EmissionError(f"within={within!r} is not supported; supported: {', '.join(map(repr, SCOPE_WITHIN))}")
    items = sequence.instructions if isinstance(sequence, Rebind) else sequence
    forms = [parse(item) if isinstance(item, str) else item for item in items]
    problems = [*_order_problems(forms, rank), *_fence_problems(forms), *_scope_problems(forms, within)]
    if problems:
        raise EmissionError("; ".join(problems))


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
    places = [i for i, family in enumerate(families) if family == "tensormap_replace"]
    if not places:
        return []
    first, last = places[0], places[-1]
    staged = all("shared::cta" in form.mnemonic for form in forms if form.family == "tensormap_replace")
    problems = []
    if not staged and "fence_proxy_tensormap_acquire" not in families[:first]:
        problems.append("an acquire fence of the tensormap proxy is missing before the first replace")
    wanted = _RELEASES[1:] if staged else _RELEASES
    if not any(family in wanted for family in families[last + 1 :]):
        what = "tensormap.cp_fenceproxy" if staged else "a release fence of the tensormap proxy"
        problems.append(f"{what} is missing after the last replace")
    if any(family in wanted or family.startswith("fence_proxy_tensormap") for family in families[first:last]):
        problems.append("a fence stands between the replaces; all of them belong between the two fences")
    return problems


def _scope_problems(forms: list[Instruction], within: str) -> list[str]:
    needed = SCOPE_WITHIN[within]
    return [
        f"{form.mnemonic} has scope .{scope}, too narrow within a {within}: it needs .{needed}"
        for form in forms
        if (scope := str(dict(form.words).get("scope", "sys"))) in SCOPES and SCOPES.index(scope) < SCOPES.index(needed)
    ]
