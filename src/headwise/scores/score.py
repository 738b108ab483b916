"""What is a score of an answer? One declaration: a name, the function, what it reads, what it costs; and the list of all.

A score says of every answer how likely it is wrong: **larger is more likely wrong**. Its function takes the readings of all
answers, an `xarray.Dataset` with the dim ``example``, and returns an array whose first dim is ``example``.

| kind | the function returns | what becomes of it |
|------|----------------------|--------------------|
| score | one number per answer | taken as it is |
| supervised | features, (example, ...) | a detector is fitted to the labels on other folds (``headwise.probes``) |
| probe | features, (example, ...) | the same, fitted to ``target`` (a number per answer, without a label) instead |
| unlabelled | one number per answer; also takes the readings of others | it learns from the other folds, without labels |

| cost | the score needs |
|------|-----------------|
| answer | the log-probabilities of the answer's own tokens, known when it has been written |
| pass | attention or hidden states, of one pass over prompt and answer (or read while it is written) |
| p(True) | the model's verdict on its answer: one more question |
| contrast pair | the question and answer judged true, and the same judged false: two more passes |
| samples | K more answers to the same question |

A score of your own joins the table by five lines, or from a package by an entry point of the group ``headwise.scores``:

    from headwise.scores import score

    @score("Longest surprise", needs=("logprobs",), cost="answer")
    def longest_surprise(readings):
        return (readings["logprobs"] < -1).sum("token")

    [project.entry-points."headwise.scores"]
    surprise = "my_package.my_module:longest_surprise"

A score whose ``needs`` were not read (samples, with ``uncertainty.samples=0``) is left out of the table.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from headwise.core.dims import EXAMPLE
from headwise.core.errors import DataError, did_you_mean

__all__ = ["COSTS", "KINDS", "Publication", "UncertaintyScore", "register", "score", "scores", "scores_of"]

ENTRY_POINTS = "headwise.scores"
KINDS = ("score", "supervised", "probe", "unlabelled")
COSTS = ("answer", "pass", "p(True)", "contrast pair", "samples")  # from the cheapest on
_log = logging.getLogger(__name__)

Readings = xr.Dataset
Function = Callable[..., Any]  # of the readings; one without labels also takes those of other answers


class Publication(NamedTuple):
    """Where a score comes from.

    Examples:
        >>> Publication("Kuhn et al. 2023, Semantic Uncertainty", "https://arxiv.org/abs/2302.09664").link
        'https://arxiv.org/abs/2302.09664'
    """

    title: str  # authors, year, title
    link: str  # its address


UNPUBLISHED = Publication("", "")


@dataclass(frozen=True)
class UncertaintyScore:
    """A score of an answer; made by the decorator `score`, and callable as the function it decorates.

    Examples:
        >>> spread = UncertaintyScore("Spread", lambda readings: readings["logprobs"].std("token"), needs=("logprobs",))
        >>> readings = xr.Dataset({"logprobs": (("example", "token"), [[-1.0, -3.0], [-2.0, -2.0]])})
        >>> spread(readings)
        array([1., 0.])
    """

    name: str  # of its row
    function: Function  # from readings to (example,), or to features (example, ...)
    needs: tuple[str, ...] = ()  # variables of the readings
    kind: str = "score"  # one of `KINDS`
    cost: str = "pass"  # one of `COSTS`
    paper: Publication = UNPUBLISHED  # where it comes from
    target: Function | None = None  # of a probe: the number per answer that it is fitted to
    target_needs: tuple[str, ...] = ()  # what the target reads; only where the probe is fitted

    def __post_init__(self) -> None:
        names = ("__doc__", "__module__", "__name__", "__qualname__")
        shown = {name: getattr(self.function, name, None) for name in names}
        self.__dict__.update(shown, __wrapped__=self.function)  # its documentation and its examples are the function's
        for what, value, known in (("kind", self.kind, KINDS), ("cost", self.cost, COSTS)):
            if value not in known:
                raise DataError(f"The score {self.name!r} has the {what} {value!r}. {did_you_mean(value, known)}")
        if (self.kind == "probe") != (self.target is not None):
            raise DataError(
                f"The score {self.name!r} needs a target if it is a probe, and none otherwise; a probe is fitted to a number "
                "that needs no label."
            )

    def known(self, readings: Readings) -> bool:
        """Whether everything it needs was read."""
        return set(self.needs) | set(self.target_needs) <= set(readings.variables)

    def __call__(self, readings: Readings, *others: Readings) -> Any:
        """The score of every answer, (example,) in float64; features as they are. An unlabelled one learns from ``others``."""
        found = self.function(readings, *others)
        if self.kind in ("supervised", "probe"):
            return found
        array = found.transpose(EXAMPLE, ...).values if isinstance(found, xr.DataArray) else np.asarray(found)
        if array.shape != (readings.sizes[EXAMPLE],):
            raise DataError(
                f"The score {self.name!r} gives an array of shape {array.shape}, but one number for each of "
                f"{readings.sizes[EXAMPLE]} answers is needed."
            )
        return array.astype(np.float64)


def score(
    name: str, *, needs: tuple[str, ...] = (), kind: str = "score", cost: str = "pass",
    paper: Publication = UNPUBLISHED, target: Function | None = None, target_needs: tuple[str, ...] = (),
) -> Callable[[Function], UncertaintyScore]:  # fmt: skip
    """Declare a function as a score, and register it for this process.

    Args:
        name: of its row in the table.
        needs: the variables of the readings that it takes.
        kind: "score" (a number per answer), "supervised" (features that are fitted to labels), "probe" or "unlabelled".
        cost: one of `COSTS`.
        paper: where it was published.
        target: of a probe, from the readings to the number per answer that it is fitted to.
        target_needs: the variables that the target takes.

    Returns:
        A decorator, which returns the `UncertaintyScore`.

    Examples:
        >>> @score("Tokens under 1 %", needs=("logprobs",), cost="answer")
        ... def unlikely(readings):
        ...     return (readings["logprobs"] < np.log(0.01)).sum("token")
        >>> "Tokens under 1 %" in scores()
        True
        >>> _ = scores().pop("Tokens under 1 %")  # as it was
    """

    def decorate(function: Function) -> UncertaintyScore:
        return register(UncertaintyScore(name, function, needs, kind, cost, paper, target, target_needs))

    return decorate


def register(one: UncertaintyScore) -> UncertaintyScore:
    """Add a score for this process; a score of the same name is replaced only by one of the same module and function.

    Args:
        one: the score.

    Returns:
        The same.

    Examples:
        >>> _ = register(UncertaintyScore("Tokens", lambda readings: readings["logprobs"].count("token"), ("logprobs",)))
        >>> scores().pop("Tokens").needs
        ('logprobs',)
    """
    before = _REGISTERED.get(one.name)
    if before is not None and _origin(before) != _origin(one):
        raise DataError(f"There is a score {one.name!r} already; give yours another name.")
    _REGISTERED[one.name] = one
    return one


def scores() -> dict[str, UncertaintyScore]:
    """All scores by name: the built-in ones, those of installed packages, and those registered in this process.

    Returns:
        The scores, in the order of the table.

    Examples:
        >>> scores()["EigenScore"].cost, scores()["EigenScore"].needs
        ('samples', ('sample_hidden',))
    """
    _load()
    return _REGISTERED


_REGISTERED: dict[str, UncertaintyScore] = {}


def _origin(one: UncertaintyScore) -> tuple[str, str]:
    return (getattr(one.function, "__module__", ""), getattr(one.function, "__qualname__", ""))


@cache
def _load() -> None:
    """The scores of installed packages; the built-in ones are registered with the package."""
    for entry in metadata.entry_points(group=ENTRY_POINTS):
        try:
            found = entry.load()
            if not isinstance(found, UncertaintyScore):
                raise TypeError("it is not an UncertaintyScore; decorate the function with headwise.scores.score")
            register(found)
        except Exception as cause:  # a broken plug-in must not take the other scores with it
            _log.warning("The plug-in score %s (%s) could not be loaded: %s", entry.name, entry.value, cause)


def scores_of(readings: Readings) -> Mapping[str, UncertaintyScore]:
    """The scores for which everything was read.

    Args:
        readings: the readings.

    Returns:
        The scores by name.

    Examples:
        >>> list(scores_of(xr.Dataset({"p_true": ("example", [0.5])})))
        ['p(True)']
    """
    return {name: one for name, one in scores().items() if one.known(readings)}
