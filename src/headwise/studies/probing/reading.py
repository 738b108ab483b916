"""One teacher-forced pass over questions with their answers, read at the fifteen tokens (and at the published spans').

Readings per example:

| reading   | dims                          | what                                                                  |
|-----------|-------------------------------|-----------------------------------------------------------------------|
| activation | site, layer, token, width    | the chosen sites at the fifteen tokens                                |
| published | layer, token, width           | the first site at the published exact-answer tokens; NaN: a token above |
| z         | layer, head, width            | output of each head at the last token of the exact answer             |
| received  | layer, token                  | attention received from later tokens, mean over heads                 |
| logprob   | statistic                     | log-probability, mean / min / max, of all and of exact-answer tokens  |
| p_true    |                               | the model's own judgement of its answer (`SelfJudgement`)             |

Activations are stored in half precision, which is enough for a probe, unless a value exceeds its range
(`instruments.readings.HostCopy`). Tokens are picked, halved and scored on the device, and copied while the next batch runs.
Memory: examples x sites x layers x 15 x width; nothing grows with the length of a text. Cost: one forward pass.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import xarray as xr
from numpy.typing import NDArray
from torch import Tensor

from headwise.core.dims import EXAMPLE, HEAD, LAYER, SITE, STATISTIC, TOKEN, WIDTH
from headwise.corpora import Example, has_chat_template
from headwise.instruments.activations import Activations
from headwise.instruments.outputs import HeadOutputs
from headwise.instruments.readings import HostCopy
from headwise.instruments.spectrum import AttentionReceived
from headwise.model import Model
from headwise.seam import Structure
from headwise.studies.passes import Logits, Observed, TextLogprobs, on_device, token_logprobs
from headwise.studies.probing.positions import EXACT, EXACT_COLUMNS, LAST_COLUMN, POSITIONS, Span

LOGPROBS = ("mean", "min", "max", "mean_exact", "min_exact", "max_exact")
_EXACT, _ENTRY = "exact", "entry"  # dims of shards only: the four exact-answer tokens, the entries of a head's z
_ABSENT = -1  # no token: NaN

JUDGEMENT_QUESTION = "Is that answer true? Reply with one word, True or False."
PLAIN_QUESTION = "\nIs that answer true, True or False?\nAnswer:"  # without a chat template
_STAND_IN = "QQQQ"  # for the answer, in a chat template


@dataclass(frozen=True)
class SelfJudgement:
    """p(True): the model is asked, in the next turn, whether its answer is true.

        prompt | answer | "Is that answer true? ... True or False" -> P(True) / (P(True) + P(False)) of the next token

    The question is the same for every row: a fixed suffix after prompt and answer, so that one pass over all three
    suffices (in a causal model what comes later changes nothing before it). Kadavath et al. (arXiv 2207.05221) ask in a
    new prompt; asking in the next turn costs a fraction of that. A model with a chat template is asked in a user's turn,
    another in plain text.
    """

    suffix: tuple[int, ...]
    true: tuple[int, ...]  # first tokens that count as yes, the one that the question leads to first
    false: tuple[int, ...]  # and as no

    @classmethod
    def of(cls, model: Model, *, chat: bool) -> SelfJudgement | None:
        """None where the first tokens of the two words are not distinct."""
        tokenizer: Any = model.tokenizer

        def ids(text: str) -> list[int]:
            return list(tokenizer(text, add_special_tokens=False)["input_ids"])

        asked = _after_answer(tokenizer) if chat and has_chat_template(model) else PLAIN_QUESTION
        suffix, before = ids(asked), ("", " ") if asked[-1:].isspace() else (" ", "")
        true, false = (
            tuple(dict.fromkeys(found[0] for space in before if (found := ids(f"{space}{word}"))))
            for word in ("True", "False")
        )
        distinct = bool(true) and bool(false) and not set(true) & set(false) and suffix
        unknown = getattr(tokenizer, "unk_token_id", None)
        return cls(tuple(suffix), true, false) if distinct and unknown not in (*true, *false) else None

    def probability(self, logits: Tensor) -> Tensor:
        """(row,): P(True) against P(False), from the logits (row, vocabulary) after the suffix."""
        columns = (on_device(logits.device, ids) for ids in (self.true, self.false))
        yes, no = (logits.index_select(1, own).float().logsumexp(dim=1) for own in columns)
        return torch.sigmoid(yes - no)


def _after_answer(tokenizer: Any) -> str:
    """What a chat template writes from the end of an answer to the beginning of the next one."""
    turns = [("user", "?"), ("assistant", _STAND_IN), ("user", JUDGEMENT_QUESTION)]
    try:
        text = tokenizer.apply_chat_template(
            [{"role": role, "content": content} for role, content in turns], tokenize=False, add_generation_prompt=True
        )
    except Exception:  # a template may refuse such a chat, with any exception (jinja)
        return PLAIN_QUESTION
    _, found, after = str(text).rpartition(_STAND_IN)
    return after if found else PLAIN_QUESTION


@dataclass(frozen=True)
class ProbedAnswer:
    """A question with its answer as tokens, and the positions where it is probed."""

    id: str
    prompt: tuple[int, ...]
    answer: tuple[int, ...]
    span: Span
    positions: NDArray[np.int64]  # (15,)
    published: NDArray[np.int64]  # (4,), of the exact-answer tokens, found the published way


class ProbingReader:
    """Reads activations, head outputs, received attention and log-probabilities at the tokens that are probed."""

    def __init__(
        self,
        structure: Structure,
        answers: Sequence[ProbedAnswer],
        sites: Sequence[str],
        judgement: SelfJudgement | None,
        batch_tokens: int,
    ) -> None:
        self.structure, self.batch_tokens = structure, batch_tokens
        self._answers, self._sites, self._judgement = answers, sites, judgement
        self.texts: Sequence[Example] = [Example(one.id, "answer", one.prompt + one.answer) for one in answers]
        context = structure.card.max_positions
        suffix = judgement.suffix if judgement is not None else ()
        self.suffixes: Sequence[tuple[int, ...]] = [
            suffix if context is None or len(text.ids) + len(suffix) <= context else () for text in self.texts
        ]

    def first_logit(self, rows: Sequence[int]) -> int | None:
        """The last token of the shortest prompt."""
        return min(len(self._answers[row].prompt) for row in rows) - 1

    def observe(self, rows: Sequence[int | None]) -> Observed:
        """The chosen sites at the fifteen tokens and at the published spans, every head's output, received attention."""
        some = next(row for row in rows if row is not None)  # stands in for texts of other studies, which are dropped
        answers = [self._answers[some if row is None else row] for row in rows]
        positions = torch.tensor(np.stack([one.positions for one in answers]))
        published = torch.tensor(np.stack([one.published for one in answers]))
        published[published == positions[:, EXACT_COLUMNS]] = _ABSENT
        for row, index in enumerate(rows):
            if index is None:
                positions[row], published[row] = 0, _ABSENT
        at = Activations(self._sites, positions, half=True)
        at_published = Activations(self._sites[:1], published, half=True)
        outputs, received = HeadOutputs(positions[:, [LAST_COLUMN]], half=True), AttentionReceived(positions)

        def collect(logits: Logits | None) -> Callable[[], xr.Dataset]:
            assert logits is not None
            copy = HostCopy()
            said = {row: self._answers[index] for row, index in enumerate(rows) if index is not None}
            asked = {row: index for row, index in enumerate(rows) if index is not None and self.suffixes[index]}
            scored = {row: TextLogprobs(len(one.prompt), one.answer) for row, one in said.items()}
            logprobs, true = copy.start(token_logprobs(logits, scored)), copy.start(self._p_true(logits, asked))

            def read() -> xr.Dataset:
                copy.wait()
                p_true = np.full(len(rows), np.nan, dtype=np.float32)
                p_true[list(asked)] = true().numpy()
                return xr.Dataset(
                    {
                        "activation": at.result()["activation"].variable,
                        "published": ((EXAMPLE, LAYER, _EXACT, WIDTH), at_published.result()["activation"].values[:, 0]),
                        "z": ((EXAMPLE, LAYER, HEAD, _ENTRY), outputs.result()["z"].values[:, :, :, 0]),
                        "received": ((EXAMPLE, LAYER, TOKEN), _mean_over_heads(received.result()["received"].values)),
                        "logprob": ((EXAMPLE, STATISTIC), _statistics(logprobs().numpy(), said, len(rows))),
                        "p_true": ((EXAMPLE,), p_true),
                    },
                    coords={
                        SITE: list(self._sites), TOKEN: list(POSITIONS), _EXACT: list(EXACT), STATISTIC: list(LOGPROBS),
                    },
                )  # fmt: skip

            return read

        return Observed((at, at_published, outputs, received), collect)

    def _p_true(self, logits: Logits, asked: Mapping[int, int]) -> Tensor:
        """(row,): P(True) at the last token of the suffix, of the ``asked``: row of the batch -> answer."""
        if self._judgement is None or not asked:
            return torch.empty(0)
        ends = [len(self.texts[index].ids) + len(self.suffixes[index]) - 1 - logits.first for index in asked.values()]
        device = logits.values.device
        return self._judgement.probability(logits.values[on_device(device, list(asked)), on_device(device, ends)])


def _statistics(logprobs: NDArray[np.float32], said: Mapping[int, ProbedAnswer], rows: int) -> NDArray[np.float32]:
    """(row, statistic): the six of each answer; NaN in rows without one."""
    found = np.full((rows, len(LOGPROBS)), np.nan, np.float32)
    ends = np.cumsum([len(one.answer) for one in said.values()])
    for (row, one), every in zip(said.items(), np.split(logprobs, ends[:-1]), strict=True):
        exact = every[one.span[0] : one.span[1] + 1]
        found[row] = [f(part) for part in (every, exact) for f in (np.mean, np.min, np.max)]
    return found


def _mean_over_heads(received: NDArray[np.float32]) -> NDArray[np.float32]:
    """(example, layer, token): NaN where no head has a value."""
    measured = np.isfinite(received)
    count = measured.sum(axis=2)
    total = np.where(measured, received, 0.0).sum(axis=2)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan).astype(np.float32)
