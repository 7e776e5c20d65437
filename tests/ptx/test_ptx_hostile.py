"""Whatever a caller gives, a function answers or raises an error of the package, soon and with a readable message."""

from __future__ import annotations

import contextlib
import inspect
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cupytma import ptx
from cupytma.errors import CupytmaError

LOAD = "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
MILLION = 1_000_000


def attempted(function: Callable[..., Any], *positional: Any, **named: Any) -> None:
    """Call it; an error must be one of ours and readable."""
    message = ""
    with contextlib.suppress(CupytmaError):
        try:
            function(*positional, **named)
        except CupytmaError as error:
            message = str(error)
            raise
    assert len(message) < 3000


class Unhelpful:
    """An object whose every method fails."""

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        raise RuntimeError("no repr")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no comparison")

    def __index__(self) -> int:
        raise RuntimeError("no number")

    def __bool__(self) -> bool:
        raise RuntimeError("no truth")

    def __iter__(self) -> Any:
        raise RuntimeError("no items")


HOSTILE: dict[str, Any] = {
    "None": None, "empty text": "", "zero": 0, "minus one": -1, "two": 2, "huge": 10**400, "true": True, "half": 1.5,
    "NaN": float("nan"), "bytes": b"x", "list": [], "list of None": [None], "dict": {"a": 1}, "tuple": (),
    "object": object(), "function": len, "type": int, "unhelpful": Unhelpful(), "numbers": range(3),
    "long text": "x" * MILLION, "newlines": "\n" * 5, "braces": "{" * 1000 + "}" * 1000, "unicode": "é\u202e²٣",
    "NUL": "\0", "half a surrogate": "\ud800", "instruction": ptx.fence_proxy_async(),
}  # fmt: skip
#: Something legal for every argument that has no default.
LEGAL: dict[str, Any] = {
    "rank": 2, "field": "rank", "scope": "gpu", "semantics": "release", "reduction": "add", "n": 64, "a_type": "f16",
    "destination": "global", "source": "shared::cta", "primary": "evict_last", "num": 1, "data_type": "u32",
    "path": "map-global", "start_address": 0, "sequence": ptx.rebind(rank=1), "text": "cp.async.bulk.commit_group;",
    "instruction": ptx.fence_proxy_async(),
}  # fmt: skip
LEGAL_IN = {("griddepcontrol", "action"): "wait", ("setmaxnreg", "action"): "inc"}


def functions() -> dict[str, Callable[..., Any]]:
    found = {name: getattr(ptx, name) for name in ptx.__all__}
    kept = {name: function for name, function in found.items() if inspect.isfunction(function)}
    return {**kept, "MatrixDescriptor": ptx.MatrixDescriptor, "MatrixDescriptor.decode": ptx.MatrixDescriptor.decode}


def arguments() -> list[tuple[str, str]]:
    return [
        (name, parameter.name)
        for name, function in functions().items()
        for parameter in inspect.signature(function).parameters.values()
        if parameter.kind is not parameter.VAR_KEYWORD
    ]


def legal(name: str, parameter: str) -> Any:
    return LEGAL_IN.get((name, parameter), LEGAL.get(parameter, 0))


@pytest.mark.parametrize(("name", "argument"), arguments())
def test_any_argument_is_taken_or_refused_by_an_error_of_ours(name: str, argument: str) -> None:
    function = functions()[name]
    needed = {
        p.name: legal(name, p.name)
        for p in inspect.signature(function).parameters.values()
        if p.default is p.empty and p.kind is not p.VAR_KEYWORD
    }
    for value in HOSTILE.values():
        attempted(function, **{**needed, argument: value})


@pytest.mark.parametrize("value", HOSTILE.values(), ids=HOSTILE)
def test_the_methods_of_an_instruction_likewise(value: Any) -> None:
    i = ptx.tensormap_replace(field="global_dim")
    for method in (lambda v: i.bind(ordinal=v), i.index_of, i.supported_on, i.function):
        attempted(method, value)


