"""The masking study in words: does the model need a function's heads, and for that function only?

A drop in accuracy is called significant only where its whole 95 % confidence interval is above 0, at least five steps were
answered, and the function's set ranks among the first 5 % of its control sets; "does not replicate" only where the published
drop lies outside the interval. Every number is recorded with its source in `Description.numbers`: "own 16 of
Retrieval" is the accuracy with 16 heads masked.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import xarray as xr

from headwise.core.dims import AMOUNT, DRAW, FUNCTION, MASKED, REMOVED
from headwise.describe.narrative import Narrative
from headwise.describe.phrases import best, model_of, with_interval
from headwise.describe.writer import Writer, listed
from headwise.stats.multiple_testing import ALPHA
from headwise.studies.function_masking.figure import MIN_STEPS, control, detectable, where_masked
from headwise.studies.functions.words import FunctionAccessor

FEW_STEPS = 50  # below, an accuracy is called coarse
PUBLISHED = {
    "Retrieval": 0.765,
    "Math Calculation": 0.169,
    "Inference": 0.176,
    "Logical Reasoning": 0.5,
}  # Llama-3.1-8B


class MaskingAccessor(FunctionAccessor):
    """The parts of a masking Dataset by name."""

    def __init__(self, dataset: xr.Dataset) -> None:
        super().__init__(dataset, "function_masking")
        self.masked = [name for name in self.functions if not self.of("reason", name)]
        self.augmented = [name for name in self.functions if not self.of("augment_reason", name)]
        self.tested = [name for name in self.masked if int(self.of("masked_steps", name)) >= MIN_STEPS]
        self.control = control(dataset)  # in words
        self.ranked = "rank_p" in dataset  # not by older versions
        self.needed = [name for name in self.tested if self.of("mean_effect_low", name) > 0 and self._is_first(name)]
        self.amounts = [float(amount) for amount in dataset[AMOUNT].values]
        self.size = int(dataset.attrs["size"])

    def _is_first(self, function: str) -> bool:
        return not self.ranked or self.of("mean_rank_p", function) < ALPHA

    def at(self, variable: str, function: str, step: float) -> float:
        """A point of a curve: at a number of heads, or at an amount."""
        dim = REMOVED if REMOVED in self.dataset[variable].dims else AMOUNT
        return float(self.dataset[variable].sel({FUNCTION: function, dim: step}))

    def cell(self, variable: str, masked: str, function: str) -> float:
        """A cell of a matrix."""
        return float(self.dataset[variable].sel({MASKED: masked, FUNCTION: function}))

    def known_sizes(self, function: str) -> list[int]:
        """The numbers of heads at which the function was masked."""
        counts = [int(count) for count in self.dataset[REMOVED].values]
        return [count for count in counts if np.isfinite(self.at("own", function, count))]

    def known_amounts(self, function: str) -> list[float]:
        """The amounts above 0 at which the function was augmented."""
        return [one for one in self.amounts[1:] if np.isfinite(self.at("augmented", function, one))]

    def raising_amounts(self, function: str) -> list[float]:
        """The amounts at which accuracy rises significantly, over nothing added and over random directions."""
        ends = ("gain_low", "gain_over_random_low")
        return [one for one in self.known_amounts(function) if all(self.at(end, function, one) > 0 for end in ends)]


def _at(writer: Writer, data: MaskingAccessor, variable: str, name: str, step: float) -> str:
    return with_interval(writer, lambda key: data.at(key, name, step), variable, f"{step:g} of {name}")


def _verdict(data: MaskingAccessor, low: float, high: float, p: float) -> str:
    if low > 0 and (p < ALPHA or not data.ranked):
        return f"significantly more than with {data.control}"
    more = "significantly less" if high < 0 else "not significantly more"
    return f"{more} than with {data.control}"


# ---- overview, axes, caveats ----------------------------------------------------------------------------------------


def _overview(writer: Writer, data: MaskingAccessor) -> Iterator[str]:
    factor = writer.number(float(data.dataset.attrs["factor"]), "factor")
    counts = listed(writer.number(int(count), "constant") for count in data.dataset[REMOVED].values)
    draws = writer.count(data.dataset.sizes[DRAW], "draws")
    against = f"{draws} draws of as many random heads outside the set"
    if data.ranked:
        against = (
            f"up to {draws} control sets with as many heads in every layer, near in the norm of what they write and "
        )
        against += "outside the set"
    yield (
        f"What {model_of(data)} still answers correctly when a function's most important heads are masked (multiplied by "
        f"{factor} {where_masked(data.dataset)}): {counts} heads, against {against}, on held-out steps that the intact model "
        "solves."
    )
    masked = writer.count(len(data.masked), "masked", "function")
    yield f"{masked} of {writer.count(len(data.functions), 'functions')} were masked."
    if name := data.data.get("name"):
        yield f"The steps are those of '{name}'."


def _axes(writer: Writer, data: MaskingAccessor) -> Iterator[str]:
    yield (
        f"The drop is the accuracy with {data.control} masked minus the accuracy with the function's heads masked; ranges in "
        "brackets are 95 % confidence intervals. An answer is right if it matches the correct answer, whatever the intact "
        "model answers."
    )
    yield (
        f"In the matrix, rows are functions whose {writer.count(data.size, 'size', 'head')} are masked, columns functions "
        "whose steps are answered. Augmenting adds to each head the direction from wrong to correct answers, alpha standard "
        "deviations long."
    )


def _caveats(writer: Writer, data: MaskingAccessor) -> Iterator[str]:
    counts = [int(data.of("masked_steps", name)) for name in data.masked]
    if min(counts, default=FEW_STEPS) < FEW_STEPS:
        yield f"Some accuracies are over only {writer.count(min(counts), 'fewest', 'step')}."
    yield (
        "Only steps that the intact model solves are answered with heads masked, so a change can only lower the accuracy; the "
        f"{data.control} show by how much. Intervals cover other steps and other {data.control}, not another ranking of the "
        "heads, and are not corrected for the number of functions, numbers of heads and amounts."
    )
    if data.ranked:
        ratios = data.dataset["norm_ratio"].values
        if np.isfinite(ratios).any():
            ends = (np.nanmin, np.nanmax)
            low, high = (writer.fixed(float(end(ratios)), f"{end.__name__} norm_ratio") for end in ends)
            yield (
                f"What control sets write has {low} to {high} times the norm of what the functions' heads write. At most half "
                "of a layer's heads are masked, so that others are left to compare with."
            )
    else:
        yield (
            "An older version of the study made this: heads were ranked on the steps that are masked, and random heads are of "
            "any layer, so that a drop may be due to depth alone; build it again with --redo functions,function_masking."
        )
    left_out = [f"{name} ({reason})" for name in data.functions if (reason := data.of("reason", name))]
    if left_out:
        yield f"Not masked: {listed(left_out)}."
    yield "This is one model on one set of steps."


def _headline(writer: Writer, data: MaskingAccessor) -> str:
    total = writer.count(len(data.masked), "masked", "function")
    first = f"Accuracy of {model_of(data)} with a function's heads masked."
    if not data.masked:
        return f"{first} No function could be masked."
    if not data.needed:
        seen = ""
        if data.tested:
            loss = with_interval(writer, data.overall, "pooled_mean_effect")
            seen = f"; over all together the drop is {loss}"
        return f"{first} Of {total} none loses significantly more than with {data.control}{seen}."
    count, verb = writer.count(len(data.needed), "needed"), "loses" if len(data.needed) == 1 else "lose"
    found = f"Of {total} {count} {verb} more than with {data.control} (95 % intervals, not corrected)"
    return f"{first} {found}: {listed(data.needed)}."


# ---- one entry per function -----------------------------------------------------------------------------------------


def _details(writer: Writer, data: MaskingAccessor) -> Iterator[str]:
    for name in data.functions:
        if name in data.masked:
            parts = [f"{name}: {_steps(writer, data, name)} {_curve(writer, data, name)}"]
            parts += [_loss(writer, data, name), _spill(writer, data, name), _recovered(writer, data, name)]
        else:
            parts = [f"{name} was not masked: {data.of('reason', name)}."]
        parts.append(_augmented(writer, data, name))
        yield " ".join(filter(None, parts))


def _steps(writer: Writer, data: MaskingAccessor, name: str) -> str:
    keys = ("solved_steps", "held_out_steps", "masked_steps")
    solved, held_out, masked = (writer.count(int(data.of(key, name)), f"{key} of {name}") for key in keys)
    verb = "is" if int(data.of("masked_steps", name)) == 1 else "are"
    return (
        f"the intact model solves {solved} of {held_out} held-out steps, {data.interval_of(writer, 'intact', name)}; {masked} "
        f"of them {verb} answered again."
    )


def _curve(writer: Writer, data: MaskingAccessor, name: str) -> str:
    known = data.known_sizes(name)
    if not known:
        return ""
    parts = []
    for count in dict.fromkeys((known[0], known[len(known) // 2], known[-1])):
        heads = writer.count(count, f"removed {count}", "head")
        own, random = (writer.fixed(data.at(key, name, count), f"{key} {count} of {name}") for key in ("own", "random"))
        parts.append(f"{own} with {heads} masked ({data.control}: {random})")
    return f"Of these it still solves {listed(parts)}."


def _loss(writer: Writer, data: MaskingAccessor, name: str) -> str:
    low, high = data.of("mean_effect_low", name), data.of("mean_effect_high", name)
    if not math.isfinite(low):
        return ""
    text = f"The drop is {data.interval_of(writer, 'mean_effect', name)}, averaged over all numbers of heads: "
    if name not in data.tested:
        return f"{text}too few steps for a conclusion."
    p = float(data.of("mean_rank_p", name)) if data.ranked else math.nan
    text += _verdict(data, low, high, p)
    if data.ranked:
        q = writer.number(float(data.of("mean_rank_q", name)), f"mean_rank_q of {name}", digits=2)
        rank = writer.number(p, f"mean_rank_p of {name}", digits=2)
        text += f" (the rank of the function's set gives p = {rank}, over all functions q = {q})"
    single = [count for count in data.known_sizes(name) if data.at("effect_low", name, count) > 0]
    if single:
        counts = listed(writer.number(count, f"removed {count}") for count in single)
        text += f"; for single numbers of heads, the interval is above zero at {counts}"
    return f"{text}."


def _spill(writer: Writer, data: MaskingAccessor, name: str) -> str:
    if not math.isfinite(data.of("spill", name)):
        return ""
    size = writer.count(data.size, "size", "head")
    return f"With its {size} masked, the steps of other functions lose {data.interval_of(writer, 'spill', name)}."


def _recovered(writer: Writer, data: MaskingAccessor, name: str) -> str:
    own, random = (data.of(f"recovered_{key}", name) for key in ("own", "random"))
    count = int(data.of("failed_steps", name))
    if not (count and math.isfinite(own) and math.isfinite(random)):
        return ""
    steps = writer.count(count, f"failed_steps of {name}", "step")
    return (
        f"Of {steps} that the intact model fails, a share of {writer.fixed(own, f'recovered_own of {name}')} is then correct "
        f"({data.control}: {writer.fixed(random, f'recovered_random of {name}')})."
    )


def _augmented(writer: Writer, data: MaskingAccessor, name: str) -> str:
    if name not in data.augmented:
        return f"Not augmented: {data.of('augment_reason', name)}." if name in data.masked else ""
    amounts = data.known_amounts(name)
    if not amounts:
        return ""
    first = best({one: data.at("gain", name, one) for one in amounts})
    zero = writer.fixed(data.at("augmented", name, data.amounts[0]), f"augmented {data.amounts[0]:g} of {name}")
    if not first or data.at("gain", name, first[0]) <= 0:
        return f"Augmenting by any of the amounts does not raise its accuracy from {zero}."
    alpha = listed(writer.number(amount, "constant") for amount in first)
    how_well = "equally well" if len(first) > 1 else "best"
    random = listed(_at(writer, data, "gain_over_random", name, amount) for amount in first)
    return (
        f"Augmenting works {how_well} with alpha {alpha}: accuracy changes from {zero} by "
        f"{_at(writer, data, 'gain', name, first[0])}, and compared with random directions by {random}."
    )


# ---- observations ---------------------------------------------------------------------------------------------------


def _needed(writer: Writer, data: MaskingAccessor) -> str:
    if not data.masked:
        return ""
    total = writer.count(len(data.masked), "masked", "function")
    text = f"In none of {total} does masking the function's heads cost significantly more than masking {data.control}."
    if data.needed:
        count = writer.count(len(data.needed), "needed")
        text = (
            f"Masking a function's heads costs its steps significantly more than masking {data.control} in {count} of {total}: "
            f"{listed(data.needed)}."
        )
    less = [name for name in data.tested if data.of("mean_effect_high", name) < 0]
    if less:
        text += f" It costs significantly less in {writer.count(len(less), 'spared')}: {listed(less)}."
    return text


def _power(writer: Writer, data: MaskingAccessor) -> str:
    """What the steps could have shown."""
    found = dict(zip(data.tested, detectable(data.dataset.sel({FUNCTION: data.tested})), strict=True))
    found = {name: value for name, value in found.items() if math.isfinite(value)}
    if not found:
        return ""
    low, high = (
        f"{writer.fixed(found[names[0]], f'detectable of {names[0]}')} ({listed(names)})"
        for names in (best(found, smallest=True), best(found))
    )
    return f"The smallest drop that these steps and sets show with 80 % power is {low} to {high}."


def _published(writer: Writer, data: MaskingAccessor) -> str:
    """The published drops: not replicated only where they lie outside the interval."""
    rows = []
    for name in (name for name in PUBLISHED if name in data.tested):
        low, high = data.of("mean_effect_low", name), data.of("mean_effect_high", name)
        inside = low <= PUBLISHED[name] <= high
        shown = "replicated" if inside and name in data.needed else "not shown" if inside else "not replicated"
        if not inside and name in data.needed:
            shown = "of another size"
        rows.append(f"{name} {writer.number(PUBLISHED[name], 'constant')} ({shown})")
    if not rows:
        return ""
    return (
        "The published drops in another model, compared with random heads of any layer, are "
        f"{listed(rows)}; not shown: the interval includes both no drop and the published one, or the rank is not among the "
        "first."
    )


def _pooled(writer: Writer, data: MaskingAccessor) -> str:
    low, high = (data.overall(f"pooled_mean_effect_{end}") for end in ("low", "high"))
    if not math.isfinite(low):
        return ""
    loss = with_interval(writer, data.overall, "pooled_mean_effect")
    p = data.overall("pooled_rank_p") if data.ranked else math.nan
    rank = f" (rank: p = {writer.number(p, 'pooled_rank_p', digits=2)})" if math.isfinite(p) else ""
    verdict = _verdict(data, low, high, p)
    return f"Over the steps of all functions together, the drop is {loss}{rank}: {verdict}."


def _specific(writer: Writer, data: MaskingAccessor) -> str:
    if not data.needed:
        return ""
    own = {name: data.cell("cross_effect_low", name, name) for name in data.needed}
    names = [name for name in data.needed if own[name] > data.of("spill_high", name)]  # the intervals do not overlap
    if names:
        count, named = writer.count(len(names), "specific"), listed(names)
        return f"In {count} of these, the function's own steps lose significantly more than other steps: {named}."
    spill = [name for name in data.needed if data.of("spill_low", name) > 0]
    also = f" The others' steps lose significantly with the heads of {listed(spill)}." if spill else ""
    return (
        f"At {writer.count(data.size, 'size', 'head')}, in none of these do the function's own steps lose significantly more "
        f"than those of the others.{also}"
    )


def _matrix(writer: Writer, data: MaskingAccessor) -> str:
    own = [value for name in data.masked if np.isfinite(value := data.cell("cross_effect", name, name))]
    pairs = [(one, other) for one in data.masked for other in data.functions if one != other]
    others = [value for one, other in pairs if np.isfinite(value := data.cell("cross_effect", one, other))]
    if not own or not others:
        return ""
    lows = [data.cell("cross_effect_low", a, b) for a in data.masked for b in data.tested if a != b]
    largest, tied = 0, 0
    for name in data.masked:
        first = best({other: data.cell("cross_effect", name, other) for other in data.functions})
        largest, tied = largest + (first == [name]), tied + (name in first and len(first) > 1)
    diagonal = f"{writer.count(largest, 'tops')} of {writer.count(len(own), 'rows', 'row')}"
    if tied:
        diagonal += f", and tied with the largest in {writer.count(tied, 'tied-tops')}"
    return (
        f"In the matrix, at {writer.count(data.size, 'size', 'head')}, a function's own steps lose "
        f"{writer.fixed(float(np.mean(own)), 'mean-own')} on average beyond {data.control}, and those of the others "
        f"{writer.fixed(float(np.mean(others)), 'mean-others')}; this drop is the largest of its row in {diagonal}. Off the "
        f"diagonal, {writer.count(sum(low > 0 for low in lows), 'sure-others')} of "
        f"{writer.count(len(lows), 'cells-others', 'cell')} (those with enough steps) have an interval above zero."
    )


def _overlap(writer: Writer, data: MaskingAccessor) -> str:
    shares = [data.cell("overlap", one, other) for one in data.masked for other in data.masked if one != other]
    if not np.isfinite(shares).any():
        return ""
    return f"Two functions share {writer.percent(float(np.nanmean(shares)), 'overlap')} of these heads on average."


def _raised(writer: Writer, data: MaskingAccessor) -> str:
    if not data.augmented:
        return ""
    total = writer.count(len(data.augmented), "augmented", "function")
    raised = {name: amounts for name in data.augmented if (amounts := data.raising_amounts(name))}
    rule = "significantly over both nothing added and random directions"
    if not raised:
        return f"Augmenting raises the accuracy of none of {total} {rule}."
    rows = []
    for name, amounts in raised.items():
        first = best({one: data.at("gain", name, one) for one in amounts})
        alpha = listed(writer.number(amount, "constant") for amount in first)
        rows.append(f"{name} (alpha {alpha}: {_at(writer, data, 'gain', name, first[0])})")
    return f"Augmenting raises the accuracy of {writer.count(len(raised), 'raised')} of {total} {rule}: {listed(rows)}."


def _hierarchy(writer: Writer, data: MaskingAccessor) -> str:
    names = [name for name in data.functions if np.isfinite(data.of("chain_effect", name))]
    if not names:
        reason = str(data.dataset.attrs["chain_reason"])
        return f"The hierarchy was not tested: {reason}." if reason else ""
    chains = writer.count(int(data.dataset.attrs["chains"]), "chains", "whole question")
    rows = (f"{name} {data.interval_of(writer, 'chain_effect', name)}" for name in names)
    text = f"In {chains}, the drop in high-order steps with a low-order function masked: {listed(rows)}"
    significant = [name for name in names if data.of("chain_effect_low", name) > 0]
    return f"{text}; significant for {listed(significant) if significant else 'none'}."


describe = Narrative(
    "Accuracy without a function's heads",
    MaskingAccessor,
    (
        _overview,
        _axes,
        _details,
        (_needed, _power, _published, _pooled, _specific, _matrix, _overlap, _raised, _hierarchy),
        _caveats,
    ),
    _headline,
)
