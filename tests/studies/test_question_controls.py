"""What the question alone says: strata and features, made without labels."""

import numpy as np
import pytest
import xarray as xr

from headwise.corpora import packaged_questions
from headwise.studies.question_controls import length_bands, question_controls


def answers_to(count=480, **changes):
    """Rows of `answers` on packaged questions; a change of None leaves a column out."""
    items = packaged_questions().sample(count).items
    random = np.random.default_rng(0)
    columns = {
        "question": [item.question for item in items],
        "topic": [item.topic for item in items],
        "difficulty": [item.difficulty for item in items],
        "answer_tokens": random.integers(3, 30, count),
        "prompt_tokens": random.integers(40, 60, count),
    } | changes
    return xr.Dataset({name: ("example", values) for name, values in columns.items() if values is not None})


def test_strata_are_topic_and_difficulty():
    answers = answers_to()
    controls = question_controls(answers)
    pairs = list(zip(answers.topic.values, answers.difficulty.values, strict=True))
    assert controls.kind == "topic x difficulty"
    assert len(set(zip(pairs, controls.strata.tolist(), strict=True))) == len(set(pairs)) == controls.strata.max() + 1
    assert controls.description == f"topic x difficulty ({len(set(pairs))} strata)"
    bands = length_bands(answers.answer_tokens.values)
    pairs = list(zip(answers.topic.values, bands, strict=True))
    assert controls.strict_kind == "topic x length band"
    assert len(set(zip(pairs, controls.strict.tolist(), strict=True))) == len(set(pairs)) == controls.strict.max() + 1


def test_difficulty_is_looked_up_where_an_old_atlas_does_not_store_it():
    new, old = question_controls(answers_to()), question_controls(answers_to(difficulty=None))
    assert (new.strata == old.strata).all() and new.kind == old.kind


def test_topics_without_difficulty():
    controls = question_controls(answers_to(difficulty=[0] * 480))
    assert controls.kind == "topic" and controls.strata.max() + 1 == 24
    assert list(controls.features) == ["Question: topic", "Question: topic, length", "Question: words"]


@pytest.mark.parametrize("topic", [[""] * 480, None, [f"topic {n}" for n in range(480)]])
def test_without_useful_topics_strata_are_lengths_and_words(topic):
    answers = answers_to(topic=topic, difficulty=[0] * 480)
    controls = question_controls(answers)
    assert controls.kind == "length bands x clusters of the question's words"
    assert controls.strict_kind == "narrow length bands x clusters of the question's words"
    sizes = np.bincount(controls.strata)
    assert 20 <= len(sizes) <= 60 and len(np.bincount(controls.strict)) > len(sizes)
    # similar questions share a stratum: clusters of words say much about the topic, which they have not seen
    known, tokens = answers_to().topic.values, answers.answer_tokens.values
    same = controls.strata[:, None] == controls.strata
    alike = (known[:, None] == known)[same & ~np.eye(480, dtype=bool)].mean()
    assert alike > 4 / 24
    assert np.ptp(tokens[controls.strata == 0]) < np.ptp(tokens)


def test_features_are_of_the_question_alone():
    answers = answers_to()
    features = question_controls(answers).features
    assert list(features) == ["Question: topic", "Question: topic, difficulty, length", "Question: words"]
    assert (features["Question: topic"].sum(axis=1) == 1).all() and features["Question: topic"].shape == (480, 24)
    both = features["Question: topic, difficulty, length"]
    assert both.shape == (480, 24 + 3 + 2)
    assert both[:, -2] == pytest.approx(np.log(answers.answer_tokens.values))
    assert np.isfinite(features["Question: words"]).all() and features["Question: words"].shape == (480, 64)


def test_same_seed_same_strata_and_labels_are_not_needed():
    answers = answers_to(topic=None, difficulty=None, question=[f"Who wrote book {n % 60}?" for n in range(480)])
    one, other = question_controls(answers, seed=3), question_controls(answers, seed=3)
    assert (one.strata == other.strata).all() and "label" not in answers
    for name, values in one.features.items():
        assert (values == other.features[name]).all()


def test_few_or_equal_questions_are_one_cluster():
    answers = answers_to(12, topic=None, difficulty=None, question=["Why?"] * 12)
    controls = question_controls(answers)
    assert controls.strata.max() + 1 <= 3 and controls.features["Question: words"].shape[0] == 12


def test_length_bands_hold_about_as_many_answers_each():
    tokens = np.random.default_rng(1).integers(1, 100, 1000)
    sizes = np.bincount(length_bands(tokens))
    assert len(sizes) == 5 and sizes.min() > 150
    for band in range(4):
        bands = length_bands(tokens)
        assert tokens[bands == band].max() < tokens[bands == band + 1].min()
    assert (length_bands(np.full(7, 3)) == 0).all()
