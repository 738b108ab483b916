"""Does a detector of wrong answers carry over to another question set? The main table of the detector papers, with intervals.

Shown: some questions of every set in `TransferOptions.sets`, which the model answers as in the study `answers` (questions
that do not fit into its context are left out). Observed: what the study `spectral` reads of a question with its answer. Both
happen shard by shard, so that a stopped run resumes.

Sets are files of questions, names of known sets, ``NAME=FOLDER`` for rows of a known set in local files, or ``packaged``
(`headwise.corpora.find_questions`). On a cluster the files must be visible to every worker.

The result is a matrix of AUROCs:

    auroc[detector, a, b]       fitted on all answers of set a, tested on all of set b
    auroc[detector, a, a]       cross-validated inside set a
    auroc[detector, others, b]  fitted on every set but b

Detectors are those of the study `spectral` (`detection.feature_sets`, k and layer fixed beforehand) and two that see nothing of
the model: the words of the question, and lengths. Where those carry over as well as the heads do, the heads may know
no more than what is asked. Scores that are not fitted (log-probability, length) have one value per tested set, in every row.

Intervals: DeLong's for the tested answers, and off the diagonal the jackknife over parts of the training answers as well; on
the diagonal those of cross-validation (`probes.generalisation.transfer`, `stats.auroc_by_fold`). A detector that learnt
nothing that holds elsewhere is at 0.5 only on average: one fitted on other answers lands a little above or below, and an
interval without that part would take it for a finding in about 15 % of cases (simulated on the page "Calibration").

Cost: that of answering and of one more pass per answer, then a few seconds of fitting per set and detector.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from headwise.core.dims import DETECTOR, EXAMPLE, OTHERS, TESTED_ON, TOPIC, TRAINED_ON
from headwise.core.errors import DataError, StudyError
from headwise.core.schema import with_interval
from headwise.corpora import Questions, find_questions
from headwise.engines import Shard
from headwise.model import Model
from headwise.probes.features import KS, as_table, choice_kind, choices, default_choice, select
from headwise.probes.generalisation import transfer
from headwise.probes.projection import project
from headwise.seam import Structure
from headwise.stats import auroc, wilson_interval
from headwise.stats.validation import as_named
from headwise.studies.answers import measure as answering
from headwise.studies.answers.spec import AnsweringOptions
from headwise.studies.inputs import MIN_ANSWERS_PER_CLASS, StudyInputs
from headwise.studies.question_controls import is_judged, question_controls
from headwise.studies.run import StudyRun, study_provenance
from headwise.studies.spectral import detection
from headwise.studies.spectral import measure as spectral
from headwise.studies.spectral.spec import SpectralOptions
from headwise.studies.transfer.spec import SPEC, TransferOptions

PACKAGED = "packaged"
_IN_SET = ": "  # between the name of a set and that of its question


def prepare(model: Model, inputs: StudyInputs, options: TransferOptions | None = None) -> StudyRun:
    """The transfer study of this model between the sets that the options name."""
    options = options or TransferOptions()
    sets = question_sets(options)
    every = Questions(
        ", ".join(sets),
        tuple(
            replace(item, id=f"{name}{_IN_SET}{item.id}", topic=name)
            for name, some in sets.items()
            for item in some.items
        ),
    )
    asking = answering.prepare(
        model,
        StudyInputs(questions_source=every),
        AnsweringOptions(too_long="drop", shard=options.shard, seed=options.seed),
    )
    structure = Structure(model)
    reading = SpectralOptions(k=options.k, batch_tokens=options.batch_tokens)
    data = {"name": every.name, "size": asking.examples, "digest": every.digest}
    prompts = {name: asking.provenance.parameters[name] for name in ("few_shot", "chat", "prompts")}
    provenance = study_provenance(SPEC, model, data, options, sets=list(sets), **prompts)

    def measure(shard: Shard) -> xr.Dataset:
        answers = asking.measure(shard)
        nonempty = answers.isel({EXAMPLE: np.flatnonzero(answers["answer_tokens"].values > 0)})
        if not nonempty.sizes[EXAMPLE]:
            return answers
        read = spectral.read(structure, nonempty, reading)  # NaN where there is no answer
        return answers.merge(read.reindex({EXAMPLE: answers[EXAMPLE].values}))

    def finish(shards: Sequence[xr.Dataset]) -> dict[str, xr.Dataset]:
        return {SPEC.name: finalize(asking.finalize(shards)["answers"], options)}

    return StudyRun(provenance, asking.examples, options.shard, measure, finish)


def question_sets(options: TransferOptions) -> dict[str, Questions]:
    """The questions of every set, by its name."""
    if len(options.sets) < 2:
        raise StudyError(
            f"transfer needs at least two question sets, and {len(options.sets)} were given; name them as in "
            "--set transfer.sets=triviaqa.jsonl,nq_open.jsonl"
        )
    found: dict[str, Questions] = {}
    for given in options.sets:
        questions = find_questions(None if given == PACKAGED else given)
        name = PACKAGED if given == PACKAGED else Path(questions.name).stem
        if name in found or name == OTHERS:
            raise DataError(f"two question sets of transfer would be called {name!r}, or one {OTHERS!r}; rename a file")
        found[name] = questions.sample(options.limit, seed=options.seed)
    return found


HEADS, QUESTION, SCORE = "heads", "question", "score"  # what a detector sees
ENDS = ("auroc", "low", "high")


def finalize(answers: xr.Dataset, options: TransferOptions) -> xr.Dataset:
    """The Dataset. ``answers``: rows of the study `answers`, merged with the readings of `spectral`; the topic is the set."""
    sets = answers["topic"].values.astype(str)
    names = list(dict.fromkeys(sets.tolist()))
    judged = answers.isel({EXAMPLE: is_judged(answers)})
    set_of, wrong = judged["topic"].values.astype(str), judged["label"].values == "wrong"
    _refuse_few(names, set_of, wrong)
    features = {name: (HEADS, as_named(array)) for name, array in detection.feature_sets(judged).items()}
    alone = question_controls(judged.drop_vars(["topic", "difficulty"], errors="ignore"), options.seed).features
    features |= {name: (QUESTION, as_named(table, (EXAMPLE, "feature"))) for name, table in alone.items()}
    matrices = {name: _matrix(array, name, wrong, set_of, options) for name, (_, array) in features.items()}
    scores = {
        name: _repeated(score, wrong, set_of, names) for name, score in detection.baselines(judged, judged).items()
    }
    kinds = [kind for kind, _ in features.values()] + [SCORE] * len(scores)
    whole = xr.concat([*matrices.values(), *scores.values()], dim=DETECTOR)
    whole = whole.sel({TRAINED_ON: [*names, OTHERS], TESTED_ON: names}).assign_coords(
        {DETECTOR: np.array([*matrices, *scores], dtype=object), "kind": (DETECTOR, np.array(kinds, dtype=object))}
    )
    found: dict[str, Any] = {
        f"auroc{'' if end == 'auroc' else f'_{end}'}": (
            (DETECTOR, TRAINED_ON, TESTED_ON),
            whole[end].values.astype(np.float32),
        )
        for end in ENDS
    }
    found |= _accuracy(answers, sets, names)
    texts = {"set_of": sets, **{name: answers[name].values for name in ("question", "answer", "gold", "label")}}
    found |= {name: (EXAMPLE, values.astype(object)) for name, values in texts.items()}
    coords = {name: whole[name].variable for name in (DETECTOR, "kind", TRAINED_ON, TESTED_ON)}
    counts = {
        key: np.array([((set_of == name) & (wrong == truth)).sum() for name in names], dtype=np.int64)
        for key, truth in (("n_wrong", True), ("n_right", False))
    }
    return xr.Dataset(
        found,
        coords=coords
        | {EXAMPLE: answers[EXAMPLE].values.astype(object)}
        | {key: (TESTED_ON, values) for key, values in counts.items()},
        attrs={
            "title": "Detectors of wrong answers on other question sets",
            "record": json.dumps([]),
            "k": options.k,
            "refits": options.refits,
        },
    )


def _refuse_few(names: list[str], set_of: NDArray[np.str_], wrong: NDArray[np.bool_]) -> None:
    counts = {name: (int(wrong[set_of == name].sum()), int((~wrong[set_of == name]).sum())) for name in names}
    usable = [name for name, both in counts.items() if min(both) >= MIN_ANSWERS_PER_CLASS]
    if len(usable) < 2:
        listed = "; ".join(f"{name}: {bad} wrong, {good} correct" for name, (bad, good) in counts.items())
        raise DataError(
            f"transfer needs two question sets with at least {MIN_ANSWERS_PER_CLASS} wrong and as many correct answers, and "
            f"{len(usable)} has them ({listed}); give more questions (--set transfer.limit=...), or other sets"
        )


def _matrix(
    array: xr.DataArray, name: str, wrong: NDArray[np.bool_], set_of: NDArray[np.str_], options: TransferOptions
) -> xr.Dataset:
    """``auroc``, ``low``, ``high`` over (trained_on, tested_on) of one feature set, at the choice fixed beforehand."""
    kind = choice_kind(array)
    chosen = select(array, kind, default_choice(kind, choices(array, name, (*KS, options.k))))
    points = project(as_table(chosen, name)).points
    found = transfer(
        points, wrong, set_of, seed=options.seed, min_per_class=MIN_ANSWERS_PER_CLASS, refits=options.refits
    )
    return found[list(ENDS)].rename({TOPIC: TESTED_ON})


def _repeated(score: NDArray[Any], wrong: NDArray[np.bool_], set_of: NDArray[np.str_], names: list[str]) -> xr.Dataset:
    """The same of a score that is not fitted: one value per tested set, whatever the detectors were fitted on."""
    found = np.full((3, len(names)), np.nan)
    for column, name in enumerate(names):
        own = set_of == name
        if min(wrong[own].sum(), (~wrong[own]).sum()) >= MIN_ANSWERS_PER_CLASS:
            area = auroc(score[own], wrong[own])
            found[:, column] = area.value, area.low, area.high
    rows = np.repeat(found[:, None], len(names) + 1, axis=1)
    return xr.Dataset(
        {end: ((TRAINED_ON, TESTED_ON), rows[index]) for index, end in enumerate(ENDS)},
        coords={TRAINED_ON: [*names, OTHERS], TESTED_ON: names},
    )


def _accuracy(answers: xr.Dataset, sets: NDArray[np.str_], names: list[str]) -> dict[str, Any]:
    right = answers["label"].values == "correct"
    share = np.array([right[sets == name].mean() for name in names])
    low, high = wilson_interval(share, np.array([(sets == name).sum() for name in names]))
    return with_interval("accuracy", *(part.astype(np.float32) for part in (share, low, high)), dims=TESTED_ON)
