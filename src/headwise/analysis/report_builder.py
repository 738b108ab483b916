"""Everything an atlas knows of each head: a mapping from head names to head_reports, each made when it is asked for.

    every = head_reports(atlas)            # reads the atlas once
    every["L12H3"].summary
    for name, one in every.items(): ...

Steps: read all studies; lay their numbers on one grid (`columns`), with percentiles; prepare neighbours; then a head_report is
looked up, not computed. Cost: a second or two for the default model's atlas, then about a millisecond a head.

What a study did not measure is said in `missing`. This module does not know how anything is measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import xarray as xr

from headwise.analysis.columns import Column, columns_of
from headwise.analysis.consistency import Views
from headwise.analysis.head_facts import HeadReport, Value
from headwise.analysis.head_text import summary_of
from headwise.analysis.neighbours import Neighbourhood
from headwise.analysis.rank_stats import places
from headwise.analysis.study_facts import FunctionFacts, PatternFacts, RelationFacts, SalienceFacts
from headwise.atlas import Atlas
from headwise.atlas.head_table import check_same_model
from headwise.core.dims import head_name, parse_head
from headwise.core.errors import DataError
from headwise.figures.origin import model_name, origin_of
from headwise.studies.registry import datasets

__all__ = ["HeadReports", "head_report", "head_reports"]

OWN_FACTS = ("functions", "relations")  # told by facts of their own, not as values


class HeadReports(Mapping[str, HeadReport]):
    """The heads of one atlas by name, in the order of layers. Made by `head_reports`.

    Args:
        datasets: by study, as an atlas gives them.

    Examples:
        >>> every = HeadReports({"profile": atlas["profile"]})
        >>> len(every), list(every)[:3], every["L3H2"].layer
        (36, ['L0H0', 'L0H1', 'L0H2'], 3)
    """

    def __init__(self, datasets: Mapping[str, xr.Dataset]) -> None:
        check_same_model(datasets)
        self.columns = columns_of(datasets)
        self._percentile, self._rank, self._of = places(self.columns.matrix())
        self._names = {name: place for place, name in enumerate(self.columns.names)}
        self._model = model_name(origin_of(next(iter(datasets.values())))) or "the model"
        self._titles = {study: str(one.attrs.get("title", study)) for study, one in datasets.items()}
        self.neighbourhood = Neighbourhood(self.columns)
        functions, relations = datasets.get("functions"), datasets.get("relations")
        self._functions = functions if functions is None else FunctionFacts(functions, datasets.get("function_masking"))
        self._relations = relations if relations is None else RelationFacts(relations)
        self._salience = SalienceFacts(datasets["salience"]) if "salience" in datasets else None
        self._patterns = PatternFacts(datasets["patterns"]) if "patterns" in datasets else None
        self._views = Views(datasets)
        self._note = self._told_of_neighbours()

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __getitem__(self, name: str) -> HeadReport:
        layer, head = self._place(name)
        name = head_name(layer, head)
        row = self._names[name]
        values = {study: self._values(study, row) for study in self.columns.studies}
        relations = self._relations.of(layer, head) if self._relations else ()
        functions = self._functions.of(layer, head) if self._functions else ()
        salient = self._salience.of(layer, head) if self._salience else ()
        patterns = self._patterns.of(layer, head) if self._patterns else None
        categories = self._relations.categories(layer, head) if self._relations else ()
        told = {study: found for study, found in values.items() if study not in OWN_FACTS}
        missing = self._missing(values, salient)
        summary = summary_of(name, layer, self.columns.layers, told, functions, relations, categories, missing)
        return HeadReport(
            name=name,
            layer=layer,
            head=head,
            model=self._model,
            layers=self.columns.layers,
            heads=self.columns.heads,
            summary=summary,
            values={study: found for study, found in told.items() if study not in missing},
            titles=self._titles,
            functions=() if "functions" in missing else functions,
            relations=relations,
            categories=categories,
            salient=salient,
            patterns=patterns,
            neighbours=self.neighbourhood.of(name),
            neighbours_note=self._note,
            views=self._views.of(layer, head, values, functions, relations, categories),
            missing=missing,
        )

    def _place(self, name: str) -> tuple[int, int]:
        layer, head = parse_head(name)
        if layer >= self.columns.layers or head >= self.columns.heads:
            raise DataError(
                f"There is no head {head_name(layer, head)}: the atlas has layers 0 to {self.columns.layers - 1} with "
                f"heads 0 to {self.columns.heads - 1}."
            )
        return layer, head

    def _values(self, study: str, row: int) -> tuple[Value, ...]:
        return tuple(
            self._value(place, column, row)
            for place, column in enumerate(self.columns.columns)
            if column.study == study and np.isfinite(column.values.flat[row])
        )

    def _value(self, place: int, column: Column, row: int) -> Value:
        def at(companion: np.ndarray | None) -> float:
            return float("nan") if companion is None else float(companion.flat[row])

        baseline = at(column.baseline)
        return Value(
            key=column.name,
            label=column.label,
            value=at(column.values),
            low=at(column.low),
            high=at(column.high),
            baseline=baseline,
            baseline_name=column.baseline_name if np.isfinite(baseline) else "",
            percentile=float(self._percentile[row, place]),
            rank=int(self._rank[row, place]),
            of=int(self._of[place]),
            p=at(column.p),
            q=at(column.q),
            q_paired=at(column.q_paired),
            unit=column.unit,
            definition=column.definition,
        )

    def _missing(self, values: Mapping[str, tuple[Value, ...]], salient: tuple[object, ...]) -> dict[str, str]:
        found = {}
        for study, spec in datasets().items():
            if spec.head_columns is None:
                continue
            if study not in self._titles:
                found[study] = f"not in this atlas; add it with headwise build --studies {study} -o ATLAS"
            elif study in self._titles and not (salient if study == "salience" else values.get(study)):
                found[study] = "this study did not measure this head"
        return found

    def _told_of_neighbours(self) -> str:
        studies = len(self.columns.studies)
        if studies < 2:
            return f"Nearest by rank in the {len(self.columns.columns)} columns of {self.columns.studies[0]}."
        chance = float(np.median(self.neighbourhood.chance)) if len(self.neighbourhood.chance) else float("nan")
        middle = float(np.median(self.neighbourhood.spread)) if len(self.neighbourhood.spread) else float("nan")
        return (
            f"Nearest by rank over {len(self.columns.columns)} columns of {studies} studies, each study counted once. Two "
            f"heads of this model are {middle:.2f} apart (median); with the studies shuffled against each other within "
            f"layers the nearest head is {chance:.2f} away (median)."
        )


def head_reports(atlas: Atlas) -> HeadReports:
    """The head_reports of all heads of an atlas, each made when it is asked for.

    Args:
        atlas: read once.

    Returns:
        A mapping from names of heads.

    Examples:
        >>> every = head_reports(atlas)
        >>> len(every), "L3H2" in every
        (36, True)
    """
    return HeadReports({study: atlas[study] for study in atlas.studies})


def head_report(atlas: Atlas, name: str) -> HeadReport:
    """Everything an atlas knows of one head. For several heads keep what `head_reports` gives.

    Args:
        atlas: what is known.
        name: of the head, such as "L12H3".

    Returns:
        Numbers with intervals, baselines and percentiles; relations, functions, patterns, neighbours.

    Examples:
        >>> known = head_report(atlas, "L3H2")
        >>> known.model, [neighbour.name for neighbour in known.neighbours][:1]
        ('HuggingFaceTB/SmolLM2-135M-Instruct', ['L1H1'])
    """
    return head_reports(atlas)[name]
