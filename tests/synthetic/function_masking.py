"""A synthetic function_masking study: the first functions need their heads, the last do not; one was not masked at all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr

from synthetic.functions import EIGHT, order_of
from synthetic.origin import provenance

REMOVED, AMOUNTS, DRAWS, SIZE = (4, 8, 16, 32, 64), (0.0, 1.0, 2.0, 4.0, 8.0), 20, 16
REASON = "its map is refused"
FEW = "the whole model fails too few of its training steps (3) for a direction"


def function_masking_dataset(
    layers: int = 30,
    heads: int = 9,
    *,
    functions: Sequence[str] = EIGHT,
    left_out: Sequence[str] = ("Semantic Understanding",),
    chains: int = 12,
    needed: float = 0.5,
    ranked: bool = True,
    seed: int = 0,
) -> xr.Dataset:
    """``needed``: what the first function loses beyond control sets at the most heads masked; 0: nobody loses any.

    ``ranked``: with the ranks among matched controls, which older versions do not have.
    """
    rng = np.random.default_rng(seed)
    names, count = list(functions), len(functions)
    out = np.array([name in left_out for name in names])
    depth = np.linspace(1, 0, max(count, 2))[:count, None] * needed
    fall = np.linspace(0.2, 1, len(REMOVED))[None]
    draws = np.clip(1 - 0.2 * fall[:, None] + 0.02 * rng.normal(size=(count, DRAWS, len(REMOVED))), 0, 1)
    draws[out] = np.nan
    random = draws.mean(1)
    own = np.clip(random - depth * fall, 0, 1)
    by_removed, by_amount, pair = ("function", "removed"), ("function", "amount"), ("masked", "function")
    effect = random - own
    at_size = REMOVED.index(SIZE)
    cross_random = random[:, at_size]
    cross = np.clip(cross_random[None] - 0.03 - np.diag(effect[:, at_size]), 0, 1)
    cross[out] = cross[:, out] = np.nan
    cross_effect = cross_random[None] - cross
    off = np.where(np.eye(count, dtype=bool), np.nan, cross_effect)
    known = np.isfinite(off)
    spill = np.where(known.any(1), np.nansum(off, 1) / np.maximum(known.sum(1), 1), np.nan)
    no_direction = out | (np.arange(count) == count - 1)
    amounts = np.array(AMOUNTS)
    base = np.where(no_direction, np.nan, 0.5)[:, None]
    augmented = base + 0.02 * amounts[None] * depth - 0.004 * amounts[None] ** 2
    along_random = base - 0.005 * amounts[None] ** 2
    low = np.array([order_of(name) == "low" for name in names])
    chain, chain_rows = _chains(names, low & ~out, chains)
    variables: dict[str, Any] = {
        **_ends("own", by_removed, own, 0.08), **_ends("random", by_removed, random, 0.03),
        **_ends("effect", by_removed, effect, 0.09),
        **_ends("intact", ("function",), np.linspace(0.4, 0.9, count), 0.1),
        **_ends("mean_effect", ("function",), effect.mean(1), 0.06), **_ends("spill", ("function",), spill, 0.04),
        **_ends("pooled_effect", ("removed",), _mean(effect), 0.04),
        **_ends("pooled_mean_effect", (), np.array(_mean(effect).mean()), 0.03),
        **chain_rows,
        "recovered_own": ("function", np.where(out, np.nan, 0.05)),
        "recovered_random": ("function", np.where(out, np.nan, 0.04)),
        "all_own": ("function", np.where(out, np.nan, 0.4)), "all_random": ("function", np.where(out, np.nan, 0.5)),
        **_ends("cross", pair, cross, 0.07), **_ends("cross_effect", pair, cross_effect, 0.07),
        **_ends("chain", pair, chain, 0.1),
        **_ends("augmented", by_amount, augmented, 0.08), **_ends("augmented_random", by_amount, along_random, 0.05),
        **_ends("gain", by_amount, augmented - base, 0.05),
        **_ends("gain_over_random", by_amount, augmented - along_random, 0.03),
        "random_draws": (("function", "draw", "removed"), draws), "cross_random": ("function", cross_random),
        "overlap": (pair, np.where(np.eye(count, dtype=bool), 1.0, 0.2)),
    }  # fmt: skip
    dataset = xr.Dataset(variables).astype(np.float32)
    named = np.array([["" if no else f"L3H{step % heads}" for step in REMOVED] for no in out], dtype=object)
    dataset["heads"] = (by_removed, named)
    if ranked:
        lost = np.where(depth > 0.05, 1 / 21, 0.5)
        p = np.where(out, np.nan, lost[:, 0]).astype(np.float32)
        dataset["rank_p"] = (by_removed, np.repeat(p[:, None], len(REMOVED), axis=1))
        dataset["control_sets"] = (by_removed, np.where(out, 0, DRAWS)[:, None].repeat(len(REMOVED), axis=1))
        dataset["norm_ratio"] = (
            by_removed,
            np.repeat(np.where(out, np.nan, 0.9)[:, None], len(REMOVED), 1).astype("f4"),
        )
        dataset["mean_rank_p"], dataset["mean_rank_q"] = ("function", p), ("function", np.minimum(2 * p, 1))
        dataset["pooled_rank_p"] = np.float32(1 / 21)
    dataset["reason"] = ("function", np.where(out, REASON, "").astype(object))
    dataset["augment_reason"] = ("function", np.where(out, REASON, np.where(no_direction, FEW, "")).astype(object))
    counts = {"held_out_steps": 30, "solved_steps": 24, "masked_steps": 20, "failed_steps": 6, "augmented_steps": 30}
    counts |= {"train_right": 40, "train_wrong": 20, "chain_steps": 15 if chains else 0}
    return dataset.assign_coords(
        {
            "function": np.array(names, dtype=object), "masked": np.array(names, dtype=object),
            "order": ("function", np.array([order_of(name) for name in names], dtype=object)),
            "removed": np.array(REMOVED), "amount": np.array(AMOUNTS, dtype=np.float32),
            **{name: ("function", np.full(count, value)) for name, value in counts.items()},
        }
    ).assign_attrs(
        title="Steps without a function's heads", record="[]", size=SIZE, factor=0.001, positions="answer",
        chains=chains, chain_reason="" if chains else "no held-out chain has a low-order and a high-order step",
        provenance=provenance("function_masking", layers, heads, data="packaged steps", size=count * 30),
    )  # fmt: skip


def _chains(names: list[str], masked: np.ndarray, chains: int) -> tuple[np.ndarray, dict[str, Any]]:
    count = len(names)
    there = masked if chains else np.zeros(count, dtype=bool)
    whole = np.linspace(0.4, 0.8, count) if chains else np.full(count, np.nan)
    lost = np.linspace(0.3, 0.0, count)[:, None]
    chain = np.where(there[:, None], whole[None] - lost, np.nan)
    high = np.array([order_of(name) == "high" for name in names])
    own = chain[:, high].mean(1) if high.any() else np.full(count, np.nan)
    random = np.where(there, whole[high].mean() - 0.05, np.nan) if high.any() else own
    return chain, {
        "chain_intact": ("function", whole), "chain_high_own": ("function", own), "chain_high_random": ("function", random),
        "chain_random": ("function", whole - 0.05),
        **_ends("chain_effect", ("function",), random - own, 0.1),
    }  # fmt: skip


def _mean(effect: np.ndarray) -> np.ndarray:
    """Over the functions that were masked; NaN where there are none."""
    known = np.isfinite(effect).all(1)
    return effect[known].mean(0) if known.any() else np.full(effect.shape[1], np.nan)


def _ends(name: str, dims: tuple[str, ...], values: np.ndarray, half: float) -> dict[str, Any]:
    return {name: (dims, values), f"{name}_low": (dims, values - half), f"{name}_high": (dims, values + half)}
