"""A planted model: without its own head a function's answers are gone, without matched heads they stay."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from planted_steps import HEADS, planted_maps, planted_steps, planted_steps_model

from headwise.core.errors import DataError, StudyError
from headwise.core.schema import check
from headwise.corpora import Steps, answers_step, step_ids
from headwise.engines import split_shards
from headwise.instruments import HeadOutputs
from headwise.seam import observe
from headwise.studies.decoding import POSITIONS
from headwise.studies.function_masking.measure import RankedHeads, prepare
from headwise.studies.function_masking.spec import FunctionMaskingOptions
from headwise.studies.inputs import StudyInputs
from headwise.studies.prompter import Prompter
from headwise.studies.registry import dataset_spec

OPTIONS = FunctionMaskingOptions(
    heads=(1, 2, 4),
    size=1,
    solved_steps=15,
    failed_steps=3,
    augmented_steps=0,
    chains=4,
    chain_draws=2,
    low_order=("alpha",),
    high_order=("beta",),
)


@pytest.fixture(scope="module")
def model():
    return planted_steps_model()


def said(model, step):
    with torch.no_grad():
        token = int(model.hf(torch.tensor([step_ids(model, step)])).logits[0, -1].argmax())
    return model.tokenizer.decode([token])


@pytest.fixture(scope="module")
def steps():
    """One step a question; and some questions of two, the second of which needs nothing from the first."""
    single = list(planted_steps())
    chained = []
    for number, (one, other) in enumerate(zip(single[1:14:2], single[15:28:2], strict=True)):
        name = f"both-{number}"
        first = replace(one, id=f"{name}-1", chain=name, split="held-out")
        later = replace(other, id=f"{name}-2", chain=name, number=2, split="held-out")
        chained += [first, replace(later, earlier=((first.subquestion, first.answer),))]
    return Steps("planted steps", tuple(single + chained))


@pytest.fixture(scope="module")
def maps(model, steps):
    return planted_maps(steps, {step.id: answers_step(step, said(model, step)) for step in steps}, model)


def masked(model, steps, maps, options=OPTIONS):
    work = prepare(model, StudyInputs(steps_source=steps, maps={"functions": maps}), options)
    shards = [work.measure(shard) for shard in split_shards(work.examples, work.shard_size)]
    return work.finalize(shards)["function_masking"].assign_attrs(work.provenance.to_attrs())


@pytest.fixture(scope="module")
def found(model, steps, maps):
    return masked(model, steps, maps)


def test_the_model_does_its_steps(maps):
    assert maps["right"].values.mean() > 0.95


def test_without_its_own_head_a_function_is_gone(found):
    assert (found["own"] == 0).all()
    assert (found["random"] > 0.9).all()
    assert (found["effect_low"] > 0.5).all() and (found["mean_effect_low"] > 0.5).all()
    assert float(found["pooled_mean_effect_low"]) > 0.5


def test_the_other_functions_head_is_not_needed(found):
    np.testing.assert_array_equal(found["cross"].values, [[0, 1], [1, 0]])
    assert (np.diag(found["cross_effect"]) > 0.9).all()
    assert (found["spill_high"] < 0.6).all() and (found["spill"] <= 0.1).all()
    np.testing.assert_array_equal(found["overlap"].values, np.eye(2))


def test_the_own_set_ranks_first_among_its_matches(found):
    """One head of six: the three nearest in norm. Two in two layers: nine. Three of a layer leave one set of three there."""
    np.testing.assert_array_equal(found["control_sets"], [[3, 9, 3]] * 2)
    np.testing.assert_allclose(found["rank_p"], 1 / (1 + found["control_sets"]))
    fewest = found["control_sets"].min("removed").values
    np.testing.assert_allclose(found["mean_rank_p"], 1 / (1 + fewest))
    np.testing.assert_allclose(found["pooled_rank_p"], 1 / (1 + fewest.min()))


def test_controls_have_as_many_heads_in_every_layer_and_are_near_in_norm(maps):
    heads = RankedHeads(maps, factor=0.0, seed=0)
    for name in ("alpha", "beta"):
        for count in (1, 2, 4, 8):
            own = heads.most_important(name, count)
            assert max(Counter(layer for layer, _ in own).values()) <= 3  # at most half of the six heads of a layer
            sets = heads.matched_sets(own, 20, name)
            assert len({frozenset(one) for one in sets}) == len(sets)
            for one in sets:
                assert not set(own) & set(one)
                assert Counter(layer for layer, _ in one) == Counter(layer for layer, _ in own)
    own = heads.most_important("alpha", 1)  # L2H0 writes least: of norm 1, and the others of its layer 2 to 6
    assert {one for some in heads.matched_sets(own, 20, "x") for one in some} == {(2, 1), (2, 2), (2, 3)}
    assert heads.norm_ratio(own, [[(2, 1)], [(2, 3)]]) == 3.0


def test_the_most_important_heads_of_others_are_not_excluded(maps):
    heads = RankedHeads(maps, factor=0.0, seed=0)
    assert HEADS["beta"] in {one for some in heads.matched_sets([HEADS["alpha"]], 20, "x") for one in some}


def only_depth(self, steps, trials, what):
    """A model whose answers depend on how many heads of its last layer are left, and on nothing else."""
    return np.array([int((change.factor[2] < 1).sum()) <= index % 4 for index, change in trials])


def test_where_depth_alone_explains_the_loss_matched_heads_show_nothing(model, steps, maps, monkeypatch):
    """The importance names heads of the last layer; masking any others of it costs the same, heads of other layers nothing."""
    importance = np.zeros((2, 3, 6), dtype=np.float32)
    importance[:, 2] = np.arange(6)
    deep = maps.assign(train_importance=(("function", "layer", "head"), importance))
    monkeypatch.setattr(Prompter, "answer", only_depth)
    found = masked(model, steps, deep, replace(OPTIONS, heads=(2, 3), size=3, failed_steps=0, chains=0))
    assert (found["own"] < 0.75).all()  # masking costs a lot, which heads of all layers would not explain
    np.testing.assert_array_equal(found["effect"], 0)
    np.testing.assert_array_equal(found["rank_p"], 1)
    assert (found["mean_effect_low"] < 0).all() and (found["mean_rank_q"] == 1).all()


def test_heads_are_ranked_on_training_steps(maps):
    """The held-out ranking names other heads, and is not used."""
    reversed_heads = maps["train_importance"].values[:, :, ::-1]
    other = maps.assign(train_importance=(("function", "layer", "head"), reversed_heads))
    heads = RankedHeads(other, factor=0.0, seed=0)
    assert heads.most_important("alpha", 1) == [(2, 5)] and str(maps["ranked"].values[0, 0]) == "L2H0"


def test_a_map_that_was_ranked_on_held_out_steps_is_refused(model, steps, maps):
    with pytest.raises(DataError, match=r"older version.*--redo functions"):
        prepare(model, StudyInputs(steps_source=steps, maps={"functions": maps.drop_vars("train_importance")}), OPTIONS)


def test_held_out_steps_that_were_not_asked_are_answered_first(model, steps, maps):
    """Only the first ten steps of the map are known; enough others are answered for fifteen solved ones."""
    held_out = np.flatnonzero((maps["split_of"] == "held-out") & (maps["function_of"] == "alpha"))
    few = maps.isel(example=np.setdiff1d(np.arange(maps.sizes["example"]), held_out[3:]))
    found = masked(model, steps, few, replace(OPTIONS, chains=0))
    assert (found["masked_steps"] == 15).all() and int(found["held_out_steps"].sel(function="alpha")) > 3


def test_whole_questions_lose_the_masked_steps_and_no_others(found):
    assert int(found.attrs["chains"]) == 4 and found.attrs["chain_reason"] == ""
    assert float(found["chain"].sel(masked="alpha", function="alpha")) == 0
    assert float(found["chain"].sel(masked="alpha", function="beta")) == float(
        found["chain_intact"].sel(function="beta")
    )
    assert np.isnan(found["chain"].sel(masked="beta")).all()
    assert (
        float(found["chain_effect"].sel(function="alpha")) <= 0
    )  # a control set may hold beta's head, alpha's does not


def test_what_was_asked_is_counted_and_named(found, maps):
    assert (found["masked_steps"] == 15).all() and (found["held_out_steps"] == 21).all()
    assert found["heads"].sel(function="beta", removed=1).item() == "L{}H{}".format(*HEADS["beta"])
    assert (found["intact"] == found["solved_steps"] / found["held_out_steps"]).all()
    assert (found["augment_reason"] == "no augmenting was requested").all()


def test_the_dataset_is_as_promised(found):
    check(found, dataset_spec("function_masking").schema)


@pytest.mark.parametrize("where", POSITIONS)
def test_where_heads_are_masked(model, steps, maps, where):
    """An answer of one token is made at the last prompt token: masking decode steps alone comes too late."""
    small = replace(OPTIONS, where=where, heads=(1,), solved_steps=15, failed_steps=0, chains=0)
    found = masked(model, steps, maps, small)
    assert (found["own"] == (1 if where == "decode" else 0)).all()
    assert found.attrs["chain_reason"] == "no whole questions were requested" and found["chain"].isnull().all()


def test_augmenting_along_the_right_direction_mends_and_a_random_one_does_not(model, steps, maps):
    """A head that is almost off gives its answers back when what it would write is added to it."""
    weak = planted_steps_model()
    attention = weak.hf.transformer.h[2].attn
    layer, head = HEADS["alpha"]
    width = 64
    with torch.no_grad():
        attention.c_proj.weight[head * width : (head + 1) * width] *= 0.02
    one = next(step for step in steps if step.function == "alpha" and step.split == "held-out")
    with torch.no_grad(), observe(model, HeadOutputs("last")) as seen:
        model.hf(torch.tensor([step_ids(model, one)]))
    vector = np.zeros((2, 3, 6, width), dtype=np.float32)
    vector[0, layer, head] = seen["outputs"]["z"].values[0, layer, head, 0] * 60
    same = [step for step in steps if step.answers == one.answers]
    only = Steps("planted steps", tuple(same + [step for step in steps if step.function == "beta"]))
    answered = {step.id: answers_step(step, said(weak, step)) for step in only}
    told = planted_maps(only, answered, weak).assign(direction=(("function", "layer", "head", "width"), vector))
    options = replace(OPTIONS, augmented_steps=2, random_directions=3, amounts=(1.0,), chains=0, failed_steps=0)
    found = masked(weak, only, told, options)
    assert found["augmented"].sel(function="alpha").values.tolist() == [0, 1]
    assert float(found["augmented_random"].sel(function="alpha", amount=1)) < 0.5
    assert float(found["gain"].sel(function="alpha", amount=1)) == 1
    assert "a direction needs 5 correct and 5 wrong training steps" in str(
        found["augment_reason"].sel(function="beta").item()
    )


def test_a_refused_function_is_not_masked_and_says_why(model, steps, maps):
    refused = maps.assign(refused=("function", [False, True]), reason=("function", np.array(["", "at chance"], object)))
    found = masked(model, steps, refused, replace(OPTIONS, chains=0))
    assert found["own"].sel(function="beta").isnull().all() and found["reason"].values.tolist() == ["", "at chance"]
    assert float(found["cross"].sel(masked="alpha", function="beta")) == 1
    assert found["cross"].sel(masked="beta").isnull().all()


def test_a_function_that_the_model_cannot_do_is_not_judged(model, steps, maps):
    right = maps["right"].values & ~((maps["function_of"] == "beta") & (maps["split_of"] == "held-out")).values
    right[np.flatnonzero(maps["function_of"].values == "beta")[1]] = True
    found = masked(model, steps, maps.assign(right=("example", right)), replace(OPTIONS, chains=0))
    beta = found.sel(function="beta")
    assert beta["own"].isnull().all() and beta["effect"].isnull().all() and beta["cross"].isnull().all()
    assert "solves 1 of its 21 held-out steps, fewer than the 15" in str(beta["reason"].item())
    assert float(found["pooled_mean_effect"]) == float(found["mean_effect"].sel(function="alpha"))


def test_other_steps_than_those_of_the_map_are_refused(model, steps, maps):
    with pytest.raises(DataError, match="--redo functions"):
        prepare(model, StudyInputs(steps_source=Steps("others", steps.items[:-1]), maps={"functions": maps}), OPTIONS)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"size": 3}, "size must be one of"),
        ({"heads": (4, 2), "size": 2}, "increasing numbers above 0"),
        ({"where": "prompt"}, "cannot be .prompt.. Known: answer, decode, everywhere"),
        ({"draws": 19}, "at least 20"),
        ({"solved_steps": 14}, "at least 15"),
        ({"min_solved_steps": 14}, "at least 15"),
        ({"amounts": ("x",)}, "increasing numbers above 0"),
    ],
)
def test_options_that_make_no_sense_are_refused(given, says):
    with pytest.raises(StudyError, match=says):
        FunctionMaskingOptions(**given)


def test_more_heads_than_a_model_can_spare_are_refused(model, steps, maps):
    with pytest.raises(StudyError, match="has 9 such heads"):
        prepare(model, StudyInputs(steps_source=steps, maps={"functions": maps}), FunctionMaskingOptions())
