"""The words of the sampling study: each number computed again from the data."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr
from synthetic.samples import samples as make

from headwise.describe import Number
from headwise.studies.present import describe


def recomputed(number: Number, ds: xr.Dataset) -> float:
    kind, *rest = number.source.split()
    if kind in ("questions", "samples"):
        return ds.sizes["example" if kind == "questions" else "draw"]
    if kind in ("constant", "edge"):
        return number.value
    if kind == "detectable":
        width = float((ds["gain_high"] - ds["gain_low"]).sel(strategy="probe"))
        return width / (2 * 1.959964) * (1.959964 + 0.841621)
    if kind == "layer":
        return ds.attrs["layer"]
    if kind in ("size", "share"):
        of_type = ds["is_type"].sel(error_type=rest[0])
        return float(of_type.sum()) if kind == "size" else 100 * float(of_type.mean())
    if kind == "separated":
        return int((ds["type_low"] > ds["type_null_high"]).sum())
    if kind == "tried":
        return int(ds["type_auroc"].notnull().sum())
    found = ds[kind]
    for name in rest or ():
        found = found.sel({"error_type" if name in "ABCDE" else "strategy": name})
    return float(found.sel(strategy="probe") if "strategy" in found.dims else found)


def test_every_number_is_the_datasets():
    dataset = make()
    words = describe("samples", dataset)
    assert len(words.numbers) > 50
    for number in words.numbers:
        assert number.value == pytest.approx(recomputed(number, dataset), rel=1e-6), number
        assert number.text.split()[0] in words.text() + words.short()


def test_what_is_said():
    words = describe("samples", make())
    text = words.text()
    assert "C, consistently wrong: 25 questions (28 %)" in text
    assert "A, refuses: 0 questions (0 %)." in text
    assert "D, two competing: 5 questions" in text and "too few questions, of it or of the rest, to fit a probe" in text
    assert "instead of the greedy answer changes accuracy by 0.12 (0.07 to 0.17), a gain" in text
    assert "by 0.05 (0.00 to 0.10), not a significant difference" in text or "by 0.05 (0.00 to 0.10), a gain" in text
    assert "Of 3 types with enough questions, 2 are separated" in text and "B and E" in text
    assert "SmolLM2-135M-Instruct" in words.short() and "0.52" in words.short()
    assert "fitted on 1,480 greedy or sampled answers to 500 questions" in text
    assert "over pairs of samples of the same question 0.62 (0.55 to 0.69)" in text
    assert words.short().endswith("the difference is 0.12 (0.07 to 0.17), a gain.")


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (0.01, 0.2, "such a gain is found here"),
        (-0.05, 0.06, "a gain is not shown here, nor is the published one excluded"),
        (-0.2, -0.1, "which does not replicate here"),
        (-0.02, 0.03, "which does not replicate here"),
    ],
)
def test_a_published_gain_fails_to_replicate_only_where_the_interval_excludes_it(low, high, verdict):
    dataset = make()
    for name, value in (("gain_low", low), ("gain_high", high)):
        dataset[name].loc[{"strategy": "probe"}] = value
    assert verdict in describe("samples", dataset).text()


def test_words_of_the_first_version():
    dataset = make()
    old = dataset.sel(strategy=[name for name in dataset["strategy"].values if name != "trust"])
    text = describe(
        "samples", old.drop_vars([n for n in old.data_vars if str(n).startswith(("within", "fit_"))])
    ).text()
    assert "fitted on the samples of other questions" in text and "weighted" not in text


def test_a_loss_is_called_a_loss():
    dataset = make()
    for name in ("gain", "gain_low", "gain_high"):
        dataset[name] = -dataset[name] - (0.2 if name != "gain_low" else 0.3)
    dataset["type_gain_low"] = dataset["type_gain_low"] - np.float32(1)
    text = describe("samples", dataset).text()
    assert "a loss" in text and "gains significantly" not in text
