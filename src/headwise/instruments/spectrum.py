"""Spectra of attention maps: the eigenvalues of A and of its Laplacian, and the attention that tokens receive.

    d_i = sum_{u >= i} a_ui / (queries that can see i)      attention received by token i, its own included
    λ_i = d_i - a_ii                                         eigenvalues of L = D - A

A is lower triangular, so the eigenvalues of L and of A are their diagonals: no decomposition, only column sums and the
diagonal (Binkowski et al., arXiv 2502.17598). `Spectrum` reads the k largest λ_i and a_ii in descending order, and the mean
of log a_ii (`log_determinant`), from the logits, so it does not underflow.

`AnswerSpectrum` reads a question with its answer: over all tokens, and over the answer's alone. One number per head
summarises the eigenvalues of each part (`laplacian_mean`, `attention_mean`):

    whole    mean of the ten largest λ_i, of the ten largest a_ii
    answer   mean of r_i - a_ii over the answer's tokens but the last;  mean of a_ii over the answer's tokens

with r_i the mean weight that token i receives from later tokens; r_i - a_ii is λ_i (m + 1) / m for m later tokens. Answers
have 1 to 30 tokens, and there the mean of the ten largest measures the length: the last token's λ is always 0, the one
before it is halved, ten of nine tokens are all of them and ten of thirty the upper third. Over the default model's answers
the mean |rank correlation| with length over heads was .57; it is .30 by this definition, as for the other readings of the
answer (.22 to .31), and 0 for random attention (tested). An answer of one token has no later token: `laplacian_mean` is
NaN, and tests leave it out.

Besides the spectrum, as means over queries:

| reading  | definition                                                                                          |
|----------|-----------------------------------------------------------------------------------------------------|
| lookback | x / (x + y), x the weight per prompt token, y per previous answer token; answer only (Lookback Lens) |
| sink     | weight on the first token                                                                           |
| entropy  | entropy of a row over the log of its visible keys                                                   |

**Sparse models.** A closed gate has weight 0, and one such a_ii would make the mean log -inf: its log counts as `FLOOR`, -80
(a weight of 2e-35), here and in `Spectrum`. AttnScore of a sparse model is then mostly -80 times the share of tokens that
do not attend to themselves. A row whose gates are all closed counts as 0 in lookback, sink and entropy.

`SinkScores` reads the k largest d_i of every head (SinkProbe, Binkowski et al., arXiv 2604.10697).

`AttentionReceived` reads, at chosen tokens, r_j = sum_{i > j} a_ij / (later queries that can see j): the mean weight from
later tokens, NaN for the last token.

Cost: one streamed pass, about 1.1x a plain forward pass at 1,024 tokens on a CPU. Requires complete sequences: a pass on
top of a KV cache is refused, because its column sums would miss the earlier rows (`RunningSpectrum` carries them from the
prompt on). Examples with fewer than k tokens are padded with NaN.
"""

from __future__ import annotations

import torch
from torch import Tensor

from headwise.core.dims import PART, RANK, TOKEN
from headwise.core.errors import DataError
from headwise.instruments.readings import HeadReadings, PickedReadings
from headwise.kernels.blocked import FLOOR
from headwise.kernels.contract import ReductionRequest
from headwise.seam import AttentionCall, ForwardContext


