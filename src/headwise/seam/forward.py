"""One forward pass under observation, and the patched forward of the decoder that starts one.

An observed decoder has its `forward` replaced by a `PatchedForward`, once, however many observations are active. Each call
of it is a `Pass`, which reads the context of the pass from the arguments, receives every layer at the seam as an
`AttentionCall`, applies the interventions, runs the instruments, and finally checks that every layer was seen exactly once.

z comes from a fused kernel, and all requested reductions come from one streamed computation. Where an instrument requests the
row of a decode step, z is taken from that row instead: on a GPU from the kernel that sums it (`kernels.decode`), which differs
from SDPA by rounding, on other devices from the row itself in float32 and float64 (`kernels.rows`).

What a decode step costs in Python counts: a small batch waits for it, not for the GPU. So nothing in it reads a tensor back,
its masks are taken as they are (one query sees what its row of the mask says), and where nothing but `row_statistics` is
requested a layer is one launch.

transformers compiles `generate` on a static cache into CUDA graphs. Under observation it does not: a graph would replay the
launches of one step without its Python, the contexts, positions and interventions of the step included. `observe` therefore
disables the compilation inside `generate`, and the decoder's forward is excluded from any other `torch.compile`. Static caches
work, without their graphs.
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor, nn

from headwise.core.errors import SeamError
from headwise.kernels.attention import Attention, AttentionMask
from headwise.kernels.contract import ReductionRequest, Reductions
from headwise.kernels.dispatch import decode_step, reduce
from headwise.kernels.rows import WIDE, RowStep, row_logs, row_output
from headwise.model.gate import gate_of
from headwise.seam.between import Between, between
from headwise.seam.instrument import AttentionCall, ForwardContext, Instrument, Intervention
from headwise.seam.interface import CURRENT, installed
from headwise.seam.mask import forward_context, parse_mask, parse_row
from headwise.seam.outputs import attention_output
from headwise.seam.structure import (
    Structure,
    refuse_heads,
    refuse_options,
    refuse_recomputing,
    refuse_unlike_padding,
    refuse_unseen,
)

ASYNC_DEVICES = ("cuda",)  # launches return before the work is done
MAX_DEFERRED_BYTES = 2**28  # larger calls keep a GPU busy without deferring

if TYPE_CHECKING:
    from headwise.kernels.decode import DecodeStep

Observe = Callable[[AttentionCall], None]
CallAndEvent = tuple[AttentionCall, torch.cuda.Event | None]


class Observers(Protocol):
    """What a pass needs from an observation."""

    instruments: list[Instrument]
    interventions: list[Intervention]
    valid: Tensor | None
    passes: int


class Pass:
    """One forward pass; `observations` outermost first."""

    def __init__(
        self,
        structure: Structure,
        between: Mapping[int, Between],
        observations: Sequence[Observers],
        arguments: dict[str, Any],
    ):
        self.structure = structure
        given = [one.valid for one in observations if one.valid is not None]
        if any(not torch.equal(one.bool(), given[0].bool()) for one in given[1:]):
            raise SeamError("nested observations were given different valid tokens; give valid to one of them")
        valid = given[0] if given else None
        context = forward_context(0, arguments, valid)
        self.all_real = valid is None and arguments.get("attention_mask") is None  # known without waiting for a GPU
        self.context = context
        self.observers = [(one, replace(context, index=one.passes)) for one in observations]
        self.seen: Counter[int] = Counter()
        self.intervenes = any(one.interventions for one in observations)
        self.side_stream = SideStream(all(one.stream_safe for one, _ in self._instruments()))
        self.masks: dict[tuple[Any, ...], tuple[Tensor | None, AttentionMask]] = {}
        self.between = between
        self.waiting: dict[int, AttentionCall] = {}  # layers whose gate or norm has not come yet
        self.request = ReductionRequest()
        self.step: DecodeStep | RowStep | None = None  # computes output and row of a decode step, where possible
        self.needs_layers = True  # whether anything needs to see a layer whose row it has summed

    @cached_property
    def valid(self) -> Tensor | None:
        """The real tokens; None: all are."""
        return None if self.all_real or bool(self.context.valid.all()) else self.context.valid

    def run(self, forward: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the decoder's own forward."""
        refuse_recomputing(self.structure)
        for instrument, context in self._instruments():
            instrument.on_forward_start(context)
            self.request = self.request | instrument.requested(context)
        only_sums = all(instrument.only_row_statistics for instrument, _ in self._instruments())
        self.needs_layers = self.intervenes or self.request.streams or not only_sums
        marks = self.request.row_statistics
        if marks is not None and not self.request.row_logs and not torch.is_grad_enabled():
            self.step = decode_step(marks, self.context.valid.device, alone=not self.needs_layers)
        token = CURRENT.set(self)
        try:
            result = forward(*args, **kwargs)
            self.side_stream.finish(self._observe)
            if self.step is not None:
                self.step.finish()
        finally:
            CURRENT.reset(token)
            self.side_stream.abort()
        refuse_unseen(self.structure, self.seen)
        if self.waiting:
            raise SeamError(
                f"{self.structure.card.id}: the output projection of layer {min(self.waiting)} was not called in this pass, "
                "so what its heads write was not seen; this model is refused rather than measured in part"
            )
        with torch.no_grad():
            for instrument, context in self._instruments():
                instrument.on_forward_end(context)
        for observation, _ in self.observers:
            observation.passes += 1
        return result

    def layer_of(self, module: nn.Module) -> int | None:
        """The layer a module belongs to, or None for modules outside the decoder."""
        return self.structure.layer_of.get(id(module))

    def attend(
        self,
        layer: int,
        module: nn.Module,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Tensor | None,
        options: dict[str, Any],
    ) -> Tensor:
        """Called by the seam for one layer's attention. Returns the z that the model continues with."""
        refuse_options(layer, module, mask, options)
        refuse_heads(self.structure, layer, q.shape[1])
        options = dict(options)
        scale = options.pop("scaling", None)
        scale = q.shape[-1] ** -0.5 if scale is None else float(scale)
        alike: tuple[Any, ...] = ()
        if self.step is not None:
            alike = (id(mask), scale, options.get("softcap"), id(getattr(module, "config", None)))
        if self.step is not None and not self.needs_layers:
            z = self.step.again(layer, q, k, v, options.get("s_aux"), alike)
            if z is not None:
                self.seen[layer] += 1
                return z
        if mask is None and q.shape[2] > 1:
            k, v = k[:, :, : q.shape[2]], v[:, :, : q.shape[2]]  # an empty static cache is longer than its content
        parsed = self._parsed(mask, q.shape[2], k.shape[2], q.device)
        attention = Attention(q, k, scale, parsed, options.get("softcap"), options.get("s_aux"), gate=gate_of(module))
        row = Reductions()
        z = None if self.step is None else self.step.first(layer, attention, v, alike)
        if z is not None and not self.needs_layers:
            self.seen[layer] += 1
            return z
        if z is not None and self.request.row_statistics is not None:
            row.row_statistics = self.request.row_statistics.on(z.device)[1][layer, :, : q.shape[1]]
        if z is None and self.request.row:
            with torch.no_grad():
                row.row_logs = row_logs(attention)
            if q.dtype in WIDE and not torch.is_grad_enabled():
                z = row_output(row.row_logs.exp(), v)
        if z is None:
            z, lse = attention_output(module, q, k, v, mask, scale, options)
            attention = replace(attention, lse=lse)
        self.seen[layer] += 1
        call = AttentionCall(self.observers[0][1], layer, module, attention, mask, v, z, row)
        if layer in self.between:
            self._intervene(call, on_values=True)
            self.waiting[layer] = call
            return call.z
        return self._see(call)

    def at_projection(self, layer: int, x: Tensor) -> Tensor:
        """Called where a gate or a norm made x, the input of the output projection. Returns the x to continue with."""
        call = self.waiting.pop(layer, None)
        if call is None:  # nothing needed to see it
            return x
        call.mean = call.z
        call.z = x.reshape(call.mean.shape)
        return self._see(call).reshape(x.shape)

    def _see(self, call: AttentionCall) -> Tensor:
        """Run interventions and instruments on a layer whose z is known."""
        if call.z.device.type in ASYNC_DEVICES and not self.intervenes:
            self.side_stream.submit(call, self._observe)
            return call.z
        self._reduce(call)
        self._intervene(call, on_values=None if call.mean is None else False)
        self._run_instruments(call)
        return call.z

    def _intervene(self, call: AttentionCall, *, on_values: bool | None) -> None:
        """Apply the interventions: all of them, or only those that compute z from values, or only the others."""
        for observation, context in self.observers:
            call.context = context
            for intervention in observation.interventions:
                if on_values is None or intervention.on_values == on_values:
                    call.z = intervention.change(call)

    def _observe(self, call: AttentionCall) -> None:
        self._reduce(call)
        self._run_instruments(call)

    def _reduce(self, call: AttentionCall) -> None:
        if self.request.streams:
            with torch.no_grad():
                call.reductions = reduce(call.attention, self.request, call.reductions)

    def _run_instruments(self, call: AttentionCall) -> None:
        with torch.no_grad():
            for instrument, context in self._instruments():
                call.context = context
                instrument.on_layer(call)

    def _instruments(self) -> Iterator[tuple[Instrument, ForwardContext]]:
        return ((instrument, context) for one, context in self.observers for instrument in one.instruments)

    def _parsed(self, mask: Tensor | None, queries: int, keys: int, device: torch.device) -> AttentionMask:
        """The parsed mask; parsed once for all layers of a pass that share it."""
        key = (id(mask), queries, keys, device)
        if key not in self.masks:
            row = None if self.request.streams else parse_row(mask, queries, keys, device)
            if row is not None:
                valid = None if self.all_real else self.context.valid.to(device)
                parsed = row.with_valid_queries(valid)
            else:
                valid = None if self.valid is None else self.valid.to(device)
                parsed = parse_mask(mask, queries, keys, device)
                refuse_unlike_padding(self.structure, valid, parsed.query_valid)
                parsed = parsed.with_valid_queries(valid)
            self.masks[key] = (mask, parsed)  # holds the mask, so that its id stays unique
        return self.masks[key][1]


