"""The probing study: on planted readings, through a tiny model, and on the real default model."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
import xarray as xr
from families import tiny
from planted import REGISTERS, tiny_model
from served import Stub
from sklearn.metrics import roc_auc_score

import headwise as hw
from headwise.core.errors import DataError, ModelError, StudyError
from headwise.core.schema import check
from headwise.corpora import Endpoint, Question, Questions, decode_ids, packaged_questions
from headwise.engines import split_shards
from headwise.instruments import Activations
from headwise.model import Model, load
from headwise.seam import ForwardContext, Structure, observe
from headwise.studies import passes
from headwise.studies.answers import measure as answering
from headwise.studies.answers.spec import AnsweringOptions
from headwise.studies.inputs import StudyInputs
from headwise.studies.passes import read_together
from headwise.studies.present import describe
from headwise.studies.probing import measure as probing
from headwise.studies.probing import reading
from headwise.studies.probing.finalize import finalize
from headwise.studies.probing.positions import EXACT, POSITIONS, exact_spans, positions_of
from headwise.studies.probing.reading import LOGPROBS, ProbedAnswer, ProbingReader, SelfJudgement
from headwise.studies.probing.spec import ProbingOptions
from headwise.studies.registry import dataset_spec

LAYERS, HEADS, WIDTH, N = 7, 3, 8, 120
QUICK = ProbingOptions(shuffles=40, paper=False)


# ---- planted readings -----------------------------------------------------------------------------------------------


def readings_of(wrong: np.ndarray, *, layer: int = 5, strength: float = 1.6, seed: int = 0) -> xr.Dataset:
    """Noise everywhere; only (layer, exact_answer_last) knows the label, and head 1 of that layer."""
    rng = np.random.default_rng(seed)
    n = len(wrong)
    activation = rng.normal(size=(n, 2, LAYERS, len(POSITIONS), WIDTH))
    activation[:, :, layer, POSITIONS.index("exact_answer_last"), :4] += strength * wrong[:, None, None]
    z = rng.normal(size=(n, LAYERS, HEADS, 5))
    z[:, layer, 1] += strength * wrong[:, None]
    logprob = rng.normal(size=(n, len(LOGPROBS)))
    logprob[:, LOGPROBS.index("min_exact")] -= wrong
    return xr.Dataset(
        {
            "activation": (("example", "site", "layer", "token", "width"), activation.astype(np.float16)),
            "published": (("example", "layer", "exact", "width"), activation[:, 0, :, 3:7].astype(np.float16)),
            "z": (("example", "layer", "head", "entry"), z.astype(np.float16)),
            "received": (("example", "layer", "token"), rng.random((n, LAYERS, 15), dtype=np.float32)),
            "logprob": (("example", "statistic"), logprob.astype(np.float32)),
            "p_true": ("example", rng.random(n, dtype=np.float32)),
        },
        coords={"site": ["mlp_in", "residual"], "token": list(POSITIONS), "statistic": list(LOGPROBS)},
    )


def answers_of(wrong: np.ndarray) -> xr.Dataset:
    n = len(wrong)
    return xr.Dataset(
        {
            "label": ("example", np.where(wrong, "wrong", "correct").astype(object)),
            "answer_tokens": ("example", np.full(n, 9)),
            "topic": ("example", np.array(["rivers", "kings"], dtype=object)[np.arange(n) % 2]),
            "finished": ("example", np.ones(n, dtype=bool)),
        },
        coords={"example": [f"q{i}" for i in range(n)]},
    )


def finalized(
    wrong: np.ndarray,
    readings: xr.Dataset,
    options: ProbingOptions = QUICK,
    has_exact: np.ndarray | None = None,
    answers: xr.Dataset | None = None,
    differs: np.ndarray | None = None,
) -> xr.Dataset:
    """`differs` (answer,): whose published span is another one than the label-blind span."""
    spans = [(2, 3)] * len(wrong)
    positions = positions_of([20] * len(wrong), [9] * len(wrong), spans)
    published = positions.index[:, 3:7] + (0 if differs is None else differs[:, None])
    asked = [
        ProbedAnswer(f"q{i}", tuple(range(20)), tuple(range(9)), (2, 3), positions.index[i], published[i])
        for i in range(len(wrong))
    ]
    half = len(wrong) // 2
    shards = [readings.isel(example=slice(None, half)), readings.isel(example=slice(half, None))]
    answers = answers_of(wrong) if answers is None else answers
    return finalize(shards, answers, asked, positions, options, has_exact)


@pytest.fixture(scope="module")
def planted() -> xr.Dataset:
    wrong = np.random.default_rng(1).random(N) < 0.6
    return finalized(wrong, readings_of(wrong))


@pytest.mark.parametrize("site", ["mlp_in", "residual"])
def test_exactly_the_planted_cell_is_beyond_the_null(planted, site):
    one = planted.sel(site=site)
    beyond = np.argwhere(one["auroc"].values > float(one["best_high"])).tolist()
    assert beyond == [[5, POSITIONS.index("exact_answer_last")]]
    assert float(one["q"].sel(layer=5, token="exact_answer_last")) < 0.05
    assert (
        int((one["q"] < 0.05).sum()) <= 3
    )  # of those with q < 0.05 a few may be false; beyond the best of a null none is
    assert float(one["best_p"]) < 0.05
    assert int(one["chosen"].sel(layer=5, token="exact_answer_last")) == 5
    assert float(one["nested"]) > 0.85 and float(one["nested_low"]) > 0.7
    assert (int(one["frame_first"]), int(one["frame_last"])) == (5, 5)
    assert bool((one["low"] <= one["auroc"]).all()) and bool((one["auroc"] <= one["high"]).all())


def test_exactly_the_planted_head_is_found(planted):
    assert np.argwhere(planted["head_q"].values < 0.05).tolist() == [[5, 1]]
    assert float(planted["head_auroc"].sel(layer=5, head=1)) > float(planted["head_best_high"])


def test_the_table_and_the_leak(planted):
    table = planted["table_auroc"].to_series()
    assert table["Probe, exact answer"] > 0.85
    assert table["Probe, best cell"] == pytest.approx(float(planted["nested"].sel(site="mlp_in")))
    assert abs(table["Probe, last token"] - 0.5) < 0.2
    scores = [name for name in table.index if not name.startswith("Probe")]
    assert max(scores, key=lambda name: table[name]) == "Log-probability, min of exact answer"
    assert {"Length", "p(True)", "Question: topic", "Question: words"} <= set(scores) and len(scores) == 11
    leak = json.loads(planted.attrs["leak"])
    assert set(leak) == set(EXACT)
    for token in EXACT:  # the same spans here, so there is nothing to gain
        assert leak[token]["difference"] == pytest.approx(0, abs=1e-6)
    published = planted["published"].sel(token="exact_answer_last")
    np.testing.assert_allclose(published, planted["auroc"].sel(site="mlp_in", token="exact_answer_last"), atol=1e-6)
    assert bool(planted["published"].sel(token="-1").isnull().all())


def test_published_spans_are_read_where_they_differ_and_only_there():
    """Of half of the answers the published token knows the label; what is stored for the others is not looked at."""
    wrong, differs = np.random.default_rng(1).random(N) < 0.6, np.arange(N) % 2 == 0
    readings = readings_of(wrong, strength=0.0)
    stored = readings["published"].values
    stored[differs, :, 2, :4] += 3 * wrong[differs, None, None]
    stored[~differs] = np.nan
    found = finalized(wrong, readings, differs=differs)
    at = {"layer": 5, "token": "exact_answer_last"}
    assert float(found["published"].sel(at)) > 0.7 > 0.6 > float(found["auroc"].sel(site="mlp_in").sel(at))
    same = finalized(wrong, readings)
    np.testing.assert_array_equal(same["published"].sel(at), same["auroc"].sel(site="mlp_in").sel(at))


def test_gains_over_log_probability_are_paired(planted):
    """The planted probe beats the strongest log-probability; a score that the labels did not shape does not."""
    assert planted.attrs["logprob_reference"] == "Log-probability, min of exact answer"
    fold_of, wrong = planted["fold_of"].values, planted["wrong"].values
    score = -readings_of(wrong)["logprob"].sel(statistic="min_exact").values
    base = np.mean([roc_auc_score(wrong[fold_of == fold], score[fold_of == fold]) for fold in range(5)])
    gain = planted.set_index(detector="detector")
    for name in ("Probe, best cell", "Probe, exact answer", "Probe, last token"):
        own = gain.sel(detector=name)
        assert float(own["table_over_logprob"]) == pytest.approx(float(own["table_auroc"]) - base, abs=1e-6)
    best, idle, same = (
        gain.sel(detector=name) for name in ("Probe, exact answer", "p(True)", planted.attrs["logprob_reference"])
    )
    assert float(best["table_over_logprob_low"]) > 0 and float(best["table_over_logprob_p"]) < 0.05
    assert float(idle["table_over_logprob_high"]) < 0
    assert float(same["table_over_logprob"]) == 0 and float(same["table_over_logprob_p"]) == 1


# ---- what the question alone says -----------------------------------------------------------------------------------

TOPICS = 12


def by_topic(seed: int = 11, rows: int = 300) -> tuple[np.ndarray, np.ndarray]:
    """Topics, and errors that depend on the topic."""
    rng = np.random.default_rng(seed)
    topic = np.arange(rows) % TOPICS
    return topic, rng.random(rows) < np.linspace(0.15, 0.85, TOPICS)[topic]


def with_topics(wrong: np.ndarray, topic: np.ndarray) -> xr.Dataset:
    names = np.array([f"topic {one}" for one in topic], dtype=object)
    asked = np.array([f"What is number {index} of topic {one}?" for index, one in enumerate(topic)], dtype=object)
    return answers_of(wrong).assign(topic=("example", names), question=("example", asked))


def carrying(strength: float) -> xr.Dataset:
    """Activations that carry the topic and noise, everywhere; and of this strength, at one cell and one head, the error."""
    topic, wrong = by_topic()
    code = 3 * np.random.default_rng(0).normal(size=(TOPICS, WIDTH))
    code[:, 0] = np.linspace(-4, 4, TOPICS)  # as the errors
    readings = readings_of(wrong, strength=strength, seed=1)
    readings["activation"] += code[topic][:, None, None, None].astype(np.float16)
    readings["z"] += code[topic][:, None, None, :5].astype(np.float16)
    return finalized(wrong, readings, answers=with_topics(wrong, topic))


@pytest.fixture(scope="module")
def knows_topic() -> xr.Dataset:
    return carrying(0.0)


@pytest.fixture(scope="module")
def knows_error() -> xr.Dataset:
    return carrying(1.6)


def test_activations_that_carry_only_the_topic_show_nothing_within_strata(knows_topic):
    assert knows_topic.attrs["strata"] == "topic (12 strata)"
    assert int((knows_topic["q"] < 0.05).sum()) > 150  # the plain map is full of findings
    assert int((knows_topic["within_q"] < 0.05).sum()) == 0 and float(knows_topic["within_best_p"].min()) > 0.05
    assert int((knows_topic["head_within_q"] < 0.05).sum()) == 0
    assert abs(float(knows_topic["within"].mean()) - 0.5) < 0.02  # no bias from folds that divide strata
    assert bool((knows_topic["nested_within_low"] < 0.5).all()) and bool(
        (knows_topic["nested_within_high"] > 0.5).all()
    )
    table = knows_topic.set_index(detector="detector").sel(detector="Probe, best cell")
    assert float(table["table_auroc"]) > 0.7 and float(table["table_gain_low"]) < 0 < float(table["table_gain_high"])
    assert float(table["table_within_low"]) < 0.5 < float(table["table_within_high"])


def test_activations_that_carry_the_error_show_it_within_strata(knows_error):
    for site in knows_error["site"].values:
        one = knows_error.sel(site=site)
        assert np.argwhere(one["within_q"].values < 0.05).tolist() == [[5, POSITIONS.index("exact_answer_last")]]
        assert float(one["nested_within_low"]) > 0.7 and float(one["within_best_p"]) < 0.05
    assert np.argwhere(knows_error["head_within_q"].values < 0.05).tolist() == [[5, 1]]
    table = knows_error.set_index(detector="detector").sel(detector="Probe, exact answer")
    assert float(table["table_gain_low"]) > 0 and float(table["table_gain_p"]) < 0.01
    assert float(table["table_within_low"]) > 0.7


def test_question_only_rows_see_the_topic_and_nothing_within_it(knows_topic, knows_error):
    for found in (knows_topic, knows_error):
        assert found.attrs["question_reference"] in ("Question: topic", "Question: topic, length", "Question: words")
        topic = found.set_index(detector="detector").sel(detector="Question: topic")
        assert float(topic["table_auroc"]) > 0.65 and float(topic["table_within"]) == 0.5
        best = max(
            float(found["table_auroc"][row]) for row, kind in enumerate(found["kind"].values) if kind == "question"
        )
        reference = found.set_index(detector="detector").sel(detector=found.attrs["question_reference"])
        assert float(reference["table_auroc"]) == pytest.approx(best) and float(reference["table_gain"]) == 0


def test_without_strata_nothing_is_claimed_within_them():
    """One question asked again and again, of one length: there is nothing to stratify by."""
    wrong = np.random.default_rng(1).random(N) < 0.6
    same = answers_of(wrong).assign(
        topic=("example", np.array(["kings"] * N, dtype=object)),
        question=("example", np.array(["Who?"] * N, dtype=object)),
    )
    found = finalized(wrong, readings_of(wrong), answers=same)
    assert "within" not in found and found["table_within"].isnull().all()
    assert json.loads(found.attrs["record"]) == ["head_auroc", "head_q"]
    assert "questions could not be grouped" in describe("probing", found.assign_attrs(counts="{}")).text()


def test_answers_without_an_exact_answer_are_counted_apart():
    """Their activation alone shows them, and all are wrong: with them a probe succeeds, among the others it does not."""
    rng = np.random.default_rng(5)
    wrong = rng.random(200) < 0.5
    has_exact = ~(wrong & (rng.random(200) < 0.4))
    readings = readings_of(wrong, strength=0.0, seed=3)
    shift = 4.0 * ~has_exact
    column = POSITIONS.index("exact_answer_last")
    readings["activation"][:, :, 5, column, :4] += shift[:, None, None].astype(np.float16)
    found = finalized(wrong, readings, has_exact=has_exact)
    at = {"site": "mlp_in", "layer": 5, "token": "exact_answer_last"}
    assert (
        float(found["auroc"].sel(at)) > 0.62 and float(found["table_auroc"].sel(detector="Probe, exact answer")) > 0.6
    )
    without = found.sel(detector="Probe, exact answer")
    assert float(without["table_exact_low"]) < 0.5 < float(without["table_exact_high"])
    assert abs(float(found["auroc_exact"].sel(at)) - 0.5) < 0.12
    assert found["has_exact"].values.tolist() == has_exact.tolist()


def test_what_is_known_carries_over_between_topics(planted):
    raw = planted["transfer"]
    assert raw.sizes == {"trained_on": 3, "topic": 2}
    assert float(raw.min()) > 0.8
    gain = raw - planted["transfer_logprob"]
    np.testing.assert_allclose(planted["transfer_gain"], gain.transpose("trained_on", "topic"), atol=1e-6)


def test_nothing_is_found_in_nothing():
    wrong = np.random.default_rng(2).random(N) < 0.5
    found = finalized(wrong, readings_of(wrong, strength=0.0, seed=8))
    assert float(found["best_p"].min()) > 0.02
    assert float((found["q"] < 0.05).sum()) <= 1
    assert abs(float(found["nested"].mean()) - 0.5) < 0.15
    for site, first in zip(found["site"].values, found["frame_first"].values, strict=True):
        best = float(found["auroc"].sel(site=site, token=list(EXACT)).max())
        assert first == -1 or best > float(found["best_high"].sel(site=site))


def test_the_papers_protocol_next_to_ours():
    wrong = np.random.default_rng(4).random(N) < 0.6
    found = finalized(wrong, readings_of(wrong), replace(QUICK, paper=True))
    assert found["paper"].dims == ("layer", "token")
    assert float(found["paper"].sel(layer=5, token="exact_answer_last")) > 0.8
    assert abs(float(found["paper"].mean()) - 0.5) < 0.1


# ---- through a tiny model -------------------------------------------------------------------------------------------

WORDS = REGISTERS["prose"][0].split()
RIGHT, WRONG = ("apples", "bread"), ("boots", "gloves")


@pytest.fixture(scope="module")
def model() -> Model:
    return load(*tiny_model(layers=3))


def asked(count: int = 90) -> Questions:
    """The answer's word tells the label, and nothing before it does."""
    rng = np.random.default_rng(0)
    items = []
    for index in range(count):
        wrong = bool(rng.random() < 0.5)
        word = rng.choice(WRONG if wrong else RIGHT)
        text = " ".join(rng.choice(WORDS, size=int(rng.integers(4, 9))))
        tail = " ".join(["."] * int(rng.integers(1, 4)))
        label = "wrong" if wrong else "correct"
        items.append(Question(f"q{index}", text, (str(word),), f"t{index % 2}", response=f"{word} {tail}", label=label))
    return Questions("made up", tuple(items))


