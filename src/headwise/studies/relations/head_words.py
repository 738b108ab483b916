"""One head in words, by its weights: its relations with the pairs it maps right, and the tokens it acts on most.

    head_in_words("L23H4", atlas["relations"], atlas["salience"]).text()

What a head's own page shows. Every number is kept, with what it is, in `Description.numbers`.
"""

from __future__ import annotations

import xarray as xr

from headwise.core.dims import EXAMPLE, HEAD, LAYER, RANK, TARGET, VOCABULARY, head_name, parse_head
from headwise.core.errors import DataError
from headwise.describe.writer import Description, Writer
from headwise.studies.relations.accessor import SIGNS, RelationsReading

__all__ = ["head_in_words"]

FEW = 3  # relations told of a head that is in none
PAIRS = 8  # pairs told of a relation
TOKENS, TARGETS = 8, 3


def head_in_words(
    head: str | tuple[int, int], relations: xr.Dataset, salience: xr.Dataset | None = None
) -> Description:
    """What one head computes: ``head`` as "L23H4" or (23, 4)."""
    layer, number = parse_head(head)
    name, reading = head_name(layer, number), RelationsReading(relations)
    if layer not in reading.layers or number not in reading.heads:
        raise DataError(
            f"there is no head {name}: the map has {len(reading.layers)} layers of {len(reading.heads)} heads"
        )
    place = {LAYER: layer, HEAD: number}
    writer = Writer(f"{name}, by its weights")
    categories = str(relations["categories"].sel(place).values)
    if not bool(reading.measured.sel(place)):
        writer.add("overview", f"{name} was not measured: its layer has no such head.")
        return writer.finish("")
    told = f"{name} belongs to: {categories}." if categories else f"{name} is unclassified."
    writer.add("overview", told)
    _add_relations(writer, reading, place, bool(categories))
    if salience is not None:
        writer.add("observations", _salient(writer, salience, place))
    return writer.finish(told)


def _add_relations(writer: Writer, reading: RelationsReading, place: dict[str, int], classified: bool) -> None:
    """The relations over the threshold, strongest first; or, where there are none, the few that come nearest."""
    found = [
        (float(reading.score(relation, sign).sel(place)), sign, relation)
        for sign in SIGNS
        for relation in reading.relations
    ]
    found.sort(key=lambda one: -one[0])
    over = [one for one in found if classified and one[0] > reading.threshold + 1e-7]
    for value, sign, relation in over or found[:FEW]:
        what = f"{sign} {relation}"
        low, high, null = (
            writer.number(float(reading.score(relation, f"{sign}_{end}").sel(place)), f"{end} {what}", digits=2)
            for end in ("low", "high", "null")
        )
        verb = "promotes" if sign == "score" else "suppresses"
        text = f"{relation}: {verb} {writer.percent(value, f'share {what}')} of the targets"
        step = f"(as a share {low} to {high}; with shuffled targets {null})"
        writer.add("detail", f"{text} {step}{_pairs(reading, place, sign, relation)}.")


def _pairs(reading: RelationsReading, place: dict[str, int], sign: str, relation: str) -> str:
    right = reading.dataset["mapped" if sign == "score" else "suppressed"].sel(place)
    right = right.isel({EXAMPLE: (right["relation_of"].values == relation) & right.values})
    words = list(zip(right["source"].values.tolist(), right["target_word"].values.tolist(), strict=True))
    if not words:
        return ""
    more = " and others" if len(words) > PAIRS else ""
    return ": " + ", ".join(f"{source} → {target}" for source, target in words[:PAIRS]) + more


def _salient(writer: Writer, salience: xr.Dataset, place: dict[str, int]) -> str:
    one = salience.sel(place)
    parts = []
    for rank in range(min(TOKENS, one.sizes[RANK])):
        targets = one["targets"].isel({RANK: rank, TARGET: slice(0, TARGETS)}).values
        parts.append(f"{_text(one, int(one['token'].values[rank]))} → {', '.join(_text(one, int(t)) for t in targets)}")
    strength = writer.number(float(one["strength"].values[0]), "strength", digits=2)
    return f"It acts most on (the first is written {strength} times as long as it is read): {'; '.join(parts)}."


def _text(salience: xr.Dataset, token: int) -> str:
    text = str(salience["text"].sel({VOCABULARY: token}).values)
    return f"'{text.strip()}'" if text.strip() else repr(text)
