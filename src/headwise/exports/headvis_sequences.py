"""One head as HeadVis shows it: the shown prompt with its attention, sparse, and what follows from it.

A map of T tokens becomes the largest `PER_ROW` weights of every row that reach `LEAST`, each as its place q T + k and its value
(what HeadVis' own contract advises; dense maps would make files of megabytes). ``max_activation`` leaves out row 0 and
column 0, as the viewer does. The histogram counts kept pairs by |q - k|, in bins that double; the tables sum the weights of the
whole map by the token that looks and the token that is looked at.

Of a prompt longer than an atlas keeps token by token, rows are stretches of tokens and their label is the first and the last.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from headwise.core.dims import HEAD, LAYER, SUBJECT
from headwise.figures.patterns.subjects import row_tokens

__all__ = ["Shown", "head_payload"]

PER_ROW, LEAST, DECIMALS = 8, 0.005, 4
TOKENS = 50  # rows of a table


@dataclass(frozen=True, eq=False)
class Shown:
    """The maps of one prompt, of the first subject."""

    tokens: tuple[str, ...]
    maps: np.ndarray  # (layer, head, query, key); NaN is hidden by the mask

    @classmethod
    def of(cls, dataset: xr.Dataset) -> Shown:
        """From a patterns study."""
        maps = dataset["shown"].isel({SUBJECT: 0}).transpose(LAYER, HEAD, ...).values.astype(np.float64)
        return cls(row_tokens(dataset), maps)


def head_payload(shown: Shown | None, layer: int, head: int) -> dict[str, Any]:
    """The content of heads/L{l}H{h}.json; without a patterns study there is no sequence."""
    found = shown.maps[layer, head] if shown is not None else np.zeros((0, 0))
    if shown is None or not np.isfinite(found).any():
        return _payload([], np.zeros(0), [], [], {"n_samples": 0})
    weights = np.nan_to_num(found)
    query, key = _kept(weights)
    top = round(float(weights[1:, 1:].max(initial=0.0)), DECIMALS)
    sequence = {
        "sequence_id": 0,
        "interval": 1,
        "tokens": list(shown.tokens),
        "attention_indices": (query * len(weights) + key).tolist(),
        "attention_values": np.round(weights[query, key], DECIMALS).tolist(),
        "seq_len": len(weights),
        "max_activation": top,
    }
    looking = _ranked(shown.tokens, weights.sum(1))
    looked_at = _ranked(shown.tokens, weights.sum(0))
    return _payload([sequence], np.abs(query - key), looking, looked_at, {"n_samples": 1, "mean_max_activation": top})


def _payload(
    sequences: list[Any], distances: np.ndarray, looking: list[Any], looked_at: list[Any], statistics: dict[str, Any]
) -> dict[str, Any]:
    return {
        "sequences": sequences,
        "qk_distance_histogram": _histogram(distances),
        "top_query_tokens": looking,
        "top_key_tokens": looked_at,
        "histogram": {},
        "statistics": statistics,
    }


def _kept(weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows and columns of the weights that are written, row by row."""
    order = np.argsort(-weights, axis=1, kind="stable")[:, :PER_ROW]
    kept = np.zeros(weights.shape, dtype=bool)
    np.put_along_axis(kept, order, True, axis=1)
    query, key = np.nonzero(kept & (weights >= LEAST))
    return query, key


def _histogram(distances: np.ndarray) -> dict[str, list[int]]:
    """Counts in [0, 1), [1, 2), [2, 4), [4, 8), ... as far as is needed."""
    edges = [0, 1]
    while len(distances) and edges[-1] <= distances.max():
        edges.append(2 * edges[-1])
    return {"bin_edges": edges, "bin_values": np.histogram(distances, edges)[0].tolist()}


def _ranked(tokens: Sequence[str], mass: np.ndarray) -> list[dict[str, Any]]:
    """The tokens with most mass, equal ones summed."""
    total: dict[str, float] = {}
    for token, weight in zip(tokens, mass, strict=True):
        total[token] = total.get(token, 0.0) + float(weight)
    first = sorted(total.items(), key=lambda item: -item[1])[:TOKENS]
    return [{"token": token, "weight": round(weight, DECIMALS)} for token, weight in first]
