"""Shares, sizes and ratios of circuits against plain forms."""

import json

import numpy as np
import pytest
from synthetic import circuits as synthetic
from synthetic.circuits import RANKED, circuits_dataset

from headwise.core.errors import StudyError
from headwise.core.schema import check
from headwise.studies.circuits.finalize import finalize, needed
from headwise.studies.circuits.measure import trace_curve
from headwise.studies.registry import dataset_spec


def shards(two=True):
    generator = np.random.default_rng(0)
    return [
        synthetic._shard(generator, 6, 4, condition, "induction", "") for condition in ("model", "reference")[: 1 + two]
    ]


def test_the_dataset_is_what_the_schema_promises():
    for two in (True, False):
        check(circuits_dataset(6, 4, two=two), dataset_spec("circuits").schema)


def test_shares_sizes_and_effects_are_their_plain_forms():
    found = shards()
    dataset = finalize(found, ["a", "b"], goal=0.9, seed=0)
    one = found[0]
    clean, corrupt = one["clean"].values[RANKED:].mean(), one["corrupt"].values[RANKED:].mean()
    sizes = one["size"].values[0]
    known = np.isfinite(sizes)
    shares = (one["score"].values[0][known][:, RANKED:].mean(1) - corrupt) / (clean - corrupt)
    assert np.allclose(dataset["share"].values[0, 0, 0][known], shares, atol=1e-5)
    first = min(size for size, share in zip(sizes[known], shares, strict=True) if share >= 0.9)
    assert float(dataset["needed"][0, 0, 0]) == first
    gap = (one["clean"].values - one["corrupt"].values)[:RANKED].mean()
    assert np.allclose(dataset["effect"].values[0], one["effect"].values[:RANKED].mean(0) / gap, atol=1e-5)
    assert float(dataset["ratio"][0, 0]) == pytest.approx(
        float(dataset["needed"][0, 0, 0] / dataset["needed"][1, 0, 0])
    )
    assert (
        float(dataset["share_low"][0, 0, 0, 3])
        <= float(dataset["share"][0, 0, 0, 3])
        <= float(dataset["share_high"][0, 0, 0, 3])
    )


def test_an_interval_of_a_share_is_about_two_standard_errors():
    one = shards(two=False)[0]
    dataset = finalize([one], ["a"], goal=0.9, seed=0)
    step = 4
    clean, corrupt = one["clean"].values[RANKED:], one["corrupt"].values[RANKED:]
    ratio = float(dataset["share"][0, 0, 0, step])
    left = one["score"].values[0, step, RANKED:] - corrupt - ratio * (clean - corrupt)  # the ratio's linear form
    error = left.std(ddof=1) / np.sqrt(len(left)) / (clean - corrupt).mean()
    width = float(dataset["share_high"][0, 0, 0, step] - dataset["share_low"][0, 0, 0, step])
    assert width == pytest.approx(3.92 * error, rel=0.25)


def test_a_task_that_only_the_second_model_fails_is_nan_there():
    dataset = circuits_dataset(6, 4)
    assert np.isnan(dataset["needed"].sel(condition="reference", task="agreement").values).all()
    assert np.isnan(dataset["ratio"].sel(task="agreement").values).all()
    assert "agreement" in json.loads(dataset.attrs["refused_by_reference"])
    assert "years" in json.loads(dataset.attrs["refused"])


def test_a_model_that_does_nothing_is_refused_with_the_reasons():
    one = shards(two=False)[0].assign_attrs(reason="right in 50 % of 20 prompts")
    with pytest.raises(StudyError, match="induction: right in 50 %"):
        finalize([one], ["a"], goal=0.9, seed=0)


def test_a_size_is_needed_only_if_the_share_stays():
    assert needed([1, 2, 4], np.array([0.95, 0.85, 0.95]), 0.9) == 4
    assert needed([1, 2, 4], np.array([0.95, 0.95, 0.95]), 0.9) == 1
    assert needed([1, 2, 4], np.array([0.1, 0.2, 0.3]), 0.9) == 4


def test_the_size_is_closed_in_on():
    asked = []

    def measure(sizes):
        asked.extend(sizes)
        return np.array([[min(1.0, size / 100) * 2 - 1] * 3 for size in sizes])

    ones = np.ones(3)
    sizes, scores = trace_curve(measure, [1, 4, 16, 64], 256, ones, -ones, 0.9)
    found = needed(sizes, (scores.mean(1) + 1) / 2, 0.9)
    assert 90 <= found <= 90 * 1.1 and len(asked) < 10
    assert sizes == sorted(sizes) and sizes[-1] == 256
