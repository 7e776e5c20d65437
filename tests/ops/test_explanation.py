"""The planners say how and why."""

from __future__ import annotations

import doctest
import inspect
from math import prod

import numpy as np
import pytest

import cupytma as tma
from cupytma.errors import ArrayError
from cupytma.ops import explain, explanation, simulate_col2im, simulate_gather_rows, simulate_im2col
from cupytma.ops.copy_plan import plan_copy
from cupytma.ops.explained_parts import BULK, MAPS, WORDS, Machine
from cupytma.ops.launch_size import LaunchSize
from cupytma.targets import target
from cupytma.tensormap.arrays import ArrayView, view_of


def aligned(*shape: int, offset: int = 0) -> np.ndarray:
    """Zeros of float32, that many bytes after the beginning of a line of memory."""
    buffer = np.zeros(4 * prod(shape) + 256, np.uint8)
    start = -buffer.ctypes.data % 128 + offset
    return buffer[start : start + 4 * prod(shape)].view(np.float32).reshape(shape)


BASE = aligned(256, 512)
LARGE = aligned(8192, 2048)
IMAGE = np.zeros((2, 12, 12, 64), np.float16)
TABLE = np.zeros((400, 256), np.float32)
INDEX = np.zeros(100, np.int64)
ROWS = "rows as they are, in boxes between tensor loads and stores"


@pytest.mark.parametrize(
    ("operation", "source", "arguments", "path", "reason"),
    [
        (tma.copy, LARGE, (), "one run, in bulk copies", ""),
        (tma.copy, BASE, (), "word by word, 16 B each", "a run of 524288 B is short"),
        (tma.copy, aligned(8192, 2048, offset=16), (), ROWS, ""),
        (tma.copy, BASE[:, :501], (np.zeros((256, 504), np.float32)[:, :501],), ROWS, "rounds the end"),
        (tma.copy, aligned(1000, offset=4), (), "in aligned granules of 16 B", "source address is"),
        (tma.copy, aligned(15, offset=4), (), "word by word, 4 B each", "source address is"),
        (tma.copy, BASE[:, ::2], (), "word by word", "only 4 B lie together"),
        (tma.copy, BASE[:, :60], (), "word by word, 16 B each", "rows of 240 B are short"),
        (tma.copy, aligned(8, 601)[:, :600], (), "in aligned granules of 16 B", "no multiple of 16"),
        (tma.transpose, BASE, (), "swizzled tiles", ""),
        (tma.transpose, np.zeros((256, 511), np.float32), (), "tiles of shared memory", "no multiple of 16"),
        (tma.permute, np.zeros((8, 64, 128), np.float16), ((1, 0, 2),), ROWS, ""),
        (tma.permute, np.zeros((8, 64, 64), np.float16), ((1, 0, 2),), "word by word, 16 B each", "are short"),
        (tma.permute, np.zeros((64, 3, 64), np.float16), ((2, 1, 0),), "swizzled tiles", ""),
        (tma.flip, BASE, (0,), "word by word", "outside 0"),
        (tma.roll, LARGE, (3, 0), "one run, in bulk copies", "24576 B is short"),
        (tma.roll, LARGE, (1032,), ROWS, "run"),
        (tma.gather_rows, TABLE[:100], (INDEX,), "2 rows in a tile, by bulk loads and bulk stores", ""),
        (tma.gather_rows, np.zeros((100, 3)), (INDEX,), "moved word by word", "multiples of 8 B"),
        (tma.fill, BASE, (1,), "one value everywhere", ""),
    ],
)  # fmt: skip
def test_the_way_and_the_rule_that_forced_it_are_named(operation, source, arguments, path: str, reason: str) -> None:
    found = explain(operation, source, *arguments)
    assert path in found.parts[0].path
    assert all(reason in text for text in found.reasons)
    assert bool(reason) == bool(found.reasons)
    assert found.bytes_by_unit + found.bytes_otherwise == source.nbytes
    assert (found.bytes_by_unit > 0) == any(part.through in (MAPS, BULK) for part in found.parts)
    assert all(text in str(found) for text in (path, reason, str(found.bytes_otherwise), operation.__name__))


