"""The study `uncertainty` through a tiny model: readings against their definitions, batches, shards, resumption, entailment."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import xarray as xr
from planted import REGISTERS, tiny_model
from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast

from headwise.core.errors import ModelError, StudyError
from headwise.core.schema import check
from headwise.corpora import Question, Questions
from headwise.engines import ShardStore, run_shards, split_shards
from headwise.model import Model, load
from headwise.scores.hidden_states import log_determinant
from headwise.seam import Structure
from headwise.studies.answers import measure as answering
from headwise.studies.answers.spec import AnsweringOptions
from headwise.studies.inputs import StudyInputs
from headwise.studies.passes import read_together
from headwise.studies.probing.reading import SelfJudgement
from headwise.studies.registry import dataset_spec, default_studies, with_dependencies
from headwise.studies.run import StudyRun
from headwise.studies.uncertainty.entailment import Entailment
from headwise.studies.uncertainty.measure import prepare
from headwise.studies.uncertainty.reading import JudgementReader
from headwise.studies.uncertainty.spec import UncertaintyOptions

WORDS = " ".join(words for words, _ in REGISTERS.values()).split()
DRAWS = 3


@pytest.fixture(scope="module")
def model() -> Model:
    return load(*tiny_model(layers=3))


@pytest.fixture(scope="module")
def questions() -> Questions:
    random = np.random.default_rng(0)
    items = []
    for place in range(48):
        golds = tuple(str(word) for word in random.choice(WORDS, size=25, replace=False))
        items.append(Question(f"q{place}", " ".join(random.choice(WORDS, size=5)), golds, f"t{place % 3}"))
    return Questions("made up", tuple(items))


@pytest.fixture(scope="module")
def answers(model, questions) -> xr.Dataset:
    """The model's own answers; which of them count as wrong is drawn."""
    work = answering.prepare(
        model, StudyInputs(questions_source=questions), AnsweringOptions(few_shot=0, chat=False, max_new_tokens=5)
    )
    (found,) = work.finalize([work.measure(shard) for shard in split_shards(work.examples, 64)]).values()
    label = np.where(np.random.default_rng(1).random(found.sizes["example"]) < 0.5, "wrong", "correct").astype(object)
    return found.assign(label=("example", label)).assign_attrs(work.provenance.to_attrs())


def prepared(model: Model, questions: Questions, answers: xr.Dataset, **options: object) -> StudyRun:
    given = UncertaintyOptions(**{"samples": DRAWS, "shard": 64, **options})  # type: ignore[arg-type]
    return prepare(model, StudyInputs(questions_source=questions, maps={"answers": answers}), given)


def timeless(readings: xr.Dataset) -> xr.Dataset:
    return readings.drop_vars([name for name in readings if str(name).startswith("seconds")])


@pytest.fixture(scope="module")
def run(model, questions, answers) -> StudyRun:
    return prepared(model, questions, answers)


@pytest.fixture(scope="module")
def readings(run) -> xr.Dataset:
    (shard,) = split_shards(run.examples, 64)
    return run.measure(shard)


def test_the_dataset_keeps_its_schema(run, readings):
    (found,) = run.finalize([readings]).values()
    check(found.assign_attrs(run.provenance.to_attrs()), dataset_spec("uncertainty").schema)
    assert {"Semantic entropy", "RAUQ", "LapEigvals", "SAR", "EigenScore"} <= set(found["detector"].values)
    assert (
        found["seconds"].sel(cost_class=["answer", "pass", "samples"]) > 0
    ).all()  # this tokenizer has no word "True"
    assert found["sample"].shape == (run.examples, DRAWS)
    assert "uncertainty" not in default_studies() and with_dependencies(["uncertainty"]) == ["answers", "uncertainty"]


