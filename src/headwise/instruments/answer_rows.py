"""The rows that emit an answer: what every head attends to when each token of it is written.

The row of the last prompt token emits the first token of the answer, and the row of each answer token emits the next. So an
answer of n tokens has n rows, and all of them exist when its last token has been chosen: nothing is read a second time.

| statistic | of one row; averaged over the rows so far                                                            |
|-----------|------------------------------------------------------------------------------------------------------|
| self_log  | log weight on the row's own token, at least `FLOOR` (AttnScore of these rows; what RAUQ reads)       |
| entropy   | entropy of the row over the log of its visible keys                                                  |
| sink      | weight on the first token                                                                            |
| previous  | weight on the token before that                                                                      |
| lookback  | x / (x + y), x the mean weight of a prompt token, y of an answer token; the first row has y = 0      |

`AnswerRows` reads whole sequences: prompts with their answers, in one pass. `RunningAnswerRows` reads the same while the answer
is written, one row per decode step on a KV cache of any kind: full, static, sliding window, quantised. Both call
`row_statistics`, so a detector that is fitted on the first can be used with the second.

Cost: `AnswerRows`, one QK^T product for the answer's rows alone. `RunningAnswerRows`: on a GPU one kernel per layer computes
the step's output together with the statistics of its row (`kernels.decode`); elsewhere the row replaces the step's fused
attention, and many layers are reduced together (`kernels.rows`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack

import numpy as np
import torch
import xarray as xr
from torch import Tensor
from torch.nn.functional import pad

from headwise.core.dims import EXAMPLE, HEAD, LAYER, PREFIX, TOKEN
from headwise.core.errors import DataError, SeamError
from headwise.instruments.readings import HeadReadings
from headwise.kernels.contract import ReductionRequest, RowMarks, RowStatistics
from headwise.kernels.rows import HeldRows, RowKeys, row_logs, row_statistics
from headwise.seam import AttentionCall, ForwardContext, Instrument, Structure

ROW_STATISTICS = RowStatistics._fields
SELF_LOG = ROW_STATISTICS.index("self_log")
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)  # of an answer's tokens; 0.0: the first token alone
_CELLS = 2**24  # weights held at a time


def tokens_of_shares(lengths: Tensor, shares: Sequence[float] = SHARES) -> Tensor:
    """(example, share): how many tokens of each answer make these shares of it, at least one.

    >>> tokens_of_shares(torch.tensor([1, 8]), (0.0, 0.3, 1.0)).tolist()
    [[1, 1, 1], [1, 3, 8]]
    """
    return torch.stack([(lengths * share).ceil().long().clamp(min=1) for share in shares], dim=-1)


class AnswerRows(HeadReadings):
    """Means over the rows that emit the beginnings of an answer; reads whole sequences.

    Also ``row_self``, the weight on its own token in every single row (RAUQ needs it), NaN after the last.

    Args:
        prompts: (example,), the number of prompt tokens of each example.
        lengths: (example,), the number of answer tokens, at least 1.
        counts: (example, prefix), how many tokens each of the beginnings has; default: the shares `SHARES` of the answer,
            rounded up to whole tokens and to at least one.
        width: rows of ``row_self``; default: the longest answer.

    Examples:
        >>> import torch
        >>> from headwise.instruments import AnswerRows
        >>> asked = torch.tensor([len(model.ids("where was the river ?"))])
        >>> ids = model.encode("where was the river ? under the old house")
        >>> with hw.observe(model, AnswerRows(asked, ids["input_ids"].shape[1] - asked)) as seen:
        ...     _ = model(**ids)
        >>> dict(seen["answer_rows"].entropy.sizes)
        {'example': 1, 'layer': 3, 'head': 6, 'prefix': 5}
    """

    name = "answer_rows"
    whole_sequences = True
    extra_dims = {**dict.fromkeys(ROW_STATISTICS, (PREFIX,)), "row_self": (TOKEN,)}

    def __init__(self, prompts: Tensor, lengths: Tensor, *, counts: Tensor | None = None, width: int | None = None):
        super().__init__()
        if bool((lengths < 1).any()) or bool((prompts < 1).any()):
            raise DataError("an example has an empty prompt or an empty answer, which no row emits; leave it out")
        self.prompts, self.lengths = prompts, lengths
        self.counts = tokens_of_shares(lengths) if counts is None else counts
        self.width = int(lengths.max()) if width is None else width

    def on_forward_start(self, context: ForwardContext) -> None:
        """Locate the rows."""
        super().on_forward_start(context)
        valid = context.valid
        device = valid.device
        prompts, lengths = self.prompts.to(device), self.lengths.to(device)
        row = torch.arange(int(self.lengths.max()), device=device)
        order = torch.argsort(~valid, dim=1, stable=True)  # real tokens first, in order
        place = (prompts[:, None] - 1 + row).clamp(max=valid.shape[1] - 1)
        own = order.gather(1, place)
        previous = torch.where(place > 0, order.gather(1, (place - 1).clamp(min=0)), -1)
        position = valid.cumsum(dim=1) - 1
        prompt = valid & (position < prompts[:, None])
        visible = torch.empty(0)  # differs between layers
        answers = row.expand(len(own), -1)
        self._keys = RowKeys(
            own, previous, order[:, 0], prompt.float(), (valid & ~prompt).float(), prompts, answers, visible
        )
        self._counts = self.counts.to(device)
        self._exists = row < lengths[:, None]

    def measure(self, call: AttentionCall) -> dict[str, Tensor]:
        """Average the rows of one layer."""
        device = call.z.device
        keys = RowKeys(*(one.to(device) for one in self._keys))
        seen = call.attention.mask.n_visible_keys(call.batch)  # (batch, 1 or head, query)
        keys = keys._replace(visible=seen.gather(2, keys.own[:, None].expand(-1, seen.shape[1], -1)))
        mass = call.attention.sinks is not None or call.attention.gate is not None
        parts = [
            row_statistics(row_logs(call.attention, keys.own[:, rows]), keys.of_rows(rows), mass=mass)
            for rows in self._slices(call)
        ]
        rows = torch.stack(
            [torch.cat(ones, dim=-1) for ones in zip(*parts, strict=True)]
        )  # (statistic, batch, head, row)
        rows = rows.masked_fill(~self._exists.to(device)[:, None], 0.0)
        counts = self._counts.to(device)
        index = (counts - 1)[:, None].expand(*rows.shape[:3], -1)
        means = rows.cumsum(dim=-1).gather(-1, index) / counts[:, None]
        own = rows[SELF_LOG].exp().masked_fill(~self._exists.to(device)[:, None], torch.nan)
        width = (0, self.width - own.shape[-1])
        found = {name: means[index] for index, name in enumerate(ROW_STATISTICS)}
        return {**found, "row_self": pad(own, width, value=torch.nan)}

    def _slices(self, call: AttentionCall) -> Iterator[slice]:
        rows, cells = self._keys.own.shape[1], call.batch * call.heads * call.attention.k.shape[2]
        step = max(1, _CELLS // cells)
        return (slice(start, start + step) for start in range(0, rows, step))


class RunningAnswerRows(Instrument):
    """The same statistics while an answer is generated: after each forward pass, means over the rows so far.

    A pass with several tokens reads (more of) a prompt: it starts a new answer, and everything before it is prompt. Every pass
    with one token is a decode step. Not for assisted generation, whose passes check several answer tokens at once, nor for beam
    search, which reorders the examples of a batch.

    Args:
        prompts: tokens that each prompt has in the KV cache when it has been read, padding included; needed only if a prompt
            is read in parts of which the last has a single token.

    Examples:
        >>> from headwise.instruments import RunningAnswerRows
        >>> with hw.observe(model, RunningAnswerRows()) as seen:
        ...     _ = model.generate(**model.encode("where was the river ?"), max_new_tokens=4, do_sample=False)
        >>> seen["answer_rows"].entropy.dims, int(seen["answer_rows"].rows[0])
        (('example', 'layer', 'head'), 4)
    """

    name = "answer_rows"
    stream_safe = False  # the state is read between passes
    only_row_statistics = True

    def __init__(self, prompts: int | None = None):
        self.prompts = prompts
        self.rows: Tensor | None = None  # (batch,) rows so far
        self.last: Tensor | None = None  # (statistic, layer, batch, head) of the last row
        self.active: Tensor | None = None  # (batch,) bool: examples whose rows still count; None: all
        self._sums: Tensor | None = None  # like `last`
        self._real: list[Tensor] = []  # (batch, token), which tokens are real, in order
        self._tokens = 0  # in the KV cache, padding included
        self._places = torch.zeros(0, 6, dtype=torch.long)  # (batch, 6), see `RowMarks`

    def setup(self, structure: Structure, stack: ExitStack) -> None:
        """Store the numbers of layers and heads."""
        self._shape = (structure.card.layers, structure.card.heads)
        self._marks = RowMarks(*self._shape)

    @property
    def means(self) -> Tensor:
        """(statistic, layer, batch, head): over the rows so far."""
        if self._sums is None or self.rows is None:
            raise SeamError("RunningAnswerRows has read no row yet; run the model inside `with observe(...)`")
        return self._sums / self.rows[:, None]

    def select(self, lines: Tensor) -> None:
        """Retain these examples of the batch, as the KV cache does when others have ended; between two passes."""
        self._real = [torch.cat(self._real, dim=1)[lines]]
        self._places = self._places[lines]
        if self.rows is not None and self._sums is not None and self.last is not None:
            self.rows, self._sums, self.last = self.rows[lines], self._sums[:, :, lines], self.last[:, :, lines]
        if self.active is not None:
            self.active = self.active[lines]

    def join(self, other: RunningAnswerRows) -> None:
        """Add the examples of another batch, as the KV cache does, the shorter one padded on the left; between two passes."""
        both = (self, other)
        self._real, other._real = ([torch.cat(one._real, dim=1)] for one in both)
        total = max(one._tokens for one in both)
        pads = [total - one._tokens for one in both]
        real = [pad(one._real[0], (before, 0)) for one, before in zip(both, pads, strict=True)]
        self._real = [torch.cat(real)]
        for one, before in zip(both, pads, strict=True):
            tokens = one._places[:, :4]  # the others are numbers of tokens
            one._places = torch.cat([torch.where(tokens >= 0, tokens + before, tokens), one._places[:, 4:]], dim=1)
        self._tokens, self._places = total, torch.cat([one._places for one in both])
        if any(one.rows is None or one._sums is None or one.last is None for one in both):
            raise SeamError("only answers of which a row has been read can join each other")
        self.rows = torch.cat([one.rows for one in both if one.rows is not None])
        self._sums = torch.cat([one._sums for one in both if one._sums is not None], dim=2)
        self.last = torch.cat([one.last for one in both if one.last is not None], dim=2)

    def requested(self, context: ForwardContext) -> ReductionRequest:
        """The row of a decode step."""
        return ReductionRequest(row_statistics=self._marks if context.valid.shape[1] == 1 else None)

    def on_forward_start(self, context: ForwardContext) -> None:
        """Locate the row of this pass: that of the last real token."""
        valid, cached = context.valid, context.cached
        batch, queries = valid.shape
        known = self._tokens == cached and len(self._places) == batch
        if cached and not known:
            if bool((context.before != cached).any()):
                raise SeamError(
                    "the KV cache holds padding that was read before this observation began; begin it before the prompt, "
                    "or run the prompts without padding"
                )
            self._real = [torch.ones(batch, cached, dtype=torch.bool, device=valid.device)]
        elif not cached:
            self._real = []
        self._real.append(valid)
        self._tokens = cached + queries
        decodes = queries == 1 and cached > 0 and self.rows is not None and known
        if decodes and self.prompts is not None and self._tokens <= self.prompts:
            decodes = False  # the last part of a prompt
        if decodes:
            self._places = self._places.index_select(1, self._shift)  # the own token becomes the previous one
            self._places[:, 0].masked_fill_(valid[:, 0], cached)
            self._places[:, 5].add_(valid[:, 0])
        else:
            self._start()
        self._marks.step(self._places, self._tokens)
        self._rows = HeldRows(self._marks)
        self._query = self._places[:, :1] - cached  # (batch, 1) the row's query in this pass

    def _start(self) -> None:
        """A new answer: all tokens so far are its prompt."""
        real = torch.cat(self._real, dim=1)
        self._real = [real]
        token = torch.arange(self._tokens, device=real.device)
        places = torch.where(real, token, -1).topk(min(2, self._tokens), dim=1).values
        own, previous = places[:, 0], places[:, 1] if self._tokens > 1 else torch.full_like(places[:, 0], -1)
        first, end = real.int().argmax(dim=1), torch.full_like(own, self._tokens)
        self._places = torch.stack([own, previous, first, end, real.sum(dim=1), torch.zeros_like(own)], dim=1)
        self._shift = torch.tensor([0, 0, 2, 3, 4, 5], device=real.device)
        self.rows = self._sums = None

    def on_layer(self, call: AttentionCall) -> None:
        """Hold the row of a layer, unless its statistics come with the step's output."""
        if call.reductions.row_statistics is not None:
            return
        attention, logs = call.attention, call.reductions.row_logs
        if logs is None:
            logs = row_logs(attention, self._query.to(call.z.device))
        mass = attention.sinks is not None or attention.gate is not None
        self._rows.hold(call.layer, logs, attention.mask, query=self._query, mass=mass)

    def on_forward_end(self, context: ForwardContext) -> None:
        """Add this row to the means."""
        self._rows.reduce()
        self._collect()
        assert self.last is not None
        if self._sums is None or self.rows is None:
            self._sums, self.rows = torch.zeros_like(self.last), torch.zeros_like(self._places[:, 0])
        if self.active is None:
            self._sums, self.rows = self._sums + self.last, self.rows + 1
            return
        self._sums = torch.where(self.active[:, None], self._sums + self.last, self._sums)
        self.rows = self.rows + self.active.to(self.rows.device)

    def result(self) -> xr.Dataset:
        """Means over the rows of the running answer."""
        means = self.means.transpose(1, 2).cpu().numpy()  # (statistic, batch, layer, head)
        assert self.rows is not None
        layers, heads = self._shape
        return xr.Dataset(
            {name: ((EXAMPLE, LAYER, HEAD), means[index]) for index, name in enumerate(ROW_STATISTICS)}
            | {"rows": (EXAMPLE, self.rows.cpu().numpy())},
            coords={LAYER: np.arange(layers), HEAD: np.arange(heads)},
        )

    def _collect(self) -> None:
        """The last row of all layers, from the marks."""
        home = self._places.device
        found = [
            (layers, self._marks.on(device)[1].movedim(-1, 0).to(home))  # (statistic, layer, batch, head)
            for device, layers in self._marks.written.items()
        ]
        self.last = found[0][1]
        for layers, statistics in found[1:]:
            self.last[:, layers] = statistics[:, layers]
