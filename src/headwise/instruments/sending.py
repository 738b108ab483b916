"""Small results on their way to the CPU: a GPU sends them by pinned memory and goes on; nobody waits before they are read."""

from __future__ import annotations

import torch
from torch import Tensor


class Sending:
    """What one instrument has sent. The last to be sent is the last to arrive, so one event tells of all.

    Examples:
        >>> sending = Sending()
        >>> sent = sending.send(torch.arange(3))
        >>> sending.arrive()
        >>> sent
        tensor([0, 1, 2])
    """

    def __init__(self) -> None:
        self._arrival: torch.cuda.Event | None = None

    def send(self, values: Tensor) -> Tensor:
        """Where `values` will be on the CPU: to be read after `arrive`."""
        if not values.is_cuda:
            return values.cpu()
        room = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
        room.copy_(values, non_blocking=True)
        self._arrival = torch.cuda.Event()
        self._arrival.record(torch.cuda.current_stream(values.device))
        return room

    def arrive(self) -> None:
        """Wait for all that was sent."""
        if self._arrival is not None:
            self._arrival.synchronize()
