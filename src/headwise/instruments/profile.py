"""Where each head looks: eleven numbers a head and example, from one streamed pass.

Every number is a mean over an example's real tokens but the first (the first token can only look at itself).

| statistic | per query                                                                                             |
|-----------|-------------------------------------------------------------------------------------------------------|
| entropy   | entropy of the row over the log of the keys it can see: 0 one key, 1 evenly spread                      |
| sink      | weight on the sequence's first token                                                                  |
| diagonal  | weight on the token itself                                                                            |
| previous  | weight on the token before                                                                            |
| distance  | mean distance looked back, in tokens                                                                  |
| spread    | standard deviation of that distance                                                                   |
| induction | weight on tokens that followed an earlier occurrence of this token; over tokens that have one          |
| duplicate | weight on earlier occurrences of this token; over tokens that have one                                 |
| delimiter | weight on punctuation and line ends, the first token excepted                                         |
| top1      | the largest weight of the row                                                                         |
| moved     | norm of what the head writes, z W_O, over the norm of the residual stream it reads from                |

`uniform` holds the same numbers for a head that spreads its attention evenly over what it can see, from the same
kernel and the same tokens: the level against which a raw score means something. (`moved` has none.)

Cost: one streamed pass and ||z W_O|| through the Gram matrix of W_O (64 x 64 for a head), so nothing of the size of the
residual stream is made per head. In families that put a norm after their attention, `moved` is the norm before it.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor, nn

from headwise.dims import STATISTIC
from headwise.errors import SeamError
from headwise.instruments.even import even_head
from headwise.instruments.readings import HeadReadings
from headwise.instruments.repeats import has_pairs, repeats
from headwise.kernels import Reductions, Visibility, Wanted
from headwise.seam import Frame, Shot, Structure, output_projections

STATISTICS = (
    "entropy", "sink", "diagonal", "previous", "distance", "spread", "induction", "duplicate", "delimiter", "top1",
    "moved",
)  # fmt: skip
PREVIOUS = (1, 2)  # distances from 1 up to, not including, 2


class Profile(HeadReadings):
    """All of the above. `delimiters` are the token ids that count as punctuation and line ends."""

    name = "profile"
    whole_sequences = True
    tails = {"value": (STATISTIC,), "uniform": (STATISTIC,)}

    def __init__(self, delimiters: Iterable[int] = ()):
        super().__init__()
        self.delimiters = torch.tensor(sorted(delimiters), dtype=torch.long)
        self._grams: dict[int, Tensor] = {}
        self._residual: dict[int, Tensor] = {}
        self._uniform: dict[int, dict[str, Tensor]] = {}
        self._watching = False

    def attach(self, structure: Structure, stack: ExitStack) -> None:
        """Prepare ||z W_O||: the Gram matrices, and a look at the residual stream before every layer."""
        super().attach(structure, stack)
        self._grams = _grams(structure)
        for index, layer in enumerate(structure.layers):
            handle = layer.register_forward_pre_hook(self._residual_hook(index), with_kwargs=True)
            stack.callback(handle.remove)

    def begin(self, shot: Shot) -> None:
        """From here to the end of the pass the residual stream is looked at."""
        super().begin(shot)
        self._residual.clear()
        self._uniform.clear()
        self._watching = True

    def end(self, shot: Shot) -> None:
        """As every reading."""
        super().end(shot)
        self._watching = False

    def wants(self, shot: Shot) -> Wanted:
        """Marks and places come from the token ids of the pass."""
        if shot.input_ids is None:
            raise SeamError("Profile needs token ids, and the model was given embeddings; pass input_ids")
        ids, real = shot.input_ids, shot.valid
        first = torch.zeros_like(real).scatter_(1, real.int().argmax(dim=1, keepdim=True), True)
        duplicate, induction = repeats(ids, real)
        self._pairs = {"profile.duplicate": duplicate, "profile.induction": induction}
        self._repeat = {name: has_pairs(pairs, ids.shape, ids.device) for name, pairs in self._pairs.items()}
        self._marks = {
            "profile.sink": first.float(),
            "profile.delimiter": (torch.isin(ids, self.delimiters.to(ids.device)) & ~first).float(),
        }
        return self._wanted()

    def measure(self, frame: Frame) -> dict[str, Tensor]:
        """Average one layer's rows."""
        sight = frame.attention.visibility
        if id(sight) not in self._uniform:
            self._uniform[id(sight)] = self._rows(even_head(sight, frame.batch, self._wanted()), sight, frame.batch)
        rows = self._rows(frame.reductions, sight, frame.batch)
        rows["moved"] = self._moved(frame)
        uniform = {name: r.expand(-1, frame.heads, -1) for name, r in self._uniform[id(sight)].items()}
        uniform["moved"] = torch.full_like(rows["moved"], torch.nan)
        counted = sight.counts(frame.batch) & (sight.sees(frame.batch)[:, 0] > 1)  # (batch, query)
        gated = frame.attention.gate is not None
        return {"value": self._means(rows, counted, gated), "uniform": self._means(uniform, counted, False)}

    def read(self) -> xr.Dataset:
        """As every reading, with the statistics named."""
        return super().read().assign_coords({STATISTIC: np.array(STATISTICS)})

    def _wanted(self) -> Wanted:
        return Wanted(
            entropy=True, log_diagonal=True, distance=True, peak=True, offsets=frozenset([PREVIOUS]),
            marks=self._marks, pairs=self._pairs,
        )  # fmt: skip

    def _rows(self, reductions: Reductions, sight: Visibility, batch: int) -> dict[str, Tensor]:
        """Each statistic a query, (batch, head, query)."""
        r = reductions
        assert r.entropy is not None and r.log_diagonal is not None and r.peak is not None
        assert r.distance_mean is not None and r.distance_variance is not None
        return {
            "entropy": r.entropy / sight.sees(batch).clamp(min=2).log(),
            "sink": r.marks["profile.sink"],
            "diagonal": r.log_diagonal.exp(),
            "previous": r.offsets[PREVIOUS],
            "distance": r.distance_mean,
            "spread": r.distance_variance.sqrt(),
            "induction": r.pairs["profile.induction"],
            "duplicate": r.pairs["profile.duplicate"],
            "delimiter": r.marks["profile.delimiter"],
            "top1": r.peak,
        }

    def _means(self, rows: dict[str, Tensor], counted: Tensor, gated: bool) -> Tensor:
        """(batch, head, statistic): means over the queries that each statistic speaks of.

        In a sparse model a row may look nowhere, and then has no entropy and no distance: it is left out of these means. In a
        dense one NaN is a fault, and stays.
        """
        means = []
        for name in STATISTICS:
            where = counted & self._repeat.get(f"profile.{name}", counted)
            speaks = where[:, None] & ~rows[name].isnan() if gated else where[:, None]
            kept = torch.where(speaks, rows[name], 0.0)
            count = speaks.sum(dim=-1).float()
            means.append(torch.where(count > 0, kept.sum(dim=-1) / count.clamp(min=1), torch.nan))
        return torch.stack(means, dim=-1)

    def _moved(self, frame: Frame) -> Tensor:
        """||z W_O^h|| / ||residual||, (batch, head, query)."""
        residual = self._residual.pop(frame.layer)
        z = frame.z.float().transpose(1, 2)  # (batch, head, query, width)
        if frame.layer not in self._grams:
            return torch.full(z.shape[:3], torch.nan, device=z.device)
        square = ((z @ self._grams[frame.layer].to(z.device)) * z).sum(dim=-1)
        return square.clamp(min=0).sqrt() / residual[:, None].to(z.device)

    def _residual_hook(self, layer: int) -> Any:
        def hook(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            if self._watching:
                hidden = args[0] if args else kwargs["hidden_states"]
                self._residual[layer] = hidden.detach().float().norm(dim=-1)

        return hook


def _grams(structure: Structure) -> dict[int, Tensor]:
    """W_O W_O^T of every layer; none for families whose heads' writing cannot be told apart."""
    try:
        return {layer: projection.gram() for layer, projection in output_projections(structure).items()}
    except SeamError:
        return {}
