"""torch's own test for tensors that are like some: what its compiler guards the code with that it has made for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

_is_nested = attrgetter("is_nested")


def guard_of(tensors: Sequence[Any]) -> Callable[..., bool] | None:
    """A test for tensors of the types, devices, shapes and strides of some, negated or conjugated as they are.

    It looks at as many tensors as it is given, in one call and without a frame of Python for each, and not at where
    they lie. None of them may be nested: on these it ends the process (measured with torch 2.13).

    Returns
    -------
    callable or None
        Given as many tensors, whether they are alike. None where torch has no such test, which is no part of its public
        interface, or has none for these.
    """
    if not tensors:
        return bool
    try:
        if some_are_nested(tensors):
            return None
        from torch._C._dynamo.guards import TensorGuards

        check: Callable[..., bool] = TensorGuards(
            *tensors, dynamic_dims_sizes=None, dynamic_dims_strides=None
        ).check
        return check if check(*tensors) is True else None
    except Exception:  # whatever torch makes of it
        return None


def some_are_nested(tensors: Sequence[Any]) -> bool:
    """Whether some tensors are nested ones, which have no shape."""
    return any(map(_is_nested, tensors))
