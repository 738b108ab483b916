"""How well is the function of a step predicted? By the joint probe, by each head alone, and from the answer's form.

- **Joint probe** (all heads, `probes.joint`), on held-out steps. Accuracy and recall: means over seeds, with Wilson's interval
  over steps. AUROC: one function against the others, by the mean over seeds of its log-odds; steps of one question are one
  cluster. Baselines: the most frequent function, guessing by the training shares, and probes fitted on permuted labels. A
  function is refused, and gets no map, where the interval of its AUROC includes 0.5; if all are refused, the study fails.
- **Single heads**: one-step logistic probes (a ridge regression) on each head's standardised z, in folds of whole questions
  over all steps: AUROC of each function, with p and q against labels permuted within folds. The joint probe divides a function
  among all heads that carry it; here every head stands for itself. Cost: one (steps x steps) inverse per head.
- **Form of the answer**: functions differ in what is answered (numbers, names, yes or no), and a probe may read that off. So a
  multinomial logistic regression sees only the answer's length (log tokens, log key tokens) and the kind of its first word and
  of its first key token. Where it does as well as the joint probe, the map may show heads that write numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
import xarray as xr
from numpy.typing import NDArray
from scipy.special import logsumexp
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedGroupKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from headwise.core.dims import EXAMPLE, FUNCTION, HEAD, LAYER, PREDICTED, SEED, WIDTH
from headwise.core.errors import StudyError
from headwise.core.schema import with_interval
from headwise.corpora import TRAIN
from headwise.probes.joint import JointFits
from headwise.probes.one_step import OneStepProbes, device_auroc
from headwise.stats import Auroc, auroc, shuffle_test, wilson_interval
from headwise.stats.permutation import permuted_rows

__all__ = ["ProbeData", "form_probe_quality", "joint_probe_quality", "single_head_probes"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
FOLDS, HEADS_PER_BLOCK = 5, 32
MIN_LOG_PROBABILITY = -50.0
KINDS = ("number", "yes or no", "capitalised", "word", "sign", "none")


class ProbeData:
    """The steps that probes are fitted to, as arrays: those of the distinguished functions that have an answer."""

    def __init__(self, readings: xr.Dataset, functions: Sequence[str]):
        of = readings["function_of"].values.astype(str)
        used = np.isin(of, functions) & (readings["key_tokens"].values > 0)
        self.readings = readings.isel({EXAMPLE: np.flatnonzero(used)})
        self.functions = tuple(functions)
        self.labels = np.array([self.functions.index(name) for name in of[used]], dtype=np.int64)
        self.trains = self.readings["split_of"].values.astype(str) == TRAIN
        self.groups = self.readings["chain"].values.astype(str)
        z = self.readings["z"].transpose(EXAMPLE, LAYER, HEAD, WIDTH).values
        self.shape = z.shape[1:3]
        self.there = np.isfinite(z).any(axis=3).all(axis=0)  # (layer, head): heads that the model has
        self.z = np.nan_to_num(z)  # heads of a narrower layer have fewer entries
        self.held_out = self.labels[~self.trains]
        for label, name in enumerate(self.functions):
            train, held_out = (int((self.labels[part] == label).sum()) for part in (self.trains, ~self.trains))
            if min(train, held_out) < 2:
                raise StudyError(
                    f"Of the steps of {name!r} the model answers {train} training and {held_out} held-out steps with at "
                    "least one token, and two of each are needed; give more steps, or leave that function out."
                )

    def features(self, layer_mean: bool = True) -> NDArray[np.float32]:
        """(step, existing head, 2 x width): each head's z and, as published, the mean over the heads of its layer.

        With the mean, a head that knows nothing can say what its neighbours know (docs/headbench.md); without, the width is
        that of z.
        """
        if not layer_mean:
            return np.ascontiguousarray(self.z[:, self.there], dtype=np.float32)
        count = np.maximum(self.there.sum(axis=1), 1)[:, None, None]
        mean = (self.z * self.there[:, :, None]).sum(axis=2, keepdims=True) / count  # (step, layer, 1, width)
        both = np.concatenate([self.z, np.broadcast_to(mean, self.z.shape)], axis=3)
        return np.ascontiguousarray(both[:, self.there], dtype=np.float32)

    def on_map(self, values: NDArray[Any], fill: Any = np.nan) -> NDArray[Any]:
        """(..., existing head) -> (..., layer, head)."""
        found = np.full((*values.shape[:-1], *self.shape), fill, dtype=values.dtype)
        found[..., self.there] = values
        return found

    def held_out_auroc(self, logits: NDArray[Any], label: int) -> Auroc:
        """One function against the others, by the mean over seeds of its log-odds; logits (seed, held-out step, class)."""
        others = np.delete(logits.astype(np.float64), label, axis=2)
        odds = (logits[:, :, label] - logsumexp(others, axis=2)).mean(axis=0)
        groups = np.unique(self.groups[~self.trains], return_inverse=True)[1].astype(np.int64)
        return auroc(odds, self.held_out == label, groups=groups)


# ---- joint probe ----------------------------------------------------------------------------------------------------


def joint_probe_quality(data: ProbeData, fits: JointFits) -> tuple[xr.Dataset, NDArray[np.bool_]]:
    """What the joint probe predicts on held-out steps, next to its baselines; and which functions are refused."""
    truth, predicted = data.held_out, fits.logits.argmax(axis=2)  # (seed, row)
    hits = predicted == truth
    null = (fits.null_logits.argmax(axis=2) == fits.null_labels).mean(axis=1)
    majority = np.bincount(data.labels[data.trains]).argmax()
    areas = [data.held_out_auroc(fits.logits, label) for label in range(len(data.functions))]
    refused = np.array([float(one.low) for one in areas]) <= 0.5
    if refused.all():
        chance = null.mean() if len(null) else (truth == majority).mean()
        raise StudyError(
            f"The probe distinguishes no function from the others on {len(truth)} held-out steps (accuracy {hits.mean():.2f}, "
            f"by chance {chance:.2f}), so a map of importance would mean nothing; give more steps, or labels that differ more."
        )
    value = hits.mean()
    counts = np.bincount(truth, minlength=len(data.functions))
    recall = np.array([hits[:, truth == label].mean() for label in range(len(counts))])
    shares = np.bincount(data.labels[data.trains], minlength=len(counts)) / data.trains.sum()
    confusion = [
        [(predicted[:, truth == own] == name).mean() for name in range(len(counts))] for own in range(len(counts))
    ]
    reasons = [_reason(*one) for one in zip(data.functions, areas, strict=True)]
    found: dict[str, Any] = with_interval("probe_accuracy", value, *wilson_interval(value, len(truth)), dims=())
    found |= {
        "majority": float((truth == majority).mean()),
        "permuted": float(null.mean()) if len(null) else np.nan,
        "permuted_high": float(null.max()) if len(null) else np.nan,
        "seed_accuracy": (SEED, hits.mean(axis=1)),
        "refused": (FUNCTION, refused),
        "reason": (FUNCTION, np.array(reasons, dtype=object)),
        "recall_chance": (FUNCTION, shares),
        "confusion": ((FUNCTION, PREDICTED), np.array(confusion)),
    }
    found |= with_interval("recall", recall, *wilson_interval(recall, counts), dims=FUNCTION)
    found |= with_interval("auroc", *_parts(areas), dims=FUNCTION)
    coords = {PREDICTED: np.array(data.functions, dtype=object), SEED: np.arange(len(predicted))}
    return xr.Dataset(found, coords=coords), refused


def _parts(areas: Sequence[Auroc]) -> list[list[Any]]:
    return [[getattr(one, part) for one in areas] for part in ("value", "low", "high")]


def _reason(name: str, area: Auroc) -> str:
    if area.low > 0.5:
        return ""
    return (
        f"the probe does not distinguish {name} from the other functions on held-out steps: AUROC {float(area.value):.2f}, "
        f"95 % interval {float(area.low):.2f} to {float(area.high):.2f}, which includes 0.5"
    )


# ---- single heads ---------------------------------------------------------------------------------------------------


class SingleHeadProbes(NamedTuple):
    """Cross-validated probes on single heads."""

    auroc: Floats  # (function, head)
    p: Floats  # (function, head)
    q: Floats  # (function, head)
    accuracy: Floats  # (head,), over all functions
    low: Floats  # (head,)
    high: Floats  # (head,)


def single_head_probes(
    z: Any, labels: Ints, groups: Any, classes: int, *, permutations: int = 40, seed: int = 0
) -> SingleHeadProbes:
    """`z` (row, head, width), `labels` (row,) from 0, `groups` (row,): rows of one question stay in one fold."""
    fold_of = question_folds(labels, groups, seed)
    own = np.eye(classes, dtype=bool)[labels]  # (row, function)
    orders = [permuted_rows(fold_of, np.random.default_rng([seed + number, 3])) for number in range(permutations)]
    sets = np.concatenate([own, *(own[order] for order in orders)], axis=1)
    rows, heads = z.shape[:2]
    areas, right = np.empty((heads, sets.shape[1])), np.empty(heads)
    targets, prior = torch.from_numpy(sets), torch.from_numpy(own).float().mean(dim=0)
    for start in range(0, heads, HEADS_PER_BLOCK):
        some = torch.as_tensor(z[:, start : start + HEADS_PER_BLOCK]).transpose(0, 1)  # (head, row, width)
        probes = OneStepProbes(some.contiguous(), fold_of)
        scores = probes.out_of_fold(targets)  # (head, row, set): predicted distance of the label from its mean
        areas[start : start + len(some)] = device_auroc(scores, targets, probes.fold_of).numpy()
        named = (scores[:, :, :classes] + prior).argmax(dim=2)
        right[start : start + len(some)] = (named == torch.from_numpy(labels)).double().mean(dim=1).numpy()
    real, null = areas[:, :classes].T, areas[:, classes:].T.reshape(permutations, classes, heads)
    p, q, _ = shuffle_test(real, null)
    return SingleHeadProbes(real, p, q, right, *wilson_interval(right, rows))


def question_folds(labels: Ints, groups: Any, seed: int) -> Ints:
    """The fold of every row: stratified by function, whole questions."""
    names = np.unique(np.asarray(groups), return_inverse=True)[1]
    folds = np.empty(len(labels), dtype=np.int64)
    splitter = StratifiedGroupKFold(FOLDS, shuffle=True, random_state=seed)
    for fold, (_, rows) in enumerate(splitter.split(np.zeros(len(labels)), labels, names)):
        folds[rows] = fold
    return folds


# ---- form of the answer ---------------------------------------------------------------------------------------------


def form_probe_quality(data: ProbeData) -> xr.Dataset:
    """What a probe predicts that sees only the answer's form."""
    read = data.readings
    form = form_features(
        [str(text) for text in read["answer"].values],
        [str(text).split(" | ")[0] for text in read["key_text"].values],
        read["answer_tokens"].values,
        read["key_tokens"].values,
    )
    logits = np.maximum(
        form_log_probabilities(form, data.labels, data.trains, len(data.functions)), MIN_LOG_PROBABILITY
    )
    truth, hits = data.held_out, logits.argmax(axis=1) == data.held_out
    areas = [data.held_out_auroc(logits[None], label) for label in range(len(data.functions))]
    found = with_interval("confound_accuracy", hits.mean(), *wilson_interval(hits.mean(), len(hits)), dims=())
    recall = np.array([hits[truth == label].mean() for label in range(len(data.functions))])
    found |= {"confound_recall": (FUNCTION, recall)}
    return xr.Dataset(found | with_interval("confound_auroc", *_parts(areas), dims=FUNCTION))


