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

Cost: `AnswerRows`, one QK^T product for the answer's rows alone. `RunningAnswerRows`: the row of a step replaces its fused
attention (`kernels.rows`), and the layers are reduced together at the end of the step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import NamedTuple

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from headwise.core.dims import EXAMPLE, HEAD, LAYER, PREFIX, TOKEN
from headwise.core.errors import DataError, SeamError
from headwise.instruments.readings import HeadReadings
from headwise.kernels.blocked import FLOOR
from headwise.kernels.contract import ReductionRequest
from headwise.kernels.rows import row_logs
from headwise.seam import AttentionCall, ForwardContext, Instrument, Structure

ROW_STATISTICS = ("self_log", "entropy", "sink", "previous", "lookback")
SELF_LOG = ROW_STATISTICS.index("self_log")
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)  # of an answer's tokens; 0.0: the first token alone
_CELLS = 2**24  # weights held at a time


class RowKeys(NamedTuple):
    """Which keys of a layer mean what to the rows that are read. A key of -1 is not (or no longer) among them."""

    own: Tensor  # (batch, row) the row's own token
    previous: Tensor  # (batch, row) the real token before it
    first: Tensor  # (batch,) the first real token
    prompt: Tensor  # (batch, key) float: 1 for prompt tokens
    answer: Tensor  # (batch, key) float: 1 for answer tokens
    prompts: Tensor  # (batch,) tokens of the prompt
    answers: Tensor  # (batch, row) answer tokens that the row can see
    visible: Tensor  # (batch, 1 or head, row) float: keys that the row can see

    def of_rows(self, rows: slice) -> RowKeys:
        """Some of the rows."""
        return self._replace(
            own=self.own[:, rows],
            previous=self.previous[:, rows],
            answers=self.answers[:, rows],
            visible=self.visible[..., rows],
        )


def row_statistics(logs: Tensor, keys: RowKeys, *, mass: bool = False) -> Tensor:
    """(statistic, ..., batch, head, row), in the order of `ROW_STATISTICS`.

    Args:
        logs: (..., batch, head, row, key) log-weights; the dims in front may be layers.
        keys: which keys mean what.
        mass: whether rows may sum to less than 1 (a learned sink, closed gates), so that the entropy needs their sum.
    """
    logs = logs.clamp(min=FLOOR)
    weights = torch.where(logs > FLOOR, logs.exp(), 0.0)
    entropy = -torch.einsum("...k,...k->...", weights, logs)
    if mass:
        total = weights.sum(dim=-1)
        entropy = torch.where(total > 0, entropy / total.clamp(min=1e-30) + total.clamp(min=1e-30).log(), 0.0)
    on = weights @ torch.stack([keys.prompt, keys.answer], dim=-1).to(weights.dtype)[:, None]  # (..., row, 2)
    x = on[..., 0] / keys.prompts.clamp(min=1)[:, None, None]
    y = on[..., 1] / keys.answers.clamp(min=1)[:, None]
    return torch.stack(
        [
            _at(logs, keys.own, FLOOR),
            entropy / keys.visible.clamp(min=2).log(),
            _at(weights, keys.first[:, None].expand_as(keys.own), 0.0),
            _at(weights, keys.previous, 0.0),
            x / (x + y).clamp(min=1e-30),
        ]
    )


