"""The trained weights; the dense model they start from is never changed.

A forward pass of the student is one of the same model with other weights (`torch.func.functional_call`) and with gates:

    adapter      W + 2 B A for every linear map in the layers, A and B of low rank (LoRA with alpha = 2 rank), added to the
                 weights before the pass; with many tokens per step that is cheaper than a side branch
    all weights  a float32 copy of each

Trained weights are float32, forward passes are in the model's dtype.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.func import functional_call

from headwise.core.errors import ModelError
from headwise.model import Model
from headwise.model.gate import gate_of, register
from headwise.seam import Structure, refuse_unseeable, routed
from headwise.training.recipe import Recipe

__all__ = ["ALPHA", "Student"]

ALPHA = 2.0  # scale of the product of an adapter's factors
QUERY_KEY_NAMES = ("q", "k", "qkv", "query", "key", "query_key_value")  # of projections that produce attention logits


class Student:
    """A model in training."""

    def __init__(self, model: Model, recipe: Recipe):
        structure = Structure.of(model)
        refuse_unseeable(structure)
        if gate_of(model.hf) is not None or model.adapter is not None:
            raise ModelError(f"{model.id} is already sparse or has an adapter; start from the dense model.")
        self.model, self.recipe, self.hf = model, recipe, model.hf.eval().requires_grad_(False)
        self.ranks = _ranks(structure, recipe)
        self.weights = self._factors() if recipe.rank else self._copies()
        self.route = register() if recipe.gated else None

    def logits(self, ids: Tensor) -> Tensor:
        """The student's logits, (rows, tokens, vocabulary)."""
        given = {"input_ids": ids, "use_cache": False}
        with routed(self.hf, self.route or str(self.hf.config._attn_implementation)):
            found: Tensor = functional_call(self.hf, self.effective(), (), given).logits
        return found

    @torch.no_grad()
    def dense_logits(self, ids: Tensor) -> Tensor:
        """The dense model's logits."""
        found: Tensor = self.hf(input_ids=ids, use_cache=False).logits
        return found

    def effective(self) -> dict[str, Tensor]:
        """The student's weights, in the model's dtype."""
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
        """A initialised like a linear map, B zero: the student starts as the dense model."""
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
    """Module name -> rank, for every linear map in the layers (attention and MLP)."""
    inside = {id(module) for layer in structure.layers for module in layer.modules() if isinstance(module, nn.Linear)}
    names = [name for name, module in structure.hf.named_modules() if id(module) in inside]
    if not names and recipe.rank:
        raise ModelError(f"{structure.card.id} has no linear maps for an adapter; train all weights (rank 0).")
    query_key = recipe.rank_attention or recipe.rank

    def is_query_key(name: str) -> bool:
        return name.rsplit(".", 1)[-1].removesuffix("_proj") in QUERY_KEY_NAMES

    return {name: query_key if is_query_key(name) else recipe.rank for name in names}
