"""The tree of correlations, against scipy's average linkage and by hand."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.cluster.hierarchy import average
from scipy.spatial.distance import squareform

from headwise.figures.matrices import short_number, tree_of, written_matrix
from headwise.figures.panels import Axis


@pytest.mark.parametrize("size", [2, 3, 8, 20])
def test_it_joins_as_scipy_does(size: int) -> None:
    values = np.corrcoef(np.random.default_rng(size).normal(size=(size, 40)))
    tree = tree_of(values)
    reference = average(squareform(1 - values, checks=False))
    np.testing.assert_allclose([join.distance for join in tree.joins], reference[:, 2], rtol=1e-12)
    assert sorted(tree.order) == list(range(size))


def test_brackets_start_where_their_branches_met() -> None:
    tree = tree_of(np.array([[1, 0.9, 0.1, 0.2], [0.9, 1, 0.2, 0.1], [0.1, 0.2, 1, 0.7], [0.2, 0.1, 0.7, 1]]))
    assert tree.order == (0, 1, 2, 3)
    first, second, last = tree.joins
    assert (first.upper, first.lower, first.distance) == (0, 1, pytest.approx(0.1))
    assert (second.upper, second.lower, second.distance) == (2, 3, pytest.approx(0.3))
    assert (last.upper, last.lower) == (0.5, 2.5)
    assert (last.upper_from, last.lower_from) == (first.distance, second.distance)
    assert last.distance == pytest.approx(0.85)


def test_what_is_not_known_counts_as_nought() -> None:
    assert tree_of(np.array([[1, np.nan], [np.nan, 1]])).joins[0].distance == 1
    assert tree_of(np.ones((1, 1))).joins == () and tree_of(np.ones((0, 0))).order == ()


def test_a_matrix_with_its_numbers() -> None:
    values, axis = np.array([[0.5, np.nan], [-0.25, 1.0]]), Axis("", ("a", "b"))
    panel = written_matrix("m", "M", values, axis, axis, "s", framed=np.ones((2, 2), dtype=bool))
    assert {(mark.row, mark.column): mark.text for mark in panel.marks} == {(0, 0): ".50", (1, 0): "−.25", (1, 1): "1"}
    assert len(panel.frames) == 3
    assert short_number(12.3) == "12" and short_number(-0.999) == "−1"
