import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwise.core.errors import DataError
from headwise.stats import mann_whitney_maps, match_lengths


@given(st.integers(0, 10_000), st.integers(2, 80), st.integers(0, 3), st.integers(1, 30))
@settings(max_examples=60, deadline=None)
def test_pairs_are_pairs(seed, answers, caliper, longest):
    random = np.random.default_rng(seed)
    labels = random.random(answers) < 0.4
    labels[:2] = True, False
    lengths = random.integers(1, longest + 1, answers)
    found = match_lengths(lengths, labels, caliper=caliper)
    assert labels[found.wrong].all()
    assert not labels[found.right].any()
    assert (np.abs(lengths[found.wrong] - lengths[found.right]) <= caliper).all()
    assert len(set(found.rows)) == len(found.rows) == 2 * found.pairs
    assert found.pairs + found.left_out_wrong == labels.sum()
    assert found.pairs + found.left_out_right == (~labels).sum()
    # greedy but maximal: no pair is left on the table
    unused = np.setdiff1d(np.arange(answers), found.rows)
    spare_wrong, spare_right = lengths[unused[labels[unused]]], lengths[unused[~labels[unused]]]
    assert not (np.abs(spare_wrong[:, None] - spare_right) <= caliper).any()


def test_exact_matching_finds_all_there_are():
    labels = np.array([True, True, True, False, False, False, False])
    found = match_lengths([3, 3, 9, 3, 5, 3, 3], labels)
    assert found.pairs == 2
    assert (found.left_out_wrong, found.left_out_right) == (1, 2)
    assert found.length_auroc == 0.5


def test_exact_before_near():
    """The wrong answer of 5 gets the right one of 5, though the wrong one of 4 could have had it."""
    labels = np.array([True, True, False])
    assert match_lengths([4, 5, 5], labels, caliper=1).wrong.tolist() == [1]


def test_a_head_that_only_sees_length_is_unmasked(planted):
    random = np.random.default_rng(0)
    labels = random.random(600) < 0.5
    lengths = random.poisson(np.where(labels, 10, 7))
    values = lengths[:, None, None] + random.standard_normal((600, 2, 2))
    values[:, 1, 1] += 2 * labels  # one head sees the error too
    matched = match_lengths(lengths, labels)
    assert matched.length_auroc_before > 0.7
    assert matched.length_auroc == 0.5
    before, after = mann_whitney_maps(values, labels), mann_whitney_maps(values[matched.rows], labels[matched.rows])
    assert (before.q < 0.05).all()
    assert np.argwhere(after.q.values < 0.05).tolist() == [[1, 1]]


def test_deterministic_and_label_blind():
    random = np.random.default_rng(1)
    labels, lengths = random.random(100) < 0.5, random.integers(1, 10, 100)
    first, second = match_lengths(lengths, labels), match_lengths(lengths, labels)
    assert (first.rows == second.rows).all()
    swapped = match_lengths(lengths, ~labels)
    assert (swapped.rows == first.rows).all()


def test_nothing_to_pair_and_bad_lengths():
    labels = np.array([True, False])
    found = match_lengths([1, 5], labels)
    assert found.pairs == 0
    assert len(found.rows) == 0
    assert np.isnan(found.length_auroc)
    with pytest.raises(DataError, match="Lengths must be numbers"):
        match_lengths([1, np.nan], labels)
