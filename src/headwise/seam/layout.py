"""Where does a layer store W_Q, W_K, W_V and W_O? Found by tracing one layer, in any family, without its weights.

Steps. Take the model's skeleton, keep one layer of it, and fill every module with random numbers when it is first called.
Run a few random vectors through it. At the attention interface the values v arrive: each of their columns equals, bit for
bit, one column of the output of one linear map that read the layer's input. That map holds W_V, and the columns show which
head is where, in a matrix of its own or fused with queries and keys in any order. Then return a random z: the one linear map
that reads it holds W_O. The norm before the attention is the module whose output the attention reads; the norm after it, in
families that have one, is the module that reads only what the attention wrote.

W_Q and W_K are found the same way in a second run with all tokens at position 0, where rotary embeddings are the identity. A
norm on queries or keys (Qwen3, Gemma 3) is skipped: the matrix is the one before the norm. Queries that are scaled (YaRN in
gpt-oss) are refused.

Random numbers, because real weights may be equal or zero. The run stops after the attention, so nothing later is filled.

Refused: values that are not columns of such a map (DeepSeek's latent attention expands a normed latent; some families
normalise values), z that is gated before W_O, families that compute their attention themselves.

Cost: the random numbers of one attention module, once for each kind of layer. This module reads no weights.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from headwise.core.errors import SeamError
from headwise.model import ModelCard, decoder_layers
from headwise.model.packed import is_linear
from headwise.seam.interface import ForwardTracer, StopForward, trace_until
from headwise.seam.structure import Structure, parent_of, refuse_unseeable

TOKENS = 6  # enough that two columns of random numbers never agree in all of them


@dataclass(frozen=True)
class HeadColumns:
    """A parameter of the layer, and which of its outputs belong to which head."""

    name: str  # inside the layer
    columns: Tensor  # (head, width): indices over the outputs of the linear map
    outputs_first: bool  # stored (out, in), as nn.Linear does


@dataclass(frozen=True)
class Layout:
    """Names are those of parameters and modules inside the layer."""

    value: HeadColumns  # W_V
    output: str  # the parameter that holds W_O; its inputs are (head, value width) in order
    output_outputs_first: bool
    norm: str | None  # the module whose output the attention reads; None where it reads the residual stream itself
    post_norm: str | None  # the module that reads the attention's output before it is added to the residual stream


class LayoutFinder:
    """The layouts of a model's layers; layers of the same kind are traced once."""

    def __init__(self, card: ModelCard) -> None:
        self.card = card
        self._layouts: dict[Any, Layout] = {}
        self._query_keys: dict[Any, tuple[HeadColumns, HeadColumns]] = {}
        refuse_unseeable(Structure(card.skeleton))
        self._layers = decoder_layers(card.skeleton, card)

    def of(self, layer: int) -> Layout:
        """Where this layer stores W_V and W_O."""
        kind = self._kind(layer)
        if kind not in self._layouts:
            self._layouts[kind] = _find(self.card, layer)
        return self._layouts[kind]

    def query_key(self, layer: int) -> tuple[HeadColumns, HeadColumns]:
        """Where this layer stores W_Q and W_K."""
        kind = self._kind(layer)
        if kind not in self._query_keys:
            self._query_keys[kind] = _find_query_key(self.card, layer)
        return self._query_keys[kind]

    def _kind(self, layer: int) -> Any:
        module = self._layers[layer]
        return (type(module), tuple((name, tuple(p.shape)) for name, p in module.named_parameters()))


