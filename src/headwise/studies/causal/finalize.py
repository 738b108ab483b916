"""From readings to the map of what the model needs: sums over texts, the correction of attributions, tests. Pure functions.

A reading is a sum over the tokens of one class in one prompt; S_i, over n_i tokens. Effects are per token, as a ratio:

    R = Σ S_i / Σ n_i,   interval: Student's t of the residuals (S_i - R n_i) / mean n, over prompts with such tokens

Correction, per ablation and class, on the heads that were ablated exactly. A second-order attribution has no upper limit, an
effect has: in early layers attributions of 10 nats stand for effects of 0.05. So effects level off, and large ones are
missed by more:

    E = b S(A) + error,   S(A) = A / (1 + |A| / c),   standard deviation of the error  s v,   v = |S| + median |S|

by maximum likelihood: b = Σ S E / v² / (Σ S² / v²), or 0 where that is negative, for every c of a grid; the best c, or a
straight line (c infinite) where that fits no worse by a likelihood ratio test. Heads that were chosen by their attribution
may take part, because they were chosen on other prompts.

A head that was not ablated has the effect b S(A), and an interval of half-width sqrt((b S'(A) · half of A)² + t² s² v²):
one over texts, and the error of the prediction. Its test uses the fewer degrees of freedom of the two. Heads are compared
with those of their layer whose output norm is most similar (`MATCHED` of them).
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
BENDS = 40  # points of the grid of c
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

    slope: float  # b, of small attributions
    saturation: float  # c, the attribution at which half of the straight line is left
    spread: float  # s
    floor: float  # the median |S|
    freedom: int  # heads that it was fitted on, less the parameters

    def scale(self, attribution: Floats) -> Floats:
        """Effect per attribution, of heads with these attributions."""
        return self.slope / (1 + np.abs(attribution) / self.saturation)

    def rise(self, attribution: Floats) -> Floats:
        """By how much the effect rises with the attribution there, b S'(A)."""
        return self.slope / (1 + np.abs(attribution) / self.saturation) ** 2

    def deviation(self, attribution: Floats) -> Floats:
        """Standard deviation of the error for heads with these attributions."""
        return self.spread * (np.abs(attribution) / (1 + np.abs(attribution) / self.saturation) + self.floor)


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
            "saturation": fitted.saturation if np.isfinite(fitted.saturation) else np.nan,
            "error": np.nan if self.was_ablated.all() else error_left_out(attribution[chosen], measured[chosen]),
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
        fitted = calibrate(attributed.value[self.first], measured.value[self.first])
        freedom = _freedom(tokens, fitted)
        level = stats.t.ppf(0.975, freedom)
        half = np.hypot(fitted.rise(attributed.value) * attributed.half, level * fitted.deviation(attributed.value))
        value = fitted.scale(attributed.value) * attributed.value
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
        fitted = calibrate(attribution[self.first], _ratio(self.exact[:, 0, 0], tokens).value[self.first])
        per_text = np.where(self.was_ablated, self.exact[:, 0, 0], fitted.scale(attribution) * sums)
        peers = matched_heads(self.norm, MATCHED)
        others = np.full_like(per_text, np.nan)
        for (layer, head), near in peers.items():
            others[:, layer, head] = per_text[:, layer, near].mean(1)
        excess, matched = _ratio(per_text - others, tokens), _ratio(others, tokens).value
        level = stats.t.ppf(0.975, _freedom(tokens, fitted))
        half = np.hypot(excess.half, np.where(self.was_ablated, 0, level * fitted.deviation(attribution)))
        return {
            "rank": ranks_in_layer(effect),
            "norm": self.norm,
            "matched": matched,
            "excess": excess.value,
            "excess_low": excess.value - half,
            "excess_high": excess.value + half,
        }


def _freedom(tokens: Floats, fitted: Calibration) -> int:
    """The fewer degrees of freedom of the prompts and of the correction."""
    return max(1, min(int((tokens > 0).sum()) - 1, fitted.freedom))


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
    """Exact effects as a curve of the attributions; a negative slope is no prediction and becomes 0.

    >>> found = calibrate(np.array([1.0, 2.0, -1.0, 4.0]), np.array([0.5, 1.0, -0.5, 2.0]))
    >>> found.slope, found.saturation
    (0.5, inf)
    """
    known = np.isfinite(attribution) & np.isfinite(exact)
    a, e = attribution[known], exact[known]
    if len(a) < 4 or not np.median(np.abs(a)):
        return Calibration(1.0, np.inf, np.nan, np.nan, max(1, len(a) - 1))
    bends = np.append(np.geomspace(np.median(np.abs(a)), 10 * np.abs(a).max(), BENDS), np.inf)
    size = a / (1 + np.abs(a) / bends[:, None])  # (bend, head)
    floor = np.median(np.abs(size), axis=1)
    v = np.abs(size) + floor[:, None]
    slope = np.maximum(0.0, (size * e / v**2).sum(1) / (size**2 / v**2).sum(1))
    squares = ((e - slope[:, None] * size) ** 2 / v**2).sum(1)
    with np.errstate(divide="ignore"):
        likelihood = -len(a) / 2 * np.log(squares / len(a)) - np.log(v).sum(1)
    best = int(np.argmax(likelihood))
    if likelihood[best] <= likelihood[-1] + stats.chi2.ppf(0.95, 1) / 2:
        best = BENDS
    freedom = len(a) - 1 - (best < BENDS)
    return Calibration(
        float(slope[best]), float(bends[best]), float(np.sqrt(squares[best] / freedom)), float(floor[best]), freedom
    )


def error_left_out(attribution: Floats, exact: Floats) -> float:
    """What a correction without the head misses, root mean square, as a share of the standard deviation of exact effects.

    >>> a = np.array([1.0, 2.0, -1.0, 4.0, 3.0])
    >>> round(error_left_out(a, 0.5 * a), 6)
    0.0
    """
    known = np.flatnonzero(np.isfinite(attribution) & np.isfinite(exact))
    a, e = attribution[known], exact[known]
    if len(known) < 5 or not (deviation := float(e.std(ddof=1))):
        return float("nan")
    others = (calibrate(np.delete(a, index), np.delete(e, index)) for index in range(len(known)))
    missed = [e[index] - float(other.scale(a[index]) * a[index]) for index, other in enumerate(others)]
    return float(np.sqrt(np.mean(np.square(missed)))) / deviation


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
