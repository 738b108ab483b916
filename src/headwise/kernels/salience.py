"""Which tokens does a head act on most, and what does it make of them? Without a list of relations.

    sigma_t = ||e_t W_V W_O|| / ||e_t||

how much longer or shorter a token's vector gets on its way through the head (Elhelo & Geva, arXiv 2412.11965). The
norm goes through the width of the head: ||a W_O||^2 = a G a with G = W_O W_O^T and a = e W_V, so no token is ever
written out in the hidden width.

Cost a layer: 2 vocabulary hidden kv_heads width + 2 vocabulary heads width^2 operations. This module does not know
which tokens are words.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["salience", "top_targets"]

ROWS = {"cpu": 4096, "cuda": 32768}  # tokens at a time


def salience(rows: Tensor, value: Tensor, output: Tensor) -> Tensor:
    """The sigma of every token for every head, (head, token) float32; 0 for a token whose row is nought.

    `rows` is E or E' (token, hidden), `value` W_V (kv_head, hidden, width), `output` W_O (head, width, hidden).
    """
    group = len(output) // len(value)
    gram = output @ output.transpose(1, 2)  # (head, width, width)
    found = torch.empty(len(output), len(rows), device=output.device)
    step = ROWS[output.device.type]
    for start in range(0, len(rows), step):
        block = rows[start : start + step].to(device=output.device, dtype=torch.float32)
        read = torch.matmul(block, value).repeat_interleave(group, dim=0)  # (head, token, width)
        squared = ((read @ gram) * read).sum(-1).clamp(min=0)  # (head, token)
        norm = torch.linalg.vector_norm(block, dim=1)
        found[:, start : start + step] = torch.where(norm > 0, squared.sqrt() / norm, 0.0)
    return found


def top_targets(sources: Tensor, product: Tensor, count: int) -> Tensor:
    """The tokens that each source is mapped to most strongly, (head, row, count), strongest first.

    `sources` is (head, row, width), `product` W_O U (head, width, vocabulary).
    """
    found = [(of_head @ written).topk(count, dim=-1).indices for of_head, written in zip(sources, product, strict=True)]
    return torch.stack(found)
