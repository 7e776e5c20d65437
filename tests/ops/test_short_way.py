"""Torch tensors by the short way: whatever becomes of them between calls, what is launched is what they are now."""

from __future__ import annotations

import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import remembered

from cupytma.errors import ArrayError
from cupytma.ops import array_copy, groups, matrix_product, short_way
from cupytma.runtime import places
from cupytma.runtime.tensor_guards import guard_of
from cupytma.tensormap.arrays import ArrayView, view_of

torch = pytest.importorskip("torch")

LINE = 128
# What may become of a tensor of float32 without another object.
CHANGES: dict[str, Callable[[Any], Any]] = {
    "nothing": lambda t: t,
    "another shape": lambda t: t.resize_(2, t.numel() // 2),
    "fewer elements": lambda t: t.resize_(4, 4),
    "one row": lambda t: t.resize_(1, 16),
    "one row with a stride of its own": lambda t: t.as_strided_((1, 16), (3, 1)),
    "one column": lambda t: t.resize_(16, 1),
    "no elements": lambda t: t.resize_(0, 4),
    "transposed": lambda t: t.t_(),
    "a diagonal": lambda t: t.as_strided_((4, 4), (5, 1), 0) if t.untyped_storage().nbytes() > 80 else t,
    "the same elements all along": lambda t: t.as_strided_((4, 4), (0, 1), 0),
    "an offset": lambda t: t.as_strided_((4, 4), (4, 1), 4) if t.untyped_storage().nbytes() > 80 else t,
    "four dimensions, channels last": lambda t: t.resize_(1, 4, 2, 2).resize_(
        1, 4, 2, 2, memory_format=torch.channels_last
    ),
    "two dimensions again": lambda t: t.resize_(8, 8),
    "other memory": lambda t: t.set_(torch.zeros(8, 8, dtype=t.dtype)),
    "another type": lambda t: setattr(t, "data", t.data.view(torch.int32)),
    "the type again": lambda t: setattr(t, "data", t.data.view(torch.float32)),
    "no memory": lambda t: t.untyped_storage().resize_(0),
    "memory again": lambda t: t.untyped_storage().resize_(1024),
}


@pytest.fixture(params=[True, False], ids=["with torch's test", "without"])
def on_device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors on the host pass for those of device 0."""
    monkeypatch.setattr(torch.Tensor, "get_device", lambda tensor: 0)
    way = short_way.ShortWay(
        places.describe_tensor, lambda tensor: (tensor.shape, tensor.stride(), tensor.dtype), lambda device: 7,
        guard_of if request.param else None,
    )  # fmt: skip
    monkeypatch.setitem(short_way.short_ways, torch.Tensor, way)
    for module in (array_copy, matrix_product):
        monkeypatch.setattr(module, "current_device", lambda: 0)
        remembered.forget(monkeypatch, module)


def described(*views: ArrayView | None) -> list[Any]:
    """All that a launch depends on: not the strides along dimensions of one element."""
    return [
        view and (
            view.address, view.shape, view.dtype, view.size
            and tuple(stride for extent, stride in zip(view.shape, view.strides, strict=True) if extent > 1),
        )
        for view in views
    ]  # fmt: skip


class Noted:
    """What was prepared for some views; notes how they are taken to lie when it is launched."""

    def __init__(self, launched: list[Any], *views: ArrayView | None) -> None:
        self.launched, self.views = launched, views

    def launch(self, handle: int, *addresses: int) -> None:
        assert handle == 7
        views = [
            view and ArrayView(address, view.shape, view.strides, view.dtype, view.itemsize, None)
            for view, address in zip(self.views, addresses, strict=True)
        ]
        for view in views:
            assert view is None or view.address % LINE == self.views[views.index(view)].address % LINE
        self.launched.append(described(*views))

    def at(self, *addresses: int) -> tuple[Callable[[int], None], ...]:
        return (lambda handle: self.launch(handle, *addresses),)


def changed(chance: random.Random, tensor: Any) -> None:
    try:
        CHANGES[chance.choice(list(CHANGES))](tensor)
    except RuntimeError:  # what its memory has no room for, or its dimensions do not allow
        assert tensor.dim()


@pytest.mark.parametrize("seed", range(20))
def test_copies_are_of_the_tensors_as_they_are_now(on_device: None, seed: int) -> None:
    chance, launched = random.Random(seed), []
    pair = torch.zeros(8, 8), torch.zeros(8, 8)
    for _ in range(200):
        changed(chance, chance.choice(pair))
        for _ in range(chance.choice((1, 3))):
            array_copy.move(pair[0], "noted", pair[1], None, lambda view, _, other: Noted(launched, view, other))
            assert launched.pop() == described(*map(view_of, pair))
    assert not launched


@pytest.mark.parametrize("seed", range(20))
def test_products_are_of_the_tensors_as_they_are_now(
    on_device: None, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    def prepare(options: Any, views: Any) -> Any:
        noted = Noted(launched, *views)
        noted_at = SimpleNamespace(at=lambda *addresses: noted.at(*addresses)[0])
        return type("Product", (), {
            "launches": (noted_at,), "__call__": lambda _, handle, addresses: noted.launch(handle, *addresses),
        })()  # fmt: skip

    chance, launched = random.Random(seed), []
    monkeypatch.setattr(matrix_product, "_prepare", prepare)
    arrays = [torch.zeros(8, 8) for _ in range(6)]
    for _ in range(200):
        changed(chance, chance.choice(arrays))
        given = [*arrays[:3], *(chance.choice((None, array)) for array in arrays[3:])]
        for _ in range(chance.choice((1, 3))):
            matrix_product._multiply((False,), tuple(given), None)
            assert launched.pop() == described(*(None if array is None else view_of(array) for array in given))


@pytest.mark.parametrize("other", ["negated", "conjugated"])
def test_tensors_whose_elements_are_not_those_in_memory_take_the_long_way(
    on_device: None, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    """Though they lie where those lay that came before, with the same shape, strides and type."""
    went: list[Any] = []
    monkeypatch.setattr(array_copy, "_move_any", lambda *given: went.append(given))
    memory = torch.zeros(16, dtype=torch.complex64)
    usual, unusual = {
        "negated": (memory.imag, memory.conj().imag), "conjugated": (memory, memory.conj()),
    }[other]  # fmt: skip
    assert usual.data_ptr() == unusual.data_ptr()
    out, launched = torch.zeros_like(usual), []
    for _ in range(5):
        array_copy.move(usual, "noted", out, None, lambda view, _, other: Noted(launched, view, other))
    assert len(launched) == 5
    array_copy.move(unusual, "noted", out)
    array_copy.move(out, "noted", unusual)
    assert len(went) == 2
    assert len(launched) == 5


def test_an_error_of_a_launch_is_not_taken_for_a_tensor_that_cannot_be_read(on_device: None) -> None:
    class Failing(Noted):
        def at(self, *addresses: int) -> tuple[Callable[[int], None], ...]:
            def launch(handle: int) -> None:
                raise RuntimeError("the launch")

            return (launch,)

    pair, launched = (torch.zeros(8, 8), torch.zeros(8, 8)), []

    def move() -> None:
        array_copy.move(pair[0], "noted", pair[1], None, lambda view, _, to: Failing(launched, view, to))

    move()
    move()
    for _ in range(2):
        with pytest.raises(RuntimeError, match="the launch"):
            move()
    assert len(launched) == 2


@pytest.mark.filterwarnings("ignore")
def test_a_nested_tensor_in_the_place_of_its_own_values_takes_the_long_way(
    on_device: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch's guards end the process when they meet one."""
    went: list[Any] = []
    monkeypatch.setattr(array_copy, "_move_any", lambda *given: went.append(given))
    monkeypatch.setattr(matrix_product, "_multiply_any", lambda *given: went.append(given))
    monkeypatch.setattr(
        matrix_product, "_prepare",
        lambda options, views: type("Product", (), {"launches": (), "__call__": lambda *given: None})(),
    )
    nested = torch.nested.nested_tensor([torch.zeros(3), torch.zeros(5)])
    values, other, launched = nested.values(), torch.zeros(8), []
    assert values.data_ptr() == nested.data_ptr()
    for _ in range(5):
        array_copy.move(values, "noted", other, None, lambda view, _, to: Noted(launched, view, to))
        array_copy.move(other, "noted", values, None, lambda view, _, to: Noted(launched, view, to))
        matrix_product._multiply((False,), (values, other, other, None, None, values), None)
    assert len(launched) == 10
    array_copy.move(nested, "noted", other)
    array_copy.move(other, "noted", nested)
    matrix_product._multiply((False,), (nested, other, other, None, None, values), None)
    matrix_product._multiply((False,), (values, other, other, None, None, nested), None)
    assert len(went) == 4


UNREADABLE = {
    "sparse": lambda: torch.zeros(4, 4).to_sparse(),
    "sparse rows": lambda: torch.zeros(4, 4).to_sparse_csr(),
    "nested": lambda: torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)]),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", UNREADABLE)
