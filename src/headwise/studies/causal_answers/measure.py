"""Does the model still answer, and can its errors still be detected, without a head?

**Which heads.** Those that the loss needs most (study `causal`, of the heads that were ablated exactly), and those with the
largest weight in a detector of wrong answers; each next to `controls` heads of its layer that write about as much. The heads
of a kind are also ablated together, next to sets with as many heads in every layer (`studies.matched_heads`).

**Ablated** is a head whose output z is its mean over the texts. A detector that reads attention then sees the attention of
later layers change; the head's own attention does not, since it is computed before its output. Without the head there is
nothing to read of it either, so its own readings are replaced by their mean over the answers that the detector was fitted on.

| measure | what is compared with the unchanged model |
|---|---|
| correct, refused | share of the questions, answered again without the head |
| detector | AUROC of the detector that was fitted on the intact model: does it depend on the head? |
| detector_reading | the same where the head stays in the model, and only what is read of it is missing |
| detector_refitted | AUROC of a detector that is fitted without the head: do other heads tell the same? |
| probe, probe_refitted | the same two questions of a probe on the hidden state, which reads no head |

**Answering** is greedy and begins with the prompts that the study `answers` stored: every prompt is read once, heads are
ablated from its last token on, and all changes of a prompt are branches of one batch (`function_masking.prompter`).

**Detectors** read the same answers, prompt and answer in one pass: the mean of the ten largest Laplacian eigenvalues of every
head (the map of the study `spectral`), or the activation at the last token of the exact answer, at the layer where the study
`probing` is best. They are evaluated on as many wrong as correct answers of every stratum of similar questions, and fitted on
answers of other strata, so that the question alone predicts nothing (`detectors`).

Cost: per ablation half a pass over these answers, and the tokens of one answer per question. Measured: docs/studies/causal.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from functools import cached_property

import numpy as np
import torch
import xarray as xr
from numpy.typing import NDArray

from headwise.core.dims import ABLATION, EXAMPLE, FEATURE, HEAD, LAYER, PART, SITE, TOKEN, TOKEN_CLASS
from headwise.core.errors import StudyError
from headwise.core.provenance import Provenance
from headwise.corpora import Example, Question, Questions
from headwise.corpora.matching import judge
from headwise.engines import Shard
from headwise.instruments import AnswerSpectrum
from headwise.instruments.activations import Activations
from headwise.instruments.spectrum import TOP_K
from headwise.interventions import Replace
from headwise.model import Model
from headwise.seam import LayerOutputs, Structure, observe, resumed
from headwise.studies.answers.endings import ending
from headwise.studies.answers.measure import answered_questions
from headwise.studies.causal.ablating import Ablations
from headwise.studies.causal_answers.detectors import Detectors, balanced, weights_of
from headwise.studies.causal_answers.finalize import BOTH, CONTROL, INTACT, Ablated, finalize
from headwise.studies.causal_answers.spec import REASONS, SPEC, CausalAnswersOptions
from headwise.studies.decoding import PrefixCachedDecoder, common_prefix_length
from headwise.studies.inputs import StudyInputs, require_loaded
from headwise.studies.matched_heads import Head, matched_sets
from headwise.studies.passes import Batch, batches
from headwise.studies.probing.positions import best_layer, exact_spans, parse_ids
from headwise.studies.prompter import HeadChange, Prompter
from headwise.studies.question_controls import question_controls
from headwise.studies.run import StudyRun, study_provenance

Floats = NDArray[np.float64]
MAPS = ("causal", "spectral", "probing")  # that heads, answers and layer are chosen by
CONDITION, QUESTION = "place", "question"  # dims of shards only


def prepare(model: Model, inputs: StudyInputs, options: CausalAnswersOptions | None = None) -> StudyRun:
    """What the model's answers and detectors of its errors lose without some of its heads."""
    options = options or CausalAnswersOptions()
    require_loaded(model, SPEC.name)
    answers, causal, spectral, probing = (inputs.maps[name] for name in ("answers", "causal", "spectral", "probing"))
    judged = answers.sel({EXAMPLE: spectral[EXAMPLE].values})
    controls = question_controls(judged, options.seed)
    wrong = judged["label"].values == "wrong"
    read = spectral["per_example"].sel({PART: "whole", FEATURE: "laplacian"}).transpose(EXAMPLE, LAYER, HEAD)
    intact = read.values.astype(np.float64)
    weight = weights_of(intact, wrong)
    ablated = ablations(causal, weight, options)
    chosen = balanced(wrong, controls.strata, options.answers, options.seed)
    detectors = Detectors(intact, wrong, controls.strata, chosen, options.seed)
    site = str(probing[SITE].values[0])
    reader = AblatedReader(model, judged, chosen, site, best_layer(probing, site), options)
    asked, reason = _questions(answers, inputs, options)
    origin = Provenance.from_attrs(answers.attrs)
    answering = AblatedAnswering(model, answers, asked, origin, reader, options)
    data = {"name": origin.data.get("name"), "size": len(asked), "digest": origin.key()}
    data |= {
        "answers": len(chosen),
        "maps": {name: Provenance.from_attrs(inputs.maps[name].attrs).key() for name in MAPS},
    }
    provenance = study_provenance(SPEC, model, data, options)

    def measure(shard: Shard) -> xr.Dataset:
        some = ablated[shard.start : shard.stop]
        features, activations = reader.read(some)
        base, probed = reader.intact
        scores = [
            detectors.scores(one.heads, features[index], base[chosen], activations[index], probed)
            for index, one in enumerate(some)
        ]
        return xr.Dataset(
            {
                **{name: ((CONDITION, EXAMPLE), np.stack([one[name] for one in scores])) for name in scores[0]},
                "label": ((CONDITION, QUESTION), answering.labels(some)),
            }
        )

    def conclude(shards: Sequence[xr.Dataset]) -> dict[str, xr.Dataset]:
        readings = xr.concat(shards, dim=CONDITION, data_vars="all")
        found = finalize(readings, ablated, wrong[chosen], detectors.fold_of[chosen], weight)
        strata = {"strata": controls.kind, "n_strata": len(np.unique(controls.strata[chosen]))}
        attrs = {**strata, "site": site, "layer": reader.layer, "where": options.where}
        return {SPEC.name: found.assign_attrs(attrs, not_asked=reason)}

    return StudyRun(provenance, len(ablated), options.shard, measure, conclude)


