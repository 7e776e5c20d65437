"""What a thread knows to have happened: the happens-before relation of the PTX memory model, proxies included.

Everything that touches memory is an *event* with a bit of its own, and a set of events is one integer. A thread's
`Known` says which events come before its next instruction, and through which proxy that may rely on them. Releasing
hands the sets over, acquiring joins them, and two accesses race if neither is in the other's set: no schedule has to
be unlucky for that to be seen.

Sources: PTX ISA, "Memory Consistency Model" (causality order, proxies, scopes) and "Async Proxy".
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

SCOPES = ("cta", "cluster", "gpu", "sys")


@dataclass(slots=True)
class Known:
    """The events that come before a thread's next instruction.

    Attributes
    ----------
    events : int
        By base causality order: program order and synchronisation. Enough between accesses of the generic proxy, and
        for what the async proxy did once its completion was observed, which includes a proxy fence.
    async_shared, async_global : int
        Of these, what ``fence.proxy.async`` has ordered before accesses of the async proxy to that memory.
    released_cta, released_cluster, released_gpu, released_sys : int
        What was released to the tensormap proxy at a scope that includes the one named.
    acquired : int
        What a thread of this block has acquired for the tensormap proxy. It does not leave the block.
    """

    events: int = 0
    async_shared: int = 0
    async_global: int = 0
    released_cta: int = 0
    released_cluster: int = 0
    released_gpu: int = 0
    released_sys: int = 0
    acquired: int = 0

    def join(self, other: Known, *, same_block: bool = True) -> None:
        """Add what another knows, as an acquire does of what it synchronises with."""
        self.events |= other.events
        self.async_shared |= other.async_shared
        self.async_global |= other.async_global
        self.released_cta |= other.released_cta
        self.released_cluster |= other.released_cluster
        self.released_gpu |= other.released_gpu
        self.released_sys |= other.released_sys
        if same_block:
            self.acquired |= other.acquired

    def copy(self) -> Known:
        """A snapshot."""
        return replace(self)

    def only(self, events: int) -> Known:
        """What is known of some events alone."""
        return Known(*(getattr(self, field.name) & events for field in fields(self)))

    def released(self, scope: str) -> int:
        """What was released to the tensormap proxy at a scope that includes this one."""
        found: int = getattr(self, f"released_{scope}")
        return found

    def release(self, scope: str) -> None:
        """Release everything known to the tensormap proxy, at a scope and those that it includes."""
        for included in SCOPES[: SCOPES.index(scope) + 1]:
            setattr(self, f"released_{included}", self.released(included) | self.events)


def includes(scope: str, needed: str) -> bool:
    """Whether a scope is as wide as another."""
    return SCOPES.index(scope) >= SCOPES.index(needed)
