"""The base of instruments that read something per example, layer and head; and the uniform-attention baseline.

A subclass returns small tensors (batch, head, ...) per layer. They stay on their device until the forward pass ends, so no
layer waits for a copy. Then they are stacked over layers and copied to the CPU asynchronously: the GPU continues with the
next batch, and only `result` waits. Layers without attention heads are NaN, and so are heads (and entries) that a layer
does not have.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from headwise.core.dims import EXAMPLE, HEAD, LAYER
from headwise.core.errors import SeamError
from headwise.kernels.attention import Attention, AttentionMask
from headwise.kernels.contract import ReductionRequest, Reductions
from headwise.kernels.dispatch import reduce
from headwise.seam import (
    AttentionCall,
    ForwardContext,
    Instrument,
    Positions,
    Structure,
    check_positions,
    position_index,
)

_MAX_HALF = 6e4  # larger values do not fit into half precision


class HeadReadings(Instrument):
    """Readings with dims (example, layer, head, ...). Subclasses implement `measure` and name the further dims.

    Examples:
        The norm of each head's output, on average over the tokens of a text:

        >>> class Length(HeadReadings):
        ...     name = "length"
        ...     extra_dims = {"length": ()}
        ...     def measure(self, call):
        ...         norms = call.z.norm(dim=-1) * call.valid[..., None]  # (batch, query, head)
        ...         return {"length": norms.sum(dim=1) / call.valid.sum(dim=1, keepdim=True)}
        >>> with hw.observe(model, Length()) as seen:
        ...     _ = model(**model.encode(["the old river", "a low door in the garden"]))
        >>> dict(seen["length"].length.sizes)
        {'example': 2, 'layer': 3, 'head': 6}
    """

    extra_dims: Mapping[str, tuple[str, ...]]  # variable -> dims after (example, layer, head)
    whole_sequences = False  # True: refuse passes on top of a KV cache, in which earlier rows are missing
    half = False  # True: in half precision (`HostCopy`)

    def __init__(self) -> None:
        self._layers: dict[int, dict[str, Tensor]] = {}
        self._passes: list[dict[str, Callable[[], Tensor]]] = []
        self._copy = HostCopy()
        self._shape = (0, 0)

    def setup(self, structure: Structure, stack: ExitStack) -> None:
        """Store the numbers of layers and heads."""
        self._shape = (structure.card.layers, structure.card.heads)

    def on_forward_start(self, context: ForwardContext) -> None:
        """Discard the remains of a failed pass."""
        if self.whole_sequences and context.cached:
            raise SeamError(
                f"{type(self).__name__} needs complete sequences, but this pass has a KV cache of {context.cached} tokens, "
                "whose rows of attention are gone; run prompt and answer together in one forward pass (use_cache=False), or "
                "read the text while it is generated with RunningSpectrum or RunningAnswerRows"
            )
        self._layers.clear()

    @abstractmethod
    def measure(self, call: AttentionCall) -> dict[str, Tensor]:
        """Each variable of one layer, (batch, head, ...)."""

    def on_layer(self, call: AttentionCall) -> None:
        """Hold one layer's tensors until the pass ends."""
        self._layers[call.layer] = self.measure(call)

    def on_forward_end(self, context: ForwardContext) -> None:
        """Stack the layers of a pass and start their copy to the CPU."""
        names = next(iter(self._layers.values()))
        by_name = {name: {layer: values[name] for layer, values in self._layers.items()} for name in names}
        stacked = {name: self._stacked(found) for name, found in by_name.items()}
        self._passes.append({name: self._copy.start(values, half=self.half) for name, values in stacked.items()})
        self._layers.clear()

    def _stacked(self, found: dict[int, Tensor]) -> Tensor:
        """(example, layer, head, ...) float32 of the layers' tensors, on the device of the first."""
        sample = next(iter(found.values()))
        alike = {values.shape for values in found.values()} == {sample.shape} and sample.shape[1] == self._shape[1]
        if alike and sorted(found) == list(range(self._shape[0])):
            return torch.stack([found[layer].to(sample.device) for layer in sorted(found)], dim=1).float()
        tail = [max(sizes) for sizes in zip(*(values.shape[2:] for values in found.values()), strict=True)]
        shape = (len(sample), *self._shape, *tail)
        padded = torch.full(shape, torch.nan, dtype=torch.float32, device=sample.device)
        for layer, values in found.items():
            padded[:, layer][tuple(slice(size) for size in values.shape)] = values.to(sample.device)
        return padded

    def result(self) -> xr.Dataset:
        """All passes so far, concatenated along `example`."""
        if not self._passes:
            raise SeamError(f"{type(self).__name__} has no readings yet; run the model inside `with observe(...)`")
        self._copy.wait()
        variables = {
            name: (
                (EXAMPLE, LAYER, HEAD, *self.extra_dims[name]),
                joined([one[name] for one in self._passes]).numpy(),
            )
            for name in self._passes[0]
        }
        layers, heads = self._shape
        return xr.Dataset(variables, coords={LAYER: np.arange(layers), HEAD: np.arange(heads)})


