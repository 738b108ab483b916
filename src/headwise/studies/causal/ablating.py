"""What does a batch of texts lose without each head? Attribution for all heads, exact ablation for some.

`Ablations` holds what replaces a head's output z on every text:

    mean        the mean of z over all texts, one for first tokens and one for all others
    resample    z on another text at the same position (at its last one, where that text is shorter)

With δ = replaced z minus z, and for the loss of the tokens of one class,

    attribution of head h   g_h·δ_h + ½ δ_h' F δ_h,   ½ δ' F δ = ½ E (∇_z Σ log p(y)·δ)²,  y drawn from the model at every token

g is the gradient of the loss with respect to z. F is the Fisher information of the next-token distribution, which replaces
the Hessian (the Gauss-Newton form): gradients at the unchanged model alone miss that it was trained to a minimum, where what
is left is of second order. Labels are drawn independently at every token and their mean gradient is 0, so products of two
tokens vanish in expectation and one backward pass estimates the sum over tokens. The same term is the divergence
KL(unchanged || ablated) to second order. Gradient times change: attribution patching (Syed et al., arXiv 2310.10348).

Exact: one pass per head and ablation, which begins in the head's layer (`seam.resume`) where the family allows it.

Cost for a batch: three passes, per token class 1 + draws backward passes, and per exact ablation the layers from its own on.
Memory: the autograd graph of one batch, and its logits twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from headwise.core.errors import SeamError
from headwise.corpora import Example
from headwise.instruments import RawHeadOutputs
from headwise.interventions import Replace
from headwise.kernels import Gram
from headwise.seam import (
    AttentionCall,
    Intervention,
    LayerOutputs,
    Structure,
    can_resume,
    observe,
    output_projections,
    resumed,
)
from headwise.studies.causal.spec import ABLATIONS
from headwise.studies.passes import Batch, batches

__all__ = ["Ablations", "HeadUnit", "LabelledExample", "units_of"]


class HeadUnit(NamedTuple):
    """What is ablated as one: a head, or the heads of one key-value group."""

    layer: int
    first: int
    heads: int


def units_of(structure: Structure, unit: str) -> list[HeadUnit]:
    """All units of a model, layer by layer."""
    found = []
    for layer in structure.card.per_layer:
        size = 1 if unit == "head" or not layer.heads else layer.heads // layer.kv_heads
        found += [HeadUnit(layer.index, first, size) for first in range(0, layer.heads, size)]
    return found


@dataclass(frozen=True)
class LabelledExample:
    """A text with the class of each of its tokens; -1: not scored."""

    example: Example
    classes: np.ndarray  # (token,)
    partner: Example  # the text whose z resample ablation puts in
    draw: int  # seeds the labels that are drawn for it


class Attributed(NamedTuple):
    """Estimates for every head, sums over the tokens of a class; all on the CPU."""

    first_order: Tensor  # (batch, ablation, class, layer, head): g·δ
    curvature: Tensor  # the same shape: ½ δ'Fδ


class _Attached(Intervention):
    """The graph begins at the z of the first layer."""

    def change(self, call: AttentionCall) -> Tensor:
        return call.z if call.z.requires_grad else call.z.detach().requires_grad_(True)


class Ablations:
    """Ablates heads of one model on labelled texts."""

    def __init__(
        self, structure: Structure, classes: int, *, unit: str = "head", draws: int = 1, batch_tokens: int = 512
    ):
        self.structure, self.classes, self.unit, self.draws = structure, classes, unit, draws
        self.batch_tokens = batch_tokens
        self.means: dict[int, Tensor] = {}  # layer -> (first or later token, head, width)
        self.resumes = can_resume(structure)
        self._grams: dict[int, Gram] = {}

    def fit_means(self, texts: Sequence[Example]) -> None:
        """The mean z over all of these texts, of first tokens and of all others."""
        sums: dict[int, Tensor] = {}
        counts = torch.zeros(2, dtype=torch.float64)
        for batch in batches(texts, self.batch_tokens, self.structure.device):
            for layer, z in self._outputs(batch.ids, batch.valid).items():
                real = (z.double() * batch.valid.to(z.device)[:, :, None, None]).cpu()
                found = torch.stack([real[:, 0].sum(0), real[:, 1:].sum((0, 1))])
                sums[layer] = sums.get(layer, 0) + found
            counts += torch.tensor([float(len(batch.ids)), float(batch.valid[:, 1:].sum())])
        self.means = {layer: total / counts.clamp(min=1)[:, None, None] for layer, total in sums.items()}

    def on(self, batch: Batch, items: Sequence[LabelledExample]) -> AblatedBatch:
        """The unchanged pass over a batch, and what replaces its heads."""
        return AblatedBatch(self, batch, [items[index] for index in batch.indices])

    @torch.no_grad()
    def _outputs(self, ids: Tensor, valid: Tensor) -> dict[int, Tensor]:
        raw = RawHeadOutputs()
        with observe(self.structure, raw, valid=valid):
            self.structure.decoder(input_ids=ids, use_cache=False)
        return raw.z

    def norms(self, z: dict[int, Tensor]) -> dict[int, Tensor]:
        """Layer -> (batch, head, token): the norm of what a head adds; of z itself where W_O cannot be found."""
        if not self._grams:
            try:
                self._grams = {layer: one.gram() for layer, one in output_projections(self.structure).items()}
            except SeamError:
                return {layer: one.float().norm(dim=-1).transpose(1, 2) for layer, one in z.items()}
        return {layer: self._grams[layer].norms(one) for layer, one in z.items()}


class AblatedBatch:
    """A batch, its unchanged pass, and δ of every ablation."""

    @torch.no_grad()
    def __init__(self, owner: Ablations, batch: Batch, items: Sequence[LabelledExample]):
        self.owner, self.structure, self.batch, self.items = owner, owner.structure, batch, items
        self.hf: Any = self.structure.hf
        labels = torch.full(batch.ids.shape, -1)
        for row, item in enumerate(items):
            labels[row, : len(item.classes)] = torch.from_numpy(item.classes)
        labels = labels[:, 1:, None].to(batch.ids.device)  # of the token that each position predicts
        self.member = (labels == torch.arange(owner.classes, device=labels.device)).float()  # (batch, token, class)
        raw, self.given = RawHeadOutputs(), LayerOutputs(self.structure)
        with self.given, observe(self.structure, raw, valid=batch.valid):
            logits = self._logits()
        self.z = raw.z
        log_total = logits.logsumexp(-1)
        self.loss = log_total - self._gold(logits)  # (batch, token)
        self.p = (logits - log_total[..., None]).exp_()
        self.negative_entropy = _dot(self.p, logits) - log_total
        self.change = {"mean": self._to_mean(), "resample": self._to_partner()}

    def _logits(self) -> Tensor:
        """(batch, token - 1, vocabulary): those that predict a token of the batch."""
        logits: Tensor = self.hf(input_ids=self.batch.ids, use_cache=False).logits
        return logits[:, :-1].float()

    def _gold(self, logits: Tensor) -> Tensor:
        return logits.gather(-1, self.batch.ids[:, 1:, None].to(logits.device))[..., 0]

    def by_class(self, values: Tensor) -> Tensor:
        """(batch, class): sums over tokens of (batch, token)."""
        return torch.einsum("bt,btc->bc", values, self.member.to(values.device))

    def counts(self) -> Tensor:
        """(batch, class): tokens."""
        return self.member.sum(1)

    def norms(self) -> Tensor:
        """(batch, layer, head): the mean norm of what each head adds, over the text's tokens."""
        valid = self.batch.valid
        found = self._per_head(len(valid))
        for layer, norms in self.owner.norms(self.z).items():
            real = valid.to(norms.device)[:, None]
            found[:, layer, : norms.shape[1]] = ((norms * real).sum(-1) / real.sum(-1)).cpu()
        return found

    def _per_head(self, *leading: int) -> Tensor:
        """(..., layer, head) of NaN where a layer has no such head, 0 elsewhere."""
        card = self.structure.card
        found = torch.full((*leading, card.layers, card.heads), torch.nan)
        for layer in self.z:
            found[..., layer, : self.z[layer].shape[2]] = 0
        return found

    def _to_mean(self) -> dict[int, Tensor]:
        found = {}
        for layer, z in self.z.items():
            first, later = self.owner.means[layer].to(z.device, z.dtype)
            change = later - z
            change[:, 0] = first - z[:, 0]
            found[layer] = self._real(change)
        return found

    def _to_partner(self) -> dict[int, Tensor]:
        width = self.batch.ids.shape[1]
        partners = [item.partner.ids[:width] for item in self.items]
        ids = torch.tensor([own + own[-1:] * (width - len(own)) for own in partners])
        lengths = torch.tensor([len(own) for own in partners])
        place = torch.minimum(torch.arange(width), lengths[:, None] - 1)  # (batch, token)
        valid = torch.arange(width) < lengths[:, None]
        device = self.batch.ids.device
        other = self.owner._outputs(ids.to(device), valid.to(device))
        found = {}
        for layer, z in self.z.items():
            index = place.to(z.device)[:, :, None, None].expand(-1, -1, *z.shape[2:])
            found[layer] = self._real(other[layer].gather(1, index) - z)
        return found

    def _real(self, change: Tensor) -> Tensor:
        """Without padding."""
        return change * self.batch.valid.to(change.device, change.dtype)[:, :, None, None]

    def attribute(self, *, split: bool = True) -> Attributed:
        """The attribution of every head; with ``split=False`` all scored tokens are one class."""
        member = self.member if split else self.member.sum(-1, keepdim=True)
        classes = member.shape[-1]
        first = self._per_head(len(member), len(ABLATIONS), classes)
        curvature = first.clone()
        raw = RawHeadOutputs(attached=True)
        with _frozen(self.hf), torch.enable_grad(), observe(self.structure, _Attached(), raw, valid=self.batch.valid):
            logits = self._logits()
            logs = logits - logits.logsumexp(-1, keepdim=True)
            gold = self._gold(logs)
            drawn = [logs.gather(-1, labels[..., None])[..., 0] for labels in self._labels(logs.detach())]
            layers = list(raw.z)
            for index in range(classes):
                weights = member[..., index].to(logs.device)
                if not bool(weights.any()):
                    continue
                for draw, scores in enumerate((-gold, *drawn)):
                    gradients = torch.autograd.grad(
                        (scores * weights).sum(), [raw.z[layer] for layer in layers], retain_graph=True
                    )
                    for layer, gradient in zip(layers, gradients, strict=True):
                        for kind, name in enumerate(ABLATIONS):
                            product = self._projected(layer, gradient, self.change[name][layer])  # (batch, head)
                            own = (slice(None), kind, index, layer, slice(0, product.shape[1]))
                            if draw == 0:
                                first[own] = product
                            else:
                                curvature[own] += product.square() / (2 * len(drawn))
        return Attributed(first, curvature)

    def _projected(self, layer: int, gradient: Tensor, change: Tensor) -> Tensor:
        """(batch, head): gradient times change; of a kv group, that of all its heads, for each of them."""
        product = (gradient.float() * change.float()).sum(dim=(1, 3)).cpu()
        if self.owner.unit == "head":
            return product
        card = self.structure.card.per_layer[layer]
        size = card.heads // card.kv_heads
        return product.unflatten(1, (-1, size)).sum(-1).repeat_interleave(size, dim=1)

    def _labels(self, logs: Tensor) -> Iterator[Tensor]:
        """(batch, token) per draw: labels drawn from the next-token distribution, the same in every batch."""
        cumulative = logs.exp().cumsum(-1)
        rows = [np.random.default_rng([17, item.draw]) for item in self.items]
        for _ in range(self.owner.draws):
            drawn = np.zeros(logs.shape[:2])
            for row, (generator, item) in enumerate(zip(rows, self.items, strict=True)):
                count = len(item.classes) - 1
                drawn[row, :count] = generator.random(count)
            level = torch.from_numpy(drawn).to(logs.device, logs.dtype)[..., None] * cumulative[..., -1:]
            yield torch.searchsorted(cumulative, level)[..., 0].clamp(max=logs.shape[-1] - 1)

    @torch.no_grad()
    def ablate(self, unit: HeadUnit, ablation: str) -> tuple[Tensor, Tensor]:
        """Exactly: the rise of the loss and the KL, sums over the tokens of each class, (batch, class)."""
        layer, stop = unit.layer, unit.first + unit.heads
        where = torch.zeros(len(self.items), self.structure.card.layers, self.structure.card.heads, dtype=torch.bool)
        where[:, layer, unit.first : stop] = True
        values = {layer: self.z[layer] + self.change[ablation][layer]}
        begin = resumed(self.structure, self.given, layer) if self.owner.resumes else nullcontext()
        with begin, observe(self.structure, Replace(values, where), valid=self.batch.valid):
            logits = self._logits()
        log_total = logits.logsumexp(-1)
        rise = log_total - self._gold(logits) - self.loss
        divergence = self.negative_entropy - (_dot(self.p, logits) - log_total)
        return self.by_class(rise).cpu(), self.by_class(divergence).cpu()


def _dot(p: Tensor, values: Tensor) -> Tensor:
    """Over the vocabulary, without a product of that size."""
    return torch.linalg.vecdot(p, values)


@contextmanager
def _frozen(module: nn.Module) -> Iterator[None]:
    """Parameters take no part in the graph."""
    free = [one for one in module.parameters() if one.requires_grad]
    for one in free:
        one.requires_grad_(False)
    try:
        yield
    finally:
        for one in free:
            one.requires_grad_(True)
