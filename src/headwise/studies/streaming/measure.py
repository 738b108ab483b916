"""How early in an answer can one tell that it is wrong? Scores that exist while the answer is written, on the same answers.

Shown: every question with the model's answer (study `answers`), prompt and answer in one teacher-forced pass, shared with
`spectral` and `probing`. Observed: the rows that emit the answer (`instruments.AnswerRows`) and the tokens' log-probabilities:
what a decode step of `generate` has at hand, so that a score that is fitted here can be watched there (`headwise.watching`).

| row                      | kind     | the score of a beginning of an answer                                              |
|--------------------------|----------|------------------------------------------------------------------------------------|
| Heads + log-probability  | fitted   | a `Detector` on the means of five statistics of every head, and the next two rows  |
| Heads                    | fitted   | what the heads add to that score                                                   |
| Log-probability, min     | score    | minus the smallest log-probability of a token                                      |
| Log-probability, mean    | score    | minus the mean                                                                     |
| RAUQ                     | score    | `probes.running_scores.Rauq`                                                       |
| Length                   | score    | tokens of the whole answer, a confounder: not known before the end                 |
| Question: ...            | question | the best of the rows that see nothing of the model, the same at every share        |

AUROCs are out of fold: in every fold one detector is fitted on beginnings of the other answers, of all shares, and scores the
beginnings of the fold's own. AUROCs within strata come from folds that divide no stratum. The answers of a fold have one
detector, so its scores can be compared.

The probability of a beginning is that of the same text as a whole answer. The detector that is stored is fitted on two answers
in three. The third is held out: nothing is fitted on it and no choice is made with it. For every score it gives the reliability
of the probabilities and the scores from which thresholds are taken: `highest`, the largest score of an answer while it was
written, after 1, 2, 4, ... tokens and at its end, which is when an alarm is checked (`stats.conformal`).

`default` is the score that `headwise.watching` uses by default: the fitted one where its gain over the smallest
log-probability, paired and out of fold, has an interval above 0; else the smallest log-probability. This gain (`choice_gain`)
is cross-validated among the answers that are not held out, so that the threshold of the chosen score is valid.

Cost: one QK^T product for the rows of the answer per layer; 3 x folds + 1 detectors.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray as xr
from numpy.typing import NDArray

from headwise.core.dims import DETECTOR, EXAMPLE, HEAD, LAYER, PREFIX, SHARE, STATISTIC
from headwise.core.errors import DataError
from headwise.core.progress import StepCount
from headwise.core.provenance import Provenance, public_name
from headwise.core.schema import INTERVAL_ENDS
from headwise.corpora import Example
from headwise.engines import Shard
from headwise.instruments.answer_rows import ROW_STATISTICS, AnswerRows, tokens_of_shares
from headwise.instruments.readings import HostCopy
from headwise.model import Model
from headwise.probes.crossvalidation import assign_folds
from headwise.probes.detector import Detector
from headwise.probes.running_scores import (
    LOGPROB_MEAN,
    LOGPROB_MIN,
    ROWS,
    SELF_LOG,
    UNFITTED,
    prefix_scores,
)
from headwise.probes.stacking import fit_platt
from headwise.probes.table import TableOptions, detector_table
from headwise.seam import Structure
from headwise.stats import auroc_by_fold, auroc_within, delong_test, mann_whitney_maps, van_elteren_maps
from headwise.stats.reliability import reliability
from headwise.studies.inputs import StudyInputs
from headwise.studies.passes import Logits, Observed, TextLogprobs, choose_sizes, read_together, token_logprobs
from headwise.studies.question_controls import QuestionControls, question_controls
from headwise.studies.run import StudyRun, study_provenance
from headwise.studies.spectral.measure import judged_answers
from headwise.studies.streaming.spec import SHARES, SPEC, STATISTIC_LABELS, StreamingOptions

Floats = NDArray[np.float64]

FITTED, HEADS, LENGTH = "Heads + log-probability", "Heads", "Length"
DETECTOR_FILE = "streaming_detector"  # files .json and .safetensors in the atlas
SCORES = {LOGPROB_MIN: "logprob_min", LOGPROB_MEAN: "logprob_mean", "RAUQ": "rauq"}  # score -> variable of a reading
HEAD_PREFIXES = {
    "after the first token": 0,
    "whole answer": len(SHARES) - 1,
}  # which beginnings single heads are tested on


def prepare(model: Model, inputs: StudyInputs, options: StreamingOptions | None = None) -> StudyRun:
    """The study of this model on its answers (the Dataset of the study `answers`)."""
    options = options or StreamingOptions()
    answers = inputs.maps["answers"]
    judged = judged_answers(answers)
    origin = Provenance.from_attrs(answers.attrs)
    data = {"name": origin.data.get("name"), "size": judged.sizes[EXAMPLE], "digest": origin.key()}
    structure = Structure(model)
    longest = int(judged["answer_tokens"].max())
    read_bytes = (
        4.0 * model.card.layers * model.card.heads * len(ROW_STATISTICS) * (len(SHARES) + len(checkpoints(longest)))
    )
    sizes = choose_sizes(options, structure, tokens=4096, shard=64, example_bytes=read_bytes, logits=True)
    provenance = study_provenance(SPEC, model, data, options, **sizes.parameters)
    reader = StreamingReader(structure, judged, sizes.tokens_that_fit)

    def measure(shard: Shard) -> xr.Dataset:
        ids = [text.id for text in reader.texts[shard.start : shard.stop]]
        return read_together({SPEC.name: reader}, ids)[SPEC.name]

    def write_artifacts(atlas: Path, datasets: Mapping[str, xr.Dataset], shards: Sequence[xr.Dataset]) -> None:
        about = {"model": public_name(model.id), "digest": provenance.model["digest"], "row": FITTED}
        readings = xr.concat(shards, dim=EXAMPLE, data_vars="all")
        wrong = judged["label"].values == "wrong"
        fit_detector(readings, wrong, ~held_out(wrong, options), options, about).save(atlas / DETECTOR_FILE)

    return StudyRun(
        provenance, judged.sizes[EXAMPLE], sizes.shard, measure,
        lambda shards: {SPEC.name: finalize(xr.concat(shards, dim=EXAMPLE, data_vars="all"), judged, options)},
        write_artifacts, reader=reader,
    )  # fmt: skip


# ---- readings -------------------------------------------------------------------------------------------------------


def checkpoints(longest: int) -> tuple[int, ...]:
    """After how many tokens an alarm is checked, besides the end of the answer.

    >>> checkpoints(20)
    (1, 2, 4, 8, 16)
    """
    return tuple(2**power for power in range(longest.bit_length()))


class StreamingReader:
    """Reads the rows that emit answers, after shares of each answer and at its checkpoints."""

    def __init__(self, structure: Structure, answers: xr.Dataset, batch_tokens: int) -> None:
        self.structure, self.batch_tokens = structure, batch_tokens
        self._prompts, self._answers = (
            [tuple(int(token) for token in text.split()) for text in answers[name].values.astype(str)]
            for name in ("prompt_ids", "answer_ids")
        )
        names = answers[EXAMPLE].values.astype(str)
        self.texts: Sequence[Example] = [
            Example(name, "answer", prompt + answer)
            for name, prompt, answer in zip(names, self._prompts, self._answers, strict=True)
        ]
        self.suffixes: Sequence[tuple[int, ...]] = [()] * len(self.texts)
        lengths = torch.tensor([len(answer) for answer in self._answers])
        ends = torch.tensor(checkpoints(int(lengths.max())))
        self._counts = torch.cat([tokens_of_shares(lengths, SHARES), ends.minimum(lengths[:, None])], dim=1)

    def first_logit(self, rows: Sequence[int]) -> int | None:
        """The last token of the shortest prompt."""
        return min(len(self._prompts[row]) for row in rows) - 1

    def observe(self, rows: Sequence[int | None]) -> Observed:
        """Statistics of the rows, and the log-probabilities of the tokens."""
        own = {line: row for line, row in enumerate(rows) if row is not None}
        prompts = torch.tensor([1 if row is None else len(self._prompts[row]) for row in rows])
        lengths = torch.tensor([1 if row is None else len(self._answers[row]) for row in rows])
        counts = torch.stack([torch.ones_like(self._counts[0]) if row is None else self._counts[row] for row in rows])
        instrument = AnswerRows(prompts, lengths, counts=counts)

        def collect(logits: Logits | None) -> Callable[[], xr.Dataset]:
            assert logits is not None
            copy = HostCopy()
            scored = {line: TextLogprobs(len(self._prompts[row]), self._answers[row]) for line, row in own.items()}
            found = copy.start(token_logprobs(logits, scored))

            def read() -> xr.Dataset:
                copy.wait()
                logprobs = np.zeros((len(rows), int(lengths.max())))
                for line, part in zip(
                    own, np.split(found().numpy(), np.cumsum(lengths[list(own)].numpy())[:-1]), strict=True
                ):
                    logprobs[line, : len(part)] = part
                return with_scores(instrument.result(), logprobs, counts.numpy())

            return read

        return Observed((instrument,), collect)


def with_scores(rows: xr.Dataset, logprobs: Floats, counts: NDArray[np.int64]) -> xr.Dataset:
    """The readings of `AnswerRows` with the scores of the same beginnings, in place of ``row_self``.

    Args:
        rows: the readings.
        logprobs: (example, token), anything after an answer's last.
        counts: (example, prefix), tokens of each beginning.
    """
    own = {SELF_LOG: np.log(np.maximum(rows["row_self"].values, 1e-30).astype(np.float64))}
    found = {
        variable: np.take_along_axis(prefix_scores(UNFITTED[name](), logprobs, own), counts - 1, axis=1)
        for name, variable in SCORES.items()
    }
    return rows.drop_vars("row_self").assign({name: ((EXAMPLE, PREFIX), values) for name, values in found.items()})


def read(structure: Structure, answers: xr.Dataset) -> xr.Dataset:
    """The readings of some answers (rows of the study `answers`), in the order given."""
    sizes = choose_sizes(StreamingOptions(), structure, tokens=4096, shard=64, example_bytes=1, logits=True)
    reader = StreamingReader(structure, answers, sizes.tokens_that_fit)
    return read_together({SPEC.name: reader}, [text.id for text in reader.texts])[SPEC.name]


# ---- the fitted score -----------------------------------------------------------------------------------------------


def feature_sets(readings: xr.Dataset, prefixes: Any) -> dict[str, xr.DataArray]:
    """What the detector is fitted on, of some beginnings of every answer: (example, ...), an answer's beginnings together."""
    some = readings.isel({PREFIX: prefixes})
    rows = some[list(ROW_STATISTICS)].to_dataarray(STATISTIC).fillna(0.0)  # NaN: a layer without heads
    stacked = {ROWS: rows.transpose(EXAMPLE, PREFIX, STATISTIC, LAYER, HEAD)}
    stacked |= {name: some[SCORES[name]].transpose(EXAMPLE, PREFIX) for name in (LOGPROB_MIN, LOGPROB_MEAN)}
    return {
        name: xr.DataArray(
            array.values.reshape(-1, *array.shape[2:]), dims=(EXAMPLE, *array.dims[2:])
        ) for name, array in stacked.items()
    }  # fmt: skip