def test_a_copy_and_its_row_ends_are_two_parts_of_one_launch() -> None:
    source, out = BASE[:, :501], np.zeros((256, 504), np.float32)[:, :501]
    found = explain(tma.copy, source, out)
    body, tail = found.parts
    assert (body.name, body.through, tail.name, tail.through) == ("body", MAPS, "tail", WORDS)
    assert (body.bytes, tail.bytes) == (256 * 500 * 4, 256 * 4)
    assert found.launches == 1
    assert body.box_dim == plan_copy(view_of(source), view_of(out)).tiles.box_dim
    assert "in the same launch" in str(found)


@pytest.mark.parametrize(
    ("operation", "arguments", "options", "names", "through"),
    [
        (tma.im2col, (IMAGE, 3), {"padding": 1}, ("columns",), (MAPS,)),
        (tma.im2col, (IMAGE, (3, 3)), {"stride": 9}, ("columns",), (WORDS,)),
        (tma.im2col, (IMAGE,), {"kernel_size": 1, "layout": "NCHW"}, ("channels brought last", "columns"), None),
        (tma.im2col, (IMAGE.transpose(0, 3, 1, 2), 3), {"layout": "NCHW"}, ("columns",), (MAPS,)),
        (tma.col2im, (np.zeros((200, 576), "f4"), (2, 12, 12, 64), 3), {}, ("zeros", "sums"), (WORDS, MAPS)),
        (tma.col2im, (np.zeros((200, 576), "i2"), (2, 12, 12, 64), 3), {}, ("sums",), (WORDS,)),
        (tma.pad, (IMAGE, ((0, 0), (1, 1), (1, 1), (0, 0))), {}, ("inside and borders",), (MAPS,)),
        (tma.pad, (IMAGE, ((0, 0), (1, 1), (0, 0), (0, 0)), 2), {}, ("inside", "border", "border"), None),
        (tma.flip, (LARGE,), {"axes": ()}, ("body",), (BULK,)),
        (tma.roll, (IMAGE, (1, 2)), {"axis": (1, 2)}, None, (MAPS,) * 4),
        (tma.fill, (BASE, 1.5), {}, ("body",), (WORDS,)),
        (tma.reduce_add, (BASE, aligned(256, 512)), {}, ("body",), (WORDS,)),
        (tma.reduce_add, (BASE, aligned(256, 512)), {"atomic": True}, ("body",), (MAPS,)),
        (tma.reduce_add, (BASE[0], aligned(64, 512)), {}, ("body",), (MAPS,)),
        (tma.reduce_max, (np.zeros(513, "i8"), np.zeros(513, "i8")), {"atomic": True}, ("body", "tail"), (MAPS, WORDS)),
        (tma.scatter_rows, (TABLE, INDEX, TABLE[:100].copy()), {"mode": "clip"}, ("body",), (BULK,)),
        (tma.scatter_add_rows, (TABLE, INDEX, TABLE[:100].copy()), {}, ("body",), (f"{BULK} and {MAPS}",)),
    ],
)
def test_each_operation_is_told_part_by_part(operation, arguments, options, names, through) -> None:
    found = explain(operation, *arguments, **options, stream=None)
    if names is not None:
        assert tuple(part.name for part in found.parts) == names
    if through is not None:
        assert tuple(part.through for part in found.parts) == through
    assert all(part.grid > 0 and part.bytes > 0 and part.path for part in found.parts)
    for part in found.parts:
        if part.through != WORDS:
            assert part.tiles > 0
            assert (part.stages > 0) == (part.blocks > 0), "a block for each piece of the work, or some that go on"
    assert found.operation == operation.__name__


