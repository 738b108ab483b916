"""The patterns study in words: what do the attention maps look like, and what changed between two models?

Overview, axes, caveats and the short form are here; the findings are in `findings.py` and `changes.py`. Every number is
computed from the Dataset and kept, with what it is, in `Description.numbers`.
"""

from __future__ import annotations

from headwise.describe.narrative import Narrative
from headwise.describe.phrases import model_of, size_of
from headwise.describe.writer import Writer
from headwise.studies.patterns.accessor import LEVEL, PatternsReading
from headwise.studies.patterns.words_changes import add_observations
from headwise.studies.patterns.words_findings import add_details, estimate

ENOUGH = 30  # prompts


def _add_overview(writer: Writer, reading: PatternsReading) -> None:
    prompts = writer.count(reading.prompts, "prompts", "prompt")
    tokens, data = reading.parameters.get("tokens"), reading.origin.get("data", {})
    length = f" of {writer.count(int(tokens), 'tokens')} tokens each" if tokens else ""
    of = f", cut from the data '{data['name']}'" if "name" in data else ""
    beside = f", beside those of {reading.names[1]} on the same tokens" if reading.two else ""
    writer.add(
        "overview",
        f"What the attention maps of {model_of(reading)} ({size_of(writer, reading)}) look like{beside}: numbers of every "
        f"head's map over {prompts}{length}{of}.",
    )
    text = reading.parameters.get("prompt") or "".join(reading.tokens)
    shown = writer.count(len(reading.tokens), "shown", "token")
    cut = text if len(text) <= 100 else f"{text[:99]}…"
    writer.add("overview", f"The maps that are drawn are of one prompt, '{cut}' ({shown}).")


def _add_axes(writer: Writer, reading: PatternsReading) -> None:
    writer.add(
        "axes",
        "Each tile is the map of one head, named by layer and head: rows are the tokens that look, from the top, columns the "
        "tokens that are looked at, from the left. White is no weight, dark blue the most; strokes are what the mask hides.",
    )
    rows = (
        "The rows of a gated model may sum to less than 1, or to nothing: what is missing counts as looking nowhere. "
    )
    writer.add(
        "axes",
        f"All numbers leave out the first token's own row. {rows if reading.gated else ''}In brackets after a mean is its 95 % "
        "interval over prompts.",
    )
    if reading.two:
        writer.add(
            "axes",
            "A change is the second model less the first, prompt by prompt, tested by Wilcoxon's signed-rank test; q is the "
            "Benjamini-Hochberg q-value over the heads. The test is of ranks, the interval in brackets of the mean: heads are "
            "named where both leave out no change. Similarity is 1 less the Jensen-Shannon divergence of the rows.",
        )


def _add_caveats(writer: Writer, reading: PatternsReading) -> None:
    texts = reading.origin.get("data", {}).get("texts")
    if texts and texts < reading.prompts:
        cut, of = writer.count(reading.prompts, "prompts", "prompt"), writer.count(int(texts), "texts", "text")
        writer.add(
            "caveats",
            f"The {cut} were cut from {of}, so they are not independent, and intervals and tests are a little too sure.",
        )
    if reading.prompts < ENOUGH:
        writer.add("caveats", f"Fewer than {writer.number(ENOUGH, 'constant')} prompts: small changes go unseen.")
    writer.add(
        "caveats",
        "The prompts are short: heads that look far back have little to look at, and the share of pairs that are active "
        "depends on the length.",
    )
    writer.add(
        "caveats",
        "Weight on the first token is ordinary in decoder models, a place where unused attention goes, and says little about "
        "that token.",
    )
    if reading.gated:
        writer.add(
            "caveats",
            "A model with gates needs no such place, since a row may look nowhere: its weight on the first token can vanish "
            "without anything being lost. So comparing that weight, and numbers that it carries (peak, entropy), between a "
            "dense and a sparse model is not fair.",
        )
    if reading.two:
        tests, level = writer.count(reading.tests, "tests", "test"), writer.number(LEVEL, "constant")
        writer.add(
            "caveats",
            f"With {tests}, q < {level} bounds the share of false findings within each number, not over all of them; and a "
            "change can be sure and small: look at its size first.",
        )
    writer.add(
        "caveats",
        "A weight is where a head looks, not what it does: loss and divergence tell what changed in the output.",
    )


def _headline(writer: Writer, reading: PatternsReading) -> str:
    dominant = writer.percent(float(reading.dominant(0).sum()) / reading.total, "dominant-percent 0")
    beside = f" and {reading.names[1]}" if reading.two else ""
    first = (
        f"The attention maps of {model_of(reading)} ({size_of(writer, reading)}){beside}: {dominant} of the heads look "
        "mostly along the diagonal"
    )
    active = writer.percent(reading.whole("active").value, "whole-percent 0 active")
    if not reading.two:
        return f"{first}, and {active} of the visible pairs are active."
    dropped = writer.percent(reading.between("dropped").value, "between-percent dropped")
    after = writer.percent(reading.whole("active", 1).value, "whole-percent 1 active")
    found = reading.whole_change("loss")
    loss = estimate(writer, found, "whole-change loss")
    sure = found.low > 0 or found.high < 0
    changes = f"the loss changes by {loss} nats" if sure else f"the loss does not change beyond doubt: by {loss} nats"
    return (
        f"{first}. {active} of the visible pairs are active in the one and {after} in the other; {dropped} of the "
        f"connections are dropped, and {changes}."
    )


describe = Narrative(
    "What the attention maps look like",
    PatternsReading,
    (_add_overview, _add_axes, add_details, add_observations, _add_caveats),
    _headline,
)
