"""CUDA C++ for tensor maps that the device makes and changes: namespace ``cupytma::tensormap`` of the header.

A map is made in a slot of shared memory, from a template, and published to global memory, where copies use it. What an
instruction's operands mean is said by the forms of ``tensormap.replace``; the order of a rebind is that of `rebind`.
"""

from __future__ import annotations

from cupytma.ptx.instruction import DEBUG_BUILD, Instruction, comment, declaration
from cupytma.ptx.rebind import rebind
from cupytma.ptx.tensormap import REPLACE_FIELDS, SCOPES, tensormap_replace
from cupytma.targets import Target

NAME = "tensormap"
"""What the header calls all of it."""

# Targets whose documentation says that a slot of zeros is a template (CUDA programming guide, "Encoding a tensor map on
# device"). The expansion of tensormap.replace is the same elsewhere (measured), but nothing promises it.
_ZERO_IS_TEMPLATE = ("sm_90a",)
# What CUDA 12.8 assembles; a value that needs more is left to the template functions.
_OLDEST_PTX = (8, 7)

_TYPES = """\
// Who sees a change: threads of the block, of the cluster, of the device, or of the system with the host.
enum class Scope {{ {scopes} }};

// Room for one tensor map in shared memory.
struct alignas(128) Slot {{
    unsigned long long words[16];
}};

// What one tensor map says; see encode. extents, box and element_strides count elements, strides bytes; dimension 0 is
// innermost and dense, so strides[0] belongs to dimension 1. element_type is PTX's number, as of replace_elemtype.
struct Parameters {{
    unsigned long long address;
    unsigned rank;
    unsigned element_type;
    unsigned interleave_layout;
    unsigned swizzle_mode;
    unsigned swizzle_atomicity;
    unsigned fill_mode;
    unsigned extents[5];
    unsigned box[5];
    unsigned element_strides[5];
    unsigned long long strides[4];
}};
"""

_LANE = """\
__device__ __forceinline__ unsigned lane_of_warp()
{
    unsigned lane;
    asm("mov.u32 %0, %%laneid;" : "=r"(lane));
    return lane;
}
"""

_COPY = """\
__device__ __forceinline__ void copy_template(Slot& slot, const CUtensorMap* source)
{
    const unsigned lane = lane_of_warp();
    __syncwarp();
    if (lane < 8) {
        reinterpret_cast<ulonglong2*>(&slot)[lane] = reinterpret_cast<const ulonglong2*>(source)[lane];
    }
    __syncwarp();
}
"""

_ZERO = """\
__device__ __forceinline__ void zero(Slot& slot)
{
    const unsigned lane = lane_of_warp();
    __syncwarp();
    if (lane < 16) {
        slot.words[lane] = 0;
    }
    __syncwarp();
}
"""

_NO_ZERO = """\
template <bool IsDocumented = false>
__device__ __forceinline__ void zero(Slot&)
{{
    static_assert(IsDocumented, "a slot of zeros is documented as a template on {targets} alone: copy_template one");
}}
"""


def functions(target: Target) -> tuple[str, tuple[str, ...]]:
    """The namespace's text for a target that has ``tensormap.replace``, and the names of the functions it calls."""
    forms = {field: tensormap_replace(field=field) for field in REPLACE_FIELDS}
    present = {field: form for field, form in forms.items() if form.supported_on(target)}
    in_global = {f: tensormap_replace(field=f, space="global") for f in _rebound()}
    parts = [
        f"namespace {NAME} {{\n",
        _TYPES.format(scopes=", ".join(SCOPES)),
        _LANE,
        comment(
            "Copies a template to a slot. A whole warp calls it with the same arguments. source is the address of a "
            "__grid_constant__ parameter or a __constant__ variable, or lies in global memory; it is aligned to 16 "
            "bytes, as every tensor map is."
        ),
        _COPY,
        *_zeroing(target),
        *(_replacing(field, form, target) for field, form in present.items()),
        _encoding(present),
        *_rebinding(),
        _publishing(),
        _acquiring(),
        _judging(),
        f"}}  // namespace {NAME}",
    ]
    scoped = [name for s in SCOPES for name in (f"tensormap_cp_fenceproxy_{s}", f"fence_proxy_tensormap_acquire_{s}")]
    calls = [*(f.function_name for f in (*present.values(), *in_global.values())), *scoped]
    calls += [f"fence_proxy_tensormap_release_{scope}" for scope in SCOPES]
    return "\n".join(parts), tuple(calls)


