"""The common part of instruments that keep something for every example, layer and head.

Per layer a subclass returns small tensors, (batch, head, ...). They stay on their device until the pass is over, so
that no layer waits for a copy; then they are stacked over layers and set off to the CPU once. Nobody waits for that either
before `read`: a GPU goes on with the next batch. Layers without attention heads are NaN, and so are heads (and entries)
that one layer has and another has not.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from contextlib import ExitStack

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from headwise.core.dims import EXAMPLE, HEAD, LAYER
from headwise.core.errors import SeamError
from headwise.instruments.sending import Sending
from headwise.seam import (
    AttentionCall,
    ForwardContext,
    Instrument,
    Positions,
    Structure,
    check_positions,
    position_index,
)


class HeadReadings(Instrument):
    """Readings with dims (example, layer, head, ...). Subclasses say what to measure and name the further dims.

    Examples:
        How long is what each head puts out, on average over the tokens of a text?

        >>> class Length(HeadReadings):
        ...     name = "length"
        ...     extra_dims = {"length": ()}
        ...     def measure(self, call):
        ...         norms = call.z.norm(dim=-1) * call.valid[..., None]  # (batch, query, head)
        ...         return {"length": norms.sum(dim=1) / call.valid.sum(dim=1, keepdim=True)}
        >>> with hw.observe(model, Length()) as seen:
        ...     _ = model(**model.encode(["the old river", "a low door in the garden"]))
        >>> dict(seen["length"].length.sizes)
        {'example': 2, 'layer': 3, 'head': 6}
    """

    extra_dims: Mapping[str, tuple[str, ...]]  # variable -> dims after (example, layer, head)
    whole_sequences = False  # whether a pass on top of a cache, where earlier rows are missing, is refused

    def __init__(self) -> None:
        self._layers: dict[int, dict[str, Tensor]] = {}
        self._passes: list[dict[str, Tensor]] = []
        self._sending = Sending()
        self._shape = (0, 0)

    def setup(self, structure: Structure, stack: ExitStack) -> None:
        """Remember how large a map is."""
        self._shape = (structure.card.layers, structure.card.heads)

    def on_forward_start(self, context: ForwardContext) -> None:
        """Forget what a pass that failed has left."""
        if self.whole_sequences and context.cached:
            raise SeamError(
                f"{type(self).__name__} needs whole sequences, and this pass stands on a cache of {context.cached} "
                "tokens; run prompt and answer together in one forward pass (use_cache=False)"
            )
        self._layers.clear()

    @abstractmethod
    def measure(self, call: AttentionCall) -> dict[str, Tensor]:
        """Each variable of one layer, (batch, head, ...)."""

    def on_layer(self, call: AttentionCall) -> None:
        """Keep one layer's tensors until the pass is over."""
        self._layers[call.layer] = self.measure(call)

    def on_forward_end(self, context: ForwardContext) -> None:
        """Stack the layers of a pass and bring them to the CPU."""
        stacked = {}
        for name in next(iter(self._layers.values())):
            stacked[name] = self._sending.send(
                self._stacked({layer: values[name] for layer, values in self._layers.items()})
            )
        self._passes.append(stacked)
        self._layers.clear()

    def _stacked(self, found: dict[int, Tensor]) -> Tensor:
        """(example, layer, head, ...) float32 of the layers' tensors, all on the device of the first."""
        sample = next(iter(found.values()))
        alike = {values.shape for values in found.values()} == {sample.shape} and sample.shape[1] == self._shape[1]
        if alike and sorted(found) == list(range(self._shape[0])):
            return torch.stack([found[layer].to(sample.device) for layer in sorted(found)], dim=1).float()
        tail = [max(sizes) for sizes in zip(*(values.shape[2:] for values in found.values()), strict=True)]
        shape = (len(sample), *self._shape, *tail)
        whole = torch.full(shape, torch.nan, dtype=torch.float32, device=sample.device)
        for layer, values in found.items():
            whole[:, layer][tuple(slice(size) for size in values.shape)] = values.to(sample.device)
        return whole

    def result(self) -> xr.Dataset:
        """All passes so far, one after the other along `example`."""
        if not self._passes:
            raise SeamError(f"{type(self).__name__} has seen nothing yet; run the model inside the `with observe(...)`")
        self._sending.arrive()
        variables = {
            name: (
                (EXAMPLE, LAYER, HEAD, *self.extra_dims[name]),
                torch.cat([one[name] for one in self._passes]).numpy(),
            )
            for name in self._passes[0]
        }
        layers, heads = self._shape
        return xr.Dataset(variables, coords={LAYER: np.arange(layers), HEAD: np.arange(heads)})


class PickedReadings(HeadReadings):
    """Readings at chosen tokens. They are found once a pass: a GPU would have to be waited for in every layer.

    Args:
        positions: which tokens (see `headwise.seam.positions`).
    """

    def __init__(self, positions: Positions = "last"):
        super().__init__()
        self.positions = check_positions(positions)

    def on_forward_start(self, context: ForwardContext) -> None:
        """Find the tokens."""
        super().on_forward_start(context)
        self._index = position_index(self.positions, context)  # (batch, token)
