"""Small Datasets whose maps are given, for tests of joins: what a study would write, and no more."""

from __future__ import annotations

import numpy as np
import xarray as xr

from synthetic.origin import provenance

STATISTICS = ("sink", "induction")


def profile(values: np.ndarray, *, half: float = 0.01, texts: int = 20, seed: int = 0, **origin: str) -> xr.Dataset:
    """``values`` (statistic, layer, head); examples scatter so that the interval is about ``half`` wide on each side."""
    generator = np.random.default_rng(seed)
    spread = half * np.sqrt(texts) / 1.96
    noise = generator.normal(size=(texts, *values.shape))
    noise = (noise - noise.mean(0)) / noise.std(0, ddof=1)
    per_example = values + spread * noise
    dims = ("statistic", "layer", "head")
    return xr.Dataset(
        {
            "value": (dims, values.astype(np.float32)),
            "low": (dims, (values - half).astype(np.float32)),
            "high": (dims, (values + half).astype(np.float32)),
            "uniform": (dims, np.full(values.shape, 0.05, dtype=np.float32)),
            "per_example": (("example", *dims), per_example.astype(np.float32)),
        },
        coords={
            "statistic": list(STATISTICS[: len(values)]),
            "label": ("statistic", list(STATISTICS[: len(values)])),
            "definition": ("statistic", ["weight"] * len(values)),
            "unit": ("statistic", [""] * len(values)),
            "layer": np.arange(values.shape[1]),
            "head": np.arange(values.shape[2]),
            "example": [f"text-{place}" for place in range(texts)],
            "register": ("example", ["prose"] * texts),
        },
        attrs={
            "title": "Where each head attends",
            "record": '["value"]',
            "provenance": provenance("profile", *values.shape[1:], data=origin.get("data", "passages"), size=texts),
        },
    )


def scores(values: np.ndarray, study: str, *, half: float | None = None) -> xr.Dataset:
    """Any other study with one recorded map ``score``; ``values`` (layer, head)."""
    dims = ("layer", "head")
    variables = {"score": (dims, values)}
    if half is not None:
        variables |= {"score_low": (dims, values - half), "score_high": (dims, values + half)}
    return xr.Dataset(
        variables,
        coords={"layer": np.arange(values.shape[0]), "head": np.arange(values.shape[1])},
        attrs={"title": study, "record": '["score"]', "provenance": provenance(study, *values.shape, data="d", size=1)},
    )
