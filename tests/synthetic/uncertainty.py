"""Readings of answers, made up; and the Dataset that the study `uncertainty` makes of them.

What carries the error can be chosen: the log-probabilities, the samples (they disagree on a wrong answer), one head, one
entry of the hidden state, or of the contrast pair (``belief``), or nothing. The topic can carry it, too: what the question
alone tells.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import xarray as xr

from headwise.scores.score import COSTS
from headwise.studies.uncertainty.finalize import finalize
from headwise.studies.uncertainty.spec import UncertaintyOptions
from synthetic.origin import provenance

TOKENS, WIDTH, RANKS = 6, 6, 5
WORDS = np.array(["rome", "oslo", "lima", "bern", "kyiv", "doha", "riga", "male"], dtype=object)


def planted_readings(
    layers: int = 2,
    heads: int = 3,
    *,
    count: int = 240,
    draws: int = 4,
    logprob: float = 0.0,
    disagreement: float = 0.0,
    head: float = 0.0,
    hidden: float = 0.0,
    belief: float = 0.0,
    topic: float = 0.0,
    seed: int = 0,
) -> tuple[xr.Dataset, xr.Dataset]:
    """Readings and answers; each argument says how much of the error is in that part."""
    random = np.random.default_rng(seed)
    topics = np.arange(count) % 8
    wrong = random.random(count) < 0.5 + topic * (topics - 3.5) / 8
    lengths = random.integers(2, TOKENS + 1, count)
    exists = np.arange(TOKENS) < lengths[:, None]

    def tokens(shift: np.ndarray) -> np.ndarray:
        return np.where(exists, -np.abs(random.normal(size=(count, TOKENS))) - shift[:, None], np.nan)

    def normal(*shape: int) -> np.ndarray:
        return random.normal(size=(count, *shape))

    surprise = logprob * wrong
    share = np.clip(0.3 + disagreement * (wrong - 0.5), 0.02, 0.98)  # of the samples that say something else
    other = random.random((count, draws)) < share[:, None]
    said = np.where(other, random.integers(1, len(WORDS), (count, draws)), 0)
    laplacian, received, vectors = normal(layers, heads, RANKS), normal(layers, heads, RANKS), normal(layers, WIDTH)
    laplacian[:, 0, 1] += head * wrong[:, None]
    received[:, 0, 1] += head * wrong[:, None]
    vectors[:, 0, 2] += hidden * wrong
    replies = dict(zip(("true", "false"), np.random.default_rng([seed, 1]).normal(size=(2, count, WIDTH)), strict=True))
    for sign, states in zip((-1, 1), replies.values(), strict=True):
        states[:, 3] += 5 * sign + sign * belief * (2 * wrong - 1)  # which reply it is, and whether it is right
    maps = ("example", "layer", "head")
    sampled = np.where(np.arange(TOKENS) < 3, -np.abs(random.normal(size=(count, draws, TOKENS))), np.nan)
    readings = xr.Dataset(
        {
            "logprobs": (("example", "token"), tokens(surprise)),
            "token_entropy": (("example", "token"), -tokens(surprise)),
            "relevance": (("example", "token"), np.where(exists, random.random((count, TOKENS)), np.nan)),
            "rauq": ("example", normal() + surprise),
            "hidden_log_det": ("example", normal()),
            "p_true": ("example", random.random(count)),
            **{f"hidden_{reply}": (("example", "width"), states) for reply, states in replies.items()},
            "laplacian": ((*maps, "rank"), -np.sort(-laplacian, axis=-1)),
            "attention": ((*maps, "rank"), -np.sort(-normal(layers, heads, RANKS), axis=-1)),
            "received": ((*maps, "rank"), -np.sort(-received, axis=-1)),
            "attention_score": ((*maps, "part"), normal(layers, heads, 2)),
            "lookback": ((*maps, "part"), normal(layers, heads, 2)),
            "entropy": ((*maps, "part"), normal(layers, heads, 2)),
            "hidden": (("example", "layer", "width"), vectors),
            "answer": ("example", np.full(count, "rome", dtype=object)),
            "sample": (("example", "draw"), WORDS[said]),
            "group": (("example", "draw"), said),
            "answer_group": ("example", np.zeros(count, dtype=int)),
            "sample_logprobs": (("example", "draw", "token"), sampled),
            "sample_relevance": (("example", "draw", "token"), np.where(np.isfinite(sampled), 1.0, np.nan)),
            "sample_similarity": (
                ("example", "draw", "other_draw"),
                (said[:, :, None] == said[:, None, :]).astype(float),
            ),
            "sample_hidden": (("example", "draw", "width"), normal(draws, WIDTH)),
            "chosen_layer": layers // 2,
        }
        | {f"seconds {name}": ("example", np.full(count, 0.1 * place)) for place, name in enumerate(COSTS, 1)}
    )
    answers = xr.Dataset(
        {
            "label": ("example", np.where(wrong, "wrong", "correct")),
            "question": ("example", [f"what is {index} of {topic}?" for index, topic in enumerate(topics)]),
            "topic": ("example", [f"topic {topic}" for topic in topics]),
            "difficulty": ("example", np.ones(count, dtype=int)),
            "answer_tokens": ("example", lengths),
            "prompt_tokens": ("example", np.full(count, 20)),
        },
        coords={"example": [f"q{index}" for index in range(count)]},
    )
    return readings, answers


@cache
def uncertainty_dataset(layers: int = 8, heads: int = 6) -> xr.Dataset:
    """Samples disagree where the answer is wrong, and the log-probabilities carry a little of it."""
    readings, answers = planted_readings(2, 3, count=160, disagreement=0.35, logprob=0.3)
    origin = provenance("uncertainty", layers, heads, data="made up", size=160)
    return finalize(readings, answers, UncertaintyOptions(samples=4)).assign_attrs(provenance=origin)
