"""The generated header: what is in it, how it is trimmed, and that it compiles alone."""

from __future__ import annotations

import re
import time

import pytest

from cupytma import ptx
from cupytma.errors import CompileError, EmissionError, TargetError
from cupytma.runtime.compiler import compile as compile_cuda

EMPTY = '#include <cupytma.cuh>\nextern "C" __global__ void empty() {}\n'


TRUNCATING = {"mapa_generic_u32", "getctarank_generic_u32"}


def defined(header: str) -> list[str]:
    """The names of the functions of a header."""
    return re.findall(r"^__device__ __forceinline__ [\w ]+?(\w+)\(", header, re.MULTILINE)


def compiled(body: str, header: str, target: str = "sm_90a", parameters: str = "") -> str:
    """The PTX of a kernel with this body and a shared mbarrier and tile."""
    source = f"""
        #include <cupytma.cuh>
        extern "C" __global__ void kernel({parameters}) {{
            __shared__ alignas(128) char tile[128];
            __shared__ unsigned long long barrier;
            {body}
        }}"""
    return compile_cuda(source, target=target, headers={"cupytma.cuh": header}).ptx


@pytest.mark.parametrize("target", ["sm_90a", "sm_100a", "sm_120"])
def test_one_function_per_form_and_the_conveniences(target: str) -> None:
    forms = {i.function_name for i in ptx.catalogue() if i.supported_on(target)} - TRUNCATING
    names = defined(ptx.header(target=target))
    assert len(names) == len(set(names))
    extra = set(names) - forms
    assert forms <= set(names)
    assert {"mbarrier_wait_parity", "tensor_load", "tensor_load_multicast_cache_hint", "tensor_store"} <= extra
    assert {"tensor_reduce_add", "tensor_store_im2col_no_offs", "tensor_prefetch"} <= extra
    assert ("matrix_descriptor" in extra) == (target == "sm_90a")
    assert len(extra) < 150


def test_the_functions_are_the_instructions_own() -> None:
    header = ptx.header(target="sm_90a")
    assert all(
        i.function("sm_90a") in header
        for i in ptx.catalogue()
        if i.supported_on("sm_90a") and i.function_name not in TRUNCATING
    )


@pytest.mark.parametrize(
    ("target", "call", "message"),
    [
        ("sm_90a", "elemtype_shared_cta<12>", None),
        ("sm_90a", "elemtype_shared_cta<13>", "value is 0 to 12"),
        ("sm_100a", "elemtype_shared_cta<15>", None),
        ("sm_100a", "swizzle_mode_shared_cta<3>", None),
        ("sm_100a", "swizzle_mode_shared_cta<4>", "value is 0 to 3"),
        ("sm_103a", "swizzle_mode_shared_cta<4>", None),
        ("sm_103a", "swizzle_atomicity_shared_cta<4>", "value is 0 to 3"),
    ],
)
def test_an_immediate_is_held_to_the_targets_range(target: str, call: str, message: str | None) -> None:
    body, header = f"cupytma::tensormap_replace_{call}(tile);", ptx.header(target)
    if message is None:
        assert "tensormap.replace.tile." in compiled(body, header, target)
    else:
        with pytest.raises(CompileError, match=message):
            compiled(body, header, target)


def test_every_function_has_its_comment_and_a_volatile_asm() -> None:
    for i in ptx.catalogue():
        text = i.function()
        comment = " ".join(line.removeprefix("// ") for line in text.splitlines() if line.startswith("// "))
        assert comment == f"{i.documentation} ({i.source})"
        assert text.count("asm volatile(") == 1
        assert ('"memory"' in text) == ("memory" in i.clobbers)


def test_it_costs_an_empty_kernel_at_most_a_tenth_of_a_second() -> None:
    def seconds(header: str) -> float:
        start = time.process_time()
        compile_cuda(EMPTY, target="sm_90a", headers={"cupytma.cuh": header})
        return time.process_time() - start

    # What runtime.compile gives a kernel that does not speak of wgmma. The samples take turns, so that a load on the
    # machine is on both, and the minima are those that it left alone.
    header = ptx.header(target="sm_90a", wgmma=False)
    seconds(""), seconds(header)
    samples = [(seconds(header), seconds("")) for _ in range(15)]
    with_header, without = map(min, zip(*samples, strict=True))
    assert with_header - without <= 0.1


