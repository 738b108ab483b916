"""Is this answer right? The rules, in the order they are tried; the first that decides is named in the verdict.

| rule      | label   | when                                                                                      |
|-----------|---------|-------------------------------------------------------------------------------------------|
| empty     | refused | nothing was said                                                                          |
| exact     | correct | the answer, or its first sentence, is a right answer (case, accents, articles aside)      |
| refusal   | refused | "I don't know", "I cannot ...", "It is not known.", and no answer with it                 |
| hedged    | wrong   | several candidates of which not all are right: "Paris or Lyon", "Paris, Rome, Bonn, Oslo" |
| phrase    | correct | a whole phrase is a right answer: "Au, from the Latin", "The symbol is Au."               |
| number    | correct | the right answer is a number, and so is the answer's own                                  |
| contained | correct | a right answer stands in the first sentence, as whole words                               |
| later     | correct | it stands in a later sentence                                                             |
| negated   | wrong   | a right answer stands there only to be denied: "not Paris"                                |
| f1        | correct | a long right answer, and most words are shared (token F1 of `THRESHOLD` or more)          |
| nearer    | correct | known wrong answers were given too, and the answer is more like a right one               |
| no match  | wrong   | none of these                                                                             |

Very short right answers ("C", "US", "he") count only as a whole phrase or as the last word, since they stand in any
text. "North Korea" does not contain "Korea". In `numeric` questions (word problems) the last number said is the answer.

The rules see the answer and the right answers, never a model's scores nor another label. They err now and then: of 70
answers of the default model that no rule had been made on, one was labelled correct that contradicts itself ("by Aldous
Huxley was written by Robert ...") and one wrong that is a refusal. `headwise answers` shows which rule decided.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise

from headwise.corpora.numbers import value
from headwise.corpora.phrases import COPULAS, NEGATIONS, announced, contained, core, is_denied, items, phrases
from headwise.corpora.refusals import after_but, begins_as_refusal, has_a_refusal, says_it_is_not_known
from headwise.corpora.wording import ARTICLES, is_mark, sentences, squashed, tokens, words

__all__ = ["CORRECT", "LABELS", "REFUSED", "WRONG", "Verdict", "judge"]

CORRECT, WRONG, REFUSED = "correct", "wrong", "refused"
LABELS = (CORRECT, WRONG, REFUSED)
THRESHOLD = 0.7  # of token F1, for right answers of at least LONG words
LONG = 4
NEARER = 0.3  # least token F1 with a right answer, where known wrong answers are there to compare with
SHORT = 2  # letters of a right answer that may only be a whole phrase
ITEM = 4  # words; a longer piece is no item of a list, but a clause
MANY = 4  # so many things after another, without "and" or "or", are a list of guesses; fewer may be "Paris, France"


@dataclass(frozen=True)
class Verdict:
    """What was found about an answer.

    Examples:
        >>> judge("I think it was Oslo", ["Oslo"])
        Verdict(label='correct', rule='phrase', matched='Oslo')
    """

    label: str  # correct, wrong or refused
    rule: str  # the rule that gave it
    matched: str = ""  # the right answer it was matched with


def judge(
    answer: str, golds: Sequence[str], *, numeric: bool = False, wrong: Sequence[str] = (), question: str = ""
) -> Verdict:
    """Label an answer against the right answers (and, where known, some wrong ones).

    With the `question`, right answers that stand in it are left aside where there are others: who repeats "the 8th
    president" has not said who that was.

    Args:
        answer: what was said.
        golds: all that count as right.
        numeric: a word problem: the last number said is the answer.
        wrong: known wrong answers, to tell near misses by.
        question: what was asked.

    Returns:
        Correct, wrong or refused, with the rule that told it.

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
    known = [gold for gold in known if not _stand_in(gold.words, asked)] or known
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
    short: bool  # may only be matched as a whole phrase

    @classmethod
    def of(cls, text: str) -> _Gold:
        own = words(text)
        number = value(own[0]) if len(own) == 1 else None
        letters = "".join(own)
        tiny = len(letters) <= SHORT and letters.isascii()
        return cls(text, own, number, number is None and (tiny or all(word in FUNCTION_WORDS for word in own)))

    def equals(self, other: tuple[str, ...]) -> bool:
        """Whether these words are this answer and nothing more."""
        if self.number is not None and len(other) == 1:
            return value(other[0]) == self.number
        own = "" if self.short else squashed(self.words)
        return other == self.words or (bool(own) and own == squashed(other))

    def stands_in(self, sentence: Sequence[str]) -> bool | None:
        """As `contained`; None for short ones and numbers, which have rules of their own."""
        return None if self.short or self.number is not None else contained(sentence, self.words)


def _stand_in(some: tuple[str, ...], others: tuple[str, ...]) -> bool:
    return any(others[at : at + len(some)] == some for at in range(len(others) - len(some) + 1))


def _first(golds: Sequence[_Gold], holds: Callable[[_Gold], object]) -> _Gold | None:
    return next((gold for gold in golds if holds(gold)), None)


# ---- sentences ------------------------------------------------------------------------------------------------------


