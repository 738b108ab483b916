"""The common part of interventions: which heads, at which tokens."""

from __future__ import annotations

from abc import abstractmethod
from collections import defaultdict
from collections.abc import Iterable
from contextlib import ExitStack

import torch
from torch import Tensor

from headwise.core.dims import parse_heads
from headwise.core.errors import DataError
from headwise.seam import AttentionCall, Intervention, Positions, Structure, check_positions, position_mask

Heads = str | Iterable[str | tuple[int, int]]
"""Which heads: ``"L3H7, L4H0"``, names, or (layer, head) pairs."""


class OnHeads(Intervention):
    """Changes z of some heads at some tokens. Subclasses say what the new z is.

    Args:
        heads: ``"L3H7, L4H0"``, or names, or (layer, head) pairs.
        positions: which tokens (see `headwise.seam.positions`); "all" by default, which under `generate`
            means the prompt and every decode step.

    Examples:
        An intervention of one's own: heads say the opposite.

        >>> from headwise.interventions import OnHeads
        >>> class Opposite(OnHeads):
        ...     def new(self, call, heads, z):
        ...         return -z
        >>> inputs = model.encode("the old river")
        >>> with hw.observe(model, hw.HeadOutputs()) as plain:
        ...     _ = model(**inputs)
        >>> with hw.observe(model, Opposite("L0H3"), hw.HeadOutputs()) as turned:
        ...     _ = model(**inputs)
        >>> z, other = (seen["outputs"].z.sel(layer=0, head=3) for seen in (plain, turned))
        >>> bool((z == -other).all())
        True
    """

    def __init__(self, heads: Heads, positions: Positions = "all"):
        self.heads = parse_heads(heads)
        if not self.heads:
            raise DataError('no heads were given; name at least one, for instance "L3H7"')
        self.positions = check_positions(positions)
        self._of_layer: dict[int, list[int]] = defaultdict(list)
        for layer, head in dict.fromkeys(self.heads):
            self._of_layer[layer].append(head)

    @abstractmethod
    def new(self, call: AttentionCall, heads: list[int], z: Tensor) -> Tensor:
        """The new z of these heads, (batch, query, len(heads), width), given the old; before positions are applied."""

    def setup(self, structure: Structure, stack: ExitStack) -> None:
        """Refuse heads that the model does not have, before it runs."""
        structure.require_heads(self.heads)

    def change(self, call: AttentionCall) -> Tensor:
        """A z with the chosen heads and tokens replaced."""
        heads = self._of_layer.get(call.layer)
        if not heads:
            return call.z
        old = call.z[:, :, heads]
        where = position_mask(self.positions, call.context).to(old.device)[:, :, None, None]
        z = call.z.clone()
        z[:, :, heads] = torch.where(where, self.new(call, heads, old).to(old.dtype), old)
        return z
