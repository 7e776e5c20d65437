"""What a graph needs lives as long as the graph, and each capture is known from every other."""

from __future__ import annotations

import weakref
from types import SimpleNamespace

import pytest
from captured_streams import CapturedStreams
from fake_cuda import FakeCuda

from cupytma.errors import LaunchError
from cupytma.runtime import captures, streams
from cupytma.runtime.captures import allocate, allocating, capture_of, keep_for_graph


class Thing:
    """Something that can be kept."""


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    fake = FakeCuda()
    for module in (captures, streams):
        monkeypatch.setattr(module, "cupy", lambda: fake)
    monkeypatch.setattr(captures, "as_cupy", lambda stream: fake.cuda.Device())
    return fake


@pytest.fixture
def streams_of(cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> CapturedStreams:
    return CapturedStreams(monkeypatch, cuda.cuda)


def test_captures_are_told_apart(streams_of: CapturedStreams) -> None:
    found = []
    for stream in (7, 7, 9):
        assert capture_of(stream) is None
        streams_of.begin(stream)
        found += [capture_of(stream), capture_of(stream)]
        streams_of.end(stream)
    assert found[::2] == found[1::2]
    assert len(set(found)) == 3
    assert [capture_of(stream) for stream in (0, 1, 7)] == [None] * 3


def test_what_a_graph_needs_is_dropped_when_the_graph_is_gone_and_another_is_captured(
    streams_of: CapturedStreams,
) -> None:
    graphs, kept = [], []
    for _ in range(3):
        streams_of.begin(7)
        thing = Thing()
        kept.append(weakref.ref(thing))
        keep_for_graph(7, thing)
        graphs.append(streams_of.end(7))
        del thing
    streams_of.destroy(graphs[1])
    assert [reference() is None for reference in kept] == [False] * 3  # no Python runs in CUDA's thread
    streams_of.begin(7)
    keep_for_graph(7, Thing())
    assert [reference() is None for reference in kept] == [False, True, False]


@pytest.mark.parametrize(
    "refusal",
    [
        (CapturedStreams, "cuUserObjectCreate", lambda *_: (1, None)),
        (CapturedStreams, "cuGraphRetainUserObject", lambda *_: (1,)),
        (captures, "_c_library", lambda: None),
    ],
)
def test_what_a_graph_cannot_own_is_kept_for_good(
    streams_of: CapturedStreams, monkeypatch: pytest.MonkeyPatch, refusal: tuple[object, str, object]
) -> None:
    monkeypatch.setattr(*refusal)
    thing = Thing()
    kept = weakref.ref(thing)
    streams_of.begin(7)
    keep_for_graph(7, thing)
    del thing
    streams_of.destroy(streams_of.end(7))
    streams_of.begin(7)
    keep_for_graph(7, Thing())
    assert kept() is not None


def test_memory_of_a_capture_is_the_graphs_and_other_memory_is_not(
    streams_of: CapturedStreams, monkeypatch: pytest.MonkeyPatch, cuda: FakeCuda
) -> None:
    free = weakref.ref(allocate(100, 7))
    assert free() is None
    streams_of.begin(7)
    monkeypatch.setattr(cuda.cuda, "alloc", None)  # CUDA's pools would make it a part of the graph
    owned = weakref.ref(allocate(100, 7))
    graph = streams_of.end(7)
    assert owned() is not None
    streams_of.destroy(graph)
    streams_of.begin(7)
    keep_for_graph(7, None)
    assert owned() is None


def test_the_capture_mode_is_what_it_was_after_an_allocation_that_fails(streams_of: CapturedStreams) -> None:
    def fail() -> None:
        with allocating():
            assert streams_of.mode == "relaxed"
            raise MemoryError

    with pytest.raises(MemoryError):
        fail()
    assert streams_of.mode == "global"


def test_a_driver_that_does_not_tell_the_capture_is_said_so(
    streams_of: CapturedStreams, monkeypatch: pytest.MonkeyPatch
) -> None:
    streams_of.begin(7)
    unknown = SimpleNamespace(name="CUDA_ERROR_STREAM_CAPTURE_INVALIDATED")
    monkeypatch.setattr(streams_of, "cuStreamGetCaptureInfo", lambda stream: (unknown, 0, 0, 0))
    with pytest.raises(LaunchError, match="0x7: CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"):
        capture_of(7)
