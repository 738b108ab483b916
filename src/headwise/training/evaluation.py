"""The cost of sparsity: losses, KL divergences and shares of open edges, on rows of tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import log_softmax

from headwise.model.gate import training
from headwise.training.student import Student
from headwise.training.texts import Texts

__all__ = ["Evaluation", "Fit", "evaluate", "fit_of", "visible_pairs"]

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
