"""Do several sampled answers say the same? The entropy over meanings, not over wordings.

K answers are sampled, and those that say the same form a group (``group``: the same exact answer by the rules of
`corpora.normalisation`, or entailment in both directions where the study has such a model). With s a sample of n_s tokens,
p_s = exp(1/n_s Σ log p_i) its length-normalised probability, and c a group:

| score | formula | source |
|-------|---------|--------|
| Semantic entropy | -Σ_c p(c) log p(c),  p(c) = Σ_{s in c} p_s / Σ_s p_s | Farquhar et al., Nature 630, 2024 |
| Discrete semantic entropy | the same with p(c) = share of the samples in c | the same |
| Semantic sets | number of groups | Lin et al., arXiv 2305.19187 |
| Predictive entropy | -1/K Σ_s Σ_i log p_i: over wordings, per answer | Malinin and Gales; Kuhn et al. |
| Predictive entropy, per token | -1/K Σ_s 1/n_s Σ_i log p_i | the same |

Kuhn et al. (arXiv 2302.09664), who introduced it, do not normalise over the groups that were found: -1/|C| Σ_c log p(c);
LM-Polygraph takes the mean over samples and p_s without length normalisation. `semantic_entropy` computes all three
(``over``). They order answers differently.

Readings: ``sample_logprobs`` (example, draw, token), NaN after the last, and ``group`` (example, draw). A sample without a
token counts with the mean weight of the others. Cost: K more answers.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray
from scipy.special import entr, logsumexp

from headwise.core.dims import DRAW, EXAMPLE, TOKEN
from headwise.scores.score import Publication, score
from headwise.scores.token_probabilities import MALININ

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

FARQUHAR = Publication(
    "Farquhar et al. 2024, Detecting hallucinations in large language models using semantic entropy",
    "https://doi.org/10.1038/s41586-024-07421-0",
)
LIN = Publication(
    "Lin et al. 2024, Generating with Confidence: Uncertainty Quantification for Black-box Large Language Models",
    "https://arxiv.org/abs/2305.19187",
)
KUHN = Publication(
    "Kuhn et al. 2023, Semantic Uncertainty",
    "https://arxiv.org/abs/2302.09664",
)


def semantic_entropy(
    logprobs: ArrayLike, groups: ArrayLike, *, over: Literal["meanings", "groups", "samples"] = "meanings"
) -> Floats:
    """(example,): the entropy over groups of samples that say the same.

    Args:
        logprobs: (example, draw), the log-probability of each sample, per token or as a whole.
        groups: (example, draw), the number of its group.
        over: "meanings": of the probabilities normalised over the groups found (Farquhar et al.); "groups": -log p(c), mean
            over the groups (Kuhn et al.); "samples": the same, mean over the samples (LM-Polygraph).

    Examples:
        >>> groups = np.array([[0, 0, 1, 2], [0, 0, 0, 0]])
        >>> semantic_entropy(np.log(np.full((2, 4), 0.25)), groups).round(4)  # of 1/2, 1/4, 1/4; and of one meaning
        array([1.0397, 0.    ])
        >>> semantic_entropy(np.log([[0.5, 0.25, 0.25]]), [[0, 1, 1]], over="samples").round(4)
        array([0.6931])
    """
    values, group = np.asarray(logprobs, dtype=np.float64), np.asarray(groups)
    return np.array([_entropy(row, own, over) for row, own in zip(values, group, strict=True)])


def _entropy(logprobs: Floats, groups: Ints, over: str) -> float:
    """Of one question."""
    own = np.unique(groups, return_inverse=True)[1]
    of_group = np.array([logsumexp(logprobs[own == group]) for group in range(own.max() + 1)])
    if over == "groups":
        return float(-of_group.mean())
    if over == "samples":
        return float(-of_group[own].mean())
    return float(entr(np.exp(of_group - logsumexp(of_group))).sum())


def logprob_per_token(readings: xr.Dataset) -> Floats:
    """(example, draw): the mean log-probability of every sample; of one without tokens, that of the question's others."""
    means = readings["sample_logprobs"].mean(TOKEN).transpose(EXAMPLE, DRAW)
    return np.asarray(means.fillna(means.mean(DRAW)).fillna(0.0).values, dtype=np.float64)


@score("Semantic entropy", needs=("sample_logprobs", "group"), cost="samples", paper=FARQUHAR)
def semantic_entropy_score(readings: xr.Dataset) -> Floats:
    """Over the meanings of the samples, weighted by their length-normalised probability."""
    return semantic_entropy(logprob_per_token(readings), readings["group"].transpose(EXAMPLE, DRAW).values)


@score("Discrete semantic entropy", needs=("group",), cost="samples", paper=FARQUHAR)
def discrete_semantic_entropy(readings: xr.Dataset) -> Floats:
    """Over the meanings of the samples, every sample with the same weight.

    >>> discrete_semantic_entropy(xr.Dataset({"group": (("example", "draw"), [[0, 0, 1, 2], [0, 0, 0, 0]])})).round(4)
    array([1.0397, 0.    ])
    """
    groups = readings["group"].transpose(EXAMPLE, DRAW).values
    return semantic_entropy(np.zeros(groups.shape), groups)


@score("Semantic sets", needs=("group",), cost="samples", paper=LIN)
def semantic_sets(readings: xr.Dataset) -> NDArray[np.int64]:
    """How many different answers there are among the samples.

    >>> semantic_sets(xr.Dataset({"group": (("example", "draw"), [[0, 0, 1, 2], [0, 0, 0, 0]])}))
    array([3., 1.])
    """
    return np.array([len(np.unique(row)) for row in readings["group"].transpose(EXAMPLE, DRAW).values])


@score("Predictive entropy", needs=("sample_logprobs",), cost="samples", paper=KUHN)
def predictive_entropy(readings: xr.Dataset) -> xr.DataArray:
    """Minus the mean log-probability of the samples: their entropy, over wordings.

    >>> values = [[[-1.0, -3.0], [-2.0, float("nan")]]]
    >>> predictive_entropy(xr.Dataset({"sample_logprobs": (("example", "draw", "token"), values)}))
    array([3.])
    """
    return -readings["sample_logprobs"].sum(TOKEN).mean(DRAW)


@score("Predictive entropy, per token", needs=("sample_logprobs",), cost="samples", paper=MALININ)
def predictive_entropy_per_token(readings: xr.Dataset) -> Floats:
    """The same, length-normalised.

    >>> values = [[[-1.0, -3.0], [-3.0, float("nan")]]]
    >>> predictive_entropy_per_token(xr.Dataset({"sample_logprobs": (("example", "draw", "token"), values)}))
    array([2.5])
    """
    return np.asarray(-logprob_per_token(readings).mean(axis=1))
