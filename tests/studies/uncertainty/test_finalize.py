"""The table of scores on planted readings whose answer is known, and under a null where nothing is to be found."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr
from sklearn.metrics import average_precision_score, roc_auc_score
from synthetic.origin import provenance
from synthetic.uncertainty import planted_readings, uncertainty_dataset

from headwise.analysis import pooled_benchmark
from headwise.core.schema import check
from headwise.scores import scores
from headwise.scores.hidden_states import contrast_consistent, contrast_loss
from headwise.studies.registry import dataset_spec
from headwise.studies.uncertainty.figure import LENGTH, LOGPROB_MIN, best_by_cost, figure, relative_seconds
from headwise.studies.uncertainty.finalize import MIN_PER_GROUP, computed, finalize
from headwise.studies.uncertainty.spec import UncertaintyOptions
from headwise.studies.uncertainty.words import describe


def concluded(**effects: float) -> xr.Dataset:
    return finalize(*planted_readings(**effects), UncertaintyOptions())


def at(table: xr.Dataset, name: str, variable: str = "auroc") -> float:
    return float(table[variable].sel(detector=name))


@pytest.fixture(scope="module")
def disagreeing() -> xr.Dataset:
    """Samples disagree where the answer is wrong; nothing else tells it."""
    return concluded(disagreement=0.8)


def test_disagreement_of_samples_is_found_by_what_compares_samples(disagreeing):
    winners = ["Semantic entropy", "Discrete semantic entropy", "Semantic sets", "SelfCheck", "Lexical similarity"]
    for name in (*winners, "Degree matrix", "Similarity eigenvalues", "SentenceSAR", "SAR"):
        assert at(disagreeing, name, "auroc_low") > 0.55, name
    for name in winners:
        assert at(disagreeing, name, "gain_logprob_q") < 0.05 and at(disagreeing, name, "gain_logprob_low") > 0, name
        assert at(disagreeing, name, "added_q") < 0.05, name
    for name in ("RAUQ", LOGPROB_MIN, "p(True)", "EigenScore", "LapEigvals", LENGTH):
        assert at(disagreeing, name, "auroc_low") < 0.5 < at(disagreeing, name, "auroc_high") + 0.02, name
    assert "Semantic entropy, the one comparison that was fixed beforehand, is better" in describe(disagreeing).text()


def test_what_one_head_knows_is_found_by_the_features_that_hold_it():
    table = concluded(head=1.5)
    for name in ("LapEigvals", "SinkProbe", "Headwise"):
        assert at(table, name, "auroc_low") > 0.6 and at(table, name, "added_low") > 0, name
    assert at(table, "AttnEigvals") < 0.62 and at(table, "Semantic entropy") < 0.62


def test_a_probe_of_semantic_entropy_finds_errors_without_labels():
    """The hidden state carries the error, and samples disagree on errors: fitted to disagreement, the probe finds errors."""
    table = concluded(hidden=2.0, disagreement=0.9)
    assert table["kind"].sel(detector="Semantic entropy probe").item() == "probe"
    assert at(table, "Semantic entropy probe", "auroc_low") > 0.6
    assert (
        at(concluded(hidden=2.0), "Semantic entropy probe") < 0.68
    )  # the samples say nothing, so there is nothing to fit


def test_a_probe_does_not_see_the_labels():
    readings, answers = planted_readings(hidden=1.0, disagreement=0.8)
    flipped = answers.assign(label=("example", np.where(answers["label"] == "wrong", "correct", "wrong")))
    one, other = (finalize(readings, each, UncertaintyOptions()) for each in (answers, flipped))
    assert at(one, "Semantic entropy probe") + at(other, "Semantic entropy probe") == pytest.approx(1, abs=0.08)


def test_ccs_finds_what_the_replies_contradict_each_other_in():
    """One entry of the contrast pair says whether the answer is true; another says which reply it is, and must not matter."""
    readings, answers = planted_readings(belief=1.5, logprob=0.5)
    table = finalize(readings, answers, UncertaintyOptions())
    assert table["kind"].sel(detector="CCS").item() == "probe" and table["cost"].sel(detector="CCS") == "contrast pair"
    assert at(table, "CCS", "auroc_low") > 0.8 and at(table, "CCS", "added_q") < 0.05
    assert at(table, "Hidden state", "auroc_low") < 0.5 < at(table, "Hidden state", "auroc_high")
    pairs = np.stack([readings[f"hidden_{reply}"].values for reply in ("true", "false")])
    pairs = (pairs - pairs.mean(axis=1, keepdims=True)) / pairs.std(axis=1, keepdims=True)
    direction = contrast_consistent(pairs)
    assert abs(direction[3]) > 0.95 * np.linalg.norm(direction[:-1])
    assert contrast_loss(direction, pairs)[0] < min(contrast_loss(np.eye(7)[each] * 3, pairs)[0] for each in range(7))


def test_ccs_sees_no_label_and_no_answer_of_the_tested_fold():
    readings, answers = planted_readings(belief=1.5, logprob=0.5)
    flipped = answers.assign(label=("example", np.where(answers["label"] == "wrong", "correct", "wrong")))
    folds = np.arange(readings.sizes["example"]) % 5
    scored = computed(readings, folds)[0]["CCS"]
    assert at(finalize(readings, flipped, UncertaintyOptions()), "CCS", "auroc_high") < 0.2  # its sign is no label's
    other = readings.copy(deep=True)
    other["hidden_true"][0] += 100.0  # in fold 0: moves its own score, and what other folds learn
    moved = computed(other, folds)[0]["CCS"]
    assert (moved[folds == 0][1:] == scored[folds == 0][1:]).all() and moved[0] != scored[0]
    assert (moved[folds != 0] != scored[folds != 0]).all()


def test_the_sign_of_ccs_is_that_of_the_log_probability():
    readings, answers = planted_readings(belief=1.5, logprob=0.5)
    readings["logprobs"] = -9 - readings["logprobs"]
    turned = finalize(readings, answers, UncertaintyOptions())
    assert at(turned, LOGPROB_MIN, "auroc_high") < 0.5 and at(turned, "CCS", "auroc_high") < 0.2


def test_the_gradient_of_ccs_is_that_of_its_loss():
    random = np.random.default_rng(0)
    pairs, direction = random.normal(size=(2, 9, 4)), random.normal(size=5)
    steps = 1e-6 * np.eye(5)
    each = [(contrast_loss(direction + s, pairs)[0] - contrast_loss(direction - s, pairs)[0]) / 2e-6 for s in steps]
    np.testing.assert_allclose(contrast_loss(direction, pairs)[1], each, rtol=1e-6, atol=1e-9)
    p, q = (1 / (1 + np.exp(-(states @ direction[:-1] + direction[-1]))) for states in pairs)
    by_hand = np.mean((p - (1 - q)) ** 2 + np.minimum(p, q) ** 2) + 0.001 * (direction[:-1] ** 2).sum()
    assert contrast_loss(direction, pairs)[0] == pytest.approx(by_hand)


def test_what_the_question_tells_is_no_merit_of_a_score():
    """The topic decides how often answers are wrong; the log-probabilities follow the topic alone."""
    readings, answers = planted_readings(topic=0.9)
    topic = np.array([int(str(name).split()[-1]) for name in answers["topic"].values])
    readings["logprobs"] = readings["logprobs"] - xr.DataArray(topic / 4, dims="example")
    table = finalize(readings, answers, UncertaintyOptions())
    assert at(table, LOGPROB_MIN, "auroc_low") > 0.55
    assert at(table, LOGPROB_MIN, "auroc_within_low") < 0.5 and at(table, LOGPROB_MIN, "added_low") < 0
    assert at(table, LOGPROB_MIN, "gain") < 0.02
    question = table.attrs["reference"]
    assert at(table, question, "auroc_low") > 0.6 and table["kind"].sel(detector=question).item() == "question"
    assert "adds to what the question alone tells" in describe(table).text()


def test_where_nothing_is_to_be_found_nothing_is_claimed():
    """The complete null: a false claim among all scores in at most one draw in twenty, but for chance."""
    claims = {"gain_logprob": 0, "added": 0}
    draws = 12
    for seed in range(draws):
        table = finalize(*planted_readings(1, 2, count=120, seed=100 + seed), UncertaintyOptions(samples=4))
        for what in claims:
            better = (table[f"{what}_q"] < 0.05) & (table[what] > 0)
            claims[what] += bool(better.any())
    for what, count in claims.items():
        assert count <= 3, what  # P(X > 3) = .002 for a rate of .05


def test_numbers_are_those_of_other_implementations(disagreeing):
    wrong, fold_of = disagreeing["wrong"].values, disagreeing["fold_of"].values
    for name in ("Semantic entropy", "RAUQ"):
        score = disagreeing["score"].sel(detector=name).values
        each = [roc_auc_score(wrong[fold_of == fold], score[fold_of == fold]) for fold in np.unique(fold_of)]
        assert at(disagreeing, name) == pytest.approx(np.mean(each))
        assert at(disagreeing, name, "auprc") == pytest.approx(average_precision_score(wrong, score))
        risk = disagreeing["risk"].sel(detector=name).values
        assert risk[-1] == pytest.approx(wrong.mean())
    entropy = disagreeing.sel(detector="Semantic entropy")
    assert float(entropy["risk"].sel(coverage=0.25)) < float(entropy["risk"].sel(coverage=1.0))
    assert 0 < at(disagreeing, "Semantic entropy", "prr") < 1


def test_scores_without_a_fit_are_stored_as_they_are():
    readings, answers = planted_readings()
    table = finalize(readings, answers, UncertaintyOptions())
    for name, one in scores().items():
        if one.kind == "score":
            np.testing.assert_allclose(table["score"].sel(detector=name), one(readings), err_msg=name)


def test_probabilities_are_between_0_and_1_and_hold(disagreeing):
    assert ((disagreeing["probability"] >= 0) & (disagreeing["probability"] <= 1)).all()
    assert (disagreeing["ece"] <= disagreeing["ece_high"]).all() and (
        disagreeing["ece"] >= disagreeing["ece_low"]
    ).all()
    assert at(disagreeing, "Semantic entropy", "brier") < at(disagreeing, LENGTH, "brier")


def test_a_score_that_is_no_number_somewhere_is_left_out_and_told():
    readings, answers = planted_readings()
    readings["p_true"] = readings["p_true"].where(np.arange(readings.sizes["example"]) > 2)
    table = finalize(readings, answers, UncertaintyOptions())
    assert "p(True)" not in table["detector"].values
    assert "p(True) is left out: not a number for 3 of 240 answers." in describe(table).text()


def test_a_target_that_hardly_varies_is_not_fitted():
    readings, answers = planted_readings()
    readings["group"] = xr.zeros_like(readings["group"])
    readings["group"][: MIN_PER_GROUP - 1, 0] = 1
    table = finalize(readings, answers, UncertaintyOptions())
    assert "Semantic entropy probe" not in table["detector"].values
    assert "its target does not vary enough: 19 of 240 answers are high" in describe(table).text()


def test_without_samples_the_table_has_the_others():
    readings, answers = planted_readings(logprob=1.0)
    table = finalize(
        readings.drop_vars([name for name in readings if "draw" in readings[name].dims] + ["seconds samples"]), answers,
        UncertaintyOptions(samples=0),
    )  # fmt: skip
    costs = {"answer", "pass", "p(True)", "contrast pair", "question"}
    assert "sample" not in table and set(table["cost"].values) == costs
    table.attrs["provenance"] = provenance("uncertainty", 2, 3, data="made up", size=240)
    assert "samples" not in best_by_cost(table) and "sampled" not in describe(table).overview[1]
    assert {panel.key for panel in figure(table, curves=True).panels} >= {"risk", "times"}


def test_times_are_multiples_of_the_answer():
    assert relative_seconds(uncertainty_dataset()) == pytest.approx(
        {"answer": 1.0, "pass": 3.0, "p(True)": 4.0, "contrast pair": 5.0, "samples": 6.0}
    )


def test_figures_have_the_numbers():
    table = uncertainty_dataset()
    drawn = figure(table)
    assert [panel.key for panel in drawn.panels] == ["auroc", "auroc_within", "gain_logprob", "added"]
    rows = dict(zip(drawn.panel("auroc").y.labels, drawn.panel("auroc").values, strict=True))
    assert rows["Semantic entropy"] == pytest.approx(at(table, "Semantic entropy"))
    assert "Question: all" not in drawn.panel("added").y.labels
    curves = {curve.key: curve for curve in figure(table, curves=True).panel("risk").curves}
    for name in best_by_cost(table).values():
        np.testing.assert_allclose(curves[name].y, table["risk"].sel(detector=name), rtol=1e-6)


def test_datasets_of_version_1_can_still_be_shown_next_to_new_ones():
    new = uncertainty_dataset()
    old = new.drop_sel(detector="CCS", cost_class="contrast pair")
    old.attrs["provenance"] = old.attrs["provenance"].replace('"study_version": 2', '"study_version": 1')
    check(old, dataset_spec("uncertainty").schema)
    assert describe(old).short() and figure(old, curves=True).panels
    both = pooled_benchmark({"old": old, "new": new})
    assert both.table.attrs["left_out"] == ["CCS"]
    assert both.frame("old")["seconds_ratio"].equals(both.frame("new")["seconds_ratio"])