# ---- which heads, which questions -----------------------------------------------------------------------------------


def ablations(causal: xr.Dataset, weight: Floats, options: CausalAnswersOptions) -> list[Ablated]:
    """Nothing, then single heads, then sets; controls follow, each once."""
    one = causal.sel({ABLATION: "mean", TOKEN_CLASS: "all"}).transpose(LAYER, HEAD, ...)
    needed = np.where(one["checked"].values != "", one["effect"].values.astype(np.float64), np.nan)
    norm = causal["norm"].transpose(LAYER, HEAD).values.astype(np.float64)
    own = {reason: _largest(map_, norm, options.heads) for reason, map_ in zip(REASONS, (needed, weight), strict=True)}
    found = [Ablated((), INTACT)]
    index: dict[tuple[Head, ...], int] = {}

    def add(heads: Sequence[Head], role: str) -> int:
        key = tuple(sorted(heads))
        if key not in index:
            index[key] = len(found)
            found.append(Ablated(key, role))
        elif CONTROL not in (role, found[index[key]].role) and role != found[index[key]].role:
            found[index[key]] = found[index[key]]._replace(role=BOTH)
        return index[key]

    singles = [add([head], reason) for reason in REASONS for head in own[reason]]
    sets = [add(own[reason], reason) for reason in REASONS if len(own[reason]) > 1]
    for place in dict.fromkeys((*singles, *sets)):
        heads = found[place].heads
        generator = np.random.default_rng([options.seed, *np.array(heads).ravel().tolist()])
        drawn = matched_sets(heads, norm, options.controls, generator)
        found[place] = found[place]._replace(controls=tuple(add(some, CONTROL) for some in drawn))
    return found


