"""Where does an answer end? At an end of turn, at a line end, or after its first sentence; a word problem after its result."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from headwise.corpora.normalisation import sentences, words
from headwise.model import Model
from headwise.studies.decoding import Ids

FULL_STOP = re.compile(r"[.!?][\"')\]]*$")
NEXT_QUESTION = re.compile(r"\n\s*Question$")  # a base model continues with the next example
FILLERS = frozenset("sure certainly of course okay ok well great question good i see hello".split())


def text_of(model: Model, ids: Ids) -> str:
    """The decoded text, without special tokens and surrounding blanks."""
    tokenizer: Any = model.tokenizer
    return tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False).strip()


def ending_ids(model: Model) -> frozenset[int]:
    """Every special token ends an answer: end of text, end of turn, or the start of another turn."""
    tokenizer: Any = model.tokenizer
    configured = getattr(getattr(model.hf, "generation_config", None), "eos_token_id", None)
    several = configured if isinstance(configured, list | tuple) else [configured]
    return frozenset(tokenizer.all_special_ids) | {token for token in several if token is not None}


def ending(model: Model, numeric: bool) -> Callable[[Ids, int], bool]:
    """Whether a token ends an answer: a special token, a line end after the first word, or the start of a second sentence.

    A word problem may take several sentences and lines.
    """
    stops = ending_ids(model)
    tokenizer: Any = model.tokenizer
    written: dict[int, str] = {}

    def ends(so_far: Ids, token: int) -> bool:
        if token in stops:
            return True
        before, after = text_of(model, so_far), tokenizer.decode([*so_far, token])
        new_line = "\n" in written.setdefault(token, tokenizer.decode([token]))
        if numeric:
            return ("answer is" in before and new_line) or bool(NEXT_QUESTION.search(after))
        return bool(before) if new_line else is_second_sentence(before, after)

    return ends


def is_second_sentence(before: str, after: str) -> bool:
    """Whether the last token began a new sentence after a complete one that is not mere filler.

    >>> is_second_sentence("It is Paris.", "It is Paris. The"), is_second_sentence("J.", "J. K")
    (True, False)
    """
    if not FULL_STOP.search(before):
        return False
    cut = sentences(after)
    return len(cut) > len(sentences(before)) and not set(words(cut[0])) <= FILLERS
