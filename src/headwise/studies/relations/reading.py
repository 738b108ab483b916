"""One layer's heads read against pairs of words: which pairs each head maps right, what shuffled pairs would give, and
which tokens it acts on most.

Steps, for one layer: fetch its W_V and W_O; a = E'[source] W_V for all distinct sources of all relations at once (E for
layer 0); P = W_O U for a few heads at a time; look the pairs up (`headwise.kernels.ov_logits`); take the largest sigma
and their targets (`headwise.kernels.ov_logits`).

Cost a head: 2 width vocabulary (hidden + sources) operations; E' once, for the sources (or, with salience, for the
whole vocabulary: 4 vocabulary hidden bytes). No vocabulary x vocabulary, no hidden x hidden matrix is made.
This module does not know names of relations.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from headwise.core.dims import EXAMPLE, HEAD, LAYER, RANK, RELATION, TARGET
from headwise.core.errors import DataError
from headwise.kernels import RankQuery, TopkHits, ov_logit_blocks, salience, top_targets, topk_hits
from headwise.seam import HeadWeights, LayerWeights

__all__ = ["SALIENT", "TARGETS", "Pairs", "RelationReader"]

SALIENT, TARGETS = 30, 5  # tokens a head, targets a token
SIGNS = ("score", "suppression")
COPIED = 2 << 30  # bytes of U that the control of copying may take


@dataclass(frozen=True)
class Pairs:
    """Token ids of all pairs, relation after relation."""

    sources: np.ndarray  # (pair,)
    targets: np.ndarray  # (draw, pair); draw 0 is the real ones, the others are shuffled inside each relation
    relation: np.ndarray  # (pair,): place of its relation
    k: np.ndarray  # (relation,)

    @property
    def sizes(self) -> np.ndarray:
        """Pairs of each relation."""
        return np.bincount(self.relation, minlength=len(self.k))


class RelationReader:
    """Reads layers one by one. What all layers share (E', U) is made when first needed.

    `ordinary`: the tokens that salient ones are chosen from; None leaves salience out.
    """

    def __init__(
        self, weights: HeadWeights, pairs: Pairs, ordinary: np.ndarray | None, *, norms: str, embedding: str
    ) -> None:
        self.weights, self.pairs, self.device = weights, pairs, weights.device
        self.folded, self.raw = norms == "folded", embedding == "raw"
        _refuse_foreign(weights, pairs)
        sources, rows = np.unique(pairs.sources, return_inverse=True)
        self.sources = torch.from_numpy(sources)
        asked = (rows, pairs.targets, pairs.k[pairs.relation])
        self.asked = RankQuery(*(torch.from_numpy(one).to(self.device) for one in asked))
        self.ordinary = None if ordinary is None else self._mask(ordinary)

    @property
    def left_out(self) -> int:
        """Rows of the embedding that salient tokens are not chosen from: special, added and unused ones."""
        return 0 if self.ordinary is None else int((~self.ordinary).sum())

    def read(self, index: int, threshold: float) -> xr.Dataset:
        """The readings of a layer; heads that it does not have are NaN, or -1 for tokens."""
        if self.weights.card.per_layer[index].reason is not None:
            return self._dataset(index, {})
        layer = self._layer(index)
        read = _through(self._rows(index), layer)  # (head, source, width)
        salient = None if self.ordinary is None else self._salient(index, layer)
        found: dict[str, list[np.ndarray]] = {}
        for heads, product in ov_logit_blocks(self._output(layer), self.unembedding):
            part = self._scores(topk_hits(read[heads], product, self.asked), threshold)
            if salient is not None:
                part["targets"] = self._targets(index, layer, salient["token"], heads, product)
            for name, value in part.items():
                found.setdefault(name, []).append(value)
        whole = {name: np.concatenate(values) for name, values in found.items()}
        return self._dataset(index, whole | (salient or {}))

    def copied(self) -> dict[str, np.ndarray]:
        """A control without a head: what one would score that writes what it reads, M = E' U (or E U), by sign, (relation,).

        Where words lie near their own forms, that is not nothing. NaN where U in float32 would take over 2 GB.
        """
        if 4 * self.unembedding.numel() > COPIED:
            return {sign: np.full(len(self.pairs.k), np.nan, dtype=np.float32) for sign in SIGNS}
        rows = self._embedded if self.raw else self._effective
        gain = self.weights.final_gain if self.folded else None
        read = rows if gain is None else rows * gain
        real = RankQuery(self.asked.rows, self.asked.targets[:1], self.asked.k)
        found = topk_hits(read[None], self.unembedding.to(torch.float32).T[None], real)
        of_relation = np.eye(len(self.pairs.k), dtype=np.float32)[self.pairs.relation]
        signs = zip(SIGNS, (found.largest, found.smallest), strict=True)
        return {
            sign: (hit[0, 0].cpu().numpy() @ of_relation / self.pairs.sizes).astype(np.float32) for sign, hit in signs
        }

    @cached_property
    def unembedding(self) -> Tensor:
        """U transposed, on the device, as it is stored."""
        return self.weights.unembedding.to(self.device)

    @cached_property
    def _embedded(self) -> Tensor:
        """E of the sources, (source, hidden)."""
        rows = self.weights.embedding
        return rows[self.sources.to(rows.device)].to(device=self.device, dtype=torch.float32)

    @cached_property
    def _effective(self) -> Tensor:
        return self.weights.effective(self._embedded)

    @cached_property
    def _effective_vocabulary(self) -> Tensor:
        return self.weights.effective(self.weights.embedding)

    def _rows(self, index: int) -> Tensor:
        """What this layer's heads read for each source: E, or E'."""
        return self._embedded if index == 0 or self.raw else self._effective

    def _vocabulary(self, index: int) -> Tensor:
        return self.weights.embedding if index == 0 or self.raw else self._effective_vocabulary

    def _layer(self, index: int) -> LayerWeights:
        """W_V and W_O, with the gains of the norms in front and behind if they are to be folded in."""
        layer = self.weights.layer(index)
        front = self.weights.gain(index) if self.folded else None
        behind = self.weights.post_norm_gain(index) if self.folded else None
        value = layer.value if front is None else layer.value * front[:, None]
        return LayerWeights(value, layer.output if behind is None else layer.output * behind)

    def _output(self, layer: LayerWeights) -> Tensor:
        gain = self.weights.final_gain if self.folded else None
        return layer.output if gain is None else layer.output * gain

    def _mask(self, ordinary: np.ndarray) -> Tensor:
        mask = torch.zeros(len(self.weights.embedding), dtype=torch.bool, device=self.device)
        mask[torch.from_numpy(ordinary).to(self.device)] = True
        return mask

    def _scores(self, found: TopkHits, threshold: float) -> dict[str, np.ndarray]:
        """Which pairs are mapped right; and of the shuffled targets the mean, the largest, the share over the threshold."""
        part: dict[str, np.ndarray] = {}
        of_relation = torch.from_numpy(np.eye(len(self.pairs.k), dtype=np.float32)[self.pairs.relation]).to(self.device)
        sizes = torch.from_numpy(self.pairs.sizes).to(self.device)
        for sign, hit in zip(SIGNS, (found.largest, found.smallest), strict=True):
            shares = (hit[:, 1:].float() @ of_relation).double() / sizes  # (head, shuffle, relation)
            part[f"{sign}_mapped"] = hit[:, 0].cpu().numpy()
            part[f"{sign}_null"] = shares.mean(1).cpu().numpy()
            part[f"{sign}_null_high"] = shares.amax(1).cpu().numpy()
            part[f"{sign}_null_over"] = (shares > threshold).double().mean(1).cpu().numpy()
        return part

    def _salient(self, index: int, layer: LayerWeights) -> dict[str, np.ndarray]:
        """The tokens that each head acts on most, and how much."""
        assert self.ordinary is not None
        strengths = salience(self._vocabulary(index), layer.value, layer.output)
        strongest = strengths.masked_fill_(~self.ordinary, -torch.inf).topk(self._ranks, dim=1)
        return {"strength": strongest.values.cpu().numpy(), "token": strongest.indices.to(torch.int32).cpu().numpy()}

    def _targets(
        self, index: int, layer: LayerWeights, tokens: np.ndarray, heads: slice, product: Tensor
    ) -> np.ndarray:
        rows, places = self._vocabulary(index), torch.from_numpy(tokens[heads]).long()
        chosen = rows[places.to(rows.device)].to(device=self.device, dtype=torch.float32)  # (head, rank, hidden)
        read = chosen @ layer.value.repeat_interleave(layer.group, dim=0)[heads]
        return top_targets(read, product, min(TARGETS, product.shape[2])).to(torch.int32).cpu().numpy()

    @property
    def _ranks(self) -> int:
        return 0 if self.ordinary is None else min(SALIENT, int(self.ordinary.sum()))

    def _dataset(self, index: int, found: dict[str, np.ndarray]) -> xr.Dataset:
        heads, nan = self.weights.card.heads, np.float32("nan")
        shapes: dict[str, tuple[tuple[str, ...], tuple[int, ...], object]] = {}
        for sign in SIGNS:
            shapes[f"{sign}_mapped"] = ((EXAMPLE,), (len(self.pairs.sources),), False)
            for name in ("null", "null_high", "null_over"):
                shapes[f"{sign}_{name}"] = ((RELATION,), (len(self.pairs.k),), nan)
        if self.ordinary is not None:
            targets = min(TARGETS, len(self.weights.unembedding))
            shapes["strength"] = ((RANK,), (self._ranks,), nan)
            shapes["token"] = ((RANK,), (self._ranks,), np.int32(-1))
            shapes["targets"] = ((RANK, TARGET), (self._ranks, targets), np.int32(-1))
        variables = {}
        for name, (dims, shape, missing) in shapes.items():
            values = np.full((heads, *shape), missing)
            if name in found:
                values[: len(found[name])] = found[name]
            variables[name] = ((LAYER, HEAD, *dims), values[None])
        measured = np.arange(heads) < self.weights.card.per_layer[index].heads
        variables["measured"] = ((LAYER, HEAD), measured[None])
        return xr.Dataset(variables, coords={LAYER: [index], HEAD: np.arange(heads)})


def _through(rows: Tensor, layer: LayerWeights) -> Tensor:
    """The sources as each head reads them, a = E'[source] W_V, for every query head, (head, source, width)."""
    return torch.matmul(rows, layer.value).repeat_interleave(layer.group, dim=0)


def _refuse_foreign(weights: HeadWeights, pairs: Pairs) -> None:
    most = int(max(pairs.sources.max(), pairs.targets.max()))
    size = min(len(weights.embedding), len(weights.unembedding))
    if most >= size:
        raise DataError(
            f"the tokenizer of {weights.card.id} gives token {most}, and its embedding has {size} rows; give the "
            "tokenizer that belongs to the model"
        )
