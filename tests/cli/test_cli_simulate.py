"""``cupytma simulate``: the bytes are those of the simulator, and each is said to come from where it came from."""

from __future__ import annotations

import io
import json
import os
import re
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from invoking import Invoke

import cupytma as tma
from cupytma import sim

ADDRESS = 0x7F0000000000

MAPS = {
    "swizzled": tma.Tiled(
        data_type="FLOAT16", global_address=ADDRESS, global_dim=(200, 100), box_dim=(64, 32), swizzle="128B"
    ),
    "padded rows": tma.Tiled(
        data_type="FLOAT32", global_address=ADDRESS, global_dim=(30, 9, 3), global_strides=(128, 2048),
        box_dim=(8, 4, 2), element_strides=(1, 3, 1), swizzle="32B",
    ),
    "interleaved": tma.Tiled(
        data_type="FLOAT16", global_address=ADDRESS, global_dim=(10, 6, 3, 2), global_strides=(320, 1920, 5760),
        box_dim=(8, 4, 1, 1), interleave="32B", swizzle="32B",
    ),
    "TF32": tma.Tiled(data_type="TFLOAT32", global_address=ADDRESS, global_dim=(40, 20), box_dim=(16, 8)),
    "BFLOAT16 with NaN": tma.Tiled(
        data_type="BFLOAT16", global_address=ADDRESS, global_dim=(24, 12), box_dim=(16, 8),
        oob_fill="NAN_REQUEST_ZERO_FMA",
    ),
    "im2col": tma.Im2col(
        data_type="UINT8", global_address=ADDRESS, global_dim=(32, 9, 7, 2), pixel_box_lower_corner=(-1, -1),
        pixel_box_upper_corner=(-1, -1), channels_per_pixel=16, pixels_per_column=40, swizzle="32B",
    ),
    "packed": tma.Tiled(
        data_type="16U4_ALIGN16B", global_address=ADDRESS, global_dim=(256, 20), box_dim=(128, 4), swizzle="128B"
    ),
}  # fmt: skip
STARTS = {
    "swizzled": (160, 80), "padded rows": (24, 7, -1), "interleaved": (4, 3, 1, 0), "TF32": (32, 16),
    "BFLOAT16 with NaN": (16, -4), "im2col": (16, -1, 0, 0), "packed": (128, 18),
}  # fmt: skip
OFFSETS = {"im2col": (2, 1)}


def _encoded(name: str) -> tma.TensorMap:
    return MAPS[name].encode("sm_100a" if name == "packed" else "sm_90a")


