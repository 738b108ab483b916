"""A pass under an onlooker's eyes: it may be ended early, and nothing of it stays behind."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from planted import tiny_model
from torch import Tensor, nn

from headwise.seam.glance import Enough, Onlooker, glance
from headwise.seam.interface import CURRENT


class Counter(Onlooker):
    """Hands back nought, and has seen enough after so many layers."""

    def __init__(self, most: int) -> None:
        self.most, self.seen = most, 0

    def attend(
        self, layer: int, module: nn.Module, q: Tensor, k: Tensor, v: Tensor, mask: Any, options: dict[str, Any]
    ) -> Tensor:
        self.seen += 1
        if self.seen == self.most:
            raise Enough
        return torch.zeros(q.shape[0], q.shape[2], q.shape[1], v.shape[3])


@pytest.mark.parametrize(("most", "ended", "seen"), [(2, True, 2), (99, False, 3)])
def test_it_says_whether_the_onlooker_ended_the_pass(most: int, ended: bool, seen: int) -> None:
    hf, _ = tiny_model(layers=3)
    before, tokens = hf.config._attn_implementation, torch.tensor([[1, 2, 3]])
    onlooker = Counter(most)
    with torch.no_grad():
        assert glance(hf, onlooker, lambda: hf(input_ids=tokens)) is ended
    assert onlooker.seen == seen
    assert CURRENT.get() is None
    assert hf.config._attn_implementation == before


def test_other_errors_come_through_and_leave_nothing_behind() -> None:
    hf, _ = tiny_model(layers=1)

    def fail() -> None:
        raise RuntimeError("no memory")

    with pytest.raises(RuntimeError, match="no memory"):
        glance(hf, Counter(9), fail)
    assert CURRENT.get() is None
