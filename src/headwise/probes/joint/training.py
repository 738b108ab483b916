"""How a joint probe is fitted, and for how long.

AdamW (1e-4) on the cross-entropy, in batches drawn anew in each epoch. The number of epochs is not guessed: a first probe
is trained on about four fifths of the training rows (whole groups of them), and the epoch with the lowest loss on
the rest is taken for all. Rows that a probe will be judged on have no say in it.

Randomness (start, order, dropout) comes from one generator a fit. Cost: of an epoch, three products of the rows with the
hidden layer, and a step of AdamW over all parameters a batch. This module does not know which rows are held out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from headwise.core.errors import DataError
from headwise.probes.joint.network import DROPOUT, HIDDEN, Network

__all__ = ["Training", "choose_epochs", "train"]

FOLDS = 5  # one of them is set apart to choose the epochs on


@dataclass(frozen=True)
class Training:
    """What can be chosen about it."""

    rate: float = 1e-4
    batch: int = 64
    most_epochs: int = 20
    patience: int = 3  # epochs without a lower loss, after which the search ends

    def __post_init__(self) -> None:
        for name in ("rate", "batch", "most_epochs", "patience"):
            if getattr(self, name) <= 0:
                raise DataError(f"a joint probe was asked for with {name}={getattr(self, name)}; give more than 0")


def train(x: Tensor, labels: Tensor, classes: int, epochs: int, training: Training, seed: int) -> Network:
    """A probe after so many epochs; x (row, head, feature), labels (row,)."""
    *_, network = _epochs(x, labels, classes, epochs, training, seed)
    return Network(*(part.detach() for part in network))


def choose_epochs(
    x: Tensor, labels: Tensor, groups: NDArray[Any], classes: int, training: Training, seed: int
) -> tuple[int, list[float]]:
    """How many epochs serve rows best that were not trained on; and the loss on them after each epoch."""
    apart = torch.from_numpy(inner_rows(groups, seed)).to(x.device)
    losses: list[float] = []
    for network in _epochs(x[~apart], labels[~apart], classes, training.most_epochs, training, seed):
        with torch.no_grad():
            losses.append(float(functional.cross_entropy(network.logits(x[apart]), labels[apart])))
        best = int(np.argmin(losses))
        if len(losses) - 1 - best >= training.patience:
            break
    return best + 1, losses


def inner_rows(groups: NDArray[Any], seed: int) -> NDArray[np.bool_]:
    """(row,): about a fifth of the rows, whole groups of them."""
    names, place = np.unique(groups, return_inverse=True)
    if len(names) < FOLDS:
        raise DataError(
            f"the training rows come from {len(names)} questions, and a fifth of them has to be set apart to choose how "
            f"long a probe is trained; give steps of at least {FOLDS} questions"
        )
    order = np.random.default_rng([seed, 1]).permutation(len(names))
    return np.asarray(order[place] < max(1, len(names) // FOLDS))


def _epochs(x: Tensor, labels: Tensor, classes: int, epochs: int, training: Training, seed: int) -> Iterator[Network]:
    """The probe after each epoch; the same tensors, trained on."""
    generator = torch.Generator().manual_seed(seed)
    network = Network.start(x.shape[1], x.shape[2], classes, generator)
    network = Network(*(part.to(x.device).requires_grad_() for part in network))
    optimiser = torch.optim.AdamW(network, lr=training.rate, fused=True)
    for _ in range(epochs):
        order = torch.randperm(len(x), generator=generator)
        for rows in order.split(training.batch):
            keep = torch.rand(len(rows), HIDDEN, generator=generator).ge(DROPOUT).float() / (1 - DROPOUT)
            loss = functional.cross_entropy(network.logits(x[rows.to(x.device)], keep.to(x.device)), labels[rows])
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            optimiser.step()
        yield network
