"""A synthetic functions study: maps of noise with heads planted for every function, and one function refused.

Planted, as far as the model has so many layers and heads: for the function at place i five heads in layer 3 + 2 i (with
80 layers further apart) that no other function has, and L2H1 for the first three functions. ``refused`` functions have no map.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr

from synthetic.origin import provenance

LOW = ("Retrieval", "Knowledge Recall", "Semantic Understanding", "Syntactic Understanding")
HIGH = ("Math Calculation", "Inference", "Logical Reasoning", "Decision-making")
EIGHT = (*LOW, *HIGH)
ELEVEN = (*EIGHT, "Induction", "Self-Evaluation", "Lexical Knowledge of rare words")
SEEDS, STEPS, SHARED = 5, 60, (2, 1)
ACCURACY = ("single_head_accuracy", "single_head_accuracy_low", "single_head_accuracy_high")
REASON = "the probe tells it from the others with an AUROC of 0.54 (0.47 to 0.61), no more than chance"
SMALL = np.float32


def functions_dataset(
    layers: int = 30,
    heads: int = 9,
    *,
    functions: Sequence[str] = EIGHT,
    refused: Sequence[str] = ("Semantic Understanding",),
    seed: int = 0,
) -> xr.Dataset:
    """Importance is drawn for every seed, and what follows from it is computed."""
    rng = np.random.default_rng(seed)
    names = list(functions)
    maps = _maps(names, layers, heads, rng)
    is_refused = np.array([name in refused for name in names])
    maps["importance_seeds"][:, is_refused] = np.nan
    by_seed = maps["importance_seeds"]
    importance = by_seed.mean(0)
    spread = by_seed.std(0, ddof=1)
    half = 2.776 * spread / np.sqrt(SEEDS)
    magnitude = np.abs(importance)
    order = np.argsort(-np.nan_to_num(magnitude.reshape(len(names), -1), nan=-1), axis=1, kind="stable")
    there = len(planted(0, layers, heads))
    elbow = np.where(is_refused, 0, np.array([there + (place < 3) for place in range(len(names))]))
    chosen = np.zeros((len(names), layers * heads), dtype=bool)
    for place, count in enumerate(elbow):
        chosen[place, order[place, :count]] = True
    chosen = chosen.reshape(magnitude.shape)
    cells = np.array([[f"L{layer}H{head}" for head in range(heads)] for layer in range(layers)], dtype=object).ravel()
    q = np.where(is_refused[:, None, None], np.nan, np.where(magnitude > maps["null_high"], 0.01, 0.6))
    found = {
        "importance": importance, "importance_low": importance - half, "importance_high": importance + half,
        "importance_sd": spread, "magnitude": magnitude, "null_high": np.where(np.isnan(q), np.nan, maps["null_high"]),
        "p": q / 2, "q": q, "single_head_auroc": maps["alone"], "single_head_p": np.where(maps["alone"] > 0.62, 0.001, 0.3),
        "single_head_q": np.where(maps["alone"] > 0.62, 0.005, 0.5),
    }  # fmt: skip
    own = np.nan_to_num(magnitude, nan=-1) >= np.nan_to_num(magnitude, nan=-1).max(0)
    found["own_q"] = np.where(own, q, np.where(np.isnan(q), np.nan, 0.6))
    dims = ("function", "layer", "head")
    strongest = np.where(q < 0.05, np.nan_to_num(magnitude), -1)
    best = np.where(strongest.max(0) > 0, np.array(names, dtype=object)[strongest.argmax(0)], "")
    variables: dict[str, Any] = {name: (dims, values.astype(SMALL)) for name, values in found.items()}
    variables |= {"beyond_null": (dims, q < 0.05), "chosen": (dims, chosen), "best": (("layer", "head"), best)}
    variables |= _by_function(names, magnitude, maps["alone"], is_refused, rng) | _numbers()
    sorted_ = np.where(
        is_refused[:, None], np.nan, np.take_along_axis(magnitude.reshape(len(names), -1), order, axis=1)
    )
    variables |= {
        **{name: (("layer", "head"), (maps["alone"].mean(0) - 0.3 + move).astype(SMALL))
           for name, move in zip(ACCURACY, (0, -0.05, 0.05), strict=True)},
        "importance_seeds": (("seed", *dims), by_seed.astype(SMALL)),
        "seed_accuracy": ("seed", np.linspace(0.7, 0.76, SEEDS).astype(SMALL)),
        "confusion": (("function", "predicted"), _confusion(len(names))),
        "sorted": (("function", "rank"), sorted_.astype(SMALL)),
        "ranked": (("function", "rank"), np.where(is_refused[:, None], "", cells[order])),
        "direction": ((*dims, "width"), rng.normal(size=(*magnitude.shape, 4)).astype(SMALL)),
        "train_right": ("function", np.full(len(names), 25)), "train_wrong": ("function", np.full(len(names), 15)),
        "elbow": ("function", elbow.astype(np.int64)),
        "map_p": ("function", np.where(is_refused, np.nan, 1 / 21).astype(SMALL)),
        "train_importance": (dims, (0.9 * importance).astype(SMALL)),
        "output_norm": (("layer", "head"), np.linspace(1, 2, layers * heads).reshape(layers, heads).astype(SMALL)),
        **_wording(names, layers),
        "refused": ("function", is_refused),
        "reason": ("function", np.where(is_refused, REASON, "").astype(object)),
        **_examples(names, rng),
    }  # fmt: skip
    size = len(names) * STEPS
    return xr.Dataset(
        variables,
        coords={
            "function": np.array(names, dtype=object),
            "order": ("function", np.array([order_of(name) for name in names], dtype=object)),
            "train": ("function", np.full(len(names), STEPS - 20)),
            "held_out": ("function", np.full(len(names), 20)),
            "predicted": np.array(names, dtype=object),
            "example": np.array([f"s-{place}" for place in range(size)], dtype=object),
            "seed": np.arange(SEEDS), "rank": np.arange(layers * heads),
            "layer": np.arange(layers), "head": np.arange(heads),
        },
        attrs={
            "title": "Which heads carry which function", "record": json.dumps(["importance", "q"]),
            "key_rule": "the content words of the answer", "shuffles": 20, "epochs": 40,
            "provenance": provenance("functions", layers, heads, data="packaged steps", size=size),
        },
    )  # fmt: skip


def _wording(names: list[str], layers: int) -> dict[str, Any]:
    """The last function has too few steps of another wording."""
    rise = np.linspace(0, 0.2, layers)
    by_layer = np.array([0.6 + 0.01 * place + rise for place in range(len(names))])
    by_layer[-1] = np.nan
    return {
        "function_by_layer": (("function", "layer"), by_layer.astype(SMALL)),
        "wording_by_layer": (("function", "layer"), (by_layer + 0.1 - rise).astype(SMALL)),
        "first_word": ("function", np.array(["the"] * len(names), dtype=object)),
        "with_first_word": ("function", np.full(len(names), 30)),
        "without_first_word": ("function", np.array([30] * (len(names) - 1) + [4])),
    }


def order_of(name: str) -> str:
    return "low" if name in LOW else "high" if name in HIGH else ""


def planted(place: int, layers: int, heads: int) -> list[tuple[int, int]]:
    """The heads of the function at this place alone."""
    layer = min((3 + 2 * place) * max(layers // 30, 1), layers - 1)
    return [(layer, head) for head in range(heads)][:5]


def _maps(names: list[str], layers: int, heads: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    shape = (len(names), layers, heads)
    level = 0.0005 * rng.normal(size=shape)
    alone = 0.53 + 0.03 * rng.random(shape)
    for place in range(len(names)):
        for rank, (layer, head) in enumerate(planted(place, layers, heads)):
            level[place, layer, head] = 0.012 - 0.001 * rank
            alone[place, layer, head] = 0.8 - 0.02 * rank
    if layers > SHARED[0] and heads > SHARED[1]:
        level[:3, SHARED[0], SHARED[1]] = -0.02
        alone[:3, SHARED[0], SHARED[1]] = 0.85
    noise = 0.0002 * rng.normal(size=(SEEDS, *shape))
    null_high = 0.003 + 0.0003 * rng.random(shape)
    return {"importance_seeds": level + noise, "alone": alone, "null_high": null_high}


def _by_function(
    names: list[str], magnitude: np.ndarray, alone: np.ndarray, refused: np.ndarray, rng: np.random.Generator
) -> dict[str, tuple[str, np.ndarray]]:
    count = len(names)
    accuracy, recall = np.linspace(0.35, 0.9, count), np.where(refused, 0.15, np.linspace(0.6, 0.95, count))
    auroc, confound = np.where(refused, 0.54, np.linspace(0.8, 0.98, count)), np.linspace(0.9, 0.55, count)
    flat, other = (values.reshape(count, -1) for values in (magnitude, alone))
    agreed = [
        np.nan if is_refused or flat.shape[1] < 3 else np.corrcoef(_ranks(a), _ranks(b))[0, 1]
        for a, b, is_refused in zip(flat, other, refused, strict=True)
    ]
    found = {
        **_ends("accuracy", accuracy, 0.08), **_ends("recall", recall, 0.1), **_ends("auroc", auroc, 0.06),
        "recall_chance": np.full(count, 1 / count), "agreement": np.where(refused, np.nan, rng.uniform(0.8, 0.95, count)),
        **_ends("rank_correlation", np.array(agreed), 0.1), "confound_recall": confound - 0.3,
        **_ends("confound_auroc", confound, 0.07),
    }  # fmt: skip
    return {name: ("function", values.astype(SMALL)) for name, values in found.items()}


def _numbers() -> dict[str, tuple[tuple[()], np.float32]]:
    found = {
        "probe_accuracy": 0.73, "probe_accuracy_low": 0.67, "probe_accuracy_high": 0.78, "majority": 0.14,
        "permuted": 0.125, "permuted_high": 0.17, "confound_accuracy": 0.41, "confound_accuracy_low": 0.35,
        "confound_accuracy_high": 0.47,
    }  # fmt: skip
    return {name: ((), SMALL(value)) for name, value in found.items()}


def _confusion(count: int) -> np.ndarray:
    confusion = np.full((count, count), 0.2 / max(count - 1, 1))
    np.fill_diagonal(confusion, 0.8)
    return confusion.astype(SMALL)


def _examples(names: list[str], rng: np.random.Generator) -> dict[str, tuple[str, np.ndarray]]:
    size = len(names) * STEPS
    texts = {
        "chain": "c-1",
        "question": "Who?",
        "subquestion": "Which?",
        "answer": "Oslo",
        "gold": "Oslo",
        "rule": "exact",
    }
    texts |= {"key_text": "Oslo"}
    split = np.where(np.arange(size) % 3 == 0, "held-out", "train").astype(object)
    return {
        "function_of": ("example", np.repeat(np.array(names, dtype=object), STEPS)),
        "split_of": ("example", split),
        **{name: ("example", np.full(size, text, dtype=object)) for name, text in texts.items()},
        **{name: ("example", np.full(size, value)) for name, value in (("number", 1), ("answer_tokens", 6), ("key_tokens", 3))},
        "right": ("example", rng.random(size) < 0.6),
    }  # fmt: skip


def _ends(name: str, values: np.ndarray, half: float) -> dict[str, np.ndarray]:
    return {name: values, f"{name}_low": values - half, f"{name}_high": np.minimum(values + half, 1.0)}


def _ranks(values: np.ndarray) -> np.ndarray:
    return np.argsort(np.argsort(values, kind="stable"), kind="stable").astype(float)
