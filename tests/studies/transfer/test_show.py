"""Figure and words of the transfer study: each number computed again from the data."""

import re

import numpy as np
import pytest
import xarray as xr
from synthetic.transfer import SETS, transfer

from headwise.describe import Number
from headwise.studies.present import describe, figure_of


@pytest.fixture(scope="module")
def found() -> xr.Dataset:
    return transfer()


def recomputed(number: Number, ds: xr.Dataset) -> float:
    kind, _, rest = number.source.partition(" ")
    sizes = {"questions": ds.sizes["example"], "sets": ds.sizes["tested_on"], "k": ds.attrs["k"], "pairs": 6}
    if number.source in sizes:
        return sizes[number.source]
    if kind in ("constant", "edge"):  # a threshold of ours; a tick that the figure shows
        return number.value
    if kind == "accuracy":
        return 100 * float(ds["accuracy"].sel(tested_on=rest))
    if kind in ("n_wrong", "n_right"):
        return float(ds[kind].sel(tested_on=rest))
    square = ds.sel(trained_on=list(SETS))
    same = np.eye(len(SETS), dtype=bool)
    if kind == "clear":
        low = square["auroc_low"].sel(detector="Entropy").values
        high = square["auroc_high"].sel(detector=best(ds, "question")).values
        return int((low > high)[~same].sum())
    if kind in ("inside", "across", "reached"):
        name, end = rest.rsplit(" ", 1)
        cells = square["auroc"].sel(detector=name).values[same if kind != "across" else ~same]
        return float(cells.min() if end == "lowest" else cells.max())
    if kind in ("above", "cells"):
        cells = square["auroc_low"].sel(detector=rest).values[~same]
        return len(cells) if kind == "cells" else int((cells > 0.5).sum())
    if kind == "lost":
        values = square["auroc"].sel(detector=rest).values
        return abs(float(values[same].mean() - values[~same].mean()))
    matched = re.fullmatch(r"(auroc(?:_low|_high)?) (?:others|score) (.+) (\w+)", number.source)
    assert matched, number.source
    variable, name, one = matched.groups()
    return float(ds[variable].sel(detector=name, trained_on="others", tested_on=one))


def best(ds: xr.Dataset, kind: str) -> str:
    own = ds.sel(detector=ds["kind"] == kind, trained_on=list(SETS))
    values = own["auroc"].transpose("detector", ...).values[:, ~np.eye(len(SETS), dtype=bool)].mean(axis=1)
    return str(own["detector"].values[values.argmax()])


def test_every_number_is_the_datasets(found):
    words = describe("transfer", found)
    assert len(words.numbers) > 60
    for number in words.numbers:
        assert number.value == pytest.approx(recomputed(number, found), rel=1e-5), number
        assert number.text.split()[0] in words.text() + words.short()


def test_what_is_said(found):
    words = describe("transfer", found)
    assert (
        "the best detector" in words.short()
        and "(Entropy)" in words.short()
        and "the question alone (" in words.short()
    )
    assert "above chance in 6 of 6 cases" in words.short()
    assert "Lookback: inside a set AUROC 0." in words.text() and "Question: words: inside a set" in words.text()
    assert "Log-probability, mean, not fitted" in words.text()


def test_a_set_without_enough_answers_is_named(found):
    empty = found.assign(auroc=found["auroc"].where(found["tested_on"] != "beta"))
    assert "beta has too few wrong or correct answers" in describe("transfer", empty).text()


def test_the_figure_has_a_matrix_for_every_fitted_detector_and_the_scores(found):
    figure = figure_of("transfer", found)
    kinds = found["kind"].values.tolist()
    assert len(figure.panels) == sum(kind != "score" for kind in kinds) + 1
    entropy = next(panel for panel in figure.panels if panel.title == "Entropy")
    np.testing.assert_allclose(entropy.values, found["auroc"].sel(detector="Entropy").values)
    assert entropy.y.labels[-1] == "all others" and len(entropy.frames) == 3
    scores = figure.panels[-1]
    own = found["auroc"].sel(detector=found["kind"] == "score", trained_on="others")
    np.testing.assert_allclose(scores.values, own.transpose("detector", "tested_on").values)
    assert "alpha: " in figure.notes[0]