class Spectrum(HeadReadings):
    """The k largest Laplacian and attention eigenvalues of every head, and the mean log-diagonal.

    Args:
        k: number of eigenvalues, largest first.

    Examples:
        >>> with hw.observe(model, hw.Spectrum(k=3)) as seen:
        ...     _ = model(**model.encode("the old river was the old river"))
        >>> seen["spectrum"].laplacian.sel(layer=0, head=3).values.round(2)  # (example, rank)
        array([[0.5 , 0.33, 0.25]], dtype=float32)
    """

    name = "spectrum"
    whole_sequences = True
    stream_safe = True
    extra_dims = {"laplacian": (RANK,), "attention": (RANK,), "log_determinant": ()}

    def __init__(self, k: int = 10):
        super().__init__()
        if k < 1:
            raise DataError(f"k is {k}; give at least 1 eigenvalue")
        self.k = k

    def requested(self, context: ForwardContext) -> ReductionRequest:
        """Column sums and the diagonal."""
        return ReductionRequest(column_sums=True, log_diagonal=True)

    def measure(self, call: AttentionCall) -> dict[str, Tensor]:
        """Sort one layer's eigenvalues."""
        sums, log_diagonal = call.reductions.column_sums, call.reductions.log_diagonal
        assert sums is not None and log_diagonal is not None
        received = sums / call.attention.mask.n_visible_queries(call.batch).clamp(min=1)
        diagonal = log_diagonal.exp()
        laplacian, attention = largest(torch.stack([received - diagonal, diagonal]), call.valid, self.k)
        return {
            "laplacian": laplacian,
            "attention": attention,
            "log_determinant": floored(log_diagonal, call).nanmean(dim=-1),
        }


def floored(log_diagonal: Tensor, call: AttentionCall) -> Tensor:
    """The log of a sparse model's weights, `FLOOR` where a gate is closed; a dense model's as it is."""
    return log_diagonal if call.attention.gate is None else log_diagonal.clamp(min=FLOOR)


def largest(values: Tensor, valid: Tensor, k: int) -> Tensor:
    """(..., batch, head, k): the k largest values over `valid` tokens (batch, token), descending, padded with NaN."""
    values = values.masked_fill(~valid[:, None], -torch.inf)
    found = values.topk(min(k, values.shape[-1]), dim=-1).values
    found = torch.nn.functional.pad(found, (0, k - found.shape[-1]), value=-torch.inf)
    return found.masked_fill(found == -torch.inf, torch.nan)


PARTS = ("whole", "answer")
TOP_K = 10  # eigenvalues of the whole text averaged into `laplacian_mean` and `attention_mean`


