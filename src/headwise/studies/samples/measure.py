"""What does the model answer when it is asked K times? Samples, the types of its errors, and which sample to take.

Shown: some of the questions of the study `answers`, K times each, tokens sampled at a temperature, every draw with its own
seed. All draws of a few questions form one batch, and each prompt is read once. Answers are cut, labelled and found as
there (`answers.measure`, `probing.positions`). Observed, for every sample and for the greedy answer: the activation at the
last token of the exact answer (the answer's last token where there is none), at the layer and site where the study
`probing` separates wrong answers best.

Greedy answers to the questions that are not sampled are read as well: the probe is fitted on the answers to all other
questions, so that asking few of them many times does not leave it with few to learn from.

From it: the types of errors (`error_types`) with one probe per type, and how often the sample that a probe finds
least likely wrong is correct, against greedy, random and majority (`selection`), with confidence intervals, overall and
per type.

The layer was chosen on greedy answers to the same questions, which is slightly optimistic; the probe's weights are always
those of other questions.

Cost: K answers per question, and each answer read again after its cached prompt: 0.21 s of one busy core per sample with the
default model, so 500 questions with 10 samples take about eighteen minutes. Hence opt-in: `headwise build --studies samples`,
or fewer of them, as `SamplingOptions(questions=100)`; the published K is 30. A few questions are committed at a time, and a
stopped run resumes where it stopped.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from headwise.core.dims import DRAW, ERROR_TYPE, EXAMPLE, LAYER, SITE, STRATEGY, TOKEN, WIDTH
from headwise.core.errors import StudyError
from headwise.core.provenance import Provenance
from headwise.core.schema import with_interval
from headwise.corpora import Questions, decode_ids
from headwise.corpora.matching import CORRECT
from headwise.engines import Shard
from headwise.instruments.activations import Activations
from headwise.model import Model
from headwise.seam import Structure, observe
from headwise.studies.answers import measure as answering
from headwise.studies.answers.spec import AnsweringOptions
from headwise.studies.decoding import Ids, PrefixCachedDecoder, common_prefix_length
from headwise.studies.inputs import StudyInputs
from headwise.studies.probing.positions import best_layer, exact_spans, parse_ids
from headwise.studies.question_controls import is_judged
from headwise.studies.run import StudyRun
from headwise.studies.samples.error_types import TYPES, clusters, counts_of, type_probes, types_of
from headwise.studies.samples.selection import STRATEGIES, GreedyAnswers, bootstrap, picks, score_samples
from headwise.studies.samples.spec import SPEC, SamplingOptions

_DRAW_SEPARATOR = "#"  # between the name of a question and the number of a draw
_BATCH = 120  # answers per batch
_OTHER = "other"  # dim of shards only: greedy answers to questions that are not sampled


class ProbeSite(NamedTuple):
    """Where activations are read, at the last token of the exact answer."""

    site: str
    layer: int


def prepare(model: Model, inputs: StudyInputs, options: SamplingOptions | None = None) -> StudyRun:
    """Samples of this model, for questions of which the atlas holds answers and a probing map."""
    options = options or SamplingOptions()
    answers, probing, questions = inputs.maps["answers"], inputs.maps["probing"], inputs.questions
    where = _probe_site(probing, options)
    chosen = _chosen(answers, questions, options)
    origin = Provenance.from_attrs(answers.attrs)
    sampling = answering.prepare(
        model, StudyInputs(questions_source=_repeated(chosen, options.samples)), _answering_options(origin, options)
    )
    reader = AnswerReader(model, where, _common_prefix(answers))
    others = _others(answers, {item.id for item in chosen.items})
    data = {"name": origin.data.get("name"), "size": len(chosen), "digest": origin.key()}
    parameters = {key: value for key, value in asdict(options).items() if key != "seed"}
    parameters |= {"site": where.site, "layer": where.layer, "judge": origin.parameters.get("judge")}
    provenance = Provenance(SPEC.name, SPEC.version, model.identity(), data, parameters, options.seed)

    def measure(shard: Shard) -> xr.Dataset:
        draws = options.samples
        drawn = reader.read(sampling.measure(Shard(shard.index, shard.start * draws, shard.stop * draws)))
        names = [str(name).rpartition(_DRAW_SEPARATOR)[0] for name in drawn[EXAMPLE].values[::draws]]
        greedy = reader.read(answers.sel({EXAMPLE: names}))
        own = answers[["question", "topic", "label"]].sel({EXAMPLE: names}).rename(label="greedy_label")
        found = _by_question(drawn, names, draws).merge(own).assign(greedy=greedy["activation"])
        total, count = sampling.examples // draws, others.sizes[EXAMPLE]
        part = others.isel({EXAMPLE: slice(shard.start * count // total, shard.stop * count // total)})
        return found.assign(
            other_activation=(
                (_OTHER, WIDTH),
                reader.read(part)["activation"].values if part.sizes[EXAMPLE] else reader.nothing(),
            ),
            other_label=((_OTHER,), part["label"].values.astype(object)),
        )

    def finish(shards: Sequence[xr.Dataset]) -> dict[str, xr.Dataset]:
        rest = GreedyAnswers(
            *(np.concatenate([shard[name].values for shard in shards]) for name in ("other_activation", "other_label"))
        )
        sampled = [shard.drop_vars(["other_activation", "other_label"]) for shard in shards]
        found = finalize(xr.concat(sampled, dim=EXAMPLE, data_vars="all"), options, rest)
        return {SPEC.name: found.assign_attrs(site=where.site, layer=where.layer, temperature=options.temperature)}

    return StudyRun(provenance, sampling.examples // options.samples, options.shard, measure, finish)


# ---- questions ------------------------------------------------------------------------------------------------------


def _probe_site(probing: xr.Dataset, options: SamplingOptions) -> ProbeSite:
    """The layer where the probing map is best at the last token of the exact answer."""
    sites = [str(site) for site in probing[SITE].values]
    site = options.site or sites[0]
    if site not in sites:
        raise StudyError(f"the probing map has no site {site!r}, only {', '.join(sites)}; probe that site first")
    layer, layers = best_layer(probing, site) if options.layer is None else options.layer, probing.sizes[LAYER]
    if not 0 <= layer < layers:
        raise StudyError(f"there is no layer {layer}; this model has layers 0 to {layers - 1}")
    return ProbeSite(site, layer)


def _chosen(answers: xr.Dataset, questions: Questions, options: SamplingOptions) -> Questions:
    """The questions to sample."""
    return answering.answered_questions(answers, questions).sample(options.questions, seed=options.seed)


def _others(answers: xr.Dataset, sampled: set[str]) -> xr.Dataset:
    """The labelled greedy answers to questions that are not sampled."""
    rest = [str(name) not in sampled for name in answers[EXAMPLE].values]
    return answers.isel({EXAMPLE: np.flatnonzero(np.array(rest, dtype=bool) & is_judged(answers))})


def _repeated(questions: Questions, draws: int) -> Questions:
    """Every question so many times in a row, under distinct names: the seed of a draw depends on the name."""
    every = (replace(item, id=f"{item.id}{_DRAW_SEPARATOR}{draw}") for item in questions.items for draw in range(draws))
    return Questions(questions.name, tuple(every))


def _answering_options(origin: Provenance, options: SamplingOptions) -> AnsweringOptions:
    """The options of the answers, but for the temperature and the seed."""
    same = {name: origin.parameters[name] for name in ("few_shot", "chat", "max_new_tokens", "reasoning_tokens")}
    return AnsweringOptions(**same, temperature=options.temperature, too_long="drop", seed=options.seed, batch=_BATCH)


def _common_prefix(answers: xr.Dataset) -> Ids:
    """The tokens that all prompts begin with."""
    prompts = [parse_ids(text) for text in answers["prompt_ids"].values]
    return prompts[0][: common_prefix_length(prompts)]


# ---- readings -------------------------------------------------------------------------------------------------------


def _by_question(answers: xr.Dataset, names: Sequence[str], draws: int) -> xr.Dataset:
    """(example, ...) with the draws of a question in a row -> (example, draw, ...)."""
    variables = {
        str(name): ((EXAMPLE, DRAW, *part.dims[1:]), part.values.reshape(len(names), draws, *part.shape[1:]))
        for name, part in answers.data_vars.items()
    }
    return xr.Dataset(variables, coords={EXAMPLE: np.array(names, dtype=object)})


class AnswerReader:
    """Finds the exact answers in answers, and reads the activations at their last tokens."""

    def __init__(self, model: Model, where: ProbeSite, prefix: Ids):
        self._model, self._where, self._prefix = model, where, prefix
        self._structure = Structure(model)

    def read(self, answers: xr.Dataset) -> xr.Dataset:
        """Rows of the study `answers`, in their order."""
        spans = exact_spans(self._model, answers)
        prompts, replies = ([parse_ids(text) for text in answers[name].values] for name in ("prompt_ids", "answer_ids"))
        shown, texts = [], []
        for reply, span, whole in zip(replies, spans, answers["answer"].values, strict=True):
            shown.append(reply if span is None else reply[: span[1] + 1])
            own = None if span is None else decode_ids(self._model.tokenizer, reply[span[0] : span[1] + 1]).strip()
            texts.append(str(whole) if own is None else own)
        retained = answers[["answer", "label", "answer_tokens", "logprob_mean"]].drop_vars(
            [name for name in answers.coords if name != EXAMPLE]
        )
        return retained.drop_attrs().assign(
            exact=(EXAMPLE, np.array(texts, dtype=object)),
            activation=(
                (EXAMPLE, WIDTH),
                last_activations(self._structure, self._model, self._where, self._prefix, prompts, shown),
            ),
        )

    def nothing(self) -> NDArray[np.float32]:
        """(0, width)."""
        return np.empty((0, self._structure.card.hidden_size), dtype=np.float32)


def last_activations(
    structure: Structure, model: Model, where: ProbeSite, prefix: Ids, prompts: Sequence[Ids], replies: Sequence[Ids]
) -> NDArray[np.float32]:
    """(row, width): the activation at the last token of every reply, of its prompt where it is empty.

    Equal prompts are read once; ``prefix``: what prompts begin with.
    """
    longest = max(len(prompt) + len(reply) for prompt, reply in zip(prompts, replies, strict=True))
    decoder = PrefixCachedDecoder(model, prefix, longest=longest, batch=_BATCH // 3)
    found = np.empty((len(prompts), structure.card.hidden_size), dtype=np.float32)
    order = sorted(range(len(prompts)), key=lambda row: len(replies[row]))
    for begin in range(0, len(order), decoder.rows):
        rows = order[begin : begin + decoder.rows]
        some = [prompts[row] for row in rows]
        known = list(dict.fromkeys(prompts if decoder.rows > 1 else some))
        decoder.prefill([prompt[:-1] for prompt in known])
        decoder.select([prompt[:-1] for prompt in known], [known.index(prompt) for prompt in some])
        with observe(structure, Activations((where.site,), "last")) as seen:
            decoder.teacher_force(some, [replies[row] for row in rows])
        sites = seen["activations"]["activation"].isel({SITE: 0, TOKEN: 0})
        found[rows] = sites.sel({LAYER: where.layer}).values
    return found


def finalize(read: xr.Dataset, options: SamplingOptions, others: GreedyAnswers | None = None) -> xr.Dataset:
    """The Dataset `samples`, without the site and layer of the probe; `others`: greedy answers to questions not sampled."""
    read = read.transpose(EXAMPLE, DRAW, ...)
    labels = read["label"].values.astype(str).astype(object)
    groups = np.array([clusters([str(text) for text in row]) for row in read["exact"].values])
    counts = counts_of(labels, groups)
    types = types_of(counts, labels.shape[1])
    greedy = np.array([str(label) == CORRECT for label in read["greedy_label"].values])
    activations = read["activation"].values.astype(np.float32)
    own = GreedyAnswers(
        read["greedy"].values.astype(np.float32), read["greedy_label"].values.astype(str).astype(object)
    )
    nothing = GreedyAnswers(np.empty((0, activations.shape[2]), dtype=np.float32), np.empty(0, dtype=object))
    scored = score_samples(activations, labels, own, others or nothing, folds=options.folds, seed=options.seed)
    picked = picks(labels, groups, scored.score, greedy)  # (strategy, question)
    probes = type_probes(own.activations, activations, types, folds=options.folds, seed=options.seed)
    variables: dict[str, Any] = {
        name: ((EXAMPLE, DRAW), read[name].values.astype(object)) for name in ("answer", "label", "exact")
    }
    variables |= {
        "answer_tokens": ((EXAMPLE, DRAW), read["answer_tokens"].values.astype(np.int64)),
        "logprob_mean": ((EXAMPLE, DRAW), read["logprob_mean"].values.astype(np.float32)),
        "group": ((EXAMPLE, DRAW), groups.astype(np.int64)),
        "score": ((EXAMPLE, DRAW), scored.score.astype(np.float32)),
        "fold_of": ((EXAMPLE,), scored.fold_of.astype(np.int64)),
        "is_type": ((EXAMPLE, ERROR_TYPE), types),
        "picked": ((STRATEGY, EXAMPLE), picked.astype(np.float32)),
        "greedy_correct": ((EXAMPLE,), greedy),
    }
    variables |= {name: ((EXAMPLE,), part.astype(np.int64)) for name, part in counts._asdict().items()}
    variables |= {name: ((EXAMPLE,), read[name].values.astype(object)) for name in ("question", "topic")}
    variables |= _intervals(picked, types, options.seed)
    for name in ("auroc", "low", "high", "null_high"):
        variables[f"type_{name}"] = ((ERROR_TYPE,), np.array([getattr(p, name) for p in probes], dtype=np.float32))
    for name in ("value", "low", "high"):
        ending = "" if name == "value" else f"_{name}"
        variables[f"probe_auroc{ending}"] = ((), np.float32(getattr(scored.auroc, name)))
        variables[f"within_auroc{ending}"] = ((), np.float32(getattr(scored.within, name)))
    for name, count in zip(("fit_questions", "fit_answers"), scored.fitted_on, strict=True):
        variables[name] = ((), np.int64(count))
    coords = {
        EXAMPLE: read[EXAMPLE].values, DRAW: np.arange(labels.shape[1]), STRATEGY: np.array(STRATEGIES, dtype=object),
        ERROR_TYPE: np.array(list(TYPES), dtype=object),
        "type_name": (ERROR_TYPE, np.array(list(TYPES.values()), dtype=object)),
    }  # fmt: skip
    title = "Sampled many times: types of errors, and which answer is best"
    return xr.Dataset(variables, coords=coords).assign_attrs(title=title, record=json.dumps([]))


def _intervals(picked: NDArray[np.float64], types: NDArray[np.bool_], seed: int) -> dict[str, Any]:
    """Accuracy and gain over greedy of every strategy: of all questions, and of those of each type."""
    found: dict[str, Any] = {}
    for name, rows in (("accuracy", picked), ("gain", picked - picked[:1])):
        overall = np.array(bootstrap(rows, seed=seed), dtype=np.float32)
        by_type = np.array([bootstrap(rows[:, flag], seed=seed) for flag in types.T], dtype=np.float32)
        found |= with_interval(name, *overall, dims=STRATEGY)
        found |= with_interval(f"type_{name}", *np.moveaxis(by_type, 1, 0), dims=(ERROR_TYPE, STRATEGY))
    return found
