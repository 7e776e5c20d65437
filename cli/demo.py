"""``cupytma demo``: from a tensor to its copy, on one screen."""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterable, Iterator

import click

from cupytma.errors import CompileError, CupytmaError, NoDeviceError
from cupytma.tensormap import TensorMap, Tiled
from cupytma.version import __version__

from . import demo_checks, demo_kernel
from .output import paragraph, show, text_width

_TARGETS = ("sm_90a", "sm_100a")
_INSTRUCTION_WIDTH = 78
_PLACE = re.compile(r"w(\d+)(\[[\d:]+\])")


@click.command(epilog="Example:  cupytma demo && echo it works here")
def demo() -> None:
    """Show the whole chain on one screen, and check a copy.

    A small matrix is described, encoded, moved by a kernel that is compiled on the spot, and compared with numpy: on a
    GPU with a Tensor Memory Accelerator if there is one, on the simulator if there is none. The exit code is 0 if
    everything arrived and 1 if it did not.
    """
    parameters = demo_kernel.parameters(demo_checks.SOURCE_ADDRESS)
    tensor_map = parameters.encode()
    show(f"cupytma {__version__}: NVIDIA's Tensor Memory Accelerator from Python", style="bold")
    _section("1 A matrix with padded rows, and the box that one instruction moves", _description(parameters))
    _section("2 Its tensor map: 128 bytes, here as words of 64 bits with the fields in them", _words(tensor_map))
    _section("3 The instructions that load and store a box", _instructions())
    _section("4 A kernel that moves one tile, written against the generated header", demo_kernel.SOURCE.splitlines())
    show(*_compiled())
    title, checks = _checks()
    _section(f"5 {title}", ())
    for check in checks:
        show(f"  {_verdict(check)}", style="green" if check.passed else "bold red")
    sys.exit(0 if all(check.passed for check in checks) else 1)


def _section(title: str, lines: Iterable[str]) -> None:
    show(title, style="bold cyan")
    for line in lines:
        show(f"  {line}")


def _description(parameters: Tiled) -> list[str]:
    tensor_map = parameters.encode()
    return [
        f"Tiled(data_type={str(parameters.data_type)!r}, global_address={parameters.global_address:#x},",
        f"      global_dim={parameters.global_dim}, global_strides={parameters.global_strides},",
        f"      box_dim={parameters.box_dim}, swizzle={str(parameters.swizzle)!r})",
        f"one load moves {tensor_map.box_bytes} B to shared memory aligned to {tensor_map.shared_alignment} B",
    ]


def _words(tensor_map: TensorMap) -> Iterator[str]:
    """Each word that is not zero, with the fields in it."""
    contents: dict[int, list[str]] = {}
    for field in tensor_map.fields():
        value = f"{field.value:#x}" if field.label == "global_address" else str(field.value)
        for word, bits in _PLACE.findall(field.bits):
            contents.setdefault(int(word), []).append(f"{bits} {field.label} {field.meaning or value}")
    for number, word in enumerate(tensor_map.words):
        if word:
            head = f"w{number:<2} {word:016x}  "
            lines = _joined(contents.get(number, []), text_width() - len(head) - 2)
            yield from (f"{head if i == 0 else ' ' * len(head)}{line}" for i, line in enumerate(lines))
    yield f"zero: {', '.join(f'w{number}' for number, word in enumerate(tensor_map.words) if not word)}"


def _joined(parts: list[str], width: int) -> list[str]:
    """Parts with commas between them, as many to a line as fit; none is broken."""
    lines = [""]
    for part in parts:
        longer = f"{lines[-1]}, {part}" if lines[-1] else part
        if len(longer) <= width:
            lines[-1] = longer
        else:
            lines[-1] += ","
            lines.append(part)
    return lines


def _instructions() -> Iterator[str]:
    from cupytma import ptx

    for instruction in (ptx.tensor_load(rank=2), ptx.tensor_store(rank=2)):
        yield from textwrap.wrap(
            f"{instruction.mnemonic} {instruction.arguments};".replace(".mbarrier", " .mbarrier"),
            _INSTRUCTION_WIDTH, subsequent_indent="    ", break_on_hyphens=False, break_long_words=False,
        )


def _compiled() -> Iterator[str]:
    """The size of the kernel's machine code for each target, or how to get a compiler."""
    from cupytma.runtime.compiler import compile, nvrtc_version

    try:
        sizes = [f"{target} {len(compile(demo_kernel.SOURCE, target).cubin):,} B" for target in _TARGETS]
        version = ".".join(map(str, nvrtc_version()))
        yield f"  cubin by NVRTC {version}: {', '.join(sizes)}"
    except CompileError as error:
        yield paragraph(f"not compiled: {error}", 2)


def _checks() -> tuple[str, tuple[demo_checks.Check, ...]]:
    """The copies, on a GPU where that can be, and where they were made."""
    from cupytma.runtime.compiler import compile, nvrtc_version
    from cupytma.runtime.device import cupy

    try:
        module = compile(demo_kernel.SOURCE)  # for the device there is
        nvrtc_version()  # a kernel from the cache needs no compiler, and the copy after it does
        properties = cupy().cuda.runtime.getDeviceProperties(cupy().cuda.runtime.getDevice())
        name = properties["name"].decode()
    except (NoDeviceError, CompileError) as error:
        return f"On the simulator ({_why_not(error)})", demo_checks.on_simulator()
    return f"On the GPU: {name}", demo_checks.on_gpu(module)


def _why_not(error: CupytmaError) -> str:
    if isinstance(error, CompileError):
        return "NVRTC is missing or too old"
    return "CuPy is not installed" if isinstance(error.__cause__, ImportError) else "no GPU with a TMA unit here"


def _verdict(check: demo_checks.Check) -> str:
    if not check.passed:
        return f"FAIL  {check.what}: {check.detail}"
    return f"pass  {check.what}: bit-equal to numpy" + (f", {check.detail}" if check.detail else "")
