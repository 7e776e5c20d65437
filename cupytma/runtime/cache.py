"""Compiled kernels on disk: found again by everything that decides what they are.

An entry is one file: a first line, the hash of the rest, and the rest. It is written under another name in the same
folder and renamed, so that a reader sees all of it or nothing; what does not match its hash is taken for absent.
Notes of what was measured on this machine lie beside them.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from cupytma.errors import CacheWarning
from cupytma.runtime import headers, nvrtc
from cupytma.runtime.compilation import Compiled, Request
from cupytma.version import __version__

_FORMAT = "cupytma 1"
_MAGIC = f"{_FORMAT}\n".encode()
_HASH_BYTES = 32
_SUFFIX, _NOTE, _PARTIAL = ".kernel", ".note", ".partial"
_MOST_NOTE_BYTES = 1 << 16
_KNOWN_NVRTC = "nvrtc.json"
_MOST_KNOWN = 16
_DEFAULT_BYTES = 1 << 30
_UNITS = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_SIZE = re.compile(r"(\d{1,18}(?:\.\d{1,9})?)\s*([kmgt]?)i?b?", re.IGNORECASE | re.ASCII)
_KEPT = 0.9  # of the limit, after entries were removed
_STALE_SECONDS = 3600  # a partial file older than this was left by a crash
_TOUCH_SECONDS = 3600  # how exactly the last use of an entry is known
# Options that write files of their own or depend on state that is not in the request.
_UNCACHED = re.compile(r"--?(?:pch|create-pch|use-pch|pch-dir|time|fdevice-time-trace)\b")
# Options that put paths into the result.
_PLACED = re.compile(r"--?(?:lineinfo|generate-line-info|G|device-debug)\b")


@dataclass(frozen=True)
class CacheInfo:
    """The state of the cache.

    Attributes
    ----------
    folder : str
        Empty where the cache is off.
    entries : int
    size : int
        Bytes of all entries.
    limit : int
        Bytes that they may have.
    why_off : str
        Why there is no cache, or empty.
    """

    folder: str
    entries: int
    size: int
    limit: int
    why_off: str = ""


def folder() -> str:
    """The folder of the cache: ``CUPYTMA_CACHE_DIR``, or in the user's cache folder; empty where it is off."""
    named = os.environ.get("CUPYTMA_CACHE_DIR")
    if named is not None:
        path = os.path.join(headers.working_folder(), os.path.expanduser(named))
        return os.path.normpath(path) if named.strip() else ""
    return os.path.join(_user_cache(), "compiled")


def _user_cache() -> str:
    """platformdirs' folder. On Linux said here, since importing it takes longer than finding an entry."""
    if sys.platform == "linux":
        base = os.environ.get("XDG_CACHE_HOME", "").strip() or os.path.expanduser("~/.cache")
        return os.path.join(base, "cupytma")
    try:
        import platformdirs
    except ImportError:  # it comes with what compiles; without that there is nothing to keep
        return os.path.expanduser("~/.cupytma")
    return platformdirs.user_cache_dir("cupytma", appauthor=False)


def limit() -> int:
    """Bytes that all entries may have: ``CUPYTMA_CACHE_SIZE``, such as 500M, by default 1 GiB; 0 turns it off."""
    text = os.environ.get("CUPYTMA_CACHE_SIZE", "").strip()
    if not text:
        return _DEFAULT_BYTES
    found = _SIZE.fullmatch(text)
    if found is None:
        _warn(f"CUPYTMA_CACHE_SIZE={text[:40]!r} is no size such as 500M or 2GiB; the limit stays at 1 GiB")
        return _DEFAULT_BYTES
    return int(float(found[1]) * _UNITS[found[2].lower()])


def is_on() -> bool:
    """Whether compiled kernels are kept on disk."""
    return bool(folder()) and limit() > 0


@cache
def _warn(message: str) -> None:
    """Warn once a process."""
    warnings.warn(message, CacheWarning, stacklevel=4)


# Keys.


