"""Runs in tracr's own environment, as a child of `ground_truth`: compiles random programs, and writes their weights.

    python -m peers.tracr_programs FOLDER --programs 40 --seed 0

A program computes many heads and returns one of them (the others get the factor 0: the compiler lists all values that a sum
can take, and a true sum of many heads has too many). Each is a RASP selector whose kind is known: previous token, induction,
duplicate token (every occurrence, the token itself included), first token; and kinds that must not be taken for these: two
back, the token after the induction target, the token itself, one letter, all earlier tokens. Every program has its own
vocabulary, its own choice of kinds, and its own letters that the heads count. Heads that a layer leaves unused attend
uniformly.

One file per program: the weights, the labels of heads, and what tracr's own model (jax) makes of three sequences, so that
the conversion of the weights can be checked. Does not know Headwise. Compiler: Lindner et al. 2023, arXiv 2301.05062.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path
from typing import Any

import jax
import numpy as np
from tracr.compiler import compiling
from tracr.rasp import rasp

LETTERS = "abcdefghijklmnop"
POSITIONS = 34  # tokens after the first
KINDS = ("previous", "induction", "duplicate", "sink", "two back", "after induction", "own token", "letter", "uniform")
CHOSEN = 0.6  # probability that a program has heads of a kind
CHECKED = 3  # sequences


def program(rng: random.Random, vocabulary: str) -> Any:
    """Heads of random kinds; each is named KIND/NUMBER."""
    chosen = [kind for kind in KINDS if rng.random() < CHOSEN] or ["previous"]
    back = {
        steps: rasp.Aggregate(_back(steps), rasp.tokens, default=None).named(f"{name}/moves tokens")
        for steps, name in ((1, "previous"), (2, "two back"))
    }
    selectors = {
        "previous": lambda: _back(1),
        "two back": lambda: _back(2),
        "induction": lambda: rasp.Select(back[1], rasp.tokens, rasp.Comparison.EQ),
        "after induction": lambda: rasp.Select(back[2], rasp.tokens, rasp.Comparison.EQ),
        "duplicate": lambda: rasp.Select(rasp.tokens, rasp.tokens, rasp.Comparison.EQ),
        "sink": lambda: rasp.Select(rasp.tokens, rasp.tokens, rasp.Comparison.FALSE),
        "own token": lambda: rasp.Select(rasp.indices, rasp.indices, rasp.Comparison.EQ),
        "letter": lambda: _letter(rng.choice(vocabulary)),
        "uniform": lambda: rasp.Select(rasp.indices, rasp.indices, rasp.Comparison.LEQ),
    }
    heads = [
        rasp.numerical(
            rasp.Aggregate(selectors[kind](), _counted(rng.choice(vocabulary), f"{kind}/{number}"), default=0)
        ).named(f"{kind}/{number}")
        for kind in chosen
        for number in range(rng.randint(1, 2))
    ]
    while len(heads) > 1:  # a tree, so that the program stays shallow
        pairs = [heads[at : at + 2] for at in range(0, len(heads), 2)]
        heads = [rasp.numerical(rasp.LinearSequenceMap(*pair, 1, 0)) if len(pair) == 2 else pair[0] for pair in pairs]
    return heads[0]


def _back(steps: int) -> Any:
    return rasp.Select(rasp.indices, rasp.indices, lambda key, query: key == query - steps)


def _letter(letter: str) -> Any:
    return rasp.Select(rasp.tokens, rasp.tokens, lambda key, query: key == letter)


def _counted(letter: str, name: str) -> Any:
    return rasp.numerical(rasp.Map(lambda token: float(token == letter), rasp.tokens)).named(f"{letter} for {name}")


def labels(params: dict[str, Any], residual: list[str], layers: int, heads: int) -> list[list[str]]:
    """The name of what each head writes, by layer and head; empty for heads that write nothing."""
    found = []
    for layer in range(layers):
        written = np.asarray(params[f"transformer/layer_{layer}/attn/linear"]["w"])  # (head x key, residual)
        rows = [np.abs(one).max(axis=0) > 0 for one in np.split(written, heads)]
        found.append([residual[int(row.argmax())].split(":")[0] if row.any() else "" for row in rows])
    return found


def save(path: Path, rng: random.Random) -> None:
    """Compile one program, and write it with what its model makes of some sequences."""
    vocabulary = LETTERS[: rng.randint(9, len(LETTERS))]
    model = compiling.compile_rasp_to_model(
        program(rng, vocabulary), set(vocabulary), POSITIONS, causal=True, compiler_bos="<s>", compiler_pad="<pad>"
    )
    config, encoder = model.model_config, model.input_encoder
    arrays = {
        f"{module}|{name}": np.asarray(values) for module, part in model.params.items() for name, values in part.items()
    }
    tokens = [["<s>", *rng.choices(vocabulary, k=POSITIONS - 2)] for _ in range(CHECKED)]
    outputs = [model.apply(one) for one in tokens]
    arrays["check|ids"] = np.array([encoder.encode(one) for one in tokens])
    arrays["check|residual"] = np.concatenate([np.asarray(one.transformer_output) for one in outputs])
    arrays["check|attention"] = np.stack(
        [[np.asarray(jax.nn.softmax(logits[0])) for logits in one.attn_logits] for one in outputs]
    )  # (sequence, layer, head, query, key)
    arrays["heads"] = np.array(labels(model.params, model.residual_labels, config.num_layers, config.num_heads))
    arrays["words"] = np.array(
        [str(word) for word, _ in sorted(encoder.encoding_map.items(), key=lambda item: item[1])]
    )
    np.savez_compressed(path, **arrays)


def main() -> None:
    """Write all programs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--programs", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    for number in range(options.programs):
        save(options.folder / f"program-{number:03d}.npz", random.Random(1000 * options.seed + number))


if __name__ == "__main__":
    main()
