"""Interventions on chosen heads: the base class, scaling, a different change per example, and dropped attention weights.

`ScaleHeads` multiplies z: 0 is zero ablation, 1 changes nothing, 2 doubles. `PerExample` applies its own change to every
example of a batch, so one forward pass tests many sets of heads:

    z of example b  ->  factor[b, layer, head] · z  +  shift[b, layer, head]

Cost: one product per layer in which something changes. `DropAttention` recomputes z from q, k and v, block by block, without
the weights that a rule drops (its cost: `kernels.sparsify`); on decode steps the rule applies to the row of the new token.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import ExitStack

import torch
from torch import Tensor

from headwise.core.dims import parse_heads
from headwise.core.errors import DataError
from headwise.kernels.sparsify import SparsityRule, row_blocks, sparse_output
from headwise.seam import AttentionCall, Intervention, Positions, Structure, check_positions, position_mask

__all__ = ["Heads", "OnHeads", "PerExample", "ScaleHeads"]


Heads = str | Iterable[str | tuple[int, int]]
"""Which heads: ``"L3H7, L4H0"``, names, or (layer, head) pairs."""


class OnHeads(Intervention):
    """Changes z of some heads at some tokens. Subclasses compute the new z.

    Args:
        heads: ``"L3H7, L4H0"``, or names, or (layer, head) pairs.
        positions: which tokens (see `headwise.seam.instrument`); "all" by default, which in `generate` means the prompt
            and every decode step.

    Examples:
        A custom intervention that negates the output of heads:

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
            raise DataError('no heads are given; name at least one, such as "L3H7"')
        self.positions = check_positions(positions)
        self._of_layer: dict[int, list[int]] = defaultdict(list)
        for layer, head in dict.fromkeys(self.heads):
            self._of_layer[layer].append(head)

    @abstractmethod
    def new(self, call: AttentionCall, heads: list[int], z: Tensor) -> Tensor:
        """The new z of these heads, (batch, query, len(heads), width), before positions are applied."""

    def setup(self, structure: Structure, stack: ExitStack) -> None:
        """Refuse heads that the model does not have."""
        structure.require_heads(self.heads)

    def change(self, call: AttentionCall) -> Tensor:
        """Z with the chosen heads and tokens replaced."""
        heads = self._of_layer.get(call.layer)
        if not heads:
            return call.z
        old = call.z[:, :, heads]
        where = position_mask(self.positions, call.context).to(old.device)[:, :, None, None]
        z = call.z.clone()
        z[:, :, heads] = torch.where(where, self.new(call, heads, old).to(old.dtype), old)
        return z


class ScaleHeads(OnHeads):
    """Scale the output of heads: z -> factor * z; 0 is zero ablation.

    Args:
        heads: ``"L3H7, L4H0"``, or names, or (layer, head) pairs.
        factor: 0 ablates, 1 changes nothing, 2 doubles.
        positions: which tokens (see `headwise.seam.instrument`).

    Examples:
        Without the previous-token head, the induction head no longer finds its key.

        >>> inputs = model.encode("the old river was the old river")
        >>> def induction(*changes):
        ...     with hw.observe(model, *changes, hw.Profile()) as seen:
        ...         _ = model(**inputs)
        ...     return round(float(seen["profile"].value.sel(layer=1, head=4, statistic="induction")[0]), 2)
        >>> induction(), induction(hw.ScaleHeads("L0H3", 0.0))
        (1.0, 0.14)
    """

    def __init__(self, heads: Heads, factor: float = 0.0, positions: Positions = "all"):
        super().__init__(heads, positions)
        self.factor = factor

    def new(self, call: AttentionCall, heads: list[int], z: Tensor) -> Tensor:
        """z, scaled."""
        return z * self.factor


