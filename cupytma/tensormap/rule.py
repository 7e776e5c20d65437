"""What a rule is, and the operands that its expressions may name."""

from __future__ import annotations

from dataclasses import dataclass

from cupytma.targets import Feature

MODES = ("tiled", "im2col", "im2col_wide")
IM2COL = ("im2col", "im2col_wide")

FULL_RANK = 5
# The parameters that are sequences: how many entries they have less than the rank, and what stands in for the entries
# of higher ranks, which no rule objects to.
SEQUENCES: dict[str, tuple[int, int]] = {
    "global_dim": (0, 1),
    "global_strides": (1, 0),
    "box_dim": (0, 1),
    "element_strides": (0, 1),
    "pixel_box_lower_corner": (2, 0),
    "pixel_box_upper_corner": (2, 0),
}

_WIDTH_ALONE = ("pixel_box_lower_corner", "pixel_box_upper_corner")


def entries(name: str, kind: str, rank: int) -> int:
    """How many entries of a sequence parameter a kind and rank have; im2col-wide has the corners of the width alone."""
    if kind == "im2col_wide" and name in _WIDTH_ALONE:
        return 1
    return max(0, rank - SEQUENCES[name][0])


# What a predicate may name. Sequences are padded to full length with values no rule objects to.
OPERANDS: dict[str, str] = {
    "mode": "'tiled', 'im2col' or 'im2col_wide'",
    "layout": "how the bits are laid out; 'im2col' for im2col_wide on targets that do not document it",
    "target": "name of the target",
    "data_type": "driver number of the data type",
    "interleave": "0 none, 1 16B, 2 32B",
    "swizzle": "driver number of the swizzle",
    "l2_promotion": "driver number",
    "oob_fill": "driver number",
    "wide_mode": "0 W, 1 W128; 0 outside im2col_wide",
    "rank": "number of dimensions",
    "global_address": "bytes",
    "global_dim": "elements, 5 of them",
    "global_strides": "bytes, 4 of them",
    "box_dim": "elements, 5 of them",
    "element_strides": "elements, 5 of them",
    "pixel_box_lower_corner": "pixels, 3 of them",
    "pixel_box_upper_corner": "pixels, 3 of them",
    "channels_per_pixel": "elements",
    "pixels_per_column": "pixels",
    "data_types": "how many data types the target has",
    "swizzles": "how many swizzles the target has",
    "box_bytes_limit": "bytes, the largest box the driver accepts",
    "shared_bytes": "bytes, the most shared memory a block may have on the target",
    "element_bits": "bits of one element in global memory",
    "shared_bits": "bits of one element in shared memory",
    "alignment": "bytes that addresses and strides must be a multiple of",
    "inner_elements": "elements of the innermost row that one load brings",
    "inner_bits": "bits of the innermost row that one load brings, in shared memory",
    "swizzle_span": "bytes the swizzle pattern spans; 0 without swizzle",
    "recorded_box_bytes": "bytes of the box as the driver counts them",
    "corner_limit": "corners lie in -corner_limit … corner_limit - 1",
    "pixel_dim": "elements, the extent that corner [j] belongs to, 3 of them",
    "tile_bytes": "bytes of shared memory that one load takes (warnings only)",
    "row_bytes": "bytes from the first to the last of dimension 0 (warnings only)",
    "covered": "bytes that the dimensions of smaller stride reach over, for each stride (warnings only)",
    "reach": "bytes from the first to the last of the tensor (warnings only)",
    "dense": "whether no byte lies between or under two elements (warnings only)",
    "coordinates": "elements, 5 of them (faults only)",
    "pixel_start": "the coordinate that corner [j] belongs to, 3 of them (faults only)",
    "shared_address": "bytes (faults only)",
    "store": "1 for stores and reductions, 0 for loads (faults only)",
}

# `quotient` rounds down, and takes a divisor of 0, which another rule refuses, for 1.
_PRODUCT = " * ".join(f"quotient(box_dim[{i}], element_strides[{i}])" for i in range(5))


