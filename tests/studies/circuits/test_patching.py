"""Patching of heads and edges, exact and by gradient, on models small enough to compute it all again plainly."""

from contextlib import contextmanager

import numpy as np
import pytest
import torch
from planted import PLANTED, tiny_model
from planted_circuit import CIRCUIT, induction_pairs, planted_circuit_model

from headwise.core.errors import StudyError
from headwise.instruments import RawHeadOutputs
from headwise.interventions import Replace
from headwise.model import embedding, load
from headwise.seam import Intervention, Structure, observe
from headwise.studies.circuits.graph import Graph, deltas
from headwise.studies.circuits.measure import CircuitReader, why_not_solved
from headwise.studies.circuits.patching import EdgePatching, HeadPatching, TaskBatch, effects, head_effects, record
from headwise.studies.circuits.spec import CircuitsOptions


def ready(model, count=4, dtype=torch.float32):
    model.hf.to(dtype)
    reader = CircuitReader(Structure(model), CircuitsOptions())
    return reader, TaskBatch(reader.structure, induction_pairs(count))


@pytest.fixture(scope="module")
def planted():
    return ready(planted_circuit_model(), 6)


@pytest.fixture(params=["llama", "gpt2", "qwen3"])
def tiny(request):
    """Random models: grouped keys, a fused projection, norms on queries and keys."""
    return ready(load(*tiny_model(request.param)), dtype=torch.float64)


def all_edges(graph):
    return torch.from_numpy(graph.edges())


# ---- exact ----------------------------------------------------------------------------------------------------------


def test_with_all_edges_kept_a_pass_is_the_clean_one_and_with_none_the_corrupt_one(tiny):
    reader, batch = tiny
    retain = torch.stack([all_edges(reader.graph), torch.zeros_like(all_edges(reader.graph))])[:, None]
    scores = EdgePatching(batch, reader.wiring, reader.graph).scores_with(retain)
    assert torch.allclose(scores[0], batch.scores(), atol=1e-4)
    assert torch.allclose(scores[1], batch.scores(corrupt=True), atol=1e-4)


def test_to_cut_all_that_a_head_sends_is_to_patch_the_head(tiny):
    reader, batch = tiny
    senders = reader.graph.senders()
    edges, heads = EdgePatching(batch, reader.wiring, reader.graph), HeadPatching(batch)
    for layer, head in ((0, 1), (1, 3), (2, 0)):
        cut = all_edges(reader.graph).clone()
        cut[:, senders.index(f"L{layer}H{head}")] = False
        retain = torch.ones(1, 1, 3, 4, dtype=torch.bool)
        retain[..., layer, head] = False
        assert torch.allclose(edges.scores_with(cut[None, None]), heads.scores_with(retain), atol=1e-4)


def test_to_cut_all_that_a_head_hears_is_to_give_it_the_corrupt_stream(tiny):
    """Which is to patch it with its corrupt z, too: all that it does follows from what it hears."""
    reader, batch = tiny
    cut = all_edges(reader.graph).clone()
    cut[reader.graph.receivers().index("L1H2")] = False
    retain = torch.ones(1, 1, 3, 4, dtype=torch.bool)
    retain[..., 1, 2] = False
    edges = EdgePatching(batch, reader.wiring, reader.graph).scores_with(cut[None, None])
    assert torch.allclose(edges, HeadPatching(batch).scores_with(retain), atol=1e-4)


def test_replace_gives_every_row_its_own_heads(tiny):
    reader, batch = tiny
    other, streams = RawHeadOutputs(), RawHeadOutputs()
    with torch.no_grad(), observe(reader.structure, other):
        batch.logits(batch.corrupt)
    where = torch.zeros(len(batch), 3, 4, dtype=torch.bool)
    where[0, 1, 2] = where[3, 0, 0] = True
    with torch.no_grad(), observe(reader.structure, Replace(other.z, where), streams):
        batch.logits(batch.clean)
    assert torch.equal(streams.z[1][0, :, 2], other.z[1][0, :, 2])
    assert torch.equal(streams.z[0][3, :, 0], other.z[0][3, :, 0])
    assert not torch.equal(streams.z[0][1, :, 0], other.z[0][1, :, 0])


