"""Exact answers: found by one rule whatever the label, and as the shortest window of tokens that holds them."""

from __future__ import annotations

import inspect

import pytest
from planted import tiny_tokenizer
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from headwise.corpora import BLIND, PUBLISHED, decode_ids, exact_answer, find_span, token_span
from headwise.corpora.extraction import extract

CASES = [
    ("What is the capital of Norway?", "The capital of Norway is Oslo, a port.", "Oslo"),
    ("What is the capital of Norway?", "Oslo", "Oslo"),
    ("What is the capital of France?", "Paris, France", "Paris"),
    ("Who wrote Hamlet?", "Shakespeare wrote Hamlet.", "Shakespeare"),
    ("Who wrote Hamlet?", "It was written by the English playwright William Shakespeare.", "William Shakespeare"),
    ("Who was the first prime minister of Canada?", "It was Sir John A. Macdonald.", "Sir John A. Macdonald"),
    ("Who discovered the electron?", "It was found by French physicist Louis de Broglie in 1903.", "Louis de Broglie"),
    ("Which composer wrote Fidelio?", "The Italian composer who wrote Fidelio is Antonio Salieri.", "Antonio Salieri"),
    ("Who founded Amazon?", "The founder of Amazon is not a person.", None),
    ("How many wives did Henry have?", "Henry VIII had 11 wives.", "11"),
    ("In which year did the war end?", "The war ended in 1945, in May.", "1945"),
    ("What is 13 + 14?", "13 + 14 = 25.", "25"),
    ("What is 44 minus 11?", "To find 44 minus 11, add 11 to 44.", None),
    ("How many pens are left?", "He has 12 pens. 12 - 2 = 10. The answer is 10.", "10"),
    ("How many pens are left?", "He has 12 pens. He then has 10 pens.", "10"),
    ("Which currency is used in France?", "The Euro is the official currency of France.", "Euro"),
    ("In which country is Split?", "Split is located in Croatia.", "Croatia"),
    ("Which continent is Moldova in?", "Moldova is a country located in Eastern Europe.", "Eastern Europe"),
    ("What is the plural of sheep?", "The plural of sheep is sheep.", "sheep"),
    ('What is the past tense of "seek"?', 'The past tense of "seek" is "seeked."', "seeked"),
    ("What is the currency of Switzerland?", "The currency of Switzerland is the Swiss Franc (CHF).", "Swiss Franc"),
    ("Is the sky blue?", "Yes, it is.", "Yes"),
    ("Is it larger, the sun or the moon?", "The sun", "sun"),
    ("What colour is made of blue and yellow?", "The answer is: Blue and yellow.", "Blue and yellow"),
    ("In which language does dziękuję mean thanks?", 'In Polish, "dziękuję" means thanks.', "Polish"),
    ("What is the symbol of cadmium?", "Cadmium is an element with the symbol Cd.", "Cd"),
    ("What is the capital of Norway?", "", None),
]


@pytest.mark.parametrize(("question", "answer", "wanted"), CASES)
def test_by_rule(question: str, answer: str, wanted: str | None) -> None:
    found = extract(question, answer)
    assert (None if found is None else answer[found[0] : found[1]]) == wanted


def test_the_rule_cannot_see_a_label() -> None:
    assert list(inspect.signature(extract).parameters) == ["question", "answer"]
    answer = "It is on the River Thames."
    blind = {
        exact_answer("On which river is London?", answer, BLIND, label=label, golds=golds)
        for label in ("correct", "wrong")
        for golds in (["Thames"], ["Seine"], [])
    }
    assert len(blind) == 1


def test_the_published_way_looks_for_the_right_answer_where_it_is_right() -> None:
    question, answer = "On which continent is the Orinoco?", "It flows in the Amazon Basin of South America."
    right = exact_answer(question, answer, PUBLISHED, label="correct", golds=["Latin America", "South America"])
    assert right is not None and answer[slice(*right)] == "South America"
    wrong = exact_answer(question, answer, PUBLISHED, label="wrong", golds=["South America"])
    assert wrong == exact_answer(question, answer, BLIND)
    assert wrong is not None and answer[slice(*wrong)] != "South America"


def test_a_text_is_found_as_it_is_written_or_by_its_words() -> None:
    assert find_span("George R. R. Martin", "by George R.R. Martin.") == (3, 21)
    assert find_span("Dali", "It was Salvador Dalí.") == (16, 20)
    assert find_span("man", "The manor") is None


# ---- tokens ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bytes_tokenizer() -> PreTrainedTokenizerFast:
    """A byte-level tokenizer with few merges: letters beyond ASCII are several tokens."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=280, initial_alphabet=alphabet, show_progress=False)
    backend.train_from_iterator(["the capital of Norway is Oslo the is of"] * 3, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=backend)


TEXTS = [
    ("The capital of Norway is Oslo.", "Oslo"),
    ("Its name is Škoda, from Plzeň.", "Škoda"),
    ("Il est né à Köln, près d'Aachen.", "Köln"),
    ("It is 日本 in Japanese.", "日本"),
    ("naïve", "naïve"),
    ("  blanks before Oslo", "Oslo"),
    ("It is ½ or 😀😀.", "😀"),
]


@pytest.mark.parametrize(("text", "wanted"), TEXTS)
def test_the_shortest_window_of_tokens(bytes_tokenizer: PreTrainedTokenizerFast, text: str, wanted: str) -> None:
    ids = bytes_tokenizer(text, add_special_tokens=False)["input_ids"]
    assert decode_ids(bytes_tokenizer, ids) == text
    start = text.index(wanted)
    first, last = token_span(bytes_tokenizer, ids, start, start + len(wanted))
    assert wanted in decode_ids(bytes_tokenizer, ids[first : last + 1])
    shortest = min(
        (b - a, a) for a in range(len(ids)) for b in range(a, len(ids))
        if wanted in decode_ids(bytes_tokenizer, ids[a : b + 1])
    )  # fmt: skip
    assert (last - first, first) == shortest


def test_of_two_places_the_one_that_was_found(bytes_tokenizer: PreTrainedTokenizerFast) -> None:
    text = "Oslo is Oslo"
    ids = bytes_tokenizer(text, add_special_tokens=False)["input_ids"]
    first, last = token_span(bytes_tokenizer, ids, 0, 4)
    assert decode_ids(bytes_tokenizer, ids[first : last + 1]) == "Oslo"
    assert first == 0
    assert token_span(bytes_tokenizer, ids, 8, 12)[1] == len(ids) - 1


def test_whole_words() -> None:
    tokenizer = tiny_tokenizer(first=False)
    ids = tokenizer("the old river", add_special_tokens=False)["input_ids"]
    text = decode_ids(tokenizer, ids)
    assert token_span(tokenizer, ids, text.index("old"), text.index("old") + 3) == (1, 1)
