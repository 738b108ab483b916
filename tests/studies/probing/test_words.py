"""Every number of the words is computed again here, from the Dataset, by plain numpy."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr
from synthetic.probing import probing_dataset as make_probing

from headwise.describe import Description
from headwise.stats.power import minimum_detectable_auroc
from headwise.studies.present import describe


@pytest.fixture(scope="module")
def dataset() -> xr.Dataset:
    return make_probing()


@pytest.fixture(scope="module")
def words(dataset: xr.Dataset) -> Description:
    return describe("probing", dataset)


def numbers(words: Description) -> dict[str, float]:
    return {number.source: number.value for number in words.numbers}


def test_the_numbers_are_those_of_the_maps(dataset: xr.Dataset, words: Description) -> None:
    said = numbers(words)
    for site in ("mlp_in", "residual"):
        one = dataset.sel(site=site)
        values = one["auroc"].transpose("layer", "token").values.astype(float)
        assert said[f"value best {site}"] == pytest.approx(values.max())
        assert said[f"beyond {site}"] == (values > float(one["best_high"])).sum()
        assert said[f"best_high {site}"] == pytest.approx(0.6)
        means = dict(zip(dataset["token"].values, values.mean(axis=0), strict=True))
        assert said[f"column {site} exact_answer_last"] == pytest.approx(means["exact_answer_last"])
        for place, part in enumerate(np.array_split(values, 3)):
            assert said[f"band {place} {site}"] == pytest.approx(part.mean())
        layers = values.mean(axis=1)
        assert said[f"row {site} {layers.argmax()}"] == pytest.approx(layers.max())
        for end, value in (("min", values.min()), ("median", np.median(values)), ("max", values.max())):
            assert said[f"{end} auroc {site}"] == pytest.approx(value)
        if site != "mlp_in":
            continue
        first, last = int(one["frame_first"]), int(one["frame_last"])
        inside = np.zeros(values.shape, dtype=bool)
        inside[first : last + 1, 3:7] = True
        assert said[f"framed {site}"] == pytest.approx(values[inside].mean())
        assert said[f"unframed {site}"] == pytest.approx(values[~inside].mean())
    for site in ("mlp_in", "residual"):
        assert said[f"value nested {site}"] == pytest.approx(float(dataset["nested"].sel(site=site)))
    assert said["heads found"] == int((dataset["head_q"] < 0.05).sum())
    assert said["value row Length"] == pytest.approx(0.58)
    raw = dataset["transfer"].values
    assert said["transfer inside"] == pytest.approx(np.diag(raw[:3]).mean())
    assert said["transfer across"] == pytest.approx(raw[:3][~np.eye(3, dtype=bool)].mean())
    gain = dataset["transfer_gain"].values
    assert said["gain across"] == pytest.approx(gain[:3][~np.eye(3, dtype=bool)].mean())
    assert said["leak published"] == 0.73
    assert said["paper best"] == pytest.approx(float(dataset["paper"].max()))
    assert said["in_prompt -8"] == 40
    assert said["value exact Probe, exact answer"] == pytest.approx(0.8)
    assert said["value over Probe, last token"] == pytest.approx(-0.08)
    assert said["p over Probe, best cell"] == pytest.approx(0.001)
    assert (said["without exact"], said["without exact wrong"]) == (22, 20)


def test_the_numbers_of_the_controls_for_the_question(dataset: xr.Dataset, words: Description) -> None:
    said, rows = numbers(words), dataset.set_index(detector="detector")
    for site in ("mlp_in", "residual"):
        one = dataset.sel(site=site)
        assert said[f"within found {site}"] == int((one["within_q"] < 0.05).sum())
        if site == "mlp_in":
            assert said[f"within best {site}"] == pytest.approx(float(one["within"].max()))
        for side, name in (("value", "nested_within"), ("low", "nested_within_low"), ("high", "nested_within_high")):
            assert said[f"{side} nested_within {site}"] == pytest.approx(float(one[name]))
    for name in ("Probe, best cell", "Probe, last token", "Log-probability, min of exact answer"):
        assert said[f"value gain {name}"] == pytest.approx(float(rows["table_gain"].sel(detector=name)))
        assert said[f"low within {name}"] == pytest.approx(float(rows["table_within_low"].sel(detector=name)))
    assert said["heads within"] == int((dataset["head_within_q"] < 0.05).sum())
    assert said["value row Question: words"] == pytest.approx(0.62)
    assert said["detectable gain"] == pytest.approx(0.1 / (2 * 1.959964) * (1.959964 + 0.841621), rel=1e-4)
    wrong, stratum = dataset["wrong"].values, dataset["stratum"].values
    counts = [[int((stratum[kind] == one).sum()) for one in range(60)] for kind in (wrong, ~wrong)]
    plain = minimum_detectable_auroc(int(wrong.sum()), int((~wrong).sum()), tests=450)
    assert said["detectable mlp_in"] == pytest.approx(plain)
    assert said["detectable within mlp_in"] == pytest.approx(minimum_detectable_auroc(*counts, tests=450))


def test_the_headline_says_whether_the_probe_finds_more_than_the_question(
    dataset: xr.Dataset, words: Description
) -> None:
    within = float(dataset["nested_within"].sel(site="mlp_in"))
    assert words.short().endswith(f"Among similar questions {within:.3g}: more than the question reveals.")
    assert "more than the question alone reveals" in words.interpretation[1]
    weak = describe("probing", dataset.assign(nested_within_low=dataset["nested_within_low"] - 0.2))
    assert weak.short().endswith("not shown to be more than the question reveals.")
    assert "not shown to be more than the question alone reveals" in weak.interpretation[1]
    equal = dataset.assign(table_gain_low=dataset["table_gain_low"] - 0.2)
    assert "not shown to predict errors better than the question alone" in describe("probing", equal).interpretation[1]
    first = [name for name in dataset.data_vars if "within" in str(name) or name in ("stratum", "table_gain")]
    old = describe("probing", dataset.drop_vars(first))
    assert (
        old.short().endswith("What the question alone reveals is not controlled for.") and "older version" in old.text()
    )
    questions = dataset.drop_vars([name for name in first if name != "stratum"])
    assert "The questions could not be grouped" in describe("probing", questions).text()


def test_a_cell_that_breaks_the_pattern_is_named(dataset: xr.Dataset) -> None:
    odd = dataset.copy(deep=True)
    rng = np.random.default_rng(0)
    smooth = 0.6 + np.linspace(0, 0.1, 30)[:, None] + np.linspace(0, 0.05, 15) + 0.003 * rng.standard_normal((30, 15))
    smooth[12, 2] = 0.4
    odd["auroc"].loc[{"site": "mlp_in"}] = smooth
    words = describe("probing", odd)
    line = words.anomalies[0]
    expected = np.median(smooth[12]) + np.median(smooth[:, 2]) - np.median(smooth)
    assert f"1 cell: most layer 12 at second_answer (0.4, expected {expected:.3g})" in line
    assert numbers(words)["expected mlp_in 12 second_answer"] == pytest.approx(expected, rel=1e-3)


def test_what_a_careful_reader_sees(dataset: xr.Dataset, words: Description) -> None:
    text = words.text()
    layer = int(dataset["auroc"].sel(site="mlp_in", token="exact_answer_last").values.argmax())
    assert f"in layer {layer} at exact_answer_last" in text
    assert "the most informative tokens are exact_answer_last" in text
    assert "It dips after the question and rises at the exact answer, then falls again." in text
    assert "; the least is " in text
    assert "selected on other folds than it is evaluated on" in text
    assert "which use the label, instead of label-blind ones (26 spans differ)" in text
    assert "not a clear difference" in text
    assert "In 22 answers, 20 of them wrong, no exact answer was found" in text
    assert (
        "minus that of Log-probability, min of exact answer, the strongest log-probability, is 0.06 (0 to 0.12)" in text
    )
    old = describe(
        "probing", dataset.drop_vars(["has_exact", *(n for n in dataset if str(n).startswith("table_over"))])
    )
    assert "22 without an exact answer" in old.text() and "strongest log-probability" not in old.text()
    assert "11 answers were truncated at the token limit" in text
    assert "exact_answer_last" in words.short() and "peak in" in words.short()


def test_nothing_is_made_of_noise() -> None:
    noise = make_probing(strength=0.0)
    words = describe("probing", noise)
    text = words.text()
    assert "this map is consistent with chance, and no cell is a finding" in text
    assert "no cell differs from chance" in words.short()
    assert "The framed region" not in text and "most informative" not in text and "It dips" not in text


def test_missing_parts_are_not_described(dataset: xr.Dataset) -> None:
    transfer = [name for name in dataset.data_vars if str(name).startswith("transfer")]
    bare = dataset.drop_vars(["paper", *transfer]).assign_attrs(leak="{}", spans="published")
    text = describe("probing", bare).text()
    assert "paper's protocol" not in text and "Across topics" not in text and "which use the label" not in text
    assert "found with the label: part" in text


@pytest.mark.parametrize("size", [(1, 1), (4, 2), (80, 64)])
def test_any_size_of_model(size: tuple[int, int]) -> None:
    words = describe("probing", make_probing(*size))
    assert "not known" not in words.text() and "nan" not in words.text()
