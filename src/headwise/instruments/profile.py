"""What does each head attend to? Eleven statistics per head and example, from one streamed pass.

Every statistic is a mean over an example's real tokens except the first, which can only attend to itself.

| statistic | per query                                                                                             |
|-----------|-------------------------------------------------------------------------------------------------------|
| entropy   | entropy of the row over the log of its visible keys: 0 one key, 1 uniform                             |
| sink      | weight on the sequence's first token                                                                  |
| diagonal  | weight on the token itself                                                                            |
| previous  | weight on the previous token                                                                          |
| distance  | mean distance between query and key, in tokens                                                        |
| spread    | standard deviation of that distance                                                                   |
| induction | weight on tokens that followed an earlier occurrence of this token; over tokens that have one          |
| duplicate | weight on earlier occurrences of this token; over tokens that have one                                 |
| delimiter | weight on punctuation and line ends, except the first token                                           |
| top1      | the largest weight of the row                                                                         |
| output_norm_ratio | norm of the head's output in the residual stream, z W_O, over the norm of the residual stream it reads |

`uniform` has the same statistics for uniform attention over the visible keys, on the same tokens by the same kernel: the
baseline of a raw score. (`output_norm_ratio` has none.)

Row statistics are averaged over valid queries with at least two visible keys. The mean weight on marked keys m (`sink`,
`delimiter`) needs no sum per row: it is the attention these keys receive (column sums), minus that from queries with a
single visible key, which are excluded and whose weight is their row maximum:

    [ sum_j m_j sum_i a_ij  -  sum_{i with one key} m_only(i) max_i ] / number of averaged queries

Cost: one streamed pass, and ||z W_O|| by the Gram matrix of W_O (64 x 64 per head), so nothing of the size of the residual
stream is computed per head. In families with a post-attention norm, `output_norm_ratio` is the norm before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor, nn

from headwise.core.dims import STATISTIC
from headwise.core.errors import SeamError
from headwise.instruments.readings import HeadReadings, uniform_head
from headwise.kernels.attention import AttentionMask
from headwise.kernels.contract import Match, ReductionRequest, Reductions
from headwise.kernels.norms import Gram
from headwise.seam import AttentionCall, ForwardContext, OutputProjection, Structure, output_projections

STATISTICS = (
    "entropy", "sink", "diagonal", "previous", "distance", "spread", "induction", "duplicate", "delimiter", "top1",
    "output_norm_ratio",
)  # fmt: skip
TOKEN_MATCHES = ("profile.duplicate", "profile.induction")
OF_KEYS = ("sink", "delimiter")  # weight on marked keys
OF_ROWS = tuple(name for name in STATISTICS if name not in OF_KEYS)
PREVIOUS = (1, 2)  # half-open interval of distances


class Profile(HeadReadings):
    """What each head attends to: all statistics of the table, and their values for uniform attention.

    Args:
        delimiters: token ids that count as punctuation and line ends, as
            ``headwise.corpora.delimiter_ids(model.tokenizer)`` finds them.

    Examples:
        >>> with hw.observe(model, hw.Profile()) as seen:
        ...     _ = model(**model.encode("the old river was the old river"))
        >>> value = seen["profile"].value.isel(example=0)
        >>> value.sel(statistic="induction", layer=1).values.round(2)  # L1H4 is an induction head
        array([0.  , 0.02, 0.02, 0.11, 1.  , 0.15], dtype=float32)
        >>> uniform = seen["profile"].uniform.isel(example=0)  # the value of uniform attention
        >>> round(float(uniform.sel(statistic="induction", layer=1, head=4)), 2)
        0.14
    """

    name = "profile"
    whole_sequences = True
    stream_safe = True
    extra_dims = {"value": (STATISTIC,), "uniform": (STATISTIC,)}

    def __init__(self, delimiters: Iterable[int] = ()):
        super().__init__()
        self.delimiters = torch.tensor(sorted(delimiters), dtype=torch.long)
        self._projections: dict[int, OutputProjection] = {}
        self._grams: dict[int, Gram] = {}
        self._residual: dict[int, Tensor] = {}  # layer -> norms; held to the end of a pass, for side streams
        self._masks: dict[int, tuple[AttentionMask, QueryMeans]] = {}  # the masks of a pass, by id
        self._mask_of: dict[int, int] = {}  # layer -> the id of its mask
        self._in_pass = False

    def setup(self, structure: Structure, stack: ExitStack) -> None:
        """Prepare ||z W_O||: the output projections, and a hook on the residual stream before every layer."""
        super().setup(structure, stack)
        self._grams = {}
        try:
            self._projections = output_projections(structure)
        except SeamError:  # families in which single heads' outputs cannot be separated
            self._projections = {}
        for index, layer in enumerate(structure.layers):
            handle = layer.register_forward_pre_hook(self._residual_hook(index), with_kwargs=True)
            stack.callback(handle.remove)

    def on_forward_start(self, context: ForwardContext) -> None:
        """Enable the hooks on the residual stream."""
        super().on_forward_start(context)
        self._residual.clear()
        self._masks.clear()
        self._mask_of.clear()
        self._in_pass = True

    def on_forward_end(self, context: ForwardContext) -> None:
        """Add the baseline of each mask, while the GPU is still busy, and finish as every reading."""
        uniform = {key: self._uniform(*found) for key, found in self._masks.items()}
        for layer, values in self._layers.items():
            values["uniform"] = uniform[self._mask_of[layer]].expand_as(values["value"])
        super().on_forward_end(context)
        self._residual.clear()
        self._in_pass = False

    def requested(self, context: ForwardContext) -> ReductionRequest:
        """Marked keys and token matches are computed from the token ids of the pass."""
        if context.input_ids is None:
            raise SeamError("Profile needs token ids, but the model was given embeddings; pass input_ids")
        ids, real = context.input_ids, context.valid
        first = torch.zeros_like(real).scatter_(1, real.int().argmax(dim=1, keepdim=True), True)
        self._matches = dict(zip(TOKEN_MATCHES, token_matches(ids, real), strict=True))
        self._matching = dict(zip(TOKEN_MATCHES, matching_queries(ids, real), strict=True))
        self.delimiters = self.delimiters.to(ids.device)
        delimiter = torch.isin(ids, self.delimiters) & ~first
        self._marks = torch.stack([first, delimiter])  # (mark, batch, key) bool, as OF_KEYS
        return self._request()

    def measure(self, call: AttentionCall) -> dict[str, Tensor]:
        """Average one layer's rows."""
        mask = call.attention.mask
        if id(mask) not in self._masks:
            queries = [self._matching.get(f"profile.{name}") for name in OF_ROWS]
            self._masks[id(mask)] = mask, QueryMeans.of(mask, queries, self._marks)
        self._mask_of[call.layer] = id(mask)
        return {"value": self._value(call.reductions, self._moved(call), id(mask), call.attention.gate is not None)}

    def _value(self, reductions: Reductions, norm_ratio: Tensor, key: int, gated: bool) -> Tensor:
        """(batch, head, statistic)."""
        mask, means = self._masks[key]
        rows = self._rows(reductions, mask, len(norm_ratio)) | {"output_norm_ratio": norm_ratio}
        of_rows = means.of_rows(torch.stack([rows[name] for name in OF_ROWS]), gated)
        assert reductions.column_sums is not None and reductions.row_max is not None
        of_keys = means.of_keys(reductions.column_sums, reductions.row_max)
        by_name = dict(zip(OF_ROWS + OF_KEYS, [*of_rows, *of_keys], strict=True))
        return torch.stack([by_name[name] for name in STATISTICS], dim=-1)

    def _uniform(self, mask: AttentionMask, means: QueryMeans) -> Tensor:
        """(batch, 1, statistic) of uniform attention."""
        batch = means.queries.shape[1]
        norm_ratio = torch.full((batch, 1, mask.queries), torch.nan, device=mask.device)
        return self._value(uniform_head(mask, batch, self._request()), norm_ratio, id(mask), gated=False)

    def result(self) -> xr.Dataset:
        """The readings, with the statistics as a coordinate."""
        return super().result().assign_coords({STATISTIC: np.array(STATISTICS)})

    def _request(self) -> ReductionRequest:
        return ReductionRequest(
            column_sums=True, entropy=True, log_diagonal=True, distance=True, row_max=True, offsets=frozenset([PREVIOUS]),
            token_matches=self._matches,
        )  # fmt: skip

    def _rows(self, reductions: Reductions, mask: AttentionMask, batch: int) -> dict[str, Tensor]:
        """The row statistics, (batch, head, query) each."""
        r = reductions
        assert r.entropy is not None and r.log_diagonal is not None and r.row_max is not None
        assert r.distance_mean is not None and r.distance_variance is not None
        return {
            "entropy": r.entropy / mask.n_visible_keys(batch).clamp(min=2).log(),
            "diagonal": r.log_diagonal.exp(),
            "previous": r.offsets[PREVIOUS],
            "distance": r.distance_mean,
            "spread": r.distance_variance.sqrt(),
            "induction": r.token_matches["profile.induction"],
            "duplicate": r.token_matches["profile.duplicate"],
            "top1": r.row_max,
        }

    def _moved(self, call: AttentionCall) -> Tensor:
        """||z W_O^h|| / ||residual||, (batch, head, query)."""
        residual, layer, z = self._residual[call.layer], call.layer, call.z
        if layer not in self._projections:
            return torch.full((z.shape[0], z.shape[2], z.shape[1]), torch.nan, device=z.device)
        if layer not in self._grams:
            self._grams[layer] = self._projections[layer].gram()
        return self._grams[layer].norms(z) / residual[:, None].to(z.device)

    def _residual_hook(self, layer: int) -> Any:
        def hook(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            if self._in_pass:
                hidden = args[0] if args else kwargs["hidden_states"]
                self._residual[layer] = torch.linalg.vector_norm(hidden.detach(), dim=-1, dtype=torch.float32)

        return hook


# ---- means over queries ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class QueryMeans:
    """Means over queries of row statistics, and of the weight on marked keys; shared by all layers with one mask."""

    queries: Tensor  # (statistic, batch, 1, query) bool: the averaged queries of each statistic
    per_query: Tensor  # (statistic, batch, 1): one over their number; NaN if there are none
    marks: Tensor  # (mark, batch, 1, key) float
    single: Tensor  # (mark, batch, 1 or head, query) bool: queries whose only visible key is marked
    per_row: Tensor  # (batch, 1): one over the number of queries with at least two visible keys

    @classmethod
    def of(cls, mask: AttentionMask, chosen: Sequence[Tensor | None], marks: Tensor) -> QueryMeans:
        """`chosen`: the queries (batch, query) bool of each statistic, None: all; `marks`: (mark, batch, key)."""
        batch, device = marks.shape[1], mask.device
        counted = mask.valid_queries(batch) & (mask.n_visible_keys(batch)[:, 0] > 1)
        queries = torch.stack([counted if own is None else counted & own.to(device) for own in chosen])[:, :, None]
        marks = marks.to(device)
        single = _single_key(marks, mask)
        return cls(queries, _reciprocal_count(queries), marks[:, :, None].float(), single,
                   _reciprocal_count(counted[:, None]))  # fmt: skip

    def of_rows(self, rows: Tensor, gated: bool) -> Tensor:
        """(statistic, batch, head) of (statistic, batch, head, query).

        In a sparse model, rows without an open gate have no entropy and no distance, and are excluded. In a dense model
        NaN is an error, and propagates.
        """
        if gated:
            defined = self.queries & ~rows.isnan()
            return torch.where(defined, rows, 0.0).sum(dim=-1) * _reciprocal_count(defined)
        return torch.where(self.queries, rows, 0.0).sum(dim=-1) * self.per_query

    def of_keys(self, column_sums: Tensor, row_max: Tensor) -> Tensor:
        """(mark, batch, head) of column sums (batch, head, key) and row maxima (batch, head, query)."""
        received = (self.marks * column_sums).sum(dim=-1)
        return (received - torch.where(self.single, row_max, 0.0).sum(dim=-1)) * self.per_row


def _reciprocal_count(some: Tensor) -> Tensor:
    """One over the number of True entries along the last dim; NaN if there are none."""
    count = some.sum(dim=-1)
    return torch.where(count > 0, 1.0 / count.clamp(min=1), torch.nan)


def _single_key(marks: Tensor, mask: AttentionMask) -> Tensor:
    """(mark, batch, 1 or head, query) bool: valid queries with a single visible key that is marked."""
    batch = marks.shape[1]
    if mask.explicit is not None:
        only = mask.explicit.int().argmax(dim=-1).expand(batch, -1, -1)
    else:
        own = torch.arange(mask.queries, device=mask.device) + mask.offset
        only = own.clamp(0, mask.keys - 1).expand(batch, 1, -1)
    index = only[None].expand(len(marks), *only.shape)
    marked = marks[:, :, None].expand(-1, -1, only.shape[1], -1).gather(-1, index)
    return marked & mask.valid_queries(batch)[:, None] & (mask.n_visible_keys(batch) == 1)


# ---- repeated tokens ------------------------------------------------------------------------------------------------


def token_matches(ids: Tensor, valid: Tensor) -> tuple[Match, Match]:
    """The keys of a duplicate-token head and of an induction head, for token ids (batch, token).

        tokens     a b c a b          query 3 (a): duplicate 0, induction 1
                   0 1 2 3 4          query 4 (b): duplicate 1, induction 2

    For query i and every earlier p with the same token, the duplicate key is p and the induction key p + 1, the token that
    followed it (unless that is i itself): matches with a key's own token, and with the token before it. Tokens that are not
    `valid` match nothing.
    """
    own = ids.masked_fill(~valid, -1)
    before = torch.nn.functional.pad(own[:, :-1], (1, 0), value=-1).masked_fill(~valid, -1)
    return Match(own, own), Match(own, before)


def matching_queries(ids: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
    """(batch, token) bool, twice: the queries with a duplicate key, and those with an induction key.

    A token has one if its first occurrence is before it, or more than one position before it.
    """
    position = torch.arange(ids.shape[1], device=ids.device)
    first = _first_occurrences(ids.masked_fill(~valid, -1))
    return (first < position) & valid, (first < position - 1) & valid


def _first_occurrences(ids: Tensor) -> Tensor:
    """(batch, token): the position of each token's first occurrence, by sorting, without a T x T comparison."""
    ordered, order = ids.sort(dim=1, stable=True)
    begins = torch.ones_like(ordered, dtype=torch.bool)
    begins[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    run = torch.arange(ids.shape[1], device=ids.device).expand_as(ids).where(begins, 0).cummax(dim=1).values
    return torch.empty_like(order).scatter_(1, order, order.gather(1, run))