def fit_detector(
    readings: xr.Dataset, wrong: NDArray[np.bool_], chosen: NDArray[np.bool_], options: StreamingOptions,
    about: Mapping[str, Any] | None = None,
) -> Detector:  # fmt: skip
    """The detector fitted on beginnings of the ``chosen`` answers, of all shares of them."""
    shares = np.arange(len(SHARES))
    given = feature_sets(readings.isel({EXAMPLE: np.flatnonzero(chosen)}), shares)
    labels, groups = (np.repeat(each, len(shares)) for each in (wrong[chosen], np.arange(chosen.sum())))
    whole = np.tile(shares == shares[-1], int(chosen.sum()))  # the probability is that of a whole answer
    detector = Detector(folds=options.folds, seed=options.seed)
    return detector.fit(given, labels, groups=groups, calibrate_on=whole, about=about)


def fitted_scores(detector: Detector, readings: xr.Dataset) -> dict[str, Floats]:
    """(example, prefix) log-odds of all beginnings: of the detector, and what the heads add to them."""
    shape = readings.sizes[EXAMPLE], readings.sizes[PREFIX]
    explained = detector.explain(feature_sets(readings, slice(None)))
    heads = explained["per_block"].sel(feature=ROWS).values
    return {FITTED: explained["logit"].values.reshape(shape), HEADS: heads.reshape(shape)}


