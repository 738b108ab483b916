"""What do the heads attend to in a wrong answer? Scores of attention maps, from sums over rows and columns alone.

With a_ij the weight of query i on key j in one head, over prompt and answer together:

| row | kind | what | source |
|-----|------|------|--------|
| RAUQ | score | recurrent, over heads that attend to the token before (`probes.running_scores`) | Vazhentsev |
| LLM-Check, attention | score | -Σ over heads of the mean over answer tokens of log a_ii, at the middle layer | Sriramanan |
| AttnScore | score | the same over all tokens, mean over layers, as Binkowski et al. compare with | Sriramanan |
| AttnLogDet, AttnEigvals | supervised | mean over tokens of log a_ii; the k largest a_ii; of every head | Binkowski 2025 |
| LapEigvals | supervised | the k largest λ_i = d_i - a_ii, d_i the mean weight that token i receives | Binkowski 2025 |
| SinkProbe | supervised | the k largest d_i of every head | Binkowski 2026 |
| Lookback | supervised | weight per prompt token against weight per answer token (Lookback Lens) | Chuang |
| Entropy | supervised | of a row over the log of its keys, mean over the answer; ours | |

The map of a causal head is triangular, so log a_ii sums to the log-determinant, and a_ii and λ_i are the eigenvalues of the map
and of its Laplacian. Readings: those of `instruments.AnswerSpectrum` (``part`` 0 is the whole text, 1 the answer),
``received`` (`instruments.SinkScores`), ``rauq``, ``chosen_layer``. LLM-Check's papers and code leave the sign open; here,
as in Binkowski et al., less attention to the own token speaks for a wrong answer. SinkProbe's L1 penalty is replaced by the
L2 penalty of all other rows, so that rows differ by their features alone.

Cost: one pass over prompt and answer at that of fused attention (`docs/how-it-works/seam.md`); RAUQ can be read while the
answer is written (study `streaming`).
"""

from __future__ import annotations

import xarray as xr

from headwise.core.dims import HEAD, LAYER, PART
from headwise.scores.score import Publication, score

WHOLE, ANSWER = 0, 1  # parts
LLM_CHECK = Publication(
    "Sriramanan et al. 2024, LLM-Check: Investigating Detection of Hallucinations",
    "https://openreview.net/forum?id=LYx4w3CAgy",
)
LAPEIGVALS = Publication(
    "Binkowski et al. 2025, Hallucination Detection in LLMs Using Spectral Features of Attention Maps",
    "https://arxiv.org/abs/2502.17598",
)


@score(
    "RAUQ",
    needs=("rauq",),
    paper=Publication("Vazhentsev et al. 2025, Uncertainty-Aware Attention Heads", "https://arxiv.org/abs/2505.20045"),
)
def rauq(readings: xr.Dataset) -> xr.DataArray:
    """Of the whole answer, as `headwise.probes.running_scores.Rauq` computes it.

    >>> rauq(xr.Dataset({"rauq": ("example", [0.7, 0.2])}))
    array([0.7, 0.2])
    """
    return readings["rauq"]


@score("LLM-Check, attention", needs=("attention_score", "chosen_layer"), paper=LLM_CHECK)
def llm_check_attention(readings: xr.Dataset) -> xr.DataArray:
    """Minus the sum over the heads of one layer of the mean log weight on the own token, over the answer's tokens.

    >>> values = [[[[-1.0, -3.0], [-2.0, -4.0]]]]  # one example, one layer, two heads, the whole and the answer
    >>> readings = xr.Dataset({"attention_score": (("example", "layer", "head", "part"), values), "chosen_layer": 0})
    >>> llm_check_attention(readings)
    array([7.])
    """
    here = readings["attention_score"].isel({PART: ANSWER, LAYER: int(readings["chosen_layer"])})
    return -here.sum(HEAD)


@score("AttnScore", needs=("attention_score",), paper=LLM_CHECK)
def attention_score(readings: xr.Dataset) -> xr.DataArray:
    """The same over all tokens, mean over all layers.

    >>> values = [[[[-1.0, -3.0], [-2.0, -4.0]]]]
    >>> attention_score(xr.Dataset({"attention_score": (("example", "layer", "head", "part"), values)}))
    array([3.])
    """
    return -readings["attention_score"].isel({PART: WHOLE}).sum(HEAD).mean(LAYER)


@score("LapEigvals", needs=("laplacian",), kind="supervised", paper=LAPEIGVALS)
def laplacian_eigenvalues(readings: xr.Dataset) -> xr.DataArray:
    """The k largest per head; k is chosen inside the training folds."""
    return readings["laplacian"]


@score("AttnEigvals", needs=("attention",), kind="supervised", paper=LAPEIGVALS)
def attention_eigenvalues(readings: xr.Dataset) -> xr.DataArray:
    """The k largest weights on the own token per head; k is chosen inside the training folds."""
    return readings["attention"]


@score("AttnLogDet", needs=("attention_score",), kind="supervised", paper=LAPEIGVALS)
def attention_log_determinant(readings: xr.Dataset) -> xr.DataArray:
    """The mean log weight on the own token, per head."""
    return readings["attention_score"].isel({PART: WHOLE})


@score(
    "SinkProbe",
    needs=("received",),
    kind="supervised",
    paper=Publication(
        "Binkowski et al. 2026, Attention Sinks as Internal Signals for Hallucination Detection",
        "https://arxiv.org/abs/2604.10697",
    ),
)
def sink_scores(readings: xr.Dataset) -> xr.DataArray:
    """The k largest mean weights that a token receives, per head; k is chosen inside the training folds."""
    return readings["received"]


@score(
    "Lookback",
    needs=("lookback",),
    kind="supervised",
    paper=Publication("Chuang et al. 2024, Lookback Lens", "https://arxiv.org/abs/2407.07071"),
)
def lookback(readings: xr.Dataset) -> xr.DataArray:
    """The lookback ratio of the answer, per head."""
    return readings["lookback"].isel({PART: ANSWER})


@score("Entropy", needs=("entropy",), kind="supervised")
def entropy(readings: xr.Dataset) -> xr.DataArray:
    """The entropy of the answer's rows, per head."""
    return readings["entropy"].isel({PART: ANSWER})
