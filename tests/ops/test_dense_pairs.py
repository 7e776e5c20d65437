"""Pairs of arrays without gaps are found at once, and whatever else is among them is left for a closer look."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cupytma.ops import dense_pairs as module
from cupytma.ops.dense_pairs import DensePairs, dense_pairs
from cupytma.runtime.tensor_guards import guard_of

# What may stand on both sides.
ALIKE = "fewer elements", "another shape", "another type", "another byte order"
SHAPES = [(4, 8), (), (3,), (0, 5), (2, 1, 3)]


class CuPy:
    """CuPy's arrays at addresses that nothing is at: no GPU is needed for them. `others` need a closer look."""

    def __init__(self) -> None:
        self.module = pytest.importorskip("cupy")
        self.dtypes, self.next = (np.uint8, np.float32, np.complex64), 1 << 40
        self.others = {
            "rows with gaps": lambda: self.make((4, 16), np.float32)[:, :8],
            "a transpose": lambda: self.make((8, 4), np.float32).T,
            "backwards": lambda: self.make((4, 8), np.float32)[::-1],
            "fewer elements": lambda: self.make((4, 7), np.float32),
            "another shape": lambda: self.make((32,), np.float32),
            "another type": lambda: self.make((4, 8), np.int32),
            "another byte order": lambda: self.make((4, 8), ">f4"),
            "references to objects": lambda: self.make((4, 8), object),
            "another device": lambda: self.make((4, 8), np.float32, device=1),
            "an array on the host": lambda: np.zeros((4, 8), np.float32),
            "no array": lambda: None,
        }

    def make(self, shape: tuple[int, ...], dtype: Any, device: int = 0) -> Any:
        size, memory = int(np.prod(shape)) * np.dtype(dtype).itemsize, self.module.cuda.memory
        self.next += 1 << 20
        place = memory.MemoryPointer(memory.UnownedMemory(self.next, max(1, size), None, device), 0)
        return self.module.ndarray(shape, dtype, place)

    def address(self, array: Any) -> int:
        return int(array.data.ptr)


