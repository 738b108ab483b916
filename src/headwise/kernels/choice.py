"""Which way to compute the reductions: the fused kernels where there is a GPU that runs them, else blocks in torch."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

from headwise.kernels import blocked
from headwise.kernels.attention import Attention
from headwise.kernels.contract import ReductionRequest, Reductions


def reduce(attention: Attention, wanted: ReductionRequest) -> Reductions:
    """All that is wanted, the quickest way this device has."""
    fused = with_triton("headwise.kernels.fused") if attention.q.is_cuda else None
    if fused is not None and fused.can_reduce(attention, wanted):
        found: Reductions = fused.reduce(attention, wanted)
        return found
    return blocked.reduce(attention, wanted)


@cache
def with_triton(name: str) -> ModuleType | None:
    """A module of Triton kernels, loaded when first needed: Triton comes with torch for GPUs, and is not everywhere."""
    return import_module(name) if find_spec("triton") is not None else None
