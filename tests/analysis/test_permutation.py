"""Heads in another order stay in their layer, and heads that share keys stay together."""

import numpy as np

from headwise.analysis.permutation import bands, shuffled, shuffled_within

LAYER = np.repeat(np.arange(5), 6)
GROUP = np.arange(30) // 2


def test_every_row_is_an_order():
    rng = np.random.default_rng(0)
    for order in (shuffled(30, 50, rng), shuffled_within(LAYER, GROUP, 50, rng)):
        assert (np.sort(order, axis=1) == np.arange(30)).all()


def test_within_layers_and_groups():
    order = shuffled_within(LAYER, GROUP, 200, np.random.default_rng(0))
    assert (LAYER[order] == LAYER).all()
    groups = GROUP[order].reshape(200, 15, 2)
    assert (groups[..., 0] == groups[..., 1]).all()
    assert len({tuple(row) for row in order[:, :6]}) > 30  # 3! x 2³ = 48 orders of a layer


def test_each_place_is_as_likely():
    order = shuffled_within(LAYER, GROUP, 6000, np.random.default_rng(0))
    counts = np.bincount(order[:, 0], minlength=30)[:6]
    assert counts.sum() == 6000 and abs(counts - 1000).max() < 150


def test_unequal_groups_are_taken_apart():
    layer, group = np.zeros(5, dtype=int), np.array([0, 0, 0, 1, 1])
    order = shuffled_within(layer, group, 3000, np.random.default_rng(0))
    assert (np.bincount(order[:, 0]) > 400).all()


def test_thin_layers_are_taken_together():
    assert bands(np.repeat(np.arange(4), 2)).tolist() == [0] * 4 + [1] * 4
    assert bands(np.repeat(np.arange(3), 9)).tolist() == sorted([0, 1, 2] * 9)
    assert bands(np.array([0, 1])).tolist() == [0, 0]
