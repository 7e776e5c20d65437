"""What is drawn, as it is given: a tensor map, or parameters of one."""

from __future__ import annotations

from typing import Any

from cupytma.errors import PictureError
from cupytma.sim.modes import FULL_TARGET
from cupytma.targets import DEFAULT_TARGET, Target
from cupytma.tensormap.parameters import Im2colWide, Parameters
from cupytma.tensormap.tensor_map import TensorMap


def map_of(subject: Any) -> TensorMap:
    """The tensor map of what is drawn.

    Parameters
    ----------
    subject : TensorMap or Parameters

    Raises
    ------
    PictureError
        If it is something else.
    DescriptorError
        If no target can encode the parameters; names every broken rule.
    """
    if isinstance(subject, TensorMap):
        return subject
    if isinstance(subject, Parameters):
        return TensorMap.encode(subject, _target_of(subject))
    raise PictureError(
        f"{type(subject).__name__} is neither a TensorMap nor parameters of one (Tiled, Im2col, Im2colWide); of an "
        "array, `cupytma.tensor_map` makes a map"
    )


def _target_of(parameters: Parameters) -> Target:
    """The default target, or one that has what that lacks."""
    if isinstance(parameters, Im2colWide):
        return FULL_TARGET
    broken = parameters.violations(DEFAULT_TARGET)
    return FULL_TARGET if broken and not parameters.violations(FULL_TARGET) else DEFAULT_TARGET