def answered(model: Model, questions: Questions) -> xr.Dataset:
    work = answering.prepare(model, StudyInputs(questions_source=questions), AnsweringOptions(few_shot=0, chat=False))
    (found,) = work.finalize([work.measure(shard) for shard in split_shards(work.examples, 64)]).values()
    return found.assign_attrs(work.provenance.to_attrs())


def probed(model: Model, answers: xr.Dataset, options: ProbingOptions) -> xr.Dataset:
    work = probing.prepare(model, StudyInputs(maps={"answers": answers}), options)
    (found,) = work.finalize([work.measure(shard) for shard in split_shards(work.examples, work.shard_size)]).values()
    return found.assign_attrs(work.provenance.to_attrs())


def read(
    model: Model, answers: list[ProbedAnswer], sites: tuple[str, ...], judgement: SelfJudgement | None = None
) -> xr.Dataset:
    reader = ProbingReader(Structure(model), answers, sites, judgement, 2048)
    return read_together({"probing": reader}, [one.id for one in answers])["probing"]


@pytest.fixture(scope="module")
def answers(model) -> xr.Dataset:
    return answered(model, asked())


@pytest.fixture(scope="module")
def study(model, answers) -> xr.Dataset:
    return probed(model, answers, ProbingOptions(sites=("residual", "mlp_in"), shuffles=40))


