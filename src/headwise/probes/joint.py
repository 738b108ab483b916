"""One classifier over all heads at once: which of several labels does an item have, and which heads carry that?

    fits = fit_joint(features, labels, train, groups, classes=8)      # features (row, head, feature)
    fits.logits                                                       # (seed, held-out row, class)
    fits.importance                                                   # (seed, class, head): gradient x activation

**Network** (Ma et al., arXiv 2512.10978): every head through one shared map, all of them concatenated, one hidden layer,

    z_h     = P x_h + p                        x_h (feature,) -> z_h (64,), the same P for every head
    hidden  = relu(W [z_1 ... z_H] + w)        512
    logits  = V dropout(hidden) + v            dropout 0.3, in training alone

**Training.** AdamW (1e-4) on the cross-entropy, in shuffled batches. The number of epochs is not guessed: a first probe is
trained on about four fifths of the training rows (whole groups of them), and all probes are trained for the fewest epochs whose
loss on the rest is within one standard error of the lowest (Breiman et al. 1984). Rows that a probe will be evaluated on have
no influence on it. Features are standardised by the training rows.

**Importance** of a head for a class: gradient times activation, at the shared map's output,

    I_h^c = mean over the rows of class c of (1/64) Σ_d (∂ logit_c / ∂ z_hd) z_hd

The network is linear but for one relu, so the gradient is a sum over the active hidden units, and needs no autograd:
∂ logit_c / ∂ z = (V_c · [hidden > 0]) W. It is signed: below 0 a head is evidence against the class. Summed over heads and
multiplied by 64 it is the class's logit, but for the biases.

**Null.** The training rows' labels are shuffled among them and the held-out rows' among those, and one probe is trained on
each shuffle for the same number of epochs: what importance does a head get when there is nothing to learn?

Parameters start as in torch's `nn.Linear`; all randomness of a fit (start, order, dropout) comes from one generator of its
own. Cost: nearly all in W, 512 x 64 x heads; a batch of 64 rows x 270 heads x 128 features takes 0.08 s of one core, so that
240 rows, five epochs, five seeds and twenty shuffles take about 40 s. The lowest loss itself would take three times as long
(17 epochs instead of 5 on the default model's steps), for maps that correlate with the shorter training's by .97 to .99.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from headwise.core.errors import DataError
from headwise.core.progress import StepCount
from headwise.stats.permutation import permuted_rows

__all__ = ["JointFits", "JointNetwork", "JointTraining", "choose_epochs", "fit_joint", "importance", "train"]

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

PROJECTED, HIDDEN, DROPOUT = 64, 512, 0.3
EPOCH_FOLDS = 5  # one of them is held out to choose the number of epochs


# ---- several probes -------------------------------------------------------------------------------------------------


class JointFits(NamedTuple):
    """What the probes predict, and by which heads."""

    logits: Floats
    """(seed, held-out row, class)"""
    importance: Floats
    """(seed, class, head), over the held-out rows of the class"""
    train_importance: Floats
    """(seed, class, head), over the training rows of the class"""
    null_logits: Floats
    """(shuffle, held-out row, class)"""
    null_labels: Ints
    """(shuffle, held-out row): the labels that this probe is evaluated by"""
    null_importance: Floats
    """(shuffle, class, head)"""
    epochs: int
    losses: tuple[float, ...]
    """on the inner rows, after each epoch of the search"""


def fit_joint(
    features: Any,
    labels: Any,
    trains: Any,
    groups: Any,
    *,
    classes: int,
    seeds: int = 5,
    shuffles: int = 20,
    seed: int = 0,
    training: JointTraining | None = None,
    device: str | torch.device | None = None,
) -> JointFits:
    """Fit on the rows where `trains`, evaluate on the others.

    `features` (row, head, feature), `labels` (row,) numbers from 0, `groups` (row,): rows of one question share one.
    """
    training = training or JointTraining()
    x, y, train_rows = _checked(features, labels, trains, classes, device)
    x = standardised(x, train_rows)
    inside = np.asarray(groups)[np.asarray(trains, dtype=bool)]
    epochs, losses = choose_epochs(x[train_rows], y[train_rows], inside, classes, training, seed)

    def fit(own: Tensor, number: int) -> tuple[Floats, Floats, Floats]:
        network = train(x[train_rows], own[train_rows], classes, epochs, training, seed + number)
        with torch.no_grad():
            logits = network.logits(x[~train_rows])
        held_out, inside = (importance(network, x[rows], own[rows]).cpu().numpy() for rows in (~train_rows, train_rows))
        fitted()
        return logits.cpu().numpy(), held_out, inside

    fitted = StepCount("joint probes", seeds + shuffles)
    permuted = [_permuted_labels(y, train_rows, seed + number) for number in range(shuffles)]
    found = [fit(y, number) for number in range(seeds)]
    null = [fit(own, 1000 + number) for number, own in enumerate(permuted)]
    rows = int((~train_rows).sum())
    return JointFits(
        logits=np.stack([logits for logits, _, _ in found]),
        importance=np.stack([maps for _, maps, _ in found]),
        train_importance=np.stack([maps for _, _, maps in found]),
        null_logits=_stacked([logits for logits, _, _ in null], (rows, classes)),
        null_labels=_stacked([own[~train_rows].cpu().numpy() for own in permuted], (rows,)),
        null_importance=_stacked([maps for _, maps, _ in null], (classes, x.shape[1])),
        epochs=epochs,
        losses=tuple(losses),
    )


def standardised(x: Tensor, trains: Tensor) -> Tensor:
    """Features of mean 0 and deviation 1 over the training rows; a feature that never changes is 0."""
    mean = x[trains].mean(dim=0)
    deviation = (x[trains] - mean).square().mean(dim=0).sqrt()
    return (x - mean) / torch.where(deviation > 1e-8, deviation, torch.inf)


def _permuted_labels(labels: Tensor, trains: Tensor, seed: int) -> Tensor:
    """The labels in another order, among the training rows and among the others."""
    order = permuted_rows(~trains.cpu().numpy(), np.random.default_rng([seed, 2]))
    return labels[torch.from_numpy(order).to(labels.device)]


def _stacked(parts: list[Any], shape: tuple[int, ...]) -> Any:
    return np.stack(parts) if parts else np.empty((0, *shape), dtype=np.float32)


def _checked(
    features: Any, labels: Any, trains: Any, classes: int, device: str | torch.device | None
) -> tuple[Tensor, Tensor, Tensor]:
    x = torch.as_tensor(features, dtype=torch.float32, device=device)
    y = torch.as_tensor(labels, dtype=torch.long, device=x.device)
    train_rows = torch.as_tensor(trains, dtype=torch.bool, device=x.device)
    if x.ndim != 3 or y.shape != x.shape[:1] or train_rows.shape != x.shape[:1]:
        raise DataError(
            f"features of the shape {tuple(x.shape)}, labels {tuple(y.shape)} and a split {tuple(train_rows.shape)} do not "
            "fit; give features (row, head, feature), and a label and a split for every row"
        )
    if not bool(x.isfinite().all()):
        raise DataError("the features of a joint probe hold values that are not numbers; leave such rows or heads out")
    if len(y[train_rows].unique()) < 2 or not bool((~train_rows).any()):
        raise DataError(
            f"the {int(train_rows.sum())} training rows are of {len(y[train_rows].unique())} classes and "
            f"{int((~train_rows).sum())} rows are held out; give at least two classes and some rows to evaluate on"
        )
    if classes <= int(y.max()):
        raise DataError(f"there is a label {int(y.max())} and there are {classes} classes; count them from 0")
    return x, y, train_rows


# ---- the network ----------------------------------------------------------------------------------------------------


class JointNetwork(NamedTuple):
    """The parameters."""

    shared: Tensor
    """P, (64, feature)"""
    shared_bias: Tensor
    hidden: Tensor
    """W, (512, head x 64)"""
    hidden_bias: Tensor
    output: Tensor
    """V, (class, 512)"""
    output_bias: Tensor

    @classmethod
    def start(cls, heads: int, width: int, classes: int, generator: torch.Generator) -> JointNetwork:
        """An untrained network."""
        return cls(
            *_linear(PROJECTED, width, generator),
            *_linear(HIDDEN, heads * PROJECTED, generator),
            *_linear(classes, HIDDEN, generator),
        )

    def project(self, x: Tensor) -> Tensor:
        """z: (row, head, feature) -> (row, head, 64)."""
        return functional.linear(x, self.shared, self.shared_bias)

    def logits(self, x: Tensor, dropout: Tensor | None = None) -> Tensor:
        """(row, head, feature) -> (row, class). `dropout`, (row, 512): the factors 0 or 1 / 0.7."""
        hidden = functional.linear(self.project(x).flatten(1), self.hidden, self.hidden_bias).relu()
        return functional.linear(hidden if dropout is None else hidden * dropout, self.output, self.output_bias)


def _linear(out: int, into: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Weights and biases, uniform between -1/sqrt(into) and 1/sqrt(into)."""
    bound = into**-0.5
    weight = torch.empty(out, into).uniform_(-bound, bound, generator=generator)
    return weight, torch.empty(out).uniform_(-bound, bound, generator=generator)


