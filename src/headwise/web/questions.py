"""The answers study as a table: every question, what the model said, what was expected, and the label."""

from __future__ import annotations

from collections import Counter
from typing import Any

import xarray as xr

__all__ = ["question_table"]

COLUMNS = {
    "question": "Question",
    "answer": "Answer",
    "gold": "Expected",
    "label": "Label",
    "rule": "Why",
    "topic": "Topic",
}


def question_table(dataset: xr.Dataset) -> dict[str, Any]:
    """``{columns: [{title, values}], short}`` of the columns that are there."""
    columns = [
        {"title": title, "values": [str(value) for value in dataset[name].values]}
        for name, title in COLUMNS.items()
        if name in dataset
    ]
    return {"columns": columns, "short": _short(dataset)}


def _short(dataset: xr.Dataset) -> str:
    total = dataset.sizes.get("example", 0)
    if "label" not in dataset:
        return f"{total:,} questions."
    counts = Counter(str(label) for label in dataset["label"].values)
    told = ", ".join(f"{count:,} {label}" for label, count in counts.most_common())
    return f"{total:,} questions: {told}."
