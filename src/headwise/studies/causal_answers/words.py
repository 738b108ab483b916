"""The study in words: which heads and sets change what, beyond matched heads, and what these numbers could have shown."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import xarray as xr

from headwise.core.dims import HEAD, HEAD_SET, LAYER, MEASURE, head_name
from headwise.describe.narrative import Narrative
from headwise.describe.phrases import Accessor, model_of
from headwise.describe.writer import Writer, listed
from headwise.stats.multiple_testing import ALPHA
from headwise.studies.causal_answers.figure import chosen_heads

SET_NAMES = {
    "needed": "the heads that the loss needs most",
    "detector": "the heads with the largest weight in the detector",
}
MAX_NAMED = 3


class CausalAnswersAccessor(Accessor):
    """Measures that were taken, and the heads that were chosen."""

    def __init__(self, dataset: xr.Dataset) -> None:
        super().__init__(dataset.transpose(MEASURE, LAYER, HEAD, HEAD_SET))
        self.chosen = chosen_heads(dataset)
        self.measures = [str(name) for name in dataset[MEASURE].values if int(dataset["n"].sel({MEASURE: name}))]
        self.sets = [
            str(name) for name in dataset[HEAD_SET].values if str(dataset["heads"].sel({HEAD_SET: name}).values)
        ]

    def of(self, variable: str, measure: str) -> float:
        return float(self.dataset[variable].sel({MEASURE: measure}))

    def head(self, variable: str, measure: str, cell: tuple[int, int]) -> float:
        return float(self.dataset[variable].sel({MEASURE: measure}).values[cell])

    def label(self, measure: str) -> str:
        return str(self.dataset["label"].sel({MEASURE: measure}).values)

    def found(self, measure: str, variable: str = "q") -> list[tuple[int, int]]:
        """The chosen heads whose change (or excess) has q < 0.05, the largest first."""
        part = "change" if variable == "q" else "excess"
        passed = [cell for cell in self.chosen if self.head(variable, measure, cell) < ALPHA]
        return sorted(passed, key=lambda cell: -abs(self.head(part, measure, cell)))


def _overview(writer: Writer, one: CausalAnswersAccessor) -> Iterator[str]:
    heads, where = writer.count(len(one.chosen), "chosen", "head"), one.dataset.attrs["where"]
    yield (
        f"What {model_of(one)}, and detectors of its wrong answers, lose when the output of a head is replaced by its mean: "
        f"{heads}, chosen because the loss needs them or because a detector on attention reads them."
    )
    if "correct" in one.measures:
        asked = writer.count(int(one.of("n", "correct")), "n correct", "question")
        begin = "the last prompt token on" if where == "answer" else "the first token on"
        yield f"{asked[0].upper()}{asked[1:]} were answered again, with heads ablated from {begin}."
    else:
        yield f"No question was answered again: {one.dataset.attrs['not_asked']}."
    read = writer.count(int(one.of("n", "detector")), "n detector", "answer")
    strata = writer.count(int(one.dataset.attrs["n_strata"]), "n_strata")
    yield (
        f"Detectors score {read} of the intact model, as many wrong as correct ones in every stratum of similar questions "
        f"({one.dataset.attrs['strata']}, {strata} of them), and are fitted on answers of other strata."
    )


def _axes(writer: Writer, one: CausalAnswersAccessor) -> Iterator[str]:
    yield (
        "Values are changes: below 0, less without the head. Ranges in brackets are 95 % intervals, paired by question or "
        "answer; matched heads are of the same layers and write about as much."
    )


def _details(writer: Writer, one: CausalAnswersAccessor) -> Iterator[str]:
    for name in one.measures:
        ends = (writer.fixed(one.of(f"intact{end}", name), f"intact{end} {name}") for end in ("", "_low", "_high"))
        value, low, high = ends
        text = f"{one.dataset['definition'].sel({MEASURE: name}).values}: {value} ({low} to {high}) with all heads"
        changed = one.found(name)
        if changed:
            count = writer.count(len(changed), f"changed {name}", "head")
            text += f"; it changes without {count} at q < 0.05: {_named(writer, one, name, changed, 'change')}"
        else:
            text += "; it changes without none of the heads at q < 0.05"
        beyond = one.found(name, "excess_q")
        if beyond:
            text += f"; beyond matched heads, without {_named(writer, one, name, beyond, 'excess')}"
        parts = [_set(writer, one, name, key) for key in one.sets]
        yield f"{text[0].upper()}{text[1:]}. {' '.join(filter(None, parts))}".strip()


def _named(writer: Writer, one: CausalAnswersAccessor, name: str, cells: list[tuple[int, int]], part: str) -> str:
    texts = []
    for cell in cells[:MAX_NAMED]:
        values = (one.head(f"{part}{end}", name, cell) for end in ("", "_low", "_high"))
        value, low, high = (writer.fixed(v, f"{part} {name} {head_name(*cell)}") for v in values)
        texts.append(f"{head_name(*cell)} ({value}, {low} to {high})")
    return listed(texts)


def _set(writer: Writer, one: CausalAnswersAccessor, name: str, key: str) -> str:
    row = one.dataset.sel({MEASURE: name, HEAD_SET: key})
    if not np.isfinite(float(row["set_excess"])):
        return ""
    value, low, high = (
        writer.fixed(float(row[f"set_change{end}"]), f"set_change{end} {name} {key}") for end in ("", "_low", "_high")
    )
    excess, q = (
        writer.fixed(float(row["set_excess"]), f"set_excess {name} {key}"),
        writer.number(float(row["set_excess_q"]), f"set_excess_q {name} {key}", digits=2),
    )
    return (
        f"Without all of {SET_NAMES.get(key, key)}: {value} ({low} to {high}), beyond matched sets {excess} (q = {q})."
    )


def _observations(writer: Writer, one: CausalAnswersAccessor) -> Iterator[str]:
    beyond = {name: one.found(name, "excess_q") for name in one.measures}
    some = [name for name, cells in beyond.items() if cells]
    if some:
        parts = [f"{one.label(name)} ({writer.count(len(beyond[name]), f'beyond {name}', 'head')})" for name in some]
        yield f"Beyond matched heads (q < 0.05), single heads change {listed(parts)}."
    else:
        yield "No single head changes any of these more than its matched heads do (q < 0.05)."
    sets = [
        f"{SET_NAMES.get(key, key)} for {one.label(name)}"
        for name in one.measures
        for key in one.sets
        if float(one.dataset["set_excess_q"].sel({MEASURE: name, HEAD_SET: key})) < ALPHA
    ]
    yield (
        f"Together, beyond matched sets (q < 0.05): {listed(sets)}."
        if sets
        else "Together, neither kind of heads changes any of these more than matched sets do (q < 0.05)."
    )
    power = [
        f"{writer.fixed(one.of('detectable', name), f'detectable {name}')} ({one.label(name)})"
        for name in one.measures
        if np.isfinite(one.of("detectable", name))
    ]
    if power:
        yield f"The smallest change without one head that these numbers show with 80 % power: {listed(power)}."


def _caveats(writer: Writer, one: CausalAnswersAccessor) -> Iterator[str]:
    yield (
        "A detector that loses nothing when it is refitted did not need the head: others tell the same. One that loses only "
        "while it is applied was disturbed by the change, which need not concern errors."
    )
    yield (
        "Heads with a large weight were chosen on these answers, and so was the probe's layer: the level of the intact AUROC "
        "is slightly too high, and a loss may in part be the return to the mean. Matched heads show that part only where they "
        "were weighed as much; the refitted detector does not have it."
    )
    if "correct" in one.measures and one.dataset.attrs["where"] == "answer":
        yield "The prompt was read by the intact model; what heads do for reading it is not in the share of correct answers."
    yield "Heads are ablated one at a time or a few together: heads whose work others take over show no effect."


def _headline(writer: Writer, one: CausalAnswersAccessor) -> str:
    heads = writer.count(len(one.chosen), "chosen", "head")
    some = [one.label(name) for name in one.measures if one.found(name, "excess_q")]
    first = f"{model_of(one)} without {heads}, one at a time"
    if some:
        return f"{first}: {listed(some)} change more than without matched heads (q < 0.05)."
    return f"{first}: neither answers nor detectors of wrong answers change more than without matched heads (q < 0.05)."


describe = Narrative(
    "What answers and detectors lose without a head",
    CausalAnswersAccessor,
    (_overview, _axes, _details, _observations, _caveats),
    _headline,
)
