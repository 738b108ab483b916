"""A synthetic profile: what the study would write for a model, with a few heads planted.

The shape of the numbers follows what is known of small decoder models: sinks grow with depth, a handful of heads look
at the previous token, fewer do induction, most heads are far from uniform. The tests of figures and of words use it.
"""

from __future__ import annotations

import numpy as np
import xarray as xr

from synthetic.origin import provenance

STATISTICS = {  # label, unit, definition: as the study writes them
    "entropy": ("Entropy", "", "entropy of a row over the log of the keys it can see: 0 one key, 1 evenly spread"),
    "sink": ("First token (sink)", "", "weight on the first token of the text"),
    "diagonal": ("Own token", "", "weight on the token itself"),
    "previous": ("Previous token", "", "weight on the token before"),
    "distance": ("Mean distance", "tokens", "how far back the head looks on average"),
    "spread": ("Spread of distance", "tokens", "standard deviation of the distance within a row"),
    "induction": ("Induction", "", "weight on the token that followed the earlier occurrence of this one"),
    "duplicate": ("Duplicate token", "", "weight on the earlier occurrence of this token"),
    "delimiter": ("Delimiters", "", "weight on punctuation and line ends, the first token excepted"),
    "top1": ("Largest weight", "", "largest weight of a row"),
    "output_norm_ratio": (
        "Output norm (relative)",
        "",
        "norm of what the head writes, over the norm of the residual stream it reads",
    ),
}
UNIFORM = {
    "entropy": 1.0, "sink": 0.021, "diagonal": 0.021, "previous": 0.021, "distance": 151.0, "spread": 87.0,
    "induction": 0.006, "duplicate": 0.006, "delimiter": 0.131, "top1": 0.021, "output_norm_ratio": np.nan,
}  # fmt: skip
ON_RANDOM = ("induction", "duplicate")
PLANTED = {"previous": [(3, 2), (7, 5)], "induction": [(12, 3), (14, 7)], "duplicate": [(5, 1)], "sink": [(20, 4)]}


def profile_dataset(
    layers: int = 30, heads: int = 9, *, texts: int = 60, randoms: int = 12, seed: int = 0
) -> xr.Dataset:
    """Planted heads are those of PLANTED that fit into the model."""
    generator = np.random.default_rng(seed)
    level = _levels(layers, heads, generator)
    keys, examples = list(STATISTICS), texts + randoms
    per_example = np.full((examples, len(keys), layers, heads), np.nan, dtype=np.float32)
    for index, key in enumerate(keys):
        rows = slice(texts, None) if key in ON_RANDOM else slice(0, texts)
        count = randoms if key in ON_RANDOM else texts
        noise = generator.normal(1.0, 0.12, (count, layers, heads))
        top = np.inf if key in ("distance", "spread", "output_norm_ratio") else 1.0
        per_example[rows, index] = np.clip(level[key] * noise, 0, top)
    with np.errstate(invalid="ignore", divide="ignore"):
        seen = np.isfinite(per_example).sum(0)
        value = np.nansum(per_example, 0) / seen
        half = 1.96 * np.sqrt(np.nansum((per_example - value) ** 2, 0) / (seen - 1) / seen)
    uniform = np.stack([np.full((layers, heads), UNIFORM[key]) for key in keys])
    dims = ("statistic", "layer", "head")
    registers = ["prose", "dialogue", "code", "table", "maths"]
    names = [f"{registers[index % 5]}-{index // 5}" for index in range(texts)] + [
        f"repeats-{index}" for index in range(randoms)
    ]
    return xr.Dataset(
        {
            "value": (dims, value.astype(np.float32)),
            "low": (dims, (value - half).astype(np.float32)),
            "high": (dims, (value + half).astype(np.float32)),
            "uniform": (dims, uniform.astype(np.float32)),
            "per_example": (("example", *dims), per_example),
        },
        coords={
            "statistic": keys,
            "label": ("statistic", [STATISTICS[key][0] for key in keys]),
            "definition": ("statistic", [STATISTICS[key][2] for key in keys]),
            "unit": ("statistic", [STATISTICS[key][1] for key in keys]),
            "layer": np.arange(layers),
            "head": np.arange(heads),
            "example": names,
            "register": ("example", [name.split("-")[0] for name in names]),
        },
        attrs={
            "title": "Where each head attends",
            "provenance": provenance(
                "profile", layers, heads, data="passages", size=examples, parameters={"tokens": 512}
            ),
        },
    )


def _levels(layers: int, heads: int, generator: np.random.Generator) -> dict[str, np.ndarray]:
    shape, depth = (layers, heads), np.linspace(0, 1, layers)[:, None] if layers > 1 else np.full((1, 1), 0.5)
    level = {
        "sink": np.clip(0.15 + 0.75 * np.sqrt(depth) * generator.beta(4, 1.6, shape), 0, 0.97),
        "diagonal": 0.03 + 0.25 * generator.beta(1.2, 6, shape) * (1.3 - depth),
        "previous": 0.02 + 0.25 * generator.beta(1, 7, shape) * (1.2 - depth),
        "induction": 0.01 + 0.12 * generator.beta(0.8, 9, shape),
        "duplicate": 0.008 + 0.1 * generator.beta(0.8, 9, shape),
        "delimiter": 0.05 + 0.35 * generator.beta(1.5, 5, shape),
        "output_norm_ratio": np.exp(generator.normal(-3.2, 0.5, shape)) * (1 + depth),
    }
    for key, places in PLANTED.items():
        for layer, head in places:
            if layer < layers and head < heads:
                level[key][layer, head] = {"previous": 0.85, "induction": 0.78, "duplicate": 0.7, "sink": 0.985}[key]
                if key != "sink":
                    level["sink"][layer, head] = 0.06
    free = 1 - level["sink"]
    level["top1"] = np.maximum.reduce([level["sink"], level["previous"], level["induction"], 0.25 + 0.2 * free])
    level["entropy"] = np.clip(1.02 - level["top1"] + 0.1 * generator.normal(size=shape), 0.03, 0.95)
    level["distance"] = 150 * (0.15 + 0.9 * level["sink"]) * (1 - 0.9 * level["previous"])
    level["spread"] = 90 * np.clip(0.3 + 0.9 * level["entropy"], 0, 1.3)
    return level
