"""Is an answer correct? The rules in the order of their application; the verdict names the first that decides.

| rule      | label   | when                                                                                      |
|-----------|---------|-------------------------------------------------------------------------------------------|
| empty     | refused | the answer has no words                                                                   |
| exact     | correct | the normalised answer, or its first sentence, is a right answer                           |
| refusal   | refused | "I don't know", "I cannot ...", "It is not known.", without an answer                     |
| hedged    | wrong   | several candidates of which not all are right: "Paris or Lyon", "Paris, Rome, Bonn, Oslo" |
| phrase    | correct | a complete phrase is a right answer: "Au, from the Latin", "The symbol is Au."            |
| number    | correct | the right answer is a number, and equals the number the answer gives                      |
| contained | correct | the first sentence contains a right answer as whole words                                 |
| later     | correct | a later sentence contains it                                                              |
| negated   | wrong   | a right answer occurs only negated: "not Paris"                                           |
| f1        | correct | a long right answer shares most words (token F1 of at least `MIN_F1`)                     |
| nearer    | correct | known wrong answers are given too, and the answer is more similar to a right one          |
| no match  | wrong   | no other rule applies                                                                     |

Very short right answers ("C", "US", "he") count only as a complete phrase or as the last word, because they occur in any
text. "North Korea" does not contain "Korea". In `numeric` questions (word problems) the last number is the answer.

The rules read the answer and the right answers, never a model's scores or another label. Of 70 answers of the default
model on which no rule was developed, two were labelled wrongly: one self-contradiction as correct ("by Aldous Huxley was
written by Robert ...") and one refusal as wrong. `headwise answers` shows the rule that decided.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise

from headwise.corpora.normalisation import ARTICLES, is_mark, sentences, squashed, tokens, value, words
from headwise.corpora.phrases import (
    COPULAS,
    NEGATIONS,
    after_but,
    announced,
    begins_as_refusal,
    contained,
    core,
    has_a_refusal,
    is_negated,
    items,
    phrases,
    says_it_is_not_known,
)

__all__ = ["CORRECT", "LABELS", "REFUSED", "WRONG", "Verdict", "judge"]

CORRECT, WRONG, REFUSED = "correct", "wrong", "refused"
LABELS = (CORRECT, WRONG, REFUSED)
MIN_F1 = 0.7  # for right answers of at least MIN_F1_WORDS words
MIN_F1_WORDS = 4
MIN_NEARER_F1 = 0.3  # with a right answer, if known wrong answers are given too
MAX_SHORT_LETTERS = 2  # of right answers that must be a complete phrase
MAX_ITEM_WORDS = 4  # a longer item of a list is a clause
MIN_GUESSES = 4  # listed items without "and" or "or" that count as guesses; fewer may be "Paris, France"


@dataclass(frozen=True)
class Verdict:
    """The label of an answer and the rule that decided it.

    Examples:
        >>> judge("I think it was Oslo", ["Oslo"])
        Verdict(label='correct', rule='phrase', matched='Oslo')
    """

    label: str  # correct, wrong or refused
    rule: str  # the rule that decided
    matched: str = ""  # the right answer that matched


def judge(
    answer: str, golds: Sequence[str], *, numeric: bool = False, wrong: Sequence[str] = (), question: str = ""
) -> Verdict:
    """Label an answer by comparison with the right answers (and, if known, some wrong ones).

    Given the `question`, right answers that occur in it are ignored if there are others: an answer that repeats "the 8th
    president" does not name the person.

    Args:
        answer: the answer to judge.
        golds: all right answers.
        numeric: a word problem: the last number is the answer.
        wrong: known wrong answers, to separate near misses.
        question: the question.

    Returns:
        Correct, wrong or refused, with the rule that decided.

    Examples:
        >>> judge("It is Paris.", ["Paris"])
        Verdict(label='correct', rule='phrase', matched='Paris')
        >>> judge("It is not Paris.", ["Paris"]).rule, judge("I don't know.", ["Paris"]).label
        ('negated', 'refused')
    """
    if not words(answer):
        return Verdict(REFUSED, "empty")
    known = [_Gold.of(gold) for gold in dict.fromkeys(golds) if words(gold)]
    asked = words(question)
    known = [gold for gold in known if not _is_part_of(gold.words, asked)] or known
    if numeric and any(gold.number is not None for gold in known):
        return _final_number(answer, known)
    first, *rest = sentences(answer)
    whole = _first(known, lambda gold: gold.equals(words(answer)) or gold.equals(words(first)))
    if whole is not None:
        return Verdict(CORRECT, "exact", whole.text)
    if begins_as_refusal(tokens(first)):
        remainder = after_but(first)
        rest = [remainder, *rest] if remainder else rest
        verdict = _judge_sentences(rest[0], rest[1:], known, wrong) if rest else Verdict(REFUSED, "refusal")
        answers = bool(remainder) and not has_a_refusal(tokens(remainder))
        return verdict if answers or verdict.label == CORRECT else Verdict(REFUSED, "refusal")
    return _judge_sentences(first, rest, known, wrong)


# ---- a right answer -------------------------------------------------------------------------------------------------

FUNCTION_WORDS = frozenset(
    "he she it we us me my our you your they them his her him who what when where why how which this that these those "
    "is are was were be been has have had do does did can will would may might must not no yes and or but if of in on "
    "at to by for from with as so all any some one out up off over under then than here there".split()
)


@dataclass(frozen=True)
class _Gold:
    text: str
    words: tuple[str, ...]
    number: Decimal | None
    short: bool  # must be matched as a complete phrase

    @classmethod
    def of(cls, text: str) -> _Gold:
        own = words(text)
        number = value(own[0]) if len(own) == 1 else None
        letters = "".join(own)
        tiny = len(letters) <= MAX_SHORT_LETTERS and letters.isascii()
        return cls(text, own, number, number is None and (tiny or all(word in FUNCTION_WORDS for word in own)))

    def equals(self, other: tuple[str, ...]) -> bool:
        """Whether these words are this answer and nothing else."""
        if self.number is not None and len(other) == 1:
            return value(other[0]) == self.number
        own = "" if self.short else squashed(self.words)
        return other == self.words or (bool(own) and own == squashed(other))

    def is_in(self, sentence: Sequence[str]) -> bool | None:
        """As `contained`; None for short answers and numbers, which have their own rules."""
        return None if self.short or self.number is not None else contained(sentence, self.words)


def _is_part_of(some: tuple[str, ...], others: tuple[str, ...]) -> bool:
    return any(others[at : at + len(some)] == some for at in range(len(others) - len(some) + 1))


def _first(golds: Sequence[_Gold], holds: Callable[[_Gold], object]) -> _Gold | None:
    return next((gold for gold in golds if holds(gold)), None)


# ---- sentences ------------------------------------------------------------------------------------------------------


def _judge_sentences(first: str, rest: Sequence[str], known: Sequence[_Gold], wrong: Sequence[str]) -> Verdict:
    sentence = announced(tokens(first))
    hedged = _hedged(sentence, known)
    if hedged is not None:
        return Verdict(WRONG, "hedged", hedged.text)
    parts = phrases(sentence)
    phrase = _first(known, lambda gold: any(gold.equals(part) for part in parts) or _is_last_word(first, gold))
    if phrase is not None:
        return Verdict(CORRECT, "phrase", phrase.text)
    number = _by_number(sentence, known)
    if number is not None:
        return number
    negated = None
    for rule, part in [("contained", sentence), *(("later", tokens(one)) for one in rest)]:
        for gold in known:
            occurs = gold.is_in(part)
            if occurs:
                return Verdict(CORRECT, rule, gold.text)
            negated = negated or (gold if occurs is False else None)
    if negated is not None:
        return Verdict(WRONG, "negated", negated.text)
    shared = _by_shared_words(" ".join([first, *rest]), known, wrong)
    if shared is None and says_it_is_not_known(sentence):
        return Verdict(REFUSED, "refusal")
    return shared or Verdict(WRONG, "no match")


def _is_last_word(sentence: str, gold: _Gold) -> bool:
    """A short name at the end, in its proper case: "... with the symbol Cd."."""
    written = re.search(r"(\w+)[\"')\]]*[.!]?$", sentence)
    return gold.short and gold.text[:1].isupper() and written is not None and written[1] == gold.text


def _hedged(sentence: Sequence[str], known: Sequence[_Gold]) -> _Gold | None:
    """The right answer among several candidates, if not all of them are right."""
    part = core(sentence)
    several, joints = items(part)
    if len(several) < 2 or any(len(item) > MAX_ITEM_WORDS for item in several):
        return None
    right = [_first(known, lambda gold, item=item: gold.equals(item) or gold.is_in(item)) for item in several]  # type: ignore[misc]
    matched = next((gold for gold in right if gold is not None), None)
    if matched is None or all(right):
        return None
    joined = [gold for gold in known if {"and", "or"} & set(gold.words) or "," in gold.text]
    plain = [token for token in part if not is_mark(token)]
    if any(gold.is_in(plain) for gold in joined):  # "Trinidad and Tobago" is one answer
        return None
    if {"or", "and"} & joints:
        return matched
    alike = all(not set(item) & FUNCTION_WORDS and not any(map(str.isdigit, "".join(item))) for item in several)
    guesses = len(several) >= MIN_GUESSES or (len(several) == MIN_GUESSES - 1 and right[0] is None)
    return matched if guesses and (alike or matched.number is not None) else None


# ---- numbers --------------------------------------------------------------------------------------------------------

VERBS = COPULAS - {":", "="}
MONTHS = frozenset(
    "january february march april may june july august september october november december jan feb mar apr jun jul aug "
    "sep sept oct nov dec".split()
)


def _numbers(sentence: Sequence[str]) -> list[Decimal]:
    """The numbers of a sentence, without the "one" of "one of the ..."."""
    found = []
    for token, after in pairwise([*sentence, ""]):
        number = value(token)
        if number is not None and not (token == "1" and after in ("of", "another")):
            found.append(number)
    return found


def _by_number(sentence: Sequence[str], known: Sequence[_Gold]) -> Verdict | None:
    """A verdict if the number the sentence gives is a right answer; else None."""
    given = _given_number(sentence)
    if given is None:
        return None
    for gold in known:
        if gold.number == given:
            at = next(at for at, token in enumerate(sentence) if value(token) == given)
            if is_negated(sentence[:at], sentence[at + 1 :]):
                return Verdict(WRONG, "negated", gold.text)
            return Verdict(CORRECT, "number", gold.text)
    plain = [token for token in sentence if not is_mark(token) and token not in ARTICLES]
    unit = _first(known, lambda gold: len(gold.words) == 2 and value(gold.words[0]) == given)
    if unit is not None and len(plain) == 1:  # "23" for "23 years"
        return Verdict(CORRECT, "number", unit.text)
    return None


def _given_number(sentence: Sequence[str]) -> Decimal | None:
    """The number a sentence gives: after the last "=", else the first after "is", else the first; of a date, the year."""
    if "=" in sentence:
        last = len(sentence) - 1 - list(reversed(sentence)).index("=")
        after = _numbers(sentence[last + 1 :])
        if after:
            return after[0]
    numbers = _numbers(core(sentence, VERBS)) or _numbers(sentence)
    years = [number for number in dict.fromkeys(numbers) if number == int(number) and 1000 <= number <= 2100]
    if len(years) == 1 and any(token in MONTHS for token in sentence):
        return years[0]
    return numbers[0] if numbers else None


def _final_number(answer: str, known: Sequence[_Gold]) -> Verdict:
    """Word problems: the number after "####" or "the answer is", else the last one."""
    golds = {gold.number: gold for gold in known if gold.number is not None}
    every = _numbers(tokens(answer))
    if not every:
        refuses = begins_as_refusal(tokens(answer)) or says_it_is_not_known(tokens(answer))
        return Verdict(REFUSED, "refusal") if refuses else Verdict(WRONG, "no match")
    final = every[-1]
    for marker in ("####", "answer is", "nswer:"):
        _, found, after = answer.rpartition(marker)
        own = _given_number(tokens(sentences(after)[0])) if found and after.strip() else None
        if own is not None:
            final = own
            break
    return Verdict(CORRECT, "number", golds[final].text) if final in golds else Verdict(WRONG, "no match")


# ---- shared words ---------------------------------------------------------------------------------------------------


def _by_shared_words(answer: str, known: Sequence[_Gold], wrong: Sequence[str]) -> Verdict | None:
    own = words(answer)
    score, best = 0.0, None
    for gold in known:
        f1 = token_f1(own, gold.words) if _has_negation(own) == _has_negation(gold.words) else 0.0
        if f1 > score and (wrong or len(gold.words) >= MIN_F1_WORDS):
            score, best = f1, gold
    if best is None:
        return None
    if wrong:
        against = max(token_f1(own, words(text)) for text in wrong)
        return Verdict(CORRECT, "nearer", best.text) if score >= MIN_NEARER_F1 and score > against else None
    return Verdict(CORRECT, "f1", best.text) if score >= MIN_F1 else None


def _has_negation(some: Sequence[str]) -> bool:
    return any(word in NEGATIONS or word == "no" for word in some)


def token_f1(one: Sequence[str], other: Sequence[str]) -> float:
    """The harmonic mean of precision and recall of the shared words.

    >>> token_f1(["big", "red", "dog"], ["red", "dog"])
    0.8
    """
    common = sum((Counter(one) & Counter(other)).values())
    return 2 * common / (len(one) + len(other)) if common else 0.0
