"""What the models are shown: tokens as frequent as words are in a text (Zipf), the same in every case and on every run.

Evenly drawn tokens would hardly ever repeat, and nothing that looks for repeats or delimiters would have work to do.
"""

from __future__ import annotations

import torch
from torch import Tensor

SHIFT = 2.7  # of Zipf and Mandelbrot's law: the i-th token is as frequent as 1 / (i + 2.7)


def tokens_like_text(vocabulary: int, batch: int, tokens: int, device: str = "cpu") -> Tensor:
    """(batch, token) ids. Low ids are the frequent ones."""
    frequency = 1 / (torch.arange(vocabulary, device=device) + SHIFT)
    generator = torch.Generator(device).manual_seed(0)
    drawn = torch.multinomial(frequency, batch * tokens, replacement=True, generator=generator)
    return drawn.view(batch, tokens)


def shape_of(text: str) -> tuple[int, int]:
    """Batch and tokens of "4x256".

    >>> shape_of("4x256")
    (4, 256)
    """
    batch, tokens = map(int, text.split("x"))
    return batch, tokens
