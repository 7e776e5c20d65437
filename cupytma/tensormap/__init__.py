"""The 128-byte tensor map: parameters, rules, bit fields, encoding and decoding. Needs no GPU."""

from __future__ import annotations

from importlib import import_module as _import_module
from typing import TYPE_CHECKING
from typing import Any as _Any

from cupytma.tensormap.arrays import array_parameters, coalesced, tensor_map
from cupytma.tensormap.cautions import FOLKLORE, Folklore
from cupytma.tensormap.difference import FieldDifference
from cupytma.tensormap.enums import DataType, Interleave, L2Promotion, OobFill, Swizzle, WideMode
from cupytma.tensormap.fields import FIELDS, BitField
from cupytma.tensormap.parameters import Im2col, Im2colWide, Parameters, Tiled
from cupytma.tensormap.rule import Rule, Violation
from cupytma.tensormap.rules import RULES
from cupytma.tensormap.tensor_map import TensorMap

if TYPE_CHECKING:
    from cupytma.tensormap.interop import slot_array
    from cupytma.tensormap.mutation import MUTATORS, Mutator, Step
    from cupytma.tensormap.records import RECORD, encode_records
    from cupytma.tensormap.replacement import rebind_steps
    from cupytma.tensormap.slots import Slot

# Loaded when first used: what needs numpy, and what most programs do without.
_LAZY = {
    name: f"cupytma.tensormap.{module}"
    for module, names in {
        "interop": ("slot_array",),
        "mutation": ("MUTATORS", "Mutator", "Step"),
        "records": ("RECORD", "encode_records"),
        "replacement": ("rebind_steps",),
        "slots": ("Slot",),
    }.items()
    for name in names
}

__all__ = [
    "FIELDS", "FOLKLORE", "MUTATORS", "RECORD", "RULES", "BitField", "DataType", "FieldDifference", "Folklore",
    "Im2col", "Im2colWide", "Interleave", "L2Promotion", "Mutator", "OobFill", "Parameters", "Rule", "Slot", "Step",
    "Swizzle", "TensorMap", "Tiled", "Violation", "WideMode", "array_parameters", "coalesced",
    "encode_records", "rebind_steps", "slot_array", "tensor_map",
]


def __getattr__(name: str) -> _Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'cupytma.tensormap' has no attribute {name!r}")
    value = getattr(_import_module(_LAZY[name]), name)
    globals()[name] = value
    return value
