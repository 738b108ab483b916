"""The functions study from steps to Dataset: on a planted model through `build`, and on the real default model, small."""

import json
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from planted_steps import planted_steps, planted_steps_model

import headwise as hw
from headwise.core.errors import DataError, ModelError, StudyError
from headwise.corpora import HELD_OUT, TRAIN, Step, Steps, packaged_steps, step_ids
from headwise.instruments import HeadOutputs
from headwise.seam import observe
from headwise.studies.decoding import PrefixCachedDecoder
from headwise.studies.function_masking.spec import FunctionMaskingOptions
from headwise.studies.functions.measure import StepReader, key_token_indices, prepare, prompts_of
from headwise.studies.functions.probe_quality import form_features, form_log_probabilities
from headwise.studies.functions.spec import FunctionsOptions
from headwise.studies.functions.step_sampling import sample_steps
from headwise.studies.inputs import StudyInputs

OPTIONS = {
    "functions": FunctionsOptions(steps=None, max_new_tokens=1, seeds=2, shard=40, key_tokens="all"),
    "function_masking": FunctionMaskingOptions(
        heads=(1, 2), size=1, solved_steps=15, failed_steps=1, augmented_steps=4, amounts=(1.0,), chains=0
    ),
}


@pytest.fixture(scope="module")
def steps() -> Steps:
    """The same words in both splits, in other questions: what an answer is tells its function."""
    items = [
        replace(step, split=TRAIN if "-0-" in step.id or "-1-" in step.id else HELD_OUT)
        for step in planted_steps(repeats=4)
    ]
    return Steps("planted steps", tuple(items))


@pytest.fixture(scope="module")
def atlas(steps, tmp_path_factory):
    output = tmp_path_factory.mktemp("functions") / "atlas"
    return hw.build(planted_steps_model(), ["function_masking"], steps=steps, output=output, options=OPTIONS)


def test_build_makes_both_maps_and_the_record(atlas):
    assert atlas.studies == ["functions", "function_masking"] or set(atlas.studies) == {"functions", "function_masking"}
    found = atlas["functions"]
    assert found["accuracy"].values.min() > 0.9 and (found["train"] == 28).all() and (found["held_out"] == 28).all()
    heads = atlas.heads()
    assert {"functions.alpha.importance", "functions.beta.importance", "functions.best"} <= set(heads.columns)
    assert len(heads) == 18 and set(heads["functions.best"]) <= {"", "alpha", "beta"}


def test_what_is_there_is_not_made_again(atlas, steps):
    said = []
    hw.build(
        planted_steps_model(), ["function_masking"], steps=steps, output=atlas.path, options=OPTIONS,
        progress=lambda *done: said.append(done),
    )  # fmt: skip
    assert said == [("functions", 112, 112), ("function_masking", 3, 3)]


def test_z_is_the_mean_over_the_answers_key_tokens(steps):
    """Against one plain pass a step, prompt and answer together."""
    model = planted_steps_model()
    chains = [(step,) for step in steps.items[:5]]
    prompts = prompts_of(model, chains, 3)
    decoder = PrefixCachedDecoder(model, (), longest=80)
    found = StepReader(model, decoder, limit=3, key_tokens="all").read(chains, prompts)
    for row, ((step,), (prompt,)) in enumerate(zip(chains, prompts, strict=True)):
        assert prompt == step_ids(model, step)
        ids = list(prompt)
        for _ in range(int(found["answer_tokens"].values[row])):
            with torch.no_grad():
                ids.append(int(model.hf(torch.tensor([ids])).logits[0, -1].argmax()))
        places = list(range(len(prompt), len(ids)))
        with torch.no_grad(), observe(model, HeadOutputs(places)) as seen:
            model.hf(torch.tensor([ids]))
        expected = seen["outputs"]["z"].values[0].astype(np.float64).mean(axis=2)
        np.testing.assert_allclose(found["z"].values[row], expected, atol=1e-4)


def test_the_label_of_a_step_is_not_shown(steps):
    model = planted_steps_model()
    one = steps.items[0]
    assert step_ids(model, one) == step_ids(model, replace(one, function="another"))


# ---- which steps ----------------------------------------------------------------------------------------------------


def of(function: str, count: int, split: str, first: int = 0) -> list[Step]:
    return [
        Step(f"{function}-{n}", f"{function}-{n}", "q", (), "s", "a", ("a",), function, split, 1)
        for n in range(first, first + count)
    ]