def request_key(request: Request, found: headers.Inclusions, folders: tuple[str, ...]) -> str:
    """What decides the outcome but the compiler: two requests with the same key give the same."""
    placed = [headers.working_folder()] if any(map(_PLACED.match, request.options)) else []
    environment = sorted((n, v) for n, v in os.environ.items() if n.startswith("NVRTC_"))
    parts = (
        request.source, str(request.target), request.options, request.defines, request.headers, request.includes,
        request.names, sorted(found.files.items()), found.trees, headers.stamp(folders), environment, placed,
    )
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def entry_key(key: str, compiler: str) -> str:
    """The name of an entry: what was asked, of which compiler, by which version of this package."""
    return hashlib.sha256(repr((_FORMAT, key, compiler, _package())).encode()).hexdigest()


def may_keep(request: Request, found: headers.Inclusions) -> bool:
    """Whether everything that decides the outcome is known, so that an entry can be trusted."""
    return not (found.macros or found.changing or any(map(_UNCACHED.match, request.options)))


@cache
def _package() -> str:
    """This package's version with the hash of the code that makes the header and judges what was compiled."""
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    digest = hashlib.sha256(__version__.encode())
    for part in ("ptx", "runtime", ""):
        base = os.path.join(here, part)
        names = sorted(name for name in os.listdir(base) if name.endswith(".py")) if part else ["targets.py"]
        for name in names:
            with open(os.path.join(base, name), "rb") as file:
                digest.update(file.read())
    return digest.hexdigest()


# Which NVRTC there is, without loading it.


def known_compiler() -> str:
    """The identity of the NVRTC in this environment, as an earlier process noted it; empty where none did.

    It is noted with all that would change if another were found (`nvrtc.environment`), and with the size and the time
    of change of the library's file.
    """
    noted = _noted().get(_environment_key())
    if isinstance(noted, dict) and noted.get("stamp") and noted["stamp"] == nvrtc.file_stamp(str(noted.get("path"))):
        return str(noted.get("identity", ""))
    return ""


def note_compiler() -> None:
    """Note which NVRTC this process has loaded, for `known_compiler`."""
    path = nvrtc.Nvrtc.load().path
    noted = {"path": path, "stamp": nvrtc.file_stamp(path), "identity": nvrtc.identity()}
    known = _noted()
    if not noted["stamp"] or known.get(_environment_key()) == noted:
        return
    known.pop(_environment_key(), None)
    kept = dict(list(known.items())[-_MOST_KNOWN + 1 :])
    _write(_KNOWN_NVRTC, json.dumps({**kept, _environment_key(): noted}).encode())


def _environment_key() -> str:
    return hashlib.sha256(repr(nvrtc.environment()).encode()).hexdigest()


def _noted() -> dict[str, Any]:
    try:
        with open(os.path.join(folder(), _KNOWN_NVRTC), "rb") as file:
            known = json.loads(file.read())
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}


# Entries.


def read(name: str) -> Compiled | None:
    """An entry, or None where there is none that can be trusted."""
    path = os.path.join(folder(), name + _SUFFIX)
    try:
        with open(path, "rb") as file:
            content = file.read()
            changed = os.fstat(file.fileno()).st_mtime
    except OSError:
        return None
    found = _unpacked(name, content)
    if found is None:
        with contextlib.suppress(OSError):
            os.unlink(path)
    else:
        _touch(path, changed)
    return found


def _touch(path: str, changed: float) -> None:
    """Note the use of a file that was changed at some time: the time of change is that of last use."""
    if time.time() - changed > _TOUCH_SECONDS:
        with contextlib.suppress(OSError):
            os.utime(path)


def write(name: str, compiled: Compiled) -> None:
    """Keep an entry, and remove those that were not used for longest where there is no more room."""
    content = _packed(name, compiled)
    if len(content) <= limit() and _write(name + _SUFFIX, content):
        trim()


def read_note(name: str) -> bytes:
    """A note as it was written; empty where there is none. Who reads it must bear that it is damaged."""
    if not is_on():
        return b""
    path = os.path.join(folder(), name + _NOTE)
    try:
        with open(path, "rb") as file:
            content = file.read(_MOST_NOTE_BYTES)
            changed = os.fstat(file.fileno()).st_mtime
    except OSError:
        return b""
    _touch(path, changed)
    return content


def write_note(name: str, content: bytes) -> bool:
    """Keep a few bytes, and say whether that was possible."""
    return is_on() and len(content) <= min(limit(), _MOST_NOTE_BYTES) and _write(name + _NOTE, content)


