"""A study's Dataset as a figure and in words: the functions that its spec names, loaded when they are needed.

    figure_of("profile", dataset, relative=True)      # a Figure: numbers, not ink
    describe("profile", dataset).text()               # a Description
    figures_on_page("profile", dataset)               # the variants that the report's page shows

Needs neither torch nor matplotlib. This module knows no study; see `headwise.studies.registry`.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import xarray as xr

from headwise.core.errors import HeadwiseError, StudyError, did_you_mean
from headwise.describe.layout import with_layout
from headwise.describe.narrative import Narrative
from headwise.describe.narrator import generic
from headwise.describe.writer import Description, listed
from headwise.figures.figure import Figure
from headwise.figures.head_maps import head_table_maps
from headwise.figures.provenance import is_quick, provenance_caption, provenance_of, with_model
from headwise.studies.registry import dataset_spec, datasets
from headwise.studies.spec import STYLES, DatasetSpec, FigureVariant

QUICK_HEADLINE = "(Quick build, for a first look.)"
QUICK_CAVEAT = (
    "A quick build measured this: fewer texts, questions and shuffles than by default, so intervals are wider and small "
    "effects are missed. For results to report, build without --quick."
)


def has_figure(name: str) -> bool:
    """Whether a Dataset has a figure; `answers`, for one, is a table.

    Args:
        name: of the Dataset, such as ``"profile"``.

    Returns:
        False also for unknown names.

    Examples:
        >>> has_figure("profile"), has_figure("answers")
        (True, False)
    """
    spec = dataset_spec(name)
    return spec is not None and not spec.read_with


def figure_types(name: str) -> dict[str, Any]:
    """The options of a Dataset's figure and their types.

    Args:
        name: of the Dataset, such as ``"profile"``.

    Returns:
        Option -> type; empty if there is no figure.

    Examples:
        >>> figure_types("profile")
        {'statistics': collections.abc.Iterable[str] | None, 'relative': <class 'bool'>}
    """
    spec = dataset_spec(name)
    function = None if spec is None else spec.load("figure")
    if function is None:  # the generic figure has no options
        return {}
    hints = typing.get_type_hints(function)
    return {option: hints.get(option, str) for option in figure_defaults(name)}


def figure_defaults(name: str) -> dict[str, Any]:
    """The options of a Dataset's figure and their defaults.

    Args:
        name: of the Dataset, such as ``"profile"``.

    Returns:
        Option -> default; empty if there is no figure.

    Examples:
        >>> figure_defaults("profile")
        {'statistics': None, 'relative': False}
    """
    spec = dataset_spec(name)
    function = None if spec is None else spec.load("figure")
    if spec is None or function is None:
        return {}
    parameters = inspect.signature(function).parameters.values()
    options = (one for one in parameters if one.kind is one.KEYWORD_ONLY and one.name not in spec.figure_reads)
    return {one.name: one.default for one in options}


def figure_of(
    name: str, dataset: xr.Dataset, *, others: Mapping[str, xr.Dataset] | None = None, **options: Any
) -> Figure:
    """The figure of a Dataset.

    Args:
        name: of the Dataset, such as ``"profile"``.
        dataset: as an atlas gives it.
        others: other Datasets of the atlas, by name; a figure takes those that its spec names in ``figure_reads``.
        **options: of this figure, such as ``relative=True``; `figure_types` lists them. An option that has no effect
            together with the others is refused.

    Returns:
        The figure as data; its title ends with the model, and its caption has the provenance.

    Examples:
        >>> figure_of("profile", atlas["profile"], statistics=["sink"])
        <Figure 'Where each head attends: SmolLM2-135M-Instruct': sink>
        >>> figure_of("profile", atlas["profile"], statistics=["sinks"])  # doctest: +ELLIPSIS
        Traceback (most recent call last):
            ...
        headwise.core.errors.StudyError: The profile has no statistic 'sinks'. Did you mean 'sink'? ...
    """
    spec = _spec(name, "figure")
    refuse_style(name, options)
    _refuse_unknown(spec, options)
    _refuse_conflicts(spec, options, figure_defaults(name))
    function = spec.load("figure") or partial(head_table_maps, columns=spec.head_columns)
    read: dict[str, Any] = {other: others[other] for other in figure_reads(name, others)} if others else {}
    figure: Figure = function(dataset, **options, **read)
    if figure.provenance:  # the study has written its own
        return figure
    origin = provenance_of(dataset)
    return replace(figure, title=with_model(figure.title, origin), provenance=provenance_caption(origin))


def figure_reads(name: str, there: Iterable[str] | None) -> list[str]:
    """Those of the Datasets that are there which the figure of this one takes."""
    spec = dataset_spec(name)
    there = set(there or ())
    return [] if spec is None else [other for other in spec.figure_reads if other in there]


def refuse_style(name: str, options: Iterable[str] | Mapping[str, Any]) -> None:
    """Refuse a style that is unknown, or any where the study follows no published figure."""
    if "style" not in options:
        return
    if "style" not in figure_defaults(name):
        known = listed(one.name for one in datasets().values() if "style" in one.figure_options)
        raise StudyError(
            f"The {name} figure follows no published figure and has one style only; leave out --style. "
            f"Studies with a published layout: {known}."
        )
    if isinstance(options, Mapping) and options["style"] not in STYLES:
        raise StudyError(
            f"There is no style {options['style']!r} of figures. {did_you_mean(str(options['style']), STYLES)}"
        )


def describe(
    name: str, dataset: xr.Dataset, *, others: Mapping[str, xr.Dataset] | None = None, **options: Any
) -> Description:
    """A Dataset in words.

    Args:
        name: of the Dataset.
        dataset: as an atlas gives it.
        others: other Datasets of the atlas, by name; those whose spec has ``about_heads`` add what they know of the heads
            that the words name.
        **options: of its words.

    Returns:
        Sections of sentences, with the source of every number in them.

    Examples:
        >>> words = describe("profile", atlas["profile"])
        >>> list(words.sections())
        ['Overview', 'Axes and scale', 'Detail', 'Key observations', 'Anomalies', 'Interpretation', 'Caveats']
    """
    words = _words(name, dataset, **options)
    with suppress(HeadwiseError):  # what cannot be drawn can still be described
        words = with_layout(words, figure_of(name, dataset))
    for other in about_heads(others or {}):
        add = datasets()[other].load("about_heads")
        if other != name and add is not None and others is not None:
            words = add(words, dataset, others[other])
    return _marked_quick(words) if is_quick(provenance_of(dataset)) else words


def _marked_quick(words: Description) -> Description:
    """What a quick build measured says so, in its headline and as its first caveat."""
    return replace(words, headline=f"{words.short()} {QUICK_HEADLINE}", caveats=(QUICK_CAVEAT, *words.caveats))


def headline(name: str, dataset: xr.Dataset) -> str:
    """A Dataset in at most 40 words: the alternative text of its figure."""
    words = _spec(name, "words").load("words")
    return words.short(dataset) if isinstance(words, Narrative) else _words(name, dataset).short()


def _words(name: str, dataset: xr.Dataset, **options: Any) -> Description:
    spec = _spec(name, "words")
    function = spec.load("words") or partial(generic, columns=spec.head_columns)
    words: Description = function(dataset, **options)
    return words


def about_heads(names: Iterable[str]) -> list[str]:
    """Those Datasets that know something about the heads that others name."""
    return [name for name in names if (spec := dataset_spec(name)) is not None and spec.about_heads]


def variants_of(name: str, dataset: xr.Dataset) -> tuple[FigureVariant, ...]:
    """The figures for a Dataset's page: those of its spec, or what its figure module's ``variants_of`` makes of them."""
    spec = _spec(name, "figure")
    function = spec.load("figure")
    choose = None if function is None else getattr(inspect.getmodule(function), "variants_of", None)
    variants = spec.variants or (FigureVariant("figure", "Figure"),)
    return variants if choose is None else tuple(choose(dataset, variants))


def figures_on_page(name: str, dataset: xr.Dataset) -> Iterator[tuple[FigureVariant, Figure]]:
    """The figures for a Dataset's page; variants that this Dataset cannot give are omitted."""
    if not has_figure(name):
        return
    for variant in variants_of(name, dataset):
        try:
            figure = figure_of(name, dataset, **variant.options)
        except HeadwiseError:
            continue
        yield variant, figure


