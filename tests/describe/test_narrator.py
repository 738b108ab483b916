"""The generic figure and description: a study that ships neither gets both, and every number can be recomputed."""

import re
from collections import Counter

import numpy as np
import pytest
import xarray as xr
from map_rules import map_rules
from scipy.stats import spearmanr

from headwise.core.errors import StudyError
from headwise.describe import generic
from headwise.describe.writer import Number
from headwise.figures import from_payload, head_table_maps, to_payload
from headwise.studies.spec import HeadColumn

LAYERS, HEADS = 12, 8
NUMBER = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?")
HEAD = re.compile(r"L(\d+)H(\d+)")


@pytest.fixture(scope="module")
def dataset() -> xr.Dataset:
    """Two maps of a plug-in: one grows with depth and has a block, the other is its noisy copy; one head is missing."""
    rng = np.random.default_rng(0)
    recency = np.linspace(0.1, 0.5, LAYERS)[:, None] + 0.02 * rng.random((LAYERS, HEADS))
    recency[8:11, 2:6] = 0.9 + 0.01 * rng.random((3, 4))
    copied = recency + 0.005 * rng.random((LAYERS, HEADS))
    recency[0, 0] = np.nan
    dims = ("layer", "head")
    return xr.Dataset(
        {
            "recency": (dims, recency),
            "recency_low": (dims, recency - 0.05),
            "recency_high": (dims, recency + 0.05),
            "copied": (dims, copied),
        },
        coords={"layer": np.arange(LAYERS), "head": np.arange(HEADS)},
        attrs={"title": "How recent are the keys?"},
    )


COLUMNS = (HeadColumn("recency", "recency_low", "recency_high", level=0.2, baseline_name="a uniform head"), "copied")


def recomputed(number: Number, ds: xr.Dataset) -> float:
    kind, *rest = number.source.split()

    def flat(key: str) -> np.ndarray:
        values = ds[key].values.ravel()
        return values[np.isfinite(values)]

    def at(variable: str, name: str) -> float:
        layer, head = map(int, HEAD.fullmatch(name).groups())
        return float(ds[variable].values[layer, head])

    def block(key: str, *edges: str) -> np.ndarray:
        top, bottom, left, right = map(int, edges)
        return ds[key].values[top : bottom + 1, left : right + 1]

    def top(key: str) -> set[int]:
        return set(np.argsort(-np.nan_to_num(ds[key].values.ravel(), nan=-1))[:10].tolist())

    both = np.isfinite(ds["recency"].values) & np.isfinite(ds["copied"].values)
    rules = map_rules(lambda key: ds[key].values) | {
        "maps": lambda: 2,
        "value": at,
        "low": lambda key, name: at(f"{key}_low", name),
        "high": lambda key, name: at(f"{key}_high", name),
        "baseline": lambda key: 0.2,
        "ratio": lambda key, name: at(key, name) / 0.2,
        "min": lambda key: flat(key).min(),
        "median": lambda key: np.median(flat(key)),
        "max": lambda key: flat(key).max(),
        "missing": lambda key: int(np.isnan(ds[key].values).sum()),
        "top-heads": lambda key: round(0.05 * flat(key).size),
        "top-share": lambda key: 100 * np.sort(flat(key))[-round(0.05 * flat(key).size) :].sum() / flat(key).sum(),
        "gini": lambda key: np.abs(flat(key)[:, None] - flat(key)).mean() / (2 * flat(key).mean()),
        "third": lambda key, index: np.nanmean(np.array_split(ds[key].values, 3)[int(index)]),
        "peak": lambda key: int(np.argmax(np.nanmean(ds[key].values, axis=1))),
        "depth": lambda key: spearmanr(np.nanmean(ds[key].values, axis=1), np.arange(LAYERS)).statistic,
        "correlation": lambda one, other: spearmanr(ds[one].values[both], ds[other].values[both]).statistic,
        "overlap": lambda one, other: len(top(one) & top(other)),
        "unsettled": lambda: 1,
    }
    return number.value if kind in ("constant", "edge") else float(rules[kind](*rest))


def test_every_number_of_the_generic_description_is_in_the_data(dataset: xr.Dataset) -> None:
    description = generic(dataset, COLUMNS)
    assert list(description.sections()) == [
        "Overview", "Axes and scale", "Detail", "Key observations", "Anomalies", "Interpretation", "Caveats",
    ]  # fmt: skip
    text = HEAD.sub("", description.text() + description.short()).replace("95 %", "")
    recorded = Counter(match for number in description.numbers for match in NUMBER.findall(number.text))
    assert not Counter(NUMBER.findall(text)) - recorded
    for number in description.numbers:
        assert number.value == pytest.approx(recomputed(number, dataset), rel=1e-5, abs=1e-6), number


def test_what_was_planted_is_described(dataset: xr.Dataset) -> None:
    description = generic(dataset, COLUMNS)
    recency = description.detail[0]
    (boxes,) = (line for line in description.observations if line.startswith("Blocks of neighbouring heads"))
    assert "larger than in 95 % of shuffled maps" in boxes
    assert re.search(
        r"recency \(top tenth: from 0\.9\d*\): layers 8 to 10, heads 2 to 5 \((10|11|12) of 12 cells, mean 0.90[0-9]\)",
        boxes,
    )
    assert "times the value of a uniform head (0.2)" in recency and "1 head was not measured." in recency
    assert any(line.startswith("recency rises with depth") for line in description.observations)
    assert any("recency and copied" in line and "similarly" in line for line in description.observations)
    assert description.short().startswith("2 layer x head maps of the model: the head with the largest recency is L")


def test_the_generic_figure_has_a_map_per_column(dataset: xr.Dataset) -> None:
    figure = head_table_maps(dataset, COLUMNS)
    assert [panel.key for panel in figure.panels] == ["recency", "copied", "legend"]
    panel = figure.panel("recency")
    np.testing.assert_allclose(panel.values, dataset["recency"].values, rtol=1e-6)
    assert set(panel.extras) == {"low", "high"} and len(panel.marks) == 3
    assert figure.scales["recency"].marks[0].value == 0.2
    assert {entry.key for entry in figure.panel("legend").entries} == {"largest", "baseline", "missing"}
    assert to_payload(from_payload(to_payload(figure))) == to_payload(figure)


def test_all_maps_are_taken_where_no_columns_are_named(dataset: xr.Dataset) -> None:
    assert [panel.key for panel in head_table_maps(dataset).panels[:-1]] == ["recency", "copied"]
    stacked = xr.concat([dataset[["copied"]], dataset[["copied"]] + 1], xr.IndexVariable("word", ["the", "of"]))
    assert [panel.key for panel in head_table_maps(stacked).panels[:-1]] == ["the", "of"]
    assert "The largest values are" in generic(stacked).detail[1]


def test_what_cannot_be_drawn_is_refused(dataset: xr.Dataset) -> None:
    with pytest.raises(StudyError, match="no variable 'recensy'"):
        head_table_maps(dataset, ["recensy"])
    with pytest.raises(StudyError, match="Nothing to draw"):
        head_table_maps(dataset * np.nan)


def test_a_map_without_values_is_described_as_such(dataset: xr.Dataset) -> None:
    description = generic(dataset * np.nan, ["recency"])
    assert description.detail == ("recency. It was not measured.",) and description.observations == ()
