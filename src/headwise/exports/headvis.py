"""An atlas as the folder ``data/`` that HeadVis, Anthropic's viewer of attention heads, reads.

    config.json                what there is: model, heads, metrics with their descriptions
    scatter_data.json          one flat row a head: layer, head and its metrics, the axes of the viewer's scatter plot
    heads/L{l}H{h}.json        one head: sequences with sparse attention, and tables of them (`headvis_sequences`)
    server_config.json, attributions/manifest.json      {}: the viewer runs without a server

Source: the contract in the docstrings of ``data_pipeline.py`` of github.com/anthropics/headvis (Apache-2.0, read November 2026;
Neuronpedia's exports follow it). Only facts of the format are taken. What an atlas can and cannot give of it:

* Of HeadVis' metrics those are written that mean the same in Headwise: ``self_attention_score``, ``previous_token_score``,
  ``qk_distance`` (means over all tokens of a text but its first), and ``induction_score``, which Headwise takes on repeated
  random tokens and over the tokens that occurred before (its description says so). HeadVis' ``pattern_entropy`` is in nats
  and ours a share of the possible, its variance of the distance is over all pairs and ours within a row: they are not
  written under those names. The ``logit_*`` and ``*_token_entropy`` metrics are not measured.
* Beside them stands every number of the head table (`Atlas.heads`), so that p-values and effects become axes too.
* A metric that a head does not have is left out of its row: the viewer would draw a null at nought.
* An atlas keeps whole maps of one prompt, not samples of a corpus by activation: every head has that one sequence,
  ``n_intervals`` is 1. There is no projection of queries and keys (``has_umap`` is false).

Cost: a file a head, some kB each. This module does not know how anything was measured.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from headwise.atlas import Atlas
from headwise.atlas.disk import translate_os_errors
from headwise.core.dims import HEAD, LAYER
from headwise.core.errors import AtlasError
from headwise.exports.headvis_sequences import Shown, head_payload

__all__ = ["write_headvis"]

SAME = {  # HeadVis' metric -> column of the head table, and what it is
    "self_attention_score": ("profile.diagonal", "mean attention of a token to itself"),
    "previous_token_score": ("profile.previous", "mean attention to the token before"),
    "qk_distance": ("profile.distance", "mean |q - k| weighted by attention, in tokens"),
    "induction_score": (
        "profile.induction",
        "mean attention to tokens that followed an earlier occurrence of this one, over tokens that have one, on repeated "
        "random tokens",
    ),
}
DIGITS = 6  # that count, so that a small p-value is not nought
TABLES = {"top_query_tokens": "Top query tokens", "top_key_tokens": "Top key tokens"}


def write_headvis(atlas: Atlas, folder: str | os.PathLike[str]) -> Path:
    """Write an atlas as the files that HeadVis reads.

    Args:
        atlas: what is written.
        folder: new or empty.

    Returns:
        The folder.

    Examples:
        >>> written = write_headvis(atlas, folder / "headvis")
        >>> sorted(path.name for path in written.iterdir())
        ['attributions', 'config.json', 'heads', 'scatter_data.json', 'server_config.json']
    """
    out = Path(folder)
    _refuse_full(out)
    rows, described = _metrics(atlas.heads())
    shown = Shown.of(atlas["patterns"]) if "patterns" in atlas else None
    with translate_os_errors(out):
        (out / "heads").mkdir(parents=True, exist_ok=True)
        (out / "attributions").mkdir(exist_ok=True)
        for row in rows:
            place = f"L{row[LAYER]}H{row[HEAD]}.json"
            _write(out / "heads" / place, head_payload(shown, row[LAYER], row[HEAD]))
        _write(out / "scatter_data.json", rows)
        _write(out / "server_config.json", {})
        _write(out / "attributions" / "manifest.json", {})
        _write(out / "config.json", _config(atlas, rows, described))
    return out


def _metrics(record: pd.DataFrame) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """The rows of the scatter plot, and what each metric is."""
    numbers = record.drop(columns=[LAYER, HEAD]).select_dtypes("number")
    if numbers.empty:
        raise AtlasError("The atlas has no number of a head; add one with headwise build --studies profile.")
    same = {name: column for name, (column, _) in SAME.items() if column in numbers}
    table = pd.concat([numbers[list(same.values())].set_axis(list(same), axis=1), numbers], axis=1)
    described = {name: f"{SAME[name][1]} (Headwise: {column})" for name, column in same.items()}
    described |= {str(name): f"Headwise: {name}" for name in numbers}
    rows = []
    for (_, place), (_, values) in zip(record[[LAYER, HEAD]].iterrows(), table.iterrows(), strict=True):
        known = {str(name): float(f"{value:.{DIGITS}g}") for name, value in values.items() if np.isfinite(value)}
        if known:  # a layer without heads has none
            rows.append({LAYER: int(place[LAYER]), HEAD: int(place[HEAD]), **known})
    return rows, described


def _config(atlas: Atlas, rows: list[dict[str, Any]], described: Mapping[str, str]) -> dict[str, Any]:
    origins = atlas.provenances()
    model = next(iter(origins.values())).model
    return {
        "model_name": model["id"],
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
        "pipeline_config": {"written_by": "headwise", "studies": {name: asdict(one) for name, one in origins.items()}},
    }


def _refuse_full(folder: Path) -> None:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise AtlasError(f"{folder} is there already and is not an empty folder; choose another with -o.")


def _write(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, ensure_ascii=False, allow_nan=False), encoding="utf-8")
