"""Is this answer right? The rules, in the order they are tried; the first that decides is named in the verdict.

| rule        | label   | when                                                                                    |
|-------------|---------|-----------------------------------------------------------------------------------------|
| empty       | refused | nothing was said                                                                        |
| exact       | correct | the answer, or its first sentence, is a right answer (case, accents, articles aside)    |
| refusal     | refused | "I don't know", "I cannot ...", and no answer after it                                  |
| hedged      | wrong   | several candidates of which not all are right: "Paris or Lyon", "Paris, Rome, Bonn, Oslo" |
| phrase      | correct | a whole phrase is a right answer: "Au, from the Latin", "The symbol is Au."             |
| number      | correct | the right answer is a number, and so is the answer's own                                |
| contained   | correct | a right answer stands in the first sentence, as whole words                             |
| later       | correct | it stands in a later sentence                                                           |
| f1          | correct | a long right answer, and most words are shared (token F1 of `THRESHOLD` or more)        |
| nearer      | correct | known wrong answers were given too, and the answer is more like a right one             |
| negated     | wrong   | a right answer stands there only to be denied: "not Paris"                              |
| no match    | wrong   | none of these                                                                           |

Very short right answers ("C", "US", "he") count only as `exact` or `phrase`, since they stand in any text. "North Korea"
does not contain "Korea". In `numeric` questions (word problems) the last number said is the answer.

The rules see the answer and the right answers, never a model's scores nor another label. They err: in a sample read by
eye about one label in fifty was wrong (docs say how it was counted); `headwise answers` shows which rule decided.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise

from headwise.corpora.numbers import value
from headwise.corpora.wording import ARTICLES, is_mark, sentences, squashed, tokens, words

__all__ = ["CORRECT", "LABELS", "REFUSED", "WRONG", "Verdict", "judge"]

CORRECT, WRONG, REFUSED = "correct", "wrong", "refused"
LABELS = (CORRECT, WRONG, REFUSED)
THRESHOLD = 0.6  # of token F1, for right answers of at least LONG words
LONG = 4
NEARER = 0.3  # least token F1 with a right answer, where known wrong answers are there to compare with


@dataclass(frozen=True)
class Verdict:
    """A label, the rule that gave it, and the right answer it was matched with (empty if none)."""

    label: str
    rule: str
    matched: str = ""


def judge(answer: str, golds: Sequence[str], *, numeric: bool = False, wrong: Sequence[str] = ()) -> Verdict:
    """Label an answer against the right answers (and, where known, some wrong ones).

    >>> judge("It is Paris.", ["Paris"])
    Verdict(label='correct', rule='phrase', matched='Paris')
    >>> judge("It is not Paris.", ["Paris"]).rule, judge("I don't know.", ["Paris"]).label
    ('negated', 'refused')
    """
    if not words(answer):
        return Verdict(REFUSED, "empty")
    known = [_Gold.of(gold) for gold in dict.fromkeys(golds) if words(gold)]
    if numeric and any(gold.number is not None for gold in known):
        return _final_number(answer, known)
    first, *rest = sentences(answer)
    whole = _first(known, lambda gold: gold.equals(words(answer)) or gold.equals(words(first)))
    if whole is not None:
        return Verdict(CORRECT, "exact", whole.text)
    if _is_refusal(tokens(first)):
        remainder = _after_but(first)
        rest = [remainder, *rest] if remainder else rest
        if not rest or _is_refusal(tokens(rest[0])):
            return Verdict(REFUSED, "refusal")
        first, *rest = rest
    return _judge_sentences(first, rest, known, wrong)


# ---- a right answer -------------------------------------------------------------------------------------------------

FUNCTION_WORDS = frozenset(
    "he she it we us me my our you your they them his her him who what when where why how which this that these those "
    "is are was were be been has have had do does did can will would may might must not no yes and or but if of in on "
    "at to by for from with as so all any some one out up off over under then than here there".split()
)
SHORT = 2  # letters


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
        joined = "".join(own)
        short = number is None and (
            (len(joined) <= SHORT and joined < "\x80") or all(word in FUNCTION_WORDS for word in own)
        )
        return cls(text, own, number, short)

    def equals(self, other: tuple[str, ...]) -> bool:
        """Whether these words are this answer and nothing more."""
        if self.number is not None and len(other) == 1:
            return value(other[0]) == self.number
        if other == self.words:
            return True
        own = squashed(self.words)
        return bool(own) and not self.short and own == squashed(other)


def _first(golds: Sequence[_Gold], holds: object) -> _Gold | None:
    return next((gold for gold in golds if holds(gold)), None)  # type: ignore[operator]


# ---- refusals -------------------------------------------------------------------------------------------------------

_REFUSALS = tuple(
    tuple(line.split())
    for line in """i dont know|i do not know|i dont have|i do not have|i have no|i am not sure|im not sure|not sure
