"""The checker's rules as a page of documentation, written from the table."""

from __future__ import annotations

from collections.abc import Mapping

from cupytma.check.finding import Rule
from cupytma.check.rules import RULES

_INTRODUCTION = """\
# What the kernel checker finds

`cupytma check FILE` and `cupytma.check` read PTX, or CUDA C++ that NVRTC compiles to PTX, and say what is wrong with
the way it uses the Tensor Memory Accelerator. It does not matter who wrote or compiled it. No GPU is needed.

```console
$ cupytma check kernel.cu
$ cupytma check kernel.ptx --tensormap 0=map.bin --sarif
$ cupytma check --rules
```

```python
from cupytma import check

for finding in check.check_cuda(source, target="sm_90a"):
    print(finding)
```

An **error** goes wrong as far as the code alone can tell. A **warning** goes wrong depending on what the code does not
say: the launch, the host, other blocks. A **note** is worth knowing. Some rules are said with less severity where less
is sure. What is not known is not guessed: addresses from memory, functions that are not inlined, and counts that are
computed at run time are passed over, so silence is no proof.

A comment takes a finding back, on its line or on the line before: `// cupytma: ignore[rule-id]`, or without brackets
for all rules. The command ends with 0 when there is no error, 1 when there is one (with `--strict`, also for a
warning), and 2 when the file cannot be checked.

"""


def rules_page(rules: Mapping[str, Rule] = RULES) -> str:
    """The page in Markdown.

    Returns
    -------
    str
        With a table of all rules, and for each its explanation, its fix, a bad and a good example.
    """
    rows = ["| rule | severity | what must hold |", "|---|---|---|"]
    rows += [f"| [{rule.id}](#{rule.id}) | {rule.severity.value} | {rule.title} |" for rule in rules.values()]
    return _INTRODUCTION + "\n".join([*rows, "", *map(_section, rules.values())])


def _section(rule: Rule) -> str:
    language = "text" if rule.bad.startswith(".version") else "cuda"
    return "\n".join(
        [
            f"## {rule.id}", "",
            f"*{rule.severity.value.capitalize()}*: {rule.title}.", "",
            rule.explanation, "",
            f"**Fix:** {rule.fix}.", "",
            f"Source: {rule.source}.", "",
            "Wrong:", "", f"```{language}", rule.bad.rstrip(), "```", "",
            "Right:", "", f"```{language}", rule.good.rstrip(), "```", "",
        ]
    )  # fmt: skip


if __name__ == "__main__":
    print(rules_page(), end="")
