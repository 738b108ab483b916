"""Small instruments and interventions that tests put on a model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
import xarray as xr
from torch import Tensor

from headwise.kernels import ReductionRequest
from headwise.seam import AttentionCall, ForwardContext, Instrument, Intervention

PLACELESS = ReductionRequest(  # every reduction that does not depend on where in the batch a text stands
    column_sums=True,
    log_diagonal=True,
    entropy=True,
    distance=True,
    row_max=True,
    top=4,
    offsets=frozenset([(0, 1), (1, 2), (2, 9)]),
)


class Recorder(Instrument):
    """Keeps every call of the last pass, and counts passes."""

    def __init__(self, wanted: ReductionRequest = PLACELESS, name: str = "recorder"):
        self.wanted, self.name = wanted, name
        self.calls: dict[int, AttentionCall] = {}
        self.contexts: list[ForwardContext] = []
        self.zs: list[dict[int, Tensor]] = []

    def on_forward_start(self, context: ForwardContext) -> None:
        self.calls = {}
        self.zs.append({})

    def requested(self, context: ForwardContext) -> ReductionRequest:
        return self.wanted

    def on_layer(self, call: AttentionCall) -> None:
        self.calls[call.layer] = call
        self.zs[-1][call.layer] = call.z.detach().clone()

    def on_forward_end(self, context: ForwardContext) -> None:
        self.contexts.append(context)

    def result(self) -> xr.Dataset:
        return xr.Dataset({"passes": len(self.contexts)})


class Call(Instrument):
    """Calls a function for every call."""

    name = "call"

    def __init__(
        self,
        see: Callable[[AttentionCall], Any],
        wanted: ReductionRequest | Callable[[ForwardContext], ReductionRequest] | None = None,
    ):
        self._on_layer, self._wanted = see, wanted or ReductionRequest()

    def requested(self, context: ForwardContext) -> ReductionRequest:
        return self._wanted if isinstance(self._wanted, ReductionRequest) else self._wanted(context)

    def on_layer(self, call: AttentionCall) -> None:
        self._on_layer(call)

    def result(self) -> xr.Dataset:
        return xr.Dataset()


class Change(Intervention):
    """Changes z by a function."""

    def __init__(self, change: Callable[[AttentionCall], Tensor]):
        self._change = change

    def change(self, call: AttentionCall) -> Tensor:
        return self._change(call)


@contextmanager
def float64_softmax() -> Iterator[None]:
    """Families' eager functions take their softmax in float32 even of float64 logits; here they do not."""
    softmax = torch.nn.functional.softmax

    def exact(x: Tensor, *args: Any, dtype: torch.dtype | None = None, **kwargs: Any) -> Tensor:
        return softmax(x, *args, dtype=None if x.dtype == torch.float64 else dtype, **kwargs)

    with patch("torch.nn.functional.softmax", exact):
        yield
