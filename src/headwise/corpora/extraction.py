"""Which words of an answer are the answer? "The capital of Norway is Oslo, a port." -> "Oslo". A rule that sees no label.

The rule sees the question and what was answered, never the right answer nor whether the two agree: one that looked for
the right answer where it is there, and for something else where it is not, would write the label into the place it finds.

Steps, on the sentence after "the answer is" (else the first):

1. "yes" or "no" at the beginning is the answer.
2. A question for a number: the number after the last "=", else after "is", else the first; numbers of the question only
   where "is" or "=" announces them. Reasoning of several sentences: the last number. No number: no answer.
3. A few words without a verb are the answer themselves, up to the first mark.
4. Otherwise phrases of *new* words (not in the question, no function words) are candidates, and what stands before one
   speaks for it: "is", "called", ":" most, then "by" (who), other prepositions, quotation marks, a capital letter. A
   phrase that goes on ("a country in ...") is a description, and a phrase at the beginning counts where the rest only
   repeats the question ("The euro is the currency of France"). A question for a person takes a name.
5. Nothing new: what follows the last "is" ("The plural of sheep is sheep").

English. Rows in which nothing is found have no exact answer. This module does not know tokens.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from headwise.corpora.answer_words import (
    ADVERBS,
    JOINTS,
    NAMING,
    PREPOSITIONS,
    REMARKS,
    STRONG,
    VERBS,
    Word,
    announcer,
    is_participle,
    stem,
    words_of,
)
from headwise.corpora.numbers import SCALES, SMALL
from headwise.corpora.wording import ARTICLES, sentences, words

__all__ = ["extract"]

FEW = 6  # words that may be an answer by themselves
Span = tuple[int, int]  # characters, the second one past the end

_ANNOUNCED = re.compile(
    r"(?:\banswer\b(?:\s+to\s+(?:this|the|your|that)\s+\w+)?\s*(?:is|was|=|:)+\s*:?|####|\\boxed\{)\s*", re.I
)
_NUMERIC = re.compile(
    r"\bhow (?:many|much|old|tall|long|far|high|deep|fast|heavy)\b|\b(?:what|which) (?:year|number|century|percentage)\b|"
    r"\batomic number\b|\bwhat is (?:the (?:sum|product|square|cube)\b|[-(]?\d)|\d\s*[-+*/×÷]\s*\d|^when\b|\bsquare root\b",
    re.I,
)
_WHO = re.compile(
    r"^(?:(?:by|to|from|with|of|for) )?(?:who|whom|whose|which (?:[\w-]+ ){0,3}(?:artist|author|composer|painter|architect|"
    r"king|queen|president|musician|singer|writer|actor|scientist|explorer|monarch|emperor|philosopher|sculptor|actress|woman|man))\b",
    re.I,
)


def extract(question: str, answer: str) -> Span | None:
    """Where in `answer` its exact answer stands; None where there is none.

    >>> said = "The capital of Norway is Oslo, a port."
    >>> start, stop = extract("What is the capital of Norway?", said)
    >>> said[start:stop]
    'Oslo'
    """
    begin, sentence, announced = _part(answer)
    asked = frozenset(stem(word) for word in words(question)) | frozenset(re.findall(r"\d+(?:[.,]\d+)*", question))
    found = words_of(sentence, asked)
    if not found:
        return None
    if found[0].plain in ("yes", "no") and not _NUMERIC.search(question):
        place: Span | None = (found[0].start, found[0].stop)
    elif _NUMERIC.search(question):
        if not announced and len(sentences(answer)) > 1:  # reasoning: the last number said
            begin, found = 0, words_of(answer, frozenset())
            place = _last_number(found)
        else:
            place = _number(found, announced)
    else:
        place = _phrase(found, bool(_WHO.search(question)), announced)
    return None if place is None else (begin + place[0], begin + place[1])


def _part(answer: str) -> tuple[int, str, bool]:
    """Where the part that is to be read begins, the part, and whether it was announced as the answer."""
    begin, announced = 0, False
    for marker in _ANNOUNCED.finditer(answer):
        if answer[marker.end() :].strip():
            begin, announced = marker.end(), True
    first = next(iter(sentences(answer[begin:])), "")
    return answer.index(first, begin), first, announced


# ---- numbers --------------------------------------------------------------------------------------------------------


def _is_number(word: Word) -> bool:
    return word.text.lstrip("-−")[:1].isdigit() or word.text.casefold() in SMALL


def _whole(found: Sequence[Word], place: int) -> Span:
    """A number with the words that belong to it: "1.5 million", "twenty five"."""
    last = place
    while last + 1 < len(found) and not found[last + 1].mark and (
        found[last + 1].plain in SCALES or found[last + 1].plain in ("hundred", "dozen")
        or (found[last].text.casefold() in SMALL and found[last + 1].text.casefold() in SMALL)
    ):  # fmt: skip
        last += 1
    return found[place].start, found[last].stop


def _last_number(found: Sequence[Word]) -> Span | None:
    places = [place for place, word in enumerate(found) if _is_number(word)]
    return _whole(found, places[-1]) if places else None


def _number(found: Sequence[Word], announced: bool) -> Span | None:
    places = [
        place
        for place, word in enumerate(found)
        if _is_number(word) and not (word.plain == "1" and [w.plain for w in found[place + 1 : place + 2]] == ["of"])
    ]
    told = [
        place for place in places if announcer(found, place, skip_asked=False) in STRONG or found[place].mark == "="
    ]
    after_equals = [place for place in places if place and found[place - 1].text == "="]
    fresh = [place for place in places if not found[place].asked]
    told_fresh = [place for place in told if place in fresh]
    for group in (after_equals[-1:], told_fresh, fresh, told[-1:], places if announced else []):
        if group:
            return _whole(found, group[0])
    return None


# ---- phrases --------------------------------------------------------------------------------------------------------


def _phrase(found: Sequence[Word], who: bool, announced: bool) -> Span | None:
    verbs = [place for place, word in enumerate(found) if word.plain in STRONG | VERBS or is_participle(found, place)]
    bare = not verbs and len(found) <= FEW
    if bare and not any(word.asked and not word.function for word in found):
        return _alone(found)
    kept = _without_asides(found[: _remark(found, verbs)])
    best: tuple[float, Span] | None = None
    earlier = 0
    for first, last in _candidates(kept):
        if who and _name(kept, first, last) is None:
            continue
        score = _score(kept, first, last, who) - 1.1 * min(earlier, 2) + (2.0 if announced and first <= 1 else 0.0)
        earlier += 1
        if best is None or score > best[0]:
            best = score, _trimmed(kept, first, last, who)
    if best is not None:
        return best[1]
    if announced or bare:
        return _alone(kept)
    return None if who else _after_last_link(kept)


def _alone(found: Sequence[Word]) -> Span | None:
    """The first phrase, articles aside."""
    end = next((place for place, word in enumerate(found) if place and word.mark and not word.quoted), len(found))
    own = [word for word in found[:end] if word.plain not in ARTICLES] or list(found[:end])
    return own[0].start, own[-1].stop


def _remark(found: Sequence[Word], verbs: Sequence[int]) -> int:
    """Where a remark on what was said begins: "..., which is a port"."""
    links = [place for place in verbs if found[place].plain in STRONG or found[place].plain in VERBS]
    if not links:
        return len(found)
    places = (place for place in range(links[0] + 2, len(found)) if found[place].plain in REMARKS)
    return next((place for place in places if found[place].plain != "but" or found[place].mark), len(found))


def _without_asides(found: Sequence[Word]) -> list[Word]:
    """Without clauses between commas: "Apollo 11, which was launched in July, was ..."."""
    kept, aside = list[Word](), False
    for place, word in enumerate(found):
        closes = any(later.mark == "," for later in found[place + 1 :])
        if word.mark == ",":
            aside = not aside and word.plain in ("which", "who") and closes
        if not aside:
            kept.append(word)
    return kept


def _candidates(found: Sequence[Word]) -> list[tuple[int, int]]:
    """Phrases of new words, first and last; and what follows "called", new or not."""
    runs, place = list[tuple[int, int]](), 0
    while place < len(found):
        named = place > 0 and not found[place].function and _names(found, place)
        if not (found[place].new or named) or is_participle(found, place):
            place += 1
            continue
        first = last = place
        while first > 1 and found[first - 1].asked and found[first - 1].capital and not found[first].mark and not (
            found[first - 1].function
        ):  # fmt: skip
            first -= 1
        while (step := _goes_on(found, last)) is not None:
            last = step
        runs.append((first, last))
        place = last + 1
    return runs


def _names(found: Sequence[Word], place: int) -> bool:
    """Whether this word is named, or a name after "by": then it counts though it stands in the question."""
    before = announcer(found, place, skip_asked=False)
    return before in NAMING or (before == "by" and found[place].capital)


def _goes_on(found: Sequence[Word], last: int) -> int | None:
    """The next word of the phrase, past "of the" and the like inside a name; None at its end."""
    place = last + 1
    if place >= len(found) or found[place].mark:
        return None
    word = found[place]
    if not word.function and word.plain not in STRONG | VERBS and not is_participle(found, place):
        return place
    while place < len(found) and found[place].plain in JOINTS and not found[place].mark:
        place += 1
    inside = place > last + 1 and place < len(found) and not found[place].mark
    joined = found[last].capital or found[last + 1].capital
    return place if inside and joined and found[place].capital else None


def _score(found: Sequence[Word], first: int, last: int, who: bool) -> float:
    before, head = announcer(found, first), found[first]
    capital = any(word.capital for word in found[max(first, 1) : last + 1])
    score = 4.0 if before in STRONG else 5.0 if before == "by" and who else 2.0 if before in PREPOSITIONS else 0.0
    score += 2.0 * head.quoted + 1.0 * capital - 2.0 * head.text[:1].isdigit()
    score -= 3.0 * any(word.plain == "also" for word in found[max(first - 3, 0) : first])
    follows = found[last + 1].plain if last + 1 < len(found) and not found[last + 1].mark else ""
    goes_on = follows in PREPOSITIONS | REMARKS or (bool(follows) and is_participle(found, last + 1))
    if before in STRONG and goes_on and not capital and not head.quoted:
        score -= 3.0  # a description, of which more follows
    if all(word.function or word.asked for word in found[:first]) and not before and follows in STRONG | VERBS:
        rest = [word for word in found[last + 1 :] if not word.function and word.plain not in STRONG | VERBS]
        score += 5.0 if rest and sum(word.asked for word in rest) >= 0.6 * len(rest) else 0.0
    return score


def _trimmed(found: Sequence[Word], first: int, last: int, who: bool) -> Span:
    """A name without what it is: not "the French physicist" for a person, nor "planet" before Mars."""
    if who or (found[first].text.islower() and found[last].capital and not found[first].quoted):
        first, last = _name(found, first, last) or (first, last)
    return found[first].start, found[last].stop


def _name(found: Sequence[Word], first: int, last: int) -> tuple[int, int] | None:
    """The longest row of capitalised words that is not the question's; the last one of equals. None: no name."""
    rows, begin = list[tuple[int, int]](), first
    while begin <= last:
        end = begin
        while end <= last and (found[end].capital or (end > begin and found[end].plain in JOINTS)):
            end += 1
        while end > begin and not found[end - 1].capital:
            end -= 1
        if end > begin:
            rows.append((begin, end - 1))
        begin = max(end, begin) + 1
    named = [(one, other) for one, other in rows if not all(word.asked for word in found[one : other + 1])]
    described = [row for row in named if not _describes(found, *row, last)]
    after_by = [row for row in rows if announcer(found, row[0], skip_asked=False) == "by"]
    return max(described or after_by, key=lambda row: (row[1] - row[0], row[0]), default=None)


def _describes(found: Sequence[Word], first: int, last: int, end: int) -> bool:
    """Whether a capitalised word only tells of what kind the next one is: "French physicist"."""
    return first == last < end and found[last].text.endswith(("an", "ish", "ese", "ch", "based"))


def _after_last_link(found: Sequence[Word]) -> Span | None:
    links = [place for place, word in enumerate(found[:-1]) if word.plain in STRONG]
    if not links:
        return None
    rest = found[links[-1] + 1 :]
    end = next((place for place, word in enumerate(rest) if place and word.mark and not word.quoted), len(rest))
    own = [word for word in rest[:end] if word.plain not in ARTICLES and word.plain not in ADVERBS]
    if rest[0].plain in ("not", "no"):  # "is not a dog" is no answer
        return None
    own = own[1:] if len(own) > 1 and own[0].plain in PREPOSITIONS else own
    return (own[0].start, own[-1].stop) if own else None