def test_the_label_is_read_where_it_stands_and_not_before(study):
    one = study.sel(site="residual")
    before, at = one["auroc"].sel(token="last_q"), one["auroc"].sel(token="exact_answer_last")
    assert float(at.min()) > 0.95
    assert float(before.max()) < float(one["best_high"])
    assert float(one["q"].sel(token="exact_answer_last").max()) < 0.05


def test_the_dataset_is_as_promised(study, answers):
    check(study, dataset_spec("probing").schema)
    assert study["auroc"].sizes == {"site": 2, "layer": 3, "token": 15}
    assert study["head_auroc"].sizes == {"layer": 3, "head": 4}
    counts = json.loads(study.attrs["counts"])
    assert counts["wrong"] + counts["correct"] == study.sizes["example"] == 90
    firsts = [str(text).split()[0] for text in answers["answer"].values]
    assert [str(text) for text in study["exact"].values] == firsts
    short = int((answers["answer_tokens"] < 8).sum())
    assert int(study["in_prompt"].sel(token="-8")) == short


def test_neither_padding_nor_batches_nor_shards_matter(model, answers):
    some = answers.isel(example=slice(0, 14))
    work = [
        probing.prepare(model, StudyInputs(maps={"answers": answers}), ProbingOptions(batch_tokens=tokens, shard=shard))
        for tokens, shard in ((2048, 64), (1, 5))
    ]
    one, other = (
        xr.concat([each.measure(shard) for shard in split_shards(14, each.shard_size)], dim="example", data_vars="all")
        for each in work
    )
    assert one["example"].values.tolist() == other["example"].values.tolist() == some["example"].values.tolist()
    for name in one.data_vars:
        atol = 4e-3 if one[name].dtype == np.float16 else 1e-4
        np.testing.assert_allclose(one[name].astype(float), other[name].astype(float), atol=atol, err_msg=name)


