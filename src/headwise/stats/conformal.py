"""From which score on should an answer raise an alarm? Thresholds that hold for new answers, with a finite-sample guarantee.

The larger a score, the more likely the answer is wrong. An answer raises an alarm if its score is above the threshold t,
and is let through otherwise. Two promises can be made about new questions of the same kind:

**At most this share of correct answers raises an alarm** (split conformal prediction: Vovk, Gammerman and Shafer,
*Algorithmic Learning in a Random World*, 2005). With the sorted scores s_(1) <= ... <= s_(n) of n correct answers,

    t = s_(k),   k = n + 1 - floor((n + 1) rate)         P(score of a new correct answer > t) <= rate

since a new score has the same chance of each of the n + 1 places among the old ones. The probability is over the n answers
and the new one together: for one given calibration sample the rate varies around that value, as a Beta(n + 1 - k, k) variable
(standard deviation about sqrt(rate (1 - rate) / n)).

**At most this share of the answers let through is wrong** (Learn then Test: Angelopoulos, Bates, Candès, Jordan and Lei,
Annals of Applied Statistics 19, 2025). A threshold with w wrong answers among the n that it lets through passes if

    P(Binomial(n, risk) <= w) <= 1 - confidence,   that is, if Clopper and Pearson's upper bound of w / n is at most the risk

Candidates are tried from strict to lenient, and the first that fails ends the search, so that all are tested at one level
(fixed sequence). They are 20 ranks, fixed before any answer is looked at; the first is where n risk / 20 wrong answers may
pass. The strictest possible one would fail on a single wrong answer: with 1,000 answers, an AUROC of .75 and a risk of 20 %,
such a search ends without a threshold in half of the draws, and this one in a tenth. The answer that sets a threshold is no
part of the sample below it; it is counted if it is wrong. The guarantee is exact if the risk among the answers let through
does not fall as the threshold rises, as for any score that is of use.

Both assume exchangeable answers: new questions of the same kind, answered and scored in the same way, one answer per
question. Nothing is assumed of the scores; ties make both thresholds conservative. A probe or detector must not have been
fitted on the calibration answers.

Cost: one sort.
"""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Literal, NamedTuple

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from headwise.core.errors import DataError
from headwise.stats.validation import as_flags

Floats = NDArray[np.float64]

CANDIDATES = 20  # thresholds that are tested for a risk
WRONG_PER_RISK = 20  # n risk / this: wrong answers that the first candidate may let through


class Threshold(NamedTuple):
    """A score from which on answers raise an alarm, and what it guarantees.

    Examples:
        >>> found = false_alarm_threshold([0.1, 0.4, 0.2, 0.3], 0.2)
        >>> found.value, found.n, found.needed
        (0.4, 4, 4)
        >>> found.statement.partition(",")[0]
        'A correct answer raises an alarm (score above 0.4) with a probability of at most 20 %'
    """

    value: float
    """answers above it raise an alarm; inf: none can, -inf: all do"""
    target: float
    """the rate or risk that was asked for"""
    n: int
    """calibration answers: correct ones for a false-alarm rate, all for a risk"""
    kind: Literal["false alarms", "risk"]
    """what is limited"""
    needed: int
    """answers below which no threshold can be given for this target"""
    confidence: float | None = None
    """of a risk: the share of calibration samples for which it holds"""

    @property
    def is_finite(self) -> bool:
        """Whether there is a threshold that lets some answers through and not all."""
        return math.isfinite(self.value)

    @property
    def statement(self) -> str:
        """The guarantee in one sentence; where there is no threshold, why."""
        target = _percent(self.target)
        if self.kind == "false alarms":
            if self.value == math.inf and self.n < self.needed:
                return (
                    f"No answer raises an alarm: a false-alarm rate of {target} needs at least {self.needed} correct answers "
                    f"to calibrate on, and there are {self.n}."
                )
            return (
                f"A correct answer raises an alarm (score above {self.value:.6g}) with a probability of at most {target}, over "
                f"the draw of the {self.n} correct answers used and of the new one, if new questions are of the same kind."
            )
        confidence = _percent(self.confidence or 0.0)
        if self.value == -math.inf:
            enough = f", which needs at least {self.needed}" if self.n < self.needed else ""
            return (
                f"No answer is let through: the {self.n} answers used do not show, with a confidence of {confidence}, that at "
                f"most {target} of those let through would be wrong at any threshold{enough}."
            )
        return (
            f"At most {target} of the answers let through (score at most {self.value:.6g}) are wrong, with a confidence of "
            f"{confidence} over the draw of the {self.n} answers used, if new questions are of the same kind."
        )


