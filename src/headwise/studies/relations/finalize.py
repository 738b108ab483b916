"""From the readings of all layers to the Datasets of the relations study.

`relations`: scores with intervals and nulls (relation, layer, head), category membership (category, layer, head), which
pairs each head maps correctly (example, layer, head). `salience`: tokens and targets (layer, head, rank), with their texts.

| variable                             | what it is                                                               |
|--------------------------------------|--------------------------------------------------------------------------|
| score, suppression                   | share of pairs whose target is among the k largest (smallest) entries    |
| *_low, *_high                        | Wilson's 95 % interval                                                   |
| *_null, *_null_high, *_null_over     | permuted targets: mean, maximum, share of shuffles above the threshold   |
| *_false_positive                     | the same share over all heads, per relation                              |
| null_heads, null_heads_published     | heads that a shuffle classifies; by the twenty published relations alone |
| copied_score, copied_suppression     | scores of a head that only copies what it reads, per relation            |
| member, member_suppression           | a relation of the category is above the threshold                        |
| member_beyond_null                   | ... by either sign, and above each of its own shuffles                   |
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from headwise.core.dims import CATEGORY, DRAW, EXAMPLE, HEAD, LAYER, RANK, RELATION, TARGET, VOCABULARY
from headwise.core.schema import with_interval
from headwise.corpora import SingleTokenPairs
from headwise.model import readable_tokens
from headwise.stats import wilson_interval
from headwise.studies.relations.spec import SIGNS

CATEGORY_ORDER = ("algorithmic", "knowledge", "linguistic", "translation")  # others follow
TOKENS_IN_HEAD_TABLE = 5


@dataclass(frozen=True)
class TokenPairs:
    """Token ids of all pairs, relation after relation."""

    sources: np.ndarray  # (pair,)
    targets: np.ndarray  # (draw, pair); draw 0 is the real targets, the others are permuted within each relation
    relation: np.ndarray  # (pair,): index of its relation
    k: np.ndarray  # (relation,)
    published: np.ndarray  # (relation,): whether it is one of the paper's

    @property
    def sizes(self) -> np.ndarray:
        """Number of pairs of each relation."""
        return np.bincount(self.relation, minlength=len(self.k))


def finalize(
    readings: xr.Dataset, usable: Sequence[SingleTokenPairs], pairs: TokenPairs, threshold: float
) -> xr.Dataset:
    """Scores, nulls and categories of every head."""
    counted = [one for one in usable if one.counts]
    named = _named(readings, counted, pairs)
    scores = _scores(named, pairs)
    category_of = [one.relation.category for one in counted]
    members = _members(scores, category_of, threshold)
    maps = xr.merge([scores, members, _best(scores, members, threshold)], compat="override", join="override")
    for sign, name in zip(SIGNS, ("mapped", "suppressed"), strict=True):
        maps[name] = named[f"{sign}_mapped"].transpose(EXAMPLE, LAYER, HEAD)
    maps = maps.assign(
        pairs=(RELATION, pairs.sizes),
        given=(RELATION, np.array([len(one.relation) for one in counted])),
        k=(RELATION, pairs.k),
    )
    for name, which in (("null_heads", "null_classified"), ("null_heads_published", "null_classified_published")):
        maps[name] = (DRAW, named[which].sum((LAYER, HEAD)).values.astype(np.int64))
    return maps.assign_coords(category_of=(RELATION, category_of)).assign_attrs(
        title="What each head computes, from its weights",
        record=json.dumps(["categories", "best", "best_score"]),
        threshold=threshold,
        shuffles=len(pairs.targets) - 1,
        kept=json.dumps(_report(usable), ensure_ascii=False),
    )


def finalize_salience(readings: xr.Dataset, model: Any, left_out: int) -> xr.Dataset:
    """The tokens that each head amplifies most, and the tokens that it maps them to."""
    found = readings[["strength", "token", "targets"]].transpose(LAYER, HEAD, RANK, TARGET)
    found = found.assign(strength=found["strength"].astype(np.float32))
    ids = np.unique(np.concatenate([found[name].values.ravel() for name in ("token", "targets")]))
    ids = ids[ids >= 0]
    texts = np.array(readable_tokens(model.tokenizer, [int(one) for one in ids]), dtype=object)
    known = dict(zip(ids.tolist(), texts.tolist(), strict=True))
    tops = found["token"].values[..., :TOKENS_IN_HEAD_TABLE]
    rows: list[list[int]] = tops.reshape(-1, tops.shape[-1]).tolist()
    words = [", ".join(known[one].strip() or repr(known[one]) for one in row if one >= 0) for row in rows]
    return (
        found.assign(
            text=(VOCABULARY, texts), tokens=((LAYER, HEAD), np.array(words, dtype=object).reshape(tops.shape[:2]))
        )
        .assign_coords(
            {
                VOCABULARY: ids.astype(np.int32),
                RANK: np.arange(found.sizes[RANK]),
                TARGET: np.arange(found.sizes[TARGET]),
            }
        )
        .assign_attrs(title="The tokens each head acts on most", record=json.dumps(["tokens"]), left_out=left_out)
    )


def _named(readings: xr.Dataset, counted: Sequence[SingleTokenPairs], pairs: TokenPairs) -> xr.Dataset:
    """The readings with the names of relations and pairs as coordinates."""
    words = [pair for one in counted for pair in one.pairs]
    names = [one.relation.name for one in counted]
    of = [names[index] for index in pairs.relation]
    return readings.assign_coords(
        {
            RELATION: np.array(names, dtype=object),
            EXAMPLE: np.array([f"{name}: {a} -> {b}" for name, (a, b) in zip(of, words, strict=True)], dtype=object),
            "source": (EXAMPLE, np.array([source for source, _ in words], dtype=object)),
            "target_word": (EXAMPLE, np.array([target for _, target in words], dtype=object)),
            "relation_of": (EXAMPLE, np.array(of, dtype=object)),
        }
    )


def _scores(named: xr.Dataset, pairs: TokenPairs) -> xr.Dataset:
    found: dict[str, xr.DataArray] = {}
    for sign in SIGNS:
        mapped = named[f"{sign}_mapped"].transpose(EXAMPLE, LAYER, HEAD)
        counts = np.zeros((len(pairs.k), *mapped.shape[1:]))
        np.add.at(counts, pairs.relation, mapped.values)
        sizes = pairs.sizes[:, None, None]
        share = xr.DataArray(counts / sizes, dims=(RELATION, LAYER, HEAD)).where(named["measured"])
        low, high = wilson_interval(share.values, sizes)
        found |= with_interval(sign, share, share.copy(data=low), share.copy(data=high))
        for name in ("null", "null_high", "null_over"):
            found[f"{sign}_{name}"] = named[f"{sign}_{name}"].transpose(RELATION, LAYER, HEAD)
        found[f"{sign}_false_positive"] = found[f"{sign}_null_over"].mean((LAYER, HEAD))
    coords = {name: named[name] for name in (RELATION, LAYER, HEAD)}
    return xr.Dataset(found).astype(np.float32).assign_coords(coords)


def _members(scores: xr.Dataset, category_of: Sequence[str], threshold: float) -> xr.Dataset:
    """Which categories each head belongs to: those of the relations with a score above the threshold."""
    categories = list(dict.fromkeys(category_of))
    names = [name for name in CATEGORY_ORDER if name in categories]
    names += [name for name in categories if name not in CATEGORY_ORDER]
    over = {sign: scores[sign] > np.float32(threshold) for sign in SIGNS}
    beyond = [over[sign] & (scores[sign] > scores[f"{sign}_null_high"]) for sign in SIGNS]
    kinds = {
        "member": over["score"],
        "member_suppression": over["suppression"],
        "member_beyond_null": beyond[0] | beyond[1],
    }

    def by_category(which: xr.DataArray) -> xr.DataArray:
        parts = [which.isel({RELATION: np.array(category_of) == name}).any(RELATION) for name in names]
        return xr.concat(parts, dim=CATEGORY).assign_coords({CATEGORY: np.array(names, dtype=object)})

    return xr.Dataset({name: by_category(which) for name, which in kinds.items()})


def _best(scores: xr.Dataset, members: xr.Dataset, threshold: float) -> xr.Dataset:
    """Per head: its categories, and the relation of its largest score; empty where none is above the threshold."""
    either = (members["member"] | members["member_suppression"]).transpose(LAYER, HEAD, CATEGORY).values
    labels = [str(name) for name in members[CATEGORY].values]
    words = [
        ", ".join(label for label, belongs in zip(labels, row, strict=True) if belongs)
        for row in either.reshape(-1, len(labels))
    ]
    both = np.concatenate([scores[sign].transpose(RELATION, LAYER, HEAD).values for sign in SIGNS])
    names = [str(name) for name in scores[RELATION].values]
    names = names + [f"{name} (suppressed)" for name in names]
    measured = np.isfinite(both).all(0)
    index, top = np.nan_to_num(both, nan=-1).argmax(0), np.where(measured, np.nan_to_num(both, nan=-1).max(0), np.nan)
    best = np.where(top > np.float32(threshold), np.array(names, dtype=object)[index], "")
    return xr.Dataset(
        {
            "categories": ((LAYER, HEAD), np.array(words, dtype=object).reshape(either.shape[:2])),
            "best": ((LAYER, HEAD), best),
            "best_score": ((LAYER, HEAD), top.astype(np.float32)),
        }
    )


def _report(usable: Sequence[SingleTokenPairs]) -> list[dict[str, Any]]:
    """How many pairs of every relation are usable with this tokenizer, also of those that do not count."""
    return [
        {
            "relation": one.relation.name,
            "category": one.relation.category,
            "given": len(one.relation),
            "kept": len(one),
            "counts": one.counts,
            "dropped": dict(one.dropped),
        }
        for one in usable
    ]
