"""What is kept of looks: bounded in bytes, the longest unused first."""

import torch

from headwise.kernels import Attention, AttentionMask
from headwise.live.pooled_maps import AttentionStore, size_of


def attention(tokens: int) -> Attention:
    q = torch.zeros(1, 2, tokens, 4)
    return Attention(q, q[:, :1].clone(), 1.0, AttentionMask(tokens, tokens, 0, q.device))


def test_the_longest_unused_goes_first():
    one = size_of(attention(10))
    assert one == 4 * (2 * 10 * 4 + 10 * 4)
    store = AttentionStore(2 * one)
    store.put("a", 0, attention(10))
    store.put("a", 1, attention(10))
    assert store.get("a", 0) is not None  # used: now layer 1 is the older one
    store.put("b", 0, attention(10))
    assert store.get("a", 1) is None
    assert store.get("a", 0) is not None and store.get("b", 0) is not None
    assert store.bytes == 2 * one


def test_what_is_larger_than_the_room_stays_out():
    store = AttentionStore(10)
    store.put("a", 0, attention(10))
    assert store.get("a", 0) is None and store.bytes == 0


def test_a_look_is_forgotten_as_a_whole():
    store = AttentionStore()
    for run in ("a", "b"):
        for layer in range(3):
            store.put(run, layer, attention(5))
    store.remove("a")
    assert store.get("a", 1) is None and store.get("b", 1) is not None
    assert store.bytes == 3 * size_of(attention(5))


def test_putting_again_counts_once():
    store = AttentionStore()
    store.put("a", 0, attention(5))
    store.put("a", 0, attention(5))
    assert store.bytes == size_of(attention(5))