@torch.no_grad()
def importance(network: JointNetwork, x: Tensor, labels: Tensor) -> Tensor:
    """(class, head), from rows x (row, head, feature) and their classes (row,); NaN for a class without rows."""
    z = network.project(x)  # (row, head, 64)
    active = functional.linear(z.flatten(1), network.hidden, network.hidden_bias) > 0  # (row, 512)
    classes = len(network.output)
    found = torch.full((classes, x.shape[1]), torch.nan, dtype=z.dtype, device=z.device)
    for number in range(classes):
        own = labels == number
        if bool(own.any()):
            gradient = ((active[own] * network.output[number]) @ network.hidden).view_as(z[own])
            found[number] = (gradient * z[own]).mean(dim=2).mean(dim=0)
    return found


# ---- training -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class JointTraining:
    """The training's settings."""

    rate: float = 1e-4
    batch: int = 64
    max_epochs: int = 20
    patience: int = 3  # epochs without a lower loss, after which the search ends

    def __post_init__(self) -> None:
        for name in ("rate", "batch", "max_epochs", "patience"):
            if getattr(self, name) <= 0:
                raise DataError(f"a joint probe was asked for with {name}={getattr(self, name)}; give more than 0")


def train(x: Tensor, labels: Tensor, classes: int, epochs: int, training: JointTraining, seed: int) -> JointNetwork:
    """A probe after so many epochs; x (row, head, feature), labels (row,)."""
    *_, network = _epochs(x, labels, classes, epochs, training, seed)
    return JointNetwork(*(part.detach() for part in network))


