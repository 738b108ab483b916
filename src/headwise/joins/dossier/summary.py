"""A head in one to three sentences: what its weights say, which functions it belongs to, where it stands out.

Every clause is computed, and left out where there is nothing to say. "Stands out" means beyond 95 % of the other heads in
a statistic of the profile, the statistic's own direction not judged. This module does not know how anything is measured.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from headwise.describe.words import listed, percent, significant
from headwise.joins.dossier.facts import FunctionFact, RelationFact, Value

__all__ = ["beyond", "summary_of"]

HIGH, LOW = 95.0, 5.0
FEW = 3


def summary_of(
    name: str,
    layer: int,
    layers: int,
    values: Mapping[str, tuple[Value, ...]],
    functions: tuple[FunctionFact, ...],
    relations: tuple[RelationFact, ...],
    categories: tuple[str, ...],
    missing: Mapping[str, str],
) -> str:
    """The sentences, as one text."""
    if not any(values.values()) and not relations and all(fact.rank == 0 for fact in functions):
        return f"{name} was measured by none of the studies."
    sentences = [
        f"{name} stands in layer {layer} of {layers} (counted from 0).",
        _by_weights(relations, categories) if "relations" not in missing else "",
        _by_function(functions) if "functions" not in missing else "",
        _by_profile(values.get("profile", ())),
        _by_answers(values),
    ]
    return " ".join(sentence for sentence in sentences if sentence)


def beyond(percentile: float) -> str:
    """A percentile in words.

    >>> beyond(99.63), beyond(100.0), beyond(3.0)
    ('more than 99.6 % of heads', 'more than all other heads', 'less than 97 % of heads')
    """
    word, share = ("more", percentile) if percentile >= 50 else ("less", 100 - percentile)
    if share == 100:
        return f"{word} than all other heads"
    return f"{word} than {share:.0f} % of heads" if share < 99 else f"{word} than {significant(share)} % of heads"


def _by_weights(relations: tuple[RelationFact, ...], categories: tuple[str, ...]) -> str:
    if not categories:
        return "By its weights it is unclassified."
    over = [f"{fact.sign} {fact.relation} ({percent(fact.score)})" for fact in relations if fact.over][:FEW]
    return f"By its weights it is {listed(list(categories))}: it {listed(over)}."


def _by_function(functions: tuple[FunctionFact, ...]) -> str:
    own = sorted((fact for fact in functions if fact.chosen and fact.q < 0.05), key=lambda fact: fact.rank)
    if not own:
        return "It is among the heads of no function."
    told = [f"{fact.function} (rank {fact.rank} of {fact.of})" for fact in own[:FEW]]
    more = len(own) - len(told)
    return f"It is among the heads of {listed(told)}{f' and {more} more' if more > 0 else ''}."


def _by_profile(values: tuple[Value, ...]) -> str:
    far = sorted(
        (value for value in values if not LOW < value.percentile < HIGH), key=lambda one: -abs(one.percentile - 50)
    )
    if not far:
        return ""
    told = [f"{value.label.lower()} {value.value:.3g} ({beyond(value.percentile)})" for value in far[:FEW]]
    return f"In its attention it stands out by {listed(told)}."


def _by_answers(values: Mapping[str, tuple[Value, ...]]) -> str:
    probe = next((value for value in values.get("probing", ()) if value.q < 0.05), None)
    tested = [value for value in values.get("spectral", ()) if value.q < 0.05]
    parts = []
    if tested:
        best = max(tested, key=lambda value: abs(value.value - 0.5))
        parts.append(
            f"{len(tested)} of {len(values['spectral'])} spectral numbers differ between wrong and correct answers at q < "
            f"0.05 ({best.label}: AUROC {best.value:.3g}{_paired(tested)})"
        )
    if probe is not None:
        parts.append(f"a probe on its output tells wrong answers at AUROC {probe.value:.3g}")
    text = listed(parts)
    return f"{text[0].upper()}{text[1:]}." if text else ""


def _paired(tested: Sequence[Value]) -> str:
    """How many of the numbers keep their q with answers paired by length, which is what most of them are about."""
    known = [value for value in tested if math.isfinite(value.q_paired)]
    if not known:
        return ""
    kept = sum(value.q_paired < 0.05 for value in known)
    return f"; paired by length, {kept or 'none'} of them"
