"""The copies of the demonstration, on the simulator or on a GPU, each compared with numpy bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from . import demo_kernel

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from cupytma.runtime.compiler import Module

    Bytes = npt.NDArray[np.uint8]

_SEED = 9
_POISON = 0xA5
_BYTES_ON_GPU = 1 << 29
_REPETITIONS = 20
_ALIGNMENT = 64
# Where the simulator takes the matrices to lie.
SOURCE_ADDRESS, TARGET_ADDRESS = 0x7F00_0000_0000, 0x7F00_0001_0000


@dataclass(frozen=True)
class Check:
    """One comparison: what moved, whether it arrived, and what else there is to say."""

    what: str
    passed: bool
    detail: str = ""


def on_simulator() -> tuple[Check, ...]:
    """Both copies on numpy arrays."""
    return _tiles_on_simulator(), _copy_on_simulator()


def on_gpu(module: Module) -> tuple[Check, ...]:
    """Both copies on the current device, with the demonstration's kernel compiled for it."""
    return _guarded(_TILES, lambda: _tiles_on_gpu(module)), _guarded("copy", _copy_on_gpu)


_TILES = f"{demo_kernel.KERNEL}, {demo_kernel.GRID[0]} × {demo_kernel.GRID[1]} tiles"
_DIFFERS = "the result differs from numpy's"


def _guarded(what: str, check: Callable[[], Check]) -> Check:
    """A check on the GPU; what goes wrong there is a check that did not pass."""
    try:
        return check()
    except Exception as error:  # CuPy's errors derive from no common public type
        return Check(what, False, f"{type(error).__name__}: {error}")


def _judged(what: str, passed: bool, detail: str = "") -> Check:
    return Check(what, passed, detail if passed else _DIFFERS)


def _tiles_on_simulator() -> Check:
    from cupytma import sim

    source, target = _matrices()
    expected = _expected(source, target)
    maps = [demo_kernel.parameters(address).encode() for address in (SOURCE_ADDRESS, TARGET_ADDRESS)]
    tile = source[: maps[0].box_bytes].copy()
    for start in demo_kernel.tile_starts():
        sim.load(maps[0], start, memory=source, base=SOURCE_ADDRESS, shared=tile)
        sim.store(maps[1], start, memory=target, base=TARGET_ADDRESS, shared=tile)
    return _judged(_TILES, bool((target == expected).all()), "padding untouched")


def _copy_on_simulator() -> Check:
    import numpy as np

    from cupytma.ops import simulate_copy

    # A run of 620 bytes: most of it moves in tiles, its last 12 bytes by themselves.
    source = _random(61 * 6 * 160 * 4).view(np.float32).reshape(61, 6, 160)[:, ::2, 4:159]
    target = _aligned(61 * 3 * 160 * 4).view(np.float32).reshape(61, 3, 160)[..., :155]
    simulate_copy(source, target)
    passed = np.array_equal(source.view(np.uint32), target.view(np.uint32))
    return _judged(f"copy, a {_shape(source)} float32 view with strides", passed)


def _tiles_on_gpu(module: Module) -> Check:
    from cupytma.runtime.device import cupy

    source, target = _matrices()
    expected = _expected(source, target)
    on_device = [cupy().asarray(matrix) for matrix in (source, target)]
    maps = [demo_kernel.parameters(matrix.data.ptr).encode() for matrix in on_device]
    module.kernel(demo_kernel.KERNEL)(demo_kernel.GRID, 1, maps)
    return _judged(_TILES, bool((on_device[1].get() == expected).all()), "padding untouched")


def _copy_on_gpu() -> Check:
    import numpy as np

    from cupytma.ops import copy
    from cupytma.runtime.device import cupy

    free, _ = cupy().cuda.runtime.memGetInfo()
    size = min(_BYTES_ON_GPU, free // 4) // 4096 * 4096
    source = _random(size).view(np.float32).reshape(-1, 1024)
    on_device = cupy().asarray(source)
    target = cupy().empty_like(on_device)
    target.data.memset(_POISON, size)
    copy(on_device, target)
    passed = np.array_equal(source.view(np.uint32), target.get().view(np.uint32))
    rate = 2 * size / _median_seconds(lambda: copy(on_device, target)) / 1e9
    return _judged(f"copy, {size >> 20} MiB of float32", passed, f"{rate:,.0f} GB/s read and written")


def _median_seconds(work: Any) -> float:
    """Median time of some work on the device, by CUDA events around each run."""
    from cupytma.runtime.device import cupy

    times = []
    for _ in range(_REPETITIONS):
        start, end = cupy().cuda.Event(), cupy().cuda.Event()
        start.record()
        work()
        end.record()
        end.synchronize()
        times.append(cupy().cuda.get_elapsed_time(start, end) / 1e3)
    return float(sorted(times)[len(times) // 2])


def _matrices() -> tuple[Bytes, Bytes]:
    """The source's bytes, random, and the target's, poisoned."""
    size = demo_kernel.ROWS * demo_kernel.ROW_BYTES
    return _random(size), _aligned(size)


def _expected(source: Bytes, target: Bytes) -> Bytes:
    """What the target must hold afterwards: the source's elements, and its own padding."""
    shape = demo_kernel.ROWS, demo_kernel.ROW_BYTES
    used = demo_kernel.COLUMNS * demo_kernel.ELEMENT_BYTES
    expected: Bytes = target.reshape(shape).copy()
    expected[:, :used] = source.reshape(shape)[:, :used]
    flat: Bytes = expected.reshape(-1)
    return flat


def _random(size: int) -> Bytes:
    import numpy as np

    found = _aligned(size)
    found[:] = np.frombuffer(np.random.default_rng(_SEED).bytes(size), np.uint8)
    return found


def _aligned(size: int) -> Bytes:
    """Poisoned bytes that begin where device memory could: numpy promises no such alignment."""
    import numpy as np

    room = np.full(size + _ALIGNMENT, _POISON, np.uint8)
    start = -room.ctypes.data % _ALIGNMENT
    return room[start : start + size]


def _shape(array: Any) -> str:
    return " × ".join(map(str, array.shape))
