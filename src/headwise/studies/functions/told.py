"""How well does the joint probe name the function of steps it has not seen? Beside chance, function by function.

Accuracy and recall are means over seeds, with Wilson's interval over the held-out steps. AUROC is of one function against
the others, by the mean over seeds of its log-odds, with steps of one question taken together. Chance: always naming the
most frequent function, guessing by the training shares, and probes trained on shuffled labels.

A function is refused where the interval of its AUROC includes 0.5; if all are, there is no study.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy.special import logsumexp

from headwise.core.dims import FUNCTION, PREDICTED, SEED
from headwise.core.errors import StudyError
from headwise.probes.joint import JointFits
from headwise.stats import Auroc, auroc, wilson_interval
from headwise.studies.functions.rows import Rows

__all__ = ["ENDS", "area_of", "told", "with_ends"]

ENDS = ("", "_low", "_high")


def told(rows: Rows, fits: JointFits) -> tuple[xr.Dataset, NDArray[np.bool_]]:
    """What the probe gets on held-out steps, beside chance; and which functions it does not tell."""
    truth, said = rows.held_out, fits.logits.argmax(axis=2)  # (seed, row)
    hits = said == truth
    null = (fits.null_logits.argmax(axis=2) == fits.null_labels).mean(axis=1)
    common = np.bincount(rows.labels[rows.trains]).argmax()
    areas = [area_of(fits.logits, truth, place, rows) for place in range(len(rows.functions))]
    low = np.array([float(one.low) for one in areas])
    refused = low <= 0.5
    if refused.all():
        raise StudyError(
            f"the probe tells no function from the others on {len(truth)} held-out steps (accuracy {hits.mean():.2f}, by "
            f"chance {null.mean() if len(null) else (truth == common).mean():.2f}), so that no map of importance means "
            "anything; give more steps, or labels that differ more"
        )
    value = hits.mean()
    found: dict[str, Any] = dict(with_ends("probe_accuracy", (), value, *wilson_interval(value, len(truth))))
    found |= {
        "majority": float((truth == common).mean()),
        "permuted": float(null.mean()) if len(null) else np.nan,
        "permuted_high": float(null.max()) if len(null) else np.nan,
        "seed_accuracy": (SEED, hits.mean(axis=1)),
        "refused": (FUNCTION, refused),
        "reason": (
            FUNCTION,
            np.array([_reason(*one) for one in zip(rows.functions, areas, strict=True)], dtype=object),
        ),
    }
    counts = np.bincount(truth, minlength=len(rows.functions))
    recall = np.array([hits[:, truth == place].mean() for place in range(len(counts))])
    found |= with_ends("recall", FUNCTION, recall, *wilson_interval(recall, counts))
    found["recall_chance"] = (
        FUNCTION,
        np.bincount(rows.labels[rows.trains], minlength=len(counts)) / rows.trains.sum(),
    )
    found |= with_ends("auroc", FUNCTION, *([getattr(one, part) for one in areas] for part in ("value", "low", "high")))
    table = np.array(
        [[(said[:, truth == own] == name).mean() for name in range(len(counts))] for own in range(len(counts))]
    )
    found["confusion"] = ((FUNCTION, PREDICTED), table)
    coords = {PREDICTED: np.array(rows.functions, dtype=object), SEED: np.arange(len(said))}
    return xr.Dataset(found, coords=coords), refused


def area_of(logits: NDArray[Any], truth: NDArray[np.int64], place: int, rows: Rows) -> Auroc:
    """Of one function against the others, by the mean over seeds of its log-odds; steps of one question go together."""
    others = np.delete(logits.astype(np.float64), place, axis=2)
    odds = (logits[:, :, place] - logsumexp(others, axis=2)).mean(axis=0)
    groups = np.unique(rows.groups[~rows.trains], return_inverse=True)[1].astype(np.int64)
    return auroc(odds, truth == place, groups=groups)


def _reason(name: str, area: Auroc) -> str:
    if area.low > 0.5:
        return ""
    return (
        f"the probe does not tell {name} from the other functions on held-out steps: AUROC {float(area.value):.2f}, 95 % "
        f"interval {float(area.low):.2f} to {float(area.high):.2f}, which includes 0.5"
    )


def with_ends(name: str, dims: Any, *values: Any) -> dict[str, Any]:
    return {f"{name}{end}": (dims, np.asarray(part)) for end, part in zip(ENDS, values, strict=True)}