class PatchedForward:
    """The forward of an observed decoder. Without active observations it is the decoder's own."""

    def __init__(self, structure: Structure):
        self.structure = structure
        self.observations: list[Observers] = []  # outermost first
        self.holders = 0
        self.own = structure.decoder.forward
        self.between = between(structure)
        functools.update_wrapper(self, self.own)
        self.names = tuple(inspect.signature(self.own).parameters)

    @torch.compiler.disable
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not self.observations:
            return self.own(*args, **kwargs)
        arguments = {**dict(zip(self.names, args, strict=False)), **kwargs}
        return Pass(self.structure, self.between, tuple(self.observations), arguments).run(self.own, args, kwargs)

    def install(self) -> ExitStack:
        """Put the seam on the model; closing the result removes it."""
        with ExitStack() as stack:
            decoder, before = self.structure.decoder, vars(self.structure.decoder).get("forward")
            stack.enter_context(installed(self.structure.hf))
            stack.enter_context(_uncompiled(self.structure.hf))
            decoder.forward = self
            stack.callback(self._restore, before)
            for layer, there in self.between.items():
                handle = there.projection.register_forward_pre_hook(_at_projection(layer))
                stack.callback(handle.remove)
            return stack.pop_all()

    def _restore(self, before: Any) -> None:
        decoder = self.structure.decoder
        if vars(decoder).get("forward") is not self:
            return  # wrapped by other code in the meantime; without observations this one does nothing
        if before is None:
            del decoder.forward
        else:
            decoder.forward = before


