"""Quantised linear layers: their matrices, whatever library packed them.

A library that quantises (bitsandbytes, torchao, optimum-quanto ...) replaces a linear layer or its weight by one of its own, in
a format of its own. What the layer computes is still a linear map, so its matrix is its output for every unit vector: the
de-quantised weights, as the model multiplies by them. Libraries that round activations as well (8 bits per token) represent 0
and 1 exactly, so the matrix is exact there, too; what such a layer returns for other inputs is rounded.

Cost: one product with as many rows as the layer has inputs.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


def is_linear(module: nn.Module) -> bool:
    """Whether a module is a linear map with one matrix: nn.Linear, GPT-2's transposed kind, or a packed one."""
    weight = getattr(module, "weight", None)
    if isinstance(weight, Tensor) and weight.ndim == 2:
        return not isinstance(module, nn.Embedding)
    return is_packed(module)


def is_packed(module: Any) -> bool:
    """Whether a linear layer holds its matrix in another form than a floating-point tensor of torch."""
    if not (hasattr(module, "in_features") and hasattr(module, "out_features")) or list(module.children()):
        return False
    weight: Any = getattr(module, "weight", None)
    if type(weight) not in (Tensor, nn.Parameter) or not weight.is_floating_point() or weight.element_size() == 1:
        return True
    return tuple(weight.shape) != (module.out_features, module.in_features)


@torch.no_grad()
def matrix_of(module: Any, like: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The matrix (in, out) and the bias (out,) of a linear map, from its outputs for unit vectors, in float32.

    Args:
        module: the map.
        like: an input (..., in), for its width, dtype and device; by default what its own tensors suggest.
    """
    like = _input_of(module) if like is None else like
    units = torch.eye(like.shape[-1], dtype=like.dtype, device=like.device)
    at_zero = module(torch.zeros_like(units[:1])).float()  # (1, out)
    return module(units).float() - at_zero, at_zero[0]


@torch.no_grad()
def some_rows(module: Any, count: int = 8) -> Tensor:
    """(count, out): the outputs of a packed layer for a few unit vectors, bias included, for its identity."""
    units = _input_of(module).repeat(count, 1)
    index = torch.arange(count, device=units.device)
    units[index, index * module.in_features // count] = 1
    return module(units).float()


def unpacked(module: nn.Module) -> nn.Linear:
    """A plain float32 layer with the matrix of a packed one."""
    matrix, bias = matrix_of(module)
    inputs, outputs = matrix.shape
    plain = nn.Linear(inputs, outputs, bias=bool(bias.any()), device=matrix.device)
    plain.weight = nn.Parameter(matrix.T.contiguous(), requires_grad=False)
    if plain.bias is not None:
        plain.bias = nn.Parameter(bias, requires_grad=False)
    return plain


def _input_of(module: Any) -> Tensor:
    """An input of a packed layer: in the dtype of its numbers where these have one, else float32, which it casts."""
    tensors = [*module.parameters(), *module.buffers()]
    wide = (one.dtype for one in tensors if one.is_floating_point() and one.element_size() > 1)
    device = next((one.device for one in tensors), torch.device("cpu"))
    return torch.zeros(module.in_features, dtype=next(wide, torch.float32), device=device)