def test_tensors_without_strided_memory_take_the_long_way(
    on_device: None, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Which says what is wrong with them."""
    went: list[Any] = []
    monkeypatch.setattr(array_copy, "_move_any", lambda *given: went.append(given))
    monkeypatch.setattr(matrix_product, "_multiply_any", lambda *given: went.append(given))
    monkeypatch.setattr(matrix_product, "_result_of", lambda *given: went.append(given) or ((1, 1), "float32"))
    monkeypatch.setattr(matrix_product, "_new_result", lambda *given: torch.zeros(1))
    one, plain = UNREADABLE[kind](), torch.zeros(4, 4)
    array_copy.move(one, None, plain)
    array_copy.move(plain, None, one)
    matrix_product._multiply((False,), (plain, one, plain, None, None, None), None)
    matrix_product._allocated(plain, one, None, None, None)
    matrix_product._allocated(one, plain, None, None, None)
    assert len(went) == 5
    with pytest.raises(ArrayError):
        view_of(one)


def test_tensors_that_a_transformation_wraps_take_the_long_way(on_device: None) -> None:
    def read(tensor: Any) -> Any:
        with pytest.raises(TypeError, match="without strided memory"):
            places.describe_tensor(tensor)
        return tensor

    torch.vmap(read)(torch.zeros(3, 4))


def test_results_of_products_are_memory_of_their_own(on_device: None) -> None:
    a = torch.zeros(8, 16)
    made = lambda a: a.new_empty((8, 8), dtype=torch.float16)  # noqa: E731
    key = torch.Tensor, *[(a.shape, a.stride(), a.dtype)] * 2, None, "float16"
    matrix_product._allocations.keep(key, made)
    results = [matrix_product._allocated(a, a, None, "float16", None) for _ in range(50)]
    assert len({result.data_ptr() for result in results}) == len(results)
    assert {result.requires_grad for result in results} == {False}


@pytest.mark.filterwarnings("ignore")
def test_the_stream_of_a_list_is_asked_of_its_first_tensor_on_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "current_handle", lambda place: (type(place).__name__, place))
    host, device = torch.zeros(4), torch.zeros(4).to_sparse()
    assert groups.handle_for(None, (host, host)) == ("NoneType", None)
    with monkeypatch.context() as patch:
        patch.setattr(torch.Tensor, "get_device", lambda tensor: 2 if tensor is device else -1)
        assert groups.handle_for(None, (host, device)) == ("TorchDevice", 2)
    for array in (host, None):
        with pytest.raises(ArrayError, match=r"sources\[0\]"):
            groups.views_of([array], "sources")
