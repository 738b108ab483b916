"""A head report as prose: a summary of one to three sentences, and a full description.

    describe_head(head_report(atlas, "L12H3")).text()

Summary: what its weights compute, which functions it belongs to, where it stands out (beyond 95 % of the other heads in a
profile statistic, in either direction), how it differs on wrong answers, what the model loses without it; clauses without
data are left out.

Description. Overview: the summary. Detail: relations with pairs, functions with the effect of masking, salient tokens.
Observations: where weights and data agree, and similar heads. Caveats: what was not measured, and the limits of
percentiles and of masking sets.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from headwise.analysis.head_facts import HeadReport, Measurement
from headwise.analysis.neighbours import Neighbour
from headwise.describe.writer import Description, Writer, listed, percent, significant
from headwise.studies.functions.heads import FunctionFact
from headwise.studies.relations.heads import RelationFact

MAX_PAIRS, MAX_TOKENS, MAX_TARGETS, MAX_NEIGHBOURS = 8, 6, 3, 3
HIGH_PERCENTILE, LOW_PERCENTILE = 95.0, 5.0
MAX_CLAUSES = 3  # relations, functions or statistics that the summary names


def describe_head(report: HeadReport) -> Description:
    """A head report in words.

    Args:
        report: from `headwise.analysis.head_report`.

    Returns:
        Sections of sentences.

    Examples:
        >>> from headwise.analysis import head_report
        >>> describe_head(head_report(atlas, "L3H2")).title
        'L3H2: HuggingFaceTB/SmolLM2-135M-Instruct'
    """
    writer = Writer(f"{report.name}: {report.model}")
    writer.add("overview", report.summary)
    for fact in report.relations:
        writer.add("detail", _relation(writer, fact))
    for text in _functions(writer, report.functions):
        writer.add("detail", text)
    writer.add("detail", _salient(writer, report))
    for check in report.consistency:
        writer.add("observations", f"{check.verdict.capitalize()}: {check.text}")
    for near in report.neighbours[:MAX_NEIGHBOURS]:
        writer.add("observations", _neighbour(writer, near))
    _add_caveats(writer, report)
    return writer.finish(report.summary)


def _relation(writer: Writer, fact: RelationFact) -> str:
    what = f"{fact.sign} {fact.relation}"
    share = writer.percent(fact.score, f"score {what}")
    low, high, null = (
        writer.number(value, f"{end} {what}", digits=2)
        for end, value in (("low", fact.low), ("high", fact.high), ("null", fact.null))
    )
    right = f"{writer.count(fact.right, f'right {what}')} of {writer.count(fact.pairs, f'pairs {what}', 'pair')}"
    pairs = ", ".join(f"{source} → {target}" for source, target in fact.examples[:MAX_PAIRS])
    text = f"{fact.relation} ({fact.category}): {fact.sign} the target in {share}, {right} (share {low} to {high}; "
    return text + f"with shuffled targets {null})" + (f": {pairs}." if pairs else ".")


def _functions(writer: Writer, facts: tuple[FunctionFact, ...]) -> Iterator[str]:
    for fact in (fact for fact in facts if fact.chosen and not fact.refused):
        name = fact.function
        rank = f"rank {writer.count(fact.rank, f'rank {name}')} of {writer.count(fact.n_heads, f'n_heads {name}')}"
        text = f"{name}: {rank} by importance, q {writer.number(fact.q, f'q {name}', digits=2)}"
        if (at := fact.masking) is not None:
            low, high = (writer.fixed(value, f"{end} {name}") for end, value in (("low", at.low), ("high", at.high)))
            left = writer.percent(at.own, f"own {name}")
            random = writer.percent(at.random, f"random {name}")
            size = writer.count(at.size, f"size {name}")
            text += (
                f"; with the first {size} heads of the function masked, this one included, {left} of "
                f"{writer.count(at.asked, 'asked')} answers remain correct, with random heads masked {random} (difference "
                f"{writer.fixed(at.effect, 'effect')}, {low} to {high})"
            )
        yield f"{text}."


def _salient(writer: Writer, report: HeadReport) -> str:
    if not report.salient:
        return ""
    parts = [
        f"{one.text.strip() or repr(one.text)} → "
        f"{', '.join(each.strip() or repr(each) for each in one.targets[:MAX_TARGETS])}"
        for one in report.salient[:MAX_TOKENS]
    ]
    strength = writer.number(report.salient[0].strength, "strength", digits=2)
    return f"It scales these tokens up most (the first by a factor of {strength}): {'; '.join(parts)}."


def _neighbour(writer: Writer, near: Neighbour) -> str:
    distance = writer.fixed(near.distance, f"distance {near.name}")
    share = writer.percent(near.closer_than, f"closer_than {near.name}")
    text = f"{near.name} is similar (distance {distance}, smaller than in {share} of pairs of heads"
    if math.isfinite(near.by_chance):
        chance = writer.percent(near.by_chance, f"by_chance {near.name}")
        text += f"; a head this close occurs by chance for {chance} of heads"
    similar = f": similar in {listed(near.shares)}" if near.shares else ""
    return f"{text}){similar}" + (f"; different in {listed(near.differs)}." if near.differs else ".")


def _add_caveats(writer: Writer, report: HeadReport) -> None:
    if report.neighbours:
        writer.add("caveats", report.neighbours_note)
    if any(fact.masking for fact in report.functions):
        writer.add("caveats", "Heads were masked as a set: the effect belongs to the set, not to this head alone.")
    by_reason: dict[str, list[str]] = {}
    for study, reason in report.missing.items():
        by_reason.setdefault(reason.split(";")[0], []).append(study)
    for reason, studies in by_reason.items():
        writer.add("caveats", f"Not measured: {listed(studies)} ({reason}).")


def summary_of(
    name: str,
    layer: int,
    layers: int,
    values: Mapping[str, tuple[Measurement, ...]],
    functions: tuple[FunctionFact, ...],
    relations: tuple[RelationFact, ...],
    categories: tuple[str, ...],
    missing: Mapping[str, str],
) -> str:
    """The sentences, as one text."""
    if not any(values.values()) and not relations and all(fact.rank == 0 for fact in functions):
        return f"{name} was measured by none of the studies."
    sentences = [
        f"{name} is in layer {layer} of {layers} (counted from 0).",
        _by_weights(relations, categories) if "relations" not in missing else "",
        _by_function(functions) if "functions" not in missing else "",
        _by_profile(values.get("profile", ())),
        _by_answers(values),
        _by_ablation(values.get("causal", ())),
    ]
    return " ".join(sentence for sentence in sentences if sentence)


def beyond(percentile: float) -> str:
    """A percentile in words.

    >>> beyond(99.63), beyond(100.0), beyond(3.0)
    ('higher than in 99.6 % of heads', 'higher than in all other heads', 'lower than in 97 % of heads')
    """
    word, share = ("higher", percentile) if percentile >= 50 else ("lower", 100 - percentile)
    if share == 100:
        return f"{word} than in all other heads"
    return f"{word} than in {share:.0f} % of heads" if share < 99 else f"{word} than in {significant(share)} % of heads"


def _by_weights(relations: tuple[RelationFact, ...], categories: tuple[str, ...]) -> str:
    if not categories:
        return "Its weights match none of the relations."
    over = [f"{fact.sign} {fact.relation} ({percent(fact.score)})" for fact in relations if fact.over][:MAX_CLAUSES]
    category = "category" if len(categories) == 1 else "categories"
    return f"Its weights match relations of the {category} {listed(list(categories))}: it {listed(over)}."


def _by_function(functions: tuple[FunctionFact, ...]) -> str:
    own = sorted((fact for fact in functions if fact.chosen and fact.q < 0.05), key=lambda fact: fact.rank)
    if not own:
        return "It does not belong to the heads of any function."
    named = [f"{fact.function} (rank {fact.rank} of {fact.n_heads})" for fact in own[:MAX_CLAUSES]]
    more = len(own) - len(named)
    return f"It belongs to the heads of {listed(named)}{f' and {more} more' if more > 0 else ''}."


def _by_profile(values: tuple[Measurement, ...]) -> str:
    far = [value for value in values if not LOW_PERCENTILE < value.percentile < HIGH_PERCENTILE]
    far.sort(key=lambda one: -abs(one.percentile - 50))
    if not far:
        return ""
    named = [f"{value.label.lower()} {value.value:.3g} ({beyond(value.percentile)})" for value in far[:MAX_CLAUSES]]
    return f"Its attention is unusual in: {listed(named)}."


def _by_answers(values: Mapping[str, tuple[Measurement, ...]]) -> str:
    probe = next((value for value in values.get("probing", ()) if value.q < 0.05), None)
    tested = [value for value in values.get("spectral", ()) if value.q < 0.05]
    parts = []
    if tested:
        best = max(tested, key=lambda value: abs(value.value - 0.5))
        parts.append(
            f"{len(tested)} of {len(values['spectral'])} spectral numbers differ between wrong and correct answers at q < "
            f"0.05 ({best.label}: AUROC {best.value:.3g}{_controlled(tested)})"
        )
    if probe is not None:
        parts.append(f"a probe on its output detects wrong answers at AUROC {probe.value:.3g}")
    text = listed(parts)
    return f"{text[0].upper()}{text[1:]}." if text else ""


def _by_ablation(values: tuple[Measurement, ...]) -> str:
    """What the model loses without it, and its rank in the layer."""
    found = {value.key: value for value in values}
    effect, rank = found.get("causal.mean.all.effect"), found.get("causal.rank")
    if effect is None or rank is None:
        return ""
    change = "rises" if effect.value > 0 else "falls"
    settled = "" if effect.q < 0.05 else "; not beyond chance, q at least 0.05"
    size = significant(abs(effect.value))
    return f"Without it the loss {change} by {size} nats per token (rank {rank.value:.0f} in its layer{settled})."


def _controlled(tested: Sequence[Measurement]) -> str:
    """How many stay significant among similar questions, and among answers of the same length; both explain much of it."""
    parts = []
    for what, q in (("similar questions", "q_within"), ("answers of the same length", "q_matched")):
        known = [getattr(value, q) for value in tested if math.isfinite(getattr(value, q))]
        if known:
            parts.append(f"{sum(one < 0.05 for one in known) or 'none'} of them among {what}")
    return f"; {', '.join(parts)}" if parts else ""
