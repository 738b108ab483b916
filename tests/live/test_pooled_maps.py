"""Small maps from a stream, and windows of one head: what `Patterns` shows, for every way of attending."""

import numpy as np
import pytest
import torch
from families import FAMILIES, build, texts
from families import tiny as family
from planted import tiny_model
from wire_maps import largest, plain

from headwise.live.pooled_maps import AttentionStore, SmallMaps, StoreAttention, head_window, segment_starts
from headwise.model import load
from headwise.model.gate import put_gate
from headwise.seam import observe

FEW = ("llama", "mistral", "gemma2", "gpt_oss", "deepseek_v3", "gpt2")  # windows, soft-cap, sinks, MLA, no GQA
TOKENS = 29


def read(model, ids, size):
    small, store = SmallMaps(size), AttentionStore()
    with observe(model, small, StoreAttention(store, "a")), torch.no_grad():
        model(input_ids=ids[None], use_cache=False)
    return small.result()["maps"].values[0], store


@pytest.mark.parametrize("name", FEW)
@pytest.mark.parametrize("size", [64, 7])
def test_every_pixel_is_the_largest_weight_of_its_rectangle(name, size):
    assert name in FAMILIES
    model, (ids,) = family(name), texts(TOKENS)
    maps, store = read(model, ids, size)
    whole = plain(model, ids)
    edges = segment_starts(0, TOKENS, size)
    np.testing.assert_allclose(maps, largest(whole, edges, edges), atol=2e-6)
    rows, columns = (5, 23), (2, 19)
    for layer in range(len(whole)):
        found = head_window(store.get("a", layer), 3, rows, columns, size)
        expected = largest(whole[layer, 3], segment_starts(*rows, size), segment_starts(*columns, size))
        np.testing.assert_allclose(found, expected, atol=2e-6)


def test_a_sparse_model_s_cut_edges_are_nought_and_not_hidden():
    hf = build("llama")
    put_gate(hf, 0.1)
    (ids,) = texts(TOKENS)
    maps, store = read(hf, ids, 64)
    whole = plain(hf, ids)
    assert (whole == 0).any()
    np.testing.assert_allclose(maps, whole, atol=2e-6)
    np.testing.assert_allclose(head_window(store.get("a", 1), 2, (0, TOKENS), (0, TOKENS), 64), whole[1, 2], atol=2e-6)


def test_long_texts_come_in_several_blocks(monkeypatch):
    monkeypatch.setattr("headwise.live.pooled_maps.MAX_BLOCK_NUMBERS", 500)
    model, (ids,) = family("llama"), texts(120)
    maps, _ = read(model, ids, 16)
    edges = segment_starts(0, 120, 16)
    np.testing.assert_allclose(maps, largest(plain(model, ids), edges, edges), atol=2e-6)


def test_what_no_query_of_a_window_can_see_is_nan():
    model = load(*tiny_model(layers=1))
    _, store = read(model, torch.arange(5, 25), 64)
    assert np.isnan(head_window(store.get("a", 0), 0, (0, 5), (10, 20), 64)).all()
