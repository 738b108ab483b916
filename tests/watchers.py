"""Small instruments and interventions that tests put on a model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
import xarray as xr
from torch import Tensor

from headwise.kernels import Wanted
from headwise.seam import Frame, Instrument, Intervention, Shot

PLACELESS = Wanted(  # every reduction that does not depend on where in the batch a text stands
    column_sums=True,
    log_diagonal=True,
    entropy=True,
    distance=True,
    peak=True,
    top=4,
    offsets=frozenset([(0, 1), (1, 2), (2, 9)]),
)


class Recorder(Instrument):
    """Keeps every frame of the last pass, and counts passes."""

    def __init__(self, wanted: Wanted = PLACELESS, name: str = "recorder"):
        self.wanted, self.name = wanted, name
        self.frames: dict[int, Frame] = {}
        self.shots: list[Shot] = []
        self.zs: list[dict[int, Tensor]] = []

    def begin(self, shot: Shot) -> None:
        self.frames = {}
        self.zs.append({})

    def wants(self, shot: Shot) -> Wanted:
        return self.wanted

    def see(self, frame: Frame) -> None:
        self.frames[frame.layer] = frame
        self.zs[-1][frame.layer] = frame.z.detach().clone()

    def end(self, shot: Shot) -> None:
        self.shots.append(shot)

    def read(self) -> xr.Dataset:
        return xr.Dataset({"passes": len(self.shots)})


class Call(Instrument):
    """Calls a function for every frame."""

    name = "call"

    def __init__(self, see: Callable[[Frame], Any], wanted: Wanted | Callable[[Shot], Wanted] | None = None):
        self._see, self._wanted = see, wanted or Wanted()

    def wants(self, shot: Shot) -> Wanted:
        return self._wanted if isinstance(self._wanted, Wanted) else self._wanted(shot)

    def see(self, frame: Frame) -> None:
        self._see(frame)

    def read(self) -> xr.Dataset:
        return xr.Dataset()


class Change(Intervention):
    """Changes z by a function."""

    def __init__(self, change: Callable[[Frame], Tensor]):
        self._change = change

    def change(self, frame: Frame) -> Tensor:
        return self._change(frame)


@contextmanager
def float64_softmax() -> Iterator[None]:
    """Families' eager functions take their softmax in float32 even of float64 logits; here they do not."""
    softmax = torch.nn.functional.softmax

    def exact(x: Tensor, *args: Any, dtype: torch.dtype | None = None, **kwargs: Any) -> Tensor:
        return softmax(x, *args, dtype=None if x.dtype == torch.float64 else dtype, **kwargs)

    with patch("torch.nn.functional.softmax", exact):
        yield
