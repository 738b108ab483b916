"""What the relations map shows: each category and its relations, then heads of several categories, depth, and chance.

Thresholds are few, fixed and always stated in the sentence.
"""

from __future__ import annotations

import math

from headwise.describe import maps
from headwise.describe.writer import Writer, listed
from headwise.studies.relations.accessor import SIGNS, RelationsReading

FEWEST_LAYERS = 6  # for early, middle and late
NAMED = 8  # heads of several categories that are named
LIKELY = 0.05  # false positives from which on a relation is called easy to pass


def add_details(writer: Writer, reading: RelationsReading) -> None:
    """One entry a category, with the strongest head of each of its relations."""
    for category in reading.categories:
        own = [name for name in reading.relations if reading.category_of(name) == category]
        text = f"{category[:1].upper()}{category[1:]}: {_size(writer, reading, category)}. {_depth(writer, reading, category)}"
        strongest = listed(_strongest(writer, reading, relation) for relation in own)
        writer.add("detail", f"{text.strip()} Strongest by relation: {strongest}.")
    for one in reading.left_out():
        writer.add("detail", _left_out(writer, one))


def add_observations(writer: Writer, reading: RelationsReading) -> None:
    """Shares, heads of several categories, and what the shuffled targets say."""
    writer.add("observations", _classified(writer, reading))
    writer.add("observations", _several(writer, reading))
    writer.add("observations", _suppression(writer, reading))
    writer.add("observations", _chance(writer, reading))
    writer.add("observations", _easy(writer, reading))
    writer.add("observations", _copied(writer, reading))


def _size(writer: Writer, reading: RelationsReading, category: str) -> str:
    count, share = reading.size(category), maps.Share(reading.size(category), reading.total).share
    if not count:
        return "no head"
    plain = writer.count(reading.size(category, "member"), f"member {category}")
    against = writer.count(reading.size(category, "member_suppression"), f"member_suppression {category}")
    return (
        f"{writer.count(count, f'size {category}', 'head')} ({writer.percent(share, f'share {category}')}), {plain} by "
        f"promoting and {against} by suppressing the targets"
    )


def _depth(writer: Writer, reading: RelationsReading, category: str) -> str:
    """The share of heads in each third of the layers."""
    trend = maps.depth_trend(reading.member(category))
    if len(reading.layers) < FEWEST_LAYERS or trend is None or not reading.size(category):
        return ""
    parts = [writer.percent(mean, f"third {category} {index}") for index, mean in enumerate(trend.means)]
    return (
        f"It holds {parts[0]} of the heads of the early, {parts[1]} of the middle and {parts[2]} of the late third of the "
        f"layers; the layer with most of them is {writer.number(trend.peak_layer, f'peak {category}')}."
    )


def _strongest(writer: Writer, reading: RelationsReading, relation: str) -> str:
    """The head with the largest score of either sign, its interval, and its mean with shuffled targets."""
    found = {sign: maps.strongest(reading.score(relation, sign), 1) for sign in SIGNS}
    sign = max((sign for sign in SIGNS if found[sign]), key=lambda sign: found[sign][0].value, default=None)
    if sign is None:
        return f"{relation} not measured"
    head = found[sign][0]
    value, low, high, null = (
        writer.number(reading.at(head, relation, name), f"at {name} {relation} {head.name}", digits=2)
        for name in (sign, f"{sign}_low", f"{sign}_high", f"{sign}_null")
    )
    how = "suppresses, " if sign == "suppression" else ""
    return f"{relation} {head.name} ({how}{value}, {low} to {high}; shuffled {null})"


def _left_out(writer: Writer, one: dict[str, object]) -> str:
    name, dropped = str(one["relation"]), one["dropped"]
    assert isinstance(dropped, dict)
    given, kept = (writer.count(int(str(one[what])), f"{what} {name}") for what in ("given", "kept"))
    why = listed(f"{reason} in {writer.count(count, f'dropped {name} {reason}')}" for reason, count in dropped.items())
    return f"{name} ({one['category']}) is left out: {kept} of its {given} pairs are usable ({why})."


def _classified(writer: Writer, reading: RelationsReading) -> str:
    none = reading.with_categories(0)
    some = reading.total - none
    text = (
        f"{writer.count(some, 'classified')} of {writer.count(reading.total, 'total', 'head')} "
        f"({writer.percent(some / reading.total, 'classified-share')}) have at least one category and "
        f"{writer.count(none, 'with 0')} have none"
    )
    sizes = {category: reading.size(category) for category in reading.categories}
    if len(sizes) > 1 and some:
        most = max(sizes, key=lambda category: sizes[category])
        text += f"; the most common category is {most} ({writer.count(sizes[most], f'size {most}', 'head')})"
    return f"{text}."


