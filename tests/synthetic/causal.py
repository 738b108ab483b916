"""A synthetic causal Dataset: a few heads are needed, some of them for one class of tokens only.

Readings are made up, prompt by prompt; everything else comes from the study's own pure function. Exact effects are
`SLOPE` times the attribution, with an error. Head 1 of layer 1 is needed for all tokens, head 0 of layer 2 for repeated ones.
"""

from __future__ import annotations

import numpy as np
import xarray as xr

from headwise.studies.causal.classes import CLASSES
from headwise.studies.causal.finalize import finalize
from headwise.studies.causal.spec import ABLATIONS
from synthetic.origin import provenance

PROMPTS, SLOPE = 20, 0.6
NEEDED, FOR_REPEATED = (1, 1), (2, 0)


def causal_shard(layers: int, heads: int, seed: int = 0, *, needed: bool = True, prompts: int = PROMPTS) -> xr.Dataset:
    """The readings of all prompts; with ``needed=False`` every effect is noise around 0."""
    generator = np.random.default_rng(seed)
    tokens = generator.integers(2, 14, (prompts, len(CLASSES))).astype(float)
    level = np.zeros((len(CLASSES), layers, heads))
    if needed:
        level += generator.gamma(0.5, 0.01, (layers, heads))
        level[:, *NEEDED] = 0.5
        level[CLASSES.index("repeated"), *FOR_REPEATED] = 0.8
    shape = (prompts, len(ABLATIONS), len(CLASSES), layers, heads)
    noise = generator.normal(0, 0.002 if needed else 0.01, shape)
    total = (level + noise) * tokens[:, None, :, None, None]
    curvature = 0.5 * np.abs(total)
    cells = [(layer, head) for layer in range(layers) for head in range(heads)]
    top = [cell for cell in (NEEDED, FOR_REPEATED) if cell in cells]
    rest = [cells[index] for index in generator.permutation(len(cells)) if cells[index] not in top]
    chosen = sorted(top + rest[: max(8, len(cells) // 10)])
    exact = np.stack([SLOPE * total[..., layer, head] for layer, head in chosen], axis=-1)
    exact += generator.normal(0, 0.001, exact.shape) * tokens[:, None, :, None]
    return xr.Dataset(
        {
            "tokens": (("example", "token_class"), tokens),
            "loss": (("example", "token_class"), tokens * generator.uniform(1, 4, (1, len(CLASSES)))),
            "norm": (("example", "layer", "head"), generator.lognormal(0, 0.3, (prompts, layers, heads))),
            "first_order": (("example", "ablation", "token_class", "layer", "head"), total - curvature),
            "curvature": (("example", "ablation", "token_class", "layer", "head"), curvature),
            "exact": (("example", "ablation", "token_class", "place"), exact),
            "exact_kl": (("example", "ablation", "token_class", "place"), np.abs(exact)),
        },
        coords={
            "layer": np.arange(layers), "head": np.arange(heads), "example": [f"p{index}" for index in range(prompts)],
            "ablation": np.array(ABLATIONS, dtype=object), "token_class": np.array(CLASSES, dtype=object),
            "place": np.array([f"L{layer}H{head}" for layer, head in chosen], dtype=object),
            "role": ("place", np.array(["top" if cell in top else "random" for cell in chosen], dtype=object)),
            "heads": ("place", np.ones(len(chosen), dtype=int)),
        },
    )  # fmt: skip


def causal_dataset(layers: int = 30, heads: int = 9, seed: int = 0) -> xr.Dataset:
    """As `finalize` makes it."""
    origin = provenance("causal", layers, heads, data="packaged passages", size=PROMPTS)
    return finalize([causal_shard(layers, heads, seed)]).assign_attrs(
        prompts=PROMPTS, prompt_tokens=64, questions=PROMPTS, unit="head", provenance=origin
    )
