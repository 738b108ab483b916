"""Does the model need a function's heads for it? Heads masked and strengthened while it answers, against random heads.

- **Masking.** The function's n most important heads are scaled by 1e-3 from the last prompt token on (where an answer
  is made; `where`: on decode steps alone as published, or everywhere), for n of a sweep, and held-out steps that the whole
  model does are asked again. Control: as many random heads outside the set, several draws.
- **Cross-masking.** At one n, the heads of every function on the steps of every other: are they needed for this alone?
- **Augmenting.** amount x (one deviation towards right answers), from training steps, added to the heads; on held-out steps,
  done or not. Control: random directions of the same length in the same heads.
- **Hierarchy.** Whole questions with the model's own answers fed on, a low-order function masked: what becomes of the
  high-order steps? Control: random heads.

Answers are judged against the right answer, without knowing the function or the change; "the same as before" is no
criterion. After Ma et al. (arXiv 2512.10978), whose random heads are drawn once.

Cost: see `asking` and `hierarchy`. Functions whose map was refused, or of which the whole model
does too few steps, are not judged, and it is said why.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import xarray as xr

from headwise.core.dims import EXAMPLE, FUNCTION
from headwise.core.errors import DataError, StudyError
from headwise.core.provenance import Provenance
from headwise.corpora import HELD_OUT, HIGH_ORDER, LOW_ORDER, Step, Steps, step_ids
from headwise.engines import Shard
from headwise.model import Model
from headwise.studies.decoding import PrefixCachedDecoder, common_prefix_length
from headwise.studies.function_masking.asking import Change, Desk
from headwise.studies.function_masking.evidence import to_dataset
from headwise.studies.function_masking.hierarchy import run_chains
from headwise.studies.function_masking.plan import Asked, asked_of, augmentations, maskings
from headwise.studies.function_masking.sets import Sets
from headwise.studies.function_masking.spec import SPEC, FunctionMaskingOptions
from headwise.studies.inputs import StudyInputs
from headwise.studies.run import StudyRun


def _rising(values: Sequence[Any], kind: type) -> tuple[Any, ...]:
    """The values as numbers (from a command line they are texts); nothing where they do not rise."""
    try:
        found = tuple(kind(value) for value in values)
    except ValueError:
        return ()
    return found if list(found) == sorted(set(found)) else ()


def prepare(model: Model, inputs: StudyInputs, options: FunctionMaskingOptions | None = None) -> StudyRun:
    """The proof of `maps` (the Dataset of the study `functions`), made from these steps on this model."""
    options = options or FunctionMaskingOptions()
    steps, maps = inputs.steps, inputs.maps["functions"]
    if not isinstance(model, Model):
        raise StudyError(f"{SPEC.name} runs the model, and {model.id} was only opened; load it")
    origin = Provenance.from_attrs(maps.attrs)
    if origin.data.get("digest") != steps.digest:
        raise DataError(
            f"the map of functions was made from {origin.data.get('name')} ({origin.data.get('digest')}), and these are "
            f"{steps.name} ({steps.digest}); give the same steps, or make the map anew with --redo functions"
        )
    work = Masking(model, steps, maps, options, limit=int(origin.parameters["max_new_tokens"]))
    data = {"name": steps.name, "size": len(work.asked), "digest": origin.key()}
    parameters = {key: value for key, value in asdict(options).items() if key != "seed"}
    provenance = Provenance(SPEC.name, SPEC.version, model.identity(), data, parameters, options.seed)

    def conclude(shards: Sequence[xr.Dataset]) -> dict[str, xr.Dataset]:
        return {SPEC.name: to_dataset(shards, maps, work.sets, options, work.orders, work.chain_reason)}

    return StudyRun(provenance, len(work.functions) + 1, 1, work.measure, conclude)


class Masking:
    """A model, its functions' heads in order, and the held-out steps that are asked again."""

    def __init__(self, model: Model, steps: Steps, maps: xr.Dataset, options: FunctionMaskingOptions, limit: int):
        self.options, self.maps = options, maps
        self.functions = [str(name) for name in maps[FUNCTION].values]
        self.sets = Sets(maps, factor=options.factor, seed=options.seed)
        if max(options.heads) * 2 > len(self.sets.everyone):
            raise StudyError(
                f"{max(options.heads)} heads were to be masked, and as many random ones beside them, of the "
                f"{len(self.sets.everyone)} that {model.id} has; give smaller numbers, such as "
                f"function_masking.heads={len(self.sets.everyone) // 4} with function_masking.size the same"
            )
        by_id = {step.id: step for step in steps}
        sizes = (options.items, options.failed, options.mixed)
        self.asked = {name: asked_of(maps, by_id, name, sizes, options.seed) for name in self.functions}
        self.orders = _orders(self.functions, options)
        self.chains, self.chain_reason = self._chains(steps)
        flat = [step_ids(model, step) for asked in self.asked.values() for step in asked.steps]
        flat += [step_ids(model, step) for chain in self.chains for step in chain]
        beginning = flat[0][: common_prefix_length(flat)] if flat else ()
        longest = max(map(len, flat), default=0) + limit * max([len(chain) for chain in self.chains], default=1)
        decoder = PrefixCachedDecoder(model, beginning, longest=longest, where=options.where, batch=options.batch)
        self.desk = Desk(model, decoder, limit)

    def _chains(self, steps: Steps) -> tuple[list[tuple[Step, ...]], str]:
        """Held-out questions with a low-order step before a high-order one; or why there are none."""
        low, high = ({name for name, order in self.orders.items() if order == which} for which in ("low", "high"))
        if not self.options.chains:
            return [], "no whole questions were asked for"
        if not any(self.sets.ranked[name] for name in low) or not high:
            return [], "no function with a map is known to be of low order, or none of high order"
        size, taken = self.options.size, {head for name in low for head in self.sets.own(name, self.options.size)}
        if len(self.sets.everyone) - len(taken) < size:
            return [], f"fewer than {size} heads are outside the heads of all low-order functions"
        there = set(self.maps[EXAMPLE].values.astype(str))
        fit = [
            chain
            for chain in steps.split(HELD_OUT).chains().values()
            if all(step.id in there for step in chain) and _climbs([step.function for step in chain], low, high)
        ]
        if not fit:
            return [], "no held-out question has a high-order step after a low-order one"
        order = np.random.default_rng([self.options.seed, 4]).permutation(len(fit))
        return [fit[place] for place in order[: self.options.chains]], ""

    def measure(self, shard: Shard) -> xr.Dataset:
        """One function; or, after them all, the hierarchy."""
        if shard.start < len(self.functions):
            return self._function(self.functions[shard.start])
        return self._hierarchy()

    def _function(self, name: str) -> xr.Dataset:
        """Whether each step is right under each change, 1 or 0, in one row a job."""
        options, asked = self.options, self.asked[name]
        trials = maskings(self.sets, name, asked, options.heads, options.size, options.draws)
        if options.mixed:
            trials += augmentations(self.sets, self.maps, name, asked, options.amounts, options.size, options.turned)
        jobs = [(key, place, change) for key, places, change in trials for place in places]
        right = self.desk.ask(asked.steps, [(place, change) for _, place, change in jobs])
        return _table(jobs, right, asked)

    def _hierarchy(self) -> xr.Dataset:
        """(condition, step) of all chains, one row each: 0 nothing masked, then low functions, then draws."""
        low = [name for name in self.functions if self.orders[name] == "low" and self.sets.ranked[name]]
        size = self.options.size
        own = [self.sets.own(name, size) for name in low]
        draws = [order[:size] for order in self.sets.outside(own, self.options.chain_draws, "chains")]
        changes = [Change(self.sets.factors(heads)) for heads in ([], *own, *draws)]
        found = run_chains(self.desk, self.chains, changes) if self.chains else []
        names = ["", *low, *("random" for _ in draws)]
        rows = [
            (name, condition, step.function, bool(right[condition, number]))
            for chain, right in zip(self.chains, found, strict=True)
            for number, step in enumerate(chain)
            for condition, name in enumerate(names)
        ]
        columns = list(zip(*rows, strict=True)) or [(), (), (), ()]
        return xr.Dataset(
            {
                "masked_of": (EXAMPLE, np.array(columns[0], dtype=object)),
                "condition": (EXAMPLE, np.array(columns[1], dtype=np.int64)),
                "function_of": (EXAMPLE, np.array(columns[2], dtype=object)),
                "right": (EXAMPLE, np.array(columns[3], dtype=bool)),
                "chains": len(self.chains),
            }
        )


