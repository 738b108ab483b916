"""The student: the trained weights of a sparse model, and its losses. The dense model it starts from is never changed.

A forward pass of the student is one of the same model with other weights (`torch.func.functional_call`) and with gates:

    adapter      W + 2 B A for every linear map in the layers, A and B of low rank (LoRA with alpha = 2 rank), added to the
                 weights before the pass; with many tokens per step that is cheaper than a side branch
    all weights  a float32 copy of each

Trained weights are float32, forward passes are in the model's dtype. The cost of sparsity is measured as cross-entropy, KL
divergence from the dense model, and share of open edges, on rows of tokens.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import log_softmax

from headwise.core.errors import ModelError
from headwise.model import Model
from headwise.model.gate import gate_of, register, training
from headwise.seam import Structure, refuse_unseeable, routed
from headwise.training.recipe import SparsityRecipe
from headwise.training.texts import Texts

ALPHA = 2.0  # scale of the product of an adapter's factors
QUERY_KEY_NAMES = ("q", "k", "qkv", "query", "key", "query_key_value")  # of projections that produce attention logits


class Student:
    """A model in training."""

    def __init__(self, model: Model, recipe: SparsityRecipe):
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


def _ranks(structure: Structure, recipe: SparsityRecipe) -> dict[str, int]:
    """Module name -> rank, for every linear map in the layers (attention and MLP)."""
    inside = {id(module) for layer in structure.layers for module in layer.modules() if isinstance(module, nn.Linear)}
    names = [name for name, module in structure.hf.named_modules() if id(module) in inside]
    if not names and recipe.rank:
        raise ModelError(f"{structure.card.id} has no linear maps for an adapter; train all weights (rank 0).")
    query_key = recipe.rank_attention or recipe.rank

    def is_query_key(name: str) -> bool:
        return name.rsplit(".", 1)[-1].removesuffix("_proj") in QUERY_KEY_NAMES

    return {name: query_key if is_query_key(name) else recipe.rank for name in names}


ROWS = 8  # held-out rows per forward pass


class Fit(NamedTuple):
    """Losses of some rows."""

    objective: Tensor  # distil * distance + (1 - distil) * loss; the only one with a gradient
    loss: Tensor  # cross-entropy, mean over tokens
    dense: Tensor  # that of the dense model
    distance: Tensor  # KL(dense || student), nats per token


@dataclass(frozen=True)
class Evaluation:
    """Losses on one kind of held-out text, with hard gates."""

    kind: str
    loss: float
    dense: float
    distance: float
    share: float  # open edges over visible edges
    rows: int

    @property
    def excess(self) -> float:
        """The student's loss over the dense model's."""
        return self.loss - self.dense


def fit_of(student: Tensor, dense: Tensor, ids: Tensor, distil: float = 1.0) -> Fit:
    """The losses of two sets of logits, (rows, tokens, vocabulary)."""
    return Fit(*_Fit.apply(student, dense, ids, distil))


class _Fit(torch.autograd.Function):
    """Loss and distance row by row, with the gradient computed in the same pass: p - p_dense for the distance, p - 1[target]
    for the loss, over the number of tokens. Nothing else of the vocabulary's size is stored.
    """

    @staticmethod
    def forward(ctx: Any, student: Tensor, dense: Tensor, ids: Tensor, distil: float) -> Any:
        gradient = torch.zeros_like(student)
        sums = torch.zeros(3, device=student.device, dtype=torch.float32)
        tokens = ids.shape[0] * (ids.shape[1] - 1)
        for row in range(len(ids)):
            log_p, log_q = log_softmax(student[row, :-1].float(), -1), log_softmax(dense[row, :-1].float(), -1)
            target = ids[row, 1:, None]
            q, p = log_q.exp(), log_p.exp()
            sums += torch.stack([
                -log_p.gather(-1, target).sum(), -log_q.gather(-1, target).sum(), (q * (log_q - log_p)).sum()
            ])  # fmt: skip
            own = p.sub_(q.mul_(distil))
            if distil < 1:
                own.scatter_add_(-1, target, torch.full_like(target, distil - 1, dtype=own.dtype))
            gradient[row, :-1] = (own / tokens).to(gradient.dtype)
        ctx.save_for_backward(gradient)
        loss, dense_loss, distance = sums / tokens
        ctx.mark_non_differentiable(loss, dense_loss, distance)
        return distil * distance + (1 - distil) * loss, loss, dense_loss, distance

    @staticmethod
    def backward(ctx: Any, upstream: Tensor, *_: Tensor) -> Any:
        (gradient,) = ctx.saved_tensors
        return gradient * upstream.to(gradient.dtype), None, None, None


def visible_pairs(rows: int, length: int, heads: int) -> float:
    """The number of causal (query, key) pairs, over rows and the heads of all layers."""
    return float(rows * heads) * length * (length + 1) / 2


@torch.no_grad()
def evaluate(student: Student, texts: Texts, kind: str, rows: int, length: int, bias: float = 0.0) -> Evaluation:
    """Evaluate one kind of text, with hard gates at this bias."""
    ids = torch.from_numpy(texts.evenly_spaced(kind, rows, length)).long().to(student.model.device)
    sums, opened, pairs = torch.zeros(3), 0.0, 0.0
    for part in ids.split(ROWS):
        with training(bias, None) as session:
            logits = student.logits(part)
        fit = fit_of(logits, student.dense_logits(part), part)
        sums += torch.tensor([float(fit.loss), float(fit.dense), float(fit.distance)]) * len(part)
        opened += float(sum(layer.sum() for layer in session.opened))
        pairs += sum(visible_pairs(len(part), length, layer.shape[1]) for layer in session.opened)
    loss, dense, distance = (sums / len(ids)).tolist()
    return Evaluation(kind, loss, dense, distance, opened / pairs if pairs else 1.0, len(ids))
