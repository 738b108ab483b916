"""One forward pass under observation, and the decoder's forward that starts one.

A decoder that is observed has its `forward` replaced by a `Watched`, once, however many observations are on it. Each
call of it is a `Pass`: it tells the instruments what comes, gets every layer at the seam as an `AttentionCall`, lets
the interventions change it and the instruments look at it, and in the end checks that every layer came by exactly once.

The call's z comes from a fused kernel, and all reductions that any instrument asked for from one streamed pass.
"""

from __future__ import annotations

import functools
import inspect
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from headwise.core.errors import SeamError
from headwise.kernels import Attention, AttentionMask, ReductionRequest, Reductions, reduce
from headwise.model.gate import gate_of
from headwise.seam.attention_call import AttentionCall, ForwardContext
from headwise.seam.behind import RUNS_BEHIND, Behind
from headwise.seam.forward_context import forward_context
from headwise.seam.interface import CURRENT, installed
from headwise.seam.mask import parse_mask
from headwise.seam.outputs import attention_output
from headwise.seam.refusal import (
    refuse_heads,
    refuse_options,
    refuse_recomputing,
    refuse_unlike_padding,
    refuse_unseen,
)
from headwise.seam.structure import Structure
from headwise.seam.watching import Instrument, Intervention


class Watchers(Protocol):
    """What a pass needs of an observation."""

    instruments: list[Instrument]
    interventions: list[Intervention]
    valid: Tensor | None
    passes: int


