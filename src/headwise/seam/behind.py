"""Looking at layers behind the model's back: the model runs ahead, and its layers are looked at one later.

A GPU works through a queue. A layer is looked at when the next one is in the queue, so that it never waits for the instruments'
many small launches. Where every instrument agrees (`Instrument.stream_safe`) the looking has a queue of its own: the model's
element-wise steps wait for memory and the reductions for arithmetic, and together they take less time than one after the
other (H200, the shape of Llama-3.1-8B, 16 x 512 tokens: Spectrum and Profile 1.045 times a plain forward instead of 1.067).

Two queues and one memory: what Python lets go of may be given out anew in the queue it was made in, while the other still
reads it. So a layer's call is held until its looking is over, and the model's queue is told to wait for that; by then it
has been over for long. A large call does not wait for the next layer, so that never two of them are held. All that is
made in the second queue is read by the first one after `finish`, and what a later pass makes there waits for that.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import torch

from headwise.seam.attention_call import AttentionCall

RUNS_BEHIND = ("cuda",)  # devices that work through a queue
LIGHT = 2**28  # bytes of a call that may wait; a GPU has enough to do with a larger one

Look = Callable[[AttentionCall], None]  # what is done with a call
Timed = tuple[AttentionCall, torch.cuda.Event | None]  # with a point of a queue


class Behind:
    """The layers of one pass, each looked at when the next one has run.

    Args:
        beside: whether that may be done in a queue of its own.
    """

    def __init__(self, beside: bool):
        self.beside = beside
        self.waiting: Timed | None = None  # run, not looked at; and when its tensors are there
        self.running: Timed | None = None  # being looked at; and when that is over

    def hand(self, call: AttentionCall, look: Look) -> None:
        """A layer has run: look at the one before, and at a large one at once."""
        handed = call, self._now(call.z.device)
        self._next(look)
        self.waiting = handed
        if _size(call) > LIGHT:
            self._next(look)

    def finish(self, look: Look) -> None:
        """Look at what is left; from here on the model's queue may read all that was found."""
        self._next(look)
        self.drop()

    def drop(self) -> None:
        """Nothing more is looked at."""
        self.waiting = None
        self._let_go()

    def _next(self, look: Look) -> None:
        """The call that was looked at is let go, and the one that waits is looked at."""
        self._let_go()
        waiting, self.waiting = self.waiting, None
        if waiting is None:
            return
        call, there = waiting
        if there is None:
            look(call)
            return
        queue = QUEUES.of(call.z.device)
        queue.wait_event(there)
        with torch.cuda.stream(queue):
            look(call)
        self.running = call, queue.record_event()

    def _let_go(self) -> None:
        running, self.running = self.running, None
        if running is not None and running[1] is not None:
            torch.cuda.current_stream(running[0].z.device).wait_event(running[1])

    def _now(self, device: torch.device) -> torch.cuda.Event | None:
        """This point of the model's queue."""
        return torch.cuda.current_stream(device).record_event() if self.beside and device.type == "cuda" else None


class _Queues(threading.local):
    """One a device and a thread, always the same: memory that was freed in it serves it again, and nobody else."""

    def __init__(self) -> None:
        self.known: dict[torch.device, torch.cuda.Stream] = {}

    def of(self, device: torch.device) -> torch.cuda.Stream:
        if device not in self.known:
            self.known[device] = torch.cuda.Stream(device)
        return self.known[device]


QUEUES = _Queues()


def _size(call: AttentionCall) -> int:
    """Bytes that are held with a call."""
    return sum(one.numel() * one.element_size() for one in (call.attention.q, call.attention.k, call.v, call.z))
