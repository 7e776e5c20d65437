"""A compiled kernel on the GPU."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from cupytma.errors import LaunchError
from cupytma.runtime import checks, streams
from cupytma.runtime.arguments import Marshaller, ParameterBlock
from cupytma.runtime.device import cupy
from cupytma.runtime.faults import launch_failure
from cupytma.runtime.history import KEPT, Noted, remember
from cupytma.runtime.launch_shape import LaunchBounds, LaunchShape, launch_shape, parse_launch_bounds
from cupytma.runtime.loading import raw_module
from cupytma.runtime.occupancy import Occupancy
from cupytma.runtime.places import TorchDevice
from cupytma.runtime.streams import handle_of
from cupytma.runtime.submission import Function, Submit, refusal

if TYPE_CHECKING:
    from cupytma.runtime.compiler import Module
    from cupytma.runtime.plan import Plan
    from cupytma.runtime.signature import KernelSignature

Extents = int | Sequence[int]


class Kernel(Occupancy):
    """One kernel of a `Module`; made by `Module.kernel`. Loaded through CuPy when first launched, on each device.

    May be used by several threads at once.
    """

    def __init__(self, module: Module, name: str) -> None:
        self.module = module
        self.name = name
        self._functions: dict[int, Function] = {}
        self._spare: deque[ParameterBlock] = deque()
        self._fill_quickly: Callable[[memoryview, Sequence[Any]], int | None] = self._first_fill

    @property
    def signature(self) -> KernelSignature:
        """The parameters the kernel declares."""
        return self.module.signatures[self.name]

    @cached_property
    def bounds(self) -> LaunchBounds:
        """What the kernel's own code says of its launches: ``__launch_bounds__`` and ``__cluster_dims__``."""
        return parse_launch_bounds(self.module.ptx)[self.name]

    @property
    def num_host_tmas(self) -> int:
        """Tensor maps that the host passes by value, those in structs of nothing else included."""
        from cupytma.runtime.map_counts import host_maps

        return host_maps(self.signature)

    @property
    def num_device_tmas(self) -> int:
        """Slots in global memory that the kernel makes or changes tensor maps in, read from its PTX.

        A pointer counts once for each constant distance from it: ``slots[blockIdx.x]`` is one slot, ``slots[0]`` and
        ``slots[1]`` are two. The pointers of a function that is not inlined count once each.
        `cupytma.ptx.appended_maps` puts such pointers before the maps of the host.
        """
        from cupytma.runtime.map_counts import device_maps

        return len(device_maps(self.module.ptx, self.name))

    @cached_property
    def marshaller(self) -> Marshaller:
        """What turns arguments into bytes."""
        return Marshaller(self.signature, self.module.target)

    def __call__(
        self,
        grid: Extents,
        block: Extents,
        arguments: Sequence[Any] = (),
        *,
        shared_bytes: int = 0,
        cluster: Extents | None = None,
        stream: Any = None,
        cooperative: bool = False,
        programmatic: bool = False,
    ) -> None:
        """Launch the kernel on the current device; returns at once.

        Parameters
        ----------
        grid, block : int or sequence of int
            Blocks of the grid and threads of a block, x first, up to three.
        arguments : sequence
            One for each parameter: a `TensorMap` by value, several as a list for a struct of them, device arrays
            (CuPy, torch, Numba, anything with ``__cuda_array_interface__`` or DLPack) and None as pointers, numbers by
            the type the kernel declares, ``numpy.void``, bytes or ctypes structures for other structs.
        shared_bytes : int
            Dynamic shared memory of a block, in bytes; more than 48 KiB is allowed for automatically.
        cluster : int or sequence of int, optional
            Blocks of a cluster, x first; up to 8 on every device, up to 16 where the device can. Leave it out for a
            kernel with ``__cluster_dims__``.
        stream : stream or int, optional
            CuPy's, torch's, anything with ``__cuda_stream__``, or a handle. Default: torch's current stream if an
            array is torch's, else CuPy's.
        cooperative : bool
            All blocks run at the same time, so that they may wait for one another.
        programmatic : bool
            The kernel may start before the one before it in the stream has ended; its code waits with
            ``griddepcontrol.wait`` (programmatic dependent launch).

        Raises
        ------
        LaunchError
            If an argument does not fit, arrays are on another device, the launch shape is impossible, or the code is
            for another architecture.
        NoDeviceError
            If there is no GPU.
        """
        key = grid, block, shared_bytes, cluster, cooperative, programmatic
        try:
            function = self._functions[_get_device()]
            submit, noted = function.submits[key]
        except (KeyError, TypeError, ValueError):  # some say ValueError of what cannot be a key
            function, submit, noted = self._prepared(key, arguments)
        spare = self._spare
        memory = spare.popleft() if len(spare) > KEPT else ParameterBlock(self.signature)  # as `borrow` says
        try:
            try:
                place = self._fill_quickly(memory.data, arguments)
            except (ValueError, TypeError, OverflowError):
                place = self.marshaller.fill(memory.data, arguments)
            if place is not None and place != function.device:
                raise LaunchError(self.elsewhere(place, function.device))
            if checks.enabled:
                self.check(noted, memory.data, arguments)
            if stream is not None:
                handle = handle_of(stream)
            elif place.__class__ is TorchDevice:
                handle = streams.current_handle(place)
            else:
                handle = streams.get_current_stream().ptr
            submit(handle, memory.pointers, 0)
            remember((noted, memory))
        except Exception as error:
            raise self.failed(error, self.shape(*key)) from None
        finally:
            spare.append(memory)  # the driver has copied the arguments

    def borrow(self) -> ParameterBlock:
        """Memory for the arguments of a launch, which no other thread has at the same time.

        It comes from the oldest launch that the history has forgotten, so that the history need not copy it.
        """
        spare = self._spare
        return spare.popleft() if len(spare) > KEPT else ParameterBlock(self.signature)

    def give_back(self, memory: ParameterBlock) -> None:
        """What was borrowed, once the driver has copied it."""
        self._spare.append(memory)

    def _prepared(self, key: tuple[Any, ...], arguments: Sequence[Any]) -> tuple[Function, Submit, Noted]:
        """The kernel on the current device, and what launches it in a shape that was not asked for before.

        Shape and arguments are judged before a device is needed.
        """
        shape = self.shape(*key)
        self.marshaller.fill(ParameterBlock(self.signature).data, arguments)
        function = self.function()
        found = function.submit(shape), self.noted(shape, function.device)
        if all(type(entry) in _PLAIN for entry in key):
            if len(function.submits) >= _SHAPES_KEPT:
                function.submits.clear()
            function.submits[key] = found
        return function, *found

    def noted(self, shape: LaunchShape, device: int) -> Noted:
        """What the history keeps of a launch, beside its arguments."""
        return self, shape.grid, shape.block, shape.cluster or self.bounds.cluster, shape.shared_bytes, device

    def check(self, noted: Noted, data: memoryview, arguments: Sequence[Any]) -> None:
        """Refuse a launch that is known to go wrong (`cupytma.checks`)."""
        _, grid, block, cluster, shared_bytes, device = noted
        checks.check_launch(self, grid, block, cluster, shared_bytes, bytes(data), arguments, device)

    def _first_fill(self, data: memoryview, arguments: Sequence[Any]) -> int | None:
        """What the marshaller's own function takes the place of: signatures are read when they are needed."""
        self._fill_quickly = self.marshaller.fill_quickly
        return self._fill_quickly(data, arguments)

    def plan(
        self,
        grid: Extents,
        block: Extents,
        arguments: Sequence[Any] = (),
        *,
        shared_bytes: int = 0,
        cluster: Extents | None = None,
        stream: Any = None,
        cooperative: bool = False,
        programmatic: bool = False,
    ) -> Plan:
        """A launch with everything checked and converted, to be made any number of times on the current device.

        The parameters are those of a call, and so are the errors.

        Returns
        -------
        Plan
            Call it to launch; it keeps its arguments alive.
        """
        from cupytma.runtime.plan import Plan

        shape = self.shape(grid, block, shared_bytes, cluster, cooperative, programmatic)
        return Plan(self, shape, arguments, None if stream is None else handle_of(stream))

    def shape(
        self,
        grid: Extents,
        block: Extents,
        shared_bytes: int = 0,
        cluster: Extents | None = None,
        cooperative: bool = False,
        programmatic: bool = False,
    ) -> LaunchShape:
        """A launch's shape, checked against the target and the kernel's own bounds.

        Raises
        ------
        LaunchError
            Naming everything that is impossible.
        """
        return launch_shape(
            grid, block, shared_bytes, cluster, cooperative, programmatic, self.module.target, self.bounds
        )

    def function(self) -> Function:
        """The kernel on the current device, loaded when first asked for.

        Raises
        ------
        LaunchError
            If its code is for another architecture, or the driver cannot load it.
        """
        device = current_device()
        return self._functions.get(device) or self._load(device)

    def _load(self, device: int) -> Function:
        try:
            raw = raw_module(self.module).get_function(self.name)
            handle = raw.kernel.ptr
        except cupy().cuda.driver.CUDADriverError as error:
            raise launch_failure(error, f"kernel {self.name} could not be loaded") from error
        return self._functions.setdefault(device, Function(raw, handle, device, self.module.target.shared_bytes))

    def elsewhere(self, place: int, device: int) -> str:
        """What to say where arrays are on one device and the launch is on another."""
        return (
            f"the arrays given to kernel {self.name} are on device {int(place)} and the current device is {device}: "
            f"launch inside `with cupy.cuda.Device({int(place)}):`, or move the arrays"
        )

    def failed(self, error: Exception, shape: LaunchShape) -> Exception:
        """What to raise for an error that came up while launching."""
        refused = refusal(error)
        if refused is None:
            return error
        return launch_failure(refused, f"the driver refuses to launch {self.name} ({shape})")

    def __repr__(self) -> str:
        parameters = ", ".join(map(str, self.signature.parameters))
        return f"<Kernel {self.name}({parameters}) for {self.module.target}>"


_SHAPES_KEPT = 256
# Types whose values say the same launch whenever they are equal.
_PLAIN = frozenset((int, tuple, bool, type(None)))


def _unknown_device() -> int:
    raise KeyError("CuPy has not been asked yet")


# CuPy's function, once CuPy is known to be usable.
_get_device: Callable[[], int] = _unknown_device


def current_device() -> int:
    """The number of the current device.

    Raises
    ------
    NoDeviceError
        If there is none.
    """
    global _get_device
    if _get_device is _unknown_device:
        _get_device = cupy().cuda.runtime.getDevice
    return _get_device()
