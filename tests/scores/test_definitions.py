"""Each family against its definition, written out with loops over single numbers."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import xarray as xr
from synthetic.uncertainty import planted_readings

from headwise.scores import scores
from headwise.scores.agreement import degree_matrix, jaccard, rouge_l, similarities, similarity_eigenvalues
from headwise.scores.hidden_states import log_determinant
from headwise.scores.relevance import sentence_sar, token_sar
from headwise.scores.semantic_entropy import semantic_entropy

RANDOM = np.random.default_rng(1)


def test_semantic_entropy_by_hand():
    """Four samples, of probabilities .4 .2 .1 .1, in groups {0, 1} and {2} and {3}."""
    logprobs, groups = np.log([[0.4, 0.2, 0.1, 0.1]]), [[0, 0, 1, 2]]
    shares = [0.6 / 0.8, 0.1 / 0.8, 0.1 / 0.8]
    assert semantic_entropy(logprobs, groups)[0] == pytest.approx(-sum(p * math.log(p) for p in shares))
    kuhn = -(math.log(0.6) + 2 * math.log(0.1)) / 3
    assert semantic_entropy(logprobs, groups, over="groups")[0] == pytest.approx(kuhn)
    per_sample = -(2 * math.log(0.6) + 2 * math.log(0.1)) / 4
    assert semantic_entropy(logprobs, groups, over="samples")[0] == pytest.approx(per_sample)


def test_the_numbers_of_groups_do_not_matter():
    logprobs = RANDOM.normal(size=(5, 6))
    groups = RANDOM.integers(0, 3, (5, 6))
    np.testing.assert_allclose(semantic_entropy(logprobs, groups), semantic_entropy(logprobs, 7 - groups))


def test_an_empty_sample_weighs_as_the_others_do():
    values = np.full((1, 3, 2), np.nan)
    values[0, 0], values[0, 1] = [-1.0, -3.0], [-4.0, np.nan]
    readings = xr.Dataset(
        {"sample_logprobs": (("example", "draw", "token"), values), "group": (("example", "draw"), [[0, 1, 2]])}
    )
    weights = np.exp([-2.0, -4.0, -3.0])
    shares = weights / weights.sum()
    assert scores()["Semantic entropy"](readings)[0] == pytest.approx(-(shares * np.log(shares)).sum())


def test_eigenscore_is_the_mean_log_eigenvalue():
    vectors = RANDOM.normal(size=(4, 7))
    centring = np.eye(7) - np.ones((7, 7)) / 7
    eigenvalues = np.linalg.eigvalsh(vectors @ centring @ vectors.T + 1e-3 * np.eye(4))
    assert log_determinant(vectors) == pytest.approx(np.log(eigenvalues).mean())


def test_eigenscore_as_in_its_code():
    """Their covariance is divided by width - 1, their logarithm is that of 10; the conversion in the docstring."""
    vectors, width = RANDOM.normal(size=(4, 7)), 7
    theirs = np.log10(np.linalg.svd(np.cov(vectors) + 1e-3 * np.eye(4))[1]).mean()
    ours = log_determinant(vectors, alpha=1e-3 * (width - 1))
    assert theirs * math.log(10) + math.log(width - 1) == pytest.approx(float(ours))


def test_rouge_l_is_the_longest_common_subsequence():
    letters = list("abc")
    for _ in range(60):
        one, other = (RANDOM.choice(letters, size=RANDOM.integers(1, 6)).tolist() for _ in range(2))
        common = max(
            len(part)
            for size in range(len(one) + 1)
            for part in itertools.combinations(one, size)
            if part in set(itertools.combinations(other, size))
        )
        assert rouge_l(one, other) == pytest.approx(2 * common / (len(one) + len(other)))


def test_similarity_graphs_by_hand():
    texts = [("a", "b"), ("a", "c"), ("d",)]
    graph = similarities(texts, jaccard)
    np.testing.assert_allclose(graph, [[1, 1 / 3, 0], [1 / 3, 1, 0], [0, 0, 1]])
    assert degree_matrix(graph) == pytest.approx((9 - graph.sum()) / 9)
    # two texts of degree 4/3: eigenvalues of the Laplacian 0 and 1/2; one of degree 1: 0
    assert similarity_eigenvalues(graph) == pytest.approx((1 - 0) + (1 - 0.5) + (1 - 0))


def test_sar_by_hand():
    logprobs = np.log([[0.5, 0.1], [0.2, 0.4]])  # two samples of two tokens
    relevance = np.array([[1.0, 3.0], [1.0, 1.0]])
    shifted = [-(0.25 * math.log(0.5) + 0.75 * math.log(0.1)), -(0.5 * math.log(0.2) + 0.5 * math.log(0.4))]
    np.testing.assert_allclose(token_sar(logprobs, relevance), shifted)
    p, q, g = math.exp(-shifted[0]), math.exp(-shifted[1]), 0.3
    by_hand = (-math.log(p + g * q / 0.001) - math.log(q + g * p / 0.001)) / 2
    assert sentence_sar([np.negative(shifted)], [[[1, g], [g, 1]]])[0] == pytest.approx(by_hand)
    readings = xr.Dataset(
        {
            "sample_logprobs": (("example", "draw", "token"), logprobs[None]),
            "sample_relevance": (("example", "draw", "token"), relevance[None]),
            "sample_similarity": (("example", "draw", "other_draw"), [[[1, g], [g, 1]]]),
        }
    )
    assert scores()["SAR"](readings)[0] == pytest.approx(by_hand)


def test_llm_check_reads_the_answer_at_the_chosen_layer():
    readings, _ = planted_readings(layers=4, count=30)
    here = readings["attention_score"].values[:, int(readings["chosen_layer"]), :, 1]
    np.testing.assert_allclose(scores()["LLM-Check, attention"](readings), -here.sum(axis=1))


def test_selfcheck_counts_samples_that_say_something_else():
    readings, _ = planted_readings(count=30)
    expected = (readings["group"].values != readings["answer_group"].values[:, None]).mean(axis=1)
    np.testing.assert_allclose(scores()["SelfCheck"](readings), expected)


@pytest.mark.parametrize("name", [name for name, one in scores().items() if one.kind == "score"])
def test_a_score_of_one_answer_does_not_depend_on_the_others(name):
    readings, _ = planted_readings(count=12)
    whole = scores()[name](readings)
    np.testing.assert_allclose(scores()[name](readings.isel(example=[7])), whole[[7]])


@pytest.mark.parametrize("name", [name for name, one in scores().items() if one.kind == "score"])
def test_the_order_of_dims_does_not_matter(name):
    readings, _ = planted_readings(count=12)
    np.testing.assert_allclose(scores()[name](readings.transpose(..., "example")), scores()[name](readings))


@pytest.mark.parametrize(
    "name", [name for name, one in scores().items() if one.kind == "score" and one.cost == "samples"]
)
def test_the_order_of_the_samples_does_not_matter(name):
    readings, _ = planted_readings(count=12)
    turned = readings.isel(draw=slice(None, None, -1), other_draw=slice(None, None, -1))
    np.testing.assert_allclose(scores()[name](turned), scores()[name](readings))
