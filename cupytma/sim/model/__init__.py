"""The copy as mathematics: what it is, when a tiling is correct, and why.

`tma` is the definition of a tiled copy in plain loops. `correctness` says of an extent, a box and element strides what
the holes of the tiles hold, by formula, and draws them. `IterDomain` and `Schedule` say the same of any loop nest made
by splits, merges, resizes and swizzles, by trying every index.

Everything counts in elements and is in driver order: dimension 0 first and fastest. The names of `tma` are those of
NVIDIA's nvFuser documents, where the model is from; `docs/tma-model.md` says where silicon differs from it.
"""

from cupytma.sim.model.definition import tma
from cupytma.sim.model.iter_domain import IterDomain
from cupytma.sim.model.schedule import Schedule
from cupytma.sim.model.tiling import Correctness, Dimension, correctness

__all__ = ["Correctness", "Dimension", "IterDomain", "Schedule", "correctness", "tma"]
