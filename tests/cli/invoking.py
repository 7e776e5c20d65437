"""What the fixture `invoke` is."""

from __future__ import annotations

from collections.abc import Callable

from click.testing import Result

Invoke = Callable[..., Result]
