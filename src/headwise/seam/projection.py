"""A head's W_O, found by watching which linear map takes z in.

A head's output is the slice of the *input* of the output projection; slicing the projection's output instead is a bug
that is easy to make. So the projection is not looked up by name: three tokens are run, and the linear map inside the
attention module whose input equals z is it. Exactly one must be found. (Families that gate z on its way, such as
Qwen3-Next, have none, and say so.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
import xarray as xr
from torch import Tensor, nn

from headwise.errors import SeamError
from headwise.seam.frame import Frame
from headwise.seam.observation import observe
from headwise.seam.structure import Structure
from headwise.seam.watching import Instrument


@dataclass(frozen=True)
class OutputProjection:
    """W_O of one layer: attention output = sum over heads of z_h W_O^h, plus the bias."""

    weight: Tensor  # (head, value width, hidden)
    bias: Tensor | None  # (hidden,)
    module: nn.Module

    def gram(self) -> Tensor:
        """(head, value width, value width) float32: W_O W_O^T, so that ||z W_O||^2 = z G z costs no product with W_O."""
        weight = self.weight.float()
        return weight @ weight.transpose(-1, -2)


class _Zs(Instrument):
    """Keeps z of every layer, and the module it came from."""

    name = "zs"

    def __init__(self) -> None:
        self.z: dict[int, Tensor] = {}
        self.modules: dict[int, nn.Module] = {}

    def see(self, frame: Frame) -> None:
        self.z[frame.layer], self.modules[frame.layer] = frame.z.detach(), frame.module

    def read(self) -> xr.Dataset:
        return xr.Dataset()


_FOUND: WeakKeyDictionary[Structure, dict[int, OutputProjection]] = WeakKeyDictionary()


def output_projections(structure: Structure) -> dict[int, OutputProjection]:
    """W_O of every attention layer. Costs one pass over three tokens, the first time."""
    if structure not in _FOUND:
        _FOUND[structure] = _find(structure)
    return _FOUND[structure]


def _find(structure: Structure) -> dict[int, OutputProjection]:
    inputs: dict[nn.Module, Tensor] = {}

    def keep(module: nn.Module) -> Callable[..., None]:
        def hook(_: nn.Module, args: tuple[Any, ...]) -> None:
            if args and isinstance(args[0], Tensor):
                inputs[module] = args[0].detach()

        return hook

    linear = [m for layer in structure.layers for m in layer.modules() if _matrix(m) is not None]
    handles = [module.register_forward_pre_hook(keep(module)) for module in linear]
    zs = _Zs()
    try:
        with torch.no_grad(), observe(structure, zs):
            structure.decoder(input_ids=structure.few_tokens(), use_cache=False)
    finally:
        for handle in handles:
            handle.remove()
    return {layer: _match(structure, layer, zs.modules[layer], z, inputs) for layer, z in zs.z.items()}


def _match(
    structure: Structure, layer: int, attention: nn.Module, z: Tensor, inputs: dict[nn.Module, Tensor]
) -> OutputProjection:
    flat = z.flatten(2)
    inside = set(structure.layers[layer].modules())
    found = [
        module
        for module, given in inputs.items()
        if module in inside and given.numel() == flat.numel() and torch.equal(given.reshape(flat.shape), flat)
    ]
    found = [m for m in found if not any(m is not other and m in set(other.modules()) for other in found)]  # LoRA inside
    if len(found) != 1:
        raise SeamError(
            f"layer {layer} of {structure.card.id}: {len(found)} linear maps take the heads' output in, and exactly one "
            "was expected; what single heads write cannot be told for this family (it may gate them first)"
        )
    weight = _matrix(found[0])
    assert weight is not None
    return OutputProjection(
        weight.detach().unflatten(0, (z.shape[2], z.shape[3])), getattr(found[0], "bias", None), found[0]
    )


def _matrix(module: nn.Module) -> Tensor | None:
    """A linear module's weight as (in, out), be it an nn.Linear or GPT-2's transposed kind; None for other modules."""
    weight = getattr(module, "weight", None)
    if not isinstance(weight, Tensor) or weight.ndim != 2 or isinstance(module, nn.Embedding):
        return None
    return weight.T if hasattr(module, "in_features") else weight
