"""Every head's W_V and W_O, one layer at a time, and the two ends of the model they stand between.

    weights = HeadWeights(model)           # what `load` or `open_stored` gave
    layer = weights.layer(3)               # W_V (kv_head, hidden, width), W_O (head, width, hidden)
    weights.embedding, weights.unembedding # E and U, both (vocabulary, hidden), in the dtype they are stored in
    weights.effective(rows)                # E': what the first MLP makes of embedding rows

Only the layer that is asked for is held, in float32 on the device; a model that is stored stays on disk. Query head h
reads kv head h // (heads / kv_heads). Biases are left out. `gain` and `gain_behind` are the factors of the norms in front
of and behind a layer's attention, `final_gain` those of the last norm, for who requested to fold them in; they are what the
norm does to a vector of mean nought and variance one, so a family that stores its gain less one is read right.

This module does not know what is looked for in the weights.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from headwise.core.errors import SeamError
from headwise.model import Model, StoredModel, bare, decoder_layers, embedding, unembedding, values_of, whole
from headwise.seam.effective import FirstBlock
from headwise.seam.layout import LayoutFinder
from headwise.seam.structure import Structure

__all__ = ["HeadWeights", "LayerWeights"]


@dataclass(frozen=True)
class LayerWeights:
    """One layer's heads, float32."""

    value: Tensor  # (kv_head, hidden, value width)
    output: Tensor  # (head, value width, hidden)

    @property
    def group(self) -> int:
        """Query heads that share a kv head."""
        return len(self.output) // len(self.value)