def test_readings_of_the_answer_are_those_of_the_model(model, answers, readings):
    row = 5
    name = str(readings["example"].values[row])
    one = answers.sel(example=name)
    prompt, answer = ([int(token) for token in str(one[ids].item()).split()] for ids in ("prompt_ids", "answer_ids"))
    with torch.no_grad():
        out = model.hf(torch.tensor([prompt + answer]), output_hidden_states=True)
    logprobs = out.logits[0].log_softmax(-1)[len(prompt) - 1 : -1]
    own = logprobs[torch.arange(len(answer)), answer].numpy()
    entropy = -(logprobs.exp() * logprobs).sum(-1).numpy()
    np.testing.assert_allclose(readings["logprobs"].values[row, : len(answer)], own, rtol=1e-4)
    np.testing.assert_allclose(readings["token_entropy"].values[row, : len(answer)], entropy, rtol=1e-4)
    assert np.isnan(readings["logprobs"].values[row, len(answer) :]).all()
    layer = model.card.layers // 2
    if layer + 1 < len(out.hidden_states) - 1:  # the last of these is normalised
        hidden = out.hidden_states[layer + 1][0, len(prompt) :].double().numpy()
        assert readings["hidden_log_det"].values[row] == pytest.approx(float(log_determinant(hidden)), rel=1e-4)


def test_the_contrast_pair_is_read_at_both_replies(model, answers):
    """The tiny tokenizer has no word "True", so the question and its replies are any tokens; the last text does not fit."""
    structure, judgement = Structure(model), SelfJudgement((7, 8, 9), true=(4,), false=(5,))
    context = structure.card.max_positions
    prompts, given = [(10, 11, 12), (13,), (6,) * (context - 4)], [(14,), (15, 16), (7,)]
    found = [
        read_together({"": JudgementReader(structure, "abc", prompts, given, judgement, reply, 4096)}, "abc")[""]
        for reply in (True, False)
    ]
    for row in range(2):
        whole = torch.tensor([prompts[row] + given[row] + judgement.suffix])
        for reply, token, read in ((True, 4, found[0]["hidden_true"]), (False, 5, found[1]["hidden_false"])):
            with torch.no_grad():
                out = model.hf(torch.cat([whole, torch.tensor([[token]])], dim=1), output_hidden_states=True)
                own = model.hf.model.norm(torch.tensor(read.values[row]))
            np.testing.assert_allclose(own, out.hidden_states[-1][0, -1], rtol=1e-4, atol=1e-5)
            if reply:
                yes, no = out.logits[0, -2, [4, 5]].tolist()
                assert found[0]["p_true"].values[row] == pytest.approx(1 / (1 + np.exp(no - yes)), rel=1e-4)
    assert np.isnan(found[0]["p_true"].values[2]) and np.isnan(found[1]["hidden_false"].values[2]).all()


def test_samples_are_answers_of_the_model_with_their_probabilities(model, answers, readings):
    row = 3
    one = answers.sel(example=str(readings["example"].values[row]))
    prompt = [int(token) for token in str(one["prompt_ids"].item()).split()]
    for draw in range(DRAWS):
        logprobs = readings["sample_logprobs"].values[row, draw]
        text, count = str(readings["sample"].values[row, draw]), int(np.isfinite(logprobs).sum())
        ids = model.ids(text)[-count:] if count else []
        if len(ids) != count or model.tokenizer.decode(ids).strip() != text:
            continue  # the tokenizer writes this text in another way
        with torch.no_grad():
            own = model.hf(torch.tensor([prompt + list(ids)])).logits[0].log_softmax(-1)[len(prompt) - 1 : -1]
        np.testing.assert_allclose(logprobs[:count], own[torch.arange(count), torch.tensor(ids)], rtol=1e-3, atol=1e-4)
    similarity = readings["sample_similarity"].values
    np.testing.assert_allclose(similarity, similarity.swapaxes(1, 2), atol=1e-9)
    assert (np.diagonal(similarity, axis1=1, axis2=2) == 1).all() and (similarity >= 0).all()


def test_equal_samples_have_equal_readings(readings):
    for row in range(readings.sizes["example"]):
        texts = readings["sample"].values[row]
        for draw in range(1, DRAWS):
            if texts[draw] == texts[0] and texts[0]:
                assert readings["group"].values[row, draw] == readings["group"].values[row, 0]


def test_batches_and_shards_change_nothing(model, questions, answers, readings):
    other = prepared(model, questions, answers, batch_tokens=64, shard=7)
    parts = [other.measure(shard) for shard in split_shards(other.examples, 7)]
    again = xr.concat(parts, dim="example", data_vars="all")
    xr.testing.assert_allclose(timeless(again), timeless(readings), rtol=1e-3, atol=1e-4)


