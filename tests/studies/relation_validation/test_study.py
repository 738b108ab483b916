"""Heads in texts against their weights, and tasks without them: on a model whose heads are known, and by plain forms."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
import xarray as xr
from planted import tiny_model
from planted_relations import planted_relations, planted_relations_model
from planted_tasks import HEADS, PAIRS, planted_tasks, planted_tasks_model

from headwise.atlas import Atlas, Provenance
from headwise.core.errors import DataError, StudyError
from headwise.core.schema import check
from headwise.corpora import Relation, Relations, packaged_relations, single_token_pairs
from headwise.engines import Shard
from headwise.interventions import ScaleHeads
from headwise.model import load
from headwise.seam import HeadWeights, Structure, observe
from headwise.studies.building import build
from headwise.studies.inputs import StudyInputs
from headwise.studies.present import describe, figure_of
from headwise.studies.registry import dataset_spec
from headwise.studies.relation_validation import measure as relation_validation
from headwise.studies.relation_validation.measure import SourcePrompt, found_in_outputs, prompts_of
from headwise.studies.relation_validation.removal import LastToken, ranked_heads, remove, task_of
from headwise.studies.relation_validation.spec import RelationValidationOptions
from headwise.studies.relations.spec import RelationsOptions

SMALL = RelationValidationOptions(
    prompts=8, tried=12, solved=10, least_solved=6, shots=2, removed=(1, 2, 4), batch_tokens=64
)


@pytest.fixture(scope="module")
def model():
    return planted_tasks_model()


def maps_of(model, relations: Relations, heads: dict[str, tuple[int, int]]) -> xr.Dataset:
    """A map as the relations study makes it: 1 at the given head, .1 at five others, 0 elsewhere."""
    card = model.card
    score = np.zeros((len(relations), card.layers, card.heads), dtype=np.float32)
    for row, item in enumerate(relations):
        score[row, 0, :] = 0.1
        score[row, *heads[item.name]] = 1.0
    data = {"name": relations.name, "size": 28, "digest": relations.digest}
    return xr.Dataset(
        {"score": (("relation", "layer", "head"), score), "k": ("relation", [2] * len(relations))},
        coords={
            "relation": np.array(relations.names, dtype=object),
            "category_of": ("relation", np.array([item.category for item in relations], dtype=object)),
            "layer": np.arange(card.layers),
            "head": np.arange(card.heads),
        },
        attrs=Provenance("relations", 1, model.identity(), data, {}, 0).to_attrs(),
    )


def validated(model, relations: Relations, heads, options=SMALL) -> xr.Dataset:
    run = relation_validation.prepare(
        model, StudyInputs(relations_source=relations, maps={"relations": maps_of(model, relations, heads)}), options
    )
    shards = [run.measure(Shard(row, row, row + 1)) for row in range(run.examples)]
    dataset = run.finalize(shards)["relation_validation"]
    return dataset.assign_attrs(run.provenance.to_attrs())


@pytest.fixture(scope="module")
def planted(model):
    return validated(model, planted_tasks(), HEADS)


# ---- the planted model ----------------------------------------------------------------------------------------------


def test_the_dataset_is_as_promised(planted):
    check(planted, dataset_spec("relation_validation").schema)


@pytest.mark.parametrize("reading", ["natural", "forced"])
def test_only_the_planted_head_finds_the_targets(planted, reading):
    for name, place in HEADS.items():
        found = planted[reading].sel(relation=name).values
        assert found[place] == 1
        rest = np.delete(found.ravel(), place[0] * found.shape[1] + place[1])
        assert rest.max() <= 0.25, "a head of noise finds a target among the first two of 200 now and then at most"
        assert planted[f"pearson_{reading}"].sel(relation=name) > 0.9
        assert planted[f"pearson_{reading}_low"].sel(relation=name) < 0.99, (
            "one head carries it, and the interval says so"
        )
        assert abs(planted[f"other_{reading}"].sel(relation=name)) < 0.3


def test_the_planted_head_carries_the_task_and_no_other(planted):
    assert planted["asked"].values.tolist() == [10, 10]
    assert (planted["own"] == 0).all(), "the planted head is the first to go, and with it every answer"
    assert (planted["others"].sel(task="alpha", control="beta") == 1).all()
    assert np.isnan(planted["others"].sel(task="alpha", control="alpha")).all()
    assert (planted["random"] > 0.5).all() and planted["random"].sel(removed=1).min() == 1
    assert (planted["effect_low"] > 0.5).all()
    assert (abs(planted["spill"]) < 0.4).all() and (planted["effect_low"] > planted["spill_high"]).all()


def test_removing_another_relations_heads_changes_nothing(model):
    """The wrong map: each relation's score at the other's head."""
    swapped = {"alpha": HEADS["beta"], "beta": HEADS["alpha"]}
    found = validated(model, planted_tasks(), swapped)
    assert (found["own"] == 1).all()
    assert (found["pearson_forced"] < 0.3).all()
    assert (found["effect"] <= 0).all() and (found["others"].sel(task="alpha", control="beta") == 0).all()


def test_shards_of_any_size_give_the_same(model, planted):
    run = relation_validation.prepare(
        model,
        StudyInputs(relations_source=planted_tasks(), maps={"relations": maps_of(model, planted_tasks(), HEADS)}),
        SMALL,
    )
    whole = run.finalize([run.measure(Shard(0, 0, 2))])["relation_validation"]
    xr.testing.assert_allclose(whole, planted)


def test_it_goes_into_an_atlas_and_comes_back(planted, tmp_path):
    atlas = Atlas.create(tmp_path / "atlas")
    atlas.add("relation_validation", planted)
    back = Atlas.open(tmp_path / "atlas")["relation_validation"]
    np.testing.assert_array_equal(back["own"], planted["own"])
    assert back["task"].values.tolist() == ["alpha", "beta"]


def test_a_model_that_solves_nothing_is_said_to(tmp_path):
    hf, tokenizer = tiny_model("llama")
    model, relations = load(hf, tokenizer), planted_tasks()
    found = validated(model, relations, dict.fromkeys(HEADS, (1, 1)))
    assert found.sizes["task"] == 0
    assert set(json.loads(found.attrs["unsolved"])) == {"alpha", "beta"}
    check(found, dataset_spec("relation_validation").schema)
    atlas = Atlas.create(tmp_path / "atlas")
    atlas.add("relation_validation", found)
    back = atlas["relation_validation"]
    assert "solves too few prompts of alpha" in describe("relation_validation", back).text()
    with pytest.raises(StudyError, match=r"No task was solved often enough .*alpha"):
        figure_of("relation_validation", back, kind="removal")


def test_a_relation_that_no_head_has_a_score_for(model):
    """Nothing to remove: no curve, no effect, and nothing breaks."""
    maps = maps_of(model, planted_tasks(), HEADS)
    maps["score"].loc[{"relation": "beta"}] = 0
    run = relation_validation.prepare(
        model, StudyInputs(relations_source=planted_tasks(), maps={"relations": maps}), SMALL
    )
    found = run.finalize([run.measure(Shard(0, 0, 2))])["relation_validation"]
    found = found.assign_attrs(run.provenance.to_attrs())
    assert np.isnan(found["own"].sel(task="beta")).all() and np.isnan(found["effect"].sel(task="beta"))
    assert np.isnan(found["pearson_forced"].sel(relation="beta")) and (found["own"].sel(task="alpha") == 0).all()
    assert "no head has a score for it" in describe("relation_validation", found).text()
    for kind in ("outputs", "scatter", "removal"):
        assert figure_of("relation_validation", found, kind=kind).panels


# ---- heads' outputs, against a plain form ---------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["llama", "gpt2", "qwen3"])
def test_what_is_found_in_outputs_is_what_sorting_finds(family):
    hf, tokenizer = tiny_model(family)
    model = load(hf, tokenizer)
    rng = np.random.default_rng(0)
    prompts = [
        SourcePrompt(tuple(rng.integers(5, 200, size).tolist()), int(rng.integers(0, size)), int(rng.integers(5, 200)))
        for size in (6, 9, 4, 7, 7)
    ]
    k = [1, 20, 20, 60, 60]
    structure, weights = Structure(model), HeadWeights(model)
    natural, forced = found_in_outputs(structure, weights.unembedding, prompts, k, batch_tokens=16)
    for row, prompt in enumerate(prompts):
        for layer in range(model.card.layers):
            z, v = plain_vectors(hf, prompt, layer, model.card)
            output, unembedding = weights.layer(layer).output.double(), weights.unembedding.double()
            for vectors, found in ((z, natural), (v, forced)):
                for head, vector in enumerate(vectors):
                    scores = (vector.double() @ output[head] @ unembedding.T).numpy()
                    rank = (scores > scores[prompt.target]).sum()
                    assert found[row, layer, head] == (rank < k[row])
    assert 0.05 < np.mean(forced) < 0.95 and not np.array_equal(natural, forced)


def test_a_head_that_writes_nothing_finds_nothing():
    hf, tokenizer = tiny_model("llama")
    with torch.no_grad():
        hf.model.layers[1].self_attn.o_proj.weight[:, 16:32] = 0  # head 1
    model = load(hf, tokenizer)
    prompts = [SourcePrompt((5, 6, 7, 8), 2, target) for target in range(20, 40)]
    unembedding = HeadWeights(model).unembedding
    for found in found_in_outputs(Structure(model), unembedding, prompts, [60] * 20, batch_tokens=64):
        assert found[:, 1, 1].sum() == 0 < found[:, 1, 0].sum()


def plain_vectors(hf, prompt: SourcePrompt, layer: int, card) -> tuple[torch.Tensor, torch.Tensor]:
    """z of the last token from the output projection's input, v of the source from the value projection; (head, width)."""
    taken = {}
    block = (hf.transformer.h if hasattr(hf, "transformer") else hf.model.layers)[layer]
    attention = block.attn if hasattr(block, "attn") else block.self_attn
    project = attention.c_proj if hasattr(attention, "c_proj") else attention.o_proj
    value = attention.c_attn if hasattr(attention, "c_attn") else attention.v_proj
    handles = [
        project.register_forward_pre_hook(lambda _, args: taken.update(z=args[0])),
        value.register_forward_hook(lambda _, args, out: taken.update(v=out)),
    ]
    with torch.no_grad():
        hf(input_ids=torch.tensor([prompt.ids]))
    for handle in handles:
        handle.remove()
    v = taken["v"][0, prompt.source_index]
    v = v[-v.shape[-1] // 3 :] if value is getattr(attention, "c_attn", None) else v
    z = taken["z"][0, -1].view(card.heads, -1)
    v = v.view(-1, z.shape[1])  # (kv_head, width)
    return z, v.repeat_interleave(card.heads // len(v), dim=0)


# ---- removal --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["llama", "gpt2", "gemma2"])
def test_the_last_token_alone_gives_what_whole_prompts_give(family):
    """The cache is a shortcut, not another measurement."""
    hf, tokenizer = tiny_model(family)
    model = load(hf, tokenizer)
    structure = Structure(model)
    task = task_of(model, single_token_pairs(planted_tasks()["alpha"], tokenizer), shots=3, count=9, seed=0)
    assert 0 < task.shared < task.ids.shape[1]
    heads = [(0, 0), (1, 2), (2, 3)]
    for removed in ([], heads):
        with torch.no_grad(), observe(structure, *([ScaleHeads(removed, 0.0, "last")] if removed else [])):
            whole = hf(input_ids=task.ids, use_cache=False).logits[:, -1].argmax(-1)
        right = type(task)(task.relation, task.ids, task.shared, tuple(frozenset([int(token)]) for token in whole))
        assert LastToken(model, right).right([(), removed])[1 if removed else 0].all()


def test_heads_are_ranked_by_score_and_those_without_left_out():
    score = np.array([[0.0, 0.5, np.nan], [0.5, 0.9, 0.0]])
    assert ranked_heads(score) == [(1, 1), (0, 1), (1, 0)]


def test_random_heads_are_never_the_relations_own(model):
    removed: list[list[tuple[int, int]]] = []

    class Recorder(LastToken):
        def right(self, sets):
            removed.extend(map(list, sets))
            return np.ones((len(sets), len(self.task)), dtype=bool)

    task = task_of(model, single_token_pairs(planted_tasks()["alpha"], model.tokenizer), shots=2, count=3, seed=0)
    ranked = {"alpha": [(2, 0), (0, 1), (1, 1)], "beta": [(2, 3)]}
    everyone = [(layer, head) for layer in range(3) for head in range(6)]
    found = remove(Recorder(model, task), ranked, everyone, steps=[1, 2, 4], draws=6, seed=0)
    own, random, control = removed[:2], removed[2:-1], removed[-1:]
    assert own == [[(2, 0)], [(2, 0), (0, 1)]], "only as many as have a score"
    assert control == [[(2, 3)]]
    assert len(random) == 12 and all(set(heads).isdisjoint(own[-1]) for heads in random)
    assert all(one == two[:1] for one, two in zip(random[::2], random[1::2], strict=True)), "nested, as the others are"
    assert len({tuple(heads) for heads in random[1::2]}) > 1
    assert np.isnan(found.own[:, 2]).all() and np.isnan(found.random[:, :, 2]).all()
    assert np.isnan(found.control[0]).all() and np.isnan(found.control[1][:, 1:]).all()


def test_random_heads_can_be_drawn_from_the_same_layers(model):
    removed: list[list[tuple[int, int]]] = []

    class Recorder(LastToken):
        def right(self, sets):
            removed.extend(map(list, sets))
            return np.ones((len(sets), len(self.task)), dtype=bool)

    task = task_of(model, single_token_pairs(planted_tasks()["alpha"], model.tokenizer), shots=2, count=3, seed=0)
    own = [
        (2, 0),
        (0, 1),
        (2, 2),
        (2, 4),
        (2, 5),
    ]  # five of layer 2's six heads would be needed: one is left, then layer 1
    everyone = [(layer, head) for layer in range(3) for head in range(6)]
    run = Recorder(model, task)
    remove(run, {"alpha": own}, everyone, steps=[5], draws=8, seed=0, same_layers=True)
    for heads in removed[1:]:
        assert [layer for layer, _ in heads] == [2, 0, 2, 1, 1]
        assert len(set(heads)) == 5 and not set(heads) & set(own)
    assert len({tuple(heads) for heads in removed[1:]}) > 1


def test_where_depth_alone_explains_the_loss_the_heads_do_not_rank_first(model, monkeypatch):
    """Accuracy depends on how many heads of the last layer are left: others of that layer cost the same, heads of all less."""

    def only_depth(self, sets):
        last = np.array([sum(layer == 2 for layer, _ in heads) for heads in sets])
        return np.arange(len(self.task)) >= 3 * last[:, None]

    monkeypatch.setattr(LastToken, "right", only_depth)
    places = {"alpha": (2, 0), "beta": (2, 3)}
    matched = validated(model, planted_tasks(), places, replace(SMALL, removed=(1,)))
    np.testing.assert_array_equal(matched["effect"], 0)
    np.testing.assert_array_equal(matched["rank_p"], 1)
    anywhere = validated(model, planted_tasks(), places, replace(SMALL, removed=(1,), same_layers=False))
    assert (anywhere["effect"] > 0.15).all()  # what the control was before: depth, taken for the heads


def test_planted_heads_rank_first_among_heads_of_their_layers(planted):
    np.testing.assert_allclose(planted["rank_p"], 1 / 21, rtol=1e-5)


# ---- prompts --------------------------------------------------------------------------------------------------------


def test_a_prompt_knows_where_its_source_is(model):
    kept = single_token_pairs(planted_tasks()["beta"], model.tokenizer)
    prompts = prompts_of(model, kept, 5, seed=0)
    pairs = dict(zip(kept.sources, kept.targets, strict=True))
    assert len(prompts) == 5 and prompts == prompts_of(model, kept, 5, seed=0) != prompts_of(model, kept, 5, seed=1)
    for prompt in prompts:
        assert pairs[prompt.ids[prompt.source_index]] == prompt.target
    assert len(prompts_of(model, kept, 100, seed=0)) == PAIRS


def test_a_relation_without_templates_has_general_ones(model):
    bare = Relation("bare", "own", planted_tasks()["alpha"].pairs)
    prompts = prompts_of(model, single_token_pairs(bare, model.tokenizer), 4, seed=0)
    assert len(prompts) == 4 and len({len(prompt.ids) for prompt in prompts}) == 2


def test_every_target_of_a_source_is_right_and_shots_are_not_asked(model):
    words = [word for pair in planted_tasks()["alpha"].pairs for word in pair]
    pairs = [
        (words[0], words[1]),
        (words[0], words[2]),
        (words[3], words[4]),
        (words[5], words[6]),
        (words[7], words[8]),
    ]
    kept = single_token_pairs(Relation("r", "own", tuple(pairs), templates=("the {s} was",)), model.tokenizer)
    ids = model.tokenizer.get_vocab()
    for seed in range(4):
        task = task_of(model, kept, shots=2, count=9, seed=seed)
        asked = [int(row[-2]) for row in task.ids]
        shown = {int(token) for token in task.ids[0, : task.shared]}
        assert len(asked) == 2 and not shown & set(asked)
        for source, right in zip(asked, task.answers, strict=True):
            expected = {ids[b] for a, b in pairs if ids[a] == source}
            assert right == expected


# ---- refusals -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong", [{"draws": 19}, {"prompts": 0}, {"removed": (4, 2)}, {"removed": ()}, {"removed": (0,)}]
)
def test_options_that_make_no_sense(wrong):
    with pytest.raises(StudyError, match=r"draws must be|prompts must be|removed must increase"):
        RelationValidationOptions(**wrong)


def test_a_map_of_other_relations_is_refused(model):
    maps = maps_of(model, planted_tasks(), HEADS)
    with pytest.raises(DataError, match=r"made from planted tasks .* these are packaged relations"):
        relation_validation.prepare(model, StudyInputs(relations_source=packaged_relations(), maps={"relations": maps}))


def test_unknown_tasks_are_refused(model):
    maps = maps_of(model, planted_tasks(), HEADS)
    with pytest.raises(DataError, match="no relation 'gamma'"):
        relation_validation.prepare(
            model,
            StudyInputs(relations_source=planted_tasks(), maps={"relations": maps}),
            RelationValidationOptions(tasks=("gamma",)),
        )


# ---- through the door -----------------------------------------------------------------------------------------------


def test_build_makes_the_map_it_is_checked_against(tmp_path):
    model = planted_relations_model()
    small = RelationValidationOptions(prompts=4, tried=6, solved=4, least_solved=2, shots=1, removed=(1, 2))
    told: list[tuple[str, int, int]] = []
    options = {"relation_validation": small, "relations": RelationsOptions(shuffles=2, salience=False)}
    for _ in range(2):
        atlas = build(
            model, ["relation_validation"], relations=planted_relations(), output=tmp_path / "atlas", options=options,
            progress=lambda *step: told.append(step),
        )  # fmt: skip
    assert {"relations", "relation_validation"} <= set(atlas.studies)
    found = atlas["relation_validation"]
    assert found["relation"].values.tolist() == atlas["relations"]["relation"].values.tolist()
    np.testing.assert_array_equal(found["score"], atlas["relations"]["score"])
    assert [step[0] for step in told if step[1] == 0] == ["relations", "relation_validation"], "once each"
    assert figure_of("relation_validation", found).panels


# ---- the default model ----------------------------------------------------------------------------------------------


@pytest.mark.real
def test_the_default_model_solves_plurals_and_whole_prompts_agree():
    model = load()
    task = task_of(model, single_token_pairs(packaged_relations()["plural"], model.tokenizer), shots=5, count=8, seed=0)
    heads = [(layer, head) for layer in range(30) for head in (0, 4)]
    intact, without = LastToken(model, task).right([(), heads])
    assert intact.mean() >= 0.75
    with torch.no_grad(), observe(Structure(model), ScaleHeads(heads, 0.0, "last")):
        whole = model.hf(input_ids=task.ids, use_cache=False).logits[:, -1].argmax(-1).tolist()
    assert without.tolist() == [token in right for token, right in zip(whole, task.answers, strict=True)]
    assert without.mean() < intact.mean() or without.all()
