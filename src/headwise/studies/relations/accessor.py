"""A relations Dataset as a describer reads it: categories and relations by name, who belongs where, what chance gives.

Numbers only; the sentences are in `account.py` and `findings.py`.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import xarray as xr

from headwise.core.dims import CATEGORY, HEAD, LAYER, RELATION
from headwise.describe import maps

SIGNS = ("score", "suppression")


class RelationsReading:
    """The parts of a relations study by name. Maps are (layer, head)."""

    def __init__(self, dataset: xr.Dataset) -> None:
        self.dataset = dataset
        self.origin: dict[str, Any] = json.loads(dataset.attrs.get("provenance", "{}"))
        self.parameters: dict[str, Any] = self.origin.get("parameters", {})
        self.relations = [str(name) for name in dataset[RELATION].values]
        self.categories = [str(name) for name in dataset[CATEGORY].values]
        self.layers = [int(layer) for layer in dataset[LAYER].values]
        self.heads = [int(head) for head in dataset[HEAD].values]
        self.threshold, self.shuffles = float(dataset.attrs["threshold"]), int(dataset.attrs["shuffles"])
        self.kept: list[dict[str, Any]] = json.loads(dataset.attrs["kept"])
        self.measured = dataset["best_score"].notnull()
        self.total = int(self.measured.sum())

    def score(self, relation: str, variable: str = "score") -> xr.DataArray:
        return self.dataset[variable].sel({RELATION: relation}).astype(float)

    def at(self, head: maps.HeadValue, relation: str, variable: str) -> float:
        return float(self.score(relation, variable).sel({LAYER: head.layer, HEAD: head.head}))

    def number(self, relation: str, variable: str) -> float:
        """A number a relation, such as its pairs."""
        return float(self.dataset[variable].sel({RELATION: relation}))

    def category_of(self, relation: str) -> str:
        return str(self.dataset["category_of"].sel({RELATION: relation}).values)

    def over(self, relation: str, variable: str = "score") -> int:
        """How many heads are over the threshold."""
        return int((self.dataset[variable].sel({RELATION: relation}) > np.float32(self.threshold)).sum())

    def member(self, category: str, which: str = "either") -> xr.DataArray:
        """1 for the heads of a category, 0 for others, NaN where there is no head."""
        chosen = self.dataset.sel({CATEGORY: category})
        found = chosen["member"] | chosen["member_suppression"] if which == "either" else chosen[which]
        return found.astype(float).where(self.measured)

    def size(self, category: str, which: str = "either") -> int:
        return int(self.member(category, which).sum())

    def counts(self) -> xr.DataArray:
        """How many categories each head has."""
        either = self.dataset["member"] | self.dataset["member_suppression"]
        return either.sum(CATEGORY).astype(float).where(self.measured)

    def with_categories(self, count: int) -> int:
        """Heads with exactly so many categories."""
        return int((self.counts() == count).sum())

    def several(self) -> list[tuple[maps.HeadValue, list[str]]]:
        """The heads of two categories or more, those of most first; with the names of the categories."""
        ranked = maps.strongest(self.counts(), self.total)
        found = [head for head in ranked if head.value >= 2]
        return [(head, self._categories(head)) for head in found]

    def beyond_null(self) -> int:
        """Heads that are in a category by a score that is over each of its own shuffles."""
        return int(self.dataset["member_beyond_null"].any(CATEGORY).sum())

    def false_positive(self, relation: str | None = None) -> float:
        """The share of head x relation scores over the threshold with shuffled targets, both signs together."""
        rates = [self.dataset[f"{sign}_false_positive"] for sign in SIGNS]
        chosen = [rate if relation is None else rate.sel({RELATION: relation}) for rate in rates]
        return float(np.mean([float(rate.astype(float).mean()) for rate in chosen]))

    def copied(self) -> dict[str, float]:
        """Relations that a head would pass that does nothing but copy what it reads, with its scores; the highest first."""
        found = {name: self.number(name, "copied_score") for name in self.relations}
        over = {name: share for name, share in found.items() if share > np.float32(self.threshold)}
        return dict(sorted(over.items(), key=lambda item: -item[1]))

    def passing(self, relations: list[str], *, beyond_copying: bool = False) -> int:
        """Heads that pass for one of these relations; or of these, those that score more there than copying would."""
        here = self.dataset.sel({RELATION: relations})
        over = here["score"] > np.float32(self.threshold)
        over = over & (here["score"] > here["copied_score"]) if beyond_copying else over
        return int(over.any(RELATION).sum())

    def left_out(self) -> list[dict[str, Any]]:
        """The relations that do not count with this tokenizer."""
        return [one for one in self.kept if not one["counts"]]

    def smallest(self) -> int:
        """Pairs of the relation that has fewest."""
        return int(self.dataset["pairs"].min())

    def _categories(self, head: maps.HeadValue) -> list[str]:
        place = {LAYER: head.layer, HEAD: head.head}
        return [name for name in self.categories if float(self.member(name).sel(place)) > 0]