def _judge_sentences(first: str, rest: Sequence[str], known: Sequence[_Gold], wrong: Sequence[str]) -> Verdict:
    said = announced(tokens(first))
    hedged = _hedged(said, known)
    if hedged is not None:
        return Verdict(WRONG, "hedged", hedged.text)
    parts = phrases(said)
    phrase = _first(known, lambda gold: any(gold.equals(part) for part in parts) or _is_last_word(first, gold))
    if phrase is not None:
        return Verdict(CORRECT, "phrase", phrase.text)
    number = _by_number(said, known)
    if number is not None:
        return number
    denied = None
    for rule, sentence in [("contained", said), *(("later", tokens(one)) for one in rest)]:
        for gold in known:
            stands = gold.stands_in(sentence)
            if stands:
                return Verdict(CORRECT, rule, gold.text)
            denied = denied or (gold if stands is False else None)
    if denied is not None:
        return Verdict(WRONG, "negated", denied.text)
    shared = _by_shared_words(" ".join([first, *rest]), known, wrong)
    if shared is None and says_it_is_not_known(said):
        return Verdict(REFUSED, "refusal")
    return shared or Verdict(WRONG, "no match")


def _is_last_word(sentence: str, gold: _Gold) -> bool:
    """A short name written as it should be, at the end: "... with the symbol Cd."."""
    written = re.search(r"(\w+)[\"')\]]*[.!]?$", sentence)
    return gold.short and gold.text[:1].isupper() and written is not None and written[1] == gold.text


def _hedged(sentence: Sequence[str], known: Sequence[_Gold]) -> _Gold | None:
    """The right answer that stands among several candidates, if not all of them are right."""
    part = core(sentence)
    several, joints = items(part)
    if len(several) < 2 or any(len(item) > ITEM for item in several):
        return None
    right = [_first(known, lambda gold, item=item: gold.equals(item) or gold.stands_in(item)) for item in several]  # type: ignore[misc]
    matched = next((gold for gold in right if gold is not None), None)
    if matched is None or all(right):
        return None
    joined = [gold for gold in known if {"and", "or"} & set(gold.words) or "," in gold.text]
    spoken = [token for token in part if not is_mark(token)]
    if any(gold.stands_in(spoken) for gold in joined):  # "Trinidad and Tobago" is one answer
        return None
    if {"or", "and"} & joints:
        return matched
    alike = all(not set(item) & FUNCTION_WORDS and not any(map(str.isdigit, "".join(item))) for item in several)
    guesses = len(several) >= MANY or (len(several) == MANY - 1 and right[0] is None)
    return matched if guesses and (alike or matched.number is not None) else None


# ---- numbers --------------------------------------------------------------------------------------------------------

VERBS = COPULAS - {":", "="}
MONTHS = frozenset(
    "january february march april may june july august september october november december jan feb mar apr jun jul aug "
    "sep sept oct nov dec".split()
)


def _numbers(sentence: Sequence[str]) -> list[Decimal]:
    """The numbers said, without the "one" of "one of the ..."."""
    found = []
    for token, after in pairwise([*sentence, ""]):
        number = value(token)
        if number is not None and not (token == "1" and after in ("of", "another")):
            found.append(number)
    return found


def _by_number(sentence: Sequence[str], known: Sequence[_Gold]) -> Verdict | None:
    """Right if the sentence's own number is a right answer; None where it is not, or there is none."""
    said = _own_number(sentence)
    if said is None:
        return None
    for gold in known:
        if gold.number == said:
            place = next(place for place, token in enumerate(sentence) if value(token) == said)
            if is_denied(sentence[:place], sentence[place + 1 :]):
                return Verdict(WRONG, "negated", gold.text)
            return Verdict(CORRECT, "number", gold.text)
    spoken = [token for token in sentence if not is_mark(token) and token not in ARTICLES]
    unit = _first(known, lambda gold: len(gold.words) == 2 and value(gold.words[0]) == said)
    if unit is not None and len(spoken) == 1:  # "23" for "23 years"
        return Verdict(CORRECT, "number", unit.text)
    return None


def _own_number(sentence: Sequence[str]) -> Decimal | None:
    """The number a sentence gives as its answer: after the last "=", else the first after "is", else the first.

    In a date it is the year.
    """
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
    """Word problems: the number after "####" or "the answer is", else the last one said."""
    golds = {gold.number: gold for gold in known if gold.number is not None}
    every = _numbers(tokens(answer))
    if not every:
        refuses = begins_as_refusal(tokens(answer)) or says_it_is_not_known(tokens(answer))
        return Verdict(REFUSED, "refusal") if refuses else Verdict(WRONG, "no match")
    final = every[-1]
    for marker in ("####", "answer is", "nswer:"):
        _, found, after = answer.rpartition(marker)
        own = _own_number(tokens(sentences(after)[0])) if found and after.strip() else None
        if own is not None:
            final = own
            break
    return Verdict(CORRECT, "number", golds[final].text) if final in golds else Verdict(WRONG, "no match")


# ---- shared words ---------------------------------------------------------------------------------------------------


def _by_shared_words(answer: str, known: Sequence[_Gold], wrong: Sequence[str]) -> Verdict | None:
    said = words(answer)
    score, best = 0.0, None
    for gold in known:
        f1 = token_f1(said, gold.words) if _denies(said) == _denies(gold.words) else 0.0
        if f1 > score and (wrong or len(gold.words) >= LONG):
            score, best = f1, gold
    if best is None:
        return None
    if wrong:
        against = max(token_f1(said, words(text)) for text in wrong)
        return Verdict(CORRECT, "nearer", best.text) if score >= NEARER and score > against else None
    return Verdict(CORRECT, "f1", best.text) if score >= THRESHOLD else None


def _denies(said: Sequence[str]) -> bool:
    return any(word in NEGATIONS or word == "no" for word in said)


def token_f1(one: Sequence[str], other: Sequence[str]) -> float:
    """The harmonic mean of the shares of words that the two have in common.

    >>> token_f1(["big", "red", "dog"], ["red", "dog"])
    0.8
    """
    common = sum((Counter(one) & Counter(other)).values())
    return 2 * common / (len(one) + len(other)) if common else 0.0
