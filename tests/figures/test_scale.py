from __future__ import annotations

import numpy as np
import pytest

from headwise.core.errors import DataError
from headwise.figures import Scale, scale_around, scale_over
from headwise.figures.ticks import round_up, thinned, tick_text, ticks_between


@pytest.mark.parametrize("high", [0.1, 0.12, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0, 20.0, 300.0])
def test_ticks_reach_both_ends_and_are_few(high: float) -> None:
    ticks = ticks_between(0, high)
    assert ticks[0] == 0
    assert ticks[-1] == pytest.approx(high)
    assert 3 <= len(ticks) <= 4
    assert np.allclose(np.diff(ticks), ticks[1])


def test_round_up_never_cuts() -> None:
    values = np.random.default_rng(0).lognormal(0, 4, 500)
    assert all(round_up(value) >= value * (1 - 1e-6) for value in values)
    assert all(round_up(value) <= value * 1.51 for value in values)


def test_clipped_scale_says_so_with_a_plus() -> None:
    assert [text for _, text in Scale("Head importance", 0, 0.004, over=True).ticks()] == ["0", "0.002", "0.004+"]
    assert tick_text(-0.3, under=True) == "≤ −0.3"


@pytest.mark.parametrize("size", [1, 2, 6, 9, 12, 30, 32, 64, 80, 126])
def test_thinned_labels_fit_and_start_at_the_first(size: int) -> None:
    places = thinned([str(place) for place in range(size)], 8)
    assert places[0] == 0
    assert len(places) <= 9
    assert list(places) == sorted(set(places))
    assert size - 1 - places[-1] <= 0.6 * (places[1] if len(places) > 1 else 1)


def test_a_share_ends_at_one_and_a_norm_is_clipped_at_its_bulk() -> None:
    assert scale_over(np.array([0.2, 0.97]), "share", ceiling=1.0).high == 1.0
    heavy = np.append(np.full(200, 0.05), 4.0)
    clipped = scale_over(heavy, "ratio", clip=0.99)
    assert clipped.over
    assert clipped.high == 0.05
    assert not scale_over(heavy, "ratio").over


def test_diverging_scale_is_even_about_its_centre() -> None:
    scale = scale_around(np.array([-0.1, 0.37, np.nan]), "difference")
    assert (scale.low, scale.high, scale.kind) == (-0.4, 0.4, "diverging")


def test_nothing_measured_still_has_a_scale() -> None:
    nothing = np.full((2, 2), np.nan)
    assert scale_over(nothing, "share").high == 1.0
    assert scale_around(nothing, "difference").low == -1.0


def test_errors_say_what_to_do() -> None:
    with pytest.raises(DataError, match=r"no colour map of Headwise. Did you mean 'viridis'"):
        Scale("x", 0, 1, "virids")
    with pytest.raises(DataError, match=r"runs from 1 to 1; both ends must be finite, and the low end below"):
        Scale("x", 1, 1)


def test_a_logarithmic_scale_goes_by_factors() -> None:
    scale = Scale("p-value", 1e-6, 1.0, under=True, log=True)
    values = np.array([1e-6, 1e-3, 1.0, np.nan])
    np.testing.assert_allclose(scale.share(values), [0, 0.5, 1, np.nan])
    assert scale.share(np.array(0.0)) < 0
    assert [text for _, text in scale.ticks()] == ["≤ 10⁻⁶", "0.0001", "0.01", "1"]
    np.testing.assert_allclose(Scale("share", 0, 2).share(values), (values - 0) / 2)


def test_a_logarithmic_scale_starts_above_nought() -> None:
    with pytest.raises(DataError, match="must start above 0"):
        Scale("p-value", 0.0, 1.0, log=True)


def test_ticks_are_written_alike_where_that_is_asked_for() -> None:
    scale = Scale("importance", 0.0, 0.004, over=True, decimals=4)
    assert [text for _, text in scale.ticks()] == ["0.0000", "0.0020", "0.0040+"]
    assert [text for _, text in Scale("signed", -0.5, 0.5, "RdBu_r", decimals=1).ticks()] == ["−0.5", "0.0", "0.5"]
