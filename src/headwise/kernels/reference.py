"""The reference implementation: build the whole T x T map, then compute the table in `contract` line by line.

The streamed kernels are tested against it in float64. Memory: several times batch x heads x T x T; never used in a user's
run.
"""

from __future__ import annotations

import torch
from torch import Tensor

from headwise.kernels.attention import Attention
from headwise.kernels.contract import VANISHING, ReductionRequest, Reductions


def reduce(attention: Attention, request: ReductionRequest, *, dtype: torch.dtype = torch.float64) -> Reductions:
    """All requested reductions, from materialised weights."""
    return reduce_weights(attention.weights(dtype=dtype), attention, request)


def reduce_weights(a: Tensor, attention: Attention, request: ReductionRequest) -> Reductions:
    """The same from given weights, (batch, head, query, key), such as those of a family's eager function."""
    batch, _, queries, keys = a.shape
    mask = attention.mask
    with_keys = mask.rows_with_keys(batch)  # (batch, head or 1, query)
    own = torch.arange(queries, device=a.device) + mask.offset
    lag = own[:, None] - torch.arange(keys, device=a.device)[None, :]  # (query, key)
    a = a.masked_fill(~with_keys[..., None], 0.0)
    mass = a.sum(dim=-1)
    p = a / mass[..., None]
    out = Reductions()

    def rows(x: Tensor) -> Tensor:
        return x.masked_fill(~with_keys.view(*with_keys.shape, *[1] * (x.ndim - 3)), torch.nan)

    if request.column_sums:
        out.column_sums = a.sum(dim=2)
    for name, weights in request.query_weights.items():
        weights = torch.where(mask.valid_queries(batch), weights, 0.0).to(a.dtype)
        out.query_weights[name] = torch.einsum("bq,bhqk->bhk", weights, a)
    if request.log_diagonal:
        here = (own >= 0) & (own < keys)  # -inf for tokens that are not among the keys
        index = own.clamp(0, keys - 1).expand(*a.shape[:2], -1)[..., None]
        out.log_diagonal = rows((a.gather(-1, index)[..., 0] * here).log())
    if request.entropy:
        out.entropy = rows(-torch.special.xlogy(p, p).sum(dim=-1))
    if request.distance:
        mean = (p * lag).sum(dim=-1)
        out.distance_mean = rows(mean)
        out.distance_variance = rows((p * (lag - mean[..., None]) ** 2).sum(dim=-1))
    if request.row_max:
        out.row_max = rows(a.amax(dim=-1))
    if request.row_logs:
        assert queries == 1
        out.row_logs = a.log()
    if request.top:
        weights, index = torch.nn.functional.pad(a, (0, max(0, request.top - keys))).topk(request.top, dim=-1)
        none = weights <= VANISHING
        out.top_weights, out.top_keys = rows(weights.masked_fill(none, 0.0)), index.masked_fill(none, -1)
    for low, high in request.offsets:
        out.offsets[low, high] = rows((a * ((lag >= low) & (lag < high))).sum(dim=-1))
    for name, keyed in request.key_weights.items():
        out.key_weights[name] = rows(torch.einsum("bhqk,bk->bhq", a, keyed.to(a.dtype)))
    for name, match in request.token_matches.items():
        same = (match.query[:, :, None] == match.key[:, None, :]) & (match.query >= 0)[:, :, None] & (lag > 0)
        out.token_matches[name] = rows((a * same[:, None]).sum(dim=-1))
    for threshold in request.count_above:
        out.count_above[threshold] = rows((a > max(threshold, VANISHING)).sum(dim=-1).to(a.dtype))
    return out
