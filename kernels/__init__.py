"""CUDA C++ sources of the package's own kernels, written against the header that `cupytma.ptx.header` generates."""

from __future__ import annotations

from importlib.resources import files


def source(name: str) -> str:
    """The text of one kernel source.

    Parameters
    ----------
    name : str
        The file name, such as ``"copy.cu"``.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    """
    return (files("cupytma.kernels") / name).read_text(encoding="utf-8")
