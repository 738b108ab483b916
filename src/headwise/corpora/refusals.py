"""Does a sentence decline to answer? "I don't know", "As an AI ...", "The author is not mentioned in the text."

Told by how the sentence begins, or by a clause that says the answer is not there. A sentence that declines and then
answers ("I'm not sure, but I think it is Paris") is an answer: what follows "but" counts. English only.

This module works on the tokens of `wording`, and does not know the right answer.
"""

from __future__ import annotations

from collections.abc import Sequence

from headwise.corpora.wording import ARTICLES, is_mark

__all__ = ["after_but", "begins_as_refusal", "has_a_refusal", "says_it_is_not_known"]

_BEGINNINGS = """
i dont know|i do not know|i dont have|i do not have|i have no|i am not sure|im not sure|i am unsure|im unsure|not sure
i cannot|i cant|i can not|i am unable|im unable|i am not able|im not able|i apologize|i apologise
im sorry|i am sorry|sorry|i dont understand|i do not understand
as ai|as chatbot|as language model|i am ai|im ai|i am just ai|im just ai|n /|not applicable
unknown|it is unknown|not known|it is not known|no answer|no idea|cannot answer|cant answer|cannot be determined
it is not possible to|it is impossible to|there is not enough information|there is no information
not specified|not mentioned|it is not specified|it is not mentioned|question is unclear
"""
BEGINNINGS = tuple(tuple(part.split()) for part in _BEGINNINGS.strip().replace("\n", "|").split("|"))
ALONE = {("n", "/"), ("unknown",), ("sorry",), ("not", "known"), ("not", "sure"), ("no", "answer"), ("no", "idea")}
"""These decline only if nothing follows but a mark: "Unknown Pleasures" is an album."""

DEGREES = frozenset("explicitly directly specifically clearly currently publicly definitively yet".split())
NOT_THERE = frozenset("mentioned specified provided stated".split())
NOT_KNOWN = frozenset("known clear certain".split())


def begins_as_refusal(sentence: Sequence[str]) -> bool:
    """Whether the sentence begins as a refusal does."""
    said = [token for token in sentence if token not in ARTICLES and token != '"']
    for pattern in BEGINNINGS:
        if tuple(said[: len(pattern)]) == pattern:
            after = said[len(pattern) : len(pattern) + 1]
            if pattern not in ALONE or not after or is_mark(after[0]):
                return True
    return False


def has_a_refusal(sentence: Sequence[str]) -> bool:
    """Whether any clause begins as a refusal does: "for that question, I'm unable to answer"."""
    begins = [0, *(place + 1 for place, token in enumerate(sentence) if is_mark(token))]
    return any(begins_as_refusal(sentence[place:]) for place in begins)


def says_it_is_not_known(sentence: Sequence[str]) -> bool:
    """Whether the sentence says that the answer is not there: "... is unknown.", "... is not explicitly mentioned"."""
    said = [token for token in sentence if token not in DEGREES and token != '"']
    for place, token in enumerate(said):
        verb = said[place - 1] if place else ""
        after = said[place + 1] if place + 1 < len(said) else "."
        if verb not in ("is", "was", "are", "were"):
            continue
        if token == "unknown" and (is_mark(after) or after in ("to", "in")):
            return True
        if token == "not" and after in NOT_THERE:
            return True
        last = said[place + 2] if place + 2 < len(said) else "."
        if token == "not" and after in NOT_KNOWN and (is_mark(last) or last in ("to", "in")):
            return True
    return False


def after_but(sentence: str) -> str:
    """What follows "but"; empty where nothing does.

    >>> after_but("I'm not sure, but I think it is Paris.")
    'I think it is Paris.'
    """
    for word in (" but ", " However, ", " however, "):
        before, found, after = sentence.partition(word)
        if found and before:
            return after
    return ""
