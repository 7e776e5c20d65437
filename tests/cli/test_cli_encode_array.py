"""``--from-array``: the tensor map that the library makes of the array itself."""

from __future__ import annotations

import json

import ml_dtypes
import numpy as np
import pytest

import cupytma as tma

ADDRESS = 0x7F0000000000


def encoded(invoke, array: str, *options: str, kind: str = "tiled") -> bytes:
    result = invoke("encode", kind, "--from-array", array, *options, "-o", "raw")
    assert result.exit_code == 0, result.stderr
    return result.stdout_bytes


def expected(array: np.ndarray, box: tuple[int, ...], **options) -> bytes:
    return bytes(tma.tensor_map(array, box=box, **options).with_address(ADDRESS))


@pytest.mark.parametrize(
    "shape", ["512,1024", "512x1024", "512×1024", "(512,1024)", "(512, 1024)", "[512,1024]", "0x200,0x400"]
)
def test_spellings_of_a_shape(invoke, shape):
    array = f"shape={shape},dtype=float16,box=32,64,address={ADDRESS}"
    assert encoded(invoke, array) == expected(np.zeros((512, 1024), np.float16), (32, 64))


@pytest.mark.parametrize("shape", ["4096", "(4096,)"])
def test_one_dimension(invoke, shape):
    array = f"dtype=uint8,shape={shape},box=128,address={ADDRESS:#x}"
    assert encoded(invoke, array) == expected(np.zeros(4096, np.uint8), (128,))


@pytest.mark.parametrize(
    ("words", "dtype"),
    [
        ("float16", np.float16), ("f2", np.float16), ("<f2", np.float16), ("half", np.float16),
        ("np.float32", np.float32), ("torch.float32", np.float32), ("float8_e4m3fn", ml_dtypes.float8_e4m3fn),
        ("bfloat16", ml_dtypes.bfloat16), ("torch.bfloat16", ml_dtypes.bfloat16), ("BFLOAT16", ml_dtypes.bfloat16),
        ("bool", np.bool_), ("int8", np.int8), ("complex64", np.complex64), ("u8", np.uint64),
    ],
)
def test_dtypes_of_every_library(invoke, words, dtype):
    array = f"shape=64,256,dtype={words},box=8,16,address={ADDRESS}"
    assert encoded(invoke, array) == expected(np.zeros((64, 256), dtype), (8, 16))


def test_strides_in_bytes(invoke):
    view = np.zeros((64, 512), np.float32)[:, :256]
    words = f"shape=64,256,dtype=float32,strides=2048,4,box=8,32,address={ADDRESS}"
    assert encoded(invoke, words, "--swizzle", "128B") == expected(view, (8, 32), swizzle="128B")


def test_coalesced_dimensions(invoke):
    words = f"shape=2,2,2,4,8,64,dtype=float32,coalesce=true,box=128,address={ADDRESS}"
    assert encoded(invoke, words) == expected(np.zeros((2, 2, 2, 4, 8, 64), np.float32), (128,), coalesce=True)


def test_interleave_takes_the_slice_for_no_dimension(invoke):
    array = np.zeros((2, 4, 16, 32, 8), np.float16)
    words = f"shape=2,4,16,32,8,dtype=float16,box=1,1,8,8,8,address={ADDRESS}"
    assert encoded(invoke, words, "--interleave", "16B") == expected(array, (1, 1, 8, 8, 8), interleave="16B")


def test_options_override_the_array(invoke):
    words = "shape=512,1024,dtype=float16,box=32,64"
    document = json.loads(
        invoke("encode", "tiled", "--from-array", words, "--box-dim", "8,8", "--address", "64", "--json").stdout
    )
    assert document["parameters"]["box_dim"] == [8, 8]
    assert document["parameters"]["global_address"] == 64
    assert document["parameters"]["global_dim"] == [1024, 512]


def test_the_array_overrides_a_file(invoke):
    file = json.dumps({"data_type": "UINT8", "global_dim": [256], "box_dim": [16], "l2_promotion": "128B"})
    words = "shape=512,1024,dtype=float16,box=32,64"
    result = invoke("encode", "tiled", "--from", "-", "--from-array", words, "--json", input=file)
    parameters = json.loads(result.stdout)["parameters"]
    assert (parameters["data_type"], parameters["l2_promotion"]) == ("FLOAT16", "128B")