class HeadWeights:
    """The weights of a model's heads, read from memory or from disk."""

    def __init__(self, model: Model | StoredModel) -> None:
        if getattr(model, "adapter", None) or getattr(getattr(model, "hf", None), "peft_config", None):
            raise SeamError(f"{model.id} has an adapter on top; merge it (merge_and_unload) and give the result")
        self.model, self.card, self.device = model, model.card, model.device
        self._layouts = LayoutFinder(self.card)
        self._names = {module: name for name, module in self.card.skeleton.named_modules()}
        self._layers = decoder_layers(self.card.skeleton, self.card)

    def check(self) -> None:
        """Refuse now what `layer` would refuse later: layouts that cannot be told, tensors that are not there."""
        for index in self.card.attention_layers:
            layout = self._layouts.of(index)
            for name in (layout.value, layout.output):
                full = f"{self._names[self._layers[index]]}.{name}"
                if isinstance(self.model, StoredModel):
                    self.model.checkpoint.called(full, self.card.skeleton.get_parameter(full).shape)
                else:
                    self._tensor(full)

    @property
    def ends(self) -> Any:
        """A ``transformers`` model with the real embedding, first block, final norm and unembedding."""
        return self.model.hf if isinstance(self.model, Model) else self.model.ends

    @cached_property
    def embedding(self) -> Tensor:
        """E, (vocabulary, hidden)."""
        weight = values_of(embedding(self.ends), "weight")
        if weight.shape[1] != self.card.hidden_size:
            raise SeamError(
                f"the embedding of {self.card.id} is {weight.shape[1]} wide and its hidden state {self.card.hidden_size}: "
                "a projection stands between them, and heads cannot be read from tokens to tokens"
            )
        return weight

    @cached_property
    def unembedding(self) -> Tensor:
        """U transposed, (vocabulary, hidden)."""
        module = unembedding(self.ends)
        weight = getattr(module, "weight", None)
        if not isinstance(weight, Tensor) or weight.ndim != 2 or weight.shape[1] != self.card.hidden_size:
            raise SeamError(
                f"{self.card.id} has no unembedding matrix of {self.card.hidden_size} columns, so what its heads write "
                "cannot be read as tokens; load it with its language-model head"
            )
        return values_of(module, "weight")

    def effective(self, rows: Tensor) -> Tensor:
        """E' of embedding rows, (n, hidden) float32. The float32 copy of the first block is let go afterwards."""
        return FirstBlock(self.ends, self.card, self.device).adds(rows, self.scale)

    @cached_property
    def scale(self) -> float:
        """What the embedding module multiplies its rows with on their way into the model; 1 in most families."""
        module = bare(embedding(self.ends))
        rows = self.embedding[:8].float()
        module._parameters = {"weight": nn.Parameter(rows, requires_grad=False)}
        module.padding_idx = None  # may lie beyond the few rows
        given = module(torch.arange(len(rows), device=rows.device))
        return float((given * rows).sum() / (rows * rows).sum())

    def layer(self, index: int) -> LayerWeights:
        """W_V and W_O of one layer."""
        layout = self._layouts.of(index)
        value, output = self._matrix(index, layout.value), self._matrix(index, layout.output)
        value = (value if layout.value_outputs_first else value.T)[layout.columns.to(value.device)]
        output = output.T if layout.output_outputs_first else output
        facts = self.card.per_layer[index]
        return LayerWeights(
            value.transpose(1, 2).contiguous(), output.reshape(facts.heads, facts.value_dim, -1).contiguous()
        )

    def gain(self, index: int) -> Tensor | None:
        """(hidden,): the factors of the norm in front of a layer's attention; None where there is no such norm."""
        return self._gain(index, self._layouts.of(index).norm)

    def gain_behind(self, index: int) -> Tensor | None:
        """(hidden,): the factors of the norm on what a layer's attention writes; None in families without one."""
        return self._gain(index, self._layouts.of(index).norm_behind)

    def _gain(self, index: int, name: str | None) -> Tensor | None:
        if name is None:
            return None
        skeleton = self._layers[index].get_submodule(name)
        real = copy.deepcopy(skeleton).to_empty(device=self.device).float().eval()
        with torch.no_grad():
            for part, parameter in real.named_parameters():
                parameter.copy_(self._tensor(f"{self._names[skeleton]}.{part}"))
        return _gain(real, self.card.hidden_size, self.device)

    @cached_property
    def final_gain(self) -> Tensor | None:
        """(hidden,): the factors of the norm in front of the unembedding; None where there is none."""
        norm = _final_norm(self.ends)
        if norm is None:
            return None
        return _gain(whole(norm).to(device=self.device, dtype=torch.float32), self.card.hidden_size, self.device)

    def _matrix(self, index: int, name: str) -> Tensor:
        """A layer's parameter; refused where it is not plain finite numbers."""
        full = f"{self._names[self._layers[index]]}.{name}"
        found = self._tensor(full)
        shape = self.card.skeleton.get_parameter(full).shape
        if not found.is_floating_point() or found.element_size() == 1 or found.shape != shape:
            raise SeamError(
                f"{full} of {self.card.id} is packed ({found.dtype}, {tuple(found.shape)} for {tuple(shape)}); load the "
                "model without quantisation"
            )
        found = found.to(device=self.device, dtype=torch.float32)
        if not bool(torch.isfinite(found.sum(dtype=torch.float64))):
            raise SeamError(f"{full} of {self.card.id} holds NaN or infinite numbers; load an undamaged copy")
        return found

    def _tensor(self, name: str) -> Tensor:
        if isinstance(self.model, StoredModel):
            return self.model.tensor(name)
        try:
            self.model.hf.get_parameter(name)
        except AttributeError as error:
            raise SeamError(
                f"{self.card.id} as it is loaded has no parameter {name} (a quantised or wrapped module is in its place); "
                "load it plain, or give its folder"
            ) from error
        module, _, own = name.rpartition(".")
        return values_of(self.model.hf.get_submodule(module), own)


def _gain(norm: nn.Module, width: int, device: torch.device) -> Tensor:
    """What a norm multiplies with: its odd part on a vector of mean 0 and variance 1."""
    signs = torch.ones(width, device=device)
    signs[1::2] = -1
    with torch.no_grad():
        return (norm(signs[None, None])[0, 0] - norm(-signs[None, None])[0, 0]) / 2 * signs


@torch.no_grad()
def _final_norm(hf: nn.Module) -> nn.Module | None:
    """The module outside of the layers whose output is what the decoder returns."""
    structure = Structure(hf)
    inside = {module for layer in structure.layers for module in layer.modules()}
    seen: dict[nn.Module, Tensor] = {}

    def keep(module: nn.Module, args: Any, result: Any) -> None:
        if isinstance(result, Tensor):
            seen[module] = result

    outside = [
        module for module in structure.decoder.modules() if module not in inside and module is not structure.decoder
    ]
    handles = [module.register_forward_hook(keep) for module in outside]
    try:
        last = structure.decoder(input_ids=structure.few_tokens(), use_cache=False)[0]
    finally:
        for handle in handles:
            handle.remove()
    found = [module for module, result in seen.items() if result.shape == last.shape and torch.equal(result, last)]
    return found[0] if found else None
