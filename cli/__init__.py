"""The ``cupytma`` command: one module per command group, each loaded when it is called."""

from __future__ import annotations


def main() -> None:
    """Run the command line. Ends the process with 0, 1 for a check that did not pass, or 2 for an error."""
    from .application import run

    run()