def test_readings_against_a_plain_pass(model, answers, monkeypatch):
    """Each number again from whole activations, logits and eager attention of one text at a time."""
    monkeypatch.setattr(passes, "_LOGIT_BYTES", 4 * 3 * model.card.vocabulary_size)  # three tokens at a time
    judgement = SelfJudgement.of(model, chat=False)
    ids = [tuple(int(part) for part in str(text).split()) for text in answers["prompt_ids"].values[:5]]
    said = [tuple(int(part) for part in str(text).split()) for text in answers["answer_ids"].values[:5]]
    positions = positions_of([len(one) for one in ids], [len(one) for one in said], [(0, 0)] * 5)
    published = positions.index[:, 3:7] - (np.arange(5) == 3)[:, None]  # row 3 has another span
    rows = [ProbedAnswer(f"q{i}", ids[i], said[i], (0, 0), positions.index[i], published[i]) for i in range(5)]
    found = read(model, rows, ("residual",), judgement)
    assert np.isnan(found["published"].values).all(axis=(1, 2, 3)).tolist() == [True, True, True, False, True]
    model.hf.set_attn_implementation("eager")
    for row, one in enumerate(rows):
        text = torch.tensor([one.prompt + one.answer])
        with torch.no_grad():
            out = model.hf(text, output_hidden_states=True, output_attentions=True)
        for layer in range(2):  # the last hidden state is normalised
            expected = out.hidden_states[layer + 1][0, one.positions].numpy()
            np.testing.assert_allclose(found["activation"][row, 0, layer].astype(float), expected, atol=3e-3, rtol=3e-3)
            if row == 3:
                expected = out.hidden_states[layer + 1][0, one.published].numpy()
                np.testing.assert_allclose(found["published"][row, layer].astype(float), expected, atol=3e-3, rtol=3e-3)
        weights = torch.stack(out.attentions)[:, 0].mean(dim=1).numpy()  # (layer, query, key)
        for place, token in enumerate(one.positions):
            later = weights[:, token + 1 :, token]
            expected = later.mean(axis=1) if later.size else np.full(3, np.nan)
            np.testing.assert_allclose(found["received"][row, :, place], expected, atol=1e-5)
        start = len(one.prompt) - 1
        logprobs = out.logits[0, start:-1].log_softmax(-1).gather(1, torch.tensor(one.answer)[:, None])[:, 0].numpy()
        wanted = [logprobs.mean(), logprobs.min(), logprobs.max()] + [logprobs[0]] * 3
        np.testing.assert_allclose(found["logprob"][row], wanted, atol=1e-4)
    model.hf.set_attn_implementation("sdpa")


