"""Instrument and Intervention: the two roles at the seam, and what both are given.

An instrument observes, an intervention changes; no class does both. A forward pass is described by a `ForwardContext`, and
the attention of one layer in it by an `AttentionCall`. Both name tokens in one notation:

| given                     | means                                                                            |
|---------------------------|----------------------------------------------------------------------------------|
| "all"                     | every real token of the pass                                                     |
| "last", "first"           | the last real token of each example in the pass / the first one of its text      |
| "decode", "prompt"        | tokens of decode steps (a pass with a KV cache) / tokens of the first pass       |
| 5, [3, 7]                 | counted from each example's first real token, over prompt and decode steps       |
| -1, [-2, -1]              | counted from the end of each example in the pass                                 |
| LongTensor (batch, n)     | token indices in the first pass, one row per example; -1: none                   |

Padding never counts as a token. Under `generate` a number occurs in one pass only: a decode step has one token, and matches
only its own number.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from numbers import Integral
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from headwise.core.errors import DataError
from headwise.kernels.attention import Attention
from headwise.kernels.contract import ReductionRequest, Reductions

if TYPE_CHECKING:
    import xarray as xr

    from headwise.seam.structure import Structure


@dataclass(frozen=True)
class ForwardContext:
    """Metadata of one forward pass over one batch: what is known before the first layer runs.

    Examples:
        >>> import torch
        >>> context = ForwardContext(0, torch.tensor([[1, 5, 7]]), torch.ones(1, 3, dtype=torch.bool), 0, torch.tensor([0]))
        >>> context.cached  # whole sequences: the KV cache is empty
        0
    """

    index: int  # passes since the observation began; a decode step is a pass
    input_ids: Tensor | None  # (batch, query); None where the model was given embeddings
    valid: Tensor  # (batch, query) bool: the queries that are real tokens
    cached: int  # tokens in the KV cache before this pass, padding included; 0: whole sequences
    before: Tensor  # (batch,) long: real tokens in the KV cache before this pass


@dataclass
class AttentionCall:
    """The attention of one layer, between its softmax and its output projection.

    `z` is the input of the output projection, and what the model continues with, interventions included. Where a gate or a
    norm stands before it (see `between`), `z` is what comes out of that, and `mean` what goes in; elsewhere `mean` is None,
    and `z` itself is the weighted mean of the values. Instruments must not write into it.

    Examples:
        >>> from headwise.seam import Instrument
        >>> class Last(Instrument):
        ...     name = "last"
        ...     def on_layer(self, call):
        ...         self.call = call
        ...     def result(self):
        ...         return None
        >>> last = Last()
        >>> with hw.observe(model, last):
        ...     _ = model(**model.encode("the old river"))
        >>> call = last.call  # of the last layer
        >>> call.layer, tuple(call.z.shape), tuple(call.attention.weights().shape)
        (2, (1, 4, 6, 64), (1, 6, 4, 4))
    """

    context: ForwardContext  # the forward pass it belongs to
    layer: int  # counted from 0
    module: nn.Module  # the attention module
    attention: Attention  # q, k, mask, scale; `attention.weights()` materialises the map
    raw_mask: Tensor | None  # as transformers passed it to the layer; parsed: `attention.mask`
    v: Tensor  # (batch, kv_head, key, value width)
    z: Tensor  # (batch, query, head, value width): the input of the output projection, split by head
    reductions: Reductions = field(default_factory=Reductions)  # the requested ones
    mean: Tensor | None = None  # like z: the weighted mean of the values, where a gate or a norm makes z of it

    @property
    def batch(self) -> int:
        """Examples in the batch."""
        return self.z.shape[0]

    @property
    def heads(self) -> int:
        """Query heads of this layer."""
        return self.z.shape[2]

    @property
    def valid(self) -> Tensor:
        """(batch, query) bool: the queries that are real tokens."""
        return self.context.valid.to(self.z.device)


class Instrument(ABC):
    """Observes layers. Requests the reductions it needs in advance, so that all instruments share one pass.

    Order of calls in a forward pass: `on_forward_start`, `requested`, `on_layer` for every layer, `on_forward_end`. A pass
    that fails has no `on_forward_end`; the next `on_forward_start` must discard its remains. All callbacks run without
    gradients; hooks that an instrument registers itself do not.

    Examples:
        The mean of the largest weight of each row:

        >>> from headwise.kernels import ReductionRequest
        >>> class Sharpness(Instrument):
        ...     name = "sharpness"
        ...     def on_forward_start(self, context):
        ...         self.found = {}
        ...     def requested(self, context):
        ...         return ReductionRequest(row_max=True)
        ...     def on_layer(self, call):
        ...         self.found[call.layer] = call.reductions.row_max.mean(dim=(0, 2))  # (head,)
        ...     def result(self):
        ...         import xarray as xr
        ...         return xr.Dataset({"row_max": (("layer", "head"), list(self.found.values()))})
        >>> with hw.observe(model, Sharpness()) as seen:
        ...     _ = model(**model.encode("the old river was the old river"))
        >>> seen["sharpness"].row_max.sel(layer=0).values.round(2)
        array([0.66, 1.  , 0.75, 1.  , 0.64, 0.77], dtype=float32)
    """

    name: str  # the key of its result in an observation
    stream_safe = (
        False  # `on_layer` may run on a side CUDA stream: it reads only the call and tensors held until the end
    )

    only_row_statistics = False  # `on_layer` is not needed where `row_statistics` come from the kernel of a decode step

    def setup(self, structure: Structure, stack: ExitStack) -> None:  # noqa: B027  (most need nothing more)
        """Called once when an observation begins. Hooks on the model's modules are removed by callbacks on `stack`."""

    def on_forward_start(self, context: ForwardContext) -> None:  # noqa: B027
        """Called before the first layer of a forward pass."""

    def requested(self, context: ForwardContext) -> ReductionRequest:
        """The reductions that this instrument needs from every layer of this pass."""
        return ReductionRequest()

    @abstractmethod
    def on_layer(self, call: AttentionCall) -> None:
        """Called for each attention layer of a pass."""

    def on_forward_end(self, context: ForwardContext) -> None:  # noqa: B027
        """Called after the last layer of a pass that succeeded."""

    @abstractmethod
    def result(self) -> xr.Dataset:
        """The measurements, with named dims."""