def held_out(wrong: NDArray[np.bool_], options: StreamingOptions) -> NDArray[np.bool_]:
    """(example,): the answers that the stored detector does not see, with about the same share of wrong ones."""
    return assign_folds(wrong, folds=options.calibration, seed=options.seed + 1) == 0


# ---- conclusions ----------------------------------------------------------------------------------------------------


def finalize(readings: xr.Dataset, answers: xr.Dataset, options: StreamingOptions) -> xr.Dataset:
    """The Dataset, from the readings of all shards and the answers that were read."""
    wrong = answers["label"].values == "wrong"
    controls = question_controls(answers, options.seed)
    done = StepCount("scores of beginnings", 3 * options.folds + 1)
    fold_of = assign_folds(wrong, folds=options.folds, seed=options.seed)
    plain = _out_of_fold(readings, wrong, fold_of, options, done)
    try:
        whole = assign_folds(wrong, folds=options.folds, seed=options.seed, groups=controls.strata)
        apart = _out_of_fold(readings, wrong, whole, options, done)
    except DataError:  # too few strata
        apart = None
    names, reference = [FITTED, HEADS, *SCORES, LENGTH], _question_row(wrong, controls, options)
    lengths = answers["answer_tokens"].values.astype(np.float64)
    fixed = {name: readings[variable].values for name, variable in SCORES.items()}
    fixed[LENGTH] = np.repeat(lengths[:, None], readings.sizes[PREFIX], axis=1)
    label, question = reference
    scores = {name: (plain | fixed)[name][:, : len(SHARES)] for name in names}
    scores[label] = np.repeat(question[:, None], len(SHARES), axis=1)
    kinds = ["fitted"] * 2 + ["score"] * (len(names) - 2) + ["question"]
    table = _curves(scores, dict(zip(scores, kinds, strict=True)), wrong, fold_of, apart, fixed, controls)
    out = held_out(wrong, options)
    table |= _calibrated(readings, wrong, out, fixed, list(scores), options)
    done()
    choice = _choice(readings.isel({EXAMPLE: np.flatnonzero(~out)}), wrong[~out], options, done)
    return xr.Dataset(
        {
            **table,
            **choice,
            **_head_tests(readings, wrong, controls),
            "score": ((DETECTOR, SHARE, EXAMPLE), np.stack([score.T for score in scores.values()])),
            "held_out": (EXAMPLE, out),
            "answer_tokens": (EXAMPLE, answers["answer_tokens"].values),
        },
        coords={
            DETECTOR: np.array(list(scores), dtype=object),
            "kind": (DETECTOR, np.array(kinds, dtype=object)),
            SHARE: np.array(SHARES),
            PREFIX: np.array(list(HEAD_PREFIXES), dtype=object),
            STATISTIC: np.array(ROW_STATISTICS, dtype=object),
            "label": (STATISTIC, np.array([STATISTIC_LABELS[name] for name in ROW_STATISTICS], dtype=object)),
            LAYER: readings[LAYER].values,
            HEAD: readings[HEAD].values,
            EXAMPLE: answers[EXAMPLE].values.astype(object),
            "wrong": (EXAMPLE, wrong),
            "fold_of": (EXAMPLE, fold_of),
        },
        attrs={
            "title": "How early one can tell that an answer is wrong",
            "record": json.dumps(["effect", "q", "effect_within", "q_within"]),
            "default": FITTED if choice["choice_gain_low"] > 0 else LOGPROB_MIN,
            "strata": controls.description,
            "n_wrong": int(wrong.sum()),
            "n_right": int((~wrong).sum()),
        },
    )