def test_a_reply_is_spelt_as_its_question_leads_to(monkeypatch):
    """With a space after "Answer:", without one at the beginning of a turn."""

    class Tokenizer:
        def __call__(self, text: str, add_special_tokens: bool) -> dict[str, list[int]]:
            return {"input_ids": [{"True": 1, " True": 2, "False": 3, " False": 4}.get(text, 9)]}

        def apply_chat_template(self, turns: list[dict[str, str]], **_: bool) -> str:
            return "".join(f"<{turn['role']}>\n{turn['content']}\n" for turn in turns) + "<assistant>\n"

    monkeypatch.setattr(reading, "has_chat_template", lambda model: True)
    model = cast("Model", SimpleNamespace(tokenizer=Tokenizer()))
    for chat, true, false in ((False, (2, 1), (4, 3)), (True, (1, 2), (3, 4))):
        assert SelfJudgement.of(model, chat=chat) == SelfJudgement((9,), true, false)


def test_p_true_is_the_models_own(model, answers):
    judgement = SelfJudgement.of(model, chat=False)
    assert judgement is None  # this tokenizer knows neither word
    made = SelfJudgement(suffix=(20, 21), true=(30, 31), false=(40,))
    prompt, said = (5, 6, 7, 8, 9, 10, 11, 12, 13), (14, 15)
    positions = positions_of([9], [2], [(0, 0)])
    row = ProbedAnswer("q", prompt, said, (0, 0), positions.index[0], positions.index[0][3:7])
    found = read(model, [row], ("residual",), made)
    with torch.no_grad():
        last = model.hf(torch.tensor([prompt + said + made.suffix])).logits[0, -1].softmax(-1)
    yes, no = float(last[30] + last[31]), float(last[40])
    assert float(found["p_true"][0]) == pytest.approx(yes / (yes + no), abs=1e-5)
    without = read(model, [row], ("residual",))
    assert np.isnan(float(without["p_true"][0]))
    np.testing.assert_allclose(found["received"], without["received"], atol=1e-6)
    np.testing.assert_allclose(found["activation"].astype(float), without["activation"].astype(float), atol=4e-3)