def test_what_keeps_borders_and_columns_from_maps_is_named() -> None:
    assert "not of zeros" in explain(tma.pad, IMAGE, ((0, 0), (1, 1), (0, 0), (0, 0)), 2).reasons[0]
    assert "reach over 4 dimensions" in explain(tma.pad, IMAGE, 1).reasons[-1]
    assert "stride 9 exceeds" in explain(tma.im2col, IMAGE, 1, 9).reasons[0]
    assert "no tensor reduction adds int16" in str(explain(tma.col2im, np.zeros((288, 64), "i2"), IMAGE.shape, 1))


def test_rows_are_told_for_the_target() -> None:
    wide = np.zeros((4096, 256), np.float32)
    index = np.zeros(100_000, np.int64)
    planner = explanation._PLANNERS[tma.gather_rows]
    launches = planner(Machine(target("sm_100a"), 148), x=wide, index=index, out=None, mode="raise")
    assert "tile::gather4" in launches[0][0].path
    assert "not run on hardware" in launches[0][0].path
    assert launches[0][0].grid == launches[0][0].tiles == 100_000 // 4


# There the device makes the tensor maps, and what it finds decides; there is no plan to tell of.
PLANNED_ON_DEVICE = {"grouped_copy", "grouped_transpose", "ragged_gather", "ragged_scatter"}


def test_every_operation_that_takes_a_stream_is_explained() -> None:
    operations = {
        name for name in tma.ops.__all__
        if inspect.isfunction(found := getattr(tma.ops, name)) and "stream" in inspect.signature(found).parameters
    }  # fmt: skip
    assert operations - PLANNED_ON_DEVICE == {operation.__name__ for operation in explanation._PLANNERS}


@pytest.mark.parametrize(
    ("operation", "arguments"),
    [
        (tma.copy, (BASE[:0],)), (tma.fill, (BASE[:0], 1)), (tma.flip, (BASE[:0],)), (tma.roll, (BASE[:0], 1)),
        (tma.reduce_add, (BASE[:0], BASE[:0])), (tma.gather_rows, (TABLE, INDEX[:0])),
        (tma.im2col, (IMAGE[:0], 3)), (tma.scatter_rows, (TABLE, INDEX[:0], TABLE[:0])),
    ],
)  # fmt: skip
def test_of_empty_arrays_nothing_is_done(operation, arguments) -> None:
    found = explain(operation, *arguments)
    assert (found.parts, found.launches, found.bytes_by_unit, found.bytes_otherwise) == ((), 0, 0, 0)
    assert "nothing to do" in str(found)
    assert "nothing to do" in found._repr_html_()


@pytest.mark.parametrize(
    ("operation", "arguments", "options"),
    [
        (sum, (BASE,), {}), (None, (BASE,), {}), ([], (), {}), (tma.ops.explain, (BASE,), {}),
        (tma.permute, (BASE,), {}), (tma.permute, (BASE, (0, 0)), {}), (tma.copy, (BASE.T.copy(), BASE), {}),
        (tma.copy, (BASE, BASE, BASE), {}), (tma.copy, (), {}), (tma.copy, (BASE,), {"axes": 1}),
        (tma.copy, ("text",), {}), (tma.transpose, (INDEX,), {}), (tma.im2col, (IMAGE, 99), {}),
        (tma.pad, (BASE, -1), {}), (tma.pad, (BASE, 1), {"out": BASE}), (tma.flip, (BASE, 2), {}),
        (tma.flip, (BASE,), {"out": BASE}), (tma.fill, (BASE, None), {}), (tma.reduce_add, (None, BASE), {}),
        (tma.reduce_inc, (BASE, BASE), {}), (tma.gather_rows, (TABLE, TABLE), {}),
        (tma.gather_rows, (TABLE, INDEX), {"mode": None}), (tma.col2im, (BASE, IMAGE.shape, 3), {}),
        (tma.col2im, (BASE, None, 3), {}), (tma.roll, (BASE.T, 1), {}),
    ],
)  # fmt: skip
def test_what_cannot_be_explained_or_carried_out_is_refused(operation, arguments, options) -> None:
    with pytest.raises(ArrayError):
        explain(operation, *arguments, **options)


