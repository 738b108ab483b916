"""When did each head become what it is? From an atlas over training: which heads emerged, from which step on, in which order.

    found = emergence(TrainingAtlas.open("training-atlas"))
    found.table                                   # a DataFrame: one row per head that emerged
    emergence_figure(found), describe_emergence(found), found.to_dict()

Of each column of the head table (previous token, induction, sink ...) a head has a value at every checkpoint. A head has
**emerged** in a column if

    its value rose from the first checkpoint to the last (paired over the same texts, q < 0.05 over all heads),
    by at least half as much as that of the head that rose most, and
    ends at twice the baseline or more, where the column has one (a head with uniform attention).

It has emerged **by** the first checkpoint from which on its value stays past half-way, (first + last) / 2. So the change took
place between that checkpoint and the one before, and no interpolation between checkpoints is assumed. The interval of this
step is over texts: the middle 95 % of `RESAMPLES` bootstrap samples (Efron 1979), which draw the same texts at all steps.

One head emerged **before** another if it is past half-way at a checkpoint at which the other is not; that is claimed
where it holds in at least 97.5 % of the resamples. Texts are resampled, not training runs: another seed may do otherwise.

Cost: seconds; one checkpoint's study in memory at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from headwise.analysis.changes import change_error, example_values
from headwise.analysis.columns import Column, columns_of, default_columns
from headwise.atlas import TrainingAtlas
from headwise.core.dims import EXAMPLE, HEAD, LAYER, head_name
from headwise.core.errors import StudyError, did_you_mean
from headwise.core.markup import card, table
from headwise.describe.writer import significant
from headwise.figures.payload import to_jsonable
from headwise.figures.provenance import provenance_caption
from headwise.stats.multiple_testing import benjamini_hochberg

__all__ = ["Course", "Emergence", "HeadEmergence", "Order", "emergence"]

SHOWN = (
    "profile.previous",
    "profile.induction",
    "profile.duplicate",
    "profile.sink",
)  # by default, those that there are
MAX_COLUMNS = 4  # by default
RESAMPLES = 1000
HALF = 0.5  # of the way from the first value to the last; and of the largest rise
MIN_RATIO = 2.0  # of the last value to the baseline
SURE = 0.975  # share of resamples


@dataclass(frozen=True)
class HeadEmergence:
    """One head that emerged in one column.

    Examples:
        >>> one = HeadEmergence("L1H3", 1, 3, 0.04, 0.81, 0.79, 0.83, 1e-9, 1024, 1280, 1280, 1280, 0.81, 3072)
        >>> f"{one.head} between steps {one.after} and {one.by}"
        'L1H3 between steps 1024 and 1280'
    """

    head: str  # its name
    layer: int  # from 0
    index: int  # of the head in its layer
    first: float  # its value at the first checkpoint
    last: float  # and at the last
    last_low: float  # 95 % interval over texts of the last value; NaN where there is none
    last_high: float  # its upper end
    q: float  # of the rise, over the heads of the column
    after: int  # the last checkpoint that was not past half-way
    by: int  # the next one: from here on it stays past half-way
    by_low: float  # interval of ``by`` over texts; NaN where the column has no values per text
    by_high: float  # its upper end
    peak: float  # its largest value at any checkpoint
    peak_step: int  # where that was


@dataclass(frozen=True, eq=False)
class Course:
    """One column of the head table through training.

    Examples:
        >>> from headwise.analysis import emergence
        >>> (course,) = emergence(hw.TrainingAtlas({0: atlas, 128: atlas}), columns="profile.sink").courses
        >>> course.label, course.values.shape, course.heads
        ('First token (sink)', (2, 6, 6), ())
    """

    name: str  # as the head table has it
    study: str  # where it comes from
    label: str  # for readers
    unit: str  # of the values
    definition: str  # a phrase
    values: np.ndarray  # (step, layer, head), NaN where not measured
    low: np.ndarray | None  # lower ends of the 95 % intervals
    high: np.ndarray | None  # upper ends
    baseline: float  # mean over heads at the last step; NaN where there is none
    baseline_name: str  # what it is
    test: str  # of the rise
    texts: int  # that are resampled; 0 where the column has no values per text
    heads: tuple[HeadEmergence, ...]  # those that emerged, the largest rise first


@dataclass(frozen=True)
class Order:
    """Whether the strongest head of one column emerged before that of another.

    Examples:
        >>> Order("profile.previous", "profile.induction", "L0H2", "L1H3", share=0.99, reverse=0.0).sure
        True
    """

    earlier: str  # column
    later: str  # column
    earlier_head: str  # the strongest head of the earlier column
    later_head: str  # and of the later one
    share: float  # of resamples in which it was earlier
    reverse: float  # of resamples in which it was later

    @property
    def sure(self) -> bool:
        """Whether the order is claimed."""
        return self.share >= SURE


@dataclass(frozen=True, eq=False)
class Emergence:
    """The course of training, head by head. Made by `emergence`.

    Examples:
        >>> from headwise.analysis import emergence
        >>> emergence(hw.TrainingAtlas({0: atlas, 128: atlas}), columns="profile.sink").same_weights
        ((0, 128),)
    """

    name: str  # of the atlas over training
    provenance: str  # model of the last checkpoint, data, seed and version, as a caption
    steps: tuple[int, ...]  # of the checkpoints
    losses: dict[str, tuple[float, ...]]  # by name, one per step, NaN where not recorded
    courses: tuple[Course, ...]  # one per column
    order: tuple[Order, ...]  # of the columns, pair by pair
    same_weights: tuple[tuple[int, int], ...]  # neighbouring checkpoints with the same weights

    @property
    def table(self) -> pd.DataFrame:
        """One row per head that emerged, column by column; the index is the heads' names."""
        rows = [
            {"name": one.head, "column": course.name, **asdict(one)} for course in self.courses for one in course.heads
        ]
        fields = [name for name in HeadEmergence.__dataclass_fields__ if name != "head"]
        return pd.DataFrame(rows, columns=["name", "column", *fields]).rename(columns={"index": HEAD}).set_index("name")

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {name: to_jsonable(getattr(self, name)) for name in self.__dataclass_fields__}

    def __repr__(self) -> str:
        return (
            f"<Emergence of {self.name}: {len(self.steps)} steps, {len(self.courses)} columns, {len(self.table)} rows>"
        )

    def _repr_html_(self) -> str:
        shown = self.table[["column", "first", "last", "after", "by", "by_low", "by_high"]].reset_index()
        rows = [
            [significant(cell) if isinstance(cell, float) else cell for cell in row] for row in shown.values.tolist()
        ]
        return card(f"Emergence in {self.name}", table(rows, header=list(shown.columns)))


