"""The 128-byte tensor map: parameters, rules, bit fields, encoding and decoding. Needs no GPU."""

from cupytma.tensormap.arrays import tensor_map
from cupytma.tensormap.cautions import FOLKLORE, Folklore
from cupytma.tensormap.enums import DataType, Interleave, L2Promotion, OobFill, Swizzle, WideMode
from cupytma.tensormap.fields import FIELDS, BitField
from cupytma.tensormap.parameters import Im2col, Im2colWide, Parameters, Tiled
from cupytma.tensormap.rule import Rule, Violation
from cupytma.tensormap.rules import RULES
from cupytma.tensormap.tensor_map import TensorMap

__all__ = [
    "FIELDS", "FOLKLORE", "RULES", "BitField", "DataType", "Folklore", "Im2col", "Im2colWide", "Interleave",
    "L2Promotion", "OobFill", "Parameters", "Rule", "Swizzle", "TensorMap", "Tiled", "Violation", "WideMode",
    "tensor_map",
]
