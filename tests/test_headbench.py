"""The head benchmark: its truth is what was planted, its counts are right, and the page is what was measured."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from planted import PlantedHead, planted_heads_model, tiny_model
from transformers import LlamaConfig, LlamaForCausalLM

from headwise.interventions import ScaleHeads
from headwise.model import load
from headwise.seam import observe

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
import ground_truth
import headbench


def found(score, named, truth):
    return headbench.Found(np.array(score, dtype=float), np.array(named, dtype=bool), np.array(truth, dtype=bool))


def test_the_counts_of_two_models_by_hand():
    one = found([0.9, 0.2, 0.8, 0.1], [1, 0, 1, 0], [1, 1, 0, 0])
    other = found([0.7, 0.3, 0.2, 0.1], [1, 0, 0, 0], [1, 0, 0, 0])
    told = headbench.summary([one, other])
    assert (told["models"], told["heads"], told["true"], told["named"]) == (2, 8, 3, 3)
    assert told["precision"][0] == pytest.approx(2 / 3) and told["recall"][0] == pytest.approx(2 / 3)
    assert told["auroc"][0] == pytest.approx((5 + 4 + 2.5) / 15)  # .9, .7 and .2 against .8, .3, .2, .1, .1
    assert all(low <= value <= high for value, low, high in (told["precision"], told["recall"], told["auroc"]))
    nothing = headbench.summary([found([0.1, 0.2], [0, 0], [0, 0])])
    assert nothing["precision"] is nothing["recall"] is nothing["auroc"] is None


def test_clear_heads_are_found_and_their_weak_likenesses_are_not_named():
    rows = headbench.attention_rows(
        ((level, known) for level, known in headbench.planted_models(range(2)) if "clear" in level), False
    )
    for kind in ground_truth.KINDS:
        told = headbench.summary(rows["planted, clear", kind, "role"])
        assert told["true"] == told["named"] and (told["auroc"] is None or told["auroc"][0] == 1)
    assert sum(headbench.summary(models)["true"] for models in rows.values()) > 0


def test_a_finder_that_reads_another_map_would_not_pass():
    known = ground_truth.planted("clear", 1)
    previous, sink = (known.truth[kind] for kind in ("previous", "sink"))
    assert previous.any() and not (previous & sink).any()
    told = headbench.summary([found(sink.ravel(), sink.ravel(), previous.ravel())])
    assert told["recall"][0] == 0 and told["auroc"][0] < 0.6


def test_the_page_is_what_was_measured():
    assert headbench.PAGE.read_text(encoding="utf-8") == headbench.page(headbench.stored()), "headbench.py --page"


# ---- knock-out ------------------------------------------------------------------------------------------------------


def test_without_its_only_key_a_planted_head_attends_elsewhere():
    model = planted_heads_model([PlantedHead("previous", 0, 3)])
    ids = torch.tensor([[1, 20, 21, 22, 23, 24]])
    z = [None, None]
    for row, changes in enumerate(([], [ground_truth.KnockOut([(0, 3)], back=1)])):
        with observe(model, *changes), torch.no_grad():
            z[row] = model.hf.transformer(ids).last_hidden_state
    with observe(model, ScaleHeads("L0H3", 0.0)), torch.no_grad():
        without = model.hf.transformer(ids).last_hidden_state
    assert (z[0] - z[1])[:, 1:].abs().amax(dim=-1).min() > 0.1  # from the second token on, all change
    assert not torch.allclose(z[1], without, atol=1e-3)  # the row keeps its sum, on other keys


def test_a_model_that_does_not_copy_has_no_confirmed_heads():
    model = load(*tiny_model("llama", layers=2))
    ids = torch.randint(
        20, 200, (24, 9), generator=torch.Generator().manual_seed(0)
    )  # few give a loss that differs by chance
    assert not any(truth.any() for truth in ground_truth.confirm(model, ids).values())


# ---- conversions ----------------------------------------------------------------------------------------------------


def a_program(seed: int = 0) -> dict[str, np.ndarray]:
    """Random weights as tracr names them, and what a transformer without norms makes of them, written out."""
    rng, count, key, size, layers, vocabulary, length, inner = np.random.default_rng(seed), 2, 5, 7, 2, 6, 9, 8

    def draw(*shape):
        return rng.normal(size=shape).astype(np.float32) / 2

    program = {"token_embed|embeddings": draw(vocabulary, size), "pos_embed|embeddings": draw(length, size)}
    for layer in range(layers):
        at = f"transformer/layer_{layer}"
        for name in ("query", "key", "value"):
            program |= {f"{at}/attn/{name}|w": draw(size, count * key), f"{at}/attn/{name}|b": draw(count * key)}
        program |= {f"{at}/attn/linear|w": draw(count * key, size), f"{at}/attn/linear|b": draw(size)}
        program |= {f"{at}/mlp/linear_1|w": draw(size, inner), f"{at}/mlp/linear_1|b": draw(inner)}
        program |= {f"{at}/mlp/linear_2|w": draw(inner, size), f"{at}/mlp/linear_2|b": draw(size)}
    ids = rng.integers(0, vocabulary, (1, length))
    x, maps = program["token_embed|embeddings"][ids[0]] + program["pos_embed|embeddings"], []
    for layer in range(layers):
        at = f"transformer/layer_{layer}"
        q, k, v = (
            (x @ program[f"{at}/attn/{name}|w"] + program[f"{at}/attn/{name}|b"]).reshape(length, count, key)
            for name in ("query", "key", "value")
        )
        logits = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(key)
        logits = np.where(np.tril(np.ones((length, length), dtype=bool)), logits, -np.inf)
        weights = np.exp(logits - logits.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        z = np.einsum("hqk,khd->qhd", weights, v).reshape(length, count * key)
        x = x + z @ program[f"{at}/attn/linear|w"] + program[f"{at}/attn/linear|b"]
        hidden = np.maximum(x @ program[f"{at}/mlp/linear_1|w"] + program[f"{at}/mlp/linear_1|b"], 0)
        x = x + hidden @ program[f"{at}/mlp/linear_2|w"] + program[f"{at}/mlp/linear_2|b"]
        maps.append(weights)
    checks = {"check|ids": ids, "check|residual": x[None], "check|attention": np.stack(maps)[None].astype(np.float32)}
    return program | checks | {"heads": np.array([["", ""]] * layers)}


def test_a_transformer_without_norms_becomes_a_gpt2_that_does_the_same():
    _, difference = ground_truth.convert(a_program())
    assert difference < 1e-5


def test_a_conversion_that_is_not_exact_is_refused():
    program = a_program()
    program["check|residual"] = program["check|residual"] + 0.01
    with pytest.raises(ground_truth.NotExact, match="away from tracr's"):
        ground_truth.convert(program)


def test_a_checkpoint_of_llama2c_is_read():
    """Written from a LlamaForCausalLM, with the rows of queries and keys in the order of llama2.c."""
    config = LlamaConfig(
        vocab_size=11, hidden_size=12, intermediate_size=20, num_hidden_layers=2, num_attention_heads=3,
        num_key_value_heads=3, max_position_embeddings=16, rms_norm_eps=1e-5, tie_word_embeddings=True,
    )  # fmt: skip
    torch.manual_seed(0)
    hf = LlamaForCausalLM(config).eval()

    def pairs(weight):
        return weight.unflatten(0, (-1, 2, 2)).transpose(1, 2).flatten(0, 2)

    layers = hf.model.layers
    parts = [hf.model.embed_tokens.weight]
    parts += [one.input_layernorm.weight for one in layers]
    parts += [pairs(one.self_attn.q_proj.weight) for one in layers] + [
        pairs(one.self_attn.k_proj.weight) for one in layers
    ]
    parts += [one.self_attn.v_proj.weight for one in layers] + [one.self_attn.o_proj.weight for one in layers]
    parts += [one.post_attention_layernorm.weight for one in layers]
    parts += [one.mlp.gate_proj.weight for one in layers] + [one.mlp.down_proj.weight for one in layers]
    parts += [one.mlp.up_proj.weight for one in layers] + [hf.model.norm.weight]
    head = np.array([12, 20, 2, 3, 3, 11, 16], dtype=np.int32).tobytes()
    data = head + b"".join(one.detach().numpy().tobytes() for one in parts)
    ids = torch.tensor([[1, 5, 7, 2, 9]])
    with torch.no_grad():
        assert torch.equal(ground_truth.read_llama2c(data)(ids).logits, hf(ids).logits)
