"""A head in words: its head_report as a careful reader would tell it.

    describe_head(head_report(atlas, "L12H3")).text()

Overview: what it is. Detail: its relations with pairs, its functions with what masking did, the tokens it acts on most.
Observations: where weights and data agree, and which heads are like it. Caveats: what was not measured, and what percentiles
and sets of many heads can say. Every number is kept, with what it is, in `Words.numbers`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from headwise.analysis.head_facts import FunctionFact, HeadReport, RelationFact, Value
from headwise.analysis.neighbours import Neighbour
from headwise.describe.words import Words, Writer, listed, percent, significant

__all__ = ["beyond", "describe_head", "summary_of"]

PAIRS, TOKENS, TARGETS, NEAR = 8, 6, 3, 3


def describe_head(report: HeadReport) -> Words:
    """A head_report in words.

    Args:
        report: what `headwise.analysis.head_report` gave.

    Returns:
        Sections of sentences.

    Examples:
        >>> from headwise.analysis import head_report
        >>> describe_head(head_report(atlas, "L3H2")).title
        'L3H2: HuggingFaceTB/SmolLM2-135M-Instruct'
    """
    writer = Writer(f"{report.name}: {report.model}")
    writer.say("overview", report.summary)
    for fact in report.relations:
        writer.say("detail", _relation(writer, fact))
    for told in _functions(writer, report.functions):
        writer.say("detail", told)
    writer.say("detail", _salient(writer, report))
    for view in report.views:
        writer.say("observations", f"{view.verdict.capitalize()}: {view.text}")
    for near in report.neighbours[:NEAR]:
        writer.say("observations", _near(writer, near))
    _say_caveats(writer, report)
    return writer.finish(report.summary)


def _relation(writer: Writer, fact: RelationFact) -> str:
    what = f"{fact.sign} {fact.relation}"
    share = writer.percent(fact.score, f"score {what}")
    low, high, null = (
        writer.number(value, f"{end} {what}", digits=2)
        for end, value in (("low", fact.low), ("high", fact.high), ("null", fact.null))
    )
    right = f"{writer.count(fact.right, f'right {what}')} of {writer.count(fact.pairs, f'pairs {what}', 'pair')}"
    pairs = ", ".join(f"{source} → {target}" for source, target in fact.examples[:PAIRS])
    text = (
        f"{fact.relation} ({fact.category}): {fact.sign} the target in {share}, {right} (as a share {low} to {high}; "
    )
    return text + f"with shuffled targets {null})" + (f": {pairs}." if pairs else ".")


def _functions(writer: Writer, facts: tuple[FunctionFact, ...]) -> Iterator[str]:
    own = [fact for fact in facts if fact.chosen and not fact.refused]
    for fact in own:
        rank = (
            f"rank {writer.count(fact.rank, f'rank {fact.function}')} of {writer.count(fact.of, f'of {fact.function}')}"
        )
        text = f"{fact.function}: {rank} by importance, q {writer.number(fact.q, f'q {fact.function}', digits=2)}"
        if fact.masking is not None:
            at = fact.masking
            low, high = (
                writer.fixed(value, f"{end} {fact.function}") for end, value in (("low", at.low), ("high", at.high))
            )
            left, random = (
                writer.percent(value, f"{kind} {fact.function}")
                for kind, value in (("own", at.own), ("random", at.random))
            )
            size = writer.count(at.size, f"size {fact.function}")
            text += (
                f"; with it and the other {size} first heads masked {left} of {writer.count(at.asked, 'asked')} answers "
                f"stay right, with random heads {random} (difference {writer.fixed(at.effect, 'effect')}, {low} to {high})"
            )
        yield f"{text}."


def _salient(writer: Writer, report: HeadReport) -> str:
    if not report.salient:
        return ""
    parts = [
        f"{one.text.strip() or repr(one.text)} → {', '.join(each.strip() or repr(each) for each in one.targets[:TARGETS])}"
        for one in report.salient[:TOKENS]
    ]
    strength = writer.number(report.salient[0].strength, "strength", digits=2)
    return f"It acts most on (the first is written {strength} times as long as it is read): {'; '.join(parts)}."


def _near(writer: Writer, near: Neighbour) -> str:
    distance = writer.fixed(near.distance, f"distance {near.name}")
    share = writer.percent(near.nearer_than, f"nearer_than {near.name}")
    text = f"Near it is {near.name} ({distance} away, nearer than {share} of all pairs of heads"
    if near.by_chance == near.by_chance:
        text += f"; with shuffled studies {writer.percent(near.by_chance, f'by_chance {near.name}')} of heads have one as near"
    alike = f": alike in {listed(near.shares)}" if near.shares else ""
    return f"{text}){alike}" + (f"; unlike in {listed(near.differs)}." if near.differs else ".")


def _say_caveats(writer: Writer, report: HeadReport) -> None:
    if report.neighbours:
        writer.say("caveats", report.neighbours_note)
    if any(fact.masking for fact in report.functions):
        writer.say("caveats", "Heads were masked as a set; what happened is the set's doing, not this head's alone.")
    by_reason: dict[str, list[str]] = {}
    for study, reason in report.missing.items():
        by_reason.setdefault(reason.split(";")[0], []).append(study)
    for reason, studies in by_reason.items():
        writer.say("caveats", f"Nothing is known here from {listed(studies)}: {reason}.")


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
