"""One probe, to keep and to apply: the log-odds of "wrong" as a linear function of an activation.

    probe = Probe().fit(x, wrong)           # x (row, feature); wrong (row,) bool
    probe.predict_proba(new)[:, 1]          # P(wrong)
    probe.save("probe.safetensors");  Probe.load("probe.safetensors")

The words are scikit-learn's: C, class_weight, coef_, intercept_, decision_function. The optimum is that of
``make_pipeline(StandardScaler(), LogisticRegression(C=C))``, written for features as they are given, so that applying it
needs no scaling. Saved as one safetensors file: two arrays, and the rest as text in its header. No pickle.

Cost: one fit of ``descent``. This module does not know how good the probe is: ``cells`` does, on rows it has not seen.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from headwise.core.errors import AtlasError, DataError
from headwise.probes.together.descent import TOLERANCE, minimise
from headwise.probes.together.points import points_of
from headwise.probes.together.problems import problems_of
from headwise.stats.validation import as_labels

__all__ = ["Probe"]

Floats = NDArray[np.float64]

FORMAT = "headwise-probe"


class Probe:
    """A regularised logistic regression; True (wrong) is the second class."""

    coef_: Floats
    """(1, feature)"""
    intercept_: Floats
    """(1,)"""

    def __init__(
        self,
        *,
        C: float = 1.0,
        class_weight: str | None = None,
        standardise: bool = True,
        tolerance: float = TOLERANCE,
        device: str | None = None,
    ) -> None:
        self.C, self.class_weight, self.standardise = C, class_weight, standardise
        self.tolerance, self.device = tolerance, device
        self.classes_ = np.array([False, True])

    def fit(self, x: Any, wrong: Any) -> Probe:
        """Fit on rows (row, feature) and whether each is wrong."""
        table = _table(x)
        labels = as_labels(wrong, rows=len(table), min_per_class=1)
        device = torch.device(self.device or "cpu")
        everywhere = np.ones((1, len(labels)), dtype=bool)
        problems = problems_of(labels[None], everywhere, self.class_weight, device)
        there = torch.from_numpy(everywhere).to(device)
        points = points_of(torch.from_numpy(table)[None].to(device), there, standardise=self.standardise)
        found = minimise(points, problems, c=self.C, tolerance=self.tolerance)
        self.n_iter_, self.converged_ = int(found.steps), bool(found.converged)
        coef = (found.weights.double() / points.scale[:, None])[0]  # (1, feature)
        self.coef_ = coef.cpu().numpy()
        self.intercept_ = (found.intercepts[0].double() - (coef * points.mean).sum(dim=1)).cpu().numpy()
        return self

    def decision_function(self, x: Any) -> Floats:
        """(row,): log-odds of "wrong"."""
        self._refuse_unfitted()
        table = _table(x)
        if table.shape[1] != self.coef_.shape[1]:
            raise DataError(
                f"the probe was fitted on {self.coef_.shape[1]} features, but these rows have {table.shape[1]}; measure "
                "them at the same site of the same model"
            )
        return table.astype(np.float64) @ self.coef_[0] + self.intercept_[0]

    def predict_proba(self, x: Any) -> Floats:
        """(row, 2): probability of "right" and of "wrong"."""
        wrong = 1 / (1 + np.exp(-self.decision_function(x)))
        return np.stack([1 - wrong, wrong], axis=1)

    def predict(self, x: Any) -> NDArray[np.bool_]:
        """(row,): whether "wrong" is the likelier."""
        return self.decision_function(x) > 0

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one safetensors file."""
        self._refuse_unfitted()
        settings = {"C": self.C, "class_weight": self.class_weight, "standardise": self.standardise}
        header = {"format": FORMAT, "version": "1", "settings": json.dumps(settings)}
        try:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            save_file({"coef": self.coef_, "intercept": self.intercept_}, path, metadata=header)
        except OSError as cause:
            raise AtlasError(
                f"The probe could not be written to {path}: {cause.strerror}; choose another place."
            ) from cause

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Probe:
        """Read what ``save`` wrote."""
        if not Path(path).is_file():
            raise AtlasError(f"There is no probe at {path}; give the path that Probe.save was given.")
        try:
            with safe_open(path, framework="numpy") as file:
                header = file.metadata() or {}
                if header.get("format") != FORMAT or header.get("version") != "1":
                    raise AtlasError(f"{path} is not a probe of this Headwise; fit it again, or give another file.")
                probe = cls(**json.loads(header["settings"]))
                probe.coef_, probe.intercept_ = file.get_tensor("coef"), file.get_tensor("intercept")
        except (SafetensorError, KeyError, ValueError, TypeError) as cause:
            raise AtlasError(f"The probe file {path} is damaged: {cause}; fit the probe again.") from cause
        return probe

    def _refuse_unfitted(self) -> None:
        if not hasattr(self, "coef_"):
            raise DataError("this probe is not fitted; call fit(x, wrong) first, or load one")


def _table(x: Any) -> NDArray[np.float32]:
    table = np.ascontiguousarray(x, dtype=np.float32)
    if table.ndim != 2 or not table.size:
        raise DataError(f"a probe takes rows of features (row, feature), but was given the shape {table.shape}")
    if not np.isfinite(table).all():
        raise DataError("the features hold values that are not numbers; leave those rows out")
    return table