class Torch:
    """torch's tensors in host memory, taken for tensors of a GPU. `others` need a closer look."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        torch = self.module = pytest.importorskip("torch")
        column = module._column
        self.on_others: list[Any] = []

        def on_gpu(name: str, tensors: Any) -> list[Any]:
            if name != "device":
                return column(name, tensors)
            return [
                torch.device("cuda", int(any(tensor is other for other in self.on_others)))
                if tensor.device.type == "cpu" else tensor.device for tensor in tensors
            ]  # fmt: skip

        patch.setattr(module, "_column", on_gpu)
        self.dtypes = torch.uint8, torch.float32, torch.complex64
        self.others = {
            "rows with gaps": lambda: torch.zeros(4, 16)[:, :8],
            "a transpose": lambda: torch.zeros(8, 4).t(),
            "the same twice": lambda: torch.zeros(1, 8).expand(4, 8),
            "fewer elements": lambda: torch.zeros(4, 7),
            "another shape": lambda: torch.zeros(32),
            "another type": lambda: torch.zeros(4, 8, dtype=torch.int32),
            "of elements that share bytes": lambda: torch.quantize_per_channel(
                torch.zeros(4, 8), torch.ones(4), torch.zeros(4), 0, torch.quint4x2
            ),
            "a nested one": lambda: torch.nested.nested_tensor([torch.zeros(8)] * 4),
            "negated when it is read": lambda: torch._neg_view(torch.zeros(4, 8)),
            "a sparse one": lambda: torch.zeros(4, 8).to_sparse(),
            "one without memory": lambda: torch.zeros(4, 8, device="meta"),
            "one of a class of its own": lambda: torch.zeros(4, 8).as_subclass(type("Own", (torch.Tensor,), {})),
            "an array on the host": lambda: np.zeros((4, 8), np.float32),
            "no array": lambda: None,
        }

    def elsewhere(self, tensor: Any) -> Any:
        self.on_others.append(tensor)
        return tensor

    def make(self, shape: tuple[int, ...], dtype: Any) -> Any:
        return self.module.zeros(shape, dtype=dtype)

    def address(self, array: Any) -> int:
        return int(array.data_ptr())


Library = CuPy | Torch


@pytest.fixture(params=["CuPy", "torch", "torch without guards"])
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Library:
    made = CuPy() if request.param == "CuPy" else Torch(monkeypatch)
    monkeypatch.setattr(
        module, "cupy", lambda: made.module if isinstance(made, CuPy) else SimpleNamespace(ndarray=None)
    )
    if request.param == "torch without guards":
        monkeypatch.setattr(module, "guard_of", lambda tensors: None)
        # Guards look at devices themselves, and would see through this.
        made.others["one on another device"] = lambda: made.elsewhere(made.make((4, 8), made.dtypes[1]))
    return made


def lists(library: Library) -> tuple[list[Any], list[Any]]:
    made = [[library.make(shape, dtype) for shape in SHAPES for dtype in library.dtypes] for _ in range(2)]
    return made[0], made[1]


def test_addresses_and_bytes_of_pairs_without_gaps_are_found(library: Library) -> None:
    sources, destinations = lists(library)
    found = dense_pairs(sources, destinations)
    assert found is not None
    assert found.device == 0
    assert found.sources == [library.address(array) for array in sources]
    assert found.destinations == [library.address(array) for array in destinations]
    assert found.sizes == [count * size for count in (32, 1, 3, 0, 6) for size in (1, 4, 8)]


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("which", ["source", "destination", "both"])
def test_another_among_them_needs_a_closer_look(library: Library, which: str, place: int) -> None:
    plain = np.float32 if isinstance(library, CuPy) else library.module.float32
    for name, other in library.others.items():
        pairs = [[library.make((4, 8), plain) for _ in range(3)] for _ in range(2)]
        assert isinstance(dense_pairs(*pairs), DensePairs)
        for several in {"source": pairs[:1], "destination": pairs[1:], "both": pairs}[which]:
            several[place] = other()
        is_alike = name in ALIKE and which == "both"
        assert (dense_pairs(*pairs) is not None) == is_alike, name


def test_a_complex_tensor_that_is_conjugated_when_it_is_read_needs_a_closer_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch = Torch(monkeypatch).module
    monkeypatch.setattr(module, "cupy", lambda: SimpleNamespace(ndarray=None))
    plain, lazy = torch.zeros(3, dtype=torch.complex64), torch.zeros(3, dtype=torch.complex64).conj()
    assert dense_pairs([plain], [torch.clone(plain)]) is not None
    for pair in ([plain, lazy], [lazy, plain], [lazy, torch.clone(plain).conj()]):
        assert dense_pairs(*([tensor] for tensor in pair)) is None


def test_parameters_go_with_tensors_that_no_gradient_is_wanted_of(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = Torch(monkeypatch).module
    monkeypatch.setattr(module, "cupy", lambda: SimpleNamespace(ndarray=None))
    parameters = [torch.nn.Parameter(torch.zeros(n)) for n in (3, 4)]
    tensors = [torch.zeros(n) for n in (3, 4)]
    found = dense_pairs(parameters, tensors)
    assert found is not None
    assert found.sizes == [12, 16]
    assert dense_pairs(tensors, [p.data for p in parameters]) is not None
    if found.guards is not None:
        assert found.guards[0](*parameters)
        assert found.guards[1](*tensors)


def test_tensors_on_the_host_need_a_closer_look(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(module, "cupy", lambda: SimpleNamespace(ndarray=None))
    assert dense_pairs([torch.zeros(3)], [torch.zeros(3)]) is None


def test_guards_tell_whether_tensors_are_like_those_that_they_were_found_with(monkeypatch: pytest.MonkeyPatch) -> None:
    library = Torch(monkeypatch)
    monkeypatch.setattr(module, "cupy", lambda: SimpleNamespace(ndarray=None))
    if guard_of([library.make((2,), library.dtypes[0])]) is None:
        pytest.skip("this torch has no guards")
    sources, destinations = lists(library)
    found = dense_pairs(sources, destinations)
    assert found is not None
    assert found.guards is not None
    for guard, others in zip(found.guards, (destinations, sources), strict=True):
        assert guard(*others)
        others[1].resize_(1)
        assert not guard(*others)
