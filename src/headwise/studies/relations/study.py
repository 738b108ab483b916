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
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import xarray as xr

from headwise.atlas import Provenance
from headwise.core.dims import RELATION
from headwise.core.errors import DataError, StudyError, did_you_mean
from headwise.corpora import Relations, SingleTokenPairs, single_token_pairs
from headwise.engines import Shard
from headwise.model import Model, StoredModel
from headwise.seam import HeadWeights
from headwise.studies.relations.maps import to_maps, to_salience
from headwise.studies.relations.reading import Pairs, RelationReader
from headwise.studies.work import Work

NAME = "relations"
SALIENCE = "salience"
VERSION = 1
LARGE = 65_536  # tokens; a larger vocabulary has larger k
K = {False: (10, 25), True: (1, 3)}  # copying or not -> k for a small and for a large vocabulary
CHOICES = {"norms": ("raw", "folded"), "embedding": ("effective", "raw")}


@dataclass(frozen=True)
class RelationsOptions:
    """What can be chosen about the studies `relations` and `salience`: what does each head compute, from weights alone?

    Examples:
        How many of the tokens that a head maps a word to count as found: as published, or as you say.

        >>> RelationsOptions().k_of(copying=False, vocabulary=49152), RelationsOptions(k=5).k_of(False, 49152)
        (10, 5)
    """

    norms: str = "raw"  # or "folded": the gains of the norms before (and behind) the attention and of the last are in
    embedding: str = "effective"  # heads after the first layer read E'; "raw": they read E, as published for Llama-70B
    k: int | None = None  # None: 10, or 25 for vocabularies over 65,536
    k_copying: int | None = None  # None: 1, or 3
    threshold: float = 0.15  # share of a relation's pairs from which on a head has it
    shuffles: int = 20  # of the pairs, for the null
    salience: bool = True  # also the study `salience`: the tokens that each head acts on most
    seed: int = 0  # of the shuffles

    def __post_init__(self) -> None:
        for name, known in CHOICES.items():
            if getattr(self, name) not in known:
                raise StudyError(
                    f"{name} cannot be {getattr(self, name)!r}. {did_you_mean(str(getattr(self, name)), known)}"
                )
        if not 0 <= self.threshold < 1:
            raise StudyError(f"a threshold of {self.threshold} is no share; give a number from 0 to below 1")
        if self.shuffles < 1:
            raise StudyError(f"{self.shuffles} shuffles leave no null to compare with; give at least 1, better 20")
        for name in ("k", "k_copying"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise StudyError(f"{name}={getattr(self, name)} leaves no place for a target; give at least 1")

    def k_of(self, copying: bool, vocabulary: int) -> int:
        """How many tokens of a row count as found."""
        chosen = self.k_copying if copying else self.k
        return min(chosen or K[copying][vocabulary > LARGE], vocabulary)


def prepare(model: Model | StoredModel, relations: Relations, options: RelationsOptions | None = None) -> Work:
    """The relations study of a model, loaded or stored; an example of the work is a layer."""
    options = options or RelationsOptions()
    kept = usable(model, relations)
    weights = HeadWeights(model)
    weights.check()
    pairs = _pairs(kept, len(weights.unembedding), options)
    ordinary = _ordinary(model) if options.salience else None
    reader = RelationReader(weights, pairs, ordinary, norms=options.norms, embedding=options.embedding)
    data = {"name": relations.name, "size": len(pairs.sources), "given": _given(relations), "digest": relations.digest}
    parameters = {key: value for key, value in asdict(options).items() if key != "seed"}
    provenance = Provenance(NAME, VERSION, model.identity(), data, parameters, options.seed)

    def measure(shard: Shard) -> xr.Dataset:
        layers = [reader.read(layer, options.threshold) for layer in range(shard.start, shard.stop)]
        return xr.concat(layers, dim="layer", data_vars="all")

    def conclude(shards: Sequence[xr.Dataset]) -> dict[str, xr.Dataset]:
        readings = xr.concat(shards, dim="layer", data_vars="all")
        maps = to_maps(readings, kept, pairs, options.threshold)
        maps = maps.assign({f"copied_{sign}": (RELATION, share) for sign, share in reader.copied().items()})
        if not options.salience:
            return {NAME: maps}
        return {SALIENCE: to_salience(readings, model, reader.left_out), NAME: maps}

    return Work(provenance, model.card.layers, 1, measure, conclude)


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
