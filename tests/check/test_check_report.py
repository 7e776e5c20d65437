"""Findings as they reach people and programs: places, comments that take them back, functions, JSON and SARIF."""

from __future__ import annotations

import json

import pytest

from cupytma import check
from cupytma.check import RULES
from cupytma.check.examples import changed
from cupytma.check.report import as_json, as_sarif, rules_as_json
from cupytma.errors import KernelWarning

pytest.importorskip("cuda.bindings.nvrtc", reason="needs cuda-python and NVRTC")

BAD = RULES["proxy-fence-missing"].bad
LINE = next(number for number, text in enumerate(BAD.splitlines(), 1) if "tensor_store" in text)


def rules(source: str) -> set[str]:
    return {finding.rule for finding in check.check_cuda(source)}


def test_a_finding_is_at_the_line_of_the_call_in_the_source() -> None:
    (finding,) = check.check_cuda(BAD, file="folder/mine.cu")
    assert (finding.file, finding.line, finding.function) == ("folder/mine.cu", LINE, "kernel")
    assert "line 6" in finding.message  # where the tile is written
    assert "cupytma.cuh:" in finding.inlined[0]
    assert finding.inlined[-1].endswith(f"kernel.cu:{LINE}")


def test_without_line_information_it_is_at_the_line_of_the_ptx() -> None:
    import cupytma as tma

    ptx = tma.compile(BAD, "sm_90a").ptx
    (finding,) = check.check_ptx(ptx)
    assert finding.file == ""
    assert finding.line == finding.ptx_line
    assert "cp.async.bulk.tensor" in ptx.splitlines()[finding.line - 1]


@pytest.mark.parametrize(
    ("comment", "kept"),
    [
        ("// cupytma: ignore", False),
        ("// cupytma: ignore[proxy-fence-missing]", False),
        ("// cupytma:ignore[exit-in-flight, proxy-fence-missing] the tile is constant", False),
        ("// cupytma: ignore[exit-in-flight]", True),
        ("// ignore[proxy-fence-missing]", True),
    ],
)
@pytest.mark.parametrize("above", [False, True])
def test_a_comment_takes_a_finding_back(comment: str, kept: bool, above: bool) -> None:
    lines = BAD.split("\n")
    if above:
        lines.insert(LINE - 1, comment)
    else:
        lines[LINE - 1] += f"  {comment}"
    assert rules("\n".join(lines)) == ({"proxy-fence-missing"} if kept else set())


def test_a_comment_on_another_line_takes_nothing_back() -> None:
    assert rules(f"// cupytma: ignore\n{BAD}") == {"proxy-fence-missing"}


def test_comments_in_ptx_take_findings_back() -> None:
    text = RULES["map-misaligned"].bad
    assert {finding.rule for finding in check.check_ptx(text)} == {"map-misaligned"}
    assert check.check_ptx(changed(text, ("{0, 0}];", "{0, 0}]; // cupytma: ignore[map-misaligned]"))) == ()


FUNCTION = """#include <cupytma.cuh>
__device__ __noinline__ void {name}({parameters})
{{
{body}}}
"""


def test_what_a_called_function_does_is_not_guessed() -> None:
    """A wait, a commit or a fence may be in a function that is not inlined."""
    wait = FUNCTION.format(
        name="wait", parameters="unsigned long long* b", body="    cupytma::mbarrier_wait_parity(b, 0);\n"
    )
    good = RULES["load-never-waited"].good
    head, body = good.split("\n", 1)
    assert rules(wait + changed(body, ("cupytma::mbarrier_wait_parity(&loaded, 0)", "wait(&loaded)"))) == set()
    assert head == "#include <cupytma.cuh>"
    commit = FUNCTION.format(name="commit", parameters="", body="    cupytma::bulk_commit_group();\n")
    stored = RULES["proxy-fence-missing"].good.split("\n", 1)[1]
    assert rules(commit + changed(stored, ("cupytma::bulk_commit_group()", "commit()"))) == set()


def test_a_function_without_the_family_changes_nothing() -> None:
    other = FUNCTION.format(name="other", parameters="float* out", body="    out[threadIdx.x] *= 2;\n")
    body = changed(RULES["load-never-waited"].bad.split("\n", 1)[1], ("    out[", "    other(out);\n    out["))
    assert rules(other + body) == {"load-never-waited"}


def test_a_map_in_local_memory_is_followed_into_functions() -> None:
    load = FUNCTION.format(
        name="load", parameters="float* tile, const CUtensorMap& map, unsigned long long* loaded",
        body="    cupytma::tensor_load_2d(tile, &map, 0, 0, loaded);\n",
    )  # fmt: skip
    for name, expected in (("bad", {"map-in-local-memory"}), ("good", set())):
        text = getattr(RULES["map-in-local-memory"], name).split("\n", 1)[1]
        call = ("cupytma::tensor_load_2d(tile, &map, 0, 0, &loaded)", "load(tile, map, &loaded)")
        assert rules(load + changed(text, call)) == expected


def test_json_has_every_attribute() -> None:
    findings = check.check_cuda(BAD)
    (row,) = json.loads(json.dumps(as_json(findings)))
    assert row == {
        "rule": "proxy-fence-missing", "severity": "error", "message": findings[0].message, "fix": findings[0].fix,
        "function": "kernel", "file": "kernel.cu", "line": LINE, "column": findings[0].column,
        "ptx_line": findings[0].ptx_line, "inlined": list(findings[0].inlined),
    }  # fmt: skip
    assert [row["id"] for row in rules_as_json()] == list(RULES)
    assert {row["severity"] for row in rules_as_json()} == {"error", "warning", "note"}


def test_sarif_names_the_rule_the_place_and_the_level() -> None:
    log = json.loads(json.dumps(as_sarif(check.check_cuda(BAD, file="a b.cu"))))
    assert log["version"] == "2.1.0"
    (run,) = log["runs"]
    assert run["tool"]["driver"]["name"] == "cupytma"
    (result,) = run["results"]
    rule = run["tool"]["driver"]["rules"][result["ruleIndex"]]
    assert rule["id"] == result["ruleId"] == "proxy-fence-missing"
    assert rule["defaultConfiguration"]["level"] == result["level"] == "error"
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "a%20b.cu"
    assert place["region"]["startLine"] == LINE
    assert result["locations"][0]["logicalLocations"] == [{"name": "kernel", "kind": "function"}]


def test_sarif_of_nothing_is_a_run_without_results() -> None:
    assert as_sarif(()) == {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0",
        "runs": [{"tool": {"driver": as_sarif(())["runs"][0]["tool"]["driver"]}, "results": []}],
    }  # fmt: skip


def test_findings_come_in_the_order_of_lines() -> None:
    source = changed(RULES["exit-in-flight"].bad, ("    cupytma::fence_proxy_async_shared_cta();\n", ""))
    found = check.check_cuda(source)
    assert [finding.rule for finding in found] == ["exit-in-flight", "proxy-fence-missing"]
    assert [finding.line for finding in found] == sorted(finding.line for finding in found)


def test_templates_without_an_instance_are_said_to_be_passed_over() -> None:
    source = changed(BAD, ('extern "C" __global__', "template <int N> __global__"))
    with pytest.warns(KernelWarning, match="kernel<float>"):
        assert check.check_cuda(source) == ()
    assert [finding.rule for finding in check.check_cuda(source, name_expressions=["kernel<3>"])] == [
        "proxy-fence-missing"
    ]
