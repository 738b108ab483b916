"""One shard of the functions study: some questions asked step by step, the answers judged, the heads read.

z of every head at the answer's key tokens, mean over them: the answer is run once more after its prompt, in one pass on
top of the cached prompt (`teacher_force`), and only its own tokens are looked at. "At a token" is the pass in which that
token goes in. An answer without any token has no z (NaN).

Cost: the prompts once (what steps share, once a question), one step a token, and the answers once more.
This module does not know functions' maps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import xarray as xr

from headwise.core.dims import EXAMPLE, HEAD, LAYER, WIDTH
from headwise.core.errors import DataError
from headwise.corpora import CORRECT, Step, judge_step, step_ids
from headwise.instruments import HeadOutputs
from headwise.model import Model
from headwise.seam import Structure, observe
from headwise.studies.answers.endings import ending, text_of
from headwise.studies.decoding import Ids, PrefixCachedDecoder
from headwise.studies.functions.key_tokens import key_places
from headwise.studies.functions.rounds import batches_of, rounds

__all__ = ["Reader", "prompts_of"]

Chain = tuple[Step, ...]


def prompts_of(model: Model, chains: Sequence[Chain], limit: int) -> list[list[Ids]]:
    """The prompts of every question's steps; one that does not fit into the context with its answer is refused."""
    found = [[step_ids(model, step) for step in chain] for chain in chains]
    most = model.card.max_positions
    for chain, prompts in zip(chains, found, strict=True):
        for step, prompt in zip(chain, prompts, strict=True):
            if most is not None and len(prompt) + limit > most:
                raise DataError(
                    f"the step {step.id!r} does not fit: its prompt of {len(prompt)} tokens or more and {limit} tokens of "
                    f"answer are over the {most} tokens that {model.id} takes; shorten it or leave it out"
                )
    return found


class Reader:
    """A model that is asked steps and watched while it answers."""

    def __init__(self, model: Model, decoder: PrefixCachedDecoder, *, limit: int, key_tokens: str):
        self.model, self.decoder, self.limit, self.key_tokens = model, decoder, limit, key_tokens
        self.structure = Structure(model)
        self.ends = ending(model, numeric=False)

    def read(self, chains: Sequence[Chain], prompts: Sequence[Sequence[Ids]]) -> xr.Dataset:
        """The steps of some questions, in their order."""
        parts: dict[tuple[int, int], xr.Dataset] = {}
        for places in batches_of([max(map(len, own)) for own in prompts], self.decoder.rows):
            for number, one in enumerate(rounds(self.decoder, [prompts[place] for place in places])):
                steps = [chains[places[line]][number] for line in one.lines]
                found = self._answered(steps, one.prompts)
                for row, line in enumerate(one.lines):
                    parts[places[line], number] = found.isel({EXAMPLE: [row]})
            self.decoder.clear()
        return xr.concat([parts[key] for key in sorted(parts)], dim=EXAMPLE, data_vars="all")

    def _answered(self, steps: Sequence[Step], prompts: list[Ids]) -> xr.Dataset:
        said = [reply.ids for reply in self.decoder.answer(prompts, self.limit, self.ends)]
        tokenizer: Any = self.model.tokenizer
        pieces = [[tokenizer.decode([token]) for token in ids] for ids in said]
        keys = [key_places(own, self.key_tokens) for own in pieces]
        z = self._outputs(prompts, said, keys)
        texts = [text_of(self.model, ids) for ids in said]
        verdicts = [judge_step(step, text) for step, text in zip(steps, texts, strict=True)]
        key_text = [" | ".join(own[place] for place in some) for own, some in zip(pieces, keys, strict=True)]
        written: dict[str, list[str]] = {
            "function_of": [step.function for step in steps],
            "split_of": [step.split for step in steps],
            "chain": [step.chain for step in steps],
            "question": [step.question for step in steps],
            "subquestion": [step.subquestion for step in steps],
            "gold": [step.answer for step in steps],
            "answer": texts,
            "rule": [verdict.rule for verdict in verdicts],
            "key_text": key_text,
        }
        counted = {
            "number": np.array([step.number for step in steps], dtype=np.int64),
            "answer_tokens": np.array([len(ids) for ids in said], dtype=np.int64),
            "key_tokens": np.array([len(some) for some in keys], dtype=np.int64),
            "right": np.array([verdict.label == CORRECT for verdict in verdicts], dtype=bool),
        }
        return xr.Dataset(
            {name: (EXAMPLE, np.array(values, dtype=object)) for name, values in written.items()}
            | {name: (EXAMPLE, values) for name, values in counted.items()}
            | {"z": ((EXAMPLE, LAYER, HEAD, WIDTH), z)},
            coords={EXAMPLE: np.array([step.id for step in steps], dtype=object)},
        )

    def _outputs(self, prompts: list[Ids], said: list[Ids], keys: list[list[int]]) -> np.ndarray:
        """(step, layer, head, width): mean over the key tokens."""
        longest = max(map(len, said))
        card = self.structure.card
        if longest == 0:
            width = max(layer.value_dim for layer in card.per_layer)
            return np.full((len(said), card.layers, card.heads, width), np.nan, dtype=np.float32)
        with torch.no_grad(), observe(self.structure, HeadOutputs(list(range(-longest, 0)))) as seen:
            self.decoder.teacher_force(prompts, said)
        z = seen["outputs"]["z"].values  # (step, layer, head, token, width)
        found = np.full((*z.shape[:3], z.shape[4]), np.nan, dtype=np.float32)
        for row, (ids, places) in enumerate(zip(said, keys, strict=True)):
            if places:
                at = [longest - len(ids) + place for place in places]
                found[row] = z[row][:, :, at].mean(axis=2)
        return found
