"""Run instruments one layer late on a side CUDA stream, so that the model does not wait for them.

Kernel launches on a GPU are asynchronous. A layer is observed after the next layer has been launched, so that the model never
waits for the many small launches of the instruments. If every instrument allows it (`Instrument.stream_safe`), observation
runs on a CUDA stream of its own: the model's element-wise operations are bound by memory and the reductions by arithmetic, and
overlapping them takes less time than running them in sequence (H200, the shape of Llama-3.1-8B, 16 x 512 tokens: Spectrum and
Profile cost 1.045 times a plain forward pass instead of 1.067).

The caching allocator may reuse a freed tensor on the stream that allocated it while the side stream is still reading it. So a
call is held until its observation is complete, and the model's stream waits for that event; by then it has long been reached.
A large call is not deferred, so that two of them are never held at once. The model's stream reads what the side stream
computed only after `finish`, and what a later pass computes on the side stream waits for that.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import torch

from headwise.seam.instrument import AttentionCall

ASYNC_DEVICES = ("cuda",)  # launches return before the work is done
MAX_DEFERRED_BYTES = 2**28  # larger calls keep a GPU busy without deferring

Observe = Callable[[AttentionCall], None]
CallAndEvent = tuple[AttentionCall, torch.cuda.Event | None]


class SideStream:
    """The layers of one forward pass, each observed after the next one has been launched.

    Args:
        stream_safe: whether observation may run on a stream of its own.
    """

    def __init__(self, stream_safe: bool):
        self.stream_safe = stream_safe
        self.pending: CallAndEvent | None = None  # launched, not yet observed; the event: its tensors are ready
        self.running: CallAndEvent | None = None  # being observed; the event: observation is complete

    def submit(self, call: AttentionCall, observe: Observe) -> None:
        """A layer was launched: observe the one before it, and a large one immediately."""
        device = call.z.device
        on_side = self.stream_safe and device.type == "cuda"
        submitted = call, torch.cuda.current_stream(device).record_event() if on_side else None
        self._advance(observe)
        self.pending = submitted
        tensors = (call.attention.q, call.attention.k, call.v, call.z)
        if sum(one.numel() * one.element_size() for one in tensors) > MAX_DEFERRED_BYTES:
            self._advance(observe)

    def finish(self, observe: Observe) -> None:
        """Observe what is left; from here on the model's stream may read all results."""
        self._advance(observe)
        self.abort()

    def abort(self) -> None:
        """Observe nothing more."""
        self.pending = None
        self._release()

    def _advance(self, observe: Observe) -> None:
        """Release the observed call and observe the pending one."""
        self._release()
        pending, self.pending = self.pending, None
        if pending is None:
            return
        call, ready = pending
        if ready is None:
            observe(call)
            return
        stream = _STREAMS.of(call.z.device)
        stream.wait_event(ready)
        with torch.cuda.stream(stream):
            observe(call)
        self.running = call, stream.record_event()

    def _release(self) -> None:
        running, self.running = self.running, None
        if running is not None and running[1] is not None:
            torch.cuda.current_stream(running[0].z.device).wait_event(running[1])


class _Streams(threading.local):
    """One CUDA stream per device and thread, always the same: memory freed on it is reused on it and nowhere else."""

    def __init__(self) -> None:
        self.known: dict[torch.device, torch.cuda.Stream] = {}

    def of(self, device: torch.device) -> torch.cuda.Stream:
        if device not in self.known:
            self.known[device] = torch.cuda.Stream(device)
        return self.known[device]


_STREAMS = _Streams()
