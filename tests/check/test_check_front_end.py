"""PTX as text to modules, values and paths."""

from __future__ import annotations

import pytest

from cupytma.check.events import Unit, functions_with_family
from cupytma.check.flow import Flow, immediate_dominators
from cupytma.check.levels import Level
from cupytma.check.module import Module, read_module
from cupytma.check.ranges import bounds, trailing_zeros
from cupytma.check.regions import may_be_one, region_of
from cupytma.check.values import Value, Values

HEAD = ".version 8.6\n.target sm_90a, debug\n.address_size 64\n"


def module(body: str, before: str = "", parameters: str = ".param .u64 p, .param .align 64 .b8 map[128]") -> Module:
    return read_module(f"{HEAD}{before}\n.visible .entry k({parameters})\n.maxntid 256, 1, 1\n{{\n{body}\n}}\n")


def unit(body: str, before: str = "") -> Unit:
    read = module(body, before)
    return Unit(read, read.functions[0], functions_with_family(read))


def values(body: str, before: str = "") -> Values:
    return unit(body, before).values


def test_the_head_of_a_module_is_read() -> None:
    read = module("ret;", ".extern .shared .align 128 .b8 tiles[];\n.global .align 4 .u32 n = 3;")
    assert (read.version, read.target) == ((8, 6), "sm_90a")
    assert (read.variables["tiles"].alignment, read.variables["tiles"].size, read.variables["tiles"].is_extern) == (
        128, None, True,
    )  # fmt: skip
    assert read.variables["n"].size == 4
    (function,) = read.functions
    assert function.is_entry
    assert [(p.name, p.alignment, p.size) for p in function.parameters] == [("p", 8, 8), ("map", 64, 128)]
    assert function.numbers_of("maxntid") == (256, 1, 1)
    assert function.numbers_of("reqnctapercluster") is None


def test_declarations_and_functions_that_are_called_are_told_apart() -> None:
    read = read_module(
        HEAD + ".extern .func (.param .b32 r) other (.param .b64 a)\n;\n.func mine(.param .b64 a)\n{\n ret;\n}\n"
        ".entry k()\n{\n call.uni (r), other, (a);\n}\n"
    )
    assert [(f.name, f.is_entry) for f in read.functions] == [("mine", False), ("k", True)]
    assert read.functions[1].statements[0].arguments == ("(r)", "other", "(a)")


@pytest.mark.parametrize(
    "text",
    [
        "add.s32 %r1, %r2, 3; // a comment; with a semicolon",
        "add.s32\t%r1,\n\t%r2,\n 3;",
        "/* before */ add.s32 %r1, %r2, 3;",
        "{ .reg .pred q; add.s32 %r1, %r2, 3; }",
        "label: add.s32 %r1, %r2, 3;",
    ],
)
def test_a_statement_is_read_however_it_is_laid_out(text: str) -> None:
    (statement,) = module(text).functions[0].statements
    assert (statement.opcode, statement.arguments) == ("add.s32", ("%r1", "%r2", "3"))


def test_vectors_and_addresses_are_one_argument() -> None:
    (statement,) = module("ld.shared.v4.u32 {%r1, %r2, %r3, %r4}, [%r5+16];").functions[0].statements
    assert statement.arguments == ("{%r1, %r2, %r3, %r4}", "[%r5+16]")


def test_guards_and_double_colons_are_read() -> None:
    first, second = module(
        "@!%p1 fence.proxy.async.shared::cta;\n@ %p2 mbarrier.arrive.shared::cta.b64 _, [%r1];"
    ).functions[0].statements
    assert (first.guard, first.negated, first.opcode) == ("%p1", True, "fence.proxy.async.shared::cta")
    assert (second.guard, second.negated) == ("%p2", False)


def test_registers_of_inner_scopes_are_their_own() -> None:
    statements = module(
        "{ .reg .b32 q; mov.b32 q, 1; }\n{ .reg .b32 q; mov.b32 q, 2; { .reg .b32 q; mov.b32 q, 3; } mov.b32 %r1, q; }"
    ).functions[0].statements
    names = [statement.arguments[0] for statement in statements[:3]]
    assert len(set(names)) == 3
    assert statements[3].arguments[1] == names[1]


