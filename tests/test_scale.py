"""The simulation of a large run against closed forms, and the cost model against its own sums."""

from __future__ import annotations

import math
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

FOLDER = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture(autouse=True)
def scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))


@pytest.fixture
def simulation() -> Any:
    return import_module("simulation")


@pytest.mark.parametrize(("shards", "workers"), [(1, 1), (10, 3), (12, 3), (5, 8), (1000, 7)])
def test_without_failures_it_takes_rounds(simulation: Any, shards: int, workers: int) -> None:
    found = simulation.simulate(simulation.Run(shards, workers, shard=2.0, load=30.0))
    assert found.seconds == pytest.approx(30.0 + math.ceil(shards / workers) * 2.0)
    assert found.failures == found.redone == 0 and found.measured == pytest.approx(2.0 * shards)


def test_the_driver_takes_one_at_a_time(simulation: Any) -> None:
    found = simulation.simulate(simulation.Run(100, 100, shard=5.0, load=7.0, driver=0.5))
    assert found.seconds == pytest.approx(7.0 + 5.0 + 100 * 0.5)
    assert found.most_waiting == 100
    bound = simulation.simulate(simulation.Run(1000, 50, shard=1.0, driver=0.1))
    assert bound.seconds == pytest.approx(1.0 + 1000 * 0.1, rel=0.01)  # 50 workers bring 50 a second, it takes 10
    assert bound.driver > 0.98


def test_one_worker_that_fails(simulation: Any) -> None:
    run = simulation.Run(4000, 1, shard=60.0, load=40.0, mtbf=300.0, restart=20.0)
    rate = 1 / run.mtbf
    load = (1 / rate + run.restart) * (math.exp(rate * run.load) - 1)
    expected = load + run.shards * (1 / rate + run.restart + load) * (math.exp(rate * run.shard) - 1)
    found = fmean(simulation.simulate(replace(run, seed=seed)).seconds for seed in range(8))
    assert found == pytest.approx(expected, rel=0.03)


def test_every_shard_is_measured_whatever_fails(simulation: Any) -> None:
    found = simulation.simulate(simulation.Run(500, 16, shard=10.0, load=5.0, mtbf=40.0, restart=1.0))
    assert found.measured == pytest.approx(500 * 10.0) and found.redone > 50 and found.failures >= found.redone


def test_slow_shards(simulation: Any) -> None:
    found = simulation.simulate(simulation.Run(20_000, 10, shard=1.0, slow=0.1, slowness=4.0))
    assert found.measured == pytest.approx(20_000 * 1.3, rel=0.03)
    even = simulation.simulate(simulation.Run(20_000, 10, shard=1.0, spread=0.5))
    assert even.measured == pytest.approx(20_000 * math.exp(0.5**2 / 2), rel=0.03)


def test_an_idle_worker_takes_what_a_failed_one_lost(simulation: Any) -> None:
    """Two workers, one shard: nobody waits for a restart of an hour."""
    run = simulation.Run(1, 2, shard=10.0, mtbf=10.0, restart=3600.0)
    found = [simulation.simulate(replace(run, seed=seed)) for seed in range(60)]
    once = [one.seconds for one in found if one.failures == 1]
    assert len(once) > 5 and all(10.0 < seconds < 20.0 for seconds in once)


# ---- what it costs ----------------------------------------------------------------------------------------------------


@pytest.fixture
def model() -> Any:
    return import_module("scale_model")


def test_shapes_have_the_parameters_of_their_models(model: Any) -> None:
    assert model.SEVENTY.bytes / 2 == pytest.approx(70.55e9, rel=0.001)
    assert model.EIGHT.bytes / 2 == pytest.approx(8.03e9, rel=0.001)
    assert model.gpus_needed(model.SEVENTY) == 2 and model.gpus_needed(model.EIGHT) == 1


def test_the_model_that_was_weighed_weighs_what_it_did(model: Any) -> None:
    for study in ("answers", "spectral", "probing"):
        row = model.MEASURED["footprint"][study]
        assert model.example_bytes(study, model.SMALL)[1] == pytest.approx(row["shard_bytes"] / row["examples"])


def test_bytes_grow_along_layers_heads_and_width(model: Any) -> None:
    """Probing keeps two sites at 15 tokens and one at 4, in half precision, and z of every head."""
    large = model.SEVENTY
    expected = 2 * large.layers * ((2 * 15 + 4) * large.hidden + large.heads * large.head_dim)
    assert model.example_bytes("probing", large)[0] == pytest.approx(expected, rel=0.01)


def test_the_rate_is_the_one_of_the_benchmark(model: Any) -> None:
    seconds = 8192 * 2 * model.EIGHT.decoder / model.rate()
    assert seconds == pytest.approx(0.225)
    assert model.example_seconds("spectral", model.EIGHT) == pytest.approx(70 / 8192 * 0.233)


def test_a_driver_that_commits_has_more_to_do(model: Any) -> None:
    told, writing = (model.driver_seconds(16, 10_000_000, commits=commits) for commits in (False, True))
    assert writing - told > model.MEASURED["driver"]["commit"]["10000000"] * 0.99
    assert model.driver_seconds(2048, 1, commits=False) > model.driver_seconds(2, 1, commits=False)


def test_a_row_is_the_sum_of_its_runs(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    scale = import_module("scale")
    for name in ("spread of shard times", "share of slow shards"):
        monkeypatch.setitem(model.ASSUMED, name, (0.0, ""))
    way = scale.Way(1000, probed=4000, near=True, overlaid=True)
    row = scale.row_of(model.SEVENTY, 8000, way, 8)
    runs = [scale.run_of(study, model.SEVENTY, 8000, way, 8, commits=False) for study in scale.STUDIES]
    assert [run.shards for run in runs] == [8, 8, 4] and row.workers == 4 and row.failures == 0
    alone = sum(run.load + math.ceil(run.shards / run.workers) * run.shard for run in runs)
    assert alone < row.hours * 3600 < alone + sum(run.shards * run.driver for run in runs)


def test_the_driver_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    driver_rate = import_module("driver_rate")
    assert 0 < driver_rate.scheduler_seconds(3, 12) < 1 and 0 < driver_rate.commit_seconds(100, 3) < 1
