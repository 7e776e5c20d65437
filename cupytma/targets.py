"""What each GPU architecture has: one table for descriptors, instructions, the simulator and the compiler.

Sources: the PTX ISA's "Target ISA Notes" of each instruction, checked form by form against NVRTC 12.9 and ptxas 13.0;
shared memory sizes from the CUDA programming guide's table of technical specifications.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from cupytma.errors import TargetError
from cupytma.limits import MULTIPROCESSOR_SHARED_BYTES, RESERVED_SHARED_BYTES


class Feature(Enum):
    """Something that one architecture has and another lacks. The value says it in words."""

    TENSOR_COPY = "cp.async.bulk and cp.async.bulk.tensor"
    TENSORMAP_REPLACE = "tensormap.replace"
    SETMAXNREG = "setmaxnreg"
    WGMMA = "wgmma"
    BYTE_MASK = "cp.async.bulk with .cp_mask"
    GATHER4_TO_CTA = "tile::gather4 and im2col::w loads to shared::cta"
    CTA_GROUP = ".cta_group, scatter4, im2col::w::128, and gather4 and im2col::w to shared::cluster"
    PACKED_TYPES = "the packed element types 16U4 and 16U6"
    SWIZZLE_ATOMICITY = "the 128B swizzles with a 32 or 64 byte atom"
    IM2COL_WIDE = "im2col-wide tensor maps"
    BYTE_MATRICES = "ldmatrix and stmatrix of 8-bit elements"
    RELAXED_CLUSTER_COPY = "relaxed cp.async.bulk from global to shared::cluster"
    SWIZZLE_96B = "swizzle_mode 4, the 96B swizzle"
    FAST_MULTICAST = "multicast at full speed"


_HOPPER = frozenset({Feature.TENSOR_COPY})
_HOPPER_A = _HOPPER | {
    Feature.TENSORMAP_REPLACE,
    Feature.SETMAXNREG,
    Feature.WGMMA,
    Feature.RELAXED_CLUSTER_COPY,
    Feature.FAST_MULTICAST,
}
_BLACKWELL = _HOPPER | {
    Feature.BYTE_MASK,
    Feature.GATHER4_TO_CTA,
    Feature.PACKED_TYPES,
    Feature.SWIZZLE_ATOMICITY,
    Feature.IM2COL_WIDE,
}
_BLACKWELL_A = _BLACKWELL | {Feature.TENSORMAP_REPLACE, Feature.SETMAXNREG, Feature.BYTE_MATRICES}
_DATACENTRE_A = _BLACKWELL_A | {Feature.CTA_GROUP, Feature.RELAXED_CLUSTER_COPY, Feature.FAST_MULTICAST}


@dataclass(frozen=True)
class Target:
    """One architecture that code is compiled for, such as ``sm_90a``.

    Attributes
    ----------
    name : str
        As the assembler spells it.
    compute_capability : tuple of int
        Major and minor.
    ptx_version : tuple of int
        The oldest PTX ISA version that knows the target.
    shared_bytes : int
        The most shared memory one block may have, in bytes.
    features : frozenset of Feature
    """

    name: str
    compute_capability: tuple[int, int]
    ptx_version: tuple[int, int]
    shared_bytes: int
    features: frozenset[Feature]

    def has(self, feature: Feature) -> bool:
        """Whether the target has a feature."""
        return feature in self.features

    def require(self, feature: Feature) -> None:
        """Raise `TargetError` naming the targets that have a feature, unless this one does."""
        if feature not in self.features:
            having = ", ".join(t.name for t in TARGETS.values() if t.has(feature))
            raise TargetError(f"{self.name} has no {feature.value}; targets that do: {having}")

    def __str__(self) -> str:
        return self.name


_LARGE, _SMALL = MULTIPROCESSOR_SHARED_BYTES - RESERVED_SHARED_BYTES, 99 * 1024

TARGETS: dict[str, Target] = {
    t.name: t
    for t in (
        Target("sm_90", (9, 0), (7, 8), _LARGE, _HOPPER),
        Target("sm_90a", (9, 0), (8, 0), _LARGE, _HOPPER_A),
        Target("sm_100", (10, 0), (8, 6), _LARGE, _BLACKWELL),
        Target("sm_100a", (10, 0), (8, 6), _LARGE, _DATACENTRE_A),
        Target("sm_100f", (10, 0), (8, 8), _LARGE, _DATACENTRE_A),
        Target("sm_103", (10, 3), (8, 8), _LARGE, _BLACKWELL),
        Target("sm_103a", (10, 3), (8, 8), _LARGE, _DATACENTRE_A | {Feature.SWIZZLE_96B}),
        Target("sm_110", (11, 0), (9, 0), _LARGE, _BLACKWELL),
        Target("sm_110a", (11, 0), (9, 0), _LARGE, _DATACENTRE_A),
        Target("sm_120", (12, 0), (8, 7), _SMALL, _BLACKWELL),
        Target("sm_120a", (12, 0), (8, 7), _SMALL, _BLACKWELL_A),
        Target("sm_121", (12, 1), (8, 8), _SMALL, _BLACKWELL),
        Target("sm_121a", (12, 1), (8, 8), _SMALL, _BLACKWELL_A),
    )
}
"""Every target by its name, the oldest first."""
DEFAULT_TARGET = TARGETS["sm_90a"]
"""What is meant where no target is given."""


def target(name: str | Target) -> Target:
    """The target of a name: ``"sm_90a"``, ``"compute_90a"`` or ``"90a"``.

    Raises
    ------
    TargetError
        For a target with no Tensor Memory Accelerator, or one that does not exist; the message lists those that do.
    """
    if isinstance(name, Target):
        return name
    text = name.strip().lower()[:40] if isinstance(name, str) else f"<{type(name).__name__}>"
    number = text.removeprefix("sm_").removeprefix("compute_")
    found = TARGETS.get(f"sm_{number}")
    if found is not None:
        return found
    known = ", ".join(TARGETS)
    digits = number.rstrip("af")
    if digits.isdecimal() and int(digits) < 90:
        raise TargetError(
            f"{text!r} has no Tensor Memory Accelerator: it begins with compute capability 9.0; use one of {known}"
        )
    raise TargetError(f"unknown target {text!r}; known targets: {known}")


def target_of_capability(major: int, minor: int) -> Target:
    """The architecture-specific target (``…a``) of a device's compute capability."""
    return target(f"sm_{major}{minor}a")