def token_kind(text: str) -> str:
    """The kind of a token.

    >>> [token_kind(text) for text in (" 12", "Yes", " Paris", " dog", ".", "")]
    ['number', 'yes or no', 'capitalised', 'word', 'sign', 'none']
    """
    text = text.strip()
    if text.casefold() in ("yes", "no"):
        return "yes or no"
    tests = (("none", not text), ("number", text[:1].isdigit()), ("capitalised", text[:1].isupper()))
    return next((name for name, holds in tests if holds), "word" if text[:1].isalpha() else "sign")


def form_features(answers: Sequence[str], keys: Sequence[str], tokens: Any, key_tokens: Any) -> Floats:
    """(answer, feature): lengths, and the kinds of the answer's first word and of its first key token, one-hot."""
    kinds = [
        (token_kind((answer.split() or [""])[0]), token_kind(key)) for answer, key in zip(answers, keys, strict=True)
    ]
    one_hot = np.array([[float(kind == name) for kind in both for name in KINDS] for both in kinds])
    return np.column_stack([np.log1p(np.asarray(tokens, float)), np.log1p(np.asarray(key_tokens, float)), one_hot])


def form_log_probabilities(form: Floats, labels: Any, trains: Any, classes: int) -> Floats:
    """(held-out row, class); -inf for a class without training rows."""
    labels, trains = np.asarray(labels), np.asarray(trains, dtype=bool)
    probe = make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000))
    probe.fit(form[trains], labels[trains])
    found = np.full((int((~trains).sum()), classes), -np.inf)
    found[:, probe[-1].classes_] = probe.predict_log_proba(form[~trains])
    return found
