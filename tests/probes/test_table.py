import json

import numpy as np
import pytest
import xarray as xr
from sklearn.metrics import roc_auc_score

from headwise.core.dims import DIMS
from headwise.core.errors import DataError
from headwise.core.progress import reporting
from headwise.probes import Detector, TableOptions, compare_rows, detector_table, with_noise
from headwise.probes.generalisation import transfer
from headwise.stats.stratified import auroc_within
from headwise.stats.validation import as_named

OPTIONS = TableOptions(ks=(2, 4, 8), sizes=(50, 100, 10_000), reference="answer length")


@pytest.fixture(scope="module")
def answers():
    """240 answers, 6 x 4 heads; two heads and the log-probability tell, each by itself; the length does not."""
    random = np.random.default_rng(0)
    labels = random.random(240) < 0.5
    eigenvalues = random.standard_normal((240, 6, 4, 8))
    eigenvalues[:, 3, 1] += 0.8 * labels[:, None]
    lookback = random.standard_normal((240, 6, 4))
    lookback[:, 5, 2] += labels
    hidden = random.standard_normal((240, 6, 10))
    hidden[:, 2, 4] += 2 * labels
    return {
        "labels": labels,
        "topics": np.array(["art", "law", "sea"])[np.arange(240) % 3],
        "sets": {
            "LapEigvals": eigenvalues,
            "lookback": lookback,
            "hidden state": xr.DataArray(hidden, dims=("example", "layer", "width")),
        },
        "scores": {
            "log-probability": random.standard_normal(240) + labels,
            "answer length": random.integers(1, 9, 240),
        },
        "combine": {"combined": ["LapEigvals", "lookback", "log-probability"]},
    }


@pytest.fixture(scope="module")
def table(answers):
    return detector_table(
        answers["sets"], answers["labels"], answers["scores"],
        combine=answers["combine"], topics=answers["topics"], options=OPTIONS,
    )  # fmt: skip


def test_rows_and_dims(table):
    assert table.detector.values.tolist() == [
        "LapEigvals", "lookback", "hidden state", "combined", "log-probability", "answer length",
    ]  # fmt: skip
    assert table.kind.values.tolist() == ["supervised"] * 3 + ["combined"] + ["score"] * 2
    assert table.choice.values.tolist() == ["k", "", "layer", "", "", ""]
    assert {str(dim) for variable in table.variables.values() for dim in variable.dims} <= DIMS
    assert table["rank"].values.tolist() == [2, 4, 8]
    assert table["size"].values.tolist() == [50, 100]
    assert table["layer"].values.tolist() == list(range(6))
    assert table["trained_on"].values.tolist() == ["art", "law", "sea", "others"]


def test_numbers_are_intervals_around_aurocs(table, answers):
    for name in ("auroc", "by_k", "by_layer", "by_size", "transfer", "paper", "gain"):
        low, value, high = table[f"{name}_low"], table[name], table[f"{name}_high"]
        there = value.notnull()
        assert there.any()
        assert (((low <= value) & (value <= high)) | ~there).all(), name
    for name in ("log-probability", "answer length"):
        row = table.sel(detector=name)
        assert row.pooled.item() == pytest.approx(roc_auc_score(answers["labels"], answers["scores"][name]))
        assert row.auroc.item() == pytest.approx(row.pooled.item(), abs=0.02)
        assert np.isnan(row.precision.item())
        assert (row.score == answers["scores"][name]).all()
    assert table.auroc.values == pytest.approx(table.fold_auroc.mean("fold").values)


def test_what_was_planted_is_seen(table):
    auroc = table.auroc.to_series()
    assert auroc["LapEigvals"] > 0.7
    assert auroc["hidden state"] > 0.85
    assert 0.4 < auroc["answer length"] < 0.6
    assert auroc["combined"] > max(auroc["LapEigvals"], auroc["lookback"], auroc["log-probability"])
    assert (table.chosen.sel(detector="hidden state") == 2).all()
    assert table.by_layer.sel(detector="LapEigvals").argmax("layer") == 3
    assert table.by_layer.sel(detector="lookback").argmax("layer") == 5
    assert table.by_layer.sel(detector="hidden state").argmax("layer") == 2
    assert table.gain.sel(detector="combined") == pytest.approx(auroc["combined"] - auroc["answer length"])
    assert table.gain_low.sel(detector="combined") > 0
    assert table.brier.sel(detector="combined") < 0.2 < 0.25