class _LayerTracer(ForwardTracer):
    """Records q, k and v, and returns random numbers as z."""

    def __init__(self) -> None:
        self.module: nn.Module | None = None
        self.written: Tensor | None = None  # the output of the attention module
        self.post_norm: nn.Module | None = None
        self.inputs: dict[nn.Module, Tensor] = {}
        self.outputs: dict[nn.Module, Tensor] = {}
        self.generator = torch.Generator().manual_seed(0)

    def attend(
        self, layer: int, module: nn.Module, q: Tensor, k: Tensor, v: Tensor, mask: Any, options: dict[str, Any]
    ) -> Tensor:
        self.module = module
        self.q, self.k, self.v = q[0].clone(), k[0].clone(), v[0].clone()  # (head or kv_head, token, width)
        self.z = self.random(1, q.shape[2], q.shape[1], v.shape[3])  # (1, token, head, value width)
        return self.z.clone()

    def random(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self.generator)

    def before(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Fill the shapes of the skeleton with random numbers, then record the module's first input.

        The first module that is called after the attention ends the pass.
        """
        given = [one for one in (*args, *kwargs.values()) if isinstance(one, Tensor)]
        if self.written is not None:
            reads_it = given and _same(given[0], self.written)
            self.post_norm = module if reads_it and list(module.parameters()) else None  # a dropout is no norm
            raise StopForward
        for name, weight in module._parameters.items():
            if weight is not None and weight.is_meta:
                filled = self.random(*weight.shape) / max(weight.shape[-1], 1) ** 0.5
                module._parameters[name] = nn.Parameter(filled, requires_grad=False)
        for name, buffer in module._buffers.items():
            if buffer is not None and buffer.is_meta:
                module._buffers[name] = torch.zeros(buffer.shape, dtype=buffer.dtype)
        if given:
            self.inputs[module] = given[0].detach().clone()

    def after(self, module: nn.Module, args: tuple[Any, ...], result: Any) -> None:
        if isinstance(result, Tensor):
            self.outputs[module] = result.detach().clone()
        if module is self.module:
            self.written = (result if isinstance(result, Tensor) else result[0]).detach().clone()


@torch.no_grad()
def _trace(card: ModelCard, index: int, **arguments: Any) -> tuple[nn.Module, nn.Module, _LayerTracer]:
    """Run one layer of the skeleton by itself: the layer, its attention module, and what was recorded."""
    hf = copy.deepcopy(card.skeleton)
    layers = decoder_layers(hf, card)
    layer = layers[index]
    decoder, name = parent_of(hf, layers)
    decoder._modules[name] = nn.ModuleList([layer])
    tracer = _LayerTracer()
    for module in decoder.modules():
        module.register_forward_pre_hook(tracer.before, with_kwargs=True)
        module.register_forward_hook(tracer.after)
    embedded = tracer.random(1, TOKENS, card.hidden_size)
    try:
        trace_until(hf, tracer, lambda: decoder.eval()(inputs_embeds=embedded, use_cache=False, **arguments))
    except (RuntimeError, TypeError, ValueError, AttributeError, NotImplementedError) as error:
        why = f"{type(error).__name__}: {str(error).splitlines()[0]}" if str(error) else type(error).__name__
        raise _refusal(card, index, f"its layer could not be run by itself ({why})") from error
    if tracer.written is None or tracer.module is None:
        raise _refusal(card, index, "it did not reach the attention interface")
    return layer, tracer.module, tracer


def _find(card: ModelCard, index: int) -> Layout:
    layer, attention, tracer = _trace(card, index)
    names = {module: name for name, module in layer.named_modules()}
    hidden = tracer.inputs[attention]  # (1, token, hidden)
    value = _head_columns(layer, attention, tracer, tracer.v)
    if value is None:
        raise _refusal(
            card,
            index,
            "its values are not columns of one linear map of the layer's input (a latent or a norm is in between)",
        )
    flat = tracer.z.flatten(2)  # (1, token, head x value width)
    readers = [m for m in _linear_maps(attention, tracer) if _same(tracer.inputs.get(m), flat)]
    if not readers:
        raise _refusal(card, index, "a gate or a norm stands between its attention and W_O, and depends on the token")
    if len(readers) > 1:
        raise _refusal(card, index, f"{len(readers)} linear maps take the heads' output as input, and one was expected")
    before = [name for module, name in names.items() if name and _same(tracer.outputs.get(module), hidden)]
    return Layout(
        value,
        f"{names[readers[0]]}.weight",
        hasattr(readers[0], "in_features"),
        before[-1] if before else None,
        names.get(tracer.post_norm) if tracer.post_norm is not None else None,
    )


def _find_query_key(card: ModelCard, index: int) -> tuple[HeadColumns, HeadColumns]:
    layer, attention, tracer = _trace(card, index, position_ids=torch.zeros(1, TOKENS, dtype=torch.long))
    found = []
    for target, what in ((tracer.q, "queries"), (tracer.k, "keys")):
        columns = _head_columns(layer, attention, tracer, target)
        if columns is None:
            columns = _head_columns(layer, attention, tracer, _before_norm(attention, tracer, target))
        if columns is None:
            raise _refusal(
                card,
                index,
                f"its {what} are not columns of one linear map of the layer's input (a scale is in between)",
            )
        found.append(columns)
    return found[0], found[1]


def _head_columns(
    layer: nn.Module, attention: nn.Module, tracer: _LayerTracer, target: Tensor | None
) -> HeadColumns | None:
    """The linear map of the attention's input whose output columns are the target (head, token, width), bit for bit."""
    if target is None:
        return None
    hidden = tracer.inputs[attention]
    known: dict[bytes, tuple[nn.Module, int]] = {}
    for module in _linear_maps(attention, tracer):
        if _same(tracer.inputs.get(module), hidden):
            for index, column in enumerate(_columns(tracer.outputs[module][0])):
                known[column] = (module, index)
    found = [known.get(column) for column in _columns(target.transpose(0, 1).flatten(1))]
    modules = {one[0] for one in found if one is not None}
    if None in found or len(modules) != 1:
        return None
    module = modules.pop()
    name = next(name for name, one in layer.named_modules() if one is module)
    columns = torch.tensor([one[1] for one in found if one is not None]).view(target.shape[0], target.shape[2])
    return HeadColumns(f"{name}.weight", columns, hasattr(module, "in_features"))


def _before_norm(attention: nn.Module, tracer: _LayerTracer, target: Tensor) -> Tensor | None:
    """The input (head, token, width) of the module whose output is the target; None where there is none."""
    heads, tokens, width = target.shape
    for module in attention.modules():
        made, given = tracer.outputs.get(module), tracer.inputs.get(module)
        if made is None or given is None or made.shape != given.shape or made.numel() != target.numel():
            continue
        for shape, order in (((heads, tokens, width), (0, 1, 2)), ((tokens, heads, width), (1, 0, 2))):
            if torch.equal(made.reshape(shape).permute(order), target):
                return given.reshape(shape).permute(order)
    return None


def _columns(matrix: Tensor) -> Iterator[bytes]:
    """The columns of (token, column)."""
    return (column.numpy().tobytes() for column in matrix.T.contiguous())


def _linear_maps(attention: nn.Module, tracer: _LayerTracer) -> list[nn.Module]:
    """Those that were called."""
    return [module for module in attention.modules() if module in tracer.outputs and is_linear(module)]


def _same(one: Tensor | None, other: Tensor) -> bool:
    return one is not None and one.numel() == other.numel() and torch.equal(one.reshape(other.shape), other)


def _refusal(card: ModelCard, index: int, why: str) -> SeamError:
    return SeamError(
        f"layer {index} of {card.id} ({card.family}): {why}, so what its heads compute cannot be read from its weights"
    )