# ---- by gradient ----------------------------------------------------------------------------------------------------


@contextmanager
def half_way(batch):
    module = embedding(batch.structure)
    with torch.no_grad():
        other = module(batch.corrupt)
    handle = module.register_forward_hook(lambda _, __, own: (own + other) / 2)
    yield
    handle.remove()


class Push(Intervention):
    def __init__(self, layer, head, change, amount):
        self.layer, self.head, self.change_of, self.amount = layer, head, change, amount

    def change(self, call):
        if call.layer != self.layer:
            return call.z
        z = call.z.clone()
        z[:, :, self.head] += self.amount * self.change_of[:, :, self.head]
        return z


def test_a_heads_effect_is_the_slope_along_its_change(tiny):
    reader, batch = tiny
    found = effects(batch, reader.wiring, reader.graph, steps=1)
    with torch.no_grad():
        clean, corrupt = (record(batch, reader.wiring, reader.graph, ids)[0] for ids in (batch.clean, batch.corrupt))
        for layer, head in ((0, 2), (2, 1)):
            moved = clean.z[layer] - corrupt.z[layer]
            ends = []
            for amount in (-1e-3, 1e-3):
                with half_way(batch), observe(reader.structure, Push(layer, head, moved, amount)):
                    ends.append(batch.score(batch.logits(batch.clean).double()))
            slope = (ends[1] - ends[0]) / 2e-3
            assert torch.allclose(found.heads[:, layer, head].double(), slope, rtol=0.05, atol=2e-3)


def test_effects_of_edges_out_of_a_head_sum_to_the_heads_effect(tiny):
    """dscore/dz of a head is the sum over its readers of dscore/d(their input), through W_O: an identity, per head."""
    reader, batch = tiny
    found = effects(batch, reader.wiring, reader.graph, steps=2)
    senders = reader.graph.senders()
    for layer in range(3):
        for head in range(4):
            out = found.edges[:, senders.index(f"L{layer}H{head}")].sum()
            assert float(out) == pytest.approx(float(found.heads[:, layer, head].mean()), rel=1e-3, abs=1e-5)


def test_effects_of_edges_out_of_the_input_sum_to_the_slope_along_the_embedding(tiny):
    reader, batch = tiny
    found = effects(batch, reader.wiring, reader.graph, steps=1)
    module = embedding(batch.structure)
    ends = []
    with torch.no_grad():
        a, b = module(batch.clean), module(batch.corrupt)
        for part in (0.5 - 1e-3, 0.5 + 1e-3):
            handle = module.register_forward_hook(lambda _, __, own, part=part: a + part * (b - a))
            ends.append(batch.score(batch.logits(batch.clean).double()).mean())
            handle.remove()
    slope = float(ends[0] - ends[1]) / 2e-3  # clean less corrupt
    assert float(found.edges[:, 0].sum()) == pytest.approx(slope, rel=0.05, abs=2e-3)


def test_what_senders_change_adds_up_to_what_the_stream_changes(tiny):
    reader, batch = tiny
    with torch.no_grad():
        clean, corrupt = (record(batch, reader.wiring, reader.graph, ids)[0] for ids in (batch.clean, batch.corrupt))
    total = deltas(clean, corrupt, reader.wiring, reader.graph).sum(1)
    assert torch.allclose(total, (clean.out[-1] - corrupt.out[-1]).flatten(1).float(), atol=1e-4)


# ---- the planted circuit --------------------------------------------------------------------------------------------


def test_the_planted_circuit_is_found_and_explains_everything(planted):
    reader, batch = planted
    assert bool((batch.scores() > 1).all()) and bool((batch.scores(corrupt=True) < -1).all())
    found = effects(batch, reader.wiring, reader.graph, steps=8)
    order = found.heads.mean(0).flatten().argsort(descending=True)[:2].tolist()
    assert {divmod(place, 6) for place in order} == CIRCUIT
    retain = torch.zeros(2, 1, 3, 6, dtype=torch.bool)
    for layer, head in CIRCUIT:
        retain[0, 0, layer, head] = True
    retain[1] = ~retain[0]
    clean, corrupt = batch.scores().mean(), batch.scores(corrupt=True).mean()
    shares = (HeadPatching(batch).scores_with(retain).mean(1) - corrupt) / (clean - corrupt)
    assert shares.tolist() == pytest.approx([1, 0], abs=0.02)


