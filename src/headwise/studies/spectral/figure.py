"""The figure of the spectral study: which heads' attention differs between wrong and correct answers?

Two layer x head maps side by side, AttnScore left, the largest Laplacian eigenvalues right. Each cell is the p-value of
a two-sided Mann-Whitney U test, with one colour bar for both: dark is 0. ``value="all"`` adds a row of maps with the effect
size (AUROC of the single feature: above 0.5 it is larger in wrong answers) and one with the Benjamini-Hochberg q-value. The
published scale is linear, on which all small p-values share one colour; ``scale="log"`` separates them. Each subtitle counts
the heads under 0.05; the note gives the share expected with permuted labels, how many heads remain within strata of alike
questions, and which AUROC the data could have shown. ``within`` and ``matched`` draw the tests within strata and among answers
of the same length. ``style="paper"`` leaves the counts over the maps out and names the axes as published.

Source: Binkowski et al., arXiv 2502.17598. Averaging ten eigenvalues into one number is our choice.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypedDict

import numpy as np
import xarray as xr

from headwise.core.dims import FEATURE, HEAD, LAYER, PART
from headwise.core.errors import StudyError, did_you_mean
from headwise.core.parsing import parse_attribute
from headwise.figures.figure import Figure
from headwise.figures.head_maps import chosen_keys
from headwise.figures.panels import Axis, Heatmap
from headwise.figures.provenance import cell_names
from headwise.figures.scale import Scale, ScaleMark, scale_around
from headwise.stats.multiple_testing import ALPHA

SMALLEST_P = 1e-6  # where a logarithmic scale ends
VALUES = {"p": "p-value", "effect": "AUROC", "q": "q-value"}
COMBINED = {"p_cauchy": "combined p (Cauchy)", "p_min": "combined p (smallest)"}  # of ten tests, one per rank
TOP_TEN = ("laplacian", "attention")  # features that are a mean of the ten largest
MAX_COLUMNS = 6
EXTRAS = (
    "p", "q", "effect", "effect_low", "effect_high", "p_within", "q_within", "effect_within", "p_matched", "q_matched",
)  # fmt: skip


def figure(
    dataset: xr.Dataset,
    *,
    features: Iterable[str] | str | None = ("attention_score", "laplacian"),
    part: str = "whole",
    value: str = "p",
    within: bool = False,
    matched: bool = False,
    scale: str = "linear",
    cap: float = 1.0,
    axes: Iterable[str] | str | None = None,
    style: str = "full",
) -> Figure:
    """Maps of these features (None: of all), one column per feature and one row per value.

    ``part`` is "whole" (prompt and answer) or "answer"; ``value`` is "p", "q", "effect" or "all", or "p_cauchy" or
    "p_min" for the tests of single eigenvalues combined. ``within`` compares answers to similar questions only, ``matched``
    answers of the same length only. ``scale`` of p- and q-values: "linear" or "log"; ``cap``: its upper end. ``axes``: the
    names of the horizontal and the vertical axis.
    """
    if not 0 < cap <= 1:
        raise StudyError(
            f"The cap of the colour scale is {cap}; p- and q-values need one above 0 and at most 1, such as 0.5."
        )
    names = _axis_names(axes, style)
    keys, kind = chosen_keys(dataset, FEATURE, features, "The spectral study"), _kind(dataset, within, matched)
    rows = _rows(dataset, value, kind)
    parts = [str(name) for name in dataset[PART].values]
    if part not in parts:
        raise StudyError(f"The spectral study has no part {part!r}. {did_you_mean(part, parts)}")
    chosen = dataset.sel({PART: part, FEATURE: keys})
    panels = [_panel(chosen, key, row, kind, names) for row in rows for key in keys]
    found = Figure(
        title=_title(dataset, part, kind),
        panels=tuple(panels),
        columns=_columns(chosen, len(keys), len(panels)),
        scales={row: _scale(chosen, row, kind, cap, log=scale == "log") for row in rows},
        notes=_notes(chosen, keys, rows, kind, log=scale == "log"),
    )
    return found.without_subtitles() if style == "paper" else found


def _axis_names(axes: Iterable[str] | str | None, style: str) -> tuple[str, str]:
    """Of the heads and of the layers."""
    if axes is None:
        return ("Head index", "Layer index") if style == "paper" else ("Head", "Layer")
    names = [name.strip() for name in (axes.split(",") if isinstance(axes, str) else axes)]
    if len(names) != 2:
        raise StudyError(
            f"axes takes two names, of the heads and of the layers, not {len(names)}; write --axes Head,Layer."
        )
    return names[0], names[1]


def _kind(dataset: xr.Dataset, within: bool, matched: bool) -> str:
    """Which tests are drawn, as the end of their variables' names: "", "_within" or "_matched"."""
    if within and matched:
        raise StudyError("The tests are those on similar questions or those on equal lengths; give within or matched.")
    if within and "p_within" not in dataset:
        raise StudyError(
            "This spectral study was measured before tests within strata of similar questions; leave out within, or "
            "measure it again (headwise build --redo spectral)."
        )
    if matched and not {"p_matched", "q_matched"} <= set(dataset.data_vars):
        raise StudyError("This spectral study has no answers of the same length; leave out matched.")
    return "_within" if within else "_matched" if matched else ""


