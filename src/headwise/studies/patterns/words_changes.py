"""What all heads together show: how many look along the diagonal, at the first token, at few places; and between two
models what changed, which connections went, which heads moved, and what it did to the output.
"""

from __future__ import annotations

from headwise.describe import maps
from headwise.describe.phrases import others_as_large
from headwise.describe.writer import Writer, listed
from headwise.studies.patterns.accessor import HALF, LEVEL, PatternsReading
from headwise.studies.patterns.words_findings import SHOWN, estimate, surely

MOST_NAMED = 8


def add_observations(writer: Writer, reading: PatternsReading) -> None:
    """One model first, then what changed."""
    for subject in range(len(reading.names)):
        writer.add("observations", _shape(writer, reading, subject))
    if reading.two:
        for say in (_likeness, _moved, _edges, _overall, _output):
            writer.add("observations", say(writer, reading))


def _shape(writer: Writer, reading: PatternsReading, subject: int) -> str:
    """How the maps of one subject look as a whole."""
    dominant = int(reading.dominant(subject).sum())
    total = writer.count(reading.total, "total", "head")
    share = writer.percent(dominant / reading.total, f"dominant-percent {subject}")
    text = (
        f"In {reading.names[subject]}, {writer.count(dominant, f'dominant {subject}')} of {total} ({share}) "
        f"{'has' if dominant == 1 else 'have'} over half of {'its' if dominant == 1 else 'their'} weight on the diagonal band"
    )
    if 0 < dominant <= MOST_NAMED:
        heads = maps.strongest(reading.value("diagonal", subject).where(reading.dominant(subject)), dominant)
        text += f" ({listed(head.name for head in heads)})"
    peak, first = (
        writer.number(reading.whole(key, subject).value, f"whole {subject} {key}") for key in ("peak", "first")
    )
    active = writer.percent(reading.whole("active", subject).value, f"whole-percent {subject} active")
    opened = writer.percent(reading.whole("open", subject).value, f"whole-percent {subject} open")
    many = reading.peaked(subject)
    peaked = f"{writer.count(many, f'peaked {subject}', 'head')} {'has' if many == 1 else 'have'}"
    bar = writer.number(float(reading.parameters.get("peak", 0.3)), "constant")
    edge = writer.number(float(reading.parameters.get("active", 0.01)), "constant")
    return (
        f"{text}; a row's largest weight is {peak} on average, and {first} lies on the first token. {active} of the visible "
        f"pairs have a weight over {edge}, and {opened} any weight. {peaked} a weight over {bar} off the diagonal and off the "
        "first token in at least half of the prompts."
    )


def _likeness(writer: Writer, reading: PatternsReading) -> str:
    """Similarity, its control, and the heads that changed most."""
    alike = estimate(writer, reading.between("similarity"), "between similarity")
    text = f"The maps of a head in the two models have a similarity of {alike} on average (1: the same, 0: disjoint)"
    other = reading.between("other")
    if other.value == other.value:
        text += f"; with the next head of the layer it would be {writer.number(other.value, 'between other')}"
    elsewhere = estimate(writer, reading.between("elsewhere"), "between elsewhere")
    text += f". With the weight on the first token counted as looking nowhere in both, it is {elsewhere}"
    heads = maps.strongest(reading.map("similarity"), SHOWN, by="smallest")
    told = [f"{head.name} ({writer.fixed(head.value, f'at similarity {head.name}')})" for head in heads]
    tied = others_as_large(reading.map("similarity"), heads)
    more = f", and {writer.count(tied, 'tied similarity', 'other')} as much as the last" if tied else ""
    return f"{text}. The {'head that changed' if len(told) == 1 else 'heads that changed'} most: {listed(told)}{more}."


def _moved(writer: Writer, reading: PatternsReading) -> str:
    """Heads that left the diagonal, and those that came to it."""
    level, half = writer.number(LEVEL, "constant"), writer.percent(HALF, "constant")
    rule = f"over {half} of the weight on the band in one model and not in the other, q < {level}"
    off, onto = reading.moved(True), reading.moved(False)
    if not off and not onto:
        return f"No head moved off the diagonal or onto it ({rule})."
    return f"{_movers(writer, off, 'off')} moved off the diagonal and {_movers(writer, onto, 'onto')} onto it ({rule})."


def _movers(writer: Writer, heads: list[maps.HeadValue], way: str) -> str:
    count = writer.count(len(heads), f"moved {way}", "head")
    names = [head.name for head in heads]
    told = listed(names) if len(names) <= MOST_NAMED else f"{', '.join(names[:MOST_NAMED])}, ..."
    return f"{count} ({told})" if heads else count


def _edges(writer: Writer, reading: PatternsReading) -> str:
    """Connections dropped and gained."""
    edge = writer.number(float(reading.parameters.get("active", 0.01)), "constant")
    dropped, gained = (
        estimate(writer, reading.between(name), f"between-percent {name}", percent=True)
        for name in ("dropped", "gained")
    )
    return (
        f"Of the connections that are active (weight over {edge}) in {reading.names[0]}, {dropped} are not in "
        f"{reading.names[1]}; of those active in {reading.names[1]}, {gained} are new."
    )


def _overall(writer: Writer, reading: PatternsReading) -> str:
    """The numbers of all heads together, before and after."""
    words = {"dominant": "the share of diagonal heads", "peak": "the peak", "first": "the weight on the first token",
             "entropy": "the entropy", "active": "the share of active edges", "mass": "the sum of a row"}  # fmt: skip
    told: list[str] = []
    doubted: list[str] = []
    for feature, name in words.items():
        p, found = reading.whole_p(feature), reading.whole_change(feature)
        if p < LEVEL:
            change = estimate(writer, found, f"whole-change {feature}")
            sure = found.low > 0 or found.high < 0
            (told if sure else doubted).append(f"{name} by {change}, {surely(writer, p, f'whole-p {feature}')}")
    text = f"Over all heads, paired over prompts, these changed: {'; '.join(told)}."
    if not told:
        level = writer.number(LEVEL, "constant")
        text = f"No number of all heads together changed beyond doubt (p < {level}, paired over prompts)."
    if doubted:
        text += f" The test sees a change where the interval of the mean does not leave out 0: {'; '.join(doubted)}."
    return text


def _output(writer: Writer, reading: PatternsReading) -> str:
    """Loss and divergence."""
    before, after = (writer.number(reading.whole("loss", place).value, f"whole {place} loss") for place in (0, 1))
    change = estimate(writer, reading.whole_change("loss"), "whole-change loss")
    sure = surely(writer, reading.whole_p("loss"), "whole-p loss")
    kl = estimate(writer, reading.between("kl"), "between kl")
    return (
        f"The loss of a token on the same prompts is {before} nats in {reading.names[0]} and {after} in {reading.names[1]}: a "
        f"change of {change}, {sure}. The next-token distributions are {kl} nats apart (Kullback-Leibler, a token)."
    )
