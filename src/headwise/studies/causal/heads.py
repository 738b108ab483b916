"""Which heads does the study name? Per class of tokens, of the strongest tenth those without which the loss rises."""

from __future__ import annotations

from collections.abc import Iterator

import xarray as xr

from headwise.core.dims import ABLATION, TOKEN_CLASS
from headwise.studies.head_sets import HeadSetMap, layer_head, set_key, strongest

MAX_Q = 0.05


def head_sets(dataset: xr.Dataset) -> Iterator[HeadSetMap]:
    """One set per class of tokens, by mean ablation; its map is the rise of the loss."""
    one = dataset.sel({ABLATION: "mean"})
    effect, q = (layer_head(one[name], TOKEN_CLASS) for name in ("effect", "q"))
    for index, name in enumerate(dataset[TOKEN_CLASS].values.astype(str)):
        rule = f"the strongest tenth by rise of the loss, with q < {MAX_Q}"
        label = f"needed for {dataset['label'].values[index]}"
        member = strongest(effect[index], (q[index] < MAX_Q) & (effect[index] > 0))
        yield HeadSetMap(set_key("causal", name), "causal", label, rule, effect[index], member)
