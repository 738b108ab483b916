"""Train a small model in which induction appears, and keep its checkpoints: the material of the tutorial on training.

What is it for?
    Nobody needs a model of 60,000 weights, but its training can be repeated by anybody in a minute, with several seeds, and
    what its heads become is simple enough to be checked head by head.  `headwise build --checkpoints` reads the checkpoints
    (docs/tutorials/training.md); benchmarks take the last ones as models whose heads are known.

Which model?
    A Llama of two layers of four heads, 64 wide, that reads 64 characters.  Two layers, because induction takes a head that
    reads another head's output.  Queries and keys have a bias, drawn at random: without one, no head can attend by distance
    alone before the embeddings share a direction, and induction comes after ten times as many steps.

Which text?
    Half of the rows are cut from the packaged passages (in lower case, every eighth passage is held out).  There the previous
    character helps.  The others are random characters, repeated until the row is full, whose period is random (8 to 31): after
    the first period only looking back predicts them, and no fixed distance does.

Which checkpoints?
    Steps 0, 1, 2, 4, 8, ... and, where most happens (512 to 2048), every 64th.  Each is a folder ``step-N`` that transformers
    loads, with a ``trainer_state.json`` as transformers' Trainer writes it, which holds the losses so far: on the training
    rows, on held-out passages and on new repeated random characters.

Are the heads there?
    At the end every head is ablated exactly (its output is set to its mean over the same tokens), one by one, then the heads of
    each layer together, since heads of one kind can replace each other.  How much the loss rises, on repeated characters and
    on those not seen before, is kept in ``ablation.json``.

Use
    ``python scripts/train_small.py runs/seed0 --seed 0``      about 30 seconds on one core; the same files for the same seed
    ``python scripts/train_small.py runs/seed1 --seed 1 --steps 4096``
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

import headwise as hw
from headwise.core.dims import head_name
from headwise.corpora import packaged_passages

VOCABULARY, LAYERS, HEADS, WIDTH = 64, 2, 4, 64
ROWS, LENGTH, TEXT_ROWS = 8, 64, 4  # rows per step, tokens per row, rows of text among them
PERIODS = (8, 31)  # of repeated tokens, drawn evenly on a log scale
RATE, WARM_UP = 5e-3, 200  # learning rate, and the steps until it is reached
SPREAD, BIAS = 0.125, 0.5  # standard deviations of the first weights, and of the biases of queries and keys
DENSE = range(512, 2049, 64)  # steps with a checkpoint, next to the powers of two
HELD_OUT = 8  # every so many passages, one is not trained on
SEQUENCES = 64  # rows of each kind that the losses are measured on
BEGIN, UNKNOWN = "<s>", "<unk>"


def main() -> None:
    """Train, save, ablate."""
    parser = argparse.ArgumentParser(description="Train a small model in which induction appears.")
    parser.add_argument("output", type=Path, help="folder of the checkpoints")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=3072)
    given = parser.parse_args()
    train(given.output, seed=given.seed, steps=given.steps)
    rows = ablate(given.output / f"step-{given.steps}", seed=given.seed)
    (given.output / "ablation.json").write_text(json.dumps(rows, indent=1))
    for row in sorted(rows, key=lambda row: -row["repeated"])[:6]:
        print(row)


def schedule(steps: int) -> list[int]:
    """The steps with a checkpoint.

    >>> schedule(600)
    [0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 576, 600]
    """
    doubling = (2**power for power in range(steps.bit_length()))
    return sorted({0, steps, *(step for step in (*doubling, *DENSE) if step < steps)})


def train(output: Path, *, seed: int, steps: int) -> None:
    """Train with this seed, of weights and of rows, and save the checkpoints of the schedule."""
    torch.set_num_threads(1)  # the order of sums, hence the numbers, depend on it
    torch.manual_seed(seed)
    tokenizer = small_tokenizer()
    text, held_out = (token_stream(tokenizer, held_out=part) for part in (False, True))
    model = new_model()
    optimiser = torch.optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, 0.98), weight_decay=0.01, fused=True)
    log: list[dict[str, Any]] = []
    kept = schedule(steps)
    for step in range(steps + 1):
        if step in kept:
            log.append({"step": step, **losses(model, held_out)})
            save(model, tokenizer, output / f"step-{step}", step, log)
            print(log[-1], flush=True)
        if step == steps:
            return
        for group in optimiser.param_groups:
            group["lr"] = RATE * min(1, (step + 1) / WARM_UP)
        rows = training_rows(text, np.random.default_rng([seed, step]))
        loss = token_losses(model, rows).mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad()
        log.append({"step": step + 1, "loss": loss.item()})


def new_model() -> LlamaForCausalLM:
    """The model before its first step."""
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCABULARY, hidden_size=WIDTH, intermediate_size=WIDTH, num_hidden_layers=LAYERS,
            num_attention_heads=HEADS, num_key_value_heads=HEADS, max_position_embeddings=LENGTH, attention_bias=True,
            tie_word_embeddings=True, initializer_range=SPREAD, bos_token_id=0, eos_token_id=0, pad_token_id=0,
        )
    )  # fmt: skip
    for name, parameter in model.named_parameters():
        if name.endswith(("q_proj.bias", "k_proj.bias")):
            torch.nn.init.normal_(parameter, std=BIAS)
    return model


def small_tokenizer() -> PreTrainedTokenizerFast:
    """Characters of the packaged passages in lower case, the most frequent ones; a text begins with ``<s>``, token 0."""
    counts = Counter(character for item in packaged_passages().items for character in item.text.lower())
    known = [BEGIN, UNKNOWN, *(character for character, _ in counts.most_common(VOCABULARY - 2))]
    vocabulary = {character: index for index, character in enumerate(known)}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token=UNKNOWN))
    backend.normalizer = normalizers.Lowercase()
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    backend.decoder = decoders.Fuse()
    backend.post_processor = processors.TemplateProcessing(single=f"{BEGIN} $A", special_tokens=[(BEGIN, 0)])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token=BEGIN, eos_token=BEGIN, pad_token=BEGIN, unk_token=UNKNOWN
    )


def token_stream(tokenizer: PreTrainedTokenizerFast, *, held_out: bool) -> np.ndarray:
    """The passages, those held out or the others, as one sequence of tokens."""
    items = packaged_passages().items
    chosen = [item.text for index, item in enumerate(items) if (index % HELD_OUT == 0) == held_out]
    return np.concatenate([tokenizer(text).input_ids for text in chosen])


def training_rows(text: np.ndarray, rng: np.random.Generator) -> Tensor:
    """(ROWS, LENGTH): cuts of the text, then repeated random tokens."""
    starts = rng.integers(len(text) - LENGTH, size=TEXT_ROWS)
    low, high = np.log((PERIODS[0], PERIODS[1] + 1))
    periods = np.exp(rng.uniform(low, high, ROWS - TEXT_ROWS)).astype(int)
    return torch.from_numpy(
        np.stack([text[start : start + LENGTH] for start in starts] + [repeated(period, rng) for period in periods])
    )


def repeated(period: int, rng: np.random.Generator) -> np.ndarray:
    """(LENGTH,): ``<s>``, then distinct random tokens, again and again."""
    tokens = 2 + rng.choice(VOCABULARY - 2, size=period, replace=False)
    return np.concatenate([[0], np.resize(tokens, LENGTH - 1)])


def repeats_to_measure() -> Tensor:
    """(SEQUENCES, LENGTH): repeated random tokens of the longest period; the same for all seeds and checkpoints."""
    rng = np.random.default_rng(2**32)
    return torch.from_numpy(np.stack([repeated(PERIODS[1], rng) for _ in range(SEQUENCES)]))


def token_losses(model: LlamaForCausalLM, rows: Tensor) -> Tensor:
    """(row, LENGTH - 1): the loss of each token that follows another."""
    logits = model(rows).logits[:, :-1]
    return cross_entropy(logits.transpose(1, 2), rows[:, 1:], reduction="none")


def losses(model: LlamaForCausalLM, held_out: np.ndarray) -> dict[str, float]:
    """On held-out passages, and on the repeated part of random sequences."""
    rows = torch.from_numpy(held_out[: SEQUENCES * LENGTH].reshape(-1, LENGTH))
    with torch.no_grad():
        text, repeats = token_losses(model, rows), token_losses(model, repeats_to_measure())
    return {"eval_loss": text.mean().item(), "eval_repeated_loss": repeats[:, PERIODS[1] + 1 :].mean().item()}


def save(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, folder: Path, step: int, log: list[dict[str, Any]]
) -> None:
    """A checkpoint as transformers saves one, with the losses so far."""
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    state = {"global_step": step, "log_history": log}
    (folder / "trainer_state.json").write_text(json.dumps(state, indent=1))


def ablate(checkpoint: Path, *, seed: int) -> list[dict[str, Any]]:
    """By how much the loss rises without each head, on repeated tokens and on the first period, in nats."""
    model = hw.load(checkpoint)
    rows = repeats_to_measure()

    def measure(*interventions: hw.Intervention) -> dict[str, float]:
        with torch.no_grad(), hw.observe(model, *interventions):
            found = token_losses(model.hf, rows)
        return {"repeated": found[:, PERIODS[1] + 1 :].mean().item(), "new": found[:, : PERIODS[1]].mean().item()}

    with torch.no_grad(), hw.observe(model, hw.HeadOutputs()) as seen:
        model.hf(rows)
    mean = seen["outputs"].z.mean(("example", "token"))  # (layer, head, width)
    before = measure()
    sets = {head_name(layer, head): [(layer, head)] for layer in range(LAYERS) for head in range(HEADS)}
    sets |= {f"layer {layer}": [(layer, head) for head in range(HEADS)] for layer in range(LAYERS)}
    found = []
    for name, heads in sets.items():
        after = measure(hw.MeanAblation(heads, mean))
        change = {what: round(after[what] - before[what], 4) for what in before}
        found.append({"seed": seed, "ablated": name, **change})
    return found


if __name__ == "__main__":
    main()