def _out_of_fold(
    readings: xr.Dataset, wrong: NDArray[np.bool_], fold_of: NDArray[np.int64], options: StreamingOptions,
    done: Callable[[], Any],
) -> dict[str, Floats]:  # fmt: skip
    """The fitted scores (example, prefix) of all beginnings, by detectors that did not see the answer."""
    found = {name: np.empty((readings.sizes[EXAMPLE], readings.sizes[PREFIX])) for name in (FITTED, HEADS)}
    for fold in np.unique(fold_of):
        test = fold_of == fold
        detector = fit_detector(readings, wrong, ~test, options)
        for name, scores in fitted_scores(detector, readings.isel({EXAMPLE: np.flatnonzero(test)})).items():
            found[name][test] = scores
        done()
    return found


def _choice(
    readings: xr.Dataset, wrong: NDArray[np.bool_], options: StreamingOptions, done: Callable[[], Any]
) -> dict[str, float]:
    """The gain of the fitted score over the smallest log-probability, on whole answers none of which is held out."""
    fold_of = assign_folds(wrong, folds=options.folds, seed=options.seed)
    fitted = _out_of_fold(readings, wrong, fold_of, options, done)[FITTED][:, len(SHARES) - 1]
    plain = readings[SCORES[LOGPROB_MIN]].values[:, len(SHARES) - 1]
    areas = (auroc_by_fold(score, wrong, fold_of, learnt=score is fitted)[0] for score in (fitted, plain))
    gain = delong_test(*areas)
    return {"choice_gain": float(gain.value), "choice_gain_low": float(gain.low), "choice_gain_high": float(gain.high)}