def test_a_stopped_run_resumes(run, tmp_path):
    class StoppedError(Exception):
        pass

    shards = split_shards(run.examples, 20)
    measured: list[int] = []

    def stopping(shard):
        if len(measured) == 2:
            raise StoppedError
        measured.append(shard.index)
        return run.measure(shard)

    store = ShardStore(tmp_path / "atlas", run.provenance, examples=run.examples, size=20)
    with pytest.raises(StoppedError):
        run_shards(stopping, shards, store)
    again: list[int] = []
    run_shards(lambda shard: (again.append(shard.index), run.measure(shard))[1], shards, store)
    assert measured == [0, 1] and again == [2]


def test_the_seed_decides_the_samples(model, questions, answers, readings):
    other = prepared(model, questions, answers, seed=1)
    (shard,) = split_shards(other.examples, 64)
    found = other.measure(shard)
    assert (found["sample"].values != readings["sample"].values).mean() > 0.2
    np.testing.assert_allclose(found["rauq"], readings["rauq"], rtol=1e-5)


def test_given_answers_are_scored_without_samples(model, questions, answers):
    given = Questions("given", tuple(replace(item, response="the river") for item in questions.items))
    with pytest.raises(StudyError, match="the answers were given, not made by this model"):
        prepared(model, given, answers)
    run = prepared(model, given, answers, samples=0)
    (shard,) = split_shards(run.examples, 64)
    assert "group" not in run.measure(shard)


def test_a_layer_that_is_not_there_is_refused(model, questions, answers):
    with pytest.raises(StudyError, match="there is no layer 9; this model has layers 0 to 2"):
        prepared(model, questions, answers, layer=9)


# ---- entailment -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random sequence classifier."""
    folder = tmp_path_factory.mktemp("nli")
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *dict.fromkeys(word.lower() for word in WORDS)]
    (folder / "vocab.txt").write_text("\n".join(vocabulary), encoding="utf-8")
    BertTokenizerFast(vocab=str(folder / "vocab.txt")).save_pretrained(folder)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(vocabulary), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
        num_labels=3, id2label={0: "CONTRADICTION", 1: "NEUTRAL", 2: "ENTAILMENT"}, initializer_range=2.0,
    )  # fmt: skip
    BertForSequenceClassification(config).save_pretrained(folder)
    return folder


def test_groups_are_those_of_entailment_in_both_directions(classifier):
    model = Entailment(classifier)
    texts = ["the river", "old house", "wall", "the river", "a low wall", "house"]
    groups = model.groups("where was it ?", texts)
    first = {group: texts[groups.index(group)] for group in groups}
    for text, group in zip(texts, groups, strict=True):
        joins = [own for own, one in first.items() if text == one or model.agree("where was it ?", one, text)]
        assert group == min(joins)
    assert groups[0] == groups[3] == 0


def test_agreement_is_symmetric(classifier):
    model = Entailment(classifier)
    pairs = [(str(one), str(other)) for one, other in np.random.default_rng(0).choice(WORDS, size=(20, 2))]
    assert all(model.agree("?", one, other) == model.agree("?", other, one) for one, other in pairs)


def test_the_study_takes_an_entailment_model(model, questions, answers, classifier, readings):
    run = prepared(model, questions, answers, entailment=str(classifier))
    assert run.provenance.parameters["entailment"].startswith(classifier.name)
    (shard,) = split_shards(run.examples, 64)
    found = run.measure(shard)
    assert (found["sample"].values == readings["sample"].values).all()
    assert found["group"].shape == readings["group"].shape


def test_a_folder_without_such_a_model_is_refused(tmp_path, classifier):
    with pytest.raises(ModelError, match="There is no model in"):
        Entailment(tmp_path)
    torch.manual_seed(0)
    other = tmp_path / "other"
    BertTokenizerFast(vocab=str(classifier / "vocab.txt")).save_pretrained(other)
    config = BertConfig(
        vocab_size=8, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8
    )  # fmt: skip
    BertForSequenceClassification(config).save_pretrained(other)
    with pytest.raises(ModelError, match="none of them is 'entailment'"):
        Entailment(other)
