"""Is what the instruments see what the model computes? The checks behind `headwise check`.

| check          | what is compared                                                                                    |
|----------------|-----------------------------------------------------------------------------------------------------|
| layers         | every attention layer reaches the seam exactly once per pass                                        |
| plain          | each layer's output under the attention the model was loaded with, with the family's eager attention |
| logits         | the observed model's logits with those of the same model under the family's eager attention         |
| reductions     | every streamed reduction with the same, in float64, from the weights of the family's eager function |
| heads          | sum over heads of z_h W_O^h, plus the bias, with the output of the attention block                  |
| causality      | zero ablation of all heads of a layer changes the logits, for every layer                           |
| padding        | reductions of a text alone with those of the same text in a padded batch                            |
| decoding       | row and output of a step on a KV cache, after a padded prompt, with those from eager weights        |

All run on a few dozen random tokens: seconds for a small model. Errors are largest absolute differences (for logits and
attention outputs divided by the standard deviation of the expected values). In a sparse model, rounding may open or close a
gate whose logit is almost zero: heads with such a gate in these texts are left out of the check of the reductions. Where a
library that quantises rounds activations as well, the output projection is no linear map to the last digit; how far it is from
its own matrix on random inputs is measured, and the limit of `heads` is four times that, of `padding` once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
import transformers
import xarray as xr
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import sdpa_mask

from headwise.core.errors import HeadwiseError, SeamError
from headwise.core.markup import card, table
from headwise.kernels.blocked import FLOOR
from headwise.kernels.contract import Match, ReductionRequest, Reductions, RowMarks, RowStatistics
from headwise.kernels.reference import reduce_weights
from headwise.kernels.rows import RowKeys, row_output, row_statistics
from headwise.model import Model
from headwise.seam.instrument import AttentionCall, ForwardContext, Instrument, Intervention
from headwise.seam.interface import ForwardTracer, routed, trace_until
from headwise.seam.observation import observe
from headwise.seam.outputs import eager_function, eager_mask, eager_weights, gate_logits, plain_route
from headwise.seam.projection import ZRecorder, output_projections
from headwise.seam.structure import Structure

UNDECIDED = 1e-4  # rounding decides gates whose logit is this close to 0
LENGTHS = (47, 31)  # two texts, so that a batch of them is padded
REQUIRED = ("scaling", "dropout")  # eager functions cannot be called without them


@dataclass(frozen=True)
class Check:
    """One check of a `CheckReport`.

    Examples:
        >>> layers, *others = hw.check(model).checks
        >>> layers.name, layers.passed, layers.message
        ('layers', True, '3 of 3 layers have heads, and each was observed once per pass')
    """

    name: str  # layers, plain, logits, reductions, heads, causality, padding or decoding
    passed: bool  # whether the error is below the limit
    message: str  # what was compared, or why it failed
    error: float | None = None  # the largest difference
    limit: float | None = None  # the largest that passes


@dataclass
class CheckReport:
    """All checks of a model, and the layers that have no heads to read. Made by `headwise.check`.

    Examples:
        >>> report = hw.check(model)
        >>> report.passed, [one.name for one in report.checks]
        (True, ['layers', 'plain', 'logits', 'reductions', 'heads', 'causality', 'padding', 'decoding'])
    """

    model: str  # its id
    checks: list[Check] = field(default_factory=list)  # in the order in which they run
    refused: dict[int, str] = field(default_factory=dict)  # layer -> why it has no heads

    @property
    def passed(self) -> bool:
        """Whether this model can be measured."""
        return all(check.passed for check in self.checks)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "passed": self.passed}

    def __repr__(self) -> str:
        wrong = [check.name for check in self.checks if not check.passed]
        return f"<CheckReport {self.model}: {'ok' if self.passed else 'NOT ok: ' + ', '.join(wrong)}>"

    def _repr_html_(self) -> str:
        rows = [
            (
                "✓" if one.passed else "✗ not ok",
                one.name,
                one.message,
                "" if one.error is None else f"{one.error:.1e}",
                "" if one.limit is None else f"{one.limit:.0e}",
            )
            for one in self.checks
        ]
        rows += [("–", f"layer {layer}", reason, "", "") for layer, reason in self.refused.items()]
        heading = "can be measured" if self.passed else "can NOT be measured correctly"
        return card(f"{self.model} {heading}", table(rows, header=("", "check", "what was seen", "error", "limit")))


class _AllReductions(Instrument):
    """All reductions of every layer, with those of the family's own eager weights."""

    name = "everything"

    def __init__(self, eager: bool):
        self.eager = eager
        self.streamed: dict[int, dict[str, Tensor]] = {}
        self.expected: dict[int, dict[str, Tensor]] = {}

    def requested(self, context: ForwardContext) -> ReductionRequest:
        assert context.input_ids is not None
        self._request = everything(context.input_ids)
        return self._request

    def on_layer(self, call: AttentionCall) -> None:
        self.streamed[call.layer] = _comparable(call.reductions)
        if self.eager:
            weights = eager_weights(call).double()
            self.expected[call.layer] = _comparable(reduce_weights(weights, call.attention, self._request))
            if call.attention.gate is not None:
                undecided = (gate_logits(call).abs() < UNDECIDED).any(dim=(-2, -1))  # (batch, head)
                for found in (self.streamed[call.layer], self.expected[call.layer]):
                    for value in found.values():
                        value[undecided] = torch.nan

    def result(self) -> xr.Dataset:
        return xr.Dataset()


