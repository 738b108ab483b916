"""How probable was the answer to the model itself? Scores of the answer's own tokens; they cost nothing beyond the answer.

With p_i the probability of token i of n, given what is before it, and H_i the entropy of that distribution:

| score | formula | source |
|-------|---------|--------|
| Log-probability, min | -min_i log p_i | Manakul et al., SelfCheckGPT, arXiv 2303.08896 |
| Log-probability, mean | -1/n Σ log p_i, the log of the perplexity | Fomicheva et al., TACL 8, 2020 |
| Sequence probability | -Σ log p_i ("MSP") | the same |
| Token entropy | 1/n Σ H_i | Malinin and Gales, arXiv 2002.07650 |
| Length | n: no score, but a confounder of all of them | |

Readings: ``logprobs`` and ``token_entropy`` (example, token), NaN after the last token. The token that ends an answer is not
part of it (LM-Polygraph counts it). Logarithms are natural.
"""

from __future__ import annotations

import xarray as xr

from headwise.core.dims import TOKEN
from headwise.scores.score import Publication, score

LOGPROB_MIN, LOGPROB_MEAN, LENGTH = "Log-probability, min", "Log-probability, mean", "Length"
SELFCHECK = Publication(
    "Manakul et al. 2023, SelfCheckGPT: Zero-Resource Black-Box Hallucination Detection",
    "https://arxiv.org/abs/2303.08896",
)
FOMICHEVA = Publication(
    "Fomicheva et al. 2020, Unsupervised Quality Estimation for Neural Machine Translation",
    "https://arxiv.org/abs/2005.10608",
)
MALININ = Publication(
    "Malinin and Gales 2021, Uncertainty Estimation in Autoregressive Structured Prediction",
    "https://arxiv.org/abs/2002.07650",
)


@score(LOGPROB_MIN, needs=("logprobs",), cost="answer", paper=SELFCHECK)
def smallest_logprob(readings: xr.Dataset) -> xr.DataArray:
    """Minus the smallest log-probability of a token.

    >>> smallest_logprob(xr.Dataset({"logprobs": (("example", "token"), [[-1.0, -3.0], [-2.0, float("nan")]])}))
    array([3., 2.])
    """
    return -readings["logprobs"].min(TOKEN)


@score(LOGPROB_MEAN, needs=("logprobs",), cost="answer", paper=FOMICHEVA)
def mean_logprob(readings: xr.Dataset) -> xr.DataArray:
    """Minus the mean log-probability: the log of the perplexity.

    >>> mean_logprob(xr.Dataset({"logprobs": (("example", "token"), [[-1.0, -3.0], [-2.0, float("nan")]])}))
    array([2., 2.])
    """
    return -readings["logprobs"].mean(TOKEN)


@score("Sequence probability", needs=("logprobs",), cost="answer", paper=FOMICHEVA)
def sequence_probability(readings: xr.Dataset) -> xr.DataArray:
    """Minus the log-probability of the whole answer, of which it is the mode if the answer is greedy.

    >>> sequence_probability(xr.Dataset({"logprobs": (("example", "token"), [[-1.0, -3.0], [-2.0, float("nan")]])}))
    array([4., 2.])
    """
    return -readings["logprobs"].sum(TOKEN)


@score("Token entropy", needs=("token_entropy",), cost="answer", paper=MALININ)
def token_entropy(readings: xr.Dataset) -> xr.DataArray:
    """The mean entropy of the distributions that the answer's tokens were chosen from.

    >>> token_entropy(xr.Dataset({"token_entropy": (("example", "token"), [[0.0, 1.0], [2.0, float("nan")]])}))
    array([0.5, 2. ])
    """
    return readings["token_entropy"].mean(TOKEN)


@score(LENGTH, needs=("logprobs",), cost="answer")
def length(readings: xr.Dataset) -> xr.DataArray:
    """Tokens of the answer: what the answer's form alone tells.

    >>> length(xr.Dataset({"logprobs": (("example", "token"), [[-1.0, -3.0], [-2.0, float("nan")]])}))
    array([2., 1.])
    """
    return readings["logprobs"].notnull().sum(TOKEN)
