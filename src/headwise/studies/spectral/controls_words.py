"""The spectral study in words: what remains once the question and the length of the answer are controlled for.

Datasets of versions 1 and 2 have no tests within strata, which is said, and compare answers of the same length in random
pairs instead of all together.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from headwise.describe.writer import Writer, listed
from headwise.stats import auroc_rows
from headwise.stats.multiple_testing import ALPHA

if TYPE_CHECKING:
    from headwise.studies.spectral.words import SpectralAccessor


# ---- similar questions ------------------------------------------------------------------------------------------------


def headline(writer: Writer, data: SpectralAccessor) -> str:
    """The end of the headline: how many heads remain among similar questions, and whether that is more than chance."""
    tested = [key for key in data.pair if data.has(key, "q_within")]
    if not tested:
        return _same_length_headline(writer, data)
    counts = listed(writer.count(data.under(key, "q_within").count, f"under q_within {key}") for key in tested)
    verdict = {"nothing": "not more than chance", "length": "which length may explain", "more": "more than chance"}[
        _verdict(data, tested)
    ]
    if verdict == "more than chance" and not _single_heads(data, tested, "within"):
        verdict = f"though more have p < {writer.number(ALPHA, 'constant')} than by chance"
    return f"; among similar questions ({kind(data, 'within')}) in {counts}, {verdict}"


def _verdict(data: SpectralAccessor, keys: Sequence[str]) -> str:
    """What heads give away beyond the question: "nothing", what the "length" may explain, or "more"."""
    if not _finds(data, keys, "within"):
        return "nothing"
    if not _finds(data, keys, "strict") and any(data.has(key, "q_strict") for key in keys):
        return "length"
    return "more"


def against(writer: Writer, data: SpectralAccessor, found: Sequence[str]) -> Iterator[str]:
    """What the controls say against reading the plain maps as heads that know of errors, and their verdict."""
    tested = [key for key in data.pair if data.has(key, "q_within")]
    left = []
    for name, what in (("within", kind(data, "within")), ("strict", kind(data, "strict"))):
        if keys := [key for key in tested if data.has(key, f"q_{name}")]:
            counts = (writer.count(data.under(key, f"q_{name}").count, f"under q_{name} {key}") for key in keys)
            left.append(f"{listed(counts)} remain within strata of {what}")
    stays = [(key, stay) for key in found if (stay := data.retained(key)) is not None and data.under(key, "q").count]
    if stays:
        left.append(f"{listed(writer.count(stay, f'stay {key}') for key, stay in stays)} remain at equal length")
    if left and any(data.under(key, "q").count for key in found):
        yield f"of the heads with q < {writer.number(ALPHA, 'constant')}, {'; '.join(left)}"
    if not tested:
        yield "what the question alone explains was not controlled for"
        return
    yield {
        "nothing": "that is no sign that the heads give away more about the error than the question does",
        "length": "beyond the question the heads give away something, which the length of the answer may explain",
        "more": "still, more heads differ than by chance: they give away something about the error that these strata do not",
    }[_verdict(data, tested)]


def decide(writer: Writer, data: SpectralAccessor) -> str:
    """What would settle it, with the effect that these answers could have shown."""
    key = data.pair[0]
    inside = data.level(key, "detectable_within")
    text = "several answers to the same question, some wrong (study samples)"
    if math.isfinite(inside):
        least = writer.fixed(inside, f"needed detectable_within {key}")
        text += f", or more questions: an AUROC under {least} is missed with these"
    return text


def _finds(data: SpectralAccessor, keys: Sequence[str], name: str) -> bool:
    """Whether the maps together show more than chance at 5 %: a single head, or more heads than with labels permuted within
    strata; the level is shared between both criteria and all maps.
    """
    tested = [key for key in keys if data.has(key, f"q_{name}")]
    more = any(data.level(key, f"null_p_{name}") < ALPHA / (2 * len(tested)) for key in tested)
    return more or _single_heads(data, keys, name)


def _single_heads(data: SpectralAccessor, keys: Sequence[str], name: str) -> bool:
    """Whether single heads differ, at the level that `_finds` gives to this criterion."""
    tested = [key for key in keys if data.has(key, f"q_{name}")]
    return any(float(data.map(key, f"q_{name}").min()) < ALPHA / (2 * len(tested)) for key in tested)


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
        "The plain maps contain what the question alone explains. Strata remove only what they are made of, and leave fewer "
        "pairs of answers, so some heads lose significance to sample size."
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
    return f"{text}."


def _same_length_headline(writer: Writer, data: SpectralAccessor) -> str:
    """For Datasets without strata: what remains among answers of the same length; empty where nothing was found."""
    tested = [
        (key, stay) for key in data.pair if (stay := data.retained(key)) is not None and data.under(key, "q").count
    ]
    if not tested:
        return ""
    counts = listed(f"{writer.count(stay, f'stay {key}')} ({data.label(key)})" for key, stay in tested)
    return f"; among answers of the same length{_used(writer, data)} in {counts}"
