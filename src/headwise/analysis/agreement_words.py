"""Agreement between studies in words: which sets share heads, which maps go together, and what depth alone explains.

    describe_agreement(agreement(atlas)).text()

Detail: the questions that are always asked (do the Knowledge heads of the weights overlap the Knowledge Recall heads of the
data? do heads that differ in wrong answers sit in either?), then the pairs that pass. Every number is kept, with what it is,
in `Words.numbers`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from headwise.analysis.agreement import Agreement, Pair
from headwise.describe.words import Words, Writer, listed

__all__ = ["describe_agreement"]

SURE = 0.05
MOST = 6  # pairs told of each kind
ASKED = (  # told whatever comes out
    ("relations.knowledge", "functions.Knowledge_Recall"),
    ("relations.linguistic", "functions.Syntactic_Understanding"),
    ("relations.linguistic", "functions.Semantic_Understanding"),
    ("relations.algorithmic", "profile.induction"),
    ("relations.knowledge", "spectral.laplacian"),
    ("functions.Knowledge_Recall", "spectral.laplacian"),
    ("functions.Knowledge_Recall", "probing.head_auroc"),
    ("spectral.laplacian", "probing.head_auroc"),
)


def describe_agreement(found: Agreement) -> Words:
    """The agreement in words.

    Args:
        found: what `agreement` gave.

    Returns:
        All that the test says.

    Examples:
        >>> from headwise.analysis import agreement
        >>> list(describe_agreement(agreement(atlas, permutations=200)).sections())
        ['Overview', 'Axes and scale', 'Detail', 'Key observations', 'Caveats']
    """
    writer = Writer(f"Do the studies agree? {found.model}")
    _say_overview(writer, found)
    _say_axes(writer, found)
    for pair in _asked(found):
        writer.say("detail", _told(writer, found, pair))
    headline = _say_observations(writer, found)
    _say_caveats(writer, found)
    return writer.finish(headline)


def _say_overview(writer: Writer, found: Agreement) -> None:
    studies = list(dict.fromkeys(one.study for one in found.sets))
    writer.say(
        "overview",
        f"{writer.count(len(found.sets), 'sets', 'head set')} of {listed(studies)} were held against each other, every set "
        f"against every set of another study: {writer.count(len(found.pairs), 'pairs', 'pair')}, over "
        f"{writer.count(found.heads, 'heads', 'head')} of {found.model}.",
    )
    writer.say(
        "overview",
        f"Each pair was compared with {writer.count(found.permutations, 'permutations')} shuffles of the heads, over the whole "
        f"model and {found.shuffled}; q-values are over all pairs.",
    )


def _say_axes(writer: Writer, found: Agreement) -> None:
    writer.say("axes", "Rows and columns are head sets; the same pair stands at both sides of the diagonal.")
    for one in found.sets:
        writer.say("axes", f"{one.label} ({one.study}): {one.rule}; {writer.count(len(one.heads), one.key, 'head')}.")


def _asked(found: Agreement) -> Iterator[Pair]:
    keys = {one.key for one in found.sets}
    for first, second in ASKED:
        if {first, second} <= keys:
            yield found.pair(first, second)


def _told(writer: Writer, found: Agreement, pair: Pair) -> str:
    one, other = _name(found, pair.first), _name(found, pair.second)
    key = f"{pair.first} {pair.second}"
    sizes = [writer.count(size, f"size {key}", "head") for size in (pair.first_size, pair.second_size)]
    shared = writer.count(pair.count, f"count {key}") if pair.count else "none"
    text = f"{one}, {sizes[0]}, and {other}, {sizes[1]}, share {shared}"
    text += f" ({listed(pair.shared)})" if 0 < pair.count <= MOST else ""
    if np.isfinite(pair.p):
        text += (
            f", {writer.number(pair.expected, f'expected {key}', digits=2)} expected within layers "
            f"(p {_small(writer, pair.p, f'p {key}')}, q {_small(writer, pair.q, f'q {key}')}; odds ratio "
            f"{writer.number(pair.odds_ratio, f'odds_ratio {key}', digits=2)})"
        )
    elif np.isfinite(pair.p_all):
        text += (
            f", {writer.number(pair.expected_all, f'expected_all {key}', digits=2)} expected over the whole model (p "
            f"{_small(writer, pair.p_all, f'p_all {key}')}); within layers it cannot be tested, as shuffling never changes it"
        )
    else:
        text += "; one of the sets is empty"
    text += (
        f". Their maps correlate at {writer.fixed(pair.correlation, f'correlation {key}')}; within layers at "
        f"{writer.fixed(pair.correlation_within, f'correlation_within {key}')} (q "
        f"{_small(writer, pair.correlation_q, f'correlation_q {key}')})."
    )
    return text


def _say_observations(writer: Writer, found: Agreement) -> str:
    by_overlap = sorted((one for one in found.pairs if one.q < SURE), key=lambda one: one.p)
    by_rank = sorted(
        (one for one in found.pairs if one.correlation_q < SURE), key=lambda one: -abs(one.correlation_within)
    )
    anywhere = sum(one.q_all < SURE for one in found.pairs)
    rank_anywhere = sum(one.correlation_q_all < SURE for one in found.pairs)
    tested = sum(np.isfinite(one.p) for one in found.pairs)
    first = (
        f"{writer.count(len(by_overlap), 'overlap q < 0.05')} of {writer.count(tested, 'overlap tested', 'pair')} of sets "
        f"share more or fewer heads than within-layer shuffles explain (q < 0.05); against shuffles over the whole model "
        f"{writer.count(anywhere, 'overlap q_all < 0.05')} would."
    )
    second = (
        f"{writer.count(len(by_rank), 'rank q < 0.05')} of {writer.count(len(found.pairs), 'pairs', 'pair')} of maps correlate "
        f"within layers (q < 0.05); against shuffles over the whole model {writer.count(rank_anywhere, 'rank q_all < 0.05')} "
        "would, so the rest may be depth alone."
    )
    writer.say("observations", first)
    for pair in by_overlap[:MOST]:
        writer.say("observations", _told(writer, found, pair))
    if len(by_overlap) > MOST:
        left = writer.count(len(by_overlap) - MOST, "overlap left out", "more pair")
        writer.say("observations", f"{left} of these, of larger p, not told here.")
    writer.say("observations", second)
    for sign, word in ((1, "go together"), (-1, "go against each other")):
        own = [pair for pair in by_rank if np.sign(pair.correlation_within) == sign]
        if own:
            told = [
                f"{_name(found, pair.first)} and {_name(found, pair.second)} "
                f"({writer.fixed(pair.correlation_within, f'correlation_within {pair.first} {pair.second}')})"
                for pair in own[:MOST]
            ]
            rest = len(own) - len(told)
            left = f"; and {writer.count(rest, f'left out, {word}', 'more pair')}, less so" if rest else ""
            writer.say("observations", f"Within layers these maps {word} most: {'; '.join(told)}{left}.")
    return f"{first} {second}"


def _say_caveats(writer: Writer, found: Agreement) -> None:
    chance = writer.number(found.by_chance, "by_chance", digits=2)
    rank_chance = writer.number(found.correlation_by_chance, "correlation_by_chance", digits=2)
    writer.say(
        "caveats",
        f"With shuffled maps in the place of the data {chance} pairs of sets and {rank_chance} pairs of maps pass on average.",
    )
    if len(found.pairs) / (found.permutations + 1) >= SURE:
        writer.say("caveats", "There are too few shuffles for a single pair to pass by itself; take more.")
    empty = [f"{one.label} ({one.study})" for one in found.sets if not one.heads]
    if empty:
        writer.say("caveats", f"No head is in {listed(empty)}, so its overlap cannot be tested.")
    studies = {one.study for one in found.sets}
    if {"spectral", "probing"} <= studies:
        writer.say("caveats", "Spectral and probing look at the same answers, so they are not independent.")
    writer.say(
        "caveats",
        "A set depends on where its study draws the line; the correlation uses every head and no line. Maps that go together "
        "need not have one cause.",
    )
    if found.left_out:
        writer.say("caveats", f"Left out: {'; '.join(found.left_out)}.")


def _name(found: Agreement, key: str) -> str:
    one = next(each for each in found.sets if each.key == key)
    return f"{one.label} ({one.study})"


def _small(writer: Writer, value: float, of: str) -> str:
    return writer.number(value, of, digits=2)
