"""The spectrum of a question with its answer: over all its tokens, and over the answer's alone.

An answer's tokens are seen by later tokens of the answer only, so the eigenvalue λ_i of an answer token is the same
number in both; "over the answer" is a choice among them, and costs nothing more. Beside the spectrum (see `spectrum`):

| reading  | what it is, a mean over queries                                                                     |
|----------|-----------------------------------------------------------------------------------------------------|
| lookback | x / (x + y), x the weight per prompt token and y per answer token so far; answer only (Lookback Lens) |
| sink     | weight on the first token                                                                           |
| entropy  | entropy of a row over the log of the keys it can see                                                |

Cost: the spectrum's pass, with two marks and the entropy. Assumes whole sequences, prompt then answer.
"""

from __future__ import annotations

import torch
from torch import Tensor

from headwise.core.dims import PART, RANK
from headwise.instruments.readings import HeadReadings
from headwise.instruments.spectrum import largest
from headwise.kernels import ReductionRequest
from headwise.seam import AttentionCall, ForwardContext

PARTS = ("whole", "answer")
FEW = 10  # eigenvalues kept of the answer alone, and averaged into one number a head


class AnswerSpectrum(HeadReadings):
    """The spectrum of a question with its answer: eigenvalues and row statistics of every head.

    Args:
        prompts: (example,), how many first tokens of each example are the prompt.
        k: how many eigenvalues of the whole are kept.

    Examples:
        >>> import torch
        >>> from headwise.instruments import AnswerSpectrum
        >>> prompt, answer = "where was the river ?", "under the old house"
        >>> asked = torch.tensor([len(model.ids(prompt))])
        >>> with hw.observe(model, AnswerSpectrum(asked, k=5)) as seen:
        ...     _ = model(**model.encode(f"{prompt} {answer}"))
        >>> seen["answers"].lookback.sel(layer=0, part=1).values.round(2)  # part 0 is the whole, 1 the answer
        array([[0.6 , 1.  , 0.57, 0.25, 0.67, 0.52]], dtype=float32)
    """

    name = "answers"
    whole_sequences = True
    stream_safe = True
    extra_dims = {
        "laplacian": (RANK,), "attention": (RANK,), "few_laplacian": (PART,), "few_attention": (PART,),
        "attention_score": (PART,), "sink": (PART,), "entropy": (PART,), "lookback": (PART,),
    }  # fmt: skip

    def __init__(self, prompts: Tensor, k: int = 100):
        super().__init__()
        self.prompts, self.k = prompts, k

    def requested(self, context: ForwardContext) -> ReductionRequest:
        """Where the prompt and the first token are."""
        place = context.valid.cumsum(dim=1) - 1  # among the real tokens
        self.prompts = self.prompts.to(place.device)
        self._answer = context.valid & (place >= self.prompts[:, None])
        marks = {
            "answers.sink": (context.valid & (place == 0)).float(),
            "answers.prompt": (context.valid & ~self._answer).float(),
            "answers.answer": self._answer.float(),
        }
        return ReductionRequest(column_sums=True, log_diagonal=True, entropy=True, key_weights=marks)

    def measure(self, call: AttentionCall) -> dict[str, Tensor]:
        """Sort and average one layer."""
        r, mask = call.reductions, call.attention.mask
        assert r.column_sums is not None and r.log_diagonal is not None and r.entropy is not None
        seen = mask.n_visible_keys(call.batch)  # (batch, 1, query)
        diagonal = r.log_diagonal.exp()
        laplacian = r.column_sums / mask.n_visible_queries(call.batch).clamp(min=1) - diagonal
        later = call.valid & (seen[:, 0] > 1)  # the first token has no choice where to look
        answer = self._answer.to(diagonal.device)
        parts = (call.valid, answer)
        rows = (later, later & answer)
        return {
            "laplacian": largest(laplacian, call.valid, self.k),
            "attention": largest(diagonal, call.valid, self.k),
            "few_laplacian": _each([largest(laplacian, part, FEW).nanmean(dim=-1) for part in parts]),
            "few_attention": _each([largest(diagonal, part, FEW).nanmean(dim=-1) for part in parts]),
            "attention_score": _each([_mean(r.log_diagonal, part) for part in parts]),
            "sink": _each([_mean(r.key_weights["answers.sink"], part) for part in rows]),
            "entropy": _each([_mean(r.entropy / seen.clamp(min=2).log(), part) for part in rows]),
            "lookback": self._lookback(r.key_weights["answers.prompt"], r.key_weights["answers.answer"], answer),
        }

    def _lookback(self, on_prompt: Tensor, on_answer: Tensor, answer: Tensor) -> Tensor:
        """(batch, head, part): of the answer's tokens; the whole has no such number."""
        x = on_prompt / self.prompts.to(on_prompt.device).clamp(min=1)[:, None, None]
        y = on_answer / answer.cumsum(dim=1).clamp(min=1)[:, None, :]  # answer tokens up to and with this one
        ratio = _mean(x / (x + y).clamp(min=1e-30), answer)
        return _each([torch.full_like(ratio, torch.nan), ratio])


def _mean(rows: Tensor, where: Tensor) -> Tensor:
    """(batch, head): mean over some queries; NaN where there are none."""
    kept = torch.where(where[:, None], rows, 0.0).sum(dim=-1)
    count = where.sum(dim=1).float()[:, None]
    return torch.where(count > 0, kept / count.clamp(min=1), torch.nan)


def _each(parts: list[Tensor]) -> Tensor:
    return torch.stack(parts, dim=-1)
