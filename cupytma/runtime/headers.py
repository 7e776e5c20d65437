"""The headers that a source includes: our own, those given as text, those in folders, the toolkit's."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module

from cupytma.runtime.compilation import Request

HEADER_NAME = "cupytma.cuh"
# Headers that are written by hand: the name they are included with, and the file among the package's kernels.
_OWN = {"cupytma/numbers.cuh": "numbers.cuh", "cupytma/pipeline.cuh": "pipeline.cuh"}
_INCLUDED = re.compile(r"#\s*include(?:_next)?\b|__has_include\s*\(")
_NAMED = re.compile(r'\s*(?:<([^>\n]+)>|"([^"\n]+)")')
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_CHANGING = re.compile(r"__(?:DATE|TIME|TIMESTAMP)__")
_MOST_FILES = 20_000  # in the folders that are searched, where a macro may name any of them
_LONGEST = 1 << 24  # bytes of a header that is read to see what it includes

# Folders with the toolkit's headers below a folder of packages, as NVIDIA's wheels for each major version have them.
_WHEEL_FOLDERS = {
    12: ("cuda_runtime/include", "cuda_cccl/include", "cuda_nvcc/include", "curand/include"),
    13: ("cu13/include", "cu13/include/cccl"),
}
# Which wheel has a header, by the beginning of its name; the first that fits counts. For CUDA 12 names end in -cu12.
_PACKAGES: tuple[tuple[str, str], ...] = (
    (r"cuda/|cub/|thrust/|nv/", "nvidia-cuda-cccl"),
    (r"curand", "nvidia-curand"),
    (r"crt/", "nvidia-cuda-crt"),
    (
        r"cuda_(?:fp\d|bf16|runtime|pipeline|awbarrier|tf32|device|occupancy)|cooperative_groups|mma\.h|cuComplex|"
        r"vector_(?:types|functions)|math_constants|math_functions|device_(?:functions|types|launch)|sm_\d|"
        r"driver_types|builtin_types|library_types|texture_|surface_|cuda\.h|cudaTypedefs|host_defines",
        "nvidia-cuda-runtime",
    ),
)
# Headers that include one of another wheel, by the beginning of their names.
_NEEDS: tuple[tuple[str, str], ...] = (("cooperative_groups", "nv/target"), ("mma.h", "crt/mma.h"))
_RENAMED = {("nvidia-cuda-crt", 12): "nvidia-cuda-nvcc-cu12"}


@dataclass
class Inclusions:
    """What a source includes, directly or through other headers.

    Attributes
    ----------
    files : dict of str to str
        Files found in folders, by path, with the hash of their content.
    missing : set of str
        Names found nowhere but perhaps in the toolkit or in this package.
    macros : bool
        Whether the source, or a header given as text, names a header by a macro, so that not all are known.
    trees : str
        Where a header in a folder does so: a hash of the names, sizes and times of change of all files in the folders
        that are searched. Empty where none does.
    changing : bool
        Whether some text asks for the date or the time.
    wgmma : bool
        Whether some text has the word.
    """

    files: dict[str, str] = field(default_factory=dict)
    missing: set[str] = field(default_factory=set)
    macros: bool = False
    trees: str = ""
    changing: bool = False
    wgmma: bool = False


@dataclass(frozen=True)
class _Text:
    """What is worth knowing of one text."""

    names: tuple[tuple[str, bool], ...]  # and whether in quotes
    macros: bool
    changing: bool
    wgmma: bool


def working_folder() -> str:
    """The current folder; empty where it has been removed."""
    try:
        return os.getcwd()
    except OSError:
        return ""


def inclusions(request: Request) -> Inclusions:
    """Go through a request's source and all that it includes. Conditions are not looked at: more may be found."""
    found = Inclusions()
    given = dict(request.headers)
    here = working_folder()  # where NVRTC takes the source to lie
    pending: list[tuple[_Text, str]] = [(_look(text), here) for text in (request.source, *given.values())]
    found.macros = any(text.macros for text, _ in pending)
    pending.append((_Text(tuple((name, True) for name in request.pre_included), False, False, False), here))
    files_have_macros = False
    while pending:
        text, folder = pending.pop()
        found.changing |= text.changing
        found.wgmma |= text.wgmma
        for name, quoted in text.names:
            if name in given:
                continue
            paths = [
                path
                for base in ((folder, *request.searched) if quoted else request.searched)
                if os.path.isfile(path := os.path.join(base, name))
            ]
            if not paths:
                found.missing.add(name)
            for path in map(_settled, paths):
                if path not in found.files:
                    found.files[path], inner = _read(path)
                    files_have_macros |= inner.macros
                    pending.append((inner, os.path.dirname(path)))
    if files_have_macros:
        found.trees = _tree_stamp(request.searched)
        found.macros |= not found.trees
    return found


def with_own_headers(request: Request, found: Inclusions) -> Request:
    """A request with the texts of this package's own headers that it lacks, beside the generated one.

    They may include one another, so that more may be missing then.
    """
    wanted = [name for name in _OWN if name in found.missing]
    if not wanted:
        return request
    kernels = import_module("cupytma.kernels")  # in a source tree it is where type checkers do not look
    texts = tuple((name, kernels.source(_OWN[name])) for name in wanted)
    return replace(request, headers=(*request.headers, *texts))


def _settled(path: str) -> str:
    """A path without detours, so that headers that include one another by them are the same again.

    The file's own name stays even if it is a link: what it includes is looked for beside the link.
    """
    return os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))