class AnswerSpectrum(HeadReadings):
    """The spectrum of a question with its answer: eigenvalues and row statistics of every head.

    Args:
        prompts: (example,), the number of prompt tokens of each example.
        k: number of eigenvalues over all tokens.

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
        "laplacian": (RANK,), "attention": (RANK,), "laplacian_mean": (PART,), "attention_mean": (PART,),
        "attention_score": (PART,), "sink": (PART,), "entropy": (PART,), "lookback": (PART,),
    }  # fmt: skip

    def __init__(self, prompts: Tensor, k: int = 100):
        super().__init__()
        self.prompts, self.k = prompts, k

    def requested(self, context: ForwardContext) -> ReductionRequest:
        """The spectrum's reductions, the entropy, and the weight on prompt, answer and first token."""
        position = context.valid.cumsum(dim=1) - 1  # among the real tokens
        self.prompts = self.prompts.to(position.device)
        self._answer = context.valid & (position >= self.prompts[:, None])
        marks = {
            "answers.sink": (context.valid & (position == 0)).float(),
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
        queries = mask.n_visible_queries(call.batch)  # (batch, 1, key): the token's own among them
        laplacian = r.column_sums / queries.clamp(min=1) - diagonal
        from_later = (r.column_sums - diagonal) / (queries - 1).clamp(min=1) - diagonal
        later = call.valid & (seen[:, 0] > 1)  # the first token sees only itself
        answer = self._answer.to(diagonal.device)
        parts = (call.valid, answer)
        rows = (later, later & answer)
        entropy = r.entropy / seen.clamp(min=2).log()
        if call.attention.gate is not None:
            entropy = entropy.nan_to_num(nan=0.0)  # rows whose gates are all closed; `_mean` leaves padding out
        return {
            "laplacian": largest(laplacian, call.valid, self.k),
            "attention": largest(diagonal, call.valid, self.k),
            "laplacian_mean": _each(
                [largest(laplacian, call.valid, TOP_K).nanmean(dim=-1), _mean(from_later, answer & (queries[:, 0] > 1))]
            ),
            "attention_mean": _each([largest(diagonal, call.valid, TOP_K).nanmean(dim=-1), _mean(diagonal, answer)]),
            "attention_score": _each([_mean(floored(r.log_diagonal, call), part) for part in parts]),
            "sink": _each([_mean(r.key_weights["answers.sink"], part) for part in rows]),
            "entropy": _each([_mean(entropy, part) for part in rows]),
            "lookback": self._lookback(r.key_weights["answers.prompt"], r.key_weights["answers.answer"], answer),
        }

    def _lookback(self, on_prompt: Tensor, on_answer: Tensor, answer: Tensor) -> Tensor:
        """(batch, head, part): of the answer's tokens; NaN for the whole."""
        x = on_prompt / self.prompts.to(on_prompt.device).clamp(min=1)[:, None, None]
        y = on_answer / answer.cumsum(dim=1).clamp(min=1)[:, None, :]  # answer tokens up to this one, inclusive
        ratio = _mean(x / (x + y).clamp(min=1e-30), answer)
        return _each([torch.full_like(ratio, torch.nan), ratio])


def _mean(rows: Tensor, where: Tensor) -> Tensor:
    """(batch, head): mean over some queries; NaN if there are none."""
    total = torch.where(where[:, None], rows, 0.0).sum(dim=-1)
    count = where.sum(dim=1).float()[:, None]
    return torch.where(count > 0, total / count.clamp(min=1), torch.nan)


def _each(parts: list[Tensor]) -> Tensor:
    return torch.stack(parts, dim=-1)


class SinkScores(HeadReadings):
    """The k largest mean weights that a token receives, per head.

    Args:
        k: number of tokens, the largest first.

    Examples:
        L0H1 attends to the first token of any text.

        >>> from headwise.instruments import SinkScores
        >>> with hw.observe(model, SinkScores(k=2)) as seen:
        ...     _ = model(**model.encode("the old river was here"))
        >>> seen["sink_scores"].received.sel(layer=0, head=1).values.round(2)
        array([[1., 0.]], dtype=float32)
    """

    name = "sink_scores"
    whole_sequences = True
    stream_safe = True
    extra_dims = {"received": (RANK,)}

    def __init__(self, k: int = 10):
        super().__init__()
        self.k = k

    def requested(self, context: ForwardContext) -> ReductionRequest:
        """Column sums."""
        return ReductionRequest(column_sums=True)

    def measure(self, call: AttentionCall) -> dict[str, Tensor]:
        """Sort one layer's columns."""
        sums = call.reductions.column_sums
        assert sums is not None
        received = sums / call.attention.mask.n_visible_queries(call.batch).clamp(min=1)
        return {"received": largest(received, call.valid, self.k)}


class AttentionReceived(PickedReadings):
    """Attention that the chosen tokens receive in every head; NaN if an example has no such token.

    Args:
        positions: which tokens (see `headwise.seam.instrument`).

    Examples:
        L0H1 attends to the first token of any text.

        >>> from headwise.instruments import AttentionReceived
        >>> with hw.observe(model, AttentionReceived([0, 2])) as seen:
        ...     _ = model(**model.encode("the old river was here"))
        >>> seen["attention_received"].received.sel(layer=0, head=1).values.round(2)
        array([[1., 0.]], dtype=float32)
    """

    name = "attention_received"
    whole_sequences = True
    stream_safe = True
    extra_dims = {"received": (TOKEN,)}

    def requested(self, context: ForwardContext) -> ReductionRequest:
        """Column sums and the diagonal."""
        return ReductionRequest(column_sums=True, log_diagonal=True)

    def measure(self, call: AttentionCall) -> dict[str, Tensor]:
        """Select the tokens of one layer."""
        sums, log_diagonal = call.reductions.column_sums, call.reductions.log_diagonal
        assert sums is not None and log_diagonal is not None
        later = call.attention.mask.n_visible_queries(call.batch) - 1  # (batch, 1, key)
        received = (sums - log_diagonal.exp()) / later.clamp(min=1)
        received = received.masked_fill(later < 1, torch.nan)  # (batch, head, key)
        index = self._index.to(received.device)
        picked = received.gather(2, index.clamp(min=0)[:, None].expand(-1, received.shape[1], -1))
        return {"received": picked.masked_fill((index < 0)[:, None], torch.nan)}
