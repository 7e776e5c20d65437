"""LLVM's code generator, through llvmlite: the PTX that a call of a form's intrinsic becomes.

A module holds one function for each form, so that all of them are generated at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from cupytma import ptx
from cupytma.ptx import Instruction

SHARED, CLUSTER, GLOBAL, POINTER = "ptr addrspace(3)", "ptr addrspace(7)", "ptr addrspace(1)", "ptr"
POINTERS = {
    "shared::cta": SHARED,
    "shared::cluster": CLUSTER,
    "global": GLOBAL,
    "generic": POINTER,
    "param": "ptr addrspace(101)",
    "const": "ptr addrspace(4)",
}
Arguments = list[tuple[str, int | None]]
HINT: Arguments = [("i64", None)]
BYTES: Arguments = [("i32", None)]


def given(*types: str) -> Arguments:
    return [(name, None) for name in types]


def flag(value: object, type_: str = "i1") -> Arguments:
    return [(type_, int(value or 0))]  # type: ignore[call-overload]


def tensor_arguments(i: Instruction) -> Arguments:
    words = dict(i.words)
    hinted = HINT + flag(words["cache_hint"])
    box = given(*("i32" for o in i.operands if o.vector == "coordinates"))
    box += given(*("i16" for o in i.operands if o.name.startswith(("im2col_", "w_"))))
    if i.family == "tensor_prefetch":
        return given(POINTER) + box + hinted
    if i.family != "tensor_load":
        return given(SHARED, POINTER) + box + hinted
    if words["destination"] == "shared::cta":
        return given(SHARED, SHARED, POINTER) + box + hinted
    flags = flag(words["multicast"]) + flag(words["cache_hint"]) + flag(words["cta_group"], "i32")
    return given(CLUSTER, SHARED, POINTER) + box + given("i16") + HINT + flags


def copy_arguments(i: Instruction) -> Arguments:
    words = dict(i.words)
    hinted = HINT + flag(words["cache_hint"])
    if words["destination"] == "global":
        return given(GLOBAL, SHARED, "i32") + hinted + (given("i16") if words["byte_mask"] else [])
    if words["source"] == "shared::cta":
        return given(CLUSTER, SHARED, SHARED, "i32")
    if words["destination"] == "shared::cta":
        return given(SHARED, SHARED, GLOBAL, "i32") + hinted
    flags = flag(words["multicast"]) + flag(words["cache_hint"])
    return given(CLUSTER, SHARED, GLOBAL, "i32", "i16") + HINT + flags


def replace_arguments(i: Instruction) -> Arguments:
    words = dict(i.words)
    ordinal = flag(1, "i32") if any(o.name == "ordinal" for o in i.operands) else []
    value = i.operands[-1]
    new = flag(1, "i32") if value.is_immediate else given("i64" if value.constraint == "l" else "i32")
    return given(POINTERS[str(words["space"])]) + ordinal + new


def plain_arguments(i: Instruction) -> Arguments:
    """One argument for each input, in the instruction's order; one arrival where an intrinsic wants their number."""
    arguments: Arguments = []
    for o in i.inputs:
        if o.is_immediate and o.values:
            arguments += flag(o.values[0], "i64" if i.family == "wgmma_wait_group" else "i32")
        elif o.space:
            arguments += given(POINTERS[o.space.removesuffix(".u64").removesuffix(".u32")])
        else:
            arguments += given({"l": "i64", "r": "i32"}[o.constraint])
    if ".space." in ptx.llvm_intrinsic(i, naming="upstream") and len(arguments) == 1:
        arguments += BYTES
    if i.family in ("mapa", "getctarank") and dict(i.words)["space"] == "shared::cluster":
        arguments[0] = (SHARED, None)
    return arguments + (flag(128, "i32") if i.family == "fence_proxy_tensormap_acquire" else [])


ARGUMENTS = {
    **dict.fromkeys(("tensor_load", "tensor_store", "tensor_reduce", "tensor_prefetch"), tensor_arguments),
    "bulk_copy": copy_arguments,
    "bulk_prefetch": lambda i: given(GLOBAL, "i32") + HINT + flag(dict(i.words)["cache_hint"]),
    "tensormap_replace": replace_arguments,
}
OVERLOADED = ("prefetch_tensormap", "tensormap_replace", "ldmatrix", "stmatrix")


def result_type(i: Instruction) -> str:
    words = dict(i.words)
    if i.family == "mapa":
        return POINTER if words["space"] == "generic" else CLUSTER
    if words.get("space") == "shared::cluster" and i.family.startswith("mbarrier_"):
        return "void"
    if i.family == "elect_sync":
        return "{i32, i1}"
    if i.family.startswith("mbarrier_arrive"):
        return "i64"
    types = ["i1" if o.is_predicate else {"=l": "i64", "=r": "i32"}[o.constraint] for o in i.outputs]
    return "void" if not types else types[0] if len(types) == 1 else "{" + ", ".join(types) + "}"


def function(i: Instruction, number: int) -> tuple[str, str]:
    """A function that calls the form's intrinsic, and the intrinsic's declaration."""
    arguments = ARGUMENTS.get(i.family, plain_arguments)(i)
    space = re.search(r"[0-9]+", arguments[0][0]) if arguments[0:1] and i.family in OVERLOADED else None
    suffix = f".p{space[0] if space else 0}" if i.family in OVERLOADED else ""
    name, result = ptx.llvm_intrinsic(i, naming="upstream") + suffix, result_type(i)
    parameters = ", ".join(f"{t} %a{n}" for n, (t, value) in enumerate(arguments) if value is None)
    passed = ", ".join(f"{t} {f'%a{n}' if value is None else value}" for n, (t, value) in enumerate(arguments))
    declared = f"declare {result} @{name}({', '.join(t for t, _ in arguments)})"
    body = f"call {result} @{name}({passed})"
    if result == "void":
        return f"define void @f{number}({parameters}) {{ {body} ret void }}", declared
    keeps = f"%r = {body} store volatile {result} %r, ptr %out"
    return (
        f"define void @f{number}({', '.join(filter(None, (parameters, 'ptr %out')))}) {{ {keeps} ret void }}",
        declared,
    )


def generated(forms: Iterable[Instruction], target: str) -> dict[Instruction, str]:
    """The body of each form's function in PTX."""
    from llvmlite import binding

    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    numbered = dict(enumerate(forms))
    functions, declarations = zip(*(function(i, number) for number, i in numbered.items()), strict=True)
    module = binding.parse_assembly("\n".join((*functions, *dict.fromkeys(declarations))))
    module.verify()
    machine = binding.Target.from_triple("nvptx64-nvidia-cuda").create_target_machine(
        cpu=target, features="+ptx88", opt=1
    )
    bodies = re.findall(r"\.func f(\d+)\(.*?\n\{(.*?)\n\}", machine.emit_assembly(module), re.DOTALL)
    return {numbered[int(number)]: body for number, body in bodies}