i am unsure|im unsure|i cannot|i cant|i can not|i am unable|im unable|im sorry|i am sorry|sorry|i apologize|i apologise
as an ai|as a language model|i am not able|im not able|i am just an ai|i am an ai|im an ai|im just an ai|n / a
unknown|it is unknown|not known|it is not known|no answer|no idea|cannot answer|cant answer|cannot be determined
it is not possible to|it is impossible to|there is not enough information|there is no information
question is unclear|i dont understand|i do not understand|not applicable|not specified|not mentioned
it is not specified|it is not mentioned""".replace("\n", "|").split("|")
)
_WEAK = {("unknown",), ("sorry",), ("not", "known"), ("not", "sure"), ("no", "answer"), ("no", "idea")}  # alone, or before a mark


def _is_refusal(sentence: Sequence[str]) -> bool:
    said = [token for token in sentence if token not in ARTICLES and token != '"']
    for pattern in _REFUSALS:
        if tuple(said[: len(pattern)]) == pattern:
            after = said[len(pattern) : len(pattern) + 1]
            if pattern not in _WEAK or not after or is_mark(after[0]):
                return True
    return False


def _after_but(sentence: str) -> str:
    """ "I'm not sure, but I think it is Paris" -> "I think it is Paris"; empty where nothing follows."""
    for word in (" but ", " However, ", " however, "):
        before, found, after = sentence.partition(word)
        if found and before:
            return after
    return ""


# ---- sentences ------------------------------------------------------------------------------------------------------


def _judge_sentences(first: str, rest: Sequence[str], known: Sequence[_Gold], wrong: Sequence[str]) -> Verdict:
    seen = tokens(first)
    hedged = _hedge(seen, known)
    if hedged is not None:
        return hedged
    phrase = _first(known, lambda gold: any(gold.equals(words(" ".join(part))) for part in _phrases(seen)))
    if phrase is not None:
        return Verdict(CORRECT, "phrase", phrase.text)
    number = _number_said(seen, known)
    if number is not None:
        return number
    denied = ""
    for rule, sentence in [("contained", first), *(("later", sentence) for sentence in rest)]:
        for gold in known:
            if gold.short or gold.number is not None:
                continue
            found = _contained(tokens(sentence), gold.words)
            if found:
                return Verdict(CORRECT, rule, gold.text)
            if found is False:
                denied = denied or gold.text
    if denied:
        return Verdict(WRONG, "negated", denied)
    return _by_shared_words(" ".join([first, *rest]), known, wrong)


COPULAS = frozenset("is was are were be equals called named means = :".split())


def _phrases(sentence: Sequence[str]) -> list[list[str]]:
    """The phrases that may be the answer: the first one if a mark ends it, and those after "is", ":", "=", "(", '"'."""
    parts: list[tuple[str, list[str], str]] = []  # what stands before, the words, what stands after
    before, run = "", []
    for token in [*sentence, "."]:
        if is_mark(token) or token in COPULAS:
            if run:
                parts.append((before, run, token))
            before, run = token, []
        else:
            run.append(token)
    openers = COPULAS | {"(", "[", '"'}
    return [run for before, run, after in parts if before in openers or (before == "" and after not in COPULAS)]


def _contained(sentence: Sequence[str], wanted: tuple[str, ...]) -> bool | None:
    """Whether these words stand in a row: None if not, False if they are only denied or part of another name."""
    kept = [(place, token) for place, token in enumerate(sentence) if token not in ARTICLES and token != '"']
    found = None
    for start in range(len(kept) - len(wanted) + 1):
        if tuple(token for _, token in kept[start : start + len(wanted)]) != wanted:
            continue
        before = [token for _, token in kept[:start]]
        after = [token for _, token in kept[start + len(wanted) :]]
        if _is_other_name(before, wanted):
            continue
        if not _is_denied(before, after):
            return True
        found = False
    return found


NEGATIONS = frozenset(
    "not never isnt arent wasnt werent doesnt didnt dont cannot cant wont neither nor without except excluding".split()
)
TURNS = frozenset("but however although though rather instead actually".split())
TWO_WORD_NEGATIONS = frozenset((("other", "than"), ("rather", "than"), ("instead", "of")))
SCOPE = 4  # words after a negation that it still denies


def _is_denied(before: Sequence[str], after: Sequence[str]) -> bool:
    for place in range(len(before) - 1, max(-1, len(before) - 1 - SCOPE), -1):
        if tuple(before[place : place + 2]) in TWO_WORD_NEGATIONS or before[place] in NEGATIONS:
            return True
        if is_mark(before[place]) or before[place] in TURNS:
            break
    if tuple(before[-2:]) in TWO_WORD_NEGATIONS:
        return True
    is_not = tuple(after[:2]) in {(verb, "not") for verb in ("is", "was", "are", "were")}
    return is_not or after[:1] in (["isnt"], ["wasnt"], ["arent"], ["werent"])


MODIFIERS = frozenset(("north", "south", "east", "west", "new", "northern", "non"))
REGIONS = frozenset(("africa", "asia", "europe"))


def _is_other_name(before: Sequence[str], wanted: tuple[str, ...]) -> bool:
    """ "North Korea" is not "Korea"; but East Africa is in Africa."""
    if not before or before[-1] not in MODIFIERS or wanted[0] in MODIFIERS:
        return False
    return wanted[0] not in REGIONS or (before[-1], wanted[0]) == ("south", "africa")


# ---- several candidates ---------------------------------------------------------------------------------------------

ITEM = 4  # a longer piece is no item of a list, but a clause
MANY = 4  # so many things after another, without "and" or "or", are a list of guesses; fewer may be "Paris, France"


def _hedge(sentence: Sequence[str], known: Sequence[_Gold]) -> Verdict | None:
    """A verdict where the sentence names several candidates: wrong, unless each of them is right."""
    core = _core(sentence)
    items, joints = _items(core)
    if len(items) < 2 or any(len(item) > ITEM for item in items):
        return None
    right = [_first(known, lambda gold, item=item: gold.equals(item) or _holds(item, gold)) for item in items]  # type: ignore[misc]
    matched = next((gold for gold in right if gold is not None), None)
    if matched is None or all(right):
        return None
    if any(_holds(tuple(t for t in core if not is_mark(t) and t not in ARTICLES), gold) for gold in known if _joins(gold)):
        return None  # "Trinidad and Tobago" is one answer
    guesses = "or" in joints or "and" in joints or len(items) >= MANY or (len(items) == MANY - 1 and right[0] is None)
    return Verdict(WRONG, "hedged", matched.text) if guesses else None


def _holds(item: tuple[str, ...], gold: _Gold) -> bool:
    return not gold.short and gold.number is None and bool(_contained(item, gold.words))


def _joins(gold: _Gold) -> bool:
    return "and" in gold.words or "or" in gold.words or "," in gold.text


def _core(sentence: Sequence[str]) -> list[str]:
    """What stands after the first "is" or ":"; all of it where there is none."""
    for place, token in enumerate(sentence):
        if token in COPULAS and place + 1 < len(sentence):
            return list(sentence[place + 1 :])
    return list(sentence)


def _items(core: Sequence[str]) -> tuple[list[tuple[str, ...]], set[str]]:
    """The different pieces between commas, "and" and "or", and which of these joined them."""
    items: dict[tuple[str, ...], None] = {}
    joints: set[str] = set()
    run: list[str] = []
    for token in [*core, ","]:
        if token in (",", ";", "/", "and", "or", ".", "!", "?"):
            if run:
                items[tuple(run)] = None
            run = []
            joints.add("or" if token == "/" else token)
        elif token not in ARTICLES and token not in ('"', "either", "both", "possibly", "maybe", "perhaps"):
            run.append(token)
    return list(items), joints


# ---- numbers --------------------------------------------------------------------------------------------------------


def _numbers(sentence: Sequence[str]) -> list[Decimal]:
    """The numbers said, without the "one" of "one of the ..."."""
    found = []
    for token, after in pairwise([*sentence, ""]):
        number = value(token)
        if number is not None and not (token == "1" and after in ("of", "another")):
            found.append(number)
    return found


def _number_said(sentence: Sequence[str], known: Sequence[_Gold]) -> Verdict | None:
    """The verdict where a right answer is a number: the answer's own number is it, or it is not. None: no number."""
    golds = {gold.number: gold for gold in known if gold.number is not None}
    unit = _first(known, lambda gold: len(gold.words) == 2 and value(gold.words[0]) is not None)
    said = _own_number(sentence)
    if said is None:
        return None
    if said in golds:
        place = next(place for place, token in enumerate(sentence) if value(token) == said)
        if _is_denied(sentence[:place], sentence[place + 1 :]):
            return Verdict(WRONG, "negated", golds[said].text)
        return Verdict(CORRECT, "number", golds[said].text)
    spoken = [token for token in sentence if not is_mark(token)]
    if unit is not None and len(spoken) == 1 and value(unit.words[0]) == said:  # "23" for "23 years"
        return Verdict(CORRECT, "number", unit.text)
    return None