def _at_projection(layer: int) -> Callable[..., Any]:
    def hook(_: nn.Module, args: tuple[Any, ...]) -> Any:
        observer = CURRENT.get()
        return (observer.at_projection(layer, args[0]), *args[1:]) if isinstance(observer, Pass) else None

    return hook


@contextmanager
def _uncompiled(hf: nn.Module) -> Iterator[None]:
    """Let `generate` run the model as it is, where it would compile the steps on a static cache."""
    config: Any = getattr(hf, "generation_config", None)
    before = getattr(config, "disable_compile", None)
    if config is not None:
        config.disable_compile = True
    try:
        yield
    finally:
        if config is not None:
            config.disable_compile = before


_ACTIVE: dict[int, tuple[PatchedForward, ExitStack]] = {}  # id(decoder) -> the patch that is on it


@contextmanager
def patched(structure: Structure, observation: Observers) -> Iterator[None]:
    """Let an observation see every pass of the decoder. Observations may end in any order."""
    key = id(structure.decoder)
    if key not in _ACTIVE:
        patch = PatchedForward(structure)
        _ACTIVE[key] = (patch, patch.install())
    patch, removal = _ACTIVE[key]
    patch.observations.append(observation)
    patch.holders += 1
    try:
        yield
    finally:
        patch.observations = [one for one in patch.observations if one is not observation]
        patch.holders -= 1
        if not patch.holders:
            del _ACTIVE[key]
            removal.close()


@contextmanager
def paused(structure: Structure) -> Iterator[None]:
    """Run passes that the active observations of the decoder do not see."""
    patch = _ACTIVE.get(id(structure.decoder), (None,))[0]
    observations = [] if patch is None else patch.observations
    if patch is not None:
        patch.observations = []
    try:
        yield
    finally:
        if patch is not None:
            patch.observations = observations


@contextmanager
def suspended(structure: Structure, observation: Observers) -> Iterator[None]:
    """Run passes that an active observation does not see; others may begin and end meanwhile."""
    patch, _ = _ACTIVE[id(structure.decoder)]
    patch.observations = [one for one in patch.observations if one is not observation]
    try:
        yield
    finally:
        patch.observations = [*patch.observations, observation]


class SideStream:
    """The layers of one forward pass, each observed one layer late, on a side CUDA stream where instruments allow it.

    Kernel launches on a GPU are asynchronous: observing a layer after the next one has been launched, the model never waits for
    the many small launches of the instruments. On a stream of its own (`Instrument.stream_safe`) observation also overlaps with
    the model: its element-wise operations are bound by memory and the reductions by arithmetic (H200, the shape of
    Llama-3.1-8B, 16 x 512 tokens: Spectrum and Profile cost 1.045 times a plain forward pass instead of 1.067).

    The caching allocator may reuse a freed tensor on the stream that allocated it while the side stream is still reading it. So
    a call is held until its observation is complete, and the model's stream waits for that event; by then it has long been
    reached. A large call is not deferred, so that two of them are never held at once. The model's stream reads what the side
    stream computed only after `finish`, and what a later pass computes on the side stream waits for that.

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
