"""Comparisons within strata: by hand, against scipy, and on simulated answers whose truth is known."""

import numpy as np
import pytest
import xarray as xr
from scipy.stats import mannwhitneyu, norm

from headwise.core.errors import DataError
from headwise.stats import auroc, auroc_within, delong_test, mann_whitney_maps, permutation_null, van_elteren_maps
from headwise.stats.permutation import permuted_labels


def by_hand(values, wrong, strata):
    """Van Elteren's z and the AUROC within strata, with loops over all pairs; permutation moments by enumeration of ranks."""
    statistic = variance = beaten = pairs = 0.0
    for stratum in np.unique(strata):
        here = (strata == stratum) & ~np.isnan(values)
        x, w = values[here], wrong[here]
        n, n_wrong = len(x), w.sum()
        if n_wrong in (0, n):
            continue
        ranks = np.array([(x < one).sum() + ((x == one).sum() + 1) / 2 for one in x])
        statistic += (ranks[w].sum() - n_wrong * (n + 1) / 2) / (n + 1)
        variance += n_wrong * (n - n_wrong) / n * ranks.var(ddof=1) / (n + 1) ** 2
        for one in x[w]:
            beaten += (x[~w] < one).sum() + (x[~w] == one).sum() / 2
            pairs += (~w).sum()
    return statistic / np.sqrt(variance), beaten / pairs


def confounded(random, answers=300, strata=20, heads=40, effect=0.0):
    """Errors and values both follow the stratum; beyond that, values follow the error by ``effect``."""
    stratum = random.integers(0, strata, answers)
    hard = random.standard_normal(strata)
    wrong = random.random(answers) < 1 / (1 + np.exp(-1.5 * hard[stratum]))
    values = random.standard_normal((answers, heads)) + hard[stratum][:, None] + effect * wrong[:, None]
    return values, wrong, stratum


def test_two_small_strata_by_hand():
    """Stratum 0: wrong 3, right 1 2: rank 3 of 3, so (3 - 2) / 4, variance 1 x 2 / 3 x 1 / 16. Stratum 1 the mirror image
    with wrong 7 8, right 9: ranks 1 + 2 of 3. Stratum 2 has one class, and drops out."""
    values = np.array([3.0, 1.0, 2.0, 7.0, 8.0, 9.0, 100.0])
    wrong = np.array([True, False, False, True, True, False, True])
    strata = np.array([0, 0, 0, 1, 1, 1, 2])
    two = np.stack([values, np.where(strata == 1, -values, values)], axis=1)
    found = van_elteren_maps(two, wrong, strata, min_per_class=1, min_per_cell=1)
    z = (1 / 4 + 1 / 4) / np.sqrt(2 * (2 / 3) / 16)
    assert found.p.values == pytest.approx([1.0, 2 * norm.sf(z)])
    assert found.auroc.values == pytest.approx([0.5, 1.0])
    assert found.attrs["n_strata"] == 2 and found.attrs["n_used"] == 6
    assert found.n_wrong.values.tolist() == [3, 3] and found.n_right.values.tolist() == [3, 3]


def test_one_stratum_is_the_mann_whitney_test_without_correction_for_continuity():
    random = np.random.default_rng(0)
    wrong = random.random(120) < 0.4
    values = np.round(random.standard_normal((120, 30)) + 0.3 * wrong[:, None], 1)
    found, plain = van_elteren_maps(values, wrong, np.zeros(120)), mann_whitney_maps(values, wrong)
    expected = mannwhitneyu(values[wrong], values[~wrong], use_continuity=False, method="asymptotic").pvalue
    assert found.p.values == pytest.approx(expected)
    for name in ("auroc", "low", "high"):
        assert found[name].values == pytest.approx(plain[name].values)


def test_ties_and_missing_values_against_loops_over_pairs():
    random = np.random.default_rng(1)
    strata, wrong = random.integers(0, 15, 160), random.random(160) < 0.5
    values = np.round(random.standard_normal((160, 25)), 0)
    values[random.random(values.shape) < 0.1] = np.nan
    found = van_elteren_maps(values, wrong, strata)
    for cell in range(25):
        z, area = by_hand(values[:, cell], wrong, strata)
        assert found.p.values[cell] == pytest.approx(2 * norm.sf(abs(z)))
        assert found.auroc.values[cell] == pytest.approx(area)
    assert (found.low < found.auroc).all() and (found.auroc < found.high).all()