class _DecodeStep(Instrument):
    """Row statistics and output of a decode step, with those from the family's own eager weights. Half the text is an answer.

    Args:
        structure: of the model.
        first: (batch,) the first real token of each example.
    """

    name = "decode_step"

    def __init__(self, structure: Structure, first: Tensor):
        self.first = first
        self.marks = RowMarks(structure.card.layers, structure.card.heads)
        self.errors: dict[str, float] = {}  # what of which layer -> largest difference

    def on_forward_start(self, context: ForwardContext) -> None:
        own, first = torch.full_like(self.first, context.cached), self.first
        end = (first + own) // 2
        places = torch.stack([own, own - 1, first, end, end - first, own + 1 - end], dim=1)
        self.marks.step(places, context.cached + 1)

    def requested(self, context: ForwardContext) -> ReductionRequest:
        return ReductionRequest(row_statistics=self.marks)

    def on_layer(self, call: AttentionCall) -> None:
        attention, found = call.attention, call.reductions
        mass = attention.sinks is not None or attention.gate is not None
        keys = RowKeys.of_step(self.marks, attention.mask.n_visible_keys(call.batch), attention.mask.keys)
        weights = eager_weights(call).double()
        expected = [one[..., 0] for one in row_statistics(weights.log(), keys, mass=mass)]
        if found.row_statistics is not None:
            got = list(found.row_statistics.unbind(dim=-1))
        else:
            assert found.row_logs is not None
            got = [one[..., 0] for one in row_statistics(found.row_logs, keys, mass=mass)]
        z = row_output(weights, call.v.double())
        decided = torch.ones(call.batch, call.heads, dtype=torch.bool, device=z.device)
        if attention.gate is not None:
            decided = ~(gate_logits(call).abs() < UNDECIDED).any(dim=(-2, -1))
        for name, mine, exact in zip(RowStatistics._fields, got, expected, strict=True):
            visible = decided[:, : exact.shape[1]]
            self.errors[f"{name} in layer {call.layer}"] = _relative(mine[visible], exact[visible])
        output = (((call.z if call.mean is None else call.mean).double() - z) / z.std())[:, 0][decided]
        self.errors[f"output of layer {call.layer}"] = float(output.abs().max()) if bool(decided.any()) else 0.0

    def result(self) -> xr.Dataset:
        return xr.Dataset()


class _PlainAttention(ForwardTracer):
    """Attention as the model was loaded with it, compared in every layer with the family's eager attention in float32.

    Args:
        structure: of the model.
        own: the registered function of the model's implementation.
        real: (batch, token) what is no padding; rows of padding mean nothing.
        limit: on the largest difference, in standard deviations of the eager output.
    """

    def __init__(self, structure: Structure, own: Callable[..., Any], real: Tensor, limit: float):
        self.structure, self.own, self.real, self.limit = structure, own, real, limit
        self.error, self.layer = 0.0, -1  # the largest, and where it is
        self.ignored: dict[str, Any] = {}  # what eager would have to be called without, to give the same output

    def attend(
        self, layer: int, module: nn.Module, q: Tensor, k: Tensor, v: Tensor, mask: Any, options: dict[str, Any]
    ) -> Tensor:
        def eager(**given: Any) -> Tensor:
            wide = [one.float() for one in (q, k, v)]
            z: Tensor = eager_function(module)(module, *wide, eager_mask(mask, *wide[:2]), **given)[0]
            return z

        z, real = eager(**options), self.real.to(q.device)
        expected, found = z[real], self.own(module, q, k, v, mask, **options)[0][real]
        error = _in_deviations(found, expected)
        if error > self.error:
            self.error, self.layer = error, self.structure.layer_of.get(id(module), -1)
            self.ignored = {
                name: value
                for name, value in options.items()
                if error > self.limit and value is not None and name not in REQUIRED
                if _in_deviations(found, eager(**{**options, name: None})[real]) <= self.limit
            }
        return z.to(q.dtype)