def _rows(dataset: xr.Dataset, value: str, kind: str) -> list[str]:
    known = (*VALUES, *(name for name in COMBINED if name in dataset), "all")
    if value not in known:
        raise StudyError(f"The spectral figure cannot show {value!r}. {did_you_mean(value, known)}")
    if kind and value in COMBINED:
        raise StudyError(f"{value} is measured on all answers only; leave out {kind[1:]}, or show p or q.")
    if kind == "_matched" and value == "effect":
        raise StudyError("effect is not measured on answers of the same length; leave out matched, or show p or q.")
    if value != "all":
        return [value]
    return [row for row in VALUES if not (kind == "_matched" and row == "effect")]


def _panel(chosen: xr.Dataset, key: str, row: str, kind: str, axes: tuple[str, str]) -> Heatmap:
    one = chosen.sel({FEATURE: key}).transpose(LAYER, HEAD, ...)
    values = one[f"{row}{kind}"].values
    return Heatmap(
        key=f"{key} {row}",
        title=_label(chosen, key),
        subtitle=_share(values, row),
        values=values,
        x=Axis(axes[0], cell_names(one, HEAD)),
        y=Axis(axes[1], cell_names(one, LAYER)),
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


def _scale(chosen: xr.Dataset, row: str, kind: str, cap: float, *, log: bool) -> Scale:
    if row == "effect":
        return scale_around(chosen[f"effect{kind}"].values, VALUES[row], centre=0.5)
    label, values = {**VALUES, **COMBINED}[row], chosen[f"{row}{kind}"].values
    over = bool((values > cap).any())
    if not log:
        return Scale(label, 0.0, cap, over=over)
    smallest = float(np.nanmin(values, initial=1.0))
    low = max(SMALLEST_P, 10.0 ** np.floor(np.log10(max(smallest, SMALLEST_P))))
    low, marks = min(low, 0.01, cap / 10), (ScaleMark(ALPHA, f"{ALPHA}"),)
    return Scale(label, low, cap, over=over, under=smallest < low, marks=marks, log=True)


def _columns(chosen: xr.Dataset, features: int, panels: int) -> int:
    """One row per value; tall maps all side by side, so that the page keeps its shape."""
    tall = chosen.sizes[LAYER] >= 1.8 * chosen.sizes[HEAD]
    return panels if tall and panels <= MAX_COLUMNS else min(features, MAX_COLUMNS)


def _title(dataset: xr.Dataset, part: str, kind: str) -> str:
    title = dataset.attrs.get("title") or "Which heads differ between wrong and correct answers"
    title += ", answer tokens only" if part == "answer" else ""
    return title + {"": "", "_within": ", similar questions compared", "_matched": ", answers of the same length"}[kind]


def _notes(chosen: xr.Dataset, keys: list[str], rows: list[str], kind: str, *, log: bool) -> tuple[str, ...]:
    notes = [f"Each cell is one head. {_test(chosen, kind)}"]
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
    if "p" in rows:
        notes.append(_chance(chosen, keys, kind))
    if not kind:
        notes.append(_within(chosen, keys))
    notes.append(_power(chosen, keys, kind))
    if any(not np.isfinite(chosen[f"{row}{kind}"].values).all() for row in rows):
        notes.append("Hatched: not measured.")
    return (" ".join(note for note in notes if note),)


def _test(chosen: xr.Dataset, kind: str) -> str:
    counts = parse_attribute(chosen.attrs, "counts", dict[str, int], "{}")
    if kind == "_matched" and "pairs" in counts:  # measured by version 1 or 2 of the study
        return f"Two-sided Mann-Whitney U test, {counts['pairs']} pairs of a wrong and a correct answer of the same length."
    if kind:
        strata = strata_of(chosen).get(kind[1:], {})
        used = f" ({strata['strata']} with both kinds, {strata['answers']} answers)" if strata else ""
        what = (
            "of the same length"
            if kind == "_matched"
            else f"within strata of {strata.get('kind', 'similar questions')}"
        )
        return f"Van Elteren's stratified test of wrong against correct answers {what}{used}."
    test = "Two-sided Mann-Whitney U test"
    if not {"wrong", "correct"} <= set(counts):
        return f"{test}, wrong against correct answers."
    refused = f"; {counts['refused']} refused, excluded" if counts.get("refused") else ""
    return f"{test}, {counts['wrong']} wrong against {counts['correct']} correct answers{refused}."


class StrataSummary(TypedDict, total=False):
    """How strata were made, how many have both classes, and how many answers are in them."""

    kind: str
    strata: int
    answers: int


def strata_of(dataset: xr.Dataset) -> dict[str, StrataSummary]:
    """For "within", "strict" and "matched": the kind of strata, how many have both classes, and the answers in them."""
    return parse_attribute(dataset.attrs, "strata", dict[str, StrataSummary], "{}")


def _within(chosen: xr.Dataset, keys: list[str]) -> str:
    """How many heads differ within strata of similar questions."""
    if "q_within" not in chosen:
        return "The question's own influence was not controlled for."
    counts = []
    for name in ("q", "q_within", "q_strict"):
        if name in chosen:
            found = [int((chosen[name].sel({FEATURE: key}).values < ALPHA).sum()) for key in keys]
            counts.append(", ".join(map(str, found)))
    strata = strata_of(chosen)
    text = f"Heads with q < {ALPHA} ({', '.join(_label(chosen, key) for key in keys)}): {counts[0]}; within strata of "
    text += f"{strata.get('within', {}).get('kind', 'similar questions')}: {counts[1]}"
    if len(counts) > 2:
        text += f"; of {strata.get('strict', {}).get('kind', 'stricter kind')}: {counts[2]}"
    return f"{text}."


def _power(chosen: xr.Dataset, keys: list[str], kind: str) -> str:
    """The AUROC that the data could have shown."""
    name = f"detectable{kind}"
    if name not in chosen:
        return ""
    values = [float(chosen[name].sel({FEATURE: key})) for key in keys]
    known = sorted({f"{value:.2f}" for value in values if np.isfinite(value)})
    if not known:
        return ""
    needed = known[0] if len(known) == 1 else f"{known[0]} to {known[-1]}"
    return (
        f"With 80 % power these answers show one head among all of its map from an AUROC of {needed} (or 1 minus it)."
    )


def _chance(chosen: xr.Dataset, keys: list[str], kind: str) -> str:
    """The share of heads under 0.05 with permuted labels."""
    if f"null_high{kind}" not in chosen:
        return ""
    high = {key: 100 * float(chosen[f"null_high{kind}"].sel({FEATURE: key})) for key in keys}
    known = [f"{level:.2g} % ({_label(chosen, key)})" for key, level in high.items() if np.isfinite(level)]
    if not known:
        return ""
    how = "label permutations within strata" if kind else "label permutations"
    return f"In 95 % of {how} at most {', '.join(known)} of the heads have p < {ALPHA}."


def _label(chosen: xr.Dataset, key: str) -> str:
    return str(chosen["label"].sel({FEATURE: key}).values) if "label" in chosen.coords else key