class PickedReadings(HeadReadings):
    """Readings at chosen tokens, which are located once per pass: per layer, each would wait for the GPU.

    Args:
        positions: which tokens (see `headwise.seam.instrument`).
    """

    def __init__(self, positions: Positions = "last"):
        super().__init__()
        self.positions = check_positions(positions)

    def on_forward_start(self, context: ForwardContext) -> None:
        """Locate the tokens."""
        super().on_forward_start(context)
        self._index = position_index(self.positions, context)  # (batch, token)


class HostCopy:
    """Asynchronous copies from the device to pinned host memory; copies complete in order, so one event covers all.

    Half precision is enough for a probe and half of the bytes. An example with a value beyond its range is divided by a
    power of 2 on the device, where it need not be known whether there is one, and comes back in single precision.

    Examples:
        >>> copy = HostCopy()
        >>> one, other = copy.start(torch.arange(3)), copy.start(torch.tensor([[0.25], [2.0**20]]), half=True)
        >>> copy.wait()
        >>> one(), other().tolist()
        (tensor([0, 1, 2]), [[0.25], [1048576.0]])
    """

    def __init__(self) -> None:
        self._last: torch.cuda.Event | None = None

    def start(self, values: Tensor, *, half: bool = False) -> Callable[[], Tensor]:
        """What gives the host tensor, after `wait`; ``half``: of (example, ...), in half precision."""
        if not half:
            host = self._copied(values)
            return lambda: host
        largest = values.nan_to_num(0.0, 0.0, 0.0).abs_().flatten(1).amax(dim=1).float()
        scale = torch.exp2((largest / _MAX_HALF).log2().ceil().clamp(min=0)).view(-1, *[1] * (values.ndim - 1))
        halved, scales = self._copied((values / scale).half()), self._copied(scale)
        return lambda: halved if bool((scales == 1).all()) else halved.float() * scales

    def _copied(self, values: Tensor) -> Tensor:
        if not values.is_cuda:
            return values.cpu()
        host = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
        host.copy_(values, non_blocking=True)
        self._last = torch.cuda.Event()
        self._last.record(torch.cuda.current_stream(values.device))
        return host

    def wait(self) -> None:
        """Wait for all copies."""
        if self._last is not None:
            self._last.synchronize()


def joined(passes: Sequence[Callable[[], Tensor]]) -> Tensor:
    """All passes along `example`; a single one without a copy."""
    return passes[0]() if len(passes) == 1 else torch.cat([one() for one in passes])


def uniform_head(mask: AttentionMask, batch: int, wanted: ReductionRequest) -> Reductions:
    """The reductions of uniform attention over the visible keys: a head with zero logits, by the same kernel and mask."""
    q = torch.zeros(batch, 1, mask.queries, 1, device=mask.device)
    k = torch.zeros(batch, 1, mask.keys, 1, device=mask.device)
    return reduce(Attention(q, k, 1.0, mask), wanted)