class _ZeroLayer(Intervention):
    """Zero ablation of all heads of one layer."""

    def __init__(self, layer: int):
        self.layer = layer

    def change(self, call: AttentionCall) -> Tensor:
        return torch.zeros_like(call.z) if call.layer == self.layer else call.z


def everything(ids: Tensor) -> ReductionRequest:
    """A request for every reduction except counts, with made-up weights and ids."""
    (batch, tokens), device = ids.shape, ids.device
    index = torch.arange(tokens, device=device)
    threes = (index % 3).expand(batch, -1)
    return ReductionRequest(
        column_sums=True,
        log_diagonal=True,
        entropy=True,
        distance=True,
        row_max=True,
        top=3,
        offsets=frozenset([(0, 1), (1, 2), (2, 8)]),
        query_weights={"thirds": (index % 3 == 0).float().expand(batch, -1)},
        key_weights={"evens": (index % 2 == 0).float().expand(batch, -1)},
        token_matches={"threes": Match(threes, threes)},
    )


def _comparable(reductions: Reductions) -> dict[str, Tensor]:
    """Without the keys of `top`, where a tie is no error; logs are clamped to what float32 weights can hold."""
    found = {name: value for name, value in reductions.flat().items() if name != "top_keys"}
    return {name: value.clamp(min=FLOOR) if name == "log_diagonal" else value for name, value in found.items()}


def check(model: Model | nn.Module) -> CheckReport:
    """Check that what instruments see of this model is what it computes.

    Args:
        model: a model from `headwise.load`, or a ``transformers`` model.

    Returns:
        One line per check, with the error and its limit. For a model that the seam refuses, the report holds only that reason.

    Examples:
        >>> report = hw.check(model)
        >>> report
        <CheckReport planted: ok>
        >>> for one in report.checks:
        ...     print(one.name, "ok" if one.passed else one.message)
        layers ok
        plain ok
        logits ok
        reductions ok
        heads ok
        causality ok
        padding ok
        decoding ok
    """
    structure = Structure.of(model)
    report = CheckReport(structure.card.id)
    report.refused = {layer.index: layer.reason for layer in structure.card.per_layer if layer.reason is not None}
    half = any(one.dtype in (torch.bfloat16, torch.float16) for one in structure.hf.parameters())
    ids, mask = _batch(structure)
    rounding = _rounding(structure)
    steps: list[tuple[str, Callable[[], Check]]] = [
        ("layers", lambda: _check_layers(structure, ids, mask)),
        ("plain", lambda: _check_plain(structure, ids, mask, 5e-2 if half else 1e-4)),
        ("logits", lambda: _check_logits(structure, ids, mask, 0.2 if half else 2e-3, report.checks[-1].passed)),
        ("reductions", lambda: _check_reductions(structure, ids, mask, 5e-2 if half else 1e-4)),
        ("heads", lambda: _check_heads(structure, ids, mask, max(5e-2 if half else 1e-4, 4 * rounding))),
        ("causality", lambda: _check_causality(structure, ids, mask)),
        ("padding", lambda: _check_padding(structure, ids, mask, max(5e-2 if half else 1e-4, rounding))),
        ("decoding", lambda: _check_decoding(structure, ids, mask, 5e-2 if half else 1e-4)),
    ]
    with torch.no_grad():
        for name, step in steps:
            try:
                report.checks.append(step())
            except HeadwiseError as error:
                report.checks.append(Check(name, False, str(error)))
                if name == "layers":
                    break
    return report


