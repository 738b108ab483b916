"""Which heads carry which cognitive function? The model answers labelled steps, and z of every head is read at its answers.

Shown: questions worked out in steps, each labelled with the function it requires (`corpora.steps`). Observed: z of every head,
averaged over the key tokens of the model's own answer. The answer is run again after its prompt, in one pass on the cached
prompt; z "at a token" is that of the pass in which the token is the input. An answer without tokens has no z (NaN). From this
`finalize` fits one probe over all heads and derives each head's importance. After Ma et al., "Cognitive Mirrors"
(arXiv 2512.10978).

The prompt of a step is the question, the earlier steps with their answers, and the subquestion. The next step's prompt begins
the same way, so all first steps of a batch of questions are answered, then all second ones, each from where its prompt
diverges from the previous one: about one pass over each question's last prompt instead of one over every prompt.

Importance shows which heads' outputs distinguish a function from the others. Whether the model needs them is tested by the
study `function_masking`.

Cost: the prompts once, one decode step per token, the answers once more. With the default model, 405 steps took 180 s of one
core: 140 s to answer and read them, 40 s to fit.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
import xarray as xr
from numpy.typing import NDArray

from headwise.core.dims import EXAMPLE, HEAD, LAYER, WIDTH
from headwise.core.errors import DataError
from headwise.corpora import CORRECT, TRAIN, Step, judge_step, step_ids
from headwise.engines import Shard
from headwise.instruments.outputs import HeadOutputs
from headwise.model import Model
from headwise.seam import Structure, observe, output_projections
from headwise.studies.answers.endings import ending, text_of
from headwise.studies.decoding import Ids, PrefixCachedDecoder, common_prefix_length
from headwise.studies.functions.finalize import finalize
from headwise.studies.functions.spec import SPEC, FunctionsOptions
from headwise.studies.functions.step_sampling import Chain, sample_steps
from headwise.studies.inputs import StudyInputs, require_loaded
from headwise.studies.run import StudyRun, study_provenance

FUNCTION_WORDS = frozenset(
    "a an the this that these those it its he she they them his her him their i me my we us our you your who whom which "
    "what is are was were be been being am do does did has have had will would can could may might must should shall of in "
    "on at to by for from with as than then so there here and or but if also very just only answer a: q: sure okay because "
    "since s t re ve ll".split()
)


def prepare(model: Model, inputs: StudyInputs, options: FunctionsOptions | None = None) -> StudyRun:
    """The maps of this model on these steps."""
    options = options or FunctionsOptions()
    steps = inputs.steps
    require_loaded(model, SPEC.name)
    sample = sample_steps(steps, options.steps, options.seed)
    prompts = prompts_of(model, sample.chains, options.max_new_tokens)
    flat = [prompt for own in prompts for prompt in own]
    order = sorted(range(len(prompts)), key=lambda index: (max(map(len, prompts[index])), index))
    longest = max(map(len, flat)) + options.max_new_tokens
    decoder = PrefixCachedDecoder(model, flat[0][: common_prefix_length(flat)], longest=longest, batch=options.batch)
    reader = StepReader(model, decoder, limit=options.max_new_tokens, key_tokens=options.key_tokens)
    data = {"name": steps.name, "size": len(flat), "given": len(steps), "digest": steps.digest}
    shown = hashlib.blake2b(json.dumps(flat).encode(), digest_size=8).hexdigest()
    ids = np.array([step.id for chain in sample.chains for step in chain], dtype=object)

    def measure(shard: Shard) -> xr.Dataset:
        some = order[shard.start : shard.stop]
        return reader.read([sample.chains[index] for index in some], [prompts[index] for index in some])

    def conclude(shards: Sequence[xr.Dataset]) -> dict[str, xr.Dataset]:
        readings = xr.concat(shards, dim=EXAMPLE, data_vars="all").sel({EXAMPLE: ids})
        norm = output_norms(reader.structure, readings)
        found = finalize(
            readings, sample.functions, options, left_out=sample.left_out, output_norm=norm, device=model.device
        )
        return {SPEC.name: found}

    provenance = study_provenance(SPEC, model, data, options, prompts=shown)
    return StudyRun(provenance, len(sample.chains), options.shard, measure, conclude)


def prompts_of(model: Model, chains: Sequence[Chain], limit: int) -> list[list[Ids]]:
    """The prompts of every question's steps; one that does not fit into the context together with its answer is refused."""
    found = [[step_ids(model, step) for step in chain] for chain in chains]
    context = model.card.max_positions
    for chain, prompts in zip(chains, found, strict=True):
        for step, prompt in zip(chain, prompts, strict=True):
            if context is not None and len(prompt) + limit > context:
                raise DataError(
                    f"The step {step.id!r} does not fit: its prompt of {len(prompt)} tokens or more and {limit} tokens of "
                    f"answer exceed the {context} tokens of {model.id}'s context; shorten it or leave it out."
                )
    return found


