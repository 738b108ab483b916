"""What the three figures of the patterns study share: the two subjects' names, chosen heads, and tokens as labels."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import xarray as xr

from headwise.core.dims import HEAD, LAYER, STATISTIC, SUBJECT, head_name, parse_heads
from headwise.core.errors import DataError, StudyError, did_you_mean
from headwise.figures.provenance import provenance_of

ALIKE = ("change", "similarity")  # two names of one order: least similar first
LONGEST = 14  # letters of a token that are written

Head = tuple[int, int]


def names_of(dataset: xr.Dataset) -> list[str]:
    """The subjects as they are written over their maps."""
    return [str(name) for name in dataset["name"].values]


def all_heads(dataset: xr.Dataset) -> list[Head]:
    """The heads that the model has, layer by layer."""
    there = dataset["value"].isel({SUBJECT: 0}).sel({STATISTIC: "peak"}).transpose(LAYER, HEAD).notnull().values
    return [(int(layer), int(head)) for layer, head in np.argwhere(there)]


def chosen_heads(dataset: xr.Dataset, wanted: Iterable[str] | str) -> list[Head]:
    """Heads by name, in the order given; one that the model does not have is refused."""
    heads = list(dict.fromkeys(parse_heads(wanted)))
    known = set(all_heads(dataset))
    for head in heads:
        if head not in known:
            layers, width = dataset.sizes[LAYER], dataset.sizes[HEAD]
            raise DataError(
                f"There is no head {head_name(*head)} in these patterns: layers go from 0 to {layers - 1} and heads from 0 "
                f"to {width - 1}."
            )
    if not heads:
        raise DataError("No head was named; write them as L3H1,L5H2.")
    return heads


def ranked_heads(dataset: xr.Dataset, by: str | None, top: int) -> tuple[list[Head], str]:
    """The ``top`` heads by a number, largest first, and in words which they are; ``by`` as in `figure`."""
    if top < 1:
        raise StudyError(f"top={top} heads were asked for; give at least 1.")
    two = "change" in dataset
    by = by or ("change" if two else "peak")
    known = [str(key) for key in dataset[STATISTIC].values]
    options = [*known, *([*ALIKE, *(f"{key}_change" for key in known)] if two else [])]
    if by not in options:
        raise StudyError(f"Heads cannot be ranked by {by!r}. {did_you_mean(by, options)}")
    values, told = _ranking(dataset, by, two)
    heads = all_heads(dataset)
    flat = np.nan_to_num([float(values.isel({LAYER: layer, HEAD: head})) for layer, head in heads], nan=-np.inf)
    order = np.argsort(-flat, kind="stable")
    kept = order[:top]
    tied = len(order) > len(kept) and flat[order[len(kept)]] == flat[kept[-1]]
    told = f"{len(kept)} of {len(heads)} heads, {told}"
    return [heads[place] for place in kept], f"{told}; others have the same value as the last" if tied else told


def _ranking(dataset: xr.Dataset, by: str, two: bool) -> tuple[xr.DataArray, str]:
    """What heads are ranked by, and that in words."""
    if by in ALIKE:
        return 1 - dataset["similarity"], "those whose maps changed most (least similar first)"
    key = by.removesuffix("_change")
    label = str(dataset["label"].sel({STATISTIC: key}).values)
    if by.endswith("_change"):
        change = abs(dataset["change"].sel({STATISTIC: key}))
        return change, f"those whose number “{label}” changed most, up or down"
    of = f" in {names_of(dataset)[0]}" if two else ""
    return dataset["value"].isel({SUBJECT: 0}).sel({STATISTIC: key}), f"those with the largest “{label}”{of}"


def token_labels(dataset: xr.Dataset) -> tuple[str, ...]:
    """What is written at the rows of the shown maps: a token each, or where rows were pooled the first and the last."""
    return row_tokens(dataset, _written)


def row_tokens(dataset: xr.Dataset, written: Callable[[str], str] = str) -> tuple[str, ...]:
    """The same with every token as it is, or as ``written`` makes it."""
    tokens = [written(str(token)) for token in dataset["token_text"].values]
    starts = [int(place) for place in dataset["query"].values]
    ends = [*starts[1:], len(tokens)]
    return tuple(
        tokens[start] if end - start == 1 else f"{tokens[start]}…{tokens[end - 1]}"
        for start, end in zip(starts, ends, strict=True)
    )


def prompts_of(dataset: xr.Dataset) -> str:
    """How many prompts of how many tokens the numbers are over."""
    origin = provenance_of(dataset)
    tokens = origin.get("parameters", {}).get("tokens")
    count = dataset.sizes.get("example", 0)
    return f"{count} prompts of {tokens} tokens" if tokens else f"{count} prompts"


def _written(token: str) -> str:
    """Line ends as signs, no blanks around, cut where it is long."""
    text = token.replace("\n", "\\n").replace("\t", "\\t").strip() or "␣"
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
