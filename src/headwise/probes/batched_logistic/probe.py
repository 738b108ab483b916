"""One probe, as a scikit-learn estimator: the log-odds of "wrong" as a linear function of an activation.

    probe = LogisticProbe().fit(X, wrong)           # X (row, feature); wrong (row,) bool
    probe.predict_proba(new)[:, 1]                  # P(wrong)
    probe.save("probe.safetensors");  LogisticProbe.load("probe.safetensors")

The optimum is that of ``make_pipeline(StandardScaler(), LogisticRegression(C=C))``, written for features as they are given,
so that applying it needs no scaling. It is fitted by the same solver, in float32, as the cells of a map (``cells``), so that
a saved probe is the one the map shows; for a single fit scikit-learn's own is as fast. Saved as one safetensors file: two
arrays, and the rest as text in its header. No pickle.

Cost: one fit of ``solver``. How good the probe is, on rows it has not seen, is for ``cells`` or ``cross_val_score`` to say.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as save_arrays
from sklearn.utils.validation import validate_data

from headwise.core.errors import AtlasError
from headwise.core.files import make_folder, write_output
from headwise.core.parsing import Finite, Scalar, parse
from headwise.probes.batched_logistic.problems import make_points, make_problems
from headwise.probes.batched_logistic.solver import TOLERANCE, minimise
from headwise.probes.estimator import BinaryClassifier, as_input_errors

Floats = NDArray[np.float64]

FORMAT = "headwise-probe"
_Classes = Annotated[list[Scalar], msgspec.Meta(min_length=2, max_length=2)]


class _Settings(msgspec.Struct, forbid_unknown_fields=True):
    C: Annotated[float, msgspec.Meta(gt=0, le=1e300)]
    class_weight: str | list[tuple[Scalar, Finite]] | None
    standardise: bool


class LogisticProbe(BinaryClassifier):
    """A regularised logistic regression on standardised features.

    Args:
        C: inverse strength of the L2 penalty.
        class_weight: None, "balanced" to give both classes the same weight, or the weight of each class.
        standardise: whether features are scaled to mean 0 and deviation 1 by the training rows.
        tol: the solver stops where the largest gradient is below this times the number of rows.
        device: where it is fitted; None: on the CPU.

    Examples:
        >>> generator = np.random.default_rng(0)
        >>> wrong = np.arange(80) % 2 == 0
        >>> activations = generator.normal(size=(80, 5)) + 2 * wrong[:, None]
        >>> float(LogisticProbe().fit(activations, wrong).score(activations, wrong))
        0.9875
    """

    coef_: Floats
    """(1, feature)"""
    intercept_: Floats
    """(1,)"""

    def __init__(
        self,
        *,
        C: float = 1.0,
        class_weight: str | Mapping[Any, float] | None = None,
        standardise: bool = True,
        tol: float = TOLERANCE,
        device: str | None = None,
    ) -> None:
        self.C, self.class_weight, self.standardise = C, class_weight, standardise
        self.tol, self.device = tol, device

    def fit(self, X: Any, y: Any) -> LogisticProbe:
        """Fit on rows (row, feature) and whether each is wrong."""
        with as_input_errors():
            table = validate_data(self, X, dtype=np.float32, order="C", ensure_min_samples=2)
        labels = self._encode(y, len(table), min_per_class=1)
        device = torch.device(self.device or "cpu")
        all_rows = np.ones((1, len(labels)), dtype=bool)
        named = self.class_weight if isinstance(self.class_weight, str) else None
        problems = make_problems(labels[None], all_rows, named, device)
        if isinstance(self.class_weight, Mapping):
            by_class = [float(self.class_weight.get(name, 1.0)) for name in self.classes_.tolist()]
            problems = problems._replace(weights=torch.tensor(by_class, device=device)[problems.labels.long()])
        features = torch.from_numpy(np.ascontiguousarray(table))[None].to(device)
        points = make_points(features, torch.from_numpy(all_rows).to(device), standardise=self.standardise)
        found = minimise(points, problems, c=self.C, tolerance=self.tol)
        self.n_iter_, self.converged_ = int(found.steps), bool(found.converged)
        coef = (found.weights.double() / points.scale[:, None])[0]  # (1, feature)
        self.coef_ = coef.cpu().numpy()
        self.intercept_ = (found.intercepts[0].double() - (coef * points.mean).sum(dim=1)).cpu().numpy()
        return self

    def decision_function(self, X: Any) -> Floats:
        """(row,): log-odds of "wrong"."""
        self._check_fitted()
        with as_input_errors():
            table = validate_data(self, X, reset=False, dtype=np.float32)
        return table.astype(np.float64) @ self.coef_[0] + self.intercept_[0]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one safetensors file."""
        self._check_fitted()
        weight = self.class_weight
        saved = list(weight.items()) if isinstance(weight, Mapping) else weight
        settings = {"C": self.C, "class_weight": saved, "standardise": self.standardise}
        header = {"format": FORMAT, "version": "1", "settings": json.dumps(settings)}
        if self.classes_.dtype != bool:
            header["classes"] = json.dumps(self.classes_.tolist())
        make_folder(Path(path).parent)
        write_output(path, save_arrays({"coef": self.coef_, "intercept": self.intercept_}, metadata=header))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> LogisticProbe:
        """Read what ``save`` wrote."""
        path = Path(path).expanduser()
        if not path.is_file():
            raise AtlasError(f"There is no probe at {path}; give the path that LogisticProbe.save was given.")
        try:
            with safe_open(path, framework="numpy") as file:
                header = file.metadata() or {}
                if header.get("format") != FORMAT or header.get("version") != "1":
                    raise AtlasError(f"{path} is not a probe of this Headwise; fit it again, or give another file.")
                settings: _Settings = parse(header.get("settings", ""), _Settings)
                classes: list[Scalar] = parse(header.get("classes", "[false, true]"), _Classes)
                coef, intercept = file.get_tensor("coef"), file.get_tensor("intercept")
        except (SafetensorError, ValueError) as cause:
            raise AtlasError(f"The probe file {path} is damaged: {cause}; fit the probe again.") from cause
        if (
            coef.ndim != 2
            or coef.shape[0] != 1
            or intercept.shape != (1,)
            or not np.isfinite([*coef[0], *intercept]).all()
        ):
            raise AtlasError(
                f"The probe file {path} is damaged: it does not hold one weight per feature; fit it again."
            )
        weight = settings.class_weight
        named = dict(weight) if isinstance(weight, list) else weight
        probe = cls(C=settings.C, class_weight=named, standardise=settings.standardise)
        probe.coef_, probe.intercept_ = coef, intercept
        probe.classes_ = np.array(classes)
        probe.n_features_in_ = coef.shape[1]
        return probe
