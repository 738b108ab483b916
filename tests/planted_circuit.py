"""A model whose circuit is known: the planted model's two induction heads, made to say what they find.

The previous-token head L0H3 writes each token's predecessor into the slot, the induction head L1H4 looks for the token
whose slot holds the present token. Here it also writes that token's code into the token part of the stream, and the
unembedding is the token codes: so after "a b c d a" the model says b, by these two heads and nothing else:

    input > L0H3 > L1H4 > logits
"""

from __future__ import annotations

import math
import random

import torch
from planted import CODE, HIDDEN, PLANTED, SQUARED_NORM, TOKEN, VOCABULARY, WIDTH, planted_profile_model

from headwise.corpora import CIRCUIT_TASKS, PromptPair, TaskPairs
from headwise.model import Model

CIRCUIT = {PLANTED["previous"], PLANTED["induction"]}
WORDS = "river house door light night rain garden letter winter stone road window friend paper".split()
STRENGTH = 6.0  # of what the induction head writes, in token codes


def planted_circuit_model() -> Model:
    """The model above."""
    return write_what_was_found(planted_profile_model(), PLANTED["induction"])


def write_what_was_found(model: Model, induction: tuple[int, int]) -> Model:
    """The planted model, in which this induction head writes the token that it attends to, STRENGTH times."""
    layer, head = induction
    attention = model.hf.transformer.h[layer].attn
    values = slice(2 * HIDDEN + head * WIDTH, 2 * HIDDEN + (head + 1) * WIDTH)
    with torch.no_grad():
        attention.c_attn.weight[:, values] = 0
        attention.c_attn.weight[TOKEN, values][:, :CODE] = torch.eye(CODE) / math.sqrt(HIDDEN / SQUARED_NORM[layer])
        attention.c_proj.weight[head * WIDTH : (head + 1) * WIDTH] = 0
        attention.c_proj.weight[head * WIDTH : head * WIDTH + CODE, TOKEN] = STRENGTH * torch.eye(CODE)
    return model


def planted_task(rng: random.Random) -> PromptPair:
    """One pair of the same task in words of the tokenizer, as `headwise.corpora.CircuitTask` draws it."""
    a, b, c, d = rng.sample(WORDS, 4)
    return PromptPair(f"{a} {b} {c} {d} {a}", f"{c} {b} {a} {d} {a}", (f" {b}",), (f" {d}",))


def induction_pairs(count: int, seed: int = 0) -> TaskPairs:
    """Pairs "a b c d a" of random tokens: b is right; the corrupt prompt "c b a d a" says d."""
    generator = torch.Generator().manual_seed(seed)
    rows: list[tuple[tuple[int, ...], ...]] = []
    for _ in range(count):
        a, b, c, d = (20 + torch.randperm(VOCABULARY - 20, generator=generator)[:4]).tolist()
        rows.append(((1, a, b, c, d, a), (1, c, b, a, d, a), (b,), (d,)))
    pair = PromptPair("a b c d a", "c b a d a", ("b",), ("d",))
    return TaskPairs(CIRCUIT_TASKS["induction"], (pair,) * count, *map(tuple, zip(*rows, strict=True)))  # type: ignore[arg-type]
