"""Kernels that change a tensor map and use it, right and wrong, with what is wrong: a table that checkers agree on.

Each row is one CUDA C++ source and one program for the simulator that do the same, and the rule that both break.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import cupytma as tma
from cupytma.sim import Program
from cupytma.tensormap import slot_array
from cupytma.tensormap.replacement import rebind_steps

_PRELUDE = """\
#include <cupytma.cuh>

__device__ void load_corner(const CUtensorMap* map, unsigned* out, unsigned parity)
{
    __shared__ alignas(128) unsigned tile[32];
    __shared__ unsigned long long loaded;
    if (parity == 0) {
        cupytma::mbarrier_init(&loaded, 1);
        cupytma::fence_mbarrier_init();
    }
    cupytma::mbarrier_arrive_expect_tx_sink(&loaded, sizeof tile);
    cupytma::tensor_load_2d(tile, map, 0, 0, &loaded);
    cupytma::mbarrier_wait_parity(&loaded, parity);
    for (int i = 0; i < 32; ++i) {
        out[i] = tile[i];
    }
}

__device__ void tell(unsigned* flag)
{
    asm volatile("st.release.gpu.global.u32 [%0], 1;" :: "l"(__cvta_generic_to_global(flag)) : "memory");
}

__device__ void be_told(unsigned* flag)
{
    unsigned seen = 0;
    while (seen == 0) {
        asm volatile("ld.acquire.gpu.global.u32 %0, [%1];"
                     : "=r"(seen) : "l"(__cvta_generic_to_global(flag)) : "memory");
    }
}

// By one thread, where the map lies.
__device__ void change(CUtensorMap* map, unsigned long long address)
{
    cupytma::tensormap_replace_global_address_global(map, address);
    cupytma::tensormap_replace_global_dim_global<0>(map, 8);
    cupytma::tensormap_replace_global_dim_global<1>(map, 4);
    cupytma::tensormap_replace_global_stride_global<0>(map, 32);
}

