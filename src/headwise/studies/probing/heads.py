"""Which heads does the study name? The best tenth by AUROC of a probe on the head, with q < 0.05."""

from __future__ import annotations

from collections.abc import Iterator

import xarray as xr

from headwise.studies.head_sets import HeadSetMap, layer_head, strongest


def head_sets(dataset: xr.Dataset) -> Iterator[HeadSetMap]:
    """One set; its map is the AUROC of the head's probe."""
    strength = layer_head(dataset["head_auroc"])
    member = strongest(strength, layer_head(dataset["head_q"]) < 0.05)
    rule = "the best tenth by AUROC of a probe on the head's output, with q < 0.05"
    yield HeadSetMap("probing.head_auroc", "probing", "Probe on a head", rule, strength, member)
