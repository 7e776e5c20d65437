"""Addresses in a state space where an instruction takes one of another, found in compiled PTX."""

from __future__ import annotations

import re

# In PTX a variable's address is one of its space. cvta makes it generic, and cvta.to makes a generic address one of a
# space. The compiler writes each register once.
_STEP = re.compile(
    r"\.entry\s+(?P<kernel>[\w$]+)|\.func\b"
    r"|\bmov\.[bu](?:32|64)\s+(?P<loaded>%\w+), (?P<variable>[A-Za-z_$][\w$]*);"
    r"|\bcvta\.(?P<space>global|shared|const|local|param)(?:::\w+)?\.u64\s+(?P<generic>%\w+), (?P<of>[%\w$]+);"
    r"|\bcvt\.u64\.u32\s+(?P<widened>%\w+), (?P<narrow>%\w+);"
    r"|\badd\.[su]64\s+(?P<moved>%\w+), (?P<base>%\w+), "
    r"|\bcvta\.to\.(?P<wanted>global|shared|const|local|param)(?:::\w+)?\.u64\s+%\w+, (?P<taken>%\w+);"
)
# Most kernels make no address generic and need no second look.
_GENERIC = re.compile(r"\bcvta\.(?!to\b)")
_SPACES = {
    "global": "global memory",
    "shared": "shared memory",
    "const": "constant memory",
    "local": "local memory",
    "param": "the kernel's parameters",
}


def misplaced_addresses(ptx: str) -> tuple[str, ...]:
    """What is known to lie in one state space and converted to an address of another: a sentence for each.

    Such an address leads anywhere. The compiler says nothing of it.
    """
    if not _GENERIC.search(ptx):
        return ()
    found: dict[str, None] = {}
    kernel, names, known = "", {}, {}
    for step in _STEP.finditer(ptx):
        if step["loaded"]:
            names[step["loaded"]] = step["variable"]
        elif step["widened"]:  # an address in shared memory may have 32 bits
            names[step["widened"]] = names.get(step["narrow"], step["narrow"])
        elif step["generic"]:
            known[step["generic"]] = step["space"], names.get(step["of"], step["of"])
        elif step["moved"]:
            if step["base"] in known:
                known[step["moved"]] = known[step["base"]]
        elif step["wanted"]:
            space, variable = known.get(step["taken"], (step["wanted"], ""))
            if space != step["wanted"]:
                where, wanted = _SPACES[space], _SPACES[step["wanted"]]
                sentence = (
                    f"gives {variable}, which lies in {where}, to an instruction that takes an address in {wanted}"
                )
                found[f"{kernel or 'a function'} {sentence}"] = None
        else:
            kernel, names, known = step["kernel"] or "", {}, {}
    return tuple(found)
