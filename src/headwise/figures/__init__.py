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

from headwise.core.errors import StudyError, did_you_mean
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
    """Whether a study is drawn; answers, for one, are read as a table.

    Args:
        study: its name.

    Returns:
        Whether `figure_of` knows it.

    Examples:
        >>> has_figure("profile"), has_figure("answers")
        (True, False)
    """
    return study in _STUDIES


def options_of(study: str) -> dict[str, Any]:
    """The options that a study's figure takes; none for a study without a figure.

    Args:
        study: its name.

    Returns:
        Option -> type.

    Examples:
        >>> options_of("profile")
        {'statistics': collections.abc.Iterable[str] | None, 'relative': <class 'bool'>}
    """
    if study not in _STUDIES:
        return {}
    hints = typing.get_type_hints(_STUDIES[study])
    return {name: hints.get(name, str) for name in defaults_of(study)}


def defaults_of(study: str) -> dict[str, Any]:
    """What each option of a study's figure is where it is not given.

    Args:
        study: its name.

    Returns:
        Option -> default.

    Examples:
        >>> defaults_of("profile")
        {'statistics': None, 'relative': False}
    """
    parameters = inspect.signature(_STUDIES[study]).parameters.values()
    return {one.name: one.default for one in parameters if one.kind is one.KEYWORD_ONLY}


def figure_of(study: str, dataset: xr.Dataset, **options: Any) -> Figure:
    """The figure of a study's Dataset.

    Args:
        study: its name.
        dataset: its maps, as an atlas gives them.
        **options: the study's own, such as ``relative=True`` for ``profile``; `options_of` lists them. One that the
            others leave without effect is refused.

    Returns:
        The figure as data.

    Examples:
        >>> figure_of("profile", atlas["profile"], statistics=["sink"])
        <Figure 'Where each head looks: SmolLM2-135M-Instruct': sink>
        >>> figure_of("profile", atlas["profile"], statistics=["sinks"])  # doctest: +ELLIPSIS
        Traceback (most recent call last):
            ...
        headwise.core.errors.StudyError: The profile has no statistic 'sinks'. Did you mean 'sink'? ...
    """
    if study not in _STUDIES:
        raise StudyError(f"There is no figure for the study {study!r}. {did_you_mean(study, _STUDIES)}")
    refuse_conflicts(study, options, defaults_of(study))
    return _STUDIES[study](dataset, **options)


def save(figure: Figure, path: str | os.PathLike[str], *, width: float = 7.2, dpi: int = 300) -> Path:
    """Write a figure as PDF, SVG or PNG; its words go into the file as its description.

    Args:
        figure: what `figure_of` or `Atlas.figure` gave.
        path: the file; its suffix says which kind.
        width: inches, at most.
        dpi: of a PNG.

    Returns:
        The file.

    Examples:
        >>> save(atlas.figure("profile", statistics=["sink"]), folder / "sink.svg").name
        'sink.svg'
    """
    from headwise.figures import drawing  # matplotlib takes a second to load; who only reads numbers need not wait

    return drawing.save(figure, path, width=width, dpi=dpi)
