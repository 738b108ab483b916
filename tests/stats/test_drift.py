"""A log against its reference: the tests are scipy's, the windows find where it began; levels are in `test_calibration`."""

import math

import numpy as np
import pytest
from scipy.stats import fisher_exact, ks_2samp

from headwise.core.errors import DataError
from headwise.stats import auroc, benjamini_hochberg, drift_test


def log(random, n, shift=0.0):
    score = random.normal(shift, 1, n)
    return {"score": score, "alarm": score > 1.3, "length": random.poisson(30, n)}


def test_the_numbers_are_those_of_the_tests():
    random = np.random.default_rng(0)
    before, after = log(random, 150), log(random, 240, 0.4)
    found = drift_test(before, after, follow="score", shares=("alarm",))
    score, alarm, length = found.shifts
    assert score.p == ks_2samp(before["score"], after["score"]).pvalue
    assert score.effect == auroc(np.r_[before["score"], after["score"]], np.arange(390) >= 150).value
    assert alarm.p == fisher_exact([[sum(x["alarm"]), sum(~x["alarm"])] for x in (before, after)]).pvalue
    assert alarm.effect == pytest.approx(after["alarm"].mean() - before["alarm"].mean())
    assert alarm.low < alarm.effect < alarm.high and alarm.is_share and not length.is_share
    windows = [ks_2samp(before["score"], part).pvalue for part in np.array_split(after["score"], 4)]
    assert found.p == pytest.approx(np.minimum(np.multiply(windows, 4), 1))
    q = benjamini_hochberg([score.p, alarm.p, length.p, found.p.min()])
    assert [score.q, alarm.q, length.q, found.windows_q] == pytest.approx(q)


@pytest.mark.parametrize(("at", "window"), [(0, 0), (400, 4), (900, 9)])
def test_it_says_where_a_change_began(at, window):
    random = np.random.default_rng(at)
    after = random.normal(size=1000)
    after[at:] += 1.5
    found = drift_test({"score": random.normal(size=300)}, {"score": after}, follow="score")
    assert found.drifted and found.first == window and found.start[window] == at


def test_a_change_in_what_is_not_followed_is_drift_without_a_window():
    random = np.random.default_rng(3)
    before, after = log(random, 300), log(random, 300)
    found = drift_test(before, after | {"length": after["length"] + 20}, follow="score")
    assert found.drifted and found.first is None
    assert [one.name for one in found.shifts if one.q < 0.05] == ["length"]


def test_unknown_values_are_left_out():
    random = np.random.default_rng(4)
    before, after = log(random, 60), log(random, 200)
    holes = np.where(np.arange(200) % 2, after["score"], math.nan)
    rare = np.where(np.arange(200) < 190, math.nan, 1.0)
    found = drift_test(before, after | {"score": holes, "alarm": rare}, follow="score", shares=("alarm",))
    score, alarm, _ = found.shifts
    assert score.n_new == 100 and score.p == ks_2samp(before["score"], holes[1::2]).pvalue
    assert alarm.n_new == 10 and math.isnan(alarm.p) and math.isnan(alarm.q)  # too few to test
    assert list(found.start) == [1, 101] and list(found.stop) == [100, 200]


def test_what_one_side_lacks_is_left_out():
    random = np.random.default_rng(5)
    found = drift_test({"score": random.random(50)}, log(random, 50), follow="score")
    assert [one.name for one in found.shifts] == ["score"]


def test_too_little_is_refused():
    with pytest.raises(
        DataError, match="30 answers in the reference and 10 new ones, and drift needs at least 20 of each"
    ):
        drift_test({"score": np.arange(30)}, {"score": np.arange(10)}, follow="score")
    with pytest.raises(DataError, match="no 'score' to follow"):
        drift_test({"length": np.arange(30)}, {"score": np.arange(30)}, follow="score")
    with pytest.raises(DataError, match="one value per answer"):
        drift_test({"score": np.zeros((30, 2))}, {"score": np.arange(30)}, follow="score")
