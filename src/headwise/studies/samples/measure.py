"""What does the model say when it is asked K times? Samples, the types of its errors, and which sample to take.

Shown: some of the questions of the study `answers`, K times each, tokens drawn at a temperature, every draw from its own
seed. All draws of some questions are made in one batch, and each prompt is read once. Answers are cut, labelled and found
as there (`answers.study`, `probing.positions`). Observed: the activation at the last token of the exact answer (the answer's
last token where there is none), at the layer and site where the study `probing` tells wrong answers best there; of every
sample, and of the greedy answer.

From it: the types of errors (`error_types`) with one probe a type, and how often the answer that a probe trusts most is
correct against greedy, random and majority (`selection`), with intervals, overall and for each type.

The layer was chosen on greedy answers to the same questions, which makes it a little too good for them; the probe's
weights are always those of other questions.

Cost: K answers a question, and each answer read again after its prompt, which is kept: 0.21 s of a busy core a sample with
the default model, so 100 questions with 30 samples take about ten minutes of it. So it is made only when asked for:
`headwise build --studies samples`, or fewer of them, as `SamplingOptions(samples=10, questions=60)`. A few questions are
committed at a time, and a stopped run goes on where it was.
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
from headwise.core.errors import DataError, StudyError
from headwise.core.provenance import Provenance
from headwise.corpora import Questions, decode_ids
from headwise.corpora.matching import CORRECT
from headwise.engines import Shard
from headwise.instruments import Activations
from headwise.model import Model
from headwise.seam import Structure, observe
from headwise.studies.answers import measure as answering
from headwise.studies.answers.spec import AnsweringOptions
from headwise.studies.decoding import Ids, PrefixCachedDecoder, common_prefix_length
from headwise.studies.inputs import StudyInputs
from headwise.studies.probing.positions import LAST, exact_spans, parse_ids
from headwise.studies.run import StudyRun
from headwise.studies.samples.error_types import TYPES, clusters, counts_of, type_probes, types_of
from headwise.studies.samples.selection import STRATEGIES, bootstrap, picks, trust
from headwise.studies.samples.spec import SPEC, SamplingOptions

_OF = "#"  # between the name of a question and the number of a draw
_ROWS = 120  # answers that are made at a time
_TEXTS = ("answer", "label", "exact")
_NUMBERS = ("answer_tokens", "logprob_mean")


class Cell(NamedTuple):
    """Where activations are read, at the last token of the exact answer."""

    site: str
    layer: int


def prepare(model: Model, inputs: StudyInputs, options: SamplingOptions | None = None) -> StudyRun:
    """Samples of this model, for questions of which the atlas holds answers and a probing map."""
    options = options or SamplingOptions()
    answers, probing, questions = inputs.maps["answers"], inputs.maps["probing"], inputs.questions
    cell = _cell(probing, options)
    chosen = _chosen(answers, questions, options)
    origin = Provenance.from_attrs(answers.attrs)
    asked = answering.prepare(
        model, StudyInputs(questions_source=_repeated(chosen, options.samples)), _as_answered(origin, options)
    )
    reader = _Reader(model, cell, _beginning(answers))
    data = {"name": origin.data.get("name"), "size": len(chosen), "digest": origin.key()}
    parameters = {key: value for key, value in asdict(options).items() if key != "seed"}
    parameters |= {"site": cell.site, "layer": cell.layer, "judge": origin.parameters.get("judge")}
    provenance = Provenance(SPEC.name, SPEC.version, model.identity(), data, parameters, options.seed)

    def measure(shard: Shard) -> xr.Dataset:
        draws = options.samples
        said = reader.read(asked.measure(Shard(shard.index, shard.start * draws, shard.stop * draws)))
        names = [str(name).rpartition(_OF)[0] for name in said[EXAMPLE].values[::draws]]
        greedy = reader.read(answers.sel({EXAMPLE: names}))
        own = answers[["question", "topic", "label"]].sel({EXAMPLE: names}).rename(label="greedy_label")
        return _by_question(said, names, draws).merge(own).assign(greedy=greedy["activation"])

    def conclude(shards: Sequence[xr.Dataset]) -> dict[str, xr.Dataset]:
        found = to_dataset(xr.concat(shards, dim=EXAMPLE, data_vars="all"), options)
        return {SPEC.name: found.assign_attrs(site=cell.site, layer=cell.layer, temperature=options.temperature)}

    return StudyRun(provenance, asked.examples // options.samples, options.shard, measure, conclude)


def to_dataset(read: xr.Dataset, options: SamplingOptions) -> xr.Dataset:
    """Types and choices: a pure function of what was said and read."""
    read = read.transpose(EXAMPLE, DRAW, ...)
    labels = read["label"].values.astype(str).astype(object)
    groups = np.array([clusters([str(text) for text in row]) for row in read["exact"].values])
    counts = counts_of(labels, groups)
    types = types_of(counts, labels.shape[1])
    greedy = np.array([str(label) == CORRECT for label in read["greedy_label"].values])
    trusted = trust(read["activation"].values.astype(np.float32), labels, folds=options.folds, seed=options.seed)
    picked = picks(labels, groups, trusted.score, greedy)  # (strategy, question)
    probes = type_probes(read["greedy"].values.astype(np.float32), types, folds=options.folds, seed=options.seed)
    variables: dict[str, Any] = {name: ((EXAMPLE, DRAW), read[name].values.astype(object)) for name in _TEXTS}
    variables |= {
        "answer_tokens": ((EXAMPLE, DRAW), read["answer_tokens"].values.astype(np.int64)),
        "logprob_mean": ((EXAMPLE, DRAW), read["logprob_mean"].values.astype(np.float32)),
        "group": ((EXAMPLE, DRAW), groups.astype(np.int64)),
        "score": ((EXAMPLE, DRAW), trusted.score.astype(np.float32)),
        "fold_of": ((EXAMPLE,), trusted.fold_of.astype(np.int64)),
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
        variables[f"probe_auroc{ending}"] = ((), np.float32(getattr(trusted.auroc, name)))
    coords = {
        EXAMPLE: read[EXAMPLE].values, DRAW: np.arange(labels.shape[1]), STRATEGY: np.array(STRATEGIES, dtype=object),
        ERROR_TYPE: np.array(list(TYPES), dtype=object),
        "type_name": (ERROR_TYPE, np.array(list(TYPES.values()), dtype=object)),
    }  # fmt: skip
    title = "Asked many times: how the model errs, and which answer to take"
    return xr.Dataset(variables, coords=coords).assign_attrs(title=title, record=json.dumps([]))


def _intervals(picked: NDArray[np.float64], types: NDArray[np.bool_], seed: int) -> dict[str, Any]:
    """Accuracy and gain over greedy of every strategy: of all questions, and of those of each type."""
    found: dict[str, Any] = {}
    for name, rows in (("accuracy", picked), ("gain", picked - picked[:1])):
        every = bootstrap(rows, seed=seed)
        each = [bootstrap(rows[:, flag], seed=seed) for flag in types.T]
        for place, ending in enumerate(("", "_low", "_high")):
            found[f"{name}{ending}"] = ((STRATEGY,), every[place].astype(np.float32))
            by_type = np.stack([one[place] for one in each]).astype(np.float32)
            found[f"type_{name}{ending}"] = ((ERROR_TYPE, STRATEGY), by_type)
    return found


# ---- what is asked --------------------------------------------------------------------------------------------------


def _cell(probing: xr.Dataset, options: SamplingOptions) -> Cell:
    """The layer where the probing map is best at the last token of the exact answer."""
    sites = [str(site) for site in probing[SITE].values]
    site = options.site or sites[0]
    if site not in sites:
        raise StudyError(f"the probing map has no site {site!r}, only {', '.join(sites)}; probe that site first")
    column = probing["auroc"].isel({SITE: sites.index(site)}).sel({TOKEN: LAST}).values  # (layer,)
    layer = int(np.nanargmax(column)) if options.layer is None else options.layer
    if not 0 <= layer < len(column):
        raise StudyError(f"there is no layer {layer}; this model has layers 0 to {len(column) - 1}")
    return Cell(site, layer)


def _chosen(answers: xr.Dataset, questions: Questions, options: SamplingOptions) -> Questions:
    """The questions to ask again: those that were answered, by the model itself."""
    known = {str(name) for name in answers[EXAMPLE].values}
    items = tuple(item for item in questions.items if item.id in known)
    if not items:
        raise DataError(
            f"none of the questions of {questions.name} is among the {len(known)} that the atlas holds answers to; give "
            "the questions that the answers were made with"
        )
    if any(item.response is not None for item in items) or Provenance.from_attrs(answers.attrs).parameters.get(
        "endpoint"
    ):
        raise StudyError(
            "the answers were given, not made by this model, so it cannot be asked again; answer with it first"
        )
    return Questions(questions.name, items).sample(options.questions, seed=options.seed)


def _repeated(questions: Questions, draws: int) -> Questions:
    """Every question so many times in a row, under names of their own: a seed hangs on the name."""
    every = (replace(item, id=f"{item.id}{_OF}{draw}") for item in questions.items for draw in range(draws))
    return Questions(questions.name, tuple(every))


def _as_answered(origin: Provenance, options: SamplingOptions) -> AnsweringOptions:
    """The options of the answers, but for the temperature and the seed."""
    same = {name: origin.parameters[name] for name in ("few_shot", "chat", "max_new_tokens", "reasoning_tokens")}
    return AnsweringOptions(**same, temperature=options.temperature, too_long="drop", seed=options.seed, batch=_ROWS)


def _beginning(answers: xr.Dataset) -> Ids:
    """What all prompts begin with."""
    prompts = [parse_ids(text) for text in answers["prompt_ids"].values]
    return prompts[0][: common_prefix_length(prompts)]


# ---- what is read ---------------------------------------------------------------------------------------------------


def _by_question(said: xr.Dataset, names: Sequence[str], draws: int) -> xr.Dataset:
    """(example, ...) with the draws of a question in a row -> (example, draw, ...)."""
    variables = {
        str(name): ((EXAMPLE, DRAW, *part.dims[1:]), part.values.reshape(len(names), draws, *part.shape[1:]))
        for name, part in said.data_vars.items()
    }
    return xr.Dataset(variables, coords={EXAMPLE: np.array(names, dtype=object)})


class _Reader:
    """Reads answers again, for the exact answers in them and the activations at their last tokens."""

    def __init__(self, model: Model, cell: Cell, beginning: Ids):
        self._model, self._cell, self._beginning = model, cell, beginning
        self._structure = Structure(model)

    def read(self, said: xr.Dataset) -> xr.Dataset:
        """Rows of the study `answers`, in their order."""
        spans = exact_spans(self._model, said)
        prompts, replies = ([parse_ids(text) for text in said[name].values] for name in ("prompt_ids", "answer_ids"))
        heard, texts = [], []
        for reply, span, whole in zip(replies, spans, said["answer"].values, strict=True):
            heard.append(reply if span is None else reply[: span[1] + 1])
            own = None if span is None else decode_ids(self._model.tokenizer, reply[span[0] : span[1] + 1]).strip()
            texts.append(str(whole) if own is None else own)
        kept = said[["answer", "label", *_NUMBERS]].drop_vars([name for name in said.coords if name != EXAMPLE])
        return kept.drop_attrs().assign(
            exact=(EXAMPLE, np.array(texts, dtype=object)), activation=((EXAMPLE, WIDTH), self._last(prompts, heard))
        )

    def _last(self, prompts: Sequence[Ids], replies: Sequence[Ids]) -> NDArray[np.float32]:
        """(row, width): the activation at the last token of every reply, of its prompt where it is empty."""
        longest = max(len(prompt) + len(reply) for prompt, reply in zip(prompts, replies, strict=True))
        decoder = PrefixCachedDecoder(self._model, self._beginning, longest=longest, batch=_ROWS // 3)
        found = np.empty((len(prompts), self._structure.card.hidden_size), dtype=np.float32)
        order = sorted(range(len(prompts)), key=lambda row: len(replies[row]))
        for begin in range(0, len(order), decoder.rows):
            places = order[begin : begin + decoder.rows]
            some = [prompts[place] for place in places]
            known = list(dict.fromkeys(prompts if decoder.rows > 1 else some))
            decoder.prefill([prompt[:-1] for prompt in known])
            decoder.select([prompt[:-1] for prompt in known], [known.index(prompt) for prompt in some])
            with observe(self._structure, Activations((self._cell.site,), "last")) as seen:
                decoder.teacher_force(some, [replies[place] for place in places])
            sites = seen["activations"]["activation"].isel({SITE: 0, TOKEN: 0})
            found[places] = sites.sel({LAYER: self._cell.layer}).values
        return found