def _at(values: Tensor, key: Tensor, missing: float) -> Tensor:
    """(..., batch, head, row): the entry of one key (batch, row) in each row; ``missing`` where the key is -1."""
    index = key.clamp(min=0)[:, None, :, None].expand(*values.shape[:-1], 1)
    return torch.where((key >= 0)[:, None], values.gather(-1, index)[..., 0], missing)


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
        answers = row.expand(len(own), -1)
        visible = torch.empty(0)  # differs between layers
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
        rows = torch.cat(parts, dim=-1).masked_fill(
            ~self._exists.to(device)[:, None], 0.0
        )  # (statistic, batch, head, row)
        counts = self._counts.to(device)
        index = (counts - 1)[:, None].expand(*rows.shape[:3], -1)
        means = rows.cumsum(dim=-1).gather(-1, index) / counts[:, None]
        own = rows[SELF_LOG].exp().masked_fill(~self._exists.to(device)[:, None], torch.nan)
        width = (0, self.width - own.shape[-1])
        found = {name: means[index] for index, name in enumerate(ROW_STATISTICS)}
        return {**found, "row_self": torch.nn.functional.pad(own, width, value=torch.nan)}

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

    def __init__(self, prompts: int | None = None):
        self.prompts = prompts
        self.rows: Tensor | None = None  # (batch,) rows so far
        self.last: Tensor | None = None  # (statistic, layer, batch, head) of the last row
        self.active: Tensor | None = None  # (batch,) bool: examples whose rows still count; None: all
        self._sums: Tensor | None = None  # like `last`
        self._real = torch.zeros(0, 0, dtype=torch.bool)  # (batch, token so far)
        self._own = self._previous = torch.zeros(0, dtype=torch.long)  # (batch,) the row's token, the one before it
        self._held: dict[int, tuple[AttentionCall, Tensor]] = {}

    def setup(self, structure: Structure, stack: ExitStack) -> None:
        """Store the numbers of layers and heads."""
        self._shape = (structure.card.layers, structure.card.heads)

    @property
    def means(self) -> Tensor:
        """(statistic, layer, batch, head): over the rows so far."""
        if self._sums is None or self.rows is None:
            raise SeamError("RunningAnswerRows has read no row yet; run the model inside `with observe(...)`")
        return self._sums / self.rows[:, None]

    def select(self, lines: Tensor) -> None:
        """Retain these examples of the batch, as the KV cache does when others have ended; between two passes."""
        self._real, self._own, self._previous = self._real[lines], self._own[lines], self._previous[lines]
        self._first, self._prompt_tokens = self._first[lines], self._prompt_tokens[lines]
        if self.rows is not None and self._sums is not None and self.last is not None:
            self.rows, self._sums, self.last = self.rows[lines], self._sums[:, :, lines], self.last[:, :, lines]
        if self.active is not None:
            self.active = self.active[lines]

    def requested(self, context: ForwardContext) -> ReductionRequest:
        """The row of a decode step."""
        return ReductionRequest(row_logs=context.valid.shape[1] == 1)

    def on_forward_start(self, context: ForwardContext) -> None:
        """Locate the row of this pass: that of the last real token."""
        self._held.clear()
        valid, cached = context.valid, context.cached
        batch, queries = valid.shape
        known = self._real.shape[1] == cached and len(self._real) == batch
        if cached and not known:
            if bool((context.before != cached).any()):
                raise SeamError(
                    "the KV cache holds padding that was read before this observation began; begin it before the prompt, "
                    "or run the prompts without padding"
                )
            self._real = torch.ones(batch, cached, dtype=torch.bool, device=valid.device)
        elif not cached:
            self._real = valid[:, :0]
        self._real = torch.cat([self._real, valid], dim=1)
        total = cached + queries
        decodes = queries == 1 and cached > 0 and self.rows is not None and known
        if decodes and self.prompts is not None and total <= self.prompts:
            decodes = False  # the last part of a prompt
        if decodes:
            self._previous, self._own = self._own, torch.where(valid[:, 0], cached, self._own)
        else:
            token = torch.arange(total, device=valid.device)
            places = torch.where(self._real, token, -1).topk(min(2, total), dim=1).values
            self._own = places[:, 0]
            self._previous = places[:, 1] if total > 1 else torch.full_like(self._own, -1)
            self._first = self._real.int().argmax(dim=1)
            self._prompt_total, self._prompt_tokens = total, self._real.sum(dim=1)
            self.rows = self._sums = None
        self._index = (self._own - cached)[:, None]

    def on_layer(self, call: AttentionCall) -> None:
        """Hold the row of a layer until all are read together."""
        logs = call.reductions.row_logs
        if logs is None:
            logs = row_logs(call.attention, self._index.to(call.z.device))
        self._held[call.layer] = call, logs
        if sum(one.numel() for _, one in self._held.values()) > _CELLS:
            self._reduce()

    def on_forward_end(self, context: ForwardContext) -> None:
        """Add this row to the means."""
        self._reduce()
        assert self.last is not None
        active = torch.ones_like(self._own, dtype=torch.bool) if self.active is None else self.active
        if self._sums is None or self.rows is None:
            self._sums, self.rows = torch.zeros_like(self.last), torch.zeros_like(self._own)
        self._sums = torch.where(active[:, None], self._sums + self.last, self._sums)
        self.rows = self.rows + active.to(self.rows.device)

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

    def _reduce(self) -> None:
        """Read the layers that are held: those of one shape and mask together."""
        groups: dict[tuple[object, ...], list[int]] = {}
        for layer, (call, logs) in self._held.items():
            mask = call.attention.mask
            groups.setdefault((logs.shape, logs.device, id(mask)), []).append(layer)
        home = self._own.device
        layers, heads = self._shape
        batch = len(self._own)
        for members in groups.values():
            call, sample = self._held[members[0]]
            attention = call.attention
            mass = attention.sinks is not None or attention.gate is not None
            stacked = sample[None] if len(members) == 1 else torch.stack([self._held[layer][1] for layer in members])
            found = row_statistics(stacked, self._keys(call), mass=mass)[..., 0].float().to(home)
            if len(members) == layers and found.shape[3] == heads:
                self.last = found
                continue
            fits = self.last is not None and self.last.shape[2] == batch
            if self.last is None or not fits:
                self.last = torch.full((len(ROW_STATISTICS), layers, batch, heads), torch.nan, device=home)
            self.last[:, members, :, : found.shape[3]] = found
        self._held.clear()

    def _keys(self, call: AttentionCall) -> RowKeys:
        """Which keys of this layer mean what: a sliding window's cache holds only the last ones."""
        mask, total = call.attention.mask, self._real.shape[1]
        gone = max(0, total - mask.keys)
        device = call.z.device
        real = torch.nn.functional.pad(self._real[:, gone:], (0, max(0, mask.keys - total)))
        prompt = real.clone()
        prompt[:, max(0, self._prompt_total - gone) :] = False
        seen = mask.n_visible_keys(call.batch)
        index = self._index.clamp(min=0).to(device)
        answers = (self._real[:, self._prompt_total :].sum(dim=1))[:, None]
        visible = seen.gather(2, index[:, None].expand(-1, seen.shape[1], -1))
        keys = RowKeys(
            (self._own - gone)[:, None], (self._previous - gone)[:, None], self._first - gone, prompt.float(),
            (real & ~prompt).float(), self._prompt_tokens, answers, visible,
        )  # fmt: skip
        return RowKeys(*(one.to(device) for one in keys))
