"""The compilers' documents as tables, their spellings as aliases, and the reports about instructions."""

from __future__ import annotations

import pytest

from cupytma import ptx
from cupytma.errors import EmissionError


def test_every_text_parses_to_its_own_form() -> None:
    for i in ptx.catalogue():
        assert ptx.parse(i.text) == i
        assert ptx.parse(i.text).notes == ()


@pytest.mark.parametrize(
    ("text", "form", "note"),
    [
        (
            "cp.async.bulk.tensor.2d.global.shared::cta.tile [%tmap, {%c0, %c1}], [%src];",
            ptx.tensor_store(rank=2),
            "bulk_group is mandatory",
        ),
        (
            "cp.async.bulk.tensor.2d.global.shared::cta.tile.max.bulk_group [%tmap, {%c0, %c1}], [%src];",
            ptx.tensor_reduce(rank=2, reduction="max"),
            "a reduction is cp.reduce",
        ),
        (
            "cp.async.bulk.prefetch.tensor.1d.global.tile [%tmap, {%c0}];",
            ptx.tensor_prefetch(rank=1),
            "names its level",
        ),
        (
            "cp.async.bulk.tensor.3d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes "
            "[%d], [%t, {%a, %b, %c}], [%m];",
            ptx.tensor_load(rank=3, mode="im2col"),
            "offsets",
        ),
        (
            "cp.async.bulk.tensor.3d.global.shared::cta.im2col.bulk_group.L2::cache_hint [%t, {%a, %b, %c}], [%s], %h;",
            ptx.tensor_store(rank=3, mode="im2col_no_offs", cache_hint=True),
            "im2col_no_offs",
        ),
        (
            "cp.async.bulk.tensor.2d.tile::gather4.shared::cta.global.mbarrier::complete_tx::bytes [$0], "
            "[$1, {$2, $3, $4, $5, $6}], [$7];",
            ptx.tensor_load(rank=2, mode="tile::gather4", destination="shared::cta"),
            "documented order",
        ),
        (
            "tensormap.cp.async.shared::cta.bulk_group [%d], [%s];",
            ptx.tensormap_cp_fenceproxy(scope="cta"),
            "there is no",
        ),
        (
            "tensormap.replace.tile.global_address [%t], %a;",
            ptx.tensormap_replace(field="global_address", space="generic"),
            "widths",
        ),
        (
            "tensormap.replace.tile.box_dim.2 [%t], %d;",
            ptx.tensormap_replace(field="box_dim", space="generic", ordinal=2),
            "second operand",
        ),
        (
            "tensormap.replace.tile.swizzle [%t], 3;",
            ptx.tensormap_replace(field="swizzle_mode", space="generic", value=3),
            "swizzle_mode",
        ),
        ("mbarrier.inval.shared.b64 [%r1];", ptx.mbarrier_inval(), ".shared means .shared::cta"),
        (
            "wgmma.mma_async.sync.aligned.m64n8k32.s32.s8.s8.satfinite {%0, %1, %2, %3}, %4, %5, %6;",
            ptx.wgmma_mma_async(n=8, a_type="s8", satfinite=True),
            "documented order",
        ),
    ],
)
def test_aliases_are_read_with_a_note(text: str, form: ptx.Instruction, note: str) -> None:
    found = ptx.parse(text)
    assert found == form
    assert any(note in line for line in found.notes)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (ptx.tensor_load(rank=2).text.replace(";", ", %5;"), "A mask needs the modifier .multicast::cluster"),
        (
            ptx.tensor_load(rank=2, cache_hint=True).text.replace(", %5;", ";"),
            ".L2::cache_hint needs its operand, the cache hint",
        ),
        ("fence.proxy.async.shared;", "bare .shared is refused"),
        (
            "tensormap.replace.tile.global_stride.global.b1024.b64 [%t], 4, %v;",
            "ordinal=4 is out of range; legal: 0 to 3",
        ),
        (
            "cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile::scatter4.bulk_group "
            "[%t, {%a, %b, %c, %d, %e}], [%s];",
            "loses the reduction",
        ),
        ("mov.u32 %r1, %r2;", "is no instruction of the family"),
        ("ld.shared.u32 %r1, [%r2];", "is no instruction of the family"),
        ("cp.async.ca.shared.global [%r1], [%rd1], 16;", "is no instruction of the family"),
    ],
)
def test_parse_refuses_with_what_would_fit(text: str, message: str) -> None:
    with pytest.raises(EmissionError) as refusal:
        ptx.parse(text)
    assert message in str(refusal.value)