def _array(name: str) -> npt.NDArray[np.generic]:
    """Random bytes of the shape and element size that numpy would have for the tensor."""
    p = MAPS[name]
    shape = p.global_dim[::-1]
    if name == "packed":
        shape, size = (shape[0], shape[1] // 2), 1
    else:
        size = p.element_bits // 8
    if p.slice_bytes:
        shape = (*shape, p.slice_bytes // size)
    data = np.random.default_rng(3).bytes(int(np.prod(shape)) * size)
    return np.frombuffer(data, f"u{size}").reshape(shape)


def _memory(name: str, array: npt.NDArray[np.generic]) -> npt.NDArray[np.uint8]:
    """The array as the map's strides lay it out, element by element."""
    p = MAPS[name]
    strides = (array.itemsize, *p.global_strides)
    if p.slice_bytes:
        strides = (array.itemsize, p.slice_bytes, *p.global_strides)
    size = sum((extent - 1) * step for extent, step in zip(array.shape[::-1], strides, strict=True)) + array.itemsize
    memory = np.zeros(size, np.uint8)
    for index in np.ndindex(array.shape):
        place = sum(i * s for i, s in zip(index[::-1], strides, strict=True))
        memory[place : place + array.itemsize] = np.frombuffer(array[index].tobytes(), np.uint8)
    return memory


def _expected(name: str, array: npt.NDArray[np.generic], size: int) -> npt.NDArray[np.uint8]:
    shared = np.zeros(1 << 16, np.uint8)
    sim.load(
        _encoded(name), STARTS[name], memory=_memory(name, array), base=ADDRESS, shared=shared,
        offsets=OFFSETS.get(name, ()),
    )  # fmt: skip
    assert not shared[size:].any()
    return shared[:size]


def _arguments(name: str, *more: str) -> tuple[str, ...]:
    offsets = ("--offsets", ",".join(map(str, OFFSETS[name]))) if name in OFFSETS else ()
    return ("simulate", bytes(_encoded(name)).hex(), "--at", ",".join(map(str, STARTS[name])), *offsets, *more)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "map.bin"
    path.write_bytes(bytes(_encoded("swizzled")))
    return path


@pytest.mark.parametrize("name", MAPS)
def test_shared_memory_is_what_the_simulator_makes_of_the_array(invoke: Invoke, tmp_path: Path, name: str) -> None:
    array = _array(name)
    np.save(tmp_path / "x.npy", array)
    result = invoke(*_arguments(name, "--input", str(tmp_path / "x.npy"), "-o", "npy"))
    assert result.exit_code == 0
    shared = np.load(io.BytesIO(result.stdout_bytes))
    assert np.array_equal(shared, _expected(name, array, shared.size))


@pytest.mark.parametrize("name", MAPS)
def test_the_hex_dump_has_every_byte_and_where_it_came_from(invoke: Invoke, tmp_path: Path, name: str) -> None:
    array = _array(name)
    np.save(tmp_path / "x.npy", array)
    result = invoke(*_arguments(name, "--input", str(tmp_path / "x.npy"), "-o", "hex", "--limit", "0"))
    lines = result.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    dumped = "".join(line[6:53].replace(" ", "").replace(".", "0") for line in lines)
    shared = np.frombuffer(bytes.fromhex(dumped), np.uint8)
    assert np.array_equal(shared, _expected(name, array, shared.size))
    if name in ("swizzled", "padded rows"):  # neither fills with data nor converts: the origins can be looked up
        unit = array.itemsize
        for line in lines:
            place, origin = int(line[:4], 16), line[54:].split()
            coordinates = tuple(map(int, origin[0].split(",")))
            if len(origin) == 1:
                assert array[coordinates[::-1]].tobytes() == shared[place : place + unit].tobytes()
            else:
                assert any(not 0 <= c < n for c, n in zip(coordinates, MAPS[name].global_dim, strict=True))


def test_a_table_has_the_value_of_every_element(invoke: Invoke, tmp_path: Path) -> None:
    array = np.random.default_rng(1).normal(size=(100, 200)).astype(np.float16)
    np.save(tmp_path / "x.npy", array)
    result = invoke(*_arguments("swizzled", "--input", str(tmp_path / "x.npy"), "-o", "elements", "--limit", "0"))
    rows = [line.split(maxsplit=3) for line in result.stdout.splitlines()[1:]]
    assert len(rows) == 64 * 32
    for _, value, coordinates, address in rows:
        column, row = map(int, coordinates.split(","))
        if address == "out of bounds":
            assert column >= 200 or row >= 100
            assert float(value) == 0
        else:
            assert np.float16(value) == array[row, column]
            assert int(address, 16) == ADDRESS + 2 * (200 * row + column)


def test_json_holds_the_whole_tile(invoke: Invoke) -> None:
    result = invoke(*_arguments("swizzled", "--json"))
    found = json.loads(result.stdout)
    (copy,), tile = found["copies"], found["tile"]
    assert (copy["start"], copy["fault"], copy["transaction_bytes"]) == ([160, 80], None, 4096)
    assert (copy["in_bounds"], copy["out_of_bounds"]) == (40 * 20, 64 * 32 - 40 * 20)
    values, inside = np.array(tile["values"]), np.array(tile["inside"]).reshape(32, 64)
    column, row = np.array(tile["coordinates"]).T.reshape(2, 32, 64)
    assert np.array_equal(values, np.where(inside, (200 * row + column) % 2048, 0))
    shared = np.frombuffer(bytes.fromhex(tile["shared"]), np.float16)
    assert np.array_equal(shared[np.array(tile["shared_byte"]) // 2].reshape(32, 64), values)


def test_json_of_values_that_json_has_not(invoke: Invoke) -> None:
    text = invoke(*_arguments("BFLOAT16 with NaN", "--json")).stdout
    values = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))["tile"]["values"]
    assert values[0][0] == "nan"
    assert values[-1][0] == (24 * 3 + 16) % 256


def test_random_elements_depend_on_the_seed_and_the_element_alone(invoke: Invoke) -> None:
    def values(*more: str) -> npt.NDArray[np.float64]:
        arguments = ("simulate", bytes(_encoded("swizzled")).hex(), "--data", "random", "--json")
        return np.array(json.loads(invoke(*arguments, *more).stdout)["tile"]["values"])

    one = values("--at", "64,32")
    assert np.array_equal(one[1:, 8:], values("--at", "72,33")[:-1, :-8])
    assert not np.array_equal(one, values("--at", "64,32", "--seed", "1"))
    assert -1 <= one.min() < -0.9
    assert 0.9 < one.max() <= 1
    assert abs(one.mean()) < 0.05


def test_gathered_rows(invoke: Invoke, tmp_path: Path) -> None:
    tensor_map = tma.Tiled(data_type="FLOAT32", global_address=ADDRESS, global_dim=(64, 100), box_dim=(32, 1))
    array = np.arange(6400, dtype=np.float32).reshape(100, 64)
    np.save(tmp_path / "x.npy", array)
    source = bytes(tensor_map.encode("sm_100a")).hex()
    arguments = ("simulate", source, "--at", "32", "--rows", "3,50,99,100", "--input", str(tmp_path / "x.npy"))
    found = json.loads(invoke(*arguments, "--json").stdout)
    assert found["mode"] == "tile::gather4"
    expected = np.vstack([array[[3, 50, 99], 32:], np.zeros((1, 32), np.float32)])
    assert np.array_equal(found["tile"]["values"], expected)
    result = invoke("simulate", source, "--at", "0", "--rows", "9,8,7,6", "--direction", "store", "-o", "npy")
    stored = np.load(io.BytesIO(result.stdout_bytes))
    assert np.array_equal(stored[[9, 8, 7, 6], :32], np.arange(128).reshape(4, 32))
    assert np.count_nonzero(stored) == 127


def test_what_a_load_saves_can_be_stored_again(invoke: Invoke, tmp_path: Path) -> None:
    array = np.random.default_rng(5).integers(0, 2**16, (100, 200)).astype(np.uint16)
    np.save(tmp_path / "x.npy", array)
    invoke(*_arguments("swizzled", "--input", str(tmp_path / "x.npy"), "--save", str(tmp_path / "shared.npy")))
    arguments = _arguments("swizzled", "--direction", "store", "--tile", str(tmp_path / "shared.npy"), "-o", "npy")
    stored = np.load(io.BytesIO(invoke(*arguments).stdout_bytes)).view(np.uint16)
    expected = np.zeros_like(array)
    expected[80:, 160:] = array[80:, 160:]
    assert np.array_equal(stored, expected)


def test_a_tile_of_elements_is_stored_through_the_swizzle(invoke: Invoke, tmp_path: Path) -> None:
    tile = np.random.default_rng(6).normal(size=(32, 64)).astype(np.float16)
    np.save(tmp_path / "tile.npy", tile)
    before = np.ones((100, 200), np.float16)
    np.save(tmp_path / "x.npy", before)
    after = tmp_path / "after.npy"
    result = invoke(
        "simulate", bytes(_encoded("swizzled")).hex(), "--at", "64,32", "--direction", "store", "--input",
        str(tmp_path / "x.npy"), "--tile", str(tmp_path / "tile.npy"), "--save", str(after),
    )  # fmt: skip
    assert result.exit_code == 0
    expected = before.copy()
    expected[32:64, 64:128] = tile
    assert np.array_equal(np.load(after), expected)
    assert np.array_equal(np.load(tmp_path / "x.npy"), before)


def test_a_reduction_adds_to_the_tensor(invoke: Invoke, tmp_path: Path) -> None:
    p = tma.Tiled(data_type="UINT32", global_address=ADDRESS, global_dim=(8, 4), box_dim=(4, 2))
    source = bytes(p.encode()).hex()
    before = np.arange(32, dtype=np.uint32).reshape(4, 8)
    np.save(tmp_path / "x.npy", before)
    arguments = ("simulate", source, "--at", "4,2", "--direction", "reduce", "--input", str(tmp_path / "x.npy"))
    expected = before.copy()
    expected[2:, 4:] += np.arange(8, dtype=np.uint32).reshape(2, 4)
    assert np.array_equal(np.load(io.BytesIO(invoke(*arguments, "-o", "npy").stdout_bytes)), expected)
    result = invoke(*arguments, "--op", "frobnicate")
    assert result.exit_code == 2
    assert "there are add, min, max" in result.stderr


def test_bytes_past_the_rows_are_told(invoke: Invoke) -> None:
    source = bytes(tma.Tiled(data_type="UINT8", global_address=0, global_dim=(100,), box_dim=(64,)).encode()).hex()
    result = invoke("simulate", source, "--at", "64", "--direction", "store")
    assert re.search(r"past the rows +12 B are written", result.stdout)
    assert "past the rows" not in invoke("simulate", source, "--at", "0", "--direction", "store").stdout


def test_a_fault_is_told_in_words_and_ends_with_one(invoke: Invoke, source: Path) -> None:
    result = invoke("simulate", str(source), "--at", "65,0")
    assert result.exit_code == 1
    assert "the kernel dies" in result.stdout
    assert "start at 64 or 72" in " ".join(result.stdout.split())
    assert max(map(len, result.stdout.splitlines())) <= 80
    found = json.loads(invoke("simulate", str(source), "--at", "65,0", "--shared-offset", "64", "--json").stdout)
    fault = found["copies"][0]["fault"]
    assert (fault["kind"], fault["rules"]) == ("IllegalInstruction", ["start-inner-multiple", "tile-alignment"])
    assert "tile" not in found


def test_stores_below_zero_die_and_loads_do_not(invoke: Invoke, source: Path) -> None:
    assert invoke("simulate", str(source), "--at", "-64,-8").exit_code == 0
    result = invoke("simulate", str(source), "--at", "-64,-8", "--direction", "store")
    assert result.exit_code == 1
    assert "stores must start at 0 or above" in " ".join(result.stdout.split())


def test_every_box_brings_every_element_once(invoke: Invoke) -> None:
    p = tma.Tiled(data_type="UINT8", global_address=0, global_dim=(48, 10), box_dim=(32, 6), element_strides=(1, 3))
    result = invoke("simulate", bytes(p.encode()).hex(), "--every-box", "--json")
    copies = json.loads(result.stdout)["copies"]
    assert [copy["start"] for copy in copies][:4] == [[0, 0], [32, 0], [0, 1], [32, 1]]
    assert sum(copy["in_bounds"] for copy in copies) == 480
    text = invoke("simulate", bytes(p.encode()).hex(), "--every-box", "--limit", "3").stdout
    assert "12 copies, 768 B for mbarriers" in text
    assert "… and 9 more" in text


def test_several_copies_of_which_one_dies(invoke: Invoke, source: Path, tmp_path: Path) -> None:
    result = invoke("simulate", str(source), "--at", "0,0", "--at", "1,0", "--save", str(tmp_path / "tiles.npy"))
    assert result.exit_code == 1
    rows = [line.split() for line in result.stdout.splitlines()]
    assert ["0,", "0", "4096", "2048", "0"] in rows
    assert ["1,", "0", "dies"] in rows
    assert "1 of them kill the kernel" in result.stdout
    tiles = np.load(tmp_path / "tiles.npy")
    assert tiles.shape == (2, 4096)
    assert tiles.any(axis=1).tolist() == [True, False]


def test_a_prefetch_moves_nothing_and_dies_as_a_load_does(invoke: Invoke, source: Path) -> None:
    result = invoke("simulate", str(source), "--direction", "prefetch", "--at", "0,0")
    assert result.exit_code == 0
    assert "shared memory" not in result.stdout.replace("shared memory into", "")
    assert invoke("simulate", str(source), "--direction", "prefetch", "--at", "1,0").exit_code == 1
    assert invoke("simulate", str(source), "--direction", "prefetch", "--save", "x.npy").exit_code == 2
    assert "tile" not in json.loads(invoke("simulate", str(source), "--direction", "prefetch", "--json").stdout)


def _drawn(text: str) -> list[str]:
    """The rows of cells of a picture."""
    lines = text.splitlines()
    first = next(i for i, line in enumerate(lines) if "across" in line) + 2
    last = next(i for i, line in enumerate(lines) if " moved" in line)
    return [line[re.match(r" *\d* ?", line).end() :] for line in lines[first:last]]


def test_a_picture_without_scaling_has_a_character_for_each_element(invoke: Invoke) -> None:
    p = tma.Tiled(data_type="FLOAT32", global_address=0, global_dim=(24, 9), box_dim=(12, 6), element_strides=(1, 2))
    result = invoke("simulate", bytes(p.encode()).hex(), "--at", "16,5")
    assert "not to scale" not in result.stdout
    cells = "".join(_drawn(result.stdout))
    assert (cells.count("#"), cells.count("x")) == (8 * 2, 12 * 3 - 8 * 2)
    assert cells.count(".") == 24 * 9 - 8 * 2


@pytest.mark.parametrize("start", ["0,0", "160,80", "-2147483648,2147483647", "2147483640,-2147483648", "80,40"])
@pytest.mark.parametrize("columns", ["40", "80"])
def test_pictures_of_any_start_fit_the_terminal(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch, source: Path, start: str, columns: str
) -> None:
    monkeypatch.setattr("shutil.get_terminal_size", lambda fallback: os.terminal_size((int(columns), 24)))
    result = invoke("simulate", str(source), "--at", start)
    assert result.exit_code == 0
    assert max(map(len, result.stdout.splitlines())) <= int(columns)
    assert ("#" in "".join(_drawn(result.stdout))) == (start in ("0,0", "160,80", "80,40"))


def test_a_map_comes_through_a_pipe(invoke: Invoke) -> None:
    raw = bytes(_encoded("swizzled"))
    piped = invoke("simulate", "-", "--at", "64,0", input=raw)
    assert piped.exit_code == 0
    assert piped.stdout == invoke("simulate", raw.hex(), "--at", "64,0").stdout


def test_an_array_comes_through_a_pipe(invoke: Invoke, source: Path) -> None:
    buffer = io.BytesIO()
    np.save(buffer, np.full((100, 200), 7, np.float16))
    result = invoke("simulate", str(source), "--input", "-", "--json", input=buffer.getvalue())
    assert set(np.array(json.loads(result.stdout)["tile"]["values"]).ravel()) == {7}


def test_memory_may_be_given_as_bytes(invoke: Invoke, tmp_path: Path) -> None:
    """As where elements share memory, and no array says what they hold."""
    p = tma.Tiled(
        data_type="UINT8", global_address=0, global_dim=(16, 8), global_strides=(0,), box_dim=(16, 8)
    )
    np.save(tmp_path / "x.npy", np.arange(128, dtype=np.uint8).reshape(8, 16))
    source = bytes(p.encode()).hex()
    result = invoke("simulate", source, "--input", str(tmp_path / "x.npy"))
    assert result.exit_code == 2
    assert "share memory" in " ".join(result.stderr.split())
    np.save(tmp_path / "x.npy", np.arange(16, dtype=np.uint8))
    result = invoke("simulate", source, "--input", str(tmp_path / "x.npy"), "--json")
    assert json.loads(result.stdout)["tile"]["values"] == [list(range(16))] * 8


def test_an_array_of_the_other_byte_order_is_the_same_array(invoke: Invoke, source: Path, tmp_path: Path) -> None:
    array = np.arange(20000).reshape(100, 200).astype("f2")
    outputs = []
    for dtype in ("<f2", ">f2"):
        np.save(tmp_path / "x.npy", array.astype(dtype))
        outputs.append(invoke("simulate", str(source), "--input", str(tmp_path / "x.npy"), "--json").stdout)
    assert outputs[0] == outputs[1]


@pytest.mark.parametrize(
    ("name", "kind"), [("swizzled", "tile"), ("interleaved", "tile"), ("packed", "tile"), ("im2col", "im2col")]
)
def test_svg_of_a_copy(invoke: Invoke, tmp_path: Path, name: str, kind: str) -> None:
    from cupytma import view

    drawn = {"tile": lambda: view.tile(_encoded(name), STARTS[name]),
             "im2col": lambda: view.im2col(_encoded(name), STARTS[name], OFFSETS[name])}[kind]()  # fmt: skip
    result = invoke(*_arguments(name, "--picture", str(tmp_path / "copy.svg")))
    assert result.exit_code == 0
    assert (tmp_path / "copy.svg").read_text() == drawn.svg
    assert invoke(*_arguments(name, "--picture", "-")).stdout.strip() == drawn.svg.strip()


def test_svg_of_a_gather_and_a_scatter(invoke: Invoke, tmp_path: Path) -> None:
    p = tma.Tiled(data_type="FLOAT32", global_address=ADDRESS, global_dim=(64, 100), box_dim=(32, 1))
    arguments = ("simulate", bytes(p.encode("sm_100a")).hex(), "--at", "32", "--rows", "3,50,99,7", "--picture", "-")
    gathered = invoke(*arguments).stdout
    assert gathered.startswith("<svg")
    assert invoke(*arguments, "--direction", "store").stdout == gathered


def test_there_is_no_picture_of_a_copy_that_dies(invoke: Invoke, source: Path, tmp_path: Path) -> None:
    result = invoke("simulate", str(source), "--at", "1,0", "--picture", str(tmp_path / "copy.svg"))
    assert result.exit_code == 1
    assert "there is no picture" in result.stderr
    assert not (tmp_path / "copy.svg").exists()
    result = invoke("simulate", str(source), "--at", "1,0", "--save", "-")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "the kernel dies: illegal instruction" in " ".join(result.stderr.split())


def test_floats_of_another_type_are_taken_bit_by_bit_with_a_warning(invoke: Invoke, tmp_path: Path) -> None:
    array = np.random.default_rng(2).normal(size=(12, 24)).astype(np.float16)
    source = bytes(_encoded("BFLOAT16 with NaN")).hex()
    outputs = []
    for given, warned in ((array, True), (array.view(np.uint16), False), (array.view("V2"), False)):
        np.save(tmp_path / "x.npy", given)
        result = invoke("simulate", source, "--input", str(tmp_path / "x.npy"), "--json")
        assert ("holds float16, whose bits are taken for bfloat16" in " ".join(result.stderr.split())) == warned
        outputs.append(result.stdout)
    assert len(set(outputs)) == 1


def test_an_array_in_fortran_order_is_the_same_array(invoke: Invoke, source: Path, tmp_path: Path) -> None:
    array = np.arange(20000).reshape(100, 200).astype(np.float16)
    np.save(tmp_path / "x.npy", np.asfortranarray(array))
    result = invoke("simulate", str(source), "--at", "64,32", "--input", str(tmp_path / "x.npy"), "--json")
    assert np.array_equal(json.loads(result.stdout)["tile"]["values"], array[32:64, 64:128])
