"""A synthetic spectral Dataset: attention features of answers, with a block of heads planted that differ by label.

Numbers per example are drawn, and everything else is computed from them as the study does (rank sums, normal
approximation). ``strength=0`` gives data in which nothing differs. The tests of figures and of words use it.
"""

from __future__ import annotations

import json

import numpy as np
import xarray as xr
from scipy.stats import norm, rankdata

from headwise.stats import van_elteren_maps
from synthetic.origin import provenance

DIMS = ("part", "feature", "layer", "head")
FEATURES = {  # label, definition
    "attention_score": ("AttnScore", "mean log of the weight of a token on itself"),
    "laplacian": ("Laplacian eigenvalues", "mean of the ten largest eigenvalues of the Laplacian"),
    "attention": ("Attention eigenvalues", "mean of the ten largest weights of a token on itself"),
    "lookback": ("Lookback ratio", "weight on the prompt against weight on the answer so far"),
    "sink": ("First token (sink)", "weight on the first token"),
    "entropy": ("Entropy", "entropy of a row over the log of the keys it can see"),
}
PARTS = ("whole", "answer")
PLANTED = ((4, 9), (2, 6))  # layers 4 to 8, heads 2 to 5: larger in wrong answers for laplacian, smaller for the score


def spectral_dataset(
    layers: int = 30, heads: int = 9, *, examples: int = 160, strength: float = 1.2, broad: float = 0.0, seed: int = 0
) -> xr.Dataset:
    """``broad`` moves every head a little, as in real data, and makes it depend on the length."""
    generator = np.random.default_rng(seed)
    wrong = generator.permutation(np.arange(examples) < 0.6 * examples)
    tokens = generator.poisson(6 + 3 * broad * wrong, examples) + 1
    shape = (examples, len(PARTS), len(FEATURES), layers, heads)
    values = generator.normal(size=shape)
    (top, bottom), (left, right) = PLANTED
    sign = np.array([-1.0, 1.0, 1.0, 0.0, 0.0, 0.0])[None, :, None, None]
    values[wrong, :, :, top:bottom, left:right] += strength * sign
    depth = np.linspace(1.5, 0.2, layers)[:, None]
    values += broad * ((tokens - 6) / 3)[:, None, None, None, None] * depth * generator.normal(0.6, 0.5, shape[2:])
    values[:, PARTS.index("answer"), list(FEATURES).index("lookback")] = np.nan
    ranks = _ranks(values)
    found = _tests(ranks, wrong)
    topic = np.arange(examples) % 3
    within, strict, matched = (
        van_elteren_maps(values, wrong, strata, dims=("example", *DIMS), maps=DIMS[:2], min_per_class=1, min_per_cell=1)
        for strata in (topic, topic + 3 * (tokens > np.median(tokens)), tokens)
    )
    chance = np.stack([_share(_tests(ranks, generator.permutation(wrong))["p"]) for _ in range(39)])
    share = _share(found["p"])
    dims, by_map = DIMS, DIMS[:2]
    small = np.float32
    return xr.Dataset(
        {
            **{name: (dims, found[name].astype(small)) for name in ("p", "q", "effect", "effect_low", "effect_high")},
            **{f"{name}_within": (dims, within[name].values.astype(small)) for name in ("p", "q")},
            "effect_within": (dims, within["auroc"].values.astype(small)),
            **{f"effect_within_{end}": (dims, within[end].values.astype(small)) for end in ("low", "high")},
            **{f"{name}_strict": (dims, strict[name].values.astype(small)) for name in ("p", "q")},
            **{f"{name}_matched": (dims, matched[name].values.astype(small)) for name in ("p", "q")},
            "share": (by_map, share.astype(small)),
            "share_matched": (by_map, _share(matched["p"].values).astype(small)),
            "share_within": (by_map, _share(within["p"].values).astype(small)),
            "null_mean_within": (by_map, chance.mean(0).astype(small)),
            "null_high_within": (by_map, np.quantile(chance, 0.95, axis=0).astype(small)),
            "null_p_within": (by_map, _chance_p(chance, _share(within["p"].values)).astype(small)),
            "null_p_strict": (by_map, _chance_p(chance, _share(strict["p"].values)).astype(small)),
            "detectable": (by_map, (0.62 + 0 * share).astype(small)),
            "detectable_within": (by_map, (0.66 + 0 * share).astype(small)),
            "null_mean": (by_map, chance.mean(0).astype(small)),
            "null_high": (by_map, np.quantile(chance, 0.95, axis=0).astype(small)),
            "null_p": (by_map, _chance_p(chance, share).astype(small)),
            "per_example": (("example", *dims), values.astype(small)),
            "wrong": ("example", wrong),
            "answer_tokens": ("example", tokens),
            "topic": ("example", [("rivers", "capitals", "years")[index] for index in topic]),
            "stratum": ("example", topic),
            "stratum_strict": ("example", topic + 3 * (tokens > np.median(tokens))),
        },
        coords={
            "part": list(PARTS),
            "feature": list(FEATURES),
            "label": ("feature", [label for label, _ in FEATURES.values()]),
            "definition": ("feature", [definition for _, definition in FEATURES.values()]),
            "layer": np.arange(layers),
            "head": np.arange(heads),
            "example": [f"q-{index}" for index in range(examples)],
        },
        attrs={
            "title": "Which heads differ between wrong and correct answers",
            "record": json.dumps(["p", "q", "effect", "q_within", "effect_within"]),
            "counts": json.dumps({"correct": int((~wrong).sum()), "wrong": int(wrong.sum()), "refused": 19}),
            "strata": json.dumps(
                {
                    name: {"kind": kind, "strata": found.attrs["n_strata"], "answers": found.attrs["n_used"]}
                    for name, kind, found in (
                        ("within", "topic", within),
                        ("strict", "topic x length band", strict),
                        ("matched", "length", matched),
                    )
                }
            ),
            "provenance": provenance("spectral", layers, heads, data="questions", size=examples + 19),
        },
    )


