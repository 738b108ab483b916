"""Proof on the spot that what the instruments see is what the model does. The engine of `headwise check`.

| check          | what is compared                                                                                    |
|----------------|-----------------------------------------------------------------------------------------------------|
| layers         | every attention layer comes by the seam exactly once a pass                                         |
| logits         | the observed model's logits with those of the same model under the family's eager attention         |
| reductions     | every streamed reduction with the same, in float64, from the weights of the family's eager function |
| heads          | sum over heads of z_h W_O^h, plus the bias, with the output of the attention block                  |
| causality      | switching all heads of a layer off changes the logits, for every layer                              |
| padding        | reductions of a text alone with those of the same text in a padded batch                            |

All on a few dozen random tokens: seconds for a small model. Errors are largest absolute differences (for logits and
attention outputs: over the standard deviation of what they are compared with). In a sparse model a gate whose logit is
nought but for rounding may fall either way: heads that have one in these texts are left out of the reductions' check.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import xarray as xr
from torch import Tensor, nn

from headwise.core.errors import HeadwiseError, SeamError
from headwise.kernels import Match, ReductionRequest, Reductions
from headwise.kernels.logweights import FLOOR
from headwise.kernels.reference import reduce_weights
from headwise.model import Model
from headwise.seam.attention_call import AttentionCall, ForwardContext
from headwise.seam.expected import eager_weights, gate_logits, plain_route
from headwise.seam.interface import routed
from headwise.seam.observation import observe
from headwise.seam.projection import output_projections
from headwise.seam.structure import Structure
from headwise.seam.verdict import Check, Verdict
from headwise.seam.watching import Instrument, Intervention

UNDECIDED = 1e-4  # logits this near to nought may fall either way by rounding
LENGTHS = (47, 31)  # two texts, so that a batch of them is padded


class _Everything(Instrument):
    """All reductions of every layer, beside those of the family's own eager weights."""

    name = "everything"

    def __init__(self, eager: bool):
        self.eager = eager
        self.streamed: dict[int, dict[str, Tensor]] = {}
        self.expected: dict[int, dict[str, Tensor]] = {}

    def requested(self, context: ForwardContext) -> ReductionRequest:
        assert context.input_ids is not None
        self._wanted = everything(context.input_ids)
        return self._wanted

    def on_layer(self, call: AttentionCall) -> None:
        self.streamed[call.layer] = _comparable(call.reductions)
        if self.eager:
            weights = eager_weights(call).double()
            self.expected[call.layer] = _comparable(reduce_weights(weights, call.attention, self._wanted))
            if call.attention.gate is not None:
                undecided = (gate_logits(call).abs() < UNDECIDED).any(dim=(-2, -1))  # (batch, head)
                for found in (self.streamed[call.layer], self.expected[call.layer]):
                    for value in found.values():
                        value[undecided] = torch.nan

    def result(self) -> xr.Dataset:
        return xr.Dataset()


class _Off(Intervention):
    """Every head of one layer, switched off."""

    def __init__(self, layer: int):
        self.layer = layer

    def change(self, call: AttentionCall) -> Tensor:
        return torch.zeros_like(call.z) if call.layer == self.layer else call.z


def everything(ids: Tensor) -> ReductionRequest:
    """A request for every reduction there is but counts, with marks and places made up by rule."""
    (batch, tokens), device = ids.shape, ids.device
    place = torch.arange(tokens, device=device)
    threes = (place % 3).expand(batch, -1)
    return ReductionRequest(
        column_sums=True,
        log_diagonal=True,
        entropy=True,
        distance=True,
        row_max=True,
        top=3,
        offsets=frozenset([(0, 1), (1, 2), (2, 8)]),
        query_weights={"thirds": (place % 3 == 0).float().expand(batch, -1)},
        key_weights={"evens": (place % 2 == 0).float().expand(batch, -1)},
        token_matches={"threes": Match(threes, threes)},
    )