def _own_number(sentence: Sequence[str]) -> Decimal | None:
    """The number a sentence gives as its answer: after the last "=", else the first after "is", else the first."""
    if "=" in sentence:
        last = len(sentence) - 1 - list(reversed(sentence)).index("=")
        after = _numbers(sentence[last + 1 :])
        if after:
            return after[0]
    numbers = _numbers(_core(sentence)) or _numbers(sentence)
    years = [number for number in dict.fromkeys(numbers) if number == int(number) and 1000 <= number <= 2100]
    if len(years) == 1 and any(token in MONTHS for token in sentence):
        return years[0]
    return numbers[0] if numbers else None


MONTHS = frozenset(
    "january february march april may june july august september october november december jan feb mar apr jun jul aug "
    "sep sept oct nov dec".split()
)


def _final_number(answer: str, known: Sequence[_Gold]) -> Verdict:
    """Word problems: the number after "####" or "the answer is", else the last one said."""
    golds = {gold.number: gold for gold in known if gold.number is not None}
    if _is_refusal(tokens(sentences(answer)[0])) and not _numbers(tokens(answer)):
        return Verdict(REFUSED, "refusal")
    for marker in ("####", "answer is", "answer:", "Answer:"):
        _, found, after = answer.rpartition(marker)
        numbers = _numbers(tokens(after)) if found else []
        if numbers:
            break
    else:
        numbers = _numbers(tokens(answer))[-1:]
    if numbers and numbers[0] in golds:
        return Verdict(CORRECT, "number", golds[numbers[0]].text)
    return Verdict(WRONG, "no match")


# ---- shared words ---------------------------------------------------------------------------------------------------


def _by_shared_words(answer: str, known: Sequence[_Gold], wrong: Sequence[str]) -> Verdict:
    said = words(answer)
    score, best = max(((token_f1(said, gold.words), gold) for gold in known), key=lambda pair: pair[0], default=(0.0, None))
    if best is None or _negations(said) != _negations(best.words):
        return Verdict(WRONG, "no match")
    if wrong:
        against = max(token_f1(said, words(text)) for text in wrong)
        right = score >= NEARER and score > against
        return Verdict(CORRECT, "nearer", best.text) if right else Verdict(WRONG, "no match")
    if len(best.words) >= LONG and score >= THRESHOLD:
        return Verdict(CORRECT, "f1", best.text)
    return Verdict(WRONG, "no match")


def _negations(said: Sequence[str]) -> bool:
    return any(word in NEGATIONS or word == "no" for word in said)


def token_f1(one: Sequence[str], other: Sequence[str]) -> float:
    """The harmonic mean of the shares of words that the two have in common.

    >>> token_f1(["big", "red", "dog"], ["red", "dog"])
    0.8
    """
    common = sum((Counter(one) & Counter(other)).values())
    return 2 * common / (len(one) + len(other)) if common else 0.0
