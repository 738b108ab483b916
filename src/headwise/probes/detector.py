"""Is this answer wrong? A detector that scores new answers, gives a calibrated probability, and the heads that drove it.

    detector = Detector().fit({"LapEigvals": eigenvalues}, labels)
    detector.predict_proba({"LapEigvals": new})[:, 1]        # calibrated P(wrong)
    detector.explain({"LapEigvals": new})["per_head"]         # (example, layer, head): signed, adds up to the log-odds
    detector.save("atlas/detector")                           # detector.json + detector.safetensors; no pickle

One feature set: PCA and logistic regression (``linear``); k or the layer is chosen by cross-validation inside what it is
given. Several: each its own detector, combined by a stacker that learns from out-of-fold scores (``stacking``); a set of one
number per answer (a log-probability) goes to the stacker directly. Either way the result is one linear function,

    logit = Σ_blocks Σ (x - mean) · weights  +  intercept

so the share of a head is the sum of its own terms: what it adds, relative to the average training answer. That explains this
detector exactly; it is not a claim that the head causes the error, and between two heads with the same information the
penalty splits the credit. The probability is Platt's, from out-of-fold scores; ``decision_function`` is its log-odds.

Cost: a fit with 5 k, 500 answers, 27,000 features takes about a second; scoring is one product. How good the detector is, on
folds that had no part in any choice, is for ``table`` to say.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.utils.validation import validate_data

from headwise.core.dims import EXAMPLE, FEATURE, HEAD, LAYER
from headwise.core.errors import DataError
from headwise.core.progress import StepCount
from headwise.probes import detector_file
from headwise.probes.crossvalidation import assign_folds, choose, out_of_fold, sweep
from headwise.probes.estimator import BinaryClassifier, InputError, as_input_errors
from headwise.probes.features import (
    KS,
    FittedBlock,
    as_feature_sets,
    as_table,
    choice_kind,
    choice_points,
    choices,
    select,
)  # fmt: skip
from headwise.probes.linear import COMPONENTS, fit_linear
from headwise.probes.projection import coordinates_for
from headwise.probes.stacking import Platt, fit_platt, fit_stacker, stacked_out_of_fold
from headwise.stats.validation import MIN_PER_CLASS, Labels, as_groups

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SEEN = "seen"  # in `about_`: the smallest and largest contribution of each feature set in the answers it was fitted on
_UNNAMED = "features"  # the name of a feature set that came without one


class Detector(BinaryClassifier):
    """A detector of wrong answers; a scikit-learn classifier.

    Args:
        ks: numbers of eigenvalues to try, where features have a dim ``rank``.
        components: of the PCA; None: all.
        folds: in which choices are made and the calibration is fitted.
        seed: of the folds.
        min_per_class: answers of each class that are required.

    Examples:
        >>> generator = np.random.default_rng(0)
        >>> wrong = np.arange(80) % 2 == 0
        >>> heads = generator.normal(size=(80, 2, 3))
        >>> heads[wrong, 1, 2] += 2.0  # one head is informative
        >>> detector = Detector().fit(heads, wrong)
        >>> bool((detector.predict_proba(heads)[:, 1] > 0.5)[wrong].mean() > 0.7)
        True
        >>> abs(detector.explain(heads[:1]).per_head).argmax(["layer", "head"])["head"].item()
        2
    """

    blocks_: Mapping[str, FittedBlock]
    """weights of each feature set"""
    intercept_: float
    """logit of the average training answer"""
    calibration_: Platt
    """from logit to probability"""
    about_: Mapping[str, Any]
    """what it was fitted on: counts, seed, and what the caller adds (model, data)"""

    def __init__(
        self,
        *,
        ks: Sequence[int] = KS,
        components: int | None = COMPONENTS,
        folds: int = 10,
        seed: int = 0,
        min_per_class: int = MIN_PER_CLASS,
    ) -> None:
        self.ks, self.components, self.folds, self.seed, self.min_per_class = ks, components, folds, seed, min_per_class

    def fit(
        self, X: Any, y: Any, *, groups: Any = None, calibrate_on: Any = None, about: Mapping[str, Any] | None = None
    ) -> Detector:
        """Fit on one feature set, or on several by name.

        Args:
            X: (example, ...), or several of them by name.
            y: (example,), True for wrong answers; or any two classes, of which the second is detected.
            groups: (example,), examples that belong together and stay in one fold.
            calibrate_on: (example,) bool, those whose out-of-fold scores the probability is fitted on; None: all.
            about: what it was fitted on, to be saved with it.

        Returns:
            The detector itself.
        """
        given = self._feature_sets(X, reset=True)
        with as_input_errors():
            wrong = self._encode(y, _rows(given), self.min_per_class)
            arrays = as_feature_sets(given, len(wrong))
            groups = as_groups(groups, len(wrong))
            fold_of = assign_folds(wrong, folds=self.folds, seed=self.seed, groups=groups)
            done = StepCount("detector", sum(3 * len(choices(array, name, self.ks)) for name, array in arrays.items()))
            fitted = {
                name: self._fit_block(array, name, wrong, fold_of, len(arrays), done) for name, array in arrays.items()
            }
            _check_same_heads({name: block for name, (block, _, _) in fitted.items()})
        blocks = {name: block for name, (block, _, _) in fitted.items()}
        if len(blocks) == 1:
            ((_, intercept, score),) = fitted.values()
        else:
            inputs = np.stack([held_out for _, _, held_out in fitted.values()], axis=1)
            stacker = fit_stacker(inputs, wrong)
            score = stacked_out_of_fold(inputs, wrong, fold_of)
            share = stacker.linear.weights / stacker.scale
            own = np.array([block_intercept for _, block_intercept, _ in fitted.values()])
            intercept = float(stacker.linear.intercept + share @ (own - stacker.centre))
            blocks = {
                name: replace(block, weights=block.weights * factor)
                for (name, block), factor in zip(blocks.items(), share, strict=True)
            }
        chosen = slice(None) if calibrate_on is None else np.asarray(calibrate_on, dtype=bool)
        self.blocks_, self.intercept_, self.calibration_ = blocks, intercept, fit_platt(score[chosen], wrong[chosen])
        counts = {"n_wrong": int(wrong.sum()), "n_right": int((~wrong).sum()), "folds": self.folds, "seed": self.seed}
        ranges = {name: [float(part.min()), float(part.max())] for name, part in _totals(self._terms(given)).items()}
        self.about_ = {**counts, **(about or {}), SEEN: ranges}
        return self

    def logit(self, X: Any) -> Floats:
        """(example,): log-odds of "wrong", as if both classes were equally common; not calibrated, and linear."""
        totals = _totals(self._terms(self._feature_sets(X)))
        return np.sum(list(totals.values()), axis=0) + self.intercept_

    def decision_function(self, X: Any) -> Floats:
        """(example,): calibrated log-odds of "wrong"; above 0 the answer is more likely wrong than right."""
        logit = self.logit(X)
        return self.calibration_.slope * logit + self.calibration_.offset

    def explain(self, X: Any) -> xr.Dataset:
        """What drove each score. ``per_block.sum("feature")`` plus the attribute ``intercept`` is ``logit``.

        ``per_head`` (example, layer, head), where any block has heads, is the sum over those blocks.
        """
        terms = self._terms(self._feature_sets(X))
        totals = _totals(terms)
        logit = np.sum(list(totals.values()), axis=0) + self.intercept_
        variables: dict[str, Any] = {
            "per_block": ((EXAMPLE, FEATURE), np.stack(list(totals.values()), axis=1)),
            "logit": (EXAMPLE, logit),
            "probability": (EXAMPLE, self.calibration_(logit)),
        }
        coords: dict[str, Any] = {FEATURE: list(totals)}
        heads = [self.blocks_[name].per_head(part) for name, part in terms.items() if self.blocks_[name].has_heads]
        if heads:
            variables["per_head"] = ((EXAMPLE, LAYER, HEAD), np.sum(heads, axis=0))
            coords |= {LAYER: np.arange(heads[0].shape[1]), HEAD: np.arange(heads[0].shape[2])}
        return xr.Dataset(variables, coords=coords, attrs={"intercept": self.intercept_})

    def unusual(self, explained: xr.Dataset) -> list[list[str]]:
        """Per example the feature sets that add more or less than for any answer it was fitted on.

        Such an answer is unlike all training answers, and its probability is an extrapolation.
        """
        seen = self.about_.get(SEEN, {})
        return [
            [
                str(name)
                for name, value in zip(explained[FEATURE].values, row, strict=True)
                if name in seen and not seen[name][0] <= value <= seen[name][1]
            ]
            for row in explained["per_block"].transpose(EXAMPLE, FEATURE).values
        ]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write PATH.json and PATH.safetensors."""
        self._check_fitted()
        parts = (dict(self.blocks_), self.intercept_, self.calibration_, dict(self.about_))
        detector_file.write(path, *parts, classes=None if self.classes_.dtype == bool else self.classes_.tolist())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Detector:
        """Read what ``save`` wrote; an AtlasError where it is missing, damaged, or of another version."""
        return cls._from_parts(detector_file.read(path))

    @classmethod
    def decode(cls, text: bytes, arrays: bytes, where: str) -> Detector:
        """The same from the content of the two files, PATH.json and PATH.safetensors; ``where`` is PATH, for messages."""
        return cls._from_parts(detector_file.decode(text, arrays, f"{where}.json", f"{where}.safetensors"))

    @classmethod
    def _from_parts(cls, parts: detector_file.DetectorParts) -> Detector:
        detector = cls(**{name: parts.about[name] for name in ("folds", "seed") if name in parts.about})
        detector.blocks_, detector.intercept_, detector.calibration_, detector.about_ = parts[:4]
        detector.classes_ = np.array([False, True] if parts.classes is None else parts.classes)
        blocks = list(parts.blocks.values())
        if len(blocks) == 1 and blocks[0].dims == (FEATURE,):
            detector.n_features_in_ = blocks[0].mean.size
        return detector

    def _feature_sets(self, X: Any, *, reset: bool = False) -> Mapping[str, Any]:
        """Feature sets by name. A plain table (example, feature) is held to scikit-learn's checks, all else to ours."""
        if not reset:
            self._check_fitted()
        if isinstance(X, Mapping) and not issparse(X):  # one format of scipy's sparse matrices is a mapping
            if not X:
                raise InputError("There is no feature set to fit a detector on; give at least one.")
            return X
        name = _UNNAMED if reset or len(self.blocks_) > 1 else next(iter(self.blocks_))
        if isinstance(X, xr.DataArray) or (isinstance(X, np.ndarray) and X.ndim > 2):
            return {name: X}
        if isinstance(X, np.ndarray) and X.ndim == 1 and (not reset and self.blocks_[name].dims == ()):
            return {name: X}
        with as_input_errors():
            return {name: validate_data(self, X, reset=reset, ensure_min_samples=2 if reset else 1)}

    def _terms(self, features: Mapping[str, Any]) -> dict[str, Floats]:
        for name in self.blocks_:
            if name not in features:
                known = ", ".join(map(repr, features))
                raise InputError(f"The detector needs the feature set {name!r}, but was given {known or 'none'}.")
        with as_input_errors():
            terms = {name: block.terms(features[name], name) for name, block in self.blocks_.items()}
        if len({len(found) for found in terms.values()}) > 1:
            raise InputError("The feature sets have different numbers of examples; give the same answers in each.")
        return terms

    def _fit_block(
        self, array: xr.DataArray, name: str, labels: Labels, fold_of: Ints, sets: int, done: Callable[[], object]
    ) -> tuple[FittedBlock, float, Floats]:
        """A fitted block, its intercept, and its out-of-fold scores."""
        kind = choice_kind(array)
        available = choices(array, name, self.ks)
        if array.ndim == 1 and sets > 1:  # a plain number: the stacker weighs it
            values = as_table(array, name)[:, 0].astype(np.float64)
            mean = float(values.mean())
            return FittedBlock((), "", 0, np.array(mean), np.array(1.0)), mean, values
        best = available[0]
        coordinates = coordinates_for(len(labels) - int(np.bincount(fold_of).max()), self.components)
        candidates = dict(choice_points(array, name, available, coordinates, done))
        if len(available) > 1:
            best = choose(sweep(candidates.items(), labels, fold_of, done=done), labels, fold_of)
        chosen = candidates[best]
        projected = chosen() if callable(chosen) else chosen
        part = select(array, kind, best)
        score = out_of_fold(projected.points, labels, fold_of, components=self.components)
        linear = fit_linear(projected.points, labels, components=self.components)
        shape, dims = part.shape[1:], tuple(str(dim) for dim in part.dims if dim != EXAMPLE)
        weights = projected.to_features(linear.weights)
        block = FittedBlock(dims, kind, best, projected.mean.reshape(shape), weights.reshape(shape))
        return block, linear.intercept, score


def _rows(features: Mapping[str, Any]) -> int:
    first = next(iter(features.values()))
    return int(first.sizes[EXAMPLE]) if isinstance(first, xr.DataArray) else len(first)


def _totals(terms: Mapping[str, Floats]) -> dict[str, Floats]:
    """What each feature set adds per example."""
    return {name: part.reshape(len(part), -1).sum(axis=1) for name, part in terms.items()}


def _check_same_heads(blocks: Mapping[str, FittedBlock]) -> None:
    shapes = {}
    for name, block in blocks.items():
        if block.has_heads:
            sizes = dict(zip(block.dims, block.mean.shape, strict=True))
            shapes[name] = (sizes[LAYER], sizes[HEAD])
    if len(set(shapes.values())) > 1:
        raise DataError(
            f"The feature sets are not of the same heads (layers, heads): {shapes}; measure them on one model."
        )