def test_wgmma_comes_with_its_macro_or_by_name() -> None:
    body = "float d[32] = {}; cupytma::wgmma_mma_async_m64n64k16_f32_bf16_bf16<>(d, 1, 2, true); tile[0] = d[0];"
    with pytest.raises(CompileError, match="wgmma_mma_async"):
        compiled(body, ptx.header())
    form = ptx.wgmma_mma_async(n=64, a_type="bf16")
    code = compiled(body, ptx.header(only=[form]))
    assert "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16" in code
    assert form.function_name in ptx.header()
    assert form.function_name not in ptx.header(wgmma=False)


def test_it_is_self_contained() -> None:
    header = ptx.header()
    assert "#include" not in header
    assert "#pragma once" in header
    assert "namespace cupytma {" in header
    assert header.count("{") == header.count("}")


@pytest.mark.parametrize("target", ["sm_90", "sm_90a", "sm_100", "sm_100a", "sm_120a"])
def test_it_compiles_on(target: str) -> None:
    assert compile_cuda(EMPTY, target=target).log == ""


@pytest.mark.parametrize("target", ["sm_90a", "sm_100a"])
def test_a_trimmed_header_compiles_and_brings_what_it_calls(target: str) -> None:
    header = ptx.header(target=target, only=["mbarrier_wait_parity", ptx.mbarrier_init(), "tensor_store"])
    ranks = {f"tensor_store_{rank}d" for rank in range(1, 6)}
    assert set(defined(header)) == ranks | {
        "mbarrier_wait_parity",
        "mbarrier_try_wait_parity",
        "mbarrier_init",
        "tensor_store",
    }
    body = "cupytma::mbarrier_init(&barrier, 1); cupytma::mbarrier_wait_parity(&barrier, 0);"
    assert "mbarrier.try_wait.parity.shared::cta.b64 p0" in compiled(body, header, target)


def test_only_takes_one_name_and_an_empty_list() -> None:
    assert defined(ptx.header(only="mbarrier_inval")) == ["mbarrier_inval"]
    assert defined(ptx.header(only=ptx.mbarrier_inval())) == ["mbarrier_inval"]
    assert defined(ptx.header(only=[])) == []
    assert "struct alignas(64) CUtensorMap" in ptx.header(only=[])


def test_only_refuses_a_name_that_does_not_exist() -> None:
    with pytest.raises(EmissionError, match=r"no function 'tensor_load_6d'; it has, for example: .*tensor_load_"):
        ptx.header(only=["tensor_load_6d"])


@pytest.mark.parametrize("only", [[3], 3, [None], [b"mapa"]])
def test_only_refuses_what_names_no_function(only: object) -> None:
    with pytest.raises(EmissionError, match="is neither a function's name nor an Instruction"):
        ptx.header(only=only)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", sorted(TRUNCATING))
def test_what_would_cut_a_generic_pointer_is_left_out(name: str) -> None:
    assert name not in defined(ptx.header())
    with pytest.raises(EmissionError, match=f"{name}, which cuts .*; take {name.replace('u32', 'u64')}"):
        ptx.header(only=name)
    assert "no generic pointer" in ptx.mapa().function()
    assert "no generic pointer" not in ptx.mapa(space="generic", type="u64").function()


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("cupytma::mbarrier_int(&barrier, 1);", r"no function 'mbarrier_int'; it has, for example: mbarrier_init"),
        (
            "cupytma::tensor_load_2d_gather4(tile, tile, 0, 0, 0, 0, 0, &barrier);",
            r"tile::gather4.* needs sm_100a: you compiled for sm_90a",
        ),
        (
            "float d[4]; cupytma::wgmma_mma_async_m64n8k16_f32_bf16_bf16(d, 1, 2, true);",
            r"_bf16_bf16 is there where CUPYTMA_WGMMA is defined before the header is included",
        ),
        (
            "int other; cupytma::mbarrier_init(&other, 1);",
            'incompatible with parameter of type "unsigned long long \\*"',
        ),
        ("cupytma::tensor_load_2d(tile, &barrier, 0, &barrier);", "too few arguments in function call"),
        ("cupytma::tensormap_replace_global_stride_shared_cta<4>(tile, 16);", "ordinal is 0 to 3"),
        ("cupytma::setmaxnreg_inc<100>();", "count is 24 to 256 in steps of 8"),
        ("const unsigned n = threadIdx.x; cupytma::bulk_wait_group<n>();", "no instance of .*bulk_wait_group"),
        (
            "int* c = nullptr; cupytma::tensor_store(tile, c, tile);",
            'no instance of .* "cupytma::tensor_store" matches',
        ),
    ],
)
def test_a_misuse_is_named(body: str, message: str) -> None:
    with pytest.raises(CompileError, match=message):
        compiled(body, ptx.header())


