"""A toy: text in which a token is told by the third before it, and a model of two layers that has learnt so."""

import copy

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

import headwise as hw
from headwise.training import SparsityRecipe, Texts

LENGTH = 24


def text(tokens, seed):
    rng = np.random.default_rng(seed)
    ids = rng.integers(0, 16, size=tokens)
    chance = rng.random(tokens) < 0.1
    for place in range(3, tokens):
        if not chance[place]:
            ids[place] = (ids[place - 3] + 1) % 16
    return ids.astype(np.int32)


@pytest.fixture(scope="session")
def texts():
    return Texts({"counting": text(40_000, 0)})


@pytest.fixture(scope="session")
def held_out():
    return Texts({"other": text(4_000, 1)})


@pytest.fixture(scope="session")
def _dense(texts):
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=16, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, max_position_embeddings=128,
    )  # fmt: skip
    hf = LlamaForCausalLM(config)
    optimiser = torch.optim.AdamW(hf.parameters(), lr=1e-2)
    for step in range(200):
        ids = torch.from_numpy(texts.draw(16, LENGTH, seed=1, step=step)).long()
        optimiser.zero_grad()
        hf(input_ids=ids, labels=ids).loss.backward()
        optimiser.step()
    return hf


@pytest.fixture
def toy(_dense):
    """A fresh copy of the trained model."""
    return hw.load(copy.deepcopy(_dense))


@pytest.fixture(scope="session")
def recipe():
    def make(**given):
        base = {
            "steps": 240, "batch": 16, "length": LENGTH, "learning_rate": 5e-3, "slack": 0.05, "hold": "distance", "rank": 0,
            "evaluate": 20, "checkpoint": 100, "speed": 0.03, "warmup": 5,
        }  # fmt: skip
        return SparsityRecipe(**{**base, **given})

    return make
