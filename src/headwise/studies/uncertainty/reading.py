"""What is read of an answer in passes over prompt and answer: its tokens' probabilities, RAUQ, sinks; and p(True).

`UncertaintyReader` shares its pass with the reader of the study `spectral` (`passes.read_together`), so every answer is shown
once. `JudgementReader` has a pass of its own, with the question about the answer and the reply True appended, so that its cost
can be measured; and one more, with the reply False, for the contrast pair.

| reading | dims | what |
|---------|------|------|
| logprobs, token_entropy | token | of the answer's tokens, NaN after the last |
| relevance | token | how much of the answer's meaning hangs on the token (`headwise.scores.relevance`) |
| rauq | | `probes.running_scores.Rauq` of the whole answer |
| received | layer, head, rank | the k largest mean weights that a token receives |
| hidden_log_det | | mean log eigenvalue of the answer's hidden states at the chosen layer |
| p_true | | P(True) against P(False); NaN where the question does not fit into the context |
| hidden_true, hidden_false | width | residual stream after the last layer at that reply; NaN likewise |

Cost: a pass each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
import xarray as xr
from numpy.typing import NDArray

from headwise.core.dims import EXAMPLE, HEAD, LAYER, RANK, SITE, TOKEN
from headwise.corpora import Example
from headwise.instruments.activations import Activations
from headwise.instruments.answer_rows import AnswerRows
from headwise.instruments.hidden_log_det import HiddenLogDet
from headwise.instruments.readings import HostCopy
from headwise.instruments.spectrum import SinkScores
from headwise.probes.running_scores import SELF_LOG, Rauq, prefix_scores
from headwise.seam import Structure
from headwise.studies.decoding import Ids
from headwise.studies.passes import Logits, Observed, TextLogprobs, on_device, token_entropies, token_logprobs
from headwise.studies.probing.reading import SelfJudgement

Floats = NDArray[np.float64]


class UncertaintyReader:
    """Reads what scores of an answer need beyond the spectrum, in the same pass.

    Args:
        structure: of the model.
        names: of the examples.
        prompts: token ids of each.
        answers: token ids of each, at least one token.
        layer: of `HiddenLogDet`.
        k: of `SinkScores`.
        width: tokens of the longest answer of the whole study.
        batch_tokens: per pass.
    """

    def __init__(
        self, structure: Structure, names: Sequence[str], prompts: Sequence[Ids], answers: Sequence[Ids], *, layer: int,
        k: int, width: int, batch_tokens: int,
    ):  # fmt: skip
        self.structure, self.batch_tokens = structure, batch_tokens
        self._prompts, self._answers, self._layer, self._k, self._width = prompts, answers, layer, k, width
        self.texts: Sequence[Example] = [
            Example(name, "answer", prompt + answer)
            for name, prompt, answer in zip(names, prompts, answers, strict=True)
        ]
        self.suffixes: Sequence[tuple[int, ...]] = [()] * len(self.texts)

    def first_logit(self, rows: Sequence[int]) -> int | None:
        """The last token of the shortest prompt."""
        return min(len(self._prompts[row]) for row in rows) - 1

    def observe(self, rows: Sequence[int | None]) -> Observed:
        """Rows, columns and hidden states of the answers, and the probabilities of their tokens."""
        own = {line: row for line, row in enumerate(rows) if row is not None}
        prompts = torch.tensor([1 if row is None else len(self._prompts[row]) for row in rows])
        lengths = torch.tensor([1 if row is None else len(self._answers[row]) for row in rows])
        last = AnswerRows(prompts, lengths, counts=lengths[:, None])
        sinks, spread = SinkScores(self._k), HiddenLogDet(prompts, self._layer)

        def collect(logits: Logits | None) -> Callable[[], xr.Dataset]:
            assert logits is not None
            copy = HostCopy()
            scored = {line: TextLogprobs(len(self._prompts[row]), self._answers[row]) for line, row in own.items()}
            logprobs, entropies = (copy.start(each(logits, scored)) for each in (token_logprobs, token_entropies))
            counts = {line: len(self._answers[row]) for line, row in own.items()}

            def read() -> xr.Dataset:
                copy.wait()
                surprise = self._padded(logprobs().numpy(), counts, len(rows))
                rows_read = last.result()["row_self"].values  # (example, layer, head, token)
                return xr.Dataset(
                    {
                        "logprobs": ((EXAMPLE, TOKEN), surprise),
                        "token_entropy": ((EXAMPLE, TOKEN), self._padded(entropies().numpy(), counts, len(rows))),
                        "rauq": (EXAMPLE, _rauq(surprise, rows_read, lengths.numpy())),
                        "received": ((EXAMPLE, LAYER, HEAD, RANK), sinks.result()["received"].values),
                        "hidden_log_det": (EXAMPLE, spread.result()["hidden_log_det"].values),
                    }
                )

            return read

        return Observed((last, sinks, spread), collect)

    def _padded(self, values: NDArray[np.float32], counts: Mapping[int, int], rows: int) -> Floats:
        """(row, token) of the numbers of one row after the other, NaN after the last."""
        found = np.full((rows, self._width), np.nan)
        ends = np.cumsum(list(counts.values()))
        for (line, count), part in zip(counts.items(), np.split(values, ends[:-1]), strict=True):
            found[line, :count] = part
        return found


def _rauq(logprobs: Floats, row_self: NDArray[np.float32], lengths: NDArray[np.int64]) -> Floats:
    """(example,): RAUQ of the whole answer, from the weight on the own token in each of its rows."""
    longest = int(lengths.max())
    rows = {SELF_LOG: np.log(np.maximum(row_self[..., :longest].astype(np.float64), 1e-30))}
    scores = prefix_scores(Rauq(), np.nan_to_num(logprobs[:, :longest]), rows)
    return np.take_along_axis(scores, lengths[:, None] - 1, axis=1)[:, 0]


class JudgementReader:
    """Asks the model whether its answer is true, and puts a reply into its mouth.

    Args:
        structure: of the model.
        names: of the examples.
        prompts: token ids of each.
        answers: token ids of each.
        judgement: the question, and the tokens that count as yes and no.
        reply: the answer to it: True, whose pass gives p(True), too, or False.
        batch_tokens: per pass.
    """

    def __init__(
        self, structure: Structure, names: Sequence[str], prompts: Sequence[Ids], answers: Sequence[Ids],
        judgement: SelfJudgement, reply: bool, batch_tokens: int,
    ):  # fmt: skip
        self.structure, self.batch_tokens, self._judgement, self._reply = structure, batch_tokens, judgement, reply
        added = (*judgement.suffix, (judgement.true if reply else judgement.false)[0])
        whole = [prompt + answer + added for prompt, answer in zip(prompts, answers, strict=True)]
        context = structure.card.max_positions
        self._fits = [context is None or len(ids) <= context for ids in whole]
        self.texts: Sequence[Example] = [
            Example(name, "answer", ids if fits else ids[: -len(added)])
            for name, ids, fits in zip(names, whole, self._fits, strict=True)
        ]
        self.suffixes: Sequence[tuple[int, ...]] = [()] * len(self.texts)

    def first_logit(self, rows: Sequence[int]) -> int | None:
        """The last token of the shortest question about an answer, where p(True) is read."""
        return min(len(self.texts[row].ids) for row in rows) - 2 if self._reply else None

    def observe(self, rows: Sequence[int | None]) -> Observed:
        """The residual stream at the reply, and the logits before it."""
        asked = {line: row for line, row in enumerate(rows) if row is not None and self._fits[row]}
        last = [len(self.texts[asked[line]].ids) - 1 if line in asked else -1 for line in range(len(rows))]
        stream = Activations(positions=torch.tensor(last)[:, None])

        def collect(logits: Logits | None) -> Callable[[], xr.Dataset]:
            copy, found = HostCopy(), None
            if logits is not None and asked:
                device = logits.values.device
                ends = on_device(device, [last[line] - 1 - logits.first for line in asked])
                found = copy.start(self._judgement.probability(logits.values[on_device(device, list(asked)), ends]))

            def read() -> xr.Dataset:
                hidden = stream.result()["activation"].isel({SITE: 0, LAYER: -1, TOKEN: 0}, drop=True)
                if not self._reply:
                    return xr.Dataset({"hidden_false": hidden})
                copy.wait()
                p_true = np.full(len(rows), np.nan)
                if found is not None:
                    p_true[list(asked)] = found().numpy()
                return xr.Dataset({"p_true": (EXAMPLE, p_true), "hidden_true": hidden})

            return read

        return Observed((stream,), collect)
