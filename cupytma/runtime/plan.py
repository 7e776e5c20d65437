"""A launch prepared once and made many times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cupytma.errors import ArrayError, DescriptorError, LaunchError
from cupytma.runtime import checks
from cupytma.runtime.arguments import ParameterBlock
from cupytma.runtime.device import cupy
from cupytma.runtime.given import shown, whole
from cupytma.runtime.graphs import CapturedLaunch, captured_node
from cupytma.runtime.history import remember
from cupytma.runtime.kernel import current_device
from cupytma.runtime.launch_shape import LaunchShape
from cupytma.runtime.places import TorchDevice
from cupytma.runtime.streams import current_handle, handle_of, is_capturing
from cupytma.runtime.writers import pack_pointer
from cupytma.tensormap.arrays import moved
from cupytma.tensormap.tensor_map import TensorMap

if TYPE_CHECKING:
    from cupytma.runtime.kernel import Kernel


class Plan:
    """A launch with everything checked and converted; made by `Kernel.plan`.

    Call it to launch, on the device that it was made on, whichever is the current one. The plan keeps its arguments
    alive, and with a tensor map the array that it was made of. A CUDA graph that captures a launch has the arguments as
    they were then, and `set` does not change them; see `capture` for graphs whose arguments change.

    Not for several threads at once: make one for each.

    Attributes
    ----------
    kernel : Kernel
    shape : LaunchShape
    function : Function
        The kernel as it is loaded on the device.
    pointers : int
        Address of one pointer for each argument, as ``cuLaunchKernel`` takes them.
    device : int
        The device that it launches on.
    arguments : tuple
        As they were given, or last set.
    """

    def __init__(self, kernel: Kernel, shape: LaunchShape, arguments: Sequence[Any], stream: int | None) -> None:
        self.kernel = kernel
        self.shape = shape
        self._memory = ParameterBlock(kernel.signature)
        self._place = kernel.marshaller.fill(self._memory.data, arguments)
        self._kept = [_frozen(argument) for argument in arguments]
        self.function = kernel.function()
        self.device = self.function.device
        self._check_place(self._place)
        self._submit = self.function.submit(shape)
        self.pointers = self._memory.pointers
        self._stream = stream
        self._noted = kernel.noted(shape, self.device)
        self._launched = self._noted, bytes(self._memory.data)

    def __call__(self, stream: Any = None) -> None:
        """Launch; returns at once.

        Parameters
        ----------
        stream : stream or int, optional
            Default: the plan's own, else torch's current stream if an array is torch's, else CuPy's.

        Raises
        ------
        LaunchError
            If the driver does not take the launch.
        """
        handle = self._handle(stream)
        if checks.enabled:
            self.kernel.check(self._noted, self._memory.data, self._kept)
        try:
            if current_device() == self.device:
                self._submit(handle, self.pointers, 0)
            else:
                with cupy().cuda.Device(self.device):
                    self._submit(handle, self.pointers, 0)
        except Exception as error:
            raise self.kernel.failed(error, self.shape) from None
        remember(self._launched)

    def _handle(self, stream: Any) -> int:
        if stream is not None:
            return handle_of(stream)
        return current_handle(self._place) if self._stream is None else self._stream

    def capture(self, stream: Any = None) -> CapturedLaunch:
        """Launch into a stream that is being captured.

        Returns
        -------
        CapturedLaunch
            Its ``update`` gives the graph the arguments that were `set` since.

        Raises
        ------
        LaunchError
            If the stream is not being captured.
        """
        handle = self._handle(stream)
        with cupy().cuda.Device(self.device):
            if not is_capturing(handle):
                captured_node(handle)  # which says so
            self(handle)
            return CapturedLaunch(self, captured_node(handle))

    @property
    def data(self) -> memoryview:
        """The parameter block of the next launch."""
        return self._memory.data

    def template(self, places: Sequence[tuple[int, int, int]]) -> Template:
        """The launch as it is now, for other addresses.

        Parameters
        ----------
        places : sequence of tuple of int
            Of each pointer that changes: its offset in the parameter block, which of the addresses it is given it
            belongs to, and its distance from that, in bytes. The first word of a tensor map is its pointer.
        """
        return Template(self, places)

    @property
    def arguments(self) -> tuple[Any, ...]:
        """The arguments of the next launch."""
        return tuple(self._kept)

    def set(self, position: int, argument: Any) -> None:
        """Change one argument, in place, for the launches to come. Launches that were made are not touched.

        Parameters
        ----------
        position : int
            Of the parameter, from 0.
        argument
            As for a call. Where the parameter holds a tensor map, an array of the same layout takes the place of its
            array, and an int, in bytes, that of its address.

        Raises
        ------
        LaunchError
            If it does not fit; the argument stays as it was.
        """
        try:
            position = range(len(self._kept))[whole(position)]
        except (IndexError, TypeError):
            raise LaunchError(
                f"position = {shown(position)}: kernel {self.kernel.name} has parameters 0 to {len(self._kept) - 1}"
            ) from None
        before, argument = self._kept[position], _frozen(argument)
        parameter = self.kernel.signature.parameters[position]
        room = slice(parameter.offset, parameter.offset + parameter.size)
        saved = bytes(self._memory.data[room])
        try:
            if isinstance(before, TensorMap) and not isinstance(argument, TensorMap):
                argument = self._moved(position, before, argument)
            place = self.kernel.marshaller.write(self._memory.data, position, argument)
            self._check_place(place)
        except LaunchError:
            self._memory.data[room] = saved
            raise
        self._kept[position] = argument
        if place.__class__ is TorchDevice:  # its stream is the one to launch on
            self._place = place
        elif self._place.__class__ is TorchDevice:  # as long as any array is torch's
            self._place = self.kernel.marshaller.fill(ParameterBlock(self.kernel.signature).data, self._kept)
        self._launched = self._noted, bytes(self._memory.data)

    def _moved(self, position: int, tensor_map: TensorMap, argument: Any) -> TensorMap:
        """A map of another array, or with another address."""
        try:
            if isinstance(argument, int) and not isinstance(argument, bool):
                return tensor_map.with_address(argument)
            return moved(tensor_map, argument)
        except (DescriptorError, ArrayError) as error:
            raise LaunchError(f"argument {position} of kernel {self.kernel.name}: {error}") from None

    def _check_place(self, place: int | None) -> None:
        if place is not None and place != self.device:
            raise LaunchError(self.kernel.elsewhere(place, self.device))

    def __repr__(self) -> str:
        return f"<Plan of {self.kernel.name}: {self.shape}, device {self.device}>"


def _frozen(argument: Any) -> Any:
    """An argument that its owner cannot change: what a plan points to must be what it keeps alive."""
    return tuple(argument) if isinstance(argument, list) else argument


class Template:
    """A plan's launch with other addresses in some of its pointers; made by `Plan.template`. For any thread."""

    def __init__(self, plan: Plan, places: Sequence[tuple[int, int, int]]) -> None:
        self._kernel = plan.kernel
        self._shape = plan.shape
        self._device = plan.device
        self._submit = plan.function.submit(plan.shape)
        self._data = bytes(plan.data)
        self._places = tuple(places)
        self._noted = plan.kernel.noted(plan.shape, plan.device)

    def __call__(self, handle: int, *addresses: int) -> None:
        """Launch on a stream, by its handle.

        Parameters
        ----------
        handle : int
        *addresses : int
            In bytes, by the numbers that the places have.

        Raises
        ------
        LaunchError
            If the driver does not take the launch.
        """
        memory = self._kernel.borrow()
        try:
            data = memory.data
            self._write(data, addresses)
            if checks.enabled:
                self._kernel.check(self._noted, data, ())
            if current_device() == self._device:
                self._submit(handle, memory.pointers, 0)
            else:
                with cupy().cuda.Device(self._device):
                    self._submit(handle, memory.pointers, 0)
            remember((self._noted, memory))
        except Exception as error:
            raise self._kernel.failed(error, self._shape) from None
        finally:
            self._kernel.give_back(memory)

    def _write(self, data: memoryview, addresses: tuple[int, ...]) -> None:
        data[:] = self._data
        for offset, which, distance in self._places:
            pack_pointer(data, offset, addresses[which] + distance)

    def at(self, *addresses: int) -> AddressedLaunch:
        """The launch at some addresses, to be made many times."""
        return AddressedLaunch(self, addresses)


class AddressedLaunch:
    """A template's launch at fixed addresses; made by `Template.at`. For any thread."""

    __slots__ = ("_launched", "_memory", "_pointers", "_submit", "_template")

    def __init__(self, template: Template, addresses: tuple[int, ...]) -> None:
        self._template = template
        self._memory = ParameterBlock(template._kernel.signature)
        template._write(self._memory.data, addresses)
        self._pointers = self._memory.pointers
        self._submit = template._submit
        self._launched = template._noted, bytes(self._memory.data)

    def __call__(self, handle: int) -> None:
        """Launch on a stream, by its handle; the kernel's device is the current one.

        Raises
        ------
        LaunchError
            If the driver does not take the launch.
        """
        try:
            if checks.enabled:
                self._template._kernel.check(self._template._noted, self._memory.data, ())
            self._submit(handle, self._pointers, 0)
        except Exception as error:
            raise self._template._kernel.failed(error, self._template._shape) from None
        remember(self._launched)