def _checksum(name: str, rest: bytes) -> bytes:
    """Of an entry with its name, so that a file under another's name is not taken for it."""
    return hashlib.sha256(name.encode() + rest).digest()


def _packed(name: str, compiled: Compiled) -> bytes:
    ptx = compiled.ptx.encode()
    facts = json.dumps(
        [len(ptx), len(compiled.cubin), compiled.log, compiled.lowered, compiled.spills, compiled.warnings]
    ).encode()
    rest = b"%d\n" % len(facts) + facts + ptx + compiled.cubin
    return _MAGIC + _checksum(name, rest) + rest


def _unpacked(name: str, content: bytes) -> Compiled | None:
    start = len(_MAGIC) + _HASH_BYTES
    rest = content[start:]
    if not content.startswith(_MAGIC) or _checksum(name, rest) != content[len(_MAGIC) : start]:
        return None
    size, _, body = rest.partition(b"\n")
    at = int(size)
    ptx_size, _, log, lowered, spills, warned = json.loads(body[:at])
    return Compiled(
        body[at + ptx_size :], body[at : at + ptx_size].decode(), log, lowered,
        {function: (stored, loaded) for function, (stored, loaded) in spills.items()}, tuple(warned),
    )


def _write(name: str, content: bytes) -> bool:
    """Put a file into the folder, whole or not at all; without a folder to write to, warn once."""
    into = folder()
    partial = os.path.join(into, f"{name}.{os.getpid()}-{time.monotonic_ns()}{_PARTIAL}")
    try:
        os.makedirs(into, mode=0o700, exist_ok=True)
        with open(partial, "wb") as file:
            file.write(content)
        os.replace(partial, os.path.join(into, name))
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(partial)
        _warn(
            f"compiled kernels cannot be kept in {into} ({error.strerror or error}); everything works, but each "
            "process compiles anew. CUPYTMA_CACHE_DIR names another folder, and empty turns the cache off"
        )
        return False
    return True


def _files() -> Iterator[os.DirEntry[str]]:
    """The cache's own files; the folder may hold others, which are none of ours."""
    try:
        with os.scandir(folder() or os.devnull) as entries:
            own = (entry for entry in entries if entry.name.endswith((_SUFFIX, _NOTE, _PARTIAL)))
            yield from (entry for entry in own if entry.is_file(follow_symlinks=False))
    except OSError:
        return


def _entries() -> list[tuple[float, int, str]]:
    """Time of last use, size and path of each file; one that another process removes meanwhile is left out."""
    found = []
    for entry in _files():
        with contextlib.suppress(OSError):
            status = entry.stat(follow_symlinks=False)
            found.append((status.st_mtime, status.st_size, entry.path))
    return found


def trim() -> None:
    """Remove what a crash left, and the entries that were not used for longest while all take more than the limit."""
    found = _entries()
    old = time.time() - _STALE_SECONDS
    stale = [path for changed, _, path in found if path.endswith(_PARTIAL) and changed < old]
    total, most = sum(size for _, size, _ in found), limit()
    doomed = list(stale)
    if total > most:
        for _, size, path in sorted(found):
            if total <= most * _KEPT:
                break
            if not path.endswith(_PARTIAL):
                doomed.append(path)
                total -= size
    for path in doomed:
        with contextlib.suppress(OSError):
            os.unlink(path)


def info() -> CacheInfo:
    """What the cache holds."""
    most = limit()
    if not folder():
        return CacheInfo("", 0, 0, most, "CUPYTMA_CACHE_DIR is empty")
    found = [(size, path) for _, size, path in _entries() if path.endswith((_SUFFIX, _NOTE))]
    off = "" if most else "CUPYTMA_CACHE_SIZE is 0"
    return CacheInfo(folder(), len(found), sum(size for size, _ in found), most, off)


def clear() -> CacheInfo:
    """Remove all entries, and say what there was."""
    before = info()
    for _, _, path in _entries():
        with contextlib.suppress(OSError):
            os.unlink(path)
    with contextlib.suppress(OSError):
        if folder():
            os.unlink(os.path.join(folder(), _KNOWN_NVRTC))
    return before
