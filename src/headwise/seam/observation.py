"""`observe`: instruments and interventions on a running model, for the length of a `with`.

    with observe(model, Spectrum(k=10), HeadOutputs()) as seen:
        model(**inputs)
    seen["spectrum"]            # an xarray.Dataset

For every forward pass of the decoder (a decode step of `generate` is one) each attention layer comes by once, as a
`AttentionCall` (see `forward`). A pass in which not every layer was seen exactly once is refused: the model's attention does
not go through the seam, and it is not measured in part.

Everything is put back on exit, also after an exception. Observations may be nested: interventions of the outer one
act first, and all instruments see what the model goes on with. One model should run in one thread at a time; different
models may run in different threads.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Self

import xarray as xr
from torch import Tensor, nn

from headwise.core.errors import SeamError, did_you_mean
from headwise.model import Model
from headwise.seam.forward import watched
from headwise.seam.refusal import refuse_unseeable
from headwise.seam.structure import Structure
from headwise.seam.watching import Instrument, Intervention


class Observation:
    """A running observation. Made by `observe`; gives readings by instrument name.

    Args:
        model: what `headwise.load` gave, or a ``transformers`` model.
        watchers: instruments and interventions.
        valid: which tokens are real, where the model is run without a mask; see `observe`.

    Examples:
        >>> with hw.observe(model, hw.Spectrum(k=2)) as seen:
        ...     for text in ("the old river", "a door in the wall"):
        ...         _ = model(**model.encode(text))
        >>> seen.passes, dict(seen["spectrum"].sizes)  # both texts are in the reading
        (2, {'example': 2, 'layer': 3, 'head': 6, 'rank': 2})
    """

    def __init__(
        self,
        model: Model | nn.Module | Structure,
        watchers: tuple[Instrument | Intervention, ...],
        valid: Tensor | None,
    ):
        self.structure = Structure.of(model)
        self.instruments = [w for w in watchers if isinstance(w, Instrument)]
        self.interventions = [w for w in watchers if isinstance(w, Intervention)]
        self.valid = valid
        self.passes = 0
        self._stack: ExitStack | None = None

    def __enter__(self) -> Self:
        if self._stack is not None:
            raise SeamError("this observation is running already; make another one with observe(...)")
        refuse_unseeable(self.structure)
        with ExitStack() as stack:
            for intervention in self.interventions:
                intervention.setup(self.structure, stack)
            for instrument in self.instruments:
                instrument.setup(self.structure, stack)
            stack.enter_context(watched(self.structure, self))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exc: object) -> None:
        stack, self._stack = self._stack, None
        if stack is not None:
            stack.close()

    def __getitem__(self, name: str) -> xr.Dataset:
        found = [instrument for instrument in self.instruments if instrument.name == name]
        if len(found) > 1:
            raise SeamError(f"{len(found)} instruments are named {name!r}; ask each of them: instrument.result()")
        if not found:
            known = did_you_mean(name, [i.name for i in self.instruments])
            raise SeamError(f"no instrument {name!r} was given. {known}")
        return found[0].result()


def observe(
    model: Model | nn.Module | Structure, *watchers: Instrument | Intervention, valid: Tensor | None = None
) -> Observation:
    """Watch (and change) the attention heads of a model.

    Args:
        model: what `headwise.load` gave, or a ``transformers`` model.
        *watchers: instruments, which read heads, and interventions, which change them.
        valid: (batch, token) bool, which tokens are real in a right-padded batch that is run *without* an attention
            mask: later tokens cannot reach earlier ones, so no mask is needed, and the kernels are faster.

    Returns:
        To be used in a `with`; afterwards ``seen["spectrum"]`` is the reading of that instrument, an ``xarray.Dataset``.

    Examples:
        Which head looks at the token before? Then the same with that head switched off.

        >>> inputs = model.encode("the old river was the old river")
        >>> with hw.observe(model, hw.Profile()) as seen:
        ...     whole = model(**inputs).logits
        >>> seen["profile"].value.sel(statistic="previous", layer=0).isel(example=0).values.round(2)
        array([0.25, 0.14, 0.22, 1.  , 0.15, 0.15], dtype=float32)
        >>> with hw.observe(model, hw.Scale("L0H3", 0.0)):
        ...     without = model(**inputs).logits
        >>> bool((whole - without).abs().max() > 0.01)
        True
    """
    for watcher in watchers:
        if not isinstance(watcher, Instrument | Intervention):
            what = watcher.__name__ if isinstance(watcher, type) else type(watcher).__name__
            raise SeamError(
                f"observe takes instruments and interventions, not {what}; make one first, for instance Spectrum(k=10)"
            )
    return Observation(model, watchers, valid)
