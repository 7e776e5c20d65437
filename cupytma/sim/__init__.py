"""What the Tensor Memory Accelerator does, byte for byte, in numpy.

`load`, `store` and `reduce` do one operation on arrays of bytes that stand for global and shared memory, as an H100
does it: swizzles, out-of-bounds fill, element strides, conversions, and the faults that kill a kernel. `prefetch`
changes nothing and checks what a load checks, `multicast` loads to several blocks of a cluster. `grid_faults` checks
the copies of a whole grid, and names the blocks that would die.

`tile_map` says which element lands where, `bank_conflicts` what reading the tile costs a warp, `best_swizzle` which
swizzle makes that cheapest. `verified` says what has been measured, and what is known from documents alone.

`Program` models a whole kernel, with mbarriers, bulk groups, proxies and clusters, says why it hangs or races, and
traces a run of it;
`examples` holds programs to start from. `model` is the mathematics of a tiled copy, in plain loops.

Coordinates are in driver order, dimension 0 first and fastest.
"""

from cupytma.sim import examples, model
from cupytma.sim.banks import BankConflicts, SwizzleAdvice, bank_conflicts, best_swizzle
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
from cupytma.sim.grid import GridFault, grid_faults
from cupytma.sim.mapping import TileMap, tile_map
from cupytma.sim.modes import verified
from cupytma.sim.program import Finding, Program, ProgramError, Report, Trace
from cupytma.sim.swizzle import swizzle_address, swizzle_chunk
from cupytma.sim.unit import load, multicast, prefetch, reduce, store

__all__ = [
    "BankConflicts",
    "Fault",
    "Finding",
    "GridFault",
    "IllegalInstruction",
    "LaunchFailure",
    "MisalignedAddress",
    "NotSimulatedError",
    "OutOfWindow",
    "Program",
    "ProgramError",
    "Report",
    "SharedOverrun",
    "SimulationError",
    "SwizzleAdvice",
    "TileMap",
    "Trace",
    "bank_conflicts",
    "best_swizzle",
    "examples",
    "grid_faults",
    "load",
    "model",
    "multicast",
    "prefetch",
    "reduce",
    "store",
    "swizzle_address",
    "swizzle_chunk",
    "tile_map",
    "verified",
]
