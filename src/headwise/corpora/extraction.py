"""Which words of an answer are the exact answer? "The capital of Norway is Oslo, a port." -> "Oslo", by a label-blind rule.

The rule reads the question and the answer, never the right answer or the label. A rule that located the right answer
where it occurs, and something else where it does not, would leak the label into the position it returns.

Steps, on the sentence after "the answer is" (else the first sentence):

1. A leading "yes" or "no" is the answer.
2. A question for a number: the number after the last "=", else after "is", else the first. Numbers of the question count
   only after "is" or "=". Reasoning of several sentences: the last number. No number: no answer.
3. Up to `MAX_BARE_WORDS` words without a verb are the answer, up to the first punctuation mark.
4. Otherwise phrases of *new* words (not in the question, no function words) are candidates, scored by what precedes
   them: "is", "called", ":" most, then "by" (who), other prepositions, quotation marks, a capital letter. A phrase that
   continues ("a country in ...") is a description. A phrase at the beginning counts if the rest only repeats the
   question ("The euro is the currency of France"). A question for a person requires a name.
5. No new word: the part after the last "is" ("The plural of sheep is sheep").

English only. Answers in which nothing is found have no exact answer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from headwise.corpora.matching import FUNCTION_WORDS
from headwise.corpora.normalisation import ARTICLES, SCALES, SMALL, sentences, words

__all__ = ["extract"]

STRONG = frozenset("is was are were be equals equal gives called named means titled = :".split())
NAMING = frozenset(("called", "named"))
PREPOSITIONS = frozenset("in on at from for to of as with by under near".split())
ADVERBS = frozenset(
    "actually likely probably also just simply most commonly often usually generally typically traditionally officially"
    " currently originally famously primarily mainly known type kind sort form specific process number name i around"
    " specifically".split()
)
IRREGULAR = frozenset(
    "written made found born built sung won held led known fought sunk given taken drawn spoken worn begun".split()
)
VERBS = frozenset("became become becomes has have had translates represents lies stands stand refers belongs".split())
JOINTS = frozenset("of the de da di del la le van von der and bin al du dos du".split())
REMARKS = frozenset("which who that where because although though while but whose".split())
_PIECE = re.compile(
    r"[-−]?\d+(?:[.,:]\d+)*(?:st|nd|rd|th)?|\b[A-Z]\.(?=\s+[A-Z])|(?:[^\W\d_]\.){2,}(?:[^\W\d_]\b)?|\b(?:St|Dr|Mr|Mrs|Ms|Mt|Jr|Sr)\.|"
    r"[^\W_]+(?:['’&\-][^\W_]+)*|="
)
_MARK = re.compile(r"[,;:!?()\[\]\"“”«»|=—]|\.(?=\s|$)| - | – ")
_QUOTE = re.compile(r"[\"“”«»]")


@dataclass(frozen=True)
class Word:
    """A word of an answer with its context."""

    text: str
    start: int
    stop: int
    plain: str  # normalised, without plural and possessive
    mark: str  # the punctuation mark before it, or empty
    quoted: bool  # directly after a quotation mark
    asked: bool  # occurs in the question

    @property
    def function(self) -> bool:
        """Whether it is a function word; an initial ("A.") is no article, and "US" no pronoun."""
        return (
            not self.text.endswith(".")
            and not (self.text.isupper() and len(self.text) > 1)
            and (
                self.plain in FUNCTION_WORDS
                or self.plain in ARTICLES
                or self.plain in ADVERBS
                or self.plain in PREPOSITIONS
            )
        )

    @property
    def new(self) -> bool:
        """Whether it is a content word that the question does not contain."""
        return not (self.asked or self.function or self.plain in STRONG or self.plain in VERBS)

    @property
    def capital(self) -> bool:
        return self.text[:1].isupper()


def words_of(text: str, asked: frozenset[str]) -> list[Word]:
    """The words of a text; `asked`: the stems of the question's words."""
    found, before = list[Word](), 0
    for match in _PIECE.finditer(text):
        between = text[before : match.start()]
        mark = _MARK.search(between)
        plain = stem(words(match[0])[0]) if words(match[0]) else match[0]
        quoted = bool(_QUOTE.search(between))
        found.append(Word(match[0], *match.span(), plain, mark[0] if mark else "", quoted, plain in asked))
        before = match.end()
    return found


def stem(word: str) -> str:
    """Without the s of a plural; it only has to be consistent between question and answer.

    >>> stem("rivers"), stem("class"), stem("is")
    ('river', 'class', 'is')
    """
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")) else word


def is_participle(found: Sequence[Word], at: int) -> bool:
    """Whether it is a verb ("located in", "invented by", "originates from"): not at the end, not in quotation marks."""
    word = found[at]
    after = found[at + 1] if at + 1 < len(found) else None
    before = found[at - 1] if at else None
    shaped = word.text.endswith("ed") or word.text in IRREGULAR
    if before is not None and (before.asked or before.capital) and len(word.text) > 3:
        shaped = shaped or (word.text.endswith("s") and not word.text.endswith("ss"))
    return (
        shaped and word.text.islower() and not word.quoted and after is not None
        and after.plain in PREPOSITIONS | ARTICLES and not after.mark
    )  # fmt: skip


