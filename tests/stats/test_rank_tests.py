import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import mannwhitneyu

from headwise.core.errors import DataError
from headwise.stats import benjamini_hochberg, combine_ranks, mann_whitney_maps


def one_by_one(table, labels):
    p = []
    for column in table.T:
        there = ~np.isnan(column)
        p.append(mannwhitneyu(column[there & labels], column[there & ~labels]).pvalue)
    return np.array(p)


@given(st.integers(0, 10_000), st.integers(5, 30), st.integers(5, 30), st.sampled_from([0, 1, 2]))
@settings(max_examples=60, deadline=None)
def test_p_is_scipys_one_by_one(seed, n_wrong, n_right, decimals):
    """Without ties, with some, with many; exact for small classes, where columns with and without ties are mixed."""
    random = np.random.default_rng(seed)
    labels = random.permutation(np.arange(n_wrong + n_right) < n_wrong)
    table = random.standard_normal((len(labels), 6))
    table[:, :3] = np.round(table[:, :3], decimals)
    found = mann_whitney_maps(table, labels, min_per_class=5)
    assert (found.p.values == one_by_one(table, labels)).all()


def test_p_is_scipys_with_nan_and_float32():
    random = np.random.default_rng(0)
    labels = random.random(80) < 0.5
    table = random.standard_normal((80, 40)).astype(np.float32)
    table[random.random(table.shape) < 0.1] = np.nan  # every column misses other rows
    table[:30, 20:] = np.nan  # and twenty miss thirty more
    found = mann_whitney_maps(table, labels)
    assert (found.p.values == one_by_one(table.astype(np.float64), labels)).all()
    assert (found.n_wrong.values == (~np.isnan(table[labels])).sum(0)).all()


def test_too_few_answers_in_a_cell_is_nan_not_one():
    labels = np.arange(60) % 2 == 0
    table = np.random.default_rng(0).standard_normal((60, 3))
    table[:, 1] = np.nan
    table[np.flatnonzero(labels)[4:], 2] = np.nan  # four wrong answers left
    found = mann_whitney_maps(table, labels)
    assert np.isfinite(found.p.values[0])
    for name in ("p", "q", "auroc", "low", "high", "rank_biserial"):
        assert np.isnan(found[name].values[1:]).all(), name
    assert found.n_wrong.values.tolist() == [30, 0, 4]
    assert found.q.values[0] == found.p.values[0]  # one cell was tested, so there is nothing to correct for


def test_a_constant_is_tested_and_equal():
    found = mann_whitney_maps(np.ones((60, 1)), np.arange(60) % 2 == 0)
    assert (found.p.item(), found.auroc.item(), found.rank_biserial.item()) == (1.0, 0.5, 0.0)


def found_heads(q, below=0.05):
    return {tuple(map(int, cell)) for cell in np.argwhere(q.values < below)}


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_exactly_the_planted_heads_are_found(planted, seed):
    data = planted(seed)
    found = mann_whitney_maps(data.values, data.labels)
    assert found_heads(found.q) == set(planted.HEADS)
    effect = found.auroc.values[tuple(np.transpose(planted.HEADS))]
    assert effect == pytest.approx(0.76, abs=0.1)  # a shift of one standard deviation is an AUROC of .760
    assert found.p.dims == ("layer", "head")
    assert found.attrs == {"n_wrong": 80, "n_right": 120}


def test_over_many_draws_one_in_twenty_found_heads_is_false(planted):
    """That is what q < 0.05 promises; and no planted head is missed."""
    false = []
    for seed in range(30):
        heads = found_heads(mann_whitney_maps(planted(seed).values, planted(seed).labels).q)
        assert set(planted.HEADS) <= heads
        false.append(len(heads - set(planted.HEADS)) / len(heads))
    assert 0.01 < np.mean(false) < 0.07


def test_ranks_are_tested_and_combined(planted):
    data = planted(0, ranks=10)
    found = mann_whitney_maps(data.values, data.labels)
    assert found.p.dims == ("layer", "head", "rank")
    for method in ("cauchy", "min-p"):
        one = combine_ranks(found.p, method)
        assert one.dims == ("layer", "head")
        assert found_heads(one, 1e-5) == set(planted.HEADS), method


def test_q_is_made_apart_for_each_map(planted):
    strong, weak = planted(0), planted(1, shift=0.0)
    both = xr.DataArray(
        np.stack([strong.values, weak.values], axis=1), dims=("example", "feature", "layer", "head"),
        coords={"feature": ["laplacian", "noise"]},
    )  # fmt: skip
    together = mann_whitney_maps(both, strong.labels)
    alone = mann_whitney_maps(strong.values, strong.labels)
    assert (together.q.sel(feature="laplacian").values == alone.q.values).all()
    one_family = mann_whitney_maps(both, strong.labels, maps=())
    assert (one_family.q.values == benjamini_hochberg(together.p.values)).all()


def test_null_p_values_are_even(planted):
    found = mann_whitney_maps(planted(5, shift=0.0).values, planted(5).labels)
    assert np.mean(found.p.values < 0.05) < 0.12
    assert not (found.q.values < 0.05).any()


def test_order_of_dims_does_not_matter(planted):
    data = planted(0)
    array = xr.DataArray(data.values, dims=("example", "layer", "head")).transpose("layer", "head", "example")
    assert (
        mann_whitney_maps(array, data.labels).p.values == mann_whitney_maps(data.values, data.labels).p.values
    ).all()


def test_names_of_dims_are_checked():
    labels = np.arange(60) % 2 == 0
    with pytest.raises(DataError, match=r"'heads' is not the name of a dim. Did you mean 'head'"):
        mann_whitney_maps(np.zeros((60, 2)), labels, dims=("example", "heads"))
    with pytest.raises(DataError, match="none is 'example'"):
        mann_whitney_maps(np.zeros((60, 2)), labels, dims=("layer", "head"))
    with pytest.raises(DataError, match="5 dims needs their names"):
        mann_whitney_maps(np.zeros((60, 1, 1, 1, 1)), labels)
    with pytest.raises(DataError, match="There are 50 answers but 60 labels"):
        mann_whitney_maps(np.zeros((50, 2)), labels)