# ---- memory ---------------------------------------------------------------------------------------------------------

LENGTHS = (24, 240)


def test_readings_have_the_same_size_whatever_the_length_of_the_text(model: Model) -> None:
    def answer(tokens: int) -> ProbedAnswer:
        prompt, answer = tuple(5 + index % 90 for index in range(tokens - 10)), tuple(range(7, 17))
        positions = np.arange(tokens - len(POSITIONS), tokens)
        return ProbedAnswer("q", prompt, answer, (2, 4), positions, positions[:4])

    assert len({read(model, [answer(tokens)], ("mlp_in", "residual")).nbytes for tokens in LENGTHS}) == 1


def test_no_reading_is_a_view_of_a_whole_sequence(model: Model) -> None:
    """The memory behind the activations, while the pass runs and afterwards: views of whole sequences would show here."""
    held: list[int] = []

    class Weighed(Activations):
        def on_forward_end(self, context: ForwardContext) -> None:
            held.append(sum(found.untyped_storage().nbytes() for found in self._captured.values()))
            super().on_forward_end(context)

    for tokens in LENGTHS:
        with torch.no_grad(), observe(Structure(model), Weighed(("mlp_in", "residual"), [-3, -1])):
            model.hf(torch.arange(5, 5 + tokens)[None] % 90)
    assert held[0] == held[1] == 3 * 2 * 2 * model.card.hidden_size * 4  # layers, sites, tokens, width, float32