def choose_epochs(
    x: Tensor, labels: Tensor, groups: NDArray[Any], classes: int, training: JointTraining, seed: int
) -> tuple[int, list[float]]:
    """How long to train: the fewest epochs with a loss on inner rows, not trained on, within one standard error of the lowest.

    Also returns that loss after each epoch.
    """
    held_out = torch.from_numpy(inner_rows(groups, seed)).to(x.device)
    losses: list[float] = []
    errors: list[float] = []
    for network in _epochs(x[~held_out], labels[~held_out], classes, training.max_epochs, training, seed):
        with torch.no_grad():
            each = functional.cross_entropy(network.logits(x[held_out]), labels[held_out], reduction="none")
        losses.append(float(each.mean()))
        errors.append(float(each.std() / len(each) ** 0.5) if len(each) > 1 else 0.0)
        best = int(np.argmin(losses))
        if len(losses) - 1 - best >= training.patience:
            break
    return int(np.argmax(np.array(losses) <= losses[best] + errors[best])) + 1, losses


def inner_rows(groups: NDArray[Any], seed: int) -> NDArray[np.bool_]:
    """(row,): about a fifth of the rows, whole groups of them."""
    names, index = np.unique(groups, return_inverse=True)
    if len(names) < EPOCH_FOLDS:
        raise DataError(
            f"the training rows come from {len(names)} questions, and a fifth of them has to be set apart to choose how "
            f"long a probe is trained; give steps of at least {EPOCH_FOLDS} questions"
        )
    order = np.random.default_rng([seed, 1]).permutation(len(names))
    return np.asarray(order[index] < max(1, len(names) // EPOCH_FOLDS))


def _epochs(
    x: Tensor, labels: Tensor, classes: int, epochs: int, training: JointTraining, seed: int
) -> Iterator[JointNetwork]:
    """The probe after each epoch; the same tensors, updated in place."""
    generator = torch.Generator().manual_seed(seed)
    network = JointNetwork.start(x.shape[1], x.shape[2], classes, generator)
    network = JointNetwork(*(part.to(x.device).requires_grad_() for part in network))
    optimiser = torch.optim.AdamW(network, lr=training.rate, fused=True)
    for _ in range(epochs):
        order = torch.randperm(len(x), generator=generator)
        for rows in order.split(training.batch):
            dropout = torch.rand(len(rows), HIDDEN, generator=generator).ge(DROPOUT).float() / (1 - DROPOUT)
            loss = functional.cross_entropy(network.logits(x[rows.to(x.device)], dropout.to(x.device)), labels[rows])
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            optimiser.step()
        yield network
