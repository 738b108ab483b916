"""Readings of beginnings of answers, made up; and the Dataset that the streaming study makes of them."""

from functools import cache

import numpy as np
import xarray as xr

from headwise.instruments.answer_rows import ROW_STATISTICS
from headwise.studies.streaming.measure import SCORES, finalize
from headwise.studies.streaming.spec import SHARES, StreamingOptions
from synthetic.origin import provenance

PREFIXES = len(SHARES) + 4


def planted_beginnings(
    layers: int = 3,
    heads: int = 4,
    *,
    count: int = 320,
    error: float = 0.0,
    topic: float = 0.0,
    logprob: float = 0.0,
    seed: int = 0,
) -> tuple[xr.Dataset, xr.Dataset]:
    """Readings and answers: two heads carry the error or the topic, the log-probabilities the error."""
    random = np.random.default_rng(seed)
    topics = np.arange(count) % 8
    wrong = random.random(count) < 0.15 + 0.1 * topics
    values = {name: random.normal(size=(count, layers, heads, PREFIXES)).astype(np.float32) for name in ROW_STATISTICS}
    values["entropy"][:, 1, min(2, heads - 1)] += (error * wrong + topic * topics / 2)[:, None]
    values["sink"][:, 2, 0] -= (error * wrong + topic * topics / 2)[:, None]
    dims = ("example", "layer", "head", "prefix")
    readings = xr.Dataset({name: (dims, array) for name, array in values.items()})
    common = random.normal(size=(count, 1)) + logprob * wrong[:, None]
    for name in SCORES.values():
        readings[name] = (("example", "prefix"), common + 0.1 * random.normal(size=(count, PREFIXES)))
    answers = xr.Dataset(
        {
            "label": ("example", np.where(wrong, "wrong", "correct")),
            "question": ("example", [f"what is {index} of {topic}?" for index, topic in enumerate(topics)]),
            "topic": ("example", [f"topic {topic}" for topic in topics]),
            "difficulty": ("example", np.ones(count, dtype=int)),
            "answer_tokens": ("example", random.integers(1, 9, count)),
            "prompt_tokens": ("example", np.full(count, 20)),
        },
        coords={"example": [f"q{index}" for index in range(count)]},
    )
    return readings.assign_coords(layer=np.arange(layers), head=np.arange(heads)), answers


@cache
def streaming_dataset(layers: int = 8, heads: int = 6) -> xr.Dataset:
    """Two heads carry the error."""
    readings, answers = planted_beginnings(layers, heads, count=120, error=1.0)
    origin = provenance("streaming", layers, heads, data="made up", size=120)
    return finalize(readings, answers, StreamingOptions()).assign_attrs(provenance=origin)