def test_results_that_may_not_be_written_are_refused() -> None:
    out = np.zeros_like(BASE)
    out.flags.writeable = False
    with pytest.raises(ArrayError, match="read-only"):
        explain(tma.flip, BASE, out=out)
    with pytest.raises(ArrayError, match="read-only"):
        explain(tma.fill, out, 1)


@pytest.mark.parametrize(("blocks", "grid"), [(2, 264), (4, 500), (0, 500)])
def test_grids_have_no_more_blocks_than_there_is_work_or_room(blocks: int, grid: int) -> None:
    assert LaunchSize(500, blocks, 32).grid(132) == grid


def test_arrays_that_do_not_exist_are_explained() -> None:
    huge = ArrayView(1 << 40, (1 << 20, 1 << 16), (1 << 18, 4), "float32", 4, None)
    found = explain(tma.transpose, huge)
    assert found.bytes_by_unit == 1 << 38
    assert found.parts[0].grid == 264


def test_notebooks_show_a_table_with_every_rule() -> None:
    found = explain(tma.copy, BASE[:, :501], np.zeros((256, 504), np.float32)[:, :501])
    page = found._repr_html_()
    assert page.count("<tr>") == 1 + len(found.parts)
    body = found.parts[0]
    launched, box = f"{body.grid} × {body.threads}", " × ".join(map(str, body.box_dim))
    for text in (found.parts[1].reason, "512,000", launched, f"{box} UINT64"):
        assert text in page


def test_the_example_of_the_documentation_is_what_comes_out() -> None:
    assert doctest.testmod(explanation).failed == 0


@pytest.mark.parametrize("strides", [(0,), (2,), (3,), (-2,)])
def test_elements_that_overlap_are_not_filled(strides: tuple[int, ...]) -> None:
    with pytest.raises(ArrayError, match="elements of the destination overlap"):
        explain(tma.fill, ArrayView(1 << 40, (9,), strides, "float32", 4, None), 1)


@pytest.mark.parametrize("operation", ["copy", BASE, None, 3], ids=lambda value: type(value).__name__)
def test_what_is_no_operation_is_told_how_to_ask(operation) -> None:
    with pytest.raises(ArrayError, match=r"as in explain\(copy, array\); these can: .*transpose") as found:
        explain(operation, BASE)
    assert "\n" not in str(found.value)


LONG = (10**5000, list(range(10**4)), np.zeros((8, 8, 8)), "a" * 10**4, {}, [[]])


@pytest.mark.parametrize("value", LONG, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize(
    ("operation", "arguments", "name"),
    [
        (tma.permute, (BASE,), "axes"), (tma.pad, (BASE,), "pad_width"), (tma.roll, (BASE, 1), "axis"),
        (tma.fill, (BASE,), "value"), (tma.im2col, (BASE[None, None],), "kernel_size"),
        (tma.multicast_copy, (BASE,), "copies"), (tma.reduce_add, (BASE, BASE), "atomic"),
        (tma.gather_rows, (BASE, np.zeros(3, "i8")), "mode"),
    ],
)  # fmt: skip
def test_errors_show_what_was_given_in_one_line_however_long_it_is(operation, arguments, name, value) -> None:
    parameters = list(inspect.signature(operation).parameters)
    given = {**dict(zip(parameters, arguments, strict=False)), name: value}
    with pytest.raises(ArrayError, match=f"{name} = ") as found:
        explain(operation, **given)
    assert len(str(found.value)) < 400
    assert "\n" not in str(found.value)


@pytest.mark.parametrize("value", [None, 3, "a", [[1], 2], object()], ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("simulate", [simulate_gather_rows, simulate_im2col, simulate_col2im])
def test_what_is_no_array_is_not_simulated(simulate, value) -> None:
    with pytest.raises(ArrayError, match="is no array"):
        simulate(value, value, 3)
