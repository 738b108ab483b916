"""Where a layer keeps W_V and W_O: found by watching one layer at work, in any family, without its weights.

Steps. Take the model's skeleton, keep one layer of it, and give every module random numbers when it is first called.
Send a few random vectors through. At the attention interface the values v come by: each of their columns is, bit for
bit, one column of the output of one linear map that read the layer's input. That tells which map holds W_V and which of
its columns are which head's, be it a matrix of its own or fused with queries and keys in whatever order. Then hand back
a random z: the one linear map that takes it in holds W_O. The norm in front is the module whose output the attention
reads; the norm behind, in families that have one, the module that reads what the attention wrote, and nothing else.

Random numbers, because real weights may be alike or nought. The layer is stopped there, so nothing after it is filled.

Refused: values that are no columns of such a map (DeepSeek's latent attention expands a normed latent; some families
normalise values), z that is gated on its way, families that compute their attention by themselves.

Cost: the random numbers of one attention module; once for each kind of layer. This module reads no weights.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from headwise.core.errors import SeamError
from headwise.model import ModelCard, decoder_layers
from headwise.seam.glance import Enough, Onlooker, glance
from headwise.seam.refusal import refuse_unseeable
from headwise.seam.structure import Structure

__all__ = ["Layout", "LayoutFinder"]

TOKENS = 6  # two columns of random numbers agree in none of them


@dataclass(frozen=True)
class Layout:
    """Names are those of parameters and modules inside the layer."""

    value: str  # the parameter that holds W_V
    columns: Tensor  # (kv_head, value width): which columns of it, counted over its outputs
    value_outputs_first: bool  # stored (out, in), as nn.Linear does
    output: str  # the parameter that holds W_O; its inputs are (head, value width) in order
    output_outputs_first: bool
    norm: str | None  # the module whose output the attention reads; None where it reads the residual stream itself
    norm_behind: str | None  # the module that reads the attention's output before it is added to the residual stream


class LayoutFinder:
    """Layouts of the layers of one model; equal layers are looked at once."""

    def __init__(self, card: ModelCard) -> None:
        self.card = card
        self._found: dict[Any, Layout] = {}
        refuse_unseeable(Structure(card.skeleton))
        self._layers = decoder_layers(card.skeleton, card)

    def of(self, layer: int) -> Layout:
        """Where this layer keeps its heads' matrices."""
        module = self._layers[layer]
        kind = (type(module), tuple((name, tuple(p.shape)) for name, p in module.named_parameters()))
        if kind not in self._found:
            self._found[kind] = _find(self.card, layer)
        return self._found[kind]


