"""Ranks among heads, against counting."""

from itertools import product

import numpy as np
import pandas as pd
import pytest
from scipy.stats import rankdata

from headwise.analysis import percentiles, with_percentiles
from headwise.stats.ranks import placements, rank_stats, ranks


def test_against_counting_with_ties_and_gaps():
    rng = np.random.default_rng(0)
    values = rng.integers(0, 6, (40, 3)).astype(float)
    values[rng.random(values.shape) < 0.2] = np.nan
    percentile, rank, of = rank_stats(values)
    for row in range(40):
        for column in range(3):
            one, others = values[row, column], np.delete(values[:, column], row)
            others = others[np.isfinite(others)]
            assert of[column] == np.isfinite(values[:, column]).sum()
            if np.isnan(one):
                assert np.isnan(percentile[row, column]) and rank[row, column] == 0
                continue
            expected = 100 * ((others < one).sum() + 0.5 * (others == one).sum()) / len(others)
            np.testing.assert_allclose(percentile[row, column], expected)
            assert rank[row, column] == 1 + (others > one).sum()


def test_one_head_alone_is_in_the_middle():
    assert rank_stats(np.array([[3.0]]))[0].item() == 50


def test_text_and_places_are_kept():
    frame = pd.DataFrame(
        {"layer": [0, 1], "head": [0, 0], "a.x": [2.0, 1.0], "a.best": ["u", "v"]}, index=["L0H0", "L1H0"]
    )
    assert list(percentiles(frame).columns) == ["a.x"]
    shown = with_percentiles(frame)
    assert (
        shown["a.x"].tolist() == [100, 0]
        and shown["a.best"].tolist() == ["u", "v"]
        and shown["layer"].tolist() == [0, 1]
    )


@pytest.mark.parametrize("shape", [(40, 3), (7,), (1, 3), (0, 4), (4, 0), (5, 3, 4)])
@pytest.mark.parametrize("decimals", [0, 8])  # with ties, and without
def test_ranks_are_scipys(shape, decimals):
    rng = np.random.default_rng(0)
    values = np.round(rng.normal(size=shape), decimals)
    holed = np.where(rng.random(shape) < 0.2, np.nan, values)
    for axis, (ours, theirs) in product(range(len(shape)), {"mean": "average", "smallest": "min"}.items()):
        for table, omit in ((values, False), (holed, False), (holed, True)):
            if table.size:
                expected = rankdata(table, method=theirs, axis=axis, nan_policy="omit" if omit else "propagate")
                np.testing.assert_array_equal(ranks(table, axis, ties=ours, omit_nan=omit), expected)
            else:
                assert ranks(table, axis, ties=ours, omit_nan=omit).shape == shape


@pytest.mark.parametrize("values", [2, 9, 10_000])  # many ties, some, hardly any
def test_placements_are_the_share_of_the_other_class_that_is_ordered_correctly(values):
    rng = np.random.default_rng(values)
    table, labels = rng.integers(0, values, (50, 3, 2)).astype(float), rng.random(50) < 0.4
    found = placements(table, labels)
    for column in product(range(3), range(2)):
        own = table[:, *column]
        for row in range(50):
            others = own[labels != labels[row]]
            below = ((others < own[row]) + 0.5 * (others == own[row])).mean()
            assert found.share[row, *column] == pytest.approx(below if labels[row] else 1 - below)
        counts = np.unique(own, return_counts=True)[1]
        assert found.ties[column] == (counts.astype(float) ** 3 - counts).sum()
