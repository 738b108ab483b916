"""Which sample to take: by hand, and where the probe is planted to know."""

import numpy as np
import pytest

from headwise.core.errors import DataError
from headwise.probes.batched_logistic import fit_cells
from headwise.studies.samples.selection import (
    STRATEGIES,
    GreedyAnswers,
    bootstrap,
    picks,
    score_samples,
    within_question,
)

NO_OTHERS = GreedyAnswers(np.empty((0, 10), dtype=np.float32), np.empty(0, dtype=object))


def nothing_greedy(questions, width=10):
    """Greedy answers that were all refused, so that they teach nothing."""
    return GreedyAnswers(np.zeros((questions, width), dtype=np.float32), np.full(questions, "refused", dtype=object))


def by_strategy(labels, groups, score, greedy=None):
    found = picks(labels, groups, score, np.zeros(len(labels), dtype=bool) if greedy is None else greedy)
    return dict(zip(STRATEGIES, found, strict=True))


def sampled(seed=0, questions=80, samples=8, strength=3.0, width=10):
    """Half of the questions are mostly answered right; one direction of the activation knows each sample's label."""
    random = np.random.default_rng(seed)
    chance = np.where(np.arange(questions) % 2 == 0, 0.8, 0.25)
    correct = random.random((questions, samples)) < chance[:, None]
    labels = np.where(correct, "correct", "wrong").astype(object)
    labels[random.random(labels.shape) < 0.05] = "refused"
    activations = random.standard_normal((questions, samples, width)).astype(np.float32)
    activations += random.standard_normal((questions, 1, width)).astype(np.float32)  # the question's own
    activations[..., 2] += strength * ~correct
    return activations, labels


def test_a_probe_that_knows_chooses_as_well_as_can_be():
    activations, labels = sampled(strength=4.0)
    scored = score_samples(activations, labels, nothing_greedy(80), NO_OTHERS)
    groups = np.where(labels == "correct", 0, 1)
    found = {name: values.mean() for name, values in by_strategy(labels, groups, scored.score).items()}
    assert float(scored.auroc.low) > 0.9 and float(scored.within.low) > 0.9
    assert found["probe"] > found["random"] + 0.25 and found["probe"] > found["majority"] + 0.1
    assert found["any"] - 0.05 < found["probe"] <= found["any"]
    assert found["trust"] > found["majority"] + 0.1
    assert scored.score.min() >= 0 and scored.score.max() <= 1


def test_a_probe_that_knows_nothing_chooses_at_random():
    activations, labels = sampled(strength=0.0, questions=200)
    scored = score_samples(activations, labels, nothing_greedy(200), NO_OTHERS)
    groups = np.where(labels == "correct", 0, 1)
    found = by_strategy(labels, groups, scored.score)
    gain = bootstrap(found["probe"] - found["random"])
    assert gain.low < 0 < gain.high and abs(gain.value) < 0.1
    assert float(scored.auroc.low) < 0.5 < float(scored.auroc.high)
    assert float(scored.within.low) < 0.5 < float(scored.within.high)
    vote = bootstrap(found["trust"] - found["majority"])
    assert vote.low < 0 < vote.high or abs(vote.value) < 0.03


def test_what_is_learnt_from_greedy_answers_to_other_questions_beats_greedy():
    """Few sampled questions, 1,500 others: only with the greedy answers to those does the probe know enough to gain."""
    random = np.random.default_rng(3)
    questions, draws, width = 60, 8, 120
    direction = random.standard_normal(width) / np.sqrt(width)
    labels = np.where(random.random((questions, draws)) < 0.5, "correct", "wrong").astype(object)
    activations = random.standard_normal((questions, draws, width)).astype(np.float32)
    activations += (1.2 * (labels == "wrong"))[..., None] * direction.astype(np.float32)
    other = np.where(random.random(1500) < 0.5, "correct", "wrong").astype(object)
    seen = random.standard_normal((1500, width)).astype(np.float32)
    seen += (1.2 * (other == "wrong"))[:, None] * direction.astype(np.float32)
    greedy_right = random.random(questions) < 0.5
    groups = np.where(labels == "correct", 0, 1 + np.arange(draws))
    none = GreedyAnswers(seen[:0], other[:0])
    alone, helped = (
        score_samples(activations, labels, nothing_greedy(questions, width), rest)
        for rest in (none, GreedyAnswers(seen, other))
    )
    assert helped.fitted_on == (questions + 1500, questions * draws + 1500) and alone.fitted_on == (60, 480)
    assert float(helped.within.value) > float(alone.within.value) + 0.05
    picked = by_strategy(labels, groups, helped.score, greedy_right)
    assert float(bootstrap(picked["probe"] - picked["greedy"]).low) > 0
    assert float(bootstrap(picked["trust"] - picked["greedy"]).low) > 0


def test_a_probe_without_knowledge_does_not_beat_greedy():
    """As above, with activations that say nothing: no gain over a greedy answer that is right as often as a sample."""
    random = np.random.default_rng(4)
    labels = np.where(random.random((300, 8)) < 0.5, "correct", "wrong").astype(object)
    other = np.where(random.random(500) < 0.5, "correct", "wrong").astype(object)
    activations, seen = (random.standard_normal(shape).astype(np.float32) for shape in ((300, 8, 20), (500, 20)))
    scored = score_samples(activations, labels, nothing_greedy(300, 20), GreedyAnswers(seen, other))
    groups = np.tile(np.arange(8), (300, 1))
    picked = by_strategy(labels, groups, scored.score, random.random(300) < 0.5)
    for name in ("probe", "trust"):
        gain = bootstrap(picked[name] - picked["greedy"])
        assert gain.low < 0 < gain.high