class Pass:
    """One forward pass; `observations` outermost first."""

    def __init__(self, structure: Structure, observations: Sequence[Watchers], arguments: dict[str, Any]):
        self.structure = structure
        valid = _one_valid(observations)
        context = forward_context(0, arguments, valid)
        untold = valid is None and arguments.get("attention_mask") is None  # then a GPU need not be asked
        self.valid = None if untold or bool(context.valid.all()) else context.valid
        self.watchers = [(one, replace(context, index=one.passes)) for one in observations]
        self.seen: Counter[int] = Counter()
        self.changes = any(one.interventions for one in observations)
        self.behind = Behind(all(one.stream_safe for one, _ in self._instruments()))
        self.sights: dict[tuple[Any, ...], tuple[Tensor | None, AttentionMask]] = {}
        self.wanted = ReductionRequest()

    def run(self, forward: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the decoder's own forward."""
        refuse_recomputing(self.structure)
        for instrument, context in self._instruments():
            instrument.on_forward_start(context)
            self.wanted = self.wanted | instrument.requested(context)
        token = CURRENT.set(self)
        try:
            result = forward(*args, **kwargs)
            self.behind.finish(self._look)
        finally:
            CURRENT.reset(token)
            self.behind.drop()
        refuse_unseen(self.structure, self.seen)
        with torch.no_grad():
            for instrument, context in self._instruments():
                instrument.on_forward_end(context)
        for observation, _ in self.watchers:
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
        """The seam's call: one layer's attention. Returns the z the model goes on with."""
        refuse_options(layer, module, mask, options)
        refuse_heads(self.structure, layer, q.shape[1])
        options = dict(options)
        scale = options.pop("scaling", None)
        scale = q.shape[-1] ** -0.5 if scale is None else float(scale)
        if mask is None and q.shape[2] > 1:
            k, v = k[:, :, : q.shape[2]], v[:, :, : q.shape[2]]  # an empty static cache is longer than its content
        z, lse = attention_output(module, q, k, v, mask, scale, options)
        sight = self._sight(mask, q.shape[2], k.shape[2], q.device)
        attention = Attention(q, k, scale, sight, options.get("softcap"), options.get("s_aux"), lse, gate_of(module))
        self.seen[layer] += 1
        call = AttentionCall(self.watchers[0][1], layer, module, attention, mask, v, z, Reductions())
        if q.device.type in RUNS_BEHIND and not self.changes:
            self.behind.hand(call, self._look)
            return z
        self._reduce(call)
        for observation, context in self.watchers:
            call.context = context
            for intervention in observation.interventions:
                call.z = intervention.change(call)
        self._on_layer(call)
        return call.z

    def _look(self, call: AttentionCall) -> None:
        self._reduce(call)
        self._on_layer(call)

    def _reduce(self, call: AttentionCall) -> None:
        if self.wanted:
            with torch.no_grad():
                call.reductions = reduce(call.attention, self.wanted)

    def _on_layer(self, call: AttentionCall) -> None:
        with torch.no_grad():
            for instrument, context in self._instruments():
                call.context = context
                instrument.on_layer(call)

    def _instruments(self) -> Iterator[tuple[Instrument, ForwardContext]]:
        return ((instrument, context) for one, context in self.watchers for instrument in one.instruments)

    def _sight(self, mask: Tensor | None, queries: int, keys: int, device: torch.device) -> AttentionMask:
        """What may be seen; worked out once for all layers of a pass that share a mask."""
        key = (id(mask), queries, keys, device)
        if key not in self.sights:
            valid = None if self.valid is None else self.valid.to(device)
            sight = parse_mask(mask, queries, keys, device)
            refuse_unlike_padding(self.structure, valid, sight.query_valid)
            sight = sight.with_valid_queries(valid)
            self.sights[key] = (mask, sight)  # the mask is held, so that its id is not given to another
        return self.sights[key][1]


class Watched:
    """The forward of an observed decoder. With nobody watching it is the decoder's own."""

    def __init__(self, structure: Structure):
        self.structure = structure
        self.observations: list[Watchers] = []  # outermost first
        self.holders = 0
        self.own = structure.decoder.forward
        functools.update_wrapper(self, self.own)
        self.names = tuple(inspect.signature(self.own).parameters)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not self.observations:
            return self.own(*args, **kwargs)
        arguments = {**dict(zip(self.names, args, strict=False)), **kwargs}
        return Pass(self.structure, tuple(self.observations), arguments).run(self.own, args, kwargs)

    def put_on(self) -> ExitStack:
        """Put the seam on the model; closing what is returned takes it off."""
        with ExitStack() as stack:
            decoder, before = self.structure.decoder, vars(self.structure.decoder).get("forward")
            stack.enter_context(installed(self.structure.hf))
            decoder.forward = self
            stack.callback(self._take_off, before)
            return stack.pop_all()

    def _take_off(self, before: Any) -> None:
        decoder = self.structure.decoder
        if vars(decoder).get("forward") is not self:
            return  # somebody wrapped the forward in the meantime; with nobody watching this one does nothing
        if before is None:
            del decoder.forward
        else:
            decoder.forward = before


_ON: dict[int, tuple[Watched, ExitStack]] = {}  # id(decoder) -> the seam that is on it


@contextmanager
def watched(structure: Structure, observation: Watchers) -> Iterator[None]:
    """Let an observation watch every pass of the decoder. Observations may leave in any order."""
    key = id(structure.decoder)
    if key not in _ON:
        seam = Watched(structure)
        _ON[key] = (seam, seam.put_on())
    seam, taking_off = _ON[key]
    seam.observations.append(observation)
    seam.holders += 1
    try:
        yield
    finally:
        seam.observations = [one for one in seam.observations if one is not observation]
        seam.holders -= 1
        if not seam.holders:
            del _ON[key]
            taking_off.close()


@contextmanager
def unwatched(structure: Structure) -> Iterator[None]:
    """Passes of which the observations that are on the decoder hear nothing."""
    seam = _ON.get(id(structure.decoder), (None,))[0]
    observations = [] if seam is None else seam.observations
    if seam is not None:
        seam.observations = []
    try:
        yield
    finally:
        if seam is not None:
            seam.observations = observations


def _one_valid(observations: Sequence[Watchers]) -> Tensor | None:
    given = [one.valid for one in observations if one.valid is not None]
    if any(not torch.equal(one.bool(), given[0].bool()) for one in given[1:]):
        raise SeamError("nested observations were given different valid tokens; give valid to one of them")
    return given[0] if given else None
