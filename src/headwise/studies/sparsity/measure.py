"""What would a sparse kernel cost this model? Attention weights dropped at inference, without training.

Shown: prompts of equal length, cut from the texts. Rules (`kernels.sparsify`): top-k of a row, a threshold, a window with
the first tokens, entmax, each at several strengths; control: as many keys as top-k keeps, drawn at random.

One dense pass measures, for every rule and head, the share of visible edges kept, the share of weight dropped, and the
change of the head's output (`instruments.AttentionDropEffects`). Then one pass per rule, with all heads sparsified at
once, measures the rise of the loss and the divergence KL(dense || sparse) of the next-token distributions. All
differences are paired by prompt, with 95 % intervals over prompts (Student's t).

The shares of a rule are those of the dense pass. They hold exactly for top, window and random in the sparse pass too; a
threshold and entmax depend on the weights there, which differ a little.

Cost: one pass over prompts x tokens per rule, and the T x T maps of a layer in blocks. The result is what an exact sparse
kernel would lose, not how fast it would be.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from headwise.core.dims import EXAMPLE, HEAD, LAYER, RULE
from headwise.core.provenance import Provenance
from headwise.core.schema import with_interval
from headwise.engines import Shard
from headwise.instruments.drop_effects import AttentionDropEffects
from headwise.interventions.heads import DropAttention
from headwise.kernels.sparsify import SparsityRule
from headwise.model import Model
from headwise.seam import Structure, observe
from headwise.stats import mean_interval
from headwise.studies.inputs import StudyInputs, cut_prompts
from headwise.studies.passes import observe_examples
from headwise.studies.run import StudyRun
from headwise.studies.sparsity.spec import RULE_PATTERN, SPEC, SparsityOptions

__all__ = ["prepare"]


def prepare(model: Model, inputs: StudyInputs, options: SparsityOptions | None = None) -> StudyRun:
    """What this model loses on these texts when weights are dropped by each rule."""
    options = options or SparsityOptions()
    passages = inputs.passages
    prompts = cut_prompts(model, passages, options.tokens, options.prompts, model.card.max_positions)
    structure, rules = Structure(model), rules_of(options)
    data = {"name": passages.name, "size": len(prompts.examples), "texts": prompts.texts, "digest": passages.digest}
    parameters = {key: value for key, value in asdict(options).items() if key != "seed"}
    provenance = Provenance(SPEC.name, SPEC.version, model.identity(), data, parameters, options.seed)

    def measure(shard: Shard) -> xr.Dataset:
        examples = prompts.examples[shard.start : shard.stop]
        return observe_examples(
            examples, options.batch_tokens, structure.device, lambda batch: _measure_batch(structure, batch.ids, rules)
        )

    def finalize_run(shards: Sequence[xr.Dataset]) -> dict[str, xr.Dataset]:
        return {SPEC.name: finalize(shards, rules).assign_attrs(tokens=prompts.tokens, prompts=len(prompts.examples))}

    return StudyRun(provenance, len(prompts.examples), options.shard, measure, finalize_run)


def rules_of(options: SparsityOptions) -> tuple[SparsityRule, ...]:
    """The rules that the options name, such as "top 8"."""
    found = []
    for text in options.rules:
        match = RULE_PATTERN.fullmatch(text.strip())
        assert match is not None  # checked by the options
        found.append(SparsityRule(match[1], float(match[2]), int(match[3] or 0), options.renormalise, options.seed))
    return tuple(found)


def _measure_batch(structure: Structure, ids: Tensor, rules: Sequence[SparsityRule]) -> xr.Dataset:
    dense, seen = _logs(structure, ids, AttentionDropEffects(rules))
    losses, divergences = [_loss(dense, ids)], []
    for rule in rules:
        logs, _ = _logs(structure, ids, DropAttention(rule))
        losses.append(_loss(logs, ids))
        divergences.append((dense.exp() * (dense - logs)).sum(-1).mean(-1).cpu().numpy())
    return seen["drop_effects"].assign(
        dense=(EXAMPLE, losses[0]),
        loss=((EXAMPLE, RULE), np.stack(losses[1:], axis=1)),
        kl=((EXAMPLE, RULE), np.stack(divergences, axis=1)),
    )


@torch.no_grad()
def _logs(structure: Structure, ids: Tensor, observer: Any) -> tuple[Tensor, Any]:
    """(batch, token, vocabulary) log-probabilities of the next tokens."""
    hf: Any = structure.hf
    with observe(structure, observer) as seen:
        logits = hf(input_ids=ids, use_cache=False).logits
    return logits[:, :-1].float().log_softmax(dim=-1), seen


def _loss(logs: Tensor, ids: Tensor) -> np.ndarray:
    """(batch,): mean over tokens of -log P(next token), in nats."""
    found = logs.gather(-1, ids[:, 1:, None])[..., 0]
    return -found.mean(-1).cpu().numpy()


def finalize(shards: Sequence[xr.Dataset], rules: Sequence[SparsityRule]) -> xr.Dataset:
    """All shards to one Dataset."""
    readings = xr.concat(shards, dim=EXAMPLE, data_vars="all").transpose(EXAMPLE, RULE, LAYER, HEAD)
    found: dict[str, Any] = {}
    paired = {"rise": readings["loss"] - readings["dense"], "kl": readings["kl"], "dense": readings["dense"]}
    maps = {"change": readings["change"], "needed": readings["needed"]}
    for name, values in (paired | maps).items():
        interval = mean_interval(values, EXAMPLE)
        found |= with_interval(name, interval["mean"], interval["low"], interval["high"])
    for name in ("kept", "mass"):
        found[name] = readings[name].mean(EXAMPLE)
    for name in ("kept", "mass", "change"):  # over all heads
        found[f"{name}_mean"] = readings[name].mean((LAYER, HEAD)).mean(EXAMPLE)
    labels = {RULE: [rule.name for rule in rules], "kind": [rule.kind for rule in rules]}
    return (
        xr.Dataset(found)
        .astype(np.float32)
        .assign_coords(
            {name: (RULE, np.array(values, dtype=object)) for name, values in labels.items()}
            | {"strength": (RULE, np.array([rule.amount for rule in rules]))}
        )
        .assign_attrs(
            title="Attention weights dropped at inference",
            record=json.dumps(["needed", "change"]),
            renormalised=int(all(rule.renormalise for rule in rules)),
        )
    )
