"""One study's page as JSON: question, words, figures, method, provenance, and a thumbnail for the home page.

The thumbnail shows maps side by side where the figure has some: those with the largest spread on their scale, in the order of
the figure; otherwise the first panel. A map becomes one byte per cell (as `figures.tiles`) or its category index; curves and
intervals keep their numbers. It is decoration: no number is read off it.

Cost: words take up to a second per study, a figure some tenths; the home page needs the words and the first figure only. This
module does not know how any study is measured.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
import xarray as xr

from headwise.atlas import Provenance
from headwise.core.errors import DataError, did_you_mean
from headwise.describe import Description
from headwise.figures import (
    CategoryMap,
    Curves,
    Figure,
    Heatmap,
    Intervals,
    Legend,
    Panel,
    Scatter,
    Tiles,
    to_payload,
)  # fmt: skip
from headwise.figures.tiles import to_levels
from headwise.studies.present import describe, figures_on_page, has_figure
from headwise.studies.registry import dataset_spec
from headwise.studies.spec import FigureVariant
from headwise.web.model_card import provenance_facts

CAVEATS = "Caveats"
THUMBNAIL_WIDTH, THUMBNAIL_HEIGHT, THUMBNAIL_GAP = 160, 120, 6  # pixels
MAX_THUMBNAIL_TILES = 24
QUESTION_COLUMNS = {
    "question": "Question",
    "answer": "Answer",
    "gold": "Expected",
    "label": "Label",
    "rule": "Why",
    "topic": "Topic",
}


class StudyPage:
    """The page of one study."""

    def __init__(self, key: str, dataset: xr.Dataset, others: Mapping[str, xr.Dataset] | None = None) -> None:
        self.key, self.dataset, self.others, self._spec = key, dataset, others, dataset_spec(key)

    @cached_property
    def title(self) -> str:
        """The study's title."""
        return str(self.dataset.attrs.get("title") or self.key.replace("_", " ").capitalize())

    @cached_property
    def question(self) -> str:
        """The question it answers; empty for a plug-in study."""
        return "" if self._spec is None else self._spec.question

    @cached_property
    def words(self) -> Description | None:
        """The description of its map; None for a study that is a table."""
        return describe(self.key, self.dataset, others=self.others) if has_figure(self.key) else None

    @cached_property
    def short(self) -> str:
        """The summary, one or two sentences."""
        if self.words is not None:
            return self.words.short()
        return str(question_table(self.dataset)["short"]) if self.key == "answers" else ""

    @cached_property
    def figures(self) -> dict[str, tuple[FigureVariant, Figure]]:
        """Every figure its data allow, by variant, with the summary as alternative text."""
        return {
            variant.key: (variant, figure.with_alt(self.short))
            for variant, figure in figures_on_page(self.key, self.dataset)
        }

    def listing(self) -> dict[str, Any]:
        """Its entry in the table of contents."""
        return {"key": self.key, "title": self.title, "question": self.question}

    def finding(self) -> dict[str, Any]:
        """Its entry on the home page: the summary and a thumbnail of the first figure."""
        _, first = next(figures_on_page(self.key, self.dataset), (None, None))
        return {**self.listing(), "short": self.short, "thumbnail": thumbnail(first)}

    def page(self) -> dict[str, Any]:
        """Its own page; figures by their paths."""
        method = None if self._spec is None else self._spec.method
        sections = {} if self.words is None else self.words.sections()
        return {
            "key": self.key,
            "title": self.title,
            "question": self.question,
            "short": self.short,
            "words": {heading: entries for heading, entries in sections.items() if heading != CAVEATS},
            "caveats": sections.get(CAVEATS, []),
            "figures": [
                {"key": key, "label": variant.label, "path": f"figure/{self.key}/{key}"}
                for key, (variant, _) in self.figures.items()
            ],
            "table": question_table(self.dataset) if self.key == "answers" else None,
            "method": None if method is None else {"text": method.text, "source": method.source, "link": method.link},
            "provenance": provenance_facts(Provenance.from_attrs(self.dataset.attrs)),
        }

    def payload(self, variant: str) -> dict[str, Any]:
        """One of its figures as JSON."""
        if variant not in self.figures:
            raise DataError(
                f"The study {self.key!r} has no figure {variant!r} here. {did_you_mean(variant, self.figures)}"
            )
        return to_payload(self.figures[variant][1])


