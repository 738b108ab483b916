"""An atlas as the ``data/`` folder that HeadVis, Anthropic's viewer of attention heads, reads.

    config.json                model, heads, metrics with their descriptions
    scatter_data.json          one flat row per head: layer, head and its metrics, the axes of the viewer's scatter plot
    heads/L{l}H{h}.json        one head: sequences with sparse attention, and token tables
    server_config.json, attributions/manifest.json      {}: the viewer runs without a server

Source: the contract in the docstrings of ``data_pipeline.py`` of github.com/anthropics/headvis (Apache-2.0, read November 2026;
Neuronpedia's exports follow it). Only facts of the format are taken. What an atlas can and cannot provide:

* HeadVis metrics are written where Headwise has the same: ``self_attention_score``, ``previous_token_score``,
  ``qk_distance`` (means over all tokens of a text but the first), and ``induction_score``, which Headwise measures on
  repeated random tokens, over tokens that occurred before (its description says so). HeadVis' ``pattern_entropy`` is in
  nats and ours is relative to the maximum, its variance of the distance is over all pairs and ours within a row: neither is
  written under those names. The ``logit_*`` and ``*_token_entropy`` metrics are not measured.
* All numbers of the head table (`Atlas.heads`) are added, so that p-values and effects become axes too.
* A metric that a head lacks is omitted from its row: the viewer would draw a null at 0.
* An atlas has whole maps of one prompt, not samples of a corpus by activation: every head has that one sequence, and
  ``n_intervals`` is 1. There is no projection of queries and keys (``has_umap`` is false).

A map of T tokens becomes the largest `MAX_WEIGHTS_PER_ROW` weights of every row that are at least `MIN_WEIGHT`, each as its
index q T + k and its value (as HeadVis' contract advises; dense maps would make files of megabytes). ``max_activation``
leaves out row 0 and column 0, as the viewer does. The histogram counts the written pairs by |q - k|, in bins that double; the
tables sum the whole map's weights by query token and by key token. Where a prompt is longer than an atlas stores token by
token, rows are token ranges, labelled by their first and last token.

Cost: one file per head, some kB each. This module does not know how anything was measured.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from headwise.atlas import Atlas
from headwise.core.dims import CONDITION, HEAD, LAYER
from headwise.core.errors import AtlasError, translate_content_errors
from headwise.core.files import translate_os_errors, write_output
from headwise.core.provenance import Provenance, public_name
from headwise.studies.patterns.figure import row_tokens

__all__ = ["write_headvis"]

SAME_METRICS = {  # HeadVis' metric -> column of the head table, and its description
    "self_attention_score": ("profile.diagonal", "mean attention of a token to itself"),
    "previous_token_score": ("profile.previous", "mean attention to the previous token"),
    "qk_distance": ("profile.distance", "mean |q - k| weighted by attention, in tokens"),
    "induction_score": (
        "profile.induction",
        "mean attention to tokens that followed an earlier occurrence of this one, over tokens that have one, on repeated "
        "random tokens",
    ),
}
SIGNIFICANT_DIGITS = 6  # so that a small p-value does not become 0
MAX_WEIGHTS_PER_ROW, MIN_WEIGHT, DECIMALS = 8, 0.005, 4
MAX_TABLE_TOKENS = 50
TABLES = {"top_query_tokens": "Top query tokens", "top_key_tokens": "Top key tokens"}


def write_headvis(atlas: Atlas, folder: str | os.PathLike[str]) -> Path:
    """Write the files that HeadVis reads.

    Args:
        atlas: the atlas.
        folder: new or empty.

    Returns:
        The folder.

    Examples:
        >>> written = write_headvis(atlas, folder / "headvis")
        >>> sorted(path.name for path in written.iterdir())
        ['attributions', 'config.json', 'heads', 'scatter_data.json', 'server_config.json']
    """
    out = Path(folder)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise AtlasError(f"{out} exists and is not an empty folder; choose another with -o.")
    rows, described = _metrics(atlas.heads())
    with translate_os_errors(out), translate_content_errors(f"The atlas {atlas.location}"):
        shown = PromptMaps.of(atlas["patterns"]) if "patterns" in atlas else None
        (out / "heads").mkdir(parents=True, exist_ok=True)
        (out / "attributions").mkdir(exist_ok=True)
        for row in rows:
            file = f"L{row[LAYER]}H{row[HEAD]}.json"
            _write(out / "heads" / file, head_payload(shown, row[LAYER], row[HEAD]))
        _write(out / "scatter_data.json", rows)
        _write(out / "server_config.json", {})
        _write(out / "attributions" / "manifest.json", {})
        _write(out / "config.json", _config(atlas, rows, described))
    return out


def _metrics(record: pd.DataFrame) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """The rows of the scatter plot, and a description of each metric."""
    numbers = record.drop(columns=[LAYER, HEAD]).select_dtypes("number")
    if numbers.empty:
        raise AtlasError("The atlas has no numbers per head; add some with headwise build --studies profile.")
    same = {name: column for name, (column, _) in SAME_METRICS.items() if column in numbers}
    table = pd.concat([numbers[list(same.values())].set_axis(list(same), axis=1), numbers], axis=1)
    described = {name: f"{SAME_METRICS[name][1]} (Headwise: {column})" for name, column in same.items()}
    described |= {str(name): f"Headwise: {name}" for name in numbers}
    rows = []
    for (_, index), (_, values) in zip(record[[LAYER, HEAD]].iterrows(), table.iterrows(), strict=True):
        known = {
            str(name): float(f"{value:.{SIGNIFICANT_DIGITS}g}") for name, value in values.items() if np.isfinite(value)
        }
        if known:  # a layer without heads has none
            rows.append({LAYER: int(index[LAYER]), HEAD: int(index[HEAD]), **known})
    return rows, described


def _config(atlas: Atlas, rows: list[dict[str, Any]], described: Mapping[str, str]) -> dict[str, Any]:
    origins = atlas.provenances()
    model = next(iter(origins.values())).model
    return {
        "model_name": public_name(str(model["id"])),
        "heads": [[row[LAYER], row[HEAD]] for row in rows],
        "n_layers": model["layers"],
        "n_heads": model["heads"],
        "n_intervals": 1,
        "metrics": list(described),
        "metric_descriptions": dict(described),
        "head_data_pattern": "L{layer}H{head}.json",
        "has_umap": False,
        "umap_heads": [],
        "custom_plots": [{"key": "qk_distance_histogram", "label": "Q-K distance"}],
        "custom_tables": [{"key": key, "label": label} for key, label in TABLES.items()],
        "statistics_display": {"mean_max_activation": {"label": "Mean max activation", "format": "default"}},
        "pipeline_config": {"written_by": "headwise", "studies": {name: _shown(one) for name, one in origins.items()}},
    }


def _shown(origin: Provenance) -> dict[str, Any]:
    """A provenance for others: the model and its adapter by name."""
    names = {part: public_name(str(origin.model[part])) for part in ("id", "adapter") if origin.model.get(part)}
    return {**asdict(origin), "model": origin.model | names}


def _write(path: Path, content: Any) -> None:
    write_output(path, json.dumps(content, ensure_ascii=False, allow_nan=False))


@dataclass(frozen=True, eq=False)
class PromptMaps:
    """The maps of one prompt, of the first model."""

    tokens: tuple[str, ...]
    maps: np.ndarray  # (layer, head, query, key); NaN where masked

    @classmethod
    def of(cls, dataset: xr.Dataset) -> PromptMaps:
        """From a patterns study."""
        maps = dataset["shown"].isel({CONDITION: 0}).transpose(LAYER, HEAD, ...).values.astype(np.float64)
        return cls(row_tokens(dataset), maps)


def head_payload(shown: PromptMaps | None, layer: int, head: int) -> dict[str, Any]:
    """The content of heads/L{l}H{h}.json; without a patterns study there is no sequence."""
    found = shown.maps[layer, head] if shown is not None else np.zeros((0, 0))
    if shown is None or not np.isfinite(found).any():
        return _payload([], np.zeros(0), [], [], {"n_samples": 0})
    weights = np.nan_to_num(found)
    query, key = _largest_weights(weights)
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
    queries = _token_table(shown.tokens, weights.sum(1))
    keys = _token_table(shown.tokens, weights.sum(0))
    return _payload([sequence], np.abs(query - key), queries, keys, {"n_samples": 1, "mean_max_activation": top})


def _payload(
    sequences: list[Any], distances: np.ndarray, queries: list[Any], keys: list[Any], statistics: dict[str, Any]
) -> dict[str, Any]:
    return {
        "sequences": sequences,
        "qk_distance_histogram": _histogram(distances),
        "top_query_tokens": queries,
        "top_key_tokens": keys,
        "histogram": {},
        "statistics": statistics,
    }


def _largest_weights(weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Row and column indices of the written weights, row by row."""
    order = np.argsort(-weights, axis=1, kind="stable")[:, :MAX_WEIGHTS_PER_ROW]
    chosen = np.zeros(weights.shape, dtype=bool)
    np.put_along_axis(chosen, order, True, axis=1)
    query, key = np.nonzero(chosen & (weights >= MIN_WEIGHT))
    return query, key


def _histogram(distances: np.ndarray) -> dict[str, list[int]]:
    """Counts in [0, 1), [1, 2), [2, 4), [4, 8), ... as many as needed."""
    edges = [0, 1]
    while len(distances) and edges[-1] <= distances.max():
        edges.append(2 * edges[-1])
    return {"bin_edges": edges, "bin_values": np.histogram(distances, edges)[0].tolist()}


def _token_table(tokens: Sequence[str], mass: np.ndarray) -> list[dict[str, Any]]:
    """The tokens with the largest summed weight."""
    total: dict[str, float] = {}
    for token, weight in zip(tokens, mass, strict=True):
        total[token] = total.get(token, 0.0) + float(weight)
    first = sorted(total.items(), key=lambda item: -item[1])[:MAX_TABLE_TOKENS]
    return [{"token": token, "weight": round(weight, DECIMALS)} for token, weight in first]