def test_explain_says_units_alignment_completion_and_who_may_wait() -> None:
    load = ptx.explain(
        "@%p1 cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes "
        "[%r1], [%rd1, {%r2, %r3}], [%r4];"
    )
    waiting = "threads of the block whose shared memory holds the mbarrier may wait"
    for part in ("elements", "128 bytes", waiting, "PTX 8.6"):
        assert part in load
    assert "Only that thread may wait" in ptx.explain(ptx.tensor_store(rank=1))
    assert "no thread can wait" in ptx.explain(ptx.tensor_prefetch(rank=1))


def test_enumerations_and_operand_classes() -> None:
    assert [m.value for m in (ptx.TmaLoadMode.NO_MULTICAST, ptx.TmaLoadMode.TWO_CTA)] == [0, 1]
    assert [m.value for m in (ptx.TmaLoadMode.W_MULTICAST, ptx.TmaLoadMode.W128_MULTICAST)] == [2, 3]
    assert [m.name for m in ptx.TmaStoreMode] == ["TILED", "IM2COL", "IM2COL_W", "IM2COL_W128"]
    assert [k.name.lower() for k in ptx.ReductionKind] == list(ptx.REDUCTIONS)
    assert ptx.OPERAND_CLASSES == {
        "tensor_map": "l", "cache_policy": "l", "coordinate": "r", "im2col_offset": "h", "cta_mask": "h"
    }  # fmt: skip
    for i in ptx.catalogue():
        for o in i.operands:
            name = o.name.rstrip("0123456789").rstrip("_")
            if name in ptx.OPERAND_CLASSES and not o.is_output and i.family.startswith("tensor_"):
                assert o.constraint == ptx.OPERAND_CLASSES[name]
    assert ptx.load_mode(ptx.tensor_load(rank=2, cta_group=2)) == ptx.TmaLoadMode.TWO_CTA
    assert ptx.store_mode(ptx.tensor_store(rank=3, mode="im2col_no_offs")) == ptx.TmaStoreMode.IM2COL
    assert ptx.reduction_kind(ptx.tensor_reduce(rank=1, reduction="xor")) == 7
    assert ptx.tensor_load(rank=2).index_of("tensor_map") == ptx.DESCRIPTOR_POSITION["load"]
    assert ptx.tensor_store(rank=2).index_of("tensor_map") == ptx.DESCRIPTOR_POSITION["store"]


def test_verifier_invariants() -> None:
    assert all(ptx.verify(i) == () for i in ptx.catalogue())
    form = ptx.tensor_load(rank=2, multicast=True, cache_hint=True)
    types = ["ptr addrspace(3)", "ptr", "i32", "i32", "ptr addrspace(3)", "i16", "i64"]
    assert ptx.verify(form, types) == ()
    assert "multicastEnable is set" in ptx.verify(form, types[:5])[0]
    assert "cacheHintEnable is set" in ptx.verify(form, types[:6])[0]
    assert ptx.verify(form, ["ptr", *types[1:]]) == ("destination is in address space 3, not ptr",)
    assert (
        "cacheHintEnable is not set"
        in ptx.verify(ptx.tensor_store(rank=1), ["ptr", "i32", "ptr addrspace(3)", "i64"])[0]
    )


def test_the_verifier_takes_a_global_pointer_for_the_map_alone() -> None:
    shared, pointer, tensor_map = "ptr addrspace(3)", "ptr addrspace(1)", "ptr addrspace(1)"
    load, store = ptx.tensor_load(rank=1), ptx.tensor_store(rank=1)
    assert ptx.verify(load, [shared, tensor_map, "i32", shared]) == ()
    assert ptx.verify(store, [tensor_map, "i32", shared]) == ()
    assert ptx.verify(load, [pointer, tensor_map, "i32", shared]) == (
        "destination is in address space 3, not ptr addrspace(1)",
    )
    assert ptx.verify(store, [shared, "i32", shared]) == ("tensor_map has type ptr, not ptr addrspace(3)",)


def test_the_verifier_takes_llvms_pointer_to_the_cluster_where_it_may_point_there() -> None:
    shared, cluster = "ptr addrspace(3)", "ptr addrspace(7)"
    assert ptx.verify(ptx.tensor_load(rank=1), [cluster, "ptr", "i32", shared]) == ()
    own = ptx.tensor_load(rank=1, destination="shared::cta")
    assert ptx.verify(own, [cluster, "ptr", "i32", shared]) == (
        "destination is in address space 3, not ptr addrspace(7)",
    )
    assert ptx.verify(ptx.tensor_store(rank=1), ["ptr", "i32", cluster]) == (
        "source is in address space 3, not ptr addrspace(7)",
    )


