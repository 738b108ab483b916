"""Which heads does the study name? Per feature, the strongest tenth by |AUROC - 0.5|, with q < 0.05."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import xarray as xr

from headwise.core.dims import FEATURE, PART
from headwise.studies.head_sets import HeadSetMap, layer_head, strongest


def head_sets(dataset: xr.Dataset) -> Iterator[HeadSetMap]:
    """One set per feature of the whole text; its map is the AUROC's distance from 0.5."""
    parts = dataset[PART].values.astype(str).tolist()
    whole = dataset.sel({PART: "whole" if "whole" in parts else parts[0]})
    strength = np.abs(layer_head(whole["effect"], FEATURE) - 0.5)
    passed = layer_head(whole["q"], FEATURE) < 0.05
    for index, name in enumerate(dataset[FEATURE].values.astype(str)):
        label = str(dataset["label"].values[index])
        rule = "the strongest tenth by |AUROC - 0.5| of wrong against correct answers, with q < 0.05"
        member = strongest(strength[index], passed[index])
        yield HeadSetMap(f"spectral.{name}", "spectral", label, rule, strength[index], member)
