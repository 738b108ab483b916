"""Ablation, steering and activation patching: the z of heads is replaced or shifted.

`MeanAblation` replaces z by one vector per head, `Steer` adds it. Vectors are a mapping from head to vector, or a DataArray
with dims (layer, head, width), such as the mean of a `HeadOutputs` reading over examples.

`ResampleAblation` gives one set of heads the z of other examples: of the same batch, by a permutation, or of a
`HeadOutputs` reading on other texts, matched by example and token. `Replace` gives every example its own set of heads the z
of another forward pass over as many tokens, so one pass tests as many sets as the batch has examples.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
import xarray as xr
from torch import Tensor

from headwise.core.dims import EXAMPLE, HEAD, LAYER, TOKEN, WIDTH, head_name, parse_head
from headwise.core.errors import DataError
from headwise.interventions.heads import Heads, OnHeads
from headwise.seam import AttentionCall, Intervention, Positions, position_index, position_mask

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
        positions (Positions): which tokens (see `headwise.seam.instrument`).

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
        positions: which tokens (see `headwise.seam.instrument`).

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


RANGES = ("all", "decode", "prompt")  # positions that do not name single tokens


class ResampleAblation(OnHeads):
    """Resample ablation: the z of heads is replaced by their z on another example.

    Within a batch, single tokens in `positions` ("last", 3, [0, -1]) take z from the corresponding token; other tokens
    from the same position, which must not be padding.

    Args:
        heads: ``"L3H7, L4H0"``, or names, or (layer, head) pairs.
        source: a sequence of indices (example b takes z from example source[b] of this batch), or a DataArray with dims
            (example, layer, head, token, width), one example per example of the batch, at the tokens of `positions`.
        positions: which tokens (see `headwise.seam.instrument`).

    Examples:
        Two texts of equal length exchange the output of L0H3.

        >>> inputs = model.encode(["the old river", "a low door"])
        >>> with hw.observe(model, hw.HeadOutputs()) as plain:
        ...     _ = model(**inputs)
        >>> with hw.observe(model, hw.ResampleAblation("L0H3", [1, 0]), hw.HeadOutputs()) as mixed:
        ...     _ = model(**inputs)
        >>> z, other = (seen["outputs"].z.sel(layer=0, head=3) for seen in (plain, mixed))
        >>> bool((z.isel(example=0) == other.isel(example=1)).all())
        True
    """

    def __init__(self, heads: Heads, source: Sequence[int] | xr.DataArray, positions: Positions = "all"):
        super().__init__(heads, positions)
        self.source = source
        if isinstance(source, xr.DataArray):
            if set(source.dims) != {EXAMPLE, LAYER, HEAD, TOKEN, WIDTH}:
                raise DataError(f"source has dims {tuple(source.dims)}; give the z of a HeadOutputs reading")
            if isinstance(positions, str) and positions in RANGES:
                raise DataError("a source from HeadOutputs has single tokens; name the same tokens in positions")

    def new(self, call: AttentionCall, heads: list[int], z: Tensor) -> Tensor:
        """The other example's z."""
        if isinstance(self.source, xr.DataArray):
            return _put(z, self._index(call, z), self._from_source(call, heads, self.source, z))
        order = torch.tensor(list(self.source), device=z.device)
        if len(order) != call.batch or bool(((order < 0) | (order >= call.batch)).any()):
            raise DataError(
                f"source is {list(self.source)} and the batch has {call.batch} examples; give one index per example"
            )
        if not (isinstance(self.positions, str) and self.positions in RANGES):
            index = self._index(call, z)
            values = z[order].gather(1, index[order].clamp(min=0)[:, :, None, None].expand(-1, -1, *z.shape[2:]))
            return _put(z, index.masked_fill(index[order] < 0, -1), values)
        padding = position_mask(self.positions, call.context).to(z.device) & ~call.valid[order]
        if bool(padding.any()):
            example, token = padding.nonzero()[0].tolist()
            raise DataError(
                f"token {token} of example {example} would take z from padding of example {int(order[example])}; "
                'resample between texts of equal length, or name single tokens, such as positions="last"'
            )
        return z[order]

    def _index(self, call: AttentionCall, z: Tensor) -> Tensor:
        return position_index(self.positions, call.context).to(z.device)  # (batch, token)

    def _from_source(self, call: AttentionCall, heads: list[int], source: xr.DataArray, z: Tensor) -> Tensor:
        """(batch, token, heads, width) of a reading."""
        try:
            chosen = source.sel({LAYER: call.layer, HEAD: heads})
        except (KeyError, IndexError):
            raise DataError(
                f"source has no values for heads {heads} of layer {call.layer}; read it from this model"
            ) from None
        values = torch.from_numpy(chosen.transpose(EXAMPLE, TOKEN, HEAD, WIDTH).values.copy()).to(z.device, z.dtype)
        index = self._index(call, z)
        expected = (*index.shape, *z.shape[2:])
        if tuple(values.shape) != expected:
            names = ("examples", "tokens", "heads", "entries per head")
            differ = next(i for i in range(4) if values.shape[i] != expected[i])
            raise DataError(
                f"source has {values.shape[differ]} {names[differ]} and this pass has {expected[differ]}; "
                "read it with the same positions, on this model, from as many texts"
            )
        if not bool(values[index >= 0].isfinite().all()):
            raise DataError("source is not finite at a token of this batch; one of its examples had no such token")
        return values


