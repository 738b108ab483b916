"""A synthetic circuits Dataset: known heads carry each task, a second model needs fewer of them.

Readings are made up, prompt by prompt; everything else comes from the study's own pure function.
"""

from __future__ import annotations

import numpy as np
import xarray as xr

from headwise.studies.circuits.finalize import UNITS, finalize
from synthetic.origin import provenance

TASKS = {"induction": "Induction", "indirect_object": "Indirect object", "greater_than": "Greater than",
         "successor": "Successor", "agreement": "Agreement"}  # fmt: skip
NAMES = ["SmolLM2-135M-Instruct", "Sparse SmolLM2-135M-Instruct"]
RANKED, MEASURED, SLOTS = 8, 12, 20


def circuits_dataset(
    layers: int = 30, heads: int = 9, *, two: bool = True, tasks: int = 5, seed: int = 0
) -> xr.Dataset:
    """With ``two`` a comparison, in which the second model does not do the last task."""
    generator = np.random.default_rng(seed)
    keys = list(TASKS)[:tasks]
    shards = []
    for place, condition in enumerate(("model", "reference")[: 1 + two]):
        for task in keys:
            reason = "right in 55 % of 20 prompts, which is not above chance" if place and task == keys[-1] else ""
            shards.append(_shard(generator, layers, heads, condition, task, reason))
    dataset = finalize(shards, NAMES[: 1 + two], goal=0.9, seed=0, unusable={"years": "3 of 20 pairs can be used"})
    origin = provenance("circuits", layers, heads, data="circuit tasks", size=20 * tasks)
    return dataset.assign_attrs(provenance=origin)


def _shard(
    generator: np.random.Generator, layers: int, heads: int, condition: str, task: str, reason: str
) -> xr.Dataset:
    count = RANKED + MEASURED
    clean, corrupt = generator.normal(4, 0.5, count), generator.normal(-4, 0.5, count)
    effect = np.full((count, layers, heads), np.nan)
    size, random_size = (np.full((2, SLOTS), np.nan) for _ in range(2))
    score, random_score = (np.full((2, SLOTS, count), np.nan) for _ in range(2))
    exact = np.full((2, 12), np.nan)
    if not reason:
        effect[:RANKED] = generator.normal(0, 0.05, (RANKED, layers, heads))
        effect[:RANKED, layers // 2, 1 % heads] += 3.0
        effect[:RANKED, layers - 1, 0] -= 1.0
        exact = np.stack([np.arange(12.0), np.arange(12.0) + generator.normal(0, 1, 12)])
        for row, total in enumerate((layers * heads, layers**2 * (heads + 1) ** 2 // 2)):
            needs = total ** (0.6 if condition == "model" else 0.35)
            sizes = np.unique(np.geomspace(1, total, 14).astype(int))
            for into, scored, x in ((size, score, sizes), (random_size, random_score, sizes[2::3])):
                share = 1 - 0.1 ** (x / needs) if into is size else x / total * 0.5
                into[row, : len(x)] = x
                noise = generator.normal(0, 0.3, (len(x), MEASURED)) * (x < total)[:, None]
                gap = (clean - corrupt)[RANKED:]
                scored[row, : len(x), RANKED:] = (
                    corrupt[RANKED:] + np.where(x == total, 1, share)[:, None] * gap + noise
                )
    return xr.Dataset(
        {
            "clean": ("example", clean), "corrupt": ("example", corrupt),
            "effect": (("example", "layer", "head"), effect),
            "size": (("unit", "circuit_size"), size), "score": (("unit", "circuit_size", "example"), score),
            "random_size": (("unit", "circuit_size"), random_size),
            "random_score": (("unit", "circuit_size", "example"), random_score),
            "edge": ("rank", np.array([f"L{i}H0 > logits" for i in range(20)], dtype=object)),
            "edge_effect": ("rank", np.linspace(2, 0.1, 20)), "exact": (("part", "place"), exact),
        },
        coords={"unit": np.array(UNITS, dtype=object), "layer": np.arange(layers), "head": np.arange(heads),
                "label": TASKS[task]},
        attrs={"condition": condition, "task": task, "reason": reason, "ranked": RANKED, "tokens": 9,
               "shown": f"a prompt of {task}", "expected": " right"},
    )  # fmt: skip
