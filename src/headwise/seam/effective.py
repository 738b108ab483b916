"""What the first block's MLP makes of a token: E' = MLP_0(ln2_0(E)), for any family.

Later heads do not read the embedding itself; much of what they read is what the first MLP wrote over it. The published
form (Elhelo & Geva, arXiv 2412.11965) therefore takes E' for the heads of all layers but the first.

The first block is run as it is, on embedding rows, with its attention silenced (nought, bias and all), and what it adds
to its input is E': out - in. For a block in sequence (Llama, GPT-2) that is MLP_0(ln2_0(E)) without the residual. For a
parallel block (GPT-NeoX, Phi, Cohere) the MLP has its own norm or shares the attention's, and that one is used. A norm
behind the MLP (Gemma, OLMo 2) is part of what is added, and so is a residual multiplier (Granite). Experts are routed as
the block routes them. No positions are added to the rows.

Cost: the first MLP, once for every row asked for, in float32. Held: a float32 copy of the first block.
This module does not know heads.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from headwise.core.errors import SeamError
from headwise.model import ModelCard, decoder_layers, whole
from headwise.seam.glance import Enough, Onlooker, glance
from headwise.seam.structure import Structure

__all__ = ["FirstBlock"]

ROWS = 2048  # embedding rows that go through the block at a time


class _Witness(Onlooker):
    """An observer that takes down which module attends, and how the first block is called."""

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
            self.silence = result
            raise Enough


class _Silent(nn.Module):
    """Stands in for the attention: nought, in the shape that the block expects."""

    def __init__(self, pattern: Any) -> None:
        super().__init__()
        self.pattern = pattern

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        given = next(one for one in (*args, *kwargs.values()) if isinstance(one, Tensor))
        nought = torch.zeros_like(given)
        if isinstance(self.pattern, Tensor):
            return nought
        return (nought, *(None for _ in self.pattern[1:]))


class FirstBlock:
    """The first block of a model without its attention."""

    def __init__(self, hf: nn.Module, card: ModelCard, device: torch.device) -> None:
        if card.per_layer[0].reason is not None:
            raise SeamError(
                f"the first layer of {card.id} has no attention heads ({card.per_layer[0].reason}), so it is not known "
                "which of its parts to silence; use embedding='raw'"
            )
        block = decoder_layers(hf)[0]
        witness = _witness(hf, block)
        name = next(name for name, module in block.named_modules() if module is witness.module)
        self.block = whole(block).to(device=device, dtype=torch.float32).eval()
        parent, _, last = name.rpartition(".")
        setattr(self.block.get_submodule(parent), last, _Silent(witness.silence))
        self.args = tuple(_moved(one, device) for one in witness.args[1:])
        named = {key: _moved(value, device) for key, value in witness.kwargs.items()}
        self.kwargs = {key: value for key, value in named.items() if witness.args or key != "hidden_states"}
        self.device = device

    @torch.no_grad()
    def adds(self, rows: Tensor, scale: float = 1.0) -> Tensor:
        """What the block adds to these rows (n, hidden) times ``scale``, each a token by itself; float32, (n, hidden)."""
        added = torch.empty(len(rows), rows.shape[1], device=self.device)
        for start in range(0, len(rows), ROWS):
            given = rows[None, start : start + ROWS].to(device=self.device, dtype=torch.float32) * scale
            result = self.block(given, *self.args, **self.kwargs)
            result = result if isinstance(result, Tensor) else result[0]
            added[start : start + ROWS] = (result - given)[0]
        return added


@torch.no_grad()
def _witness(hf: nn.Module, block: nn.Module) -> _Witness:
    structure = Structure(hf)
    witness = _Witness()
    handles = [block.register_forward_pre_hook(witness.call, with_kwargs=True)]
    handles += [module.register_forward_hook(witness.result) for module in block.modules()]
    tokens = structure.few_tokens()
    try:
        if glance(hf, witness, lambda: structure.decoder(input_ids=tokens, use_cache=False)):
            return witness
    finally:
        for handle in handles:
            handle.remove()
    raise SeamError(f"the first layer of {structure.card.id} did not come by the attention interface")


def _moved(value: Any, device: torch.device) -> Any:
    if isinstance(value, Tensor):
        return value.to(device)
    if isinstance(value, tuple | list):
        return type(value)(_moved(one, device) for one in value)
    return value
