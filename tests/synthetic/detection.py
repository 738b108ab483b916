"""A synthetic table of detectors, as `headwise.probes.table` makes it and the study labels it.

Scores are drawn with a known separation, and every AUROC is computed from them. Tests of figures and of words use it.
"""

from __future__ import annotations

import numpy as np
import xarray as xr
from scipy.stats import rankdata

from synthetic.origin import provenance

DETECTORS = {  # kind, label, separation, and which details it has
    "LapEigvals": ("supervised", "LapEigvals", 1.3, ("by_k", "by_layer", "by_size", "transfer")),
    "AttnEigvals": ("supervised", "AttnEigvals", 1.0, ("by_k", "by_layer", "by_size", "transfer")),
    "AttnLogDet": ("supervised", "AttnLogDet", 0.9, ("by_layer", "by_size", "transfer")),
    "hidden": ("supervised", "Hidden state, best layer", 1.2, ("by_layer",)),
    "combined": ("combined", "Combined (ours)", 1.5, ()),
    "AttnScore": ("score", "AttnScore", 0.1, ()),
    "mean_logprob": ("score", "Mean log-probability", 0.6, ()),
    "min_logprob": ("score", "Minimum log-probability", 0.7, ()),
    "length": ("score", "Answer length", 0.3, ()),
}
KS, SIZES = (5, 10, 25, 50, 100), (50, 100, 200, 384)
TOPICS = ("capitals", "chemistry", "history", "rivers", "sports", "years")


def detection_dataset(
    layers: int = 30,
    *,
    examples: int = 481,
    signal: float = 1.0,
    seed: int = 0,
    details: bool = True,
    question: float | None = None,
) -> xr.Dataset:
    """``signal=0``: no detector knows anything; ``question``: the table has rows of the question, separated by so much."""
    if question is not None:
        return _with_question(
            detection_dataset(layers, examples=examples, signal=signal, seed=seed, details=details), question
        )
    generator = np.random.default_rng(seed)
    wrong = generator.permutation(np.arange(examples) < 0.6 * examples)
    fold_of = generator.permutation(np.arange(examples) % 5)
    names, size = list(DETECTORS), len(DETECTORS)
    away = np.array([signal * separation for _, _, separation, _ in DETECTORS.values()])
    score = generator.normal(size=(size, examples)) + away[:, None] * wrong
    per_fold = np.array([[_auroc(row[fold_of == fold], wrong[fold_of == fold]) for fold in range(5)] for row in score])
    pooled = np.array([_auroc(row, wrong) for row in score])
    fitted = np.array([kind != "score" for kind, *_ in DETECTORS.values()])
    variables: dict[str, tuple[object, np.ndarray]] = {
        **_ends("auroc", "detector", per_fold.mean(1), 0.045),
        **_ends("gain", "detector", per_fold.mean(1) - per_fold[-1].mean(), 0.06),
        "pooled": ("detector", pooled),
        "fold_auroc": (("detector", "fold"), per_fold),
        "score": (("detector", "example"), score),
        "precision": ("detector", np.where(fitted, 0.6 + 0.2 * signal * away / 2, np.nan)),
        "recall": ("detector", np.where(fitted, 0.5 + 0.2 * signal * away / 2, np.nan)),
    }
    coords: dict[str, object] = {
        "detector": names,
        "kind": ("detector", [kind for kind, *_ in DETECTORS.values()]),
        "label": ("detector", [label for _, label, *_ in DETECTORS.values()]),
        "choice": ("detector", ["layer" if name == "hidden" else "" for name in names]),
        "fold": np.arange(5),
        "example": [f"q-{index}" for index in range(examples)],
        "wrong": ("example", wrong),
        "fold_of": ("example", fold_of),
    }
    if details:
        variables |= _details(layers, per_fold.mean(1) - 0.5, fitted, generator)
        coords |= {"rank": list(KS), "layer": np.arange(layers), "size": list(SIZES)}
        coords |= {"trained_on": [*TOPICS, "others"], "topic": list(TOPICS)}
    return xr.Dataset(
        variables,
        coords=coords,
        attrs={
            "title": "How well wrong answers are told from correct ones",
            "n_wrong": int(wrong.sum()), "n_right": int((~wrong).sum()), "folds": 5, "inner": 3, "seed": 0,
            "reference": "length", "record": "[]", "notes": "[]",
            "provenance": provenance("detection", layers, 9, data="questions", size=examples),
        },
    )  # fmt: skip


QUESTION_ROWS = {  # kind, label, and how much it is separated beyond the question
    "topic": ("question", "Question: topic", -0.2),
    "topic_length": ("question", "Question: topic, difficulty, length", 0.0),
    "with_heads": ("with question", "Question + heads", 0.3),
    "with_logprob": ("with question", "Question + Log-probability, min", 0.6),
}


