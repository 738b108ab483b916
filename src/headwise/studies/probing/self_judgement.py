"""p(True): the model is asked, in the next turn, whether its answer is true.

    prompt | answer | "Is that answer true? ... True or False" -> P(True) / (P(True) + P(False)) of the next token

The question is the same for every row, so it is a fixed run of tokens behind prompt and answer, and one pass over all
three gives everything: in a causal model what comes later changes nothing before it. After Kadavath et al. (arXiv
2207.05221), who ask in a new prompt; asking in the next turn costs a fraction of that.

A model with a chat template is asked in a user's turn, another in plain text. This module runs no model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from headwise.corpora import has_chat_template
from headwise.model import Model

__all__ = ["SelfJudgement"]

ASKED = "Is that answer true? Reply with one word, True or False."
PLAIN = "\nIs that answer true, True or False?\nAnswer:"
_STAND_IN = "QQQQ"


@dataclass(frozen=True)
class SelfJudgement:
    """What is put behind an answer, and the tokens that count as yes and as no."""

    suffix: tuple[int, ...]
    true: tuple[int, ...]
    false: tuple[int, ...]

    @classmethod
    def of(cls, model: Model, *, chat: bool) -> SelfJudgement | None:
        """None where the two words cannot be told apart by their first token."""
        text = _after_answer(model) if chat and has_chat_template(model) else PLAIN
        tokenizer: Any = model.tokenizer
        suffix = tokenizer(text, add_special_tokens=False)["input_ids"]
        true, false = (_first_tokens(model, word) for word in ("True", "False"))
        apart = bool(true) and bool(false) and not set(true) & set(false) and suffix
        unknown = getattr(tokenizer, "unk_token_id", None)
        return cls(tuple(suffix), true, false) if apart and unknown not in (*true, *false) else None

    def probability(self, logits: Tensor) -> Tensor:
        """(row,): P(True) against P(False), from the logits (row, vocabulary) behind the suffix."""
        yes, no = (logits[:, list(ids)].float().logsumexp(dim=1) for ids in (self.true, self.false))
        return torch.sigmoid(yes - no)


def _after_answer(model: Model) -> str:
    """What a chat template writes from the end of an answer to the beginning of the next one."""
    turns = [("user", "?"), ("assistant", _STAND_IN), ("user", ASKED)]
    tokenizer: Any = model.tokenizer
    try:
        text = tokenizer.apply_chat_template(
            [{"role": role, "content": content} for role, content in turns], tokenize=False, add_generation_prompt=True
        )
    except Exception:  # a template may refuse such a chat for reasons of its own (jinja raises what it likes)
        return PLAIN
    _, found, after = str(text).rpartition(_STAND_IN)
    return after if found else PLAIN


def _first_tokens(model: Model, word: str) -> tuple[int, ...]:
    """The first token of a word, written with and without a blank before it."""
    tokenizer: Any = model.tokenizer
    found = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in (word, f" {word}")]
    return tuple(dict.fromkeys(ids[0] for ids in found if ids))
