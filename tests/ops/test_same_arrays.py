"""CuPy's arrays known again by what they are: whatever becomes of them, what is launched is what they are now."""

from __future__ import annotations

import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import remembered

from cupytma.ops import array_copy, matrix_product, short_way

cupy = pytest.importorskip("cupy")

LINE, PLACES, ROOM = 128, (1 << 40, 1 << 41, 1 << 42), 4096


def array_at(place: int, shape: tuple[int, ...], dtype: str = "float32") -> Any:
    """An array in memory that nobody has, and nobody asks for."""
    memory = cupy.cuda.UnownedMemory(place, ROOM, None, 0)
    return cupy.ndarray(shape, dtype, cupy.cuda.MemoryPointer(memory, 0))


def lies(array: Any) -> tuple[Any, ...] | None:
    """All that a launch depends on: not the strides along dimensions of one element."""
    if array is None:
        return None
    return array.data.ptr, array.shape, array.dtype, tuple(
        stride for extent, stride in zip(array.shape, array.strides, strict=True) if extent > 1
    )  # fmt: skip


class Launch:
    """What was prepared for some arrays; notes how they are taken to lie when it is launched."""

    def __init__(self, launched: list[Any], arrays: tuple[Any, ...]) -> None:
        self.launched, self.found = launched, [lies(array) for array in arrays]

    def launch(self, handle: int, *addresses: int) -> None:
        assert handle == 7
        self.launched.append([
            found and (address, *found[1:]) for found, address in zip(self.found, addresses, strict=True)
        ])  # fmt: skip

    def at(self, *addresses: int) -> tuple[Callable[[int], None], ...]:
        return (lambda handle: self.launch(handle, *addresses),)


class Reads:
    """Counts how often arrays are read for what they say of themselves."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, array: Any) -> Any:
        self.count += 1
        return short_way.OF_CUPY.read(array)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    reads = Reads()
    way = short_way.OF_CUPY._replace(read=reads, handle=lambda device: 7)
    monkeypatch.setitem(short_way.short_ways, cupy.ndarray, way)
    monkeypatch.setattr(array_copy, "view_of", lambda array: array)  # CuPy's interface asks the GPU for its device
    monkeypatch.setattr(matrix_product, "views_of", lambda arrays: arrays)
    for module in (array_copy, matrix_product):
        monkeypatch.setattr(module, "current_device", lambda: 0)
        remembered.forget(monkeypatch, module)
    return reads


@pytest.fixture
def copied(reads: Reads) -> Callable[[Any, Any], Any]:
    """Copies, and returns what was launched."""
    launched: list[Any] = []

    def prepare(source: Any, axes: Any, destination: Any) -> Launch:
        return Launch(launched, (source, destination))

    def copy(source: Any, destination: Any) -> Any:
        array_copy.move(source, "noted", destination, None, prepare)
        (found,) = launched
        launched.clear()
        return found

    return copy


@pytest.fixture
def multiplied(reads: Reads, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Multiplies, and returns what was launched."""
    launched: list[Any] = []

    def prepare(options: Any, arrays: tuple[Any, ...]) -> Any:
        noted = Launch(launched, arrays)
        launches = (SimpleNamespace(at=lambda *addresses: noted.at(*addresses)[0]),)
        return type("Product", (), {
            "launches": launches, "__call__": lambda _, handle, addresses: noted.launch(handle, *addresses),
        })()  # fmt: skip

    def multiply(*arrays: Any) -> Any:
        matrix_product._multiply((False,), arrays, None)
        (found,) = launched
        launched.clear()
        return found

    monkeypatch.setattr(matrix_product, "_prepare", prepare)
    return multiply


SHAPES = (8, 8), (4, 16), (64,), (1, 64), (64, 1), (2, 2, 2, 8), (1, 8, 1, 8)
# What may become of an array without another object, and what may come in its place.
CHANGES: dict[str, Callable[[random.Random, Any], Any]] = {
    "nothing": lambda _, array: array,
    "another shape": lambda chance, array: reshaped(array, chance.choice(SHAPES)),
    "another object": lambda _, array: array[...],
    "a part": lambda _, array: array[..., ::2],
    "the other way round": lambda _, array: array[::-1],
    "transposed": lambda _, array: array.T,
    "other memory": lambda chance, array: array_at(chance.choice(PLACES) + chance.choice((0, 512)), (8, 8)),
    "another type": lambda _, array: array.view("int32"),
}


def reshaped(array: Any, shape: tuple[int, ...]) -> Any:
    try:
        array.shape = shape
    except (AttributeError, ValueError):  # what would take a copy, or other elements
        assert array.shape
    return array


