"""Do the weights and the data say the same of a head? Four comparisons, each a computed sentence with a verdict.

| the weights' side (relations) | the data's side | when they agree |
|---|---|---|
| the relation "copying" | profile: induction, on repeated random tokens | an induction head also copies |
| a category | functions: importance for the function of the same kind | in the category and among the function's heads |
| a relation over the threshold | relation_validation: the head's own output in texts | its output holds the target there too |
| a category | profile: weight on the first token | what the head computes is used only where it looks elsewhere |

"Attends as an induction head" means: the interval lies over what a uniform head gets, and nine tenths of the heads have
less. The verdict is "agree", "disagree", or "open" where one side claims something that the other cannot deny: a head may
copy without being an induction head, and recall what no relation asks for. Nothing is said where neither claims anything.
One head's verdict is no test: whether studies agree over all heads is for `joins.agreement`.

This module does not know how anything is measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import xarray as xr

from headwise.analysis.head_facts import FunctionFact, RelationFact, Value, View
from headwise.analysis.head_text import beyond
from headwise.analysis.rank_stats import places
from headwise.core.dims import HEAD, LAYER, RELATION
from headwise.describe.words import listed, percent, significant

__all__ = ["Views"]

ALIKE = {  # category of relations -> functions of the same kind
    "knowledge": ("Knowledge Recall",),
    "linguistic": ("Syntactic Understanding", "Semantic Understanding"),
}
COPYING, INDUCTION, SINK = "copying", "profile.induction", "profile.sink"
HIGH = 90.0  # percentile from which a head stands out
BUSY_ELSEWHERE = 0.9  # weight on the first token from which little is left for the rest


class Views:
    """The comparisons, ready to be made for any head."""

    def __init__(self, datasets: Mapping[str, xr.Dataset]) -> None:
        validation = datasets.get("relation_validation")
        self._natural: np.ndarray | None = None
        if validation is not None and "relations" in datasets:
            self._relations = [str(name) for name in validation[RELATION].values]
            self._prompts = [int(count) for count in validation["prompts"].values]
            self._natural = validation["natural"].transpose(LAYER, HEAD, RELATION).values.astype(float)
            shape = self._natural.shape
            self._percentile = places(self._natural.reshape(-1, shape[-1]))[0].reshape(shape)
        relations = datasets.get("relations")
        self._copying: np.ndarray | None = None
        if relations is not None and COPYING in relations[RELATION].values.astype(str):
            self._copying = relations["score"].sel({RELATION: COPYING}).transpose(LAYER, HEAD).values.astype(float)
            self._threshold = float(relations.attrs["threshold"])

    def of(
        self,
        layer: int,
        head: int,
        values: Mapping[str, tuple[Value, ...]],
        functions: tuple[FunctionFact, ...],
        relations: tuple[RelationFact, ...],
        categories: tuple[str, ...],
    ) -> tuple[View, ...]:
        """All that can be said of this head."""
        profile = {value.key: value for value in values.get("profile", ())}
        found: list[View] = []
        if self._copying is not None and INDUCTION in profile:
            found += _copying(float(self._copying[layer, head]), self._threshold, profile[INDUCTION])
        if relations and functions:
            found += _functions(categories, {fact.function: fact for fact in functions})
        found += self._in_texts(layer, head, relations)
        if categories and SINK in profile:
            found += _seldom_used(categories, profile[SINK])
        return tuple(found)

    def _in_texts(self, layer: int, head: int, relations: tuple[RelationFact, ...]) -> Iterator[View]:
        if self._natural is None:
            return
        for fact in relations:
            if not fact.over or fact.sign != "promotes" or fact.relation not in self._relations:
                continue
            place = self._relations.index(fact.relation)
            share, where = float(self._natural[layer, head, place]), float(self._percentile[layer, head, place])
            if not np.isfinite(share):
                continue
            verdict = "disagree" if share == 0 else "agree" if where >= HIGH else "open"
            text = (
                f"By its weights it maps {percent(fact.score)} of {fact.relation}; in {self._prompts[place]} texts its "
                f"output has the target among its first tokens in {percent(share)}"
            )
            text += "." if share == 0 else f", {beyond(where)}."
            yield View(verdict, text, f"relations.{fact.relation}", f"relation_validation.{fact.relation}")


def _copying(copying: float, threshold: float, induction: Value) -> Iterator[View]:
    attends = induction.low > np.nan_to_num(induction.baseline) and induction.percentile >= HIGH
    copies = copying > threshold + 1e-7
    if not (attends or copies) or not np.isfinite(copying):
        return
    looks = f"induction {significant(induction.value, 2)}, {beyond(induction.percentile)}"
    maps = f"copying {percent(copying)} of the pairs, the threshold is {percent(threshold)}"
    sides = ("relations.copying", INDUCTION)
    if attends and copies:
        yield View("agree", f"It attends as an induction head ({looks}) and its weights copy ({maps}).", *sides)
    elif attends:
        yield View(
            "disagree", f"It attends as an induction head ({looks}), but its weights do not copy ({maps}).", *sides
        )
    else:
        text = f"Its weights copy ({maps}), but on repeated random tokens it does not stand out ({looks})."
        yield View("open", text, *sides)


def _functions(categories: tuple[str, ...], facts: Mapping[str, FunctionFact]) -> Iterator[View]:
    for category, names in ALIKE.items():
        known = [facts[name] for name in names if name in facts and not facts[name].refused]
        within = [fact for fact in known if fact.chosen and fact.q < 0.05]
        if not known or not (within or category in categories):
            continue
        sides = (f"relations.{category}", "functions." + "/".join(fact.function for fact in known))
        told = listed(
            [f"{fact.function} (rank {fact.rank} of {fact.of}, q {significant(fact.q, 2)})" for fact in known]
        )
        if within and category in categories:
            text = f"By its weights it is {category}, and it is among the heads of {told}."
            if len(within) < len(known):
                own = listed([fact.function for fact in within])
                text = f"By its weights it is {category}; of {told} it is among the heads of {own}."
            yield View("agree", text, *sides)
        elif within:
            own = listed([f"{fact.function} (rank {fact.rank} of {fact.of})" for fact in within])
            text = (
                f"It is among the heads of {own}; by its weights it is not {category}, as far as the relations reach."
            )
            yield View("open", text, *sides)
        else:
            text = f"By its weights it is {category}, but it is not among the heads of {told}."
            yield View("disagree", text, *sides)


def _seldom_used(categories: tuple[str, ...], sink: Value) -> Iterator[View]:
    if sink.value >= BUSY_ELSEWHERE:
        text = (
            f"It puts {percent(sink.value)} of its weight on the first token, so in texts it seldom applies what its "
            f"weights compute ({listed(list(categories))})."
        )
        yield View("open", text, "relations.categories", SINK)
