"""The figure of the spectral study: which heads' attention differs between wrong and correct answers?

Two layer x head maps side by side, AttnScore left, the largest Laplacian eigenvalues right. Each cell is the p-value of
a two-sided Mann-Whitney U test, with one colour bar for both: dark is 0. ``value="all"`` adds a row of maps with the effect
size (AUROC of the single feature: above 0.5 it is larger in wrong answers) and one with the Benjamini-Hochberg q-value. The
published scale is linear, on which all small p-values share one colour; ``scale="log"`` separates them. Each subtitle counts
the heads under 0.05; the note gives the share expected with permuted labels.

Source: Binkowski et al., arXiv 2502.17598. Averaging ten eigenvalues into one number is our choice.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

import numpy as np
import xarray as xr

from headwise.core.dims import FEATURE, HEAD, LAYER, PART
from headwise.core.errors import StudyError, did_you_mean
from headwise.figures.figure import Figure
from headwise.figures.head_maps import chosen_keys
from headwise.figures.panels import Axis, Heatmap
from headwise.figures.provenance import cell_names, provenance_caption, provenance_of, with_model
from headwise.figures.scale import Scale, ScaleMark, scale_around

ALPHA = 0.05
SCALES = ("linear", "log")
SMALLEST_P = 1e-6  # where a logarithmic scale ends
VALUES = {"p": "p-value", "effect": "AUROC", "q": "q-value"}
COMBINED = {"p_cauchy": "combined p (Cauchy)", "p_min": "combined p (smallest)"}  # of ten tests, one per rank
TOP_TEN = ("laplacian", "attention")  # features that are a mean of the ten largest
MAX_COLUMNS = 6
EXTRAS = ("p", "q", "effect", "effect_low", "effect_high", "p_matched", "q_matched")


def figure(
    dataset: xr.Dataset,
    *,
    features: Iterable[str] | str | None = ("attention_score", "laplacian"),
    part: str = "whole",
    value: str = "p",
    matched: bool = False,
    scale: str = "linear",
) -> Figure:
    """Maps of these features (None: of all), one column per feature and one row per value.

    ``part`` is "whole" (prompt and answer) or "answer"; ``value`` is "p", "q", "effect" or "all", or "p_cauchy" or
    "p_min" for the tests of single eigenvalues combined; with ``matched`` the tests are those between wrong and correct
    answers paired by length. ``scale`` of p- and q-values: "linear" or "log".
    """
    if scale not in SCALES:
        raise StudyError(f"The spectral figure has no scale {scale!r}. {did_you_mean(scale, SCALES)}")
    keys, rows = chosen_keys(dataset, FEATURE, features, "The spectral study"), _rows(dataset, value, matched)
    parts = [str(name) for name in dataset[PART].values]
    if part not in parts:
        raise StudyError(f"The spectral study has no part {part!r}. {did_you_mean(part, parts)}")
    chosen = dataset.sel({PART: part, FEATURE: keys})
    panels = [_panel(chosen, key, row, matched) for row in rows for key in keys]
    origin = provenance_of(dataset)
    return Figure(
        title=with_model(_title(dataset, part, matched), origin),
        panels=tuple(panels),
        columns=_columns(chosen, len(keys), len(panels)),
        scales={row: _scale(chosen, row, matched, log=scale == "log") for row in rows},
        notes=_notes(chosen, keys, rows, matched, log=scale == "log"),
        provenance=provenance_caption(origin),
    )


def _rows(dataset: xr.Dataset, value: str, matched: bool) -> list[str]:
    known = (*VALUES, *(name for name in COMBINED if name in dataset), "all")
    if value not in known:
        raise StudyError(f"The spectral figure cannot show {value!r}. {did_you_mean(value, known)}")
    if matched and value in ("effect", *COMBINED):
        raise StudyError(f"{value} is not measured on answers paired by length; leave out matched, or show p or q.")
    if matched and not {"p_matched", "q_matched"} <= set(dataset.data_vars):
        raise StudyError("This spectral study has no answers paired by length; leave out matched.")
    if value != "all":
        return [value]
    return [row for row in VALUES if not (matched and row == "effect")]


def _panel(chosen: xr.Dataset, key: str, row: str, matched: bool) -> Heatmap:
    one = chosen.sel({FEATURE: key}).transpose(LAYER, HEAD, ...)
    values = one[f"{row}_matched" if matched else row].values
    return Heatmap(
        key=f"{key} {row}",
        title=_label(chosen, key),
        subtitle=_share(values, row),
        values=values,
        x=Axis("Head", cell_names(one, HEAD)),
        y=Axis("Layer", cell_names(one, LAYER)),
        scale=row,
        extras={name: one[name].values for name in EXTRAS if name in one},
    )


def _share(values: np.ndarray, row: str) -> str:
    measured = values[np.isfinite(values)]
    if measured.size == 0:
        return "not measured"
    count = int((measured > 0.5).sum() if row == "effect" else (measured < ALPHA).sum())
    what = "larger in wrong answers" if row == "effect" else f"{row[0]} < {ALPHA}"
    return f"{what}: {count} of {measured.size} heads ({100 * count / measured.size:.0f}\u00a0%)"


def _scale(chosen: xr.Dataset, row: str, matched: bool, *, log: bool) -> Scale:
    if row == "effect":
        return scale_around(chosen["effect"].values, VALUES[row], centre=0.5)
    label = {**VALUES, **COMBINED}[row]
    if not log:
        return Scale(label, 0.0, 1.0)
    values = chosen[f"{row}_matched" if matched else row].values
    smallest = float(np.nanmin(values, initial=1.0))
    low = max(SMALLEST_P, 10.0 ** np.floor(np.log10(max(smallest, SMALLEST_P))))
    return Scale(label, min(low, 0.01), 1.0, under=smallest < low, marks=(ScaleMark(ALPHA, f"{ALPHA}"),), log=True)


def _columns(chosen: xr.Dataset, features: int, panels: int) -> int:
    """One row per value; tall maps all side by side, so that the page keeps its shape."""
    tall = chosen.sizes[LAYER] >= 1.8 * chosen.sizes[HEAD]
    return panels if tall and panels <= MAX_COLUMNS else min(features, MAX_COLUMNS)


def _title(dataset: xr.Dataset, part: str, matched: bool) -> str:
    title = dataset.attrs.get("title") or "Which heads differ between wrong and correct answers"
    title += ", answer tokens only" if part == "answer" else ""
    return f"{title}, answers paired by length" if matched else title


def _notes(chosen: xr.Dataset, keys: list[str], rows: list[str], matched: bool, *, log: bool) -> tuple[str, ...]:
    notes = [f"Each cell is one head. {_test(chosen, matched)}"]
    if "q" in rows:
        notes.append("q: Benjamini-Hochberg, over the heads of one map.")
    if "effect" in rows:
        notes.append("AUROC of the single feature: above 0.5 it is larger in wrong answers.")
    if set(rows) & set(COMBINED):
        notes.append("Ten tests per head, one for each of the ten largest eigenvalues, combined into one p-value.")
    elif any(key in TOP_TEN for key in keys):
        notes.append("Eigenvalues: the mean of the ten largest; averaging them is our choice.")
    if log and set(rows) - {"effect"}:
        notes.append(f"The colour scale is logarithmic; the pointer is at {ALPHA}.")
    if "p" in rows and not matched:
        notes.append(_chance(chosen, keys))
    shown = [f"{row}_matched" if matched else row for row in rows]
    if any(not np.isfinite(chosen[name].values).all() for name in shown):
        notes.append("Hatched: not measured.")
    return (" ".join(note for note in notes if note),)


def _test(chosen: xr.Dataset, matched: bool) -> str:
    counts = json.loads(chosen.attrs.get("counts", "{}"))
    test = "Two-sided Mann-Whitney U test"
    if matched:
        return f"{test}, {counts['pairs']} pairs of a wrong and a correct answer." if "pairs" in counts else f"{test}."
    if not {"wrong", "correct"} <= set(counts):
        return f"{test}, wrong against correct answers."
    refused = f"; {counts['refused']} refused, excluded" if counts.get("refused") else ""
    return f"{test}, {counts['wrong']} wrong against {counts['correct']} correct answers{refused}."


def _chance(chosen: xr.Dataset, keys: list[str]) -> str:
    """The share of heads under 0.05 with permuted labels."""
    if "null_high" not in chosen:
        return ""
    high = {key: 100 * float(chosen["null_high"].sel({FEATURE: key})) for key in keys}
    known = [f"{level:.2g} % ({_label(chosen, key)})" for key, level in high.items() if np.isfinite(level)]
    if not known:
        return ""
    return f"In 95 % of label permutations at most {', '.join(known)} of the heads have p < {ALPHA}."


def _label(chosen: xr.Dataset, key: str) -> str:
    return str(chosen["label"].sel({FEATURE: key}).values) if "label" in chosen.coords else key
