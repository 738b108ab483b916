"""Example patterns of one head, as pixels: its map of the shown prompt, and the mean over all prompts.

Pixels are levels of weight from 0 to 1, hidden ones apart, as in figures (`figures.tiles`). This module does not know how
maps are measured.
"""

from __future__ import annotations

import numpy as np
import xarray as xr

from headwise.core.dims import EXAMPLE, HEAD, LAYER, QUERY, SUBJECT
from headwise.figures.tiles import to_levels
from headwise.joins.dossier.facts import PatternFact, PatternMaps

__all__ = ["PatternFacts"]


class PatternFacts:
    """The patterns study, ready to be asked for any head."""

    def __init__(self, patterns: xr.Dataset) -> None:
        self._keys = [str(key) for key in patterns[SUBJECT].values]
        self._names = [str(name) for name in patterns["name"].values]
        self._tokens = tuple(str(text) for text in patterns["token_text"].values)
        self._starts = tuple(int(start) for start in patterns[QUERY].values)
        self._prompts = tuple(str(name) for name in patterns[EXAMPLE].values)
        self._maps = {name: patterns[name].transpose(SUBJECT, LAYER, HEAD, ...).values for name in ("shown", "average")}

    def of(self, layer: int, head: int) -> PatternFact | None:
        """The head's maps of every subject; None where it has none."""
        if not np.isfinite(self._maps["shown"][:, layer, head]).any():
            return None
        maps = tuple(
            PatternMaps(
                key, name, *(to_levels(self._maps[kind][place, layer, head], 0, 1) for kind in ("shown", "average"))
            )
            for place, (key, name) in enumerate(zip(self._keys, self._names, strict=True))
        )
        return PatternFact(self._tokens, self._starts, self._prompts, maps)
