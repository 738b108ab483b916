"""The scores that can be watched, and what an atlas knows of them: probabilities, thresholds, which one is the default.

    known = known_scores(Atlas.open("atlas"))       # from its study `streaming`
    known["RAUQ"].threshold(at=0.1)                 # alarms for at most 10 % of correct answers
    watchable("RAUQ")                               # the same score without an atlas: no probability, no threshold

A threshold is split conformal (`stats.conformal`): it comes from answers that were used neither to fit a part of the score nor
to choose the default score, and from the largest score of each while it was written, because an alarm may be raised before the
end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from headwise.atlas import Atlas
from headwise.core.dims import DETECTOR, SHARE
from headwise.core.errors import AtlasError, DataError, did_you_mean
from headwise.model import Model
from headwise.probes.detector import SEEN, Detector
from headwise.probes.running_scores import LOGPROB_MIN, UNFITTED, RunningDetector, RunningScore
from headwise.probes.stacking import Platt
from headwise.stats.conformal import Threshold, false_alarm_threshold, risk_threshold
from headwise.studies.streaming.measure import DETECTOR_FILE

STUDY = "streaming"


@dataclass(frozen=True)
class WatchedScore:
    """A score that can be watched. Made by `known_scores` and `watchable`.

    Examples:
        >>> import numpy as np
        >>> mine = WatchedScore("mine", UNFITTED["RAUQ"], highest=np.arange(20.0), wrong=np.arange(20) % 2 == 0)
        >>> mine.threshold(at=0.2).value  # one of the ten correct answers is above it
        17.0
    """

    name: str  # of the score
    make: Callable[[], RunningScore]  # a fresh one for each batch
    calibration: Platt | None = None  # from score to log-odds; None: there is no probability
    highest: NDArray[np.float64] | None = None  # (answer,) largest scores while they were written, held out
    wrong: NDArray[np.bool_] | None = None  # (answer,) whether these are wrong
    seen: Mapping[str, tuple[float, float]] | None = None  # what each feature set added to the answers it was fitted on
    note: str = ""  # how it compares

    def threshold(self, *, at: float | None = None, risk: float | None = None) -> Threshold:
        """The score above which an alarm is raised.

        Args:
            at: the share of correct answers that may raise one.
            risk: the share of wrong answers among those let through.

        Returns:
            The threshold, with what it guarantees.
        """
        if (at is None) == (risk is None):
            raise DataError("give either at (a share of correct answers) or risk (a share of those let through)")
        if self.highest is None or self.wrong is None:
            raise DataError(
                f"the score {self.name!r} has no calibration answers here, so a rate cannot become a threshold; open an atlas "
                "with the study streaming, or give threshold= in units of the score"
            )
        if at is not None:
            return false_alarm_threshold(self.highest[~self.wrong], at)
        assert risk is not None
        return risk_threshold(self.highest, self.wrong, risk)


def watchable(name: str) -> WatchedScore:
    """A score that needs no fit.

    Args:
        name: of the score.

    Returns:
        The score, without probabilities and thresholds.

    Examples:
        >>> watchable("RAUQ").name
        'RAUQ'
    """
    if name not in UNFITTED:
        raise DataError(f"There is no score {name!r}. {did_you_mean(name, UNFITTED)}")
    return WatchedScore(name, UNFITTED[name])


def known_scores(atlas: Atlas) -> dict[str, WatchedScore]:
    """The scores of an atlas.

    Args:
        atlas: with the study streaming.

    Returns:
        By name, the default first.

    Examples:
        >>> list(known_scores(answered))[0]
        'Log-probability, min'
    """
    if STUDY not in atlas.studies:
        raise AtlasError(
            f"{atlas.location} holds no score that can be watched; build one with headwise build --studies {STUDY} "
            f"-o {atlas.location}"
        )
    dataset = atlas[STUDY]
    default = str(dataset.attrs["default"])
    found = {}
    for name in map(str, dataset[DETECTOR].values):
        row = dataset.sel({DETECTOR: name})
        if not np.isfinite(float(row["slope"])):
            continue  # its length, or what the question tells: not scores of a text that is being written
        make: Callable[[], RunningScore] | None = UNFITTED.get(name)
        seen = None
        if make is None:
            detector = stored_detector(atlas, STUDY, DETECTOR_FILE)
            make, seen = _maker(detector, name), dict(detector.about_.get(SEEN, {}))
        highest, wrong = row["highest"].values.astype(np.float64), row["wrong"].values.astype(bool)
        known = np.isfinite(highest)
        found[name] = WatchedScore(
            name, make, Platt(float(row["slope"]), float(row["offset"])), highest[known], wrong[known], seen,
            _note(dataset, name, default),
        )  # fmt: skip
    if default not in found:
        raise AtlasError(f"the study {STUDY} of {atlas.location} names no usable score; build it again with --redo")
    return {default: found.pop(default), **found}


def _maker(detector: Detector, name: str) -> Callable[[], RunningScore]:
    return lambda: RunningDetector(detector, name)


def refuse_other_model(atlas: Atlas, study: str, model: Model, *, digest: Any = None) -> None:
    """Refuse a model other than that of a study's scores; ``digest``: of the weights that they belong to, if a file has it."""
    own, given = atlas.provenance(study).model, model.identity()["digest"]
    digest = digest or own.get("digest")
    if digest != given:
        raise AtlasError(
            f"the scores in {atlas.location} were fitted on {own.get('id')} ({digest}), and this model is {model.id} "
            f"({given}); they are valid for their own model only; give that model with --model, or build an atlas of this "
            f"one with headwise build --studies {study}"
        )


def stored_detector(atlas: Atlas, study: str, file: str) -> Detector:
    """The detector that a study wrote into an atlas, local or remote."""
    parts = [atlas.location.read(f"{file}{suffix}") for suffix in (".json", ".safetensors")]
    if parts[0] is None or parts[1] is None:
        raise AtlasError(
            f"{atlas.location} holds no detector; build one with headwise build --studies {study} --redo {study} "
            f"-o {atlas.location}"
        )
    return Detector.decode(parts[0], parts[1], f"{atlas.location}/{file}")


def _note(dataset: xr.Dataset, name: str, default: str) -> str:
    """How a score compares, of whole answers, out of fold."""
    end = dataset.isel({SHARE: -1}).sel({DETECTOR: name})
    auroc = f"AUROC {float(end['auroc']):.3f}, cross-validated"
    if name == LOGPROB_MIN:
        if default != name:
            return auroc
        fitted = str(dataset[DETECTOR].values[0])
        return f"{auroc}; the default, because {fitted} shows no gain over it ({_interval(dataset, 'choice_gain')})"
    return f"{auroc}; gain over {LOGPROB_MIN} {_interval(end, 'gain')}"


def _interval(row: xr.Dataset, name: str) -> str:
    value, low, high = (float(row[f"{name}{end}"]) for end in ("", "_low", "_high"))
    return f"{value:+.3f}, {low:.3f} to {high:.3f}"
