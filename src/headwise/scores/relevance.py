"""Not every token matters: SAR shifts attention to the tokens, and the samples, that carry the meaning.

With R_i the relevance of token i, g(s, s') the similarity of two samples, p(s) the probability of a sample, t = 0.001:

| score | formula |
|-------|---------|
| TokenSAR | -Σ_i R_i log p_i,  R_i = (1 - g(r, r without i)) / Σ_j (1 - g(r, r without j)), of the answer r that was given |
| SentenceSAR | 1/K Σ_s -log(p(s) + 1/t Σ_{s' ≠ s} g(s, s') p(s')) |
| SAR | the same with p'(s) = exp(-TokenSAR(s)) in place of p(s) |

Duan et al., arXiv 2307.01379. **The similarity is not theirs.** They take a cross-encoder (RoBERTa-large fitted to sentence
pairs); Headwise asks for no second model, and takes the cosine between the mean embeddings of two texts' tokens, from the
model's own embedding matrix less its mean over the vocabulary, negative cosines as 0. Words that are frequent in every answer
still count for less, but a token's relevance does not depend on the question.

Readings: ``logprobs`` and ``relevance`` (example, token); ``sample_logprobs`` and ``sample_relevance`` (example, draw, token),
NaN after the last; ``sample_similarity`` (example, draw, other_draw). Cost: none for TokenSAR, K more answers for the others.
"""

from __future__ import annotations

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray
from scipy.special import logsumexp

from headwise.core.dims import DRAW, EXAMPLE, TOKEN
from headwise.scores.score import Publication, score

Floats = NDArray[np.float64]

TEMPERATURE = 0.001
DUAN = Publication(
    "Duan et al. 2024, Shifting Attention to Relevance (SAR)",
    "https://arxiv.org/abs/2307.01379",
)


def token_sar(logprobs: ArrayLike, relevance: ArrayLike) -> Floats:
    """(...,): the surprise of the tokens (..., token), weighted by their relevance; NaN after the last.

    Where no token has any relevance, all have the same; without tokens it is 0.

    >>> token_sar([[-1.0, -3.0], [-2.0, np.nan]], [[3.0, 1.0], [0.0, np.nan]])
    array([1.5, 2. ])
    """
    values, weights = np.asarray(logprobs, dtype=np.float64), np.asarray(relevance, dtype=np.float64)
    exists = np.isfinite(values)
    weights = np.where(exists, np.nan_to_num(weights), 0.0)
    total = weights.sum(axis=-1, keepdims=True)
    weights = np.where(total > 0, weights, exists)
    shares = weights / np.maximum(weights.sum(axis=-1, keepdims=True), 1e-300)
    return np.asarray(-(np.where(exists, values, 0.0) * shares).sum(axis=-1))


def sentence_sar(logprobs: ArrayLike, similarity: ArrayLike, temperature: float = TEMPERATURE) -> Floats:
    """(example,): from log-probabilities of samples (example, draw) and their similarities (example, draw, draw).

    >>> alone = sentence_sar(np.log([[0.5, 0.25]]), [np.eye(2)])
    >>> together = sentence_sar(np.log([[0.5, 0.25]]), [np.ones((2, 2))])
    >>> alone.round(4), together.round(4)  # -log p; -log(.5 + 250) and -log(.25 + 500), mean
    (array([1.0397]), array([-5.8693]))
    """
    values, g = np.asarray(logprobs, dtype=np.float64), np.asarray(similarity, dtype=np.float64)
    weights = np.where(np.eye(values.shape[-1], dtype=bool), 1.0, np.maximum(g, 0.0) / temperature)
    return np.asarray(-logsumexp(values[:, None, :], b=weights, axis=-1).mean(axis=-1))


@score("TokenSAR", needs=("logprobs", "relevance"), cost="answer", paper=DUAN)
def token_sar_score(readings: xr.Dataset) -> Floats:
    """Of the answer that was given."""
    logprobs, relevance = (readings[name].transpose(EXAMPLE, TOKEN).values for name in ("logprobs", "relevance"))
    return token_sar(logprobs, relevance)


@score("SentenceSAR", needs=("sample_logprobs", "sample_similarity"), cost="samples", paper=DUAN)
def sentence_sar_score(readings: xr.Dataset) -> Floats:
    """Of the samples."""
    whole = readings["sample_logprobs"].sum(TOKEN).transpose(EXAMPLE, DRAW).values
    return sentence_sar(whole, readings["sample_similarity"].transpose(EXAMPLE, DRAW, ...).values)


@score("SAR", needs=("sample_logprobs", "sample_relevance", "sample_similarity"), cost="samples", paper=DUAN)
def sar_score(readings: xr.Dataset) -> Floats:
    """Of the samples, whose tokens count by their relevance."""
    logprobs, relevance = (
        readings[name].transpose(EXAMPLE, DRAW, TOKEN).values for name in ("sample_logprobs", "sample_relevance")
    )
    shifted = -token_sar(logprobs, relevance)
    return sentence_sar(shifted, readings["sample_similarity"].transpose(EXAMPLE, DRAW, ...).values)
