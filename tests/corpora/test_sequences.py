"""Random tokens, said twice."""

from __future__ import annotations

import pytest

from headwise.core.errors import DataError
from headwise.corpora import REPEATS, repeated_random

VOCABULARY = range(4, 200)


def test_a_period_is_said_twice_after_the_prefix() -> None:
    made = repeated_random(5, 40, VOCABULARY, seed=0, prefix=[1, 2])
    assert [example.id for example in made] == [f"repeat-{i:02d}" for i in range(1, 6)]
    for example in made:
        assert example.register == REPEATS
        assert example.ids[:2] == (1, 2)
        assert len(example.ids) == 2 + 2 * 40
        assert example.ids[2:42] == example.ids[42:]


def test_tokens_are_distinct_within_a_period() -> None:
    for example in repeated_random(5, len(VOCABULARY), VOCABULARY, seed=0):
        assert sorted(example.ids[: len(VOCABULARY)]) == list(VOCABULARY)


def test_a_prefix_does_not_come_again() -> None:
    for example in repeated_random(20, 190, VOCABULARY, seed=0, prefix=[4, 5]):
        assert not {4, 5} & set(example.ids[2:])


def test_the_seed_decides() -> None:
    one, same, other = (repeated_random(3, 40, VOCABULARY, seed=seed) for seed in (0, 0, 1))
    assert one == same
    assert all(a.ids != b.ids for a, b in zip(one, other, strict=True))
    assert len({example.ids for example in one}) == 3


def test_the_order_of_the_vocabulary_does_not_matter() -> None:
    assert repeated_random(2, 9, set(VOCABULARY), seed=3) == repeated_random(2, 9, [*VOCABULARY][::-1], seed=3)


def test_more_of_them_begin_with_the_same() -> None:
    assert repeated_random(2, 9, VOCABULARY, seed=3) == repeated_random(5, 9, VOCABULARY, seed=3)[:2]


def test_too_small_a_vocabulary_is_refused() -> None:
    with pytest.raises(DataError, match="197 distinct tokens are needed and the vocabulary has 196; lower the period"):
        repeated_random(1, 197, VOCABULARY, seed=0)
