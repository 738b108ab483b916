"""Pairs of prompts: equal length, the same end, answers of one token, and a count of what was dropped."""

import pytest
from planted import tiny_tokenizer

from headwise.core.errors import DataError
from headwise.corpora import CIRCUIT_TASKS, circuit_pairs


def letters(text: str) -> list[int]:
    """A tokenizer of one token a word, a comma, a dash or a digit, each with the blank in front of it."""
    tokens: list[str] = []
    for letter in text:
        alone = letter in " ,-" or letter.isdigit()
        if alone or not tokens or tokens[-1][-1] in ",-" or tokens[-1][-1].isdigit():
            tokens.append(letter)
        else:
            tokens[-1] += letter
    return [sum(ord(letter) * 131**place for place, letter in enumerate(token)) % 1_000_003 for token in tokens]


@pytest.mark.parametrize("name", CIRCUIT_TASKS)
def test_pairs_can_be_patched(name):
    pairs = circuit_pairs(name, letters, count=12, seed=0)
    assert len(pairs) == 12 and len(set(pairs.pairs)) == 12
    assert len({len(row) for row in (*pairs.clean, *pairs.corrupt)}) == 1
    for clean, corrupt, right, wrong in zip(pairs.clean, pairs.corrupt, pairs.right, pairs.wrong, strict=True):
        assert clean[-1] == corrupt[-1] and clean != corrupt
        assert len(right) == len(wrong) >= 1 and not set(right) & set(wrong)


@pytest.mark.parametrize("name", CIRCUIT_TASKS)
def test_the_same_seed_gives_the_same_pairs(name):
    one, again, other = (circuit_pairs(name, letters, count=8, seed=seed) for seed in (0, 0, 1))
    assert one.pairs == again.pairs and one.pairs != other.pairs


def test_what_is_right_is_right():
    pairs = circuit_pairs("greater_than", letters, count=12, seed=0)
    for pair in pairs.pairs:
        start, end = pair.clean.split(" of ")[1].split("-")
        other = int(pair.corrupt.split(" of ")[1].split("-")[0])
        assert all(int(start) < int(end + year) < other for year in pair.right)
        assert all(int(end + year) < int(start) for year in pair.wrong)
    for pair in circuit_pairs("indirect_object", letters, count=12, seed=0).pairs:
        giver = pair.clean.split(", ")[1].split()[0]
        assert pair.wrong == (f" {giver}",) and pair.right[0].strip() in pair.clean
        assert pair.corrupt.split(", ")[1].startswith(pair.right[0].strip())
    for pair in circuit_pairs("induction", letters, count=12, seed=0).pairs:
        words = pair.clean.replace(",", "").split()
        assert words[words.index(words[-1]) + 1] == pair.right[0].strip()


def test_what_a_tokenizer_cannot_ask_is_dropped_and_counted():
    tokenizer = tiny_tokenizer()  # knows hardly one of the words: all are one unknown token
    pairs = circuit_pairs("indirect_object", lambda text: list(tokenizer(text)["input_ids"]), count=5, seed=0)
    assert len(pairs) == 0 and sum(pairs.dropped.values()) > 0
    spelt = circuit_pairs("agreement", lambda text: [ord(letter) for letter in text], count=5, seed=0)
    assert len(spelt) == 0 and "prompts of different lengths" in spelt.dropped


def test_an_unknown_task_says_what_there_is():
    with pytest.raises(DataError, match="induction"):
        circuit_pairs("inductoin", letters, count=5, seed=0)
