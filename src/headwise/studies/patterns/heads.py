"""What does the study say about single heads? The attention maps of one head, as pixels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import xarray as xr

from headwise.core.dims import CONDITION, EXAMPLE, HEAD, LAYER, QUERY
from headwise.figures.tiles import to_levels


@dataclass(frozen=True, eq=False)
class PatternMaps:
    """A head's attention maps in one model, as pixels: 0 to 254 are weights 0 to 1, 255 is masked."""

    key: str
    """"model" or "reference" """
    name: str
    shown: np.ndarray
    """(query, key) uint8, of the shown prompt"""
    average: np.ndarray
    """(pooled_query, pooled_key) uint8, mean over the prompts, stretched to one length"""


@dataclass(frozen=True, eq=False)
class PatternFact:
    """Example attention maps."""

    tokens: tuple[str, ...]
    """of the shown prompt; with more tokens than rows, row r of a map starts at token ``starts[r]``"""
    starts: tuple[int, ...]
    prompts: tuple[str, ...]
    """the names of the prompts that ``average`` is over"""
    maps: tuple[PatternMaps, ...]


class PatternFacts:
    """The patterns study: the map of the shown prompt, and the mean over all prompts."""

    def __init__(self, patterns: xr.Dataset) -> None:
        self._keys = [str(key) for key in patterns[CONDITION].values]
        self._names = [str(name) for name in patterns["name"].values]
        self._tokens = tuple(str(text) for text in patterns["token_text"].values)
        self._starts = tuple(int(start) for start in patterns[QUERY].values)
        self._prompts = tuple(str(name) for name in patterns[EXAMPLE].values)
        self._maps = {
            name: patterns[name].transpose(CONDITION, LAYER, HEAD, ...).values for name in ("shown", "average")
        }

    def of(self, layer: int, head: int) -> PatternFact | None:
        """The head's maps in every model; None where it has none."""
        if not np.isfinite(self._maps["shown"][:, layer, head]).any():
            return None
        maps = tuple(
            PatternMaps(
                key, name, *(to_levels(self._maps[kind][index, layer, head], 0, 1) for kind in ("shown", "average"))
            )
            for index, (key, name) in enumerate(zip(self._keys, self._names, strict=True))
        )
        return PatternFact(self._tokens, self._starts, self._prompts, maps)
