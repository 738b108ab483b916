"""The words of the detection study: each number recomputed from the data, nothing claimed that is not there."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
import xarray as xr

from headwise.describe import Description, Number
from headwise.studies.present import describe

NUMBER = re.compile(r"−?\d+(?:,\d{3})*(?:\.\d+)?")


def row(ds: xr.Dataset, variable: str, name: str) -> float:
    return float(ds[variable].sel(detector=name))


def fitted(ds: xr.Dataset) -> xr.Dataset:
    return ds.sel(detector=np.isin(ds["kind"], ["supervised", "combined"]))


def of_the_model(ds: xr.Dataset) -> xr.Dataset:
    return ds.sel(detector=~np.isin(ds["kind"], ["question", "with question"]))


def moved(ds: xr.Dataset, what: str, name: str) -> float:
    grid = ds["transfer"].sel(detector=name).to_series().dropna().reset_index()
    others, same = grid["trained_on"] == "others", grid["trained_on"] == grid["topic"]
    rows = {"others": others, "inside": same, "across": ~others & ~same}[what]
    return float(grid.loc[rows, "transfer"].mean())


def recomputed(number: Number, ds: xr.Dataset) -> float:
    """The same number, from the data alone."""
    kind, *rest = number.source.split()
    plain = tuple(f"{name}{end}" for name in ("auroc", "auroc_within", "gain") for end in ("", "_low", "_high"))
    plain += ("paper", "gain_detectable")
    if kind in plain:
        return row(ds, kind, *rest)
    if kind == "kind":
        return float((ds["kind"] == " ".join(rest)).sum())
    rules: dict[str, Callable[..., float]] = {
        "strata": lambda: ds.attrs["n_strata"],
        "over-question": lambda: (fitted(ds)["gain_low"] > 0).sum(),
        "model-fitted": lambda: fitted(ds).sizes["detector"],
        "wrong": lambda: ds["wrong"].sum(),
        "correct": lambda: (~ds["wrong"]).sum(),
        "rarer": lambda: min(int(ds["wrong"].sum()), int((~ds["wrong"]).sum())),
        "folds": lambda: ds.sizes["fold"],
        "rows": lambda: of_the_model(ds)["auroc"].notnull().sum(),
        "all-rows": lambda: ds.sizes["detector"],
        "precision": lambda name: 100 * row(ds, "precision", name),
        "recall": lambda name: 100 * row(ds, "recall", name),
        "over-length": lambda: (fitted(ds)["auroc_low"] > row(ds, "auroc", "length")).sum(),
        "fitted": lambda: fitted(ds).sizes["detector"],
        "away": lambda one, other: abs(row(ds, "auroc", one) - row(ds, "auroc", other)),
        "by_k": lambda name, k: ds["by_k"].sel(detector=name, rank=int(k)),
        "by_layer": lambda name, layer: ds["by_layer"].sel(detector=name, layer=int(layer)),
        "by_size": lambda name, size: ds["by_size"].sel(detector=name, size=int(size)),
        "layer-count": lambda name: ds["by_layer"].sel(detector=name).notnull().sum(),
        "step": lambda name: ds["by_size"].sel(detector=name).diff("size")[-1],
        **{what: lambda name, what=what: moved(ds, what, name) for what in ("inside", "across", "others")},
    }
    if kind in ("constant", "edge"):
        return number.value
    return float(rules[kind](*rest))


def stripped(words: Description, ds: xr.Dataset) -> str:
    text = words.text() + words.short()
    for label in ds["label"].values:
        text = text.replace(str(label), "")
    return text.replace("HuggingFaceTB/SmolLM2-135M-Instruct", "").replace("95 %", "")


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"signal": 0.0},
        {"details": False},
        {"examples": 120, "seed": 4},
        {"layers": 2, "signal": 2.0},
        {"question": 1.0},
    ],
)
def test_every_number_is_in_the_data(make_detection: Callable[..., xr.Dataset], options: dict[str, object]) -> None:
    dataset = make_detection(**options)
    words = describe("detection", dataset)
    kept = Counter(match for number in words.numbers for match in NUMBER.findall(number.text))
    said = Counter(NUMBER.findall(stripped(words, dataset)))
    assert said.total() > 30
    assert not said - kept
    for number in words.numbers:
        assert number.value == pytest.approx(recomputed(number, dataset), rel=1e-5, abs=1e-6), number
    assert "not known" not in words.text()


def test_best_order_and_length_are_reported(detection: xr.Dataset) -> None:
    words = describe("detection", detection)
    said = "\n".join(words.observations)
    assert words.observations[0].startswith(
        "The best detector is Combined (ours), with an AUROC of 0.847 (0.802 to 0.892)."
    )
    assert (
        "The published order AttnScore < AttnEigvals < LapEigvals is not shown here: " in said
    )  # .03 between the last two
    assert "Length alone reaches an AUROC of 0.632" in said
    assert "5 of 5 fitted detectors have their whole interval above that" in said
    assert "length alone reaches 0.632" in words.short()
    best = int(detection["by_layer"].sel(detector="LapEigvals").argmax("layer"))
    assert f"LapEigvals is best in layer {best} " in said
    assert "all layers together give" in said
    assert len(words.detail) == 9


def test_whether_heads_tell_more_than_the_question(make_detection: Callable[..., xr.Dataset]) -> None:
    table = make_detection(question=1.0)

    def verdict(gain: float, half: float) -> str:
        for end, value in (("", gain), ("_low", gain - half), ("_high", gain + half)):
            table[f"gain{end}"].loc[{"detector": "with_heads"}] = value
        words = describe("detection", table)
        kind = (
            "Heads add "
            if gain > half
            else "not shown: "
            if gain + half > 0
            else "add nothing to what the question tells: "
        )
        assert f"{kind}{gain:.3g}".replace("-", "−") in words.short()
        return words.observations[0]

    before = f"{float(table['auroc'].sel(detector='topic_length')):.3g} that Question: topic, difficulty, length has"
    assert verdict(0.04, 0.02) == (
        f"Heads tell more than the question does: added to it, they raise the AUROC by 0.04 (0.02 to 0.06), from the {before}."
    )
    assert verdict(0.01, 0.04) == (
        "That heads tell more than the question does is not shown: added to it, they change the AUROC by 0.01 (−0.03 to "
        f"0.05), from the {before}; a gain of 0.057 would be found with 80 % power."
    )
    assert verdict(-0.04, 0.02).startswith("Heads tell no more than the question does")
    assert "Among answers to similar questions (topic x difficulty, 61 strata) LapEigvals has an AUROC of" in "\n".join(
        describe("detection", table).observations
    )


def test_a_question_only_row_is_neither_the_best_detector_nor_length(make_detection: Callable[..., xr.Dataset]) -> None:
    words = describe("detection", make_detection(question=4.0))  # the question alone is nearly perfect
    said = "\n".join(words.observations)
    assert "The best detector is Combined (ours)" in said
    assert "Length alone reaches an AUROC of 0.632" in said
    assert "The question alone, with nothing of the model, reaches an AUROC of 0.9" in said
    assert "none of 5 fitted detectors is significantly better" in said


def test_a_table_without_question_rows_is_still_described(detection: xr.Dataset) -> None:
    words = describe("detection", detection)
    assert "the question" not in words.text().replace("The questions are", "")


def test_another_order_is_said_so(detection: xr.Dataset) -> None:
    old = detection.drop_vars("score")
    old["auroc"].loc[{"detector": "AttnScore"}] = 0.9
    said = "\n".join(describe("detection", old).observations)
    assert "The published order AttnScore < AttnEigvals < LapEigvals does not hold here: 0.9, 0.8 and 0.827." in said


def test_the_published_order_replicates_only_by_its_intervals(detection: xr.Dataset) -> None:
    def verdict(table: xr.Dataset) -> str:
        return next(
            line for line in describe("detection", table).observations if line.startswith("The published order")
        )

    wrong = detection["wrong"].values
    noise = np.random.default_rng(0).normal(size=len(wrong))

    def scores(*separations: float) -> xr.Dataset:
        table = detection.copy(deep=True)
        for name, separation in zip(("AttnScore", "AttnEigvals", "LapEigvals"), separations, strict=True):
            table["score"].loc[{"detector": name}] = noise + separation * wrong
        return table

    assert "holds here" in verdict(scores(0.0, 1.0, 2.0))
    assert "does not replicate here" in verdict(scores(0.0, 2.0, 1.0))
    few = scores(0.0, 1.0, 1.01).isel(example=slice(0, 60))
    few["score"] = few["score"] + np.random.default_rng(1).normal(size=few["score"].shape)  # wide intervals
    assert "is not shown here" in verdict(few)


def test_another_order_needs_all_rows(detection: xr.Dataset) -> None:
    said = "\n".join(describe("detection", detection.drop_sel(detector="AttnScore")).observations)
    assert "published order" not in said


@pytest.mark.parametrize("seed", range(6))
def test_a_table_that_knows_nothing(make_detection: Callable[..., xr.Dataset], seed: int) -> None:
    words = describe("detection", make_detection(signal=0.0, seed=seed))
    assert words.observations[0].startswith(
        "No detector is significantly better than chance after correction for 9 detectors;"
    )
    assert "None is significantly better than chance" in words.short()
    text = "\n".join(words.observations)
    for claim in ("The best detector", "eigenvalues per head", "On one layer alone", "Across topics"):
        assert claim not in text
    assert "Length alone" in text


def test_length_that_is_not_there_is_missed(detection: xr.Dataset) -> None:
    words = describe("detection", detection.drop_sel(detector="length").assign_attrs(reference=""))
    assert "The answer's length is not in this table" in "\n".join(words.observations)
    assert "Difference from" not in words.text()
    assert "length alone" not in words.short()


def test_a_chosen_layer_is_not_compared_with_all(detection: xr.Dataset) -> None:
    words = describe("detection", detection.sel(detector=["hidden", "length"]))
    line = next(line for line in words.observations if line.startswith("On one layer alone"))
    assert "all layers together" not in line


def test_missing_values_and_attributes(detection: xr.Dataset) -> None:
    for name in ("auroc", "auroc_low", "auroc_high"):
        detection[name].loc[{"detector": "AttnLogDet"}] = np.nan
    words = describe("detection", detection.drop_attrs().drop_vars(["kind", "label", "gain"]))
    assert "wrong answers of the model" in words.overview[0]
    assert not any(line.startswith("AttnLogDet") for line in words.detail)
    detection["auroc"][:] = np.nan
    words = describe("detection", detection)
    assert words.detail == words.observations == ()


def test_it_reads_well(detection: xr.Dataset) -> None:
    words = describe("detection", detection)
    assert list(words.sections()) == ["Overview", "Axes and scale", "Detail", "Key observations", "Caveats"]
    assert "  " not in words.text()
    assert ".." not in words.text()
    one = describe("detection", detection.sel(detector=["LapEigvals"])).text()
    assert "by 1 fitted detector, on" in one
    assert "best of" not in one.replace("best of 30 layers", "")
