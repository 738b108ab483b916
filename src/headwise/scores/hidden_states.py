"""What do hidden states tell of an error? Scores of the residual stream at the answer, and at several sampled answers.

| row | kind | what | source |
|-----|------|------|--------|
| LLM-Check, hidden | score | mean log eigenvalue of the covariance of the answer's tokens at the middle layer | Sriramanan |
| EigenScore | score | the same of the last tokens of K sampled answers | Chen |
| Hidden state | supervised | the last token, the layer chosen inside the training folds | Azaria and Mitchell |
| Semantic entropy probe | probe | the same features, fitted to high or low semantic entropy: no label is needed | Kossen |

With Z (width, n) the vectors as columns, J = I - 11ᵀ/width (each vector loses the mean of its entries):

    Σ = Zᵀ J Z + α I          score = 1/n log det Σ,          α = 0.001, natural logarithm

A set of vectors that point in different directions has a large determinant. LLM-Check leaves the sign open; here a larger one
speaks for a wrong answer, as in EigenScore. Its number falls with the length of the answer, so compare it with "Length".
EigenScore's code divides Σ by width - 1 and takes log10, its paper does neither; `log_determinant` with ``alpha=0.001 *
(width - 1)`` gives the code's number plus log(width - 1), times ln 10. Azaria and Mitchell (SAPLMA) fit three dense layers of
a network; here it is the logistic regression of all other fitted rows. The semantic entropy probe needs samples where it is
fitted, one pass where it is used.

Readings: ``hidden`` (example, layer, width), ``hidden_log_det`` (example,) (`instruments.HiddenLogDet`), ``sample_hidden``
(example, draw, width).
"""

from __future__ import annotations

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from headwise.core.dims import DRAW, EXAMPLE, WIDTH
from headwise.scores.attention import LLM_CHECK
from headwise.scores.score import Publication, score
from headwise.scores.semantic_entropy import semantic_entropy_score

RIDGE = 1e-3  # α


def log_determinant(vectors: NDArray[np.floating], alpha: float = RIDGE) -> NDArray[np.float64]:
    """(...,): 1/n log det(Zᵀ J Z + α I) of vectors (..., n, width).

    >>> log_determinant(np.array([[1.0, -1.0, 0.0, 0.0], [0.0, 0.0, 1.0, -1.0]]), alpha=0.0)  # log 2 each
    array(0.69314718)
    """
    centred = np.asarray(vectors, dtype=np.float64)
    centred = centred - centred.mean(axis=-1, keepdims=True)
    count = centred.shape[-2]
    covariance = centred @ centred.swapaxes(-1, -2) + alpha * np.eye(count)
    return np.asarray(np.linalg.slogdet(covariance).logabsdet / count)


@score("LLM-Check, hidden", needs=("hidden_log_det",), paper=LLM_CHECK)
def llm_check_hidden(readings: xr.Dataset) -> xr.DataArray:
    """The mean log eigenvalue over the answer's tokens.

    >>> llm_check_hidden(xr.Dataset({"hidden_log_det": ("example", [1.5, 0.5])}))
    array([1.5, 0.5])
    """
    return readings["hidden_log_det"]


@score(
    "EigenScore",
    needs=("sample_hidden",),
    cost="samples",
    paper=Publication(
        "Chen et al. 2024, INSIDE: LLMs' Internal States Retain the Power of Hallucination Detection",
        "https://arxiv.org/abs/2402.03744",
    ),
)
def eigenscore(readings: xr.Dataset) -> NDArray[np.float64]:
    """The mean log eigenvalue of the covariance of the samples' last tokens.

    >>> same, apart = [[1.0, -1.0, 0.0, 0.0]] * 2, [[1.0, -1.0, 0.0, 0.0], [0.0, 0.0, 1.0, -1.0]]
    >>> eigenscore(xr.Dataset({"sample_hidden": (("example", "draw", "width"), [same, apart])})).round(2)
    array([-2.76,  0.69])
    """
    return log_determinant(readings["sample_hidden"].transpose(EXAMPLE, DRAW, WIDTH).values)


@score(
    "Hidden state",
    needs=("hidden",),
    kind="supervised",
    paper=Publication(
        "Azaria and Mitchell 2023, The Internal State of an LLM Knows When It's Lying",
        "https://arxiv.org/abs/2304.13734",
    ),
)
def hidden_state(readings: xr.Dataset) -> xr.DataArray:
    """The residual stream at the answer's last token, all layers; one is chosen inside the training folds."""
    return readings["hidden"]


@score(
    "Semantic entropy probe",
    needs=("hidden",),
    kind="probe",
    target=semantic_entropy_score,
    target_needs=semantic_entropy_score.needs,
    paper=Publication("Kossen et al. 2024, Semantic Entropy Probes", "https://arxiv.org/abs/2406.15927"),
)
def semantic_entropy_probe(readings: xr.Dataset) -> xr.DataArray:
    """The same features; they are fitted to semantic entropy."""
    return readings["hidden"]
