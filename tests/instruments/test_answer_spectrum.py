"""AnswerSpectrum against materialised maps in float64."""

import numpy as np
import pytest
import torch
from planted import tiny_model
from scipy.stats import spearmanr

from headwise.instruments import AnswerSpectrum
from headwise.instruments.spectrum import TOP_K
from headwise.kernels import Attention, AttentionMask
from headwise.kernels.blocked import FLOOR
from headwise.kernels.reference import reduce
from headwise.model.gate import put_gate
from headwise.seam import AttentionCall, ForwardContext, Instrument, Structure, observe

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


@pytest.fixture(scope="module", params=["dense", "sparse"])
def seen(request):
    hf, _ = tiny_model()
    if request.param == "sparse":
        put_gate(hf, -0.3)  # closes most edges, and whole rows of some heads
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
    later = length - 1 - np.arange(length)
    from_later = (a.sum(axis=0) - diagonal) / np.maximum(later, 1) - diagonal
    mass = a.sum(axis=1, keepdims=True)
    p = np.divide(a, mass, out=np.zeros_like(a), where=mass > 0)  # a row whose gates are all closed has entropy 0
    entropy = -np.sum(np.where(p > 0, p * np.log(np.where(p > 0, p, 1)), 0), axis=1)
    logs = np.log(np.maximum(diagonal, np.exp(FLOOR)))
    seen = np.arange(1, length + 1)
    answer = np.arange(length) >= prompt
    x = a[:, :prompt].sum(axis=1) / prompt
    y = a[:, prompt:].sum(axis=1) / np.maximum(np.cumsum(answer), 1)

    def few(values):
        return np.sort(values)[::-1][:TOP_K].mean()

    return {
        "laplacian": np.sort(laplacian)[::-1][:K],
        "attention": np.sort(diagonal)[::-1][:K],
        "laplacian_mean": [few(laplacian), from_later[answer][:-1].mean()],
        "attention_mean": [few(diagonal), diagonal[answer].mean()],
        "attention_score": [logs.mean(), logs[answer].mean()],
        "sink": [a[1:, 0].mean(), a[answer, 0].mean()],
        "entropy": [(entropy[1:] / np.log(seen[1:])).mean(), (entropy / np.log(np.maximum(seen, 2)))[answer].mean()],
        "lookback": [np.nan, (x / np.maximum(x + y, 1e-30))[answer].mean()],
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


def test_a_closed_gate_counts_as_the_floor_and_nothing_is_infinite(seen):
    readings, maps, structure, _ = seen
    closed = [weights[0].diagonal(dim1=1, dim2=2)[:, : LENGTHS[0]] == 0 for weights in maps.values()]  # (head, token)
    share = torch.stack(closed).double().mean(dim=2).numpy()  # (layer, head)
    if getattr(structure.hf.config, "attention_gate", None) is None:
        assert not share.any()
        return
    assert (share > 0).any() and (share < 1).any()
    score = readings["attention_score"].isel(example=0, part=0).values
    assert np.isfinite(score).all()
    np.testing.assert_array_less(score, FLOOR * share + 1e-4)
    assert all(
        np.isfinite(readings[name].isel(part=1)).all() for name in ("entropy", "lookback", "sink", "laplacian_mean")
    )


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


def random_attention_readings(lengths, prompt, heads, generator):
    """What AnswerSpectrum reads where every row is a softmax of independent normal logits: heads that know nothing."""
    found = []
    for length in lengths:
        tokens = prompt + int(length)
        logits = torch.randn(1, heads, tokens, tokens, generator=generator, dtype=torch.float64)
        q = torch.eye(tokens, dtype=torch.float64).expand(1, heads, -1, -1)
        attention = Attention(q, logits.mT, 1.0, AttentionMask(tokens, tokens, 0, torch.device("cpu")))
        instrument = AnswerSpectrum(torch.tensor([prompt]), 5)
        valid = torch.ones(1, tokens, dtype=torch.bool)
        context = ForwardContext(0, None, valid, 0, torch.tensor([0]))
        reductions = reduce(attention, instrument.requested(context))
        nothing = torch.empty(1, tokens, heads, 1)
        call = AttentionCall(context, 0, None, attention, None, nothing, nothing, reductions)
        found.append({name: value[0].numpy() for name, value in instrument.measure(call).items()})
    return {name: np.array([one[name] for one in found]) for name in ("laplacian_mean", "attention_mean", "laplacian")}


def test_on_random_attention_the_answers_eigenvalues_do_not_tell_its_length():
    generator = torch.Generator().manual_seed(0)
    lengths = np.random.default_rng(0).integers(2, 25, 200)
    found = random_attention_readings(lengths, 60, 24, generator)
    for name in ("laplacian_mean", "attention_mean"):
        rho = np.array([spearmanr(values, lengths).statistic for values in found[name][..., 1].T])
        chance = np.sqrt(2 / np.pi / len(lengths))  # mean |rank correlation| of independent numbers
        assert np.abs(rho).mean() < 2 * chance, name
        assert abs(rho.mean()) < 0.1, name


def test_an_answer_of_one_token_has_no_laplacian():
    found = random_attention_readings([1, 2], 20, 3, torch.Generator().manual_seed(0))
    assert np.isnan(found["laplacian_mean"][0, :, 1]).all()
    assert np.isfinite(found["laplacian_mean"][1]).all()
    assert np.isfinite(found["attention_mean"]).all()
