"""`observe`: instruments and interventions on a running model, for the length of a `with`.

    with observe(model, Spectrum(k=10), HeadOutputs()) as seen:
        model(**inputs)
    seen["spectrum"]            # an xarray.Dataset

For every forward pass of the decoder (a decode step of `generate` is one) each attention layer comes by once, as a
`Frame`: its real output from a fused kernel, and the reductions that the instruments asked for, all from one streamed
pass. After a pass it is checked that every layer was seen exactly once; if not, the model's attention does not go
through the seam, and it is refused rather than measured in part.

Everything is put back on exit, also after an exception. Observations may be nested: interventions of the outer one
act first, and all instruments see what the model goes on with.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, contextmanager
from typing import Any, Self

import torch
import xarray as xr
from torch import Tensor, nn

from headwise.errors import SeamError, did_you_mean
from headwise.kernels import Attention, Reductions, Visibility, Wanted, reduce
from headwise.seam.frame import Frame, Shot
from headwise.seam.interface import CURRENT, installed
from headwise.seam.outputs import attention_output
from headwise.seam.refusal import refuse_options, refuse_unseeable, refuse_unseen
from headwise.seam.sight import sight_of
from headwise.seam.structure import Structure
from headwise.seam.watching import Instrument, Intervention


class Observation:
    """A running observation. Made by `observe`; gives readings by instrument name."""

    def __init__(self, model: Any, watchers: tuple[Instrument | Intervention, ...], valid: Tensor | None):
        self.structure = Structure.of(model)
        self.instruments = [w for w in watchers if isinstance(w, Instrument)]
        self.interventions = [w for w in watchers if isinstance(w, Intervention)]
        self.valid = valid
        self._outer: Any = None  # the observation this one is nested in, while a pass runs
        self._shots = 0
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        refuse_unseeable(self.structure)
        with ExitStack() as stack:
            for instrument in self.instruments:  # first, since one may run the model to learn about it
                instrument.attach(self.structure, stack)
            stack.enter_context(installed(self.structure.hf))
            stack.enter_context(_replaced_forward(self.structure.decoder, self._pass))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()

    def __getitem__(self, name: str) -> xr.Dataset:
        for instrument in self.instruments:
            if instrument.name == name:
                return instrument.read()
        raise SeamError(f"no instrument {name!r} was given. {did_you_mean(name, [i.name for i in self.instruments])}")

    # ---- one forward pass -------------------------------------------------------------------------------------------

    def _pass(self, forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Run the decoder's own forward as one shot."""
        ids = kwargs.get("input_ids", args[0] if args else None)
        self.shot = Shot(self._shots, ids if isinstance(ids, Tensor) else None, self.valid)
        self._shots += 1
        self._seen: Counter[int] = Counter()
        self._sights: dict[tuple[Any, ...], tuple[Tensor | None, Visibility]] = {}
        self.wanted = Wanted()
        for instrument in self.instruments:
            self.wanted = self.wanted | instrument.wants(self.shot)
        self._outer = CURRENT.get()
        token = CURRENT.set(self)
        try:
            result = forward(*args, **kwargs)
        finally:
            CURRENT.reset(token)
        refuse_unseen(self.structure, self._seen)
        for instrument in self.instruments:
            instrument.end(self.shot)
        return result

    def layer_of(self, module: nn.Module) -> int | None:
        """The layer a module belongs to, or None for modules outside the decoder."""
        return self.structure.layer_of.get(id(module))

    def attend(
        self, layer: int, module: nn.Module, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, options: dict[str, Any]
    ) -> Tensor:
        """The seam's call: one layer's attention. Returns the z the model goes on with."""
        refuse_options(layer, module, mask, options)
        options = dict(options)
        scale = options.pop("scaling", None)
        scale = q.shape[-1] ** -0.5 if scale is None else float(scale)
        if mask is None and q.shape[2] > 1:
            k, v = k[:, :, : q.shape[2]], v[:, :, : q.shape[2]]  # an empty static cache is longer than its content
        z, lse = attention_output(module, q, k, v, mask, scale, options)
        attention = Attention(
            q,
            k,
            scale,
            self._sight(mask, q.shape[2], k.shape[2], options.get("sliding_window"), q.device),
            softcap=options.get("softcap"),
            sinks=options.get("s_aux"),
            lse=lse,
        )
        chain = self._chain()
        wanted = Wanted()
        for observation in chain:
            wanted = wanted | observation.wanted
        with torch.no_grad():
            reductions = reduce(attention, wanted) if wanted else Reductions()
        frame = Frame(self.shot, layer, module, attention, v, z, reductions)
        for observation in chain:
            observation._seen[layer] += 1
            for intervention in observation.interventions:
                frame.z = intervention.change(frame)
        for observation in chain:
            frame.shot = observation.shot
            for instrument in observation.instruments:
                instrument.see(frame)
        return frame.z

    def _chain(self) -> list[Observation]:
        """The nested observations of this model that are in a pass, outermost first."""
        chain: list[Observation] = []
        link: Any = self
        while link is not None:
            if link.structure.hf is self.structure.hf:
                chain.append(link)
            link = link._outer
        return chain[::-1]

    def _sight(self, mask: Tensor | None, queries: int, keys: int, window: int | None, device: torch.device) -> Visibility:
        """What may be seen; worked out once for all layers of a pass that share a mask."""
        key = (id(mask), queries, keys, window, device)
        if key not in self._sights:
            sight = sight_of(mask, queries, keys, window, device)
            if self.valid is not None:
                if self.valid.shape[1] != queries:
                    raise SeamError(
                        f"valid has {self.valid.shape[1]} tokens a row but the model was given {queries}; "
                        "give one bool for every token"
                    )
                sight = sight.with_queries(self.valid.to(device))
            self._sights[key] = (mask, sight)  # the mask is held, so that its id is not given to another
        return self._sights[key][1]


@contextmanager
def _replaced_forward(module: nn.Module, around: Callable[..., Any]) -> Any:
    """Wrap `module.forward` in `around(forward, *args, **kwargs)`, and put the old one back."""
    own, before = "forward" in vars(module), module.forward

    def forward(*args: Any, **kwargs: Any) -> Any:
        return around(before, *args, **kwargs)

    module.forward = forward  # type: ignore[method-assign]
    try:
        yield
    finally:
        if own:
            module.forward = before  # type: ignore[method-assign]
        else:
            del module.forward


def observe(model: Any, *watchers: Instrument | Intervention, valid: Tensor | None = None) -> Observation:
    """Watch (and change) the attention heads of a model.

    `model` is what `headwise.load` gave, or a transformers model. `watchers` are instruments and interventions.
    `valid`, (batch, token) bool, tells which tokens are real in a right-padded batch that is run *without* an
    attention mask: later tokens cannot reach earlier ones, so no mask is needed, and the kernels are faster.
    """
    for watcher in watchers:
        if not isinstance(watcher, Instrument | Intervention):
            raise SeamError(
                f"observe takes instruments and interventions, not {type(watcher).__name__}; "
                "make one first, for instance Spectrum(k=10)"
            )
    return Observation(model, watchers, valid)
