"""What all targets have in common stands in one place, and is what descriptors' rules and launches go by."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

import cupytma as tma
from cupytma import limits

ROOT = Path(limits.__file__).parent
NAMES = {name for name in vars(limits) if name.isupper()}


def test_no_other_module_gives_a_limit_a_value_of_its_own() -> None:
    found = []
    for path in ROOT.rglob("*.py"):
        if path == Path(limits.__file__):
            continue
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            targets = node.targets if isinstance(node, ast.Assign) else []
            names = {name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)}
            found += [f"{path.name}: {name}" for name in names if name.lstrip("_") in NAMES]
    assert not found


def tiled(**changed: Any) -> tma.Tiled:
    given = {"global_dim": (4096, 4096), "box_dim": (16, 16), "global_strides": (4096,)}
    return tma.Tiled(data_type="UINT8", **{"global_address": 1 << 20, **given, **changed})


@pytest.mark.parametrize(
    ("most", "beyond"),
    [
        ({"box_dim": (limits.MAX_BOX, 16)}, {"box_dim": (limits.MAX_BOX + limits.UNIT, 16)}),
        ({"box_dim": (16, limits.MAX_BOX)}, {"box_dim": (16, limits.MAX_BOX + 1)}),
        ({"global_strides": (4096 + limits.UNIT,)}, {"global_strides": (4096 + limits.UNIT // 2,)}),
        ({"global_strides": (limits.STRIDE_LIMIT - limits.UNIT,)}, {"global_strides": (limits.STRIDE_LIMIT,)}),
        ({"global_address": limits.ADDRESS_LIMIT - (1 << 24)}, {"global_address": limits.ADDRESS_LIMIT}),
        ({"box_dim": (limits.UNIT, 16)}, {"box_dim": (limits.UNIT // 2, 16)}),
        (
            {"global_dim": (16,) * limits.MAX_RANK, "box_dim": (16,) * 2 + (1,) * (limits.MAX_RANK - 2),
             "global_strides": tuple(16**i for i in range(1, limits.MAX_RANK))},
            {"global_dim": (16,) * (limits.MAX_RANK + 1), "box_dim": (16,) * 2 + (1,) * (limits.MAX_RANK - 1),
             "global_strides": tuple(16**i for i in range(1, limits.MAX_RANK + 1))},
        ),
        (
            {"global_dim": (4096, 4096, 64), "global_strides": (4096, 1 << 24),
             "box_dim": (256, 228, limits.MULTIPROCESSOR_SHARED_BYTES // 256 // 228)},
            {"global_dim": (4096, 4096, 64), "global_strides": (4096, 1 << 24),
             "box_dim": (256, 229, limits.MULTIPROCESSOR_SHARED_BYTES // 256 // 228)},
        ),
    ],
    ids=["inner box", "outer box", "stride unit", "stride", "address", "inner bytes", "rank", "box bytes"],
)  # fmt: skip
def test_the_rules_of_descriptors_have_the_same_limits(most: dict[str, Any], beyond: dict[str, Any]) -> None:
    assert not tiled(**most).violations()
    assert tiled(**beyond).violations()


def test_the_swizzles_period_is_that_of_the_simulator() -> None:
    offsets = range(0, 4 * limits.SWIZZLE_PERIOD, 16)
    for swizzle in tma.Swizzle:
        moved = [int(tma.sim.swizzle_address(offset, swizzle)) - offset for offset in offsets]
        period = limits.SWIZZLE_PERIOD // 16
        assert moved == moved[:period] * 4
    half = limits.SWIZZLE_PERIOD // 32
    moved = [int(tma.sim.swizzle_address(offset, "128B")) - offset for offset in offsets]
    assert moved[:half] != moved[half : 2 * half]
