"""The driver's own encoders, reached through cuda-python and called with any value at all.

cuda-python (CUDA 12 and 13 bindings) finds the driver, the context and the functions. The functions themselves are
called through ctypes, because the bindings refuse numbers that their enumerations do not have before the driver has
seen them, and wrap every integer of a sequence in an object.

Source: ``cuda.h`` of CUDA 12 and 13; that the encoders need a current context was measured (they answer 3 before
``cuInit`` and 201 without one).
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from cupytma import targets
from cupytma.errors import DescriptorError, DriverError, LaunchError, NoDeviceError
from cupytma.sticky import STICKY_ERRORS, earlier_fault
from cupytma.tensormap.fields import SIZE
from cupytma.tensormap.tensor_map import TensorMap, describe_violations

if TYPE_CHECKING:
    from cupytma.tensormap.driver_comparison import DriverComparison
    from cupytma.tensormap.parameters import Parameters

__all__ = [
    "ARGUMENTS", "DriverError", "Encoders", "describe_answer", "driver_context", "encode", "verify_against_driver",
]


_INVALID_VALUE, _NOT_FOUND = 1, 500
_OTHERS = {
    2: ("CUDA_ERROR_OUT_OF_MEMORY", "there is no memory left for a context: free some, or make one current yourself"),
    3: ("CUDA_ERROR_NOT_INITIALIZED", "the driver is not initialised after cuInit: has the process forked since?"),
    4: ("CUDA_ERROR_DEINITIALIZED", "the driver is shutting down, as at the interpreter's exit"),
    34: ("CUDA_ERROR_STUB_LIBRARY", "libcuda is the toolkit's stub: let the loader find the driver's own first"),
    46: ("CUDA_ERROR_DEVICE_UNAVAILABLE", "the device is used exclusively by another process"),
    100: ("CUDA_ERROR_NO_DEVICE", "the driver finds no GPU: see CUDA_VISIBLE_DEVICES"),
    101: ("CUDA_ERROR_INVALID_DEVICE", "the driver has no device 0"),
    201: ("CUDA_ERROR_INVALID_CONTEXT", "the current context has been destroyed: make another one current"),
    500: ("CUDA_ERROR_NOT_FOUND", "this driver lacks the encoder: it is older than CUDA 12.0 (im2col-wide: 12.8)"),
    801: ("CUDA_ERROR_NOT_SUPPORTED", "this device or driver has no such tensor maps"),
    803: ("CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "the driver's library and its kernel module have different versions"),
    999: ("CUDA_ERROR_UNKNOWN", "the driver does not say more"),
}  # fmt: skip
_NO_DEVICE = (34, 100, 101)

# What the encoders take after the map itself: the C type of one value, and whether a pointer to several is passed.
_C_TYPES: dict[str, tuple[Any, bool]] = {
    "data_type": (ctypes.c_int32, False),
    "rank": (ctypes.c_uint32, False),
    "global_address": (ctypes.c_uint64, False),
    "global_dim": (ctypes.c_uint64, True),
    "global_strides": (ctypes.c_uint64, True),
    "box_dim": (ctypes.c_uint32, True),
    "pixel_box_lower_corner": (ctypes.c_int32, True),
    "pixel_box_upper_corner": (ctypes.c_int32, True),
    "pixel_box_lower_corner_width": (ctypes.c_int32, False),
    "pixel_box_upper_corner_width": (ctypes.c_int32, False),
    "channels_per_pixel": (ctypes.c_uint32, False),
    "pixels_per_column": (ctypes.c_uint32, False),
    "element_strides": (ctypes.c_uint32, True),
    "interleave": (ctypes.c_int32, False),
    "wide_mode": (ctypes.c_int32, False),
    "swizzle": (ctypes.c_int32, False),
    "l2_promotion": (ctypes.c_int32, False),
    "oob_fill": (ctypes.c_int32, False),
}
_TENSOR = ("data_type", "rank", "global_address", "global_dim", "global_strides")
_PIXELS = ("channels_per_pixel", "pixels_per_column", "element_strides", "interleave")
_LAST = ("swizzle", "l2_promotion", "oob_fill")
ARGUMENTS: dict[str, tuple[str, ...]] = {
    "tiled": (*_TENSOR, "box_dim", "element_strides", "interleave", *_LAST),
    "im2col": (*_TENSOR, "pixel_box_lower_corner", "pixel_box_upper_corner", *_PIXELS, *_LAST),
    "im2col_wide": (
        *_TENSOR, "pixel_box_lower_corner_width", "pixel_box_upper_corner_width", *_PIXELS, "wide_mode", *_LAST,
    ),
}  # fmt: skip
# The symbol of each encoder, and the CUDA version whose form of it is meant.
_SYMBOLS = {
    "tiled": (b"cuTensorMapEncodeTiled", 12000),
    "im2col": (b"cuTensorMapEncodeIm2col", 12000),
    "im2col_wide": (b"cuTensorMapEncodeIm2colWide", 12080),
}
# Room for what a wrong rank might make the driver read.
_LONGEST = 8


def argument_types(kind: str) -> list[Any]:
    """The ctypes of an encoder's arguments, the map's address first."""
    given = (_C_TYPES[name] for name in ARGUMENTS[kind])
    return [ctypes.c_void_p, *(ctypes.c_void_p if many else c_type for c_type, many in given)]


def encode(parameters: Parameters) -> TensorMap:
    """The tensor map that this machine's driver makes of parameters.

    Borrows the current context, or takes the primary context of device 0 for the call. To encode many, hold one with
    `driver_context` around the calls.

    Parameters
    ----------
    parameters : Tiled, Im2col or Im2colWide

    Returns
    -------
    TensorMap

    Raises
    ------
    DescriptorError
        If the driver refuses the parameters: with the rules that they break on this device, or saying that none is
        known. Also for values that the driver's integers cannot hold.
    DriverError
        If the driver answers anything else. An earlier kernel's fault is named as such: nothing is wrong then with the
        parameters.
    NoDeviceError
        Without cuda-python, a driver, or a device that has a Tensor Memory Accelerator.
    """
    values = _values(parameters)
    try:
        with driver_context() as encoders:
            code, data = encoders.call(parameters.kind, values)
            target = None if code == 0 or code in STICKY_ERRORS else encoders.target()
    except DriverError as error:
        if error.code in STICKY_ERRORS:
            raise DriverError(describe_answer(error.code, parameters), error.code) from None
        raise
    if code == _INVALID_VALUE and target is not None:
        raise _refusal(parameters, target)
    if code:
        raise DriverError(describe_answer(code, parameters, target), code)
    return TensorMap(data)


def _refusal(parameters: Parameters, target: targets.Target) -> DescriptorError:
    broken = parameters.violations(target)
    if broken:
        return DescriptorError(describe_violations(broken), broken)
    return DescriptorError(
        f"the driver refuses the parameters (CUDA_ERROR_INVALID_VALUE), and they break no rule known for {target}: "
        "this driver and the rules differ; cupytma.verify_against_driver() shows where"
    )


def describe_answer(code: int, parameters: Parameters | None = None, target: targets.Target | None = None) -> str:
    """What an answer means, and what the rules say of the parameters."""
    earlier = earlier_fault(code)
    if earlier is not None:
        text = f"the driver answered {code} ({STICKY_ERRORS[code].name}): {earlier}"
    else:
        name, meaning = _OTHERS.get(code, (f"CUresult {code}", "see CUresult in the driver API's documentation"))
        text = f"the driver answered {code} ({name}): {meaning}"
    if parameters is None:
        return text
    target = targets.DEFAULT_TARGET if target is None else target
    broken = parameters.violations(target)
    if not broken:
        return f"{text}. Nothing is wrong with these parameters: they break no rule of {target}"
    return f"{text}. Apart from that, the parameters are illegal on {target}: {describe_violations(broken)}"


def _values(parameters: Parameters) -> list[Any]:
    """The arguments in C, after the map itself.

    Raises
    ------
    DescriptorError
        If a value does not fit its C type, and would reach the driver as another one.
    """
    operands = parameters.operands(targets.DEFAULT_TARGET)
    for side in ("lower", "upper"):
        operands[f"pixel_box_{side}_corner_width"] = operands.get(f"pixel_box_{side}_corner", (0,))[0]
    found, problems = [], []
    for name in ARGUMENTS[parameters.kind]:
        c_type, many = _C_TYPES[name]
        given = operands[name] if many else (operands[name],)
        for i, value in enumerate(given):
            if c_type(value).value != value:
                label = f"{name}[{i}]" if many else name
                problems.append(f"{label} = {value} does not fit {c_type.__name__.removeprefix('c_')}")
        found.append((c_type * max(_LONGEST, len(given)))(*given) if many else int(given[0]))
    if problems:
        broken = parameters.violations()
        text = f"the driver cannot be asked: {'; '.join(problems)}"
        raise DescriptorError(f"{text}\n{describe_violations(broken)}" if broken else text, broken)
    return found


class Encoders:
    """The driver's encoders while a context is current. Made by `driver_context`."""

    def __init__(self, bindings: Any) -> None:
        self._bindings = bindings
        self._functions: dict[str, Any] = {}

    def ask(self, name: str, *arguments: Any) -> Any:
        """The value that a function of cuda-python returns, or None.

        Raises
        ------
        DriverError
            If the driver answers anything but success.
        """
        code, *found = getattr(self._bindings, name)(*arguments)
        if int(code) in _NO_DEVICE:
            raise NoDeviceError(f"{describe_answer(int(code))}; {_WITHOUT}")
        if int(code):
            raise DriverError(describe_answer(int(code)), int(code))
        return found[0] if found else None

    def function(self, kind: str) -> Any:
        """The encoder of a kind, as a C function of addresses and integers.

        Raises
        ------
        DriverError
            If this driver has none.
        """
        if kind not in self._functions:
            symbol, version = _SYMBOLS[kind]
            address = self.ask("cuGetProcAddress", symbol, version, 0)
            if not address:
                raise DriverError(describe_answer(_NOT_FOUND), _NOT_FOUND)
            self._functions[kind] = ctypes.CFUNCTYPE(ctypes.c_int32, *argument_types(kind))(int(address))
        return self._functions[kind]

    def call(self, kind: str, values: list[Any]) -> tuple[int, bytes]:
        """The driver's answer and the 128 bytes it wrote."""
        room = ctypes.create_string_buffer(SIZE + 63)
        address = -(-ctypes.addressof(room) // 64) * 64
        code = self.function(kind)(address, *values)
        return int(code), ctypes.string_at(address, SIZE)

    def target(self) -> targets.Target:
        """What the current context's device is.

        Raises
        ------
        NoDeviceError
            If it has no Tensor Memory Accelerator.
        """
        attributes = self._bindings.CUdevice_attribute
        device = self.ask("cuCtxGetDevice")
        asked = [getattr(attributes, f"CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_{part}") for part in ("MAJOR", "MINOR")]
        capability = tuple(int(self.ask("cuDeviceGetAttribute", attribute, device)) for attribute in asked)
        known = [t for t in targets.TARGETS.values() if t.compute_capability <= capability and t.name.endswith("a")]
        if not known:
            raise NoDeviceError(
                f"the device has compute capability {capability[0]}.{capability[1]} and no Tensor Memory Accelerator, "
                "which begins with 9.0"
            )
        return max(known, key=lambda t: t.compute_capability)


@contextmanager
def driver_context() -> Iterator[Encoders]:
    """Make sure that a CUDA context is current, and leave everything as it was found.

    A current context is used as it is. Without one the primary context of device 0, which the runtime and CuPy use too,
    is made current and given back at the end.

    Yields
    ------
    Encoders

    Raises
    ------
    NoDeviceError
        Without cuda-python, a driver or a GPU.
    DriverError
        If the driver fails otherwise.
    """
    encoders = Encoders(_bindings())
    _initialise(encoders)
    current = encoders.ask("cuCtxGetCurrent")
    if current is not None and int(current):
        yield encoders
        return
    device = encoders.ask("cuDeviceGet", 0)
    primary = encoders.ask("cuDevicePrimaryCtxRetain", device)
    try:
        encoders.ask("cuCtxPushCurrent", primary)
        try:
            yield encoders
        finally:
            _quietly(encoders, "cuCtxPopCurrent")
    finally:
        _quietly(encoders, "cuDevicePrimaryCtxRelease", device)


def _quietly(encoders: Encoders, name: str, *arguments: Any) -> None:
    """Tidy up: a failure of this is an echo of one that is already on its way."""
    with suppress(DriverError, NoDeviceError):
        encoders.ask(name, *arguments)


_INSTALL = "pip install 'cupytma[cuda12]'` or `pip install 'cupytma[cuda13]'"
_WITHOUT = "without a driver, encode() makes the same bytes"


def _bindings() -> Any:
    try:
        from cuda.bindings import driver
    except ImportError as error:
        raise NoDeviceError(
            f"the driver is reached through cuda-python, which is not usable here ({error}); `{_INSTALL}`; {_WITHOUT}"
        ) from None
    return driver


def _initialise(encoders: Encoders) -> None:
    try:
        encoders.ask("cuInit", 0)
    except LaunchError:
        raise
    except Exception as error:  # the bindings have raised several types for a missing library
        raise NoDeviceError(f"there is no NVIDIA driver on this machine ({error}); {_WITHOUT}") from None


def verify_against_driver(
    n: int = 100_000,
    seed: int = 0,
    modes: Sequence[str] = ("tiled", "im2col", "im2col_wide"),
    *,
    target: str | targets.Target | None = None,
    show: bool = True,
) -> DriverComparison:
    """Compare `encode_records` with this machine's driver on random parameters, legal and illegal.

    Parameters
    ----------
    n : int
        How many parameters. 100,000 take some seconds.
    seed : int
        Of the random numbers: the same parameters for the same seed.
    modes : sequence of str
        Which encoders.
    target : str or Target, optional
        What to encode for. Default: the driver's device.
    show : bool
        Whether to print the result.

    Returns
    -------
    DriverComparison
        Every disagreement in return code or bytes; ``str`` gives a table, ``ok`` is true where there is none.

    Raises
    ------
    NoDeviceError
        Without cuda-python, a driver, or a device that has a Tensor Memory Accelerator.
    DriverError
        If the driver answers anything but success or "invalid value".
    """
    from cupytma.tensormap.driver_comparison import compare

    with driver_context() as encoders:
        chosen = encoders.target() if target is None else targets.target(target)
        found = compare(encoders, n, seed, tuple(modes), chosen)
    if show:
        print(found)
    return found