LONG = {
    "comments that do not end": "/*" * (MILLION // 2),
    "dots": "." * MILLION,
    "words": "cp.async." * (MILLION // 9),
    "spaces of a copy": "cp.async.bulk.tensor.2d." + "global." * (MILLION // 7),
    "reductions": "cp.async.bulk.tensor.2d.global.shared::cta." + "add." * (MILLION // 4),
    "braces": f"{LOAD} " + "{" * MILLION,
    "brackets": f"{LOAD} " + "[" * MILLION,
    "nested": f"{LOAD} " + "{[" * (MILLION // 4) + "]}" * (MILLION // 4),
    "commas": f"{LOAD} " + "," * MILLION,
    "a sum": f"{LOAD} [%0], [%1, {{%2, %3}}], [%4" + "+1" * (MILLION // 2) + "];",
    "guards": "@" * MILLION,
    "a long guard": "@%p" + "1" * MILLION + f" {LOAD} [%0], [%1, {{%2, %3}}], [%4];",
    "dollars": "$" * MILLION,
    "semicolons": ";" * MILLION,
    "newlines": "\n" * MILLION + f"{LOAD} [%0], [%1, {{%2, %3}}], [%4];",
    "digits": "cp.async.bulk.wait_group " + "9" * MILLION,
    "ordinals": "tensormap.replace.tile.box_dim." + "1." * (MILLION // 2) + " [%0], %1;",
    "registers": "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {" + "%0," * (MILLION // 3) + "}",
    "a mode's look-alikes": (LOAD + ".im2col") * (MILLION // 100),
    "surrogates": "\ud800" * MILLION,
    "near misses": LOAD.replace("tile", "tiel") + ".x" * 100,
}


@pytest.mark.parametrize("text", LONG.values(), ids=LONG)
def test_a_megabyte_of_text_is_explained_or_refused_within_a_second(text: str) -> None:
    ptx.parse("cp.async.bulk.commit_group;")  # the index of all forms is made once
    start = time.process_time()
    attempted(ptx.explain, text)
    assert time.process_time() - start < 1


PIECES = [
    *LOAD.replace(".", " . ").split(), "tensormap", "replace", "global_dim", "b1024", "b32", "cp", "reduce", "add",
    "im2col", "[", "]", "{", "}", "%0", "$1", "0x7", "-1", ",", ";", "//", "/*", "*/", "@%p", " ", "\n", "é", "128",
    "shared", "|", "_",
]  # fmt: skip


@settings(max_examples=500, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=30).map("".join) | st.text(max_size=60))
def test_no_text_makes_parse_fail_otherwise(text: str) -> None:
    try:
        found = ptx.parse(text)
    except CupytmaError:
        return
    assert ptx.parse(found.text) == found


@settings(max_examples=300, deadline=None)
@given(st.sampled_from([i.text for i in ptx.catalogue()]), st.integers(0, 400), st.sampled_from(PIECES))
def test_an_instruction_with_something_in_it_is_read_or_refused(whole: str, at: int, piece: str) -> None:
    text = whole[: at % len(whole)] + piece + whole[at % len(whole) :]
    attempted(ptx.explain, text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cp.async.bulk.wait_group 08;", "count='08' is no integer that PTX could take"),
        ("cp.async.bulk.wait_group ²;", "do not fit: ²; it takes %0"),
        ("cp.async.bulk.wait_group -1;", "count=-1 is out of range; legal: 0 to 63"),
        ("fence.proxy.tensormap::generic.acquire.gpu [%rd1], 64;", "it takes [%0], 128"),
    ],
)
def test_what_is_no_number_or_not_the_number_is_refused(text: str, message: str) -> None:
    with pytest.raises(CupytmaError) as refusal:
        ptx.parse(text)
    assert message in str(refusal.value)


@pytest.mark.parametrize(("literal", "count"), [("7", 7), ("0x1F", 31), ("017", 15), ("0b11", 3), ("5U", 5), ("0", 0)])
def test_numbers_are_read_as_ptx_writes_them(literal: str, count: int) -> None:
    assert ptx.parse(f"cp.async.bulk.wait_group {literal};") == ptx.bulk_wait_group().bind(count=count)
    assert ptx.parse(
        "fence.proxy.tensormap::generic.acquire.gpu [ $0 + 0 ], 0x80;"
    ) == ptx.fence_proxy_tensormap_acquire(scope="gpu")