def _spec(name: str, role: str) -> DatasetSpec:
    spec = dataset_spec(name)
    if spec is None or spec.read_with:
        what = {"figure": "is no figure for", "words": "are no words for"}[role]
        known = [one.name for one in datasets().values() if not one.read_with]
        hint = f"read it with {spec.read_with.format(atlas='ATLAS')}" if spec is not None and spec.read_with else ""
        raise StudyError(f"There {what} the study {name!r}{'; ' + hint if hint else '. ' + did_you_mean(name, known)}")
    return spec


def _refuse_unknown(spec: DatasetSpec, given: Mapping[str, Any]) -> None:
    """Refuse a value that the spec of the option does not list."""
    for name, value in given.items():
        choices = spec.figure_options[name].choices if name in spec.figure_options else {}
        if choices and value not in choices:
            raise StudyError(f"The {spec.name} figure has no {name} {value!r}. {did_you_mean(str(value), choices)}")


def _refuse_conflicts(spec: DatasetSpec, given: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
    """Refuse an option that has no effect together with the others; one at its default counts as not given."""
    known = spec.figure_options
    chosen = {name: value for name, value in given.items() if name in known and value != defaults.get(name)}
    for name in chosen:
        for other in known[name].without:
            if other in chosen:
                raise StudyError(
                    f"The {spec.name} figure takes either {_flag(name)} or {_flag(other)}, not both; leave one of them out."
                )
        for other, values in known[name].needs.items():
            found = str(given.get(other, defaults.get(other)))
            if found not in values:
                raise StudyError(
                    f"{_flag(name)} of the {spec.name} figure has no effect with {_flag(other)} {found}; leave it out, or "
                    f"choose {_flag(other)} {values[0]}."
                )


def _flag(name: str) -> str:
    """As on the command line."""
    return f"--{name.replace('_', '-')}"
