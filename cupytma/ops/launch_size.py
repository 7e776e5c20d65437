"""How large launches are: one place for those who make them and those who only tell of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cupytma.runtime.kernel import Kernel
from cupytma.runtime.occupancy import multiprocessors
from cupytma.runtime.plan import Plan

# Of a grid whose kernel counts its threads, which it does in 32 bits.
MAX_THREADS = 2**32 - 1


@dataclass(frozen=True)
class LaunchSize:
    """A launch before it is known on which device.

    Attributes
    ----------
    most : int
        Blocks that would all have something to do.
    blocks : int
        Of one multiprocessor; the grid has no more than so many for each. 0 for a block for each piece of the work.
    threads : int
        Of a block.
    shared_bytes : int
        Dynamic shared memory of a block.
    stages : int
        Tiles in flight in a block; 0 where there are none.
    """

    most: int
    blocks: int
    threads: int
    shared_bytes: int = 0
    stages: int = 0

    def grid(self, multiprocessors: int) -> int:
        """Blocks of the launch on a device of so many multiprocessors."""
        return min(self.most, self.blocks * multiprocessors) if self.blocks else self.most

    def plan(self, kernel: Kernel, arguments: Sequence[Any], device: int | None = None) -> Plan:
        """The launch of a kernel on a device, by default the current one."""
        return kernel.plan(
            self.grid(multiprocessors(device)), self.threads, arguments, shared_bytes=self.shared_bytes
        )
