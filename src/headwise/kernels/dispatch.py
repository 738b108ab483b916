"""Which implementation computes the reductions: the Triton kernels on a GPU that runs them, otherwise blocks in torch."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

from headwise.kernels import blocked
from headwise.kernels.attention import Attention
from headwise.kernels.contract import ReductionRequest, Reductions


def reduce(attention: Attention, request: ReductionRequest) -> Reductions:
    """All requested reductions, the fastest way this device has."""
    fused = triton_module("headwise.kernels.fused") if attention.q.is_cuda else None
    if fused is not None and fused.can_reduce(attention, request):
        found: Reductions = fused.reduce(attention, request)
        return found
    return blocked.reduce(attention, request)


@cache
def triton_module(name: str) -> ModuleType | None:
    """A module of Triton kernels, imported when first needed; None without Triton, which only torch for GPUs brings."""
    return import_module(name) if find_spec("triton") is not None else None
