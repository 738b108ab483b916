"""The two roles at the seam. An instrument observes; an intervention changes; never both in one class."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import ExitStack
from typing import TYPE_CHECKING

from torch import Tensor

from headwise.kernels import Wanted
from headwise.seam.frame import Frame, Shot

if TYPE_CHECKING:
    import xarray as xr

    from headwise.seam.structure import Structure


class Instrument(ABC):
    """Observes layers. Asks beforehand for the reductions it needs, so that all instruments share one pass.

    A pass is `begin`, `wants`, `see` for every layer, `end`. One that fails in the middle has no `end`: `begin` forgets
    what it left. Everything but hooks runs without gradients.

    Examples:
        An instrument of one's own: the largest weight of every row, of which only the mean is kept.

        >>> from headwise.kernels import Wanted
        >>> class Sharpness(Instrument):
        ...     name = "sharpness"
        ...     def begin(self, shot):
        ...         self.found = {}
        ...     def wants(self, shot):
        ...         return Wanted(peak=True)
        ...     def see(self, frame):
        ...         self.found[frame.layer] = frame.reductions.peak.mean(dim=(0, 2))  # (head,)
        ...     def read(self):
        ...         import xarray as xr
        ...         return xr.Dataset({"peak": (("layer", "head"), list(self.found.values()))})
        >>> with hw.observe(model, Sharpness()) as seen:
        ...     _ = model(**model.encode("the old river was the old river"))
        >>> seen["sharpness"].peak.sel(layer=0).values.round(2)
        array([0.66, 1.  , 0.75, 1.  , 0.64, 0.77], dtype=float32)
    """

    name: str  # the key under which an observation gives its reading
    beside = False  # whether `see` may run in a GPU's second queue: it reads the frame, and what it holds until `end`

    def attach(self, structure: Structure, stack: ExitStack) -> None:  # noqa: B027  (most need nothing more)
        """An observation begins. What is put on the model's modules is taken off by callbacks left on `stack`."""

    def begin(self, shot: Shot) -> None:  # noqa: B027
        """A pass begins."""

    def wants(self, shot: Shot) -> Wanted:
        """Which reductions this instrument needs of every layer of this pass."""
        return Wanted()

    @abstractmethod
    def see(self, frame: Frame) -> None:
        """One layer of one pass."""

    def end(self, shot: Shot) -> None:  # noqa: B027
        """All layers of this pass were seen."""

    @abstractmethod
    def read(self) -> xr.Dataset:
        """What was measured, with named dims."""


class Intervention(ABC):
    """Changes heads: gets a layer's z and returns the z the model goes on with.

    Examples:
        Every head of layer 1 is switched off.

        >>> class Off(Intervention):
        ...     def change(self, frame):
        ...         return frame.z * 0 if frame.layer == 1 else frame.z
        >>> with hw.observe(model, Off(), hw.HeadOutputs()) as seen:
        ...     _ = model(**model.encode("the old river"))
        >>> abs(seen["outputs"].z).sum(["example", "head", "token", "width"]).values > 0
        array([ True, False,  True])
    """

    def attach(self, structure: Structure, stack: ExitStack) -> None:  # noqa: B027
        """An observation begins: the moment to refuse heads that the model does not have."""

    @abstractmethod
    def change(self, frame: Frame) -> Tensor:
        """The new z, (batch, query, head, value width). Must not write into `frame.z`."""