def _question_row(
    wrong: NDArray[np.bool_], controls: QuestionControls, options: StreamingOptions
) -> tuple[str, Floats]:
    """The name and the out-of-fold scores of the best row that sees nothing of the model."""
    names = tuple(controls.features)
    table = detector_table(
        {}, wrong, combine={"Question: all": names} if len(names) > 1 else None, questions=controls.features,
        options=TableOptions(folds=options.folds, seed=options.seed, details=()),
    )  # fmt: skip
    best = str(table[DETECTOR].values[int(np.argmax(table["auroc"].values))])
    return best, table["score"].sel({DETECTOR: best}).values


def _curves(
    scores: Mapping[str, Floats], kinds: Mapping[str, str], wrong: NDArray[np.bool_], fold_of: NDArray[np.int64],
    apart: Mapping[str, Floats] | None, fixed: Mapping[str, Floats], controls: QuestionControls,
) -> dict[str, Any]:  # fmt: skip
    """AUROCs and gains of every score at every share."""
    areas = {
        (name, share): auroc_by_fold(score[:, share], wrong, fold_of, learnt=kinds[name] != "score")[0]
        for name, score in scores.items()
        for share in range(len(SHARES))
    }
    question = next(name for name in scores if kinds[name] == "question")
    found: dict[str, Floats] = {}

    def put(name: str, row: int, share: int, values: Mapping[str, Any]) -> None:
        for end, value in values.items():
            table = found.setdefault(f"{name}{end}", np.full((len(scores), len(SHARES)), np.nan))
            table[row, share] = float(value)

    for row, name in enumerate(scores):
        for share in range(len(SHARES)):
            area = areas[name, share]
            put("auroc", row, share, {"": area.value, "_low": area.low, "_high": area.high})
            alike = (fixed if kinds[name] == "score" else apart or {}).get(name)
            values: tuple[Any, ...] = (np.nan,) * 3
            if alike is not None:
                values = auroc_within(alike[:, share], wrong, controls.strata, inflation=area.inflation)[:3]
            put("auroc_within", row, share, dict(zip(INTERVAL_ENDS, values, strict=True)))
            for gain, other in (("gain", LOGPROB_MIN), ("gain_question", question)):
                difference = delong_test(area, areas[other, share])
                ends = {"": difference.value, "_low": difference.low, "_high": difference.high, "_p": difference.p}
                put(gain, row, share, ends)
    return {name: ((DETECTOR, SHARE), values) for name, values in found.items()}