def emergence(
    training: TrainingAtlas, *, columns: Iterable[str] | str | None = None, resamples: int = RESAMPLES, seed: int = 0
) -> Emergence:
    """Which heads emerged during training, from which step on, and what came before what?

    Args:
        training: the atlas over training.
        columns: of the head table, such as "profile.induction"; None: attention to the previous token, induction, duplicate
            tokens and the first token, where they were measured, else the first columns of the head table.
        resamples: bootstrap samples of the texts.
        seed: of the resampling.

    Returns:
        Courses, heads and their order.

    Examples:
        >>> from headwise.analysis import emergence
        >>> found = emergence(hw.TrainingAtlas({0: atlas, 128: atlas}), columns="profile.induction")
        >>> found.steps, len(found.table)  # nothing changed
        ((0, 128), 0)
    """
    names = _chosen(training, columns)
    studies = list(dict.fromkeys(name.partition(".")[0] for name in names))
    courses: dict[str, Course] = {}
    halfway: dict[str, np.ndarray] = {}
    for study in studies:
        own = [name for name in names if name.partition(".")[0] == study]
        for course, step_of_resample in _courses_of(training, study, own, resamples, seed):
            courses[course.name], halfway[course.name] = course, step_of_resample
    provenances = training.provenances(studies[0])
    digests = [one.model.get("digest") for one in provenances.values()]
    pairs = zip(training.steps, training.steps[1:], digests, digests[1:], strict=False)
    losses = {str(name): tuple(map(float, array.values)) for name, array in training.losses.items()}
    return Emergence(
        name=training.name,
        provenance=provenance_caption(asdict(provenances[training.steps[-1]])),
        steps=tuple(training.steps),
        losses=losses,
        courses=tuple(courses[name] for name in names),
        order=_order([courses[name] for name in names], halfway),
        same_weights=tuple((a, b) for a, b, one, other in pairs if one == other),
    )


