"""``cupytma check``: what it prints of kernels and of tensor maps, its formats, and how it ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from invoking import Invoke

import cupytma as tma
from cupytma.check import RULES

pytest.importorskip("cuda.bindings.nvrtc", reason="needs cuda-python and NVRTC")

BAD, GOOD = RULES["proxy-fence-missing"].bad, RULES["proxy-fence-missing"].good
MAP = tma.Tiled(data_type="FLOAT32", global_address=0, global_dim=(64, 64), box_dim=(16, 16)).encode()


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    path = tmp_path / "kernel.cu"
    path.write_text(BAD)
    return path


def test_an_error_is_one_line_with_its_place_and_a_fix_below(invoke: Invoke, kernel: Path) -> None:
    result = invoke("check", str(kernel))
    first, second, *rest = result.stdout.splitlines()
    assert first.startswith(f"{kernel}:")
    assert " error: " in first
    assert first.endswith("[proxy-fence-missing]")
    assert second.strip().startswith("fix: ")
    assert rest[-2:] == ["More: cupytma help proxy-fence-missing", "1 error"]
    assert result.exit_code == 1


def test_a_right_kernel_ends_well(invoke: Invoke, kernel: Path) -> None:
    kernel.write_text(GOOD)
    result = invoke("check", str(kernel))
    assert (result.exit_code, result.stdout) == (0, "nothing found\n")


def test_warnings_fail_where_that_is_asked_for(invoke: Invoke, kernel: Path) -> None:
    kernel.write_text(RULES["exit-in-flight"].bad)
    assert invoke("check", str(kernel)).exit_code == 0
    assert invoke("check", str(kernel), "--strict").exit_code == 1


def test_ptx_is_read_from_standard_input(invoke: Invoke) -> None:
    result = invoke("check", "-", input=tma.compile(BAD, "sm_90a").ptx)
    assert result.stdout.startswith("stdin:")
    assert result.exit_code == 1


def test_source_is_read_from_standard_input(invoke: Invoke) -> None:
    result = invoke("check", "-", "--target", "sm_100a", input=BAD)
    assert result.stdout.startswith("stdin:")
    assert result.exit_code == 1


def test_a_tensor_map_makes_counts_exact(invoke: Invoke, tmp_path: Path) -> None:
    source, binary = tmp_path / "kernel.cu", tmp_path / "map.bin"
    source.write_text(RULES["load-never-waited"].good)
    binary.write_bytes(bytes(MAP))
    assert invoke("check", str(source)).exit_code == 0
    result = invoke("check", str(source), "--tensormap", f"map={binary}")
    assert "4096 bytes are expected" in result.stdout
    assert result.exit_code == 1
    assert invoke("check", str(source), "--tensormap", f"0={binary}").exit_code == 1


def test_macros_reach_the_compiler(invoke: Invoke, kernel: Path) -> None:
    kernel.write_text("#ifdef WRONG\n" + BAD + "#endif\n")
    assert invoke("check", str(kernel)).exit_code == 0
    assert invoke("check", str(kernel), "-D", "WRONG").exit_code == 1


def test_json_and_sarif_are_one_document_each(invoke: Invoke, kernel: Path) -> None:
    result = invoke("check", str(kernel), "--json")
    assert [row["rule"] for row in json.loads(result.stdout)] == ["proxy-fence-missing"]
    assert result.exit_code == 1
    log = json.loads(invoke("check", str(kernel), "--sarif").stdout)
    assert log["runs"][0]["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == str(kernel)
    assert invoke("check", str(kernel), "--json", "--sarif").exit_code == 2


def test_the_rules_are_listed(invoke: Invoke) -> None:
    listed = invoke("check", "--rules")
    assert all(name in listed.stdout for name in RULES)
    assert max(map(len, listed.stdout.splitlines())) <= 80
    assert [row["id"] for row in json.loads(invoke("check", "--rules", "--json").stdout)] == list(RULES)


def test_a_tensor_map_is_checked_as_one(invoke: Invoke, tmp_path: Path) -> None:
    binary = tmp_path / "map.bin"
    binary.write_bytes(bytes(MAP))
    result = invoke("check", str(binary))
    assert (result.exit_code, result.stdout) == (0, "a legal tensor map\n")
    wrong = MAP.replace_raw("box_dim", 3, ordinal=0)
    result = invoke("check", "-", input=bytes(wrong).hex())
    assert result.exit_code == 1
    assert "fix: " in result.stdout
    assert isinstance(json.loads(invoke("check", "-", "--json", input=bytes(wrong).hex()).stdout), (list, dict))


@pytest.mark.parametrize(
    ("arguments", "text", "said"),
    [
        ((), None, "nothing to check"),
        (("/nowhere/at/all.cu",), None, "cannot read"),
        (("-",), "extern __global__ void k() { nonsense; }", "nonsense"),
        (("-",), "neither this nor that", "no"),
        (("-",), "", "no"),
        (("-", "--tensormap", "0"), ".version 8.0\n.target sm_90a\n", "0=map.bin"),
        (("-", "--tensormap", "0=/nowhere"), ".version 8.0\n.target sm_90a\n", "cannot read"),
        (("-", "--target", "sm_80"), BAD, "sm_80"),
        (("-", "--sarif"), bytes(MAP).hex(), "--sarif and --tensormap are for kernels"),
    ],
)
def test_what_cannot_be_checked_ends_with_two(
    invoke: Invoke, arguments: tuple[str, ...], text: str | None, said: str
) -> None:
    result = invoke("check", *arguments, input=text)
    assert result.exit_code == 2
    assert said in result.stderr


def test_templates_are_checked_in_the_instances_that_are_named(invoke: Invoke, kernel: Path) -> None:
    kernel.write_text(BAD.replace('extern "C" __global__', "template <int N> __global__"))
    result = invoke("check", str(kernel))
    assert (result.exit_code, result.stdout) == (0, "nothing found\n")
    assert "Warning: templates" in result.stderr
    result = invoke("check", str(kernel), "--name", "kernel<3>")
    assert (result.exit_code, result.stderr) == (1, "")


def test_several_files_are_checked_and_each_finding_says_where_it_is(invoke: Invoke, tmp_path: Path) -> None:
    names = ["bad.cu", "good.cu", "map.bin", "ptx.ptx"]
    bad, good, binary, ptx = (tmp_path / name for name in names)
    bad.write_text(BAD)
    good.write_text(GOOD)
    binary.write_bytes(bytes(MAP.replace_raw("box_dim", 3, ordinal=0)))
    ptx.write_text(tma.compile(BAD, "sm_90a").ptx)
    files = [str(path) for path in (bad, good, binary, ptx)]
    result = invoke("check", *files)
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert [line for line in lines if "[proxy-fence-missing]" in line] == [
        line for path in (bad, ptx) for line in lines if line.startswith(f"{path}:")
    ]
    assert any(line.startswith(f"{binary}: no driver would make") for line in lines)
    assert lines[-1] == "4 files: 2 errors, 1 illegal tensor map"
    rows = json.loads(invoke("check", *files, "--json").stdout)
    assert [row["file"] for row in rows] == files
    assert [len(row.get("findings", row.get("violations"))) > 0 for row in rows] == [True, False, True, True]
    assert invoke("check", str(good), str(good)).stdout == "2 files: nothing found\n"


def test_a_file_that_cannot_be_checked_keeps_no_other_from_it(invoke: Invoke, kernel: Path) -> None:
    result = invoke("check", "/nowhere/at/all.cu", str(kernel))
    assert result.exit_code == 2
    assert "Error: /nowhere/at/all.cu: cannot read" in result.stderr
    assert result.stdout.splitlines()[-1] == "2 files: 1 error, 1 not checked"
    rows = json.loads(invoke("check", "/nowhere/at/all.cu", str(kernel), "--json").stdout)
    assert ["error" in row for row in rows] == [True, False]
    assert invoke("check", "-", "-", input=BAD).exit_code == 2


def test_findings_of_several_files_are_one_sarif_log(invoke: Invoke, kernel: Path, tmp_path: Path) -> None:
    ptx = tmp_path / "kernel.ptx"
    ptx.write_text(tma.compile(BAD, "sm_90a").ptx)
    (run,) = json.loads(invoke("check", str(kernel), str(ptx), "--sarif").stdout)["runs"]
    places = [found["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for found in run["results"]]
    assert places == [str(kernel), str(ptx)]
