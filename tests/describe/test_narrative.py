"""The order in which a study is told, whatever the study."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import xarray as xr

from headwise.describe.narrative import Narrative
from headwise.describe.writer import Writer


def overview(writer: Writer, dataset: xr.Dataset) -> str:
    return f"There are {writer.count(dataset.sizes['layer'], 'layers', 'layer')}."


def caveats(writer: Writer, _: xr.Dataset) -> Iterator[str]:
    yield "It is small."
    yield ""
    yield f"It has {writer.count(1, 'one', 'caveat')} more."


NARRATIVE = Narrative(
    "A study",
    lambda dataset: dataset,
    (overview, (), (), (), (caveats,)),
    lambda writer, _: writer.count(7, "seven", "head"),
)


@pytest.mark.parametrize(
    ("attrs", "title"),
    [
        ({}, "A study: the model"),
        ({"title": "My map", "provenance": '{"model": {"id": "who/tiny"}}'}, "My map: who/tiny"),
        ({"provenance": '{"model": {"id": "/home/jane/tiny"}}'}, "A study: tiny"),
    ],
)
def test_all_parts_speak_in_order_and_the_headline_last(attrs: dict[str, str], title: str) -> None:
    words = NARRATIVE(xr.Dataset({"x": ("layer", [1, 2])}, attrs=attrs))
    assert words.title == title
    assert words.sections() == {
        "Overview": ["There are 2 layers."],
        "Caveats": ["It is small.", "It has 1 caveat more."],
    }
    assert words.short() == "7 heads"
    assert [number.source for number in words.numbers] == ["layers", "one", "seven"]
