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

The weight on some keys (`sink`, `delimiter`) comes from column sums (see `averages`), which cost less than a sum a row, and
nothing where the spectrum is read too.

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

from headwise.core.dims import STATISTIC
from headwise.core.errors import SeamError
from headwise.instruments.averages import Averages
from headwise.instruments.even import even_head
from headwise.instruments.readings import HeadReadings
from headwise.instruments.repeats import repeating, repeats
from headwise.kernels import AttentionMask, Gram, ReductionRequest, Reductions
from headwise.seam import AttentionCall, ForwardContext, OutputProjection, Structure, output_projections

STATISTICS = (
    "entropy", "sink", "diagonal", "previous", "distance", "spread", "induction", "duplicate", "delimiter", "top1",
    "moved",
)  # fmt: skip
REPEATED = ("profile.duplicate", "profile.induction")
MARKED = ("sink", "delimiter")
ROWED = tuple(name for name in STATISTICS if name not in MARKED)
PREVIOUS = (1, 2)  # distances from 1 up to, not including, 2


class Profile(HeadReadings):
    """Where each head looks: all statistics of the table, and the same for a head that looks evenly.

    Args:
        delimiters: token ids that count as punctuation and line ends, as
            ``headwise.corpora.delimiter_ids(model.tokenizer)`` finds them.

    Examples:
        >>> with hw.observe(model, hw.Profile()) as seen:
        ...     _ = model(**model.encode("the old river was the old river"))
        >>> value = seen["profile"].value.isel(example=0)
        >>> value.sel(statistic="induction", layer=1).values.round(2)  # L1H4 is an induction head
        array([0.  , 0.02, 0.02, 0.11, 1.  , 0.15], dtype=float32)
        >>> even = seen["profile"].uniform.isel(example=0)  # what a head that looks evenly would get
        >>> round(float(even.sel(statistic="induction", layer=1, head=4)), 2)
        0.14
    """

    name = "profile"
    whole_sequences = True
    stream_safe = True
    extra_dims = {"value": (STATISTIC,), "uniform": (STATISTIC,)}

    def __init__(self, delimiters: Iterable[int] = ()):
        super().__init__()
        self.delimiters = torch.tensor(sorted(delimiters), dtype=torch.long)
        self._projections: dict[int, OutputProjection] = {}
        self._grams: dict[int, Gram] = {}
        self._residual: dict[int, Tensor] = {}  # of a pass: another queue may read them to its end
        self._sights: dict[int, tuple[AttentionMask, Averages]] = {}  # of a pass, by id
        self._seen: dict[int, int] = {}  # layer -> the id of its mask
        self._watching = False

    def setup(self, structure: Structure, stack: ExitStack) -> None:
        """Prepare ||z W_O||: the output projections, and a look at the residual stream before every layer."""
        super().setup(structure, stack)
        self._projections, self._grams = _projections(structure), {}
        for index, layer in enumerate(structure.layers):
            handle = layer.register_forward_pre_hook(self._residual_hook(index), with_kwargs=True)
            stack.callback(handle.remove)

    def on_forward_start(self, context: ForwardContext) -> None:
        """From here to the end of the pass the residual stream is looked at."""
        super().on_forward_start(context)
        self._residual.clear()
        self._sights.clear()
        self._seen.clear()
        self._watching = True

    def on_forward_end(self, context: ForwardContext) -> None:
        """The level of each mask, last of all, when a GPU is busy yet; then as every reading."""
        even = {key: self._even(*found) for key, found in self._sights.items()}
        for layer, values in self._layers.items():
            values["uniform"] = even[self._seen[layer]].expand_as(values["value"])
        super().on_forward_end(context)
        self._residual.clear()
        self._watching = False

    def requested(self, context: ForwardContext) -> ReductionRequest:
        """Marks and places come from the token ids of the pass."""
        if context.input_ids is None:
            raise SeamError("Profile needs token ids, and the model was given embeddings; pass input_ids")
        ids, real = context.input_ids, context.valid
        first = torch.zeros_like(real).scatter_(1, real.int().argmax(dim=1, keepdim=True), True)
        self._matches = dict(zip(REPEATED, repeats(ids, real), strict=True))
        self._repeat = dict(zip(REPEATED, repeating(ids, real), strict=True))
        self.delimiters = self.delimiters.to(ids.device)
        delimiter = torch.isin(ids, self.delimiters) & ~first
        self._marks = torch.stack([first, delimiter])  # (mark, batch, key) bool, as MARKED
        return self._wanted()

    def measure(self, call: AttentionCall) -> dict[str, Tensor]:
        """Average one layer's rows."""
        mask = call.attention.mask
        if id(mask) not in self._sights:
            repeat = [self._repeat.get(f"profile.{name}") for name in ROWED]
            self._sights[id(mask)] = mask, Averages.of(mask, repeat, self._marks)
        self._seen[call.layer] = id(mask)
        return {"value": self._value(call.reductions, self._moved(call), id(mask), call.attention.gate is not None)}

    def _value(self, reductions: Reductions, moved: Tensor, key: int, gated: bool) -> Tensor:
        """(batch, head, statistic)."""
        mask, averages = self._sights[key]
        rows = self._rows(reductions, mask, len(moved)) | {"moved": moved}
        means = averages.of_rows(torch.stack([rows[name] for name in ROWED]), gated)
        assert reductions.column_sums is not None and reductions.row_max is not None
        marked = averages.of_marks(reductions.column_sums, reductions.row_max)
        by_name = dict(zip(ROWED + MARKED, [*means, *marked], strict=True))
        return torch.stack([by_name[name] for name in STATISTICS], dim=-1)

    def _even(self, mask: AttentionMask, averages: Averages) -> Tensor:
        """(batch, 1, statistic): the same for a head that looks evenly."""
        batch = averages.spoken.shape[1]
        moved = torch.full((batch, 1, mask.queries), torch.nan, device=mask.device)
        return self._value(even_head(mask, batch, self._wanted()), moved, id(mask), gated=False)

    def result(self) -> xr.Dataset:
        """As every reading, with the statistics named."""
        return super().result().assign_coords({STATISTIC: np.array(STATISTICS)})

    def _wanted(self) -> ReductionRequest:
        return ReductionRequest(
            column_sums=True, entropy=True, log_diagonal=True, distance=True, row_max=True, offsets=frozenset([PREVIOUS]),
            token_matches=self._matches,
        )  # fmt: skip

    def _rows(self, reductions: Reductions, mask: AttentionMask, batch: int) -> dict[str, Tensor]:
        """Each statistic of a row, (batch, head, query)."""
        r = reductions
        assert r.entropy is not None and r.log_diagonal is not None and r.row_max is not None
        assert r.distance_mean is not None and r.distance_variance is not None
        return {
            "entropy": r.entropy / mask.n_visible_keys(batch).clamp(min=2).log(),
            "diagonal": r.log_diagonal.exp(),
            "previous": r.offsets[PREVIOUS],
            "distance": r.distance_mean,
            "spread": r.distance_variance.sqrt(),
            "induction": r.token_matches["profile.induction"],
            "duplicate": r.token_matches["profile.duplicate"],
            "top1": r.row_max,
        }

    def _moved(self, call: AttentionCall) -> Tensor:
        """||z W_O^h|| / ||residual||, (batch, head, query)."""
        residual, layer, z = self._residual[call.layer], call.layer, call.z
        if layer not in self._projections:
            return torch.full((z.shape[0], z.shape[2], z.shape[1]), torch.nan, device=z.device)
        if layer not in self._grams:
            self._grams[layer] = self._projections[layer].gram()
        return self._grams[layer].norms(z) / residual[:, None].to(z.device)

    def _residual_hook(self, layer: int) -> Any:
        def hook(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            if self._watching:
                hidden = args[0] if args else kwargs["hidden_states"]
                self._residual[layer] = torch.linalg.vector_norm(hidden.detach(), dim=-1, dtype=torch.float32)

        return hook


def _projections(structure: Structure) -> dict[int, OutputProjection]:
    """W_O of every layer; none for families whose heads' writing cannot be told apart."""
    try:
        return output_projections(structure)
    except SeamError:
        return {}
