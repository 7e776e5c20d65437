"""What all targets have in common: the steps and limits of the Tensor Memory Accelerator, and those of launches.

What targets differ in is the table of `cupytma.targets`; what a descriptor may hold, `cupytma.tensormap.rules`.
"""

UNIT = 16
"""Bytes: addresses, strides and sizes of bulk and tensor copies are multiples of it (PTX ISA, "cp.async.bulk"; driver
API, ``cuTensorMapEncodeTiled``)."""

MAX_RANK = 5
"""Dimensions of a tensor map (driver API, ``cuTensorMapEncodeTiled``)."""

MAX_BOX = 256
"""Elements of a box along one dimension (driver API, ``cuTensorMapEncodeTiled``)."""

STRIDE_LIMIT = 2**40
"""Bytes: strides are below (driver API, ``cuTensorMapEncodeTiled``)."""

ADDRESS_LIMIT = 2**57
"""Bytes: the addresses of tensors are below (recorded)."""

MAX_EXTENT = 2**31
"""Elements along one dimension that coordinates reach, which are signed 32-bit numbers (PTX ISA,
"cp.async.bulk.tensor")."""

TILE_ALIGNMENT = 128
"""Bytes: where the tiles of tensor copies begin in shared memory (PTX ISA, "cp.async.bulk.tensor"), and what the end of
a block's shared memory is rounded up to (measured, both)."""

SWIZZLE_PERIOD = 1024
"""Bytes of shared memory after which every swizzle has repeated (32B repeats after 256, 64B after 512)."""

WARP_THREADS = 32
WARPGROUP_THREADS = 4 * WARP_THREADS

MAX_BLOCK_THREADS = 1024
"""Threads of a block (CUDA programming guide, technical specifications)."""

MAX_BLOCK = (1024, 1024, 64)
"""Its threads along x, y and z (the same table)."""

MAX_GRID = (2**31 - 1, 65535, 65535)
"""The most blocks of a launch along x, y and z (CUDA programming guide, technical specifications)."""

PORTABLE_CLUSTER, MAX_CLUSTER = 8, 16
"""Blocks of a cluster: everywhere, and where a kernel allows itself to be tied to a device (CUDA programming guide,
"Thread Block Clusters")."""

MULTIPROCESSOR_SHARED_BYTES = 228 * 1024
"""Of all blocks on a large multiprocessor (CUDA programming guide, technical specifications), and the largest box that
the driver takes on any (recorded)."""

RESERVED_SHARED_BYTES = 1024
"""Of shared memory, which the system has of each block (CUDA programming guide, "Shared Memory")."""

MULTIPROCESSOR_THREADS = 2048
"""Of all blocks on a multiprocessor of compute capability 9.0 or 10.x, which runs the most (CUDA programming guide,
technical specifications)."""