def announcer(found: Sequence[Word], at: int, *, skip_asked: bool = True) -> str:
    """The word that introduces this one: articles, adverbs and nouns of the question are skipped."""
    for word, after in zip(reversed(found[:at]), reversed(found[1 : at + 1]), strict=True):
        if after.mark == ":":
            return ":"
        if after.mark and not after.quoted:
            return ""
        skipped = word.plain in ARTICLES or word.plain in ADVERBS or word.plain == "be"
        if not (skipped or (skip_asked and word.asked and word.plain not in STRONG | PREPOSITIONS)):
            return word.plain
    return ""


MAX_BARE_WORDS = 6  # of an answer without a verb
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
    """The characters of `answer` that are its exact answer; None if there is none.

    >>> answer = "The capital of Norway is Oslo, a port."
    >>> start, stop = extract("What is the capital of Norway?", answer)
    >>> answer[start:stop]
    'Oslo'
    """
    begin, sentence, announced = _part(answer)
    asked = frozenset(stem(word) for word in words(question)) | frozenset(re.findall(r"\d+(?:[.,]\d+)*", question))
    found = words_of(sentence, asked)
    if not found:
        return None
    if found[0].plain in ("yes", "no") and not _NUMERIC.search(question):
        span: Span | None = (found[0].start, found[0].stop)
    elif _NUMERIC.search(question):
        if not announced and len(sentences(answer)) > 1:  # reasoning: the last number
            begin, found = 0, words_of(answer, frozenset())
            numbers = [at for at, word in enumerate(found) if _is_number(word)]
            span = _full_number(found, numbers[-1]) if numbers else None
        else:
            span = _number(found, announced)
    else:
        span = _phrase(found, bool(_WHO.search(question)), announced)
    return None if span is None else (begin + span[0], begin + span[1])


def _part(answer: str) -> tuple[int, str, bool]:
    """The start of the part to read, the part, and whether "the answer is" or the like announces it."""
    begin, announced = 0, False
    for marker in _ANNOUNCED.finditer(answer):
        if answer[marker.end() :].strip():
            begin, announced = marker.end(), True
    first = next(iter(sentences(answer[begin:])), "")
    return answer.index(first, begin), first, announced


# ---- numbers --------------------------------------------------------------------------------------------------------


def _is_number(word: Word) -> bool:
    return word.text.lstrip("-−")[:1].isdigit() or word.text.casefold() in SMALL


def _full_number(found: Sequence[Word], at: int) -> Span:
    """A number with the words that belong to it: "1.5 million", "twenty five"."""
    last = at
    while last + 1 < len(found) and not found[last + 1].mark and (
        found[last + 1].plain in SCALES or found[last + 1].plain in ("hundred", "dozen")
        or (found[last].text.casefold() in SMALL and found[last + 1].text.casefold() in SMALL)
    ):  # fmt: skip
        last += 1
    return found[at].start, found[last].stop


def _number(found: Sequence[Word], announced: bool) -> Span | None:
    numbers = [
        at
        for at, word in enumerate(found)
        if _is_number(word) and not (word.plain == "1" and [w.plain for w in found[at + 1 : at + 2]] == ["of"])
    ]
    introduced = [at for at in numbers if announcer(found, at, skip_asked=False) in STRONG or found[at].mark == "="]
    after_equals = [at for at in numbers if at and found[at - 1].text == "="]
    new = [at for at in numbers if not found[at].asked]
    introduced_new = [at for at in introduced if at in new]
    for group in (after_equals[-1:], introduced_new, new, introduced[-1:], numbers if announced else []):
        if group:
            return _full_number(found, group[0])
    return None


# ---- phrases --------------------------------------------------------------------------------------------------------


def _phrase(found: Sequence[Word], who: bool, announced: bool) -> Span | None:
    verbs = [at for at, word in enumerate(found) if word.plain in STRONG | VERBS or is_participle(found, at)]
    bare = not verbs and len(found) <= MAX_BARE_WORDS
    if bare and not any(word.asked and not word.function for word in found):
        return _first_phrase(found)
    main = _without_asides(found[: _remark(found, verbs)])
    best: tuple[float, Span] | None = None
    earlier = 0
    for first, last in _candidates(main):
        if who and _name(main, first, last) is None:
            continue
        score = _score(main, first, last, who) - 1.1 * min(earlier, 2) + (2.0 if announced and first <= 1 else 0.0)
        earlier += 1
        if best is None or score > best[0]:
            best = score, _trimmed(main, first, last, who)
    if best is not None:
        return best[1]
    if announced or bare:
        return _first_phrase(main)
    return None if who else _after_last_copula(main)


def _first_phrase(found: Sequence[Word]) -> Span | None:
    """The first phrase without articles."""
    end = next((at for at, word in enumerate(found) if at and word.mark and not word.quoted), len(found))
    own = [word for word in found[:end] if word.plain not in ARTICLES] or list(found[:end])
    return own[0].start, own[-1].stop


