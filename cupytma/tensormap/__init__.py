"""The 128-byte tensor map: parameters, rules, bit fields, encoding and decoding. Needs no GPU."""

from cupytma.tensormap.arrays import tensor_map
from cupytma.tensormap.enums import DataType, Interleave, L2Promotion, OobFill, Swizzle
from cupytma.tensormap.fields import FIELDS, BitField
from cupytma.tensormap.parameters import Parameters, Tiled
from cupytma.tensormap.rules import RULES, Rule, Violation
from cupytma.tensormap.tensor_map import TensorMap

__all__ = [
    "FIELDS", "RULES", "BitField", "DataType", "Interleave", "L2Promotion", "OobFill", "Parameters", "Rule", "Swizzle",
    "TensorMap", "Tiled", "Violation", "tensor_map",
]
