"""A traced forward pass may be stopped early, and leaves no trace on the model."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from planted import tiny_model
from torch import Tensor, nn

from headwise.seam.interface import CURRENT, ForwardTracer, StopForward, trace_until


class Counter(ForwardTracer):
    """Returns zeros, and stops after so many layers."""

    def __init__(self, stop_after: int) -> None:
        self.stop_after, self.seen = stop_after, 0

    def attend(
        self, layer: int, module: nn.Module, q: Tensor, k: Tensor, v: Tensor, mask: Any, options: dict[str, Any]
    ) -> Tensor:
        self.seen += 1
        if self.seen == self.stop_after:
            raise StopForward
        return torch.zeros(q.shape[0], q.shape[2], q.shape[1], v.shape[3])


@pytest.mark.parametrize(("stop_after", "ended", "seen"), [(2, True, 2), (99, False, 3)])
def test_it_returns_whether_the_tracer_stopped_the_pass(stop_after: int, ended: bool, seen: int) -> None:
    hf, _ = tiny_model(layers=3)
    before, tokens = hf.config._attn_implementation, torch.tensor([[1, 2, 3]])
    tracer = Counter(stop_after)
    with torch.no_grad():
        assert trace_until(hf, tracer, lambda: hf(input_ids=tokens)) is ended
    assert tracer.seen == seen
    assert CURRENT.get() is None
    assert hf.config._attn_implementation == before


def test_other_errors_are_raised_and_the_model_is_restored() -> None:
    hf, _ = tiny_model(layers=1)

    def fail() -> None:
        raise RuntimeError("no memory")

    with pytest.raises(RuntimeError, match="no memory"):
        trace_until(hf, Counter(9), fail)
    assert CURRENT.get() is None
