"""Many kernels compiled at once, and what the checker says of each."""

from __future__ import annotations

import re
from collections.abc import Sequence

from cupytma import check

_INCLUDE = "#include <cupytma.cuh>\n"


def findings_of(sources: Sequence[str], target: str) -> list[tuple[check.Finding, ...]]:
    """The findings of several sources that each have one kernel named ``kernel``; PTX is checked as it is."""
    parts = [_INCLUDE]
    for number, source in enumerate(sources):
        if not source.startswith(".version"):
            body = re.sub(r"\bkernel\(", f"kernel_{number}(", source.replace(_INCLUDE, ""))
            parts.append(f"namespace n{number} {{\n{body}}}\n")
    found = check.check_cuda("".join(parts), target) if len(parts) > 1 else ()
    return [
        check.check_ptx(source)
        if source.startswith(".version")
        else tuple(finding for finding in found if finding.function == f"kernel_{number}")
        for number, source in enumerate(sources)
    ]
