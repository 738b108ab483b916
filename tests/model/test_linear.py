"""On an AMD processor float32 layers go through oneDNN: the same products, and the same model in every other respect."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from planted import tiny_model
from torch import nn
from torch.nn.functional import linear

from headwise.core import cpu
from headwise.kernels.linear import MIN_ROWS, prefers_onednn
from headwise.model import load
from headwise.model.linear import FastLinear, use_fastest_linear

pytestmark = pytest.mark.skipif(
    not (torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")),
    reason="this torch is built without oneDNN",
)


@pytest.fixture
def amd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A processor of AMD, and MKL."""
    info = tmp_path / "cpuinfo"
    info.write_text("vendor_id\t: AuthenticAMD\nmodel name\t: Planted\nflags\t\t: fpu avx512f\n")
    monkeypatch.setattr(cpu, "CPUINFO", info)
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: True)
    prefers_onednn.cache_clear()
    yield info
    prefers_onednn.cache_clear()


def layer(bias: bool) -> FastLinear:
    torch.manual_seed(0)
    found = nn.Linear(96, 160, bias=bias)
    found.__class__ = FastLinear
    return found


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("shape", [(40, 96), (3, 20, 96), (1, 96), (2, 4, 96)])
def test_the_products_are_those_of_float64_up_to_rounding(amd: Path, bias: bool, shape: tuple[int, ...]):
    one, x = layer(bias), torch.randn(*shape)
    exact = linear(x.double(), one.weight.double(), None if one.bias is None else one.bias.double())
    with torch.no_grad():
        assert torch.allclose(one(x).double(), exact, atol=1e-5)
        transposed = x.transpose(0, -1).contiguous().transpose(0, -1)  # other strides
        assert torch.allclose(one(transposed).double(), exact, atol=1e-5)


def test_gradients_other_dtypes_and_few_rows_go_through_torch(amd: Path, monkeypatch: pytest.MonkeyPatch):
    one, x = layer(True), torch.randn(MIN_ROWS, 96)
    one(x).sum().backward()
    assert one.weight.grad is not None
    monkeypatch.setattr(torch.ops.mkldnn, "_linear_pointwise", lambda *given: pytest.fail("oneDNN was asked"))
    with torch.no_grad():
        one(x[:-1])
        one.double()(x.double())


def test_a_model_from_a_folder_uses_it_and_keeps_its_weights(amd: Path, tmp_path: Path):
    plain = tiny_model()[0]
    plain.save_pretrained(tmp_path / "model")
    found = load(tmp_path / "model").hf
    ids = torch.randint(0, 20, (2, 30))
    assert {type(one) for one in found.modules() if isinstance(one, nn.Linear)} == {FastLinear}
    assert [*found.state_dict()] == [*plain.state_dict()]
    with torch.no_grad():
        expected = plain(ids).logits
        for other in (found, copy.deepcopy(found), pickle.loads(pickle.dumps(found))):
            assert torch.allclose(other(ids).logits, expected, atol=1e-5)


def test_other_processors_and_models_in_memory_are_left_alone(amd: Path):
    hf = tiny_model()[0]
    assert FastLinear not in map(type, load(hf).hf.modules())  # somebody else's
    amd.write_text("vendor_id\t: GenuineIntel\n")
    prefers_onednn.cache_clear()
    use_fastest_linear(hf)
    assert FastLinear not in map(type, hf.modules())
