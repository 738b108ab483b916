"""What does each head compute? Read from its weights alone, by how it maps words of known relations.

The model is not run. For a pair of words such as France -> Paris, both single tokens, the head's matrix M = E' W_V W_O U
gives the logit of every token for every source token. The score of a head for a relation is the share of its pairs whose
target is among the k largest entries of the source's row of M; the suppression score is the same with -M. A head belongs to
a relation when one of the scores is above 0.15, and to the categories of its relations.

Null: the same scores with the targets permuted within each relation (`shuffles` times), which shows how often a head passes
the threshold that knows the relation's targets but not which belongs to which source, and how many heads each shuffle would
classify. Scores have Wilson intervals; pairs
that are not single tokens, and relations with fewer than 30 pairs, are reported. Besides, `salience`: the 30 tokens that
each head amplifies most, and the 5 tokens that it maps each of them to.

Steps per layer: fetch W_V and W_O; a = E'[source] W_V for all distinct sources of all relations at once (E for layer 0);
P = W_O U for a few heads at a time; look the pairs up, and the salient tokens' targets (`headwise.kernels.ov_logits`).
Cost per head: 2 width vocabulary (hidden + sources) operations; E' once, for the sources (with salience for the whole
vocabulary: 4 vocabulary hidden bytes). No vocabulary x vocabulary and no hidden x hidden matrix is made.

After Elhelo & Geva, "Inferring Functionality of Attention Heads from their Parameters" (arXiv 2412.11965): no norm is
folded in, nothing is centred, biases are left out (`norms="raw"`); k is 1 for copying relations and 10 for others, and 3
and 25 for large vocabularies, which we take to be those over 65,536 tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from headwise.core.dims import DRAW, EXAMPLE, HEAD, LAYER, RANK, RELATION, TARGET
from headwise.core.errors import DataError
from headwise.corpora import Relations, SingleTokenPairs, single_token_pairs
from headwise.engines import Shard
from headwise.kernels.ov_logits import RankQuery, TopkHits, ov_logit_blocks, salience, top_targets, topk_hits
from headwise.model import Model, StoredModel
from headwise.seam import HeadWeights, LayerWeights
from headwise.studies.inputs import StudyInputs
from headwise.studies.relations.finalize import TokenPairs, finalize, finalize_salience
from headwise.studies.relations.spec import PUBLISHED, SALIENCE, SIGNS, SPEC, RelationsOptions
from headwise.studies.run import StudyRun, study_provenance


def prepare(model: Model | StoredModel, inputs: StudyInputs, options: RelationsOptions | None = None) -> StudyRun:
    """The relations study of a model, loaded or stored; its examples are the layers."""
    options = options or RelationsOptions()
    relations = inputs.relations
    usable = usable_pairs(model, relations)
    weights = HeadWeights(model)
    weights.check()
    pairs = _pairs(usable, len(weights.unembedding), options)
    ordinary = _ordinary(model) if options.salience else None
    reader = RelationReader(weights, pairs, ordinary, norms=options.norms, embedding=options.embedding)
    given = sum(len(relation) for relation in relations)
    data = {"name": relations.name, "size": len(pairs.sources), "given": given, "digest": relations.digest}

    def measure(shard: Shard) -> xr.Dataset:
        layers = [reader.read(layer, options.threshold) for layer in range(shard.start, shard.stop)]
        return xr.concat(layers, dim="layer", data_vars="all")

    def reduce_shards(shards: Sequence[xr.Dataset]) -> dict[str, xr.Dataset]:
        readings = xr.concat(shards, dim="layer", data_vars="all")
        maps = finalize(readings, usable, pairs, options.threshold)
        maps = maps.assign({f"copied_{sign}": (RELATION, share) for sign, share in reader.copied().items()})
        if not options.salience:
            return {SPEC.name: maps}
        return {SALIENCE.name: finalize_salience(readings, model, reader.left_out), SPEC.name: maps}

    return StudyRun(study_provenance(SPEC, model, data, options), model.card.layers, 1, measure, reduce_shards)


def usable_pairs(model: Model | StoredModel, relations: Relations) -> list[SingleTokenPairs]:
    """The single-token pairs of every relation under this model's tokenizer; refused where no relation has enough."""
    if model.tokenizer is None:
        raise DataError(
            f"{model.id} has no tokenizer ({model.no_tokenizer}), so words cannot be turned into its tokens; give one"
        )
    found = [single_token_pairs(relation, model.tokenizer) for relation in relations]
    if not any(one.counts for one in found):
        best = max(found, key=len, default=None)
        why = f"; the best is {best.relation.name!r}: {best.words}" if best is not None else ""
        raise DataError(
            f"none of the {len(relations)} relations of {relations.name} can be asked of {model.id}{why}. Give more "
            "pairs, of words that are one token each"
        )
    return found


