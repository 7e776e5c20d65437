"""What the Tensor Memory Accelerator does, byte for byte, in numpy.

`load`, `store` and `reduce` do one operation on arrays of bytes that stand for global and shared memory, as an H100
does it: swizzles, out-of-bounds fill, element strides, conversions, and the faults that kill a kernel. `prefetch`
changes nothing and checks what a load checks. `tile_map` says which element lands where. Coordinates are in driver
order, dimension 0 first and fastest.

`Program` models a whole kernel, with mbarriers, bulk groups, proxies and clusters, and says why it hangs or races;
`examples` holds programs to start from.
"""

from cupytma.sim import examples, model
from cupytma.sim.faults import (
    Fault,
    IllegalInstruction,
    MisalignedAddress,
    NotSimulatedError,
    OutOfWindow,
    SharedOverrun,
    SimulationError,
)
from cupytma.sim.mapping import TileMap, tile_map
from cupytma.sim.program import Finding, Program, ProgramError, Report
from cupytma.sim.swizzle import swizzle_address, swizzle_chunk
from cupytma.sim.unit import load, prefetch, reduce, store

__all__ = [
    "Fault",
    "Finding",
    "IllegalInstruction",
    "MisalignedAddress",
    "NotSimulatedError",
    "OutOfWindow",
    "Program",
    "ProgramError",
    "Report",
    "SharedOverrun",
    "SimulationError",
    "TileMap",
    "examples",
    "load",
    "model",
    "prefetch",
    "reduce",
    "store",
    "swizzle_address",
    "swizzle_chunk",
    "tile_map",
]
