"""Spectrum against whole maps in float64, by the formulas of the method sheet."""

import numpy as np
import pytest
import torch
from families import build, padded, texts, tiny
from watchers import Call

from headwise.core.errors import DataError
from headwise.instruments import Spectrum
from headwise.seam import observe

FAMILIES = ("llama", "gpt2", "mistral", "gemma2", "gemma3_text", "gpt_oss", "deepseek_v3")
ROWS = texts(23, 14)


def by_the_formulas(a: np.ndarray, seen: np.ndarray, k: int) -> dict[str, np.ndarray]:
    """One map (query, key) and who sees whom: the three features."""
    tokens = len(a)
    eigenvalues = []
    for i in range(tokens):
        received = sum(a[u, i] for u in range(i, tokens)) / sum(bool(seen[u, i]) for u in range(i, tokens))
        eigenvalues.append(received - a[i, i])
    tail = [np.nan] * max(0, k - tokens)
    return {
        "laplacian": np.array(sorted(eigenvalues, reverse=True)[:k] + tail),
        "attention": np.array(sorted(np.diag(a), reverse=True)[:k] + tail),
        "log_determinant": np.mean(np.log(np.diag(a))),
    }


def measured(model, k: int, valid=None, **batch):
    """The reading, and the maps it should follow from."""
    maps: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    def keep(call) -> None:
        weights = call.attention.weights(dtype=torch.float64)
        seen = call.attention.mask.matrix().expand(len(weights), -1, -1, -1)
        maps[call.layer] = (weights.numpy(), seen[:, 0].numpy())

    with torch.no_grad(), observe(model, Spectrum(k), Call(keep), valid=valid) as seen:
        model(**batch)
    return seen["spectrum"], maps


@pytest.mark.parametrize("side", ["alone", "left", "right"])
@pytest.mark.parametrize("k", [1, 10, 30])
@pytest.mark.parametrize("family", FAMILIES)
def test_against_whole_maps(family, k, side):
    batch = {"input_ids": ROWS[0][None]} if side == "alone" else padded(ROWS, side)
    reading, maps = measured(tiny(family), k, **batch)
    assert reading.laplacian.dims == ("example", "layer", "head", "rank")
    assert reading.log_determinant.dims == ("example", "layer", "head")
    for example in range(len(batch["input_ids"])):
        length = len(ROWS[example])
        start = 0 if side != "left" else 23 - length
        place = slice(start, start + length)
        for layer, (weights, seen) in maps.items():
            for head in range(6):
                expected = by_the_formulas(weights[example, head, place, place], seen[example, place, place], k)
                for name, value in expected.items():
                    got = reading[name].sel(layer=layer, head=head).values[example]
                    np.testing.assert_allclose(got, value, rtol=1e-5, atol=1e-5, err_msg=f"{name} L{layer}H{head}")


@pytest.mark.parametrize("family", ["llama", "mistral"])
def test_valid_is_the_text_alone(family):
    batch = padded(ROWS)
    together, _ = measured(tiny(family), 20, valid=batch["attention_mask"].bool(), input_ids=batch["input_ids"])
    for i, row in enumerate(ROWS):
        alone, _ = measured(tiny(family), 20, input_ids=row[None])
        for name in together:
            np.testing.assert_allclose(together[name].values[i], alone[name].values[0], rtol=1e-4, atol=1e-5)


def test_known_values():
    """Eigenvalues lie in [-1, 1]; the last token's is 0, and the first token's is not positive."""
    reading, _ = measured(tiny("llama"), 23, input_ids=ROWS[0][None])
    values = reading.laplacian.values
    assert values.min() >= -1
    assert values.max() <= 1
    assert np.abs(values).min(axis=-1).max() < 1e-6
    assert (np.diff(values, axis=-1) <= 0).all()
    np.testing.assert_allclose(reading.attention.values[..., 0], 1.0, rtol=1e-6)  # a_00


def test_one_token():
    reading, _ = measured(tiny("llama"), 3, input_ids=ROWS[0][None, :1])
    np.testing.assert_allclose(reading.laplacian.values[..., 0], 0, atol=1e-6)
    assert np.isnan(reading.laplacian.values[..., 1:]).all()
    np.testing.assert_allclose(reading.log_determinant.values, 0, atol=1e-6)


def test_the_log_of_a_vanishing_diagonal():
    """Logits of hundreds: a_ii is nothing in float32, its logarithm is."""
    model = build("llama")
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.q_proj.weight.mul_(30)
    reading, maps = measured(model, 5, input_ids=ROWS[0][None])
    assert np.isfinite(reading.log_determinant.values).all()
    logs = np.log(np.diagonal(maps[0][0], axis1=2, axis2=3))  # (example, head, token)
    assert logs.min() < -104
    np.testing.assert_allclose(reading.log_determinant.sel(layer=0).values, logs.mean(axis=-1), rtol=1e-4)


def test_passes_one_after_the_other():
    spectrum = Spectrum(k=4)
    with torch.no_grad(), observe(tiny("llama"), spectrum):
        for row in ROWS:
            tiny("llama")(input_ids=row[None])
    assert spectrum.result().sizes == {"example": 2, "layer": 2, "head": 6, "rank": 4}


@pytest.mark.parametrize("k", [0, -3])
def test_no_eigenvalues_asked_for(k):
    with pytest.raises(DataError, match=f"k is {k}; give at least 1 eigenvalue"):
        Spectrum(k)