def _zeroing(target: Target) -> tuple[str, str]:
    if target.name not in _ZERO_IS_TEMPLATE:
        text = _NO_ZERO.format(targets=", ".join(_ZERO_IS_TEMPLATE))
        return comment("Does not exist on this target; the compiler says what to do instead."), text
    return comment(
        "Makes a slot of zeros the template: that of a map with rank 1, type uint8, no swizzle, interleave or L2 "
        "promotion, and zeros for what is out of bounds. encode gives it the rest. A whole warp calls it."
    ), _ZERO


def _replacing(field: str, form: Instruction, target: Target) -> str:
    """``replace_<field>``, and ``choose_<field>`` for an immediate that the program knows only as it runs."""
    values = next((operand for operand in form.immediates if operand.name == "value"), None)
    if values is not None:
        limits = values.values_on(target)
        assert limits is not None
        legal = [v for v in limits if all(need.ptx_version <= _OLDEST_PTX for need in values.needs_of(v))]
        cases = [f"    case {v}: {form.function_name}<{v}>(&slot); break;" for v in legal]
        return "\n".join((
            comment(f"{form.function_name}, in a slot. One thread calls it."),
            "template <int Value>",
            declaration(f"void replace_{field}", ("Slot& slot",)), "{",
            f"    {form.function_name}<Value>(&slot);", "}\n",
            comment(f"The same for a value of {legal[0]} to {legal[-1]} in a register; others change nothing."),
            declaration(f"void choose_{field}", ("Slot& slot", "unsigned value")), "{",
            "    switch (value) {", *cases, "    }", "}\n",
        ))  # fmt: skip
    value = form.parameters[-1]
    if field == "rank":
        what, given, operand = "The rank, 1 to 5; the instruction takes one less.", "rank", "rank - 1"
    else:
        what, given, operand = f"{form.function_name}, in a slot: {value.description}.", "value", "value"
    ordinal = bool(form.immediates)
    return "\n".join((
        comment(f"{what} One thread calls it."),
        *(["template <int Ordinal>"] if ordinal else []),
        declaration(f"void replace_{field}", ("Slot& slot", f"{value.c_type} {given}")), "{",
        f"    {form.function_name}{'<Ordinal>' if ordinal else ''}(&slot, {operand});", "}\n",
    ))  # fmt: skip


def _encoding(present: dict[str, Instruction]) -> str:
    """``encode``: every field that the instruction has, each dimension's under the rank."""
    chosen = ("elemtype", "interleave_layout", "swizzle_mode", "swizzle_atomicity", "fill_mode")
    lines = [
        comment(
            "Makes the map in a slot the one that the parameters say, whatever of these it said before. Those that are "
            "not among them, such as the L2 promotion, and the entries of dimensions beyond the rank stay the "
            "template's, which should have none. The TF32 flag can be set and not cleared. A whole warp calls it."
        ),
        declaration("void encode", ("Slot& slot", "const Parameters& parameters")),
        "{",
        "    if (lane_of_warp() == 0) {",
        "        replace_rank(slot, parameters.rank);",
        *(
            f"        choose_{field}(slot, parameters.{'element_type' if field == 'elemtype' else field});"
            for field in chosen
            if field in present
        ),
        "        replace_global_address(slot, parameters.address);",
    ]
    for i in range(5):
        inner = [
            f"replace_global_dim<{i}>(slot, parameters.extents[{i}]);",
            f"replace_box_dim<{i}>(slot, parameters.box[{i}]);",
            f"replace_element_stride<{i}>(slot, parameters.element_strides[{i}]);",
            *([f"replace_global_stride<{i - 1}>(slot, parameters.strides[{i - 1}]);"] if i else []),
        ]
        lines += [f"        if (parameters.rank > {i}) {{", *(f"            {line}" for line in inner), "        }"]
    return "\n".join((*lines, "    }", "    __syncwarp();", "}\n"))


def _rebound() -> tuple[str, ...]:
    """The fields that a rebind changes, in its order."""
    replaces = [i for i in rebind(rank=2).instructions if i.family == "tensormap_replace"]
    return tuple(dict.fromkeys(str(dict(i.words)["field"]) for i in replaces))


