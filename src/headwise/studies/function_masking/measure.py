"""Does the model need a function's heads for that function? Heads are masked and augmented, against random heads.

- **Masking.** The function's n most important heads are scaled by 1e-3 from the last prompt token on (where an answer is made;
  `where`: at decode steps only, as published, or everywhere), for several n, and held-out steps that the intact model solves
  are answered again. Control: as many random heads outside the set, several draws. Sets of different n are nested, random ones
  too.
- **Cross-masking.** At one n, the heads of every function on the steps of every other: are they needed for this one only?
- **Augmenting.** amount x (one standard deviation towards correct answers, from training steps) is added to the heads; on
  held-out steps, solved or not. Control: random directions of the same length in the same heads.
- **Hierarchy.** Whole questions with the model's own answers passed on, while a low-order function is masked: what happens to
  the high-order steps? Control: random heads outside the heads of all low-order functions.

Answers are compared with the correct answer, not with the intact model's. After Ma et al. (arXiv 2512.10978), who draw random
heads once. Functions whose map was refused, or of which the intact model solves too few steps, are not tested, with a reason.

Cost: see `prompter`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from headwise.core.dims import EXAMPLE, FUNCTION, HEAD, LAYER, parse_head
from headwise.core.errors import DataError, StudyError
from headwise.core.provenance import Provenance
from headwise.corpora import HELD_OUT, HIGH_ORDER, LOW_ORDER, Step, Steps, step_ids
from headwise.engines import Shard
from headwise.model import Model
from headwise.studies.decoding import PrefixCachedDecoder, common_prefix_length
from headwise.studies.function_masking.finalize import finalize
from headwise.studies.function_masking.prompter import HeadChange, Prompter
from headwise.studies.function_masking.spec import SPEC, FunctionMaskingOptions
from headwise.studies.inputs import StudyInputs
from headwise.studies.run import StudyRun, study_provenance

Head = tuple[int, int]
Condition = tuple[str, int, int]  # kind, number of heads (or index of the amount), draw or other function
Trials = list[tuple[Condition, list[int], HeadChange]]  # condition, indices of the steps, change


def prepare(model: Model, inputs: StudyInputs, options: FunctionMaskingOptions | None = None) -> StudyRun:
    """Test the maps of the study `functions` on this model."""
    options = options or FunctionMaskingOptions()
    steps, maps = inputs.steps, inputs.maps["functions"]
    if not isinstance(model, Model):
        raise StudyError(f"{SPEC.name} runs the model, and {model.id} was only opened; load it.")
    origin = Provenance.from_attrs(maps.attrs)
    if origin.data.get("digest") != steps.digest:
        raise DataError(
            f"The functions map was measured on {origin.data.get('name')} ({origin.data.get('digest')}), and these steps are "
            f"{steps.name} ({steps.digest}); give the same steps, or measure the map again with --redo functions."
        )
    masking = MaskingRun(model, steps, maps, options, limit=int(origin.parameters["max_new_tokens"]))
    data = {"name": steps.name, "size": len(masking.steps), "digest": origin.key()}

    def conclude(shards: Sequence[xr.Dataset]) -> dict[str, xr.Dataset]:
        own = {name: masking.heads.most_important(name, max(options.heads)) for name in masking.functions}
        return {SPEC.name: finalize(shards, maps, own, options, masking.orders, masking.chain_reason)}

    provenance = study_provenance(SPEC, model, data, options)
    return StudyRun(provenance, len(masking.functions) + 1, 1, masking.measure, conclude)


# ---- which heads ----------------------------------------------------------------------------------------------------


class RankedHeads:
    """Every function's heads by importance, and random ones outside a set."""

    def __init__(self, maps: xr.Dataset, *, factor: float, seed: int):
        self.functions = [str(name) for name in maps[FUNCTION].values]
        self.shape = (maps.sizes[LAYER], maps.sizes[HEAD])
        refused = dict(zip(self.functions, maps["refused"].values.tolist(), strict=True))
        ranked = {name: maps["ranked"].sel({FUNCTION: name}).values for name in self.functions}
        self.ranked: dict[str, list[Head]] = {
            name: [] if refused[name] else [parse_head(str(head)) for head in ranked[name]] for name in self.functions
        }
        self.all: list[Head] = sorted(parse_head(str(head)) for head in ranked[self.functions[0]])
        self.factor, self.seed = factor, seed

    def most_important(self, function: str, count: int) -> list[Head]:
        """The most important heads of a function; none where its map was refused."""
        return self.ranked[function][:count]

    def random_orders(self, excluded: Sequence[Sequence[Head]], count: int, name: str) -> list[list[Head]]:
        """Random orders of the heads in none of these sets, the first n of which are a set of n; `name` seeds them."""
        taken = {head for some in excluded for head in some}
        left = [head for head in self.all if head not in taken]
        random = np.random.default_rng([self.seed, *name.encode()])
        return [[left[index] for index in random.permutation(len(left))] for _ in range(count)]

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
    solved: list[int]  # by the intact model: with the function's own, random, and the other functions' heads masked
    failed: list[int]  # with own and random heads masked, at one number of heads
    augmented: list[int]  # both in their shares, with directions added
    n_held_out: int  # of the function
    n_solved: int  # of these


