"""What is remembered of a look, and how it is told.

A look holds the prompt, what was said, and the next-token distributions, so that `what_if` compares with what was shown
and not with a second run. The last few looks are remembered; older ones are refused with a sentence.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

import torch
import xarray as xr
from torch import Tensor

from headwise.core.dims import EXAMPLE, STATISTIC
from headwise.core.errors import DataError
from headwise.live.effects import Changes, Reading
from headwise.live.packing import nested, number
from headwise.live.pictures import look_figures
from headwise.live.prompts import Prompt
from headwise.live.shapes import LookResult, Side, Token
from headwise.live.speaking import Said, spread, steps_of
from headwise.model import Model, readable
from headwise.studies.answers.decoding import Ids
from headwise.studies.answers.endings import text_of

__all__ = ["Look", "Looks", "side", "tell", "tokens_of"]

MOST = 6  # remembered


@dataclass(frozen=True)
class Look:
    """One prompt and what the model made of it, with some heads changed or none."""

    id: str
    prompt: Prompt
    changes: Changes
    limit: int  # tokens an answer may have; 0: none was asked for
    next: Tensor  # (vocabulary,) log-probabilities at the prompt's end
    said: Said

    @property
    def ids(self) -> Ids:
        """Prompt and answer."""
        return self.prompt.ids + self.said.ids

    def reading(self) -> Reading:
        """For comparing with the model in another state."""
        answer = torch.stack(self.said.before) if self.said.ids else torch.empty(0, len(self.next))
        return Reading(self.next, answer, self.said.ids)


class Looks:
    """The last looks, by id; `forget` hears of those that go. May be used from several threads."""

    def __init__(self, forget: Callable[[str], None], most: int = MOST):
        self._forget, self._most = forget, most
        self._lock = threading.Lock()
        self._held: OrderedDict[str, Look] = OrderedDict()

    def add(self, look: Look) -> None:
        """Remember one more."""
        with self._lock:
            self._held[look.id] = look
            gone = [self._held.popitem(last=False)[0] for _ in range(len(self._held) - self._most)]
        for name in gone:
            self._forget(name)

    def __getitem__(self, name: str) -> Look:
        with self._lock:
            if name not in self._held:
                raise DataError("this look is no longer remembered (only the last few are); run the prompt again")
            self._held.move_to_end(name)
            return self._held[name]


def tell(model: Model, look: Look, maps: xr.Dataset, profile: xr.Dataset, seconds: float) -> LookResult:
    """A look for the wire."""
    numbers, uniform = profile["value"].isel({EXAMPLE: 0}), profile["uniform"].isel({EXAMPLE: 0})
    names = [str(name) for name in profile[STATISTIC].values]
    return {
        "id": look.id,
        "mode": look.prompt.mode,
        "text": look.prompt.text,
        "changes": look.changes,
        "layers": model.card.layers,
        "heads": model.card.heads,
        "headless": {str(one): card.reason for one, card in enumerate(model.card.per_layer) if card.reason},
        "tokens": tokens_of(model, look.prompt.ids, look.said.ids),
        "prompt_tokens": len(look.prompt.ids),
        "answer": text_of(model, look.said.ids),
        "finished": look.said.finished,
        "logprob": look.said.logprob if look.said.ids else None,
        "next": spread(model, look.next),
        "steps": steps_of(model, look.said),
        "figures": look_figures(maps["maps"].isel({EXAMPLE: 0}).values, numbers, uniform, len(look.ids)),
        "numbers": {name: nested(numbers.sel({STATISTIC: name}).values) for name in names},
        "uniform": {name: number(float(uniform.sel({STATISTIC: name}).mean())) for name in names},
        "seconds": seconds,
    }


def side(model: Model, next_token: Tensor, said: Said) -> Side:
    """The model in one state."""
    return {
        "answer": text_of(model, said.ids),
        "tokens": tokens_of(model, (), said.ids),
        "finished": said.finished,
        "next": spread(model, next_token),
        "steps": steps_of(model, said),
    }


def tokens_of(model: Model, prompt: Ids, answer: Ids) -> list[Token]:
    """Every token of prompt and answer."""
    special = set(model.tokenizer.all_special_ids) if model.tokenizer is not None else set()
    ids = (*prompt, *answer)
    return [
        {"text": text, "special": one in special, "generated": place >= len(prompt)}
        for place, (one, text) in enumerate(zip(ids, readable(model.tokenizer, ids), strict=True))
    ]
