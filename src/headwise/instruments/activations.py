"""Activations at hook points other than the heads, at chosen tokens.

| site          | hook point                                                        |
|---------------|-------------------------------------------------------------------|
| residual      | the residual stream after the block: the layer's output           |
| attention_out | the output of attention's output projection                       |
| mlp_in        | the input of the MLP (normalised, in most families)               |
| mlp_out       | the output of the MLP                                             |

Modules are found by property: the output projection by tracing z (`seam.projection`); the MLP as the one child of a layer
with matrices that does not contain the attention. Families without exactly one such child (OPT) have no `mlp_*` sites.
Layers without attention heads are NaN in `attention_out`.

While a text is generated every pass adds its examples once more: with ``"last"`` (the default) pass p of a batch of n holds at
p n to p n + n - 1 the hidden states that emitted each example's next token, and they are those of the whole sequence.

Cost: nothing beyond the pass; only the chosen tokens are stored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor, nn

from headwise.core.dims import EXAMPLE, LAYER, SITE, TOKEN, WIDTH
from headwise.core.errors import DataError, SeamError, did_you_mean
from headwise.instruments.readings import HostCopy, joined
from headwise.seam import (
    AttentionCall,
    ForwardContext,
    Instrument,
    Positions,
    Structure,
    check_positions,
    output_projections,
    position_index,
)

SITES = ("residual", "attention_out", "mlp_in", "mlp_out")


class Activations(Instrument):
    """Activations at hook points, dims (example, site, layer, token, width).

    Args:
        sites: any of residual, attention_out, mlp_in, mlp_out.
        positions: which tokens (see `headwise.seam.instrument`).
        half: in half precision, which takes half of the memory.

    Examples:
        >>> with hw.observe(model, hw.Activations(["residual", "mlp_out"])) as seen:
        ...     _ = model(**model.encode(["the old river", "a door"]))
        >>> dict(seen["activations"].activation.sizes)
        {'example': 2, 'site': 2, 'layer': 3, 'token': 1, 'width': 384}
    """

    name = "activations"

    def __init__(self, sites: Sequence[str] = ("residual",), positions: Positions = "last", *, half: bool = False):
        sites = (sites,) if isinstance(sites, str) else tuple(dict.fromkeys(sites))
        for site in sites:
            if site not in SITES:
                raise DataError(f"there is no site {site!r}. {did_you_mean(site, SITES)}")
        self.sites = sites
        self.positions = check_positions(positions)
        self.half = half
        self._passes: list[Callable[[], Tensor]] = []
        self._copy = HostCopy()
        self._captured: dict[tuple[str, int], Tensor] = {}  # the chosen tokens of this pass, (batch, token, width)
        self._index: Tensor | None = None  # (batch, token), during a pass

    def setup(self, structure: Structure, stack: ExitStack) -> None:
        """Register hooks on the modules."""
        self._shape = (structure.card.layers, structure.card.hidden_size)
        for index, layer in enumerate(structure.layers):
            for site in self.sites:
                if site == "attention_out" and index not in structure.attention_layers:
                    continue
                module = _module(structure, site, index, layer)
                register = module.register_forward_pre_hook if site == "mlp_in" else module.register_forward_hook
                stack.callback(register(self._hook(site, index), with_kwargs=True).remove)

    def on_forward_start(self, context: ForwardContext) -> None:
        """Locate the chosen tokens."""
        self._index = position_index(self.positions, context)
        self._captured.clear()

    def on_layer(self, call: AttentionCall) -> None:
        """Nothing: the hooks read the activations."""

    def on_forward_end(self, context: ForwardContext) -> None:
        """Stack the sites and layers of this pass and start one copy to the CPU."""
        assert self._index is not None
        layers, width = self._shape
        shape = (len(self._index), len(self.sites), layers, self._index.shape[1], width)
        device = next((values.device for values in self._captured.values()), torch.device("cpu"))
        stacked = torch.full(shape, torch.nan, dtype=torch.float32, device=device)
        for (site, layer), values in self._captured.items():
            stacked[:, self.sites.index(site), layer] = values.to(device)
        self._passes.append(self._copy.start(stacked, half=self.half))
        self._captured.clear()
        self._index = None

    def result(self) -> xr.Dataset:
        """All passes so far."""
        if not self._passes:
            raise SeamError("Activations has no readings yet; run the model inside `with observe(...)`")
        self._copy.wait()
        return xr.Dataset(
            {"activation": ((EXAMPLE, SITE, LAYER, TOKEN, WIDTH), joined(self._passes).numpy())},
            coords={SITE: np.array(self.sites), LAYER: np.arange(self._shape[0])},
        )

    def _hook(self, site: str, layer: int) -> Callable[..., None]:
        def hook(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any = None) -> None:
            if self._index is None:
                return  # outside of an observed pass
            if site == "mlp_in":
                output = args[0] if args else kwargs["hidden_states"]
            hidden = output[0] if isinstance(output, tuple) else output
            self._captured[site, layer] = _pick(hidden.detach(), self._index)

        return hook


def _pick(hidden: Tensor, index: Tensor) -> Tensor:
    """(batch, token, width) float: copies, so that the full sequence can be freed."""
    index = index.to(hidden.device)
    hidden = hidden.reshape(len(index), -1, hidden.shape[-1])  # some families flatten batch and token
    picked = hidden.gather(1, index.clamp(min=0)[:, :, None].expand(-1, -1, hidden.shape[-1])).float()
    return picked.masked_fill((index < 0)[:, :, None], torch.nan)


def _module(structure: Structure, site: str, index: int, layer: nn.Module) -> nn.Module:
    if site == "residual":
        return layer
    if site == "attention_out":
        return output_projections(structure)[index].module
    attention = output_projections(structure).get(index)
    rest = [
        child
        for child in layer.children()
        if any(p.ndim >= 2 for p in child.parameters())
        and not (attention is not None and any(module is attention.module for module in child.modules()))
    ]
    if len(rest) != 1:
        raise SeamError(
            f"layer {index} of {structure.card.id} has {len(rest)} modules with matrices besides its attention, not one "
            "MLP; use the sites residual or attention_out"
        )
    return rest[0]
