"""The study's pure functions: changes are found where they are planted, and nowhere else more often than by chance."""

from __future__ import annotations

import numpy as np
import pytest
from synthetic.causal import causal_dataset
from synthetic.causal_answers import NEEDED, READ, made

from headwise.studies.causal_answers.detectors import Detectors, balanced, weights_of
from headwise.studies.causal_answers.finalize import CONTROL, Ablated
from headwise.studies.causal_answers.measure import ablations
from headwise.studies.causal_answers.spec import CausalAnswersOptions, condition_count


def test_planted_losses_are_found_and_matched_heads_lose_nothing():
    found = made()
    correct, detector = found.sel(measure="correct"), found.sel(measure="detector")
    assert correct["change_high"].values[NEEDED] < 0 and correct["excess_q"].values[NEEDED] < 0.01
    assert detector["change_high"].values[READ] < 0 and detector["excess_q"].values[READ] < 0.01
    assert detector["excess_q"].values[NEEDED] > 0.05 and correct["excess_q"].values[READ] > 0.05
    assert found["role"].values[1, 0] == CONTROL and found["controls"].values[NEEDED] == "L1H0 L0H1"
    assert np.isnan(correct["q"].values[1, 0]) and np.isfinite(correct["p"].values[1, 0])
    assert float(detector["set_excess_q"].sel(head_set="detector")) < 0.01
    assert float(detector["set_excess_q"].sel(head_set="needed")) > 0.05


def test_where_heads_change_nothing_few_changes_are_found():
    """40 nulls of three heads and seven measures: a measure has some q < .05 in at most one of twenty, within chance."""
    hits = np.mean([(made(seed, 4, 4, effect=False)["excess_q"] < 0.05).any(["layer", "head"]) for seed in range(40)])
    assert hits < 0.05 + 3 * np.sqrt(0.05 * 0.95 / (40 * 7))


def test_what_was_not_asked_is_nan():
    found = made(questions=0)
    assert found["n"].values[:2].tolist() == [0, 0]
    assert found["change"].sel(measure="correct").isnull().all() and found["detectable"].isel(measure=0).isnull()


def features(seed=0, answers=200):
    generator = np.random.default_rng(seed)
    wrong, strata = np.arange(answers) % 2 == 0, np.arange(answers) // 10
    values = generator.normal(scale=0.3, size=(answers, 2, 3))
    values[:, 1, 2] += wrong
    return values, wrong, strata


def test_a_detector_without_the_head_that_tells_is_at_chance():
    values, wrong, strata = features()
    chosen = balanced(wrong, strata, 120, 0)
    assert len(chosen) == 120 and wrong[chosen].mean() == 0.5
    assert np.unravel_index(np.nanargmax(weights_of(values, wrong)), (2, 3)) == (1, 2)
    detectors = Detectors(values, wrong, strata, chosen, seed=0)
    activation = values.reshape(len(values), -1)
    own = detectors.scores([(1, 2)], values[chosen], values[chosen], activation[chosen], activation)
    other = detectors.scores([(0, 0)], values[chosen], values[chosen], activation[chosen], activation)

    def apart(score):
        return score[wrong[chosen]].mean() - score[~wrong[chosen]].mean()

    for name in ("detector", "detector_reading", "detector_refitted"):
        assert apart(other[name]) > 1 and abs(apart(own[name])) < 0.3, name
    assert apart(own["probe"]) > 1  # its activations were not changed


def test_no_stratum_is_on_both_sides_of_a_fold():
    values, wrong, strata = features()
    fold_of = Detectors(values, wrong, strata, balanced(wrong, strata, 100, 0), seed=0).fold_of
    assert all(len(set(fold_of[strata == one])) == 1 for one in set(strata))


@pytest.mark.parametrize(("heads", "controls"), [(1, 1), (3, 2)])
def test_heads_are_chosen_with_controls_of_their_layers(heads, controls):
    causal, options = causal_dataset(8, 6), CausalAnswersOptions(heads=heads, controls=controls)
    weight = np.random.default_rng(1).permutation(np.arange(48.0)).reshape(8, 6)
    found = ablations(causal, weight, options)
    assert found[0] == Ablated((), "intact") and len(found) <= condition_count(options)
    assert len({one.heads for one in found}) == len(found)
    for one in found:
        if one.role != CONTROL and one.heads:
            assert len(one.controls) == controls
            for index in one.controls:
                other = found[index].heads
                assert sorted(layer for layer, _ in other) == sorted(layer for layer, _ in one.heads)
                assert not set(other) & set(one.heads)
    if heads == 3:
        assert found[-1].role == CONTROL and {one.role for one in found if len(one.heads) == 3} >= {
            "needed",
            "detector",
        }
