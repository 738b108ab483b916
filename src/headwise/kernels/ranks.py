"""Is a target among the k tokens that a head maps a source to most strongly? For all heads, and both signs, in one pass.

With a the source as the head reads it, a = e W_V (width), and P = W_O U (width x vocabulary), token t scores a P[:, t]. A
target is among the k largest when fewer than k scores are **strictly larger** than its own, so equal scores share the
better place; where nothing is written, nothing is found. The same for the k smallest (suppression). Nothing is sorted,
and never is more held than a block of sources x vocabulary:

1. P for a few heads at a time, over blocks of the vocabulary (`written`).
2. A sketch of every row from a quarter of the vocabulary: the largest and smallest score of each 32 tokens of it. The
   k-th largest of these maxima is at most the k-th largest score, so a target below it is out. Nearly all are.
3. For the few targets left, the whole row is made, and the scores larger than the target's own are counted.

So the number of targets per source matters little, and shuffled targets, as a null, are cheap.

All in float32: in half precision scores tie. Step 2 is lenient by 1e-5 of the row's largest magnitude, because a score
that was made in another block may differ in its last bits; step 3 compares scores made together.

Cost a head: 2 width vocabulary (hidden + sources / 4) operations, and a row for each target left. This module does not
know relations, nor where weights come from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Asked", "Hits", "hits", "written"]

Comparison = Callable[[Tensor, Tensor], Tensor]

SKIP = 4  # every so manieth token is in the sketch
CHUNK = 32  # tokens whose largest score stands for them
SLACK = 1e-5  # of a row's largest magnitude
PROJECTED = {"cpu": 1 << 30, "cuda": 2 << 30}  # bytes of P held
SCORES = {"cpu": 4 << 20, "cuda": 2 << 30}  # bytes of a block of scores; on a CPU it should stay in the cache
COLUMNS = {"cpu": 2048, "cuda": 16384}  # tokens of a block
MANY = 4096  # different targets whose scores are made at a time
EXACT = {"cpu": 8 << 20, "cuda": 1 << 30}  # bytes of the rows that are made again


@dataclass(frozen=True)
class Asked:
    """Pairs to be looked up. Draw 0 is the pairs themselves; the others have shuffled targets."""

    rows: Tensor  # (pair,) long: which row of the sources
    targets: Tensor  # (draw, pair) long: token ids
    k: Tensor  # (pair,) long


@dataclass(frozen=True)
class Hits:
    """(head, draw, pair) bool."""

    largest: Tensor
    smallest: Tensor


def written(output: Tensor, unembedding: Tensor, budget: int | None = None) -> Iterator[tuple[slice, Tensor]]:
    """P = W_O U for some heads at a time: which ones, and (head, width, vocabulary) float32.

    `output` is (head, width, hidden) float32, `unembedding` (vocabulary, hidden) of any dtype and device; it is cast in
    blocks, so a half-precision or memory-mapped one is never held twice.
    """
    heads, width, hidden = output.shape
    vocabulary, device = len(unembedding), output.device
    most = (budget or PROJECTED[device.type]) // (4 * width * vocabulary)
    for first in range(0, heads, max(1, most)):
        some = output[first : first + max(1, most)].reshape(-1, hidden)  # (head x width, hidden)
        product = torch.empty(len(some), vocabulary, device=device)
        step = COLUMNS[device.type]
        for start in range(0, vocabulary, step):
            block = unembedding[start : start + step].to(device=device, dtype=torch.float32)
            product[:, start : start + step] = some @ block.T
        yield slice(first, first + len(some) // width), product.view(-1, width, vocabulary)


def hits(sources: Tensor, product: Tensor, asked: Asked, *, columns: int | None = None) -> Hits:
    """Which pairs have their target among the k largest, and which among the k smallest.

    `sources` is (head, row, width), `product` is what `written` gives for these heads.
    """
    device = product.device.type
    rows = max(1, SCORES[device] // (4 * (columns or COLUMNS[device])))
    at_once = max(1, rows // sources.shape[1])
    found = [
        _hits(sources[first : first + at_once], product[first : first + at_once], asked, columns or COLUMNS[device])
        for first in range(0, len(sources), at_once)
    ]
    return Hits(torch.cat([one.largest for one in found]), torch.cat([one.smallest for one in found]))


def _hits(sources: Tensor, product: Tensor, asked: Asked, columns: int) -> Hits:
    own = _own(sources, product, asked)  # (head, draw, pair)
    most = int(asked.k.max())
    largest, smallest = _sketch(sources, product, columns)  # (head, row, chunk)
    slack = SLACK * torch.maximum(largest.amax(-1).abs(), smallest.amin(-1).abs())[:, asked.rows]  # (head, pair)
    over = own >= (_kth(largest, most, asked) - slack)[:, None]
    under = own <= (slack - _kth(-smallest, most, asked))[:, None]
    speaks = _speaks(sources, product)[:, asked.rows][:, None]
    over, under = over & speaks, under & speaks
    k = asked.k.expand(over.shape)
    over[over.clone()] = _counts(sources, product, asked, over, torch.gt) < k[over]
    under[under.clone()] = _counts(sources, product, asked, under, torch.lt) < k[under]
    return Hits(over, under)


def _speaks(sources: Tensor, product: Tensor) -> Tensor:
    """(head, row) bool: whether anything is written at all; a head that writes nothing finds nothing."""
    low, high = product.flatten(1).aminmax(dim=1)
    return (sources != 0).any(-1) & ((low != 0) | (high != 0))[:, None]


def _own(sources: Tensor, product: Tensor, asked: Asked) -> Tensor:
    """The scores of the targets, (head, draw, pair); a few thousand different targets at a time."""
    tokens, places = torch.unique(asked.targets, return_inverse=True)
    rows = asked.rows.expand_as(places)
    own = torch.empty(len(sources), *places.shape, device=product.device)
    for start in range(0, len(tokens), MANY):
        here = (places >= start) & (places < start + MANY)
        scores = sources @ product[:, :, tokens[start : start + MANY]]  # (head, row, target)
        own[:, here] = scores[:, rows[here], places[here] - start]
    return own


def _sketch(sources: Tensor, product: Tensor, columns: int) -> tuple[Tensor, Tensor]:
    """The largest and smallest score of each chunk of the tokens in the sketch, (head, row, chunk)."""
    heads, rows, _ = sources.shape
    product = product[:, :, ::SKIP].contiguous()
    most = max(1, SCORES[product.device.type] // (4 * columns * heads))
    parts = [_sketch_rows(sources[:, first : first + most], product, columns) for first in range(0, rows, most)]
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


def _kth(values: Tensor, most: int, asked: Asked) -> Tensor:
    """The k-th largest of each pair's row, (head, pair); minus infinity where there are fewer than k."""
    there = min(most, values.shape[-1])
    top = values.topk(there, dim=-1).values  # (head, row, rank)
    kth = top[:, asked.rows, (asked.k - 1).clamp(max=there - 1)]
    return torch.where(asked.k <= there, kth, -torch.inf)