"""
# Block 0 changes the map, block 1 uses it.
_TWO_BLOCKS = """\
extern "C" __global__ void handshake(CUtensorMap* map, unsigned long long address, unsigned* flag, unsigned* out)
{{
    if (threadIdx.x != 0) {{
        return;
    }}
    if (blockIdx.x == 0) {{
        change(map, address);
        {release}
        tell(flag);
    }} else {{
        be_told(flag);
        {acquire}
        load_corner(map, out, 0);
    }}
}}
"""
# Block 0 changes the map in a slot of shared memory and publishes it.
_PUBLISHED = """\
extern "C" __global__ void handshake(
    const __grid_constant__ CUtensorMap seed, CUtensorMap* map, unsigned long long address, unsigned* flag,
    unsigned* out)
{{
    __shared__ cupytma::tensormap::Slot slot;
    if (blockIdx.x == 0) {{
        const unsigned extents[2] = {{8, 4}};
        const unsigned long long strides[1] = {{32}};
        cupytma::tensormap::copy_template(slot, &seed);
        cupytma::tensormap::rebind<2>(slot, address, extents, strides);
        cupytma::tensormap::publish(map, slot, cupytma::tensormap::Scope::{scope});
        if (threadIdx.x == 0) {{
            tell(flag);
        }}
    }} else if (threadIdx.x == 0) {{
        be_told(flag);
        {acquire}
        load_corner(map, out, 0);
    }}
}}
"""
_OTHER_BLOCK = """\
extern "C" __global__ void handshake(CUtensorMap* map, unsigned long long address, unsigned* flags, unsigned* out)
{
    if (threadIdx.x != 0) {
        return;
    }
    if (blockIdx.x == 0) {
        change(map, address);
        cupytma::fence_proxy_tensormap_release_gpu();
        tell(flags);
    } else if (blockIdx.x == 1) {
        be_told(flags);
        cupytma::fence_proxy_tensormap_acquire_gpu(map);
        tell(flags + 1);
    } else {
        be_told(flags + 1);
        load_corner(map, out, 0);
    }
}
"""
_TWO_USES = """\
extern "C" __global__ void handshake(CUtensorMap* map, unsigned long long address, unsigned* out)
{{
    if (threadIdx.x != 0) {{
        return;
    }}
    map += blockIdx.x;  // each block has a map of its own
    cupytma::fence_proxy_tensormap_acquire_sys(map);
    load_corner(map, out, 0);
    change(map, address);
    cupytma::fence_proxy_tensormap_release_cta();
    {acquire}
    load_corner(map, out + 32, 1);
}}
"""
_RELEASE, _ACQUIRE = "cupytma::fence_proxy_tensormap_release_{}();", "cupytma::fence_proxy_tensormap_acquire_{}(map);"


@dataclass(frozen=True)
class Handshake:
    """One row.

    Attributes
    ----------
    name : str
    source : str
        CUDA C++ with one kernel, ``handshake``.
    verdict : str
        The simulator's rule that it breaks; empty where it is right.
    program : callable
        Makes the same for the simulator.
    """

    name: str
    source: str
    verdict: str
    program: Callable[[], Program]


class _Scene:
    """What the programs have in common: two tensors, a map of the first in global memory, and a tile to load."""

    def __init__(self, blocks: int) -> None:
        self.program = program = Program("handshake", blocks=blocks)
        self.first = program.global_array("first", np.arange(32, dtype=np.int32).reshape(4, 8))
        self.second = program.global_array("second", 100 + np.arange(32, dtype=np.int32).reshape(4, 8))
        self.seen = program.global_array("seen", np.zeros((4, 8), np.int32))
        self.slot = program.global_array("slot", slot_array([tma.tensor_map(self.first, box=(4, 8))]))[0]
        self.flags = program.global_array("flags", np.zeros(2, np.int32))
        self.staged = program.shared_array("staged", 128)
        self.buffer = program.shared_array("buffer", (4, 8), np.int32)
        self.full = program.mbarrier("full")
        self.wanted = tma.tensor_map(self.second, box=(4, 8))

    def change(self, t: Any) -> Iterator[Any]:
        p = self.wanted.decode()
        for field, ordinal, value in rebind_steps(p.global_address, p.global_dim, p.global_strides):
            yield t.tensormap_replace(self.slot, field, value, ordinal=ordinal)

    def load(self, t: Any, parity: int = 0) -> Iterator[Any]:
        if parity == 0:
            yield t.mbarrier_init(self.full, 1)
            yield t.fence_mbarrier_init()
        yield t.mbarrier_arrive_expect_tx(self.full, self.buffer.size)
        yield t.tensor_load(self.buffer, self.slot, (0, 0), self.full)
        yield t.mbarrier_wait_parity(self.full, parity)
        values = yield t.read_shared(self.buffer)
        yield t.write_global(self.seen, values)

    def be_told(self, t: Any, flag: int = 0) -> Iterator[Any]:
        while not (yield t.load_acquire(self.flags[flag], scope="gpu")):
            pass


def _two_blocks(release: str, acquire: str, published: bool = False) -> Program:
    scene = _Scene(2)

    @scene.program.role(blocks=[0])
    def changer(t):
        if published:
            yield t.write_shared(scene.staged, np.frombuffer(bytes(scene.wanted), np.uint8))
            yield t.tensormap_cp_fenceproxy(scene.slot, scene.staged, scope=release)
        else:
            yield from scene.change(t)
            if release:
                yield t.fence_proxy_tensormap_release(scope=release)
        yield t.store_release(scene.flags[0], 1, scope="gpu")

    @scene.program.role(blocks=[1])
    def user(t):
        yield from scene.be_told(t)
        if acquire:
            yield t.fence_proxy_tensormap_acquire(scene.slot, scope=acquire)
        yield from scene.load(t)

    return scene.program


def _other_block() -> Program:
    scene = _Scene(3)

    @scene.program.role(blocks=[0])
    def changer(t):
        yield from scene.change(t)
        yield t.fence_proxy_tensormap_release(scope="gpu")
        yield t.store_release(scene.flags[0], 1, scope="gpu")

    @scene.program.role(blocks=[1])
    def acquirer(t):
        yield from scene.be_told(t)
        yield t.fence_proxy_tensormap_acquire(scene.slot, scope="gpu")
        yield t.store_release(scene.flags[1], 1, scope="gpu")

    @scene.program.role(blocks=[2])
    def user(t):
        yield from scene.be_told(t, 1)
        yield from scene.load(t)

    return scene.program


def _two_uses(acquire: str) -> Program:
    scene = _Scene(1)

    @scene.program.role
    def user(t):
        yield t.fence_proxy_tensormap_acquire(scene.slot, scope="sys")
        yield from scene.load(t)
        yield from scene.change(t)
        yield t.fence_proxy_tensormap_release(scope="cta")
        if acquire:
            yield t.fence_proxy_tensormap_acquire(scene.slot, scope=acquire)
        yield from scene.load(t, 1)

    return scene.program


def _row(name: str, release: str, acquire: str, verdict: str) -> Handshake:
    texts = [template.format(scope) if scope else "" for template, scope in ((_RELEASE, release), (_ACQUIRE, acquire))]
    source = _PRELUDE + _TWO_BLOCKS.format(release=texts[0], acquire=texts[1])
    return Handshake(name, source, verdict, partial(_two_blocks, release, acquire))


def _published_row(name: str, scope: str, acquire: str, verdict: str) -> Handshake:
    text = _ACQUIRE.format(acquire) if acquire else ""
    source = _PRELUDE + _PUBLISHED.format(scope=scope, acquire=text)
    return Handshake(name, source, verdict, partial(_two_blocks, scope, acquire, True))


def _two_uses_row(name: str, acquire: str, verdict: str) -> Handshake:
    source = _PRELUDE + _TWO_USES.format(acquire=_ACQUIRE.format(acquire) if acquire else "")
    return Handshake(name, source, verdict, partial(_two_uses, acquire))


HANDSHAKES: tuple[Handshake, ...] = (
    _row("proper pair, changed in place", "gpu", "gpu", ""),
    _row("proper pair, wider scopes", "sys", "sys", ""),
    _published_row("proper pair, published from shared memory", "gpu", "gpu", ""),
    _row("without release", "", "gpu", "map-not-released"),
    _row("without acquire", "gpu", "", "map-not-acquired"),
    _published_row("published, without acquire", "gpu", "", "map-not-acquired"),
    _row("released at cta scope for another block", "cta", "gpu", "map-scope"),
    _row("acquired at cta scope from another block", "gpu", "cta", "map-scope"),
    _published_row("published at cta scope for another block", "cta", "gpu", "map-scope"),
    Handshake(
        "acquired in another block than the one that uses it", _PRELUDE + _OTHER_BLOCK, "map-not-acquired", _other_block
    ),
    _two_uses_row("two uses with a change between, acquired again", "cta", ""),
    _two_uses_row("two uses with a change between, acquired once", "", "map-not-acquired"),
)
"""Every variant, right and wrong."""
