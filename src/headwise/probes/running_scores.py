"""Scores of an answer that grow with it: after every token, how likely is what has been written so far wrong?

    score = Rauq()
    for step in steps:                  # an `AnswerStep` per token, of all answers of a batch
        score.update(step)              # (batch,): larger is more likely wrong

| score                     | after n tokens                                                                                |
|---------------------------|-----------------------------------------------------------------------------------------------|
| Log-probability, min      | minus the smallest log-probability of a token                                                 |
| Log-probability, mean     | minus the mean log-probability of the tokens (the log of the perplexity)                      |
| RAUQ                      | below; Vazhentsev et al., arXiv 2505.20045                                                    |
| Heads (`RunningDetector`) | the log-odds of a fitted `Detector`, from the means of the rows that emitted the tokens       |

RAUQ, with p_i the probability of token i and a_i the weight of the row that emits it on its own token, i.e. the one before:

    c_1 = p_1,   c_i = alpha p_i + (1 - alpha) a_i c_{i-1}        in each head
    u   = -mean_i log c_i                                          of the head with the largest mean a_i, in each layer
    RAUQ = max u over the middle third of the layers               alpha = .2

The released code adds 1, which changes no comparison. The recurrence runs in every head of these layers, so that the head may
change as the answer grows: after each token the score is that of the text so far, as if it had ended there.

A score of your own is a `RunningScore` subclass; `watching` takes it by instance. Cost: a few operations on (layer, head)
numbers per token.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from headwise.core.dims import HEAD, LAYER, STATISTIC
from headwise.core.errors import DataError

if TYPE_CHECKING:
    from headwise.probes.detector import Detector

ALPHA = 0.2  # of RAUQ
SELF_LOG = "self_log"  # the statistic that RAUQ reads

LOGPROB_MIN, LOGPROB_MEAN = "Log-probability, min", "Log-probability, mean"


@dataclass(frozen=True)
class AnswerStep:
    """One more token of every answer of a batch, and what the rows that emitted it attended to.

    Examples:
        >>> AnswerStep(torch.tensor([-0.5, -2.0]), torch.tensor([1, 3]), {}, {}).first
        tensor([ True, False])
    """

    logprob: Tensor  # (batch,) of the token
    count: Tensor  # (batch,) tokens of the answer so far, this one included
    row: Mapping[str, Tensor]  # statistic -> (layer, batch, head), of this row
    means: Mapping[str, Tensor]  # the same, means over the rows so far

    @property
    def first(self) -> Tensor:
        """(batch,) bool: whose answer begins with this token."""
        return self.count == 1


class RunningScore(ABC):
    """A score that is updated with every token; one instance per batch. An answer begins where `AnswerStep.first` says so.

    Examples:
        The score of a user: minus the log-probability of the last token.

        >>> class LastToken(RunningScore):
        ...     name = "last token"
        ...     def update(self, step):
        ...         return -step.logprob
        >>> LastToken().update(AnswerStep(torch.tensor([-1.0, -2.0]), torch.tensor([1, 1]), {}, {})).tolist()
        [1.0, 2.0]
    """

    name: str
    reads_rows = False  # whether it needs `AnswerStep.row` or `means`

    @abstractmethod
    def update(self, step: AnswerStep) -> Tensor:
        """(batch,): the score with this token; larger is more likely wrong."""

    def select(self, lines: Tensor) -> None:
        """Retain these answers of the batch, between two tokens. Tensors whose first dim is the batch need nothing more."""
        for name, value in vars(self).items():
            if isinstance(value, Tensor):
                setattr(self, name, value[lines])


class SmallestLogprob(RunningScore):
    """Minus the smallest log-probability of a token.

    >>> prefix_scores(SmallestLogprob(), np.array([[-1.0, -3.0, -2.0]]))
    array([[1., 3., 3.]])
    """

    name = LOGPROB_MIN
    _largest: Tensor | None = None  # (batch,)

    def update(self, step: AnswerStep) -> Tensor:
        """The largest of the negated log-probabilities."""
        largest = -step.logprob
        if self._largest is not None:
            largest = torch.where(step.first, largest, torch.maximum(self._largest, largest))
        self._largest = largest
        return largest


class MeanLogprob(RunningScore):
    """Minus the mean log-probability of the tokens.

    >>> prefix_scores(MeanLogprob(), np.array([[-1.0, -3.0, -2.0]]))
    array([[1., 2., 2.]])
    """

    name = LOGPROB_MEAN
    _sum: Tensor | None = None  # (batch,)

    def update(self, step: AnswerStep) -> Tensor:
        """The mean of the negated log-probabilities."""
        total = -step.logprob
        if self._sum is not None:
            total = torch.where(step.first, total, self._sum + total)
        self._sum = total
        return total / step.count


class Rauq(RunningScore):
    """Recurrent attention-based uncertainty: see the module's docstring.

    >>> all_on_itself = np.zeros((1, 3, 1, 2))  # three layers of one head, two tokens
    >>> prefix_scores(Rauq(), np.log([[0.5, 1.0]]), {"self_log": all_on_itself}).round(4)  # -log .5; -log(.2 + .8 * .5)
    array([[0.6931, 0.602 ]])
    """

    name = "RAUQ"
    reads_rows = True
    _state: Tensor | None = (
        None  # (batch, 3, layer, head): confidence, sum of its log, sum of the weights on the own token
    )

    def update(self, step: AnswerStep) -> Tensor:
        """The score of the text so far."""
        own = step.row[SELF_LOG]
        layers = len(own)
        own = own[layers // 3 : math.ceil(layers * 2 / 3) + 1].exp().transpose(0, 1)  # (batch, layer, head)
        p = step.logprob.exp().to(own.dtype)[:, None, None].expand_as(own)
        state = torch.stack([p, p.log(), torch.zeros_like(p)], dim=1)
        if self._state is not None:
            before, logs, weights = self._state.unbind(dim=1)
            confidence = ALPHA * p + (1 - ALPHA) * own * before
            later = torch.stack([confidence, logs + confidence.log(), weights + own], dim=1)
            state = torch.where(step.first[:, None, None, None], state, later)
        self._state = state
        most = state[:, 2].nan_to_num(-1.0).argmax(dim=-1, keepdim=True)
        uncertainty = -state[:, 1].gather(-1, most)[..., 0] / step.count[:, None]  # (batch, layer)
        return uncertainty.nan_to_num(-torch.inf).amax(dim=1)  # NaN: a layer without heads


class RunningDetector(RunningScore):
    """The log-odds of a fitted detector whose feature sets are `rows_features` and log-probabilities of the answer so far.

    `contributions` is what each head added to the last score.
    """

    reads_rows = True

    def __init__(self, detector: Detector, name: str) -> None:
        self.name, self.detector = name, detector
        expected = {ROWS: (STATISTIC, LAYER, HEAD), LOGPROB_MIN: (), LOGPROB_MEAN: ()}
        found = {known: block.dims for known, block in detector.blocks_.items()}
        if any(expected.get(known) != dims for known, dims in found.items()):
            raise DataError(
                f"A detector of {', '.join(map(repr, found))} cannot follow an answer that is being written; fit one on "
                f"{', '.join(map(repr, expected))} (headwise build --studies streaming)."
            )
        block = detector.blocks_.get(ROWS)
        self.shape = None if block is None else block.mean.shape  # (statistic, layer, head)
        if self.shape is not None and self.shape[0] != len(ROW_FEATURES):
            raise DataError(
                f"The detector reads {self.shape[0]} statistics of a row, and there are {len(ROW_FEATURES)}."
            )
        self._statistics = ROW_FEATURES if block is not None else ()
        self._weights = None if block is None else torch.tensor(block.weights, dtype=torch.float32)
        self._centre = None if block is None else torch.tensor(block.mean, dtype=torch.float32)
        self._parts: dict[str, RunningScore] = {
            score.name: score for score in (SmallestLogprob(), MeanLogprob()) if score.name in detector.blocks_
        }
        self.contributions: Tensor | None = None  # (layer, batch, head)
        self.blocks: dict[str, Tensor] = {}  # what each feature set added, (batch,)

    def update(self, step: AnswerStep) -> Tensor:
        """The log-odds, not calibrated: `Detector.logit`."""
        self.blocks = {}
        for name, part in self._parts.items():
            block = self.detector.blocks_[name]
            self.blocks[name] = (part.update(step) - float(block.mean)) * float(block.weights)
        if self._weights is not None and self._centre is not None:
            device = step.logprob.device
            if self._weights.device != device:
                self._weights, self._centre = self._weights.to(device), self._centre.to(device)
            values = torch.stack([step.means[name] for name in self._statistics])  # (statistic, layer, batch, head)
            terms = (values.nan_to_num(0.0) - self._centre[:, :, None]) * self._weights[:, :, None]
            self.contributions = terms.sum(dim=0)
            self.blocks[ROWS] = self.contributions.sum(dim=(0, 2))
        return torch.stack(list(self.blocks.values())).sum(dim=0) + self.detector.intercept_

    def select(self, lines: Tensor) -> None:
        """Retain these answers."""
        for part in self._parts.values():
            part.select(lines)


ROWS = "Answer rows"  # the feature set of all heads: (example, statistic, layer, head)
ROW_FEATURES = ("self_log", "entropy", "sink", "previous", "lookback")  # in this order

UNFITTED: dict[str, type[RunningScore]] = {one.name: one for one in (SmallestLogprob, MeanLogprob, Rauq)}


def prefix_scores(
    score: RunningScore, logprobs: np.ndarray, rows: Mapping[str, np.ndarray] | None = None
) -> np.ndarray:
    """The score after every token, (batch, token), of answers that are known whole.

    Args:
        score: one that needs single rows alone, not their means.
        logprobs: (batch, token), NaN after the last.
        rows: statistic -> (batch, layer, head, token).

    Examples:
        >>> prefix_scores(MeanLogprob(), np.array([[-1.0, -3.0]]))
        array([[1., 2.]])
    """
    tensors = {
        name: torch.from_numpy(np.ascontiguousarray(np.moveaxis(one, (0, 3), (2, 0))))
        for name, one in (rows or {}).items()
    }  # (token, layer, batch, head)
    given = torch.from_numpy(np.ascontiguousarray(logprobs.T))
    found = []
    for index, now in enumerate(given):
        count = torch.full_like(now, index + 1, dtype=torch.long)
        found.append(score.update(AnswerStep(now, count, {name: one[index] for name, one in tensors.items()}, {})))
    return torch.stack(found, dim=1).numpy()
