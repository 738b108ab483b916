"""Which detector is best, and by how much? Every feature set, every baseline, the same folds, one table.

Rows (dim ``detector``), in the order given: question-only feature sets, supervised feature sets, combinations of them,
unsupervised scores. Scores are given such that larger means "more likely wrong" (the negative of AttnScore, of a
log-probability); their direction is not learnt, so an AUROC below 0.5 is possible and means the opposite direction. Always
include the answer's length.

| kind | the row uses |
|---|---|
| question | nothing of the model: the topic, the difficulty, the words of the question; or a combination of such rows |
| supervised | a feature set of the model |
| combined | several of these, stacked |
| with question | question-only rows and rows of the model, stacked: does the model add anything to the question? |
| probe | a feature set of the model, fitted to something else than the labels |
| score | an unsupervised score |

| variables (each with _low, _high: the 95 % interval) | dims | |
|---|---|---|
| auroc | detector | mean over folds, k or layer chosen inside the training folds |
| auroc_within | detector | over pairs of answers of the same stratum, by detectors that saw no answer of it |
| gain | detector | auroc minus that of the reference, paired |
| by_k | detector, rank | each k fixed beforehand |
| by_layer | detector, layer | one layer alone, at the largest k |
| by_size | detector, size | fitted on fewer answers |
| transfer | detector, trained_on, topic | fitted on one topic, or on all others |
| paper | detector | the published protocol: optimistic, see ``crossvalidation.paper_protocol`` |

The reference is ``options.reference``, else the question-only row with the highest AUROC: a gain counts only what the
question does not tell. Being the largest of several, it is slightly too high, which is on the side of caution.
``gain_detectable`` is the difference that the comparison would find with 80 % power (``stats.power``).

And without intervals: gain_p, gain_detectable, pooled, precision, recall, brier (detector); fold_auroc, chosen (detector,
fold); score, probability (detector, example), all out of fold. Unsupervised scores are averaged over the same folds, so that
rows can be compared with each other; ``pooled`` is their plain AUROC. NaN is "does not apply".

Cost, rows as in the study `detection` with all details (two of 27,000 columns, a hidden state of 30 layers): about n
(``benchmarks/conclusions.py``). Layers and k are fitted in parallel, one per core; large products run on a GPU where torch sees
one.
Progress is reported through `core.progress`; ``fits`` and ``unconverged`` in the attributes count the regressions.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from headwise.core.dims import DETECTOR
from headwise.core.errors import DataError, did_you_mean
from headwise.core.progress import StepCount
from headwise.core.schema import with_interval
from headwise.probes import table_rows
from headwise.probes.crossvalidation import assign_folds
from headwise.probes.features import KS, as_feature_sets, choice_kind
from headwise.probes.generalisation import as_topics
from headwise.probes.linear import COMPONENTS
from headwise.stats import Auroc, AurocDifference, auroc_by_fold, delong_test
from headwise.stats.intervals import HALF_WIDTH
from headwise.stats.power import minimum_detectable_gain
from headwise.stats.validation import MIN_PER_CLASS, Labels, as_flags, as_groups, as_labels


@dataclass(frozen=True)
class TableOptions:
    """What can be chosen about a table of detectors.

    Examples:
        >>> TableOptions(folds=3, details=()).ks
        (5, 10, 25, 50, 100)
    """

    folds: int = 5  # of the cross-validation
    inner: int = 3  # folds inside the training folds, for choices, stacking and calibration
    seed: int = 0  # of the folds
    ks: Sequence[int] = KS  # numbers of eigenvalues to try
    components: int | None = COMPONENTS  # of the PCA; None: no such PCA
    sizes: Sequence[int] = (50, 100, 200, 400, 800, 1600)  # those that the training folds have
    details: Sequence[str] | None = None  # feature sets with layers, sizes and transfer; None: all
    reference: str | None = None  # the row that gains are measured from; None: the strongest question-only row
    min_per_class: int = MIN_PER_CLASS  # answers of each class
    min_per_topic: int = 10  # answers of each class for a topic to be fitted on or tested on


def detector_table(
    feature_sets: Mapping[str, Any],
    labels: ArrayLike,
    baselines: Mapping[str, Any] | None = None,
    *,
    combine: Mapping[str, Sequence[str]] | None = None,
    questions: Mapping[str, Any] | None = None,
    topics: ArrayLike | None = None,
    strata: ArrayLike | None = None,
    groups: ArrayLike | None = None,
    targets: Mapping[str, ArrayLike] | None = None,
    unlabelled: Collection[str] = (),
    options: TableOptions | None = None,
) -> xr.Dataset:
    """How well do sets of features separate wrong answers from right ones, each by a cross-validated detector?

    Args:
        feature_sets: by name, (example, ...).
        labels: (example,), True for wrong answers.
        baselines: plain scores by name, (example,), that need no fitting, such as the length of the answer.
        combine: combinations by name, and their members, which are feature sets, question-only sets or baselines.
        questions: feature sets by name, (example, ...), that hold nothing of the model (see `question_controls`).
        topics: (example,), for transfer between topics.
        strata: (example,), of questions that are alike, for the AUROC within strata.
        groups: (example,), examples that belong together and stay in one fold.
        targets: by the name of a feature set, the flags (example,) that it is fitted to in place of the labels.
        unlabelled: baselines that learnt from the other folds (`assign_folds`), without a label.
        options: the rest.

    Returns:
        One row per detector: AUROC with its interval, calibration, scores of every answer.

    Examples:
        >>> import numpy as np
        >>> generator = np.random.default_rng(0)
        >>> wrong = np.arange(80) % 2 == 0
        >>> heads = generator.normal(size=(80, 2, 3))
        >>> heads[wrong, 1, 2] += 2.0  # one head is informative
        >>> noise = generator.normal(size=80)
        >>> table = detector_table({"heads": heads}, wrong, {"noise": noise}, options=TableOptions(details=()))
        >>> {str(name): round(float(table.auroc.sel(detector=name)), 2) for name in table.detector.values}
        {'heads': 0.93, 'noise': 0.57}
    """
    options = options or TableOptions()
    baselines, combine = baselines or {}, combine or {}
    wrong = as_labels(labels, min_per_class=options.min_per_class)
    arrays = as_feature_sets({**(questions or {}), **feature_sets}, len(wrong))
    aims = {name: as_flags(flags, rows=len(wrong)) for name, flags in (targets or {}).items()}
    kinds = dict.fromkeys(questions or {}, "question")
    kinds |= {name: "probe" if name in aims else "supervised" for name in feature_sets}
    kinds |= {
        name: _combined_kind([kinds.get(member, "score") for member in members]) for name, members in combine.items()
    }
    kinds |= {name: "probe" if name in unlabelled else "score" for name in baselines}
    _check_names([*(questions or {}), *feature_sets, *combine, *baselines], arrays, baselines, combine, options)
    clusters = as_groups(groups, len(wrong))
    fold_of = assign_folds(wrong, folds=options.folds, seed=options.seed, groups=clusters)
    topic_of = None if topics is None else as_topics(topics, len(wrong))
    numbers = {name: table_rows.as_score(scores, name, len(wrong)) for name, scores in baselines.items()}
    detailed = {
        name: kinds[name] == "supervised" and (options.details is None or name in options.details) for name in arrays
    }
    every = [table_rows.steps(array, name, options.ks, detailed[name]) for name, array in arrays.items()]
    done = StepCount("detectors", sum(every))
    alike = as_groups(strata, len(wrong))
    context = table_rows.FoldContext(
        wrong, fold_of, options.inner, options.seed, clusters, options.components,
        alike, _whole_strata(wrong, alike, options), done,
    )  # fmt: skip

    supervised, parts, notes = {}, [], []
    for name, array in arrays.items():
        entry = table_rows.supervised(array, name, context, ks=options.ks, target=aims.get(name))
        supervised[name] = entry
        notes += entry.notes
        parts.append(entry.row)
        if detailed[name]:
            parts.append(
                table_rows.details(array, name, entry, context, options.sizes, topic_of, options.min_per_topic)
            )
    parts += [table_rows.combined(name, members, supervised, numbers, context) for name, members in combine.items()]
    parts += [
        table_rows.unsupervised(name, scores, context, learnt=name in unlabelled) for name, scores in numbers.items()
    ]
    table = table_rows.joined(parts, context).assign_coords(
        kind=(DETECTOR, list(kinds.values())),
        choice=(DETECTOR, [choice_kind(arrays[name]) if name in arrays else "" for name in kinds]),
    )
    reference = options.reference or _strongest(table, "question")
    if reference is not None:
        gains = [compare_rows(table, name, reference, groups=clusters) for name in kinds]
        table = table.assign(
            **with_interval(
                "gain", *zip(*((gain.value, gain.low, gain.high) for gain in gains), strict=True), dims=DETECTOR
            ),
            gain_p=(DETECTOR, [gain.p for gain in gains]),
            gain_detectable=(DETECTOR, [_detectable(gain) for gain in gains]),
        )
    return table.assign_attrs(
        n_wrong=int(wrong.sum()), n_right=int((~wrong).sum()), folds=options.folds, inner=options.inner,
        seed=options.seed, reference=reference or "", notes=json.dumps(notes),
        fits=sum(each.evaluated.fits for each in supervised.values()),
        unconverged=sum(each.evaluated.unconverged for each in supervised.values()),
        interval="95 %, DeLong within folds, logit scale, inflated for shared training rows (Nadeau and Bengio)",
    )  # fmt: skip


def _whole_strata(wrong: Labels, strata: NDArray[np.int64] | None, options: TableOptions) -> NDArray[np.int64] | None:
    """Folds that divide no stratum; None where there are too few strata for them."""
    if strata is None:
        return None
    try:
        return assign_folds(wrong, folds=options.folds, seed=options.seed, groups=strata)
    except DataError:
        return None


def _combined_kind(members: Sequence[str]) -> str:
    """The kind of a combination of rows of these kinds."""
    if all(kind == "question" for kind in members):
        return "question"
    return "with question" if "question" in members else "combined"


def _strongest(table: xr.Dataset, kind: str) -> str | None:
    """The row of a kind with the highest AUROC."""
    rows = table.isel({DETECTOR: table["kind"].values == kind})
    return str(rows[DETECTOR].values[int(np.argmax(rows["auroc"].values))]) if rows.sizes[DETECTOR] else None


def _detectable(gain: AurocDifference) -> float:
    """The smallest gain that this comparison would find with 80 % power; NaN for a row against itself."""
    error = (gain.high - gain.low) / (2 * HALF_WIDTH)
    return minimum_detectable_gain(error) if error > 0 else math.nan


def compare_rows(table: xr.Dataset, first: str, second: str, *, groups: ArrayLike | None = None) -> AurocDifference:
    """One row's AUROC minus another's, paired over the same answers and folds.

    Args:
        table: what `detector_table` gave.
        first: a row.
        second: another.
        groups: (example,), examples that belong together.

    Returns:
        The difference, its interval and its p.

    Examples:
        >>> import numpy as np
        >>> generator = np.random.default_rng(0)
        >>> wrong = np.arange(80) % 2 == 0
        >>> heads = generator.normal(size=(80, 2, 3))
        >>> heads[wrong, 1, 2] += 2.0  # one head is informative
        >>> noise = generator.normal(size=80)
        >>> table = detector_table({"heads": heads}, wrong, {"noise": noise}, options=TableOptions(details=()))
        >>> found = compare_rows(table, "heads", "noise")
        >>> found.value > 0, found.p < 0.05
        (True, True)
    """
    wrong, fold_of = table["wrong"].values, table["fold_of"].values
    clusters = as_groups(groups, len(wrong))

    def area(name: str) -> Auroc:
        if name not in table[DETECTOR].values:
            raise DataError(
                f"There is no detector {name!r} in the table. {did_you_mean(name, map(str, table[DETECTOR].values))}"
            )
        row = table.sel({DETECTOR: name})
        learnt = row["kind"].item() != "score"
        return auroc_by_fold(row["score"].values, wrong, fold_of, learnt=learnt, groups=clusters)[0]

    return delong_test(area(first), area(second), groups=clusters)


def _check_names(
    names: Sequence[str],
    arrays: Mapping[str, xr.DataArray],
    baselines: Mapping[str, Any],
    combine: Mapping[str, Sequence[str]],
    options: TableOptions,
) -> None:
    if not names:
        raise DataError("There is nothing to put into the table; give feature sets or baselines.")
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise DataError(f"Two rows of the table would be called {twice[0]!r}; give each its own name.")
    members = [(member, {*arrays, *baselines}) for chosen in combine.values() for member in chosen]
    detailed = [(name, set(arrays)) for name in options.details or ()]
    reference = [(options.reference, set(names))] if options.reference is not None else []
    for name, known in [*members, *detailed, *reference]:
        if name not in known:
            raise DataError(f"There is no row {name!r} to use. {did_you_mean(name, known)}")
