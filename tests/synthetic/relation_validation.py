"""A synthetic relation validation: outputs that follow the scores from weights more or less, and removal curves.

Tests of figures and of words use it.
"""

from __future__ import annotations

import json

import numpy as np
import xarray as xr

from synthetic.origin import provenance

RELATIONS = {  # name -> category, how closely outputs follow the weights
    "copying": ("algorithmic", 0.95), "first-letter": ("algorithmic", 0.6), "successor": ("algorithmic", 0.7),
    "name-copying": ("algorithmic", 0.9), "country-capital": ("knowledge", 0.8), "work-location": ("knowledge", 0.3),
    "antonym": ("linguistic", 0.75), "past-tense": ("linguistic", 0.85), "plural": ("linguistic", 0.9),
    "comparative": ("linguistic", 0.5), "english-french": ("translation", 0.65), "english-german": ("translation", 0.0),
}  # fmt: skip
TASKS = ("antonym", "country-capital", "past-tense", "plural")
STEPS, DRAWS = (1, 2, 4, 8, 16, 32), 5


def relation_validation_dataset(layers: int = 30, heads: int = 9, *, tasks: int = 4, seed: int = 0) -> xr.Dataset:
    """The first so many tasks: the first loses all, the last nothing."""
    rng = np.random.default_rng(seed)
    shape = (len(RELATIONS), layers, heads)
    score = np.where(rng.random(shape) < 0.04, rng.random(shape), 0.02 * rng.random(shape))
    close = np.array([share for _, share in RELATIONS.values()])[:, None, None]
    forced = np.clip(
        0.001 * rng.random(shape) + close * score + (1 - close) * 0.5 * rng.random(shape) * (rng.random(shape) < 0.1),
        0,
        1,
    )
    natural = np.clip(forced * rng.random(shape), 0, 1)
    maps = {"score": score, "natural": natural, "forced": forced}
    variables: dict[str, tuple[object, np.ndarray]] = {
        name: (("relation", "layer", "head"), values) for name, values in maps.items()
    }
    for kind, values in (("natural", natural), ("forced", forced)):
        value = np.array([np.corrcoef(a.ravel(), b.ravel())[0, 1] for a, b in zip(values, score, strict=True)])
        variables |= _ends(f"pearson_{kind}", "relation", value, 0.12)
        variables[f"other_{kind}"] = ("relation", 0.1 * rng.random(len(RELATIONS)))
    variables |= _removal(tasks, rng)
    names = np.array(TASKS[:tasks], dtype=object)
    dataset = xr.Dataset(variables).astype(np.float32)
    return dataset.assign_coords(
        {
            "relation": np.array(list(RELATIONS), dtype=object),
            "category_of": ("relation", np.array([category for category, _ in RELATIONS.values()], dtype=object)),
            "prompts": ("relation", np.full(len(RELATIONS), 30)),
            "layer": np.arange(layers), "head": np.arange(heads), "task": names, "control": names,
            "removed": np.array(STEPS), "tried": ("task", np.full(tasks, 40)),
            "right": ("task", np.full(tasks, 33)), "asked": ("task", np.full(tasks, 25)),
        }
    ).assign_attrs(
        title="Heads in texts against their weights, and tasks without them", record="[]", least_solved=15,
        unsolved=json.dumps({"comparative": [7, 40]}),
        provenance=provenance("relation_validation", layers, heads, data="packaged relations", size=12),
    )  # fmt: skip


def _removal(tasks: int, rng: np.random.Generator) -> dict[str, tuple[object, np.ndarray]]:
    depth = np.linspace(1, 0, max(tasks, 2))[:tasks, None]
    fall = np.linspace(0.1, 1, len(STEPS))[None]
    own = np.clip(1 - depth * fall - 0.02, 0, 1)
    draws = np.clip(1 - 0.1 * fall[:, None] + 0.03 * rng.normal(size=(tasks, DRAWS, len(STEPS))), 0, 1)
    others = np.clip(1 - 0.15 * np.ones((tasks, tasks, 1)) * fall[None], 0, 1)
    others[np.eye(tasks, dtype=bool)] = np.nan
    if tasks > 1:
        own[1, -2:] = draws[1, :, -2:] = np.nan  # fewer heads than steps
    random = draws.mean(1)
    effect, spill = np.nanmean(random - own, axis=1), np.full(tasks, 0.03)
    return {
        **_ends("own", ("task", "removed"), own, 0.1), **_ends("random", ("task", "removed"), random, 0.03),
        "random_draws": (("task", "draw", "removed"), draws), "others": (("task", "control", "removed"), others),
        "rank_p": ("task", np.where(effect > 0.08, 1 / 21, 0.5)), "rank_q": ("task", np.where(effect > 0.08, 2 / 21, 0.5)),
        **_ends("effect", "task", effect, 0.08), **_ends("spill", "task", spill, 0.04),
    }  # fmt: skip


def _ends(name: str, dims: object, values: np.ndarray, half: float) -> dict[str, tuple[object, np.ndarray]]:
    return {
        name: (dims, values),
        f"{name}_low": (dims, values - half),
        f"{name}_high": (dims, np.minimum(values + half, 1.0)),
    }