def _pairs(usable: Sequence[SingleTokenPairs], vocabulary: int, options: RelationsOptions) -> TokenPairs:
    """All pairs of the relations that count, and the same with targets permuted within each relation."""
    counted = [one for one in usable if one.counts]
    generator = np.random.default_rng(options.seed)
    targets = [np.array(one.targets) for one in counted]
    shuffled = [
        np.concatenate([generator.permutation(of_relation) for of_relation in targets]) for _ in range(options.shuffles)
    ]
    return TokenPairs(
        sources=np.array([source for one in counted for source in one.sources]),
        targets=np.stack([np.concatenate(targets), *shuffled]),
        relation=np.repeat(np.arange(len(counted)), [len(one) for one in counted]),
        k=np.array([options.k_of(one.relation.copying, vocabulary) for one in counted]),
        published=np.array([one.relation.name in PUBLISHED for one in counted]),
    )


def _ordinary(model: Model | StoredModel) -> np.ndarray:
    """The ids of tokens that represent text: no special or added tokens, none beyond the tokenizer's vocabulary."""
    tokenizer: Any = model.tokenizer
    special = set(tokenizer.all_special_ids) | set(tokenizer.added_tokens_decoder)
    size = min(len(tokenizer), model.card.vocabulary_size)
    return np.array([token for token in range(size) if token not in special])


SALIENT, TARGETS = 30, 5  # tokens per head, targets per token
MAX_UNEMBEDDING_BYTES = 2 << 30  # of U, for the control of copying


