"""Head reports of one atlas: a mapping from head names to reports, each made when it is looked up.

    reports = head_reports(atlas)      # reads the atlas once
    reports["L12H3"].summary
    for name, report in reports.items(): ...

Steps: read all studies; put their numbers on one (layer, head) grid (`columns`) with percentiles; prepare the neighbours;
then a lookup computes next to nothing. Cost: a second or two for the default model's atlas, then about 1 ms per head.

Studies that did not measure a head are listed in `HeadReport.missing`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import xarray as xr

from headwise.analysis.columns import Column, columns_of
from headwise.analysis.consistency import ConsistencyChecks
from headwise.analysis.head_facts import HeadReport, Measurement
from headwise.analysis.head_text import summary_of
from headwise.analysis.neighbours import Neighbourhood
from headwise.atlas import Atlas
from headwise.atlas.head_table import check_same_model
from headwise.core.dims import head_name, parse_head
from headwise.core.errors import DataError
from headwise.figures.provenance import model_name, provenance_of
from headwise.stats.rank_stats import rank_stats
from headwise.studies.functions.heads import FunctionFacts
from headwise.studies.patterns.heads import PatternFacts
from headwise.studies.registry import datasets as dataset_specs
from headwise.studies.relations.heads import RelationFacts, SalienceFacts

__all__ = ["HeadReports", "head_report", "head_reports"]


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
    return HeadReports({study: atlas[study] for study in atlas.studies})


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
    return head_reports(atlas)[name]
