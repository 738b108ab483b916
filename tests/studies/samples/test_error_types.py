"""Types of errors: counted by hand on small cases, and told by a probe where a type is planted."""

import numpy as np
import pytest

from headwise.studies.samples.error_types import TYPES, SampleCounts, clusters, counts_of, type_probes, types_of


def names(c, w, n, r, samples=30):
    counts = SampleCounts(*(np.array([part]) for part in (c, w, n, r)))
    return "".join(name for name, flag in zip(TYPES, types_of(counts, samples)[0], strict=True) if flag)


@pytest.mark.parametrize(
    ("c", "w", "n", "r", "expected"),
    [
        (0, 5, 3, 20, "A"),  # 20 refusals against groups of 5
        (10, 10, 1, 10, "D"),  # refusals are not more than the others
        (30, 0, 0, 0, "B"),
        (15, 15, 1, 0, "BCD"),  # half and half
        (14, 10, 6, 0, "D"),  # 4 apart, and 30 / 6 = 5
        (14, 8, 8, 0, ""),  # 6 apart
        (5, 5, 20, 0, "E"),  # both at 30 / 6, not above it
        (6, 6, 10, 0, "DE"),
        (0, 15, 10, 0, "CE"),
        (9, 2, 9, 0, ""),
    ],
)
def test_the_sheets_thresholds(c, w, n, r, expected):
    assert names(c, w, n, r) == expected


def test_thresholds_do_not_round():
    assert names(5, 0, 0, 0, samples=11) == "" and names(6, 0, 0, 0, samples=11) == "B"
    assert names(0, 0, 3, 0, samples=10) == "" and names(0, 0, 4, 0, samples=10) == "E"


def test_equal_answers_are_one_whatever_their_wording():
    assert clusters(["The Nile", "nile!", "Amazon", "É", "e", "1,000", "1000"]) == [0, 0, 1, 2, 2, 3, 3]


def test_only_wrong_answers_make_wrong_groups():
    labels = np.array([["correct", "correct", "wrong", "wrong", "wrong", "refused"], ["refused"] * 6], dtype=object)
    groups = np.array([[0, 1, 2, 3, 2, 4], [0, 0, 0, 0, 0, 0]])
    counts = counts_of(labels, groups)
    assert [part.tolist() for part in counts] == [[2, 0], [2, 0], [2, 0], [1, 6]]
    assert types_of(counts, 6)[1].tolist() == [True, False, False, False, False]


def test_a_planted_type_is_told_from_the_rest_and_another_is_not():
    random = np.random.default_rng(0)
    types = random.random((150, 3)) < (0.4, 0.5, 0.05)
    activations = random.standard_normal((150, 12)).astype(np.float32)
    activations[:, 3] += 3 * types[:, 0]
    told, untold, rare = type_probes(activations, np.repeat(activations[:, None], 3, axis=1), types, shuffles=20)
    assert told.auroc > 0.9 and told.low > told.null_high
    assert untold.low < 0.5 < untold.high and untold.auroc < told.low
    assert 0.5 < told.null_high < 0.7
    assert np.isnan(rare).all()  # seven questions of a kind are too few


def test_samples_help_to_learn_a_type_that_greedy_answers_show_dimly():
    random = np.random.default_rng(1)
    types = random.random((200, 1)) < 0.5
    greedy = random.standard_normal((200, 60)).astype(np.float32)
    samples = random.standard_normal((200, 10, 60)).astype(np.float32)
    greedy[:, 3] += 1.2 * types[:, 0]
    samples[:, :, 3] += 1.2 * types
    (alone,) = type_probes(greedy, greedy[:, None], types, shuffles=5)
    (helped,) = type_probes(greedy, samples, types, shuffles=5)
    assert helped.auroc > alone.auroc + 0.03
