"""Numbers in the place of registers: what the assembler refuses is refused, and what it changes is told."""

from __future__ import annotations

import pytest
from assembler import assemblers

from cupytma import ptx
from cupytma.errors import EmissionError

CUDA_12_9 = assemblers().get((12, 9))
LOAD = "cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
BYTES = "cp.async.bulk.global.shared::cta.bulk_group [l0], [r0], "
PARITY = "mbarrier.try_wait.parity.shared::cta.b64 "
ARRIVE = "mbarrier.arrive.shared::cta.b64 "
POLICY = "createpolicy.fractional.L2::evict_last.b64 l0, "

TAKEN = (
    f"{LOAD} [r0 + 16], [l0, {{-8}}], [r1 + 8];",
    f"{LOAD}.multicast::cluster [r0], [l0, {{r3}}], [r1], 0xffff;",
    *(f"{BYTES}{number};" for number in ("0", "16", "0x400", "1048560")),
    *(f"{PARITY}p0, [r0], {number};" for number in ("0", "1")),
    *(f"{ARRIVE}l0, [r0], {number};" for number in ("1", "1048575")),
    *(f"{POLICY}{number};" for number in ("1.0", "0.25", "5.0e-1", "0f3F800000", "0d3FE0000000000000")),
    "elect.sync r0|p0, 0xffffffff;",
)
REFUSED = (
    (f"{LOAD} [r0], [l0 + 16, {{r2}}], [r1];", "tensor_map='l0+16': an address beside coordinates takes no offset"),
    (f"{LOAD} [r0], [l0, {{1.0}}], [r1];", "coordinate_0='1.0' is no integer"),
    (f"{LOAD}.multicast::cluster [r0], [l0, {{r3}}], [r1], 1.0;", "cta_mask='1.0' is no integer"),
    *((f"{BYTES}{n};", "legal: 0 to 1048560 in steps of 16") for n in ("1", "17", "-16", "1048576")),
    (f"{PARITY}p0, [r0], 2;", "parity='2' is out of range; legal: 0 or 1"),
    (f"{PARITY}!p0, [r0], 1;", "wait_complete='!p0' is negated; an output is a register"),
    (f"{ARRIVE}0, [r0];", "state='0' is a number; only a register can be here"),
    (f"{ARRIVE}l0, [r0], 0;", "count='0' is out of range; legal: 1 to 1048575"),
    *((f"{POLICY}{n};", "legal: above 0, up to 1.0") for n in ("0.0", "1.5", "-0.5", "0f00000000", "0f40000000")),
    (f"{POLICY}1;", "fraction='1' is no float"),
    ("stmatrix.sync.aligned.m8n8.x1.shared::cta.b16 [r0], {0};", "r_0='0' is a number; only a register"),
)


def assembles(text: str) -> bool:
    assert CUDA_12_9 is not None
    return CUDA_12_9.refused([text], "sm_90a") == {}


@pytest.mark.parametrize("text", TAKEN)
def test_what_the_assembler_takes_is_read(text: str) -> None:
    assert ptx.parse(text).notes == ()
    assert CUDA_12_9 is None or assembles(text)


@pytest.mark.parametrize(("text", "message"), REFUSED)
def test_what_the_assembler_refuses_is_refused_with_what_is_legal(text: str, message: str) -> None:
    with pytest.raises(EmissionError) as refusal:
        ptx.parse(text)
    assert message in str(refusal.value)
    assert CUDA_12_9 is None or not assembles(text)


@pytest.mark.parametrize(
    ("text", "note"),
    [
        (f"{LOAD}.multicast::cluster [r0], [l0, {{r3}}], [r1], 65536;", "cta_mask has 16 bits"),
        (f"{LOAD} [r0], [l0, {{4294967296}}], [r1];", "coordinate_0 has 32 bits"),
    ],
)
def test_a_number_that_the_assembler_cuts_is_read_with_a_note(text: str, note: str) -> None:
    assert note in ptx.parse(text).notes[0]
    assert note in ptx.explain(text)
    assert CUDA_12_9 is None or assembles(text)


def test_more_arrivals_than_an_mbarrier_counts_are_refused_although_they_assemble() -> None:
    for text in (f"{ARRIVE}l0, [r0], 1048576;", "mbarrier.init.shared::cta.b64 [r0], 0;"):
        with pytest.raises(EmissionError, match=r"is out of range; legal: 1 to 1048575"):
            ptx.parse(text)
        assert CUDA_12_9 is None or assembles(text)


@pytest.mark.parametrize(
    "form", [ptx.fence_proxy_tensormap_acquire(scope="gpu"), ptx.tensormap_cp_fenceproxy(scope="gpu")]
)
def test_a_placeholder_for_the_size_of_a_tensor_map_is_read_with_a_note(form: ptx.Instruction) -> None:
    count = len(form.operands)
    found = ptx.parse(form.text.replace("128;", f"%{count};"))
    assert found == form
    assert found.notes == (f'%{count} stands for the constant 128, with the constraint "n"',)
    with pytest.raises(EmissionError, match="do not fit"):
        ptx.parse(form.text.replace("128;", "%r2;"))