def _with_question(table: xr.Dataset, separation: float) -> xr.Dataset:
    """With rows of the question, gains counted from the strongest, and AUROCs within strata."""
    generator, wrong = np.random.default_rng(7), table["wrong"].values
    rows = table.isel(detector=[0] * len(QUESTION_ROWS)).assign_coords(
        detector=list(QUESTION_ROWS),
        kind=("detector", [kind for kind, *_ in QUESTION_ROWS.values()]),
        label=("detector", [label for _, label, _ in QUESTION_ROWS.values()]),
        choice=("detector", [""] * len(QUESTION_ROWS)),
    )
    for name in ("by_k", "by_layer", "by_size", "transfer", "paper"):
        for end in ("", "_low", "_high"):
            if f"{name}{end}" in rows:
                rows[f"{name}{end}"] = rows[f"{name}{end}"] * np.nan
    shared = generator.normal(size=len(wrong)) + separation * wrong
    added = np.array([[more] for *_, more in QUESTION_ROWS.values()])
    score = shared + 0.3 * generator.normal(size=(len(added), len(wrong))) + added * wrong
    areas = np.array([_auroc(row, wrong) for row in score])
    for name, values, half in (("auroc", areas, 0.045), ("pooled", areas, None)):
        rows[name] = ("detector", values)
        if half is not None:
            rows[f"{name}_low"], rows[f"{name}_high"] = ("detector", values - half), ("detector", values + half)
    rows["score"], rows["fold_auroc"] = (("detector", "example"), score), rows["fold_auroc"] * 0 + areas[:, None]
    found = xr.concat([rows, table], dim="detector", combine_attrs="override")
    reference = float(areas[1])
    found = found.assign(
        {
            name: ("detector", values)
            for name, (_, values) in _ends("gain", "", found["auroc"].values - reference, 0.04).items()
        }
    )
    within = 0.5 + 0.7 * (found["auroc"].values - 0.5)
    found = found.assign(
        {name: ("detector", values) for name, (_, values) in _ends("auroc_within", "", within, 0.08).items()}
    )
    found["gain_p"], found["gain_detectable"] = (
        ("detector", np.full(len(within), 0.2)),
        ("detector", np.full(len(within), 0.057)),
    )
    return found.assign_attrs(
        table.attrs, reference="topic_length", heads="with_heads", strata="topic x difficulty", n_strata=61
    )


def _details(
    layers: int, over: np.ndarray, fitted: np.ndarray, generator: np.random.Generator
) -> dict[str, tuple[object, np.ndarray]]:
    has = {
        name: np.array([name in own for *_, own in DETECTORS.values()])
        for name in ("by_k", "by_layer", "by_size", "transfer")
    }
    depth = np.exp(-(((np.arange(layers) - 0.6 * layers) / (0.4 * layers)) ** 2))
    curves = {
        "by_k": ("rank", over[:, None] * np.linspace(0.75, 1.0, len(KS))),
        "by_layer": ("layer", 0.85 * over[:, None] * depth),
        "by_size": ("size", over[:, None] * np.linspace(0.6, 1.0, len(SIZES))),
    }
    found: dict[str, tuple[object, np.ndarray]] = {}
    for name, (dim, values) in curves.items():
        noisy = 0.5 + values + 0.005 * generator.normal(size=values.shape)
        found |= _ends(name, ("detector", dim), np.where(has[name][:, None], noisy, np.nan), 0.05)
    moved = 0.5 + over[:, None, None] * (0.5 + 0.5 * np.eye(len(TOPICS) + 1, len(TOPICS)))
    moved[:, -1] = 0.5 + 0.8 * over[:, None]
    moved += 0.04 * generator.normal(size=moved.shape)
    moved[:, 2] = moved[:, :, 2] = np.nan
    keep = has["transfer"][:, None, None]
    found |= _ends("transfer", ("detector", "trained_on", "topic"), np.where(keep, moved, np.nan), 0.12)
    paper = np.where(fitted & has["by_size"], 0.53 + over, np.nan)
    return found | _ends("paper", "detector", paper, 0.08)


def _ends(name: str, dims: object, values: np.ndarray, half: float) -> dict[str, tuple[object, np.ndarray]]:
    return {
        name: (dims, values),
        f"{name}_low": (dims, values - half),
        f"{name}_high": (dims, np.minimum(values + half, 0.995)),
    }


def _auroc(score: np.ndarray, wrong: np.ndarray) -> float:
    positives = int(wrong.sum())
    over = rankdata(score)[wrong].sum() - positives * (positives + 1) / 2
    return float(over / (positives * (len(wrong) - positives)))
