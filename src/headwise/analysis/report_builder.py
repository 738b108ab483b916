"""Head reports of one atlas: a mapping from head names to reports, each made when it is looked up.

    reports = head_reports(atlas)      # reads the atlas once
    reports["L12H3"].summary
    for name, report in reports.items(): ...

Steps: read all studies; put their numbers on one (layer, head) grid (`columns`) with percentiles; prepare the neighbours;
then a lookup computes next to nothing. Cost: a second or two for the default model's atlas, then about 1 ms per head.

Studies that did not measure a head are listed in `HeadReport.missing`.

`ConsistencyChecks`: do the weights and the data say the same about a head? Four comparisons, each a sentence with a verdict.

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

from headwise.analysis.columns import Column, columns_of
from headwise.analysis.head_facts import ConsistencyCheck, HeadReport, Measurement
from headwise.analysis.head_text import beyond, summary_of
from headwise.analysis.neighbours import Neighbourhood
from headwise.atlas import Atlas
from headwise.atlas.head_table import check_same_model
from headwise.core.dims import HEAD, LAYER, RELATION, head_name, parse_head
from headwise.core.errors import DataError, translate_content_errors
from headwise.describe.writer import listed, percent, significant
from headwise.figures.provenance import model_name, provenance_of
from headwise.stats.ranks import percentile_per_map, rank_stats
from headwise.studies.functions.heads import FunctionFact, FunctionFacts
from headwise.studies.patterns.heads import PatternFacts
from headwise.studies.registry import datasets as dataset_specs
from headwise.studies.relations.heads import THRESHOLD_TOLERANCE, RelationFact, RelationFacts, SalienceFacts


class HeadReports(Mapping[str, HeadReport]):
    """The head reports of one atlas by head name, layer by layer. Made by `head_reports`.

    Args:
        datasets: by study, as an atlas gives them.

    Examples:
        >>> reports = HeadReports({"profile": atlas["profile"]})
        >>> len(reports), list(reports)[:3], reports["L3H2"].layer
        (36, ['L0H0', 'L0H1', 'L0H2'], 3)
    """

    def __init__(self, datasets: Mapping[str, xr.Dataset]) -> None:
        check_same_model(datasets)
        self.columns = columns_of(datasets)
        self._percentile, self._rank, self._measured = rank_stats(self.columns.matrix())
        self._names = {name: row for row, name in enumerate(self.columns.names)}
        self._model = model_name(provenance_of(next(iter(datasets.values())))) or "the model"
        self._titles = {study: str(one.attrs.get("title", study)) for study, one in datasets.items()}
        self.neighbourhood = Neighbourhood(self.columns)
        functions, relations = datasets.get("functions"), datasets.get("relations")
        self._functions = functions if functions is None else FunctionFacts(functions, datasets.get("function_masking"))
        self._relations = relations if relations is None else RelationFacts(relations)
        self._salience = SalienceFacts(datasets["salience"]) if "salience" in datasets else None
        self._patterns = PatternFacts(datasets["patterns"]) if "patterns" in datasets else None
        self._by_facts = {name for name, spec in dataset_specs().items() if spec.head_facts}
        self._consistency = ConsistencyChecks(datasets)
        self._note = self._neighbours_note()

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __getitem__(self, name: str) -> HeadReport:
        layer, head = self._index(name)
        name = head_name(layer, head)
        row = self._names[name]
        values = {study: self._values(study, row) for study in self.columns.studies}
        relations = self._relations.of(layer, head) if self._relations else ()
        functions = self._functions.of(layer, head) if self._functions else ()
        salient = self._salience.of(layer, head) if self._salience else ()
        patterns = self._patterns.of(layer, head) if self._patterns else None
        categories = self._relations.categories(layer, head) if self._relations else ()
        plain = {study: found for study, found in values.items() if study not in self._by_facts}
        missing = self._missing(values, salient)
        summary = summary_of(name, layer, self.columns.layers, plain, functions, relations, categories, missing)
        return HeadReport(
            name=name,
            layer=layer,
            head=head,
            model=self._model,
            layers=self.columns.layers,
            heads=self.columns.heads,
            summary=summary,
            values={study: found for study, found in plain.items() if study not in missing},
            titles=self._titles,
            functions=() if "functions" in missing else functions,
            relations=relations,
            categories=categories,
            salient=salient,
            patterns=patterns,
            neighbours=self.neighbourhood.of(name),
            neighbours_note=self._note,
            consistency=self._consistency.of(layer, head, values, functions, relations, categories),
            missing=missing,
        )

    def _index(self, name: str) -> tuple[int, int]:
        layer, head = parse_head(name)
        if layer >= self.columns.layers or head >= self.columns.heads:
            raise DataError(
                f"There is no head {head_name(layer, head)}: the atlas has layers 0 to {self.columns.layers - 1} with "
                f"heads 0 to {self.columns.heads - 1}."
            )
        return layer, head

    def _values(self, study: str, row: int) -> tuple[Measurement, ...]:
        return tuple(
            self._value(index, column, row)
            for index, column in enumerate(self.columns.columns)
            if column.study == study and np.isfinite(column.values.flat[row])
        )

    def _value(self, index: int, column: Column, row: int) -> Measurement:
        def at(companion: np.ndarray | None) -> float:
            return float("nan") if companion is None else float(companion.flat[row])

        baseline = at(column.baseline)
        return Measurement(
            key=column.name,
            label=column.label,
            value=at(column.values),
            low=at(column.low),
            high=at(column.high),
            baseline=baseline,
            baseline_name=column.baseline_name if np.isfinite(baseline) else "",
            percentile=float(self._percentile[row, index]),
            rank=int(self._rank[row, index]),
            n_heads=int(self._measured[index]),
            p=at(column.p),
            q=at(column.q),
            q_matched=at(column.q_matched),
            within=at(column.within),
            q_within=at(column.q_within),
            unit=column.unit,
            definition=column.definition,
        )

    def _missing(self, values: Mapping[str, tuple[Measurement, ...]], salient: tuple[object, ...]) -> dict[str, str]:
        found = {}
        for study, spec in dataset_specs().items():
            if spec.head_columns is None:
                continue
            if study not in self._titles:
                found[study] = f"not in this atlas; add it with headwise build --studies {study} -o ATLAS"
            elif study in self._titles and not (salient if study == "salience" else values.get(study)):
                found[study] = "this study did not measure this head"
        return found

    def _neighbours_note(self) -> str:
        studies = len(self.columns.studies)
        if studies < 2:
            return f"Distance: by rank in the {len(self.columns.columns)} columns of {self.columns.studies[0]}."
        chance = float(np.median(self.neighbourhood.chance)) if len(self.neighbourhood.chance) else float("nan")
        middle = float(np.median(self.neighbourhood.spread)) if len(self.neighbourhood.spread) else float("nan")
        return (
            f"Distance: by rank in the {len(self.columns.columns)} columns of {studies} studies, each study weighted equally. "
            f"The median distance of two heads of this model is {middle:.2f}. By chance: each study's heads are shuffled "
            f"within their layers; the median distance to the closest head is then {chance:.2f}."
        )


def head_reports(atlas: Atlas) -> HeadReports:
    """Reports of all heads of an atlas, each made when it is looked up.

    Args:
        atlas: read once.

    Returns:
        A mapping from head names to reports.

    Examples:
        >>> reports = head_reports(atlas)
        >>> len(reports), "L3H2" in reports
        (36, True)
    """
    return HeadReports(atlas.datasets())


def head_report(atlas: Atlas, name: str) -> HeadReport:
    """Everything that an atlas knows about one head. For several heads, use `head_reports` once.

    Args:
        atlas: read once per call.
        name: of the head, such as "L12H3".

    Returns:
        Numbers with intervals, baselines and percentiles; relations, functions, patterns, neighbours.

    Examples:
        >>> known = head_report(atlas, "L3H2")
        >>> known.model, [neighbour.name for neighbour in known.neighbours][:1]
        ('HuggingFaceTB/SmolLM2-135M-Instruct', ['L1H1'])
    """
    with translate_content_errors(f"The atlas {atlas.location}"):
        return head_reports(atlas)[name]


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
