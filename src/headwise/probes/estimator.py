"""The scikit-learn contract of the binary classifiers: `Detector` and `LogisticProbe`.

Constructors only store parameters (`get_params`, `set_params`, `clone`); `fit(X, y)` returns the instance and learns the
attributes that end in an underscore; the second class of sorted `classes_` is the positive one, for labels "wrong" (True).
So both work in a `Pipeline` and in `cross_val_score`. A test runs scikit-learn's own estimator checks.

Bad input is a DataError, as everywhere in Headwise, and at the same time the ValueError that scikit-learn's tools expect.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import NotFittedError
from sklearn.utils import assert_all_finite, column_or_1d
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_is_fitted

from headwise.core.errors import DataError
from headwise.stats.validation import Labels, as_labels

__all__ = ["BinaryClassifier", "InputError", "as_input_errors"]

Floats = NDArray[np.float64]


class InputError(DataError, ValueError):
    """Features or labels that an estimator cannot use (docs/errors/labels.md)."""


class UnfittedError(DataError, NotFittedError):
    """An estimator that has to be fitted first (docs/errors/labels.md)."""


@contextmanager
def as_input_errors() -> Iterator[None]:
    """Errors of scikit-learn's and of our own checks as InputErrors, their text unchanged."""
    try:
        yield
    except (DataError, ValueError) as error:
        raise InputError(str(error)) from error


class BinaryClassifier(ClassifierMixin, BaseEstimator):
    """Labels, probabilities and decisions of a classifier that has a ``decision_function``."""

    classes_: NDArray[Any]

    def decision_function(self, X: Any) -> Floats:
        """(example,): log-odds of the second class."""
        raise NotImplementedError

    def predict_proba(self, X: Any) -> Floats:
        """(example, 2): probability of each class."""
        positive = expit(self.decision_function(X))
        return np.stack([1 - positive, positive], axis=1)

    def predict(self, X: Any) -> NDArray[Any]:
        """(example,): the more probable class."""
        positive = self.decision_function(X) > 0
        return self.classes_[positive.astype(int)]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    def _encode(self, y: Any, rows: int, min_per_class: int) -> Labels:
        """Labels as True for the second class, with enough of both; sets ``classes_``."""
        with as_input_errors():
            if y is None:
                raise InputError(f"{type(self).__name__} requires y to be passed, but the target y is None.")
            target = column_or_1d(y, warn=True)
            assert_all_finite(target, input_name="y")
            check_classification_targets(target)
            kind = type_of_target(target, input_name="y")
            if kind != "binary":
                raise InputError(f"Only binary classification is supported. The type of the target is {kind}.")
            classes = np.unique(target)
            if len(classes) == 1:
                raise InputError(
                    f"All {len(target)} answers are of one class, {classes[0].item()!r}, so there is nothing to tell "
                    "apart; use questions of which the model gets some right and some wrong."
                )
            labels = as_labels(target == classes[1], rows=rows, min_per_class=min_per_class)
        self.classes_ = classes
        return labels

    def _check_fitted(self) -> None:
        try:
            check_is_fitted(self)
        except NotFittedError as error:
            raise UnfittedError(
                f"this {type(self).__name__} is not fitted; call fit(X, y) first, or load one"
            ) from error