def _rebinding() -> tuple[str, str]:
    """``rebind`` in a slot, and ``rebind_in_place`` in global memory, in the order of `rebind`."""
    parameters = ("unsigned long long address", "const unsigned* extents", "const unsigned long long* strides")
    loops = {
        "global_address": ("", "address"), "global_dim": ("Rank", "extents"), "global_stride": ("Rank - 1", "strides")
    }

    def body(call: str) -> list[str]:
        found = []
        for field in _rebound():
            count, name = loops[field]
            for i in range(5 if field == "global_dim" else 4) if count else (None,):
                ordinal, value = ("", name) if i is None else (f"<{i}>", f"{name}[{i}]")
                guard = "" if i is None else f"if constexpr ({count} > {i}) "
                found.append(f"        {guard}{call.format(field=field, ordinal=ordinal)}{value});")
        return found

    what = (
        "extents count elements, from dimension 0 on, strides bytes, from dimension 1 on: Rank and Rank - 1 of them. "
        "The address comes first, then the extents, then the strides. A whole warp calls it with the same arguments."
    )
    staged = [
        comment(f"Points the tiled map in a slot at another tensor of the same rank. {what} Then publish it."),
        "template <int Rank>",
        declaration("void rebind", ("Slot& slot", *parameters)), "{",
        '    static_assert(Rank >= 1 && Rank <= 5, "a tensor map has 1 to 5 dimensions");',
        "    __syncwarp();",
        "    if (lane_of_warp() == 0) {", *body("replace_{field}{ordinal}(slot, "), "    }",
        "    __syncwarp();", "}\n",
    ]  # fmt: skip
    placed = [
        comment(
            f"The same where the map lies in global memory, between an acquire and a release at a scope. {what} No "
            "copy that uses the map may be under way; who uses it then acquires it."
        ),
        "template <int Rank>",
        declaration("void rebind_in_place", ("CUtensorMap* tensor_map", *parameters, "Scope scope = Scope::gpu")), "{",
        '    static_assert(Rank >= 1 && Rank <= 5, "a tensor map has 1 to 5 dimensions");',
        "    if (lane_of_warp() == 0) {",
        *(f"    {line}" for line in _by_scope("fence_proxy_tensormap_acquire_{scope}(tensor_map);")),
        *body("tensormap_replace_{field}_global{ordinal}(tensor_map, "),
        *(f"    {line}" for line in _by_scope("fence_proxy_tensormap_release_{scope}();")),
        "    }", "    __syncwarp();", "}\n",
    ]  # fmt: skip
    return "\n".join(staged), "\n".join(placed)


def _by_scope(call: str) -> list[str]:
    """A switch that the compiler decides where the scope is a constant."""
    cases = [f"    case Scope::{scope}: {call.format(scope=scope)} break;" for scope in SCOPES]
    return ["    switch (scope) {", *cases, "    }"]


def _publishing() -> str:
    return "\n".join((
        comment(
            "Copies the map in a slot to global memory and releases it to users at a scope. A whole warp calls it with "
            "the same arguments, when no copy that uses the map is under way. tensor_map is aligned to 128 bytes. "
            "Other blocks and later kernels are of scope gpu. The slot may be changed again at once."
        ),
        declaration("void publish", ("CUtensorMap* tensor_map", "const Slot& slot", "Scope scope = Scope::gpu")), "{",
        *_aligned("tensor_map"), "    __syncwarp();",
        *_by_scope("tensormap_cp_fenceproxy_{scope}(tensor_map, &slot);"), "}\n",
    ))  # fmt: skip


def _acquiring() -> str:
    return "\n".join((
        comment(
            "Acquires a map in global memory that was published at a scope: copies of the calling thread then see the "
            "change, and those of its block after a barrier. A thread of each block that uses the map calls it, once "
            "after each change. The scope is sys for what the host wrote."
        ),
        declaration("void acquire", ("const CUtensorMap* tensor_map", "Scope scope = Scope::gpu")), "{",
        *_aligned("tensor_map"), *_by_scope("fence_proxy_tensormap_acquire_{scope}(tensor_map);"), "}\n",
    ))  # fmt: skip


def _aligned(name: str) -> list[str]:
    """In debug builds, a trap that says what is wrong."""
    return [
        f"#if {DEBUG_BUILD}",
        f"    assert(reinterpret_cast<unsigned long long>({name}) % 128 == 0 && "
        f'"{name}: a slot is aligned to 128 bytes");',
        "#endif",
    ]


def _judging() -> str:
    return "\n".join((
        comment(
            "Whether a slot of a DescriptorBuffer holds the map that was asked for: its status, which is not 0 where "
            "the parameters broke a rule. Such a slot must not be used."
        ),
        declaration("bool is_usable", ("const unsigned* status", "unsigned long long slot")), "{",
        "    return status[slot] == 0;", "}\n",
    ))  # fmt: skip
