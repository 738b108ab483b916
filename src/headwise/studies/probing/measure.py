"""At which layer and token can a probe detect that the answer is wrong?

Shown: every question with the answer the model gave (study `answers`), prompt and answer in one teacher-forced pass.
Observed: activations at fifteen tokens (`positions`) of every layer, at chosen sites; every head's output at the
exact answer; how much attention the fifteen tokens receive (`reading`). Refusals and empty answers are left out and counted.
An answer in which no exact answer is found is read at its last token instead, and counted: nearly all such answers are
wrong, and leaving them out would make the task another one. Numbers without them stand next to those with them.

Then, at every layer and token, a logistic probe predicts "wrong": AUROC over 5 folds with its confidence interval, against
permuted labels; the same for every head; the best cell scored on rows that did not choose it; the published spans and
the paper's protocol for comparison; a table with baselines (`finalize`); and a cross-topic matrix (`transfer`).

After Orgad et al. (arXiv 2410.02707). The spans of exact answers are found label-blind by default (`corpora.extraction`):
the published method searches for the right answer where the answer is right, and so leaks the label.

Cost: one pass, and about 0.06 s per cell for 500 answers on one core; 500 questions with the default model, 30 layers x 15
tokens at two sites and 270 heads, take about two minutes on two cores.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from headwise.core.dims import EXAMPLE
from headwise.core.errors import DataError, SeamError
from headwise.core.provenance import Provenance
from headwise.corpora import BLIND, PUBLISHED, decode_ids
from headwise.engines import Shard
from headwise.instruments.activations import Activations
from headwise.model import Model
from headwise.seam import Structure
from headwise.studies.inputs import StudyInputs, require_both_classes
from headwise.studies.passes import Sizes, choose_sizes, read_together
from headwise.studies.probing.finalize import finalize
from headwise.studies.probing.positions import (
    EXACT,
    POSITIONS,
    Positions,
    Span,
    exact_spans,
    parse_ids,
    positions_of,
)
from headwise.studies.probing.reading import ProbedAnswer, ProbingReader, SelfJudgement
from headwise.studies.probing.spec import SPEC, ProbingOptions
from headwise.studies.question_controls import is_judged
from headwise.studies.run import StudyRun

MIN_SHARE_WITH_EXACT = 0.5  # of the wrong and correct answers
DEFAULT_SITES = ("mlp_in", "residual")
FALLBACK_SITES = ("residual", "attention_out")  # for families whose MLP is not one module


def prepare(model: Model, inputs: StudyInputs, options: ProbingOptions | None = None) -> StudyRun:
    """The probing study of this model on its answers (the Dataset of the study `answers`)."""
    options = options or ProbingOptions()
    answers = inputs.maps["answers"]
    structure = Structure(model)
    sites = options.sites or _default_sites(structure)
    blind = exact_spans(model, answers)
    published = exact_spans(model, answers, PUBLISHED, options.extractor)
    chosen = blind if options.spans == BLIND else published
    retained, counts = _select_answers(answers, chosen)
    has_exact = np.array([span is not None for span in chosen], dtype=bool)[retained]
    answers = answers.isel({EXAMPLE: retained})
    rows = np.flatnonzero(retained)
    ends = answers["answer_tokens"].values.astype(int) - 1
    spans = [chosen[row] or (int(end), int(end)) for row, end in zip(rows, ends, strict=True)]
    others = [published[row] or span for row, span in zip(rows, spans, strict=True)]
    probed, positions = _probed_answers(answers, spans, others)
    origin = Provenance.from_attrs(answers.attrs)
    judgement = SelfJudgement.of(model, chat=bool(origin.parameters.get("chat"))) if options.p_true else None
    card = model.card
    read_bytes = 2.0 * card.layers * (len(sites) * len(POSITIONS) * card.hidden_size + card.heads * card.value_dim)
    sizes = choose_sizes(options, structure, tokens=2048, shard=64, example_bytes=read_bytes, logits=True)
    reader = ProbingReader(structure, probed, sites, judgement, sizes.tokens_that_fit)

    def measure(shard: Shard) -> xr.Dataset:
        return read_together({SPEC.name: reader}, [one.id for one in probed[shard.start : shard.stop]])[SPEC.name]

    def finish(shards: Sequence[xr.Dataset]) -> dict[str, xr.Dataset]:
        texts = [decode_ids(model.tokenizer, one.answer[one.span[0] : one.span[1] + 1]).strip() for one in probed]
        found = finalize(shards, answers, probed, positions, options, has_exact, structure.device)
        counts["spans_differ"] = sum(one != other for one, other in zip(spans, others, strict=True))
        found = found.assign(exact=(EXAMPLE, np.where(has_exact, np.array(texts, dtype=object), "")))
        return {SPEC.name: found.assign_attrs(counts=json.dumps(counts))}

    provenance = _provenance(model, origin, len(probed), options, sites, sizes)
    return StudyRun(provenance, len(probed), sizes.shard, measure, finish, reader=reader)


def _default_sites(structure: Structure) -> tuple[str, ...]:
    try:
        with ExitStack() as stack:
            Activations(DEFAULT_SITES).setup(structure, stack)
    except SeamError:
        return FALLBACK_SITES
    return DEFAULT_SITES


def _select_answers(answers: xr.Dataset, spans: Sequence[Span | None]) -> tuple[NDArray[np.bool_], dict[str, int]]:
    """Which answers are probed, and how many are not and why; refused if too few are left or have an exact answer."""
    label = np.array([str(one) for one in answers["label"].values])
    without = np.array([span is None for span in spans], dtype=bool)
    retained = is_judged(answers)
    if (retained & without).sum() > (1 - MIN_SHARE_WITH_EXACT) * retained.sum():
        raise DataError(
            f"no exact answer was found in {int((retained & without).sum())} of {int(retained.sum())} answers, and "
            "probing reads at the exact answer; ask for short answers in English, or find them with another model "
            "(spans='published', extractor=...)"
        )
    wrong, correct = (int((retained & (label == what)).sum()) for what in ("wrong", "correct"))
    require_both_classes(wrong, correct, len(label))
    counts = {"refused": int((label == "refused").sum())}
    counts |= {kind: int((retained & (label == kind)).sum()) for kind in ("wrong", "correct")}
    counts |= {
        f"without_exact_{kind}": int((retained & without & (label == kind)).sum()) for kind in ("wrong", "correct")
    }
    counts["cut"] = int((retained & ~answers["finished"].values.astype(bool)).sum())
    return retained, counts


def _probed_answers(
    answers: xr.Dataset, spans: Sequence[Span], published: Sequence[Span]
) -> tuple[list[ProbedAnswer], Positions]:
    prompts, replies = ([parse_ids(text) for text in answers[name].values] for name in ("prompt_ids", "answer_ids"))
    lengths = [len(ids) for ids in prompts], [len(ids) for ids in replies]
    ours, theirs = positions_of(*lengths, spans), positions_of(*lengths, published)
    exact = [POSITIONS.index(name) for name in EXACT]
    names = [str(name) for name in answers[EXAMPLE].values]
    rows = zip(names, prompts, replies, spans, ours.index, theirs.index[:, exact], strict=True)
    return [ProbedAnswer(*row) for row in rows], ours


def _provenance(
    model: Model, origin: Provenance, size: int, options: ProbingOptions, sites: Sequence[str], sizes: Sizes
) -> Provenance:
    data = {"name": origin.data.get("name"), "size": size, "digest": origin.key()}
    parameters = {key: value for key, value in asdict(options).items() if key not in ("seed", "extractor")}
    parameters |= sizes.parameters
    served = options.extractor
    parameters |= {"sites": list(sites), "extractor": None if served is None else f"{served.model} at {served.url}"}
    parameters["judge"] = origin.parameters.get("judge")
    return Provenance(SPEC.name, SPEC.version, model.identity(), data, parameters, options.seed)
