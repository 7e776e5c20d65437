"""Launches as the driver takes them: CuPy's own call, the cheapest, or ``cuLaunchKernelEx`` for clusters and such."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from math import prod
from typing import Any

from cupytma.errors import LaunchError
from cupytma.limits import PORTABLE_CLUSTER
from cupytma.runtime.device import cupy
from cupytma.runtime.history import Noted
from cupytma.runtime.launch_shape import DEFAULT_SHARED_BYTES, LaunchShape

# Makes a launch: takes the stream's handle, the address of the arguments' pointers, and 0.
Submit = Callable[[int, int, int], None]
_CONFIGURATIONS_KEPT = 64
_INVALID_CONTEXT = 201


@dataclass
class Function:
    """A kernel loaded on one device.

    Attributes
    ----------
    raw : cupy.RawKernel
    handle : int
        A ``CUfunction``.
    device : int
    shared_limit : int
        The most shared memory of a block, in bytes.
    submits : dict
        What makes the launches that were made before, and what the history keeps of them, by the shape as it was
        written.
    """

    raw: Any
    handle: int
    device: int
    shared_limit: int
    submits: dict[tuple[Any, ...], tuple[Submit, Noted]] = field(default_factory=dict)
    _shared_bytes: int = 0
    _wide_clusters: bool = False

    def submit(self, shape: LaunchShape) -> Submit:
        """What makes launches of a shape. What they need beyond the ordinary is allowed first.

        It raises `Refused`, or CuPy's own error, where the driver does not take a launch.
        """
        self.allow(shape)
        if shape.extended:
            return _extended(self.handle, shape)
        return partial(cupy().cuda.driver.launchKernel, self.handle, *shape.numbers)

    def allow(self, shape: LaunchShape) -> None:
        """Let the kernel have more shared memory, and larger clusters, than every kernel may.

        Raises
        ------
        LaunchError
            If the shared memory that the kernel's code has leaves too little for the launch.
        """
        limit = self.shared_limit
        if shape.shared_bytes > self._shared_bytes:
            fixed = self.raw.shared_size_bytes
            if fixed + shape.shared_bytes > DEFAULT_SHARED_BYTES:
                if fixed + shape.shared_bytes > limit:
                    raise LaunchError(
                        f"shared_bytes = {shape.shared_bytes}, and the kernel itself has {fixed} B of shared memory: "
                        f"together they exceed the {limit} B of a block; use at most {limit - fixed}"
                    )
                self.raw.max_dynamic_shared_size_bytes = shape.shared_bytes
            self._shared_bytes = shape.shared_bytes
        if shape.cluster and prod(shape.cluster) > PORTABLE_CLUSTER and not self._wide_clusters:
            driver = driver_api()
            wide = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
            check(driver.cuFuncSetAttribute(driver.CUfunction(self.handle), wide, 1)[0], "large clusters")
            self._wide_clusters = True


def driver_api() -> Any:
    """cuda-python's driver bindings.

    Raises
    ------
    LaunchError
        If they are not installed.
    """
    try:
        from cuda.bindings import driver
    except ImportError as error:
        raise LaunchError(
            "captures in graphs, and clusters, cooperative and programmatic launches need cuda-python, which is not "
            f"usable here ({error}); install it with `pip install 'cupytma[cuda12]'` or `pip install 'cupytma[cuda13]'`"
        ) from error
    return driver


class Refused(Exception):
    """The driver's answer to a launch, other than success: its code, a ``CUresult``, and name."""

    def __init__(self, code: int, name: str) -> None:
        super().__init__(name)
        self.code, self.name = code, name


def check(status: Any, subject: str) -> None:
    """Raise what the driver answered, unless it is success."""
    if status:
        raise Refused(int(status), f"{status.name} ({subject})")


def refusal(error: Exception) -> Refused | None:
    """The driver's answer in an error that a launch raised; None for other errors."""
    if isinstance(error, Refused):
        return error
    if isinstance(error, cupy().cuda.driver.CUDADriverError):
        return Refused(error.status, str(error))
    return None


def _extended(handle: int, shape: LaunchShape) -> Submit:
    """Configurations are kept by stream: a call may be under way in another thread when the next is made."""
    driver = driver_api()
    function, launch = driver.CUfunction(handle), driver.cuLaunchKernelEx
    configurations: dict[int, Any] = {}

    def submit(stream: int, pointers: int, _: int) -> None:
        found = configurations.get(stream)
        if found is None:
            if len(configurations) >= _CONFIGURATIONS_KEPT:
                configurations.clear()
            found = configurations[stream] = configuration(shape, stream)
        (status,) = launch(found, function, pointers, 0)
        if status:
            if status == _INVALID_CONTEXT:  # a thread that has not used CUDA yet
                cupy().cuda.runtime.free(0)
                (status,) = launch(found, function, pointers, 0)
            check(status, "launch")

    return submit


def configuration(shape: LaunchShape, stream: int) -> Any:
    """A shape and a stream as a ``CUlaunchConfig``."""
    driver = driver_api()
    config = driver.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = shape.grid
    config.blockDimX, config.blockDimY, config.blockDimZ = shape.block
    config.sharedMemBytes = shape.shared_bytes
    config.hStream = driver.CUstream(stream)
    attributes = []
    identifiers = driver.CUlaunchAttributeID
    if shape.cluster:
        tied = driver.CUlaunchAttribute()
        tied.id = identifiers.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
        tied.value.clusterDim.x, tied.value.clusterDim.y, tied.value.clusterDim.z = shape.cluster
        attributes.append(tied)
    if shape.cooperative:
        together = driver.CUlaunchAttribute()
        together.id = identifiers.CU_LAUNCH_ATTRIBUTE_COOPERATIVE
        together.value.cooperative = 1
        attributes.append(together)
    if shape.programmatic:
        early = driver.CUlaunchAttribute()
        early.id = identifiers.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
        early.value.programmaticStreamSerializationAllowed = 1
        attributes.append(early)
    config.attrs, config.numAttrs = attributes, len(attributes)
    return config