def _several(writer: Writer, reading: RelationsReading) -> str:
    found = reading.several()
    if not found:
        return "No head has more than one category." if len(reading.categories) > 1 else ""
    numbers = sorted({len(names) for _, names in found})
    parts = [
        f"{writer.count(reading.with_categories(n), f'with {n}')} with {writer.number(n, 'constant')}" for n in numbers
    ]
    named = [f"{head.name} ({', '.join(names)})" for head, names in found[:NAMED]]
    rest = "" if len(found) <= NAMED else ", among them"
    return (
        f"{writer.count(len(found), 'several', 'head')} {'has' if len(found) == 1 else 'have'} several categories "
        f"({listed(parts)}){rest}: {listed(named)}."
    )


def _suppression(writer: Writer, reading: RelationsReading) -> str:
    both = int(
        (reading.dataset["member"].any("category") & reading.dataset["member_suppression"].any("category")).sum()
    )
    only = int(
        (~reading.dataset["member"].any("category") & reading.dataset["member_suppression"].any("category")).sum()
    )
    if not (both or only):
        return "No head suppresses the targets of a relation."
    verb = "belongs" if only == 1 else "belong"
    text = f"{writer.count(only, 'only-suppression', 'head')} {verb} to a category by suppression alone"
    if not both:
        return f"{text}; none promotes the targets of one relation and suppresses those of another."
    return f"{text}; {writer.count(both, 'both-signs')} by promoting and by suppressing, relation by relation."


def _chance(writer: Writer, reading: RelationsReading) -> str:
    rate = reading.false_positive()
    if not math.isfinite(rate):
        return ""
    classified = reading.total - reading.with_categories(0)
    text = (
        f"With the targets shuffled inside each relation ({writer.count(reading.shuffles, 'shuffles')} times), "
        f"{writer.percent(rate, 'false-positive')} of all head x relation scores are over "
        f"{writer.number(reading.threshold, 'constant')}"
    )
    if not classified:
        return f"{text}."
    beyond, of = reading.beyond_null(), writer.count(classified, "classified", "head")
    rule = "by a score that is over each of its own shuffles"
    if beyond == classified:
        return f"{text}. Every head with a category has one {rule}."
    return (
        f"{text}. Of the {of} with a category, {writer.count(beyond, 'beyond-null')} have one {rule}; the others may know a "
        "relation's targets without knowing which belongs to which source."
    )


def _easy(writer: Writer, reading: RelationsReading) -> str:
    """The relations that shuffled targets pass often."""
    rates = {name: reading.false_positive(name) for name in reading.relations}
    found = sorted((name for name in rates if rates[name] > LIKELY), key=lambda name: -rates[name])
    if not found:
        return f"In no relation do more than {writer.percent(LIKELY, 'constant')} of the shuffled scores pass."
    named = [f"{name} ({writer.percent(rates[name], f'false-positive {name}')})" for name in found]
    return (
        f"The threshold is easy to pass, with shuffled targets in more than {writer.percent(LIKELY, 'constant')} of the "
        f"heads, for {listed(named)}: these have few different targets."
    )


def _copied(writer: Writer, reading: RelationsReading) -> str:
    """The control without a head: what copying alone would score."""
    if "copied_score" not in reading.dataset or bool(reading.dataset["copied_score"].isnull().all()):
        return ""
    found = reading.copied()
    total = writer.count(len(reading.relations), "relations", "relation")
    bar = writer.number(reading.threshold, "threshold")
    if not found:
        return f"A head that did nothing but copy what it reads would score over {bar} for none of {total}."
    names = list(found)
    most = listed(f"{name} {writer.fixed(found[name], f'copied_score {name}')}" for name in names[:NAMED])
    among = "among them " if len(names) > NAMED else ""
    passing, beyond = reading.passing(names), reading.passing(names, beyond_copying=True)
    return (
        f"A head that did nothing but copy what it reads would score over {bar} for {writer.count(len(names), 'copied')} of "
        f"{total} ({among}{most}). {writer.count(passing, 'copied-passing', 'head')} "
        f"{'does' if passing == 1 else 'do'} so for one of these, {writer.count(beyond, 'copied-beyond')} by more than copying "
        "would."
    )