def test_im2col_of_an_array(invoke):
    corners = ("--pixel-box-lower-corner", "-1,-1", "--pixel-box-upper-corner", "-1,-1")
    counts = ("--channels-per-pixel", "64", "--pixels-per-column", "32")
    made = encoded(invoke, f"shape=32,56,56,64,dtype=float16,address={ADDRESS}", *corners, *counts, kind="im2col")
    assert made == bytes(
        tma.Im2col(
            data_type="FLOAT16", global_address=ADDRESS, global_dim=(64, 56, 56, 32), pixel_box_lower_corner=(-1, -1),
            pixel_box_upper_corner=(-1, -1), channels_per_pixel=64, pixels_per_column=32,
        ).encode()
    )
    with_box = "shape=32,56,56,64,dtype=float16,box=1,8,8,64"
    result = invoke("encode", "im2col", "--from-array", with_box, *corners, *counts)
    assert result.exit_code == 2
    assert "im2col map has no box" in result.stderr


def test_violations_speak_of_the_array(invoke):
    result = invoke("encode", "tiled", "--from-array", "shape=512,1024,dtype=float16,box=300,64")
    assert result.exit_code == 2
    assert "box[0] = 300 is outside 1…256" in result.stderr
    assert "box_dim" not in result.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("", "is none of shape=…"),
        ("512,1024", "is none of shape=…"),
        ("shape=512,1024", "dtype of the array is missing"),
        ("box=1", "shape and dtype of the array are missing"),
        ("shape=512,shape=4,dtype=f4", "shape is given twice"),
        ("shape=,dtype=float16,box=8", "no integer"),
        ("shape=-5,dtype=float16,box=8", "negative"),
        ("shape=0,dtype=float16,box=8", "is empty"),
        ("shape=1.5,dtype=float16,box=8", "no integer"),
        ("shape=" + "9" * 5000 + ",dtype=float16,box=8", "does not fit 64 bits"),
        ("shape=" + ",".join(["2"] * 70) + ",dtype=float16,box=8", "70 entries"),
        ("shape=" + ",".join(["2"] * 9) + ",dtype=float16", "rank 9"),
        ("shape=64,64,dtype=float16,box=8", "box has 1 entry, and shape 2"),
        ("shape=64,64,dtype=float16,strides=128,box=8,8", "strides has 1 entry"),
        ("shape=64,64,dtype=float16,strides=2,128,box=8,8", "the last dimension has stride 128 B"),
        ("shape=64,64,dtype=float16,strides=-128,2,box=8,8", "flip back"),
        ("shape=64,64,dtype=float5,box=8,8", "no dtype"),
        ("shape=64,64,dtype=float64x,box=8,8", "no dtype"),
        ("shape=64,64,dtype=object,box=8,8", "no type for dtype object"),
        ("shape=64,64,dtype=i4;i4,box=8,8", "no dtype"),
        ("shape=64,64,dtype=(,box=8,8", "no dtype"),
        ("shape=64,64,dtype=int4,box=8,8", "share or pad their bytes"),
        ("shape=64,64,dtype=16U4_ALIGN8B,box=8,8", "build Tiled from the address"),
        ("shape=64,64,dtype=float16,coalesce=maybe,box=8", "true or false"),
        ("shape=64,64,dtype=float16,colour=red", "is none of shape=…"),
        ("shape=64,64,dtype=float16,box=8,8,address=1.5", "no integer"),
        ("shape=64,64,dtype=float16", "missing --box-dim"),
        ("🙂=1", "is none of"),
        ("shape=٣,dtype=float16,box=8", "no integer"),
    ],
)
def test_wrong_words(invoke, words, said):
    result = invoke("encode", "tiled", "--from-array", words)
    assert result.exit_code == 2
    assert "Error: " in result.stderr
    assert max(map(len, result.stderr.splitlines())) <= 80
    assert said in " ".join(result.stderr.split())
