"""A forward pass that can be stopped: an instrument that measures nothing, and checks a `CancelToken` at every layer.

A model on a CPU may need half a minute for one pass over a long prompt; a person who cancels waits for one layer.
"""

from __future__ import annotations

import xarray as xr

from headwise.core.cancellation import CancelToken
from headwise.seam import AttentionCall, ForwardContext, Instrument

__all__ = ["Watch"]


class Watch(Instrument):
    """Checks at every layer of a pass. Progress is told for passes over more than one token."""

    name = "watch"

    def __init__(self, halt: CancelToken, layers: int):
        self.halt, self.layers = halt, layers
        self._long = False

    def on_forward_start(self, context: ForwardContext) -> None:
        """Decode steps are too short to tell of."""
        self.halt.check()
        self._long = context.valid.shape[1] > 1

    def on_layer(self, call: AttentionCall) -> None:
        """One layer further."""
        self.halt.check()
        if self._long:
            self.halt.report_progress((call.layer + 1) / self.layers)

    def result(self) -> xr.Dataset:
        """Nothing."""
        return xr.Dataset()
