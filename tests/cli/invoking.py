"""Ways to call commands: what the fixture `invoke` is, and a terminal."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence

from click.testing import Result

Invoke = Callable[..., Result]


def in_terminal(arguments: Sequence[str], **environment: str) -> bytes:
    """What a command prints on a terminal of 80 columns, of which nothing says whether colours are wanted."""
    import pty

    leader, follower = pty.openpty()
    others = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")}
    process = subprocess.Popen(
        [sys.executable, "-m", "cupytma", *arguments], stdout=follower, stderr=follower, stdin=follower,
        env={**others, "TERM": "xterm", "COLUMNS": "80", **environment},
    )  # fmt: skip
    os.close(follower)
    seen = b""
    try:
        while chunk := os.read(leader, 4096):
            seen += chunk
    except OSError:  # how Linux reports that the other side has closed
        pass
    process.wait()
    os.close(leader)
    return seen
