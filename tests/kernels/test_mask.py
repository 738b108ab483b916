"""A `AttentionMask` says the same thing in six ways: matrix, span, hide, sees, seen_by, and who counts."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headwise.kernels.attention import HIDDEN, AttentionMask

CPU = torch.device("cpu")


@st.composite
def sights(draw, masks=True):
    """Any visibility, with its batch size and (for masks of their own) its number of heads."""
    batch, queries = draw(st.integers(1, 3)), draw(st.integers(1, 12))
    keys = draw(st.integers(1, 14))
    offset = draw(st.sampled_from([keys - queries, 0, draw(st.integers(-4, 6))]))
    window = draw(st.none() | st.integers(1, 15))

    def flags(*shape):
        generator = torch.Generator().manual_seed(draw(st.integers(0, 10**6)))
        return torch.rand(shape, generator=generator) < draw(st.sampled_from([0.2, 0.7, 0.95]))

    key_valid = flags(batch, keys) if draw(st.booleans()) else None
    query_valid = flags(batch, queries) if draw(st.booleans()) else None
    mask = None
    if masks and draw(st.booleans()):
        mask = flags(draw(st.sampled_from([1, batch])), draw(st.sampled_from([1, 4])), queries, keys)
    return batch, AttentionMask(queries, keys, offset, CPU, window, key_valid, query_valid, mask)


def by_hand(batch: int, sight: AttentionMask) -> torch.Tensor:
    """The definition, one pair at a time."""
    heads = 4 if sight.explicit is not None else 1
    seen = torch.zeros(batch, heads, sight.queries, sight.keys, dtype=torch.bool)
    for b in range(batch):
        for i in range(sight.queries):
            for j in range(sight.keys):
                distance = i + sight.offset - j
                real = sight.key_valid is None or bool(sight.key_valid[b, j])
                seen[b, :, i, j] = distance >= 0 and (sight.window is None or distance < sight.window) and real
    return seen if sight.explicit is None else sight.explicit.expand(batch, heads, -1, -1)


@given(sights())
@settings(max_examples=60, deadline=None)
def test_matrix_is_the_definition(drawn):
    batch, sight = drawn
    expected = by_hand(batch, sight)
    assert torch.equal(sight.matrix().expand_as(expected), expected)


@given(sights())
@settings(max_examples=150, deadline=None)
def test_counts_of_both_sides(drawn):
    batch, sight = drawn
    matrix = sight.matrix().expand(batch, -1, -1, -1)
    counts = sight.valid_queries(batch)
    assert torch.equal(sight.n_visible_keys(batch).expand(-1, matrix.shape[1], -1), matrix.sum(dim=-1).float())
    received = (matrix & counts[:, None, :, None]).sum(dim=2).float()
    assert torch.equal(sight.n_visible_queries(batch).expand_as(received), received)
    assert torch.equal(sight.rows_with_keys(batch).expand(matrix.shape[:3]), matrix.any(dim=-1) & counts[:, None])


@given(sights(), st.data())
@settings(max_examples=150, deadline=None)
def test_span_holds_all_that_is_seen_and_hide_hides_the_rest(drawn, data):
    batch, sight = drawn
    start = data.draw(st.integers(0, sight.queries - 1))
    stop = data.draw(st.integers(start + 1, sight.queries))
    matrix = sight.matrix().expand(batch, -1, -1, -1)[:, :, start:stop]
    low, high = sight.span(start, stop)
    assert 0 <= low < high <= sight.keys
    assert not bool(matrix[..., :low].any())
    assert not bool(matrix[..., high:].any())

    kv_heads, group = 2, 2
    first = data.draw(st.integers(0, batch - 1))
    heads = data.draw(st.sampled_from([slice(0, 2), slice(0, 1), slice(1, 2)]))
    logits = torch.zeros(batch - first, heads.stop - heads.start, group, stop - start, high - low)
    sight.hide(logits, start, stop, low, slice(first, batch), heads)
    if (bias := sight.key_bias()) is not None:
        logits += bias[first:, None, None, None, low:high]
    expected = matrix[first:, :, :, low:high].expand(-1, kv_heads * group, -1, -1).unflatten(1, (kv_heads, group))
    assert torch.equal(logits == 0, expected[:, heads])
    assert bool((logits[logits != 0] <= HIDDEN).all())


@given(sights(masks=False))
@settings(max_examples=60, deadline=None)
def test_a_compact_sight_is_its_own_mask(drawn):
    """The same sight given as an explicit mask gives the same counts."""
    batch, sight = drawn
    explicit = replace(sight, window=None, key_valid=None, explicit=sight.matrix())
    for ask in ("n_visible_keys", "n_visible_queries", "rows_with_keys"):
        mine, theirs = getattr(sight, ask)(batch), getattr(explicit, ask)(batch)
        assert torch.equal(mine.expand_as(theirs), theirs), ask


def test_the_drawing_in_the_docstring():
    valid = torch.tensor([[False, True, True, True, True]])
    windowed = AttentionMask(5, 5, 0, CPU, window=3, key_valid=valid, query_valid=valid)
    assert drawing(windowed) == [".....", ".x...", ".xx..", ".xxx.", "..xxx"]
    assert windowed.valid_queries(1).tolist() == valid.tolist()
    assert drawing(AttentionMask(3, 5, 2, CPU)) == ["xxx..", "xxxx.", "xxxxx"]


def drawing(sight: AttentionMask) -> list[str]:
    return ["".join("x" if seen else "." for seen in row) for row in sight.matrix()[0, 0].tolist()]


@pytest.mark.parametrize("window", [None, 4])
def test_hiding_is_done_at_the_edges_only(window):
    """Logits of rows that see everything are not touched: not even by adding nought."""
    sight = AttentionMask(64, 64, 0, CPU, window=window)
    logits = torch.full((1, 1, 1, 8, 8), 3.0)
    sight.hide(logits, 32, 40, 20, slice(0, 1), slice(0, 1))
    assert torch.equal(logits[0, 0, 0], torch.full((8, 8), 3.0) if window is None else torch.full((8, 8), HIDDEN))
