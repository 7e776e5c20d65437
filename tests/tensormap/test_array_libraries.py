"""Arrays of the libraries themselves, where they are installed."""

from __future__ import annotations

import subprocess
import sys

import pytest

from cupytma.errors import ArrayError
from cupytma.tensormap.arrays import view_of


def test_no_array_library_is_imported() -> None:
    code = (
        "import sys, numpy, cupytma; cupytma.tensor_map(numpy.zeros((64, 1024), 'f2'), (8, 64)).decode();"
        "print({'torch', 'jax', 'cupy', 'ml_dtypes'} & set(sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float16", "int64", "bool"])
def test_real_torch_tensors(dtype: str) -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.zeros(64, 128, dtype=getattr(torch, dtype))[:, ::1]
    tensor.requires_grad_(tensor.is_floating_point() and tensor.element_size() > 1)
    found = view_of(tensor)
    assert (found.address, found.shape) == (tensor.data_ptr(), (64, 128))
    assert found.strides == (128 * tensor.element_size(), tensor.element_size())
    assert (found.dtype, found.device) == (dtype, None)
    only = type("Only", (), {n: getattr(tensor.detach(), n) for n in ("__dlpack__", "__dlpack_device__")})()
    assert view_of(only) == found


def test_real_torch_views_that_are_lazy_are_refused() -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(ArrayError, match="resolve_conj"):
        view_of(torch.zeros(8, dtype=torch.complex64).conj())
    with pytest.raises(ArrayError, match="resolve_neg"):
        view_of(torch.zeros(8, dtype=torch.complex64).conj().imag)
    packed = torch.quantize_per_channel(torch.zeros(4, 8), torch.ones(4), torch.zeros(4), 0, torch.quint4x2)
    with pytest.raises(ArrayError, match="quint4x2 share"):
        view_of(packed)
    with pytest.raises(ArrayError, match="no strided memory"):
        view_of(torch.nested.nested_tensor([torch.zeros(3), torch.zeros(4)]))
    with pytest.raises(ArrayError, match="meta"):
        view_of(torch.zeros(8, device="meta"))
    with pytest.raises(ArrayError, match="no strided memory"):
        view_of(torch.zeros(8, 8).to_sparse())


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float32", "bool"])
def test_real_jax_arrays(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # else it takes most of a GPU's memory
    jnp = pytest.importorskip("jax.numpy")
    array = jnp.zeros((64, 128), dtype)
    found = view_of(array)
    (device,) = array.devices()
    assert found.address == array.unsafe_buffer_pointer()
    assert (found.shape, found.dtype) == ((64, 128), dtype)
    assert found.device == (device.id if device.platform == "gpu" else None)
