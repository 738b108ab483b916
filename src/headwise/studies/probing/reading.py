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

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import xarray as xr
from numpy.typing import NDArray

from headwise.core.dims import EXAMPLE, HEAD, LAYER, SITE, STATISTIC, TOKEN, WIDTH
from headwise.corpora import Example
from headwise.instruments import Activations, AttentionReceived, HeadOutputs
from headwise.seam import Structure
from headwise.studies.passes import Logits, Observed, read_together
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


class ProbingReader:
    """Reads activations, head outputs, received attention and log-probabilities at the tokens that are probed."""

    def __init__(
        self,
        structure: Structure,
        asked: Sequence[Asked],
        sites: Sequence[str],
        judgement: SelfJudgement | None,
        batch_tokens: int,
    ) -> None:
        self.structure, self.batch_tokens = structure, batch_tokens
        self._asked, self._sites, self._judgement = asked, sites, judgement
        self.texts: Sequence[Example] = [Example(one.id, "answer", one.prompt + one.answer) for one in asked]
        context = structure.card.max_positions
        suffix = judgement.suffix if judgement is not None else ()
        self.suffixes: Sequence[tuple[int, ...]] = [
            suffix if context is None or len(text.ids) + len(suffix) <= context else () for text in self.texts
        ]

    def first_logit(self, rows: Sequence[int]) -> int | None:
        """The last token of the shortest prompt."""
        return min(len(self._asked[row].prompt) for row in rows) - 1

    def observe(self, rows: Sequence[int | None]) -> Observed:
        """The chosen sites at the fifteen tokens and at the published spans, every head's output, received attention."""
        some = next(row for row in rows if row is not None)  # stands in for texts of other studies, which are dropped
        asked = [self._asked[some if row is None else row] for row in rows]
        tokens = [self.texts[some if row is None else row] for row in rows]
        places = torch.tensor(np.stack([one.places for one in asked]))
        published = torch.tensor(np.stack([one.published for one in asked]))
        for row, index in enumerate(rows):
            if index is None:
                places[row] = published[row] = 0
        at, at_published = Activations(self._sites, places), Activations(self._sites[:1], published)
        outputs, received = HeadOutputs(places[:, [POSITIONS.index(LAST)]]), AttentionReceived(places)
        judged = [index is not None and bool(self.suffixes[index]) for index in rows]

        def collect(logits: Logits | None) -> Callable[[], xr.Dataset]:
            assert logits is not None
            scores = np.stack(
                [
                    np.full(len(LOGPROBS), np.nan, np.float32) if index is None else _logprobs(logits, row, one)
                    for row, (index, one) in enumerate(zip(rows, asked, strict=True))
                ]
            )
            true = [
                self._p_true(logits, row, len(text.ids)) if had else np.nan
                for row, (had, text) in enumerate(zip(judged, tokens, strict=True))
            ]
            return lambda: xr.Dataset(
                {
                    "activation": ((EXAMPLE, SITE, LAYER, TOKEN, WIDTH), _halved(at.result()["activation"].values)),
                    "published": (
                        (EXAMPLE, LAYER, _EXACT, WIDTH),
                        _halved(at_published.result()["activation"].values[:, 0]),
                    ),
                    "z": ((EXAMPLE, LAYER, HEAD, _ENTRY), _halved(outputs.result()["z"].values[:, :, :, 0])),
                    "received": ((EXAMPLE, LAYER, TOKEN), _over_heads(received.result()["received"].values)),
                    "logprob": ((EXAMPLE, STATISTIC), scores),
                    "p_true": ((EXAMPLE,), np.array(true, dtype=np.float32)),
                },
                coords={
                    SITE: list(self._sites), TOKEN: list(POSITIONS), _EXACT: list(EXACT), STATISTIC: list(LOGPROBS),
                },
            )  # fmt: skip

        return Observed((at, at_published, outputs, received), collect)

    def _p_true(self, logits: Logits, row: int, length: int) -> float:
        """P(True) at the last token of the appended question."""
        assert self._judgement is not None
        end = length + len(self._judgement.suffix) - 1 - logits.first
        return float(self._judgement.probability(logits.values[row, end][None]).cpu()[0])


def read(
    structure: Structure,
    asked: Sequence[Asked],
    sites: Sequence[str],
    judgement: SelfJudgement | None,
    batch_tokens: int,
) -> xr.Dataset:
    """The readings of some questions, in the order they were given."""
    reader = ProbingReader(structure, asked, sites, judgement, batch_tokens)
    return read_together({"probing": reader}, [one.id for one in asked])["probing"]


def _logprobs(logits: Logits, row: int, one: Asked) -> NDArray[np.float32]:
    """The six statistics of one answer."""
    start = len(one.prompt) - 1 - logits.first
    own = logits.values[row, start : start + len(one.answer)].float().log_softmax(dim=-1)
    target = torch.tensor(one.answer, device=own.device)
    every = own.gather(1, target[:, None])[:, 0].cpu().numpy()
    exact = every[one.span[0] : one.span[1] + 1]
    return np.array([f(part) for part in (every, exact) for f in (np.mean, np.min, np.max)], dtype=np.float32)


def _halved(values: NDArray[np.float32]) -> NDArray[Any]:
    finite = np.abs(values[np.isfinite(values)])
    return values.astype(np.float16) if not finite.size or finite.max() < _HALF else values


def _over_heads(received: NDArray[np.float32]) -> NDArray[np.float32]:
    """(example, layer, token): mean over the heads that there are; NaN where there are none."""
    there = np.isfinite(received)
    count = there.sum(axis=2)
    total = np.where(there, received, 0.0).sum(axis=2)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan).astype(np.float32)