def _counts(sources: Tensor, product: Tensor, asked: Asked, wanted: Tensor, beats: Comparison) -> Tensor:
    """For the wanted (head, draw, pair), in their order: how many tokens have a score that beats the target's."""
    vocabulary, height = product.shape[2], sources.shape[1]
    head, draw, pair = wanted.nonzero(as_tuple=True)
    keys = (head * height + asked.rows[pair]) * vocabulary + asked.targets[draw, pair]
    keys, places = torch.unique(keys, return_inverse=True)  # shuffles often repeat a pair; sorted by row, so by head
    counts = torch.empty_like(keys)
    rows, tokens = keys // vocabulary, keys % vocabulary
    step = max(1, EXACT[product.device.type] // (4 * vocabulary))
    made = torch.empty(
        min(step, len(keys)), vocabulary, device=product.device
    )  # once: fresh memory costs more than sums
    for index in (rows // height).unique().tolist():
        of_head = (rows // height == index).nonzero().flatten()
        for some in of_head.split(step):
            distinct, of = torch.unique(rows[some] % height, return_inverse=True)
            scores = torch.mm(sources[index, distinct], product[index], out=made[: len(distinct)])
            scores = scores if len(distinct) == len(some) else scores[of]  # (some, vocabulary)
            counts[some] = beats(scores, scores.gather(1, tokens[some, None])).sum(1, dtype=torch.int32).long()
    return counts[places]
