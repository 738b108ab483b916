"""What does each head compute? Read from its weights alone, by how it maps words of known relations.

Shown: nothing; the model is not run. For a pair of words such as France -> Paris, both single tokens, the head's matrix
M = E' W_V W_O U says how strongly it maps the one token to any other. The score of a head for a relation is the share
of its pairs whose target is among the k largest entries of the source's row of M; its suppression score the same with -M.
A head belongs to a relation when a score is over 0.15, and to the categories of its relations.

Controls: the same scores with the targets dealt out anew among the sources of a relation (`shuffles` times). They tell
how often the threshold is passed by a head that knows the relation's targets but not which belongs to which source.
Scores have Wilson's interval; pairs that are not single tokens, and relations with fewer than 30 pairs, are reported.

Beside the list of relations, `salience`: the 30 tokens that each head acts on most, and the 5 it maps each to.

After Elhelo & Geva, "Inferring Functionality of Attention Heads from their Parameters" (arXiv 2412.11965): no norm is
folded in, nothing is centred, biases are left out (`norms="raw"`); k is 1 for copying relations and 10 for others, and 3
and 25 for large vocabularies, between which we draw the line at 65,536 tokens. See `reading` for the cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import xarray as xr

from headwise.core.dims import RELATION
from headwise.core.errors import DataError
from headwise.core.provenance import Provenance
from headwise.corpora import Relations, SingleTokenPairs, single_token_pairs
from headwise.engines import Shard
from headwise.model import Model, StoredModel
from headwise.seam import HeadWeights
from headwise.studies.inputs import StudyInputs
from headwise.studies.relations.maps import to_maps, to_salience
from headwise.studies.relations.reading import Pairs, RelationReader
from headwise.studies.relations.spec import SPEC, RelationsOptions
from headwise.studies.run import StudyRun

SALIENCE = "salience"
LARGE = 65_536  # tokens; a larger vocabulary has larger k
K = {False: (10, 25), True: (1, 3)}  # copying or not -> k for a small and for a large vocabulary
CHOICES = {"norms": ("raw", "folded"), "embedding": ("effective", "raw")}


def prepare(model: Model | StoredModel, inputs: StudyInputs, options: RelationsOptions | None = None) -> StudyRun:
    """The relations study of a model, loaded or stored; an example of the work is a layer."""
    options = options or RelationsOptions()
    relations = inputs.relations
    kept = usable(model, relations)
    weights = HeadWeights(model)
    weights.check()
    pairs = _pairs(kept, len(weights.unembedding), options)
    ordinary = _ordinary(model) if options.salience else None
    reader = RelationReader(weights, pairs, ordinary, norms=options.norms, embedding=options.embedding)
    data = {"name": relations.name, "size": len(pairs.sources), "given": _given(relations), "digest": relations.digest}
    parameters = {key: value for key, value in asdict(options).items() if key != "seed"}
    provenance = Provenance(SPEC.name, SPEC.version, model.identity(), data, parameters, options.seed)

    def measure(shard: Shard) -> xr.Dataset:
        layers = [reader.read(layer, options.threshold) for layer in range(shard.start, shard.stop)]
        return xr.concat(layers, dim="layer", data_vars="all")

    def conclude(shards: Sequence[xr.Dataset]) -> dict[str, xr.Dataset]:
        readings = xr.concat(shards, dim="layer", data_vars="all")
        maps = to_maps(readings, kept, pairs, options.threshold)
        maps = maps.assign({f"copied_{sign}": (RELATION, share) for sign, share in reader.copied().items()})
        if not options.salience:
            return {SPEC.name: maps}
        return {SALIENCE: to_salience(readings, model, reader.left_out), SPEC.name: maps}

    return StudyRun(provenance, model.card.layers, 1, measure, conclude)


def usable(model: Model | StoredModel, relations: Relations) -> list[SingleTokenPairs]:
    """The relations as this model's tokenizer has them; refused where none has enough single-token pairs."""
    if model.tokenizer is None:
        raise DataError(
            f"{model.id} has no tokenizer ({model.no_tokenizer}), so words cannot be turned into its tokens; give one"
        )
    found = [single_token_pairs(relation, model.tokenizer) for relation in relations]
    if not any(kept.counts for kept in found):
        best = max(found, key=len, default=None)
        why = f"; the best is {best.relation.name!r}: {best.words}" if best is not None else ""
        raise DataError(
            f"none of the {len(relations)} relations of {relations.name} can be asked of {model.id}{why}. Give more "
            "pairs, of words that are one token each"
        )
    return found


def _given(relations: Relations) -> int:
    return sum(len(relation) for relation in relations)


def _pairs(kept: Sequence[SingleTokenPairs], vocabulary: int, options: RelationsOptions) -> Pairs:
    """All pairs that count in one list, and the same with targets shuffled inside each relation."""
    counted = [one for one in kept if one.counts]
    generator = np.random.default_rng(options.seed)
    targets = [np.array(one.targets) for one in counted]
    shuffled = [
        np.concatenate([generator.permutation(of_relation) for of_relation in targets]) for _ in range(options.shuffles)
    ]
    return Pairs(
        sources=np.array([source for one in counted for source in one.sources]),
        targets=np.stack([np.concatenate(targets), *shuffled]),
        relation=np.repeat(np.arange(len(counted)), [len(one) for one in counted]),
        k=np.array([options.k_of(one.relation.copying, vocabulary) for one in counted]),
    )


def _ordinary(model: Model | StoredModel) -> np.ndarray:
    """The ids of tokens that stand for text: no special or added ones, none beyond the tokenizer's list."""
    tokenizer: Any = model.tokenizer
    special = set(tokenizer.all_special_ids) | set(tokenizer.added_tokens_decoder)
    size = min(len(tokenizer), model.card.vocabulary_size)
    return np.array([token for token in range(size) if token not in special])
