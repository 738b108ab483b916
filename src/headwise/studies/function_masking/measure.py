"""Does the model need a function's heads for that function? Heads are masked and augmented, against matched heads.

- **Masking.** The function's n most important heads are scaled by 1e-3 from the last prompt token on (where an answer is made;
  `where`: at decode steps only, as published, or everywhere), for several n, and held-out steps that the intact model solves
  are answered again.
- **Which heads.** Heads are ranked by their importance on *training* steps, and masked on held-out ones, which neither the
  probe nor the ranking has seen. At most half of a layer's heads are taken, so that as many others of the layer are left to
  compare with.
- **Controls.** Importance is a matter of depth more than of heads (44 to 87 % of its variance lies between layers), and so is
  what masking costs. So each control set has as many heads in every layer as the function's own set: for each own head, in
  random order, one of the three heads of its layer that are nearest in the norm of what they write (z W_O), outside the own set
  and not yet taken. Other important heads are not excluded. At least 20 different sets, where there are so many; the own set's
  rank among them gives p = (1 + #{controls that cost at least as much}) / (1 + sets).
- **Cross-masking.** At one n, the heads of every function on the steps of every other: are they needed for this one only? The
  controls of a column are the sets that match the column's own heads.
- **Augmenting.** amount x (one standard deviation towards correct answers, from training steps) is added to the heads; on
  held-out steps, solved or not. Control: random directions of the same length in the same heads.
- **Hierarchy.** Whole questions with the model's own answers passed on, while a low-order function is masked: what happens to
  the high-order steps? Control: sets that match the masked heads.

Held-out steps that the study `functions` did not ask are answered by the intact model first, until enough are solved. Answers
are compared with the correct answer, not with the intact model's. After Ma et al. (arXiv 2512.10978), who draw random heads
once, from all layers. Functions whose map was refused, or of which the intact model solves too few steps, are not tested, with
a reason.

Cost: see `prompter`; one row per step and head set. Twenty control sets and all held-out steps cost more than five sets and
five steps did: by default one number of heads is masked instead of five.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
import xarray as xr
from numpy.typing import NDArray
from torch import Tensor

from headwise.core.dims import EXAMPLE, FUNCTION, HEAD, LAYER
from headwise.core.errors import DataError, StudyError
from headwise.corpora import HELD_OUT, HIGH_ORDER, LOW_ORDER, Step, Steps, step_ids
from headwise.engines import Shard
from headwise.model import Model
from headwise.studies.decoding import PrefixCachedDecoder, common_prefix_length
from headwise.studies.function_masking.finalize import finalize
from headwise.studies.function_masking.spec import SPEC, FunctionMaskingOptions
from headwise.studies.inputs import StudyInputs, origin_of, require_loaded
from headwise.studies.matched_heads import Head, matched_sets
from headwise.studies.prompter import HeadChange, Prompter
from headwise.studies.run import StudyRun, study_provenance

Condition = tuple[str, int, int]  # kind, number of heads (or index of the amount), draw or other function
Trials = list[tuple[Condition, list[int], HeadChange]]  # condition, indices of the steps, change


def prepare(model: Model, inputs: StudyInputs, options: FunctionMaskingOptions | None = None) -> StudyRun:
    """Test the maps of the study `functions` on this model."""
    options = options or FunctionMaskingOptions()
    steps, maps = inputs.steps, inputs.maps["functions"]
    require_loaded(model, SPEC.name)
    origin = origin_of(maps, "functions", steps)
    if not {"train_importance", "output_norm"} <= set(maps.data_vars):
        raise DataError(
            "The functions map is of an older version, which ranked heads on held-out steps only; measure it again with "
            "--redo functions."
        )
    masking = MaskingRun(model, steps, maps, options, limit=int(origin.parameters["max_new_tokens"]))
    data = {"name": steps.name, "size": len(masking.functions), "digest": origin.key()}

    def conclude(shards: Sequence[xr.Dataset]) -> dict[str, xr.Dataset]:
        heads = masking.heads
        own = {name: heads.most_important(name, max(options.heads)) for name in masking.functions}
        ratios = {
            name: [heads.norm_ratio(some[:n], heads.matched_sets(some[:n], options.draws, name)) for n in options.heads]
            for name, some in own.items()
        }
        return {SPEC.name: finalize(shards, maps, own, ratios, options, masking.orders, masking.chain_reason)}

    provenance = study_provenance(SPEC, model, data, options)
    return StudyRun(provenance, len(masking.functions) + 1, 1, masking.measure, conclude)


# ---- which heads ----------------------------------------------------------------------------------------------------


class RankedHeads:
    """Every function's heads by importance on training steps, and the sets that match them."""

    def __init__(self, maps: xr.Dataset, *, factor: float, seed: int):
        self.functions = [str(name) for name in maps[FUNCTION].values]
        self.shape = (maps.sizes[LAYER], maps.sizes[HEAD])
        self.norm = maps["output_norm"].transpose(LAYER, HEAD).values.astype(np.float64)
        self.all: list[Head] = [(int(layer), int(head)) for layer, head in np.argwhere(np.isfinite(self.norm))]
        refused = dict(zip(self.functions, maps["refused"].values.tolist(), strict=True))
        size = np.abs(maps["train_importance"].transpose(FUNCTION, LAYER, HEAD).values)
        self.ranked: dict[str, list[Head]] = {
            name: [] if refused[name] else self._ranked(row) for name, row in zip(self.functions, size, strict=True)
        }
        self.factor, self.seed = factor, seed

    def _ranked(self, size: NDArray[Any]) -> list[Head]:
        """From the most important on, at most half of the heads of each layer."""
        room = {layer: sum(one == layer for one, _ in self.all) // 2 for layer in range(self.shape[0])}
        found: list[Head] = []
        for layer, head in sorted(self.all, key=lambda one: -float(np.nan_to_num(size[one]))):
            if room[layer]:
                found.append((layer, head))
                room[layer] -= 1
        return found

    def most_important(self, function: str, count: int) -> list[Head]:
        """The most important heads of a function; none where its map was refused."""
        return self.ranked[function][:count]

    def matched_sets(self, own: Sequence[Head], count: int, name: str) -> list[list[Head]]:
        """At most `count` different sets with as many heads in every layer, near in norm; `name` seeds them."""
        return matched_sets(own, self.norm, count, np.random.default_rng([self.seed, *name.encode(), len(own)]))

    def norm_ratio(self, own: Sequence[Head], sets: Sequence[Sequence[Head]]) -> float:
        """What control sets write over what the own set writes: the sums of the heads' norms, mean over sets."""
        of_own = sum(self.norm[head] for head in own)
        return float(np.mean([sum(self.norm[head] for head in one) / of_own for one in sets])) if sets else float("nan")

    def factors(self, heads: Sequence[Head]) -> Tensor:
        """(layer, head): 1, and `factor` for these heads."""
        found = torch.ones(self.shape)
        for layer, head in heads:
            found[layer, head] = self.factor
        return found


# ---- which steps, with which changes --------------------------------------------------------------------------------


class SelectedSteps(NamedTuple):
    """The held-out steps of a function that are answered again; indices are into `steps`."""

    steps: list[Step]
    solved: list[int]  # by the intact model: with the function's own, matched, and the other functions' heads masked
    failed: list[int]  # with own and matched heads masked, at one number of heads
    augmented: list[int]  # both in their shares, with directions added
    n_held_out: int  # of the function, answered by the intact model
    n_solved: int  # of these


def select_steps(steps: Sequence[Step], right: Sequence[bool], options: FunctionMaskingOptions) -> SelectedSteps:
    """The first of the function's held-out steps, in random order, that the intact model solves, and fails."""
    solved = [at for at, is_right in enumerate(right) if is_right][: options.solved_steps]
    failed = [at for at, is_right in enumerate(right) if not is_right][: options.failed_steps]
    parts = [solved, failed, list(range(len(right)))[: options.augmented_steps]]
    used = sorted({at for part in parts for at in part})
    solved, failed, augmented = ([used.index(at) for at in part] for part in parts)
    return SelectedSteps([steps[at] for at in used], solved, failed, augmented, len(right), sum(right))


def masking_trials(heads: RankedHeads, function: str, steps: SelectedSteps, options: FunctionMaskingOptions) -> Trials:
    """Every masking of a function's steps."""
    found: Trials = []
    for count in options.heads:
        both = steps.solved + (steps.failed if count == options.size else [])
        own = heads.most_important(function, count)
        if own:
            found.append((("own", count, 0), both, HeadChange(heads.factors(own))))
        found += [
            (("random", count, draw), both, HeadChange(heads.factors(one)))
            for draw, one in enumerate(heads.matched_sets(own, options.draws, function))
        ]
    for index, other in enumerate(heads.functions):
        if other != function and heads.ranked[other]:
            change = HeadChange(heads.factors(heads.most_important(other, options.size)))
            found.append((("cross", options.size, index), steps.solved, change))
    return found


def augmenting_trials(
    heads: RankedHeads, maps: xr.Dataset, function: str, steps: SelectedSteps, options: FunctionMaskingOptions
) -> Trials:
    """Every augmenting of a function's steps; none where it has no heads or no directions."""
    vectors = np.nan_to_num(maps["direction"].sel({FUNCTION: function}).values)
    own_heads = heads.most_important(function, options.size)
    if not own_heads or not vectors.any():
        return []
    there = torch.zeros(heads.shape)
    for layer, head in own_heads:
        there[layer, head] = 1
    own = torch.from_numpy(vectors) * there[:, :, None]  # (layer, head, width)
    unscaled = heads.factors([])
    generator = torch.Generator().manual_seed(heads.seed)
    others = [_random_directions(own, generator) for _ in range(options.random_directions)]
    found: Trials = [(("augment", 0, 0), steps.augmented, HeadChange(unscaled))]
    for index, amount in enumerate(options.amounts, start=1):
        found.append((("augment", index, 0), steps.augmented, HeadChange(unscaled, own * amount)))
        found += [
            (("random direction", index, draw), steps.augmented, HeadChange(unscaled, one * amount))
            for draw, one in enumerate(others)
        ]
    return found


def _random_directions(vectors: Tensor, generator: torch.Generator) -> Tensor:
    """Vectors of the same lengths."""
    new = torch.randn(vectors.shape, generator=generator)
    return new / new.norm(dim=-1, keepdim=True) * vectors.norm(dim=-1, keepdim=True)


# ---- the measurement ------------------------------------------------------------------------------------------------


class MaskingRun:
    """A model, its functions' ranked heads, and the held-out steps that are answered again."""

    def __init__(self, model: Model, steps: Steps, maps: xr.Dataset, options: FunctionMaskingOptions, limit: int):
        self.options, self.maps = options, maps
        self.functions = [str(name) for name in maps[FUNCTION].values]
        self.heads = RankedHeads(maps, factor=options.factor, seed=options.seed)
        most = min((len(ranked) for ranked in self.heads.ranked.values() if ranked), default=max(options.heads))
        if max(options.heads) > most:
            raise StudyError(
                f"Masking {max(options.heads)} heads needs as many others of the same layers to compare with, and {model.id} "
                f"has {most} such heads; give smaller numbers, such as function_masking.heads={max(1, most // 2)} with "
                "function_masking.size the same."
            )
        self.held_out = {name: self._held_out(steps, name) for name in self.functions}
        low = LOW_ORDER if options.low_order is None else options.low_order
        high = HIGH_ORDER if options.high_order is None else options.high_order
        self.orders = {name: "low" if name in low else "high" if name in high else "" for name in self.functions}
        self.chains, self.chain_reason = self._chains(steps)
        flat = [step_ids(model, step) for own in self.held_out.values() for step in own]
        flat += [step_ids(model, step) for chain in self.chains for step in chain]
        prefix = flat[0][: common_prefix_length(flat)] if flat else ()
        longest = max(map(len, flat), default=0) + limit * max([len(chain) for chain in self.chains], default=1)
        decoder = PrefixCachedDecoder(model, prefix, longest=longest, where=options.where, batch=options.batch)
        self.prompter = Prompter(model, decoder, limit)

    def _held_out(self, steps: Steps, function: str) -> list[Step]:
        """All held-out steps in random order, those that the study `functions` asked first."""
        right = dict(
            zip(self.maps[EXAMPLE].values.astype(str).tolist(), self.maps["right"].values.tolist(), strict=True)
        )
        own = [step for step in steps if step.function == function and step.split == HELD_OUT]
        order = np.random.default_rng([self.options.seed, *function.encode(), 1]).permutation(len(own))
        return sorted((own[index] for index in order), key=lambda step: step.id not in right)

    def _answered(self, function: str) -> tuple[list[Step], list[bool]]:
        """As many held-out steps as give enough solved ones, and whether the intact model solves them."""
        known = dict(
            zip(self.maps[EXAMPLE].values.astype(str).tolist(), self.maps["right"].values.tolist(), strict=True)
        )
        steps, intact = self.held_out[function], HeadChange(self.heads.factors([]))
        right = [bool(known[step.id]) for step in steps if step.id in known]
        while len(right) < len(steps) and sum(right) < self.options.solved_steps:
            some = steps[len(right) : len(right) + self.options.batch]
            right += self.prompter.answer(some, [(index, intact) for index in range(len(some))], function).tolist()
        return steps[: len(right)], right

    def _chains(self, steps: Steps) -> tuple[list[tuple[Step, ...]], str]:
        """Held-out questions with a low-order step before a high-order one; or why there are none."""
        options = self.options
        low, high = ({name for name, order in self.orders.items() if order == which} for which in ("low", "high"))
        if not options.chains:
            return [], "no whole questions were requested"
        if not any(self.heads.ranked[name] for name in low) or not high:
            return [], "no function with a map is known to be of low order, or none of high order"
        measured = set(self.maps[EXAMPLE].values.astype(str))
        fit = [
            chain
            for chain in steps.split(HELD_OUT).chains().values()
            if all(step.id in measured for step in chain) and _has_high_after_low(chain, low, high)
        ]
        if not fit:
            return [], "no held-out question has a high-order step after a low-order one"
        order = np.random.default_rng([options.seed, 4]).permutation(len(fit))
        return [fit[index] for index in order[: options.chains]], ""

    def measure(self, shard: Shard) -> xr.Dataset:
        """One function; or, after all functions, the hierarchy."""
        return self._function(self.functions[shard.start]) if shard.start < len(self.functions) else self._hierarchy()

    def _function(self, name: str) -> xr.Dataset:
        """One row per trial: the condition, the step, and whether it is answered correctly."""
        options, steps = self.options, select_steps(*self._answered(name), self.options)
        trials = masking_trials(self.heads, name, steps, options)
        if options.augmented_steps:
            trials += augmenting_trials(self.heads, self.maps, name, steps, options)
        flat = [(condition, index, change) for condition, indices, change in trials for index in indices]
        right = self.prompter.answer(
            steps.steps, [(index, change) for _, index, change in flat], f"{name}, heads changed"
        )
        solved, columns = (
            set(steps.solved),
            list(zip(*(condition for condition, _, _ in flat), strict=True)) or [()] * 3,
        )
        return xr.Dataset(
            {
                "kind": (EXAMPLE, np.array(columns[0], dtype=object)),
                "count": (EXAMPLE, np.array(columns[1], dtype=np.int64)),
                "which": (EXAMPLE, np.array(columns[2], dtype=np.int64)),
                "step": (EXAMPLE, np.array([index for _, index, _ in flat], dtype=np.int64)),
                "solved": (EXAMPLE, np.array([index in solved for _, index, _ in flat], dtype=bool)),
                "right": (EXAMPLE, right.astype(bool)),
                "held_out_steps": steps.n_held_out,
                "solved_steps": steps.n_solved,
                "masked_steps": len(steps.solved),
                "failed_steps": len(steps.failed),
                "augmented_steps": len(steps.augmented),
            }
        )

    def _hierarchy(self) -> xr.Dataset:
        """One row per step of a chain and condition: 0 nothing masked, then low-order functions, then matched sets of each."""
        size = self.options.size
        low = [name for name in self.functions if self.orders[name] == "low" and self.heads.ranked[name]]
        own = {name: self.heads.most_important(name, size) for name in low}
        draws = {name: self.heads.matched_sets(own[name], self.options.chain_draws, f"{name} chains") for name in low}
        sets = [("", []), *own.items(), *((f"random {name}", one) for name in low for one in draws[name])]
        changes = [HeadChange(self.heads.factors(heads)) for _, heads in sets]
        found = self.prompter.answer_chains(self.chains, changes) if self.chains else []
        names = [name for name, _ in sets]
        rows: list[tuple[Any, ...]] = [
            (name, condition, step.function, bool(right[condition, number]))
            for chain, right in zip(self.chains, found, strict=True)
            for number, step in enumerate(chain)
            for condition, name in enumerate(names)
        ]
        columns = list(zip(*rows, strict=True)) or [()] * 4
        return xr.Dataset(
            {
                "masked_of": (EXAMPLE, np.array(columns[0], dtype=object)),
                "condition": (EXAMPLE, np.array(columns[1], dtype=np.int64)),
                "function_of": (EXAMPLE, np.array(columns[2], dtype=object)),
                "right": (EXAMPLE, np.array(columns[3], dtype=bool)),
                "chains": len(self.chains),
            }
        )


def _has_high_after_low(chain: Sequence[Step], low: set[str], high: set[str]) -> bool:
    first = next((index for index, step in enumerate(chain) if step.function in low), len(chain))
    return any(step.function in high for step in chain[first:])