@pytest.mark.parametrize("seed", range(20))
def test_copies_are_of_the_arrays_as_they_are_now(copied: Callable[[Any, Any], Any], seed: int) -> None:
    chance = random.Random(seed)
    pair = [array_at(place, (8, 8)) for place in PLACES[:2]]
    for _ in range(300):
        which = chance.randrange(2)
        changed = CHANGES[chance.choice(list(CHANGES))](chance, pair[which])
        pair[which] = changed if changed.size else array_at(PLACES[which], (8, 8))
        for _ in range(chance.choice((1, 3))):
            assert copied(*pair) == [lies(array) for array in pair]


@pytest.mark.parametrize("seed", range(20))
def test_products_are_of_the_arrays_as_they_are_now(multiplied: Callable[..., Any], seed: int) -> None:
    chance = random.Random(seed)
    arrays = [array_at(chance.choice(PLACES), (8, 8)) for _ in range(6)]
    for _ in range(300):
        which = chance.randrange(6)
        changed = CHANGES[chance.choice(list(CHANGES))](chance, arrays[which])
        arrays[which] = changed if changed.size else array_at(chance.choice(PLACES), (8, 8))
        given = [*arrays[:3], *(chance.choice((None, array)) for array in arrays[3:])]
        for _ in range(chance.choice((1, 3))):
            assert multiplied(*given) == [lies(array) for array in given]


def test_arrays_that_come_again_are_not_read(reads: Reads, copied: Callable[[Any, Any], Any]) -> None:
    pair = [array_at(place, (8, 8)) for place in PLACES[:2]]
    for _ in range(7):
        assert copied(*pair) == [lies(array) for array in pair]
    assert reads.count == 2 * 2


@pytest.mark.parametrize("are_kept", [True, False], ids=["others", "others with the same identities"])
def test_arrays_in_the_place_of_some_are_known_by_what_they_say(
    reads: Reads, copied: Callable[[Any, Any], Any], are_kept: bool
) -> None:
    """At no more cost, however many: what tells them apart by identity would be made for each call."""
    kept = []
    for _ in range(50):
        pair = [array_at(place, (8, 8)) for place in PLACES[:2]]
        assert copied(*pair) == [lies(array) for array in pair]
        if are_kept:
            kept.append(pair)
        del pair
    assert reads.count == 2 * 50
    assert len(array_copy._addressed) == len(array_copy._same) == 1


def test_an_array_with_the_identity_of_one_that_is_gone_is_another(copied: Callable[[Any, Any], Any]) -> None:
    source, found = array_at(PLACES[0], (8, 8)), 0
    for place in (*PLACES[1:], *PLACES[1:]):
        destination = array_at(place, (8, 8))
        for _ in range(4):
            assert copied(source, destination) == [lies(source), lies(destination)]
        gone = id(destination)
        del destination
        found += id(array_at(place, (8, 8))) == gone
    assert found  # CPython gives the place of the last one to the next


def test_what_is_kept_keeps_no_array_alive(copied) -> None:
    lost = []
    memory = cupy.cuda.UnownedMemory(PLACES[0], ROOM, type("Owner", (), {"__del__": lambda _: lost.append(1)})(), 0)
    array, other = cupy.ndarray((8, 8), "float32", cupy.cuda.MemoryPointer(memory, 0)), array_at(PLACES[1], (8, 8))
    for _ in range(4):
        copied(array, other)
    del array, memory
    assert lost == [1]


@pytest.mark.parametrize(
    ("name", "value"), [("strides", (4, 32)), ("dtype", "int32"), ("data", None), ("size", 3), ("base", None)]
)
def test_cupys_public_interface_gives_an_array_nothing_but_another_shape(name: str, value: Any) -> None:
    """On which it rests that the same object with the same shape lies as before."""
    array = array_at(PLACES[0], (8, 8))
    with pytest.raises((AttributeError, TypeError)):
        setattr(array, name, value)
    with pytest.raises(AttributeError):
        array.data.ptr = 5


@pytest.mark.parametrize("seed", range(50))
def test_an_array_that_has_its_shape_again_has_its_elements_where_they_were(seed: int) -> None:
    chance = random.Random(seed)
    array = array_at(PLACES[0], chance.choice(SHAPES))
    for _ in range(3):
        array = CHANGES[chance.choice(["a part", "the other way round", "transposed", "nothing"])](chance, array)
    before = lies(array)
    for _ in range(20):
        reshaped(array, chance.choice((*SHAPES, (2, 4), (8, 1, 4), (16, 2), (32,))))
    array.shape = before[1]
    assert lies(array) == before