class Intervention(ABC):
    """Changes heads: receives the z of a layer and returns the z that the model continues with.

    Examples:
        Zero ablation of all heads of layer 1:

        >>> class Off(Intervention):
        ...     def change(self, call):
        ...         return call.z * 0 if call.layer == 1 else call.z
        >>> with hw.observe(model, Off(), hw.HeadOutputs()) as seen:
        ...     _ = model(**model.encode("the old river"))
        >>> abs(seen["outputs"].z).sum(["example", "head", "token", "width"]).values > 0
        array([ True, False,  True])
    """

    on_values = False  # `change` computes z from weights and values: it acts before a gate or a norm, on that z

    def setup(self, structure: Structure, stack: ExitStack) -> None:  # noqa: B027
        """Called once when an observation begins: the moment to refuse heads that the model does not have."""

    @abstractmethod
    def change(self, call: AttentionCall) -> Tensor:
        """The new z, (batch, query, head, value width). Must not write into `call.z`."""


Positions = str | int | Sequence[int] | Tensor
"""Which tokens: any form of the table."""

NAMES = ("all", "last", "first", "decode", "prompt")
KINDS = "'all', 'last', 'first', 'decode', 'prompt', a number, a list of numbers, or a tensor (batch, n) of indices"


def check_positions(positions: Positions) -> Positions:
    """The same positions, or an error that lists the possible forms."""
    if isinstance(positions, Tensor):
        good = positions.ndim == 2 and not positions.is_floating_point() and positions.dtype != torch.bool
        found = f"a {str(positions.dtype).removeprefix('torch.')} tensor of shape {tuple(positions.shape)}"
    elif isinstance(positions, str):
        good, found = positions in NAMES, repr(positions)
    else:
        numbers = positions if isinstance(positions, Sequence) else [positions]
        good, found = bool(numbers) and all(isinstance(n, Integral) for n in numbers), repr(positions)
    if not good:
        raise DataError(f"positions are {KINDS}; got {found}")
    return positions


def position_mask(positions: Positions, context: ForwardContext) -> Tensor:
    """(batch, query) bool: the chosen tokens of this pass."""
    if isinstance(positions, str) and positions in ("all", "decode", "prompt"):
        chosen = positions == "all" or positions == ("decode" if context.cached else "prompt")
        return context.valid if chosen else torch.zeros_like(context.valid)
    index = position_index(positions, context)  # (batch, n), -1: none
    batch, queries = context.valid.shape
    mask = torch.zeros(batch, queries + 1, dtype=torch.bool, device=context.valid.device)
    mask.scatter_(1, torch.where(index < 0, queries, index), True)
    return mask[:, :-1]


def position_index(positions: Positions, context: ForwardContext) -> Tensor:
    """(batch, n) long: indices of the chosen tokens in this pass, -1 where an example has no such token."""
    valid = context.valid
    if isinstance(positions, Tensor):
        return _explicit_index(positions, context)
    if isinstance(positions, str):
        if positions not in ("first", "last"):
            raise DataError(f"positions {positions!r} differ in number between examples; name single tokens instead")
        positions = 0 if positions == "first" else -1
    numbers = torch.tensor(list(positions) if isinstance(positions, Sequence) else [positions], device=valid.device)
    count = valid.sum(dim=1, keepdim=True)  # (batch, 1)
    rank = torch.where(numbers < 0, count + numbers, numbers - context.before[:, None])  # among the pass's real tokens
    order = torch.argsort(~valid, dim=1, stable=True)  # real tokens first, in order
    index = order.gather(1, rank.clamp(0, valid.shape[1] - 1))
    return torch.where((rank >= 0) & (rank < count), index, -1)


def _explicit_index(index: Tensor, context: ForwardContext) -> Tensor:
    batch, queries = context.valid.shape
    if context.cached:
        return torch.full_like(index, -1, device=context.valid.device)
    if len(index) != batch:
        raise DataError(f"positions have {len(index)} rows and the batch has {batch} examples; give one row for each")
    if bool((index >= queries).any()):
        raise DataError(f"positions name token {int(index.max())}, but the batch has {queries} tokens, counted from 0")
    index = index.to(context.valid.device, non_blocking=True)  # checked where it was made: no wait for a GPU
    real = context.valid.gather(1, index.clamp(min=0))
    return torch.where((index >= 0) & real, index, -1)