def output_norms(structure: Structure, readings: xr.Dataset) -> NDArray[np.float32]:
    """(layer, head): norm of z W_O, what a head writes into the residual stream, mean over the training steps."""
    trains = readings["split_of"].values.astype(str) == TRAIN
    z = readings["z"].transpose(EXAMPLE, LAYER, HEAD, WIDTH).values[trains & (readings["key_tokens"].values > 0)]
    found = np.full(z.shape[1:3], np.nan, dtype=np.float32)
    for layer, projection in output_projections(structure).items():
        weight = projection.weight.to(device=structure.device, dtype=torch.float32)  # (head, width, hidden)
        heads, width, _ = weight.shape
        own = torch.from_numpy(z[:, layer, :heads, :width]).to(structure.device).transpose(0, 1)  # (head, step, width)
        found[layer, :heads] = torch.bmm(own, weight).norm(dim=2).mean(dim=1).cpu().numpy()
    return found


# ---- key tokens -----------------------------------------------------------------------------------------------------


def key_token_indices(pieces: Sequence[str], rule: str = "content") -> list[int]:
    """The indices of an answer's key tokens, from the text of every token. The publication asks a large model for them.

    content: tokens of words that are no function words; where there are none, all tokens with a letter or a digit; where
    there are none, all. first, last: one token; last is the last with a letter or a digit. all: every token.

    >>> key_token_indices(["The", " answer", " is", " Par", "is", "."]), key_token_indices([" it"]), key_token_indices([])
    ([3, 4], [0], [])
    """
    every = list(range(len(pieces)))
    alphanumeric = [index for index in every if any(map(str.isalnum, pieces[index]))] or every
    if rule != "content":
        return {"all": every, "first": every[:1], "last": alphanumeric[-1:]}[rule]
    text, owner = "".join(pieces), [index for index, piece in enumerate(pieces) for _ in piece]
    words = [match for match in re.finditer(r"\w+", text) if match[0].casefold() not in FUNCTION_WORDS]
    content = {owner[at] for match in words for at in range(*match.span())}
    return [index for index in alphanumeric if index in content] or alphanumeric


# ---- answers and z --------------------------------------------------------------------------------------------------


def step_batches(
    decoder: PrefixCachedDecoder, chains: Sequence[Sequence[Ids]]
) -> Iterator[tuple[tuple[int, ...], list[Ids]]]:
    """Prefill the prompts of some questions step by step: for each step, the questions that have one, and its prompts.

    What was prefilled for a step is retained until ``decoder.clear()``.
    """
    there, before = tuple(range(len(chains))), None
    for number in range(max(map(len, chains))):
        going = tuple(line for line in there if len(chains[line]) > number)
        if before is not None and going != there:
            old, before = before, decoder.select(before, [there.index(line) for line in going])
            decoder.clear(old)
        there = going
        prompts = [chains[line][number] for line in there]
        following = [chains[line][number + 1] if len(chains[line]) > number + 1 else None for line in there]
        shared = [
            prompt[:-1] if later is None else prompt[: common_prefix_length([prompt, later])]
            for prompt, later in zip(prompts, following, strict=True)
        ]
        decoder.prefill(shared, before)
        decoder.prepare(prompts, shared)
        if before is not None and before != shared:
            decoder.clear(before)
        before = shared
        yield there, prompts