def test_whole_questions_are_chosen_evenly_over_functions():
    steps = packaged_steps()
    chosen = sample_steps(steps, 200, seed=0)
    there = steps.chains()
    assert all(chain == there[chain[0].chain] for chain in chosen.chains)
    counts = Counter(step.function for chain in chosen.chains for step in chain)
    assert set(counts) == set(steps.functions) and max(counts.values()) - min(counts.values()) <= 10
    assert 195 <= sum(counts.values()) <= 215
    share = np.mean([step.split == HELD_OUT for chain in chosen.chains for step in chain])
    assert share == pytest.approx(np.mean([step.split == HELD_OUT for step in steps]), abs=0.05)
    assert sample_steps(steps, 200, seed=0) == chosen != sample_steps(steps, 200, seed=1)


def test_a_function_with_too_few_steps_is_left_out_and_named():
    items = of("a", 30, TRAIN) + of("a", 10, HELD_OUT, 30) + of("b", 20, TRAIN) + of("b", 10, HELD_OUT, 20)
    chosen = sample_steps(Steps("mine", tuple(items + of("c", 8, TRAIN) + of("c", 6, HELD_OUT, 8))), None, 0)
    assert chosen.functions == ("a", "b") and chosen.left_out == {"c": "c has 14 steps, fewer than 20"}


@pytest.mark.parametrize(
    ("items", "says"),
    [
        (of("a", 30, TRAIN) + of("a", 10, HELD_OUT, 30), "At least two functions.*all are of a"),
        (of("a", 40, TRAIN) + of("b", 4, TRAIN), "a has 40 training and 0 held-out steps.*b has 4 steps"),
        ([], "holds no steps"),
    ],
)
def test_what_cannot_be_told_apart_is_refused(items, says):
    with pytest.raises(StudyError, match=says):
        sample_steps(Steps("mine", tuple(items)), None, 0)


def test_a_step_that_does_not_fit_is_refused(steps):
    model = planted_steps_model()
    long = replace(steps.items[0], id="long", question="word " * 400)
    with pytest.raises(DataError, match="'long' does not fit"):
        prepare(
            model,
            StudyInputs(steps_source=Steps("mine", (*steps.items, replace(long, chain="long")))),
            OPTIONS["functions"],
        )


@pytest.mark.parametrize(
    ("given", "says"),
    [({"seeds": 1}, "at least 2"), ({"key_tokens": "best"}, "cannot be 'best'. Known: all, content, first, last")],
)
def test_options_that_make_no_sense_are_refused(given, says):
    with pytest.raises((StudyError, DataError), match=says):
        FunctionsOptions(**given)


# ---- key tokens and forms -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pieces", "rule", "places"),
    [
        (["The", " answer", " is", " ", "7", "."], "content", [4]),
        (["No", ",", " it", " is", " not", "."], "content", [0, 4]),
        (["It", " is", "."], "content", [0, 1]),
        (["!"], "content", [0]),
        (["The", " sky", "."], "last", [1]),
        (["The", " sky", "."], "first", [0]),
        (["The", " sky", "."], "all", [0, 1, 2]),
    ],
)
def test_key_tokens(pieces, rule, places):
    assert key_token_indices(pieces, rule) == places


def test_form_alone_tells_numbers_from_names():
    answers, keys = ["7", "Paris", "12", "Anna"] * 20, ["7", "Paris", "12", "Anna"] * 20
    form = form_features(answers, keys, [1] * 80, [1] * 80)
    labels, trains = np.array([0, 1] * 40), np.arange(80) % 4 < 2
    said = form_log_probabilities(form, labels, trains, 3)
    assert (said.argmax(axis=1) == labels[~trains]).all() and np.isneginf(said[:, 2]).all()


# ---- the real model -------------------------------------------------------------------------------------------------


@pytest.mark.real
@pytest.mark.xdist_group("default model")
def test_the_default_models_heads_tell_arithmetic_from_grammar(tmp_path):
    try:
        model = hw.load()
    except ModelError as error:
        pytest.skip(f"the default model is not here: {error}")
    every = [replace(step, chain=step.id, earlier=(), question="") for step in packaged_steps()]
    few = []
    for function in ("Math Calculation", "Syntactic Understanding"):
        for split, count in ((TRAIN, 14), (HELD_OUT, 10)):
            few += [step for step in every if (step.function, step.split) == (function, split)][:count]
    options = {"functions": FunctionsOptions(steps=None, max_new_tokens=6, seeds=2, max_epochs=8)}
    atlas = hw.build(model, ["functions"], steps=Steps("few", tuple(few)), output=tmp_path / "atlas", options=options)
    found = atlas["functions"]
    assert found["importance"].shape == (2, 30, 9) and not found["refused"].any()
    assert float(found["probe_accuracy"]) > 0.7 and json.loads(found.attrs["left_out"]) == {}
