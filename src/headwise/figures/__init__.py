"""Figures as data, and how they are written.

    figure = figure_of("profile", dataset)      # a Figure: panels, scales, notes; numbers, not ink
    save(figure, "profile.pdf")                 # or .svg, .png
    to_payload(figure)                          # JSON for the browser

Importing this loads no drawing library; `save` does. A study gets its figure by one line in ``_STUDIES``.
"""

from __future__ import annotations

import inspect
import os
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import xarray as xr

from headwise.errors import StudyError, did_you_mean
from headwise.figures import (
    circuits,
    detection,
    functions,
    patterns,
    probing,
    profile,
    relation_validation,
    relations,
    samples,
    sparsity,
    spectral,
)
from headwise.figures.figure import Figure
from headwise.figures.functions import masking
from headwise.figures.options import refuse_conflicts
from headwise.figures.panels import (
    Axis,
    Category,
    CategoryMap,
    Curve,
    Curves,
    Frame,
    Guide,
    Heatmap,
    Intervals,
    Legend,
    Mark,
    Panel,
    Scatter,
)
from headwise.figures.payload import from_payload, to_payload
from headwise.figures.scale import Scale, ScaleMark, scale_around, scale_over
from headwise.figures.tiles import Tiles

__all__ = [
    "Axis",
    "Category",
    "CategoryMap",
    "Curve",
    "Curves",
    "Figure",
    "Frame",
    "Guide",
    "Heatmap",
    "Intervals",
    "Legend",
    "Mark",
    "Panel",
    "Scale",
    "ScaleMark",
    "Scatter",
    "Tiles",
    "defaults_of",
    "figure_of",
    "from_payload",
    "has_figure",
    "options_of",
    "save",
    "scale_around",
    "scale_over",
    "to_payload",
]

_STUDIES: dict[str, Callable[..., Figure]] = {
    "profile": profile.figure,
    "patterns": patterns.figure,
    "circuits": circuits.figure,
    "sparsity": sparsity.figure,
    "spectral": spectral.figure,
    "detection": detection.figure,
    "probing": probing.figure,
    "samples": samples.figure,
    "relations": relations.figure,
    "relation_validation": relation_validation.figure,
    "functions": functions.figure,
    "function_masking": masking.figure,
}


def has_figure(study: str) -> bool:
    """Whether a study is drawn; answers, for one, are read as a table."""
    return study in _STUDIES


def options_of(study: str) -> dict[str, Any]:
    """The options that a study's figure takes, with their types; none for a study without a figure."""
    if study not in _STUDIES:
        return {}
    hints = typing.get_type_hints(_STUDIES[study])
    return {name: hints.get(name, str) for name in defaults_of(study)}


def defaults_of(study: str) -> dict[str, Any]:
    """What each option is where it is not given."""
    parameters = inspect.signature(_STUDIES[study]).parameters.values()
    return {one.name: one.default for one in parameters if one.kind is one.KEYWORD_ONLY}


def figure_of(study: str, dataset: xr.Dataset, **options: Any) -> Figure:
    """The figure of a study's Dataset. Options are the study's own, such as ``relative=True`` for ``profile``.

    Options that the others leave without effect are refused (`options.refuse_conflicts`).
    """
    if study not in _STUDIES:
        raise StudyError(f"There is no figure for the study {study!r}. {did_you_mean(study, _STUDIES)}")
    refuse_conflicts(study, options, defaults_of(study))
    return _STUDIES[study](dataset, **options)


def save(figure: Figure, path: str | os.PathLike[str], *, width: float = 7.2, dpi: int = 300) -> Path:
    """Write a figure as PDF, SVG or PNG, by the suffix of ``path``; at most ``width`` inches wide."""
    from headwise.figures import drawing  # matplotlib takes a second to load; who only reads numbers need not wait

    return drawing.save(figure, path, width=width, dpi=dpi)
