"""Ablation of single heads: exact against a float64 eager reference, attribution against derivatives, any batching."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from families import tiny
from planted import tiny_model

from headwise.corpora import Example
from headwise.model import load
from headwise.seam import Structure
from headwise.studies.causal.ablating import AblatedBatch, Ablations, HeadUnit, LabelledExample, units_of
from headwise.studies.passes import batches

CLASSES, TOKENS = 2, 12


def labelled(count: int = 4, lengths: tuple[int, ...] = (TOKENS,), vocabulary: int = 100) -> list[LabelledExample]:
    generator = np.random.default_rng(0)
    texts = [
        Example(f"t{i}", "text", tuple(generator.integers(4, vocabulary, lengths[i % len(lengths)]).tolist()))
        for i in range(count)
    ]
    classes = [np.array([-1, *(np.arange(1, len(text.ids)) % CLASSES)]) for text in texts]
    return [LabelledExample(text, classes[i], texts[i - 1], i) for i, text in enumerate(texts)]


def batch_of(structure: Structure, items: list[LabelledExample], **options) -> AblatedBatch:
    ablations = Ablations(structure, CLASSES, **options)
    texts = [item.example for item in items]
    ablations.fit_means(texts)
    (batch,) = batches(texts, 10_000, structure.device)
    return ablations.on(batch, items)


@pytest.fixture(scope="module")
def double() -> Structure:
    """A model with grouped queries, in double precision."""
    hf, tokenizer = tiny_model(layers=2)
    return Structure(load(hf.double(), tokenizer))


@pytest.fixture(scope="module")
def items() -> list[LabelledExample]:
    return labelled()


@pytest.fixture(scope="module")
def ablated(double: Structure, items: list[LabelledExample]) -> AblatedBatch:
    return batch_of(double, items)


def eager_pass(structure: Structure, ids: torch.Tensor, layer: int, change) -> tuple[torch.Tensor, torch.Tensor]:
    """By hooks on the output projection, with transformers' eager attention: log-probabilities and z, (batch, token, ...)."""
    seen = []

    def hook(_, args):
        z = args[0].unflatten(-1, (4, 16))
        seen.append(z.clone())
        return (change(z).flatten(2),)

    projection = structure.layers[layer].self_attn.o_proj
    handle = projection.register_forward_pre_hook(hook)
    structure.hf.set_attn_implementation("eager")
    try:
        with torch.no_grad():
            logits = structure.hf(input_ids=ids, use_cache=False).logits[:, :-1]
    finally:
        handle.remove()
        structure.hf.set_attn_implementation("sdpa")
    return logits.log_softmax(-1), seen[0]


@pytest.mark.parametrize("kind", ["mean", "resample"])
@pytest.mark.parametrize(("layer", "head"), [(0, 1), (1, 3)])
def test_exact_ablation_is_that_of_an_eager_pass(double, ablated, items, kind, layer, head):
    ids = torch.tensor([item.example.ids for item in items])
    gold = ids[:, 1:, None]
    base, z = eager_pass(double, ids, layer, lambda z: z)
    put = z.clone()
    if kind == "mean":
        put[:, 0, head], put[:, 1:, head] = z[:, 0, head].mean(0), z[:, 1:, head].mean((0, 1))
    else:
        put[:, :, head] = z.roll(1, 0)[:, :, head]  # every text takes that of the text before
    without, _ = eager_pass(double, ids, layer, lambda _: put)
    rise = (base.gather(-1, gold) - without.gather(-1, gold))[..., 0]
    wanted = torch.stack([rise[:, 0::2].sum(1), rise[:, 1::2].sum(1)], 1)  # token 1 is of class 1
    found, kl = ablated.ablate(HeadUnit(layer, head, 1), kind)
    torch.testing.assert_close(found, wanted.flip(1).float(), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(kl.sum(1), (base.exp() * (base - without)).sum(-1).sum(1).float(), rtol=1e-3, atol=1e-5)


def test_attribution_is_the_derivative_of_the_loss_and_half_the_curvature_of_the_kl(double, items):
    """Along a small step towards the ablated output, where the loss is linear and the KL quadratic."""
    one = batch_of(double, items, draws=300)
    one.change = {kind: {layer: 1e-2 * by for layer, by in found.items()} for kind, found in one.change.items()}
    found = one.attribute()
    for unit in (HeadUnit(0, 2, 1), HeadUnit(1, 0, 1)):
        for kind, name in enumerate(("mean", "resample")):
            ahead, kl = one.ablate(unit, name)
            change = one.change[name][unit.layer]
            one.change[name][unit.layer] = -change
            back, _ = one.ablate(unit, name)
            one.change[name][unit.layer] = change
            slope = (ahead - back) / 2
            first = found.first_order[:, kind, :, unit.layer, unit.first]
            torch.testing.assert_close(first, slope, rtol=5e-3, atol=2e-6)
            curvature = found.curvature[:, kind, :, unit.layer, unit.first].sum()
            assert float(curvature) == pytest.approx(float(kl.sum()), rel=0.15)  # of 300 x 4 draws


def test_neither_padding_nor_batches_change_anything():
    structure = Structure(load(*tiny_model(layers=2)))
    items = labelled(5, lengths=(12, 7, 9))
    whole = batch_of(structure, items)
    together = whole.attribute()
    exact, kl = whole.ablate(HeadUnit(1, 2, 1), "resample")
    for place, row in enumerate(whole.batch.indices):
        (batch,) = batches([items[row].example], 10_000, structure.device)
        alone = whole.owner.on(batch, [items[row]])
        for one, other in zip(together, alone.attribute(), strict=True):
            torch.testing.assert_close(one[place : place + 1], other, rtol=1e-3, atol=1e-5)
        rise, divergence = alone.ablate(HeadUnit(1, 2, 1), "resample")
        torch.testing.assert_close(exact[place : place + 1], rise, rtol=1e-3, atol=1e-5)
        torch.testing.assert_close(kl[place : place + 1], divergence, rtol=1e-3, atol=1e-5)
        assert alone.counts().tolist() == whole.counts()[place : place + 1].tolist()


def test_a_group_of_heads_that_share_keys_is_ablated_as_one(double, ablated, items):
    group = batch_of(double, items, unit="kv_group")
    assert units_of(double, "kv_group")[:3] == [HeadUnit(0, 0, 2), HeadUnit(0, 2, 2), HeadUnit(1, 0, 2)]
    single, joint = ablated.attribute().first_order, group.attribute().first_order
    torch.testing.assert_close(joint[..., 0], single[..., 0] + single[..., 1])
    torch.testing.assert_close(joint[..., 1], joint[..., 0])
    both = group.ablate(HeadUnit(1, 0, 2), "mean")[0]
    assert not torch.allclose(both, ablated.ablate(HeadUnit(1, 0, 1), "mean")[0])


@pytest.mark.parametrize("family", ["gpt2", "gemma2", "qwen3", "phi3", "mixtral"])
def test_a_pass_that_begins_in_the_ablated_layer_is_the_whole_pass(family):
    structure = Structure(load(tiny(family)))
    one = batch_of(structure, labelled(2))
    assert one.owner.resumes
    unit = HeadUnit(structure.card.layers - 1, 1, 1)
    resumed = one.ablate(unit, "mean")
    one.owner.resumes = False
    for found, whole in zip(resumed, one.ablate(unit, "mean"), strict=True):
        assert torch.equal(found, whole)
    assert structure.first_layer == 0 and bool(one.attribute().curvature.isfinite().all())
    assert all(parameter.requires_grad for parameter in structure.hf.parameters())
