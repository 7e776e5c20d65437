"""The cards of what the simulator and the planner found, and of parameters."""

from __future__ import annotations

import pickle
from html import unescape

import numpy as np
import pytest
from test_card import read

import cupytma as tma
from cupytma import check, ptx, sim
from cupytma.sim import examples


def _text(html: str) -> str:
    return " ".join(read(html).text)


def test_parameters_are_shown_with_every_rule_that_they_break():
    legal = tma.Tiled(data_type="FLOAT32", global_address=4096, global_dim=(16, 8), box_dim=(8, 4))
    text = _text(legal._repr_html_())
    assert "Parameters: tiled, rank 2, FLOAT32" in text
    assert "128 bytes" in text
    assert 'class="note' not in legal._repr_html_()
    illegal = tma.Tiled(data_type="FLOAT32", global_address=8, global_dim=(16, 8), box_dim=(300, 4))
    shown = illegal._repr_html_()
    assert shown.count('class="note bad"') == len(illegal.violations()) == 2
    for violation in illegal.violations():
        assert str(violation) in _text(shown)
    unknown = tma.Tiled(data_type=99, global_address=0, global_dim=(16, 8), global_strides=(64,), box_dim=(8, 4))
    assert "data-type" in _text(unknown._repr_html_())


def test_a_report_is_shown_with_every_finding():
    report = examples.prefetch_pipeline().without("wait for the load").run(schedules=10)
    html = report._repr_html_()
    text = _text(html)
    assert str(report).splitlines()[0] in text
    assert html.count('class="note bad"') == len(report.findings) > 1
    for finding in report.findings:
        assert finding.message in text
        assert finding.fix in text
        assert all(str(place) in text for place in finding.places)
    clean = examples.tile_move().run(schedules=3)
    assert _text(clean._repr_html_()).split() == str(clean).split()


def test_advice_is_shown_with_every_swizzle_and_the_map_of_the_best():
    matrix = tma.Tiled(data_type="FLOAT32", global_address=0, global_dim=(64, 64), box_dim=(32, 32)).encode()
    advice = sim.best_swizzle(matrix, "column", access_bytes=16)
    html = advice._repr_html_()
    for result in advice.results:
        row = f"<td>{result.swizzle}</td><td>{result.conflicts}</td><td>{result.worst}</td><td>{result.wavefronts}</td>"
        assert row in html
    for swizzle, broken in advice.illegal.items():
        assert f"<td>{swizzle}</td>" in html
        assert broken[0].message in unescape(html)
    assert html.count("recommended") == 1
    assert tma.view.swizzle(advice.swizzle).svg in html


def test_a_plan_is_shown_with_its_loads():
    plan = tma.plan_boxes(np.zeros((512, 512), np.float32), (300, 72))
    html = plan._repr_html_()
    text = _text(html)
    assert f"Tile 72 × 300: {len(plan.loads)} loads" in text
    assert f"{plan.transaction_bytes} bytes" in text
    for load in plan.loads:
        assert f"<td>{load.shared_offset}</td><td>{load.bytes}</td>" in html
    many = tma.plan_boxes(np.zeros((64, 8192), np.uint8), (16, 8192))
    assert ("32 of" in _text(many._repr_html_())) == (len(many.loads) > 32)


@pytest.mark.parametrize("form", [ptx.catalogue()[0], ptx.catalogue()[-1], ptx.bulk_commit_group(), ptx.mapa()])
def test_an_instruction_is_shown_with_all_that_explain_says(form):
    text = _text(form._repr_html_()).split()
    said = ptx.explain(form).replace("Completed by", "").replace("; exists on", "").replace("Needs", "")
    words = {word.strip("().;:,%") for word in said.split()}
    assert words - {word.strip("().;:,%") for word in text} <= {"Source", "constant", ""}
    assert " ".join(form.function().split()) in " ".join(text)


def test_a_recipe_is_shown_step_by_step():
    for recipe in ptx.RECIPES.values():
        html = unescape(recipe._repr_html_())
        assert recipe.summary in html
        for number, step in enumerate(recipe.steps, 1):
            first = step.instruction.text if step.instruction else ""
            assert f"<td>{number}</td><td>{step.who}</td><td>{first}</td>" in html


def test_what_is_printed_in_lines_is_shown_in_them():
    m = tma.Tiled(data_type="FLOAT32", global_address=0, global_dim=(64, 64), box_dim=(32, 32), swizzle="128B").encode()
    report = examples.prefetch_pipeline().without("wait for the load").run(schedules=3)
    shown = [
        m.slots()[4], sim.bank_conflicts(m, "column"), *sim.grid_faults(m, lambda x, y, z: (x, 0), 2),
        check.Finding("a-rule", "error", "a <message>", "a fix", "kernel", "a.cu", 3, 1, 40),
        *tma.Tiled(data_type="FLOAT32", global_address=8, global_dim=(8, 8), box_dim=(4, 4)).violations(),
        *report.findings[:1],
    ]  # fmt: skip
    assert len(shown) == 6
    for thing in shown[:-1]:
        assert _text(thing._repr_html_()).split() == str(thing).split()
    assert report.findings[0].fix in _text(report.findings[0]._repr_html_())


def test_tuples_of_what_was_found_are_shown_as_they_are_printed():
    illegal = tma.Tiled(data_type="FLOAT32", global_address=8, global_dim=(16, 8), box_dim=(300, 4))
    short = tma.Tiled(data_type="FLOAT32", global_address=0, global_dim=(13, 8), global_strides=(64,), box_dim=(8, 4))
    rule = check.RULES["commit-group-missing"]
    for found in (
        illegal.violations(), short.warnings(), short.faults((1, 0)), short.encode().slots(),
        check.check_cuda(rule.bad, rule.target), sim.grid_faults(short.encode(), lambda x, y, z: (3 * x, 0), 4),
    ):  # fmt: skip
        assert isinstance(found, tuple)
        assert len(found) >= 1
        shown = _text(found._repr_html_())
        assert shown.split() == " ".join(map(str, found)).split()
        assert repr(found) == repr(tuple(found))
        assert pickle.loads(pickle.dumps(illegal.violations())) == illegal.violations()
    nothing = sim.grid_faults(short.encode(), lambda x, y, z: (4 * x, 0), 4)
    assert nothing == ()
    assert nothing._repr_html_() is None
