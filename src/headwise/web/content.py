"""An atlas as JSON, one dict per path; the report embeds them, the explorer serves them.

| path | content |
|---|---|
| ``atlas`` | the model card, the studies by title, the data, missing studies; fast, since every page needs it |
| ``findings`` | the most certain findings, what is not shown, and each study's summary and thumbnail, for the home page |
| ``study/KEY`` | question, words by section, figure paths, method, caveats, provenance |
| ``figure/KEY/VARIANT`` | one figure (`figures.to_payload`) |
| ``heads`` | the head table, one array per column |
| ``head/L12H3`` | all studies' results for one head (`analysis.HeadReport`) |
| ``agreement`` | agreement between studies about heads (`analysis.Agreement`) |

    content = Content(Atlas.open("atlas"))
    content.at("study/profile")

The head table has one array per column, so that 5,120 heads x 100 columns are sorted and filtered in the browser. Numbers
have the fewest digits that restore the same float32; missing values are null. A column has its study, a readable title and a
kind: ``number``, ``text``, or ``test`` for p- and q-values, where small values are the interesting ones.

Cost: a study is read once; everything but single heads is cached. Every number is one of the atlas or of `analysis`; nothing is
computed here. Text is plain text: the pages never interpret it as HTML.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from headwise.analysis.agreement_display import agreement_figure, describe_agreement
from headwise.analysis.certainty import certainty_of
from headwise.analysis.columns import default_columns
from headwise.analysis.report_builder import HeadReports
from headwise.analysis.study_agreement import agreement_of
from headwise.atlas import Atlas, Provenance
from headwise.atlas.head_table import heads
from headwise.core.dims import HEAD, LAYER, head_name, parse_head
from headwise.core.errors import DataError, StudyError, did_you_mean, translate_content_errors
from headwise.figures import to_payload
from headwise.studies.registry import datasets
from headwise.web.model_card import data_facts, model_card, version_facts
from headwise.web.study_page import StudyPage

TEST_COLUMNS = ("p", "q", "head_q")  # last part of the name of a p- or q-value


class Content:
    """The content of one atlas's pages. Thread-safe."""

    def __init__(self, atlas: Atlas) -> None:
        self.atlas = atlas
        self._cache: dict[str, dict[str, Any]] = {}
        self._lock = threading.RLock()

    def at(self, path: str) -> dict[str, Any]:
        """The content of a path; StudyError or DataError where there is none. All but single heads are cached."""
        with self._lock, translate_content_errors(f"The atlas {self.atlas.location}"):
            if path.startswith("head/"):
                return self._make(path)
            if path not in self._cache:
                self._cache[path] = self._make(path)
            return self._cache[path]

    def paths(self) -> Iterator[str]:
        """All paths, in the order of the pages; heads last."""
        yield from ("atlas", "findings")
        for key in self.chapters:
            yield f"study/{key}"
            for variant in self.studies[key].figures:
                yield f"figure/{key}/{variant}"
        yield from ("heads", "agreement")
        for name in self.at("heads")["names"]:
            yield f"head/{name}"

    @cached_property
    def datasets(self) -> dict[str, xr.Dataset]:
        """Every study that can be read, read once."""
        return self.atlas.datasets()

    @cached_property
    def chapters(self) -> list[str]:
        """The studies with a page: known ones in the order of the registry, then others by name."""
        order = [name for name, spec in datasets().items() if spec.has_page]
        shown = [study for study in self.datasets if study in order or study not in datasets()]
        return sorted(shown, key=lambda study: (order.index(study) if study in order else len(order), study))

    @cached_property
    def studies(self) -> dict[str, StudyPage]:
        """The pages of studies, in order."""
        return {key: StudyPage(key, self.datasets[key], self.datasets) for key in self.chapters}

    @cached_property
    def provenances(self) -> dict[str, Provenance]:
        """The provenance of every study."""
        return {study: Provenance.from_attrs(dataset.attrs) for study, dataset in self.datasets.items()}

    @cached_property
    def head_reports(self) -> HeadReports:
        """All studies' results by head name."""
        return HeadReports(self.datasets)

    def _make(self, path: str) -> dict[str, Any]:
        kind, _, rest = path.partition("/")
        fixed: dict[str, Callable[[], dict[str, Any]]] = {
            "atlas": self._overview, "findings": self._findings, "heads": self._heads, "agreement": self._agreement,
        }  # fmt: skip
        named: dict[str, Callable[[str], dict[str, Any]]] = {
            "study": self._study, "figure": self._figure, "head": self._head,
        }  # fmt: skip
        if path in fixed:
            return fixed[path]()
        if kind in named and rest:
            return named[kind](rest)
        raise DataError(
            f"There is nothing at {path!r}; known are atlas, findings, study/KEY, figure/KEY/VARIANT, heads, head/L0H0 and "
            "agreement."
        )

    def _overview(self) -> dict[str, Any]:
        created = [provenance.created for provenance in self.provenances.values()]
        return {
            "name": self.atlas.location.name,
            "quick": any(provenance.quick for provenance in self.provenances.values()),
            "model": model_card(self.provenances[key] for key in self.chapters or self.provenances),
            "studies": [study.listing() for study in self.studies.values()],
            "missing": list(self._missing()),
            "data": data_facts(self.provenances),
            "versions": version_facts(self.provenances.values()),
            "measured": {"first": min(created, default=""), "last": max(created, default="")},
        }

    def _missing(self) -> Iterator[dict[str, str]]:
        """The studies that are not shown, and the command that adds or replaces each."""
        unreadable, name = self.atlas.unreadable, self.atlas.location.name
        for study, spec in datasets().items():
            if spec.has_page and study not in self.datasets:
                command = f"headwise build --studies {study} -o {name}"
                if study in unreadable:
                    command = f"headwise build --studies {study} --redo {study} -o {name}"
                yield {"key": study, "question": unreadable.get(study, spec.question), "command": command}

    def _findings(self) -> dict[str, Any]:
        found = certainty_of({key: self.datasets[key] for key in self.chapters})
        return {
            "certain": [
                {"key": one.study, "title": self.studies[one.study].title, "text": one.text}
                for one in found.most_certain
            ],
            "not_shown": [one.claim for one in found.not_shown],
            "rule": found.rule,
            "studies": [study.finding() for study in self.studies.values()],
        }

    def _study(self, key: str) -> dict[str, Any]:
        return self._page_of(key).page()

    def _figure(self, rest: str) -> dict[str, Any]:
        key, _, variant = rest.partition("/")
        return self._page_of(key).payload(variant)

    def _heads(self) -> dict[str, Any]:
        return head_table(heads(self.datasets), self.chapters)

    def _head(self, name: str) -> dict[str, Any]:
        """A head's results; the mean of its maps over prompts is in the patterns figure and is omitted here."""
        found = self.head_reports[head_name(*parse_head(name))].to_dict()
        for one in (found["patterns"] or {}).get("maps", []):
            del one["average"]
        return found

    def _agreement(self) -> dict[str, Any]:
        """Agreement between studies; the reason where there are too few."""
        try:
            found = agreement_of(self.datasets)
        except StudyError as reason:
            return {"short": str(reason), "figures": [], "words": {}, "sets": [], "pairs": []}
        words = describe_agreement(found)
        figure = agreement_figure(found)
        plain = found.to_dict()
        return {
            "short": words.short(),
            "figures": [{"key": "pairs", "label": "Pairs of studies", "payload": to_payload(figure)}],
            "words": words.sections(),
            "sets": plain["sets"],
            "pairs": plain["pairs"],
        }

    def _page_of(self, key: str) -> StudyPage:
        if key not in self.studies:
            if key in self.datasets:
                where = f"is shown on the heads' pages (head/{head_name(0, 0)}) and has no page of its own."
                raise StudyError(f"The study {key!r} {where}")
            raise StudyError(f"There is no page of a study {key!r} in this atlas. {did_you_mean(key, self.chapters)}")
        return self.studies[key]