class _Watch(Onlooker):
    """An observer that takes v down and hands back random numbers as z."""

    def __init__(self) -> None:
        self.module: nn.Module | None = None
        self.written: Tensor | None = None  # by the attention
        self.behind: nn.Module | None = None
        self.inputs: dict[nn.Module, Tensor] = {}
        self.outputs: dict[nn.Module, Tensor] = {}
        self.generator = torch.Generator().manual_seed(0)

    def attend(
        self, layer: int, module: nn.Module, q: Tensor, k: Tensor, v: Tensor, mask: Any, options: dict[str, Any]
    ) -> Tensor:
        self.module, self.v = module, v[0].clone()  # (kv_head, token, value width)
        self.z = self.random(1, q.shape[2], q.shape[1], v.shape[3])  # (1, token, head, value width)
        return self.z.clone()

    def random(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self.generator)

    def before(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Random numbers for what the skeleton holds as shapes, then the module's first input.

        The first module that is called after the attention ends the pass.
        """
        given = [one for one in (*args, *kwargs.values()) if isinstance(one, Tensor)]
        if self.written is not None:
            reads_it = given and _same(given[0], self.written)
            self.behind = module if reads_it and list(module.parameters()) else None  # a dropout is no norm
            raise Enough
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
def _find(card: ModelCard, index: int) -> Layout:
    hf = copy.deepcopy(card.skeleton)
    layers = decoder_layers(hf, card)
    layer = layers[index]
    decoder, name = _holder(hf, layers)
    decoder._modules[name] = nn.ModuleList([layer])
    watch = _Watch()
    for module in decoder.modules():
        module.register_forward_pre_hook(watch.before, with_kwargs=True)
        module.register_forward_hook(watch.after)
    shown = watch.random(1, TOKENS, card.hidden_size)
    try:
        glance(hf, watch, lambda: decoder.eval()(inputs_embeds=shown, use_cache=False))
    except (RuntimeError, TypeError, ValueError, AttributeError, NotImplementedError) as error:
        why = f"{type(error).__name__}: {str(error).splitlines()[0]}" if str(error) else type(error).__name__
        raise _refusal(card, index, f"its layer could not be run by itself ({why})") from error
    if watch.written is None:
        raise _refusal(card, index, "it did not come by the attention interface")
    return _read(card, index, layer, watch)


def _read(card: ModelCard, index: int, layer: nn.Module, watch: _Watch) -> Layout:
    assert watch.module is not None
    names = {module: name for name, module in layer.named_modules()}
    inside = [module for module in watch.module.modules() if module in watch.outputs and _is_linear(module)]
    hidden = watch.inputs[watch.module]  # (1, token, hidden)
    readers = [module for module in inside if _same(watch.inputs.get(module), hidden)]
    value, columns = _columns(card, index, watch, readers)
    flat = watch.z.flatten(2)  # (1, token, head x value width)
    takers = [module for module in inside if _same(watch.inputs.get(module), flat)]
    if len(takers) != 1:
        raise _refusal(card, index, f"{len(takers)} linear maps take the heads' output in, and one was expected")
    before = [name for module, name in names.items() if name and _same(watch.outputs.get(module), hidden)]
    return Layout(
        f"{names[value]}.weight",
        columns,
        hasattr(value, "in_features"),
        f"{names[takers[0]]}.weight",
        hasattr(takers[0], "in_features"),
        before[-1] if before else None,
        names.get(watch.behind) if watch.behind is not None else None,
    )


def _columns(card: ModelCard, index: int, watch: _Watch, readers: list[nn.Module]) -> tuple[nn.Module, Tensor]:
    """The linear map that makes the values, and which of its columns are which."""
    known: dict[bytes, tuple[nn.Module, int]] = {}
    for module in readers:
        for place, column in enumerate(watch.outputs[module][0].T.contiguous()):
            known[column.numpy().tobytes()] = (module, place)
    heads, _, width = watch.v.shape
    wanted = watch.v.transpose(1, 2).reshape(heads * width, -1).contiguous()  # (kv_head x value width, token)
    found = [known.get(column.numpy().tobytes()) for column in wanted]
    modules = {one[0] for one in found if one is not None}
    if None in found or len(modules) != 1:
        raise _refusal(
            card,
            index,
            "its values are not columns of one linear map of the layer's input (a latent or a norm is in between)",
        )
    return modules.pop(), torch.tensor([one[1] for one in found if one is not None]).view(heads, width)


def _holder(root: nn.Module, child: nn.Module) -> tuple[nn.Module, str]:
    for module in root.modules():
        for name, one in module.named_children():
            if one is child:
                return module, name
    raise SeamError("the layers belong to no module that can be called; load the whole model")


def _is_linear(module: nn.Module) -> bool:
    weight = getattr(module, "weight", None)
    return isinstance(weight, Tensor) and weight.ndim == 2 and not isinstance(module, nn.Embedding)


def _same(one: Tensor | None, other: Tensor) -> bool:
    return one is not None and one.numel() == other.numel() and torch.equal(one.reshape(other.shape), other)


def _refusal(card: ModelCard, index: int, why: str) -> SeamError:
    return SeamError(
        f"layer {index} of {card.id} ({card.family}): {why}, so what its heads compute cannot be read from its weights"
    )
