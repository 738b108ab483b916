"""Several joint probes: one a seed, and as a null some with labels dealt out anew.

Steps: features are standardised by the training rows (a feature that never changes is 0); the number of epochs is chosen
inside the training rows (`training.choose_epochs`); a probe a seed is trained on all of them; each is read on the rows it
has not seen. For the null, the training rows' labels are shuffled among them and the held-out rows' among those, and
one probe is trained on each shuffle for the same number of epochs: what importance does a head get when there is
nothing to know?

Cost: a batch of 64 rows x 270 heads x 128 features takes 0.08 s of one core, so that 240 rows, five epochs, five seeds and
three shuffles take about 20 s of one core. This module does not know functions.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headwise.core.errors import DataError
from headwise.probes.joint.importance import importance
from headwise.probes.joint.training import Training, choose_epochs, train

__all__ = ["JointFits", "fit_joint"]

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]


class JointFits(NamedTuple):
    """What the probes say, and by which heads."""

    logits: Floats
    """(seed, held-out row, class)"""
    importance: Floats
    """(seed, class, head), over the held-out rows of the class"""
    null_logits: Floats
    """(shuffle, held-out row, class)"""
    null_labels: Ints
    """(shuffle, held-out row): the labels that this probe is judged by"""
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
    shuffles: int = 2,
    seed: int = 0,
    training: Training | None = None,
    device: str | torch.device | None = None,
) -> JointFits:
    """Fit on the rows where `trains`, read on the others.

    `features` (row, head, feature), `labels` (row,) numbers from 0, `groups` (row,): rows of one question share one.
    """
    training = training or Training()
    x, y, there = _checked(features, labels, trains, classes, device)
    x = standardised(x, there)
    inside = np.asarray(groups)[np.asarray(trains, dtype=bool)]
    epochs, losses = choose_epochs(x[there], y[there], inside, classes, training, seed)

    def fit(own: Tensor, number: int) -> tuple[Floats, Floats]:
        network = train(x[there], own[there], classes, epochs, training, seed + number)
        with torch.no_grad():
            said = network.logits(x[~there])
        return said.cpu().numpy(), importance(network, x[~there], own[~there]).cpu().numpy()

    dealt = [_dealt(y, there, seed + number) for number in range(shuffles)]
    found = [fit(y, number) for number in range(seeds)]
    null = [fit(own, 1000 + number) for number, own in enumerate(dealt)]
    rows = int((~there).sum())
    return JointFits(
        logits=np.stack([said for said, _ in found]),
        importance=np.stack([maps for _, maps in found]),
        null_logits=_stacked([said for said, _ in null], (rows, classes)),
        null_labels=_stacked([own[~there].cpu().numpy() for own in dealt], (rows,)),
        null_importance=_stacked([maps for _, maps in null], (classes, x.shape[1])),
        epochs=epochs,
        losses=tuple(losses),
    )


def standardised(x: Tensor, trains: Tensor) -> Tensor:
    """Features of mean 0 and deviation 1 over the training rows."""
    mean = x[trains].mean(dim=0)
    deviation = (x[trains] - mean).square().mean(dim=0).sqrt()
    return (x - mean) / torch.where(deviation > 1e-8, deviation, torch.inf)


def _dealt(labels: Tensor, trains: Tensor, seed: int) -> Tensor:
    """The labels in another order, among the training rows and among the others."""
    random = np.random.default_rng([seed, 2])
    new = labels.clone()
    for part in (trains, ~trains):
        place = part.nonzero()[:, 0]
        new[place] = labels[place[torch.from_numpy(random.permutation(len(place))).to(place.device)]]
    return new


def _stacked(parts: list[Any], shape: tuple[int, ...]) -> Any:
    return np.stack(parts) if parts else np.empty((0, *shape), dtype=np.float32)


def _checked(
    features: Any, labels: Any, trains: Any, classes: int, device: str | torch.device | None
) -> tuple[Tensor, Tensor, Tensor]:
    x = torch.as_tensor(features, dtype=torch.float32, device=device)
    y = torch.as_tensor(labels, dtype=torch.long, device=x.device)
    there = torch.as_tensor(trains, dtype=torch.bool, device=x.device)
    if x.ndim != 3 or y.shape != x.shape[:1] or there.shape != x.shape[:1]:
        raise DataError(
            f"features of the shape {tuple(x.shape)}, labels {tuple(y.shape)} and a split {tuple(there.shape)} do not fit; "
            "give features (row, head, feature), and a label and a split for every row"
        )
    if not bool(x.isfinite().all()):
        raise DataError("the features of a joint probe hold values that are not numbers; leave such rows or heads out")
    if len(y[there].unique()) < 2 or not bool((~there).any()):
        raise DataError(
            f"the {int(there.sum())} training rows are of {len(y[there].unique())} classes and {int((~there).sum())} rows "
            "are held out; give at least two classes and some rows to judge on"
        )
    if classes <= int(y.max()):
        raise DataError(f"there is a label {int(y.max())} and there are {classes} classes; count them from 0")
    return x, y, there
