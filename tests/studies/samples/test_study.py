"""The sampling study: on planted samples, through a tiny model, and on the real default model."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
import xarray as xr
from planted import REGISTERS, tiny_model

import headwise as hw
from headwise.atlas import Provenance
from headwise.core.errors import DataError, ModelError, StudyError
from headwise.core.schema import check
from headwise.corpora import Question, Questions, packaged_questions
from headwise.engines import Shard, ShardStore, run_shards, split_shards
from headwise.model import Model, load
from headwise.studies.answers import measure as answering
from headwise.studies.answers.spec import AnsweringOptions
from headwise.studies.inputs import StudyInputs
from headwise.studies.probing.positions import POSITIONS
from headwise.studies.registry import dataset_spec, default_studies, with_dependencies
from headwise.studies.samples import measure as sampling
from headwise.studies.samples.measure import finalize
from headwise.studies.samples.spec import SamplingOptions

WORDS = " ".join(words for words, _ in REGISTERS.values()).split()


# ---- planted samples ------------------------------------------------------------------------------------------------


def said(seed: int = 0, questions: int = 90, samples: int = 12) -> xr.Dataset:
    """A third of the questions is answered right, a third always by the same wrong word, a third by any wrong word."""
    random = np.random.default_rng(seed)
    kind = np.arange(questions) % 3
    correct = random.random((questions, samples)) < np.array([0.9, 0.2, 0.2])[kind][:, None]
    any_word = random.integers(0, 100, (questions, samples))
    words = np.where(correct, "gold", np.where(kind[:, None] == 1, "same", any_word.astype(str)))
    activation = random.standard_normal((questions, samples, 16)).astype(np.float32)
    activation[..., 5] += 4.0 * ~correct
    greedy = random.standard_normal((questions, 16)).astype(np.float32)
    greedy[:, 7] += 4.0 * (kind == 1)
    return xr.Dataset(
        {
            "answer": (("example", "draw"), words.astype(object)),
            "exact": (("example", "draw"), words.astype(object)),
            "label": (("example", "draw"), np.where(correct, "correct", "wrong").astype(object)),
            "answer_tokens": (("example", "draw"), np.full(correct.shape, 3)),
            "logprob_mean": (("example", "draw"), np.zeros(correct.shape, dtype=np.float32)),
            "activation": (("example", "draw", "width"), activation),
            "greedy": (("example", "width"), greedy),
            "greedy_label": ("example", np.where(kind == 0, "correct", "wrong").astype(object)),
            "question": ("example", np.array(["?"] * questions, dtype=object)),
            "topic": ("example", np.array(["t"] * questions, dtype=object)),
        },
        coords={"example": [f"q{place}" for place in range(questions)]},
    )


def inputs(answers: xr.Dataset, probing: xr.Dataset, questions: Questions) -> StudyInputs:
    return StudyInputs(questions_source=questions, maps={"answers": answers, "probing": probing})


@pytest.fixture(scope="module")
def planted() -> xr.Dataset:
    found = finalize(said(), SamplingOptions()).assign_attrs(site="residual", layer=5)
    return found.assign_attrs(Provenance("samples", 1, {}, {}, {}, 0).to_attrs())


def test_planted_types_are_counted_and_told(planted):
    check(planted, dataset_spec("samples").schema)
    kind = np.arange(90) % 3
    types = {name: planted["is_type"].sel(error_type=name).values for name in "ABCDE"}
    assert (types["B"] == (kind == 0)).mean() > 0.97 and (types["C"] == (kind == 1)).mean() > 0.95
    assert (types["E"] == (kind == 2)).mean() > 0.97 and not types["A"].any()
    told = planted["type_auroc"].sel(error_type="C")
    assert float(told) > 0.9 and float(planted["type_low"].sel(error_type="C")) > float(
        planted["type_null_high"].sel(error_type="C")
    )
    assert float(planted["type_auroc"].sel(error_type="E")) < float(planted["type_low"].sel(error_type="C"))
    assert np.isnan(planted["type_auroc"].sel(error_type="A"))


def test_a_planted_probe_gains_where_the_model_errs(planted):
    accuracy = planted["accuracy"].to_series()
    assert accuracy["greedy"] == pytest.approx(1 / 3) and accuracy["probe"] > 0.85 > accuracy["majority"]
    assert float(planted["gain_low"].sel(strategy="probe")) > 0.3
    by_type = planted["type_gain_low"].sel(strategy="probe")
    assert float(by_type.sel(error_type="C")) > 0.5 > float(planted["type_gain"].sel(strategy="probe", error_type="B"))
    assert float(planted["gain"].sel(strategy="greedy")) == 0 == float(planted["gain_high"].sel(strategy="greedy"))
    assert accuracy.to_dict() == pytest.approx(planted["picked"].mean("example").to_series().to_dict(), abs=1e-6)


# ---- a tiny model ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model() -> Model:
    return load(*tiny_model(layers=3))


@pytest.fixture(scope="module")
def questions() -> Questions:
    random = np.random.default_rng(0)
    items = []
    for place in range(24):
        golds = tuple(str(word) for word in random.choice(WORDS, size=25, replace=False))
        items.append(Question(f"q{place}", " ".join(random.choice(WORDS, size=5)), golds, f"t{place % 3}"))
    return Questions("made up", tuple(items))


@pytest.fixture(scope="module")
def answers(model, questions) -> xr.Dataset:
    work = answering.prepare(
        model, StudyInputs(questions_source=questions), AnsweringOptions(few_shot=0, chat=False, max_new_tokens=5)
    )
    (found,) = work.finalize([work.measure(shard) for shard in split_shards(work.examples, 64)]).values()
    return found.assign_attrs(work.provenance.to_attrs())


def probing_map(layer: int = 1) -> xr.Dataset:
    auroc = np.full((2, 3, len(POSITIONS)), 0.6)
    auroc[:, layer, POSITIONS.index("exact_answer_last")] = 0.7
    auroc[:, 2, 0] = 0.9  # better, at another token
    auroc[0, 0] = np.nan
    coords = {"site": ["mlp_in", "residual"], "token": list(POSITIONS)}
    return xr.Dataset({"auroc": (("site", "layer", "token"), auroc)}, coords=coords)


QUICK = SamplingOptions(samples=6, questions=20, folds=3, shard=7)


@pytest.fixture(scope="module")
def work(model, answers, questions):
    return sampling.prepare(model, inputs(answers, probing_map(), questions), QUICK)


def test_the_whole_study(work):
    (found,) = work.finalize([work.measure(shard) for shard in split_shards(work.examples, work.shard_size)]).values()
    check(found.assign_attrs(work.provenance.to_attrs()), dataset_spec("samples").schema)
    assert found.sizes["example"] == 20 and found.sizes["draw"] == 6
    assert (found.attrs["site"], found.attrs["layer"]) == ("mlp_in", 1)
    assert len({str(text) for text in found["answer"].values.ravel()}) > 20  # draws differ
    counted = found["correct"] + found["refused"] + (found["label"] == "wrong").sum("draw")
    assert (counted == 6).all()
    assert float(found["score"].min()) >= 0 and float(found["score"].max()) <= 1


def test_greedy_answers_to_questions_that_were_not_sampled_are_fitted_on(work, answers):
    shards = [work.measure(shard) for shard in split_shards(work.examples, work.shard_size)]
    sampled = {str(name) for shard in shards for name in shard["example"].values}
    rest = [row for row, name in enumerate(answers["example"].values) if str(name) not in sampled]
    labels = [str(label) for shard in shards for label in shard["other_label"].values]
    assert labels == [str(answers["label"].values[row]) for row in rest] and len(labels) == 4
    whole = work.measure(Shard(0, 0, work.examples))
    np.testing.assert_allclose(
        np.concatenate([shard["other_activation"].values for shard in shards]), whole["other_activation"], atol=1e-4
    )


def test_where_every_question_is_sampled_there_are_no_others(model, answers, questions, tmp_path):
    work = sampling.prepare(model, inputs(answers, probing_map(), questions), replace(QUICK, questions=24, shard=24))
    store = ShardStore(tmp_path / "all", work.provenance, examples=24, size=24)
    (shard,) = run_shards(work.measure, split_shards(24, 24), store)
    assert shard["other_activation"].shape[0] == 0
    (found,) = work.finalize([shard]).values()
    assert int(found["fit_questions"]) <= 24


def test_samples_are_the_same_whatever_the_shard(work, model, answers, questions):
    first = work.measure(Shard(0, 0, 7))
    other = sampling.prepare(model, inputs(answers, probing_map(), questions), replace(QUICK, shard=3)).measure(
        Shard(0, 2, 5)
    )
    same = first.isel(example=slice(2, 5))
    assert same["answer"].equals(other["answer"]) and same["label"].equals(other["label"])
    assert same["activation"].values == pytest.approx(other["activation"].values, abs=1e-4)
    again = sampling.prepare(model, inputs(answers, probing_map(), questions), replace(QUICK, seed=1)).measure(
        Shard(0, 0, 7)
    )
    assert not first["answer"].equals(again["answer"])


def test_a_stopped_run_goes_on_where_it_was(work, tmp_path):
    """Shards of a few questions: what was committed before the stop is not measured again, and the result is the same."""
    shards = split_shards(work.examples, work.shard_size)
    assert len(shards) == 3
    measured: list[int] = []

    def stops(shard: Shard) -> xr.Dataset:
        if shard.index == 2:
            raise KeyboardInterrupt
        measured.append(shard.index)
        return work.measure(shard)

    def goes_on(shard: Shard) -> xr.Dataset:
        measured.append(shard.index)
        return work.measure(shard)

    def store(name: str) -> ShardStore:
        return ShardStore(tmp_path / name, work.provenance, examples=work.examples, size=work.shard_size)

    with pytest.raises(KeyboardInterrupt):
        run_shards(stops, shards, store("stopped"))
    assert store("stopped").committed(shards) == shards[:2]
    (resumed,) = work.finalize(run_shards(goes_on, shards, store("stopped"))).values()
    assert measured == [0, 1, 2]
    (whole,) = work.finalize(run_shards(work.measure, shards, store("whole"))).values()
    xr.testing.assert_identical(resumed, whole)


def test_a_few_questions_are_several_shards():
    assert len(split_shards(60, SamplingOptions().shard)) > 5


def test_activations_are_those_of_a_plain_pass(work, model, answers):
    """Of the greedy answer: the residual stream before the MLP, at the last token of the exact answer or of the answer."""
    part = work.measure(Shard(0, 0, 3))
    own = answers.sel(example=part["example"].values[0])
    ids = [int(token) for text in (own["prompt_ids"], own["answer_ids"]) for token in str(text.values).split()]
    kept = {}
    mlp = model.hf.model.layers[1].mlp
    hook = mlp.register_forward_pre_hook(lambda module, args: kept.update(x=args[0].detach()))
    with torch.no_grad():
        model.hf(torch.tensor([ids]))
    hook.remove()
    rows = kept["x"][0].numpy()
    distances = np.abs(rows - part["greedy"].values[0]).max(axis=1)
    assert distances.min() < 1e-5 and distances.argmin() >= int(own["prompt_tokens"])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"samples": 1}, "samples must be at least 2, not 1"),
        ({"temperature": 0.0}, "all samples are equal"),
        ({"site": "mlp_out"}, "no site 'mlp_out'"),
        ({"layer": 3}, "layers 0 to 2"),
    ],
)
def test_options_are_checked(model, answers, questions, options, words):
    with pytest.raises(StudyError, match=words):
        sampling.prepare(model, inputs(answers, probing_map(), questions), SamplingOptions(**options))


def test_other_questions_and_given_answers_are_refused(model, answers, questions):
    other = Questions("others", tuple(replace(item, id=f"x{item.id}") for item in questions.items))
    with pytest.raises(DataError, match="none of the questions of others"):
        sampling.prepare(model, inputs(answers, probing_map(), other), QUICK)
    given = Questions("given", tuple(replace(item, response="yes") for item in questions.items))
    with pytest.raises(StudyError, match="cannot be asked again"):
        sampling.prepare(model, inputs(answers, probing_map(), given), QUICK)


def test_it_is_made_only_when_named():
    assert "samples" not in default_studies()
    assert with_dependencies(["samples"]) == ["answers", "probing", "samples"]


@pytest.mark.real
@pytest.mark.xdist_group("default model")
def test_the_default_model_repeats_what_it_knows():
    """Easy questions are answered alike in most samples; samples of hard ones differ."""
    try:
        model = hw.load()
    except ModelError as error:
        pytest.skip(f"the default model is not here: {error}")
    items = packaged_questions().items
    easy = [item for item in items if item.question == "Which city is the capital of France?"]
    hard = [item for item in items if item.difficulty == 3 and not item.numeric][:2]
    questions = Questions("a few", (*easy, *hard))
    work = answering.prepare(model, StudyInputs(questions_source=questions), AnsweringOptions(max_new_tokens=12))
    (answers,) = work.finalize([work.measure(shard) for shard in split_shards(work.examples, 64)]).values()
    answers = answers.assign_attrs(work.provenance.to_attrs())
    auroc = np.full((1, 30, len(POSITIONS)), 0.6)
    cell = xr.Dataset(
        {"auroc": (("site", "layer", "token"), auroc)}, coords={"site": ["mlp_in"], "token": list(POSITIONS)}
    )
    study = sampling.prepare(model, inputs(answers, cell, questions), SamplingOptions(samples=10, temperature=0.7))
    read = study.measure(Shard(0, 0, study.examples)).transpose("example", "draw", ...)
    different = {
        str(name): len({str(text).lower() for text in row})
        for name, row in zip(read["example"].values, read["exact"].values, strict=True)
    }
    assert np.isfinite(read["activation"].values).all() and read["activation"].shape == (3, 10, 576)
    known = read.sel(example=easy[0].id)
    assert (known["label"].values == "correct").mean() > 0.4 > (read["label"].values == "correct").mean()
    assert different[easy[0].id] <= min(different[item.id] for item in hard)
