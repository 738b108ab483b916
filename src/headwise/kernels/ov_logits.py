"""The OV circuit over the vocabulary: which tokens does a head map a source token to, and which does it act on most?

**Top-k hits** (`topk_hits`): is a target among the k tokens that a head maps a source to most strongly? For all heads, and
both signs, in one pass. With a = e W_V (width) the source as the head reads it, and P = W_O U (width x vocabulary), token t
scores a P[:, t]. A target is among the k largest when fewer than k scores are **strictly larger** than its own, so equal
scores share the better rank; a head that writes nothing has no hits. The same for the k smallest (suppression). Nothing is
sorted, and only a block of sources x vocabulary is held:

1. P for a few heads at a time, over blocks of the vocabulary (`ov_logit_blocks`).
2. A sketch of every row from a quarter of the vocabulary: the largest and smallest score of every 32 tokens of it. The k-th
   largest of these maxima is at most the k-th largest score, so a target below it is excluded. Nearly all are.
3. For the few targets left, the whole row is computed, and the scores larger than the target's own are counted.

So the number of targets per source matters little, and shuffled targets, as a null, are cheap. All in float32: in half
precision scores tie. Step 2 has a tolerance of 1e-5 of the row's largest magnitude, because a score computed in another block
may differ in its last bits; step 3 compares scores computed together.

Cost per head: 2 width vocabulary (hidden + sources / 4) operations, and a row for each target left.

**Salience** (Elhelo & Geva, arXiv 2412.11965): sigma_t = ||e_t W_V W_O|| / ||e_t||, how much longer or shorter a token's
vector gets on its way through the head. The norm is computed in the width of the head: ||a W_O||^2 = a G a with
G = W_O W_O^T, so no vector of the hidden width is written.

Cost per layer: 2 vocabulary hidden kv_heads width + 2 vocabulary heads width^2 operations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from headwise.kernels.linear import linear

Comparison = Callable[[Tensor, Tensor], Tensor]

SKETCH_STEP = 4  # every fourth token is in the sketch
CHUNK = 32  # tokens represented by their largest score
SLACK = 1e-5  # of a row's largest magnitude
PROJECTION_BYTES = {"cpu": 1 << 30, "cuda": 2 << 30}  # of P
SCORE_BYTES = {"cpu": 4 << 20, "cuda": 2 << 30}  # of a block of scores; on a CPU it should stay in the cache
COLUMNS = {"cpu": 2048, "cuda": 16384}  # tokens per block
TARGETS_AT_ONCE = 4096  # different targets whose scores are computed together
EXACT_BYTES = {"cpu": 8 << 20, "cuda": 1 << 30}  # of the rows that are computed whole
ROWS = {"cpu": 4096, "cuda": 32768}  # tokens at a time


@dataclass(frozen=True)
class RankQuery:
    """Pairs to look up. Draw 0 holds the pairs themselves; the others have shuffled targets."""

    rows: Tensor  # (pair,) long: index into the sources
    targets: Tensor  # (draw, pair) long: token ids
    k: Tensor  # (pair,) long


@dataclass(frozen=True)
class TopkHits:
    """(head, draw, pair) bool."""

    largest: Tensor
    smallest: Tensor


def ov_logit_blocks(output: Tensor, unembedding: Tensor, budget: int | None = None) -> Iterator[tuple[slice, Tensor]]:
    """P = W_O U for some heads at a time: their slice, and (head, width, vocabulary) float32.

    `output` is (head, width, hidden) float32, `unembedding` (vocabulary, hidden) of any dtype and device; it is cast in
    blocks, so a half-precision or memory-mapped one is never held twice.
    """
    heads, width, hidden = output.shape
    vocabulary, device = len(unembedding), output.device
    max_heads = (budget or PROJECTION_BYTES[device.type]) // (4 * width * vocabulary)
    for first in range(0, heads, max(1, max_heads)):
        some = output[first : first + max(1, max_heads)].reshape(-1, hidden)  # (head x width, hidden)
        product = torch.empty(len(some), vocabulary, device=device)
        step = COLUMNS[device.type]
        for start in range(0, vocabulary, step):
            block = unembedding[start : start + step].to(device=device, dtype=torch.float32)
            product[:, start : start + step] = linear(some, block)
        yield slice(first, first + len(some) // width), product.view(-1, width, vocabulary)


def topk_hits(sources: Tensor, product: Tensor, query: RankQuery, *, columns: int | None = None) -> TopkHits:
    """Which pairs have their target among the k largest, and which among the k smallest.

    `sources` is (head, row, width), `product` comes from `ov_logit_blocks` for these heads.
    """
    device = product.device.type
    rows = max(1, SCORE_BYTES[device] // (4 * (columns or COLUMNS[device])))
    at_once = max(1, rows // sources.shape[1])
    found = [
        _topk_hits(
            sources[first : first + at_once], product[first : first + at_once], query, columns or COLUMNS[device]
        )
        for first in range(0, len(sources), at_once)
    ]
    return TopkHits(torch.cat([one.largest for one in found]), torch.cat([one.smallest for one in found]))


def _topk_hits(sources: Tensor, product: Tensor, query: RankQuery, columns: int) -> TopkHits:
    own = _own(sources, product, query)  # (head, draw, pair)
    max_k = int(query.k.max())
    largest, smallest = _sketch(sources, product, columns)  # (head, row, chunk)
    slack = SLACK * torch.maximum(largest.amax(-1).abs(), smallest.amin(-1).abs())[:, query.rows]  # (head, pair)
    over = own >= (_kth(largest, max_k, query) - slack)[:, None]
    under = own <= (slack - _kth(-smallest, max_k, query))[:, None]
    writes = _writes(sources, product)[:, query.rows][:, None]
    over, under = over & writes, under & writes
    k = query.k.expand(over.shape)
    over[over.clone()] = _counts(sources, product, query, over, torch.gt) < k[over]
    under[under.clone()] = _counts(sources, product, query, under, torch.lt) < k[under]
    return TopkHits(over, under)


def _writes(sources: Tensor, product: Tensor) -> Tensor:
    """(head, row) bool: whether anything is written at all; a head that writes nothing has no hits."""
    low, high = product.flatten(1).aminmax(dim=1)
    return (sources != 0).any(-1) & ((low != 0) | (high != 0))[:, None]


def _own(sources: Tensor, product: Tensor, query: RankQuery) -> Tensor:
    """The scores of the targets, (head, draw, pair); a few thousand different targets at a time."""
    tokens, index = torch.unique(query.targets, return_inverse=True)
    rows = query.rows.expand_as(index)
    own = torch.empty(len(sources), *index.shape, device=product.device)
    for start in range(0, len(tokens), TARGETS_AT_ONCE):
        here = (index >= start) & (index < start + TARGETS_AT_ONCE)
        scores = sources @ product[:, :, tokens[start : start + TARGETS_AT_ONCE]]  # (head, row, target)
        own[:, here] = scores[:, rows[here], index[here] - start]
    return own


def _sketch(sources: Tensor, product: Tensor, columns: int) -> tuple[Tensor, Tensor]:
    """The largest and smallest score of each chunk of the tokens in the sketch, (head, row, chunk)."""
    heads, rows, _ = sources.shape
    product = product[:, :, ::SKETCH_STEP].contiguous()
    max_rows = max(1, SCORE_BYTES[product.device.type] // (4 * columns * heads))
    parts = [_sketch_rows(sources[:, first : first + max_rows], product, columns) for first in range(0, rows, max_rows)]
    return torch.cat([one[0] for one in parts], dim=1), torch.cat([one[1] for one in parts], dim=1)


def _sketch_rows(sources: Tensor, product: Tensor, columns: int) -> tuple[Tensor, Tensor]:
    largest, smallest = [], []
    for start in range(0, product.shape[2], columns):
        scores = torch.bmm(sources, product[:, :, start : start + columns])  # (head, row, column)
        even = scores.shape[2] // CHUNK * CHUNK
        if even:
            chunks = scores[:, :, :even].unflatten(2, (CHUNK, -1))
            largest.append(chunks.amax(2))
            smallest.append(chunks.amin(2))
        if even < scores.shape[2]:
            largest.append(scores[:, :, even:].amax(2, keepdim=True))
            smallest.append(scores[:, :, even:].amin(2, keepdim=True))
    return torch.cat(largest, dim=2), torch.cat(smallest, dim=2)


def _kth(values: Tensor, max_k: int, query: RankQuery) -> Tensor:
    """The k-th largest of each pair's row, (head, pair); minus infinity where there are fewer than k."""
    available = min(max_k, values.shape[-1])
    top = values.topk(available, dim=-1).values  # (head, row, rank)
    kth = top[:, query.rows, (query.k - 1).clamp(max=available - 1)]
    return torch.where(query.k <= available, kth, -torch.inf)


