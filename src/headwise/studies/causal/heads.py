"""Which heads does the study name? Per class of tokens, of the strongest tenth those without which the loss rises; and those
without which it rises more than without matched heads.
"""

from __future__ import annotations

from collections.abc import Iterator

import xarray as xr

from headwise.core.dims import ABLATION, TOKEN_CLASS
from headwise.studies.head_sets import HeadSetMap, layer_head, set_key, strongest

MAX_Q = 0.05
ALL, MORE = "causal.all", "causal.more"  # sets


def head_sets(dataset: xr.Dataset) -> Iterator[HeadSetMap]:
    """One set per class of tokens, by mean ablation, whose map is the rise of the loss; and the heads needed more than others
    of their layer that write as much.
    """
    one = dataset.sel({ABLATION: "mean"})
    effect, q = (layer_head(one[name], TOKEN_CLASS) for name in ("effect", "q"))
    for index, name in enumerate(dataset[TOKEN_CLASS].values.astype(str)):
        rule = f"the strongest tenth by rise of the loss, with q < {MAX_Q}"
        label = f"needed for {dataset['label'].values[index]}"
        member = strongest(effect[index], (q[index] < MAX_Q) & (effect[index] > 0))
        yield HeadSetMap(set_key("causal", name), "causal", label, rule, effect[index], member)
    low = layer_head(dataset["excess_low"])
    rule = "the interval of the rise beyond heads of the same layer that write about as much is above 0"
    yield HeadSetMap(MORE, "causal", "needed more than matched heads", rule, layer_head(dataset["excess"]), low > 0)
