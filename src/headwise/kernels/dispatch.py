"""Which implementation computes the reductions: the Triton kernels on a GPU that runs them, otherwise blocks in torch."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING

import torch

from headwise.kernels import blocked
from headwise.kernels.attention import Attention
from headwise.kernels.contract import ReductionRequest, Reductions, RowMarks
from headwise.kernels.rows import RowStep, row_logs

if TYPE_CHECKING:
    from headwise.kernels.decode import DecodeStep


def reduce(attention: Attention, request: ReductionRequest, row: Reductions | None = None) -> Reductions:
    """All requested reductions, the fastest way this device has; ``row``: those of a decode step's row that are known."""
    found = Reductions()
    if request.streams:
        fused = triton_module("headwise.kernels.fused") if attention.q.is_cuda else None
        fits = fused is not None and fused.can_reduce(attention, request)
        found = fused.reduce(attention, request) if fused is not None and fits else blocked.reduce(attention, request)
    if row is not None:
        found.row_logs, found.row_statistics = row.row_logs, row.row_statistics
    if request.row and found.row_logs is None and (request.row_logs or found.row_statistics is None):
        found.row_logs = row_logs(attention)
    return found


def decode_step(marks: RowMarks, device: torch.device, *, alone: bool) -> DecodeStep | RowStep | None:
    """What computes output and row of a decode step together; ``alone``: nothing else needs to see its layers."""
    module = triton_module("headwise.kernels.decode") if device.type == "cuda" else None
    step: DecodeStep | RowStep | None = RowStep(marks) if alone else None
    return step if module is None else module.DecodeStep(marks)


@cache
def triton_module(name: str) -> ModuleType | None:
    """A module of Triton kernels, imported when first needed; None without Triton, which only torch for GPUs brings."""
    return import_module(name) if find_spec("triton") is not None else None
