"""Pointing a tensor map at another tensor on the device: the sequence, and its CUDA C++ function.

The order is the founding document's: address, dimensions, strides, ``2 * rank`` replaces in all, between an acquire and
a release. In shared memory the release is fused with the copy to where copies use the map, `tensormap_cp_fenceproxy`.
"""

from __future__ import annotations

from dataclasses import dataclass

from cupytma.ptx.checks import checked_flag, checked_integer, checked_word
from cupytma.ptx.instruction import Instruction, comment, declaration
from cupytma.ptx.tensormap import (
    SCOPES,
    fence_proxy_tensormap_acquire,
    fence_proxy_tensormap_release,
    tensormap_cp_fenceproxy,
    tensormap_replace,
)

_SPACES = ("global", "shared::cta")
RANKS = range(1, 6)


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
                "whole warp calls it with the same arguments, when no copy that uses the map is under way. tensor_map "
                "is in global memory"
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
    rank = checked_integer("rebind", "rank", rank, RANKS)
    space = checked_word("rebind", "space", space, _SPACES)
    scope = checked_word("rebind", "scope", scope, SCOPES)
    seed = space == "shared::cta" if seeded is None else checked_flag("rebind", "seeded", seeded)
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
