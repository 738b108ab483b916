"""AnswerSpectrum against materialised maps in float64."""

import numpy as np
import pytest
import torch
from planted import tiny_model

from headwise.instruments import AnswerSpectrum
from headwise.instruments.spectrum import TOP_K
from headwise.seam import Instrument, Structure, observe

LENGTHS, PROMPTS, K = (30, 22), (21, 19), 12


class Maps(Instrument):
    """Every layer's whole map, in float64."""

    name = "maps"

    def __init__(self):
        self.maps = {}

    def on_layer(self, call):
        self.maps[call.layer] = call.attention.weights(dtype=torch.float64)

    def result(self):
        raise NotImplementedError


@pytest.fixture(scope="module")
def seen():
    hf, _ = tiny_model()
    structure = Structure(hf)
    generator = torch.Generator().manual_seed(3)
    ids = torch.randint(5, 100, (2, max(LENGTHS)), generator=generator)
    valid = torch.arange(max(LENGTHS))[None] < torch.tensor(LENGTHS)[:, None]
    maps = Maps()
    with torch.no_grad(), observe(structure, AnswerSpectrum(torch.tensor(PROMPTS), K), maps, valid=valid) as observed:
        structure.decoder(input_ids=ids, use_cache=False)
    return observed["answers"], maps.maps, structure, ids


def expected(weights, length, prompt):
    """The formulas of the method sheet, written out for one map (token x token)."""
    a = weights[:length, :length].numpy()
    diagonal = np.diag(a)
    received = a.sum(axis=0) / (length - np.arange(length))
    laplacian = received - diagonal
    entropy = -np.sum(np.where(a > 0, a * np.log(np.where(a > 0, a, 1)), 0), axis=1)
    seen = np.arange(1, length + 1)
    answer = np.arange(length) >= prompt
    x = a[:, :prompt].sum(axis=1) / prompt
    y = a[:, prompt:].sum(axis=1) / np.maximum(np.cumsum(answer), 1)

    def few(values):
        return np.sort(values)[::-1][:TOP_K].mean()

    return {
        "laplacian": np.sort(laplacian)[::-1][:K],
        "attention": np.sort(diagonal)[::-1][:K],
        "laplacian_top10_mean": [few(laplacian), few(laplacian[answer])],
        "attention_top10_mean": [few(diagonal), few(diagonal[answer])],
        "attention_score": [np.log(diagonal).mean(), np.log(diagonal[answer]).mean()],
        "sink": [a[1:, 0].mean(), a[answer, 0].mean()],
        "entropy": [(entropy[1:] / np.log(seen[1:])).mean(), (entropy / np.log(np.maximum(seen, 2)))[answer].mean()],
        "lookback": [np.nan, (x / (x + y))[answer].mean()],
    }


@pytest.mark.parametrize("example", [0, 1])
def test_every_reading_is_what_the_whole_map_gives(seen, example):
    readings, maps, _, _ = seen
    for layer, weights in maps.items():
        for head in range(weights.shape[1]):
            truth = expected(weights[example, head], LENGTHS[example], PROMPTS[example])
            for name, value in truth.items():
                got = readings[name].isel(example=example, layer=layer, head=head).values
                np.testing.assert_allclose(got, value, atol=1e-5, rtol=1e-5, err_msg=f"{name} L{layer}H{head}")


def test_an_example_alone_gives_the_same(seen):
    readings, _, structure, ids = seen
    alone = AnswerSpectrum(torch.tensor(PROMPTS[1:]), K)
    with torch.no_grad(), observe(structure, alone) as observed:
        structure.decoder(input_ids=ids[1:, : LENGTHS[1]], use_cache=False)
    for name, array in observed["answers"].items():
        np.testing.assert_allclose(array.values[0], readings[name].values[1], atol=1e-5, err_msg=name)


def test_more_eigenvalues_than_tokens_end_in_nan():
    hf, _ = tiny_model()
    structure = Structure(hf)
    with torch.no_grad(), observe(structure, AnswerSpectrum(torch.tensor([5]), 20)) as observed:
        structure.decoder(input_ids=torch.arange(5, 13)[None], use_cache=False)
    laplacian = observed["answers"]["laplacian"].values
    assert np.isfinite(laplacian[..., :8]).all()
    assert np.isnan(laplacian[..., 8:]).all()
