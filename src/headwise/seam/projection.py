"""A head's W_O, found by watching which linear map takes z in.

A head's output is the slice of the *input* of the output projection; slicing the projection's output instead is a bug
that is easy to make. So the projection is not looked up by name: three tokens are run, and the linear map inside the
layer whose input equals z is it. Exactly one must be found. (Families that gate z on its way, such as
Qwen3-Next, have none, and say so.)

Its matrix is its weight, where it is a plain linear layer; one that is offloaded is read when it is asked for, and not
kept. Where it has parts (a LoRA adapter beside the weight) or packed weights, it is asked what it does to every unit vector.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
import xarray as xr
from torch import Tensor, nn

from headwise.core.errors import SeamError
from headwise.kernels import Gram
from headwise.model import values_of
from headwise.seam.attention_call import AttentionCall
from headwise.seam.forward import unwatched
from headwise.seam.observation import observe
from headwise.seam.structure import Structure
from headwise.seam.watching import Instrument


@dataclass(frozen=True)
class OutputProjection:
    """W_O of one layer: attention output = sum over heads of z_h W_O^h, plus the bias."""

    module: nn.Module
    heads: int
    width: int  # of a head's value
    asked: tuple[Tensor, Tensor] | None  # (in, out) and (out,): what it does to unit vectors, where it is not plain

    @property
    def weight(self) -> Tensor:
        """(head, value width, hidden)."""
        matrix = _oriented(self.module, values_of(self.module, "weight")) if self.asked is None else self.asked[0]
        return matrix.unflatten(0, (self.heads, self.width))

    @property
    def bias(self) -> Tensor | None:
        """(hidden,)."""
        if self.asked is not None:
            return self.asked[1]
        return None if getattr(self.module, "bias", None) is None else values_of(self.module, "bias")

    def gram(self) -> Gram:
        """G = W_O W_O^T: the lengths of what heads write, without a product with W_O."""
        return Gram.of(self.weight)


class _Zs(Instrument):
    """Keeps z of every layer."""

    name = "zs"

    def __init__(self) -> None:
        self.z: dict[int, Tensor] = {}

    def on_layer(self, call: AttentionCall) -> None:
        self.z[call.layer] = call.z.detach()

    def result(self) -> xr.Dataset:
        return xr.Dataset()


_FOUND: WeakKeyDictionary[Structure, dict[int, OutputProjection]] = WeakKeyDictionary()


def output_projections(structure: Structure) -> dict[int, OutputProjection]:
    """W_O of every attention layer. Costs one pass over three tokens, the first time a structure is asked."""
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
        with torch.no_grad(), unwatched(structure), observe(structure, zs):
            structure.decoder(input_ids=structure.few_tokens(), use_cache=False)
    finally:
        for handle in handles:
            handle.remove()
    return {layer: _match(structure, layer, z, inputs) for layer, z in zs.z.items()}


def _match(structure: Structure, layer: int, z: Tensor, inputs: dict[nn.Module, Tensor]) -> OutputProjection:
    flat = z.flatten(2)
    inside = set(structure.layers[layer].modules())
    found = [
        module
        for module, given in inputs.items()
        if module in inside and given.numel() == flat.numel() and torch.equal(given.reshape(flat.shape), flat)
    ]
    found = [
        m for m in found if not any(m is not other and m in set(other.modules()) for other in found)
    ]  # LoRA inside
    if len(found) != 1:
        raise SeamError(
            f"layer {layer} of {structure.card.id}: {len(found)} linear maps take the heads' output in, and exactly "
            "one was expected; what single heads write cannot be told for this family (it may gate them first)"
        )
    return OutputProjection(found[0], z.shape[2], z.shape[3], _asked(found[0], flat))


def _asked(module: nn.Module, z: Tensor) -> tuple[Tensor, Tensor] | None:
    """A linear module's matrix (in, out) and bias, by what it does; None where its weight is that matrix."""
    weight = _matrix(module)
    plain = not list(module.children()) and weight is not None and weight.is_floating_point()
    if plain and weight is not None and len(weight) == z.shape[-1]:
        return None
    units = torch.eye(z.shape[-1], dtype=z.dtype, device=z.device)
    with torch.no_grad():
        at_zero = module(torch.zeros_like(units[:1])).float()  # (1, out)
        return module(units).float() - at_zero, at_zero[0]


def _matrix(module: nn.Module) -> Tensor | None:
    """A linear module's weight as (in, out), be it an nn.Linear or GPT-2's transposed kind; None for other modules."""
    weight = getattr(module, "weight", None)
    if not isinstance(weight, Tensor) or weight.ndim != 2 or isinstance(module, nn.Embedding):
        return None
    return _oriented(module, weight)


def _oriented(module: nn.Module, weight: Tensor) -> Tensor:
    return weight.T if hasattr(module, "in_features") else weight
