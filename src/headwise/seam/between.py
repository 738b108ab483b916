"""What stands between the attention of a layer and its output projection: nothing, a gate or a norm.

In most families the output of the attention is the input of the projection. Qwen3-Next multiplies it by a gate first, entry by
entry, and BitNet divides it by a root mean square over all heads. z is the *input of the projection* in these families, too:
there x_h W_O^h, summed over the heads, is exactly what the attention adds, and nothing about the gate or the norm needs to be
known. What this takes is that x_h is made of head h alone, up to a scale:

- gate: x_h is a product of the attention's output of head h and of numbers that no head's output enters. Exact for each head.
- norm: the same times a scale that all heads share. The sum is exact for the scale of this pass; a head that is ablated is
  taken out after the norm, so the scale of the others stays what it was.

A family that mixes heads in between (a mean subtracted over all heads, a matrix) has no output of single heads, and is left
to `projection`, which refuses it.

Found by running: one layer of each kind is given random numbers as the attention's output, then the same with some heads set
to zero, for log2(heads) choices of heads and their complements, so that every two heads are separated once. Cost: three
tokens, up to the last kind of layer, once per model; and where something stands in between, the attention module again for
every choice.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from headwise.model.packed import is_linear
from headwise.seam.interface import ForwardTracer, StopForward, trace_until
from headwise.seam.structure import Structure

HALF_TOLERANCE, TOLERANCE = 3e-2, 1e-3  # of a ratio that should be constant


@dataclass(frozen=True)
class Between:
    """What makes the projection's input of the attention's output."""

    kind: str  # "gate" or "norm"
    projection: nn.Module


Kind = tuple[tuple[str, type], ...]
_FOUND: WeakKeyDictionary[nn.Module, tuple[list[Kind], dict[Kind, tuple[str, str]]]] = WeakKeyDictionary()


def between(structure: Structure) -> dict[int, Between]:
    """The layers in which a gate or a norm stands before the output projection."""
    kinds = [tuple((name, type(module)) for name, module in layer.named_modules()) for layer in structure.layers]
    if _FOUND.get(structure.decoder, ([], {}))[0] != kinds:
        _FOUND[structure.decoder] = kinds, _trace(structure, kinds)
    found = _FOUND[structure.decoder][1]
    return {
        index: Between(what, structure.layers[index].get_submodule(name))
        for index in structure.attention_layers
        if kinds[index] in found
        for what, name in [found[kinds[index]]]
    }


@torch.no_grad()
def _trace(structure: Structure, kinds: list[Kind]) -> dict[Kind, tuple[str, str]]:
    """Kind of layer -> what stands in between, and the name of the projection in the layer; plain kinds are left out."""
    tracer = _BetweenTracer(structure, kinds)
    handles = []
    for index in tracer.wanted:
        for module in structure.layers[index].modules():
            handles.append(module.register_forward_pre_hook(tracer.before, with_kwargs=True))
            handles.append(module.register_forward_hook(tracer.after))
    try:
        trace_until(structure.hf, tracer, lambda: structure.decoder(input_ids=structure.few_tokens(), use_cache=False))
    except (AttributeError, IndexError, KeyError, NotImplementedError, RuntimeError, TypeError, ValueError):
        pass  # a family's own code: `projection` finds its input, or refuses it
    finally:
        for handle in handles:
            handle.remove()
    return tracer.found


class _BetweenTracer(ForwardTracer):
    """Gives one layer of each kind random numbers, and looks at what arrives at its linear maps."""

    def __init__(self, structure: Structure, kinds: list[Kind]) -> None:
        self.structure, self.kinds = structure, kinds
        self.wanted = {kinds[index]: index for index in reversed(structure.attention_layers)}.values()
        self.found: dict[Kind, tuple[str, str]] = {}
        self.arguments: dict[nn.Module, tuple[tuple[Any, ...], dict[str, Any]]] = {}
        self.attention: nn.Module | None = None
        self.z: Tensor | None = None
        self.alive: Tensor | None = None  # (head,) during a trial
        self.inputs: dict[nn.Module, Tensor] = {}
        self.left = len(self.wanted)

    def layer_of(self, module: nn.Module) -> int:
        return self.structure.layer_of.get(id(module))  # type: ignore[return-value]  # None: another tower's attention

    def attend(
        self, layer: int, module: nn.Module, q: Tensor, k: Tensor, v: Tensor, mask: Any, options: dict[str, Any]
    ) -> Tensor:
        self.inputs = {}
        if self.alive is None:
            self.attention = module
            numbers = torch.randn(q.shape[2], q.shape[1], v.shape[3], generator=torch.Generator().manual_seed(layer))
            self.z = numbers.expand(q.shape[0], -1, -1, -1).to(q.device, q.dtype)
            return self.z.clone()
        assert self.z is not None
        return self.z * self.alive.to(self.z.device)[:, None]

    def before(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.arguments[module] = args, kwargs
        if self.z is None or not is_linear(module) or not args or not isinstance(args[0], Tensor):
            return
        if args[0].numel() == self.z.numel():
            self.inputs[module] = args[0].detach().reshape(self.z.shape).clone()

    def after(self, module: nn.Module, args: tuple[Any, ...], result: Any) -> None:
        if module is not self.attention or self.alive is not None or self.z is None:
            return
        index = self.layer_of(module)
        if index in self.wanted:
            self._look(index, module)
            self.left -= 1
        self.attention = self.z = None
        if not self.left:
            raise StopForward

    def _look(self, index: int, attention: nn.Module) -> None:
        whole = self.inputs
        assert self.z is not None
        if any(torch.equal(x, self.z) for x in whole.values()):
            return
        args, kwargs = self.arguments[attention]
        shared = dict.fromkeys(whole, False)
        for alive in choices(self.z.shape[2]):
            self.alive = alive
            try:
                attention(*args, **kwargs)
            finally:
                self.alive = None
            for module in list(shared):
                scale = _scales(whole[module], self.inputs.get(module), alive)
                if scale is None:
                    del shared[module]
                else:
                    shared[module] |= scale
        outer = [m for m in shared if not any(m is not other and m in set(other.modules()) for other in shared)]
        if len(outer) == 1:
            name = next(name for name, one in self.structure.layers[index].named_modules() if one is outer[0])
            self.found[self.kinds[index]] = "norm" if shared[outer[0]] else "gate", name


def choices(heads: int) -> Iterator[Tensor]:
    """(head,) bool: sets of heads, such that of every two heads some set holds the first and not the second."""
    index = torch.arange(heads)
    for bit in range(max(1, (heads - 1).bit_length())):
        chosen = (index >> bit) % 2 == 1
        yield chosen
        yield ~chosen


def _scales(whole: Tensor, part: Tensor | None, alive: Tensor) -> bool | None:
    """Does setting the other heads to zero scale the living ones? None: x_h is not made of head h alone.

    Args:
        whole: (batch, token, head, width), the linear map's input for all heads.
        part: the same with only some heads alive.
        alive: (head,) those.
    """
    if part is None or bool(part[:, :, ~alive].any()):
        return None
    own, now = whole[:, :, alive].double(), part[:, :, alive].double()
    scale = (own * now).sum(-1, keepdim=True) / own.square().sum(-1, keepdim=True)  # (batch, token, head, 1)
    tolerance = TOLERANCE if whole.dtype == torch.float32 else HALF_TOLERANCE
    if not bool(((now - scale * own).abs() <= tolerance * now.abs().amax(-1, keepdim=True)).all()):
        return None
    return bool(((scale - 1).abs() > tolerance).any())