def test_the_sweep_is_the_same_detector_with_k_fixed(answers, table):
    alone = detector_table(
        {"LapEigvals": answers["sets"]["LapEigvals"][..., :4]}, answers["labels"], options=TableOptions(ks=(4,))
    )
    assert alone.auroc.item() == pytest.approx(table.by_k.sel(detector="LapEigvals", rank=4).item())
    assert alone.by_layer.sel(layer=3).item() > 0.7
    assert "transfer" not in alone
    assert "gain" not in alone


def test_two_rows_can_be_compared(table):
    found = compare_rows(table, "combined", "LapEigvals")
    assert found.value == pytest.approx(
        float(table.auroc.sel(detector="combined") - table.auroc.sel(detector="LapEigvals"))
    )
    assert found.low < found.value < found.high
    with pytest.raises(DataError, match="Did you mean 'combined'"):
        compare_rows(table, "combine", "LapEigvals")


def test_same_seed_same_table(answers):
    first, second = (detector_table({"a": answers["sets"]["lookback"]}, answers["labels"]) for _ in range(2))
    assert first.identical(second)


def test_groups_stay_together(answers):
    groups = np.arange(240) // 3
    found = detector_table({"a": answers["sets"]["lookback"]}, answers["labels"], groups=groups)
    fold_of = found.fold_of.values
    assert all(len(set(fold_of[groups == group])) == 1 for group in range(80))


def test_details_can_be_left_out(answers):
    found = detector_table(answers["sets"], answers["labels"], options=TableOptions(ks=(2, 4), details=["lookback"]))
    assert np.isfinite(found.by_size.sel(detector="lookback")).any()
    assert not np.isfinite(found.by_size.sel(detector="LapEigvals")).any()


def test_fewer_answers_than_every_size(answers):
    one = {"lookback": answers["sets"]["lookback"]}
    found = detector_table(one, answers["labels"], options=TableOptions(sizes=(10_000,)))
    assert found.sizes["size"] == 0 and np.isfinite(found.auroc.sel(detector="lookback"))


def test_a_k_that_some_text_does_not_have_is_noted(answers):
    short = answers["sets"]["LapEigvals"].copy()
    short[0, :, :, 5:] = np.nan
    found = detector_table({"LapEigvals": short}, answers["labels"], options=OPTIONS_WITHOUT_REFERENCE)
    assert found["rank"].values.tolist() == [2, 4]
    assert json.loads(found.attrs["notes"]) == ["LapEigvals: no k of 8: some text is shorter"]


OPTIONS_WITHOUT_REFERENCE = TableOptions(ks=(2, 4, 8), details=())


def test_what_is_wrong_is_said(answers):
    sets, labels = answers["sets"], answers["labels"]
    for wrong, message in [
        ({"feature_sets": {}}, "nothing to put into the table"),
        ({"baselines": {"lookback": labels * 1.0}}, "Two rows of the table would be called 'lookback'"),
        ({"combine": {"both": ["lookbac"]}}, "no row 'lookbac' to use. Did you mean 'lookback'"),
        ({"options": TableOptions(reference="length")}, "no row 'length' to use"),
        ({"options": TableOptions(details=["all"])}, "no row 'all' to use"),
        ({"baselines": {"length": [1.0, 2.0]}}, r"'length' has the shape \(2,\), but one number for each of 240"),
        ({"baselines": {"length": np.full(240, np.nan)}}, "'length' is not a number for 240 of 240 answers"),
        ({"topics": ["art"] * 240}, "at least two topics"),
        ({"topics": ["art"] * 2}, "There are 240 answers but 2 topics"),
    ]:
        arguments = {"feature_sets": {"lookback": sets["lookback"]}, "labels": labels} | wrong
        with pytest.raises(DataError, match=message):
            detector_table(**arguments)


def test_transfer_between_topics():
    """In two topics the same coordinate tells, in the third another; the fourth is too small to say anything."""
    random = np.random.default_rng(0)
    topics = np.repeat(["a", "b", "c", "tiny"], [100, 100, 100, 10])
    labels = random.random(310) < 0.5
    points = random.standard_normal((310, 5))
    points[topics != "c", 0] += 2 * labels[topics != "c"]
    points[topics == "c", 1] += 2 * labels[topics == "c"]
    found = transfer(points, labels, topics).auroc
    assert found.sel(trained_on="a", topic="b") > 0.8
    assert found.sel(trained_on="a", topic="a") > 0.85
    assert found.sel(trained_on="a", topic="c") < 0.65
    assert found.sel(trained_on="c", topic="c") > 0.85
    assert found.sel(trained_on="others", topic="b") > 0.75
    assert found.sel(topic="tiny").isnull().all()
    assert found.sel(trained_on="tiny").isnull().all()


