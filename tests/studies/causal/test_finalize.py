"""From readings to the map: ratios, the correction of attributions, coverage and false discoveries under a null."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from synthetic.causal import FOR_REPEATED, NEEDED, SLOPE, causal_dataset, causal_shard

from headwise.studies.causal.classes import TEXT_CLASSES
from headwise.studies.causal.finalize import MATCHED, _ratio, calibrate, error_left_out, finalize
from headwise.studies.head_sets import head_set_maps
from headwise.studies.matched_heads import matched_heads
from headwise.studies.present import describe


def test_an_effect_is_a_ratio_with_an_interval_over_texts():
    sums, tokens = np.array([2.0, 6.0, 1.0]), np.array([1.0, 3.0, 2.0])
    found = _ratio(sums, tokens)
    assert float(found.value) == pytest.approx(1.5)
    residuals = (sums - 1.5 * tokens) / 2
    assert float(found.half) == pytest.approx(4.30265 * residuals.std(ddof=1) / np.sqrt(3), rel=1e-4)
    only = _ratio(np.zeros(4), np.zeros(4))  # a class without tokens
    assert np.isnan(only.value) and np.isnan(only.p)


def test_exact_effects_stay_and_the_others_are_corrected():
    shard = causal_shard(12, 6)
    found = finalize([shard.isel(example=slice(0, 7)), shard.isel(example=slice(7, None))])
    one = found.sel(ablation="mean", token_class="all")
    assert float(one["slope"]) == pytest.approx(SLOPE, rel=0.05)
    rest = one["checked"].values == ""
    assert np.isnan(float(one["saturation"]))  # effects are proportional to attributions here
    np.testing.assert_allclose(one["effect"].values[rest], (one["slope"] * one["attribution"]).values[rest], rtol=1e-5)
    place = [str(name) for name in shard["place"].values].index("L1H1")
    texts = shard.sel(token_class=list(TEXT_CLASSES))
    exact = texts["exact"].sel(ablation="mean").isel(place=place)
    wanted = float(exact.sum() / texts["tokens"].sum())
    assert float(one["effect"].sel(layer=NEEDED[0], head=NEEDED[1])) == pytest.approx(wanted, rel=1e-5)
    repeated = found.sel(ablation="mean", token_class="repeated")["effect"].values
    assert np.unravel_index(repeated.argmax(), repeated.shape) == FOR_REPEATED
    assert float(found["rank"].sel(layer=1, head=1)) == 1
    assert float(found["excess_low"].sel(layer=1, head=1)) > 0


@pytest.mark.parametrize("bend", [np.inf, 0.1])
def test_the_correction_covers_heads_that_were_not_ablated(bend: float):
    """Exact effects follow the stated model, with and without levelling off: about 95 % of predictions hold the truth."""
    generator = np.random.default_rng(0)
    inside, bent = [], []
    for _ in range(200):
        a = generator.gamma(0.5, 0.02, 90) * generator.choice([1, 1, 1, -1], 90)
        a[::9] *= 1000  # attributions of 10 nats, as in the early layers of real models
        size = a / (1 + np.abs(a) / bend)
        e = 0.7 * size + generator.normal(0, 0.3, 90) * (np.abs(size) + np.median(np.abs(size)))
        fitted = calibrate(a[:40], e[:40])
        half = stats.t.ppf(0.975, fitted.freedom) * fitted.deviation(a[40:])
        inside.append(np.abs(e[40:] - fitted.scale(a[40:]) * a[40:]) <= half)
        bent.append(np.isfinite(fitted.saturation))
    assert 0.92 < np.mean(inside) < 0.98
    assert np.mean(bent) > 0.95 if np.isfinite(bend) else np.mean(bent) < 0.1


def test_one_attribution_beyond_reason_does_not_decide_all_others():
    """Effects level off: one head with an attribution of 3 nats once set all others to 0.03 of theirs."""
    generator = np.random.default_rng(1)
    a = np.concatenate([generator.gamma(0.5, 0.01, 40), [3.0, 5.0, 12.0]])
    e = a / (1 + a / 0.05) * (1 + 0.2 * generator.normal(size=43))
    fitted = calibrate(a, e)
    small = np.array([0.005, 0.01])
    np.testing.assert_allclose(fitted.scale(small) * small, small / (1 + small / 0.05), rtol=0.25)
    assert float(fitted.scale(np.array(11.0)) * 11.0) < 0.1 and error_left_out(a, e) < 0.7


def test_an_attribution_that_points_the_wrong_way_predicts_nothing():
    a = np.array([1.0, 2.0, 3.0, 4.0])
    fitted = calibrate(a, -a)
    assert fitted.slope == 0 and fitted.spread > 0 and fitted.scale(a).max() == 0
    words = describe("causal", with_agreement(0.2))
    assert "read only the heads that were ablated" in words.text()
    assert "read only the heads that were ablated" not in describe("causal", with_agreement(0.9)).text()


def with_agreement(rho: float):
    dataset = causal_dataset(8, 6)
    return dataset.assign(agreement_random=dataset["agreement_random"] * 0 + rho)


def test_heads_without_effect_are_rarely_discovered():
    """Under a complete null some head has q < 0.05 in at most 5 % of maps, up to the error of 40 simulated ones."""
    found = []
    for seed in range(20):
        maps = finalize([causal_shard(8, 6, seed, needed=False, prompts=12)])
        found += [bool((maps["q"].sel(token_class=name, ablation="mean") < 0.05).any()) for name in ("all", "name")]
    assert np.mean(found) <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / len(found))


def test_heads_are_matched_with_those_of_their_layer_that_write_as_much():
    found = matched_heads(
        np.array([[1.0, 1.1, 9.0, 10.0, 100.0, 1.2], [1.0, np.nan, np.nan, np.nan, np.nan, np.nan]]), MATCHED
    )
    assert found[0, 0] == [1, 5, 2, 3] and (1, 0) not in found


def test_the_set_is_what_the_model_needs():
    (sets, _) = head_set_maps({"causal": causal_dataset(12, 6)})
    member = {one.key: one.member for one in sets}
    assert member["causal.all"][NEEDED] and not member["causal.name"][FOR_REPEATED]
    assert member["causal.repeated"][FOR_REPEATED]