class RelationReader:
    """Measures layer by layer. What all layers share (E', U) is computed on first use.

    `ordinary`: the tokens that salient ones are chosen from; None leaves salience out.
    """

    def __init__(
        self, weights: HeadWeights, pairs: TokenPairs, ordinary: np.ndarray | None, *, norms: str, embedding: str
    ) -> None:
        self.weights, self.pairs, self.device = weights, pairs, weights.device
        self.folded, self.raw = norms == "folded", embedding == "raw"
        _refuse_unknown_tokens(weights, pairs)
        sources, rows = np.unique(pairs.sources, return_inverse=True)
        self.sources = torch.from_numpy(sources)
        query = (rows, pairs.targets, pairs.k[pairs.relation])
        self.query = RankQuery(*(torch.from_numpy(one).to(self.device) for one in query))
        self.ordinary: Tensor | None = None
        if ordinary is not None:
            self.ordinary = torch.zeros(len(weights.embedding), dtype=torch.bool, device=self.device)
            self.ordinary[torch.from_numpy(ordinary).to(self.device)] = True

    @property
    def left_out(self) -> int:
        """Rows of the embedding that are excluded from salience: special, added and unused tokens."""
        return 0 if self.ordinary is None else int((~self.ordinary).sum())

    def read(self, index: int, threshold: float) -> xr.Dataset:
        """The readings of one layer; missing heads are NaN, or -1 for tokens."""
        if self.weights.card.per_layer[index].reason is not None:
            return self._dataset(index, {})
        layer = self._layer(index)
        read = torch.matmul(self._rows(index), layer.value).repeat_interleave(
            layer.group, dim=0
        )  # (head, source, width)
        salient = None if self.ordinary is None else self._salient(index, layer)
        found: dict[str, list[np.ndarray]] = {}
        for heads, product in ov_logit_blocks(self._output(layer), self.unembedding):
            part = self._scores(topk_hits(read[heads], product, self.query), threshold)
            if salient is not None:
                part["targets"] = self._targets(index, layer, salient["token"], heads, product)
            for name, value in part.items():
                found.setdefault(name, []).append(value)
        whole = {name: np.concatenate(values) for name, values in found.items()}
        return self._dataset(index, whole | (salient or {}))

    def copied(self) -> dict[str, np.ndarray]:
        """Control: the scores of a head that writes what it reads, M = E' U (or E U), by sign, (relation,).

        They are above 0 where words are embedded near their own forms. NaN where U in float32 would take over 2 GB.
        """
        if 4 * self.unembedding.numel() > MAX_UNEMBEDDING_BYTES:
            return {sign: np.full(len(self.pairs.k), np.nan, dtype=np.float32) for sign in SIGNS}
        rows = self._embedded if self.raw else self._effective
        gain = self.weights.final_gain if self.folded else None
        read = rows if gain is None else rows * gain
        real = RankQuery(self.query.rows, self.query.targets[:1], self.query.k)
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
        """W_V and W_O; with the gains of the norms before and after the attention where they are folded in."""
        layer = self.weights.layer(index)
        gain = self.weights.gain(index) if self.folded else None
        post_norm_gain = self.weights.post_norm_gain(index) if self.folded else None
        value = layer.value if gain is None else layer.value * gain[:, None]
        return LayerWeights(value, layer.output if post_norm_gain is None else layer.output * post_norm_gain)

    def _output(self, layer: LayerWeights) -> Tensor:
        gain = self.weights.final_gain if self.folded else None
        return layer.output if gain is None else layer.output * gain

    def _scores(self, found: TopkHits, threshold: float) -> dict[str, np.ndarray]:
        """Which pairs are mapped correctly; mean, maximum and share above the threshold with permuted targets."""
        part: dict[str, np.ndarray] = {}
        of_relation = torch.from_numpy(np.eye(len(self.pairs.k), dtype=np.float32)[self.pairs.relation]).to(self.device)
        sizes = torch.from_numpy(self.pairs.sizes).to(self.device)
        published = torch.from_numpy(self.pairs.published).to(self.device)
        passed = torch.zeros(
            len(found.largest), len(self.pairs.targets) - 1, len(self.pairs.k), device=self.device
        ).bool()
        for sign, hit in zip(SIGNS, (found.largest, found.smallest), strict=True):
            shares = (hit[:, 1:].float() @ of_relation).double() / sizes  # (head, shuffle, relation)
            part[f"{sign}_mapped"] = hit[:, 0].cpu().numpy()
            part[f"{sign}_null"] = shares.mean(1).cpu().numpy()
            part[f"{sign}_null_high"] = shares.amax(1).cpu().numpy()
            part[f"{sign}_null_over"] = (shares > threshold).double().mean(1).cpu().numpy()
            passed |= shares > threshold
        part["null_classified"] = passed.any(2).cpu().numpy()
        part["null_classified_published"] = (passed & published).any(2).cpu().numpy()
        return part

    def _salient(self, index: int, layer: LayerWeights) -> dict[str, np.ndarray]:
        """The tokens that each head amplifies most, and how much."""
        assert self.ordinary is not None
        strengths = salience(self._vocabulary(index), layer.value, layer.output)
        strongest = strengths.masked_fill_(~self.ordinary, -torch.inf).topk(self._ranks, dim=1)
        return {"strength": strongest.values.cpu().numpy(), "token": strongest.indices.to(torch.int32).cpu().numpy()}

    def _targets(
        self, index: int, layer: LayerWeights, tokens: np.ndarray, heads: slice, product: Tensor
    ) -> np.ndarray:
        rows, ids = self._vocabulary(index), torch.from_numpy(tokens[heads]).long()
        chosen = rows[ids.to(rows.device)].to(device=self.device, dtype=torch.float32)  # (head, rank, hidden)
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
        for name in ("null_classified", "null_classified_published"):
            shapes[name] = ((DRAW,), (len(self.pairs.targets) - 1,), False)
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


def _refuse_unknown_tokens(weights: HeadWeights, pairs: TokenPairs) -> None:
    largest = int(max(pairs.sources.max(), pairs.targets.max()))
    size = min(len(weights.embedding), len(weights.unembedding))
    if largest >= size:
        raise DataError(
            f"the tokenizer of {weights.card.id} gives token {largest}, and its embedding has {size} rows; give the "
            "tokenizer that belongs to the model"
        )