class StepReader:
    """Lets a model answer steps, judges the answers and reads the heads."""

    def __init__(self, model: Model, decoder: PrefixCachedDecoder, *, limit: int, key_tokens: str):
        self.model, self.decoder, self.limit, self.key_tokens = model, decoder, limit, key_tokens
        self.structure = Structure(model)
        self.ends = ending(model, numeric=False)

    def read(self, chains: Sequence[Chain], prompts: Sequence[Sequence[Ids]]) -> xr.Dataset:
        """The steps of some questions, in their order."""
        parts: dict[tuple[int, int], xr.Dataset] = {}
        order = sorted(range(len(prompts)), key=lambda index: (-max(map(len, prompts[index])), index))
        for start in range(0, len(order), self.decoder.rows):
            batch = order[start : start + self.decoder.rows]
            for number, (lines, some) in enumerate(step_batches(self.decoder, [prompts[index] for index in batch])):
                found = self._answered([chains[batch[line]][number] for line in lines], some)
                for row, line in enumerate(lines):
                    parts[batch[line], number] = found.isel({EXAMPLE: [row]})
            self.decoder.clear()
        return xr.concat([parts[key] for key in sorted(parts)], dim=EXAMPLE, data_vars="all")

    def _answered(self, steps: Sequence[Step], prompts: list[Ids]) -> xr.Dataset:
        answers = [reply.ids for reply in self.decoder.answer(prompts, self.limit, self.ends)]
        tokenizer: Any = self.model.tokenizer
        pieces = [[tokenizer.decode([token]) for token in ids] for ids in answers]
        keys = [key_token_indices(own, self.key_tokens) for own in pieces]
        texts = [text_of(self.model, ids) for ids in answers]
        verdicts = [judge_step(step, text) for step, text in zip(steps, texts, strict=True)]
        written: dict[str, list[str]] = {
            "function_of": [step.function for step in steps],
            "split_of": [step.split for step in steps],
            "chain": [step.chain for step in steps],
            "question": [step.question for step in steps],
            "subquestion": [step.subquestion for step in steps],
            "gold": [step.answer for step in steps],
            "answer": texts,
            "rule": [verdict.rule for verdict in verdicts],
            "key_text": [" | ".join(own[index] for index in some) for own, some in zip(pieces, keys, strict=True)],
        }
        counted = {
            "number": np.array([step.number for step in steps], dtype=np.int64),
            "answer_tokens": np.array([len(ids) for ids in answers], dtype=np.int64),
            "key_tokens": np.array([len(some) for some in keys], dtype=np.int64),
            "right": np.array([verdict.label == CORRECT for verdict in verdicts], dtype=bool),
        }
        return xr.Dataset(
            {name: (EXAMPLE, np.array(values, dtype=object)) for name, values in written.items()}
            | {name: (EXAMPLE, values) for name, values in counted.items()}
            | {"z": ((EXAMPLE, LAYER, HEAD, WIDTH), self._outputs(prompts, answers, keys))},
            coords={EXAMPLE: np.array([step.id for step in steps], dtype=object)},
        )

    def _outputs(self, prompts: list[Ids], answers: list[Ids], keys: list[list[int]]) -> np.ndarray:
        """(step, layer, head, width): mean over the key tokens."""
        longest = max(map(len, answers))
        card = self.structure.card
        if longest == 0:
            width = max(layer.value_dim for layer in card.per_layer)
            return np.full((len(answers), card.layers, card.heads, width), np.nan, dtype=np.float32)
        with torch.no_grad(), observe(self.structure, HeadOutputs(list(range(-longest, 0)))) as seen:
            self.decoder.teacher_force(prompts, answers)
        z = seen["outputs"]["z"].values  # (step, layer, head, token, width)
        found = np.full((*z.shape[:3], z.shape[4]), np.nan, dtype=np.float32)
        for row, (ids, some) in enumerate(zip(answers, keys, strict=True)):
            if some:
                found[row] = z[row][:, :, [longest - len(ids) + index for index in some]].mean(axis=2)
        return found
