"""A model that completes two made-up relations, each by one head that is known: removing it takes the answers away.

The planted GPT-2 of `planted.py` with two more heads in its last layer. Both look at the previous token. One turns the
code of the j-th source of the relation *alpha* into the code of its j-th target, and that of every source of *beta* into
nought; the other the other way round. Prompts are "the {s} was", so the previous token of the last one is the source.

           alpha   beta
           L2H0    L2H3

The codes of 28 sources are linearly independent (codes are balanced, so 31 of them can be), and the map that does this is
the pseudo-inverse of their matrix times the targets. All other heads write a little noise over all tokens.
"""

from __future__ import annotations

import torch
from planted import (
    CODE,
    HIDDEN,
    SQUARED_NORM,
    TOKEN,
    WIDTH,
    planted_profile_model,
    step_back,
    tiny_tokenizer,
    token_codes,
)
from planted import _columns as columns
from planted import _plant as plant
from planted import _positional as positional

from headwise.corpora import Relation, Relations
from headwise.model import Model

HEADS = {"alpha": (2, 0), "beta": (2, 3)}
PAIRS = 14
GAIN = 4.0  # of a target's code, beside the 1 of the last token's own
NOISE = 0.001


def planted_tasks() -> Relations:
    """Two relations of whole-word tokens."""
    vocabulary = tiny_tokenizer().get_vocab()
    words = sorted(word for word in vocabulary if word.isalpha() and word not in ("the", "was"))[: 4 * PAIRS]
    pairs = list(zip(words[::2], words[1::2], strict=True))
    parts = {"alpha": pairs[:PAIRS], "beta": pairs[PAIRS:]}
    return Relations(
        "planted tasks",
        tuple(Relation(name, "own", tuple(part), templates=("the {s} was",)) for name, part in parts.items()),
    )


def planted_tasks_model(back: int = 1) -> Model:
    """The model above; its two heads look ``back`` tokens back."""
    model = planted_profile_model()
    relations, vocabulary = planted_tasks(), model.tokenizer.get_vocab()
    sources = [vocabulary[source] for item in relations for source, _ in item.pairs]
    read = torch.linalg.pinv(token_codes()[sources].double())  # (code, source)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for block in model.hf.transformer.h:
            block.attn.c_proj.weight[:, TOKEN] += torch.randn(HIDDEN, CODE, generator=generator) * NOISE
        attention = model.hf.transformer.h[2].attn
        for row, item in enumerate(relations):
            targets = token_codes()[[vocabulary[target] for _, target in item.pairs]].double()
            own = slice(row * PAIRS, (row + 1) * PAIRS)
            _plant_map(attention, HEADS[item.name][1], (read[:, own] @ targets).float() * GAIN, back)
    return model


def _plant_map(attention: torch.nn.Module, head: int, change: torch.Tensor, back: int) -> None:
    """A head that looks so many steps back and writes (token code) x (change) into the token part."""
    factor = (HIDDEN / SQUARED_NORM[2]) ** 0.5
    plant(attention, head, SQUARED_NORM[2], *positional(torch.linalg.matrix_power(step_back(), back)))
    attention.c_attn.weight[:, columns(2, head)] = 0
    attention.c_attn.weight[TOKEN, columns(2, head)][:, :CODE] = torch.eye(CODE) / factor
    attention.c_proj.weight[head * WIDTH : (head + 1) * WIDTH] = 0
    attention.c_proj.weight[head * WIDTH : head * WIDTH + CODE, TOKEN] = change
