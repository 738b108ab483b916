"""Do the weights and the data say the same about a head? Four comparisons, each a computed sentence with a verdict.

| weights (relations) | data | they agree when |
|---|---|---|
| the relation "copying" | profile: induction, on repeated random tokens | an induction head also copies |
| a category | functions: importance for the function of the same kind | it is in the category and among the function's heads |
| a relation over the threshold | relation_validation: the head's own output in texts | its output holds the target there too |
| a category | profile: attention to the first token | the head attends elsewhere often enough to use what it computes |

"Attends as an induction head" means: the confidence interval lies over the uniform baseline, and the head is at or over the
90th percentile. The verdict is "agree", "disagree", or "open" where one side makes a claim that the other cannot refute: a
head may copy without being an induction head. Nothing is reported where neither side makes a claim. A verdict about one
head is no test: `agreement` tests whether studies agree over all heads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import xarray as xr

from headwise.analysis.head_facts import ConsistencyCheck, Measurement
from headwise.analysis.head_text import beyond
from headwise.core.dims import HEAD, LAYER, RELATION
from headwise.describe.writer import listed, percent, significant
from headwise.stats.rank_stats import percentile_per_map
from headwise.studies.functions.heads import FunctionFact
from headwise.studies.relations.heads import THRESHOLD_TOLERANCE, RelationFact

__all__ = ["ConsistencyChecks"]

FUNCTIONS_OF = {  # category of relations -> functions of the same kind
    "knowledge": ("Knowledge Recall",),
    "linguistic": ("Syntactic Understanding", "Semantic Understanding"),
}
COPYING, INDUCTION, SINK = "copying", "profile.induction", "profile.sink"
HIGH_PERCENTILE = 90.0  # from which a head stands out
MOSTLY_SINK = 0.9  # attention to the first token from which little is left for the rest


class ConsistencyChecks:
    """The comparisons of one atlas, for any head."""

    def __init__(self, datasets: Mapping[str, xr.Dataset]) -> None:
        validation = datasets.get("relation_validation")
        self._natural: np.ndarray | None = None
        if validation is not None and "relations" in datasets:
            self._relations = [str(name) for name in validation[RELATION].values]
            self._prompts = [int(count) for count in validation["prompts"].values]
            self._natural = validation["natural"].transpose(LAYER, HEAD, RELATION).values.astype(float)
            self._percentile = percentile_per_map(self._natural)
        relations = datasets.get("relations")
        self._copying: np.ndarray | None = None
        if relations is not None and COPYING in relations[RELATION].values.astype(str):
            self._copying = relations["score"].sel({RELATION: COPYING}).transpose(LAYER, HEAD).values.astype(float)
            self._threshold = float(relations.attrs["threshold"])

    def of(
        self,
        layer: int,
        head: int,
        values: Mapping[str, tuple[Measurement, ...]],
        functions: tuple[FunctionFact, ...],
        relations: tuple[RelationFact, ...],
        categories: tuple[str, ...],
    ) -> tuple[ConsistencyCheck, ...]:
        """All checks that apply to this head."""
        profile = {value.key: value for value in values.get("profile", ())}
        found: list[ConsistencyCheck] = []
        if self._copying is not None and INDUCTION in profile:
            found += _copying(float(self._copying[layer, head]), self._threshold, profile[INDUCTION])
        if relations and functions:
            found += _functions(categories, {fact.function: fact for fact in functions})
        found += self._in_texts(layer, head, relations)
        if categories and SINK in profile and profile[SINK].value >= MOSTLY_SINK:
            text = (
                f"It puts {percent(profile[SINK].value)} of its weight on the first token, so in texts it seldom applies "
                f"what its weights compute ({listed(list(categories))})."
            )
            found.append(ConsistencyCheck("open", text, "relations.categories", SINK))
        return tuple(found)

    def _in_texts(self, layer: int, head: int, relations: tuple[RelationFact, ...]) -> Iterator[ConsistencyCheck]:
        if self._natural is None:
            return
        for fact in relations:
            if not fact.over or fact.sign != "promotes" or fact.relation not in self._relations:
                continue
            index = self._relations.index(fact.relation)
            share, percentile = float(self._natural[layer, head, index]), float(self._percentile[layer, head, index])
            if not np.isfinite(share):
                continue
            verdict = "disagree" if share == 0 else "agree" if percentile >= HIGH_PERCENTILE else "open"
            text = (
                f"By its weights it maps {percent(fact.score)} of {fact.relation}; in {self._prompts[index]} texts its "
                f"output has the target among its first tokens in {percent(share)}"
            )
            text += "." if share == 0 else f", {beyond(percentile)}."
            yield ConsistencyCheck(verdict, text, f"relations.{fact.relation}", f"relation_validation.{fact.relation}")


def _copying(copying: float, threshold: float, induction: Measurement) -> Iterator[ConsistencyCheck]:
    attends = induction.low > np.nan_to_num(induction.baseline) and induction.percentile >= HIGH_PERCENTILE
    copies = copying > threshold + THRESHOLD_TOLERANCE
    if not (attends or copies) or not np.isfinite(copying):
        return
    attention = f"induction {significant(induction.value, 2)}, {beyond(induction.percentile)}"
    weights = f"copying {percent(copying)} of the pairs, threshold {percent(threshold)}"
    if attends and copies:
        verdict, text = "agree", f"It attends as an induction head ({attention}) and its weights copy ({weights})."
    elif attends:
        text = f"It attends as an induction head ({attention}), but its weights do not copy ({weights})."
        verdict = "disagree"
    else:
        text = f"Its weights copy ({weights}), but on repeated random tokens it does not stand out ({attention})."
        verdict = "open"
    yield ConsistencyCheck(verdict, text, "relations.copying", INDUCTION)


def _functions(categories: tuple[str, ...], facts: Mapping[str, FunctionFact]) -> Iterator[ConsistencyCheck]:
    for category, names in FUNCTIONS_OF.items():
        known = [facts[name] for name in names if name in facts and not facts[name].refused]
        within = [fact for fact in known if fact.chosen and fact.q < 0.05]
        if not known or not (within or category in categories):
            continue
        every = listed(
            [f"{fact.function} (rank {fact.rank} of {fact.n_heads}, q {significant(fact.q, 2)})" for fact in known]
        )
        if within and category in categories:
            verdict, text = "agree", f"Its weights match {category} relations, and it belongs to the heads of {every}."
            if len(within) < len(known):
                own = listed([fact.function for fact in within])
                text = f"Its weights match {category} relations; of {every}, it belongs to the heads of {own}."
        elif within:
            own = listed([f"{fact.function} (rank {fact.rank} of {fact.n_heads})" for fact in within])
            verdict = "open"
            text = f"It belongs to the heads of {own}, but its weights match no {category} relation of the study."
        else:
            verdict, text = (
                "disagree",
                f"Its weights match {category} relations, but it does not belong to the heads of {every}.",
            )
        data = "functions." + "/".join(fact.function for fact in known)
        yield ConsistencyCheck(verdict, text, f"relations.{category}", data)
