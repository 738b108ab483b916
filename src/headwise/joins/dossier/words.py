"""A head in words: its dossier as a careful reader would tell it.

    dossier_words(joins.dossier(atlas, "L12H3")).text()

Overview: what it is. Detail: its relations with pairs, its functions with what masking did, the tokens it acts on most.
Observations: where weights and data agree, and which heads are like it. Caveats: what was not measured, and what percentiles
and sets of many heads can say. Every number is kept, with what it is, in `Words.numbers`.
"""

from __future__ import annotations

from collections.abc import Iterator

from headwise.describe.words import Words, Writer, listed
from headwise.joins.dossier.facts import Dossier, FunctionFact, RelationFact
from headwise.joins.neighbours import Neighbour

__all__ = ["dossier_words"]

PAIRS, TOKENS, TARGETS, NEAR = 8, 6, 3, 3


def dossier_words(dossier: Dossier) -> Words:
    """A dossier in words.

    Args:
        dossier: what `headwise.joins.dossier` gave.

    Returns:
        Sections of sentences.

    Examples:
        >>> from headwise.joins import dossier
        >>> dossier_words(dossier(atlas, "L3H2")).title
        'L3H2: HuggingFaceTB/SmolLM2-135M-Instruct'
    """
    writer = Writer(f"{dossier.name}: {dossier.model}")
    writer.say("overview", dossier.summary)
    for fact in dossier.relations:
        writer.say("detail", _relation(writer, fact))
    for told in _functions(writer, dossier.functions):
        writer.say("detail", told)
    writer.say("detail", _salient(writer, dossier))
    for view in dossier.views:
        writer.say("observations", f"{view.verdict.capitalize()}: {view.text}")
    for near in dossier.neighbours[:NEAR]:
        writer.say("observations", _near(writer, near))
    _say_caveats(writer, dossier)
    return writer.finish(dossier.summary)


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


def _salient(writer: Writer, dossier: Dossier) -> str:
    if not dossier.salient:
        return ""
    parts = [
        f"{one.text.strip() or repr(one.text)} → {', '.join(each.strip() or repr(each) for each in one.targets[:TARGETS])}"
        for one in dossier.salient[:TOKENS]
    ]
    strength = writer.number(dossier.salient[0].strength, "strength", digits=2)
    return f"It acts most on (the first is written {strength} times as long as it is read): {'; '.join(parts)}."


def _near(writer: Writer, near: Neighbour) -> str:
    distance = writer.fixed(near.distance, f"distance {near.name}")
    share = writer.percent(near.nearer_than, f"nearer_than {near.name}")
    text = f"Near it is {near.name} ({distance} away, nearer than {share} of all pairs of heads"
    if near.by_chance == near.by_chance:
        text += f"; with shuffled studies {writer.percent(near.by_chance, f'by_chance {near.name}')} of heads have one as near"
    alike = f": alike in {listed(near.shares)}" if near.shares else ""
    return f"{text}){alike}" + (f"; unlike in {listed(near.differs)}." if near.differs else ".")


def _say_caveats(writer: Writer, dossier: Dossier) -> None:
    if dossier.neighbours:
        writer.say("caveats", dossier.neighbours_note)
    if any(fact.masking for fact in dossier.functions):
        writer.say("caveats", "Heads were masked as a set; what happened is the set's doing, not this head's alone.")
    by_reason: dict[str, list[str]] = {}
    for study, reason in dossier.missing.items():
        by_reason.setdefault(reason.split(";")[0], []).append(study)
    for reason, studies in by_reason.items():
        writer.say("caveats", f"Nothing is known here from {listed(studies)}: {reason}.")
