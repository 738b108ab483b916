"""Ranks among heads, against counting."""

import numpy as np
import pandas as pd

from headwise.analysis import percentiles, with_percentiles
from headwise.stats.correlation import rank_stats


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
