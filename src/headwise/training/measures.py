"""What sparsity costs: losses, distances between distributions and shares of open edges, on rows of tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import log_softmax

from headwise.model.gate import training
from headwise.training.student import Student
from headwise.training.texts import Texts

__all__ = ["Fit", "Look", "fit_of", "look", "visible_pairs"]

ROWS = 8  # held-out rows run at a time


class Fit(NamedTuple):
    """Of some rows."""

    descended: Tensor  # distil * distance + (1 - distil) * loss; the only one with a gradient
    loss: Tensor  # mean over tokens
    dense: Tensor  # the dense model's
    distance: Tensor  # KL(dense || student), nats a token


@dataclass(frozen=True)
class Look:
    """One kind of held-out text, hard gates."""

    kind: str
    loss: float
    dense: float
    distance: float
    share: float  # of visible edges that are open
    rows: int

    @property
    def excess(self) -> float:
        """The student's loss over the dense model's."""
        return self.loss - self.dense


def fit_of(student: Tensor, dense: Tensor, ids: Tensor, distil: float = 1.0) -> Fit:
    """From two sets of logits, (rows, tokens, vocabulary)."""
    return Fit(*_Fit.apply(student, dense, ids, distil))


class _Fit(torch.autograd.Function):
    """Loss and distance row by row; the gradient is made in the same pass, and nothing of the vocabulary's size is kept
    but that: p - p_dense for the distance, p - 1[right] for the loss, over the number of tokens.
    """

    @staticmethod
    def forward(ctx: Any, student: Tensor, dense: Tensor, ids: Tensor, distil: float) -> Any:
        slope = torch.zeros_like(student)
        sums = torch.zeros(3, device=student.device, dtype=torch.float32)
        tokens = ids.shape[0] * (ids.shape[1] - 1)
        for row in range(len(ids)):
            mine, theirs = log_softmax(student[row, :-1].float(), -1), log_softmax(dense[row, :-1].float(), -1)
            right = ids[row, 1:, None]
            told, chance = theirs.exp(), mine.exp()
            sums += torch.stack([
                -mine.gather(-1, right).sum(), -theirs.gather(-1, right).sum(), (told * (theirs - mine)).sum()
            ])  # fmt: skip
            change = chance.sub_(told.mul_(distil))
            if distil < 1:
                change.scatter_add_(-1, right, torch.full_like(right, distil - 1, dtype=change.dtype))
            slope[row, :-1] = (change / tokens).to(slope.dtype)
        ctx.save_for_backward(slope)
        loss, plain, distance = sums / tokens
        ctx.mark_non_differentiable(loss, plain, distance)
        return distil * distance + (1 - distil) * loss, loss, plain, distance

    @staticmethod
    def backward(ctx: Any, upstream: Tensor, *_: Tensor) -> Any:
        (slope,) = ctx.saved_tensors
        return slope * upstream.to(slope.dtype), None, None, None


def visible_pairs(rows: int, length: int, heads: int) -> float:
    """Pairs of (query, key) that causality allows, over rows and the heads of all layers."""
    return float(rows * heads) * length * (length + 1) / 2


@torch.no_grad()
def look(student: Student, texts: Texts, kind: str, rows: int, length: int, bias: float = 0.0) -> Look:
    """One kind, with hard gates at this bias."""
    ids = torch.from_numpy(texts.even(kind, rows, length)).long().to(student.model.device)
    sums, opened, pairs = torch.zeros(3), 0.0, 0.0
    for part in ids.split(ROWS):
        with training(bias, None) as session:
            logits = student.logits(part)
        fit = fit_of(logits, student.dense_logits(part), part)
        sums += torch.tensor([float(fit.loss), float(fit.dense), float(fit.distance)]) * len(part)
        opened += float(sum(layer.sum() for layer in session.opened))
        pairs += sum(visible_pairs(len(part), length, layer.shape[1]) for layer in session.opened)
    loss, dense, distance = (sums / len(ids)).tolist()
    return Look(kind, loss, dense, distance, opened / pairs if pairs else 1.0, len(ids))