def question_table(dataset: xr.Dataset) -> dict[str, Any]:
    """The answers study as a table: ``{columns: [{title, values}], short}``."""
    columns = [
        {"title": title, "values": [str(value) for value in dataset[name].values]}
        for name, title in QUESTION_COLUMNS.items()
        if name in dataset
    ]
    return {"columns": columns, "short": _question_counts(dataset)}


def _question_counts(dataset: xr.Dataset) -> str:
    total = dataset.sizes.get("example", 0)
    if "label" not in dataset:
        return f"{total:,} questions."
    counts = Counter(str(label) for label in dataset["label"].values)
    labels = ", ".join(f"{count:,} {label}" for label, count in counts.most_common())
    return f"{total:,} questions: {labels}."


def thumbnail(figure: Figure | None) -> dict[str, Any] | None:
    """``{kind, ...}`` for the front end; None where there is nothing to draw."""
    if figure is None:
        return None
    first = next((panel for panel in figure.panels if not isinstance(panel, Legend)), None)
    if isinstance(first, Heatmap):
        return _maps(figure, [panel for panel in figure.panels if isinstance(panel, Heatmap)])
    return _panel_thumbnail(first, figure)


def _maps(figure: Figure, panels: list[Heatmap]) -> dict[str, Any]:
    """The maps with the largest spread, of the same shape as the first, side by side."""
    shape = panels[0].values.shape
    alike = [panel for panel in panels if panel.values.shape == shape]
    fit = max(1, int((THUMBNAIL_WIDTH + THUMBNAIL_GAP) / (THUMBNAIL_HEIGHT * shape[1] / shape[0] + THUMBNAIL_GAP)))
    widest = sorted(alike, key=lambda panel: -_spread_on_scale(panel, figure))[:fit]
    chosen = [panel for panel in alike if panel in widest]
    return {"kind": "maps", "maps": [_map(panel, figure) for panel in chosen]}


def _map(panel: Heatmap, figure: Figure) -> dict[str, Any]:
    share = figure.scales[panel.scale].share(panel.values)
    levels = to_levels(np.where(np.isfinite(panel.values), share, np.nan), 0.0, 1.0)
    return {"levels": levels.tolist(), "scale": _scale(figure, panel.scale)}


def _spread_on_scale(panel: Heatmap, figure: Figure) -> float:
    share = np.clip(figure.scales[panel.scale].share(panel.values), 0, 1)
    return float(np.nan_to_num(np.nanstd(share))) if np.isfinite(share).any() else 0.0


def _panel_thumbnail(panel: Panel | None, figure: Figure) -> dict[str, Any] | None:
    match panel:
        case CategoryMap():
            return {
                "kind": "categories",
                "indices": panel.values.tolist(),
                "colours": [category.colour for category in panel.categories],
            }
        case Tiles():
            step = max(len(panel.names) // MAX_THUMBNAIL_TILES, 1)
            tiles = panel.levels[::step][:MAX_THUMBNAIL_TILES]
            return {"kind": "tiles", "levels": tiles[:, ::2, ::2].tolist(), "scale": _scale(figure, panel.scale)}
        case Intervals():
            rows = zip(panel.values, panel.low, panel.high, strict=True)
            colours = [category.colour for category in panel.categories]
            groups = panel.groups or (0,) * len(panel.values)
            return {
                "kind": "intervals",
                "rows": [[None if not np.isfinite(value) else round(float(value), 4) for value in row] for row in rows],
                "colours": [colours[group] if colours else None for group in groups],
            }
        case Curves():
            return {
                "kind": "curves",
                "curves": [
                    {
                        "x": _numbers(curve.x),
                        "y": _numbers(curve.y),
                        "colour": curve.colour,
                        "dashed": curve.style == "dashed",
                    }
                    for curve in panel.curves
                ],
                "log": panel.x.log,
            }
        case Scatter():
            return {"kind": "points", "x": _numbers(panel.x_values), "y": _numbers(panel.y_values)}
    return None


def _scale(figure: Figure, key: str) -> Mapping[str, Any]:
    """Only the colour stops, as in a figure's payload."""
    bare = Figure("", (Legend("none", ()),), 1, {key: figure.scales[key]})
    return {"stops": to_payload(bare)["scales"][key]["stops"]}


def _numbers(values: np.ndarray) -> list[float | None]:
    return [float(str(value)) if np.isfinite(value) else None for value in values]
