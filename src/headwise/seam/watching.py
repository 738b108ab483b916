"""The two roles at the seam. An instrument observes; an intervention changes; never both in one class."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import ExitStack
from typing import TYPE_CHECKING

from torch import Tensor

from headwise.kernels import ReductionRequest
from headwise.seam.attention_call import AttentionCall, ForwardContext

if TYPE_CHECKING:
    import xarray as xr

    from headwise.seam.structure import Structure


class Instrument(ABC):
    """Observes layers. Asks beforehand for the reductions it needs, so that all instruments share one pass.

    A pass is `begin`, `requested`, `see` for every layer, `end`. One that fails in the middle has no `end`: `begin` forgets
    what it left. Everything but hooks runs without gradients.

    Examples:
        An instrument of one's own: the largest weight of every row, of which only the mean is kept.

        >>> from headwise.kernels import ReductionRequest
        >>> class Sharpness(Instrument):
        ...     name = "sharpness"
        ...     def on_forward_start(self, context):
        ...         self.found = {}
        ...     def requested(self, context):
        ...         return ReductionRequest(row_max=True)
        ...     def on_layer(self, call):
        ...         self.found[call.layer] = call.reductions.row_max.mean(dim=(0, 2))  # (head,)
        ...     def result(self):
        ...         import xarray as xr
        ...         return xr.Dataset({"peak": (("layer", "head"), list(self.found.values()))})
        >>> with hw.observe(model, Sharpness()) as seen:
        ...     _ = model(**model.encode("the old river was the old river"))
        >>> seen["sharpness"].peak.sel(layer=0).values.round(2)
        array([0.66, 1.  , 0.75, 1.  , 0.64, 0.77], dtype=float32)
    """

    name: str  # the key under which an observation gives its reading
    stream_safe = (
        False  # whether `see` may run in a GPU's second queue: it reads the call, and what it holds until `end`
    )

    def setup(self, structure: Structure, stack: ExitStack) -> None:  # noqa: B027  (most need nothing more)
        """An observation begins. What is put on the model's modules is taken off by callbacks left on `stack`."""

    def on_forward_start(self, context: ForwardContext) -> None:  # noqa: B027
        """A pass begins."""

    def requested(self, context: ForwardContext) -> ReductionRequest:
        """Which reductions this instrument needs of every layer of this pass."""
        return ReductionRequest()

    @abstractmethod
    def on_layer(self, call: AttentionCall) -> None:
        """One layer of one pass."""

    def on_forward_end(self, context: ForwardContext) -> None:  # noqa: B027
        """All layers of this pass were seen."""

    @abstractmethod
    def result(self) -> xr.Dataset:
        """What was measured, with named dims."""


class Intervention(ABC):
    """Changes heads: gets a layer's z and returns the z the model goes on with.

    Examples:
        Every head of layer 1 is switched off.

        >>> class Off(Intervention):
        ...     def change(self, call):
        ...         return call.z * 0 if call.layer == 1 else call.z
        >>> with hw.observe(model, Off(), hw.HeadOutputs()) as seen:
        ...     _ = model(**model.encode("the old river"))
        >>> abs(seen["outputs"].z).sum(["example", "head", "token", "width"]).values > 0
        array([ True, False,  True])
    """

    def setup(self, structure: Structure, stack: ExitStack) -> None:  # noqa: B027
        """An observation begins: the moment to refuse heads that the model does not have."""

    @abstractmethod
    def change(self, call: AttentionCall) -> Tensor:
        """The new z, (batch, query, head, value width). Must not write into `call.z`."""
