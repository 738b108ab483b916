"""What do hidden states tell of an error? Scores of the residual stream at the answer, and at several sampled answers.

| row | kind | what | source |
|-----|------|------|--------|
| LLM-Check, hidden | score | mean log eigenvalue of the covariance of the answer's tokens at the middle layer | Sriramanan |
| EigenScore | score | the same of the last tokens of K sampled answers | Chen |
| Hidden state | supervised | the last token, the layer chosen inside the training folds | Azaria and Mitchell |
| Semantic entropy probe | probe | the same features, fitted to high or low semantic entropy: no label is needed | Kossen |
| CCS | unlabelled | a direction in which "true" and "false" as the verdict on an answer contradict each other | Burns |

With Z (width, n) the vectors as columns, J = I - 11ᵀ/width (each vector loses the mean of its entries):

    Σ = Zᵀ J Z + α I          score = 1/n log det Σ,          α = 0.001, natural logarithm

A set of vectors that point in different directions has a large determinant. LLM-Check leaves the sign open; here a larger one
speaks for a wrong answer, as in EigenScore. Its number falls with the length of the answer, so compare it with "Length".
EigenScore's code divides Σ by width - 1 and takes log10, its paper does neither; `log_determinant` with ``alpha=0.001 *
(width - 1)`` gives the code's number plus log(width - 1), times ln 10. Azaria and Mitchell (SAPLMA) fit three dense layers of
a network; here it is the logistic regression of all other fitted rows. The semantic entropy probe needs samples where it is
fitted, one pass where it is used.

**CCS** (contrast-consistent search). The model is asked whether the answer is true (`self_judgement`), and the reply is written
for it, once True and once False; h⁺ and h⁻ are the states at the reply, after the last layer. Each loses its mean over the
answers and is divided by its standard deviation, so that which reply it is cannot be read from it. With σ the logistic
function, p⁺ = σ(w·h⁺ + b) and p⁻ = σ(w·h⁻ + b),

    minimise the mean of (p⁺ - (1 - p⁻))² + min(p⁺, p⁻)², + ρ |w|²          P(true) = (p⁺ + 1 - p⁻) / 2,          ρ = 0.001

from ten random beginnings, of which the smallest loss is taken: p must be consistent (one reply is as true as the other is
false) and confident. No label is used, so the sign is open, and the paper takes the better one by the labels of the test. Here
it is the sign in which 1 - P(true) rises with "Log-probability, min" (Spearman). Means, scales, w, b and the sign are learnt
from other folds than those that are scored. The paper's weight decay is replaced by ρ, Adam by L-BFGS.

Readings: ``hidden`` (example, layer, width), ``hidden_log_det`` (example,) (`instruments.HiddenLogDet`), ``sample_hidden``
(example, draw, width), ``hidden_true`` and ``hidden_false`` (example, width).
"""

from __future__ import annotations

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit

from headwise.core.dims import DRAW, EXAMPLE, WIDTH
from headwise.scores.attention import LLM_CHECK
from headwise.scores.score import Publication, score
from headwise.scores.semantic_entropy import semantic_entropy_score
from headwise.scores.token_probabilities import smallest_logprob
from headwise.stats.correlation import spearman

RIDGE = 1e-3  # α, ρ
STARTS = 10  # of CCS
Floats = NDArray[np.float64]


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


@score(
    "CCS",
    needs=("hidden_true", "hidden_false", "logprobs"),
    kind="unlabelled",
    cost="contrast pair",
    paper=Publication(
        "Burns et al. 2023, Discovering Latent Knowledge in Language Models Without Supervision",
        "https://arxiv.org/abs/2212.03827",
    ),
)
def ccs(readings: xr.Dataset, others: xr.Dataset) -> Floats:
    """One minus P(true), by a direction found in the contrast pairs of ``others``.

    >>> noise, truth = np.random.default_rng(0).normal(size=(2, 60, 4)), np.repeat([1.0, -1.0], 30)
    >>> noise[:, :, 2] += 6 * np.array([truth, -truth])  # entry 2 says whether the judged statement is true
    >>> pairs = {f"hidden_{reply}": (("example", "width"), values) for reply, values in zip(("true", "false"), noise)}
    >>> made = xr.Dataset({**pairs, "logprobs": (("example", "token"), truth[:, None] - 1.5)})
    >>> ccs(made.isel(example=[0, 59]), made).round()
    array([0., 1.])
    """
    learnt, tested = _pairs(others), _pairs(readings)
    known = np.isfinite(learnt).all(axis=(0, 2))
    learnt = learnt[:, known]
    centre, scale = learnt.mean(axis=1, keepdims=True), learnt.std(axis=1, keepdims=True)
    scale[scale == 0] = 1.0
    learnt, tested = ((part - centre) / scale for part in (learnt, tested))
    direction = contrast_consistent(learnt)
    turned = spearman(_wrong(learnt, direction), smallest_logprob(others)[known]) < 0
    found = _wrong(tested, direction)
    return 1 - found if turned else found


def _pairs(readings: xr.Dataset) -> Floats:
    """(reply, example, width)."""
    names = ("hidden_true", "hidden_false")
    return np.stack([readings[name].transpose(EXAMPLE, WIDTH).values for name in names]).astype(np.float64)


def _wrong(pairs: Floats, direction: Floats) -> Floats:
    """(example,): one minus P(true)."""
    true, false = expit(pairs @ direction[:-1] + direction[-1])
    return np.asarray((1 - true + false) / 2)


def contrast_consistent(pairs: Floats) -> Floats:
    """(width + 1,): w and b of the smallest loss, for standardised states (reply, example, width); the sign is arbitrary."""
    random = np.random.default_rng(0)
    width = pairs.shape[-1]
    starts = random.uniform(-1, 1, (STARTS, width + 1)) / np.sqrt(width)
    found = [minimize(contrast_loss, start, (pairs,), jac=True, method="L-BFGS-B") for start in starts]
    return np.asarray(min(found, key=lambda one: one.fun).x)


def contrast_loss(direction: Floats, pairs: Floats) -> tuple[float, Floats]:
    """The loss of w and b (width + 1,) and its gradient."""
    p = expit(pairs @ direction[:-1] + direction[-1])  # (reply, example)
    consistency, confidence = p.sum(axis=0) - 1, p.min(axis=0)
    weights = direction[:-1]
    loss = float((consistency**2 + confidence**2).mean() + RIDGE * weights @ weights)
    slope = 2 * (consistency + confidence * (p == confidence)) * p * (1 - p) / p.shape[1]  # by the argument of σ
    gradient = np.tensordot(slope, pairs, axes=((0, 1), (0, 1))) + 2 * RIDGE * weights
    return loss, np.append(gradient, slope.sum())
