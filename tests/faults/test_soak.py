"""The tables of `make soak`: slopes and sums against plain ones."""

from __future__ import annotations

import random
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from faults.repertoire import REPERTOIRE, Round
from faults.verdict import Census, census


@pytest.fixture
def growth(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    return import_module("growth")


def run(growth: ModuleType, slope: float, noise: float = 0.1):
    """20,000 examples at 600 MB, growing by so many MB for 1,000; much while it warms up."""
    dice = random.Random(0)
    samples = [
        growth.Sample(one / 2, 50 * one, 600 + 0.05 * slope * one + dice.gauss(0, noise) - (40 if one < 100 else 0))
        for one in range(1, 401)
    ]
    return growth.Growth(samples, 20_000, 700.0)


@pytest.mark.parametrize("slope", [0.0, 1.0, 3.0])
def test_the_slope_is_that_of_the_line(growth: ModuleType, slope: float) -> None:
    line, low, high = run(growth, slope).slope
    assert low < slope < high
    assert abs(line - slope) < 0.05
    assert high - low < 0.5


def test_constant_memory_is_distinguished_from_growth(growth: ModuleType) -> None:
    assert run(growth, 0.0).flat
    assert not run(growth, 3.0).flat
    assert not run(growth, 0.0, noise=60.0).flat  # nothing can be said: not flat
    assert "MB for all of them: flat." in run(growth, 0.0).summary()
    assert "| 10,000 | 100 | " in run(growth, 0.0).summary()


def test_the_deleting_of_shards_is_no_measuring(growth: ModuleType) -> None:
    samples = [growth.Sample(place, done, 1.0) for place, done in enumerate([0, 10, 20, 20, 10, 0])]
    assert [one.examples for one in growth.measuring(samples)] == [10, 20]


def test_sums(growth: ModuleType) -> None:
    table = import_module("soak").table
    first, second, *_ = REPERTOIRE
    found = {first: [Round(1, 2), Round(1, 3, lost=1, wrong=["x"])], second: [Round(2, 2, doubled=4, wrong=["y", "z"])]}
    rows = table(found).splitlines()[2:]
    assert rows == [
        f"| {first} | 2 | 5 | 1 | 0 | 1 |",
        f"| {second} | 2 | 2 | 0 | 4 | 1 |",
        "| **all** | 4 | 7 | 1 | 4 | 2 |",
    ]


def test_the_census_counts_what_is_missing_and_what_is_there_twice() -> None:
    expected = {"profile": ["a", "b", "c"], "answers": ["q"]}
    assert census({"profile": ["a", "b", "c"], "answers": ["q"]}, expected) == Census(0, 0)
    assert census({"profile": ["a", "c", "c"]}, expected) == Census(2, 1)
    assert census({"profile": ["a", "b", "c", "stranger"], "answers": ["q"]}, expected) == Census(0, 1)