def _counts(sources: Tensor, product: Tensor, query: RankQuery, selected: Tensor, beats: Comparison) -> Tensor:
    """For the selected (head, draw, pair), in order: how many tokens have a score that beats the target's."""
    vocabulary, height = product.shape[2], sources.shape[1]
    head, draw, pair = selected.nonzero(as_tuple=True)
    keys = (head * height + query.rows[pair]) * vocabulary + query.targets[draw, pair]
    keys, inverse = torch.unique(keys, return_inverse=True)  # shuffles often repeat a pair; sorted by row, so by head
    counts = torch.empty_like(keys)
    rows, tokens = keys // vocabulary, keys % vocabulary
    step = max(1, EXACT_BYTES[product.device.type] // (4 * vocabulary))
    buffer = torch.empty(min(step, len(keys)), vocabulary, device=product.device)  # reused: fresh memory is slow
    for index in (rows // height).unique().tolist():
        of_head = (rows // height == index).nonzero().flatten()
        for some in of_head.split(step):
            distinct, of = torch.unique(rows[some] % height, return_inverse=True)
            scores = torch.mm(sources[index, distinct], product[index], out=buffer[: len(distinct)])
            scores = scores if len(distinct) == len(some) else scores[of]  # (some, vocabulary)
            counts[some] = beats(scores, scores.gather(1, tokens[some, None])).sum(1, dtype=torch.int32).long()
    return counts[inverse]


def salience(rows: Tensor, value: Tensor, output: Tensor) -> Tensor:
    """The sigma of every token for every head, (head, token) float32; 0 for a token whose row is zero.

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
    found = [(of_head @ logits).topk(count, dim=-1).indices for of_head, logits in zip(sources, product, strict=True)]
    return torch.stack(found)