def _chosen(training: TrainingAtlas, columns: Iterable[str] | str | None) -> list[str]:
    """The names of the columns, which the first checkpoint must have."""
    if not training.studies:
        raise StudyError("No study was measured at every checkpoint; run the build of all checkpoints again.")
    first = training.at(training.steps[0])
    if columns is None:
        known = [str(name) for name in first.heads().columns]
        shown = [name for name in SHOWN if name in known] or default_columns(known)[:MAX_COLUMNS]
        if not shown:
            raise StudyError(
                "None of the studies here measured heads; add one with --studies profile and the same --checkpoints."
            )
        return shown
    wanted = list(dict.fromkeys([columns] if isinstance(columns, str) else columns))
    studies = {name.partition(".")[0] for name in wanted}
    measured = columns_of({study: first[study] for study in training.studies if study in studies} or {"": xr.Dataset()})
    known = [column.name for column in measured.columns]
    for name in wanted:
        if name not in known:
            raise StudyError(f"The atlas over training has no column {name!r}. {did_you_mean(name, known)}")
    return wanted


def _courses_of(
    training: TrainingAtlas, study: str, names: Sequence[str], resamples: int, seed: int
) -> list[tuple[Course, np.ndarray]]:
    """The courses of a study's columns, each with the step per resample and head; one checkpoint in memory at a time."""
    columns: dict[str, list[Column]] = {name: [] for name in names}
    texts: dict[str, list[xr.DataArray | None]] = {name: [] for name in names}
    first = last = xr.Dataset()
    for number, (_, dataset) in enumerate(training.each(study)):
        first, last = (dataset if number == 0 else first), dataset
        for column in columns_of({study: dataset}).columns:
            if column.name in columns:
                columns[column.name].append(column)
                texts[column.name].append(example_values(column, dataset))
    return [_course(training.steps, columns[name], texts[name], (first, last), resamples, seed) for name in names]


def _course(
    steps: Sequence[int], columns: Sequence[Column], texts: Sequence[xr.DataArray | None],
    ends: tuple[xr.Dataset, xr.Dataset], resamples: int, seed: int,
) -> tuple[Course, np.ndarray]:  # fmt: skip
    start, end = columns[0], columns[-1]
    error = change_error(start, end, *ends)
    values = np.stack([column.values for column in columns])
    baseline = (
        float(np.nanmean(end.baseline)) if end.baseline is not None and np.isfinite(end.baseline).any() else np.nan
    )
    emerged = _emerged(values, benjamini_hochberg(error.p), baseline)
    examples = _aligned(texts)
    drawn = np.full((resamples, *values.shape[1:]), np.nan)
    if examples is not None:
        drawn = halfway_by_resample(examples, resamples, seed)
    observed = halfway(values)
    q = benjamini_hochberg(error.p)
    heads = []
    for layer, head in emerged:
        at = int(observed[layer, head])
        own = drawn[:, layer, head]
        low, high = _step_interval(own, steps)
        peak = int(np.nanargmax(values[:, layer, head]))
        heads.append(
            HeadEmergence(
                head=head_name(layer, head), layer=layer, index=head,
                first=float(values[0, layer, head]), last=float(values[-1, layer, head]),
                last_low=_at(end.low, layer, head), last_high=_at(end.high, layer, head),
                q=float(q[layer, head]), after=steps[at - 1], by=steps[at], by_low=low, by_high=high,
                peak=float(values[peak, layer, head]), peak_step=steps[peak],
            )
        )  # fmt: skip
    course = Course(
        name=end.name, study=end.study, label=end.label, unit=end.unit, definition=end.definition, values=values,
        low=_stacked([column.low for column in columns]), high=_stacked([column.high for column in columns]),
        baseline=baseline, baseline_name=end.baseline_name, test=error.test,
        texts=0 if examples is None else examples.shape[1], heads=tuple(heads),
    )  # fmt: skip
    return course, drawn


