"""What changes when heads are switched off or scaled, and whether that is more than other heads would do.

With p the model's next-token distribution and p' the one with heads changed,

    KL(p || p') = Σ_t p(t) log( p(t) / p'(t) )         nats, at the prompt's end and averaged over the original answer
    change of the log-probability of the original answer, every token given those before it (teacher forcing)

A number like 0.3 nats says nothing by itself: nearly any head does something. So as many other heads, drawn at random
from the rest of the model, are changed by the same factors, a few times over, and measured in the same way.

Cost: a pass over the prompt and one over the answer for each state. This module runs no pass itself.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from headwise.core.dims import head_name, parse_head
from headwise.core.errors import DataError
from headwise.interventions import Scale
from headwise.live.shapes import Effect
from headwise.model import ModelCard

__all__ = ["Changes", "Reading", "as_large", "draw", "effect", "kl", "read_changes", "scales"]

MOST = 10.0  # a factor's size

Changes = dict[str, float]


@dataclass(frozen=True)
class Reading:
    """A model in one state, on one prompt and one given answer."""

    next: Tensor  # (vocabulary,) log-probabilities at the prompt's end
    answer: Tensor  # (token, vocabulary) before each token of the given answer; empty without one
    ids: tuple[int, ...]  # of the given answer

    @property
    def logprob(self) -> float | None:
        """Of the whole given answer; None without one."""
        if not self.ids:
            return None
        return float(self.answer.gather(1, torch.tensor(self.ids)[:, None]).double().sum())


def read_changes(changes: Mapping[str, float], card: ModelCard) -> Changes:
    """Head names and factors, checked, in the order of the model; factors of 1 change nothing and are left out."""
    found: dict[tuple[int, int], float] = {}
    for name, factor in changes.items():
        layer, head = parse_head(name)
        there = 0 <= layer < card.layers and 0 <= head < card.per_layer[layer].heads
        if not there or card.per_layer[layer].reason is not None:
            raise DataError(f"{card.id} has no head {name}; it has {card.layers} layers of {card.heads} heads")
        if not -MOST <= factor <= MOST:  # also catches NaN
            raise DataError(f"{name} was to be scaled by {factor:g}; give a factor from {-MOST:g} to {MOST:g}")
        found[layer, head] = float(factor)
    return {head_name(*head): factor for head, factor in sorted(found.items()) if factor != 1.0}


def scales(changes: Mapping[str, float]) -> list[Scale]:
    """The interventions: one for each factor."""
    heads: dict[float, list[str]] = {}
    for name, factor in changes.items():
        heads.setdefault(factor, []).append(name)
    return [Scale(names, factor) for factor, names in heads.items()]


def draw(changes: Mapping[str, float], card: ModelCard, seed: int) -> Changes | None:
    """As many other heads, with the same factors; None where the model has too few others."""
    others = [
        head_name(layer, head)
        for layer in card.attention_layers
        for head in range(card.per_layer[layer].heads)
        if head_name(layer, head) not in changes
    ]
    if len(others) < len(changes):
        return None
    chosen = random.Random(seed).sample(others, len(changes))
    return dict(zip(chosen, changes.values(), strict=True))


def effect(before: Reading, after: Reading) -> Effect:
    """How far `after` is from `before`."""
    change = None
    if before.logprob is not None and after.logprob is not None:
        change = after.logprob - before.logprob
    return {
        "kl": float(kl(before.next, after.next)),
        "answer_kl": float(kl(before.answer, after.answer).mean()) if before.ids else None,
        "logprob_change": change,
        "top_changed": int(before.next.argmax()) != int(after.next.argmax()),
    }


def kl(p: Tensor, q: Tensor) -> Tensor:
    """KL(p || q) of log-probabilities along the last dim, never below 0 by rounding."""
    p, q = p.double(), q.double()
    return (p.exp() * (p - q).nan_to_num(0.0)).sum(dim=-1).clamp(min=0.0)


def as_large(found: Effect, controls: Sequence[Effect]) -> int:
    """How many controls moved the next token at least as far."""
    return sum(control["kl"] >= found["kl"] for control in controls)