def test_a_question_counts_once_however_often_it_was_sampled(monkeypatch):
    """The rows of a question, its greedy answer among them, share a weight of 1."""
    activations, labels = sampled(questions=40)
    given = []

    def fitted(features, wrong, folds, *, weights, coefficients):
        given.append((weights, folds))
        return fit_cells(features, wrong, folds, weights=weights, coefficients=coefficients)

    monkeypatch.setattr("headwise.studies.samples.selection.fit_cells", fitted)
    own = GreedyAnswers(activations[:, 0], np.where(np.arange(40) < 30, "wrong", "refused").astype(object))
    rest = GreedyAnswers(activations[:, 1], np.array(["wrong", "correct"] * 20, dtype=object))
    score_samples(activations, labels, own, rest)
    ((weights, folds),) = given
    judged = (labels != "refused").sum(axis=1)
    assert weights.sum() == pytest.approx((judged > 0).sum() + 40)
    assert (folds[-40:] == 5).all() and weights[-40:].tolist() == [1.0] * 40
    assert weights[0] == pytest.approx(1 / (judged[0] + 1)) and (folds[:-40] < 5).all()


def test_a_question_is_judged_by_a_probe_that_never_saw_it():
    """Where every question has an own direction, only a probe that had seen it could use it."""
    random = np.random.default_rng(1)
    labels = np.where(random.random((60, 6)) < 0.5, "correct", "wrong").astype(object)
    activations = random.standard_normal((60, 6, 60)).astype(np.float32) * 0.01
    for question in range(60):
        activations[question, labels[question] == "wrong", question] += 5
    own = GreedyAnswers(activations[:, 0], labels[:, 0])
    scored = score_samples(activations, labels, own, NO_OTHERS._replace(activations=activations[:0, 0]))
    assert abs(float(scored.auroc.value) - 0.5) < 0.1
    assert sorted(np.unique(scored.fold_of).tolist()) == [0, 1, 2, 3, 4]


def test_pairs_within_questions_against_a_plain_loop_and_a_bootstrap():
    random = np.random.default_rng(2)
    labels = np.array(["correct", "wrong", "refused"], dtype=object)[random.integers(0, 3, (150, 7))]
    score = random.standard_normal((150, 7)).round(1) + 0.5 * (labels == "wrong") + random.standard_normal((150, 1))
    won, pairs = np.zeros(150), np.zeros(150)
    for question in range(150):
        for i in np.flatnonzero(labels[question] == "wrong"):
            for j in np.flatnonzero(labels[question] == "correct"):
                pairs[question] += 1
                won[question] += np.heaviside(score[question, i] - score[question, j], 0.5)
    found = within_question(score, labels)
    assert float(found.value) == pytest.approx(won.sum() / pairs.sum())
    drawn = random.integers(0, 150, (4000, 150))
    spread = (won[drawn].sum(axis=1) / pairs[drawn].sum(axis=1)).std()
    assert np.sqrt(np.square(found.influence).sum()) == pytest.approx(spread, rel=0.06)
    assert float(within_question(score, labels, inflation=2.25).high) > float(found.high)


def test_strategies_by_hand():
    labels = np.array(
        [
            ["wrong", "wrong", "correct", "correct"],  # two groups of two: the first is taken
            ["refused", "refused", "refused", "correct"],  # refusals do not vote, and are not scored
            ["refused"] * 4,
        ],
        dtype=object,
    )
    groups = np.array([[5, 5, 1, 1], [0, 0, 0, 1], [0, 0, 0, 0]])
    score = np.array([[0.6, 0.7, 0.8, 0.1], [0.0, 0.0, 0.0, 0.9], [0, 0, 0, 0.0]])
    found = picks(labels, groups, score, np.array([True, False, False]))
    assert found.tolist() == [[1, 0, 0], [0.5, 0.25, 0], [0, 1, 0], [1, 1, 0], [1, 1, 0], [1, 1, 0]]
    lone = np.array([[0.5, 0.5, 0.01, 0.9], *score[1:]])  # trust in one sample is less than in two
    assert picks(labels, np.array([[5, 5, 1, 2], *groups[1:]]), lone, np.array([True, False, False]))[
        3:5, 0
    ].tolist() == [1, 0]


def test_the_bootstrap_is_paired_and_keeps_its_word():
    random = np.random.default_rng(0)
    base = random.random(100) < 0.5
    better = base | (random.random(100) < 0.2)
    each = bootstrap(np.stack([base, better]).astype(float))
    gain = bootstrap((better.astype(float) - base)[None])
    assert gain.low[0] > 0  # although the two intervals overlap
    assert each.low[1] < each.high[0]
    plain = 1.96 * np.sqrt(each.value * (1 - each.value) / 100)
    assert each.high - each.low == pytest.approx(2 * plain, rel=0.1)
    assert np.isnan(bootstrap(np.empty((2, 0))).value).all()


def test_too_few_of_a_class_is_refused():
    activations, labels = sampled(questions=10)
    labels[:] = "wrong"
    with pytest.raises(DataError, match="0 samples are correct and 80 wrong"):
        score_samples(activations, labels, nothing_greedy(10), NO_OTHERS)
