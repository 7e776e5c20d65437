"""What is no source, option, define, header, folder or name is refused by name, before the compiler sees it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import cupytma as tma
from cupytma.errors import CompileError, CompileInputError, CupytmaError
from cupytma.runtime.compilation import checked_request
from cupytma.targets import TARGETS

SOURCE = 'extern "C" __global__ void k(int* p) { p[0] = 1; }'


class Hostile:
    """Raises whatever is asked of it."""

    def __str__(self) -> str:
        raise ZeroDivisionError

    __repr__ = __str__

    def __iter__(self) -> Any:
        raise ZeroDivisionError


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"source": None}, "source is None"),
        ({"source": SOURCE.encode()}, "decode it first"),
        ({"source": 5}, "text (str) is needed"),
        ({"source": Hostile()}, "source is <Hostile>"),
        ({"source": "int a;\0"}, "NUL character, which would end it, in line 1"),
        ({"source": "// \udc80"}, "UTF-8"),
        ({"options": 5}, "options is 5: a list of text is needed"),
        ({"options": [5]}, "options is 5"),
        ({"options": ["-G\0"]}, "NUL"),
        ({"options": [""]}, "an option is empty"),
        ({"options": ["-a\n-b"]}, "line break"),
        ({"options": Hostile()}, "a list of text is needed"),
        ({"options": ["-arch=sm_80"]}, "target='sm_90a'"),
        ({"options": ["--gpu-architecture=sm_80"]}, "would clash with the target"),
        ({"options": ["--gpu-architecture", "sm_80"]}, "would clash with the target"),
        ({"defines": ["A"]}, "a mapping is needed, such as {'TILE': 64}"),
        ({"defines": {5: 1}}, "defines is 5"),
        ({"defines": {"": 1}}, "no macro's name"),
        ({"defines": {"A B": 1}}, "no macro's name"),
        ({"defines": {"1A": 1}}, "no macro's name"),
        ({"defines": {"A": "1\n#define B"}}, "line break"),
        ({"defines": {"A": "1\0"}}, "NUL"),
        ({"defines": {"A": float("nan")}}, "no C++ literal"),
        ({"defines": {"A": Hostile()}}, "cannot be written as text"),
        ({"headers": ["a.h"]}, "a mapping is needed, such as {'tile.cuh'"),
        ({"headers": {"a.h": None}}, "headers['a.h'] is None"),
        ({"headers": {"a.h": b""}}, "decode it first"),
        ({"headers": {"a.h": "\0"}}, "NUL"),
        ({"headers": {"": ""}}, "a name is empty"),
        ({"headers": {"a\0.h": ""}}, "NUL"),
        ({"headers": {"a\n.h": ""}}, "line break"),
        ({"headers": {3: ""}}, "a name in headers is 3"),
        ({"includes": [3]}, "includes: 3 is no folder"),
        ({"includes": ["/no/such/folder"]}, "does not exist"),
        ({"includes": [__file__]}, "is a file, not a folder"),
        ({"includes": ["a\0b"]}, "NUL"),
    ],
)
def test_what_cannot_be_is_refused_by_name(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(CompileInputError, match=re.escape(message)) as caught:
        tma.compile(**{"source": SOURCE, "target": "sm_90a", **arguments})
    assert isinstance(caught.value, CompileError)
    assert isinstance(caught.value, ValueError)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("target", [5, b"sm_90a", "sm_90a\0", ["sm_90a"], float("nan"), "sm_90a " * 1000])
def test_a_target_that_is_none_is_refused(target: Any) -> None:
    with pytest.raises(CupytmaError, match="target"):
        tma.compile(SOURCE, target)


ANYTHING = st.one_of(
    st.none(), st.integers(), st.floats(), st.text(max_size=20), st.binary(max_size=8), st.lists(st.text(max_size=5)),
    st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3),
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.tuples(*[ANYTHING] * 6))
def test_anything_makes_a_request_or_a_clear_error(arguments: tuple[Any, ...]) -> None:
    source, *others = arguments
    try:
        request = checked_request(source, TARGETS["sm_90a"], *others)
    except CompileInputError:
        return
    for argument in request.arguments():
        assert "\0" not in argument
        assert "\n" not in argument


nvrtc = pytest.importorskip("cuda.bindings.nvrtc", reason="needs cuda-python and NVRTC")


def test_defines_arrive_as_they_are_written() -> None:
    source = """
    static_assert(SUM == 3 && FLAG == 1 && YES == 1 && NO == 0 && TWICE(4) == 8, "all");
    static_assert(sizeof(TEXT) == 6 && HALF < 1, "all");
    """
    defines = {
        "SUM": "1 + 2", "FLAG": None, "YES": True, "NO": False, "TWICE(x)": "2 * x", "TEXT": '"a b c"', "HALF": 0.5,
    }
    tma.compile(source, "sm_90a", defines=defines)


def test_headers_may_have_any_name() -> None:
    headers = {"../up.cuh": "#define UP 1", "/absolute/a b.cuh": "#define ABSOLUTE 2", "ünï.cuh": "#define UNI 3"}
    source = "".join(f"#include <{name}>\n" for name in headers) + 'static_assert(UP + ABSOLUTE + UNI == 6, "all");'
    tma.compile(source, "sm_90a", headers=headers)


def test_a_folder_may_have_blanks_and_be_a_path(tmp_path: Path) -> None:
    folder = tmp_path / "a folder, with = and ü"
    folder.mkdir()
    (folder / "here.cuh").write_text("#define HERE 1\n")
    tma.compile('#include <here.cuh>\nstatic_assert(HERE == 1, "here");', "sm_90a", includes=folder)


def test_another_standard_may_be_asked_for() -> None:
    source = 'static_assert(__cplusplus >= 202002L, "C++20");'
    assert tma.compile(source, "sm_90a", ["--std=c++20"]).log == ""
    with pytest.raises(CompileError):
        tma.compile(source, "sm_90a")


def test_options_that_make_no_machine_code_are_refused() -> None:
    with pytest.raises(CompileError, match="make no machine code"):
        tma.compile(SOURCE, "sm_90a", ["-dlto"])


def test_a_huge_source_compiles_and_a_deep_one_ends_in_an_error() -> None:
    assert tma.compile("// " + "x" * (8 << 20) + "\n" + SOURCE, "sm_90a").kernels == ("k",)
    with pytest.raises(CompileError):
        tma.compile("__device__ int a = " + "(" * 3000 + "1" + "(" * 3000, "sm_90a")


def test_line_breaks_of_every_kind_keep_the_line_right() -> None:
    for ending in ("\n", "\r\n"):
        source = ending.join(['extern "C" __global__ void k() {', "// a\x0cb\x85c\u2028d", "    wrong();", "}"])
        with pytest.raises(CompileError) as caught:
            tma.compile(source, "sm_90a")
        assert caught.value.line == 3
        assert "     3 |     wrong();" in str(caught.value)
