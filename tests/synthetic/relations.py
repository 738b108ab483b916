"""A synthetic relations Dataset: hits drawn for every head and pair, with some heads planted; all else is computed.

Planted: L3H1 knows every knowledge relation, L5H0 the linguistic ones by suppression, L6H2 has three categories, and L7H1
all four. ``layers`` and ``heads`` must be at least 8 and 3 for them to be there.
"""

from __future__ import annotations

import json

import numpy as np
import xarray as xr

from headwise.studies.relations.spec import PUBLISHED
from synthetic.origin import provenance

RELATIONS = {  # name -> category, pairs, copying
    "copying": ("algorithmic", 60, True),
    "successor": ("algorithmic", 30, False),
    "country-capital": ("knowledge", 40, False),
    "product-company": ("knowledge", 34, False),
    "antonym": ("linguistic", 90, False),
    "entity-pronoun": ("linguistic", 50, False),
    "english-french": ("translation", 36, False),
}
CATEGORIES = ("algorithmic", "knowledge", "linguistic", "translation")
PLANTED = {  # layer, head -> sign, categories
    (3, 1): ("score", ("knowledge",)),
    (5, 0): ("suppression", ("linguistic",)),
    (6, 2): ("score", ("algorithmic", "knowledge", "linguistic")),
    (7, 1): ("score", CATEGORIES),
}
THRESHOLD, SHUFFLES = 0.15, 20


def relations_dataset(layers: int = 30, heads: int = 9, *, seed: int = 0, missing: int | None = None) -> xr.Dataset:
    """``missing``: a layer that has no heads."""
    generator = np.random.default_rng(seed)
    names = list(RELATIONS)
    category_of = [RELATIONS[name][0] for name in names]
    sizes = np.array([RELATIONS[name][1] for name in names])
    relation = np.repeat(np.arange(len(names)), sizes)
    shape = (len(relation), layers, heads)
    hits = {sign: generator.random(shape) < 0.01 for sign in ("score", "suppression")}
    for (layer, head), (sign, categories) in PLANTED.items():
        if layer < layers and head < heads:
            own = np.isin(np.array(category_of)[relation], categories)
            hits[sign][own, layer, head] = generator.random(own.sum()) < 0.6
    there = np.ones((layers, heads), dtype=bool)
    if missing is not None:
        there[missing] = False
    variables: dict[str, object] = {}
    over, beyond = {}, []
    shuffled = np.zeros((len(names), layers, heads, SHUFFLES), dtype=bool)
    for sign, hit in hits.items():
        hit &= there
        counts = np.zeros((len(names), layers, heads))
        np.add.at(counts, relation, hit)
        share = np.where(there, counts / sizes[:, None, None], np.nan)
        null = generator.binomial(sizes[:, None, None, None], 0.01, (len(names), layers, heads, SHUFFLES))
        null = null / sizes[:, None, None, None]
        null[names.index("entity-pronoun")] += 0.2 * (generator.random((layers, heads, 1)) < 0.1)
        null = np.where(there[None, :, :, None], null, np.nan)
        low, high = _wilson(share, sizes[:, None, None])
        passed = np.where(np.isnan(null), np.nan, null > THRESHOLD)
        shuffled |= null > THRESHOLD
        parts = {"": share, "_low": low, "_high": high, "_null": null.mean(-1), "_null_high": null.max(-1)}
        parts["_null_over"] = passed.mean(-1)
        variables |= {f"{sign}{part}": (("relation", "layer", "head"), v.astype("f4")) for part, v in parts.items()}
        variables[f"{sign}_false_positive"] = ("relation", np.nanmean(passed, axis=(1, 2, 3)).astype("f4"))
        over[sign] = share > THRESHOLD
        beyond.append(over[sign] & (share > null.max(-1)))
    kinds = {
        "member": over["score"],
        "member_suppression": over["suppression"],
        "member_beyond_null": beyond[0] | beyond[1],
    }
    for name, which in kinds.items():
        by = np.stack([which[np.array(category_of) == category].any(0) for category in CATEGORIES])
        variables[name] = (("category", "layer", "head"), by)
    both = np.concatenate([variables[sign][1] for sign in ("score", "suppression")])  # type: ignore[index]
    top = np.where(there, np.nan_to_num(both).max(0), np.nan)
    either = variables["member"][1] | variables["member_suppression"][1]  # type: ignore[index]
    words = [", ".join(c for c, in_it in zip(CATEGORIES, row, strict=True) if in_it) for row in either.reshape(4, -1).T]
    best = np.array([*names, *(f"{name} (suppressed)" for name in names)], dtype=object)[np.nan_to_num(both).argmax(0)]
    paper = np.isin(names, list(PUBLISHED))
    variables |= {
        "null_heads": ("draw", shuffled.any(0).sum((0, 1))),
        "null_heads_published": ("draw", shuffled[paper].any(0).sum((0, 1))),
        "categories": (("layer", "head"), np.array(words, dtype=object).reshape(layers, heads)),
        "best": (("layer", "head"), np.where(top > THRESHOLD, best, "")),
        "best_score": (("layer", "head"), top.astype("f4")),
        "mapped": (("example", "layer", "head"), hits["score"]),
        "suppressed": (("example", "layer", "head"), hits["suppression"]),
        "pairs": ("relation", sizes),
        "given": ("relation", sizes + 10),
        "k": ("relation", np.array([1 if RELATIONS[name][2] else 10 for name in names])),
    }
    of = np.array(names, dtype=object)[relation]
    return xr.Dataset(
        variables,
        coords={
            "relation": np.array(names, dtype=object),
            "category_of": ("relation", np.array(category_of, dtype=object)),
            "category": np.array(CATEGORIES, dtype=object),
            "layer": np.arange(layers),
            "head": np.arange(heads),
            "example": np.array([f"{name}: s{i} -> t{i}" for i, name in enumerate(of)], dtype=object),
            "source": ("example", np.array([f"s{i}" for i in range(len(of))], dtype=object)),
            "target_word": ("example", np.array([f"t{i}" for i in range(len(of))], dtype=object)),
            "relation_of": ("example", of),
        },
        attrs={
            "title": "What each head computes, from its weights",
            "record": json.dumps(["categories", "best", "best_score"]),
            "threshold": THRESHOLD,
            "shuffles": SHUFFLES,
            "kept": json.dumps(_report()),
            "provenance": provenance(
                "relations",
                layers,
                heads,
                data="packaged relations",
                size=len(relation),
                parameters={"norms": "raw", "embedding": "effective"},
            ),
        },
    )


def _report() -> list[dict[str, object]]:
    kept = [
        {
            "relation": name, "category": category, "given": size + 10, "kept": size, "counts": True,
            "dropped": {"target is several tokens": 10},
        }
        for name, (category, size, _) in RELATIONS.items()
    ]  # fmt: skip
    years = {"both are several tokens": 200, "target is several tokens": 3}
    left = {"relation": "year-following", "category": "algorithmic", "given": 230, "kept": 27, "counts": False}
    return [*kept, {**left, "dropped": years}]


def _wilson(share: np.ndarray, size: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    z = 1.959964
    middle = (share + z**2 / (2 * size)) / (1 + z**2 / size)
    half = z * np.sqrt(share * (1 - share) / size + z**2 / (4 * size**2)) / (1 + z**2 / size)
    return np.clip(middle - half, 0, 1), np.clip(middle + half, 0, 1)