@torch.no_grad()
def _rounding(structure: Structure) -> float:
    """How far quantised output projections are from their own matrices: libraries may multiply in 8 bits or half precision.

    The largest difference on random inputs, over the standard deviation of the outputs.
    """
    try:
        projections = output_projections(structure)
    except HeadwiseError:  # the checks say so
        return 0.0
    hf: Any = structure.hf
    worst = 0.0
    for projection in projections.values():
        if projection.probed is not None:
            matrix, bias = projection.probed
            inputs = torch.randn(sum(LENGTHS), len(matrix), generator=torch.Generator().manual_seed(0)).to(
                matrix.device
            )
            expected = inputs @ matrix + bias
            given = projection.module(inputs.to(hf.dtype)).float()
            worst = max(worst, float((given - expected).abs().max() / expected.std()))
    return worst


def _batch(structure: Structure) -> tuple[Tensor, Tensor]:
    """Two texts of random tokens, the shorter one padded on the right, and their mask."""
    generator = torch.Generator().manual_seed(0)
    longest = max(LENGTHS)
    ids = torch.randint(0, structure.card.vocabulary_size, (len(LENGTHS), longest), generator=generator)
    mask = torch.arange(longest)[None] < torch.tensor(LENGTHS)[:, None]
    return ids.to(structure.device), mask.to(structure.device)


def _logits(structure: Structure, ids: Tensor, mask: Tensor, *instruments: Instrument | Intervention) -> Tensor:
    with observe(structure, *instruments):
        logits: Tensor = structure.hf(input_ids=ids, attention_mask=mask.long(), use_cache=False).logits
    return logits.float()[mask]


def _check_layers(structure: Structure, ids: Tensor, mask: Tensor) -> Check:
    _logits(structure, ids, mask)
    count = len(structure.attention_layers)
    return Check(
        "layers", True, f"{count} of {structure.card.layers} layers have heads, and each was observed once per pass"
    )


def _check_plain(structure: Structure, ids: Tensor, mask: Tensor, limit: float) -> Check:
    """Some versions of transformers drop what a fused function cannot express, such as a soft cap, without a word. Then
    the model computes one thing by itself (in `generate`, for instance), and another where it is observed.
    """
    config: Any = structure.decoder.config
    name = str(config._attn_implementation)
    own = AttentionInterface().get(name)
    if name == "eager" or plain_route(structure.hf) != "eager":  # a sparse model computes its own gated attention
        return Check("plain", True, f"the model's own attention is {'eager' if name == 'eager' else 'gated'}")
    if own is None or AttentionMaskInterface().get(name) is not sdpa_mask:
        return Check("plain", True, f"not compared: the attention {name!r} takes masks that eager attention does not")
    tracer = _PlainAttention(structure, own, mask, limit)
    batch = {"input_ids": ids, "attention_mask": mask.long()}
    trace_until(structure.hf, tracer, lambda: structure.decoder(**batch, use_cache=False))
    if tracer.error <= limit:
        said = f"outputs of the model's own attention ({name}) compared with eager ones"
        return Check("plain", True, said, tracer.error, limit)
    what = " and ".join(f"{one}={value}" for one, value in tracer.ignored.items() if isinstance(value, float | int))
    what = what or " and ".join(tracer.ignored)
    why = f"ignores {what}" if what else "differs from eager attention"
    return Check(
        "plain",
        False,
        f"in layer {tracer.layer} the model's own attention ({name}, transformers {transformers.__version__}) {why}, so "
        "outside of observe the model computes something else than what is measured; load it with "
        "attn_implementation='eager', or upgrade transformers",
        tracer.error,
        limit,
    )


def _in_deviations(found: Tensor, expected: Tensor) -> float:
    """Largest difference, in standard deviations of what was expected."""
    return float((found.float() - expected).abs().max() / expected.std())


def _check_logits(structure: Structure, ids: Tensor, mask: Tensor, limit: float, plain_is_right: bool) -> Check:
    """Where rounding alone changes logits a lot (an expert is chosen by a last bit, half precision), the plain model sets
    the limit, if its attention is right: the observed error may be twice that of the model's own attention.
    """

    def plain_logits() -> Tensor:
        logits: Tensor = structure.hf(input_ids=ids, attention_mask=mask.long(), use_cache=False).logits
        return logits.float()[mask]

    observed, plain = _logits(structure, ids, mask), plain_logits()
    with routed(structure.hf, plain_route(structure.hf)):
        eager = plain_logits()
    if not bool(torch.isfinite(eager).all()):
        raise SeamError("the model's logits are not finite; its weights are damaged, or its dtype overflows")
    error, rounding = (_in_deviations(logits, eager) for logits in (observed, plain))
    limit = max(limit, 2 * rounding) if plain_is_right else limit
    return Check("logits", error <= limit, "observed logits compared with those of eager attention", error, limit)