def select_steps(
    maps: xr.Dataset, steps: Mapping[str, Step], function: str, options: FunctionMaskingOptions
) -> SelectedSteps:
    """Random held-out steps, the same for every change."""
    own = (maps["function_of"].values.astype(str) == function) & (maps["split_of"].values.astype(str) != "train")
    names, right = maps[EXAMPLE].values.astype(str)[own], maps["right"].values[own]
    order = np.random.default_rng([options.seed, *function.encode(), 1]).permutation(len(names))
    solved, failed = [at for at in order if right[at]], [at for at in order if not right[at]]
    parts = [solved[: options.solved_steps], failed[: options.failed_steps], list(order[: options.augmented_steps])]
    used = sorted({int(at) for part in parts for at in part})
    solved, failed, augmented = ([used.index(int(at)) for at in part] for part in parts)
    some = [steps[str(names[at])] for at in used]
    return SelectedSteps(some, solved, failed, augmented, len(names), int(right.sum()))


def masking_trials(heads: RankedHeads, function: str, steps: SelectedSteps, options: FunctionMaskingOptions) -> Trials:
    """Every masking of a function's steps."""
    found: Trials = []
    largest = heads.most_important(function, max(options.heads))
    orders = heads.random_orders([largest], options.draws, function)
    for count in options.heads:
        both = steps.solved + (steps.failed if count == options.size else [])
        if largest:
            found.append((("own", count, 0), both, HeadChange(heads.factors(largest[:count]))))
        elif count != options.size:
            continue  # nothing to compare with; at `size` the random sets are the control of the cross-masking
        found += [
            (("random", count, draw), both, HeadChange(heads.factors(order[:count])))
            for draw, order in enumerate(orders)
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
        n_heads = len(self.heads.all)
        if max(options.heads) * 2 > n_heads:
            raise StudyError(
                f"Masking {max(options.heads)} heads, and as many random ones, needs twice as many, and {model.id} has "
                f"{n_heads}; give smaller numbers, such as function_masking.heads={n_heads // 4} with function_masking.size "
                "the same."
            )
        by_id = {step.id: step for step in steps}
        self.steps = {name: select_steps(maps, by_id, name, options) for name in self.functions}
        low = LOW_ORDER if options.low_order is None else options.low_order
        high = HIGH_ORDER if options.high_order is None else options.high_order
        self.orders = {name: "low" if name in low else "high" if name in high else "" for name in self.functions}
        self.chains, self.chain_reason = self._chains(steps)
        flat = [step_ids(model, step) for own in self.steps.values() for step in own.steps]
        flat += [step_ids(model, step) for chain in self.chains for step in chain]
        prefix = flat[0][: common_prefix_length(flat)] if flat else ()
        longest = max(map(len, flat), default=0) + limit * max([len(chain) for chain in self.chains], default=1)
        decoder = PrefixCachedDecoder(model, prefix, longest=longest, where=options.where, batch=options.batch)
        self.prompter = Prompter(model, decoder, limit)

    def _chains(self, steps: Steps) -> tuple[list[tuple[Step, ...]], str]:
        """Held-out questions with a low-order step before a high-order one; or why there are none."""
        options = self.options
        low, high = ({name for name, order in self.orders.items() if order == which} for which in ("low", "high"))
        if not options.chains:
            return [], "no whole questions were requested"
        if not any(self.heads.ranked[name] for name in low) or not high:
            return [], "no function with a map is known to be of low order, or none of high order"
        taken = {head for name in low for head in self.heads.most_important(name, options.size)}
        if len(self.heads.all) - len(taken) < options.size:
            return [], f"fewer than {options.size} heads are outside the heads of all low-order functions"
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
        options, steps = self.options, self.steps[name]
        trials = masking_trials(self.heads, name, steps, options)
        if options.augmented_steps:
            trials += augmenting_trials(self.heads, self.maps, name, steps, options)
        flat = [(condition, index, change) for condition, indices, change in trials for index in indices]
        right = self.prompter.answer(steps.steps, [(index, change) for _, index, change in flat])
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
        """One row per step of a chain and condition: 0 nothing masked, then low-order functions, then random draws."""
        size = self.options.size
        low = [name for name in self.functions if self.orders[name] == "low" and self.heads.ranked[name]]
        own = [self.heads.most_important(name, size) for name in low]
        draws = [order[:size] for order in self.heads.random_orders(own, self.options.chain_draws, "chains")]
        changes = [HeadChange(self.heads.factors(heads)) for heads in ([], *own, *draws)]
        found = self.prompter.answer_chains(self.chains, changes) if self.chains else []
        names = ["", *low, *("random" for _ in draws)]
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
