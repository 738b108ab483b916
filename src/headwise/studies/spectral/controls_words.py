"""The spectral study in words: what remains once the question and the length of the answer are controlled for.

Datasets of versions 1 and 2 have no tests within strata, which is said, and compare answers of the same length in random
pairs instead of all together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from headwise.describe.writer import Writer, listed
from headwise.stats import auroc_rows

if TYPE_CHECKING:
    from headwise.studies.spectral.words import SpectralAccessor

ALPHA = 0.05


# ---- similar questions ------------------------------------------------------------------------------------------------


def headline(writer: Writer, data: SpectralAccessor) -> str:
    """One sentence: how many heads remain among similar questions, and whether they give away more than the question does."""
    tested = [key for key in data.pair if data.has(key, "q_within")]
    if not tested:
        return _same_length_headline(writer, data, data.pair)
    level = writer.number(ALPHA, "constant")
    counts = [
        f"{writer.count(data.under(key, 'q_within').count, f'under q_within {key}')} of "
        f"{writer.count(data.under(key, 'q_within').total, f'measured-in q_within {key}', 'head')} for {data.label(key)}"
        for key in tested
    ]
    text = f"Compared only between answers to similar questions ({kind(data, 'within')}), q < {level} holds in {listed(counts)}"
    strict = [key for key in tested if data.has(key, "q_strict")]
    if strict:
        left = [writer.count(data.under(key, "q_strict").count, f"under q_strict {key}") for key in strict]
        text += f", with strata of {kind(data, 'strict')} in {listed(left)}"
    return f"{text}: {_verdict(data, tested)}."


def _verdict(data: SpectralAccessor, keys: Sequence[str]) -> str:
    if not _finds(data, keys, "within"):
        return "no sign that the heads give away more about the error than the question does"
    if not _finds(data, keys, "strict") and any(data.has(key, "q_strict") for key in keys):
        return "beyond the question the heads give away something, which the length of the answer may explain"
    return "the heads give away something about the error that the question does not"


def _finds(data: SpectralAccessor, keys: Sequence[str], name: str) -> bool:
    """Whether the maps together show more than chance at 5 %: a single head, or more heads than with labels permuted within
    strata; the level is shared between both criteria and all maps.
    """
    smallest = [float(data.map(key, f"q_{name}").min()) for key in keys if data.has(key, f"q_{name}")]
    smallest += [data.level(key, f"null_p_{name}") for key in keys if data.has(key, f"q_{name}")]
    return any(value < ALPHA / len(smallest) for value in smallest)


def kind(data: SpectralAccessor, name: str) -> str:
    """How the strata were made: "topic x difficulty"."""
    return str(data.strata.get(name, {}).get("kind", "stratum"))


def within(writer: Writer, data: SpectralAccessor, key: str) -> str:
    """What remains of one map within strata of similar questions."""
    if not data.has(key, "q_within"):
        return ""
    raw, adjusted = data.under(key, "p_within"), data.under(key, "q_within")
    levels, strata = [writer.number(ALPHA, "constant") for _ in range(2)], data.strata.get("within", {})
    used = ""
    if {"strata", "answers"} <= set(strata):
        used = (
            f" ({writer.count(strata['strata'], 'strata within strata')} with both wrong and correct answers, "
            f"{writer.count(strata['answers'], 'strata within answers', 'answer')})"
        )
    q = "none" if not adjusted.count else writer.count(adjusted.count, f"under q_within {key}")
    text = (
        f"Within strata of {kind(data, 'within')}{used}, {writer.count(raw.count, f'under p_within {key}')} "
        f"({writer.percent(raw.share, f'under-percent p_within {key}')}) "
        f"{'has' if raw.count == 1 else 'have'} p < {levels[0]}, and {q} q < {levels[1]}"
    )
    p = data.level(key, "null_p_within")
    if math.isfinite(p):
        more = "more" if p < ALPHA else "not more"
        value = writer.number(p, f"level null_p_within {key}", digits=2)
        text += f", {more} than with labels permuted within strata (permutation p = {value})"
    return f"{text}."


def question_caveat(writer: Writer, data: SpectralAccessor) -> str:
    if not any(data.has(key, "q_within") for key in data.measured):
        return (
            "What the question alone explains (its topic, how hard it is) is not controlled for: this Dataset is of an "
            "older version, or its questions have no strata with both wrong and correct answers."
        )
    return (
        "The plain maps contain what the question alone explains. Strata remove what they are made of "
        f"({kind(data, 'within')}; {kind(data, 'strict')}) and nothing else that a question says, and they leave fewer "
        "pairs of answers to compare, so some heads lose significance to sample size."
    )


def power_caveat(writer: Writer, data: SpectralAccessor) -> str:
    """The smallest effect that would have been found."""
    key = next((key for key in (*data.pair, *data.measured) if math.isfinite(data.level(key, "detectable"))), None)
    if key is None:
        return ""
    plain, inside = data.level(key, "detectable"), data.level(key, "detectable_within")
    text = (
        "With 80 % power these answers show one head among the "
        f"{writer.count(data.under(key).total, f'measured {key}', 'head')} of a map if the AUROC of its feature is at least "
        f"{writer.fixed(plain, f'needed detectable {key}')}"
    )
    if math.isfinite(inside):
        text += f", within strata {writer.fixed(inside, f'needed detectable_within {key}')}"
    return f"{text} (or as far below {writer.number(0.5, 'constant')}); smaller differences are mostly missed."


# ---- length ---------------------------------------------------------------------------------------------------------


def same_length(writer: Writer, data: SpectralAccessor, key: str) -> str:
    """What remains of one map among answers of the same length."""
    if not data.has(key, "p_matched"):
        return ""
    left = data.under(key, "p_matched")
    text = (
        f"Among answers of the same length{_used(writer, data)}, "
        f"{writer.count(left.count, f'under p_matched {key}')} "
        f"({writer.percent(left.share, f'under-percent p_matched {key}')}) "
        f"{'has' if left.count == 1 else 'have'} p < {writer.number(ALPHA, 'constant')}"
    )
    found, stay = data.under(key, "q").count, data.retained(key)
    if not found or stay is None:
        return f"{text}."
    rule = f"with q < {writer.number(ALPHA, 'constant')}"
    if found == 1:
        return f"{text}; the one head {rule} {'remains' if stay else 'does not remain'} significant."
    remaining = writer.count(stay, f"stay {key}") if stay else "none"
    of = f"of the {writer.count(found, f'under q {key}')} heads {rule}"
    return f"{text}; {remaining} {of} {'remain' if stay > 1 else 'remains'} significant."


def _used(writer: Writer, data: SpectralAccessor) -> str:
    """How many answers, or in older versions pairs, were compared."""
    if "pairs" in data.counts:
        return f" ({writer.count(data.counts['pairs'], 'count pairs', 'pair')})"
    if "answers" in data.strata.get("matched", {}):
        return f" ({writer.count(data.strata['matched']['answers'], 'strata matched answers', 'answer')})"
    return ""


def _medians(writer: Writer, lengths: tuple[np.ndarray, np.ndarray]) -> list[str]:
    """Median tokens of wrong and of correct answers."""
    named = zip(lengths, ("wrong", "correct"), strict=True)
    return [writer.number(float(np.median(tokens)), f"length {kind}") for tokens, kind in named]


def length_caveat(writer: Writer, data: SpectralAccessor) -> str:
    lengths = data.lengths()
    if lengths is None:
        return "Answer lengths are not recorded, so what length alone would explain is unknown."
    medians, (wrong, correct) = _medians(writer, lengths), lengths
    is_wrong = np.arange(wrong.size + correct.size) < wrong.size
    auroc = float(auroc_rows(np.concatenate([wrong, correct]), is_wrong))
    text = (
        f"Length is a confounder: wrong answers have {medians[0]} tokens and correct ones {medians[1]} (medians), and "
        f"length alone separates them with an AUROC of {writer.number(auroc, 'length auroc')} over all answers"
    )
    if not any(data.has(key, "p_matched") for key in data.measured):
        return f"{text}."
    return f"{text}. Comparing answers of the same length removes that."


def _same_length_headline(writer: Writer, data: SpectralAccessor, pair: Sequence[str]) -> str:
    """For Datasets without strata: what remains among answers of the same length; empty where nothing was found."""
    tested = [(key, stay) for key in pair if (stay := data.retained(key)) is not None and data.under(key, "q").count]
    if not tested:
        return ""
    parts = [
        f"{writer.count(stay, f'stay {key}')} of {writer.count(data.under(key, 'q').count, f'under q {key}', 'head')} "
        f"for {data.label(key)}"
        for key, stay in tested
    ]
    lengths, reason = data.lengths(), "Attention depends on the length of a text"
    if lengths is not None:
        wrong, correct = _medians(writer, lengths)
        reason = f"Attention depends on length, and wrong answers have {wrong} tokens, correct ones {correct} (medians)"
    return (
        f"{reason}: among answers of the same length{_used(writer, data)}, q < "
        f"{writer.number(ALPHA, 'constant')} still holds in {listed(parts)}."
    )
