"""Is this answer wrong? A fitted detector that scores new answers, says how sure it is, and which heads drove it.

    detector = Detector.fit({"LapEigvals": eigenvalues}, labels)
    detector.predict_proba({"LapEigvals": new})[:, 1]        # calibrated P(wrong)
    detector.explain({"LapEigvals": new})["per_head"]         # (example, layer, head): signed, adds up to the log-odds
    detector.save("atlas/detector")                           # detector.json + detector.safetensors; no pickle

One feature set: the detector of the sheet (``classifier``); k is chosen by cross-validation inside what it is given.
Several: each its own detector, weighed by an upper storey that learns from out-of-fold scores (``stacking``); a set of
one number an answer (a log-probability) goes to the upper storey directly. Either way the result is one linear
function,

    log-odds = Σ_blocks Σ (x - mean) · weights  +  intercept

so the share of a head is the sum of its own terms: what it adds, against the average training answer. That is an
account of this detector, exactly; it is not a claim that the head causes the error, and of two heads that say the same
the penalty splits the credit. Calibration: ``calibration``, on out-of-fold scores.

Cost: a fit with 5 k, 500 answers, 27,000 features takes about a second; scoring is one product. This module does not
know how good the detector is: ``table`` does, on folds that had no part in any choice.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from headwise.core.dims import EXAMPLE, FEATURE, HEAD, LAYER
from headwise.core.errors import DataError
from headwise.probes import detector_file
from headwise.probes.block import Block
from headwise.probes.calibration import Platt, fit_platt
from headwise.probes.classifier import COMPONENTS, fit
from headwise.probes.components import coordinates
from headwise.probes.crossvalidation import assign_folds, choose, out_of_fold
from headwise.probes.features import KS, all_named, choices, columns, select, what_to_choose
from headwise.probes.stacking import fit_storey, out_of_fold_storey
from headwise.stats.validation import MIN_PER_CLASS, Labels, as_groups, as_labels

__all__ = ["Detector"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SEEN = "seen"  # in `about`: what each feature set added, at the least and at the most, in the answers it was fitted on
_ONLY = "features"  # the name of a feature set that came without one


@dataclass(frozen=True)
class Detector:
    """A fitted detector. Made by ``Detector.fit`` or ``Detector.load``.

    Examples:
        >>> generator = np.random.default_rng(0)
        >>> wrong = np.arange(80) % 2 == 0
        >>> heads = generator.normal(size=(80, 2, 3))
        >>> heads[wrong, 1, 2] += 2.0  # one head tells
        >>> detector = Detector.fit(heads, wrong)
        >>> bool((detector.predict_proba(heads)[:, 1] > 0.5)[wrong].mean() > 0.7)
        True
        >>> abs(detector.explain(heads[:1]).per_head).argmax(["layer", "head"])["head"].item()
        2
    """

    blocks: Mapping[str, Block]
    """weights of each feature set"""
    intercept: float
    """log-odds of the average training answer"""
    calibration: Platt
    """from log-odds to a probability that can be believed"""
    about: Mapping[str, Any] = field(default_factory=dict)
    """what it was fitted on: counts, seed, and what the caller adds (model, data)"""

    @classmethod
    def fit(
        cls,
        features: Any,
        labels: Any,
        *,
        ks: Sequence[int] = KS,
        components: int | None = COMPONENTS,
        folds: int = 10,
        seed: int = 0,
        groups: Any = None,
        least: int = MIN_PER_CLASS,
        about: Mapping[str, Any] | None = None,
    ) -> Detector:
        """Fit on one feature set, or on several by name.

        Args:
            features: (example, ...), or several of them by name.
            labels: (example,), True for wrong answers.
            ks: numbers of eigenvalues that are tried, where features have a dim ``rank``.
            components: of the PCA; None: all.
            folds: in which choices are made and the calibration is fitted.
            seed: of the folds.
            groups: (example,), examples that belong together and stay in one fold.
            least: answers of each class that are asked for.
            about: what it was fitted on, to be kept with it.

        Returns:
            The detector.
        """
        given = features if isinstance(features, Mapping) else {_ONLY: features}
        if not given:
            raise DataError("There is no feature set to fit a detector on; give at least one.")
        wrong = as_labels(labels, min_per_class=least)
        arrays = all_named(given, len(wrong))
        fold_of = assign_folds(wrong, folds=folds, seed=seed, groups=as_groups(groups, len(wrong)))
        fitted = {
            name: _fit_block(array, name, wrong, fold_of, ks, components, alone=len(arrays) == 1)
            for name, array in arrays.items()
        }
        _refuse_unlike_heads(fitted)
        blocks = {name: block for name, (block, _, _) in fitted.items()}
        if len(blocks) == 1:
            ((_, intercept, score),) = fitted.values()
        else:
            inputs = np.stack([held_out for _, _, held_out in fitted.values()], axis=1)
            storey = fit_storey(inputs, wrong)
            score = out_of_fold_storey(inputs, wrong, fold_of)
            share = storey.linear.weights / storey.spread
            own = np.array([block_intercept for _, block_intercept, _ in fitted.values()])
            intercept = float(storey.linear.intercept + share @ (own - storey.centre))
            blocks = {
                name: replace(block, weights=block.weights * factor)
                for (name, block), factor in zip(blocks.items(), share, strict=True)
            }
        counts = {"n_wrong": int(wrong.sum()), "n_right": int((~wrong).sum()), "folds": folds, "seed": seed}
        detector = cls(blocks, intercept, fit_platt(score, wrong), {**counts, **(about or {})})
        return replace(detector, about={**detector.about, SEEN: detector._ranges(given)})

    def logit(self, features: Any) -> Floats:
        """(example,): log-odds of "wrong", as if both classes were equally common; above 0 the detector calls it
        wrong.
        """
        return self._sum(
            {name: terms.reshape(len(terms), -1).sum(axis=1) for name, terms in self._terms(features).items()}
        )

    def predict_proba(self, features: Any, *, calibrated: bool = True) -> Floats:
        """(example, 2): probability of "right" and of "wrong"; ``calibrated=False`` gives the regression's own."""
        calibration = self.calibration if calibrated else Platt(1.0, 0.0)
        wrong = calibration(self.logit(features))
        return np.stack([1 - wrong, wrong], axis=1)

    def explain(self, features: Any) -> xr.Dataset:
        """What drove each score. ``per_block.sum("feature")`` plus the attribute ``intercept`` is ``logit``.

        ``per_head`` (example, layer, head), where any block has heads, is the sum over those blocks.
        """
        terms = self._terms(features)
        totals = {name: found.reshape(len(found), -1).sum(axis=1) for name, found in terms.items()}
        score = self._sum(totals)
        variables: dict[str, Any] = {
            "per_block": ((EXAMPLE, FEATURE), np.stack(list(totals.values()), axis=1)),
            "logit": (EXAMPLE, score),
            "probability": (EXAMPLE, self.calibration(score)),
        }
        coords: dict[str, Any] = {FEATURE: list(totals)}
        heads = [self.blocks[name].per_head(found) for name, found in terms.items() if self.blocks[name].has_heads]
        if heads:
            variables["per_head"] = ((EXAMPLE, LAYER, HEAD), np.sum(heads, axis=0))
            coords |= {LAYER: np.arange(heads[0].shape[1]), HEAD: np.arange(heads[0].shape[2])}
        return xr.Dataset(variables, coords=coords, attrs={"intercept": self.intercept})

    def unusual(self, explained: xr.Dataset) -> list[list[str]]:
        """For each example the feature sets that add more or less than for any answer it was fitted on.

        Such an answer is unlike all that the detector knows, and its probability is a guess.
        """
        seen = self.about.get(SEEN, {})
        per_block = explained["per_block"]
        return [
            [
                str(name)
                for name, value in zip(explained[FEATURE].values, row, strict=True)
                if name in seen and not seen[name][0] <= value <= seen[name][1]
            ]
            for row in per_block.transpose(EXAMPLE, FEATURE).values
        ]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write PATH.json and PATH.safetensors."""
        detector_file.write(path, self.blocks, self.intercept, self.calibration, self.about)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Detector:
        """Read what ``save`` wrote; an AtlasError where it is missing, damaged, or of another version."""
        return cls(*detector_file.read(path))

    def _terms(self, features: Any) -> dict[str, Floats]:
        if not isinstance(features, Mapping):
            features = {next(iter(self.blocks)): features} if len(self.blocks) == 1 else {_ONLY: features}
        for name in self.blocks:
            if name not in features:
                known = ", ".join(map(repr, features))
                raise DataError(f"The detector needs the feature set {name!r}, but was given {known or 'none'}.")
        terms = {name: block.terms(features[name], name) for name, block in self.blocks.items()}
        if len({len(found) for found in terms.values()}) > 1:
            raise DataError("The feature sets have different numbers of examples; give the same answers in each.")
        return terms

    def _ranges(self, features: Any) -> dict[str, list[float]]:
        """The smallest and largest that each feature set added in these answers."""
        totals = {name: terms.reshape(len(terms), -1).sum(axis=1) for name, terms in self._terms(features).items()}
        return {name: [float(found.min()), float(found.max())] for name, found in totals.items()}

    def _sum(self, totals: Mapping[str, Floats]) -> Floats:
        return np.sum(list(totals.values()), axis=0) + self.intercept


def _fit_block(
    array: xr.DataArray,
    name: str,
    labels: Labels,
    fold_of: Ints,
    ks: Sequence[int],
    components: int | None,
    *,
    alone: bool,
) -> tuple[Block, float, Floats]:
    """A fitted block, its intercept, and its out-of-fold scores."""
    kind = what_to_choose(array)
    offered = choices(array, name, ks)
    if array.ndim == 1 and not alone:  # a plain number: the upper storey weighs it
        values = columns(array, name)[:, 0].astype(np.float64)
        mean = float(values.mean())
        return Block((), "", 0, np.array(mean), np.array(1.0)), mean, values
    best = offered[0]
    if len(offered) > 1:  # chosen without the PCA's cut, which makes no difference up to 512 answers, and is fast
        scores = {}
        for choice in offered:
            points = coordinates(columns(select(array, kind, choice), name)).points
            scores[choice] = out_of_fold(points, labels, fold_of, components=None)
        best = choose(scores, labels, fold_of)
    part = select(array, kind, best)
    turned = coordinates(columns(part, name))
    score = out_of_fold(turned.points, labels, fold_of, components=components)
    linear = fit(turned.points, labels, components=components)
    shape = part.shape[1:]
    dims = tuple(str(dim) for dim in part.dims if dim != EXAMPLE)
    block = Block(dims, kind, best, turned.mean.reshape(shape), turned.back(linear.weights).reshape(shape))
    return block, linear.intercept, score


def _refuse_unlike_heads(fitted: Mapping[str, tuple[Block, float, Floats]]) -> None:
    shapes = {}
    for name, (block, _, _) in fitted.items():
        if block.has_heads:
            sizes = dict(zip(block.dims, block.mean.shape, strict=True))
            shapes[name] = (sizes[LAYER], sizes[HEAD])
    if len(set(shapes.values())) > 1:
        raise DataError(
            f"The feature sets are not of the same heads (layers, heads): {shapes}; measure them on one model."
        )
