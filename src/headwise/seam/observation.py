"""`observe`: instruments and interventions on a running model, for the length of a `with`.

    with observe(model, Spectrum(k=10), HeadOutputs()) as seen:
        model(**inputs)
    seen["spectrum"]            # an xarray.Dataset

In every forward pass of the decoder (a decode step of `generate` is one) each attention layer is seen once, as an
`AttentionCall` (see `forward`). A pass in which a layer was not seen exactly once is refused: the model's attention does
not go through the seam, and Headwise does not measure it in part.

Everything is restored on exit, also after an exception. Observations may be nested: the interventions of the outer one act
first, and all instruments see what the model continues with. Run one model in one thread at a time; different models
may run in different threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Self

import torch
import xarray as xr
from torch import Tensor, nn

from headwise.core.errors import SeamError, did_you_mean
from headwise.model import Model
from headwise.seam.forward import patched, suspended
from headwise.seam.instrument import Instrument, Intervention
from headwise.seam.structure import Structure, refuse_unseeable


class Observation:
    """A running observation, made by `observe`. Gives the results of instruments, by name or by instrument.

    Args:
        model: a model from `headwise.load`, or a ``transformers`` model.
        instruments: instruments and interventions.
        valid: which tokens are real, where the model is run without a mask; see `observe`.

    Examples:
        >>> spectrum = hw.Spectrum(k=2)
        >>> with hw.observe(model, spectrum) as seen:
        ...     for text in ("the old river", "a door in the wall"):
        ...         _ = model(**model.encode(text))
        >>> seen.passes, dict(seen["spectrum"].sizes)  # the result holds both texts
        (2, {'example': 2, 'layer': 3, 'head': 6, 'rank': 2})
        >>> seen[spectrum].identical(seen["spectrum"])
        True
    """

    def __init__(
        self,
        model: Model | nn.Module | Structure,
        instruments: Sequence[Instrument | Intervention],
        valid: Tensor | None,
    ):
        self.structure = Structure.of(model)
        self.instruments = [one for one in instruments if isinstance(one, Instrument)]
        self.interventions = [one for one in instruments if isinstance(one, Intervention)]
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
            stack.enter_context(patched(self.structure, self))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exc: object) -> None:
        stack, self._stack = self._stack, None
        if stack is not None:
            stack.close()

    def suspended(self) -> AbstractContextManager[None]:
        """Passes inside the ``with`` are not observed: those of other code, between two of this one."""
        return suspended(self.structure, self)

    def __getitem__(self, key: str | Instrument) -> xr.Dataset:
        if isinstance(key, Instrument):
            if not any(one is key for one in self.instruments):
                raise SeamError(f"this {type(key).__name__} is not part of this observation; give it to observe(...)")
            return key.result()
        found = [one for one in self.instruments if one.name == key]
        if len(found) > 1:
            raise SeamError(f"{len(found)} instruments are named {key!r}; index with the instrument itself")
        if not found:
            raise SeamError(f"no instrument {key!r} was given. {did_you_mean(key, [i.name for i in self.instruments])}")
        return found[0].result()


def observe(
    model: Model | nn.Module | Structure, *instruments: Instrument | Intervention, valid: Tensor | None = None
) -> Observation:
    """Observe (and change) the attention heads of a model.

    Args:
        model: a model from `headwise.load`, or a ``transformers`` model.
        *instruments: instruments, which observe heads, and interventions, which change them.
        valid: (batch, token) bool, the real tokens of a right-padded batch that is run *without* an attention mask: later
            tokens cannot reach earlier ones, so no mask is needed, and the kernels are faster.

    Returns:
        A context manager; afterwards ``seen["spectrum"]`` is the result of that instrument, an ``xarray.Dataset``.

    Examples:
        Which head attends to the previous token? Then the same with that head ablated.

        >>> inputs = model.encode("the old river was the old river")
        >>> with hw.observe(model, hw.Profile()) as seen:
        ...     whole = model(**inputs).logits
        >>> seen["profile"].value.sel(statistic="previous", layer=0).isel(example=0).values.round(2)
        array([0.25, 0.14, 0.22, 1.  , 0.15, 0.15], dtype=float32)
        >>> with hw.observe(model, hw.ScaleHeads("L0H3", 0.0)):
        ...     without = model(**inputs).logits
        >>> bool((whole - without).abs().max() > 0.01)
        True
    """
    for one in instruments:
        if not isinstance(one, Instrument | Intervention):
            what = one.__name__ if isinstance(one, type) else type(one).__name__
            raise SeamError(
                f"observe takes instruments and interventions, not {what}; make one first, for instance Spectrum(k=10)"
            )
    return Observation(model, instruments, valid)


def run(model: Model, texts: str | Sequence[str], *instruments: Instrument | Intervention) -> Observation:
    """Run the model once over each text and return what the instruments observed.

    Args:
        model: a model from `headwise.load`.
        texts: one text, or several; each is one example, run by itself.
        *instruments: instruments, which observe heads, and interventions, which change them.

    Returns:
        The observation: ``seen["spectrum"]`` or ``seen[instrument]`` is the result of an instrument.

    Examples:
        >>> from headwise.seam import run
        >>> seen = run(model, ["the old river", "a door in the wall"], hw.Spectrum(k=2))
        >>> dict(seen["spectrum"].sizes)
        {'example': 2, 'layer': 3, 'head': 6, 'rank': 2}
    """
    with torch.no_grad(), observe(model, *instruments) as seen:
        for text in [texts] if isinstance(texts, str) else texts:
            model(**model.encode(text))
    return seen
