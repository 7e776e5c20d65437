"""Headers: ours, those given, those in folders, and the toolkit's where their wheel is installed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import cupytma as tma
from cupytma.errors import CompileError
from cupytma.runtime import headers
from cupytma.runtime.compilation import Request
from cupytma.targets import TARGETS

pytest.importorskip("cuda.bindings.nvrtc", reason="needs cuda-python and NVRTC")

TARGET = TARGETS["sm_90a"]


def _found(source: str, **arguments: tuple[object, ...]) -> headers.Inclusions:
    return headers.inclusions(Request(source, TARGET, **arguments))  # type: ignore[arg-type]


def test_includes_are_followed_through_headers_and_folders(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "one.cuh").write_text('#include "sub/two.cuh"\n')
    (tmp_path / "sub" / "two.cuh").write_text('#include "three.cuh"\n#include <absent.cuh>\n')
    (tmp_path / "sub" / "three.cuh").write_text('#include "../one.cuh"\n// #include <comment.cuh>\n')
    found = _found("#include <given.cuh>\n", headers=(("given.cuh", "#include <one.cuh>"),), includes=(str(tmp_path),))
    assert {os.path.basename(path) for path in found.files} == {"one.cuh", "two.cuh", "three.cuh"}
    assert found.missing == {"absent.cuh"}
    assert not found.macros


def test_headers_that_include_one_another_by_detours_are_read_once(tmp_path: Path) -> None:
    for number in range(2):
        folder = tmp_path / f"folder{number}"
        folder.mkdir()
        (folder / f"h{number}.cuh").write_text(f'#include "../folder{1 - number}/h{1 - number}.cuh"\n')
    found = _found("#include <folder0/h0.cuh>\n", includes=(str(tmp_path),))
    assert len(found.files) == 2
    assert not found.missing


@pytest.mark.parametrize(
    "text",
    ["#include <a.cuh>", '#include "a.cuh"', "  #  include\t<a.cuh>", "#if __has_include(<a.cuh>)\n#endif",
     "/* x */ #include /* y */ <a.cuh>", "#include_next <a.cuh>"],
)
def test_every_spelling_of_an_include_is_seen(text: str) -> None:
    assert _found(text).missing == {"a.cuh"}


def test_an_include_by_macro_is_noticed() -> None:
    assert _found("#define NAME <a.cuh>\n#include NAME\n").macros
    assert _found('static const char* when = __DATE__ " " __TIME__;').changing
    assert _found("// wgmma").wgmma


@pytest.mark.parametrize(
    "options", [("-I{}",), ("-I", "{}"), ("--include-path={}",), ("--include-path", "{}"), ("-I={}",)]
)
def test_folders_named_by_options_are_searched_too(tmp_path: Path, options: tuple[str, ...]) -> None:
    (tmp_path / "a.cuh").write_text("")
    found = _found("#include <a.cuh>", options=tuple(option.format(tmp_path) for option in options))
    assert list(found.files) == [str(tmp_path / "a.cuh")]


def test_a_header_of_ones_own_named_like_ours_is_used_instead(tmp_path: Path) -> None:
    source = '#include <cupytma.cuh>\nstatic_assert(MINE == 1, "mine");'
    tma.compile(source, "sm_90a", headers={"cupytma.cuh": "#define MINE 1"})
    (tmp_path / "cupytma.cuh").write_text("#define MINE 1")
    tma.compile(source, "sm_90a", includes=[tmp_path])


def test_our_header_is_there_for_headers_in_folders_too(tmp_path: Path) -> None:
    (tmp_path / "tile.cuh").write_text("#pragma once\n#include <cupytma.cuh>\nusing Map = CUtensorMap;\n")
    module = tma.compile(
        '#include <tile.cuh>\nextern "C" __global__ void k(const __grid_constant__ Map m)'
        "{ cupytma::prefetch_tensormap(&m); }",
        "sm_90a", includes=[tmp_path],
    )
    assert "prefetch.tensormap" in module.ptx


def test_wheels_of_the_right_major_version_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("nvidia/cuda_runtime/include", "nvidia/cu13/include"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "cuda_fp16.h").write_text("")
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    monkeypatch.setattr(headers, "_installed_folders", lambda major: ())
    (old,) = headers.needed_folders({"cuda_fp16.h"}, 12)
    (new,) = headers.needed_folders({"cuda_fp16.h"}, 13)
    assert (old.split("nvidia")[1], new.split("nvidia")[1]) == (
        os.path.join(os.sep, "cuda_runtime", "include"), os.path.join(os.sep, "cu13", "include"),
    )
    assert headers.needed_folders({"cuda/ptx"}, 12) == ()
    assert headers.needed_folders({"cupytma.cuh"}, 12) == ()


@pytest.mark.parametrize("wheel_is_complete", [False, True])
@pytest.mark.parametrize("toolkit_is_complete", [False, True])
def test_wheels_that_lack_what_their_own_headers_include_come_after_a_toolkit_that_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wheel_is_complete: bool, toolkit_is_complete: bool
) -> None:
    wheel, toolkit = tmp_path / "nvidia/cu13/include", tmp_path / "toolkit"
    for folder, is_complete in ((wheel, wheel_is_complete), (toolkit, toolkit_is_complete)):
        (folder / "nv").mkdir(parents=True)
        for name in ("cooperative_groups.h", "cuda_fp16.h", *(["nv/target"] if is_complete else [])):
            (folder / name).write_text("")
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    monkeypatch.setattr(headers, "_installed_folders", lambda major: (str(toolkit),))
    other = toolkit_is_complete and not wheel_is_complete
    assert headers.needed_folders({"cooperative_groups.h"}, 13) == (str(toolkit if other else wheel),)
    assert headers.needed_folders({"cuda_fp16.h"}, 13) == (str(wheel),)


def test_a_toolkit_is_looked_for_only_where_wheels_do_not_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel, toolkit, asked = tmp_path / "nvidia/cu13/include", tmp_path / "toolkit", []
    for folder, names in ((wheel, ("cuda_fp16.h",)), (toolkit, ("cuda_fp16.h", "cuda/barrier", "mma.h", "crt/mma.h"))):
        for name in names:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text("")
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    monkeypatch.setattr(headers, "_installed_folders", lambda major: asked.append(major) or (str(toolkit),))
    assert headers.needed_folders({"cuda_fp16.h", "no_header_of_the_toolkit.h"}, 13) == (str(wheel),)
    assert not asked
    for names in ({"cuda_fp16.h", "cuda/barrier"}, {"mma.h"}, {"cuda_fp16.h", "mma.h"}):
        assert headers.needed_folders(names, 13) == (str(toolkit),)


def test_an_installed_toolkit_of_another_major_version_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cuda_runtime_api.h").write_text("#define CUDART_VERSION  13000\n")
    pathfinder = pytest.importorskip("cuda.pathfinder")
    monkeypatch.setattr(pathfinder, "find_nvidia_header_directory", lambda name: str(tmp_path))
    headers._installed_folders.cache_clear()
    try:
        assert headers.toolkit_version(str(tmp_path)) == (13, 0)
        assert headers._installed_folders(12) == ()
        assert headers._installed_folders(13) == (str(tmp_path),)
    finally:
        headers._installed_folders.cache_clear()


def _has(name: str) -> bool:
    try:
        return bool(headers.needed_folders({name}, tma.runtime.nvrtc_version()[0]))
    except CompileError:
        return False


TOOLKIT = {
    "cuda_fp16.h": "p[0] = __half2float(__float2half(p[1]));",
    "cuda_bf16.h": "p[0] = __bfloat162float(__float2bfloat16(p[1]));",
    "cuda_fp8.h": "p[0] = float(__nv_fp8_e4m3(p[1]));",
    "cooperative_groups.h": "cooperative_groups::this_thread_block().sync();",
    "cuda/std/cstdint": "cuda::std::uint32_t x = p[0]; p[1] = x;",
    "cuda/ptx": "cuda::ptx::cp_async_bulk_commit_group();",
    "cuda/barrier": "__shared__ cuda::barrier<cuda::thread_scope_block> b; init(&b, 1);",
}


@pytest.mark.parametrize("name", TOOLKIT)
def test_the_toolkits_headers_work_beside_ours(name: str) -> None:
    if not (_has(name) and _has("nv/target")):  # which some of them include, and which is in another package
        pytest.skip(f"needs {headers.requirement_of(name, tma.runtime.nvrtc_version()[0])}")
    source = (
        f"#include <cupytma.cuh>\n#include <{name}>\n"
        'extern "C" __global__ void k(const __grid_constant__ CUtensorMap map, float* p)'
        f"{{ cupytma::prefetch_tensormap(&map); {TOOLKIT[name]} }}"
    )
    module = tma.compile(source, "sm_90a")
    assert module.kernels == ("k",)
    assert module.warnings == ()


def test_the_names_of_cudas_own_header_and_ours_can_both_be_declared() -> None:
    tma.compile("typedef struct CUtensorMap_st CUtensorMap;\n#include <cupytma.cuh>\n", "sm_90a")
    tma.compile("#include <cupytma.cuh>\ntypedef struct CUtensorMap_st CUtensorMap;\n", "sm_90a")
    layout = 'static_assert(sizeof(CUtensorMap) == 128 && alignof(CUtensorMap) == 64, "");'
    tma.compile(f"#include <cupytma.cuh>\n{layout}", "sm_90a")
