"""The most certain findings: their rule on planted numbers, and how often it speaks where there is nothing."""

import math

import numpy as np
import pytest
from scipy import stats
from synthetic.atlas import synthetic_atlas
from synthetic.detection import detection_dataset
from synthetic.given import scores
from synthetic.probing import probing_dataset
from synthetic.profile import profile_dataset
from synthetic.spectral import spectral_dataset
from synthetic.streaming import streaming_dataset

from headwise.analysis.certainty import ALPHA, certainty_of, log_tail

SHAPE = (6, 5)


def test_the_tail_of_the_normal():
    for z in (0.0, 1.0, 1.96, 5.0, 24.9, 25.1, 60.0):
        assert log_tail(z) == pytest.approx(math.log(2) + stats.norm.logsf(z), rel=2e-3, abs=1e-12)


def test_the_head_farthest_above_its_baseline_by_its_interval_is_named():
    dataset = profile_dataset(*SHAPE)
    chosen = ["induction", "previous", "sink", "entropy"]  # the head table shows these first
    one = dataset.sel(statistic=chosen)
    z = ((one["value"] - one["uniform"]) / ((one["high"] - one["low"]) / (2 * stats.norm.ppf(0.975)))).values
    z = np.where(np.isfinite(z), z, -np.inf)
    statistic, layer, head = np.unravel_index(int(z.argmax()), z.shape)
    (finding,) = certainty_of({"profile": dataset}).most_certain
    assert finding.head == f"L{layer}H{head}" and str(one["label"].values[statistic]) in finding.text
    count = int(np.isfinite(one["value"].where(one["uniform"].notnull())).sum())
    assert finding.log_p == pytest.approx(min(0.0, log_tail(z.max()) + math.log(count)), rel=1e-3)


def test_answers_are_compared_among_similar_questions():
    dataset = spectral_dataset(*SHAPE, examples=80)
    (found,) = (
        one
        for one in [*certainty_of({"spectral": dataset}).most_certain, *certainty_of({"spectral": dataset}).not_shown]
    )
    shown = dataset["q_within"].sel(part="whole", feature="laplacian")
    assert math.exp(found.log_p) == pytest.approx(float(shown.min()), rel=1e-6)
    raised = dataset.assign(q=dataset["q"] * 0 + 1e-12)  # without control, everything would differ
    assert certainty_of({"spectral": raised}) == certainty_of({"spectral": dataset})


def test_a_claim_needs_its_direction_and_is_corrected_for_its_table():
    row = {"detector": "Question + heads"}
    dataset = detection_dataset(question=0.5)
    dataset = dataset.assign_coords(detector=dataset["label"].values)  # as the study names its rows
    rows = int(np.isfinite(dataset["gain"]).sum())

    def claim(value: float, p: float):
        changed = dataset.copy(deep=True)
        for name, number in (("gain", value), ("gain_low", value - 0.02), ("gain_high", value + 0.02), ("gain_p", p)):
            changed[name].loc[row] = number
        found = certainty_of({"detection": changed})
        (one,) = [*found.most_certain, *found.not_shown]
        return one

    assert claim(0.1, 1e-4).shown
    assert claim(0.1, 1e-4).log_p == pytest.approx(math.log(1e-4 * rows))
    assert not claim(0.1, 0.9 * ALPHA).shown  # would be, were it the only row
    assert not claim(-0.1, 1e-4).shown
    assert "+0.100, 0.080 to 0.120" in claim(0.1, 1e-4).text
    assert "\N{MINUS SIGN}0.100, \N{MINUS SIGN}0.120" in claim(-0.1, 1e-4).claim


def test_a_head_is_listed_once_and_findings_are_sorted():
    datasets = {"profile": profile_dataset(*SHAPE), "probing": probing_dataset(*SHAPE)}
    found = certainty_of(datasets | {"spectral": spectral_dataset(*SHAPE, examples=80)})
    logs = [finding.log_p for finding in found.most_certain]
    assert logs == sorted(logs) and len(logs) <= 3
    heads = [finding.head for finding in found.most_certain if finding.head]
    assert len(heads) == len(set(heads))
    assert all(not finding.shown for finding in found.not_shown)


def test_studies_without_a_null_take_no_part():
    assert certainty_of({"mine": scores(np.ones(SHAPE), "mine", half=0.5)}).most_certain == ()


def test_where_there_is_nothing_it_seldom_speaks():
    random, shown, rounds = np.random.default_rng(3), 0, 200
    dataset = profile_dataset(*SHAPE)
    for _ in range(rounds):
        noise = random.normal(size=dataset["value"].shape)
        level = np.broadcast_to(dataset["uniform"].fillna(0).values, dataset["value"].shape)
        value = level + 0.01 * noise
        null = dataset.assign(
            value=(dataset["value"].dims, value),
            low=(dataset["value"].dims, value - 0.0196),
            high=(dataset["value"].dims, value + 0.0196),
        )
        shown += bool(certainty_of({"profile": null}).most_certain)
    assert shown / rounds <= ALPHA + 3 * math.sqrt(ALPHA * (1 - ALPHA) / rounds)


def test_where_many_maps_were_tested_and_there_is_nothing_it_seldom_speaks():
    """Every statistic has a map of q-values of its own: the smallest q of ten maps is not a q-value of the study."""
    random, shown, rounds = np.random.default_rng(4), 0, 200
    dataset = streaming_dataset(*SHAPE)
    dims, maps = dataset["q_within"].dims, dataset["q_within"].shape
    for _ in range(rounds):
        p = random.random((*maps[:2], SHAPE[0] * SHAPE[1]))
        q = stats.false_discovery_control(p, axis=-1).reshape(maps)
        null = dataset.assign(q_within=(dims, q), gain=dataset["gain"] * np.nan, gain_question=dataset["gain"] * np.nan)
        shown += bool(certainty_of({"streaming": null}).most_certain)
    assert 0 < shown / rounds <= ALPHA + 3 * math.sqrt(ALPHA * (1 - ALPHA) / rounds)


def test_every_study_of_an_atlas_can_take_part(tmp_path):
    atlas = synthetic_atlas(tmp_path / "atlas")
    found = certainty_of({study: atlas[study] for study in atlas.studies})
    assert found.most_certain
