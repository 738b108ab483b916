"""The provenance of data that nobody measured, as the studies write it."""

from __future__ import annotations

import json
from typing import Any

from headwise.studies.registry import dataset_spec


def provenance(
    study: str, layers: int, heads: int, *, data: str, size: int, parameters: dict[str, Any] | None = None
) -> str:
    """The attribute ``provenance`` of a Dataset of this study."""
    return json.dumps(
        {
            "study": study,
            "study_version": spec.version if (spec := dataset_spec(study)) else 1,
            "model": {
                "id": "HuggingFaceTB/SmolLM2-135M-Instruct", "digest": "4f0c1b9a77de", "layers": layers, "heads": heads,
                "kv_heads": max(heads // 3, 1), "dtype": "float32", "device": "cpu",
            },
            "data": {"name": data, "size": size, "digest": "77ab2c0d5511"},
            "parameters": parameters or {},
            "seed": 0,
            "environment": {"headwise": "0.1.0", "torch": "2.9.0", "transformers": "5.22"},
            "created": "2026-01-01T00:00:00+00:00",
        }
    )  # fmt: skip