def _comparable(reductions: Reductions) -> dict[str, Tensor]:
    """Without the keys of `top`, where a tie is no error; logs of weights that eager's float32 cannot hold, lifted."""
    found = {name: value for name, value in reductions.flat().items() if name != "top_keys"}
    return {name: value.clamp(min=FLOOR) if name == "log_diagonal" else value for name, value in found.items()}


def check(model: Model | nn.Module) -> Verdict:
    """Prove on the spot that what instruments see of this model is what it does.

    Args:
        model: what `headwise.load` gave, or a ``transformers`` model.

    Returns:
        One line a check, with the error that was found and the limit. A model that the seam refuses outright gives a
        verdict with that one reason.

    Examples:
        >>> verdict = hw.check(model)
        >>> verdict
        <Verdict planted: ok>
        >>> for one in verdict.checks:
        ...     print(one.name, "ok" if one.passed else one.says)
        layers ok
        logits ok
        reductions ok
        heads ok
        causality ok
        padding ok
    """
    structure = Structure.of(model)
    verdict = Verdict(structure.card.id)
    verdict.refused = {layer.index: layer.reason for layer in structure.card.per_layer if layer.reason is not None}
    half = next(structure.hf.parameters()).dtype in (torch.bfloat16, torch.float16)
    ids, mask = _batch(structure)
    steps: list[tuple[str, Callable[[], Check]]] = [
        ("layers", lambda: _check_layers(structure, ids, mask)),
        ("logits", lambda: _check_logits(structure, ids, mask, 0.2 if half else 2e-3)),
        ("reductions", lambda: _check_reductions(structure, ids, mask, 5e-2 if half else 1e-4)),
        ("heads", lambda: _check_heads(structure, ids, mask, 5e-2 if half else 1e-4)),
        ("causality", lambda: _check_causality(structure, ids, mask)),
        ("padding", lambda: _check_padding(structure, ids, mask, 5e-2 if half else 1e-4)),
    ]
    with torch.no_grad():
        for name, step in steps:
            try:
                verdict.checks.append(step())
            except HeadwiseError as error:
                verdict.checks.append(Check(name, False, str(error)))
                if name == "layers":
                    break
    return verdict


def _batch(structure: Structure) -> tuple[Tensor, Tensor]:
    """Two texts of random tokens, the shorter one padded on the right, and their mask."""
    generator = torch.Generator().manual_seed(0)
    longest = max(LENGTHS)
    ids = torch.randint(0, structure.card.vocabulary_size, (len(LENGTHS), longest), generator=generator)
    mask = torch.arange(longest)[None] < torch.tensor(LENGTHS)[:, None]
    return ids.to(structure.device), mask.to(structure.device)


def _logits(structure: Structure, ids: Tensor, mask: Tensor, *watchers: Instrument | Intervention) -> Tensor:
    with observe(structure, *watchers):
        logits: Tensor = structure.hf(input_ids=ids, attention_mask=mask.long(), use_cache=False).logits
    return logits.float()[mask]


def _check_layers(structure: Structure, ids: Tensor, mask: Tensor) -> Check:
    _logits(structure, ids, mask)
    count = len(structure.attention_layers)
    return Check("layers", True, f"{count} of {structure.card.layers} layers have heads, and each was seen once a pass")


def _check_logits(structure: Structure, ids: Tensor, mask: Tensor, limit: float) -> Check:
    """Where rounding alone moves logits far (experts chosen by a hair, in half precision), the plain model sets the
    limit: the observed one may be off by twice what the model's own attention is off from eager.
    """

    def plainly() -> Tensor:
        logits: Tensor = structure.hf(input_ids=ids, attention_mask=mask.long(), use_cache=False).logits
        return logits.float()[mask]

    observed, plain = _logits(structure, ids, mask), plainly()
    with routed(structure.hf, plain_route(structure)):
        eager = plainly()
    if not bool(torch.isfinite(eager).all()):
        raise SeamError("the model's logits are not finite; its weights are damaged, or its dtype overflows")
    error, rounding = (float((logits - eager).abs().max() / eager.std()) for logits in (observed, plain))
    limit = max(limit, 2 * rounding)
    return Check("logits", error <= limit, "observed logits against eager's", error, limit)


