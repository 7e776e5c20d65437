"""What the Tensor Memory Accelerator does, byte for byte, in numpy.

`load`, `store` and `reduce` do one operation on arrays of bytes that stand for global and shared memory, as an H100
does it: swizzles, out-of-bounds fill, element strides, conversions, and the faults that kill a kernel. `prefetch`
changes nothing and checks what a load checks. `tile_map` says which element lands where. Coordinates are in driver
order, dimension 0 first and fastest.
"""

from cupytma.sim.faults import (
    Fault,
    IllegalInstruction,
    LaunchFailure,
    MisalignedAddress,
    NotSimulatedError,
    OutOfWindow,
    SharedOverrun,
    SimulationError,
)
from cupytma.sim.mapping import TileMap, tile_map
from cupytma.sim.modes import verified
from cupytma.sim.swizzle import swizzle_address, swizzle_chunk
from cupytma.sim.unit import load, multicast, prefetch, reduce, store

__all__ = [
    "Fault",
    "IllegalInstruction",
    "LaunchFailure",
    "MisalignedAddress",
    "NotSimulatedError",
    "OutOfWindow",
    "SharedOverrun",
    "SimulationError",
    "TileMap",
    "load",
    "multicast",
    "prefetch",
    "reduce",
    "store",
    "swizzle_address",
    "swizzle_chunk",
    "tile_map",
    "verified",
]
