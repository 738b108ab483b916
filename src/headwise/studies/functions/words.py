"""The functions study in words: which heads carry which cognitive function, and how sure is that?

Overview, axes, caveats and the short form are here; the findings are in `findings`. Every number is computed
from the Dataset and kept, with what it is, in `Description.numbers`: "auroc of Retrieval" is that variable at that function.
"""

from __future__ import annotations

from headwise.describe.narrative import Narrative
from headwise.describe.phrases import best, model_of, size_of, with_interval
from headwise.describe.writer import Writer, listed
from headwise.studies.functions.accessor import FunctionsReading
from headwise.studies.functions.words_findings import add_details, add_observations

FEW = 50  # held-out steps of a function below which its intervals are called wide
HALF = 0.5  # of the steps answered right, below which a function's features are mostly of wrong answers


def _functions(writer: Writer, reading: FunctionsReading) -> str:
    return writer.count(len(reading.functions), "functions", "cognitive function")


def _add_overview(writer: Writer, reading: FunctionsReading) -> None:
    writer.add(
        "overview",
        f"Which attention heads of {model_of(reading)} ({size_of(writer, reading)}) carry which of "
        f"{_functions(writer, reading)}: how much each head matters to a probe that names the function of a step from what "
        "all heads put out while the model answers it.",
    )
    train, held_out = (
        writer.count(int(reading.dataset[split].sum()), f"all {split}") for split in ("train", "held_out")
    )
    writer.add(
        "overview",
        f"{writer.count(reading.steps(), 'steps', 'step')} of {writer.count(reading.chains(), 'chains', 'question')}, "
        f"{train} to learn from and {held_out} held out; the model answers {writer.percent(reading.right(), 'right')} of them "
        "right.",
    )
    if data := reading.origin.get("data", {}).get("name"):
        writer.add("overview", f"The steps are those of '{data}'.")
    if reading.left_out:
        writer.add("overview", f"Left out: {'; '.join(reading.left_out.values())}.")


def _add_axes(writer: Writer, reading: FunctionsReading) -> None:
    layers, heads, scale = reading.layers, reading.heads, reading.scale
    for edge in (layers[0], layers[-1], heads[0], heads[-1]):
        writer.number(edge, "edge")
    writer.add(
        "axes",
        f"One map a function: rows are layers, {layers[0]} (next to the embedding) at the top to {layers[-1]}; columns are "
        f"heads, {heads[0]} to {heads[-1]}.",
    )
    clipped = reading.clipped()
    beyond = "no cell lies beyond it"
    if clipped.count:
        share = writer.percent(clipped.share, "clipped-share")
        verb = "lies" if clipped.count == 1 else "lie"
        beyond = f"{writer.count(clipped.count, 'clipped', 'cell')} ({share}) {verb} beyond it and have its last colour"
    writer.add(
        "axes",
        f"All maps share one colour scale of head importance, from {writer.number(0, 'edge')} to "
        f"{writer.number(scale.high, 'cap')}; {beyond}.",
    )
    writer.add(
        "axes",
        "Importance is the gradient of the function's logit times the head's features, a mean over the function's held-out "
        f"steps and over {writer.count(reading.seeds, 'seeds', 'seed')}; the maps show its absolute value. Features are taken "
        f"at the key tokens: {reading.dataset.attrs['key_rule']}.",
    )
    if reading.refused:
        why = "the probe does not tell it from the others"
        writer.add("axes", f"A panel without a map stands for a function that is refused, because {why}.")


def _add_caveats(writer: Writer, reading: FunctionsReading) -> None:
    writer.add(
        "caveats",
        "Importance says which heads this probe reads a function from, not which heads the model needs for it: that is what "
        "masking tells. A function is a label on a kind of question, and heads that tell the kinds of questions apart may do "
        "so by their wording, their topic or the form of their answers.",
    )
    fewest = int(reading.dataset["held_out"].min())
    if fewest < FEW:
        writer.add(
            "caveats",
            f"The smallest function has {writer.count(fewest, 'fewest', 'held-out step')}, so intervals are wide.",
        )
    wrong = sorted(
        (name for name in reading.functions if reading.of("accuracy", name) < HALF),
        key=lambda name: float(reading.of("accuracy", name)),
    )
    if wrong and len(wrong) == len(reading.functions):
        shares = {name: float(reading.of("accuracy", name)) for name in wrong}
        low, high = (
            f"{writer.percent(shares[names[0]], f'accuracy of {names[0]}')} ({listed(names)})"
            for names in (best(shares, smallest=True), best(shares))
        )
        writer.add("caveats", f"The model answers fewer than half of the steps of any function right, {low} to {high}.")
    elif wrong:
        named = listed(
            f"{name} ({writer.percent(reading.of('accuracy', name), f'accuracy of {name}')})" for name in wrong
        )
        writer.add("caveats", f"The model answers fewer than half of the steps right of {named}.")
    writer.add(
        "caveats",
        "Where the sorted curve bends is a convention, not a boundary; intervals of importance are over seeds of the probe "
        "only, not over other steps. The scale of importance depends on the probe and cannot be compared between models. This "
        "is one model on one set of steps.",
    )


def _headline(writer: Writer, reading: FunctionsReading) -> str:
    first = (
        f"Layer x head maps of importance for {_functions(writer, reading)} in {model_of(reading)} "
        f"({size_of(writer, reading)})."
    )
    told = with_interval(writer, reading.level, "probe_accuracy")
    majority = writer.fixed(reading.level("majority"), "majority")
    second = f"The probe names {told} of held-out steps right; the most frequent function would get {majority}"
    if not reading.refused:
        return f"{first} {second}."
    refused = writer.count(len(reading.refused), "refused", "function")
    return f"{first} {second}, and {refused} {'is' if len(reading.refused) == 1 else 'are'} refused."


describe = Narrative(
    "Which heads carry which function",
    FunctionsReading,
    (_add_overview, _add_axes, add_details, add_observations, _add_caveats),
    _headline,
)
