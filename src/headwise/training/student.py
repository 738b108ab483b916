"""What is trained, beside the dense model it starts from: the model itself is never changed.

A pass of the student is a pass of the same model with other weights (`torch.func.functional_call`) and gates on:

    adapter      W + 2 B A for every linear map inside the layers, A and B of a low rank: what `peft` calls LoRA with
                 alpha = 2 rank, summed into the weights before the pass. With many tokens a step that costs less than a side
                 branch for every token
    all weights  a float32 copy of each

and a pass of the dense model is a plain pass. What is trained is float32, passes are in the model's dtype.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from headwise.core.errors import ModelError
from headwise.model import Model
from headwise.model.gate import gate_of, register
from headwise.seam import Structure, refuse_unseeable, routed
from headwise.training.recipe import Recipe

__all__ = ["ALPHA", "Student"]

ALPHA = 2.0  # what the product of an adapter's factors is multiplied by
SHARP = ("q", "k", "qkv", "query", "key", "query_key_value")  # maps that make logits, by the first part of their name


class Student:
    """A model in training."""

    def __init__(self, model: Model, recipe: Recipe):
        structure = Structure.of(model)
        refuse_unseeable(structure)
        if gate_of(model.hf) is not None or model.adapter is not None:
            raise ModelError(f"{model.id} is sparse, or has an adapter, already; start from the dense model.")
        self.model, self.recipe, self.hf = model, recipe, model.hf.eval().requires_grad_(False)
        self.ranks = _ranks(structure, recipe)
        self.weights = self._factors() if recipe.rank else self._copies()
        self.route = register() if recipe.gated else None

    def logits(self, ids: Tensor) -> Tensor:
        """(rows, tokens, vocabulary) of the student."""
        given = {"input_ids": ids, "use_cache": False}
        with routed(self.hf, self.route or str(self.hf.config._attn_implementation)):
            found: Tensor = functional_call(self.hf, self.effective(), (), given).logits
        return found

    @torch.no_grad()
    def dense_logits(self, ids: Tensor) -> Tensor:
        """The same of the dense model."""
        found: Tensor = self.hf(input_ids=ids, use_cache=False).logits
        return found

    def effective(self) -> dict[str, Tensor]:
        """The weights that the student runs with, in the model's dtype."""
        own = dict(self.hf.named_parameters())
        if not self.recipe.rank:
            return {name: weight.to(own[name].dtype) for name, weight in self.weights.items()}
        found = {}
        for name in self.ranks:
            change = ALPHA * (self.weights[f"{name}.lora_B.weight"] @ self.weights[f"{name}.lora_A.weight"])
            found[f"{name}.weight"] = (own[f"{name}.weight"].float() + change).to(own[f"{name}.weight"].dtype)
        return found

    def _copies(self) -> dict[str, Tensor]:
        return {name: own.detach().float().clone().requires_grad_() for name, own in self.hf.named_parameters()}

    def _factors(self) -> dict[str, Tensor]:
        """A drawn as a linear map's weights are, B nought: the student starts as the dense model."""
        random = torch.Generator().manual_seed(self.recipe.seed)
        found = {}
        for name, rank in self.ranks.items():
            out, width = self.hf.get_submodule(name).weight.shape
            device = self.hf.get_submodule(name).weight.device
            first = (torch.rand(rank, width, generator=random) * 2 - 1) / math.sqrt(width)
            found[f"{name}.lora_A.weight"] = first.to(device).requires_grad_()
            found[f"{name}.lora_B.weight"] = torch.zeros(out, rank, device=device).requires_grad_()
        return found


def _ranks(structure: Structure, recipe: Recipe) -> dict[str, int]:
    """The rank for every linear map inside the layers, by its name in the model; attention and MLP, in any family."""
    inside = {id(module) for layer in structure.layers for module in layer.modules() if isinstance(module, nn.Linear)}
    names = [name for name, module in structure.hf.named_modules() if id(module) in inside]
    if not names and recipe.rank:
        raise ModelError(f"{structure.card.id} has no linear maps that an adapter goes on; train all weights (rank 0).")
    sharp = recipe.rank_attention or recipe.rank

    def makes_logits(name: str) -> bool:
        last: Any = name.rsplit(".", 1)[-1]
        return last.removesuffix("_proj") in SHARP

    return {name: sharp if makes_logits(name) else recipe.rank for name in names}
