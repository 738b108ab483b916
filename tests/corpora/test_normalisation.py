import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwise.corpora.matching import LABELS, judge
from headwise.corpora.normalisation import sentences, tokens, with_digits, words


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("one hundred", ["100"]),
        ("a hundred", ["a", "100"]),
        ("one hundred and one", ["101"]),
        ("three hundred sixty five days", ["365", "days"]),
        ("eighty six thousand four hundred", ["86400"]),
        ("two million five hundred thousand", ["2500000"]),
        ("one two three", ["1", "2", "3"]),
        ("bread and two eggs", ["bread", "and", "2", "eggs"]),
        ("hundred and more", ["100", "and", "more"]),
        ("eighteen twelve", ["1812"]),
        ("twenty twenty", ["2020"]),
        ("in 1900 two ships", ["in", "1900", "2", "ships"]),
        ("8 billion", ["8000000000"]),
        ("two dozen", ["24"]),
        ("0.50", ["0.5"]),
        ("negative four", ["-4"]),
        ("thousand", ["1000"]),
    ],
)
def test_numbers_in_words(said, expected):
    assert with_digits(said.split()) == expected


def test_marks_and_signs():
    assert tokens("x = -5, or 3-4") == ("x", "=", "-5", ",", "or", "3", "4")
    assert tokens("10² m") == ("10", "2", "m")
    assert words("1,2,3") == ("1", "2", "3")
    assert words("12,345,678") == ("12345678",)
    assert words("Newton's laws") == ("newton", "laws")


def test_sentences_end_where_they_end():
    assert sentences("J. K. Rowling wrote it. She lives.") == ["J. K. Rowling wrote it.", "She lives."]
    assert sentences("It costs 3.50 dollars. Cheap!") == ["It costs 3.50 dollars.", "Cheap!"]
    assert sentences("one\ntwo") == ["one", "two"]
    assert sentences("...") == ["..."]


@given(st.text(max_size=80), st.lists(st.text(max_size=20), max_size=3))
def test_any_text_gets_one_of_three_labels(answer, golds):
    verdict = judge(answer, golds)
    assert verdict.label in LABELS
    assert verdict == judge(answer, golds)


@given(st.text(min_size=1, max_size=40))
def test_an_answer_is_right_about_itself(answer):
    expected = "correct" if words(answer) else "refused"
    assert judge(answer, [answer]).label == expected
    assert judge(answer, [answer], numeric=True).label in ("correct", "refused", "wrong")