def test_labels_of_inner_scopes_are_their_own() -> None:
    function = module("{ L: bra L; }\n{ bra L;\n L: ret; }").functions[0]
    first, second = (s for s in function.statements if s.opcode == "bra")
    assert function.target_of("L", first.scope) == 0
    assert function.target_of("L", second.scope) == 2


def test_places_follow_the_inlining() -> None:
    read = module(
        ".loc 1 3 0\n mov.u32 %r1, 1;\n.loc 1 7 9\n.loc 2 40 5, function_name $L, inlined_at 1 7 9\n"
        ".loc 3 90 1, function_name $M, inlined_at 2 40 5\n mov.u32 %r2, 2;",
    )
    assert read.functions[0].place == (1, 3, 0)
    assert read.functions[0].statements[1].places == ((3, 90, 1), (2, 40, 5), (1, 7, 9))


def test_values_are_followed_to_what_they_are_made_of() -> None:
    known = values(
        "mov.u64 %rd1, tile;\n cvt.u32.u64 %r1, %rd1;\n mov.u32 %r2, 0;\n add.s32 %r3, %r1, %r2;\n"
        "add.s32 %r4, %r3, 64;\n mov.u32 %r5, %tid.x;\n mad.lo.s32 %r6, %r5, 4, %r4;\n sub.s32 %r7, %r6, %r4;\n"
        "or.b32 %r8, %r4, 3;\n shl.b32 %r9, %r5, 3;\n add.s32 %r10, %r6, %r9;",
        ".shared .align 128 .b8 tile[4096];",
    )
    assert known.of("%r4").constant == 64
    assert known.terms(known.of("%r4"))[0][0].data == ("shared", "tile")
    assert known.of("%r7") == known.of("%r9")._replace(terms=frozenset({(known.symbol("special", "tid.x"), 4)}))
    assert known.of("%r8").constant == 67  # the variable's alignment leaves the low bits free
    assert trailing_zeros(known, known.of("%r4")) == 6
    assert bounds(known, known.of("%r9")) == (0, 8 * 1023)


def test_each_use_has_the_writes_that_reach_it() -> None:
    read = unit(
        "mov.u32 %r1, 5;\n mov.u32 %r2, %r1;\n mov.u32 %r1, 7;\n mov.u32 %r3, %r1;\n"
        "setp.eq.s32 %p1, %r9, 0;\n @%p1 bra L;\n mov.u32 %r1, 8;\nL: mov.u32 %r4, %r1;"
    )
    known = {s.arguments[0].partition("__")[0]: s for s in read.function.statements if s.opcode.startswith("mov")}
    assert read.values.of(known["%r2"].arguments[1]).constant == 5
    assert read.values.of(known["%r3"].arguments[1]).constant == 7
    assert not read.values.of(known["%r4"].arguments[1]).is_constant


def test_an_address_rounded_up_has_its_alignment() -> None:
    known = values(
        "mov.u32 %r1, tiles;\n neg.s32 %r2, %r1;\n and.b32 %r3, %r2, 1008;\n add.s32 %r4, %r1, %r3;\n"
        "add.s32 %r5, %r4, 512;",
        ".extern .shared .align 16 .b8 tiles[];",
    )
    assert trailing_zeros(known, known.of("%r4")) == 10
    assert trailing_zeros(known, known.of("%r5")) == 9
    region = region_of(known, known.of("%r5"))
    assert region is not None
    assert not region.is_indexed


@pytest.mark.parametrize(("first", "second", "same"), [(0, 8, False), (8, 8, True)])
def test_places_that_differ_by_a_constant_are_not_one(first: int, second: int, same: bool) -> None:
    known = values("mov.u32 %r1, bars;", ".shared .align 8 .b8 bars[64];")
    own = known.of("%r1")
    regions = [region_of(known, Value(own.terms, constant)) for constant in (first, second)]
    assert regions[0] is not None
    assert regions[1] is not None
    assert may_be_one(known, regions[0], regions[1]) is same


