"""The weights of single heads, the embedding and the unembedding, read from memory or from disk.

    weights = HeadWeights(model)            # a model from `load` or `open_stored`
    weights.W_V("L3H5")                     # (hidden, width); also W_Q, W_K, W_O (width, hidden) and W_OV (hidden, hidden)
    weights.layer(3)                        # W_V (kv_head, hidden, width) and W_O (head, width, hidden) of all heads
    weights.embedding, weights.unembedding  # E and U, both (vocabulary, hidden), in their stored dtype
    weights.effective(rows)                 # E': the first MLP applied to embedding rows

Only the requested layer is held, in float32 on the device; a stored model stays on disk, and quantised layers are
de-quantised. Query head h reads kv head h // (heads / kv_heads). Biases are left out. `gain` and `post_norm_gain` are the
factors of the norms before and after the attention of a layer, `final_gain` those of the last norm, for folding them in.
They are measured as the effect of the norm on a vector of mean 0 and variance 1, so a family that stores its gain minus 1 is
read correctly.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from headwise.core.dims import parse_head
from headwise.core.errors import SeamError
from headwise.model import (
    Model,
    ModelCard,
    StoredModel,
    decoder_layers,
    embedding,
    load_parameter,
    materialize,
    unembedding,
    without_hooks,
)
from headwise.model.linear import use_fastest_linear
from headwise.model.packed import is_packed, matrix_of
from headwise.seam.interface import ForwardTracer, StopForward, trace_until
from headwise.seam.layout import HeadColumns, LayoutFinder
from headwise.seam.structure import Structure, require_head

ROWS = 2048  # embedding rows per run of the first block


@dataclass(frozen=True)
class LayerWeights:
    """W_V and W_O of all heads of one layer, float32.

    Examples:
        >>> from headwise.seam import HeadWeights
        >>> layer = HeadWeights(model).layer(0)
        >>> tuple(layer.value.shape), tuple(layer.output.shape), layer.group
        ((6, 384, 64), (6, 64, 384), 1)
    """

    value: Tensor  # (kv_head, hidden, value width)
    output: Tensor  # (head, value width, hidden)

    @property
    def group(self) -> int:
        """Query heads that share a kv head."""
        return len(self.output) // len(self.value)


class HeadWeights:
    """The weights of a model's heads, read from memory or from disk.

    Args:
        model: a model from `headwise.load`, or `headwise.model.open_stored`.

    Examples:
        >>> from headwise.seam import HeadWeights
        >>> weights = HeadWeights(model)
        >>> tuple(weights.W_V("L0H3").shape), tuple(weights.W_O("L0H3").shape)
        ((384, 64), (64, 384))
        >>> bool((weights.W_OV("L0H3") == weights.W_V("L0H3") @ weights.W_O("L0H3")).all())
        True
    """

    def __init__(self, model: Model | StoredModel) -> None:
        if getattr(model, "adapter", None) or getattr(getattr(model, "hf", None), "peft_config", None):
            raise SeamError(f"{model.id} has an adapter on top; merge it (merge_and_unload) and give the result")
        self.model, self.card, self.device = model, model.card, model.device
        self._layouts = LayoutFinder(self.card)
        self._names = {module: name for name, module in self.card.skeleton.named_modules()}
        self._layers = decoder_layers(self.card.skeleton, self.card)

    def check(self) -> None:
        """Refuse now what `layer` would refuse later: unknown layouts and missing tensors."""
        for index in self.card.attention_layers:
            layout = self._layouts.of(index)
            for name in (layout.value.name, layout.output):
                full = f"{self._names[self._layers[index]]}.{name}"
                if isinstance(self.model, StoredModel):
                    self.model.checkpoint.stored_name(full, self.card.skeleton.get_parameter(full).shape)
                else:
                    self._tensor(full)

    @property
    def ends(self) -> Any:
        """A ``transformers`` model with the real embedding, first block, final norm and unembedding."""
        return self.model.hf if isinstance(self.model, Model) else self.model.one_layer_model

    @cached_property
    def embedding(self) -> Tensor:
        """E, (vocabulary, hidden)."""
        weight = load_parameter(embedding(self.ends), "weight")
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
        if is_packed(module):
            return matrix_of(module)[0].T
        weight = getattr(module, "weight", None)
        if not isinstance(weight, Tensor) or weight.ndim != 2 or weight.shape[1] != self.card.hidden_size:
            raise SeamError(
                f"{self.card.id} has no unembedding matrix of {self.card.hidden_size} columns, so what its heads write "
                "cannot be read as tokens; load it with its language-model head"
            )
        return load_parameter(module, "weight")

    def effective(self, rows: Tensor) -> Tensor:
        """E' of embedding rows, (n, hidden) float32. Frees the float32 copy of the first block afterwards."""
        return FirstBlock(self.ends, self.card, self.device).adds(rows, self.scale)

    @cached_property
    def scale(self) -> float:
        """The factor that the embedding module applies to its rows; 1 in most families."""
        module = without_hooks(embedding(self.ends))
        rows = self.embedding[:8].float()
        module._parameters = {"weight": nn.Parameter(rows, requires_grad=False)}
        module.padding_idx = None  # may lie beyond these rows
        given = module(torch.arange(len(rows), device=rows.device))
        return float((given * rows).sum() / (rows * rows).sum())

    def layer(self, index: int) -> LayerWeights:
        """W_V and W_O of one layer."""
        layout = self._layouts.of(index)
        value, output = self._split(index, layout.value), self._matrix(index, layout.output)
        output = output.T if layout.output_outputs_first else output
        facts = self.card.per_layer[index]
        return LayerWeights(value, output.reshape(facts.heads, facts.value_dim, -1).contiguous())

    def W_Q(self, head: str | tuple[int, int]) -> Tensor:  # noqa: N802
        """(hidden, width): the query matrix of a head, before rotation and before a norm on queries."""
        return self._query_key(head, 0)

    def W_K(self, head: str | tuple[int, int]) -> Tensor:  # noqa: N802
        """(hidden, width): the key matrix that a head reads, before rotation and before a norm on keys."""
        return self._query_key(head, 1)

    def W_V(self, head: str | tuple[int, int]) -> Tensor:  # noqa: N802
        """(hidden, value width): the value matrix that a head reads; heads of a group share it."""
        return self._value_output(head)[0]

    def W_O(self, head: str | tuple[int, int]) -> Tensor:  # noqa: N802
        """(value width, hidden): the slice of the output projection of a head."""
        return self._value_output(head)[1]

    def W_OV(self, head: str | tuple[int, int]) -> Tensor:  # noqa: N802
        """(hidden, hidden): W_V W_O of a head, applied to row vectors."""
        value, output = self._value_output(head)
        return value @ output

    def _value_output(self, name: str | tuple[int, int]) -> tuple[Tensor, Tensor]:
        layer, head = parse_head(name)
        require_head(self.card, layer, head)
        weights = self.layer(layer)
        return weights.value[head // weights.group], weights.output[head]

    def _query_key(self, name: str | tuple[int, int], which: int) -> Tensor:
        layer, head = parse_head(name)
        require_head(self.card, layer, head)
        matrices = self._split(layer, self._layouts.query_key(layer)[which])
        return matrices[head * len(matrices) // self.card.per_layer[layer].heads]

    def _split(self, index: int, where: HeadColumns) -> Tensor:
        """(head or kv_head, hidden, width) of a layer's parameter."""
        matrix = self._matrix(index, where.name)
        matrix = (matrix if where.outputs_first else matrix.T)[where.columns.to(matrix.device)]
        return matrix.transpose(1, 2).contiguous()

    def gain(self, index: int) -> Tensor | None:
        """(hidden,): the factors of the norm before the attention of a layer; None where there is none."""
        return self._gain(index, self._layouts.of(index).norm)

    def post_norm_gain(self, index: int) -> Tensor | None:
        """(hidden,): the factors of the norm on the attention output of a layer; None in families without one."""
        return self._gain(index, self._layouts.of(index).post_norm)

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
        """(hidden,): the factors of the norm before the unembedding; None where there is none."""
        norm = _final_norm(self.ends)
        if norm is None:
            return None
        return _gain(materialize(norm).to(device=self.device, dtype=torch.float32), self.card.hidden_size, self.device)

    def _matrix(self, index: int, name: str) -> Tensor:
        """A parameter of a layer; refused if it is not plain finite numbers."""
        full = f"{self._names[self._layers[index]]}.{name}"
        shape = self.card.skeleton.get_parameter(full).shape
        found = self._tensor(full)
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
        module, _, own = name.rpartition(".")
        try:
            holder = self.model.hf.get_submodule(module)
            if own == "weight" and is_packed(holder):
                return matrix_of(holder)[0].T
            holder.get_parameter(own)
        except AttributeError as error:
            raise SeamError(
                f"{self.card.id} as it is loaded has no parameter {name} (a quantised or wrapped module is in its place); "
                "load it plain, or give its folder"
            ) from error
        return load_parameter(holder, own)


def _gain(norm: nn.Module, width: int, device: torch.device) -> Tensor:
    """The factors of a norm: its odd part on a vector of mean 0 and variance 1."""
    signs = torch.ones(width, device=device)
    signs[1::2] = -1
    with torch.no_grad():
        return (norm(signs[None, None])[0, 0] - norm(-signs[None, None])[0, 0]) / 2 * signs


@torch.no_grad()
def _final_norm(hf: nn.Module) -> nn.Module | None:
    """The module outside the layers whose output the decoder returns."""
    structure = Structure(hf)
    inside = {module for layer in structure.layers for module in layer.modules()}
    seen: dict[nn.Module, Tensor] = {}

    def record(module: nn.Module, args: Any, result: Any) -> None:
        if isinstance(result, Tensor):
            seen[module] = result

    outside = [
        module for module in structure.decoder.modules() if module not in inside and module is not structure.decoder
    ]
    handles = [module.register_forward_hook(record) for module in outside]
    try:
        last = structure.decoder(input_ids=structure.few_tokens(), use_cache=False)[0]
    finally:
        for handle in handles:
            handle.remove()
    found = [module for module, result in seen.items() if result.shape == last.shape and torch.equal(result, last)]
    return found[0] if found else None


class _FirstCallTracer(ForwardTracer):
    """Records which module attends, how the first block is called, and the form of the attention output."""

    module: nn.Module | None = None

    def attend(
        self, layer: int, module: nn.Module, q: Tensor, k: Tensor, v: Tensor, mask: Any, options: dict[str, Any]
    ) -> Tensor:
        self.module = module
        return torch.zeros(q.shape[0], q.shape[2], q.shape[1], v.shape[3], dtype=q.dtype, device=q.device)

    def call(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.args, self.kwargs = args, kwargs

    def result(self, module: nn.Module, args: tuple[Any, ...], result: Any) -> None:
        if module is self.module:
            self.output = result
            raise StopForward


class _ZeroAttention(nn.Module):
    """Replaces the attention: zeros, in the form that the block expects."""

    def __init__(self, like: Any) -> None:
        super().__init__()
        self.like = like

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        given = next(one for one in (*args, *kwargs.values()) if isinstance(one, Tensor))
        zeros = torch.zeros_like(given)
        return zeros if isinstance(self.like, Tensor) else (zeros, *(None for _ in self.like[1:]))


class FirstBlock:
    """The first block of a model without its attention: E' = MLP_0(ln2_0(E)), for any family.

    Later heads do not read the embedding itself; much of what they read is what the first MLP added to it. The published
    form (Elhelo & Geva, arXiv 2412.11965) therefore uses E' for the heads of all layers but the first.

    The first block is run unchanged on embedding rows with its attention output, bias included, set to zero, and E' is what
    it adds to its input: out - in. In a sequential block (Llama, GPT-2) that is MLP_0(ln2_0(E)) without the residual. In a
    parallel block (GPT-NeoX, Phi, Cohere) the MLP has its own norm or shares that of the attention. A norm after the MLP
    (Gemma, OLMo 2) and a residual multiplier (Granite) are included, and experts are routed as usual. No positions are added.

    Cost: the first MLP once for every row, in float32, and a float32 copy of the first block.
    """

    def __init__(self, hf: nn.Module, card: ModelCard, device: torch.device) -> None:
        if card.per_layer[0].reason is not None:
            raise SeamError(
                f"the first layer of {card.id} has no attention heads ({card.per_layer[0].reason}), so it is not known "
                "which of its parts to leave out; use embedding='raw'"
            )
        block = decoder_layers(hf)[0]
        tracer = _trace_first_call(hf, block)
        name = next(name for name, module in block.named_modules() if module is tracer.module)
        self.block = materialize(block).to(device=device, dtype=torch.float32).eval()
        use_fastest_linear(self.block)  # as in a loaded model: the numbers do not depend on where the weights are
        parent, _, last = name.rpartition(".")
        setattr(self.block.get_submodule(parent), last, _ZeroAttention(tracer.output))
        self.args = tuple(_moved(one, device) for one in tracer.args[1:])
        named = {key: _moved(value, device) for key, value in tracer.kwargs.items()}
        self.kwargs = {key: value for key, value in named.items() if tracer.args or key != "hidden_states"}
        self.device = device

    @torch.no_grad()
    def adds(self, rows: Tensor, scale: float = 1.0) -> Tensor:
        """What the block adds to each of these rows (n, hidden) times ``scale``; (n, hidden) float32."""
        added = torch.empty(len(rows), rows.shape[1], device=self.device)
        for start in range(0, len(rows), ROWS):
            given = rows[None, start : start + ROWS].to(device=self.device, dtype=torch.float32) * scale
            result = self.block(given, *self.args, **self.kwargs)
            result = result if isinstance(result, Tensor) else result[0]
            added[start : start + ROWS] = (result - given)[0]
        return added


@torch.no_grad()
def _trace_first_call(hf: nn.Module, block: nn.Module) -> _FirstCallTracer:
    structure = Structure(hf)
    tracer = _FirstCallTracer()
    handles = [block.register_forward_pre_hook(tracer.call, with_kwargs=True)]
    handles += [module.register_forward_hook(tracer.result) for module in block.modules()]
    tokens = structure.few_tokens()
    try:
        if trace_until(hf, tracer, lambda: structure.decoder(input_ids=tokens, use_cache=False)):
            return tracer
    finally:
        for handle in handles:
            handle.remove()
    raise SeamError(f"the first layer of {structure.card.id} did not reach the attention interface")


def _moved(value: Any, device: torch.device) -> Any:
    if isinstance(value, Tensor):
        return value.to(device)
    if isinstance(value, tuple | list):
        return type(value)(_moved(one, device) for one in value)
    return value