def test_the_planted_circuit_is_three_edges(planted):
    reader, batch = planted
    senders, receivers = reader.graph.senders(), reader.graph.receivers()
    previous, induction = (f"L{layer}H{head}" for layer, head in (PLANTED["previous"], PLANTED["induction"]))
    wires = [("input", previous), (previous, induction), (induction, "logits")]
    retain = torch.zeros(1, 1, *reader.graph.edges().shape, dtype=torch.bool)
    for sender, receiver in wires:
        retain[..., receivers.index(receiver), senders.index(sender)] = True
    clean, corrupt = batch.scores().mean(), batch.scores(corrupt=True).mean()
    edges = EdgePatching(batch, reader.wiring, reader.graph)
    assert float((edges.scores_with(retain).mean() - corrupt) / (clean - corrupt)) == pytest.approx(1, abs=0.05)
    without = retain.clone()
    without[..., receivers.index(induction), senders.index(previous)] = False
    assert float((edges.scores_with(without).mean() - corrupt) / (clean - corrupt)) < 0.6


def test_a_reader_measures_the_planted_circuit():
    model = planted_circuit_model()
    reader = CircuitReader(Structure(model), CircuitsOptions(ranking=4, measuring=6, steps=4, checked=6))
    found = reader.read(induction_pairs(10))
    assert found.reason == ""
    shares = {
        unit: (one.scores.mean(1) - found.corrupt[4:].mean()) / (found.clean[4:] - found.corrupt[4:]).mean()
        for unit, one in found.circuits.items()
    }
    sizes = found.circuits["heads"].sizes
    assert shares["heads"][sizes.index(2)] == pytest.approx(1, abs=0.02)
    assert shares["heads"][sizes.index(1)] < 0.9
    assert found.circuits["edges"].sizes[-1] == reader.graph.edges().sum()
    assert {name for name, _ in found.edges[:2]} == {"L0H3 > L1H4", "L1H4 > logits"}
    random = found.circuits["heads"].random_scores.mean(1)
    assert random[0] < found.circuits["heads"].scores[sizes.index(2)].mean() - 1


# ---- what is refused ------------------------------------------------------------------------------------------------


def test_a_model_that_guesses_does_not_do_the_task():
    clean = np.array([1.0, -1.0] * 10)
    assert "not above chance" in why_not_solved(clean, clean)
    assert "not above 0" in why_not_solved(np.ones(20), np.ones(20) + np.array([0.5, -0.5] * 10))
    assert why_not_solved(np.ones(20), -np.ones(20) + np.array([0.5, -0.5] * 10)) == ""


def test_a_family_whose_mlp_stands_beside_the_attention_has_no_edges():
    reader, batch = ready(load(*tiny_model("gpt_neox")))
    with pytest.raises(StudyError, match="edges are not measured"):
        EdgePatching(batch, reader.wiring, reader.graph)


@pytest.mark.parametrize("family", ["gpt_neox", "gemma2", "phi"])
def test_heads_are_measured_where_edges_cannot_be(family):
    reader, batch = ready(load(*tiny_model(family)), 6)
    assert reader._edge_patchings(batch) == []
    assert reader.no_edges
    heads, edges = reader._ranked(batch, with_edges=False)
    assert edges is None
    assert heads.shape == (6, 3, 4)
    assert bool(heads.isfinite().all())


def test_heads_alone_have_the_effects_that_they_have_with_edges(tiny):
    reader, batch = tiny
    both = effects(batch, reader.wiring, reader.graph, steps=2).heads
    assert torch.allclose(head_effects(batch, steps=2), both, rtol=1e-3, atol=1e-4)


def test_the_graph_of_the_default_model():
    graph = Graph.of([9] * 30)
    assert graph.edges().sum() == 44_371
    edges = graph.edges()
    senders, receivers = graph.senders(), graph.receivers()
    assert (
        edges[receivers.index("L3H0"), senders.index("M2")]
        and not edges[receivers.index("L3H0"), senders.index("L3H1")]
    )
    assert edges[receivers.index("M3"), senders.index("L3H1")] and edges[-1].all()