def _put(z: Tensor, index: Tensor, values: Tensor) -> Tensor:
    """Z with `values` (batch, token, head, width) at the tokens of `index` (batch, token); -1: not written."""
    target = torch.where(index < 0, z.shape[1], index)[:, :, None, None].expand_as(values)
    padded = torch.cat([z, z[:, :1]], dim=1)  # one more token, for values that are not written
    return padded.scatter(1, target, values)[:, :-1]


class Replace(Intervention):
    """Activation patching of a separate set of heads per example: z is replaced by given values.

    Args:
        values: layer -> (batch, query, head, width), such as z of `RawHeadOutputs`.
        where: (batch, layer, head) bool.

    Examples:
        One pass, two experiments: example 0 gets L0H3 of another text, example 1 gets L0H0. (L0H1 attends to the first
        token, so its output is the same in every text.)

        >>> import torch
        >>> from headwise.instruments import RawHeadOutputs
        >>> from headwise.interventions import Replace
        >>> other = RawHeadOutputs()
        >>> with hw.observe(model, other):
        ...     _ = model(**model.encode(["a low door"] * 2))
        >>> where = torch.zeros(2, 3, 6, dtype=torch.bool)
        >>> where[0, 0, 3] = where[1, 0, 0] = True
        >>> now = RawHeadOutputs()
        >>> with hw.observe(model, Replace(other.z, where), now):
        ...     _ = model(**model.encode(["the old river"] * 2))
        >>> (now.z[0] == other.z[0]).all(dim=1).all(dim=-1).int()  # (example, head) of layer 0
        tensor([[0, 1, 0, 1, 0, 0],
                [1, 1, 0, 0, 0, 0]], dtype=torch.int32)
    """

    def __init__(self, values: Mapping[int, Tensor], where: Tensor):
        self.values, self.where = values, where

    def change(self, call: AttentionCall) -> Tensor:
        """Z with the given values."""
        own = self.where[:, call.layer, : call.heads].to(call.z.device)
        if not bool(own.any()):
            return call.z
        given = self.values[call.layer].to(call.z.device, call.z.dtype)
        if given.shape != call.z.shape or len(own) != call.batch:
            raise DataError(
                f"z of layer {call.layer} has the shape {tuple(call.z.shape)}, and the given values {tuple(given.shape)} "
                f"for {len(own)} examples; record them from a pass over as many examples and tokens"
            )
        return torch.where(own[:, None, :, None], given, call.z)
