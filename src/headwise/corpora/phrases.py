"""The parts of a sentence that may be its answer: phrases, lists of candidates, words in a row that nothing denies.

    phrases      "The symbol is Au, from the Latin."     ->  au
    core         "The capital is Paris or Lyon."          ->  paris or lyon .
    items        "Paris, Lyon or Nice"                    ->  (paris) (lyon) (nice), joined by "," and "or"
    contained    "It is not Paris."                       ->  paris stands there, but is denied

Works on the tokens of `wording`; it does not know what is right.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headwise.corpora.wording import ARTICLES, is_mark

__all__ = ["announced", "contained", "core", "is_denied", "items", "phrases"]

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
    """Words in a row, with what stands before them and after them."""
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
    """What stands after the first "is" or ":"; all of it where there is none."""
    for place, token in enumerate(sentence):
        if token in openers and place + 1 < len(sentence):
            return list(sentence[place + 1 :])
    return list(sentence)


def announced(sentence: Sequence[str]) -> list[str]:
    """What stands after "the answer is", "the answer to this question is:"; all of it where that is not said."""
    for place, token in enumerate(sentence):
        if token == "answer":
            said = core(sentence[place : place + 8])
            if len(said) < len(sentence[place : place + 8]):
                rest = list(sentence[place + len(sentence[place : place + 8]) - len(said) :])
                return rest[1:] if rest[0] == ":" and len(rest) > 1 else rest
    return list(sentence)


REMARKS = frozenset("specifically particularly especially including such which who where whose also although".split())


def items(part: Sequence[str]) -> tuple[list[tuple[str, ...]], set[str]]:
    """The different pieces between commas, "and" and "or", and which of these joined them.

    What follows "specifically", "which" and the like is a remark on the piece before it, not a further candidate.
    """
    found: dict[tuple[str, ...], None] = {}
    joints: set[str] = set()
    run: list[str] = []
    remark = next((place for place, token in enumerate(part) if token in REMARKS), len(part))
    for token in [*part[:remark], "."]:
        if token in (",", ";", "/", "and", "or", ".", "!", "?"):
            if run:
                found[tuple(run)] = None
            run = []
            joints.add("or" if token == "/" else token)
        elif token not in ARTICLES and token not in ('"', "either", "both", "possibly", "maybe", "perhaps"):
            run.append(token)
    return list(found), joints


# ---- words in a row -------------------------------------------------------------------------------------------------


def contained(sentence: Sequence[str], wanted: tuple[str, ...]) -> bool | None:
    """Whether these words stand in a row; False if they are only denied, None if they do not stand there.

    >>> said = ("it", "is", "not", "paris", "but", "lyon")
    >>> contained(said, ("lyon",)), contained(said, ("paris",)), contained(said, ("nice",))
    (True, False, None)
    """
    kept = [token for token in sentence if token not in ARTICLES and token != '"']
    found = None
    for start in range(len(kept) - len(wanted) + 1):
        stop = start + len(wanted)
        if tuple(kept[start:stop]) != wanted or _is_other_name(kept[:start], wanted):
            continue
        if not is_denied(kept[:start], kept[stop:]):
            return True
        found = False
    return found


NEGATIONS = frozenset(
    "not never isnt arent wasnt werent doesnt didnt dont cannot cant wont neither nor without except excluding".split()
)
TWO_WORDS = frozenset((("other", "than"), ("rather", "than"), ("instead", "of")))
TURNS = frozenset("but however although though rather instead actually".split())
SCOPE = 4  # words after a negation that it still denies
IS_NOT = frozenset((verb, "not") for verb in ("is", "was", "are", "were"))
ISNT = frozenset(("isnt", "wasnt", "arent", "werent"))


def is_denied(before: Sequence[str], after: Sequence[str]) -> bool:
    """Whether what stands between these words is denied: "not ...", "other than ...", "... is not"."""
    for place in range(len(before) - 1, max(-1, len(before) - 1 - SCOPE), -1):
        if before[place] in NEGATIONS or tuple(before[place : place + 2]) in TWO_WORDS:
            return True
        if is_mark(before[place]) or (
            before[place] in TURNS and before[place + 1 : place + 2] not in (["than"], ["of"])
        ):
            break
    return tuple(after[:2]) in IS_NOT or bool(ISNT & set(after[:1]))


MODIFIERS = frozenset(("north", "south", "east", "west", "new", "non"))
REGIONS = frozenset(("africa", "asia", "europe"))


def _is_other_name(before: Sequence[str], wanted: tuple[str, ...]) -> bool:
    """Whether it is another thing: "North Korea" is not "Korea"; but East Africa is in Africa."""
    if not before or before[-1] not in MODIFIERS or wanted[0] in MODIFIERS:
        return False
    return wanted[0] not in REGIONS or (before[-1], wanted[0]) == ("south", "africa")
