"""A synthetic patterns Dataset: maps of known kinds, a second model that lost its diffuse weight in known heads.

Every head has a kind: it looks at the token before, at itself, at the first token, far back, or nowhere in particular.
Maps are drawn from it, prompt by prompt, and everything else comes from the study's own pure function. In the second
model the heads `CUT` keep only their weights over 0.1, and the head `MOVED` looks at the first token instead of the one before.
The tests of figures and of words use it.
"""

from __future__ import annotations

import numpy as np
import xarray as xr

from headwise.instruments import PATTERN_STATISTICS
from headwise.studies.patterns.measure import finalize
from synthetic.origin import provenance

TOKENS = ("<s>", "The", " cat", " that", " the", " dog", " had", " chased", " slept", " under", " the", " table", ",", " and",
          " the", " dog", " slept", " beside", " the", " cat", ".")  # fmt: skip
KINDS = ("previous", "self", "first", "far", "diffuse")
MOVED, CUT = (0, 0), ((1, 1), (2, 0))  # L0H0 is a previous-token head in the first model
PROMPTS, SIZE, VISIBLE = 32, 24, 0.1


def patterns_dataset(
    layers: int = 4, heads: int = 3, *, two: bool = True, seed: int = 0, size: int = SIZE
) -> xr.Dataset:
    """With ``two`` a comparison; without, one model."""
    generator = np.random.default_rng(seed)
    kinds = generator.integers(0, len(KINDS), (layers, heads))
    kinds[MOVED] = KINDS.index("previous")
    second = kinds.copy()
    second[MOVED] = KINDS.index("first")
    cut = np.zeros((layers, heads), dtype=bool)
    for layer, head in CUT:
        cut[min(layer, layers - 1), min(head, heads - 1)] = True
    names = ["SmolLM2-135M-Instruct", "Sparse SmolLM2-135M-Instruct"][: 1 + two]
    subjects = [(kinds, np.zeros_like(cut)), (second, cut)][: 1 + two]
    values, averages, shown = [], [], []
    for own, gated in subjects:
        values.append(_numbers(own, gated, np.random.default_rng(seed + 1)))
        averages.append(PROMPTS * maps_of(own, gated, size, np.random.default_rng(seed + 2)))
        shown.append(maps_of(own, gated, len(TOKENS), np.random.default_rng(seed + 3)))
    shard = xr.Dataset(
        {
            "value": (("condition", "example", "statistic", "layer", "head"), np.stack(values).astype(np.float32)),
            "uniform": (("example", "statistic", "layer", "head"), np.full(values[0].shape, 0.05, dtype=np.float32)),
            "loss": (("condition", "example"), _losses(generator, two)),
            "maps": (("condition", "layer", "head", "pooled_query", "pooled_key"), np.stack(averages).astype(np.float32)),
            "shown": (("condition", "layer", "head", "query", "key"), np.stack(shown).astype(np.float32)),
            **(_between(generator, kinds != second, cut) if two else {}),
        },
        coords={"statistic": list(PATTERN_STATISTICS), "layer": np.arange(layers), "head": np.arange(heads),
                "example": [f"prose-{i:02d}" for i in range(PROMPTS)], "register": ("example", ["prose"] * PROMPTS)},
    )  # fmt: skip
    dataset = finalize([shard], names, TOKENS, {"active": 0.01, "peak": 0.3})
    parameters = {"tokens": 128, "prompts": PROMPTS, "active": 0.01, "peak": 0.3, "prompt": "".join(TOKENS[1:]),
                  "reference": {"id": "SmolLM2-135M-Instruct", "adapter": "sparse"} if two else None}  # fmt: skip
    origin = provenance("patterns", layers, heads, data="packaged passages", size=PROMPTS, parameters=parameters)
    return dataset.assign_attrs(provenance=origin)


def maps_of(kinds: np.ndarray, gated: np.ndarray, tokens: int, generator: np.random.Generator) -> np.ndarray:
    """(layer, head, query, key), NaN where the mask hides."""
    query, key = np.ogrid[:tokens, :tokens]
    wanted = np.stack([key == np.maximum(query - 1, 0), key == query, key == np.zeros_like(query),
                       key == query // 2, np.zeros((tokens, tokens), dtype=bool)])  # fmt: skip
    logits = 5.0 * wanted[kinds] + generator.normal(0, 0.7, (*kinds.shape, tokens, tokens))
    logits = np.where(key <= query, logits, -np.inf)
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    weights = np.where(gated[..., None, None] & (weights < VISIBLE), 0.0, weights)
    return np.where(key <= query, weights, np.nan)


def _numbers(kinds: np.ndarray, gated: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """(example, statistic, layer, head) of drawn maps, plainly."""
    found = []
    for _ in range(PROMPTS):
        maps = np.nan_to_num(maps_of(kinds, gated, SIZE, generator))[..., 1:, :]  # the first row left out
        rows = np.arange(1, SIZE)
        band = maps[..., rows - 1, rows] + maps[..., rows - 1, rows - 1]
        mass = maps.sum(-1)
        far = maps * (rows[:, None] - np.arange(SIZE) >= 2)
        far[..., 0] = 0
        shares = maps / np.where(mass > 0, mass, 1)[..., None]
        entropy = -(shares * np.log(np.where(shares > 0, shares, 1))).sum(-1) / np.log(rows + 1)
        pairs = (rows + 1).sum()
        found.append(np.stack([
            band.sum(-1) / mass.sum(-1), maps[..., 0].mean(-1), maps.max(-1).mean(-1), (far > 0.3).sum((-1, -2)) / len(rows),
            entropy.mean(-1), (maps > 0.01).sum((-1, -2)) / pairs, (maps > 0).sum((-1, -2)) / pairs, mass.mean(-1),
        ]))  # fmt: skip
    return np.stack(found)


def _losses(generator: np.random.Generator, two: bool) -> np.ndarray:
    first = generator.normal(3.2, 0.2, PROMPTS)
    return np.stack([first, first + generator.normal(0.05, 0.01, PROMPTS)][: 1 + two]).astype(np.float32)


def _between(generator: np.random.Generator, moved: np.ndarray, cut: np.ndarray) -> dict[str, tuple]:
    dims = ("example", "layer", "head")
    alike = np.where(moved, 0.2, np.where(cut, 0.7, 0.98)) + generator.normal(0, 0.005, (PROMPTS, *moved.shape))
    before = np.full(alike.shape, 200.0)
    both = np.where(moved, 40.0, np.where(cut, 80.0, 196.0)) + np.zeros(alike.shape)
    found = {
        "similarity": alike,
        "other": alike * 0 + 0.3,
        "elsewhere": alike**2,
        "before": before,
        "after": both + 10,
        "both": both,
    }
    result: dict[str, tuple] = {name: (dims, values.astype(np.float32)) for name, values in found.items()}
    return result | {"kl": ("example", generator.gamma(4, 0.01, PROMPTS).astype(np.float32))}
