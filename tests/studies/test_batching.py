"""Batches: right padding, like lengths together, every example exactly once."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from headwise.corpora import Example
from headwise.studies.passes import batches

CPU = torch.device("cpu")


def examples(*lengths: int) -> list[Example]:
    """Of these lengths; the tokens tell which example they are from."""
    return [Example(f"e{i}", "prose", (100 + i,) * length) for i, length in enumerate(lengths)]


def test_short_rows_are_filled_on_the_right_with_their_last_token() -> None:
    (batch,) = batches([Example("a", "prose", (7, 8)), Example("b", "prose", (1, 2, 3, 4))], 8, CPU)
    assert batch.indices == (1, 0)
    assert batch.ids.tolist() == [[1, 2, 3, 4], [7, 8, 8, 8]]
    assert batch.valid.tolist() == [[True] * 4, [True, True, False, False]]
    assert (batch.ids.dtype, batch.valid.dtype) == (torch.long, torch.bool)


def test_the_longest_go_first_and_equals_keep_their_order() -> None:
    places = [batch.indices for batch in batches(examples(3, 5, 3, 5, 1), 10, CPU)]
    assert places == [(1, 3), (0, 2, 4)]


def test_an_example_longer_than_a_batch_goes_alone() -> None:
    assert [batch.ids.shape for batch in batches(examples(50, 3), 10, CPU)] == [(1, 50), (1, 3)]


@given(st.lists(st.integers(1, 30), max_size=40), st.integers(1, 100))
def test_every_example_is_there_once_and_no_batch_is_too_large(lengths: list[int], tokens: int) -> None:
    given_examples = examples(*lengths)
    made = list(batches(given_examples, tokens, CPU))
    assert sorted(place for batch in made for place in batch.indices) == list(range(len(lengths)))
    for batch in made:
        assert batch.ids.numel() <= tokens or len(batch.indices) == 1
        for place, ids, valid in zip(batch.indices, batch.ids, batch.valid, strict=True):
            assert tuple(ids[valid].tolist()) == given_examples[place].ids
    again = list(batches(given_examples, tokens, CPU))
    assert [batch.indices for batch in again] == [batch.indices for batch in made]


def test_nothing_makes_no_batch() -> None:
    assert list(batches([], 10, CPU)) == []