def _tree_stamp(folders: Iterable[str]) -> str:
    """What changes when any file in some folders does; empty where they hold too many to look at."""
    digest, count = hashlib.sha256(), 0
    for root in folders:
        for folder, _, names in os.walk(root):
            count += len(names)
            if count > _MOST_FILES:
                return ""
            for name in sorted(names):
                path = os.path.join(folder, name)
                with contextlib.suppress(OSError):
                    status = os.stat(path)
                    digest.update(f"{path}\0{status.st_mtime_ns}\0{status.st_size}\n".encode(errors="surrogateescape"))
    return digest.hexdigest()


def _look(text: str) -> _Text:
    bare = _COMMENT.sub(" ", text)
    names, macros = [], False
    for directive in _INCLUDED.finditer(bare):
        named = _NAMED.match(bare, directive.end())
        if named:
            names.append((named[1] or named[2], named[2] is not None))
        else:
            macros = True
    return _Text(tuple(names), macros, _CHANGING.search(bare) is not None, "wgmma" in text.lower())


_files: dict[str, tuple[tuple[int, int], str, _Text]] = {}


def _read(path: str) -> tuple[str, _Text]:
    """The hash of a file and what it includes, read again when the file has changed."""
    try:
        status = os.stat(path)
        stamp = status.st_mtime_ns, status.st_size
        known = _files.get(path)
        if known is None or known[0] != stamp:
            if status.st_size > _LONGEST:
                return f"{stamp}", _Text((), True, False, False)
            with open(path, "rb") as file:
                content = file.read()
            known = _files[path] = (stamp, hashlib.sha256(content).hexdigest(), _look(content.decode(errors="replace")))
        return known[1], known[2]
    except OSError as error:
        return f"unreadable: {error.errno}", _Text((), True, False, False)


def _wheel_folders(major: int) -> tuple[str, ...]:
    """Folders with the headers of NVIDIA's wheels for a major version."""
    return tuple(
        folder
        for base in dict.fromkeys(sys.path)
        for name in _WHEEL_FOLDERS.get(major, ())
        if os.path.isdir(folder := os.path.join(base, "nvidia", *name.split("/")))
    )


@cache
def _installed_folders(major: int) -> tuple[str, ...]:
    """Those of a toolkit of that major version installed otherwise, such as by conda or in /usr/local."""
    try:
        from cuda.pathfinder import find_nvidia_header_directory
    except ImportError:
        return ()
    folders = []
    for library in ("cudart", "cccl"):
        try:
            folder = find_nvidia_header_directory(library)
        except Exception:  # a library that this version of cuda-pathfinder does not know
            folder = None
        if folder and os.path.isdir(folder):
            folders.append(folder)
    # A toolkit's own include folder says which version it is; other headers are taken with it alone.
    return tuple(dict.fromkeys(folders)) if folders and toolkit_version(folders[0])[:1] == (major,) else ()


def toolkit_version(folder: str) -> tuple[int, ...]:
    """Major and minor version that the headers in a folder say they are of; empty where they do not say."""
    try:
        with open(os.path.join(folder, "cuda_runtime_api.h"), errors="replace") as file:
            found = re.search(r"#define CUDART_VERSION\s+(\d+)", file.read())
    except OSError:
        return ()
    return (int(found[1]) // 1000, int(found[1]) % 1000 // 10) if found else ()


def needed_folders(missing: Iterable[str], major: int) -> tuple[str, ...]:
    """Folders of the toolkit that has one of the headers found nowhere else: of wheels, or else an installed one.

    The two are not mixed: a header of one version may not fit another's. Wheels without all of the toolkit's headers
    that are asked for, or without what these include, come after an installed toolkit that has them.
    """
    names = [name for name in missing if name != HEADER_NAME]
    below = [needed for beginning, needed in _NEEDS if any(name.startswith(beginning) for name in names)]
    wanted = [name for name in (*names, *below) if package_of(name, major)]
    some: tuple[str, ...] = ()
    for find in (_wheel_folders, _installed_folders) if names else ():  # the second takes a tenth of a second
        folders = find(major)
        if _have(folders, names):
            if all(_have(folders, [name]) for name in wanted):
                return folders
            some = some or folders
    return some


def _have(folders: Iterable[str], names: Sequence[str]) -> bool:
    """Whether one of some headers is in one of some folders."""
    return any(os.path.isfile(os.path.join(folder, name)) for folder in folders for name in names)


def stamp(folders: Iterable[str]) -> list[tuple[str, int, int]]:
    """What changes when the toolkit in some folders is exchanged: installing a wheel writes its files anew."""
    found = []
    for folder in folders:
        for name in ("", "cuda_runtime_api.h", "cuda_fp16.h", "cuda/std/__cccl/version.h", "cuda/version", "nv/target"):
            try:
                status = os.stat(os.path.join(folder, name))
            except OSError:
                continue
            found.append((os.path.join(folder, name), status.st_mtime_ns, status.st_size))
    return found


def package_of(name: str, major: int) -> str:
    """The package on PyPI that has one of the toolkit's headers for a major version of CUDA, or an empty text."""
    for beginning, package in _PACKAGES:
        if re.match(beginning, name):
            renamed = _RENAMED.get((package, major))
            return renamed or (f"{package}-cu{major}" if major < 13 else package)
    return ""


def requirement_of(name: str, major: int) -> str:
    """What to hand pip for one of the toolkit's headers: the package, bound where its name does not say the version."""
    package = package_of(name, major)
    bound = package.startswith("nvidia-cuda-") and not package.endswith(f"-cu{major}")
    return f"'{package}=={major}.*'" if bound else package