def _remark(found: Sequence[Word], verbs: Sequence[int]) -> int:
    """The index at which a remark begins: "..., which is a port"."""
    links = [at for at in verbs if found[at].plain in STRONG or found[at].plain in VERBS]
    if not links:
        return len(found)
    starts = (at for at in range(links[0] + 2, len(found)) if found[at].plain in REMARKS)
    return next((at for at in starts if found[at].plain != "but" or found[at].mark), len(found))


def _without_asides(found: Sequence[Word]) -> list[Word]:
    """Without clauses between commas: "Apollo 11, which was launched in July, was ..."."""
    rest, aside = list[Word](), False
    for at, word in enumerate(found):
        closes = any(later.mark == "," for later in found[at + 1 :])
        if word.mark == ",":
            aside = not aside and word.plain in ("which", "who") and closes
        if not aside:
            rest.append(word)
    return rest


def _candidates(found: Sequence[Word]) -> list[tuple[int, int]]:
    """First and last index of phrases of new words, and of phrases after "called", new or not."""
    runs, at = list[tuple[int, int]](), 0
    while at < len(found):
        named = at > 0 and not found[at].function and _is_named(found, at)
        if not (found[at].new or named) or is_participle(found, at):
            at += 1
            continue
        first = last = at
        while first > 1 and found[first - 1].asked and found[first - 1].capital and not found[first].mark and not (
            found[first - 1].function
        ):  # fmt: skip
            first -= 1
        while (following := _next_of_phrase(found, last)) is not None:
            last = following
        runs.append((first, last))
        at = last + 1
    return runs


def _is_named(found: Sequence[Word], at: int) -> bool:
    """Whether this word follows "called", or is a name after "by": then it counts although the question contains it."""
    before = announcer(found, at, skip_asked=False)
    return before in NAMING or (before == "by" and found[at].capital)


def _next_of_phrase(found: Sequence[Word], last: int) -> int | None:
    """The next word of the phrase, past "of the" and the like inside a name; None at its end."""
    at = last + 1
    if at >= len(found) or found[at].mark:
        return None
    word = found[at]
    if not word.function and word.plain not in STRONG | VERBS and not is_participle(found, at):
        return at
    while at < len(found) and found[at].plain in JOINTS and not found[at].mark:
        at += 1
    inside = at > last + 1 and at < len(found) and not found[at].mark
    joined = found[last].capital or found[last + 1].capital
    return at if inside and joined and found[at].capital else None


def _score(found: Sequence[Word], first: int, last: int, who: bool) -> float:
    before, head = announcer(found, first), found[first]
    capital = any(word.capital for word in found[max(first, 1) : last + 1])
    score = 4.0 if before in STRONG else 5.0 if before == "by" and who else 2.0 if before in PREPOSITIONS else 0.0
    score += 2.0 * head.quoted + 1.0 * capital - 2.0 * head.text[:1].isdigit()
    score -= 3.0 * any(word.plain == "also" for word in found[max(first - 3, 0) : first])
    follows = found[last + 1].plain if last + 1 < len(found) and not found[last + 1].mark else ""
    continues = follows in PREPOSITIONS | REMARKS or (bool(follows) and is_participle(found, last + 1))
    if before in STRONG and continues and not capital and not head.quoted:
        score -= 3.0  # a description that continues
    if all(word.function or word.asked for word in found[:first]) and not before and follows in STRONG | VERBS:
        rest = [word for word in found[last + 1 :] if not word.function and word.plain not in STRONG | VERBS]
        score += 5.0 if rest and sum(word.asked for word in rest) >= 0.6 * len(rest) else 0.0
    return score


def _trimmed(found: Sequence[Word], first: int, last: int, who: bool) -> Span:
    """A name without its description: without "the French physicist" for a person, without "planet" before Mars."""
    if who or (found[first].text.islower() and found[last].capital and not found[first].quoted):
        first, last = _name(found, first, last) or (first, last)
    return found[first].start, found[last].stop


def _name(found: Sequence[Word], first: int, last: int) -> tuple[int, int] | None:
    """The longest sequence of capitalised words that is not the question's, the last of equals; None: no name."""
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
    """Whether a capitalised word only describes the next one: "French physicist"."""
    return first == last < end and found[last].text.endswith(("an", "ish", "ese", "ch", "based"))


def _after_last_copula(found: Sequence[Word]) -> Span | None:
    links = [at for at, word in enumerate(found[:-1]) if word.plain in STRONG]
    if not links:
        return None
    rest = found[links[-1] + 1 :]
    end = next((at for at, word in enumerate(rest) if at and word.mark and not word.quoted), len(rest))
    own = [word for word in rest[:end] if word.plain not in ARTICLES and word.plain not in ADVERBS]
    if rest[0].plain in ("not", "no"):  # "is not a dog" is no answer
        return None
    own = own[1:] if len(own) > 1 and own[0].plain in PREPOSITIONS else own
    return (own[0].start, own[-1].stop) if own else None
