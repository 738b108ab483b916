"""A training run whose heads emerge at known steps: the planted model with two of its heads turned down in early checkpoints.

A head's query is its planted one times a share. At 0 its attention is uniform, at 0.01 nearly so, at 1 it is the planted head.

    step        0     1     2     4     8    16    32
    previous    0     0   .01     1     1     1     1      so half-way lies between 2 and 4
    induction   0     0     0     0   .01     1     1      and between 8 and 16
    sink        1     1     1     1     1     1     1      never changes
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
from planted import PLANTED, _columns, planted_profile_model, tiny_passages

STEPS = (0, 1, 2, 4, 8, 16, 32)
SHARES = {"previous": (0, 0, 0.01, 1, 1, 1, 1), "induction": (0, 0, 0, 0, 0.01, 1, 1)}
BY = {"previous": (2, 4), "induction": (8, 16)}  # the last checkpoint before half-way, and the next
LOSS = (5.0, 4.9, 4.8, 4.0, 3.9, 1.0, 0.9)
TEXTS = tiny_passages(6, tokens=(40, 60))


def checkpoint(step: int):
    """The model at one of `STEPS`."""
    model = planted_profile_model()
    with torch.no_grad():
        for kind, shares in SHARES.items():
            layer, head = PLANTED[kind]
            attention = model.hf.transformer.h[layer].attn.c_attn
            attention.weight[:, _columns(0, head)] *= shares[STEPS.index(step)]
            attention.bias[_columns(0, head)] *= shares[STEPS.index(step)]
        at = [shares[STEPS.index(step)] for shares in SHARES.values()]
        for parameter in model.hf.parameters():  # training changes all weights, which is what a digest relies on
            parameter += 1e-6 * (1 + at[0] + 2 * at[1])
    return model


def save_run(folder: Path, steps=STEPS) -> Path:
    """The checkpoints as folders ``step-N``, with the trainer's record."""
    for step in steps:
        model, home = checkpoint(step), folder / f"step-{step}"
        model.hf.save_pretrained(home)
        model.tokenizer.save_pretrained(home)
        log = [{"step": one, "loss": LOSS[STEPS.index(one)], "grad_norm": 1.0} for one in STEPS if one <= step]
        (home / "trainer_state.json").write_text(json.dumps({"global_step": step, "log_history": log}))
    return folder