def _ranks(values: np.ndarray) -> np.ndarray:
    """Over the examples, NaN where a cell was not measured; (example, part, feature, layer, head)."""
    measured = np.isfinite(values).all(0)
    return np.where(measured, rankdata(np.where(measured, values, 0), axis=0), np.nan)


def _tests(ranks: np.ndarray, wrong: np.ndarray) -> dict[str, np.ndarray]:
    """Mann-Whitney for all cells at once."""
    n, positives = len(wrong), int(wrong.sum())
    negatives = n - positives
    over = np.tensordot(wrong.astype(float), ranks, 1) - positives * (positives + 1) / 2
    z = np.abs(over - positives * negatives / 2) / np.sqrt(positives * negatives * (n + 1) / 12)
    effect = over / (positives * negatives)
    half = 1.96 * np.sqrt((n + 1) / (12 * positives * negatives))
    p = 2 * norm.sf(z)
    return {"p": p, "effect": effect, "effect_low": effect - half, "effect_high": effect + half, "q": _adjusted(p)}


def _adjusted(p: np.ndarray) -> np.ndarray:
    """Benjamini-Hochberg within each map."""
    flat = p.reshape(*p.shape[:2], -1)
    order = np.argsort(flat, axis=-1)
    size = flat.shape[-1]
    steps = np.take_along_axis(flat, order, -1) * size / np.arange(1, size + 1)
    steps = np.minimum(np.minimum.accumulate(steps[..., ::-1], axis=-1)[..., ::-1], 1)
    q = np.empty_like(flat)
    np.put_along_axis(q, order, steps, -1)
    return q.reshape(p.shape)


def _share(p: np.ndarray) -> np.ndarray:
    return np.where(np.isfinite(p).any((2, 3)), (p < 0.05).mean((2, 3)), np.nan)


def _chance_p(chance: np.ndarray, share: np.ndarray) -> np.ndarray:
    """The permutation p of a share of heads; 0 x share keeps NaN."""
    return (1 + (chance >= share).sum(0)) / (1 + len(chance)) + 0 * share


def as_version_1(dataset: xr.Dataset, pairs: int = 40) -> xr.Dataset:
    """As the study's first version stored it: no strata, and random pairs of answers of the same length."""
    counts = json.loads(dataset.attrs["counts"]) | {"pairs": pairs}
    attrs = {name: value for name, value in dataset.attrs.items() if name != "strata"}
    attrs |= {"counts": json.dumps(counts), "record": json.dumps(["p", "q", "effect"])}
    attrs["provenance"] = json.dumps(json.loads(attrs["provenance"]) | {"study_version": 1})
    late = [
        name
        for name in dataset.data_vars
        if any(word in str(name) for word in ("within", "strict", "detect", "stratum"))
    ]
    old = dataset.drop_vars(late)
    old.attrs = attrs
    return old
