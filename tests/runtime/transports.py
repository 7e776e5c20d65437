"""The package's examples of the four transports, compiled."""

from __future__ import annotations

import cupytma as tma
from cupytma import ptx
from cupytma.kernels import source

BOX = (32, 32)
TILE_BYTES = 4 * BOX[0] * BOX[1]
REBIND = ptx.rebind(rank=2)


def compiled(target: str | None = None, **options: object) -> tma.runtime.Module:
    """For float32 tiles of 32×32."""
    return tma.compile(
        source("transports.cu"), target, defines={"TILE_BYTES": TILE_BYTES, **options},
        headers={"rebind.cuh": f"namespace cupytma {{\n{REBIND.function()}\n}}"},
    )  # fmt: skip