class PerExample(Intervention):
    """Scale and shift heads separately for each example, at every token of every forward pass.

    Args:
        factor: (example, layer, head), multiplied with z.
        shift: (example, layer, head, width), added to z; or None.
        rows: returns, at each pass, the example of every row of the batch, (batch,), for batches that finished examples
            leave, or of every token, (batch, query), where a row has several; None: row b is example b.

    Examples:
        Ablate every head of layer 0, each in its own example: which one does the induction head need?

        >>> import torch
        >>> from headwise.interventions import PerExample
        >>> off = torch.ones(6, 3, 6)
        >>> off[range(6), 0, range(6)] = 0.0  # example b is without L0Hb
        >>> with hw.observe(model, PerExample(off), hw.Profile()) as seen:
        ...     _ = model(**model.encode(["the old river was the old river"] * 6))
        >>> seen["profile"].value.sel(layer=1, head=4, statistic="induction").values.round(2)
        array([1.  , 1.  , 1.  , 0.14, 1.  , 1.  ], dtype=float32)
    """

    def __init__(self, factor: Tensor, shift: Tensor | None = None, rows: Callable[[], Tensor] | None = None):
        if factor.ndim != 3 or (shift is not None and shift.shape[:3] != factor.shape):
            raise DataError(
                f"factor has the shape {tuple(factor.shape)}"
                + ("" if shift is None else f" and shift {tuple(shift.shape)}")
                + "; give (example, layer, head), and (example, layer, head, width) for the shift"
            )
        self.factor, self.shift, self.rows = factor, shift, rows
        scaled = (factor != 1).any(dim=2).any(dim=0)  # (layer,)
        shifted = (shift != 0).any(dim=3).any(dim=2).any(dim=0) if shift is not None else scaled & False
        self._scaled, self._shifted = scaled.tolist(), shifted.tolist()
        self._on_device: dict[tuple[str, int], Tensor] = {}  # one layer's part, on its device

    def change(self, call: AttentionCall) -> Tensor:
        """Z with every example's own change."""
        z, layer, heads = call.z, call.layer, call.heads
        if not self._scaled[layer] and not self._shifted[layer]:
            return z
        rows = slice(None) if self.rows is None else self.rows().to(z.device)
        if self._scaled[layer]:
            factor = self._part("factor", self.factor, call)[:, :heads][rows]  # (batch, head) or (batch, query, head)
            _require_batch(len(factor), len(z))
            z = z * (factor if factor.ndim == 3 else factor[:, None])[..., None]
        if self._shifted[layer] and self.shift is not None:
            shift = self._part("shift", self.shift, call)[:, :heads, : z.shape[-1]][
                rows
            ]  # (batch, [query,] head, width)
            _require_batch(len(shift), len(z))
            z = z + (shift if shift.ndim == 4 else shift[:, None])
        return z

    def _part(self, name: str, values: Tensor, call: AttentionCall) -> Tensor:
        """One layer of all examples' changes, with the device and dtype of z."""
        key = (name, call.layer)
        if key not in self._on_device:
            self._on_device[key] = values[:, call.layer].to(call.z.device, call.z.dtype)
        return self._on_device[key]


def _require_batch(given: int, batch: int) -> None:
    if given != batch:
        raise DataError(f"changes are given for {given} examples and the batch has {batch}; give one per example")


class DropAttention(Intervention):
    """Drop attention weights by a rule, and recompute z from the others.

    Args:
        rule: which weights to drop.
        heads: ``"L3H7, L4H0"``, or names, or (layer, head) pairs; None: all heads.

    Examples:
        >>> from headwise.interventions import DropAttention
        >>> from headwise.kernels import SparsityRule
        >>> inputs = model.encode("the old river was the old river")
        >>> with hw.observe(model, DropAttention(SparsityRule("top", 2), heads="L1H4")):
        ...     few = model(**inputs).logits
        >>> bool((few - model(**inputs).logits).abs().max() < 1e-3)  # two weights suffice for this head
        True
    """

    on_values = True

    def __init__(self, rule: SparsityRule, heads: Heads | None = None):
        self.rule = rule
        self.heads = None if heads is None else parse_heads(heads)
        self._of_layer: dict[int, list[int]] = defaultdict(list)
        for layer, head in dict.fromkeys(self.heads or ()):
            self._of_layer[layer].append(head)

    def setup(self, structure: Structure, stack: ExitStack) -> None:
        """Refuse heads that the model does not have."""
        structure.require_heads(self.heads or ())

    def change(self, call: AttentionCall) -> Tensor:
        """The new z."""
        if self.heads is not None and call.layer not in self._of_layer:
            return call.z
        blocks = [sparse_output(rows, self.rule.apply(rows), call.v) for rows in row_blocks(call.attention)]
        sparse = torch.cat(blocks, dim=1).to(call.z.dtype)
        if self.heads is None:
            return sparse
        z = call.z.clone()
        chosen = self._of_layer[call.layer]
        z[:, :, chosen] = sparse[:, :, chosen]
        return z
