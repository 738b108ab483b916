"""A forward pass that can be stopped: an instrument that measures nothing, and checks a `CancelToken` at every layer.

A model on a CPU may need half a minute for one pass over a long prompt; a person who cancels waits for one layer.
"""

from __future__ import annotations

import xarray as xr

from headwise.core.cancellation import CancelToken
from headwise.seam import Frame, Instrument, Shot

__all__ = ["Watch"]


class Watch(Instrument):
    """Checks at every layer of a pass. Progress is told for passes over more than one token."""

    name = "watch"

    def __init__(self, halt: CancelToken, layers: int):
        self.halt, self.layers = halt, layers
        self._long = False

    def begin(self, shot: Shot) -> None:
        """Decode steps are too short to tell of."""
        self.halt.check()
        self._long = shot.valid.shape[1] > 1

    def see(self, frame: Frame) -> None:
        """One layer further."""
        self.halt.check()
        if self._long:
            self.halt.report_progress((frame.layer + 1) / self.layers)

    def read(self) -> xr.Dataset:
        """Nothing."""
        return xr.Dataset()
