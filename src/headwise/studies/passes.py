"""Forward passes over many examples: batched by length, readings restored to the order of the examples.

    readings = observe_examples(examples, batch_tokens, device, measure_batch)

``measure_batch`` runs the model on one `Batch` and returns its readings, or a function that returns them: then all batches
are queued before the first is read, so that a GPU does not wait for the host.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
import xarray as xr

from headwise.core.dims import EXAMPLE
from headwise.corpora import Batch, Example, batches

__all__ = ["observe_examples"]


def observe_examples(
    examples: Sequence[Example],
    batch_tokens: int,
    device: torch.device,
    measure_batch: Callable[[Batch], xr.Dataset | Callable[[], xr.Dataset]],
) -> xr.Dataset:
    """The readings of all examples, concatenated along `example` in the order given and named by their ids."""
    queued: list[xr.Dataset | Callable[[], xr.Dataset]] = []
    order: list[int] = []
    for batch in batches(examples, batch_tokens, device):
        queued.append(measure_batch(batch))
        order.extend(batch.indices)
    parts = [one if isinstance(one, xr.Dataset) else one() for one in queued]
    readings = xr.concat(parts, dim=EXAMPLE, data_vars="all").isel({EXAMPLE: np.argsort(order)})
    return readings.assign_coords({EXAMPLE: [example.id for example in examples]})
