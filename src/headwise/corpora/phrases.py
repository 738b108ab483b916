"""The parts of a sentence that may be its answer, and sentences that decline to answer.

    phrases      "The symbol is Au, from the Latin."     ->  au
    core         "The capital is Paris or Lyon."          ->  paris or lyon .
    items        "Paris, Lyon or Nice"                    ->  (paris) (lyon) (nice), joined by "," and "or"
    contained    "It is not Paris."                       ->  paris occurs, but is negated

A refusal is recognised by the beginning of a sentence ("I don't know", "As an AI ...") or by a clause that says the answer
is missing ("is not mentioned in the text"). A sentence that declines and then answers ("I'm not sure, but I think it is
Paris") is an answer: the part after "but" counts. English only; works on the tokens of `normalisation`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headwise.corpora.normalisation import ARTICLES, is_mark

COPULAS = frozenset("is was are were be equals called named means = :".split())


def phrases(sentence: Sequence[str]) -> list[tuple[str, ...]]:
    """The phrases that may be the answer: the first one if a mark ends it, and those after "is", ":", "=", "(", '"'."""
    openers = COPULAS | {"(", "[", '"'}
    return [
        tuple(word for word in run if word not in ARTICLES) or run
        for before, run, after in _runs(sentence)
        if before in openers or (before == "" and after not in COPULAS)
    ]


def _runs(sentence: Sequence[str]) -> Iterator[tuple[str, tuple[str, ...], str]]:
    """Word sequences with the token before and the token after them."""
    before = ""
    run: list[str] = []
    for token in [*sentence, "."]:
        if is_mark(token) or token in COPULAS:
            if run:
                yield before, tuple(run), token
            before, run = token, []
        else:
            run.append(token)


def core(sentence: Sequence[str], openers: frozenset[str] = COPULAS) -> list[str]:
    """The part after the first "is" or ":"; the whole sentence if there is none."""
    for at, token in enumerate(sentence):
        if token in openers and at + 1 < len(sentence):
            return list(sentence[at + 1 :])
    return list(sentence)


def announced(sentence: Sequence[str]) -> list[str]:
    """The part after "the answer is", "the answer to this question is:"; the whole sentence if neither occurs."""
    for at, token in enumerate(sentence):
        if token == "answer":
            window = sentence[at : at + 8]
            after = core(window)
            if len(after) < len(window):
                rest = list(sentence[at + len(window) - len(after) :])
                return rest[1:] if rest[0] == ":" and len(rest) > 1 else rest
    return list(sentence)


REMARKS = frozenset("specifically particularly especially including such which who where whose also although".split())


def items(part: Sequence[str]) -> tuple[list[tuple[str, ...]], set[str]]:
    """The distinct pieces between commas, "and" and "or", and the separators that occur.

    The part after "specifically", "which" and the like is a remark on the piece before it, not a further candidate.
    """
    found: dict[tuple[str, ...], None] = {}
    joints: set[str] = set()
    run: list[str] = []
    remark = next((at for at, token in enumerate(part) if token in REMARKS), len(part))
    for token in [*part[:remark], "."]:
        if token in (",", ";", "/", "and", "or", ".", "!", "?"):
            if run:
                found[tuple(run)] = None
            run = []
            joints.add("or" if token == "/" else token)
        elif token not in ARTICLES and token not in ('"', "either", "both", "possibly", "maybe", "perhaps"):
            run.append(token)
    return list(found), joints


# ---- containment and negation ---------------------------------------------------------------------------------------


def contained(sentence: Sequence[str], wanted: tuple[str, ...]) -> bool | None:
    """Whether these words occur consecutively; False if only negated, None if they do not occur.

    >>> sentence = ("it", "is", "not", "paris", "but", "lyon")
    >>> contained(sentence, ("lyon",)), contained(sentence, ("paris",)), contained(sentence, ("nice",))
    (True, False, None)
    """
    plain = [token for token in sentence if token not in ARTICLES and token != '"']
    found = None
    for start in range(len(plain) - len(wanted) + 1):
        stop = start + len(wanted)
        if tuple(plain[start:stop]) != wanted or _is_other_name(plain[:start], wanted):
            continue
        if not is_negated(plain[:start], plain[stop:]):
            return True
        found = False
    return found


NEGATIONS = frozenset(
    "not never isnt arent wasnt werent doesnt didnt dont cannot cant wont neither nor without except excluding".split()
)
TWO_WORD_NEGATIONS = frozenset((("other", "than"), ("rather", "than"), ("instead", "of")))
TURNS = frozenset("but however although though rather instead actually".split())
SCOPE = 4  # words after a negation that it negates
IS_NOT = frozenset((verb, "not") for verb in ("is", "was", "are", "were"))
ISNT = frozenset(("isnt", "wasnt", "arent", "werent"))


def is_negated(before: Sequence[str], after: Sequence[str]) -> bool:
    """Whether the words between these two parts are negated: "not ...", "other than ...", "... is not"."""
    for at in range(len(before) - 1, max(-1, len(before) - 1 - SCOPE), -1):
        if before[at] in NEGATIONS or tuple(before[at : at + 2]) in TWO_WORD_NEGATIONS:
            return True
        if is_mark(before[at]) or (before[at] in TURNS and before[at + 1 : at + 2] not in (["than"], ["of"])):
            break
    return tuple(after[:2]) in IS_NOT or bool(ISNT & set(after[:1]))


MODIFIERS = frozenset(("north", "south", "east", "west", "new", "non"))
REGIONS = frozenset(("africa", "asia", "europe"))


def _is_other_name(before: Sequence[str], wanted: tuple[str, ...]) -> bool:
    """Whether the name is a different one: "North Korea" is not "Korea"; but East Africa is in Africa."""
    if not before or before[-1] not in MODIFIERS or wanted[0] in MODIFIERS:
        return False
    return wanted[0] not in REGIONS or (before[-1], wanted[0]) == ("south", "africa")


_BEGINNINGS = """
i dont know|i do not know|i dont have|i do not have|i have no|i am not sure|im not sure|i am unsure|im unsure|not sure
i cannot|i cant|i can not|i am unable|im unable|i am not able|im not able|i apologize|i apologise
im sorry|i am sorry|sorry|i dont understand|i do not understand
as ai|as chatbot|as language model|i am ai|im ai|i am just ai|im just ai|n /|not applicable
unknown|it is unknown|not known|it is not known|no answer|no idea|cannot answer|cant answer|cannot be determined
it is not possible to|it is impossible to|there is not enough information|there is no information
not specified|not mentioned|it is not specified|it is not mentioned|question is unclear
"""
# ---- refusals -------------------------------------------------------------------------------------------------------

BEGINNINGS = tuple(tuple(part.split()) for part in _BEGINNINGS.strip().replace("\n", "|").split("|"))
ALONE = {("n", "/"), ("unknown",), ("sorry",), ("not", "known"), ("not", "sure"), ("no", "answer"), ("no", "idea")}
"""These are refusals only at the end of a sentence: "Unknown Pleasures" is an album."""

DEGREES = frozenset("explicitly directly specifically clearly currently publicly definitively yet".split())
NOT_THERE = frozenset("mentioned specified provided stated".split())
NOT_KNOWN = frozenset("known clear certain".split())


def begins_as_refusal(sentence: Sequence[str]) -> bool:
    """Whether the sentence begins like a refusal."""
    plain = [token for token in sentence if token not in ARTICLES and token != '"']
    for pattern in BEGINNINGS:
        if tuple(plain[: len(pattern)]) == pattern:
            after = plain[len(pattern) : len(pattern) + 1]
            if pattern not in ALONE or not after or is_mark(after[0]):
                return True
    return False


def has_a_refusal(sentence: Sequence[str]) -> bool:
    """Whether any clause begins like a refusal: "for that question, I'm unable to answer"."""
    starts = [0, *(at + 1 for at, token in enumerate(sentence) if is_mark(token))]
    return any(begins_as_refusal(sentence[start:]) for start in starts)


def says_it_is_not_known(sentence: Sequence[str]) -> bool:
    """Whether the sentence says that the answer is missing: "... is unknown.", "... is not explicitly mentioned"."""
    plain = [token for token in sentence if token not in DEGREES and token != '"']
    for at, token in enumerate(plain):
        verb = plain[at - 1] if at else ""
        after = plain[at + 1] if at + 1 < len(plain) else "."
        if verb not in ("is", "was", "are", "were"):
            continue
        if token == "unknown" and (is_mark(after) or after in ("to", "in")):
            return True
        if token == "not" and after in NOT_THERE:
            return True
        last = plain[at + 2] if at + 2 < len(plain) else "."
        if token == "not" and after in NOT_KNOWN and (is_mark(last) or last in ("to", "in")):
            return True
    return False


def after_but(sentence: str) -> str:
    """The part after "but"; empty if there is none.

    >>> after_but("I'm not sure, but I think it is Paris.")
    'I think it is Paris.'
    """
    for word in (" but ", " However, ", " however, "):
        before, found, after = sentence.partition(word)
        if found and before:
            return after
    return ""