def _emerged(values: np.ndarray, q: np.ndarray, baseline: float) -> list[tuple[int, int]]:
    """The heads that emerged, the largest rise first; see the module's docstring."""
    rise = values[-1] - values[0]
    passed = (q < 0.05) & (rise > 0)
    if np.isfinite(baseline):
        passed &= values[-1] >= MIN_RATIO * baseline
    if not passed.any():
        return []
    passed &= rise >= HALF * rise[passed].max()
    order = np.argsort(np.where(passed, -rise, np.inf), axis=None, kind="stable")[: int(passed.sum())]
    return [(int(cell) // rise.shape[1], int(cell) % rise.shape[1]) for cell in order]


def halfway(values: np.ndarray) -> np.ndarray:
    """Per curve the index of the first checkpoint from which on it stays past half-way from its first to its last value.

    Args:
        values: (step, ...); NaN where not measured.

    Returns:
        An index from 1 on; where a curve ends as it began, the last one.

    Examples:
        >>> int(halfway(np.array([0.0, 0.1, 0.6, 0.4, 0.9, 1.0])))  # past half-way at index 2, but not from there on
        4
    """
    middle = values[0] + HALF * (values[-1] - values[0])
    rising = np.sign(values[-1] - values[0])
    before = (values - middle) * rising <= 0  # not past half-way
    before[0] = True
    steps = np.arange(len(values)).reshape(-1, *[1] * (values.ndim - 1))
    return np.minimum(np.where(before, steps, -1).max(0) + 1, len(values) - 1)


def halfway_by_resample(examples: np.ndarray, resamples: int, seed: int) -> np.ndarray:
    """`halfway` in each bootstrap sample of the texts.

    Args:
        examples: (step, text, layer, head); the same texts at all steps, NaN where a head was not measured.
        resamples: their number.
        seed: equal numbers of texts are drawn alike, so that columns over the same texts stay paired.

    Returns:
        (resample, layer, head), indices of checkpoints.
    """
    count = examples.shape[1]
    weights = np.random.default_rng(seed).multinomial(count, np.full(count, 1 / count), size=resamples).astype(float)
    flat = np.moveaxis(examples, 1, 0).reshape(count, -1)  # (text, step x layer x head)
    known = np.isfinite(flat)
    with np.errstate(invalid="ignore", divide="ignore"):
        means = (weights @ np.where(known, flat, 0.0)) / (weights @ known)
    shaped = means.reshape(resamples, examples.shape[0], *examples.shape[2:])
    return halfway(np.moveaxis(shaped, 1, 0)).astype(float)


def _aligned(texts: Sequence[xr.DataArray | None]) -> np.ndarray | None:
    """(step, text, layer, head) over the texts that all checkpoints have; None where a checkpoint has no values per text."""
    known = [one for one in texts if one is not None]
    if len(known) < len(texts):
        return None
    aligned = xr.align(*known, join="inner")
    stacked = np.stack([one.transpose(EXAMPLE, LAYER, HEAD).values.astype(float) for one in aligned])
    measured = np.isfinite(stacked).any(axis=(0, 2, 3))  # texts that this column is about
    return stacked[:, measured] if measured.sum() > 1 else None


def _step_interval(drawn: np.ndarray, steps: Sequence[int]) -> tuple[float, float]:
    if not np.isfinite(drawn).all():
        return float("nan"), float("nan")
    low, high = np.quantile(drawn, (0.025, 0.975), method="nearest").astype(int)
    return float(steps[low]), float(steps[high])


def _order(courses: Sequence[Course], halfway_of: dict[str, np.ndarray]) -> tuple[Order, ...]:
    """Of each pair of columns whose strongest heads emerged, which was first."""
    found = []
    for one, other in combinations([course for course in courses if course.heads and course.texts], 2):
        a, b = one.heads[0], other.heads[0]
        if (one.study, a.head) == (other.study, b.head) and one.name == other.name:
            continue
        first = halfway_of[one.name][:, a.layer, a.index]
        second = halfway_of[other.name][:, b.layer, b.index]
        share, reverse = float((first < second).mean()), float((second < first).mean())
        if share >= reverse:
            found.append(Order(one.name, other.name, a.head, b.head, share, reverse))
        else:
            found.append(Order(other.name, one.name, b.head, a.head, reverse, share))
    return tuple(found)


def _stacked(maps: Sequence[np.ndarray | None]) -> np.ndarray | None:
    known = [one for one in maps if one is not None]
    return np.stack(known) if len(known) == len(maps) else None


def _at(array: np.ndarray | None, layer: int, head: int) -> float:
    return float("nan") if array is None else float(array[layer, head])
