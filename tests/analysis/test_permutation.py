"""Permuted heads stay in their layer, and heads that share keys stay together."""

import numpy as np

from headwise.analysis.permutation import HeadStrata, layer_strata, permute_all, permute_within

LAYER = np.repeat(np.arange(5), 6)
GROUP = np.arange(30) // 2
STRATA = HeadStrata(LAYER, GROUP)


def test_every_row_is_a_permutation():
    rng = np.random.default_rng(0)
    for order in (permute_all(30, 50, rng), permute_within(STRATA, 50, rng)):
        assert (np.sort(order, axis=1) == np.arange(30)).all()


def test_within_layers_and_groups():
    order = permute_within(STRATA, 200, np.random.default_rng(0))
    assert (LAYER[order] == LAYER).all()
    groups = GROUP[order].reshape(200, 15, 2)
    assert (groups[..., 0] == groups[..., 1]).all()
    assert len({tuple(row) for row in order[:, :6]}) > 30  # 3! x 2³ = 48 orders of a layer


def test_every_position_is_equally_likely():
    order = permute_within(STRATA, 6000, np.random.default_rng(0))
    counts = np.bincount(order[:, 0], minlength=30)[:6]
    assert counts.sum() == 6000 and abs(counts - 1000).max() < 150


def test_unequal_groups_are_split():
    layer, group = np.zeros(5, dtype=int), np.array([0, 0, 0, 1, 1])
    order = permute_within(HeadStrata(layer, group), 3000, np.random.default_rng(0))
    assert (np.bincount(order[:, 0]) > 400).all()


def test_thin_layers_are_joined():
    assert layer_strata(np.repeat(np.arange(4), 2)).tolist() == [0] * 4 + [1] * 4
    assert layer_strata(np.repeat(np.arange(3), 9)).tolist() == sorted([0, 1, 2] * 9)
    assert layer_strata(np.array([0, 1])).tolist() == [0, 0]
