"""The table of reductions that the instructions are checked by, held against the unit that was measured."""

from __future__ import annotations

import numpy as np
import pytest

from cupytma import DataType, Tiled, ptx, sim
from cupytma.errors import EmissionError
from cupytma.ptx.reductions import check_reduction


@pytest.mark.parametrize("data_type", [one for one in DataType if one <= DataType.TFLOAT32_FTZ])
@pytest.mark.parametrize("reduction", ptx.REDUCTIONS)
def test_a_reduction_is_in_the_table_where_the_unit_does_it(reduction: str, data_type: DataType) -> None:
    m = Tiled(data_type=data_type, global_address=0, global_dim=(16,), box_dim=(16,)).encode()
    memory, shared = np.zeros(128, np.uint8), np.zeros(128, np.uint8)
    try:
        sim.reduce(m, reduction, (0,), memory=memory, base=0, shared=shared)
        done = True
    except (sim.Fault, sim.NotSimulatedError):
        done = False
    try:
        check_reduction(reduction, data_type)
        listed = True
    except EmissionError:
        listed = False
    assert listed == done