def _orders(functions: Sequence[str], options: FunctionMaskingOptions) -> dict[str, str]:
    """Function -> low, high, or nothing."""
    low = LOW_ORDER if options.low is None else options.low
    high = HIGH_ORDER if options.high is None else options.high
    return {name: "low" if name in low else "high" if name in high else "" for name in functions}


def _climbs(functions: Sequence[str], low: set[str], high: set[str]) -> bool:
    """Whether a high-order step stands after a low-order one."""
    first = next((place for place, name in enumerate(functions) if name in low), len(functions))
    return any(name in high for name in functions[first:])


def _table(jobs: Sequence[tuple[Any, int, Any]], right: np.ndarray, asked: Asked) -> xr.Dataset:
    """One row a job: what was done (kind, heads, which), to which step, and whether it was right then."""
    keys = [key for key, _, _ in jobs]
    return xr.Dataset(
        {
            "kind": (EXAMPLE, np.array([key[0] for key in keys], dtype=object)),
            "count": (EXAMPLE, np.array([key[1] for key in keys], dtype=np.int64)),
            "which": (EXAMPLE, np.array([key[2] for key in keys], dtype=np.int64)),
            "step": (EXAMPLE, np.array([place for _, place, _ in jobs], dtype=np.int64)),
            "done": (EXAMPLE, np.array([place in set(asked.done) for _, place, _ in jobs], dtype=bool)),
            "right": (EXAMPLE, right.astype(bool)),
            "tried": asked.tried,
            "solved": asked.right,
            "asked": len(asked.done),
            "wrong_asked": len(asked.failed),
            "augment_asked": len(asked.mixed),
        }
    )