def test_a_function_that_a_trimmed_header_leaves_out_is_named() -> None:
    with pytest.raises(CompileError, match="the header in use leaves mbarrier_init out"):
        compiled("cupytma::mbarrier_init(&barrier, 1);", ptx.header(only="mbarrier_inval"))


def test_an_unknown_target_is_refused() -> None:
    with pytest.raises(TargetError, match="unknown target"):
        ptx.header(target="sm_91x")
    with pytest.raises(TargetError, match="no Tensor Memory Accelerator"):
        ptx.header(target="sm_80")


def test_target_may_be_a_target_or_another_spelling() -> None:
    assert ptx.header(target="compute_90a") == ptx.header(target=ptx.mbarrier_init().targets[1])


def test_a_header_for_a_newer_target_says_so_on_an_older_one() -> None:
    with pytest.raises(CompileError, match="this cupytma header is for sm_100a"):
        compiled("", ptx.header(target="sm_100a"), "sm_90a")


def test_the_tensor_map_type_has_its_size_and_alignment_at_global_scope() -> None:
    check = 'static_assert(sizeof(::CUtensorMap) == 128 && alignof(::CUtensorMap) == 64, "");'
    compiled(check, ptx.header(only=[]))


def test_the_tensor_map_type_of_cuda_h_is_left_alone() -> None:
    source = """
        #define __cuda_cuda_h__
        typedef struct CUtensorMap_st { alignas(64) unsigned long long opaque[16]; } CUtensorMap;
    """
    compile_cuda(source + EMPTY, target="sm_90a")


@pytest.mark.parametrize("rank", range(1, 6))
def test_templates_pick_the_rank_from_the_coordinates(rank: int) -> None:
    coordinates = ", ".join(map(str, range(rank)))
    body = f"""
        int coordinates[{rank}] = {{{coordinates}}};
        cupytma::tensor_load(tile, &map, coordinates, &barrier);
        cupytma::tensor_load_multicast_cache_hint(tile, &map, coordinates, &barrier, 3, 0);
        cupytma::tensor_store(&map, coordinates, tile);
    """
    code = compiled(body, ptx.header(), parameters="const __grid_constant__ CUtensorMap map")
    assert f"cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [" in code
    assert code.count(f"cp.async.bulk.tensor.{rank}d.") == code.count("cp.async.bulk.tensor.") == 3
    assert "local" not in code  # the array stays in registers


def test_templates_refuse_six_coordinates() -> None:
    body = "int c[6] = {}; cupytma::tensor_store(&map, c, tile);"
    with pytest.raises(CompileError, match="a tensor map has 1 to 5 dimensions"):
        compiled(body, ptx.header(), parameters="const __grid_constant__ CUtensorMap map")


@pytest.mark.parametrize("count", [-1, 64])
def test_wait_group_refuses_counts_that_the_assembler_would_change(count: int) -> None:
    with pytest.raises(CompileError, match="count is 0 to 63"):
        compiled(f"cupytma::bulk_wait_group<{count}>();", ptx.header())


def test_wait_group_writes_the_count_into_the_instruction() -> None:
    code = compiled("cupytma::bulk_wait_group<0>(); cupytma::bulk_wait_group_read<63>();", ptx.header())
    assert "cp.async.bulk.wait_group 0;" in code
    assert "cp.async.bulk.wait_group.read 63;" in code
