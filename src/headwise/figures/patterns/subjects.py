"""What the three figures of the patterns study share: the two subjects' names, chosen heads, and tokens as labels."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import xarray as xr

from headwise.dims import HEAD, LAYER, STATISTIC, SUBJECT, head_name, parse_heads
from headwise.errors import DataError, StudyError, did_you_mean
from headwise.figures.origin import origin_of

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


def ranked_heads(dataset: xr.Dataset, by: str | None, top: int) -> list[Head]:
    """The ``top`` heads by a number, largest first; ``by`` as in `figure`."""
    if top < 1:
        raise StudyError(f"top={top} heads were asked for; give at least 1.")
    two = "change" in dataset
    by = by or ("change" if two else "peak")
    known = [str(key) for key in dataset[STATISTIC].values]
    options = [*known, *(["change", *(f"{key}_change" for key in known)] if two else [])]
    if by not in options:
        raise StudyError(f"Heads cannot be ranked by {by!r}. {did_you_mean(by, options)}")
    if by == "change":
        values = 1 - dataset["similarity"]
    elif by in known:
        values = dataset["value"].isel({SUBJECT: 0}).sel({STATISTIC: by})
    else:
        values = abs(dataset["change"].sel({STATISTIC: by.removesuffix("_change")}))
    heads = all_heads(dataset)
    flat = np.nan_to_num([float(values.isel({LAYER: layer, HEAD: head})) for layer, head in heads], nan=-np.inf)
    return [heads[place] for place in np.argsort(-flat, kind="stable")[:top]]


def token_labels(dataset: xr.Dataset) -> tuple[str, ...]:
    """What is written at the rows of the shown maps: a token each, or where rows were pooled the first and the last."""
    tokens = [_written(str(token)) for token in dataset["token_text"].values]
    starts = [int(place) for place in dataset["query"].values]
    ends = [*starts[1:], len(tokens)]
    return tuple(
        tokens[start] if end - start == 1 else f"{tokens[start]}…{tokens[end - 1]}"
        for start, end in zip(starts, ends, strict=True)
    )


def prompts_of(dataset: xr.Dataset) -> str:
    """How many prompts of how many tokens the numbers are over."""
    origin = origin_of(dataset)
    tokens = origin.get("parameters", {}).get("tokens")
    count = dataset.sizes.get("example", 0)
    return f"{count} prompts of {tokens} tokens" if tokens else f"{count} prompts"


def _written(token: str) -> str:
    """Line ends as signs, no blanks around, cut where it is long."""
    text = token.replace("\n", "\\n").replace("\t", "\\t").strip() or "␣"
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