def test_nothing_to_compare_is_not_tested_and_equal_values_are_no_difference():
    wrong = np.arange(60) % 2 == 0
    values = np.stack([np.ones(60), np.where(np.arange(60) < 57, np.nan, 1.0)], axis=1)
    found = van_elteren_maps(values, wrong, np.arange(60) // 6)
    assert found.p.values[0] == 1 and found.auroc.values[0] == 0.5 and np.isnan(found.p.values[1])
    alone = van_elteren_maps(values, wrong, wrong)  # every stratum has one class
    assert alone.p.isnull().all() and alone.auroc.isnull().all() and alone.attrs["n_used"] == 0
    assert np.isnan(auroc_within(np.arange(60), wrong, wrong).value)


def test_level_is_held_where_the_strata_explain_everything_and_the_plain_test_fails():
    random = np.random.default_rng(2)
    plain, within = [], []
    for _ in range(60):
        values, wrong, strata = confounded(random)
        plain.append(np.mean(mann_whitney_maps(values, wrong).p.values < 0.05))
        within.append(np.mean(van_elteren_maps(values, wrong, strata).p.values < 0.05))
    assert np.mean(plain) > 0.9
    # 2,400 tests, 40 to a draw and so not independent: the standard error is that of the 60 means
    error = np.std(within) / np.sqrt(60)
    assert abs(np.mean(within) - 0.05) < 4 * error and np.mean(within) == pytest.approx(0.05, abs=0.015)


def test_a_real_difference_is_found_and_its_size_is_that_within_strata():
    values, wrong, strata = confounded(np.random.default_rng(3), answers=600, heads=200, effect=0.8)
    found = van_elteren_maps(values, wrong, strata)
    truth = norm.cdf(0.8 / np.sqrt(2))
    assert (found.q.values < 0.05).mean() > 0.95
    assert found.auroc.values.mean() == pytest.approx(truth, abs=0.015)
    covered = ((found.low <= truth) & (truth <= found.high)).values.mean()
    assert covered > 0.85  # heads share their answers, so this is few draws


def test_interval_covers_the_truth_in_many_small_strata():
    """60 strata of 2 to 14 answers, often with a single wrong or right one."""
    random = np.random.default_rng(4)
    strata = np.repeat(np.arange(60), random.integers(2, 15, 60))
    share, hits = random.uniform(0.3, 0.85, 60), []
    for _ in range(20):
        wrong = random.random(len(strata)) < share[strata]
        values = random.standard_normal((len(strata), 20)) + wrong[:, None] * 0.7 + 3 * strata[:, None]
        found = auroc_within(values, wrong, strata)
        truth = norm.cdf(0.7 / np.sqrt(2))
        hits.append((found.low <= truth) & (truth <= found.high))
    assert 0.92 < np.mean(hits) < 0.98  # 400 intervals


def test_two_scores_are_compared_on_the_same_pairs():
    random = np.random.default_rng(5)
    strata, wrong = random.integers(0, 30, 400), random.random(400) < 0.5
    topic = random.standard_normal(30)[strata]
    good, bad = wrong + 0.8 * random.standard_normal(400) + 5 * topic, random.standard_normal(400) + 5 * topic
    first, second = auroc_within(good, wrong, strata), auroc_within(bad, wrong, strata)
    assert delong_test(first, second).p < 1e-6 and delong_test(first, first).p == 1
    assert delong_test(first, second).value == pytest.approx(float(first.value - second.value))
    wider = auroc_within(good, wrong, strata, inflation=2.25)
    assert wider.value == first.value and wider.low < first.low and wider.high > first.high
    single = auroc_within(good, wrong, np.zeros(400))
    assert single.value == auroc(good, wrong).value and single.low == pytest.approx(auroc(good, wrong).low)


def test_null_within_strata_counts_cells_by_the_stratified_test():
    random = np.random.default_rng(6)
    values, wrong, strata = confounded(random, heads=60, effect=0.5)
    values[random.random(values.shape) < 0.03] = np.nan
    p = van_elteren_maps(values, wrong, strata).p.values
    found = permutation_null(values, wrong, shuffles=200, within=strata)
    assert found.observed.item() == pytest.approx((p < 0.05).mean())
    assert found.p.item() == pytest.approx(1 / 201)
    shuffled = permuted_labels(wrong, strata, sets=30, seed=1)
    shares = [np.mean(van_elteren_maps(values, labels, strata).p.values < 0.05) for labels in shuffled]
    assert found.null_mean.item() == pytest.approx(np.mean(shares), abs=0.03)


def test_null_within_strata_finds_nothing_where_the_strata_explain_everything():
    """Errors and values follow the stratum: at large nearly all heads differ, within strata no more than by chance."""
    random, small = np.random.default_rng(7), []
    for seed in range(20):
        values, wrong, strata = confounded(random)
        small.append(permutation_null(values, wrong, shuffles=200, within=strata, seed=seed).p.item() < 0.05)
    assert permutation_null(values, wrong, shuffles=200).p.item() < 0.01
    assert sum(small) <= 4  # of 20 at a level of .05; five or more in .3 % of cases


def test_maps_have_their_own_q_values_and_strata_may_be_texts():
    random = np.random.default_rng(8)
    values, wrong, strata = confounded(random, heads=30, effect=0.7)
    both = xr.DataArray(
        np.stack([values, random.standard_normal(values.shape)], axis=1), dims=("example", "feature", "head")
    )
    found = van_elteren_maps(both, wrong, [f"topic {one}" for one in strata], maps=("feature",))
    alone = van_elteren_maps(both.isel(feature=0), wrong, strata, maps=())
    assert found.q.isel(feature=0).values == pytest.approx(alone.q.values)
    assert (found.q.isel(feature=1) > 0.05).all()
    with pytest.raises(DataError, match="one group per answer"):
        van_elteren_maps(both, wrong, strata[:-1])