def _largest(values: Floats, norm: Floats, count: int) -> list[Head]:
    """The heads with the largest values, at most half of the heads of a layer, so that others are left to compare with."""
    room = {layer: int(np.isfinite(row).sum()) // 2 for layer, row in enumerate(norm)}
    found: list[Head] = []
    for layer, head in np.argwhere(np.isfinite(values))[np.argsort(-values[np.isfinite(values)], kind="stable")]:
        if room[int(layer)] and len(found) < count:
            found.append((int(layer), int(head)))
            room[int(layer)] -= 1
    return found


def _questions(answers: xr.Dataset, inputs: StudyInputs, options: CausalAnswersOptions) -> tuple[list[Question], str]:
    """The questions that are answered again; or why none is."""
    if not options.questions:
        return [], "none was requested"
    if Provenance.from_attrs(answers.attrs).parameters.get("judge"):
        return [], "their answers were labelled by a judge behind an endpoint"
    try:
        items = answered_questions(answers, inputs.questions)
    except StudyError:
        return [], "their answers were given, not made by this model"
    if any(item.label is not None for item in items.items):
        return [], "their labels were given, for these answers only"
    short = tuple(item for item in items.items if not item.numeric)  # word problems only where there is nothing else
    return list(Questions(items.name, short or items.items).sample(options.questions, seed=options.seed).items), ""


# ---- answering again ------------------------------------------------------------------------------------------------


class AblatedAnswering:
    """The model answers the same questions with heads ablated."""

    def __init__(
        self, model: Model, answers: xr.Dataset, asked: Sequence[Question], origin: Provenance, reader: AblatedReader,
        options: CausalAnswersOptions,
    ):  # fmt: skip
        self.asked, self.reader = asked, reader
        self._model, self._options = model, options
        rows = answers.sel({EXAMPLE: [item.id for item in asked]}) if asked else answers.isel({EXAMPLE: slice(0)})
        self.prompts = [parse_ids(text) for text in rows["prompt_ids"].values]
        self.numeric = bool(asked) and asked[0].numeric
        self.limit = int(origin.parameters["reasoning_tokens" if self.numeric else "max_new_tokens"] or 0)

    @cached_property
    def prompter(self) -> Prompter:
        """Of this model."""
        prefix = self.prompts[0][: common_prefix_length(self.prompts)]
        longest = max(map(len, self.prompts)) + self.limit
        decoder = PrefixCachedDecoder(
            self._model, prefix, longest=longest, where=self._options.where, batch=self._options.batch
        )
        return Prompter(self._model, decoder, self.limit, ending(self._model, numeric=self.numeric))

    def labels(self, some: Sequence[Ablated]) -> NDArray[np.object_]:
        """(ablation, question): correct, wrong or refused."""
        if not self.asked:
            return np.empty((len(some), 0), dtype=object)
        changes = [self._change(one.heads) for one in some]
        trials = [(question, change) for change in changes for question in range(len(self.asked))]
        texts = self.prompter.texts(self.prompts, trials, "answers without heads")
        labels = [
            judge(text, item.answers, numeric=item.numeric, wrong=item.wrong_answers, question=item.question).label
            for text, (question, _) in zip(texts, trials, strict=True)
            for item in (self.asked[question],)
        ]
        return np.array(labels, dtype=object).reshape(len(some), len(self.asked))

    def _change(self, heads: Sequence[Head]) -> HeadChange:
        """These heads replaced by their mean."""
        card, means = self.reader.structure.card, self.reader.ablations.means
        factor = torch.ones(card.layers, card.heads)
        shift = torch.zeros(card.layers, card.heads, card.value_dim)
        for layer, head in heads:
            factor[layer, head] = 0
            mean = means[layer][1, head].float()  # of all tokens but the first
            shift[layer, head, : len(mean)] = mean
        return HeadChange(factor, shift)


# ---- reading the same answers ---------------------------------------------------------------------------------------


class AblatedReader:
    """Reads answers with heads ablated: the detector's feature of every head, and the probe's activation."""

    def __init__(
        self, model: Model, answers: xr.Dataset, chosen: NDArray[np.int64], site: str, layer: int,
        options: CausalAnswersOptions,
    ):  # fmt: skip
        self.structure, self.site, self.layer = Structure(model), site, layer
        self.batch_tokens, self.chosen = options.batch_tokens, chosen
        rows = zip(answers[EXAMPLE].values, answers["prompt_ids"].values, answers["answer_ids"].values, strict=True)
        parsed = [(str(name), parse_ids(prompt), parse_ids(answer)) for name, prompt, answer in rows]
        self.texts = [Example(name, "answer", prompt + answer) for name, prompt, answer in parsed]
        self._prompt_tokens = [len(prompt) for _, prompt, _ in parsed]
        spans = exact_spans(model, answers)
        self._read_at = [
            len(prompt) + (len(answer) - 1 if span is None else span[1])
            for (_, prompt, answer), span in zip(parsed, spans, strict=True)
        ]

    @cached_property
    def ablations(self) -> Ablations:
        """With the mean output of every head over the chosen answers."""
        found = Ablations(self.structure, 0, batch_tokens=self.batch_tokens)
        found.fit_means([self.texts[row] for row in self.chosen])
        return found

    @cached_property
    def intact(self) -> tuple[Floats, Floats]:
        """All answers, read once with no head ablated: features (answer, layer, head) and activations (answer, width)."""
        features, activations = self._read(np.arange(len(self.texts)), [Ablated((), INTACT)])
        return features[0], activations[0]

    def read(self, some: Sequence[Ablated]) -> tuple[Floats, Floats]:
        """(ablation, chosen answer, layer, head), and (ablation, chosen answer, width)."""
        return self._read(self.chosen, some)

    @torch.no_grad()
    def _read(self, rows: NDArray[np.int64], some: Sequence[Ablated]) -> tuple[Floats, Floats]:
        card = self.structure.card
        features = np.empty((len(some), len(rows), card.layers, card.heads))
        activations = np.empty((len(some), len(rows), card.hidden_size))
        for batch in batches([self.texts[row] for row in rows], self.batch_tokens, self.structure.device):
            own = [int(rows[index]) for index in batch.indices]
            with LayerOutputs(self.structure) as given:
                base = self._pass(batch, own, ())
            for index, one in enumerate(some):
                found = base
                if one.heads:
                    first = min(layer for layer, _ in one.heads)
                    begin = resumed(self.structure, given, first) if self.ablations.resumes else nullcontext()
                    with begin:
                        found = self._pass(batch, own, one.heads)
                for into, values, before in zip((features, activations), found, base, strict=True):
                    into[index, list(batch.indices)] = np.where(
                        np.isnan(values), before, values
                    )  # layers that did not run
        return features, activations

    def _pass(self, batch: Batch, own: Sequence[int], heads: Sequence[Head]) -> tuple[Floats, Floats]:
        spectrum = AnswerSpectrum(torch.tensor([self._prompt_tokens[row] for row in own]), TOP_K)
        residual = Activations((self.site,), torch.tensor([[self._read_at[row]] for row in own]))
        change = [self._replace(batch, heads)] if heads else []
        with observe(self.structure, *change, spectrum, residual, valid=batch.valid):
            self.structure.decoder(input_ids=batch.ids, use_cache=False)
        found = spectrum.result()["laplacian_mean"].isel({PART: 0}).transpose(EXAMPLE, LAYER, HEAD)
        activation = residual.result()["activation"].isel({SITE: 0, LAYER: self.layer, TOKEN: 0})
        return found.values.astype(np.float64), activation.values.astype(np.float64)

    def _replace(self, batch: Batch, heads: Sequence[Head]) -> Replace:
        card, tokens = self.structure.card, batch.ids.shape[1]
        where = torch.zeros(len(batch.ids), card.layers, card.heads, dtype=torch.bool)
        values = {}
        for layer, head in heads:
            where[:, layer, head] = True
            first, later = self.ablations.means[layer]
            mean = torch.cat([first[None], later[None].expand(tokens - 1, -1, -1)])  # (token, head, width)
            values[layer] = mean[None].expand(len(batch.ids), -1, -1, -1)
        return Replace(values, where)
