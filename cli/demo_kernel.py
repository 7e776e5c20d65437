"""What the demonstration works on: a small padded matrix, and a kernel that moves its tiles."""

from __future__ import annotations

from cupytma.tensormap import Tiled

ROWS, COLUMNS = 20, 40
ROW_BYTES = 96  # 80 bytes of elements, 16 of padding that no tile may touch
ELEMENT_BYTES = 2
TILE = (32, 8)  # columns, rows: neither divides the matrix
GRID = (-(-COLUMNS // TILE[0]), -(-ROWS // TILE[1]))
KERNEL = "move_tile"

SOURCE = """\
#include <cupytma.cuh>
extern "C" __global__ void move_tile(const __grid_constant__ CUtensorMap from,
                                     const __grid_constant__ CUtensorMap to)
{
    __shared__ alignas(1024) unsigned char tile[32 * 8 * 2];
    __shared__ unsigned long long loaded;
    const int x = 32 * blockIdx.x, y = 8 * blockIdx.y;
    cupytma::mbarrier_init(&loaded, 1);
    cupytma::fence_mbarrier_init();
    cupytma::mbarrier_arrive_expect_tx_sink(&loaded, sizeof tile);
    cupytma::tensor_load_2d(tile, &from, x, y, &loaded);
    cupytma::mbarrier_wait_parity(&loaded, 0);
    cupytma::tensor_store_2d(&to, x, y, tile);
    cupytma::bulk_commit_group();
    cupytma::bulk_wait_group<0>();
}
"""


def parameters(address: int) -> Tiled:
    """The matrix as parameters of a tensor map, wherever it lies."""
    return Tiled(
        data_type="FLOAT16",  # type: ignore[arg-type]  # a name is taken for a member
        global_address=address,
        global_dim=(COLUMNS, ROWS),
        global_strides=(ROW_BYTES,),
        box_dim=TILE,
        swizzle="64B",  # type: ignore[arg-type]
    )


def tile_starts() -> list[tuple[int, int]]:
    """Coordinates of every tile, column first."""
    return [(x * TILE[0], y * TILE[1]) for y in range(GRID[1]) for x in range(GRID[0])]
