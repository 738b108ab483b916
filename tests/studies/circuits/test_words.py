"""Circuits and sparsity in words: every number is one of the Dataset."""

from __future__ import annotations

import re

import numpy as np
import pytest
import xarray as xr
from map_rules import map_rules
from synthetic.circuits import circuits_dataset
from synthetic.sparsity import sparsity_dataset

from headwise.describe import Description
from headwise.studies.present import describe


def value_of(dataset: xr.Dataset, of: str) -> float | None:
    """The number that a note names, looked up plainly; None for counts and means, which have tests of their own."""
    if match := re.fullmatch(r"(accuracy|clean|corrupt) (\w+)", of):
        found = float(dataset[match[1]].sel(task=match[2]).values[0])
        return 100 * found if match[1] == "accuracy" else found
    match = re.fullmatch(r"(needed\w*) (heads|edges) (\w+)", of)
    if match and match[3] in dataset["task"].values:  # else the least or the most of all tasks
        return float(dataset[match[1]].sel(unit=match[2], task=match[3]).values[0])
    if match := re.fullmatch(r"(ratio\w*) (heads|edges) (\w+)", of):
        return float(dataset[match[1]].sel(unit=match[2], task=match[3]))
    if match := re.fullmatch(r"effect (\w+) L(\d+)H(\d+)", of):
        return float(dataset["effect"].sel(task=match[1], layer=int(match[2]), head=int(match[3])))
    return None


def test_every_named_number_is_that_of_the_dataset() -> None:
    dataset = circuits_dataset()
    known = 0
    for number in describe("circuits", dataset).numbers:
        expected = value_of(dataset, number.source)
        if expected is not None:
            known += 1
            assert number.value == pytest.approx(expected, rel=1e-5), number
    assert known > 60


def test_what_is_said_about_circuits() -> None:
    words = describe("circuits", circuits_dataset())
    text = words.text()
    assert "L15H1" in text and "Sparse SmolLM2-135M-Instruct does not solve: Agreement" in text
    assert "Left out: years" in text and "times" in text
    assert "needs" in words.short()
    alone = describe("circuits", circuits_dataset(two=False, tasks=1)).text()
    assert "times" not in alone and "1 small task." in alone


def test_random_circuits_are_set_beside() -> None:
    dataset = circuits_dataset(two=False)
    found = {number.source: number.value for number in describe("circuits", dataset).numbers}
    shares = []
    for task in dataset["task"].values:
        one = dataset.isel(condition=0).sel(task=task, unit="heads")
        shares += one["random"].values[one["random_size"].values <= float(one["needed"])].tolist()
    assert found["random heads most"] == pytest.approx(100 * np.nanmax(shares), rel=1e-5)


def sparsity_words() -> tuple[xr.Dataset, Description]:
    dataset = sparsity_dataset()
    return dataset, describe("sparsity", dataset)


def test_every_rule_is_told_with_its_numbers() -> None:
    dataset, words = sparsity_words()
    known = 0
    for number in words.numbers:
        match = re.fullmatch(r"(rise\w*|kept|mass|change) (\w+ [\d.]+(?: \+ \d+)?)", number.source)
        if match:
            known += 1
            name = match[1] if match[1].startswith("rise") else f"{match[1]}_mean"
            factor = 100 if match[1] in ("kept", "mass") else 1
            assert number.value == pytest.approx(factor * float(dataset[name].sel(rule=match[2])), rel=1e-5)
    assert known >= 6 * dataset.sizes["rule"]


def test_the_cheapest_setting_is_named_and_the_control_beside_it() -> None:
    dataset, words = sparsity_words()
    cheap = dataset["kept_mean"].where(dataset["rise_high"] <= 0.05)
    name = str(dataset["rule"].values[int(cheap.argmin("rule"))])
    text = words.text()
    assert f"are left by {name}" in text and "drawn at random raise the loss" in text and name in words.short()
    layer, head = np.unravel_index(np.argmin(dataset["needed"].values), dataset["needed"].shape)
    assert f"the fewest L{layer}H{head}" in text
    dear = dataset.assign(rise_high=dataset["rise_high"] + 1)
    assert "No setting keeps the rise" in describe("sparsity", dear).text()


def test_anomalies_are_those_of_the_maps():
    dataset = circuits_dataset(12, 8)
    rules = map_rules(lambda key: dataset["effect"].sel(task=key).transpose("layer", "head").values.astype(float))
    words = describe("circuits", dataset)
    kinds = ("around", "anomalies-rest", "layer-level", "layer-around")
    checked = [number for number in words.numbers if number.source.split()[0] in kinds]
    assert len(checked) >= 5
    for number in checked:
        kind, *rest = number.source.split()
        assert number.value == pytest.approx(rules[kind](*rest), rel=1e-4, abs=1e-7), number
    assert all(f"{label} L6H1 (" in words.anomalies[1] for label in dataset["label"].values)  # planted