# ---- what is refused ------------------------------------------------------------------------------------------------


def labelled(answers: xr.Dataset, labels: list[str]) -> xr.Dataset:
    return answers.assign(label=("example", np.array(labels, dtype=object)))


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (["wrong"] * 90, "none of the 90 answers is correct, and at least 20 correct answers are needed"),
        (["correct"] * 90, "none of the 90 answers is wrong, .* or harder ones if the model answers them"),
        (
            ["wrong"] * 75 + ["correct"] * 15,
            "only 15 of the 90 answers are correct, .* give more questions, or easier ones",
        ),
    ],
)
def test_too_few_of_a_class(model, answers, labels, words):
    with pytest.raises(DataError, match=words):
        probing.prepare(model, StudyInputs(maps={"answers": labelled(answers, labels)}))


def test_most_rows_without_an_exact_answer(model, answers):
    asked = answers.assign(question=("example", np.array(["how many roads ?"] * 90, dtype=object)))
    with pytest.raises(
        DataError, match="no exact answer was found in 90 of 90 answers, and probing reads at the exact"
    ):
        probing.prepare(model, StudyInputs(maps={"answers": asked}))


def test_a_few_answers_without_an_exact_answer_are_read_at_their_last_token(model, answers):
    question = answers["question"].values.copy()
    chosen = np.flatnonzero(answers["label"].values == "wrong")[:10]
    question[chosen] = "how many roads ?"  # the rule looks for a number, and there is none
    found = probed(
        model, answers.assign(question=("example", question)), ProbingOptions(sites=("residual",), shuffles=40)
    )
    check(found, dataset_spec("probing").schema)
    counts = json.loads(found.attrs["counts"])
    assert (counts["without_exact_wrong"], counts["without_exact_correct"]) == (10, 0)
    assert np.flatnonzero(~found["has_exact"].values).tolist() == chosen.tolist()
    assert (found["exact"].values[chosen] == "").all()
    last = answers["answer_tokens"].values[chosen] - 1
    assert found["exact_last"].values[chosen].tolist() == found["exact_first"].values[chosen].tolist() == last.tolist()
    assert found.sizes["example"] == 90
    text = describe("probing", found).text()
    assert "In 10 answers, 10 of them wrong, no exact answer was found; they are read at their last token" in text


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"sites": ("mlp",)}, "there is no site 'mlp' to probe"),
        ({"sites": ()}, "at least one site"),
        ({"spans": "gold"}, "spans cannot be 'gold'"),
        ({"folds": 1}, "folds must be at least 2, not 1"),
    ],
)
def test_options_are_checked(options: dict[str, Any], words: str):
    with pytest.raises(StudyError, match=words):
        ProbingOptions(**options)


