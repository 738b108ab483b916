"""The words of the spectral study: each number recomputed, planted heads named, a null result reported as one."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from map_rules import map_rules
from scipy.stats import mannwhitneyu
from synthetic.spectral import as_version_1

from headwise.describe import Description, Number
from headwise.studies.present import describe

HEAD = re.compile(r"L(\d+)H(\d+)")
NUMBER = re.compile(r"−?\d+(?:,\d{3})*(?:\.\d+)?")


def flat(ds: xr.Dataset, key: str, variable: str, part: str = "whole") -> np.ndarray:
    return ds[variable].sel(part=part, feature=key).values.astype(float).ravel()


def share(ds: xr.Dataset, key: str, variable: str, part: str = "whole") -> float:
    values = flat(ds, key, variable, part)
    return 100 * float((values[np.isfinite(values)] < 0.05).mean())


def at(ds: xr.Dataset, variable: str, key: str, name: str) -> float:
    layer, head = (int(part) for part in HEAD.fullmatch(name).groups())  # type: ignore[union-attr]
    return float(ds[variable].sel(part="whole", feature=key, layer=layer, head=head))


def block(ds: xr.Dataset, variable: str, key: str, *edges: str) -> np.ndarray:
    first, last, left, right = (int(edge) for edge in edges)
    part = ds[variable].sel(part="whole", feature=key, layer=slice(first, last), head=slice(left, right))
    return part.values.astype(float).ravel()


def tenth(ds: xr.Dataset, key: str) -> float:
    return float(np.nanquantile(np.abs(flat(ds, key, "effect") - 0.5), 0.9))


def chosen(ds: xr.Dataset, key: str) -> np.ndarray:
    return flat(ds, key, "q") < 0.05


def correlation(ds: xr.Dataset, variable: str, one: str, other: str) -> float:
    return float(pd.Series(flat(ds, one, variable)).rank().corr(pd.Series(flat(ds, other, variable)).rank()))


def lengths(ds: xr.Dataset, what: str) -> float:
    tokens, wrong = ds["answer_tokens"].values, ds["wrong"].values
    if what == "auroc":
        return float(mannwhitneyu(tokens[wrong], tokens[~wrong]).statistic / (wrong.sum() * (~wrong).sum()))
    return float(np.median(tokens[wrong if what == "wrong" else ~wrong]))


def recomputed(number: Number, ds: xr.Dataset) -> float:
    """The same number, from the data alone."""
    kind, *rest = number.source.split()
    measured = [key for key in ds["feature"].values if np.isfinite(flat(ds, key, "p")).any()]
    counts = json.loads(ds.attrs["counts"])
    anomalies = map_rules(lambda key: ds["effect"].sel(part="whole", feature=key).values.astype(float))
    rules: dict[str, Callable[..., float]] = {
        **{name: rule for name, rule in anomalies.items() if name in ("value", "around") or name[:5] in ("anoma", "layer")},
        "layers": lambda: ds.sizes["layer"],
        "heads": lambda: ds.sizes["head"],
        "features": lambda: ds.sizes["feature"],
        "pair": lambda: 2,
        "count": lambda what: counts[what],
        "rarer": lambda: min(counts["wrong"], counts["correct"]),
        "measured": lambda key: np.isfinite(flat(ds, key, "p")).sum(),
        "missing": lambda key: np.isnan(flat(ds, key, "p")).sum(),
        "under": lambda variable, key: (flat(ds, key, variable) < 0.05).sum(),
        "under-percent": lambda variable, key: share(ds, key, variable),
        "answer-percent": lambda variable, key: share(ds, key, variable, "answer"),
        "level": lambda variable, key: (
            (1 if variable.startswith("null_p") else 100) * ds[variable].sel(part="whole", feature=key)
        ),
        "needed": lambda variable, key: ds[variable].sel(part="whole", feature=key),
        "strata": lambda name, what: json.loads(ds.attrs["strata"])[name][what],
        "measured-in": lambda variable, key: np.isfinite(flat(ds, key, variable)).sum(),
        "answer-level": lambda variable, key: ds[variable].sel(part="answer", feature=key),
        "at": lambda variable, key, name: at(ds, variable, key, name),
        "min": lambda variable, key: np.nanmin(flat(ds, key, variable)),
        "median": lambda variable, key: np.nanmedian(flat(ds, key, variable)),
        "max": lambda variable, key: np.nanmax(flat(ds, key, variable)),
        "directed": lambda key: (chosen(ds, key) & (flat(ds, key, "effect") != 0.5)).sum(),
        "larger": lambda key: (chosen(ds, key) & (flat(ds, key, "effect") > 0.5)).sum(),
        "smaller": lambda key: (chosen(ds, key) & (flat(ds, key, "effect") < 0.5)).sum(),
        "chosen-count": lambda key: chosen(ds, key).sum(),
        "chosen-box": lambda key, *edges: (block(ds, "q", key, *edges) < 0.05).sum(),
        "tenth-count": lambda key: (np.abs(flat(ds, key, "effect") - 0.5) >= tenth(ds, key)).sum(),
        "tenth-box": lambda key, *edges: (np.abs(block(ds, "effect", key, *edges) - 0.5) >= tenth(ds, key)).sum(),
        "box-area": lambda key, *edges: np.isfinite(block(ds, "q", key, *edges)).sum(),
        "stay": lambda key: (chosen(ds, key) & (flat(ds, key, "q_matched") < 0.05)).sum(),
        "both": lambda one, other: (chosen(ds, one) & chosen(ds, other)).sum(),
        "either": lambda one, other: (chosen(ds, one) | chosen(ds, other)).sum(),
        "jaccard": lambda one, other: (
            (chosen(ds, one) & chosen(ds, other)).sum() / (chosen(ds, one) | chosen(ds, other)).sum()
        ),
        "expected": lambda one, other: chosen(ds, one).mean() * chosen(ds, other).sum(),
        "correlation": lambda variable, one, other: correlation(ds, variable, one, other),
        "third": lambda key, index: 100 * (np.array_split(
            ds["p"].sel(part="whole", feature=key).values, 3)[int(index)] < 0.05).mean(),
        "peak": lambda key: int(np.abs(ds["effect"].sel(part="whole", feature=key) - 0.5).mean("head").argmax("layer")),
        "tested": lambda: sum(np.isfinite(flat(ds, key, "p")).sum() for key in measured),
        "chance": lambda: round(0.05 * sum(int(np.isfinite(flat(ds, key, "p")).sum()) for key in measured)),
        "length": lambda what: lengths(ds, what),
    }  # fmt: skip
    if kind in ("constant", "edge"):
        return number.value
    return float(rules[kind](*rest))


def stripped(words: Description, dataset: xr.Dataset) -> str:
    text = words.text() + words.short()
    for coord in ("label", "definition"):
        for name in dataset[coord].values:
            text = text.replace(str(name), "")
    return HEAD.sub("", text.replace("HuggingFaceTB/SmolLM2-135M-Instruct", "")).replace("95 %", "").replace("80 %", "")


@pytest.mark.parametrize("shape", [(30, 9), (12, 12), (6, 4), (1, 1), (1, 12), (12, 1), (3, 2)])
@pytest.mark.parametrize("options", [{}, {"strength": 0.0}, {"broad": 1.5}, {"broad": 0.5, "seed": 3, "examples": 300}])
def test_every_number_is_in_the_data(
    make_spectral: Callable[..., xr.Dataset], shape: tuple[int, int], options: dict[str, float]
) -> None:
    dataset = make_spectral(*shape, **options)
    words = describe("spectral", dataset)
    kept = Counter(match for number in words.numbers for match in NUMBER.findall(number.text))
    said = Counter(NUMBER.findall(stripped(words, dataset)))
    assert said.total() > 30
    assert not said - kept
    for number in words.numbers:
        assert number.value == pytest.approx(recomputed(number, dataset), rel=1e-5, abs=1e-6), number
    assert "not known" not in words.text()
    assert "nan" not in words.text().lower().split()


def test_planted_heads_are_named(spectral: xr.Dataset) -> None:
    words = describe("spectral", spectral)
    for line, way in zip(words.detail[:2], ("smaller", "larger"), strict=True):
        assert "layers 4 to 8, heads 2 to 5 (20 of 20)" in line
        named = HEAD.findall(line)
        assert len(named) == 3
        assert all(4 <= int(layer) <= 8 and 2 <= int(head) <= 5 for layer, head in named)
        assert line.count(f"{way} in wrong answers") >= 3
        assert "That is more than chance" in line
    said = "\n".join(words.observations)
    assert re.search(r"2\d heads have q < 0\.05 in both maps", said)
    assert "effects are largest in layer" in said
    assert words.short().endswith("more than chance.")


def test_the_lead_of_the_first_version_says_what_is_left_among_answers_of_the_same_length(spectral: xr.Dataset) -> None:
    spectral["q"][:] = spectral["q_matched"][:] = 0.8
    for key, found, left in (("attention_score", 9, 1), ("laplacian", 4, 0)):
        spectral["q"].loc[{"part": "whole", "feature": key, "layer": 3}] = [0.01] * found + [0.8] * (9 - found)
        spectral["q_matched"].loc[{"part": "whole", "feature": key, "layer": 3}] = [0.04] * left + [0.8] * (9 - left)
    new = {"part": "whole", "feature": "laplacian", "layer": 5, "head": 0}
    spectral["q_matched"].loc[new] = 0.01  # of a head that was not among those found
    expected = "; among answers of the same length (40 pairs) in 1 (AttnScore) and 0 (Laplacian eigenvalues)."
    old = as_version_1(spectral)
    assert describe("spectral", old).short().endswith(expected)
    assert "same length" not in describe("spectral", old.drop_vars(["p_matched", "q_matched"])).short()
    assert any(
        "is not controlled for: this Dataset is of an older version" in line
        for line in describe("spectral", old).caveats
    )


@pytest.mark.parametrize(
    ("within", "strict", "verdict"),
    [
        (3, 2, "more than chance."),
        (3, 0, "which length may explain."),
        (0, 0, "not more than chance."),
    ],
)
def test_the_lead_says_whether_heads_give_away_more_than_the_question(
    spectral: xr.Dataset, within: int, strict: int, verdict: str
) -> None:
    for name, found in (("within", within), ("strict", strict)):
        spectral[f"q_{name}"][:] = spectral[f"null_p_{name}"][:] = 0.6
        spectral[f"q_{name}"].loc[{"part": "whole", "feature": "laplacian", "layer": 3}] = [0.001] * found + [0.6] * (
            9 - found
        )
    words = describe("spectral", spectral)
    assert words.short().endswith(f"of 270 heads; among similar questions (topic) in 0 and {within}, {verdict}")
    against = words.interpretation[1]
    assert (
        f"0 and {within} remain within strata of topic; 0 and {strict} remain within strata of topic x length"
        in against
    )
    assert {
        "more than chance.": "they give away something about the error that these strata do not",
        "which length may explain.": "which the length of the answer may explain",
        "not more than chance.": "no sign that the heads give away more about the error than the question does",
    }[verdict] in against
    # more heads than with labels permuted within strata count as well, and a q just under 0.05 in one of two maps does not
    spectral["null_p_within"].loc[{"part": "whole", "feature": "laplacian"}] = 0.01
    assert "not more than chance" not in describe("spectral", spectral).short()
    if not within:  # no single head: what is more than chance is their number
        spectral["null_p_strict"].loc[{"part": "whole", "feature": "laplacian"}] = 0.01
        assert describe("spectral", spectral).short().endswith("in 0 and 0, though more have p < 0.05 than by chance.")
    spectral["null_p_within"][:], spectral["q_within"][:] = 0.6, 0.04
    assert "not more than chance" in describe("spectral", spectral).short()


def test_each_map_says_what_remains_within_strata_and_the_caveats_what_could_be_seen(spectral: xr.Dataset) -> None:
    words = describe("spectral", spectral)
    raw, q = ((flat(spectral, "laplacian", f"{name}_within") < 0.05).sum() for name in "pq")
    assert (
        f"Within strata of topic (3 with both wrong and correct answers, 160 answers), {raw} ({100 * raw / 270:.2g} %) have "
        f"p < 0.05, and {q} q < 0.05, more than with labels permuted within strata" in words.detail[1]
    )
    assert any(
        "if the AUROC of its feature is at least 0.62, within strata 0.66 (or as far below 0.5)" in line
        for line in words.caveats
    )


def test_no_difference_is_reported_as_none(make_spectral: Callable[..., xr.Dataset]) -> None:
    words = describe("spectral", make_spectral(strength=0.0))
    assert words.observations[0].startswith("No sign that AttnScore or Laplacian eigenvalues differs")
    assert all(
        "That is not more than chance" in line and line.endswith("It is not significant.") for line in words.detail[:2]
    )
    text = words.text()
    assert "of the heads with q < 0.05" not in text  # there are none
    for claim in ("differ most", "form clusters", "Jaccard", "rank correlation", "third of the layers"):
        assert claim not in text
    assert words.interpretation[0].startswith("It reads like this: no sign here that attention reveals errors")
    assert not HEAD.search(text)


def test_single_heads_can_remain_where_the_share_is_nothing(spectral: xr.Dataset) -> None:
    spectral["p"][:] = spectral["q"][:] = 0.8
    spectral["p"].loc[{"feature": "laplacian", "layer": 7, "head": 1}] = 0.0001
    spectral["q"].loc[{"feature": "laplacian", "layer": 7, "head": 1}] = 0.03
    spectral["null_p"][:] = 0.9
    line = describe("spectral", spectral).detail[1]
    assert "1 of 270 heads (0.37 %) has p < 0.05, and 1 (0.37 %) q < 0.05. That is not more than chance" in line
    assert "The share is not significant, but single heads are." in line
    assert "In the only head with q < 0.05 it is" in line
    assert "the one head with q < 0.05 " in line


def test_length_is_always_reported(make_spectral: Callable[..., xr.Dataset]) -> None:
    words = describe("spectral", make_spectral(broad=1.5))
    assert any(line.startswith("Length is a confounder: wrong answers have") for line in words.caveats)
    assert all("Among answers of the same length (" in line for line in words.detail[:2])
    bare = make_spectral(broad=1.5).drop_vars(["answer_tokens", "p_matched", "q_matched"])
    words = describe("spectral", bare)
    assert any(line.startswith("Answer lengths are not recorded") for line in words.caveats)
    assert "same length" not in words.text()


def test_what_was_not_measured_is_said_so(spectral: xr.Dataset) -> None:
    for name in ("p", "q", "effect", "effect_low", "effect_high", "p_matched", "q_matched"):
        spectral[name].loc[{"feature": "sink"}] = np.nan
        spectral[name].loc[{"feature": "laplacian", "layer": 0}] = np.nan
    words = describe("spectral", spectral)
    assert words.detail[-1] == "Not measured: First token (sink)."
    assert words.detail[1].endswith("9 heads were not measured.")
    for name in ("p", "q", "effect"):
        spectral[name][:] = np.nan
    words = describe("spectral", spectral)
    assert words.detail[0].endswith("not measured.") and words.detail[-1].startswith(
        "Not measured: AttnScore, Laplacian"
    )
    assert words.observations == words.interpretation == ()


def test_without_provenance_counts_or_null(spectral: xr.Dataset) -> None:
    words = describe("spectral", spectral.drop_vars(["null_mean", "null_high", "null_p"]).drop_attrs())
    assert "heads of the model (30 layers of 9 heads)" in words.overview[0]
    assert "96 wrong and 64 correct answers" in words.overview[0]
    assert "permuted labels" not in "".join(words.detail)


def test_it_reads_well(make_spectral: Callable[..., xr.Dataset]) -> None:
    for shape in ((30, 9), (1, 1), (1, 12)):
        words = describe("spectral", make_spectral(*shape, broad=1.0))
        assert list(words.sections())[:3] == ["Overview", "Axes and scale", "Detail"]
        text = words.text()
        assert "  " not in text
        assert ".." not in text
        assert not re.search(r"\b1 (heads|layers|tests|pairs|features)\b", text)


def test_a_judge_is_not_called_string_matching(spectral: xr.Dataset) -> None:
    assert "comparing strings" in describe("spectral", spectral).text()
    origin = json.loads(spectral.attrs["provenance"]) | {"parameters": {"judge": "http://localhost"}}
    assert "comparing strings" not in describe("spectral", spectral.assign_attrs(provenance=json.dumps(origin))).text()
