"""The masking study in words: does the model need a function's heads, and for that function only?

Overview, axes, caveats and the short form are here; the findings are in `findings`. Every number is
computed from the Dataset and kept, with what it is, in `Description.numbers`:
"own 16 of Retrieval" is the accuracy at so many heads.
"""

from __future__ import annotations

from headwise.core.dims import DRAW
from headwise.describe.narrative import Narrative
from headwise.describe.phrases import model_of
from headwise.describe.writer import Writer, listed
from headwise.studies.function_masking.accessor import MaskingReading
from headwise.studies.function_masking.figure import where_masked
from headwise.studies.function_masking.words_findings import add_details, add_observations

FEW = 50  # steps below which an accuracy is called coarse


def _add_overview(writer: Writer, reading: MaskingReading) -> None:
    factor = writer.number(float(reading.dataset.attrs["factor"]), "factor")
    counts = listed(writer.number(count, "constant") for count in reading.removed)
    draws = writer.count(reading.dataset.sizes[DRAW], "draws", "draw")
    writer.add(
        "overview",
        f"What {model_of(reading)} still answers right when a function's most important heads are masked, which is to say "
        f"multiplied by {factor} {where_masked(reading.dataset)}: {counts} heads, against {draws} of as many random "
        "heads that are not among them. Asked are held-out steps that the whole model does.",
    )
    masked = writer.count(len(reading.masked), "masked", "function")
    writer.add("overview", f"{masked} of {writer.count(len(reading.functions), 'functions')} were masked.")
    if data := reading.origin.get("data", {}).get("name"):
        writer.add("overview", f"The steps are those of '{data}'.")


def _add_axes(writer: Writer, reading: MaskingReading) -> None:
    writer.add(
        "axes",
        "What is lost is accuracy with random heads masked less accuracy with the function's own masked; ranges in brackets "
        "are 95 % intervals. An answer counts when it matches the right answer, whatever the whole model says.",
    )
    writer.add(
        "axes",
        f"In the matrix rows are functions whose {writer.count(reading.size, 'size', 'head')} are masked, columns functions "
        "whose steps are asked. To augment is to add to each head the direction from wrong to correct answers, alpha standard "
        "deviations long.",
    )


def _add_caveats(writer: Writer, reading: MaskingReading) -> None:
    asked = [int(reading.of("asked", name)) for name in reading.masked]
    if asked and min(asked) < FEW:
        writer.add("caveats", f"Accuracies are of as few as {writer.count(min(asked), 'fewest', 'step')}.")
    writer.add(
        "caveats",
        "Only steps that the whole model does are asked with heads masked, so any change can only lower the accuracy there: "
        "the random heads show by how much. Heads were ranked by importance, and masking many of any kind hurts. Intervals "
        "are not corrected for the number of functions, numbers of heads and amounts that were tried.",
    )
    left = [(name, reading.of("reason", name)) for name in reading.functions if reading.of("reason", name)]
    if left:
        writer.add("caveats", f"Not masked: {listed(f'{name} ({reason})' for name, reason in left)}.")
    writer.add("caveats", "This is one model on one set of steps.")


def _headline(writer: Writer, reading: MaskingReading) -> str:
    names = reading.needed()
    total = writer.count(len(reading.masked), "masked", "function")
    first = f"Steps of {model_of(reading)} with a function's heads masked."
    if not reading.masked:
        return f"{first} No function could be masked."
    if not names:
        return f"{first} Of {total} none loses more than with random heads by its 95 % interval."
    count, verb = writer.count(len(names), "needed"), "loses" if len(names) == 1 else "lose"
    told = (f"{name} ({writer.count(int(reading.of('asked', name)), f'asked of {name}', 'step')})" for name in names)
    return (
        f"{first} Of {total} {count} {verb} more than with random heads by 95 % intervals that are not corrected for the "
        f"number of functions: {listed(told)}."
    )


describe = Narrative(
    "Steps without a function's heads",
    MaskingReading,
    (_add_overview, _add_axes, add_details, add_observations, _add_caveats),
    _headline,
)
