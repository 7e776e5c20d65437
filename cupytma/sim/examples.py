"""Programs that show how a kernel uses the Tensor Memory Accelerator, with the synchronisation it needs and no more.

Every function makes a `Program` that runs clean. The operations that have a name, listed by ``Program.steps``, are its
synchronisation steps: `Program.without` leaves one out, and running that says what it was for.

>>> from cupytma.sim import examples
>>> program = examples.read_modify_write()
>>> print(program.run())
read-modify-write: 100 schedules, clean
>>> program.without("proxy fence").run().findings[0].rule
'proxy-fence'
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import numpy as np

from cupytma.sim.program import Operation, Program, Thread
from cupytma.sim.program.errors import check_range
from cupytma.sim.swizzle import swizzle_chunk
from cupytma.tensormap.arrays import tensor_map
from cupytma.tensormap.enums import DataType, Swizzle
from cupytma.tensormap.interop import slot_array
from cupytma.tensormap.mutation import ELEMENT_TYPES
from cupytma.tensormap.parameters import Tiled
from cupytma.tensormap.replacement import rebind_steps

Body = Generator[Operation, Any, None]


def read_modify_write() -> Program:
    """The programming guide's seven steps: a bulk copy in, one added by all threads, a bulk copy out.

    Array ``data``: 64 int32, each one more at the end.
    """
    program = Program("read-modify-write")
    data = program.global_array("data", np.arange(64, dtype=np.int32))
    tile = program.shared_array("tile", 64, np.int32)
    loaded = program.mbarrier("loaded")

    @program.role(threads=4)
    def worker(t: Thread) -> Body:
        if t.index == 0:
            yield t.mbarrier_init(loaded, 1)
            yield t.fence_mbarrier_init().named("init fence")
        yield t.syncthreads().named("init barrier")
        if t.index == 0:
            yield t.mbarrier_arrive_expect_tx(loaded, tile.size).named("announce")
            yield t.bulk_copy(tile, data, loaded)
        yield t.mbarrier_wait_parity(loaded, 0).named("wait for the load")
        mine = tile[16 * t.index : 16 * (t.index + 1)]
        values = yield t.read_shared(mine)
        yield t.write_shared(mine, values + 1)
        yield t.fence_proxy_async(space="shared::cta").named("proxy fence")
        yield t.syncthreads().named("barrier")
        if t.index == 0:
            yield t.bulk_copy(data, tile)
            yield t.bulk_commit_group().named("commit")
            yield t.bulk_wait_group(0, read=True).named("wait for the store")

    return program


def prefetch_pipeline(
    *, stages: int = 3, tiles: int = 7, ahead: int | None = None, pending: int | None = None
) -> Program:
    """Tiles are loaded ahead into a ring of stages, changed in place, and stored.

    Array ``data``: `tiles` rows of 32 int32, each element doubled at the end.

    Parameters
    ----------
    stages : int
        Tiles in shared memory.
    tiles : int
        Rows of the array.
    ahead : int, optional
        How many tiles before its use a tile is loaded, 0 to ``stages - 1``. Default: ``stages - 1``.
    pending : int, optional
        How many of the newest groups may still be reading when a stage is loaded again. Default: what the stages
        allow. Tile ``i + ahead`` goes where tile ``i + ahead - stages`` was; the newest group is that of tile
        ``i - 1``; so ``stages - 1 - ahead`` groups are newer than the one to wait for. More is a race.

    Raises
    ------
    ProgramError
        For numbers that make no pipeline.
    """
    check_range("stages", stages, 1, 64)
    check_range("tiles", tiles, 0, 1000)
    ahead = stages - 1 if ahead is None else check_range("ahead", ahead, 0, stages - 1)
    pending = stages - 1 - ahead if pending is None else check_range("pending", pending, 0, 63)
    program = Program("prefetch pipeline")
    data = program.global_array("data", np.arange(32 * tiles, dtype=np.int32).reshape(tiles, 32))
    ring = program.shared_array("ring", (stages, 32), np.int32)
    loaded = program.mbarriers("loaded", stages)

    def load(t: Thread, tile: int) -> Body:
        stage = tile % stages
        yield t.mbarrier_arrive_expect_tx(loaded[stage], ring[stage].size).named("announce")
        yield t.bulk_copy(ring[stage], data[tile], loaded[stage])

    @program.role(threads=2)
    def worker(t: Thread) -> Body:
        if t.index == 0:
            for barrier in loaded:
                yield t.mbarrier_init(barrier, 1)
            yield t.fence_mbarrier_init().named("init fence")
        yield t.syncthreads().named("init barrier")
        if t.index == 0:
            for tile in range(min(ahead, tiles)):
                yield from load(t, tile)
        for tile in range(tiles):
            if t.index == 0 and tile + ahead < tiles:
                yield t.bulk_wait_group(pending, read=True).named("wait for the stage")
                yield from load(t, tile + ahead)
            yield t.mbarrier_wait_parity(loaded[tile % stages], tile // stages % 2).named("wait for the load")
            mine = ring[tile % stages, 16 * t.index : 16 * (t.index + 1)]
            values = yield t.read_shared(mine)
            yield t.write_shared(mine, 2 * values)
            yield t.fence_proxy_async(space="shared::cta").named("proxy fence")
            yield t.syncthreads().named("barrier")
            if t.index == 0:
                yield t.bulk_copy(data[tile], ring[tile % stages])
                yield t.bulk_commit_group().named("commit")
        if t.index == 0:
            yield t.bulk_wait_group(0, read=True).named("wait for the stores")

    return program


def tile_move() -> Program:
    """Each block moves one tile of a matrix, by a tensor load and a tensor store in one thread.

    Arrays ``source`` and ``moved``: 16 × 32 float32; the tiles at the edges reach beyond them.
    """
    program = Program("tile move", blocks=4)
    source = program.global_array("source", np.arange(512, dtype=np.float32).reshape(16, 32))
    moved = program.global_array("moved", np.zeros((16, 32), np.float32))
    maps = [tensor_map(array, box=(12, 20)) for array in (source, moved)]
    tile = program.shared_array("tile", (12, 20), np.float32)
    loaded = program.mbarrier("loaded")

    @program.role
    def mover(t: Thread) -> Body:
        corner = 20 * (t.block % 2), 12 * (t.block // 2)
        yield t.mbarrier_init(loaded, 1)
        yield t.fence_mbarrier_init().named("init fence")
        yield t.mbarrier_arrive_expect_tx(loaded, maps[0].box_bytes).named("announce")
        yield t.tensor_load(tile, maps[0], corner, loaded)
        yield t.mbarrier_wait_parity(loaded, 0).named("wait for the load")
        yield t.tensor_store(maps[1], corner, tile)
        yield t.bulk_commit_group().named("commit")
        yield t.bulk_wait_group(0, read=True).named("wait for the store")

    return program


def template_encode() -> Program:
    """One kernel makes a tensor map from a template on the device, the next one loads a tile through it.

    Arrays ``matrix``, 8 × 16 int32, and ``tile``, the 4 × 8 corner of it that begins at row 2, column 4.
    """
    program = Program("template encode")
    matrix = program.global_array("matrix", np.arange(128, dtype=np.int32).reshape(8, 16))
    result = program.global_array("tile", np.zeros((4, 8), np.int32))
    slot = program.global_array("slot", np.zeros(128, np.uint8))
    staged = program.shared_array("staged", 128)
    buffer = program.shared_array("buffer", (4, 8), np.int32)
    loaded = program.mbarrier("loaded")
    template = Tiled(data_type=DataType.UINT8, global_address=0, global_dim=(16,), box_dim=(16,)).encode()
    wanted = tensor_map(matrix, box=(4, 8)).decode()
    assert isinstance(wanted, Tiled)
    changes = [
        ("elemtype", 0, ELEMENT_TYPES.index(DataType.INT32)),
        ("rank", 0, wanted.rank - 1),
        *rebind_steps(wanted.global_address, wanted.global_dim, wanted.global_strides),
        *(("box_dim", i, extent) for i, extent in enumerate(wanted.box_dim)),
        *(("element_stride", i, 1) for i in range(wanted.rank)),
    ]

    @program.role(threads=2)
    def encoder(t: Thread) -> Body:
        if t.index == 0:
            yield t.write_shared(staged, np.frombuffer(bytes(template), np.uint8))
            for field, ordinal, value in changes:
                yield t.tensormap_replace(staged, field, value, ordinal=ordinal)
        yield t.syncwarp().named("warp barrier")
        yield t.tensormap_cp_fenceproxy(slot, staged, scope="gpu").named("publish")

    @program.role(threads=2, kernel=1)
    def consumer(t: Thread) -> Body:
        if t.index == 0:
            yield t.fence_proxy_tensormap_acquire(slot, scope="gpu").named("acquire")
        yield t.syncthreads().named("barrier")
        if t.index == 1:
            yield t.mbarrier_init(loaded, 1)
            yield t.fence_mbarrier_init().named("init fence")
            yield t.mbarrier_arrive_expect_tx(loaded, buffer.size).named("announce")
            yield t.tensor_load(buffer, slot, (4, 2), loaded)
            yield t.mbarrier_wait_parity(loaded, 0).named("wait for the load")
            values = yield t.read_shared(buffer)
            yield t.write_global(result, values)

    return program


def swizzled_transpose() -> Program:
    """Two threads transpose a tile in shared memory that was loaded and is stored with the 128B swizzle.

    Arrays ``matrix`` and ``transposed``: 8 × 8 elements of 16 bytes (4 int32 each).
    """
    program = Program("swizzled transpose")
    matrix = program.global_array("matrix", np.arange(256, dtype=np.int32).reshape(8, 8, 4))
    transposed = program.global_array("transposed", np.zeros((8, 8, 4), np.int32))
    maps = [_rows_map(array.address) for array in (matrix, transposed)]
    tile, turned = (program.shared_array(name, (8, 8, 4), np.int32, align=1024) for name in ("tile", "turned"))
    loaded = program.mbarrier("loaded")

    @program.role(threads=2)
    def worker(t: Thread) -> Body:
        if t.index == 0:
            yield t.mbarrier_init(loaded, 1)
            yield t.fence_mbarrier_init().named("init fence")
        yield t.syncthreads().named("init barrier")
        if t.index == 0:
            yield t.mbarrier_arrive_expect_tx(loaded, tile.size).named("announce")
            yield t.tensor_load(tile, maps[0], (0, 0), loaded)
        yield t.mbarrier_wait_parity(loaded, 0).named("wait for the load")
        for row in range(t.index, 8, 2):
            column = np.arange(8)
            values = yield t.read_shared(tile[row, swizzle_chunk(np.full(8, row), column, "128B")])
            yield t.write_shared(turned[column, swizzle_chunk(column, np.full(8, row), "128B")], values)
        yield t.fence_proxy_async(space="shared::cta").named("proxy fence")
        yield t.syncthreads().named("barrier")
        if t.index == 0:
            yield t.tensor_store(maps[1], (0, 0), turned)
            yield t.bulk_commit_group().named("commit")
            yield t.bulk_wait_group(0, read=True).named("wait for the store")

    return program


def _rows_map(address: int) -> Any:
    """The tensor map of 8 rows of 128 bytes, swizzled in chunks of 16."""
    return Tiled(
        data_type=DataType.INT32, global_address=address, global_dim=(32, 8), global_strides=(128,), box_dim=(32, 8),
        swizzle=Swizzle.B128,
    ).encode()  # fmt: skip


def matrix_multiply(*, stages: int = 2, depth: int = 4) -> Program:
    """A producer loads tiles of two matrices into a ring of stages, two consumers multiply them.

    Arrays ``a`` (16 × 8·depth), ``b`` (8·depth × 16) and ``c`` (16 × 16), float32; ``c = a @ b`` at the end.

    Parameters
    ----------
    stages : int
        Stages of the ring.
    depth : int
        Tiles along the dimension that is summed over.

    Raises
    ------
    ProgramError
        For numbers that make no ring.
    """
    check_range("stages", stages, 1, 64)
    check_range("depth", depth, 1, 1000)
    program = Program("matrix multiply")
    numbers = np.arange(128 * depth) % 7
    a = program.global_array("a", numbers.reshape(16, -1).astype(np.float32))
    b = program.global_array("b", numbers[::-1].reshape(-1, 16).astype(np.float32))
    c = program.global_array("c", np.zeros((16, 16), np.float32))
    map_a, map_b = tensor_map(a, box=(16, 8)), tensor_map(b, box=(8, 16))
    map_c = tensor_map(c, box=(16, 16))
    ring_a = program.shared_array("ring_a", (stages, 16, 8), np.float32)
    ring_b = program.shared_array("ring_b", (stages, 8, 16), np.float32)
    tile_c = program.shared_array("tile_c", (16, 16), np.float32)
    full, empty = program.mbarriers("full", stages), program.mbarriers("empty", stages)

    @program.role
    def producer(t: Thread) -> Body:
        for stage in range(stages):
            yield t.mbarrier_init(full[stage], 1)
            yield t.mbarrier_init(empty[stage], 2)
        yield t.fence_mbarrier_init().named("init fence")
        yield t.syncthreads().named("init barrier")
        for k in range(depth):
            stage, turn = k % stages, k // stages
            yield t.mbarrier_wait_parity(empty[stage], (turn + 1) % 2).named("wait for an empty stage")
            yield t.mbarrier_arrive_expect_tx(full[stage], map_a.box_bytes + map_b.box_bytes).named("announce")
            yield t.tensor_load(ring_a[stage], map_a, (8 * k, 0), full[stage])
            yield t.tensor_load(ring_b[stage], map_b, (0, 8 * k), full[stage])

    @program.role(threads=2)
    def consumer(t: Thread) -> Body:
        yield t.syncthreads().named("init barrier")
        rows = slice(8 * t.index, 8 * (t.index + 1))
        total = np.zeros((8, 16), np.float32)
        for k in range(depth):
            stage, turn = k % stages, k // stages
            yield t.mbarrier_wait_parity(full[stage], turn % 2).named("wait for a full stage")
            left = yield t.read_shared(ring_a[stage, rows])
            right = yield t.read_shared(ring_b[stage])
            yield t.mbarrier_arrive(empty[stage]).named("release the stage")
            total += left @ right
        yield t.write_shared(tile_c[rows], total)
        yield t.fence_proxy_async(space="shared::cta").named("proxy fence")
        yield t.barrier_sync(1, 2).named("consumers' barrier")
        if t.index == 0:
            yield t.tensor_store(map_c, (0, 0), tile_c)
            yield t.bulk_commit_group().named("commit")
            yield t.bulk_wait_group(0, read=True).named("wait for the store")

    return program


def rebind_handshake() -> Program:
    """A block uses a tensor map that the host wrote, points it at another tensor, and hands it to another block.

    Arrays ``first`` (4 × 8) and ``second`` (6 × 16), int32; ``tiles``, 2 × 4 × 8: the corner of each.
    """
    program = Program("rebind handshake", blocks=2)
    first = program.global_array("first", np.arange(32, dtype=np.int32).reshape(4, 8))
    second = program.global_array("second", 100 + np.arange(96, dtype=np.int32).reshape(6, 16))
    tiles = program.global_array("tiles", np.zeros((2, 4, 8), np.int32))
    slot = program.global_array("slot", slot_array([tensor_map(first, box=(4, 8))])[0])
    flag = program.global_array("flag", np.zeros(1, np.uint32))[0]
    buffer = program.shared_array("buffer", (4, 8), np.int32)
    loaded = program.mbarrier("loaded")
    other = tensor_map(second, box=(4, 8)).decode()
    assert isinstance(other, Tiled)
    changes = rebind_steps(other.global_address, other.global_dim, other.global_strides)

    def load(t: Thread) -> Body:
        yield t.mbarrier_init(loaded, 1)
        yield t.fence_mbarrier_init().named("init fence")
        yield t.mbarrier_arrive_expect_tx(loaded, buffer.size).named("announce")
        yield t.tensor_load(buffer, slot, (0, 0), loaded)
        yield t.mbarrier_wait_parity(loaded, 0).named("wait for the load")
        values = yield t.read_shared(buffer)
        yield t.write_global(tiles[t.block], values)

    @program.role(blocks=[0])
    def changer(t: Thread) -> Body:
        yield t.fence_proxy_tensormap_acquire(slot, scope="sys").named("acquire from the host")
        yield from load(t)
        for field, ordinal, value in changes:
            yield t.tensormap_replace(slot, field, value, ordinal=ordinal)
        yield t.fence_proxy_tensormap_release(scope="gpu").named("release")
        yield t.store_release(flag, 1, scope="gpu").named("tell")

    @program.role(blocks=[1])
    def user(t: Thread) -> Body:
        while not (yield t.load_acquire(flag, scope="gpu").named("be told")):
            pass
        yield t.fence_proxy_tensormap_acquire(slot, scope="gpu").named("acquire from the changer")
        yield from load(t)

    return program


EXAMPLES = {
    "read-modify-write": read_modify_write,
    "prefetch pipeline": prefetch_pipeline,
    "tile move": tile_move,
    "template encode": template_encode,
    "swizzled transpose": swizzled_transpose,
    "matrix multiply": matrix_multiply,
    "rebind handshake": rebind_handshake,
}
"""Every example, by the name of its program."""
