"""The spectrum of a text while it is generated: column sums and diagonals, carried over the passes of a KV cache.

Row i of an attention map adds a_ij to the column sum of every key j that it sees, adds one to the number of queries that see j,
and brings one diagonal entry, a_ii. No later row changes any of it, so three vectors per head suffice:

    C_j += a_ij        n_j += 1 where i sees j        log a_ii                for each new row i
    λ_j = C_j / n_j - a_jj                                                    when they are read

A pass over several tokens (a prompt, or a part of one) adds its rows through the streamed reductions of a whole sequence, a
decode step its one row (`kernels.rows`). Which of the tokens are the prompt's makes no difference.

**What it equals.** A generation of n tokens never runs the last one: its row would emit token n + 1. So the reading is that of
`Spectrum` over prompt and answer without the last token.

**Caches.** Any cache whose keys are known by position: dynamic, static, sliding window, offloaded. A window's cache drops keys
that no later row sees; their sums are complete and are retained here. A quantised cache is read as the model reads it: its rows
attend to rounded keys, which a whole sequence would not round. Refused, because a row would be missing or added to the wrong
example:

| found                                              | because                                                            |
|----------------------------------------------------|--------------------------------------------------------------------|
| a cache that was filled before the observation     | the rows of these tokens are gone, and their column sums with them |
| fewer tokens than were read (assisted generation)  | rows of tokens that were taken back are already in the sums        |
| keys replaced between two passes (beam search)     | the examples of the batch have changed places                      |
| another number of examples                         | some left the batch: say which, with `RunningSpectrum.select`      |
| keys missing in a layer without a window           | which keys were evicted (H2O, sink caches) cannot be seen from here |

Cost: in a decode step an exponential and an addition per key besides the row, with all layers together. The default model at
512 tokens takes 1.06 to 1.08 times a plain step on two CPU cores (0.03 to 0.04 for any observation, 0.02 for the row, 0.02
here), and a prompt what it takes for `Spectrum`. On a GPU in half precision the row is computed next to the fused attention,
which does not give it: 1.3 to 1.7 times a plain step for a model of 8B parameters (H200, 1,024 to 8,192 tokens, batches of 1
and 32); `RunningAnswerRows` has a kernel of its own there. Memory: 2 float32 numbers per head and token, and an eighth more in
reserve; a KV cache in half precision takes 4 bytes x the width of a head per *key-value* head and token. The eigenvalues are
sorted only when they are read.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
import xarray as xr
from torch import Tensor, nn

from headwise.core.dims import EXAMPLE, HEAD, LAYER, RANK
from headwise.core.errors import DataError, SeamError
from headwise.instruments.spectrum import largest
from headwise.kernels.attention import AttentionMask
from headwise.kernels.blocked import FLOOR
from headwise.kernels.contract import ReductionRequest
from headwise.seam import AttentionCall, ForwardContext, Instrument, Structure

_ROOM = 64  # tokens by which the vectors grow at least
_SHARE = 8  # ... and by an eighth of the tokens so far
_CELLS = 2**25  # weights of a step converted at a time


class RunningSpectrum(Instrument):
    """`Spectrum` of everything that was read so far: eigenvalues and mean log-diagonal, after any pass of a generation.

    A pass without tokens in the KV cache starts a new text; every pass on top of them continues. Also ``tokens``, how many each
    example has.

    Args:
        k: number of eigenvalues, largest first.

    Examples:
        >>> from headwise.instruments import RunningSpectrum
        >>> with hw.observe(model, RunningSpectrum(k=3)) as seen:
        ...     _ = model.generate(**model.encode("where was the river ?"), max_new_tokens=4, do_sample=False)
        >>> dict(seen["spectrum"].sizes), seen["spectrum"].tokens.values  # 6 of the prompt, 3 of the answer
        ({'example': 1, 'layer': 3, 'head': 6, 'rank': 3}, array([9]))
    """

    name = "spectrum"
    stream_safe = True

    def __init__(self, k: int = 10):
        if k < 1:
            raise DataError(f"k is {k}; give at least 1 eigenvalue")
        self.k = k
        self.active: Tensor | None = None  # (batch,) bool: examples whose tokens still count; None: all
        self._real = torch.zeros(0, 0, dtype=torch.bool)  # (batch, token): tokens that count
        self._tallies: list[_Tally] = []
        self._held: dict[int, _NewRows] = {}
        self._cache: weakref.ref[Any] | None = None  # of the running pass
        self._keys: weakref.ref[Tensor] | None = None  # a tensor that the last pass left in the cache

    def setup(self, structure: Structure, stack: ExitStack) -> None:
        """Read which layers have windows, and see the cache that each pass is given."""
        card = structure.card
        self._shape = (card.layers, card.heads)
        self._windows = [one.window for one in card.per_layer]
        stack.callback(structure.decoder.register_forward_pre_hook(self._see_cache, with_kwargs=True).remove)

    def select(self, lines: Tensor) -> None:
        """Retain these examples of the batch, as the KV cache does when others have ended; between two passes."""
        self._real = self._real[lines]
        self._tallies = [tally.of_examples(lines) for tally in self._tallies]
        if self.active is not None:
            self.active = self.active[lines]
        self._keys = None

    def requested(self, context: ForwardContext) -> ReductionRequest:
        """The row of a decode step; of several rows, column sums and the diagonal."""
        step = context.valid.shape[1] == 1
        return ReductionRequest(row_logs=step, column_sums=not step, log_diagonal=not step)

    def on_forward_start(self, context: ForwardContext) -> None:
        """Start a text, or refuse to continue one whose rows are not all known."""
        self._held.clear()
        if context.cached:
            self._refuse_unknown(context)
        else:
            self._tallies, self._real = [], context.valid[:, :0]
        self._counted = context.valid if self.active is None else context.valid & self.active[:, None]

    def on_layer(self, call: AttentionCall) -> None:
        """Hold the new rows of a layer: their sums and diagonals, or the row itself."""
        mask, found = call.attention.mask, call.reductions
        self._refuse_evicted(call.layer, mask, call.context)
        gated = call.attention.gate is not None
        if mask.queries == 1:
            assert found.row_logs is not None
            self._held[call.layer] = _NewRows(mask, found.row_logs[:, :, 0], None, gated)
        else:
            assert found.column_sums is not None and found.log_diagonal is not None
            self._held[call.layer] = _NewRows(mask, found.column_sums, found.log_diagonal, gated)

    def on_forward_end(self, context: ForwardContext) -> None:
        """Add the rows of this pass: of layers with one mask together."""
        groups: dict[tuple[object, ...], list[int]] = {}
        for layer, rows in self._held.items():
            groups.setdefault((rows.values.shape, rows.values.device, rows.gated, id(rows.mask)), []).append(layer)
        for layers in groups.values():
            for tally in self._tallies_of(layers):
                tally.add([self._held[layer] for layer in tally.layers], context, self.active)
        self._real = torch.cat([self._real, self._counted], dim=1)
        self._held.clear()
        keys = self._cached_keys()
        self._keys = None if keys is None else weakref.ref(keys)

    def readings(self) -> dict[str, Tensor]:
        """The variables of `Spectrum` as they stand, on the model's device, (batch, layer, head) or (batch, layer, head, k)."""
        if not self._tallies:
            raise SeamError("RunningSpectrum has read no token yet; run the model inside `with observe(...)`")
        batch, total = self._real.shape
        home, (layers, heads) = self._real.device, self._shape
        found = {
            "laplacian": torch.full((batch, layers, heads, self.k), torch.nan, device=home),
            "attention": torch.full((batch, layers, heads, self.k), torch.nan, device=home),
            "log_determinant": torch.full((batch, layers, heads), torch.nan, device=home),
        }
        for tally in self._tallies:
            real = self._real.to(tally.sums.device)
            queries = tally.queries[..., :total].clamp(min=1)
            for index, layer in enumerate(tally.layers):
                logs = tally.logs[index, ..., :total]
                diagonal = logs.exp()
                received = tally.sums[index, ..., :total] / queries
                values = largest(torch.stack([received - diagonal, diagonal]), real, self.k).to(home)
                width = diagonal.shape[1]
                found["laplacian"][:, layer, :width], found["attention"][:, layer, :width] = values
                found["log_determinant"][:, layer, :width] = (
                    logs.masked_fill(~real[:, None], torch.nan).nanmean(dim=-1).to(home)
                )
        return found

    def result(self) -> xr.Dataset:
        """The running batch."""
        found = self.readings()
        layers, heads = self._shape
        dims = (EXAMPLE, LAYER, HEAD, RANK)
        return xr.Dataset(
            {name: (dims[: values.ndim], values.cpu().numpy()) for name, values in found.items()}
            | {"tokens": (EXAMPLE, self._real.sum(dim=1).cpu().numpy())},
            coords={LAYER: np.arange(layers), HEAD: np.arange(heads)},
        )

    def _tallies_of(self, layers: list[int]) -> list[_Tally]:
        """What was counted of these layers; a tally of these and others is split."""
        known = {layer for tally in self._tallies for layer in tally.layers}
        new = [layer for layer in layers if layer not in known]
        found, rest = [], []
        for tally in self._tallies:
            inside = [layer for layer in tally.layers if layer in layers]
            outside = [layer for layer in tally.layers if layer not in layers]
            found += [tally.of_layers(inside)] if inside else []
            rest += [tally.of_layers(outside)] if outside else []
        if new:
            found.append(_Tally.empty(new, self._held[new[0]].values))
        self._tallies = found + rest
        return found

    def _see_cache(self, _: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        cache = kwargs.get("past_key_values")
        self._cache = weakref.ref(cache) if hasattr(cache, "layers") else None

    def _cached_keys(self) -> Tensor | None:
        """The keys of the first layer that holds some as a tensor."""
        cache = None if self._cache is None else self._cache()
        found: Iterator[Any] = (getattr(layer, "keys", None) for layer in getattr(cache, "layers", ()))
        return next((keys for keys in found if isinstance(keys, Tensor)), None)

    def _refuse_unknown(self, context: ForwardContext) -> None:
        cached, read, batch = context.cached, self._real.shape[1], len(context.valid)
        if self._tallies and batch != len(self._real):
            raise SeamError(
                f"the batch has {batch} examples and had {len(self._real)}: when examples leave it, call "
                "RunningSpectrum.select with the places of those that stay"
            )
        if self._tallies and cached < read:
            raise SeamError(
                f"the KV cache holds {cached} tokens and {read} were read: some were taken back (assisted generation), or "
                "evicted, and their rows are in the column sums already; generate without an assistant, or run Spectrum "
                "over the finished text (use_cache=False)"
            )
        if cached != read:
            raise SeamError(
                f"the KV cache holds {cached - read} tokens that RunningSpectrum has not read: their rows are gone, and "
                "column sums need them; begin the observation before the prompt, or read RunningAnswerRows, which needs "
                "no earlier rows"
            )
        keys = self._cached_keys()
        if self._keys is not None and keys is not None and self._keys() is not keys:
            raise SeamError(
                "the KV cache is not as the last pass left it: beam search has reordered its examples, or it is another "
                "cache; generate without beams, call RunningSpectrum.select when examples leave the batch, or run Spectrum "
                "over the finished text (use_cache=False)"
            )

    def _refuse_evicted(self, layer: int, mask: AttentionMask, context: ForwardContext) -> None:
        """Refuse a layer whose keys do not stand where their number of tokens says."""
        gone = _gone(mask, context)
        window = self._windows[layer]
        if gone and (window is None or mask.keys - mask.queries + 1 < window):
            raise SeamError(
                f"layer {layer} holds {mask.keys} keys of {gone + mask.keys} tokens, fewer than its queries may see: this KV "
                "cache evicts tokens, and which ones cannot be seen; use a dynamic, static or sliding-window cache of "
                "transformers"
            )


class _NewRows(NamedTuple):
    """The new rows of one layer."""

    mask: AttentionMask
    values: Tensor  # (batch, head, key) their column sums; of a single row, its log-weights
    diagonal: Tensor | None  # (batch, head, query) log; None: a single row
    gated: bool  # the log of a closed gate counts as `FLOOR`


@dataclass
class _Tally:
    """What was counted of layers that have had the same masks so far; the vectors have room for tokens to come."""

    layers: list[int]
    sums: Tensor  # (layer, batch, head, token) column sums
    logs: Tensor  # (layer, batch, head, token) log-diagonal
    queries: Tensor  # (batch, 1 or head, token) float: queries that see each key

    @classmethod
    def empty(cls, layers: list[int], like: Tensor) -> _Tally:
        sums = like.new_zeros(len(layers), *like.shape[:2], 0, dtype=torch.float32)
        return cls(layers, sums, sums.clone(), sums[0, :, :1].clone())

    def of_layers(self, layers: list[int]) -> _Tally:
        if layers == self.layers:
            return self
        index = [self.layers.index(layer) for layer in layers]
        return _Tally(layers, self.sums[index], self.logs[index], self.queries.clone())

    def of_examples(self, lines: Tensor) -> _Tally:
        lines = lines.to(self.sums.device)
        return _Tally(self.layers, self.sums[:, lines], self.logs[:, lines], self.queries[lines])

    def add(self, rows: list[_NewRows], context: ForwardContext, active: Tensor | None) -> None:
        """Add the rows of one pass; `rows` in the order of the layers."""
        mask, cached = rows[0].mask, context.cached
        total, gone = cached + mask.queries, _gone(mask, context)
        here = total - gone  # keys of this layer that hold a token
        self._reserve(total)
        batch, device = self.sums.shape[1], self.sums.device
        counts = torch.ones(batch, dtype=torch.bool, device=device) if active is None else active.to(device)
        step = rows[0].diagonal is None
        if step:
            visible = mask.rows(None)
            seen = self.sums.new_ones(1, 1, 1) if visible is None else visible[:, :, 0, :here].float()
            counts = counts & context.valid[:, 0].to(device)
        else:
            seen = mask.n_visible_queries(batch)[..., :here]
        weight = counts[:, None, None].float()
        if seen.shape[1] > self.queries.shape[1]:
            self.queries = self.queries.repeat(1, seen.shape[1], 1)
        self.queries[..., gone:total].addcmul_(seen, weight)
        together = max(1, _CELLS // max(1, rows[0].values.numel()))
        for start in range(0, len(rows), together):
            some = rows[start : start + together]
            place = slice(start, start + len(some))
            values = torch.stack([one.values[..., :here] for one in some]).float()  # (layer, batch, head, key)
            if step:
                diagonal = values[..., cached - gone :].clone()
                values.clamp_(min=FLOOR).exp_()
            else:
                diagonal = torch.stack([one.diagonal for one in some if one.diagonal is not None])
            self.sums[place, ..., gone:total].addcmul_(values, weight)
            self.logs[place, ..., cached:total] = diagonal.clamp(min=FLOOR) if rows[0].gated else diagonal

    def _reserve(self, tokens: int) -> None:
        room = tokens - self.sums.shape[-1]
        if room > 0:
            room += max(_ROOM, tokens // _SHARE)
            self.sums, self.logs, self.queries = (
                nn.functional.pad(one, (0, room)) for one in (self.sums, self.logs, self.queries)
            )


def _gone(mask: AttentionMask, context: ForwardContext) -> int:
    """Tokens that a layer's cache has dropped: its keys end at the last query, or have empty places behind it."""
    return max(0, context.cached + mask.queries - mask.keys)