# ---- families, and a model that extracts ----------------------------------------------------------------------------


def test_a_family_without_one_mlp_is_probed_elsewhere():
    assert probing._default_sites(Structure(tiny("opt"))) == ("residual", "attention_out")
    assert probing._default_sites(Structure(tiny("llama"))) == ("mlp_in", "residual")


def test_an_endpoint_extracts_from_wrong_answers_alone(model):
    rows = [("apples with bread", "wrong"), ("boots with soap", "correct"), ("gloves with rope", "wrong")]
    items = [
        Question(f"q{i}", "the old house", ("boots",), response=said, label=label)
        for i, (said, label) in enumerate(rows)
    ]
    answers = answered(model, Questions("three", tuple(items)))
    with Stub(lambda body: "bread" if "apples" in body["messages"][0]["content"] else "NO ANSWER") as served:
        spans = exact_spans(model, answers, "published", Endpoint(served.url, "m", backoff=0.0))
        assert len(served.bodies) == 2
    assert spans == [(2, 2), (0, 0), None]
    assert exact_spans(model, answers)[0] == (0, 2)


# ---- the real default model -----------------------------------------------------------------------------------------


@pytest.mark.real
@pytest.mark.xdist_group("default model")
def test_the_default_model_knows_a_swapped_answer(tmp_path):
    """Right answers, and those of another question of the same topic: the exact answer's token tells them apart."""
    try:
        model = hw.load()
    except ModelError as error:
        pytest.skip(f"the default model is not here: {error}")
    items = [item for item in packaged_questions().items if item.topic == "capitals" and len(item.answers[0]) < 10][:60]
    rows = []
    for place, item in enumerate(items):
        other = items[(place + 1) % len(items)]
        said, label = (item.answers[0], "correct") if place % 2 else (other.answers[0], "wrong")
        rows.append(replace(item, response=f"It is {said}.", label=label))
    answers = answered(model, Questions("swapped", tuple(rows)))
    options = ProbingOptions(sites=("residual",), shuffles=40, paper=False, p_true=False)
    work = probing.prepare(model, StudyInputs(maps={"answers": answers}), options)
    every = [work.measure(shard) for shard in split_shards(work.examples, work.shard_size)]
    assert every[0].sizes["layer"] == 30
    (found,) = work.finalize([shard.isel(layer=slice(3, None, 6)) for shard in every]).values()  # five layers will do
    exact = found["auroc"].sel(site="residual", token="exact_answer_last")
    assert float(exact.max()) > 0.7
    assert float(found["auroc"].sel(site="residual", token="last_q").mean()) < float(exact.mean())
    texts = [str(text) for text in found["exact"].values]
    assert texts == [str(row.response).removeprefix("It is ").removesuffix(".") for row in rows]
    span = slice(int(found["exact_first"][0]), int(found["exact_last"][0]) + 1)
    ids = [int(part) for part in str(answers["answer_ids"].values[0]).split()]
    assert decode_ids(model.tokenizer, ids[span]).strip() == texts[0]
