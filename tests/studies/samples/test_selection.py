"""Which sample to take: by hand, and where the probe is planted to know."""

import numpy as np
import pytest

from headwise.core.errors import DataError
from headwise.studies.samples.selection import STRATEGIES, bootstrap, picks, score_samples


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
    scored = score_samples(activations, labels)
    groups = np.where(labels == "correct", 0, 1)
    found = dict(
        zip(STRATEGIES, picks(labels, groups, scored.score, np.zeros(80, dtype=bool)).mean(axis=1), strict=True)
    )
    assert float(scored.auroc.low) > 0.9
    assert found["probe"] > found["random"] + 0.25 and found["probe"] > found["majority"] + 0.1
    assert found["any"] - 0.05 < found["probe"] <= found["any"]


def test_a_probe_that_knows_nothing_chooses_at_random():
    activations, labels = sampled(strength=0.0, questions=200)
    scored = score_samples(activations, labels)
    groups = np.where(labels == "correct", 0, 1)
    values = picks(labels, groups, scored.score, np.zeros(200, dtype=bool))
    gain = bootstrap(values[3] - values[1])
    assert gain.low < 0.1 and abs(gain.value) < 0.1
    assert float(scored.auroc.low) < 0.5 < float(scored.auroc.high)


def test_a_question_is_judged_by_a_probe_that_never_saw_it():
    """Where every question has an own direction, only a probe that had seen it could use it."""
    random = np.random.default_rng(1)
    labels = np.where(random.random((60, 6)) < 0.5, "correct", "wrong").astype(object)
    activations = random.standard_normal((60, 6, 60)).astype(np.float32) * 0.01
    for question in range(60):
        activations[question, labels[question] == "wrong", question] += 5
    scored = score_samples(activations, labels)
    assert abs(float(scored.auroc.value) - 0.5) < 0.1
    assert sorted(np.unique(scored.fold_of).tolist()) == [0, 1, 2, 3, 4]


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
    score = np.array([[1.0, 2.0, 3.0, 0.5], [-9, -9, -9, 4.0], [0, 0, 0, 0.0]])
    found = picks(labels, groups, score, np.array([True, False, False]))
    assert found.tolist() == [[1, 0, 0], [0.5, 0.25, 0], [0, 1, 0], [1, 1, 0], [1, 1, 0]]


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
        score_samples(activations, labels)
