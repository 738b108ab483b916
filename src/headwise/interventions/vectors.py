"""Interventions with one vector per head: replace z by it (`MeanAblation`), or add it (`Steer`).

Vectors are a mapping from head to vector, or a DataArray with dims (layer, head, width), such as the mean of a
`HeadOutputs` reading over examples.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import xarray as xr
from torch import Tensor

from headwise.core.dims import HEAD, LAYER, WIDTH, head_name, parse_head
from headwise.core.errors import DataError
from headwise.interventions.heads import Heads, OnHeads
from headwise.seam import AttentionCall, Positions

Vectors = Mapping[str | tuple[int, int], Tensor] | xr.DataArray
"""One vector per head: a mapping, or a DataArray (layer, head, width)."""


class _WithVectors(OnHeads):
    def __init__(self, heads: Heads, vectors: Vectors, positions: Positions = "all"):
        super().__init__(heads, positions)
        self.vectors = _by_head(vectors, self.heads)

    def vector(self, call: AttentionCall, heads: list[int], z: Tensor) -> Tensor:
        """(heads, width), on z's device."""
        vectors = {head: self.vectors[call.layer, head] for head in heads}
        for head, vector in vectors.items():
            if len(vector) != z.shape[-1]:
                raise DataError(
                    f"the vector for {head_name(call.layer, head)} has {len(vector)} entries and z has {z.shape[-1]}; "
                    "take it from HeadOutputs on this model"
                )
        return torch.stack([vector.to(z.device, z.dtype) for vector in vectors.values()])


class MeanAblation(_WithVectors):
    """Mean ablation: the z of heads is replaced by a given vector, such as its mean over a dataset.

    Args:
        heads (Heads): ``"L3H7, L4H0"``, or names, or (layer, head) pairs.
        vectors (Vectors): head -> vector, or a DataArray (layer, head, width).
        positions (Positions): which tokens (see `headwise.seam.positions`).

    Examples:
        >>> texts = model.encode(["the old river", "a door in the garden", "her letter"])
        >>> with hw.observe(model, hw.HeadOutputs()) as seen:
        ...     _ = model(**texts)
        >>> mean = seen["outputs"].z.mean("example").isel(token=0)  # (layer, head, width)
        >>> with hw.observe(model, hw.MeanAblation("L1H4, L2H5", mean), hw.HeadOutputs()) as now:
        ...     _ = model(**texts)
        >>> float(now["outputs"].z.sel(layer=1, head=4).std("example").max())  # the same in every text
        0.0
    """

    def new(self, call: AttentionCall, heads: list[int], z: Tensor) -> Tensor:
        """The vector, at every token."""
        return self.vector(call, heads, z).expand_as(z)


class Steer(_WithVectors):
    """Steer heads along a direction: z -> z + strength * vector.

    Args:
        heads: ``"L3H7, L4H0"``, or names, or (layer, head) pairs.
        vectors: head -> vector, or a DataArray (layer, head, width).
        strength: multiplied with the vector.
        positions: which tokens (see `headwise.seam.positions`).

    Examples:
        >>> import torch
        >>> push = {"L2H5": torch.ones(64)}
        >>> inputs = model.encode("the old river")
        >>> with hw.observe(model, hw.HeadOutputs()) as plain:
        ...     _ = model(**inputs)
        >>> with hw.observe(model, hw.Steer("L2H5", push, strength=3.0), hw.HeadOutputs()) as steered:
        ...     _ = model(**inputs)
        >>> change = steered["outputs"].z - plain["outputs"].z
        >>> change.sel(layer=2).mean(["example", "token", "width"]).values.round(2)  # only L2H5
        array([0., 0., 0., 0., 0., 3.], dtype=float32)
    """

    def __init__(self, heads: Heads, vectors: Vectors, strength: float = 1.0, positions: Positions = "all"):
        super().__init__(heads, vectors, positions)
        self.strength = strength

    def new(self, call: AttentionCall, heads: list[int], z: Tensor) -> Tensor:
        """Z plus the scaled vector."""
        return z + self.strength * self.vector(call, heads, z)


def _by_head(vectors: Vectors, heads: list[tuple[int, int]]) -> dict[tuple[int, int], Tensor]:
    if isinstance(vectors, xr.DataArray):
        if set(vectors.dims) != {LAYER, HEAD, WIDTH}:
            raise DataError(
                f"vectors need dims (layer, head, width) and have {tuple(vectors.dims)}; "
                "take the mean over examples and one token, for instance z.mean('example').isel(token=0)"
            )
        found = {pair: _of_array(vectors, pair) for pair in heads}
    else:
        given = {parse_head(head): torch.as_tensor(vector) for head, vector in vectors.items()}
        missing = [pair for pair in heads if pair not in given]
        if missing:
            raise DataError(f"there is no vector for {head_name(*missing[0])}; give one for every head")
        found = {pair: given[pair] for pair in heads}
    for pair, vector in found.items():
        if vector.ndim != 1:
            raise DataError(
                f"the vector for {head_name(*pair)} has the shape {tuple(vector.shape)}; give one dimension"
            )
        if not bool(torch.isfinite(vector).all()):
            raise DataError(f"the vector for {head_name(*pair)} is not finite; some example had no token there")
    return found


def _of_array(vectors: xr.DataArray, pair: tuple[int, int]) -> Tensor:
    try:
        chosen = vectors.sel({LAYER: pair[0], HEAD: pair[1]})
    except (KeyError, IndexError):
        raise DataError(f"the vectors have no entry for {head_name(*pair)}; take them from this model") from None
    return torch.from_numpy(chosen.values.copy())
