"""What reading relations from the default model's weights costs on a CPU, against the form as it is written down.

Factored: what the study `relations` does for a layer, all its heads, with 20 shuffles of the targets. As written: a head's
hidden x hidden matrix W_V W_O, then E'[source] (W_V W_O) U for every source, and the place of each target by counting;
without any shuffle. Three layers are measured whole, and one head of each of them as written; all heads are scaled up
from these. The pairs that both find are compared.
"""

from __future__ import annotations

import time
from typing import NamedTuple

import torch
from torch import Tensor

import headwise as hw
from headwise.corpora import packaged_relations
from headwise.engines import Shard
from headwise.seam import HeadWeights
from headwise.studies.inputs import StudyInputs
from headwise.studies.relations.measure import prepare, usable_pairs
from headwise.studies.relations.spec import RelationsOptions

ROWS = 500  # sources whose scores are held at once
MIN_AGREEMENT = 0.999  # share of pairs on which both must agree; scores that tie to the last bits may fall either way


class Asked(NamedTuple):
    """Pairs, each (pair,)."""

    sources: Tensor
    targets: Tensor
    k: Tensor


def asked_of(model: hw.Model, options: RelationsOptions) -> Asked:
    """The pairs that count, in the study's order."""
    kept = [one for one in usable_pairs(model, packaged_relations()) if one.counts]
    vocabulary = model.card.vocabulary_size
    k = [options.k_of(one.relation.copying, vocabulary) for one in kept for _ in one.sources]
    sources = [source for one in kept for source in one.sources]
    targets = [target for one in kept for target in one.targets]
    return Asked(*(torch.tensor(one) for one in (sources, targets, k)))


def as_written(weights: HeadWeights, rows: Tensor, asked: Asked, layer: int, head: int) -> Tensor:
    """(pair,) bool: whether the target is among the k tokens that the head maps the source to most strongly."""
    own = weights.layer(layer)
    matrix = own.value[head // own.group] @ own.output[head]  # (hidden, hidden)
    found = []
    for some in torch.arange(len(rows)).split(ROWS):
        scores = rows[some] @ matrix @ weights.unembedding.T  # (row, vocabulary)
        target = scores.gather(1, asked.targets[some][:, None])
        found.append((scores > target).sum(1) < asked.k[some])
    return torch.cat(found)


def measured(model: hw.Model) -> dict[str, float]:
    """Seconds per head of both, and on what share of the pairs they agree."""
    options = RelationsOptions(salience=False)
    work, weights, asked = prepare(model, StudyInputs(), options), HeadWeights(model), asked_of(model, options)
    layers = sorted({1, model.card.layers // 2, model.card.layers - 1})
    work.measure(Shard(0, layers[0], layers[0] + 1))  # what all layers share is made on the first call
    rows = weights.effective(weights.embedding[asked.sources])
    spent, agreeing = [0.0, 0.0], []
    for turn, layer in enumerate(layers):
        start = time.perf_counter()
        found = work.measure(Shard(turn, layer, layer + 1))["score_mapped"].values[0]  # (head, pair)
        middle = time.perf_counter()
        head = (3 * turn + 1) % model.card.heads
        written = as_written(weights, rows, asked, layer, head)
        spent = [spent[0] + middle - start, spent[1] + time.perf_counter() - middle]
        agreeing.append(float((written == torch.from_numpy(found[head])).float().mean()))
    factored = spent[0] / (len(layers) * model.card.heads)
    return {
        "factored": factored, "written": spent[1] / len(layers), "agree": min(agreeing), "pairs": len(asked.sources),
        "heads": model.card.layers * model.card.heads,
    }  # fmt: skip


def section(model: hw.Model) -> str:
    """The words and the table."""
    with torch.no_grad():
        found = measured(model)
    if found["agree"] < MIN_AGREEMENT:
        raise SystemExit(f"relations: both forms agree on {found['agree']:.2%} of the pairs only; one of them is wrong")
    heads = found["heads"]
    return "\n".join(
        [
            f"### Relations from weights, {found['pairs']:,} pairs",
            "",
            f"| form | per head | all {heads} heads, scaled up |",
            "|---|---|---|",
            f"| factored, with 20 shuffles | {1e3 * found['factored']:.0f} ms | {found['factored'] * heads:.0f} s |",
            f"| W_V W_O, hidden x hidden, no shuffle | {1e3 * found['written']:.0f} ms | {found['written'] * heads:.0f} s |",
            f"| ratio | {found['written'] / found['factored']:.1f} x | |",
            "",
            f"Both agree on at least {found['agree']:.2%} of a head's pairs.",
        ]
    )
