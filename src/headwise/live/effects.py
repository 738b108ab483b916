"""How much does scaling heads change the model, and is that more than scaling other heads does?

With p the next-token distribution and p' the one with heads scaled,

    KL(p || p') = Σ_t p(t) log( p(t) / p'(t) )         nats, at the prompt's end and averaged over the original answer
    change in log-probability of the original answer under teacher forcing

0.3 nats means little by itself: nearly every head has some effect. As a control, the same number of other heads is drawn at
random several times, scaled by the same factors, and measured in the same way.

What one prompt shows may be chance. Where the atlas has the study `causal` of the same model, `stored_effects` says what it
measured about the same heads over many texts.

Cost: a forward pass over the prompt and one over the answer per state. This module runs no model.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
import xarray as xr
from torch import Tensor

from headwise.core.dims import ABLATION, HEAD, LAYER, TOKEN_CLASS, head_name, parse_head
from headwise.core.errors import DataError
from headwise.interventions.heads import ScaleHeads
from headwise.live.response_schemas import Effect, StoredEffect, json_number
from headwise.model import ModelCard

MAX_FACTOR = 10.0
ALL_TOKENS, GOLD_ANSWERS = "all", "answer"  # classes of the study `causal`

HeadFactors = dict[str, float]  # L12H3 -> factor


@dataclass(frozen=True)
class NextTokenReading:
    """Log-probabilities of one model state, on one prompt and one given answer."""

    next: Tensor  # (vocabulary,) log-probabilities at the prompt's end
    answer: Tensor  # (token, vocabulary) before each token of the given answer; empty without one
    ids: tuple[int, ...]  # of the given answer

    @property
    def logprob(self) -> float | None:
        """Of the whole given answer; None without one."""
        if not self.ids:
            return None
        return float(self.answer.gather(1, torch.tensor(self.ids)[:, None]).double().sum())


def read_factors(changes: Mapping[str, float], card: ModelCard) -> HeadFactors:
    """Head names and factors, checked, in the order of the model; factors of 1 are dropped."""
    found: dict[tuple[int, int], float] = {}
    for name, factor in changes.items():
        layer, head = parse_head(name)
        exists = 0 <= layer < card.layers and 0 <= head < card.per_layer[layer].heads
        if not exists or card.per_layer[layer].reason is not None:
            raise DataError(f"{card.id} has no head {name}; it has {card.layers} layers of {card.heads} heads")
        if not -MAX_FACTOR <= factor <= MAX_FACTOR:  # also catches NaN
            raise DataError(f"{name} has the factor {factor:g}; give a factor from {-MAX_FACTOR:g} to {MAX_FACTOR:g}")
        found[layer, head] = float(factor)
    return {head_name(*head): factor for head, factor in sorted(found.items()) if factor != 1.0}


def scale_interventions(changes: Mapping[str, float]) -> list[ScaleHeads]:
    """One intervention per factor."""
    heads: dict[float, list[str]] = {}
    for name, factor in changes.items():
        heads.setdefault(factor, []).append(name)
    return [ScaleHeads(names, factor) for factor, names in heads.items()]


def draw_control(changes: Mapping[str, float], card: ModelCard, seed: int) -> HeadFactors | None:
    """As many other heads with the same factors; None where the model has too few others."""
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


def effect_of(before: NextTokenReading, after: NextTokenReading) -> Effect:
    """Distance of `after` from `before`."""
    change = None
    if before.logprob is not None and after.logprob is not None:
        change = after.logprob - before.logprob
    return {
        "kl": float(kl_divergence(before.next, after.next)),
        "answer_kl": float(kl_divergence(before.answer, after.answer).mean()) if before.ids else None,
        "logprob_change": change,
        "top_changed": int(before.next.argmax()) != int(after.next.argmax()),
    }


def kl_divergence(p: Tensor, q: Tensor) -> Tensor:
    """KL(p || q) of log-probabilities along the last dim, never below 0 by rounding."""
    p, q = p.double(), q.double()
    return (p.exp() * (p - q).nan_to_num(0.0)).sum(dim=-1).clamp(min=0.0)


def stored_effects(causal: xr.Dataset, heads: Iterable[str]) -> list[StoredEffect]:
    """What the study `causal` measured about these heads: on all tokens of its texts, and on gold answers."""
    one = causal.sel({ABLATION: "mean"}).transpose(..., LAYER, HEAD)
    every, answer = (one.sel({TOKEN_CLASS: name}) for name in (ALL_TOKENS, GOLD_ANSWERS))
    in_layer = one["rank"].notnull().sum(HEAD).values
    found: list[StoredEffect] = []
    for name in heads:
        cell = parse_head(name)
        if not all(index < size for index, size in zip(cell, one["rank"].shape, strict=True)):
            continue

        def number(values: xr.Dataset, variable: str, at: tuple[int, int] = cell) -> float | None:
            return json_number(float(values[variable].values[at]))

        rank = number(one, "rank")
        found.append(
            {
                "head": name,
                "effect": number(every, "effect"), "effect_low": number(every, "effect_low"),
                "effect_high": number(every, "effect_high"), "q": number(every, "q"),
                "exact": bool(one["checked"].values[cell] != ""), "rank": None if rank is None else int(rank),
                "heads": int(in_layer[cell[0]]), "excess": number(one, "excess"),
                "excess_low": number(one, "excess_low"), "excess_high": number(one, "excess_high"),
                "answer": number(answer, "effect"), "answer_low": number(answer, "effect_low"),
                "answer_high": number(answer, "effect_high"),
            }
        )  # fmt: skip
    return found


def controls_at_least(found: Effect, controls: Sequence[Effect]) -> int:
    """Number of controls with at least this KL of the next token."""
    return sum(control["kl"] >= found["kl"] for control in controls)
