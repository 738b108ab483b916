"""W_O of each head in a running model: the linear map whose input is z.

The output of a head is a slice of the *input* of the output projection; slicing the projection's output instead is an easy
mistake. So the projection is not looked up by name: three tokens are run, and the projection is the linear map inside the
layer whose input equals z. Exactly one must be found. (Where a gate or a norm stands before the projection, z is read behind
it, see `between`. A family that mixes the heads there has no such map and is refused.)

The matrix of a plain linear layer is its weight; an offloaded one is loaded when needed and not held. If the module has parts
(a LoRA adapter next to the weight) or packed weights, its matrix is its output for every unit vector (`model.packed`).
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
from headwise.kernels.norms import Gram
from headwise.model import load_parameter
from headwise.model.packed import is_linear, is_packed, matrix_of
from headwise.seam.between import between
from headwise.seam.forward import paused
from headwise.seam.instrument import AttentionCall, Instrument
from headwise.seam.observation import observe
from headwise.seam.structure import Structure


@dataclass(frozen=True)
class OutputProjection:
    """W_O of one layer: attention output = sum over heads of z_h W_O^h, plus the bias."""

    module: nn.Module
    heads: int
    width: int  # of a head's value
    between: str | None  # "gate" or "norm": what makes z of the weighted mean of the values
    probed: tuple[Tensor, Tensor] | None  # (in, out) and (out,): its output for unit vectors, where it is not plain

    @property
    def weight(self) -> Tensor:
        """(head, value width, hidden)."""
        matrix = (
            _oriented(self.module, load_parameter(self.module, "weight")) if self.probed is None else self.probed[0]
        )
        return matrix.unflatten(0, (self.heads, self.width))

    @property
    def bias(self) -> Tensor | None:
        """(hidden,)."""
        if self.probed is not None:
            return self.probed[1]
        return None if getattr(self.module, "bias", None) is None else load_parameter(self.module, "bias")

    def gram(self) -> Gram:
        """G = W_O W_O^T, which gives the norms of head outputs without a product with W_O."""
        return Gram.of(self.weight)


class ZRecorder(Instrument):
    """Holds z of every layer of the last pass."""

    name = "z"

    def __init__(self) -> None:
        self.z: dict[int, Tensor] = {}

    def on_layer(self, call: AttentionCall) -> None:
        self.z[call.layer] = call.z.detach()

    def result(self) -> xr.Dataset:
        return xr.Dataset()


_FOUND: WeakKeyDictionary[Structure, dict[int, OutputProjection]] = WeakKeyDictionary()


def output_projections(structure: Structure) -> dict[int, OutputProjection]:
    """W_O of every attention layer. Cost: one pass over three tokens, the first time per structure."""
    if structure not in _FOUND:
        _FOUND[structure] = _find(structure)
    return _FOUND[structure]


def _find(structure: Structure) -> dict[int, OutputProjection]:
    inputs: dict[nn.Module, Tensor] = {}

    def record(module: nn.Module) -> Callable[..., None]:
        def hook(_: nn.Module, args: tuple[Any, ...]) -> None:
            if args and isinstance(args[0], Tensor):
                inputs[module] = args[0].detach()

        return hook

    linear = [m for layer in structure.layers for m in layer.modules() if is_linear(m)]
    handles = [module.register_forward_pre_hook(record(module)) for module in linear]
    recorder = ZRecorder()
    try:
        with torch.no_grad(), paused(structure), observe(structure, recorder):
            structure.decoder(input_ids=structure.few_tokens(), use_cache=False)
    finally:
        for handle in handles:
            handle.remove()
    return {layer: _match(structure, layer, z, inputs) for layer, z in recorder.z.items()}


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
            f"layer {layer} of {structure.card.id}: {len(found)} linear maps take the heads' output as input, and exactly "
            "one was expected; the outputs of single heads are not defined for this family (it may mix them first)"
        )
    there = between(structure).get(layer)
    kind = None if there is None else there.kind
    return OutputProjection(found[0], z.shape[2], z.shape[3], kind, _probed(found[0], flat))


def _probed(module: nn.Module, z: Tensor) -> tuple[Tensor, Tensor] | None:
    """The matrix (in, out) and bias of a linear module from its outputs; None where its weight is that matrix."""
    if not is_packed(module) and not list(module.children()):
        return None
    return matrix_of(module, z)


def _oriented(module: nn.Module, weight: Tensor) -> Tensor:
    return weight.T if hasattr(module, "in_features") else weight
