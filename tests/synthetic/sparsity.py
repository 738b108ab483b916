"""A synthetic sparsity Dataset: costs fall with what is kept, later layers need fewer keys.

Readings are made up, prompt by prompt; everything else comes from the study's own pure function.
"""

from __future__ import annotations

import numpy as np
import xarray as xr

from headwise.studies.sparsity.measure import finalize, rules_of
from headwise.studies.sparsity.spec import SparsityOptions
from synthetic.origin import provenance

PROMPTS = 30


def sparsity_dataset(layers: int = 30, heads: int = 9, seed: int = 0) -> xr.Dataset:
    """All default rules."""
    generator = np.random.default_rng(seed)
    rules = rules_of(SparsityOptions())
    share = {"top": 0.03, "random": 0.03, "window": 0.025}
    kept = np.array([
        min(0.9, share[rule.kind] * rule.amount) if rule.kind in share else
        0.05 / rule.amount**0.4 / 3 if rule.kind == "over" else 0.05 / (rule.amount - 1) ** 1.2
        for rule in rules
    ])  # fmt: skip
    worse = np.array([{"random": 6.0, "window": 2.0}.get(rule.kind, 1.0) for rule in rules])
    mass = np.clip(0.3 * worse * (1 - kept) ** 3, 0, 0.9)
    spread = generator.normal(1, 0.1, (PROMPTS, len(rules)))
    shape = (PROMPTS, layers, heads, len(rules))
    fewer = np.linspace(1.5, 0.5, layers)[None, :, None, None]
    dense = generator.normal(4, 0.3, PROMPTS)
    rise = worse * np.exp(-6 * kept) * spread
    shard = xr.Dataset(
        {
            "kept": (("example", "layer", "head", "rule"), np.broadcast_to(kept, shape)),
            "mass": (("example", "layer", "head", "rule"), np.broadcast_to(mass, shape)),
            "change": (("example", "layer", "head", "rule"), 2 * mass * fewer * generator.normal(1, 0.1, shape)),
            "needed": (("example", "layer", "head"), (20 * fewer * generator.normal(1, 0.1, shape))[..., 0]),
            "dense": ("example", dense),
            "loss": (("example", "rule"), dense[:, None] + rise),
            "kl": (("example", "rule"), 1.05 * rise),
        },
        coords={"layer": np.arange(layers), "head": np.arange(heads), "example": [f"p{i}" for i in range(PROMPTS)]},
    )
    origin = provenance("sparsity", layers, heads, data="packaged passages", size=PROMPTS)
    return finalize([shard], rules).assign_attrs(tokens=64, prompts=PROMPTS, provenance=origin)