def test_a_remainder_is_known_to_be_small() -> None:
    known = values(
        "ld.global.u32 %r1, [%rd9];\n mul.wide.u32 %rd1, %r1, -1431655765;\n shr.u64 %rd2, %rd1, 33;\n"
        "cvt.u32.u64 %r2, %rd2;\n mul.lo.s32 %r3, %r2, 3;\n sub.s32 %r4, %r1, %r3;\n shl.b32 %r5, %r4, 3;"
    )
    assert bounds(known, known.of("%r5")) == (0, 16)


def test_levels_tell_blocks_warps_and_lanes_apart() -> None:
    read = unit(
        "mov.u32 %r1, %tid.x;\n shr.u32 %r2, %r1, 5;\n and.b32 %r3, %r1, 31;\n mov.u32 %r4, %ctaid.x;\n"
        "setp.lt.u32 %p1, %r1, 64;\n setp.eq.s32 %p2, %r1, 0;\n setp.eq.s32 %p3, %r2, 1;\n"
        "elect.sync _|%p4, 0xffffffff;\n shfl.sync.idx.b32 %r5|%p5, %r1, 0, 31, -1;\n ld.shared.u32 %r6, [%r4];"
    )
    levels = read.levels
    assert [levels.of(name) for name in ("%r1", "%r2", "%r3", "%r4", "%r5", "%r6")] == [
        Level.LANE, Level.WARP, Level.LANE, Level.BLOCK, Level.WARP, Level.BLOCK,
    ]  # fmt: skip
    assert [levels.of(name) for name in ("%p1", "%p2", "%p3", "%p4")] == [
        Level.WARP, Level.LANE, Level.WARP, Level.LANE,
    ]  # fmt: skip


def test_a_thread_keeps_its_role_along_a_path() -> None:
    read = unit(
        "mov.u32 %r1, %tid.x;\n setp.ne.s32 %p1, %r1, 0;\n @%p1 bra A;\n cp.async.bulk.commit_group;\nA: bar.sync 0;\n"
        "setp.eq.s32 %p2, %r1, 0;\n @%p2 bra B;\n ret;\nB: cp.async.bulk.wait_group 0;\n ret;"
    )
    commit, wait = read.of_kind("bulk_commit_group", "bulk_wait_group")
    facts = {commit.block: [(commit.number, 0, 1)], wait.block: [(wait.number, 0, 0)]}
    assert read.paths.arriving(facts)[wait.number] == [1]  # who waits has committed


def test_flow_knows_loops_and_what_blocks_depend_on() -> None:
    function = module(
        "L: setp.eq.s32 %p1, %r1, 0;\n @%p1 bra M;\n add.s32 %r1, %r1, 1;\n"
        "M: setp.eq.s32 %p2, %r1, 9;\n @%p2 bra L;\n ret;"
    ).functions[0]
    flow = Flow(function)
    assert [sorted(loop) for loop in flow.loops] == [[0, 1, 2]]
    assert {edge.predicate for edge in flow.conditions(1)} == {"%p1", "%p2"}
    assert flow.runs_each_time(2, flow.loops[0])
    assert not flow.runs_each_time(1, flow.loops[0])


def test_branches_through_a_table_go_to_all_of_its_labels() -> None:
    function = module(
        "brx.idx %r1, T;\nT: .branchtargets A, B;\nA: ret;\nB: ret;"
    ).functions[0]
    assert len(Flow(function).successors[0]) == 2


def test_dominators_of_a_diamond() -> None:
    assert immediate_dominators([[1, 2], [3], [3], []], 0) == [0, 0, 0, 0]
    assert immediate_dominators([[1], [2], [1], []], 0) == [0, 0, 1, -1]


def test_all_dynamic_shared_memory_begins_at_one_address() -> None:
    known = values(
        "mov.u32 %r1, bytes;\n mov.u32 %r2, barriers;",
        ".extern .shared .align 16 .b8 bytes[];\n.extern .shared .align 128 .b64 barriers[];",
    )
    assert known.of("%r1") == known.of("%r2")
    assert trailing_zeros(known, known.of("%r1")) == 7
