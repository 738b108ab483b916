"""One teacher-forced pass over questions with their answers, read at the fifteen tokens (and at the published spans').

Kept of a pass, for each example:

| reading   | dims                          | what                                                                  |
|-----------|-------------------------------|-----------------------------------------------------------------------|
| activation | site, layer, token, width    | the chosen sites at the fifteen tokens                                |
| published | layer, token, width           | the first site at the four exact-answer tokens of the published spans |
| z         | layer, head, width            | what each head puts out at the last token of the exact answer         |
| received  | layer, token                  | attention received from later tokens, mean over heads                 |
| logprob   | statistic                     | log-probability, mean / min / max, of all and of exact-answer tokens  |
| p_true    |                               | see `self_judgement`                                                  |

Activations are kept in half precision, which is what a probe can use of them, unless a number is too large for that.
Memory: examples x sites x layers x 15 x width; nothing grows with the length of a text. Cost: one pass.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import xarray as xr
from numpy.typing import NDArray
from torch import Tensor

from headwise.core.dims import EXAMPLE, HEAD, LAYER, SITE, STATISTIC, TOKEN, WIDTH
from headwise.corpora import Batch, Example
from headwise.instruments import Activations, AttentionReceived, HeadOutputs
from headwise.seam import Structure, observe
from headwise.studies.passes import observe_examples
from headwise.studies.probing.positions import EXACT, LAST, POSITIONS
from headwise.studies.probing.self_judgement import SelfJudgement

__all__ = ["LOGPROBS", "Asked", "read"]

LOGPROBS = ("mean", "min", "max", "mean_exact", "min_exact", "max_exact")
_EXACT, _ENTRY = "exact", "entry"  # dims of shards alone: the four exact-answer tokens, the entries of a head's z
_HALF = 6e4  # larger numbers are no half-precision numbers


@dataclass(frozen=True)
class Asked:
    """A question with its answer as tokens, and where it is read."""

    id: str
    prompt: tuple[int, ...]
    answer: tuple[int, ...]
    span: tuple[int, int]  # first and last token of the exact answer, among the answer's
    places: NDArray[np.int64]  # (position,) of the fifteen
    published: NDArray[np.int64]  # (4,) of the exact-answer tokens, the published way


def read(
    structure: Structure,
    asked: Sequence[Asked],
    sites: Sequence[str],
    judgement: SelfJudgement | None,
    batch_tokens: int,
) -> xr.Dataset:
    """The readings of some questions, in the order they were given."""
    most = structure.card.max_positions
    suffix = judgement.suffix if judgement is not None else ()
    examples = []
    for one in asked:
        ids = one.prompt + one.answer
        fits = most is None or len(ids) + len(suffix) <= most
        examples.append(Example(one.id, "answer", ids + suffix if fits else ids))
    return observe_examples(
        examples,
        batch_tokens,
        structure.device,
        lambda batch: _pass(structure, batch, [asked[index] for index in batch.indices], sites, judgement),
    )


def _pass(
    structure: Structure, batch: Batch, rows: Sequence[Asked], sites: Sequence[str], judgement: SelfJudgement | None
) -> xr.Dataset:
    lengths = torch.tensor([len(one.prompt) + len(one.answer) for one in rows])
    valid = torch.arange(batch.ids.shape[1]) < lengths[:, None]  # what is asked behind the answer does not count
    places = torch.tensor(np.stack([one.places for one in rows]))
    published = torch.tensor(np.stack([one.published for one in rows]))
    at, at_published = Activations(sites, places), Activations(sites[:1], published)
    outputs, received = HeadOutputs(places[:, [POSITIONS.index(LAST)]]), AttentionReceived(places)
    first = min(len(one.prompt) for one in rows) - 1
    with (
        torch.no_grad(),
        observe(structure, at, at_published, outputs, received, valid=valid.to(batch.ids.device)),
    ):
        logits = _logits(structure, batch.ids, batch.ids.shape[1] - first)  # of the tokens from `first` on
    judged = [np.nan] * len(rows) if judgement is None else _p_true(judgement, logits, batch, lengths, first)
    variables = {
        "activation": ((EXAMPLE, SITE, LAYER, TOKEN, WIDTH), _halved(at.result()["activation"].values)),
        "published": (
            (EXAMPLE, LAYER, _EXACT, WIDTH),
            _halved(at_published.result()["activation"].values[:, 0]),
        ),
        "z": ((EXAMPLE, LAYER, HEAD, _ENTRY), _halved(outputs.result()["z"].values[:, :, :, 0])),
        "received": ((EXAMPLE, LAYER, TOKEN), _over_heads(received.result()["received"].values)),
        "logprob": ((EXAMPLE, STATISTIC), np.array([_logprobs(logits[i], one, first) for i, one in enumerate(rows)])),
        "p_true": ((EXAMPLE,), np.array(judged, dtype=np.float32)),
    }
    return xr.Dataset(
        variables, coords={SITE: list(sites), TOKEN: list(POSITIONS), _EXACT: list(EXACT), STATISTIC: list(LOGPROBS)}
    )


def _logits(structure: Structure, ids: Tensor, keep: int) -> Tensor:
    """(batch, keep, vocabulary), of the last tokens."""
    keeps = "logits_to_keep" in inspect.signature(structure.hf.forward).parameters
    more: dict[str, Any] = {"logits_to_keep": keep} if keeps else {}
    logits: Tensor = structure.hf(input_ids=ids, use_cache=False, **more).logits
    return logits[:, -keep:]


def _logprobs(logits: Tensor, one: Asked, first: int) -> NDArray[np.float32]:
    """The six statistics of one answer; `logits` begin at token `first` of the text."""
    start = len(one.prompt) - 1 - first
    own = logits[start : start + len(one.answer)].float().log_softmax(dim=-1)
    target = torch.tensor(one.answer, device=own.device)
    every = own.gather(1, target[:, None])[:, 0].cpu().numpy()
    exact = every[one.span[0] : one.span[1] + 1]
    return np.array([f(part) for part in (every, exact) for f in (np.mean, np.min, np.max)], dtype=np.float32)


def _p_true(judgement: SelfJudgement, logits: Tensor, batch: Batch, lengths: Tensor, first: int) -> list[float]:
    ends = lengths + len(judgement.suffix) - 1 - first  # the last token of the suffix
    asked = batch.valid.sum(dim=1).cpu() > lengths  # rows that had room for it
    last = torch.stack([logits[row, end] for row, end in enumerate(ends.clamp(max=logits.shape[1] - 1).tolist())])
    found = judgement.probability(last).cpu()
    return torch.where(asked, found, torch.nan).tolist()


def _halved(values: NDArray[np.float32]) -> NDArray[Any]:
    finite = np.abs(values[np.isfinite(values)])
    return values.astype(np.float16) if not finite.size or finite.max() < _HALF else values


def _over_heads(received: NDArray[np.float32]) -> NDArray[np.float32]:
    """(example, layer, token): mean over the heads that there are; NaN where there are none."""
    there = np.isfinite(received)
    count = there.sum(axis=2)
    total = np.where(there, received, 0.0).sum(axis=2)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan).astype(np.float32)
