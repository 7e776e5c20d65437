"""The cache of compiled kernels: what is found again, what is not trusted, and what it costs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import cupytma as tma
from cupytma.errors import CacheWarning, KernelWarning
from cupytma.runtime import cache, nvrtc
from cupytma.runtime.compilation import Compiled
from cupytma.runtime.compiler import forget_modules

pytest.importorskip("cuda.bindings.nvrtc", reason="needs cuda-python and NVRTC")

SOURCE = 'extern "C" __global__ void k(int* p) { p[0] = 1; }'
ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache of the test's own, and a process that remembers nothing."""
    place = tmp_path / "cache"
    monkeypatch.setenv("CUPYTMA_CACHE_DIR", str(place))
    monkeypatch.delenv("CUPYTMA_CACHE_SIZE", raising=False)
    forget_modules()
    cache._warn.cache_clear()
    yield place
    forget_modules()


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the compiler itself is asked to compile from now on."""
    seen: list[str] = []
    original = nvrtc.Nvrtc.compile

    def recorded(self: nvrtc.Nvrtc, request: Any, folders: Any = ()) -> Compiled:
        seen.append(request.source)
        return original(self, request, folders)

    monkeypatch.setattr(nvrtc.Nvrtc, "compile", recorded)
    return seen


def entries(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.kernel"))


def anew(*arguments: Any, **keywords: Any) -> tma.runtime.Module:
    """Compile as another process would."""
    forget_modules()
    return tma.compile(*arguments, **keywords)


def test_the_same_call_gives_the_same_module(compilations: list[str]) -> None:
    first = tma.compile(SOURCE, "sm_90a")
    assert tma.compile(SOURCE, tma.TARGETS["sm_90a"], options=[], defines={}, headers={}) is first
    assert compilations == [SOURCE]


def test_an_entry_holds_everything(folder: Path, compilations: list[str]) -> None:
    source = "#include <cupytma.cuh>\ntemplate <class T> __global__ void t(T* p, CUtensorMap m)" \
        " { cupytma::prefetch_tensormap(&m); int unused; p[0] = 1; }"
    with pytest.warns(KernelWarning):
        first = anew(source, "sm_90a", name_expressions=["t<int>"])
    with pytest.warns(KernelWarning):
        again = anew(source, "sm_90a", name_expressions=["t<int>"])
    assert len(compilations) == len(entries(folder)) == 1
    assert again is not first
    for attribute in ("cubin", "ptx", "log", "warnings", "lowered_names", "resources", "signatures", "source"):
        assert getattr(again, attribute) == getattr(first, attribute), attribute
    assert first.log
    assert first.warnings
    assert again.kernel("t<int>").name == first.kernel("t<int>").name


@pytest.mark.parametrize(
    "other",
    [
        {"source": SOURCE + " "}, {"target": "sm_90"}, {"options": ["-lineinfo"]}, {"defines": {"A": None}},
        {"defines": {"A": 1}}, {"headers": {"a.cuh": ""}}, {"headers": {"a.cuh": " "}},
        {"includes": [str(ROOT)]}, {"name_expressions": ["k"]},
    ],
)
def test_whatever_decides_the_outcome_is_in_the_key(
    folder: Path, compilations: list[str], other: dict[str, Any]
) -> None:
    anew(SOURCE, "sm_90a")
    for _ in range(2):
        anew(**{"source": SOURCE, "target": "sm_90a", **other})
    assert len(compilations) == len(entries(folder)) == 2


def test_a_header_that_changes_is_compiled_anew(tmp_path: Path, compilations: list[str]) -> None:
    inner = tmp_path / "inner.cuh"
    (tmp_path / "outer.cuh").write_text('#include "inner.cuh"\n')
    source = '#include <outer.cuh>\nextern "C" __global__ void k(int* p) { p[0] = VALUE; }'
    seen = []
    for value in (111, 222, 111):
        inner.write_text(f"#define VALUE {value}\n")
        os.utime(inner, ns=(value, value))
        seen.append(anew(source, "sm_90a", includes=[tmp_path]).ptx)
    assert "111" in seen[0]
    assert "222" in seen[1]
    assert seen[2] == seen[0]
    assert len(compilations) == 2


def test_a_header_that_appears_in_front_of_another_is_seen(tmp_path: Path, compilations: list[str]) -> None:
    for name, value in (("first", 0), ("second", 5)):
        (tmp_path / name).mkdir()
        if value:
            (tmp_path / name / "value.cuh").write_text(f"#define VALUE {value}\n")
    folders = [tmp_path / "first", tmp_path / "second"]
    source = '#include <value.cuh>\nextern "C" __global__ void k(int* p) { p[0] = VALUE; }'
    before = anew(source, "sm_90a", includes=folders).ptx
    (tmp_path / "first" / "value.cuh").write_text("#define VALUE 77\n")
    after = anew(source, "sm_90a", includes=folders).ptx
    assert "77" not in before
    assert "77" in after


def test_a_quoted_header_in_the_current_folder_is_watched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compilations: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for value in (33, 44):
        (tmp_path / "here.cuh").write_text(f"#define VALUE {value} // {'x' * value}\n")
        source = '#include "here.cuh"\nextern "C" __global__ void k(int* p) { p[0] = VALUE; }'
        assert str(value) in anew(source, "sm_90a").ptx


def test_a_header_that_a_header_names_by_a_macro_is_watched(tmp_path: Path, compilations: list[str]) -> None:
    include = tmp_path / "include"
    (include / "deep").mkdir(parents=True)
    (include / "outer.cuh").write_text("#define NAME <deep/value.cuh>\n#include NAME\n")
    source = '#include <outer.cuh>\nextern "C" __global__ void k(int* p) { p[0] = VALUE; }'
    for value in (111, 2222):
        (include / "deep" / "value.cuh").write_text(f"#define VALUE {value}\n")
        for _ in range(2):
            assert str(value) in anew(source, "sm_90a", includes=[include]).ptx
    assert len(compilations) == 2


def test_what_cannot_be_known_is_not_kept(tmp_path: Path, folder: Path, compilations: list[str]) -> None:
    (tmp_path / "a.cuh").write_text("")
    for source in (
        f"#define A <a.cuh>\n#include A\n{SOURCE}",
        f"static const char* when = __TIME__;\n{SOURCE}".replace("static", "__device__"),
    ):
        anew(source, "sm_90a", includes=[tmp_path])
    assert entries(folder) == []
    assert len(compilations) == 2


def test_another_compiler_or_package_finds_nothing(
    compilations: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    anew(SOURCE, "sm_90a")
    with monkeypatch.context() as patch:
        patch.setattr(cache, "known_compiler", lambda: "99.9 another")
        patch.setattr(nvrtc, "identity", lambda: "99.9 another")
        anew(SOURCE, "sm_90a")
    with monkeypatch.context() as patch:
        patch.setattr(cache, "_package", lambda: "another")
        anew(SOURCE, "sm_90a")
    with monkeypatch.context() as patch:
        patch.setenv("NVRTC_APPEND_FLAGS", "-G")
        anew(SOURCE, "sm_90a")
    assert len(compilations) == 4


def test_a_changed_library_file_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    anew(SOURCE, "sm_90a")
    known = cache.known_compiler()
    assert known == nvrtc.identity()
    assert known.startswith(".".join(map(str, tma.runtime.nvrtc_version())))
    with monkeypatch.context() as patch:
        patch.setattr(nvrtc, "file_stamp", lambda path: [1, 2])
        assert cache.known_compiler() == ""
    with monkeypatch.context() as patch:
        patch.setattr(nvrtc, "environment", lambda: ["another"])
        assert cache.known_compiler() == ""
    assert cache.known_compiler() == known


def test_what_is_noted_of_compilers_may_be_nonsense(folder: Path) -> None:
    anew(SOURCE, "sm_90a")
    key = cache._environment_key()
    for text in ("", "{", "[]", "3", json.dumps({key: 5}), json.dumps({key: {}})):
        (folder / "nvrtc.json").write_text(text)
        assert cache.known_compiler() == ""
        assert anew(SOURCE, "sm_90a").kernels == ("k",)


def _flip(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 0x40]) + data[at + 1 :]


@pytest.mark.parametrize(
    "damage",
    [
        lambda d: b"", lambda d: d[:10], lambda d: d[:-1], lambda d: d + b"x", lambda d: d[: len(d) // 2],
        lambda d: _flip(d, 3), lambda d: _flip(d, 20), lambda d: _flip(d, 60), lambda d: _flip(d, len(d) // 2),
        lambda d: _flip(d, len(d) - 1), lambda d: bytes(len(d)), lambda d: d[:40] * 100,
    ],
)
def test_a_damaged_entry_is_rebuilt(
    folder: Path, compilations: list[str], damage: Callable[[bytes], bytes]
) -> None:
    first = anew(SOURCE, "sm_90a")
    (entry,) = entries(folder)
    whole = entry.read_bytes()
    entry.write_bytes(damage(whole))
    assert anew(SOURCE, "sm_90a").cubin == first.cubin
    assert len(compilations) == 2
    assert entry.read_bytes()[:4] == whole[:4]
    anew(SOURCE, "sm_90a")
    assert len(compilations) == 2


def test_an_entry_under_anothers_name_is_not_taken_for_it(folder: Path, compilations: list[str]) -> None:
    anew(SOURCE, "sm_90a")
    (entry,) = entries(folder)
    other = anew(SOURCE.replace("1", "2"), "sm_90a")
    (second,) = set(entries(folder)) - {entry}
    second.write_bytes(entry.read_bytes())
    assert anew(SOURCE.replace("1", "2"), "sm_90a").cubin == other.cubin
    assert len(compilations) == 3


def test_an_entry_that_is_a_folder_does_no_harm(folder: Path) -> None:
    first = anew(SOURCE, "sm_90a")
    (entry,) = entries(folder)
    entry.unlink()
    entry.mkdir()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CacheWarning)
        assert anew(SOURCE, "sm_90a").cubin == first.cubin


def test_what_a_crash_left_is_removed_once_it_is_old(folder: Path) -> None:
    folder.mkdir()
    old, new, foreign = folder / "a.kernel.1-1.partial", folder / "b.kernel.2-2.partial", folder / "notes.txt"
    for path in (old, new, foreign):
        path.write_bytes(b"half")
    os.utime(old, (time.time() - 7200, time.time() - 7200))
    anew(SOURCE, "sm_90a")
    assert not old.exists()
    assert new.exists()
    assert foreign.exists()


def test_a_write_that_fails_leaves_nothing_behind(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache.os, "replace", full)
    with pytest.warns(CacheWarning, match="No space left"):
        anew(SOURCE, "sm_90a")
    assert list(folder.iterdir()) == []


def test_the_least_recently_used_go_first(
    folder: Path, monkeypatch: pytest.MonkeyPatch, compilations: list[str]
) -> None:
    sources = [SOURCE.replace("= 1", f"= {n}") for n in range(6)]
    for age, source in enumerate(sources[:5]):
        before = set(entries(folder))
        anew(source, "sm_90a")
        (entry,) = set(entries(folder)) - before
        used = time.time() - 86400 + age
        os.utime(entry, (used, used))
    one = entry.stat().st_size
    anew(sources[0], "sm_90a")  # the oldest is used again
    monkeypatch.setenv("CUPYTMA_CACHE_SIZE", str(4 * one + one // 2))
    anew(sources[5], "sm_90a")
    assert sum(entry.stat().st_size for entry in entries(folder)) <= 4.5 * one
    count = len(compilations)
    anew(sources[0], "sm_90a")
    anew(sources[5], "sm_90a")
    assert len(compilations) == count
    anew(sources[1], "sm_90a")
    assert len(compilations) == count + 1


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("", 1 << 30), ("0", 0), ("1000", 1000), ("500M", 500 << 20), ("2GiB", 2 << 30), ("1.5 gb", 3 << 29),
        ("64KB", 1 << 16),
    ],
)
def test_sizes_are_read_as_people_write_them(monkeypatch: pytest.MonkeyPatch, text: str, size: int) -> None:
    monkeypatch.setenv("CUPYTMA_CACHE_SIZE", text)
    assert cache.limit() == size


@pytest.mark.parametrize("text", ["much", "-5", "1X", "1 2", "nan", "1e9", "٣", "9" * 400])
def test_a_size_that_is_none_is_warned_about_once(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("CUPYTMA_CACHE_SIZE", text)
    with pytest.warns(CacheWarning, match="no size such as"):
        assert cache.limit() == 1 << 30
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert cache.limit() == 1 << 30


@pytest.mark.parametrize(
    ("name", "value"), [("CUPYTMA_CACHE_DIR", ""), ("CUPYTMA_CACHE_DIR", " "), ("CUPYTMA_CACHE_SIZE", "0")]
)
def test_the_cache_can_be_turned_off(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compilations: list[str], name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        anew(SOURCE, "sm_90a")
    assert len(compilations) == 2
    assert list(tmp_path.iterdir()) == []
    assert cache.info().why_off


def test_a_folder_that_cannot_be_written_is_warned_about_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("CUPYTMA_CACHE_DIR", str(tmp_path / "file" / "sub"))
    with pytest.warns(CacheWarning, match="CUPYTMA_CACHE_DIR names another folder") as caught:
        assert anew(SOURCE, "sm_90a").kernels == ("k",)
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert anew(SOURCE + " ", "sm_90a").kernels == ("k",)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere platformdirs is asked")
@pytest.mark.parametrize("base", [None, "/elsewhere/cache", "", " "])
def test_the_folder_is_where_platformdirs_has_it(monkeypatch: pytest.MonkeyPatch, base: str | None) -> None:
    platformdirs = pytest.importorskip("platformdirs")
    monkeypatch.delenv("CUPYTMA_CACHE_DIR")
    if base is None:
        monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    else:
        monkeypatch.setenv("XDG_CACHE_HOME", base)
    assert cache.folder() == os.path.join(platformdirs.user_cache_dir("cupytma", appauthor=False), "compiled")


def test_threads_may_compile_at_once(folder: Path) -> None:
    sources = [SOURCE.replace("= 1", f"= {n % 3}") for n in range(24)]
    with ThreadPoolExecutor(8) as pool:
        modules = list(pool.map(lambda source: tma.compile(source, "sm_90a"), sources))
    assert len({module.cubin for module in modules}) == 3
    assert len(entries(folder)) == 3


_PROCESS = """
import hashlib, json, sys, time
sys.path.insert(0, {root!r})
import cupytma as tma
compile = tma.compile
sources = {sources!r}
start = time.process_time()
modules = [compile(source, "sm_90a") for source in sources]
seconds = time.process_time() - start
print(json.dumps([[hashlib.sha256(m.cubin).hexdigest() for m in modules], seconds, "cuda.bindings" in sys.modules]))
"""


def _start(sources: list[str]) -> subprocess.Popen[str]:
    code = _PROCESS.format(root=str(ROOT), sources=sources)
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)


def _finish(process: subprocess.Popen[str]) -> list[Any]:
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    return list(json.loads(output))


def test_many_processes_may_compile_at_once(folder: Path) -> None:
    sources = [SOURCE.replace("= 1", f"= {n}") for n in range(8)]
    results = [_finish(process) for process in [_start(sources) for _ in range(4)]]
    assert len({tuple(hashes) for hashes, *_ in results}) == 1
    assert len(entries(folder)) == len(sources)
    assert list(folder.glob("*.partial")) == []
    for path in entries(folder):
        assert cache.read(path.stem) is not None


def test_a_process_killed_while_it_writes_leaves_no_wrong_entry(folder: Path) -> None:
    sources = [SOURCE.replace("= 1", f"= {n}") for n in range(200)]
    process = _start(sources)
    deadline = time.monotonic() + 60
    while len(entries(folder)) < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    process.kill()
    process.communicate()
    kept = entries(folder)
    assert 3 <= len(kept) < len(sources)
    for path in kept:
        assert cache.read(path.stem) is not None


def test_a_hit_in_a_new_process_takes_less_than_5_ms_and_loads_no_compiler() -> None:
    source = f"#include <cupytma.cuh>\n{SOURCE}"
    (first,), _, loaded = _finish(_start([source]))
    assert loaded
    hits = [_finish(_start([source])) for _ in range(5)]
    assert all(hashes == [first] for hashes, *_ in hits)
    assert not any(loaded for *_, loaded in hits)
    assert min(seconds for _, seconds, _ in hits) < 0.005


def test_info_and_clear_leave_what_is_not_theirs(folder: Path) -> None:
    anew(SOURCE, "sm_90a")
    anew(SOURCE, "sm_90")
    (folder / "notes.txt").write_text("mine")
    found = cache.info()
    assert (found.folder, found.entries, found.limit, found.why_off) == (str(folder), 2, 1 << 30, "")
    assert found.size == sum(entry.stat().st_size for entry in entries(folder))
    assert cache.clear().entries == 2
    assert [path.name for path in folder.iterdir()] == ["notes.txt"]
    assert cache.info().entries == 0


def test_the_command_shows_and_clears(folder: Path) -> None:
    from click.testing import CliRunner

    from cupytma.cli.application import cli

    def run(*arguments: str) -> str:
        result = CliRunner(env={"COLUMNS": "80"}).invoke(cli, ["cache", *arguments])
        assert result.exit_code == 0, result.output
        return result.output

    anew(SOURCE, "sm_90a")
    shown = run("info")
    assert max(map(len, shown.splitlines())) <= 80
    assert re.search(r"entries\s+1\n", shown)
    assert "1 GiB" in shown
    assert json.loads(run("info", "--json"))["entries"] == 1
    assert run("clear").startswith("removed 1 entry")
    assert json.loads(run("clear", "--json"))["removed"] == 0


def test_the_command_says_when_there_is_no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    from click.testing import CliRunner

    from cupytma.cli.application import cli

    monkeypatch.setenv("CUPYTMA_CACHE_DIR", "")
    assert "CUPYTMA_CACHE_DIR is empty" in CliRunner().invoke(cli, ["cache", "info"]).output
    assert "there is no cache" in CliRunner().invoke(cli, ["cache", "clear"]).output


@pytest.mark.skipif(sys.platform != "linux", reason="the file is looked up as Linux has it")
def test_the_library_is_known_without_pathfinder(monkeypatch: pytest.MonkeyPatch) -> None:
    library = nvrtc.Nvrtc.load()
    found = library.path
    monkeypatch.setitem(sys.modules, "cuda.pathfinder", None)
    assert os.path.samefile(library.path, found)


def test_a_library_whose_file_is_unknown_is_trusted_in_its_own_process_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(nvrtc, "file_stamp", lambda path: [])
        seen = nvrtc.identity.__wrapped__()
        again = nvrtc.identity.__wrapped__()
    assert seen != again
    assert seen != nvrtc.identity()
