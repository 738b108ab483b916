"""Which studies have a page, in which order, and which of a study's figures stand on it?

A chapter is a question and its figures: variants of one figure function, each a label on the page's switch and the options
that make it. The first is the published map. Variants that an atlas cannot give (a site that was not probed, answers that
were not paired) are left out by asking the figure, which refuses with a reason.

This module does not know what a figure shows; `figures` does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import xarray as xr

from headwise.core.dims import SITE, SUBJECT
from headwise.core.errors import HeadwiseError
from headwise.figures import Figure, figure_of, has_figure

__all__ = ["CHAPTERS", "Chapter", "Variant", "figures_of"]

SITE_LABELS = {
    "mlp_in": "MLP input",
    "mlp_out": "MLP output",
    "attention_out": "Attention output",
    "residual": "Residual stream",
}


@dataclass(frozen=True)
class Variant:
    """One figure of a study: its key in addresses, its label on the switch, the options that make it."""

    key: str
    label: str
    options: dict[str, Any]


@dataclass(frozen=True)
class Chapter:
    """One study's page."""

    question: str
    variants: tuple[Variant, ...] = ()


def _kinds(**labels: str) -> tuple[Variant, ...]:
    return tuple(Variant(kind, label, {"kind": kind}) for kind, label in labels.items())


CHAPTERS = {
    "profile": Chapter(
        "Where does each head look?",
        (
            Variant("value", "As measured", {}),
            Variant("relative", "Against an even head", {"relative": True}),
        ),
    ),
    "patterns": Chapter(
        "What do the attention maps look like?",
        (
            Variant("grid", "Maps of one prompt", {}),
            Variant("average", "Average over prompts", {"average": True}),
            Variant("numbers", "In numbers", {"numbers": True}),
            Variant("changed", "Changed most", {"top": 24, "by": "change"}),
        ),
    ),
    "sparsity": Chapter("What does dropping attention weights cost?", _kinds(costs="Costs", maps="Heads")),
    "circuits": Chapter("Which heads does a task need?", _kinds(curves="Circuits", maps="Heads")),
    "answers": Chapter("What did the model answer, and was it right?"),
    "spectral": Chapter(
        "Which heads’ attention differs when the answer is wrong?",
        (
            Variant("p", "p-value", {}),
            Variant("log", "p, by powers of ten", {"scale": "log"}),
            Variant("effect", "Effect size", {"value": "effect"}),
            Variant("q", "q-value", {"value": "q"}),
            Variant("matched", "Paired by length", {"matched": True}),
            Variant("answer", "Answer tokens only", {"part": "answer"}),
            Variant("features", "All features", {"features": None}),
        ),
    ),
    "detection": Chapter("How well are wrong answers told from correct ones?", (Variant("all", "Detectors", {}),)),
    "probing": Chapter(
        "At which layer and token does the model know that it errs?",
        _kinds(tokens="Layers and tokens", heads="Heads", transfer="Other topics", table="Beside baselines"),
    ),
    "samples": Chapter("Asked many times, which answer to take?", (Variant("all", "Strategies", {}),)),
    "relations": Chapter(
        "What does each head compute, from its weights alone?",
        (
            *_kinds(categories="Categories"),
            Variant("null", "Beyond shuffles only", {"beyond_null": True}),
            *_kinds(relations="Each relation"),
            Variant("suppression", "Suppression", {"kind": "relations", "value": "suppression"}),
            *_kinds(layers="By layer"),
        ),
    ),
    "relation_validation": Chapter(
        "Do heads do in texts what their weights say?",
        _kinds(outputs="Correlations", scatter="Each relation", removal="Without these heads"),
    ),
    "functions": Chapter(
        "Which heads carry which cognitive function?",
        (
            Variant("maps", "Importance", {}),
            Variant("signed", "With sign", {"value": "importance"}),
            Variant("alone", "Each head alone", {"value": "alone"}),
            *_kinds(
                sorted="Sorted", layers="By layer", similarity="Alike", probe="The probe", confusion="Its confusions"
            ),
        ),
    ),
    "function_masking": Chapter(
        "Does the model need a function’s heads, and for that function only?",
        _kinds(masking="Masked", effects="Effects", cross="Crossed", augment="Strengthened", hierarchy="Chains"),
    ),
}


def figures_of(study: str, dataset: xr.Dataset) -> Iterator[tuple[Variant, Figure]]:
    """The figures this study's page shows, those that its data cannot give left out."""
    if not has_figure(study):
        return
    for variant in variants_of(study, dataset):
        try:
            figure = figure_of(study, dataset, **variant.options)
        except HeadwiseError:
            continue
        yield variant, figure


def variants_of(study: str, dataset: xr.Dataset) -> tuple[Variant, ...]:
    """The variants to ask for; a study without a chapter has its plain figure."""
    chapter = CHAPTERS.get(study)
    if chapter is None or not chapter.variants:
        return (Variant("figure", "Figure", {}),)
    variants = chapter.variants
    if study == "probing":
        variants = (*_sites(dataset), *variants[1:])
    if study == "patterns" and dataset.sizes.get(SUBJECT, 1) < 2:
        variants = tuple(one for one in variants if one.key != "changed")
    return variants


def _sites(dataset: xr.Dataset) -> Iterator[Variant]:
    """The layer x token map once a site that was probed."""
    for site in (str(name) for name in dataset[SITE].values):
        yield Variant(site, f"Tokens, {SITE_LABELS.get(site, site)}", {"kind": "tokens", "site": site})