def test_noise_on_features():
    array = as_named(np.random.default_rng(0).standard_normal((500, 3)) * [1, 10, 100])
    noisy = with_noise(array, 0.5)
    spread = (noisy - array).std("example").values
    assert spread == pytest.approx([0.5, 5, 50], rel=0.15)
    assert (with_noise(array, 0.5) == noisy).all()


def test_detector_and_table_refuse_one_class_and_too_few():
    values = np.zeros((30, 2, 2))
    for verb in (lambda v, y: Detector().fit(v, y), lambda v, y: detector_table({"a": v}, y)):
        with pytest.raises(DataError, match="nothing to tell apart"):
            verb(values, [True] * 30)
        with pytest.raises(DataError, match="at least 20 of each"):
            verb(values, [True] * 15 + [False] * 15)


# ---- what the question alone tells ----------------------------------------------------------------------------------


def asked(carries, seed=0, n=600):
    """Answers whose error depends on the topic and on nothing else, or also on something that only the heads carry."""
    random = np.random.default_rng(seed)
    topic, difficulty = random.integers(0, 8, n), random.integers(0, 2, n)
    hidden = random.standard_normal(n)  # of the single answer: not in the question
    logit = 1.2 * (topic % 4 - 1.5) + (1.5 * hidden if carries == "error" else 0)
    wrong = random.random(n) < 1 / (1 + np.exp(-logit))
    heads = random.standard_normal((n, 3, 4))
    heads[:, 1] += np.eye(8)[topic][:, :4] * 2 + (topic % 4)[:, None]  # these heads know the topic
    if carries == "error":
        heads[:, 2, 0] += 2 * hidden
    return heads, wrong, np.eye(8)[topic], topic * 2 + difficulty


def question_table(carries, seed=0):
    heads, wrong, topics, strata = asked(carries, seed)
    return detector_table(
        {"heads": heads}, wrong, {"first head": heads[:, 1, 0]},
        questions={"topic": topics}, combine={"topic + heads": ("topic", "heads")}, strata=strata,
        options=TableOptions(details=()),
    )  # fmt: skip


def test_heads_that_carry_the_topic_alone_gain_nothing_over_the_question():
    gains, within = [], []
    for seed in range(8):
        table = question_table("topic", seed)
        assert table.attrs["reference"] == "topic"
        one = table.sel(detector="topic + heads")
        assert float(table["auroc"].sel(detector="heads")) > 0.7  # it looks like a detector
        assert float(one["gain_low"]) < 0
        assert float(table["gain_low"].sel(detector="heads")) < 0
        assert float(one["gain_detectable"]) == pytest.approx(
            (1.959964 + 0.841621) / 1.959964 * (one.gain_high - one.gain_low) / 2, rel=1e-4
        )
        gains.append(float(one["gain"]))
        within.append(table["auroc_within"].values)
    assert abs(np.mean(gains)) < 0.012
    for name, value in zip(table["detector"].values, np.mean(within, axis=0), strict=True):
        assert value == pytest.approx(0.5, abs=0.03), name


def test_heads_that_carry_the_error_gain_over_the_question_and_within_strata():
    table = question_table("error")
    one = table.sel(detector="topic + heads")
    assert float(one["gain_low"]) > 0.03 and float(one["gain_p"]) < 0.001
    assert float(table["auroc_within_low"].sel(detector="heads")) > 0.6
    assert float(table["auroc_within"].sel(detector="topic")) == pytest.approx(0.5)  # all ties within a topic
    assert dict(zip(table["detector"].values, table["kind"].values, strict=True)) == {
        "topic": "question", "heads": "supervised", "topic + heads": "with question", "first head": "score",
    }  # fmt: skip


def test_scores_of_several_folds_are_not_compared_within_strata():
    """A classifier that knows the topic has seen the others of the stratum, so across folds it is worse than chance."""
    heads, wrong, topics, strata = asked("topic")
    table = detector_table({"heads": heads}, wrong, questions={"topic": topics}, options=TableOptions(details=()))
    score = table["score"].sel(detector="topic").values
    assert float(auroc_within(score, wrong, strata).value) < 0.4


def test_progress_counts_every_step():
    heads, wrong, topics, _ = asked("topic", n=120)
    ranks = -np.sort(-np.random.default_rng(0).standard_normal((120, 2, 3, 10)), axis=-1)
    said = []
    with reporting(lambda *what: said.append(what)):
        table = detector_table({"heads": heads, "ranks": ranks}, wrong, questions={"topic": topics})
    assert said[0][1] == 0 and said[-1][1] == said[-1][2] == len(said) - 1
    assert table.attrs["fits"] == 20 * 4 and table.attrs["unconverged"] == 0