def _check_reductions(structure: Structure, ids: Tensor, mask: Tensor, limit: float) -> Check:
    worst, where = 0.0, ""
    for valid in (mask, None):  # with a mask, and plain causal
        seen = _AllReductions(eager=True)
        with observe(structure, seen):
            kwargs = {} if valid is None else {"attention_mask": mask.long()}
            structure.decoder(input_ids=ids, use_cache=False, **kwargs)
        for layer, streamed in seen.streamed.items():
            for name, got in streamed.items():
                error = _relative(got, seen.expected[layer][name])
                if error >= worst:
                    worst, where = error, f"{name} in layer {layer}"
    return Check(
        "reductions",
        worst <= limit,
        f"attention statistics compared with those from eager weights (largest error: {where})",
        worst,
        limit,
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
    recorder = ZRecorder()
    try:
        _logits(structure, ids, mask, recorder)
    finally:
        for handle in handles:
            handle.remove()
    worst = 0.0
    for layer, projection in projections.items():
        summed = torch.einsum("bqhd,hdm->bqm", recorder.z[layer].float(), projection.weight.float())
        if projection.bias is not None:
            summed = summed + projection.bias.float()
        expected = outputs[layer].float().reshape(summed.shape)
        worst = max(worst, _in_deviations(summed, expected))
    return Check("heads", worst <= limit, "sum of the heads' outputs compared with the attention output", worst, limit)


def _keep_output(outputs: dict[int, Tensor], layer: int) -> Callable[..., None]:
    def hook(_: nn.Module, args: Any, output: Tensor) -> None:
        outputs[layer] = output

    return hook


def _check_causality(structure: Structure, ids: Tensor, mask: Tensor) -> Check:
    ids, mask = ids[:1, :8], mask[:1, :8]
    before = _logits(structure, ids, mask)
    dead = [
        layer
        for layer in structure.attention_layers
        if torch.equal(_logits(structure, ids, mask, _ZeroLayer(layer)), before)
    ]
    if dead:
        return Check("causality", False, f"switching off all heads of layer {dead[0]} changes no logit")
    return Check("causality", True, "switching a layer's heads off changes the logits, in every layer")


def _check_decoding(structure: Structure, ids: Tensor, mask: Tensor, limit: float) -> Check:
    mask = mask.flip(1).long()  # padded on the left: the last tokens are real
    prompt = structure.decoder(input_ids=ids[:, :-1], attention_mask=mask[:, :-1], use_cache=True)
    cache = getattr(prompt, "past_key_values", None)
    if cache is None:
        return Check("decoding", True, "the model returns no KV cache, so it has no decode steps")
    seen = _DecodeStep(structure, mask.argmax(dim=1))
    with observe(structure, seen):
        structure.decoder(input_ids=ids[:, -1:], attention_mask=mask, past_key_values=cache, use_cache=True)
    where, worst = max(seen.errors.items(), key=lambda one: one[1])
    return Check(
        "decoding",
        worst <= limit,
        f"row and output of a decode step compared with those from eager weights (largest error: {where})",
        worst,
        limit,
    )


def _check_padding(structure: Structure, ids: Tensor, mask: Tensor, limit: float) -> Check:
    together = _AllReductions(eager=False)
    with observe(structure, together):
        structure.decoder(input_ids=ids, attention_mask=mask.long(), use_cache=False)
    short = int(mask[1].sum())
    alone = _AllReductions(eager=False)
    with observe(structure, alone):
        structure.decoder(input_ids=ids[1:, :short], use_cache=False)
    worst = 0.0
    for layer, streamed in together.streamed.items():
        for name, got in streamed.items():
            if not name.startswith(("query_weights", "key_weights")):  # made up by length
                worst = max(worst, _relative(got[1:, :, :short], alone.streamed[layer][name].double()))
    return Check("padding", worst <= limit, "a text in a padded batch against the same text alone", worst, limit)
