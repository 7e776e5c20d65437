"""Every form through the assemblers: accepted where a form claims to exist, refused everywhere else."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import Counter

import pytest
from assembler import NEW_NVRTC_VARIABLE, Assembler, assemblers

from cupytma import ptx
from cupytma.errors import EmissionError
from cupytma.ptx import Instruction, Operand
from cupytma.runtime.compiler import compile as compile_cuda
from cupytma.targets import TARGETS

CUDA_12_9 = assemblers().get((12, 9))
NEWER = max((version for version in assemblers() if version >= (13, 3)), default=None)
WGMMA = "wgmma_mma_async"


def concrete(i: Instruction) -> str:
    """The text with registers named by class and number, and the smallest legal immediates."""
    numbers: Counter[str] = Counter()
    names = []
    for o in i.operands:
        letter = "p" if o.is_predicate else o.constraint[-1]
        names.append(str(o.values[0]) if o.is_immediate and o.values else f"{letter}{numbers[letter]}")
        numbers[letter] += 1
    return re.sub(r"%(\d+)", lambda m: names[int(m[1])], i.text)


def unlike(assembler: Assembler, forms: tuple[Instruction, ...], target: str) -> list[str]:
    """The texts that the assembler refuses although they claim the target, or takes although they do not."""
    texts = {concrete(i): i.supported_on(target) and i.ptx_version <= assembler.ptx_version for i in forms}
    refused = assembler.refused(texts, target)
    return [
        f"{text} {refused.get(text, 'accepted')}" for text, claimed in texts.items() if claimed == (text in refused)
    ]


@pytest.mark.skipif(CUDA_12_9 is None, reason="needs the NVRTC 12.9 wheel, nvidia-cuda-nvrtc-cu12")
@pytest.mark.parametrize("target", CUDA_12_9.targets if CUDA_12_9 else ())
def test_a_target_has_exactly_the_forms_that_claim_it(target: str) -> None:
    assert CUDA_12_9 is not None
    assert unlike(CUDA_12_9, ptx.catalogue(), target) == []


IMMEDIATES = [
    i.bind(**{o.name: value for o in i.immediates})
    for i in ptx.catalogue()
    if i.family in ("tensormap_replace", "setmaxnreg") and len(i.immediates) == 1
    for o in i.immediates
    for value in o.values or ()
]


@pytest.mark.skipif(shutil.which("ptxas") is None, reason="ptxas is not installed")
@pytest.mark.parametrize("target", ["sm_110", "sm_110a"])
def test_a_target_that_12_9_lacks_has_exactly_the_immediates_that_claim_it(target: str) -> None:
    assert refused_lines(tuple(IMMEDIATES), (9, 0), target) == {
        i.text for i in IMMEDIATES if not i.supported_on(target)
    }


@pytest.mark.skipif(shutil.which("ptxas") is None, reason="ptxas is not installed")
@pytest.mark.parametrize(("target", "version"), [("sm_100a", (8, 6)), ("sm_100a", (8, 7)), ("sm_103a", (8, 8))])
def test_a_ptx_version_has_exactly_the_immediates_that_claim_it(target: str, version: tuple[int, int]) -> None:
    forms = tuple(i for i in IMMEDIATES if i.supported_on(target))
    assert refused_lines(forms, version, target) == {i.text for i in forms if i.ptx_version > version}


def test_a_bound_value_decides_about_targets_and_spellings() -> None:
    swizzle = ptx.tensormap_replace(field="swizzle_mode", value=4)
    assert [t.name for t in swizzle.targets] == ["sm_103a"]
    assert ptx.spell(swizzle, target="sm_103a") is swizzle
    with pytest.raises(EmissionError, match="sm_100a does not have it; targets that do: sm_103a"):
        ptx.spell(swizzle, target="sm_100a")
    packed = ptx.parse("tensormap.replace.tile.elemtype.global.b1024.b32 [%t], 13;")
    assert packed.supported_on("sm_120a")
    assert not packed.supported_on("sm_90a")
    assert not ptx.tensormap_replace(field="swizzle_atomicity", value=0).supported_on("sm_90a")


@pytest.mark.skipif(
    NEWER is None, reason=f"needs NVRTC 13.3 or newer: its wheel, or {NEW_NVRTC_VARIABLE}=libnvrtc.so.13"
)
@pytest.mark.parametrize("target", TARGETS)
def test_the_forms_of_newer_ptx_versions_on_the_newest_assembler(target: str) -> None:
    assert NEWER is not None
    # The newest assembler spends minutes on all shapes of wgmma, which no newer version has changed.
    forms = tuple(i for i in ptx.catalogue() if i.family != WGMMA or not i.supported_on(target))
    assert unlike(assemblers()[NEWER], forms, target) == []


def refused_lines(forms: tuple[Instruction, ...], version: tuple[int, int], target: str) -> set[str]:
    """The texts that ptxas refuses in a module of a PTX ISA version."""
    lines = [
        f".version {version[0]}.{version[1]}",
        f".target {target}",
        ".address_size 64",
        ".visible .entry k() .maxntid 128, 1, 1 .minnctapersm 1 {",
        ".reg .b16 h<40>; .reg .b32 r<300>; .reg .b64 l<40>; .reg .pred p<40>; .reg .f32 f<300>;",
    ]
    at = {}
    for i in forms:
        lines.append(concrete(i))
        at[len(lines)] = i.text
    program = "\n".join([*lines, "ret; }"])
    command = ["ptxas", "-arch", target, "-o", "/dev/null", "-"]
    done = subprocess.run(command, input=program, capture_output=True, text=True, check=False)
    refused = {at[int(line)] for line in re.findall(r"line (\d+); error", done.stderr)}
    assert bool(refused) == bool(done.returncode), done.stderr
    return refused


@pytest.mark.skipif(shutil.which("ptxas") is None, reason="ptxas is not installed")
@pytest.mark.parametrize(
    ("target", "version"),
    [
        *(("sm_90", v) for v in ((7, 8), (8, 0), (8, 2), (8, 3), (8, 5), (8, 6), (8, 8), (9, 0))),
        ("sm_90a", (8, 0)),
        ("sm_90a", (8, 3)),
        ("sm_100a", (8, 6)),
        ("sm_103a", (8, 8)),
    ],
)
def test_a_ptx_version_has_exactly_the_forms_that_claim_it(target: str, version: tuple[int, int]) -> None:
    # ptxas takes fence.acquire and fence.release in modules of any version; the assemblers before CUDA 12.8 do not.
    lenient = [i for i in ptx.catalogue() if i.family == "fence" and i.ptx_version == (8, 6)]
    forms = tuple(i for i in ptx.catalogue() if i.supported_on(target) and i.family != WGMMA and i not in lenient)
    newer = {i.text for i in forms if i.ptx_version > version}
    assert refused_lines(forms, version, target) == newer


@pytest.mark.skipif(shutil.which("ptxas") is None, reason="ptxas is not installed")
@pytest.mark.parametrize("version", [(7, 1), (7, 4), (7, 5)])
def test_forms_older_than_the_first_target_are_taken_from_the_version_that_they_claim(version: tuple[int, int]) -> None:
    forms = tuple(i for i in ptx.catalogue() if i.ptx_version < (7, 8))
    assert len(forms) > 60
    assert refused_lines(forms, version, "sm_80") == {i.text for i in forms if i.ptx_version > version}


ARGUMENTS = {
    "leader_lane": "lane",
    "fraction": "0.5f",
    "scale_d": "number > 1",
}
MAPS = {"generic": "maps + 1", "param": "&map", "const": "&constant_map"}


def argument(operand: Operand) -> str:
    """An expression for a parameter of a wrapper."""
    if operand.name == "tensor_map" and operand.c_type.startswith("const"):
        return MAPS[operand.space or ""]
    if operand.c_type.endswith("long long*"):
        return "&barrier"
    place = "out" if operand.space == "global" else "tile"
    return ARGUMENTS.get(operand.name, place if operand.space else "number")


def call(i: Instruction) -> str:
    """A statement that calls the wrapper, with its results written out so that they have a use."""
    values = [str(o.values[0]) for o in i.immediates if o.values]
    arrays = Counter((o.vector, o.c_type, o.is_output) for o in i.parameters if o.packed)
    declared = [f"{t} {v}[{n}] = {{}};" for (v, t, _), n in arrays.items()]
    used = [f"out[1] += static_cast<unsigned>({v}[0]);" for v, _, output in arrays if output]
    packed = [n for n, o in enumerate(i.parameters) if o.packed and o.index == 0]
    spoken = [
        (o.vector or "") if o.packed else argument(o) for n, o in enumerate(i.parameters) if not o.packed or n in packed
    ]
    template = f"<{', '.join(values)}>" if values else ""
    value = f"cupytma::{i.function_name}{template}({', '.join(spoken)})"
    result = f"out[0] += {value};" if i.result else f"{value};"
    return f"{{ {' '.join(declared)} {result} {' '.join(used)} }}"


def pattern(i: Instruction) -> str:
    """A regular expression for the text with registers, predicates or immediates in its places."""
    return r"(?<!\S)" + re.sub(r"%\d+", r"(?:%\\w+|p\\d|-?\\d+|0f\\w+)", re.escape(i.text))


@pytest.mark.parametrize("target", ["sm_90a", "sm_100a"])
def test_every_wrapper_compiles_and_its_text_arrives_in_the_ptx(target: str) -> None:
    wide = [i for i in ptx.catalogue() if i.family == WGMMA and dict(i.words)["n"] in (8, 64)]
    narrow = [i for i in ptx.catalogue() if i.family != WGMMA and i.ptx_version <= (8, 8)]
    narrow = [i for i in narrow if not i.function_name.endswith("_generic_u32")]  # not in the header
    forms = [i for i in (*narrow, *wide) if i.supported_on(target)]
    calls = "\n".join(call(i) for i in forms)
    source = f"""
        #define CUPYTMA_WGMMA
        #include <cupytma.cuh>
        __constant__ CUtensorMap constant_map;
        extern "C" __global__ void forms(const __grid_constant__ CUtensorMap map, CUtensorMap* maps,
                                         unsigned long long* out, unsigned number) {{
            __shared__ alignas(128) char tile[128];
            __shared__ unsigned long long barrier;
            unsigned lane = 0;
            {calls}
            out[0] += lane;
        }}"""
    code = compile_cuda(source, target=target, headers={"cupytma.cuh": ptx.header(target, only=forms)}).ptx
    lines = " ".join(code.split())
    missing = [i.text for i in forms if not re.search(pattern(i), lines)]
    assert missing == []


def test_addresses_are_converted_to_their_state_space() -> None:
    source = """
        #include <cupytma.cuh>
        __constant__ CUtensorMap constant_map;
        extern "C" __global__ void spaces(const __grid_constant__ CUtensorMap map) {
            cupytma::prefetch_tensormap_param(&map);
            cupytma::prefetch_tensormap_const(&constant_map);
        }"""
    code = compile_cuda(source, target="sm_90a").ptx
    assert "cvta.to.param" in code or re.search(r"mov\.[bu]64\s+%rd\d+, spaces_param_0;", code)
    assert "cvta.to.const" in code or re.search(r"mov\.[bu]64\s+%rd\d+, constant_map;", code)


def test_undocumented_and_refused_forms_are_not_in_the_catalogue() -> None:
    texts = " ".join(i.text for i in ptx.catalogue())
    for absent in ("membar", "xor.im2col.bulk_group", "bulk_group.xor.s32", "shared.b1024"):
        assert absent not in texts
    reductions = [i.mnemonic for i in ptx.catalogue() if "reduce" in i.mnemonic]
    assert not any("scatter4" in mnemonic for mnemonic in reductions)
    if CUDA_12_9:  # why it is refused: the assembler takes it
        mnemonic = "cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile::scatter4.bulk_group"
        silent = f"{mnemonic} [l0, {{r0, r1, r2, r3, r4}}], [r5];"
        assert CUDA_12_9.refused([silent], "sm_100a") == {}
