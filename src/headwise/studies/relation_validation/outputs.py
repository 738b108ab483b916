"""Does a head do in a text what its weights say? Its output at the last token, read as tokens.

For every prompt around a source word, two vectors a head:

    natural   z at the last token, wherever the head looked
    forced    z as it would be with all attention on the source: the source's value vector

Each is multiplied out, z W_O U, without the final norm, and the target is found when it is among the k largest of the
vocabulary: the same k as in the `relations` study. The score is the share of prompts where it is found. A head that writes
nothing (a pruned one) gives all tokens one score, and finds nothing.

After Elhelo & Geva (arXiv 2412.11965), who report correlations with the scores from weights of .44 to .98 (forced).

Cost: one pass over the prompts, then per head 2 width vocabulary (hidden + 2 prompts) operations
(`headwise.kernels.ov_logits`); held: 2 x prompts x heads x width numbers. This module does not know the scores from weights.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import xarray as xr
from numpy.typing import NDArray
from torch import Tensor

from headwise.core.dims import TOKEN
from headwise.corpora import Batch, Example
from headwise.instruments import HeadOutputs, HeadValues
from headwise.kernels import RankQuery, ov_logit_blocks, topk_hits
from headwise.seam import Structure, observe, output_projections
from headwise.studies.passes import observe_examples
from headwise.studies.relation_validation.prompts import Prompt

__all__ = ["found_in_outputs"]

Floats = NDArray[np.float64]


def found_in_outputs(
    structure: Structure, unembedding: Tensor, prompts: Sequence[Prompt], k: Sequence[int], batch_tokens: int
) -> tuple[Floats, Floats]:
    """For each prompt and head, 1 where the target is among the k largest: natural and forced, (prompt, layer, head).

    `unembedding` is (vocabulary, hidden); NaN stands where a layer has no such head.
    """
    outputs, values = _vectors(structure, prompts, batch_tokens)
    natural, forced = (np.full(outputs.shape[:3], np.nan) for _ in range(2))
    device, count = structure.device, len(prompts)
    rows = torch.arange(2 * count, device=device)
    targets = torch.tensor([prompt.target for prompt in prompts] * 2, device=device)[None]
    asked = RankQuery(rows, targets, torch.tensor([*k, *k], device=device))
    for layer, projection in output_projections(structure).items():
        weight = projection.weight.to(device=device, dtype=torch.float32)  # (head, width, hidden)
        heads, width, _ = weight.shape
        both = np.concatenate([outputs[:, layer, :heads, :width], values[:, layer, :heads, :width]])
        z = torch.from_numpy(both).to(device).transpose(0, 1).contiguous()  # (head, 2 x prompt, width)
        speaks = torch.bmm(z, weight).abs().amax(-1) > 0  # (head, 2 x prompt)
        for some, product in ov_logit_blocks(weight, unembedding):
            found = (
                (topk_hits(z[some], product, asked).largest[:, 0] & speaks[some]).T.cpu().numpy()
            )  # (2 x prompt, head)
            natural[:, layer, some], forced[:, layer, some] = found[:count], found[count:]
    return natural, forced


def _vectors(structure: Structure, prompts: Sequence[Prompt], batch_tokens: int) -> tuple[np.ndarray, np.ndarray]:
    """Of every head: z at the last token and v at the source, (prompt, layer, head, width), in the order of the prompts."""
    examples = [Example(str(row), "prompt", prompt.ids) for row, prompt in enumerate(prompts)]

    def measure_batch(batch: Batch) -> xr.Dataset:
        sources = torch.tensor([[prompts[place].place] for place in batch.indices], device=structure.device)
        with torch.no_grad(), observe(structure, HeadOutputs("last"), HeadValues(sources), valid=batch.valid) as seen:
            structure.decoder(input_ids=batch.ids, use_cache=False)
        return xr.Dataset({"z": seen["outputs"]["z"].isel({TOKEN: 0}), "v": seen["values"]["v"].isel({TOKEN: 0})})

    readings = observe_examples(examples, batch_tokens, structure.device, measure_batch)
    return readings["z"].values, readings["v"].values
