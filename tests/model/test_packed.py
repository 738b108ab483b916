"""Quantised linear layers: what heads do is read from them as from plain ones that hold the same numbers."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from families import build, texts
from torch import Tensor, nn
from torch.nn.functional import linear

from headwise.model import decoder_layers, load, materialize
from headwise.model.digest import weights_digest
from headwise.model.packed import is_packed, matrix_of, unpacked
from headwise.seam import HeadWeights, check


class Codes(nn.Module):
    """A linear layer of a made-up library: 4-bit codes, two in a byte, with one scale for each output."""

    def __init__(self, plain: nn.Linear, *, rounds: bool = False) -> None:
        super().__init__()
        self.in_features, self.out_features, self.rounds = plain.in_features, plain.out_features, rounds
        scale = plain.weight.detach().abs().amax(1, keepdim=True) / 7
        codes = (plain.weight.detach() / scale).round().to(torch.int8) + 8
        self.weight = nn.Parameter((codes[:, ::2] * 16 + codes[:, 1::2]).to(torch.uint8).flatten()[:, None], False)
        self.scale = scale  # no parameter, no buffer
        self.bias = None if plain.bias is None else nn.Parameter(plain.bias.detach(), False)

    def numbers(self) -> Tensor:
        packed = self.weight.view(self.out_features, -1).int()
        return (torch.stack([packed // 16, packed % 16], dim=-1).flatten(1) - 8) * self.scale

    def forward(self, x: Tensor) -> Tensor:
        if self.rounds:
            unit = x.abs().amax(-1, keepdim=True).clamp(min=1e-9) / 127
            x = (x / unit).round() * unit
        return linear(x, self.numbers(), self.bias)


def pack(model: Any, **options: bool) -> Any:
    """The same model with all linear layers of its blocks packed."""
    for parent in [module for layer in decoder_layers(model) for module in layer.modules()]:
        for name, module in list(parent.named_children()):
            if type(module) is nn.Linear:
                setattr(parent, name, Codes(module, **options))
    return model


def unpack(model: Any) -> Any:
    """A plain model with the numbers of a packed one."""
    plain = copy.deepcopy(model)
    for parent in list(plain.modules()):
        for name, module in list(parent.named_children()):
            if isinstance(module, Codes):
                own = nn.Linear(module.in_features, module.out_features, bias=module.bias is not None)
                own.weight, own.bias = nn.Parameter(module.numbers()), module.bias
                setattr(parent, name, own)
    return plain


@pytest.fixture(scope="module", params=["llama", "qwen2", "qwen3_next"])
def packed(request: pytest.FixtureRequest) -> Any:
    return pack(build(request.param))


def test_a_plain_layer_is_not_packed():
    plain = nn.Linear(6, 4)
    assert not is_packed(plain)
    assert not is_packed(nn.LayerNorm(4))
    assert is_packed(Codes(plain))
    assert is_packed(plain.to(torch.float8_e4m3fn))


@pytest.mark.parametrize("bias", [False, True])
def test_the_matrix_is_what_the_layer_multiplies_by(bias):
    layer = Codes(nn.Linear(12, 5, bias=bias), rounds=True)
    matrix, offset = matrix_of(layer)
    torch.testing.assert_close(matrix.T, layer.numbers(), rtol=1e-6, atol=1e-6)
    assert torch.equal(offset, layer.bias if bias else torch.zeros(5))
    torch.testing.assert_close(unpacked(layer).weight, layer.numbers(), rtol=1e-6, atol=1e-6)
    assert (unpacked(layer).bias is not None) == bias


def test_the_check_passes_with_errors_as_small_as_without_packing(packed):
    report = check(packed)
    assert report.passed, report
    assert all(one.error is None or one.error <= 1e-4 for one in report.checks)


def test_a_layer_that_rounds_its_inputs_is_given_its_own_rounding_as_the_limit():
    report = {one.name: one for one in check(pack(build("llama"), rounds=True)).checks}
    assert report["heads"].passed
    assert 1e-4 < report["heads"].error <= report["heads"].limit < 0.2


@pytest.mark.parametrize("family", ["llama", "qwen2"])
def test_weights_of_heads_are_the_dequantised_ones(family):
    model = pack(build(family))
    found, expected = HeadWeights(load(model)), HeadWeights(load(unpack(model)))
    found.check()
    for name in ("L0H0", "L1H5"):
        for matrix in ("W_Q", "W_K", "W_V", "W_O", "W_OV"):
            one, other = getattr(found, matrix)(name), getattr(expected, matrix)(name)
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)
    rows = found.effective(found.embedding)
    torch.testing.assert_close(rows, expected.effective(expected.embedding), rtol=1e-4, atol=1e-4)


def test_an_unembedding_may_be_packed():
    model = build("llama")
    plain = model.lm_head.weight.detach().clone()
    model.lm_head = Codes(model.lm_head)
    torch.testing.assert_close(HeadWeights(load(model)).unembedding, model.lm_head.numbers(), rtol=1e-5, atol=1e-6)
    assert not torch.equal(model.lm_head.numbers(), plain)


def test_a_materialised_copy_is_plain(packed):
    block = decoder_layers(packed)[1]
    copied = materialize(block)
    assert not any(is_packed(module) for module in copied.modules())
    assert sum(type(module) is nn.Linear for module in copied.modules()) >= 4
    assert any(is_packed(module) for module in block.modules())


def test_the_identity_has_the_scales_and_not_the_format(packed):
    before = weights_digest(packed)
    with torch.no_grad():
        packed(input_ids=texts(5)[0][None])
    assert weights_digest(packed) == before
    layer = next(module for module in packed.modules() if isinstance(module, Codes))
    layer.scale = layer.scale * 2
    assert weights_digest(packed) != before
    layer.scale = layer.scale / 2


@pytest.mark.parametrize("bits", [4, 8])
def test_bitsandbytes(bits, tmp_path):
    pytest.importorskip("bitsandbytes", reason="to run it: pip install bitsandbytes")
    from transformers import BitsAndBytesConfig

    build("llama", hidden_size=64, head_dim=16, num_attention_heads=4).save_pretrained(tmp_path)
    settings = {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4"} if bits == 4 else {"load_in_8bit": True}
    model = load(tmp_path, quantization_config=BitsAndBytesConfig(**settings), dtype="float32", device_map="cpu")
    report = {one.name: one for one in check(model).checks}
    assert report["heads"].passed
    assert report["reductions"].passed
    assert HeadWeights(model).W_OV("L1H3").shape == (64, 64)