def false_alarm_threshold(correct_scores: ArrayLike, rate: float) -> Threshold:
    """The smallest threshold that a new correct answer exceeds with at most this probability (split conformal).

    Args:
        correct_scores: of correct answers on which nothing was fitted; larger means more likely wrong.
        rate: of false alarms, between 0 and 1.

    Returns:
        The threshold with its guarantee; inf (no alarm) with fewer than 1 / rate - 1 answers.

    Examples:
        >>> false_alarm_threshold(range(99), 0.1).value  # 10 of 100 places are above it
        89.0
        >>> print(false_alarm_threshold([0.2, 0.3], 0.05).statement)
        No answer raises an alarm: a false-alarm rate of 5 % needs at least 19 correct answers to calibrate on, and there are 2.
    """
    exact = _share(rate, "false-alarm rate")
    needed = math.ceil(1 / exact) - 1
    scores = _scores(correct_scores, f"a false-alarm rate of {_percent(rate)} needs at least {needed} correct answers")
    above = math.floor(exact * (len(scores) + 1))
    value = math.inf if above == 0 else float(np.sort(scores)[len(scores) - above])
    return Threshold(value, rate, len(scores), "false alarms", needed)


def risk_threshold(scores: ArrayLike, wrong: ArrayLike, risk: float, confidence: float = 0.95) -> Threshold:
    """The largest threshold up to which, with this confidence, at most this share of the answers is wrong (Learn then Test).

    Args:
        scores: of answers on which nothing was fitted; larger means more likely wrong.
        wrong: which of them are.
        risk: the share of wrong answers among those let through, between 0 and 1.
        confidence: the share of calibration samples for which it holds.

    Returns:
        The threshold with its guarantee; -inf (nothing is let through) where none can be certified.

    Examples:
        >>> scores = np.linspace(0, 1, 200)
        >>> found = risk_threshold(scores, np.random.default_rng(0).random(200) < scores**2, 0.2)
        >>> round(found.value, 2), found.needed  # the true risk among scores up to .6 is 12 %
        (0.59, 15)
    """
    exact, allowed = _share(risk, "risk"), 1 - float(_share(confidence, "confidence"))
    needed = math.ceil(math.log(allowed) / math.log1p(-float(exact))) + 1
    values = _scores(scores, f"a risk of {_percent(risk)} needs at least {needed} answers")
    labels = as_flags(wrong, rows=len(values))
    order = np.argsort(values, kind="stable")
    values, errors = values[order], np.cumsum(labels[order])
    value = -math.inf
    for rank in _candidates(len(values), risk, allowed):
        through = int(np.searchsorted(values, values[rank - 1], side="right"))  # with those of the same score
        if scipy.special.bdtr(min(int(errors[through - 1]), through - 1), through - 1, risk) > allowed:
            break
        value = float(values[through - 1])
    return Threshold(value, risk, len(values), "risk", needed, confidence)


def _candidates(n: int, risk: float, allowed: float) -> list[int]:
    """The ranks of the scores that are tried as thresholds, from strict to lenient; they depend on nothing but sizes."""
    below = np.arange(1, n)  # answers below a threshold that is set by one more
    passing = below[scipy.special.bdtr(int(n * risk / WRONG_PER_RISK), below, risk) <= allowed]
    return [] if not passing.size else sorted(set(np.linspace(passing[0] + 1, n, CANDIDATES).astype(int).tolist()))


def _share(value: float, name: str) -> Decimal:
    """A share as it was typed, so that 0.1 x 10 is 1."""
    if not 0 < value < 1:
        raise DataError(f"A {name} is between 0 and 1, such as 0.1, not {value}.")
    return Decimal(repr(float(value)))


def _scores(values: ArrayLike, needs: str) -> Floats:
    found = np.asarray(values, dtype=np.float64)
    if found.ndim != 1:
        raise DataError(f"Scores must be one per answer, but have the shape {found.shape}.")
    if not found.size:
        raise DataError(f"There are no scores to calibrate on; {needs}.")
    if np.isnan(found).any():
        raise DataError(
            f"{np.isnan(found).sum()} of the {found.size} scores are NaN; leave out answers without a score."
        )
    return found


def _percent(share: float) -> str:
    return f"{100 * share:.4g} %"