def _calibrated(
    readings: xr.Dataset, wrong: NDArray[np.bool_], out: NDArray[np.bool_], fixed: Mapping[str, Floats],
    names: Sequence[str], options: StreamingOptions,
) -> dict[str, Any]:  # fmt: skip
    """Probabilities and largest scores, of the answers that are held out, and how reliable the probabilities are."""
    fitted = fit_detector(readings, wrong, ~out, options)
    beginnings: dict[str, Floats] = {**fixed, **fitted_scores(fitted, readings)}
    count, ends = len(names), ("brier", "brier_low", "brier_high", "ece", "ece_low", "ece_high", "ece_null")
    found: dict[str, NDArray[Any]] = {name: np.full((count, len(wrong)), np.nan) for name in ("highest", "probability")}
    found |= {name: np.full(count, np.nan) for name in ("slope", "offset", *ends)}
    for row, name in enumerate(names):
        if name not in beginnings or name in (LENGTH, HEADS):
            continue  # not known while the answer is written; a part of another score
        score = beginnings[name]
        platt = fitted.calibration_ if name == FITTED else fit_platt(score[~out, len(SHARES) - 1], wrong[~out])
        found["highest"][row, out] = score[out, len(SHARES) - 1 :].max(axis=1)
        found["probability"][row, out] = platt(score[out, len(SHARES) - 1])
        found["slope"][row], found["offset"][row] = platt
        how = reliability(found["probability"][row, out], wrong[out])
        for end in ends:
            found[end][row] = getattr(how, end)
    dims = {1: (DETECTOR,), 2: (DETECTOR, EXAMPLE)}
    return {name: (dims[values.ndim], values) for name, values in found.items()}


def _head_tests(readings: xr.Dataset, wrong: NDArray[np.bool_], controls: QuestionControls) -> dict[str, Any]:
    """Tests of every statistic of every head, after the first token and at the end."""
    values = readings[list(ROW_STATISTICS)].to_dataarray(STATISTIC).isel({PREFIX: list(HEAD_PREFIXES.values())})
    values = values.transpose(EXAMPLE, PREFIX, STATISTIC, LAYER, HEAD)
    maps = (PREFIX, STATISTIC)
    found: dict[str, Any] = {}
    for suffix, tests in (
        ("", mann_whitney_maps(values, wrong, maps=maps)),
        ("_within", van_elteren_maps(values, wrong, controls.strata, maps=maps)),
    ):
        names = {"p": "p", "q": "q", "auroc": "effect"}
        for name, stored in names.items():
            found[f"{stored}{suffix}"] = tests[name]
        for end in ("low", "high"):
            found[f"effect{suffix}_{end}"] = tests[end]
    return {
        name: (
            (PREFIX, STATISTIC, LAYER, HEAD),
            one.transpose(PREFIX, STATISTIC, LAYER, HEAD).values.astype(np.float32),
        )
        for name, one in found.items()
    }
