"""The relations study in words: what does each head compute, by its weights, and where do the categories sit?

Overview, axes, caveats and the short form are here; the findings are in `findings.py`. Every number is
computed from the Dataset and kept, with what it is, in `Description.numbers`.
"""

from __future__ import annotations

from headwise.describe.narrative import Narrative
from headwise.describe.phrases import model_of, size_of
from headwise.describe.writer import Writer, listed
from headwise.studies.relations.accessor import RelationsReading
from headwise.studies.relations.words_findings import add_details, add_observations


def _relations(writer: Writer, reading: RelationsReading) -> str:
    relations = writer.count(len(reading.relations), "relations", "relation")
    return f"{relations} in {writer.count(len(reading.categories), 'categories', 'category')}"


def _add_overview(writer: Writer, reading: RelationsReading) -> None:
    pairs = writer.count(int(reading.dataset["pairs"].sum()), "pairs", "pair")
    writer.add(
        "overview",
        f"What every attention head of {model_of(reading)} ({size_of(writer, reading)}) computes, read from its weights "
        f"alone: whether it maps the first word of a pair to the second, for {_relations(writer, reading)} ({pairs} of "
        "single-token words).",
    )
    folded = reading.parameters.get("norms") == "folded"
    writer.add("overview", f"Norms are {'folded in (their gains)' if folded else 'left out, as published'}.")
    data = reading.origin.get("data", {}).get("name")
    if data:
        writer.add("overview", f"The pairs are those of '{data}'.")


def _add_axes(writer: Writer, reading: RelationsReading) -> None:
    layers, heads = reading.layers, reading.heads
    for edge in (layers[0], layers[-1], heads[0], heads[-1]):
        writer.number(edge, "edge")
    writer.add(
        "axes",
        f"Columns are layers, {layers[0]} (next to the embedding) to {layers[-1]}; rows are heads, {heads[0]} to "
        f"{heads[-1]}; one mark a head, coloured by its category: "
        f"{listed(reading.categories)}, several of them, or none.",
    )
    ks = sorted({int(k) for k in reading.dataset["k"].values})
    threshold = writer.number(reading.threshold, "constant")
    writer.add(
        "axes",
        "A score is the share of a relation's pairs whose target is among the k tokens that the head promotes most for the "
        f"source (k is {listed((writer.number(k, 'constant') for k in ks), last='or')}); a suppression score takes those it "
        f"promotes least. A head belongs to a relation, and to its category, when one of the two is over {threshold}. Numbers "
        "behind a score are the ends of its 95 % interval.",
    )


def _add_caveats(writer: Writer, reading: RelationsReading) -> None:
    fewest = reading.smallest()
    step = writer.number(1 / fewest, "step", digits=2)
    writer.add(
        "caveats",
        f"A score moves in steps of one pair: with {writer.count(fewest, 'fewest')} pairs, the fewest here, that is {step}.",
    )
    if reading.parameters.get("embedding", "effective") == "effective":
        writer.add(
            "caveats",
            "Heads after the first layer are read from what the first MLP makes of a token, not from what really reaches "
            "them.",
        )
    writer.add(
        "caveats",
        "Weights tell what a head would write if it attended to the source word, not when it does so. An unclassified head "
        "may do what is not on this list. The pairs are a sample of each relation, and a word that is several tokens is "
        "not among them.",
    )


def _headline(writer: Writer, reading: RelationsReading) -> str:
    none = reading.with_categories(0)
    sizes = [f"{name} {writer.count(reading.size(name), f'size {name}')}" for name in reading.categories]
    several = len(reading.several())
    rate = writer.percent(reading.false_positive(), "false-positive")
    return (
        f"Categories of the heads of {model_of(reading)} ({size_of(writer, reading)}) by their weights, for "
        f"{_relations(writer, reading)}: {listed(sizes)}, {writer.count(several, 'several')} with several categories and "
        f"{writer.count(none, 'with 0')} unclassified. With shuffled targets {rate} of the scores pass."
    )


describe = Narrative(
    "What each head computes, from its weights",
    RelationsReading,
    (_add_overview, _add_axes, add_details, add_observations, _add_caveats),
    _headline,
)