def _spatial(name: str) -> str:
    """The entries that corners belong to: from dimension 1 on, or from 0 where the layout is interleaved."""
    return "(" + ", ".join(f"{name}[{j}] + ({name}[{j + 1}] - {name}[{j}]) * (interleave == 0)" for j in range(3)) + ")"


# Derived operands in order of evaluation, by the modes that have them.
DERIVED: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("element_bits", "ELEMENT_BITS[data_type]", MODES),
    ("shared_bits", "SHARED_BITS[data_type]", MODES),
    ("alignment", "16 + 16 * ((interleave == 2) | (data_type == 14) | (data_type == 15))", MODES),
    ("swizzle_span", "SWIZZLE_SPAN[swizzle]", MODES),
    ("inner_elements", "box_dim[0]", ("tiled",)),
    ("inner_elements", "channels_per_pixel", IM2COL),
    ("inner_bits", "shared_bits * inner_elements", MODES),
    ("recorded_box_bytes", f"shared_bits * {_PRODUCT} // 8", ("tiled",)),
    # In mode W128 the unit counts 128 pixels whatever the parameters say, on targets that document it.
    (
        "pixels_per_column",
        "pixels_per_column + (128 - pixels_per_column) * ((layout == mode) & (wide_mode == 1))",
        ("im2col_wide",),
    ),
    ("recorded_box_bytes", "shared_bits * channels_per_pixel * pixels_per_column // 8", IM2COL),
    ("corner_limit", "CORNER_LIMIT[rank]", ("im2col",)),
    ("corner_limit", "CORNER_LIMIT[3 if layout == mode else rank]", ("im2col_wide",)),
    ("pixel_dim", _spatial("global_dim"), IM2COL),
)


@dataclass(frozen=True)
class Rule:
    """One row of the table.

    Attributes
    ----------
    id : str
        Stable name, such as ``box-inner-span``.
    statement : str
        The rule in words.
    holds : str
        Expression that is true where the rule is kept. ``i`` is the index where the rule is per dimension.
    message : str
        What is wrong, with the numbers in it; a format string over the operands.
    fix : str
        What to do instead; a format string over the operands.
    source : str
        Where the rule is known from.
    per : str
        ``""``, or what ``i`` runs over: ``"dim"`` (0…rank−1), ``"stride"`` (0…rank−2), ``"corner"`` (0…rank−3,
        the spatial dimensions).
    modes : tuple of str
        The encoders it holds for.
    severity : str
        ``"error"``: the driver refuses. ``"warning"``: legal and surprising. ``"fault"``: it encodes, and kills the
        kernel when used so.
    feature : Feature or None
        The rule holds on targets that have it alone; None for all targets.
    """

    id: str
    statement: str
    holds: str
    message: str
    fix: str
    source: str
    per: str = ""
    modes: tuple[str, ...] = MODES
    severity: str = "error"
    feature: Feature | None = None

    def indices(self, rank: int) -> tuple[int | None, ...]:
        """What ``i`` takes for a tensor map of a rank; ``(None,)`` where the rule has no index."""
        count = {"dim": min(rank, 5), "stride": min(rank - 1, 4), "corner": min(rank - 2, 3)}.get(self.per)
        return (None,) if count is None else tuple(range(max(0, count)))


@dataclass(frozen=True)
class Violation:
    """A broken rule.

    Attributes
    ----------
    rule : str
        The id of the rule.
    message : str
        The rule, the value and the limit.
    fix : str
        The way out.
    index : int or None
        Dimension, stride or corner index in driver order, where the rule has one.
    severity : str
        As the rule's.
    """

    rule: str
    message: str
    fix: str
    index: int | None = None
    severity: str = "error"

    def _repr_html_(self) -> str:
        from cupytma.view.html import printed

        return printed(self)

    def __str__(self) -> str:
        return f"{self.rule}: {self.message}; {self.fix}"
