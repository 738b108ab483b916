"""What is on the pages? An atlas as plain dicts that JSON takes, one a path; the report embeds them, the explorer serves them.

| path | holds |
|---|---|
| ``atlas`` | the model's card, the studies by title, the data, what is missing; quick, since every page needs it |
| ``findings`` | each study's short words and a small picture, for the opening page |
| ``study/KEY`` | question, words by section, the paths of its figures, method, caveats, provenance |
| ``figure/KEY/VARIANT`` | one figure (`figures.to_payload`) |
| ``heads`` | the table of all heads, one array a column |
| ``head/L12H3`` | all that is known of one head, joined (`analysis.HeadReport`) |
| ``agreement`` | do the studies agree about heads? (`analysis.Agreement`) |

    content = Content(Atlas.open("atlas"))
    content.at("study/profile")

Cost: a study is read once and kept; what was made is kept, but for single heads. Every number is one of the atlas or of
`analysis`; nothing is computed here. Text is text: the pages never read it as HTML.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import xarray as xr

from headwise.analysis import HeadReports, agreement_figure, describe_agreement
from headwise.analysis.agreement import agreement_of
from headwise.atlas import Atlas, Provenance
from headwise.atlas.head_table import heads
from headwise.core.dims import head_name, parse_head
from headwise.core.errors import DataError, StudyError, did_you_mean
from headwise.figures import to_payload
from headwise.web.card import data_facts, model_card, version_facts
from headwise.web.chapters import CHAPTERS
from headwise.web.columns import columnar
from headwise.web.study import Study

__all__ = ["Content"]

UNDRAWN = ("salience",)  # shown on the pages of heads, without a page of its own


class Content:
    """The pages of one atlas. Safe to ask from several threads."""

    def __init__(self, atlas: Atlas) -> None:
        self.atlas = atlas
        self._kept: dict[str, dict[str, Any]] = {}
        self._lock = threading.RLock()

    def at(self, path: str) -> dict[str, Any]:
        """What stands at a path; StudyError or DataError where nothing does. Heads are made each time, all else is kept."""
        with self._lock:
            if path.startswith("head/"):
                return self._made(path)
            if path not in self._kept:
                self._kept[path] = self._made(path)
            return self._kept[path]

    def paths(self) -> Iterator[str]:
        """All paths there are, in the order of the pages; heads last."""
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
        """Every study, read once."""
        return {study: self.atlas[study] for study in self.atlas.studies}

    @cached_property
    def chapters(self) -> list[str]:
        """The studies that have a page: the known ones in the order of the chapters, then a user's own."""
        there = [study for study in self.datasets if study not in UNDRAWN]
        order = list(CHAPTERS)
        return sorted(there, key=lambda study: (order.index(study) if study in order else len(order), study))

    @cached_property
    def studies(self) -> dict[str, Study]:
        """The pages of studies, in order."""
        return {key: Study(key, self.datasets[key]) for key in self.chapters}

    @cached_property
    def origins(self) -> dict[str, Provenance]:
        """Where each study's numbers come from."""
        return {study: Provenance.from_attrs(dataset.attrs) for study, dataset in self.datasets.items()}

    @cached_property
    def head_reports(self) -> HeadReports:
        """All that is known of each head, looked up by name."""
        return HeadReports(self.datasets)

    def _made(self, path: str) -> dict[str, Any]:
        kind, _, rest = path.partition("/")
        plain: dict[str, Callable[[], dict[str, Any]]] = {
            "atlas": self._opening, "findings": self._findings, "heads": self._heads, "agreement": self._agreement,
        }  # fmt: skip
        named: dict[str, Callable[[str], dict[str, Any]]] = {
            "study": self._study, "figure": self._figure, "head": self._head,
        }  # fmt: skip
        if path in plain:
            return plain[path]()
        if kind in named and rest:
            return named[kind](rest)
        raise DataError(
            f"There is nothing at {path!r}; known are atlas, findings, study/KEY, figure/KEY/VARIANT, heads, head/L0H0 and "
            "agreement."
        )

    def _opening(self) -> dict[str, Any]:
        return {
            "name": self.atlas.location.name,
            "model": model_card(self.origins[key] for key in self.chapters or self.origins),
            "studies": [study.listing() for study in self.studies.values()],
            "missing": [
                {
                    "key": study,
                    "question": chapter.question,
                    "command": f"headwise build --studies {study} -o {self.atlas.location.name}",
                }
                for study, chapter in CHAPTERS.items()
                if study not in self.datasets
            ],
            "data": data_facts(self.origins),
            "versions": version_facts(self.origins.values()),
            "measured": {"first": self._hour(min), "last": self._hour(max)},
        }

    def _findings(self) -> dict[str, Any]:
        return {"studies": [study.finding() for study in self.studies.values()]}

    def _study(self, key: str) -> dict[str, Any]:
        return self._found(key).page()

    def _figure(self, rest: str) -> dict[str, Any]:
        key, _, variant = rest.partition("/")
        return self._found(key).payload(variant)

    def _heads(self) -> dict[str, Any]:
        return columnar(heads(self.datasets), self.chapters)

    def _head(self, name: str) -> dict[str, Any]:
        """A head report; the mean of its maps over prompts is left to the figure that has it."""
        found = self.head_reports[head_name(*parse_head(name))].to_dict()
        for one in (found["patterns"] or {}).get("maps", []):
            del one["average"]
        return found

    def _agreement(self) -> dict[str, Any]:
        """Do the studies agree; where they cannot be asked, why."""
        try:
            found = agreement_of(self.datasets)
        except StudyError as reason:
            return {"short": str(reason), "figures": [], "words": {}, "sets": [], "pairs": []}
        words = describe_agreement(found)
        figure = agreement_figure(found)
        told = found.to_dict()
        return {
            "short": words.short(),
            "figures": [{"key": "pairs", "label": "Pairs of studies", "payload": to_payload(figure)}],
            "words": words.sections(),
            "sets": told["sets"],
            "pairs": told["pairs"],
        }

    def _found(self, key: str) -> Study:
        if key not in self.studies:
            known = f"is in this atlas and is shown on the pages of heads (head/{head_name(0, 0)}), without a page of its own."
            if key in UNDRAWN and key in self.datasets:
                raise StudyError(f"The study {key!r} {known}")
            raise StudyError(f"There is no page of a study {key!r} in this atlas. {did_you_mean(key, self.chapters)}")
        return self.studies[key]

    def _hour(self, which: Callable[..., str]) -> str:
        return which((origin.created for origin in self.origins.values()), default="")