def _check_reductions(structure: Structure, ids: Tensor, mask: Tensor, limit: float) -> Check:
    worst, where = 0.0, ""
    for valid in (mask, None):  # with a mask, and the plain causal way without
        seen = _Everything(eager=True)
        with observe(structure, seen):
            kwargs = {} if valid is None else {"attention_mask": mask.long()}
            structure.decoder(input_ids=ids, use_cache=False, **kwargs)
        for layer, streamed in seen.streamed.items():
            for name, got in streamed.items():
                error = _relative(got, seen.expected[layer][name])
                if error >= worst:
                    worst, where = error, f"{name} in layer {layer}"
    return Check(
        "reductions", worst <= limit, f"streamed against eager's weights (largest error: {where})", worst, limit
    )


def _relative(got: Tensor, expected: Tensor) -> float:
    """Largest difference, in units of 1 or of the largest value, whichever is more."""
    finite = torch.isfinite(expected)
    if not bool(torch.equal(finite, torch.isfinite(got))):
        return math.inf
    scale = max(1.0, float(expected[finite].abs().max()) if bool(finite.any()) else 1.0)
    return float((got.double() - expected)[finite].abs().max()) / scale if bool(finite.any()) else 0.0


def _check_heads(structure: Structure, ids: Tensor, mask: Tensor, limit: float) -> Check:
    projections = output_projections(structure)
    outputs: dict[int, Tensor] = {}
    handles = [
        projection.module.register_forward_hook(_keep_output(outputs, layer))
        for layer, projection in projections.items()
    ]
    zs = _KeepZ()
    try:
        _logits(structure, ids, mask, zs)
    finally:
        for handle in handles:
            handle.remove()
    worst = 0.0
    for layer, projection in projections.items():
        summed = torch.einsum("bqhd,hdm->bqm", zs.z[layer].float(), projection.weight.float())
        if projection.bias is not None:
            summed = summed + projection.bias.float()
        expected = outputs[layer].float().reshape(summed.shape)
        worst = max(worst, float((summed - expected).abs().max() / expected.std()))
    return Check("heads", worst <= limit, "sum of what single heads write against the attention output", worst, limit)


class _KeepZ(Instrument):
    name = "z"

    def __init__(self) -> None:
        self.z: dict[int, Tensor] = {}

    def on_layer(self, call: AttentionCall) -> None:
        self.z[call.layer] = call.z

    def result(self) -> xr.Dataset:
        return xr.Dataset()


def _keep_output(outputs: dict[int, Tensor], layer: int) -> Callable[..., None]:
    def hook(_: nn.Module, args: Any, output: Tensor) -> None:
        outputs[layer] = output

    return hook


def _check_causality(structure: Structure, ids: Tensor, mask: Tensor) -> Check:
    ids, mask = ids[:1, :8], mask[:1, :8]
    before = _logits(structure, ids, mask)
    dead = [
        layer for layer in structure.attention_layers if torch.equal(_logits(structure, ids, mask, _Off(layer)), before)
    ]
    if dead:
        return Check("causality", False, f"switching off all heads of layer {dead[0]} changes no logit")
    return Check("causality", True, "switching a layer's heads off changes the logits, in every layer")


def _check_padding(structure: Structure, ids: Tensor, mask: Tensor, limit: float) -> Check:
    together = _Everything(eager=False)
    with observe(structure, together):
        structure.decoder(input_ids=ids, attention_mask=mask.long(), use_cache=False)
    short = int(mask[1].sum())
    alone = _Everything(eager=False)
    with observe(structure, alone):
        structure.decoder(input_ids=ids[1:, :short], use_cache=False)
    worst = 0.0
    for layer, streamed in together.streamed.items():
        for name, got in streamed.items():
            if not name.startswith(("query_weights", "key_weights")):  # these were made up by length
                worst = max(worst, _relative(got[1:, :, :short], alone.streamed[layer][name].double()))
    return Check("padding", worst <= limit, "a text in a padded batch against the same text alone", worst, limit)