def head_table(frame: pd.DataFrame, order: Sequence[str] = ()) -> dict[str, Any]:
    """``{names, layer, head, columns: [{name, study, title, kind, default, values}]}`` of an atlas's head table.

    The columns of studies in ``order`` come first, in that order; ``default`` columns are shown at first.
    """
    studies = {study: index for index, study in enumerate(order)}
    names = [str(name) for name in frame.columns if name not in (LAYER, HEAD)]
    names.sort(key=lambda name: studies.get(name.partition(".")[0], len(studies)))
    shown = set(default_columns(names))
    return {
        "names": [str(name) for name in frame.index],
        "layer": [int(layer) for layer in frame[LAYER]],
        "head": [int(head) for head in frame[HEAD]],
        "columns": [_column(name, frame[name], name in shown) for name in names],
    }


def _column(name: str, values: pd.Series, default: bool) -> dict[str, Any]:
    study, _, rest = name.partition(".")
    number = values.dtype.kind in "iufb"
    last = rest.rpartition(".")[2]
    return {
        "name": name,
        "study": study,
        "title": rest.replace(".", " · ").replace("_", " "),
        "kind": "test" if number and last in TEST_COLUMNS else "number" if number else "text",
        "default": default,
        "values": _numbers(values.to_numpy()) if number else [_text(value) for value in values],
    }


def _numbers(values: np.ndarray) -> list[float | int | None]:
    if values.dtype.kind != "f":
        return [int(value) for value in values]
    return [float(str(value)) if finite else None for value, finite in zip(values, np.isfinite(values), strict=True)]


def _text(value: Any) -> str | None:
    return None if value is None or (isinstance(value, float) and np.isnan(value)) else str(value)
