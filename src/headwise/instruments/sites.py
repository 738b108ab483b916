"""Activations beside the heads, at chosen tokens: the residual stream, the MLP's input and output, attention's output.

| site          | what it is                                                        |
|---------------|-------------------------------------------------------------------|
| residual      | the residual stream after the block: the layer's output           |
| attention_out | what attention adds: the output of the output projection          |
| mlp_in        | the input of the MLP block (normalised, in most families)         |
| mlp_out       | the output of the MLP block                                       |

Found by property: the output projection by watching z (`seam.projection`); the MLP as the one child of a layer that
holds matrices beside the attention. Families without one such child (OPT) have no `mlp_*` sites, and say so. Layers
without attention heads are NaN in `attention_out`.

Cost: nothing beyond the pass. Only the chosen tokens are kept, never whole sequences.
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
from headwise.instruments.sending import Sending
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


class Sites(Instrument):
    """Activations beside the heads, dims (example, site, layer, token, width).

    Args:
        sites: of residual, attention_out, mlp_in, mlp_out.
        positions: which tokens (see `headwise.seam.positions`).

    Examples:
        >>> with hw.observe(model, hw.Sites(["residual", "mlp_out"])) as seen:
        ...     _ = model(**model.encode(["the old river", "a door"]))
        >>> dict(seen["sites"].activation.sizes)
        {'example': 2, 'site': 2, 'layer': 3, 'token': 1, 'width': 384}
    """

    name = "sites"

    def __init__(self, sites: Sequence[str] = ("residual",), positions: Positions = "last"):
        sites = (sites,) if isinstance(sites, str) else tuple(dict.fromkeys(sites))
        for site in sites:
            if site not in SITES:
                raise DataError(f"there is no site {site!r}. {did_you_mean(site, SITES)}")
        self.sites = sites
        self.positions = check_positions(positions)
        self._passes: list[Tensor] = []
        self._sending = Sending()
        self._kept: dict[tuple[str, int], Tensor] = {}  # the chosen tokens of this pass, (batch, token, width)
        self._index: Tensor | None = None  # (batch, token), from the beginning of a pass to its end

    def setup(self, structure: Structure, stack: ExitStack) -> None:
        """Put hooks on the modules whose input or output is asked for."""
        self._shape = (structure.card.layers, structure.card.hidden_size)
        for index, layer in enumerate(structure.layers):
            for site in self.sites:
                if site == "attention_out" and index not in structure.attention_layers:
                    continue
                module = _module(structure, site, index, layer)
                register = module.register_forward_pre_hook if site == "mlp_in" else module.register_forward_hook
                stack.callback(register(self._keep(site, index), with_kwargs=True).remove)

    def on_forward_start(self, context: ForwardContext) -> None:
        """Find the chosen tokens."""
        self._index = position_index(self.positions, context)
        self._kept.clear()

    def on_layer(self, call: AttentionCall) -> None:
        """The hooks see all there is."""

    def on_forward_end(self, context: ForwardContext) -> None:
        """Put the sites and layers of this pass side by side."""
        assert self._index is not None
        layers, width = self._shape
        shape = (len(self._index), len(self.sites), layers, self._index.shape[1], width)
        device = next((values.device for values in self._kept.values()), torch.device("cpu"))
        whole = torch.full(shape, torch.nan, dtype=torch.float32, device=device)
        for (site, layer), values in self._kept.items():
            whole[:, self.sites.index(site), layer] = values.to(device)
        self._passes.append(self._sending.send(whole))  # one copy a pass, not one a layer
        self._kept.clear()
        self._index = None

    def result(self) -> xr.Dataset:
        """All passes so far."""
        if not self._passes:
            raise SeamError("Sites has seen nothing yet; run the model inside the `with observe(...)`")
        self._sending.arrive()
        return xr.Dataset(
            {"activation": ((EXAMPLE, SITE, LAYER, TOKEN, WIDTH), torch.cat(self._passes).numpy())},
            coords={SITE: np.array(self.sites), LAYER: np.arange(self._shape[0])},
        )

    def _keep(self, site: str, layer: int) -> Callable[..., None]:
        def hook(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any = None) -> None:
            if self._index is None:
                return  # a pass of which this observation was not told
            if site == "mlp_in":
                output = args[0] if args else kwargs["hidden_states"]
            hidden = output[0] if isinstance(output, tuple) else output
            self._kept[site, layer] = _pick(hidden.detach(), self._index)

        return hook


def _pick(hidden: Tensor, index: Tensor) -> Tensor:
    """(batch, token, width) float: copies, so that the whole sequence can be let go."""
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
            f"layer {index} of {structure.card.id} has {len(rest)} parts with matrices beside its attention, not one "
            "MLP; ask for the sites residual or attention_out"
        )
    return rest[0]
