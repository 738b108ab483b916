"""Which implementation computes the reductions: the Triton kernels on a GPU that runs them, otherwise blocks in torch."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

from torch import Tensor

from headwise.kernels import blocked
from headwise.kernels.attention import Attention
from headwise.kernels.contract import ReductionRequest, Reductions
from headwise.kernels.rows import row_logs


def reduce(attention: Attention, request: ReductionRequest, logs: Tensor | None = None) -> Reductions:
    """All requested reductions, the fastest way this device has; ``logs``: the row of a decode step, where it is known."""
    found = Reductions()
    if request.streams:
        fused = triton_module("headwise.kernels.fused") if attention.q.is_cuda else None
        fits = fused is not None and fused.can_reduce(attention, request)
        found = fused.reduce(attention, request) if fused is not None and fits else blocked.reduce(attention, request)
    if request.row_logs:
        found.row_logs = row_logs(attention) if logs is None else logs
    return found


@cache
def triton_module(name: str) -> ModuleType | None:
    """A module of Triton kernels, imported when first needed; None without Triton, which only torch for GPUs brings."""
    return import_module(name) if find_spec("triton") is not None else None
