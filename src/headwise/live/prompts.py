"""What a person typed, as the tokens the model reads.

| mode     | the tokens                                                                       | the answer ends            |
|----------|----------------------------------------------------------------------------------|----------------------------|
| question | the text as a question, put as the atlas's study `answers` puts one               | with its first sentence    |
| chat     | the text as the user's turn, nothing added                                        | with the model's turn      |
| text     | the text itself, to be continued                                                  | with a special token       |

Only a question's answer can be scored: the detector was fitted on answers to that very prompt. A prompt over the limit
is refused before anything is computed. This module runs no model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headwise.core.errors import DataError, did_you_mean
from headwise.corpora import Question, has_chat_template, question_prompt
from headwise.model import Model
from headwise.studies.answers.decoding import Ids
from headwise.studies.answers.endings import ending, ending_ids

__all__ = ["LIMIT", "MODES", "Prompt", "ends_of", "longest", "read_prompt"]

MODES = ("question", "chat", "text")
LIMIT = 4096  # tokens of a prompt
CHARACTERS = 32  # a token on average, at the most: longer texts are refused unread


@dataclass(frozen=True)
class Prompt:
    """A prompt, ready to be read."""

    mode: str
    text: str
    ids: Ids


def longest(model: Model, room: int, limit: int = LIMIT) -> int:
    """How many tokens a prompt may have.

    Args:
        model: whose context it has to fit into.
        room: tokens that are left for the answer.
        limit: never more than this.

    Returns:
        Tokens.

    Examples:
        >>> longest(model, room=20), longest(model, room=20, limit=100)
        (300, 100)
    """
    most = model.card.max_positions
    return limit if most is None else min(limit, most - room)


def read_prompt(
    model: Model, text: str, mode: str, *, room: int, limit: int = LIMIT, few_shot: int | None = None,
    chat: bool | None = None,
) -> Prompt:  # fmt: skip
    """The tokens of a text; `few_shot` and `chat` are how the atlas put its questions."""
    if mode not in MODES:
        raise DataError(f"{mode!r} is no way to put a text to the model. {did_you_mean(mode, MODES)}")
    if not text.strip():
        raise DataError("the prompt is empty; type a question or a text")
    if mode == "chat" and not has_chat_template(model):
        raise DataError(f"{model.id} has no chat template; put the text as a question, or as plain text")
    most = longest(model, room, limit)
    if len(text) > most * CHARACTERS:
        raise DataError(f"the prompt has {len(text):,} characters; at most {most:,} tokens are taken: shorten it")
    ids = tuple(model.ids(_item(model, text, mode, few_shot, chat), limit=most + 1))
    if len(ids) > most:
        raise DataError(f"the prompt has more than {most:,} tokens, which is the most that is taken: shorten it")
    return Prompt(mode, text, ids)


def ends_of(model: Model, mode: str) -> Callable[[Ids, int], bool]:
    """``ends(so_far, token)``: whether a token ends the answer."""
    if mode == "question":
        return ending(model, numeric=False)
    stops = ending_ids(model)
    return lambda so_far, token: token in stops


def _item(model: Model, text: str, mode: str, few_shot: int | None, chat: bool | None) -> str | list[dict[str, str]]:
    if mode == "text":
        return text
    if mode == "chat":
        return [{"role": "user", "content": text}]
    chat = has_chat_template(model) if chat is None else chat
    shots = (0 if chat else 5) if few_shot is None else few_shot
    return question_prompt(Question("asked", text.strip(), ()), few_shot=shots, chat=chat)