@pytest.mark.parametrize("count", [1, 3])
def test_the_verifier_counts_coordinates(count: int) -> None:
    coordinates = ["i32"] * count
    message = f"{count} coordinate{'s' * (count != 1)} given for rank 2"
    load = ptx.tensor_load(rank=2, cache_hint=True)
    shared = "ptr addrspace(3)"
    assert ptx.verify(load, [shared, "ptr", *coordinates, shared, "i64"]) == (message,)
    assert ptx.verify(ptx.tensor_store(rank=2), ["ptr", *coordinates, shared]) == (message,)
    assert ptx.verify(ptx.tensor_prefetch(rank=2), ["ptr", *coordinates]) == (message,)
    gather = ptx.tensor_load(rank=2, mode="tile::gather4")
    assert ptx.verify(gather, [shared, "ptr", *["i32"] * 4, shared]) == (
        "4 coordinates given for tile::gather4, which takes 5",
    )
    assert "i64" in ptx.verify(ptx.tensor_store(rank=2), ["ptr", "i32", "i64", shared])[0]


STORE = "global.shared::cta"


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        (
            f"cp.async.bulk.tensor.2d.{STORE}.tile.bulk_group [%t, {{%a}}], [%s];",
            ("1 coordinate given for rank 2",),
        ),
        (
            f"cp.async.bulk.tensor.6d.{STORE}.tile.bulk_group [%t, {{%a, %b, %c, %d, %e, %f}}], [%s];",
            ("a tensor copy has rank 1 to 5, not 6",),
        ),
        (
            f"cp.async.bulk.tensor.2d.{STORE}.im2col_no_offs.bulk_group [%t, {{%a, %b}}], [%s];",
            ("an im2col form has rank 3, 4 or 5, not 2",),
        ),
        (
            f"cp.reduce.async.bulk.tensor.1d.{STORE}.mul.tile.bulk_group [%t, {{%a}}], [%s];",
            ("redop 'mul' is none of add, min, max, inc, dec, and, or, xor",),
        ),
        (
            f"cp.reduce.async.bulk.tensor.2d.{STORE}.mul.tile.bulk_group [%t, {{%a}}], [%s];",
            ("1 coordinate given for rank 2", "redop 'mul' is none of add, min, max, inc, dec, and, or, xor"),
        ),
    ],
)
def test_the_verifier_reports_broken_text(text: str, problems: tuple[str, ...]) -> None:
    assert ptx.verify(text) == problems


def test_the_verifier_raises_for_text_of_another_kind() -> None:
    with pytest.raises(EmissionError, match="no instruction of the family"):
        ptx.verify("mov.u32 %r1, %r2;")


def test_report_int16_reduction() -> None:
    with pytest.raises(EmissionError, match=r"add exists for u32, s32, u64, f16, bf16, f32.*s16 has no reduction"):
        ptx.tensor_reduce(rank=2, reduction="add", data_type="INT16")
    assert ptx.reduction_table()["inc"] == ("u32",)


def test_report_shared_cta_on_12_6() -> None:
    wanted = ptx.tensor_load(rank=2, destination="shared::cta")
    assert ptx.spell(wanted, ptx_version="8.5") == ptx.tensor_load(rank=2) == ptx.spell(wanted, toolkit="12.6")
    assert ptx.spell(wanted, ptx_version="8.6") is wanted
    with pytest.raises(EmissionError, match=r"needs PTX 8\.6 \(CUDA 12\.8\), not 8\.5"):
        ptx.spell(ptx.tensor_load(rank=2, mode="tile::gather4", destination="shared::cta"), toolkit="12.6")
    with pytest.raises(EmissionError, match="sm_90a does not have it"):
        ptx.spell(ptx.tensor_load(rank=2, cta_group=2), target="sm_90a")
    assert ptx.spell(ptx.tensor_load(rank=2, cta_group=1), target="sm_90a") == ptx.tensor_load(rank=2)


def test_a_toolkit_older_than_the_target_has_no_spelling() -> None:
    load = ptx.tensor_load(rank=2)
    with pytest.raises(EmissionError, match=r"sm_103a needs PTX 8\.8 \(CUDA 12\.9\), not 8\.5"):
        ptx.spell(load, target="sm_103a", toolkit="12.6")
    assert ptx.spell(load, target="sm_103a", toolkit="12.9") is load
    assert ptx.spell(load, target="sm_90a", toolkit="12.0") is load


def test_one_version_is_given_and_none_is_negative() -> None:
    load = ptx.tensor_load(rank=2)
    with pytest.raises(EmissionError, match="toolkit clashes with ptx_version"):
        ptx.spell(load, toolkit="12.6", ptx_version="9.0")
    with pytest.raises(EmissionError, match="is no PTX version"):
        ptx.spell(load, ptx_version=(8, -5))
