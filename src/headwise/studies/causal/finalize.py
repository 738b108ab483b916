"""From readings to the map of what the model needs: sums over texts, the correction of attributions, tests. Pure functions.

A reading is a sum over the tokens of one class in one prompt; S_i, over n_i tokens. Effects are per token, as a ratio:

    R = Σ S_i / Σ n_i,   interval: Student's t of the residuals (S_i - R n_i) / mean n, over prompts with such tokens

Correction, per ablation and class, on the random heads that were ablated exactly: exact = b · attribution + error with a
variance that grows with the attribution (large effects are missed by more), v = |A| + median |A|; by weighted least squares

    b = Σ A E / v / (Σ A² / v) or 0 where that is negative,   s² = Σ (E - b A)² / v / (n - 1)

A head that was not ablated has the effect b A, and an interval of half-width sqrt((b · half of A)² + t² s² v): one over
texts, and the error of the prediction. Its test uses the fewer degrees of freedom of the two. Heads are compared with those
of their layer whose output norm is most similar (`MATCHED` of them).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy import stats

from headwise.core.dims import ABLATION, EXAMPLE, HEAD, LAYER, PLACE, TOKEN_CLASS, parse_head
from headwise.stats import benjamini_hochberg, spearman, t_half_width
from headwise.studies.causal.classes import ANSWER
from headwise.studies.matched_heads import matched_heads

__all__ = ["finalize"]

ALL = "all"  # tokens of every class, answers excepted
MATCHED = 4  # heads of the layer with the most similar norm
CLASS_INFO = {  # class -> label, definition of the predicted token
    ALL: ("all tokens", "every predicted token of the texts"),
    "repeated": ("repeated tokens", "the token occurred earlier in the prompt"),
    "name": ("names", "the token begins with a capital letter, not at the start of a sentence"),
    "number": ("numbers", "the token contains a digit"),
    "delimiter": ("delimiters", "the token is punctuation or a line end"),
    "sentence_start": ("sentence starts", "the token follows the end of a sentence or line"),
    "other": ("other tokens", "none of the other classes"),
    ANSWER: ("gold answers", "the token belongs to the expected answer to a question"),
}
Floats = NDArray[np.float64]


class Calibration(NamedTuple):
    """How exact effects follow from attributions."""

    slope: float  # b
    spread: float  # s
    floor: float  # the median |attribution|
    error: float  # root mean square of what is missed, as a share of the standard deviation of the exact effects
    heads: int  # that it was fitted on

    def variance(self, attribution: Floats) -> Floats:
        """Of the error for heads with these attributions."""
        return self.spread**2 * (np.abs(attribution) + self.floor)


class TestedValue(NamedTuple):
    """A number per head with half of the width of its interval and its p-value."""

    value: Floats
    half: Floats
    p: Floats


def finalize(shards: Sequence[xr.Dataset]) -> xr.Dataset:
    """All shards to one Dataset."""
    readings = xr.concat(shards, dim=EXAMPLE, data_vars="all")
    readings = readings.transpose(EXAMPLE, ABLATION, TOKEN_CLASS, LAYER, HEAD, PLACE)
    ablations = [str(name) for name in readings[ABLATION].values]
    classes = [ALL, *(str(name) for name in readings[TOKEN_CLASS].values)]
    result = _Result(readings)
    maps: dict[str, list[list[Any]]] = {}
    for kind in range(len(ablations)):
        for index in range(len(classes)):
            for name, value in result.of_class(kind, index).items():
                maps.setdefault(name, [[] for _ in ablations])[kind].append(value)
    own = (ABLATION, TOKEN_CLASS)
    data: dict[str, Any] = {}
    for name, rows in maps.items():
        values = np.array(rows, dtype=np.float64)
        data[name] = (own + (LAYER, HEAD) * (values.ndim == 4), values)
    for name, values in result.divergences().items():
        data[name] = ((ABLATION, LAYER, HEAD), values)
    for name, values in result.compared(np.array(maps["effect"][0][0])).items():
        data[name] = ((LAYER, HEAD), values)
    data["tokens"] = (TOKEN_CLASS, result.tokens.sum(0))
    data["loss"] = (TOKEN_CLASS, _per_token(result.loss.sum(0), result.tokens.sum(0)))
    labels, definitions = zip(*(CLASS_INFO[name] for name in classes), strict=True)
    return (
        xr.Dataset(data)
        .astype(np.float32)
        .assign(checked=((LAYER, HEAD), result.checked))
        .assign_coords(
            {
                ABLATION: np.array(ablations, dtype=object),
                TOKEN_CLASS: np.array(classes, dtype=object),
                "label": (TOKEN_CLASS, np.array(labels, dtype=object)),
                "definition": (TOKEN_CLASS, np.array(definitions, dtype=object)),
                LAYER: readings[LAYER].values,
                HEAD: readings[HEAD].values,
            }
        )
        .assign_attrs(
            title="What the model loses without each head", record=json.dumps(["effect", "rank", "excess", "kl"])
        )
    )


class _Result:
    """The readings as arrays, with the class of all tokens in front."""

    def __init__(self, readings: xr.Dataset) -> None:
        def with_all(name: str, axis: int) -> Floats:
            values = readings[name].values.astype(np.float64)
            texts = np.take(values, in_texts, axis)
            return np.concatenate([texts.sum(axis, keepdims=True), values], axis)

        in_texts = np.flatnonzero(readings[TOKEN_CLASS].values != ANSWER)

        self.tokens, self.loss = with_all("tokens", 1), with_all("loss", 1)  # (example, class)
        self.first_order, curvature = with_all("first_order", 2), with_all("curvature", 2)
        self.attribution = self.first_order + curvature  # (example, ablation, class, layer, head)
        self.curvature = curvature[:, :, 0]  # of all tokens
        self.norm = readings["norm"].values.astype(np.float64).mean(0)
        shape = self.norm.shape
        exact, exact_kl = with_all("exact", 2), with_all("exact_kl", 2)[:, :, 0]
        self.exact = np.full((*exact.shape[:3], *shape), np.nan)
        self.exact_kl = np.full((*exact_kl.shape[:2], *shape), np.nan)
        self.checked = np.full(shape, "", dtype=object)
        self.first = np.zeros(shape, dtype=bool)  # one head of every unit that was ablated
        for place, (name, heads) in enumerate(zip(readings[PLACE].values, readings["heads"].values, strict=True)):
            layer, head = parse_head(str(name))
            own = slice(head, head + int(heads))
            self.exact[..., layer, own] = exact[..., place, None]
            self.exact_kl[..., layer, own] = exact_kl[..., place, None]
            self.checked[layer, own] = str(readings["role"].values[place])
            self.first[layer, head] = True
        self.was_ablated = self.checked != ""
        self.random = self.first & (self.checked == "random")

    def of_class(self, kind: int, index: int) -> dict[str, Any]:
        """All numbers of one ablation and one class of tokens."""
        sums, exact, tokens = self.attribution[:, kind, index], self.exact[:, kind, index], self.tokens[:, index]
        effect, fitted = self._corrected(sums, exact, tokens)
        attribution, first = _ratio(sums, tokens).value, _ratio(self.first_order[:, kind, index], tokens).value
        measured = _ratio(exact, tokens).value
        chosen, random = self.first, self.random
        return {
            "effect": effect.value,
            "effect_low": effect.value - effect.half,
            "effect_high": effect.value + effect.half,
            "p": effect.p,
            "q": benjamini_hochberg(effect.p),
            "attribution": attribution,
            "first_order": first,
            "agreement": spearman(attribution[chosen], measured[chosen]),
            "agreement_random": spearman(attribution[random], measured[random]),
            "agreement_first_order": spearman(first[random], measured[random]),
            "concordance": concordance(attribution, measured, chosen),
            "slope": fitted.slope,
            "error": fitted.error,
        }

    def divergences(self) -> dict[str, Floats]:
        """The KL of all tokens, corrected in the same way."""
        rows = [
            self._corrected(self.curvature[:, kind], self.exact_kl[:, kind], self.tokens[:, 0])[0]
            for kind in range(self.curvature.shape[1])
        ]
        plain = [_ratio(self.curvature[:, kind], self.tokens[:, 0]).value for kind in range(self.curvature.shape[1])]
        return {
            "kl": np.array([one.value for one in rows]),
            "kl_low": np.array([one.value - one.half for one in rows]),
            "kl_high": np.array([one.value + one.half for one in rows]),
            "kl_attribution": np.array(plain),
        }

    def _corrected(self, sums: Floats, exact: Floats, tokens: Floats) -> tuple[TestedValue, Calibration]:
        """Exact effects, and corrected attributions of the other heads."""
        attributed, measured = _ratio(sums, tokens), _ratio(exact, tokens)
        fitted = calibrate(attributed.value[self.random], measured.value[self.random])
        freedom = _freedom(tokens, fitted)
        level = stats.t.ppf(0.975, freedom)
        half = np.sqrt((fitted.slope * attributed.half) ** 2 + level**2 * fitted.variance(attributed.value))
        value = fitted.slope * attributed.value
        known = self.was_ablated
        return (
            TestedValue(
                np.where(known, measured.value, value),
                np.where(known, measured.half, half),
                np.where(known, measured.p, _p_value(value, half, freedom)),
            ),
            fitted,
        )

    def compared(self, effect: Floats) -> dict[str, Floats]:
        """Ranks in the layer, and the excess over heads of similar norm; mean ablation, all tokens."""
        sums, tokens = self.attribution[:, 0, 0], self.tokens[:, 0]
        attribution = _ratio(sums, tokens).value
        fitted = calibrate(attribution[self.random], _ratio(self.exact[:, 0, 0], tokens).value[self.random])
        per_text = np.where(self.was_ablated, self.exact[:, 0, 0], fitted.slope * sums)  # (example, layer, head)
        peers = matched_heads(self.norm, MATCHED)
        others = np.full_like(per_text, np.nan)
        for (layer, head), near in peers.items():
            others[:, layer, head] = per_text[:, layer, near].mean(1)
        excess, matched = _ratio(per_text - others, tokens), _ratio(others, tokens).value
        level = stats.t.ppf(0.975, _freedom(tokens, fitted))
        half = np.sqrt(excess.half**2 + np.where(self.was_ablated, 0, level**2 * fitted.variance(attribution)))
        return {
            "rank": ranks_in_layer(effect),
            "norm": self.norm,
            "matched": matched,
            "excess": excess.value,
            "excess_low": excess.value - half,
            "excess_high": excess.value + half,
        }


def _freedom(tokens: Floats, fitted: Calibration) -> int:
    """The fewer of prompts and random heads, less one."""
    return max(1, min(int((tokens > 0).sum()), fitted.heads) - 1)


def _per_token(sums: Floats, tokens: Floats) -> Floats:
    with np.errstate(invalid="ignore", divide="ignore"):
        return sums / tokens


def _ratio(sums: Floats, tokens: Floats) -> TestedValue:
    """Per token, over the prompts with such tokens: (example, ...) and (example,); NaN where there are none."""
    sums, tokens = sums[tokens > 0], tokens[tokens > 0]
    if not len(tokens):
        unknown = np.full(sums.shape[1:], np.nan)
        return TestedValue(unknown, unknown, unknown)
    count = tokens.reshape(-1, *[1] * (sums.ndim - 1))
    value = sums.sum(0) / count.sum(0)
    half = t_half_width((sums - value * count) / count.mean(0))
    return TestedValue(value, half, _p_value(value, half, max(1, len(tokens) - 1)))


def _p_value(value: Floats, half: Floats, freedom: int) -> Floats:
    """Two-sided, of a value whose 95 % interval has this half-width; NaN where nothing varies."""
    with np.errstate(invalid="ignore", divide="ignore"):
        found = 2 * stats.t.sf(np.abs(value) / (half / stats.t.ppf(0.975, freedom)), freedom)
    return np.where(half > 0, found, np.nan)


def calibrate(attribution: Floats, exact: Floats) -> Calibration:
    """The weighted regression of exact effects on attributions, through 0; a negative slope is no prediction and becomes 0.

    >>> calibrate(np.array([1.0, 2.0, -1.0]), np.array([0.5, 1.0, -0.5]))
    Calibration(slope=0.5, spread=0.0, floor=1.0, error=0.0, heads=3)
    """
    known = np.isfinite(attribution) & np.isfinite(exact)
    a, e = attribution[known], exact[known]
    floor = float(np.median(np.abs(a))) if len(a) else 0.0
    if len(a) < 2 or floor == 0:
        return Calibration(1.0, float("nan"), floor, float("nan"), len(a))
    v = np.abs(a) + floor
    slope = max(0.0, float((a * e / v).sum() / (a * a / v).sum()))
    missed = e - slope * a
    spread = float(np.sqrt((missed**2 / v).sum() / (len(a) - 1)))
    deviation = float(e.std(ddof=1))
    error = float(np.sqrt((missed**2).mean()) / deviation) if deviation else float("nan")
    return Calibration(slope, spread, floor, error, len(a))


def concordance(one: Floats, other: Floats, chosen: NDArray[np.bool_]) -> float:
    """The share of pairs of chosen heads of one layer that both maps order alike; NaN where there is no such pair.

    >>> concordance(np.array([[1.0, 2.0, 3.0]]), np.array([[1.0, 3.0, 2.0]]), np.ones((1, 3), dtype=bool)).__round__(2)
    0.67
    """
    alike = total = 0
    for a, b, own in zip(one, other, chosen, strict=True):
        a, b = a[own], b[own]
        signs = np.sign(a[:, None] - a) * np.sign(b[:, None] - b)
        upper = np.triu_indices(len(a), 1)
        alike += int((signs[upper] > 0).sum())
        total += int((signs[upper] != 0).sum())
    return alike / total if total else float("nan")


def ranks_in_layer(effect: Floats) -> Floats:
    """1 for the largest effect of each layer; NaN stays NaN.

    >>> ranks_in_layer(np.array([[0.1, 0.5, np.nan], [0.3, 0.2, 0.1]]))
    array([[ 2.,  1., nan],
           [ 1.,  2.,  3.]])
    """
    return np.where(np.isfinite(effect), stats.rankdata(-effect, axis=1, method="min", nan_policy="omit"), np.nan)
