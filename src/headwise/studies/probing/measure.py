"""At which layer and token does the model know that it errs?

Shown: every question with the answer the model gave (study `answers`), prompt and answer in one teacher-forced pass.
Observed: activations at fifteen tokens (`positions`) of every layer, at chosen sites; every head's output at the
exact answer; how much attention the fifteen tokens receive. Answers that were refusals, empty, or in which no exact
answer is found are left out and counted.

Then at every layer and token a logistic probe that predicts "wrong": AUROC over 5 folds with its interval, against
shuffled labels; the same for every head; the best cell scored on rows that did not choose it; the published spans and
the paper's protocol beside ours; a table with baselines; and a cross-topic matrix.

After Orgad et al. (arXiv 2410.02707). The spans of exact answers are found label-blind by default (`corpora.extraction`):
the published way looks for the right answer where the answer is right, and so leaks the label.

Cost: one pass, and about 0.06 s a cell for 500 answers on one core; 500 questions with the default model, 30 layers x 15
tokens at two sites and 270 heads, take about two minutes on two cores.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
import xarray as xr
from numpy.typing import NDArray

from headwise.core.dims import EXAMPLE, HEAD, LAYER, SITE, TOKEN
from headwise.core.errors import DataError, SeamError
from headwise.core.provenance import Provenance
from headwise.corpora import BLIND, PUBLISHED, decode_ids
from headwise.engines import Shard
from headwise.instruments import Activations
from headwise.model import Model
from headwise.probes.crossvalidation import assign_folds
from headwise.seam import Structure
from headwise.stats.permutation import permuted_labels
from headwise.studies.inputs import StudyInputs
from headwise.studies.passes import read_together
from headwise.studies.probing.leak import leak_of
from headwise.studies.probing.maps import probe_all, to_maps
from headwise.studies.probing.positions import EXACT, LAST, POSITIONS, Positions, positions_of
from headwise.studies.probing.reading import Asked, ProbingReader
from headwise.studies.probing.self_judgement import SelfJudgement
from headwise.studies.probing.spans import Span, exact_spans, ids_of
from headwise.studies.probing.spec import SPEC, ProbingOptions
from headwise.studies.probing.table import scores_of, table
from headwise.studies.probing.transfer import transfer
from headwise.studies.run import StudyRun

LEAST = 20  # answers of each class
DEFAULT_SITES = ("mlp_in", "residual")
OTHER_SITES = ("residual", "attention_out")  # for families whose MLP is not one module
LOGPROB = "Log-probability, mean of exact answer"  # what the cross-topic matrix is compared with


def prepare(model: Model, inputs: StudyInputs, options: ProbingOptions | None = None) -> StudyRun:
    """The probing study of this model on its answers (the Dataset of the study `answers`)."""
    options = options or ProbingOptions()
    answers = inputs.maps["answers"]
    structure = Structure(model)
    sites = options.sites or _usual_sites(structure)
    blind = exact_spans(model, answers)
    published = exact_spans(model, answers, PUBLISHED, options.extractor)
    chosen = blind if options.spans == BLIND else published
    keep, counts = _judged(answers, chosen)
    kept = answers.isel({EXAMPLE: keep})
    spans = [span for span, here in zip(chosen, keep, strict=True) if here and span is not None]
    others = [other or span for other, span, here in zip(published, chosen, keep, strict=True) if here and span]
    asked, positions = _asked(kept, spans, others)
    origin = Provenance.from_attrs(answers.attrs)
    judgement = SelfJudgement.of(model, chat=bool(origin.parameters.get("chat"))) if options.p_true else None
    provenance = _provenance(model, origin, len(asked), options, sites)

    reader = ProbingReader(structure, asked, sites, judgement, options.batch_tokens)

    def measure(shard: Shard) -> xr.Dataset:
        return read_together({SPEC.name: reader}, [one.id for one in asked[shard.start : shard.stop]])[SPEC.name]

    def conclude(shards: Sequence[xr.Dataset]) -> dict[str, xr.Dataset]:
        texts = [decode_ids(model.tokenizer, one.answer[one.span[0] : one.span[1] + 1]).strip() for one in asked]
        found = to_dataset(shards, kept, asked, positions, options, structure.device)
        counts["spans_differ"] = sum(one != other for one, other in zip(spans, others, strict=True))
        return {
            SPEC.name: found.assign(exact=(EXAMPLE, np.array(texts, dtype=object))).assign_attrs(
                counts=json.dumps(counts)
            )
        }

    return StudyRun(provenance, len(asked), options.shard, measure, conclude, reader=reader)


def to_dataset(
    shards: Sequence[xr.Dataset],
    answers: xr.Dataset,
    asked: Sequence[Asked],
    positions: Positions,
    options: ProbingOptions,
    device: torch.device | None = None,
) -> xr.Dataset:
    """A pure function of what was read and how the answers were judged."""
    device = device or torch.device("cpu")
    wrong = np.array([str(label) == "wrong" for label in answers["label"].values])
    fold_of = assign_folds(wrong, folds=options.folds, seed=options.seed)
    dealt = permuted_labels(wrong, fold_of, sets=options.shuffles, seed=options.seed)
    probed = probe_all(shards, wrong, fold_of, dealt, paper=options.paper, device=device)
    small = xr.concat([shard[["received", "logprob", "p_true"]] for shard in shards], dim=EXAMPLE, data_vars="all")
    layers, heads = shards[0].sizes[LAYER], shards[0].sizes[HEAD]
    variables = to_maps(probed, wrong, fold_of, layers, heads)
    variables |= _example_variables(asked, answers, wrong, fold_of)
    variables |= {
        "received": ((LAYER, TOKEN), _mean(small["received"].values)),
        "in_prompt": ((TOKEN,), positions.in_prompt),
        "moved": ((TOKEN,), positions.moved),
        "p_true": ((EXAMPLE,), small["p_true"].values.astype(np.float32)),
    }
    scores = scores_of(small, answers["answer_tokens"].values)
    first = next(iter(probed.sites.values()))
    rows, row_names = table(first, probed.heads, scores, wrong, fold_of)
    moved, topic_names = _transfer(shards, answers, wrong, scores[LOGPROB], options, device)
    coords: dict[str, Any] = {
        SITE: np.array([str(site) for site in shards[0][SITE].values], dtype=object),
        LAYER: np.arange(layers), HEAD: np.arange(heads), TOKEN: np.array(POSITIONS, dtype=object),
        EXAMPLE: answers[EXAMPLE].values,
    }  # fmt: skip
    return xr.Dataset(variables | rows | moved, coords=coords | row_names | topic_names).assign_attrs(
        title="Where the model knows that it errs",
        record=json.dumps(["head_auroc", "head_q"]),
        leak=json.dumps(leak_of(probed, wrong, fold_of)),
        folds=options.folds,
        shuffles=options.shuffles,
        spans=options.spans,
    )


# ---- what is shown --------------------------------------------------------------------------------------------------


def _usual_sites(structure: Structure) -> tuple[str, ...]:
    try:
        with ExitStack() as stack:
            Activations(DEFAULT_SITES).setup(structure, stack)
    except SeamError:
        return OTHER_SITES
    return DEFAULT_SITES


def _judged(answers: xr.Dataset, spans: Sequence[Span | None]) -> tuple[NDArray[np.bool_], dict[str, int]]:
    """Which answers are probed, and how many are not and why; refused if too few are left."""
    label = np.array([str(one) for one in answers["label"].values])
    said = answers["answer_tokens"].values > 0
    found = np.array([span is not None for span in spans], dtype=bool)
    judged = np.isin(label, ("wrong", "correct")) & said
    keep = judged & found
    if judged.any() and keep.sum() < 0.5 * judged.sum():
        raise DataError(
            f"no exact answer was found in {int((judged & ~found).sum())} of {int(judged.sum())} answers, and probing "
            "reads at the exact answer; ask for short answers in English, or find them with another model "
            "(spans='published', extractor=...)"
        )
    for what, other in (("wrong", "harder"), ("correct", "easier")):
        count = int((keep & (label == what)).sum())
        if count < LEAST:
            raise DataError(
                f"only {count} of {len(label)} answers are {what} and have an exact answer, and at least {LEAST} are "
                f"needed to probe for errors; give more or {other} questions"
            )
    counts = {kind: int((label == kind).sum()) for kind in ("refused",)}
    counts |= {kind: int((keep & (label == kind)).sum()) for kind in ("wrong", "correct")}
    counts |= {f"without_exact_{kind}": int((judged & ~found & (label == kind)).sum()) for kind in ("wrong", "correct")}
    counts["cut"] = int((keep & ~answers["finished"].values.astype(bool)).sum())
    return keep, counts


def _asked(answers: xr.Dataset, spans: Sequence[Span], published: Sequence[Span]) -> tuple[list[Asked], Positions]:
    prompts, said = ([ids_of(text) for text in answers[name].values] for name in ("prompt_ids", "answer_ids"))
    lengths = [len(ids) for ids in prompts], [len(ids) for ids in said]
    ours, theirs = positions_of(*lengths, spans), positions_of(*lengths, published)
    exact = [POSITIONS.index(name) for name in EXACT]
    names = [str(name) for name in answers[EXAMPLE].values]
    rows = zip(names, prompts, said, spans, ours.index, theirs.index[:, exact], strict=True)
    return [Asked(*row) for row in rows], ours


def _provenance(
    model: Model, origin: Provenance, size: int, options: ProbingOptions, sites: Sequence[str]
) -> Provenance:
    data = {"name": origin.data.get("name"), "size": size, "digest": origin.key()}
    parameters = {key: value for key, value in asdict(options).items() if key not in ("seed", "extractor")}
    served = options.extractor
    parameters |= {"sites": list(sites), "extractor": None if served is None else f"{served.model} at {served.url}"}
    parameters["judge"] = origin.parameters.get("judge")
    return Provenance(SPEC.name, SPEC.version, model.identity(), data, parameters, options.seed)


# ---- what is kept ---------------------------------------------------------------------------------------------------


def _example_variables(
    asked: Sequence[Asked], answers: xr.Dataset, wrong: NDArray[np.bool_], fold_of: NDArray[np.int64]
) -> dict[str, Any]:
    return {
        "wrong": ((EXAMPLE,), wrong),
        "fold_of": ((EXAMPLE,), fold_of),
        "exact_first": ((EXAMPLE,), np.array([one.span[0] for one in asked], dtype=np.int64)),
        "exact_last": ((EXAMPLE,), np.array([one.span[1] for one in asked], dtype=np.int64)),
        "answer_tokens": ((EXAMPLE,), answers["answer_tokens"].values.astype(np.int64)),
        "topic_of": ((EXAMPLE,), np.array([str(topic) for topic in answers["topic"].values], dtype=object)),
    }


def _mean(received: NDArray[np.float32]) -> NDArray[np.float32]:
    """(layer, token) over the examples that have it."""
    there = np.isfinite(received)
    count = there.sum(axis=0)
    mean = np.where(there, received, 0.0).sum(axis=0, dtype=np.float64) / np.maximum(count, 1)
    return np.where(count > 0, mean, np.nan).astype(np.float32)


def _transfer(
    shards: Sequence[xr.Dataset],
    answers: xr.Dataset,
    wrong: NDArray[np.bool_],
    logprob: NDArray[np.float64],
    options: ProbingOptions,
    device: torch.device,
) -> tuple[dict[str, Any], dict[str, Any]]:
    topics = np.array([str(topic) for topic in answers["topic"].values])
    if len(set(topics.tolist())) < 2:
        return {}, {}
    token = POSITIONS.index(LAST)
    exact = np.concatenate([shard["activation"].values[:, 0, :, token] for shard in shards])  # (row, layer, width)
    asked = np.concatenate([shard["activation"].values[:, 0, exact.shape[1] // 2, 0] for shard in shards])
    measured = np.isfinite(exact).all(axis=(0, 2))
    layers = torch.from_numpy(exact[:, measured].astype(np.float32)).transpose(0, 1).contiguous().to(device)
    return transfer(layers, wrong, topics, asked.astype(np.float64), logprob, options.seed)
